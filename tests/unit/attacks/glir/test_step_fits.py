"""Products under the inverse covariance: two ways, and without a record, against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gmip.attacks.glir.step_fits import GameDraw, Metric, fit_step
from gmip.stats.covariance import Shrinkage
from tests.unit.attacks.views import view

Array = NDArray[np.float64]
M, C, D = 30, 12, 20  # background, candidates, dimensions
BACKGROUND, EVERYBODY = np.arange(M), np.arange(M + C)


def step(width: int, **changes: Any) -> Any:
    rng = np.random.default_rng(3)
    drawn = rng.standard_normal((M + C, width)) * np.geomspace(1.0, 0.2, width) + 0.3
    return view(width, background=drawn[:M], candidates=drawn[M:], batch_size=10, **changes)


def metric_of(seen: Any, scored: NDArray[np.intp], *, dual: bool) -> Metric:
    found = fit_step(seen, BACKGROUND, scored, shrinkage=None, dual=dual).metric((1.0e-12, 0.3))
    assert found is not None
    return found


def dense(seen: Any, fit: NDArray[np.intp]) -> tuple[Array, Array, Array]:
    """Mean, inverse covariance of the published mean, all records. Ridge and divisors are those of the whole fit."""
    pool, n = np.concatenate([seen.background, seen.candidates]), seen.batch_size
    share = (1.0 - 1.0 / n) / n + (1.0 - 1.0 / n) ** 2 / M
    values = np.linalg.svd(pool[:M] - pool[:M].mean(axis=0), compute_uv=False) ** 2 / (M - 1)
    ridge = 0.3 * values[values > 1.0e-10 * values[0]].mean()
    mean = pool[fit].mean(axis=0)
    scatter = (pool[fit] - mean).T @ (pool[fit] - mean) / (M - 1)
    eye = np.eye(mean.size)
    return mean, np.linalg.inv(share * (scatter + ridge * eye) + seen.noise_std**2 * eye), pool


@pytest.mark.parametrize("noise_std", [0.0, 0.2])
@pytest.mark.parametrize(("width", "dual"), [(D, True), (D, False), (60, True)])
def test_products_are_those_of_dense_matrices(width: int, dual: bool, noise_std: float) -> None:
    seen = step(width, noise_std=noise_std)
    mean, w, pool = dense(seen, BACKGROUND)
    got = metric_of(seen, EVERYBODY, dual=dual)
    u, y = pool - mean, seen.mean - mean
    np.testing.assert_allclose(got.length, np.einsum("ij,jk,ik->i", u, w, u), rtol=1.0e-8)
    np.testing.assert_allclose(got.cross, u @ w @ y, rtol=1.0e-7, atol=1.0e-7)
    assert got.own == pytest.approx(y @ w @ y)
    assert got.total == pytest.approx(np.trace(w))
    rows = np.arange(M - 5, M + 5)  # some of the fit, some not
    weights = np.random.default_rng(1).dirichlet(np.ones(rows.size), size=3)
    a, own, _, noise = got.mixed(GameDraw(rows, weights, np.random.SeedSequence(0)))
    means = weights @ u[rows]
    np.testing.assert_allclose(a - noise, means @ w @ u[rows].T, rtol=1.0e-7, atol=1.0e-7)
    if noise_std == 0.0:
        np.testing.assert_allclose(own, np.einsum("ij,jk,ik->i", means, w, means), rtol=1.0e-7)
    else:
        drawn = got.mixed(GameDraw(rows, np.zeros((4000, rows.size)), np.random.SeedSequence(0)))[3]
        expected = noise_std**2 * u[rows] @ w @ w @ u[rows].T
        np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.12 * expected.max())


@pytest.mark.parametrize(("width", "dual"), [(D, True), (D, False), (60, True)])
def test_a_record_of_the_fit_as_if_it_had_been_left_out(width: int, dual: bool) -> None:
    """Against fits on the others, but for the divisors of covariance and share, which stay those of the whole."""
    seen = step(width)
    got = metric_of(seen, BACKGROUND, dual=dual)
    found = got.real(BACKGROUND, inside=True)
    alone = np.zeros((1, M))
    alone[0, 4] = 1.0
    drawn = GameDraw(BACKGROUND, alone, np.random.SeedSequence(0))
    one, both = (got.pairs(drawn, inside=True, both=way)[0][0] for way in (False, True))
    for i in (0, 7, 29):
        mean, w, pool = dense(seen, np.delete(BACKGROUND, i))
        u, y = pool[i] - mean, seen.mean - mean
        assert found.length[i] == pytest.approx(u @ w @ u, rel=1.0e-6)
        assert found.cross[0, i] == pytest.approx(u @ w @ y, rel=1.0e-6, abs=1.0e-6)
        assert found.distance[0, i] == pytest.approx((y - u) @ w @ (y - u), rel=1.0e-6)
        assert one[i] == pytest.approx(u @ w @ (pool[4] - mean), rel=1.0e-6, abs=1.0e-6)
        mean, w, pool = dense(seen, np.delete(BACKGROUND, [i, 4]))
        assert both[i] == pytest.approx((pool[i] - mean) @ w @ (pool[4] - mean), rel=1.0e-6, abs=1.0e-6)


def test_poisson_both_ways() -> None:
    """The mean of the records is one more direction, and a part of every shift."""
    seen = step(D, sampling="poisson", sample_rate=0.25)
    primal, dual = (fit_step(seen, BACKGROUND, EVERYBODY, shrinkage=None, dual=way) for way in (False, True))
    one = primal.metric((1.0e-12, 0.3))
    # The ridge is in units of a spectrum that has the mean in it, or not: the same one for both here.
    ratio = primal.model.retuned(ridge=0.3).outside / (0.3 * dual.unit)  # type: ignore[attr-defined]
    two = dual.metric((1.0e-12, 0.3 * ratio))
    assert one is not None and two is not None
    drawn = GameDraw(np.arange(M - 5, M + 5), np.random.default_rng(2).random((3, 10)), np.random.SeedSequence(0))
    for name in ("length", "cross", "own"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=1.0e-6, atol=1.0e-6)
    for a, b in zip((*one.offset, *one.mixed(drawn)), (*two.offset, *two.mixed(drawn)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1.0e-6, atol=1.0e-6)


@pytest.mark.parametrize("shrinkage", [None, "ledoit-wolf", "oas"])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    "how", [{"noise_std": 0.5}, {}, {"sampling": "poisson", "sample_rate": 0.25}], ids=["noise", "none", "poisson"]
)
def test_susceptibility_both_ways(how: dict[str, Any], inside: bool, shrinkage: Shrinkage | None) -> None:
    """Noise and the batches' draws play no part in K, though the test's own factor serves it where it can."""
    fit, rows, setting = EVERYBODY if inside else BACKGROUND, np.arange(M, M + C), (1.0e-12, 0.3)
    found = []
    for seen, dual, tested in ((step(D), False, False), (step(D, **how), True, True), (step(D, **how), True, False)):
        one = fit_step(seen, fit, EVERYBODY, shrinkage=shrinkage, dual=dual)
        if tested:
            assert one.metric(setting) is not None
        found.append(one.susceptibility(setting, rows, inside=inside))
    assert found[0] is not None and found[0].min() > 0.0
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1.0e-6)
