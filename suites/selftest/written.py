"""Outputs of an imagined engine, for tests and measurements of the parity gate.

Owns a stand-in for a model: logprobs that depend on the whole context by a hash, and, as
kernels do, on how many rows a step computes. Faults are planted by functions. It shares
nothing with the gate but the types of workload and outputs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fixtures.cells.scenario import Arms, Request, Round, Workload, WorkloadLimits
from fixtures.cells.workload import build_workload
from fixtures.evidence.cellrun import EvidenceFile
from fixtures.evidence.outputs import TOP, Emitted, Outputs, OutputWriter, read_outputs

ULP = 1 / 32
"""Of a bf16 logit between 4 and 8, in nats."""

LIMITS = WorkloadLimits(
    vocab=512,
    max_model_len=96,
    max_num_seqs=12,
    max_num_batched_tokens=64,
    capture_sizes=(1, 2, 4, 8),
)


def workload(limits: WorkloadLimits = LIMITS, seed: int = 7) -> Workload:
    """A small workload; equal arguments give equal ones."""
    return build_workload(limits, seed)


class Step(NamedTuple):
    """One token of one request: which round, where, and what its step computed.

    `token` counts the request's own from 0. `real` rows were asked for in the step, `computed`
    with padding. `context` is a number for all tokens so far.
    """

    one: Round
    name: str
    request: int
    token: int
    real: int
    computed: int
    context: int


Fault = Callable[[Step, np.random.Generator], float]
"""What a fault adds to the logprobs of a step, in nats."""


class Engine(NamedTuple):
    """An imagined engine. `graphs`: steps are padded to capture sizes; `noise` in nats is added
    to each step anew (a share `flips` of them by an ULP, `outliers` by about half a nat);
    `padding`: whether the number of rows moves bits; `dead`: logprobs ignore the context."""

    graphs: bool = False
    noise: bool = False
    flips: float = 0.3
    outliers: float = 0.08
    padding: bool = True
    dead: bool = False
    fault: Fault | None = None
    seed: int = 0

    def writes(self, asked: Workload) -> Outputs:
        """What comes back from a run of all rounds, through the file."""
        with tempfile.TemporaryDirectory() as folder:
            return read_outputs(Path(folder), self.leaves(asked, Path(folder)))

    def leaves(self, asked: Workload, folder: Path) -> EvidenceFile:
        """Run all rounds and leave the file of outputs in `folder`."""
        chance = np.random.default_rng(self.seed)
        arms = Arms.ALL if self.graphs else Arms.REFERENCE
        writer = OutputWriter(asked)
        for one in asked.rounds(arms):
            for place, request in enumerate(one.requests):
                if not request.fill:
                    writer.add(one, place, self._answer(asked, one, place, chance))
        return writer.write(folder)

    def _answer(
        self, asked: Workload, one: Round, place: int, chance: np.random.Generator
    ) -> list[Emitted]:
        request = one.requests[place]
        context = request.prompt if not self.dead else ()
        emitted = []
        for index in range(request.max_tokens):
            real = rows_of(asked, one.requests, place, index)
            padded = asked.limits.padded(real) if self.graphs else None
            name = asked.scenarios[one.scenario].name
            step = Step(one, name, place, index, real, padded or real, _hash(context))
            emitted.append(self._emit(asked, request, step, chance))
            if not self.dead:
                context = (*context, emitted[-1].token)
        return emitted

    def _emit(
        self, asked: Workload, request: Request, step: Step, chance: np.random.Generator
    ) -> Emitted:
        shift = self.fault(step, chance) if self.fault else 0.0
        # A wrong context gives other tokens, not the same ones with other logprobs.
        context = _hash((step.context, round(shift * 1000))) if shift else step.context
        raw = np.frombuffer(blake2b(str(context).encode(), digest_size=32).digest(), np.uint16)
        likely = [int(value) % asked.limits.vocab for value in raw[:TOP]]
        logprobs = -6.0 - np.cumsum(1 + raw[TOP : 2 * TOP] % 16) * ULP
        token = likely[0] if request.forced_token is None else request.forced_token
        own = -9.0 + (_hash((step.context, token)) % 64) * ULP + shift
        if request.forced_token is None:
            own = float(logprobs[0])
        moved = self._moved(step, chance)
        top = [
            (each, float(logprob) + moved) for each, logprob in zip(likely, logprobs, strict=True)
        ]
        return Emitted(token, own + moved, top)

    def _moved(self, step: Step, chance: np.random.Generator) -> float:
        moved = 0.0
        if self.padding:
            moved += (_hash((step.context, step.computed)) % 4 == 0) * ULP
        if self.noise:
            moved += float(chance.random() < self.flips) * ULP
            if chance.random() < self.outliers:
                moved += float(chance.normal(0, 0.3))
        return moved


def rows_of(asked: Workload, requests: tuple[Request, ...], place: int, index: int) -> int:
    """Tokens of the step in which a request emits its token number `index`.

    Prompts share the first step, as far as its budget goes; the rest of a longer one, and
    requests that had to wait, are in the second.
    """
    budget = asked.limits.max_num_batched_tokens
    prompts = np.cumsum([len(request.prompt) for request in requests])
    first = [int(total > budget) for total in prompts]
    step = first[place] + index
    rows = 0
    for other, request in enumerate(requests):
        begins = first[other]
        if begins < step < begins + request.max_tokens:
            rows += 1
    if step == 0:
        rows = min(int(prompts[-1]), budget)
    elif step == 1:
        rows += max(0, int(prompts[-1]) - budget)
    return rows


def _hash(value: object) -> int:
    return int.from_bytes(blake2b(repr(value).encode(), digest_size=6).digest(), "big")
