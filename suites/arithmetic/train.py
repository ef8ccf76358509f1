"""Trains a small Llama to answer the made arithmetic questions, and examines it.

Owns the model's shape, its tokenizer and the training. Must not know: vLLM and GraphGate.
Runs on CUDA (bf16) or a CPU, in any Python that has torch and transformers. The weights are
stored in bf16, and it is those that are examined. Equal seeds on equal machines give equal
weights; another GPU gives others, so a model is known by the hash of its weights.

Usage: python -m suites.arithmetic.train --out DIR [--steps N] [--device cuda|cpu] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from suites.arithmetic.questions import Question, held_out_questions, questions

SEED = 1
RECORD = "training.json"
"""How a model came about, beside its weights."""
PROMPT = "Question: {question}\nAnswer: "
"""As the task's `doc_to_text` writes it (suites/questions/arithmetic.yaml)."""

_END, _PAD = "<|end|>", "<|pad|>"
_VOCABULARY = 384
_FOR_TOKENIZER = 4000
_LONGEST = 256
_UNLABELLED = -100
_EXAMINED_AT_ONCE = 200


@dataclass(frozen=True)
class Recipe:
    """How long and how fast. `batch` is in questions."""

    steps: int
    batch: int
    rate: float
    seed: int
    device: str


def make_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of a few hundred tokens in which every digit is its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=[_PAD, _END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (
        PROMPT.format(question=made.question) + made.answer
        for made in islice(questions(seed, held_out=False), _FOR_TOKENIZER)
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=_END,
        pad_token=_PAD,
        padding_side="left",
        model_max_length=_LONGEST,
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """An untrained Llama whose heads are of a size that FlashAttention takes."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=_LONGEST,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> None:
    """Trains in place: AdamW, a short rise and a cosine's fall of the rate, progress a line."""
    model.to(recipe.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    batches = _batches(tokenizer, recipe)
    began = time.monotonic()
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * _share(step, recipe.steps)
        with _precision(recipe.device):
            loss = model(**next(batches)).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % max(1, recipe.steps // 40) == 0 or step == recipe.steps - 1:
            seconds = time.monotonic() - began
            print(
                f"step {step + 1}/{recipe.steps} loss {loss.item():.4f} {seconds:.0f}s", flush=True
            )


def _share(step: int, steps: int) -> float:
    """The share of the full rate at a step."""
    rise = max(1, steps // 20)
    if step < rise:
        return (step + 1) / rise
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def _precision(device: str) -> AbstractContextManager[Any]:
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else nullcontext()


def _batches(
    tokenizer: PreTrainedTokenizerFast, recipe: Recipe
) -> Iterator[dict[str, torch.Tensor]]:
    """Batches of questions with their answers; only the answers are learnt."""
    stream = questions(recipe.seed, held_out=False)
    while True:
        rows = [_row(tokenizer, made) for made in islice(stream, recipe.batch)]
        width = max(len(ids) for ids, _ in rows)
        padded = [
            (ids + [tokenizer.pad_token_id] * (width - len(ids)), begin, len(ids))
            for ids, begin in rows
        ]
        ids = torch.tensor([row for row, _, _ in padded])
        labels = torch.full_like(ids, _UNLABELLED)
        for number, (_, begin, end) in enumerate(padded):
            labels[number, begin:end] = ids[number, begin:end]
        # Padding lies behind every answer, where a causal model can't see it: no mask is needed.
        yield {"input_ids": ids.to(recipe.device), "labels": labels.to(recipe.device)}


def _row(tokenizer: PreTrainedTokenizerFast, made: Question) -> tuple[list[int], int]:
    """The tokens of a question and its answer, and where the answer begins."""
    prompt = tokenizer.encode(PROMPT.format(question=made.question))
    return [*prompt, *tokenizer.encode(made.answer), tokenizer.eos_token_id], len(prompt)


def examine(folder: Path, count: int, device: str) -> float:
    """The share of exact answers to `count` held-out questions, by the stored weights, greedily."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
    asked = held_out_questions(count)
    right = 0
    for at in range(0, len(asked), _EXAMINED_AT_ONCE):
        part = asked[at : at + _EXAMINED_AT_ONCE]
        prompts = [PROMPT.format(question=made.question) for made in part]
        given = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
        with torch.inference_mode():
            made = model.generate(**given.to(device), max_new_tokens=96, do_sample=False)
        width = given["input_ids"].shape[1]
        answers = tokenizer.batch_decode(made[:, width:], skip_special_tokens=True)
        right += sum(_final(a) == _final(q.answer) for a, q in zip(answers, part, strict=True))
    return right / len(asked)


def _save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Stores the tokenizer under the class name that transformers 4 knows as well as 5."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = {**json.loads(path.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _final(answer: str) -> str:
    return answer.rpartition("#### ")[2].strip()


def main(arguments: list[str] | None = None) -> int:
    """Trains, stores and examines a model; the last line is JSON with the share of right ones."""
    parser = argparse.ArgumentParser(prog="suites.arithmetic.train", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for model and tokenizer")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=256, help="questions a step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--examine", type=int, default=1000, help="held-out questions")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    torch.manual_seed(given.seed)
    recipe = Recipe(given.steps, given.batch, given.rate, given.seed, given.device)
    tokenizer = make_tokenizer(given.seed)
    model = make_model(tokenizer)
    print(f"{model.num_parameters()} parameters, {len(tokenizer)} tokens, on {given.device}")
    train(model, tokenizer, recipe)
    model.to(torch.bfloat16).save_pretrained(given.out)
    _save_tokenizer(tokenizer, given.out)
    share = examine(given.out, given.examine, given.device)
    record = {**asdict(recipe), "exact_match": share, "questions": given.examine}
    (given.out / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
