"""Large rows, which go around the cache of files where the system lets them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from gmip.trace import ParameterSpec, Trace, TraceWriter
from gmip.trace import writer as writing
from gmip.trace._shards import Layout, RowMemory
from tests.unit.trace.build import header

STEPS = 7


def large(path: Path, d: int, dtype: str = "float32") -> None:
    """A run whose step i holds i, i + 1, ... and i, i - 1, ..."""
    spec = ParameterSpec("w", (d,))
    with TraceWriter.create(path, header(parameters=(spec,), num_params=d, dtype=dtype)) as writer:
        for step in range(STEPS):
            parameters, gradient = writer.row()
            parameters[:] = step + np.arange(d)
            gradient[:] = step - np.arange(d)
            writer.commit(batch_size=10)


def assert_large(path: Path, d: int) -> None:
    trace = Trace.open(path)
    trace.verify()
    assert len(trace) == STEPS
    for i, step in enumerate(trace):
        np.testing.assert_array_equal(step.parameters, i + np.arange(d))
        np.testing.assert_array_equal(step.gradient, i - np.arange(d))


@pytest.mark.parametrize("d", [32768, 33000, 33001, 300_001])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_wherever_they_begin(tmp_path: Path, d: int, dtype: str) -> None:
    """Shards of several rows, none of which begins or ends with a block."""
    large(tmp_path, d, dtype)
    assert_large(tmp_path, d)


@pytest.mark.parametrize("size", [1, 511, 512, 1000])
def test_rows_smaller_than_a_block(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "BACKGROUND_BYTES", 0)
    large(tmp_path, size)
    assert_large(tmp_path, size)


def test_memory_is_as_far_from_a_block_as_the_file() -> None:
    layout = Layout(5, 33001, "float32")
    memory = RowMemory(layout, direct=True)
    for place in range(5):
        row = memory.row(place)
        assert row.shape == (2, 33001) and row.flags.c_contiguous and row.flags.aligned
        assert (row.ctypes.data - (128 + place * 8 * 33001)) % 4096 == 0


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="the system has no such writes")
@pytest.mark.parametrize("refuses", ["open", "write"])
def test_a_file_system_that_cannot_write_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    direct: set[int] = set()
    open_, write = os.open, os.write

    def opening(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT and refuses == "open":
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        descriptor = open_(path, flags & ~os.O_DIRECT, mode)
        if flags & os.O_DIRECT:
            direct.add(descriptor)
        return descriptor

    def writing(descriptor: int, data: bytes) -> int:
        if descriptor in direct:
            direct.discard(descriptor)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return write(descriptor, data)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "write", writing)
    large(tmp_path, 33001)
    assert_large(tmp_path, 33001)
