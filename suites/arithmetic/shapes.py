"""The two small models that learn the made arithmetic questions: shapes and tokenizers.

Owns what a shape is made of and which attention of vLLM's each one reaches. Must not know: the
training, vLLM.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from suites.arithmetic.questions import questions

PROMPT = "Question: {question}\nAnswer: "
"""As the task's `doc_to_text` writes it (suites/questions/graphgate_arithmetic.yaml)."""

_END, _PAD = "<|end|>", "<|pad|>"
_FOR_TOKENIZER = 4000
_LONGEST = 256


class Shape(NamedTuple):
    """`vocabulary` is the tokenizer's size at most; `make` gives an untrained model."""

    vocabulary: int
    make: Callable[[PreTrainedTokenizerFast], PreTrainedModel]


def make_tokenizer(vocabulary: int, seed: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most `vocabulary` tokens in which every digit is its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
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


def _llama(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Heads of a size that FlashAttention takes."""
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


def _mla(tokenizer: PreTrainedTokenizerFast) -> DeepseekV2ForCausalLM:
    """DeepSeek's latent attention at the real rank, without experts.

    FlashMLA's dense decode takes keys of 576 (rank 512 and 64 for the position) and values of 512
    alone, whatever the number of heads. vLLM ties no embeddings of this model.
    """
    layers = 3
    config = DeepseekV2Config(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=384,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        kv_lora_rank=512,
        q_lora_rank=None,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        first_k_dense_replace=layers,
        n_routed_experts=0,
        n_shared_experts=0,
        num_experts_per_tok=0,
        max_position_embeddings=_LONGEST,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return DeepseekV2ForCausalLM(config)


SHAPES = {
    "llama": Shape(384, _llama),
    # A block of FlashMLA's cache holds 64 tokens, and a schedule that was made for one block shows
    # only beyond it: with so few tokens every prompt and its answer need 73 or more.
    "mla": Shape(280, _mla),
}
