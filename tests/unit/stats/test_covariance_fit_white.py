"""A Cholesky factor in place of eigenvectors: the same answers where it is taken, and taken only where it is safe."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.attacks.glir import View, glir_scores
from gmip.attacks.glir.scoring import FittedStep
from gmip.errors import InvalidArgument
from gmip.stats.covariance import GaussianModel, WhiteModel, fit_white


def samples(count: int, width: int, *, smallest: float = 1.0e-3, seed: int = 0) -> np.ndarray:
    """Variances from 1 down to `smallest` along random directions, about a mean that is not zero."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((width, width)))[0]
    return rng.standard_normal((count, width)) * np.sqrt(np.geomspace(1.0, smallest, width)) @ turn + 3.0


def view(background: np.ndarray, **changes: object) -> View:
    candidates = samples(12, background.shape[1], seed=1)
    given = {"mean": candidates[:6].mean(axis=0), "candidates": candidates, "background": background, "batch_size": 6}
    return View(**{**given, **changes})


def test_directions_whiten_the_sample() -> None:
    x = samples(300, 20)
    model = fit_white(x)
    assert isinstance(model, WhiteModel) and model.rank == 20 and model.num_samples == 300
    np.testing.assert_allclose(np.cov(model.embed(x).T), np.eye(20), atol=1.0e-11)
    np.testing.assert_allclose(np.triu(model.covariance), np.triu(np.cov(x.T)), atol=1.0e-13)
    v = samples(3, 20, seed=2)
    exact = np.einsum("ij,jk,ik->i", v - x.mean(axis=0), np.linalg.inv(np.cov(x.T)), v - x.mean(axis=0))
    np.testing.assert_allclose(np.sum(model.embed(v) ** 2, axis=1), exact, rtol=1.0e-10)


@pytest.mark.parametrize("method", ["paper", "likelihood-ratio", "mixture", "joint"])
def test_scores_are_those_of_eigenvectors(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = view(samples(300, 20))
    white = glir_scores([step], method=method, play=None)
    monkeypatch.setattr("gmip.attacks.glir.scoring.fit_white", GaussianModel.fit)
    plain = glir_scores([step], method=method, play=None)
    for name in ("scores", "susceptibility"):
        np.testing.assert_allclose(getattr(white, name), getattr(plain, name), rtol=1.0e-9, atol=1.0e-12)
    assert (white.rank, white.cutoff, white.ridge) == (plain.rank, plain.cutoff, plain.ridge)


@pytest.mark.parametrize("smallest", [1.0e-9, 1.0e-11, 1.0e-13])
def test_eigenvalues_near_the_cutoff_are_cut_by_eigenvectors(smallest: float) -> None:
    x = samples(300, 20, smallest=smallest)
    model, plain = fit_white(x, cutoff=1.0e-10), GaussianModel.fit(x, cutoff=1.0e-10)
    assert not isinstance(model, WhiteModel) and model.rank == plain.rank
    np.testing.assert_allclose(model.spectrum, plain.spectrum, rtol=1.0e-9, atol=1.0e-16)


def test_singular_covariance_is_left_to_eigenvectors() -> None:
    x = samples(300, 20)
    x[:, 0] = 1.0 - x[:, 1:].sum(axis=1)  # as the class gradients of a softmax head
    model = fit_white(x)
    assert not isinstance(model, WhiteModel) and model.rank == 19


@pytest.mark.parametrize(
    "changes",
    [{"noise_std": 0.1}, {"sampling": "poisson", "sample_rate": 0.5}],
    ids=["noise", "poisson"],
)
def test_not_taken_where_lengths_matter(changes: dict[str, object]) -> None:
    step = FittedStep.fitted(view(samples(300, 20), **changes), (1.0e-12, 0.0), None, final=True)
    assert not isinstance(step.gradients, WhiteModel) and not isinstance(step.batches, WhiteModel)


def test_not_taken_with_ridge_shrinkage_or_few_samples() -> None:
    step, plain = view(samples(300, 20)), (1.0e-12, 0.0)
    fits = [FittedStep.fitted(step, (1.0e-12, 1.0e-3), None, final=True)]
    fits += [FittedStep.fitted(step, plain, "oas", final=True), FittedStep.fitted(step, plain, None, final=False)]
    assert not any(isinstance(fit.gradients, WhiteModel) for fit in fits)
    found = glir_scores([view(samples(22, 20))], play=None)
    assert (found.cutoff, found.ridge) != plain


@pytest.mark.parametrize(("rows", "hint"), [(np.ones((5, 2)), "does not vary"), (np.ones((1, 2)), "at least 2")])
def test_background_that_gives_no_covariance(rows: np.ndarray, hint: str) -> None:
    with pytest.raises(InvalidArgument, match=hint):
        fit_white(rows)


@pytest.mark.parametrize("cutoff", [-1.0, 1.0, float("nan")])
def test_bad_cutoff(cutoff: float) -> None:
    with pytest.raises(InvalidArgument, match="cutoff"):
        fit_white(samples(30, 3), cutoff=cutoff)
