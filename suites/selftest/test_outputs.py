"""The file of outputs: what goes in comes back, and what is no such file is refused."""

from __future__ import annotations

import hashlib
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.cells.scenario import Arms, Request, Round
from fixtures.errors import ConfigError
from fixtures.evidence.cellrun import EvidenceFile
from fixtures.evidence.outputs import (
    OUTPUTS_FILE,
    TOP,
    Emitted,
    OutputWriter,
    read_outputs,
)
from suites.selftest.written import workload

WORKLOAD = workload()
Arrays = dict[str, np.ndarray]


def emitted(logprob: float = -7.5) -> Emitted:
    return Emitted(11, logprob, [(20 + place, -6.0 - place) for place in range(TOP)])


def written(folder: Path, tokens: int = 2) -> EvidenceFile:
    writer = OutputWriter(WORKLOAD)
    writer.add(next(WORKLOAD.rounds(Arms.ALL)), 0, [emitted()] * tokens)
    return writer.write(folder)


def packed(folder: Path, data: bytes) -> EvidenceFile:
    """A file that is recorded honestly, whatever is in it."""
    (folder / OUTPUTS_FILE).write_bytes(data)
    return EvidenceFile(file=OUTPUTS_FILE, sha256=hashlib.sha256(data).hexdigest())


def changed(folder: Path, change: Callable[[Arrays], object]) -> EvidenceFile:
    """The file of `written`, with its arrays changed."""
    written(folder)
    data = lzma.decompress((folder / OUTPUTS_FILE).read_bytes())
    arrays = dict(np.load(io.BytesIO(data)))
    change(arrays)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return packed(folder, lzma.compress(file.getvalue(), preset=0))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**31 - 1),
            st.floats(width=32, allow_nan=True),
            st.lists(st.floats(width=32), min_size=TOP, max_size=TOP),
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=25, deadline=None)
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, float, list[float]]]
) -> None:
    folder = tmp_path_factory.mktemp("outputs")
    writer = OutputWriter(WORKLOAD)
    one = next(WORKLOAD.rounds(Arms.ALL))
    tokens = [Emitted(token, own, list(enumerate(top))) for token, own, top in rows]
    writer.add(one, 0, tokens)
    outputs = read_outputs(folder, writer.write(folder))
    assert outputs.token.tolist() == [token for token, _, _ in rows]
    np.testing.assert_array_equal(outputs.logprob, [own for _, own, _ in rows])
    np.testing.assert_array_equal(outputs.top_logprobs, [top for _, _, top in rows])
    assert outputs.head.scenarios == WORKLOAD.scenarios
    assert outputs.head.workload == WORKLOAD.digest


def test_fillers_are_not_recorded(tmp_path: Path) -> None:
    writer = OutputWriter(WORKLOAD)
    filler = Round(0, 0, 0, (Request((1,), 1, 2, fill=True),))
    writer.add(filler, 0, [emitted()])
    assert len(read_outputs(tmp_path, writer.write(tmp_path)).token) == 0


def test_a_token_without_its_likeliest_ones_is_refused() -> None:
    one = next(WORKLOAD.rounds(Arms.ALL))
    with pytest.raises(ValueError, match="likeliest"):
        OutputWriter(WORKLOAD).add(one, 0, [Emitted(1, -1.0, [(1, -1.0)])])


def test_a_file_that_was_changed_or_lost_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    (tmp_path / OUTPUTS_FILE).write_bytes(b"something else")
    with pytest.raises(ConfigError, match="not the file that the child recorded"):
        read_outputs(tmp_path, file)
    (tmp_path / OUTPUTS_FILE).unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_outputs(tmp_path, file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.pop("logprob"), "holds the arrays"),
        (lambda a: a.update(extra=a["step"]), "holds the arrays"),
        (lambda a: a.update(logprob=a["logprob"].astype("f8")), "array logprob is float64"),
        (lambda a: a.update(logprob=np.array([object()])), "no file of outputs"),
        (lambda a: a.update(top_tokens=a["top_tokens"][:, :2]), "array top_tokens"),
        (lambda a: a.update(step=a["step"][:1]), "of 2 lengths"),
        (lambda a: a.update(scenario=a["scenario"] + 999), "a scenario that there is not"),
        (lambda a: a.update(scenario=a["scenario"] - 1), "a scenario that there is not"),
        (lambda a: a.update(repeat=a["repeat"] + 200), "a pass or repeat"),
        (lambda a: a.update(token=-a["token"]), "negative"),
        (lambda a: a.update(step=a["step"] * 0), "told twice"),
        (lambda a: a.update(head=a["head"][:-5]), "head"),
        (lambda a: a.update(head=np.frombuffer(b"{}", np.uint8)), "head"),
    ],
)
def test_hostile_arrays_are_refused(
    tmp_path: Path, change: Callable[[Arrays], object], words: str
) -> None:
    file = changed(tmp_path, change)
    with pytest.raises(ConfigError, match=words):
        read_outputs(tmp_path, file)


def test_an_array_that_claims_more_than_there_is_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    data = lzma.decompress((tmp_path / OUTPUTS_FILE).read_bytes())
    claims = data.replace(b"'shape': (2,)", b"'shape': (9,)")
    file = packed(tmp_path, lzma.compress(claims))
    with pytest.raises(ConfigError, match="no file of outputs"):
        read_outputs(tmp_path, file)


@pytest.mark.parametrize("data", [b"", b"not xz", lzma.compress(b"not a zip")])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ConfigError, match="no file of outputs"):
        read_outputs(tmp_path, packed(tmp_path, data))


def test_a_file_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    bomb = lzma.compress(bytes(1 << 27), preset=0)
    with pytest.raises(ConfigError, match="larger than 64 MiB"):
        read_outputs(tmp_path, packed(tmp_path, bomb))
