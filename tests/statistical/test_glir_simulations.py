"""GLiR against simulated runs whose truth is known. Seeds are fixed; tolerances come from the number of runs.

Candidates of one run share what was published, so that errors are taken from the spread between runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats as scipy_stats
from scipy.special import ndtr

import gmip
from gmip.accounting.composition import group_susceptibilities, stochastic_composition
from gmip.accounting.gaussian_pair import ChiSquared
from gmip.attacks.glir import GlirOutcome, Play, View, glir_scores
from gmip.stats import GaussianModel, auc, logistic_calibration, tpr_at_fpr
from tests.spectral import spectral_step

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]


@dataclass
class Runs:
    """Outcomes of independent runs; the first `members` candidates of each are members."""

    outcomes: Sequence[GlirOutcome]
    members: int

    def split(self) -> tuple[Array, Array]:
        scores = np.array([o.scores for o in self.outcomes])
        return scores[:, : self.members].ravel(), scores[:, self.members :].ravel()

    @property
    def pooled_auc(self) -> float:
        return auc(*self.split())

    def areas(self) -> Array:
        """AUC of each run."""
        return np.array([auc(o.scores[: self.members], o.scores[self.members :]) for o in self.outcomes])

    def area(self) -> tuple[float, float]:
        """Mean AUC of a run and its standard error."""
        return float(self.areas().mean()), float(self.areas().std(ddof=1) / math.sqrt(len(self.outcomes)))

    def calibration_slope(self) -> tuple[float, float]:
        """Slope that the log-odds still need, 1 if they are right, and its jackknife error over the runs."""
        odds = np.array([a * o.scores + b for o in self.outcomes for a, b in [o.calibration or (1.0, 0.0)]])

        def slope(rows: Array) -> float:
            return logistic_calibration(rows[:, : self.members].ravel(), rows[:, self.members :].ravel())[0]

        left_out = np.array([slope(np.delete(odds, i, axis=0)) for i in range(len(odds))])
        return slope(odds), float(left_out.std() * math.sqrt(len(odds) - 1))

    def tpr(self, fpr: float) -> float:
        return tpr_at_fpr(*self.split(), fpr)

    def null_p_values(self) -> Array:
        """By self-play; without it those that the paper's method has as scores of a single step."""
        found = [np.exp(-o.scores) if o.p_values is None else o.p_values for o in self.outcomes]
        return np.array(found)[:, self.members :]

    def predicted_auc(self) -> float:
        return float(np.mean([o.prediction.auc for o in self.outcomes if o.prediction is not None]))

    def nominal(self, level: float, *, slack: float = 0.0) -> None:
        """The share of non-members at or below a level is that level, within error (and slack, a share of it)."""
        rates = (self.null_p_values() <= level).mean(axis=1)
        binomial = math.sqrt(level * (1.0 - level) / self.null_p_values().size)
        error = max(float(rates.std(ddof=1)) / math.sqrt(rates.size), binomial)
        assert rates.mean() == pytest.approx(level, abs=3.0 * error + slack * level)


def simulate(
    draw: Draw,
    *,
    size: int,
    runs: int,
    seed: int,
    background: int = 0,
    num_steps: int = 1,
    batch_size: int | None = None,
    sampling: Any = "full",
    noise_std: float = 0.0,
    models: Sequence[GaussianModel] | None = None,
    fresh: bool = False,
    methods: Sequence[str] = ("likelihood-ratio",),
    **options: Any,
) -> dict[str, Runs]:
    """Runs on `size` members and as many non-members, scored by each method.

    draw(rng, k) -> (k, D) gradients, the same at every step; with `fresh` the members who are not candidates, all but
    one in four, are drawn anew for each step, as composition assumes.
    """
    rng = np.random.default_rng(seed)
    n = batch_size or size
    found: dict[str, list[GlirOutcome]] = {method: [] for method in methods}
    for _ in range(runs):
        x, y = draw(rng, size), draw(rng, size)
        known = draw(rng, background) if background else None
        views = []
        for _ in range(num_steps):
            if fresh:
                x[size // 4 :] = draw(rng, size - size // 4)
            poisson = sampling == "poisson"
            chosen = np.flatnonzero(rng.random(size) < n / size) if poisson else rng.permutation(size)[:n]
            mean = x[chosen].sum(axis=0) / n
            candidates = np.concatenate([x[: size // 4], y[: size // 4]]) if fresh else np.concatenate([x, y])
            views.append(
                View(
                    mean=mean + noise_std * rng.standard_normal(mean.size),
                    candidates=candidates,
                    background=known,
                    batch_size=n,
                    noise_std=noise_std,
                    sample_rate=n / size,
                    sampling=sampling,
                )
            )
        for method in methods:
            found[method].append(glir_scores(views, method=method, models=models, **options))
    return {method: Runs(outcomes, size // 4 if fresh else size) for method, outcomes in found.items()}


def gaussian(width: int, *, smallest: float = 1.0, mean: float = 0.0) -> tuple[Draw, GaussianModel]:
    values = np.geomspace(1.0, smallest, width)

    def draw(rng: np.random.Generator, count: int) -> Array:
        return np.asarray(np.sqrt(values) * rng.standard_normal((count, width)) + mean)

    return draw, GaussianModel.known(np.full(width, mean), values)


def composed(runs: Runs, *, dimension: int, batch_size: int) -> gmip.TradeOff:
    """Stochastic composition over the measured susceptibilities: the best that any attack can do."""
    measured = np.concatenate([np.asarray(o.susceptibility) for o in runs.outcomes])
    values, shares = group_susceptibilities(measured)
    curves = [ChiSquared(dimension=dimension, susceptibility=k, batch_size=batch_size) for k in values]
    return stochastic_composition(curves, shares)


@pytest.mark.slow
def test_known_parameters_of_the_papers_size() -> None:
    """d = 650, n = 500: AUC Phi(mu/sqrt 2) = .790, and nominal false-positive rates."""
    draw, model = gaussian(650)
    found = simulate(draw, size=500, runs=16, seed=1, models=[model], methods=("likelihood-ratio", "paper"))
    mu = math.sqrt(2 * 650 / (2 * 500 + 1))
    for runs in found.values():
        area, error = runs.area()
        assert area == pytest.approx(ndtr(mu / math.sqrt(2.0)), abs=2.0 * error)
        assert error < 0.0035
    found["paper"].nominal(0.05)
    found["paper"].nominal(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "n", "noise_std", "runs"),
    [(100, 5, 0.0, 150), (100, 5, 0.3, 60), (2, 100, 0.0, 50), (2, 5, 0.0, 120), (60, 50, 0.05, 40)],
)
def test_ablations_with_gaussian_gradients(width: int, n: int, noise_std: float, runs: int) -> None:
    """Small batches, few dimensions, noise: nominal rates, and without noise the area that composition predicts."""
    draw, model = gaussian(width, smallest=0.1)
    methods = ("likelihood-ratio", "paper")
    found = simulate(draw, size=n, runs=runs, seed=2, noise_std=noise_std, models=[model], methods=methods)
    found["paper"].nominal(0.05)
    found["paper"].nominal(0.01)
    best = found["likelihood-ratio"]
    error = best.area()[1]
    assert best.pooled_auc >= found["paper"].pooled_auc - error
    if noise_std == 0.0:
        curve = composed(best, dimension=width, batch_size=n)
        assert best.pooled_auc == pytest.approx(curve.auc(), abs=3.0 * error + 0.003)


def _uniform(rng: np.random.Generator, count: int) -> Array:
    return np.asarray(rng.uniform(-1.0, 1.0, (count, 60)) * np.geomspace(1.0, 0.1, 60))


def _clipped(rng: np.random.Generator, count: int) -> Array:
    x = rng.standard_normal((count, 60)) * np.geomspace(1.0, 0.1, 60) + 0.2
    return np.asarray(x * np.minimum(1.0, 2.0 / np.linalg.norm(x, axis=1))[:, None])


@pytest.mark.parametrize("draw", [_uniform, _clipped])
def test_ablations_with_other_gradients(draw: Draw) -> None:
    """The batch mean is Gaussian by the central limit theorem only: rates still hold."""
    many = draw(np.random.default_rng(0), 100_000)
    model = GaussianModel.known(many.mean(axis=0), np.cov(many.T))
    methods = ("likelihood-ratio", "paper")
    found = simulate(draw, size=50, runs=150, seed=3, models=[model], methods=methods)
    found["paper"].nominal(0.05, slack=0.05)
    found["paper"].nominal(0.01, slack=0.15)
    best = found["likelihood-ratio"]
    curve = composed(best, dimension=60, batch_size=50)
    assert best.pooled_auc == pytest.approx(curve.auc(), abs=3.0 * best.area()[1] + 0.005)


@pytest.mark.slow
def test_heavy_tails_need_one_global_threshold() -> None:
    """Log-normal scales, d = n = 100; docs/theory/glir.md says 4.8% against 1.4% TPR at 0.1% FPR, AUC .665 and .632."""

    def draw(rng: np.random.Generator, count: int) -> Array:
        return np.asarray(np.exp(rng.standard_normal((count, 1)) - 1.0) * rng.standard_normal((count, 100)))

    model = GaussianModel.known(np.zeros(100), np.ones(100))
    methods = ("likelihood-ratio", "paper")
    found = simulate(draw, size=100, runs=200, seed=5, models=[model], methods=methods)
    ratio, paper = found["likelihood-ratio"], found["paper"]
    assert ratio.tpr(1.0e-3) >= 3.0 * paper.tpr(1.0e-3)
    assert ratio.pooled_auc == pytest.approx(0.665, abs=0.01)
    assert paper.pooled_auc == pytest.approx(0.632, abs=0.01)
    curve = composed(ratio, dimension=100, batch_size=100)
    for fpr in (1.0e-3, 1.0e-2, 0.1):
        tpr = float(curve.tpr_at(fpr))
        # members, and the threshold that the non-members set
        slope = float(curve.tpr_at(1.5 * fpr) - tpr) / (0.5 * fpr)
        error = math.sqrt((tpr + slope**2 * fpr) / 20_000)
        assert ratio.tpr(fpr) == pytest.approx(tpr, abs=3.0 * error)


class TestEstimated:
    """Background in place of known parameters, as many dimensions as a sizeable share of its examples."""

    @pytest.mark.parametrize(
        ("width", "count", "noise_std", "ridge"),
        [(80, 160, 0.0, 0.0), (80, 800, 0.0, 0.0), (120, 90, 0.05, 0.1), (80, 160, 0.05, 0.0), (80, 160, 0.0, 0.05)],
    )
    def test_p_values_of_the_model_are_uniform(self, width: int, count: int, noise_std: float, ridge: float) -> None:
        draw, _ = gaussian(width, smallest=0.05, mean=0.3)
        found = simulate(
            draw,
            size=40,
            runs=70,
            seed=6,
            background=count,
            noise_std=noise_std,
            methods=("paper",),
            play=None,
            cutoff=1.0e-12,
            ridge=ridge,
        )
        found["paper"].nominal(0.05, slack=0.1)
        found["paper"].nominal(0.01, slack=0.25)
        means = found["paper"].null_p_values().mean(axis=1)
        assert means.mean() == pytest.approx(0.5, abs=3.0 * means.std() / math.sqrt(means.size) + 0.01)

    def test_log_likelihood_ratios_are_calibrated(self) -> None:
        """Dimensions are half as many as background records: without the correction the slope would be a quarter."""
        draw, _ = gaussian(80, smallest=0.05)
        runs = simulate(draw, size=40, runs=100, seed=7, background=160, play=None)["likelihood-ratio"]
        slope, offset = logistic_calibration(*runs.split())
        assert slope == pytest.approx(1.0, abs=0.12) and offset == pytest.approx(0.0, abs=0.1)

    def test_area_is_close_to_that_of_known_parameters(self) -> None:
        """Estimation costs a factor 1 - r/m in mu^2."""
        draw, model = gaussian(80, smallest=0.05)
        known = simulate(draw, size=40, runs=80, seed=8, models=[model])["likelihood-ratio"]
        fitted = simulate(draw, size=40, runs=80, seed=8, background=1200, play=None)["likelihood-ratio"]
        (area, error), (reached, other) = known.area(), fitted.area()
        assert area - 0.03 < reached < area + 3.0 * math.hypot(error, other)
        assert reached == pytest.approx(ndtr(math.sqrt(80 / 40 * (1.0 - 80 / 1200) / 2.0)), abs=3.0 * other + 0.005)

    def test_softmax_head(self) -> None:
        """A covariance of rank (k-1)h in kh dimensions."""

        def draw(rng: np.random.Generator, count: int) -> Array:
            inputs, errors = rng.standard_normal((count, 12)), rng.standard_normal((count, 5))
            errors -= errors.mean(axis=1, keepdims=True)
            return np.einsum("ij,ik->ijk", errors, inputs).reshape(count, -1)

        found = simulate(
            draw, size=60, runs=80, seed=9, background=1500, methods=("likelihood-ratio", "paper"), play=None
        )
        for runs in found.values():
            assert {o.rank for o in runs.outcomes} == {48}
        found["paper"].nominal(0.05, slack=0.1)
        area, error = found["likelihood-ratio"].area()
        assert area == pytest.approx(ndtr(math.sqrt(48 / 60 * (1.0 - 48 / 1500) / 2.0)), abs=0.02 + 2.0 * error)


class TestSeveralSteps:
    def test_mixture_beats_the_sum_in_mini_batches(self) -> None:
        draw, model = gaussian(40)
        found = simulate(
            draw,
            size=120,
            batch_size=30,
            num_steps=8,
            runs=12,
            seed=10,
            sampling="fixed",
            models=[model] * 8,
            methods=("likelihood-ratio", "mixture"),
        )
        gains = found["mixture"].areas() - found["likelihood-ratio"].areas()
        assert gains.mean() > 0.03 + 2.0 * gains.std() / math.sqrt(gains.size)

    def test_mixture_is_calibrated_when_steps_face_fresh_data(self) -> None:
        draw, model = gaussian(40, mean=0.5)
        runs = simulate(
            draw,
            size=80,
            batch_size=20,
            num_steps=6,
            runs=60,
            seed=11,
            sampling="fixed",
            models=[model] * 6,
            methods=("mixture",),
            fresh=True,
        )["mixture"]
        slope, offset = logistic_calibration(*runs.split())
        assert slope == pytest.approx(1.0, abs=0.15) and offset == pytest.approx(0.0, abs=0.12)

    def test_joint_beats_the_sum_in_full_batches(self) -> None:
        """Gradients of successive steps agree in most of their variance: only their differences are new."""
        width, steps, n = 15, 4, 60
        mix = 0.95 * np.ones((steps, steps)) + 0.05 * np.eye(steps)
        sigma = np.kron(mix, np.eye(width))
        root = np.linalg.cholesky(sigma)
        rng = np.random.default_rng(12)
        single, joint = GaussianModel.known(np.zeros(width), np.ones(width)), GaussianModel.known(np.zeros(60), sigma)
        areas = []
        for _ in range(60):
            x = rng.standard_normal((2 * n, steps * width)) @ root.T
            parts = [x[:, t * width : (t + 1) * width] for t in range(steps)]
            views = [View(mean=g[:n].mean(axis=0), candidates=g, background=None, batch_size=n) for g in parts]
            summed = glir_scores(views, models=[single] * steps).scores
            together = glir_scores(views, method="joint", models=[joint]).scores
            areas.append([auc(s[:n], s[n:]) for s in (summed, together)])
        plain, stacked = np.mean(areas, axis=0)
        error = np.std(areas, axis=0)[1] / math.sqrt(60)
        assert stacked == pytest.approx(ndtr(math.sqrt(60 / n / 2.0)), abs=3.0 * error + 0.003)
        assert plain < stacked - 0.1


class TestPoisson:
    @pytest.mark.slow
    @pytest.mark.parametrize("noise_std", [0.0, 0.1])
    def test_log_likelihood_ratios(self, noise_std: float) -> None:
        """A mean that is far from 0: the random number of companions shows, and must not be taken for a member."""
        draw, model = gaussian(30, smallest=0.1, mean=1.0)
        runs = simulate(
            draw,
            size=100,
            batch_size=25,
            runs=60,
            seed=13,
            sampling="poisson",
            noise_std=noise_std,
            models=[model],
            methods=("likelihood-ratio", "paper", "mixture"),
        )
        runs["paper"].nominal(0.05, slack=0.05)
        runs["paper"].nominal(0.01, slack=0.2)
        # A likelihood ratio has mean 1 under "not a member", and its logarithm needs no calibration.
        means = np.array([np.exp(o.scores[100:]).mean() for o in runs["mixture"].outcomes])
        assert means.mean() == pytest.approx(1.0, abs=3.0 * means.std() / math.sqrt(means.size) + 0.01)
        slope, error = runs["mixture"].calibration_slope()
        assert slope == pytest.approx(1.0, abs=3.0 * error)
        assert error < 0.15


class TestSelfPlay:
    PLAY = Play(games=25, tuning_games=6, grid=((1.0e-12, 0.0), (1.0e-12, 1.0e-2), (1.0e-12, 1.0e-1)))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("method", "options"),
        [
            ("likelihood-ratio", {}),
            ("paper", {}),
            ("likelihood-ratio", {"noise_std": 0.1}),
            ("mixture", {"sampling": "fixed", "batch_size": 20, "num_steps": 5}),
            ("mixture", {"sampling": "poisson", "batch_size": 20, "num_steps": 5}),
            ("joint", {"num_steps": 2, "noise_std": 0.05}),
        ],
    )
    def test_predicts_the_area_and_keeps_p_values_valid(self, method: str, options: dict[str, Any]) -> None:
        """Gradients with heavy tails, whose covariance is estimated: no formula covers them, self-play does."""

        def draw(rng: np.random.Generator, count: int) -> Array:
            scales = np.exp(0.5 * rng.standard_normal((count, 1)))
            return np.asarray(scales * rng.standard_normal((count, 40)) * np.geomspace(1.0, 0.1, 40) + 0.5)

        runs = simulate(draw, size=60, runs=16, seed=14, background=700, methods=(method,), play=self.PLAY, **options)[
            method
        ]
        area, error = runs.area()
        assert runs.predicted_auc() == pytest.approx(area, abs=0.03)
        assert area > 0.53 + 2.0 * error
        runs.nominal(0.05, slack=0.1)
        # Posteriors: the scores, calibrated on games, need no further calibration on the real runs.
        slope, slope_error = runs.calibration_slope()
        assert slope == pytest.approx(1.0, abs=3.0 * slope_error + 0.1)
        assert slope_error < 0.2

    def test_candidates_that_were_never_seen(self) -> None:
        """Nobody is a member: area 1/2 and uniform p-values, however skewed the gradients."""
        rng = np.random.default_rng(15)
        draw = lambda count: rng.exponential(size=(count, 30)) ** 2  # noqa: E731
        areas, p_values = [], []
        for seed in range(25):
            step = View(mean=draw(40).mean(axis=0), candidates=draw(120), background=draw(520), batch_size=40)
            found = glir_scores([step], play=self.PLAY, seed=seed)
            areas.append(auc(found.scores[:60], found.scores[60:]))
            p_values.append(np.asarray(found.p_values))
        assert np.mean(areas) == pytest.approx(0.5, abs=3.0 * np.std(areas) / math.sqrt(25))
        for level in (0.05, 0.2, 0.5, 0.8):
            rates = (np.array(p_values) <= level).mean(axis=1)
            assert rates.mean() == pytest.approx(level, abs=3.0 * rates.std() / math.sqrt(25) + 1.0 / 240)


@pytest.mark.slow
def test_noise_weakens_the_attack_as_the_accountant_says() -> None:
    """Against the accountant's exact curves of such candidates, composed: equal within error."""
    draw, model = gaussian(40, smallest=0.05)
    values, n, last = np.geomspace(1.0, 0.05, 40), 40, 1.0
    for noise_std in (0.0, 0.05, 0.2):
        runs = simulate(draw, size=n, runs=60, seed=16, noise_std=noise_std, models=[model])["likelihood-ratio"]
        # The squared length of a candidate's shift is a weighted sum of chi-squared variables: to two moments
        # chi-squared itself. Ten of its quantiles stand for all candidates.
        weights = values / (n * values + n**2 * noise_std**2)
        freedom = weights.sum() ** 2 / (weights @ weights)
        lengths = np.sqrt(scipy_stats.chi2.ppf((np.arange(10) + 0.5) / 10, freedom) / freedom)
        curves = [spectral_step(values, c * np.sqrt(values), batch_size=n, noise_std=noise_std) for c in lengths]
        area, error = runs.area()
        assert runs.pooled_auc == pytest.approx(stochastic_composition(curves).auc(), abs=3.0 * error + 0.003)
        assert area < last
        last = area
