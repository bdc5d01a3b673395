"""Long vectors that are never in memory as a whole, against NumPy."""

from __future__ import annotations

import mmap
import pickle
from pathlib import Path

import numpy as np
import pytest

from gmip._io import give_back
from gmip.auditing.noise_check import Left
from gmip.stats import flat
from gmip.stats.flat import Flat

A, B = np.random.default_rng(0).normal(size=(2, 1003)).astype(np.float32)


@pytest.mark.parametrize("block", [7, 2**22])
def test_arithmetic_block_by_block(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(flat, "BLOCK", block)
    a, b = Flat.of(A), Flat.of(B)
    made, wanted = 3.0 * (a - b) / 7.0, 3.0 * (A.astype(float) - B.astype(float)) / 7.0
    np.testing.assert_array_equal(made.array(), wanted)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(made)).array(), wanted)
    assert made @ a == pytest.approx(wanted @ A.astype(float), rel=1e-12)
    assert made.norm == pytest.approx(np.linalg.norm(wanted), rel=1e-12)
    assert made.squares(slice(5, 400)) == pytest.approx(np.sum(wanted[5:400] ** 2), rel=1e-12)
    assert made.is_finite() and not Flat.of(np.append(A, np.nan)).is_finite()
    computed = Flat.later(len(A), lambda: A)
    np.testing.assert_array_equal(computed.kept().array(), A)


@pytest.mark.parametrize("block", [7, 2**22])
@pytest.mark.parametrize("most", [10, 300, 5000])
def test_rows_block_by_block(monkeypatch: pytest.MonkeyPatch, block: int, most: int) -> None:
    monkeypatch.setattr(flat, "BLOCK", block)
    rows, both = Left((Flat.of(A), Flat.of(B))), np.stack([A, B]).astype(float)
    np.testing.assert_array_equal(rows.sample(most), both.ravel()[:: -(-both.size // most)])
    np.testing.assert_allclose(rows.squares(), np.sum(both**2, axis=1), rtol=1e-12)
    assert rows.mean(4, slice(3, 700)) == pytest.approx(np.mean(both[:, 3:700] ** 4), rel=1e-12)
    np.testing.assert_allclose(rows.cosines(), np.corrcoef(both - both.mean(1, keepdims=True))[0, 1], atol=0.05)
    np.testing.assert_allclose(rows.cosines(), A @ B / np.linalg.norm(A) / np.linalg.norm(B), rtol=1e-5)


def _resident(place: int) -> int:
    """kB of the mapping at this address that are in memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.startswith(f"{place:x}-"):
            return next(int(one.split()[1]) for one in lines if one.startswith("Rss:"))
    raise AssertionError("no such mapping")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_what_was_read_of_a_file_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(2**20, dtype=np.float32)
    (tmp_path / "vector").write_bytes(values.tobytes())
    with (tmp_path / "vector").open("rb") as file:
        array = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.float32)
    monkeypatch.setattr(flat, "BLOCK", 2**18)
    assert Flat.of(array).norm == pytest.approx(np.linalg.norm(values.astype(float)))
    assert _resident(array.ctypes.data) < array.nbytes // 1024
    float(array.sum())
    assert _resident(array.ctypes.data) == array.nbytes // 1024
    give_back(array[5:].reshape(-1, 1))
    assert _resident(array.ctypes.data) == 0
    np.testing.assert_array_equal(array, values)
    give_back(values)  # not of a file
    assert values[-1] == 2**20 - 1
