"""TraceWriter.resume: an interrupted run that goes on equals one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.errors import FileError, InvalidArgument, TraceMismatch
from gmip.trace import Provenance, Trace, TraceWriter
from tests.unit.trace.build import MEMBERS, NON_MEMBERS, assert_steps, header, record, write_steps


@pytest.mark.usefixtures("three_rows")
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("steps", [0, 1, 3, 4, 7])
def test_resume_equals_an_uninterrupted_run(tmp_path: Path, steps: int, every: int) -> None:
    """From every step of an open trace, and from a complete one: the same data, to the byte."""
    record(tmp_path / "whole", 8, every=every, final=False)
    wanted = _data(tmp_path / "whole")
    for at_step in [None, *range(steps + 1)]:
        for complete in (False, True):
            path = tmp_path / f"{at_step}-{complete}"
            writer = TraceWriter.create(path, header())
            write_steps(writer, steps, every=every)
            if complete:
                writer.close({"w": np.zeros(2)})
            else:
                writer.abandon()
            writer = TraceWriter.resume(path, at_step=at_step)
            assert writer.num_steps == (steps if at_step is None else at_step)
            assert writer.header == header()
            interrupted = Trace.open(path)
            assert not interrupted.complete and interrupted.final_arrays() is None
            assert_steps(interrupted, writer.num_steps, every=every)
            write_steps(writer, 8 - writer.num_steps, every=every)
            writer.close()
            assert_steps(Trace.open(path), 8, every=every)
            Trace.open(path).verify()
            assert _data(path) == wanted


def _data(path: Path) -> dict[str, Any]:
    """Shards, and the journal without the chain, whose seed differs from trace to trace."""
    found: dict[str, Any] = {shard.name: shard.read_bytes() for shard in path.glob("shard-*")}
    found["steps"] = [line.rsplit(',"chain"', 1)[0] for line in (path / "steps.jsonl").read_text().splitlines()]
    return found


@pytest.mark.parametrize(("at_step", "message"), [(6, "beyond the 5 steps"), (-1, "at_step"), (1.5, "at_step")])
def test_resume_refuses(tmp_path: Path, at_step: Any, message: str) -> None:
    trace = record(tmp_path, 5)
    with pytest.raises(InvalidArgument, match=message):
        TraceWriter.resume(tmp_path, at_step=at_step)
    trace.verify()
    assert_steps(Trace.open(tmp_path), 5)
    assert trace.final_arrays() is not None


@pytest.mark.usefixtures("three_rows")
def test_resume_twice_with_an_exception_between(tmp_path: Path) -> None:
    record(tmp_path, 4)
    with pytest.raises(KeyboardInterrupt), TraceWriter.resume(tmp_path, at_step=2) as writer:  # noqa: PT012
        write_steps(writer, 5)
        raise KeyboardInterrupt
    with TraceWriter.resume(tmp_path, at_step=5) as writer:
        write_steps(writer, 4)
    trace = Trace.open(tmp_path)
    assert_steps(trace, 9)
    assert trace.members is not None and trace.members.size == 3


@pytest.mark.usefixtures("three_rows")
def test_a_shorter_run_leaves_no_shards_behind(tmp_path: Path) -> None:
    record(tmp_path, 8)
    with TraceWriter.resume(tmp_path, at_step=2) as writer:
        write_steps(writer, 1)
    assert [path.name for path in tmp_path.glob("shard-*")] == ["shard-00000.safetensors"]
    assert_steps(Trace.open(tmp_path), 3)


@pytest.mark.parametrize(
    "given",
    [
        {"header": header(provenance=Provenance(seed=2))},
        {"members": [4, 0]},
        {"non_members": [1, 2]},
        {"header": header(), "members": MEMBERS, "non_members": MEMBERS + 100},
    ],
)
def test_another_run_is_not_resumed(tmp_path: Path, given: dict[str, Any]) -> None:
    before = record(tmp_path, 4).fingerprint
    with pytest.raises(TraceMismatch, match="records another run"):
        TraceWriter.resume(tmp_path, at_step=1, **given)
    assert Trace.open(tmp_path).fingerprint == before
    with TraceWriter.resume(tmp_path, header=header(), members=MEMBERS, non_members=NON_MEMBERS) as writer:
        assert writer.num_steps == 4


def test_a_link_in_place_of_the_journal_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError, match=r"steps.jsonl cannot be written \(it is a symbolic link\)"):
        TraceWriter.create(tmp_path, header())
    assert not (tmp_path / "elsewhere").exists()
