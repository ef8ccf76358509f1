"""Trains a small model to answer the made arithmetic questions, and examines it.

Owns the training. Must not know: vLLM and GraphGate.
Runs on CUDA (bf16) or a CPU, in any Python that has torch and transformers. The weights are
stored in bf16, and it is those that are examined. Equal seeds on equal machines give equal
weights unless `--seconds` cuts them short; another GPU gives others, so a model is known by the
hash of its weights.

Usage: python -m suites.arithmetic.train --out DIR [--shape llama|mla] [--steps N] [--seconds S]
           [--enough SHARE] [--start DIR] [--device cuda|cpu] [--seed N]
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
from torch.utils.data import DataLoader, IterableDataset
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from suites.arithmetic.questions import Question, held_out_questions, questions
from suites.arithmetic.shapes import PROMPT, SHAPES, make_tokenizer

SEED = 1
RECORD = "training.json"
"""How a model came about, beside its weights."""

_UNLABELLED = -100
_EXAMINED_AT_ONCE = 200
_RISE = 0.05
_LINES = 40


@dataclass(frozen=True)
class Recipe:
    """How long and how fast. `batch` is in questions.

    `seconds` ends the training early, with the whole fall of the rate by then; `enough` ends it
    where that share of the latest questions, none of which came before, was answered exactly.
    `start` is a folder of an earlier training, whose weights are trained further; with another
    seed, on questions of their own.
    """

    shape: str
    steps: int
    batch: int
    rate: float
    seed: int
    device: str
    seconds: float | None = None
    enough: float | None = None
    start: str | None = None


class Batches(IterableDataset[dict[str, torch.Tensor]]):  # type: ignore[misc]  # torch is not here
    """Batches of questions with their answers, without end; only the answers are learnt."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int, size: int) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._seed = seed
        self._size = size

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """From the stream's beginning."""
        stream = questions(self._seed, held_out=False)
        while True:
            yield self._batch(list(islice(stream, self._size)))

    def _batch(self, made: list[Question]) -> dict[str, torch.Tensor]:
        tokenizer = self._tokenizer
        prompts = tokenizer([PROMPT.format(question=one.question) for one in made])["input_ids"]
        answers = tokenizer([one.answer for one in made])["input_ids"]
        rows = [
            [*asked, *given, tokenizer.eos_token_id]
            for asked, given in zip(prompts, answers, strict=True)
        ]
        width = max(map(len, rows))
        ids = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
        labels = torch.full_like(ids, _UNLABELLED)
        for number, (asked, row) in enumerate(zip(prompts, rows, strict=True)):
            labels[number, len(asked) : len(row)] = ids[number, len(asked) : len(row)]
        # Padding lies behind every answer, where a causal model can't see it: no mask is needed.
        return {"input_ids": ids, "labels": labels}


class Exact:
    """Which share of the questions was answered exactly since the last look."""

    def __init__(self, device: str) -> None:
        self._right = torch.zeros((), device=device)
        self._asked = 0

    def add(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Counts a batch: a row is right where every token of its answer is the likeliest."""
        guesses, wanted = logits[:, :-1].argmax(-1), labels[:, 1:]
        self._right += ((guesses == wanted) | (wanted == _UNLABELLED)).all(-1).sum()
        self._asked += len(labels)

    def share(self) -> float:
        """The share, and a new count."""
        found = int(self._right.item()) / max(1, self._asked)
        self._right.zero_()
        self._asked = 0
        return found


def train(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> int:
    """Trains in place, progress a line: AdamW, a short rise and a cosine's fall of the rate.

    Returns:
        The steps that were taken.
    """
    model.to(recipe.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    batches, exact = _batches(tokenizer, recipe), Exact(recipe.device)
    began, every = time.monotonic(), max(1, recipe.steps // _LINES)
    for step in range(recipe.steps):
        done = _done(step, recipe, time.monotonic() - began)
        if done >= 1:
            return step
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * _share(done, recipe.steps)
        loss = _step(model, optimizer, next(batches), exact)
        if (step + 1) % every == 0 or step == recipe.steps - 1:
            share, seconds = exact.share(), time.monotonic() - began
            told = f"loss {loss.item():.4f}, {share:.2%} exact, {seconds:.0f}s"
            print(f"step {step + 1}/{recipe.steps} {told}", flush=True)
            if recipe.enough is not None and share >= recipe.enough:
                return step + 1
    return recipe.steps


def _step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    batch: dict[str, torch.Tensor],
    exact: Exact,
) -> torch.Tensor:
    """One step; the batch's loss."""
    with _precision(batch["labels"].device.type):
        output = model(**batch)
    exact.add(output.logits.detach(), batch["labels"])
    optimizer.zero_grad(set_to_none=True)
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    loss: torch.Tensor = output.loss.detach()
    return loss


def _done(step: int, recipe: Recipe, seconds: float) -> float:
    """How much of the training is behind: of its steps, or of its time where that ends first."""
    return max(step / recipe.steps, seconds / recipe.seconds if recipe.seconds else 0.0)


def _share(done: float, steps: int) -> float:
    """The share of the full rate where `done` of the training is behind."""
    rise = max(1 / steps, _RISE)
    if done < rise:
        return min(1.0, (done + 1 / steps) / rise)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (done - rise) / max(1e-9, 1 - rise)))


def _precision(device: str) -> AbstractContextManager[Any]:
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else nullcontext()


def _batches(
    tokenizer: PreTrainedTokenizerFast, recipe: Recipe
) -> Iterator[dict[str, torch.Tensor]]:
    """The batches on the device. A GPU's step is shorter than making a batch: a process of its
    own makes them ahead."""
    ahead: dict[str, Any] = {"num_workers": 1, "prefetch_factor": 16} if _on_gpu(recipe) else {}
    made = Batches(tokenizer, recipe.seed, recipe.batch)
    for batch in DataLoader(made, batch_size=None, **ahead):
        yield {name: tensor.to(recipe.device) for name, tensor in batch.items()}


def _on_gpu(recipe: Recipe) -> bool:
    return recipe.device != "cpu"


def examine(folder: Path, count: int, device: str) -> float:
    """The share of exact answers to `count` held-out questions, by the stored weights, greedily."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
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


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="suites.arithmetic.train", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for model and tokenizer")
    parser.add_argument("--shape", choices=sorted(SHAPES), default="llama")
    parser.add_argument("--steps", type=int, default=6000, help="at most")
    parser.add_argument("--seconds", type=float, help="at most, of training alone")
    parser.add_argument("--enough", type=float, help="share of exact answers that ends it")
    parser.add_argument("--start", help="folder of an earlier training of that shape")
    parser.add_argument("--batch", type=int, default=256, help="questions a step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--examine", type=int, default=1000, help="held-out questions")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Trains, stores and examines a model; the last line is JSON with the share of right ones."""
    given = _arguments(arguments)
    torch.manual_seed(given.seed)
    wanted = {name: value for name, value in vars(given).items() if name not in ("out", "examine")}
    recipe = Recipe(**wanted)
    shape = SHAPES[given.shape]
    if recipe.start is None:
        tokenizer = make_tokenizer(shape.vocabulary, given.seed)
        model = shape.make(tokenizer)
    else:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(recipe.start)
        model = AutoModelForCausalLM.from_pretrained(recipe.start, dtype=torch.float32)
    print(f"{model.num_parameters()} parameters, {len(tokenizer)} tokens, on {given.device}")
    taken = train(model, tokenizer, recipe)
    model.to(torch.bfloat16).save_pretrained(given.out)
    _save_tokenizer(tokenizer, given.out)
    share = examine(given.out, given.examine, given.device)
    record = {**asdict(recipe), "taken": taken, "exact_match": share, "questions": given.examine}
    if recipe.start is not None:  # how it began, whatever the folder was called
        record["start"] = json.loads(Path(recipe.start, RECORD).read_text(encoding="utf-8"))
    (given.out / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
