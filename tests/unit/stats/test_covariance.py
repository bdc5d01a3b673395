"""Covariance models: primal, dual and streamed against NumPy and scikit-learn, singular cases, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf, oas

from gmip.errors import InvalidArgument
from gmip.stats import GaussianModel


def samples(count: int, width: int, *, seed: int = 0, smallest: float = 1.0e-3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0]
    return rng.standard_normal((count, width)) * np.sqrt(np.geomspace(1.0, smallest, width)) @ turn + 3.0


def dense(model: GaussianModel) -> np.ndarray:
    """The covariance that the model stands for, written out."""
    inside = model.basis * model.eigenvalues @ model.basis.T
    return inside + model.outside * (np.eye(model.dimension) - model.basis @ model.basis.T)


@pytest.mark.parametrize(("count", "width"), [(300, 40), (40, 40), (40, 41), (30, 200)])
def test_is_the_sample_covariance(count: int, width: int) -> None:
    x = samples(count, width)
    model = GaussianModel.fit(x)
    np.testing.assert_allclose(dense(model), np.cov(x.T), atol=1.0e-13)
    np.testing.assert_allclose(model.mean, x.mean(axis=0), rtol=1.0e-13)
    np.testing.assert_allclose(model.basis.T @ model.basis, np.eye(model.rank), atol=1.0e-12)
    assert model.rank == min(count - 1, width) and model.num_samples == count
    assert np.all(np.diff(model.spectrum) <= 0.0)


def test_chunks_of_any_size_agree_with_the_array() -> None:
    x = samples(500, 30)
    whole = GaussianModel.fit(x, shrinkage="ledoit-wolf")
    parts = GaussianModel.fit((x[start : start + 37] for start in range(0, 500, 37)), shrinkage="ledoit-wolf")
    np.testing.assert_allclose(dense(parts), dense(whole), rtol=1.0e-10, atol=1.0e-14)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1.0e-12)
    assert parts.num_samples == 500 and parts.floor == pytest.approx(whole.floor, rel=1.0e-9)


def test_float32_is_summed_in_float64() -> None:
    x = samples(400, 20).astype(np.float32)
    np.testing.assert_allclose(dense(GaussianModel.fit(x)), np.cov(x.T.astype(np.float64)), atol=1.0e-13)


def test_primal_and_dual_agree_on_one_problem() -> None:
    """60 samples in 50 dimensions, and the same in 200 dimensions of which 150 are empty, turned about."""
    x, v = samples(60, 50), samples(5, 50, seed=1)
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((200, 200)))[0][:50]
    primal, dual = GaussianModel.fit(x), GaussianModel.fit(x @ turn)
    np.testing.assert_allclose(dual.eigenvalues, primal.eigenvalues, rtol=1.0e-9)
    squares = [np.sum(m.coordinates(y) ** 2 / m.eigenvalues, axis=1) for m, y in ((primal, v), (dual, v @ turn))]
    np.testing.assert_allclose(squares[1], squares[0], rtol=1.0e-8)


def test_dual_keeps_small_directions_apart() -> None:
    """Eigenvalues over twelve orders: the directions stay orthonormal."""
    model = GaussianModel.fit(samples(40, 100, smallest=1.0e-14))
    np.testing.assert_allclose(model.directions.T @ model.directions, np.eye(model.spectrum.size), atol=1.0e-12)


def test_class_gradients_of_a_softmax_head_sum_to_zero() -> None:
    rng = np.random.default_rng(3)
    inputs, errors = rng.standard_normal((500, 6)), rng.standard_normal((500, 4))
    errors -= errors.mean(axis=1, keepdims=True)
    gradients = np.einsum("ij,ik->ijk", errors, inputs).reshape(500, -1)
    model = GaussianModel.fit(gradients)
    assert model.dimension == 24 and model.rank == 18
    np.testing.assert_allclose(dense(model), np.cov(gradients.T), atol=1.0e-13)


@pytest.mark.parametrize("kind", ["ledoit-wolf", "oas"])
@pytest.mark.parametrize(("count", "width"), [(200, 20), (30, 60)])
def test_shrinkage_is_that_of_scikit_learn(kind: str, count: int, width: int) -> None:
    x = samples(count, width)
    theirs = (ledoit_wolf if kind == "ledoit-wolf" else oas)(x)[0]
    model = GaussianModel.fit(x, shrinkage=kind)
    np.testing.assert_allclose(dense(model) * (count - 1) / count, theirs, rtol=1.0e-9, atol=1.0e-12)


@pytest.mark.parametrize("kind", ["ledoit-wolf", "oas"])
def test_dimensions_left_out_count_in_the_target(kind: str) -> None:
    x = samples(200, 20)
    padded = GaussianModel.fit(np.column_stack([x, np.zeros((200, 30))]), shrinkage=kind)
    short = GaussianModel.fit(x, shrinkage=kind, extra_dims=30)
    assert (short.scale, short.floor) == pytest.approx((padded.scale, padded.floor), rel=1.0e-9)


def test_cutoff_ridge_and_what_lies_outside() -> None:
    model = GaussianModel.known(np.zeros(4), [1.0, 0.5, 1.0e-3, 0.0])
    assert (model.rank, model.outside, model.num_samples) == (3, 0.0, math.inf)
    cut = model.retuned(cutoff=0.01)
    assert cut.rank == 2 and cut.directions is model.directions
    ridged = cut.retuned(ridge=0.1)
    assert ridged.cutoff == 0.01
    mean_eigenvalue = 1.501 / 3.0  # over the directions that vary: the same however many empty ones there are
    assert ridged.outside == pytest.approx(0.1 * mean_eigenvalue)
    np.testing.assert_allclose(ridged.eigenvalues, [1.0 + ridged.outside, 0.5 + ridged.outside])


def test_embedding_with_its_residual_is_an_isometry() -> None:
    model, v = GaussianModel.fit(samples(20, 50)), samples(7, 50, seed=4)
    embedded = model.embed(v, residual=True)
    centred = v - model.mean
    assert embedded.shape == (7, model.spectrum.size + 50)
    np.testing.assert_allclose(embedded @ embedded.T, centred @ centred.T, rtol=1.0e-10)
    np.testing.assert_allclose(model.embed(v, centred=False), v @ model.directions, rtol=1.0e-12)
    np.testing.assert_allclose(model.coordinates(v), centred @ model.basis, rtol=1.0e-10)


@pytest.mark.parametrize("inside", [True, False])
def test_plus_mean(inside: bool) -> None:
    turn = np.linalg.qr(np.random.default_rng(5).standard_normal((6, 6)))[0]
    covariance = turn[:, :4] * [4.0, 3.0, 2.0, 1.0] @ turn[:, :4].T
    mean = turn[:, 0] + turn[:, 1] if inside else turn[:, 0] + turn[:, 5]
    model = GaussianModel.known(mean, covariance).plus_mean(0.7)
    np.testing.assert_allclose(dense(model), covariance + 0.7 * np.outer(mean, mean), atol=1.0e-12)
    assert model.rank == (4 if inside else 5)


def test_plus_mean_beyond_the_span_of_few_samples() -> None:
    x = samples(10, 30)
    model = GaussianModel.fit(x).plus_mean(0.5)
    np.testing.assert_allclose(dense(model), np.cov(x.T) + 0.5 * np.outer(model.mean, model.mean), atol=1.0e-11)


@pytest.mark.parametrize(
    ("background", "words"),
    [
        (np.zeros((1, 3)), "background has 1 examples"),
        (np.zeros((5, 3)), "does not vary"),
        (np.full((5, 3), 1.0e6), "does not vary"),
        (np.full((3, 5), 0.1), "does not vary"),
        (np.zeros(5), "two dimensions"),
        (np.array([[1.0, 2.0], [np.nan, 1.0], [1.0, np.inf]]), "2 rows .* first is row 1"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], "4 columns where 3"),
        ([np.ones((1, 3))], "background has 1 examples"),
        ([], "background has 0 examples"),
        (np.zeros((5, 0)), "no columns"),
        (np.array([["a", "b"]]), "numbers"),
    ],
)
def test_background_that_gives_no_covariance(background: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        GaussianModel.fit(background)


def test_other_arguments() -> None:
    x = samples(20, 3)
    for wrong in ({"cutoff": 1.0}, {"cutoff": -0.1}, {"ridge": -1.0}, {"ridge": math.inf}, {"shrinkage": "lw"}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            GaussianModel.fit(x, **wrong)
    for covariance in (np.eye(2), [[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], -np.eye(3), np.zeros(3)):
        with pytest.raises(InvalidArgument, match="covariance"):
            GaussianModel.known(np.zeros(3), covariance)
    with pytest.raises(InvalidArgument, match="vectors has 4 columns where 3"):
        GaussianModel.fit(x).coordinates(np.zeros((2, 4)))
