"""Who was in each batch, and by what factor its gradient was clipped: stored, read back, safe from damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.errors import GmipWarning, TraceError
from gmip.trace import Trace, TraceWriter
from tests.unit.trace.build import header, vectors

IDS: list[list[int] | None] = [[5, 2, 2**40], None, [], [7, 7], [0]]
FACTORS = [None, 1.0, 0.25, 1e-300, None]


def write(writer: TraceWriter, steps: range) -> None:
    """Every second one is stored, all are counted."""
    for step in steps:
        facts: dict[str, Any] = {"batch_size": 3, "clip_factor": FACTORS[step], "ids": IDS[step]}
        if step % 2:
            writer.commit(recorded=False, **facts)
        else:
            parameters, gradient = writer.row()
            parameters[:], gradient[:] = vectors(step)
            writer.commit(**facts)


@pytest.fixture(params=["complete", "open"])
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    writer = TraceWriter.create(tmp_path, header())
    write(writer, range(5))
    if request.param == "complete":
        writer.close()
    else:
        writer.abandon()
    return tmp_path


def assert_batches(trace: Trace, steps: int) -> None:
    assert trace.num_steps == steps
    assert [info.clip_factor for info in trace.infos] == FACTORS[:steps]
    for step, expected in enumerate(IDS[:steps]):
        found = trace.batch_ids(step)
        if expected is None:
            assert found is None
        else:
            assert found is not None and found.dtype == np.int64 and found.tolist() == expected
            assert not found.flags.writeable
    trace.verify()


def test_round_trip(path: Path) -> None:
    trace = Trace.open(path)
    assert_batches(trace, 5)
    for outside in (-1, 5):
        with pytest.raises(IndexError, match=f"step {outside} is out of range"):
            trace.batch_ids(outside)
    assert (path / "batches.bin").stat().st_mode & 0o777 == 0o600
    assert np.fromfile(path / "batches.bin", "<i8").tolist() == [5, 2, 2**40, 7, 7, 0]


def test_a_trace_without_ids_has_no_such_file(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        writer.commit(recorded=False, batch_size=3)
    assert not (tmp_path / "batches.bin").exists()
    assert Trace.open(tmp_path).batch_ids(0) is None


@pytest.mark.parametrize("at_step", [None, 0, 1, 3, 4])
def test_resume(path: Path, at_step: int | None) -> None:
    with TraceWriter.resume(path, at_step=at_step) as writer:
        write(writer, range(writer.num_steps, 5))
    assert_batches(Trace.open(path), 5)
    assert (path / "batches.bin").stat().st_size == 6 * 8


def test_a_step_that_was_refused_leaves_no_ids(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        write(writer, range(1))
        with pytest.raises(ValueError, match="clip_factor"):
            writer.commit(recorded=False, batch_size=3, ids=[9, 9, 9], clip_factor=2.0)
        write(writer, range(1, 5))
    assert_batches(Trace.open(tmp_path), 5)


def test_damage(path: Path) -> None:
    """A flipped bit is an error in a complete trace; an open one is read up to the step, as after a power cut."""
    file = path / "batches.bin"
    data = bytearray(file.read_bytes())
    complete = '"complete"' in (path / "trace.json").read_text()
    data[3 * 8] ^= 1  # of step 3
    for altered in (data, data[: 3 * 8 + 4]):
        file.write_bytes(altered)
        if complete:
            with pytest.raises(TraceError, match=r"batches\.bin is damaged"):
                Trace.open(path).verify()
            with pytest.raises(TraceError, match=r"batches\.bin is damaged"):
                TraceWriter.resume(path)
        else:
            with pytest.warns(GmipWarning, match=r"batches\.bin .* read up to step 3"):
                trace = Trace.open(path)
            assert trace.num_steps == 3
            first = trace.batch_ids(0)
            assert first is not None and first.tolist() == IDS[0]
    file.unlink()
    if complete:
        with pytest.raises(TraceError, match=r"batches\.bin is missing"):
            Trace.open(path)
