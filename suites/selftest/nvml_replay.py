"""NVML for tests: recorded or planted readings in the place of a driver."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fixtures.errors import InfraError
from fixtures.run.gpu.nvml import GpuId, RawReading, XidEvent, XidEvents

NODES = Path(__file__).with_name("corpus") / "nodes"


def recorded(node: str, moment: str) -> RawReading:
    """What NVML said at one moment of a recording under corpus/nodes."""
    text = (NODES / node / "readings.json").read_text(encoding="utf-8")
    reading = json.loads(text)["readings"][moment]
    return RawReading(reading["values"], reading["errors"])


def with_values(raw: RawReading, **values: Any) -> RawReading:
    """A reading with some answers changed."""
    return RawReading({**raw.values, **values}, raw.errors)


class ReplayedNvml:
    """Answers with each GPU's readings in turn, the last one again and again.

    Args:
        readings: by UUID; the order of the GPUs is theirs.
        xids: events, each told once, as soon as somebody listens to its GPU.
        deaf: why no events can be had, where they can't.
    """

    def __init__(
        self,
        readings: Mapping[str, Iterable[RawReading]],
        *,
        xids: Iterable[tuple[str, int]] = (),
        deaf: str | None = None,
    ) -> None:
        self._readings = {uuid: list(them) for uuid, them in readings.items()}
        self._xids = list(xids)
        self._deaf = deaf
        self._lock = threading.Lock()
        self.open_subscriptions = 0
        self.waiting = 0
        self.most_waiting = 0
        """How many threads waited for an event at the same time."""

    def gpus(self) -> tuple[GpuId, ...]:
        return tuple(
            GpuId(uuid, index, them[0].values["memory"]["total_mib"])
            for index, (uuid, them) in enumerate(self._readings.items())
        )

    def read(self, gpu: GpuId) -> RawReading:
        with self._lock:
            them = self._readings[gpu.uuid]
            return them.pop(0) if len(them) > 1 else them[0]

    def xid_events(self, gpus: Iterable[GpuId]) -> XidEvents:
        if self._deaf:
            raise InfraError(self._deaf)
        self.open_subscriptions += 1
        return _Events(self, {gpu.uuid: gpu.index for gpu in gpus})

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        with self._lock:
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            yield
        finally:
            with self._lock:
                self.waiting -= 1

    def plant(self, *xids: tuple[str, int]) -> None:
        """More events, which happen now."""
        with self._lock:
            self._xids += xids

    def next_xid(self, gpus: Collection[str]) -> tuple[str, int] | None:
        with self._lock:
            due = next((event for event in self._xids if event[0] in gpus), None)
            if due:
                self._xids.remove(due)
            return due


class _Events:
    def __init__(self, nvml: ReplayedNvml, gpus: Mapping[str, int]) -> None:
        self.deaf: Mapping[int, str] = {}
        self._nvml = nvml
        self._gpus = gpus

    def wait(self, milliseconds: int) -> XidEvent | None:
        with self._nvml.waited_for():
            found = self._nvml.next_xid(self._gpus)
            if found is None:
                time.sleep(min(milliseconds, 20) / 1000)
                return None
        uuid, code = found
        if code < 0:
            raise InfraError("Xid events can't be watched any more: GPU is lost")
        return XidEvent(self._gpus[uuid], uuid, code)

    def close(self) -> None:
        self._nvml.open_subscriptions -= 1
