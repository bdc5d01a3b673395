"""Small traces for the tests: step i of a run holds numbers that follow from i, so that any prefix can be checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip.trace import Header, ParameterSpec, Trace, TraceWriter

D = 5
PARAMETERS = (ParameterSpec("layer.weight", (2, 2)), ParameterSpec("scale", ()))
MEMBERS = np.array([4, 0, 7])
NON_MEMBERS = np.array([1, 9])
FINAL = {"layer.weight": np.arange(4.0).reshape(2, 2), "num_batches": np.array(3, dtype=np.int64)}


def header(**changes: Any) -> Header:
    fields: dict[str, Any] = {"parameters": PARAMETERS, "num_params": 8, "dataset_size": 100, "batch_size": 10}
    return Header(**(fields | changes))


def vectors(index: int, dtype: str = "float32") -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(index)
    return rng.normal(size=D).astype(dtype), rng.normal(size=D).astype(dtype)


def write_steps(writer: TraceWriter, count: int, *, every: int = 1, noise_std: float = 0.25) -> None:
    """The next `count` steps; those whose index is no multiple of `every` are skipped."""
    for index in range(writer.num_steps, writer.num_steps + count):
        facts: dict[str, Any] = {"batch_size": 10 - index % 3, "noise_std": noise_std}
        if index % every:
            writer.commit(recorded=False, **facts)
        else:
            parameters, gradient = writer.row()
            parameters[:], gradient[:] = vectors(index, writer.header.dtype)
            writer.commit(**facts)


def record(path: Path, count: int, *, every: int = 1, final: bool = True, **changes: Any) -> Trace:
    with TraceWriter.create(path, header(**changes), members=MEMBERS, non_members=NON_MEMBERS) as writer:
        write_steps(writer, count, every=every)
        writer.close(FINAL if final else None)
    return Trace.open(path)


def assert_steps(trace: Trace, count: int, *, every: int = 1) -> None:
    """The trace holds exactly what `write_steps` wrote."""
    assert trace.num_steps == len(trace.infos) == count
    assert [info.index for info in trace.infos] == list(range(count))
    assert [info.batch_size for info in trace.infos] == [10 - i % 3 for i in range(count)]
    assert trace.recorded.tolist() == list(range(0, count, every))
    assert len(trace) == len(trace.recorded)
    for step, index in zip(trace, trace.recorded, strict=True):
        parameters, gradient = vectors(int(index), trace.header.dtype)
        assert step.info is trace.infos[index]
        assert step.parameters.dtype == parameters.dtype and step.gradient.dtype == parameters.dtype
        np.testing.assert_array_equal(step.parameters, parameters)
        np.testing.assert_array_equal(step.gradient, gradient)
