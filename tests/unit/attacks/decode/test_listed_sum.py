"""The linear algebra of decoding, against inverses of whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gmip.attacks.decode import PublishedSum, from_products, from_rows
from gmip.errors import InvalidArgument

C, M, D = 30, 200, 45


def vectors(dims: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    shape = rng.normal(size=(dims, dims)) * np.geomspace(1.0, 0.1, dims) + 0.3
    all_of_them = rng.normal(size=(C + M, dims)) @ shape + 1.0
    total = all_of_them[:10].sum(0) + all_of_them[C : C + 8].sum(0) + rng.normal(size=dims)
    return all_of_them[:C], total, all_of_them[C:]


def by_inversion(
    made: PublishedSum, basis: NDArray[np.float64], missing: float, varies: float, drawn: float, b: Any, v: Any
) -> Any:
    """x' S^-1 x and so on, in the coordinates of `basis` (vectors, entries) and with one more number, the size."""
    counted = made.draw != "poisson"
    x = np.column_stack([basis, np.full(len(basis), 10.0 * counted)])
    x[-1, -1] = 10.0 * drawn * counted
    listed, mean, total = x[:-2], x[-2], x[-1]
    random = missing * (1.0 + missing / (made.learned_from or C))
    rest = np.append(random * np.append(made.variance, np.full(basis.shape[1] - len(made.variance), made.floor)), 0.0)
    cov = np.diag(rest + 1.0) + listed.T @ (v[:, None] * listed) + missing * varies * np.outer(mean, mean)
    inverse = np.linalg.inv(cov)
    left = total - b @ listed - missing * mean
    squared = np.einsum("ij,jk,ik->i", listed, inverse, listed)
    return squared, 1.0 - v * squared, listed @ inverse @ left, left @ inverse @ left, np.linalg.slogdet(cov)[1]


@pytest.mark.parametrize("draw", ["full", "poisson"])
@pytest.mark.parametrize("missing", [0.0, 8.0])
@pytest.mark.parametrize("dims", [12, D])
def test_rows(dims: int, missing: float, draw: Any) -> None:
    """Fewer entries than candidates, and more."""
    x, y, background = vectors(dims)
    made = from_rows(x, y, background, share=0.4, draw=draw, noisy=True)
    rng = np.random.default_rng(1)
    b, v = rng.random(C), 0.25 * rng.random(C) + 0.01
    found: Any = made.solve(missing, 0.3, 18.0, b, v)
    for ours, theirs in zip(found, by_inversion(made, made.rows, missing, 0.3, 18.0, b, v), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("missing", [0.0, 8.0])
def test_products(missing: float, background: bool) -> None:
    """Axes of the background and what they leave out, or nothing but inner products."""
    dims = 300
    x, y, others = vectors(dims)
    others = others if background else others[:0]
    everything = np.vstack([x, others, y])
    made = from_products(everything @ everything.T, C, dims=dims, share=0.4, draw="full", noisy=True)
    assert made.dims == dims and made.products is not None and made.count == C
    assert made.learned_from == (160 if background else 0)
    mean = others[40:].mean(0) if background else x.mean(0)
    basis = np.vstack([x, mean, y])
    if background:  # the axes, then any others
        centred = others[40:] - mean
        axes = np.linalg.svd(centred)[2]
        order = np.argsort(made.variance)[::-1]
        kept = len(made.variance)
        np.testing.assert_allclose(np.abs(basis @ axes[:kept].T), np.abs(made.rows[:, order]), atol=1e-7)
        made = PublishedSum(**{**vars(made), "rows": made.rows[:, order], "variance": made.variance[order]})
        basis = basis @ axes.T
    rng = np.random.default_rng(1)
    b, v = rng.random(C), 0.25 * rng.random(C) + 0.01
    found: Any = made.solve(missing, 0.3, 18.0, b, v)
    for ours, theirs in zip(found, by_inversion(made, basis, missing, 0.3, 18.0, b, v), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_rows_and_products_say_the_same_of_the_listed() -> None:
    x, y, _ = vectors(D)
    everything = np.vstack([x, y])
    kind: Any = {"share": 1.0, "draw": "full", "noisy": True}
    ways = [from_rows(x, y, **kind), from_products(everything @ everything.T, C, dims=D, **kind)]
    found: Any = [way.solve(0.0, 0.0, 18.0, np.full(C, 0.5), np.full(C, 0.25)) for way in ways]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


def test_the_ridge_is_chosen_out_of_sample() -> None:
    """With few background records for many directions it is large; with many it is small, and odds shrink less."""
    x, y, background = vectors(D)
    few, many = (
        from_rows(x, y, part, share=1.0, draw="full", noisy=False)
        for part in (background[:60], np.tile(background, (2, 1)))
    )
    assert few.variance.min() > 2.0 * many.variance.min()


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="not finite"):
        from_rows(np.eye(4), np.full(4, np.nan), share=0.5, draw="fixed", noisy=False)
    with pytest.raises(InvalidArgument, match="inner products"):
        from_products(np.ones((3, 4)), 2, dims=3, share=0.5, draw="fixed", noisy=False)
    bad = from_products(-np.eye(4), 3, dims=3, share=1.0, draw="full", noisy=False)
    with pytest.raises(InvalidArgument, match="of no vectors"):
        bad.solve(0.0, 0.0, 2.0, np.full(3, 0.5), np.full(3, 0.25) * 1e4)
