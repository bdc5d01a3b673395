"""The fit of a sum: on sums whose residual and excess are known, and by Cholesky factors as by the spectrum."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gmip.attacks.optimality import SumFit, fit_sum
from gmip.errors import InvalidArgument

Array = NDArray[np.float64]
ROWS, DIMS = 120, 90


def vectors(seed: int, dims: int = DIMS, rank: int | None = None) -> Array:
    """Rows whose directions have very unequal variances; `rank`: some directions in which nobody has a part."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((ROWS, dims)) * np.geomspace(1.0, 1.0e-2, dims)
    if rank is not None:
        rows[:, rank:] = 0.0
    return np.asarray(rows - rows.mean(0))


def fitted(rows: Array, gap: Array, *, inner: bool = False, exact: int = 2500) -> SumFit:
    matrix, vector = (rows @ rows.T, rows @ gap) if inner else (rows.T @ rows, gap)
    return fit_sum(matrix, vector, square=float(gap @ gap), dims=rows.shape[1], typical=1.0, inner=inner, exact=exact)


@pytest.mark.parametrize(("excess", "residual"), [(1.0, 0.03), (4.0, 0.03), (1.0, 0.3)])
def test_level_and_excess_are_found(excess: float, residual: float) -> None:
    found = []
    for seed in range(12):
        rows, rng = vectors(seed), np.random.default_rng(100 + seed)
        gap = np.sqrt(excess) * rng.standard_normal(ROWS) @ rows + residual * rng.standard_normal(DIMS)
        found.append(fitted(rows, gap))
    assert np.exp(np.mean([np.log(one.excess) for one in found])) == pytest.approx(excess, rel=0.25)
    gains = [one.gain for one in found]
    if excess == 1.0:
        assert np.mean([one.level for one in found]) == pytest.approx(residual, rel=0.2)
        assert np.mean(gains) < 1.2 and sum(gain > 2.0 for gain in gains) <= 3
    else:
        assert min(gains) > 2.0
    assert min(gains) >= 0.0


@pytest.mark.parametrize("rank", [None, 40])
@pytest.mark.parametrize("dims", [DIMS, 150])
def test_all_ways_agree(rank: int | None, dims: int) -> None:
    """T or inner products, the spectrum or factors; with directions that are empty and a part of the gap in them."""
    rows, rng = vectors(3, dims, rank), np.random.default_rng(4)
    gap = rng.standard_normal(ROWS) @ rows + 0.05 * rng.standard_normal(dims)
    usual = fitted(rows, gap)
    for inner in (False, True):
        other = fitted(rows, gap, inner=inner)
        np.testing.assert_allclose(other, usual, rtol=1e-4)
        quick = fitted(rows, gap, inner=inner, exact=10)
        assert quick.level == pytest.approx(usual.level, rel=0.05)
        assert quick.relative == pytest.approx(usual.relative, rel=0.05)
        assert quick.excess == pytest.approx(usual.excess, rel=0.1)
        assert quick.gain == pytest.approx(usual.gain, abs=0.5)


def test_an_exact_sum_has_the_least_level() -> None:
    rows = vectors(0)
    found = fitted(rows, np.random.default_rng(1).standard_normal(ROWS) @ rows)
    assert found.level < 0.05 and found.excess == pytest.approx(1.0, abs=0.4)


def test_numbers_that_are_not_finite_are_refused() -> None:
    matrix = np.full((30, 30), np.nan)
    with pytest.raises(InvalidArgument, match="candidates have gradients that are not finite"):
        fit_sum(matrix, np.ones(30), square=1.0, dims=30, typical=1.0, inner=False, exact=10)
