"""The tight bound is never below the power of the optimal test, and never (much) above what was known before."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmip import Gaussian, NoisySGD, account
from gmip.accounting.gaussian_pair import ChiSquared
from gmip.accounting.step import gdp_mu_step, tight_step
from tests.spectral import spectral_step

FPR = np.array([1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.5, 0.8, 0.99])
CLIP = 1.0


@st.composite
def populations(draw: st.DrawFn) -> tuple[NoisySGD, np.ndarray, np.ndarray]:
    """A noisy full-batch step, the spectrum of a gradient covariance that clipping allows, and a candidate."""
    d = draw(st.integers(1, 40))
    n = draw(st.one_of(st.integers(1, 6), st.integers(2, 300)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    eigenvalues = rng.uniform(size=d) ** draw(st.floats(0.1, 8.0)) + 1e-12
    eigenvalues *= CLIP**2 * draw(st.floats(0.01, 1.0)) / eigenvalues.sum()  # trace <= C^2
    delta = rng.normal(size=d) * eigenvalues ** draw(st.floats(-0.5, 1.5))
    delta *= 2.0 * CLIP * draw(st.floats(0.01, 1.0)) / np.linalg.norm(delta)  # |theta - mean| <= 2C
    tau = 10.0 ** draw(st.floats(-4.0, 0.5))
    run = NoisySGD(
        dataset_size=n, batch_size=n, num_steps=1, num_params=d, clip_norm=CLIP, noise_std=tau, sampling="full"
    )
    return run, eigenvalues, delta


@given(populations())
@settings(max_examples=40, deadline=None)
def test_one_step_is_never_optimistic(population: tuple[NoisySGD, np.ndarray, np.ndarray]) -> None:
    run, eigenvalues, delta = population
    susceptibility = min(max(float(np.sum(delta**2 / eigenvalues)), 1e-9), 1e18)
    truth = spectral_step(eigenvalues, delta, batch_size=run.batch_size, noise_std=run.noise_std)
    exact = truth.log_fnr(FPR)
    slack = 1e-7 * np.abs(exact) + 1e-12
    # `account` may also call on differential privacy, which rests on the clipping of real gradients. A Gaussian
    # population has no clipped gradients and, for tiny batches, can leak more than clipped ones ever do.
    assert np.all(tight_step(run, susceptibility).log_fnr(FPR) <= exact + slack)


@given(populations(), st.floats(1.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_a_bound_for_larger_susceptibility_holds_too(
    population: tuple[NoisySGD, np.ndarray, np.ndarray], factor: float
) -> None:
    run, eigenvalues, delta = population
    susceptibility = min(max(float(np.sum(delta**2 / eigenvalues)), 1e-9), 1e17)
    truth = spectral_step(eigenvalues, delta, batch_size=run.batch_size, noise_std=run.noise_std)
    bound = tight_step(run, factor * susceptibility)
    exact = truth.log_fnr(FPR)
    assert np.all(bound.log_fnr(FPR) <= exact + 1e-7 * np.abs(exact) + 1e-12)


@given(
    n=st.integers(2, 2000),
    d=st.integers(1, 5000),
    log_tau=st.floats(-5.0, 1.0),
)
@settings(max_examples=100, deadline=None)
def test_one_step_is_no_worse_than_paper_and_gdp_up_to_the_variance_term(n: int, d: int, log_tau: float) -> None:
    run = NoisySGD(
        dataset_size=n,
        batch_size=n,
        num_steps=1,
        num_params=d,
        clip_norm=1.0,
        noise_std=10.0**log_tau,
        sampling="full",
    )
    ours = account(run)
    paper = ChiSquared(dimension=d, susceptibility=d, batch_size=run.effective_batch_size)
    before = np.minimum(paper.mu_at(FPR), Gaussian(gdp_mu_step(run)).mu_at(FPR))
    # The bound may count one direction more than the paper: its variance term, whatever the spectrum.
    drop = 1.0 / n
    variance = -(d + 1) * (drop + math.log1p(-drop))
    assert np.all(ours.mu_at(FPR) <= np.sqrt(before**2 + variance) * (1 + 1e-6) + 3.0 * math.sqrt(variance / n) + 1e-9)


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 12),
    total=st.integers(2, 400),
    share=st.floats(0.01, 0.99),
    log_tau=st.floats(-4.0, 0.5),
)
@settings(max_examples=150, deadline=None)
def test_poisson_step_is_never_optimistic(seed: int, d: int, total: int, share: float, log_tau: float) -> None:
    """Theorem 2 against the exact mu of the Gaussian model: others' sum with its covariance, shifted by theta/n."""
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(200, d)) * rng.uniform(0.05, 1.0, size=d) + rng.normal(size=d)
    gradients *= np.minimum(1.0, CLIP / np.linalg.norm(gradients, axis=1))[:, None]
    mean, covariance = gradients.mean(axis=0), np.atleast_2d(np.cov(gradients.T, bias=True)) + 1e-9 * np.eye(d)
    theta = gradients[0]
    susceptibility = float((theta - mean) @ np.linalg.solve(covariance, theta - mean))
    n = max(1, min(round(share * total), total - 1))
    run = NoisySGD(
        dataset_size=total,
        batch_size=n,
        num_steps=1,
        num_params=d,
        clip_norm=CLIP,
        noise_std=10.0**log_tau,
        sampling="poisson",
    )
    p = run.sample_rate
    moment = covariance + np.outer(mean, mean)
    published = (total - 1) / n**2 * (p * moment - p**2 * np.outer(mean, mean)) + run.noise_std**2 * np.eye(d)
    true_mu = math.sqrt(float(theta @ np.linalg.solve(published, theta))) / n
    bound = tight_step(run, max(susceptibility, 1e-9))
    assert isinstance(bound, Gaussian)
    assert true_mu <= bound.mu * (1 + 1e-6)


def test_covariance_of_a_poisson_batch() -> None:
    """What Theorem 2 starts from, by simulation: records drawn anew, each in the batch with probability p."""
    rng = np.random.default_rng(3)
    total, n, d, games = 30, 12, 3, 200_000
    p, mean, scale = n / total, np.array([0.5, -0.2, 0.1]), np.array([0.3, 0.6, 0.1])
    published = np.zeros((games, d))
    for _ in range(total - 1):
        published += (rng.uniform(size=games) < p)[:, None] * (mean + scale * rng.normal(size=(games, d))) / n
    moment = np.diag(scale**2) + np.outer(mean, mean)
    expected = (total - 1) / n**2 * (p * moment - p**2 * np.outer(mean, mean))
    error = 6.0 * np.sqrt(np.outer(np.diag(expected), np.diag(expected)) * 2.0 / games)
    assert np.all(np.abs(np.cov(published.T) - expected) < error)


def test_exposure_grows_with_susceptibility_and_falls_with_noise_and_batch() -> None:
    base = {"dataset_size": 100, "batch_size": 100, "num_steps": 1, "clip_norm": 1.0, "num_params": 30}
    curves = [tight_step(NoisySGD(**base, noise_std=0.05, sampling="full"), k) for k in (1.0, 4.0, 4.1, 30.0, 100.0)]
    for higher, lower in itertools.pairwise(curves):
        assert np.all(lower.fnr_at(FPR) <= higher.fnr_at(FPR) + 1e-9)
    noises = [tight_step(NoisySGD(**base, noise_std=t, sampling="full"), 30.0) for t in (0.0, 1e-6, 1e-3, 0.1, 1.0)]
    for lower, higher in itertools.pairwise(noises):
        # With noise the bound counts one direction more (docs/theory/one-step.md), worth 1/(2 n^2) in mu^2.
        assert np.all(lower.fnr_at(FPR) <= higher.fnr_at(FPR) + 5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "total", "d", "tau", "steps"), [(20, 100, 8, 0.03, 30), (5, 20, 3, 0.1, 10), (40, 400, 30, 0.0, 60)]
)
def test_composed_run_against_the_optimal_attack(n: int, total: int, d: int, tau: float, steps: int) -> None:
    """The likelihood-ratio attack on every step's mean, mixture over inclusion, simulated in the Gaussian model."""
    rng = np.random.default_rng(7)
    eigenvalues = np.arange(1, d + 1) ** -1.5
    eigenvalues /= eigenvalues.sum()
    delta = np.sqrt(eigenvalues) * rng.choice([-1.0, 1.0], size=d)  # K = d
    run = NoisySGD(dataset_size=total, batch_size=n, num_steps=steps, num_params=d, clip_norm=1.0, noise_std=tau)
    bound = account(run, susceptibility=float(np.sum(delta**2 / eigenvalues)))
    v0 = eigenvalues / n + tau**2
    v1 = v0 - eigenvalues / n**2
    games, p = 40_000, run.sample_rate

    def loss(member: bool) -> np.ndarray:
        score = np.zeros(games)
        for _ in range(steps):
            chosen = (rng.uniform(size=games) < p) & member
            m = rng.normal(size=(games, d))
            m = np.where(chosen[:, None], delta / n + np.sqrt(v1) * m, np.sqrt(v0) * m)
            llr = np.sum(0.5 * np.log(v0 / v1) + m**2 / (2 * v0) - (m - delta / n) ** 2 / (2 * v1), axis=1)
            score += np.log1p(p * np.expm1(llr))
        return score

    others, members = np.sort(loss(False)), loss(True)
    for fpr in (0.001, 0.01, 0.1, 0.5):
        threshold = others[int((1 - fpr) * games)]
        tpr = float(np.mean(members > threshold))
        # The threshold's own error moves the FPR by its standard error; both enter the error bar.
        upper = bound.tpr_at(min(fpr + 4 * math.sqrt(fpr * (1 - fpr) / games), 1.0))
        assert tpr <= upper + 4 * math.sqrt(max(tpr * (1 - tpr), 1 / games) / games)
        # Fresh data here: the bound, which allows for reuse, is above by up to 1/(1 - p) in mu^2, but not by far more.
        assert tpr >= 0.5 * bound.tpr_at(fpr)
