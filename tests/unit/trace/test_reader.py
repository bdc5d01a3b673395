"""Trace: reading steps, names, and the check that it belongs to the data at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.errors import GmipWarning, InvalidArgument, TraceMismatch
from gmip.trace import Trace, TraceWriter
from tests.unit.trace.build import assert_steps, header, record, vectors, write_steps


@pytest.mark.usefixtures("three_rows")
def test_steps_by_index(tmp_path: Path) -> None:
    trace = record(tmp_path, 10, every=2)
    for position in (4, 0, 3, -1, -5, np.int64(2)):  # across shards, back and forth
        index = int(trace.recorded[position])
        assert trace[position].info.index == index
        np.testing.assert_array_equal(trace[position].gradient, vectors(index)[1])
    for position in (5, -6):
        with pytest.raises(IndexError):
            trace[position]
    with pytest.raises(TypeError):
        trace[1.0]  # type: ignore[index]


def test_everything_is_read_only(tmp_path: Path) -> None:
    trace = record(tmp_path, 2)
    assert trace.members is not None and trace.non_members is not None
    for array in (trace[0].parameters, trace[0].gradient, trace.members, trace.non_members, trace.recorded):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        trace[0].gradient.flags.writeable = True


@pytest.mark.usefixtures("three_rows")
def test_steps_outlive_the_trace(tmp_path: Path) -> None:
    steps = list(record(tmp_path, 7))
    for index, step in enumerate(steps):
        np.testing.assert_array_equal(step.parameters, vectors(index)[0])


def test_named(tmp_path: Path) -> None:
    trace = record(tmp_path, 1)
    named = trace.named(trace[0].gradient)
    gradient = vectors(0)[1]
    assert list(named) == ["layer.weight", "scale"]
    np.testing.assert_array_equal(named["layer.weight"], gradient[:4].reshape(2, 2))
    assert named["scale"].shape == () and named["scale"] == gradient[4]
    for bad in (np.zeros(4), np.zeros((1, 5)), 3.0):
        with pytest.raises(InvalidArgument, match="vector"):
            trace.named(bad)


def test_repr_says_what_it_is(tmp_path: Path) -> None:
    assert repr(record(tmp_path, 4, every=2)).endswith("4 steps, 2 recorded, complete>")


@pytest.mark.parametrize(
    ("fingerprints", "message"),
    [
        ({"train": "aa"}, "'test' that is not given"),
        ({"train": "aa", "test": "bb", "extra": "cc"}, "without a part 'extra'"),
        ({"train": "aa", "test": "cc"}, "'test' has fingerprint cc and not bb"),
        ({}, "'train' that is not given"),
    ],
)
def test_check_data_names_the_part(tmp_path: Path, fingerprints: dict[str, str], message: str) -> None:
    trace = record(tmp_path, 1, fingerprints={"train": "aa", "test": "bb"})
    trace.check_data({"test": "bb", "train": "aa"})
    with pytest.raises(TraceMismatch, match=message):
        trace.check_data(fingerprints)


def test_check_data_warns_without_fingerprints(tmp_path: Path) -> None:
    with pytest.warns(GmipWarning, match="no fingerprints"):
        record(tmp_path, 1).check_data({"train": "aa"})


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
            assert not interrupted.complete and interrupted.final_state() is None
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
    assert trace.final_state() is not None


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
