"""GLiR on arrays: every number against densities written out, exact tails or brute force."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.special import logsumexp

from gmip.attacks.glir import METHODS, Play, View, glir_scores, stack
from gmip.attacks.glir.scoring import StepTest, inflation, susceptibility
from gmip.errors import InvalidArgument
from gmip.stats import GaussianModel
from tests.unit.attacks.views import covariance, view


def normal(x: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> float:
    return float(scipy_stats.multivariate_normal(mean, cov).logpdf(x))


class TestKnownParameters:
    @pytest.mark.parametrize(("n", "noise_std"), [(1, 0.3), (2, 0.0), (2, 0.3), (20, 0.0), (20, 0.3)])
    def test_log_likelihood_ratio_is_that_of_the_densities(self, n: int, noise_std: float) -> None:
        mu, sigma = np.arange(6.0), covariance(6)
        step = view(batch_size=n, noise_std=noise_std, background=None)
        outcome = glir_scores([step], models=[GaussianModel.known(mu, sigma)])
        noise = noise_std**2 * np.eye(6)
        expected = [
            normal(step.mean, mu + (theta - mu) / n, (n - 1) / n**2 * sigma + noise)
            - normal(step.mean, mu, sigma / n + noise)
            for theta in step.candidates
        ]
        np.testing.assert_allclose(outcome.scores, expected, rtol=1.0e-9)
        assert outcome.calibration == (1.0, 0.0) and outcome.rank == 6 and outcome.prediction is None

    @pytest.mark.parametrize("noise_std", [0.0, 0.3])
    def test_poisson_mixture_is_that_of_the_densities(self, noise_std: float) -> None:
        """N records, each in with probability p, divided by n = pN; a member's N - 1 companions are one fewer."""
        mu, sigma, n, p = np.linspace(0.5, 2.0, 6), covariance(6), 20, 0.25
        step = view(batch_size=n, noise_std=noise_std, sampling="poisson", sample_rate=p, background=None)
        outcome = glir_scores([step], method="mixture", models=[GaussianModel.known(mu, sigma)])
        noise = noise_std**2 * np.eye(6)
        moment = (sigma + np.outer(mu, mu)) - p * np.outer(mu, mu)  # p E[xx'] - p^2 mu mu', over p
        size = n / p
        others = (size - 1.0) / size * moment / n + noise
        expected = [
            logsumexp(
                [
                    math.log(p) + normal(step.mean, theta / n + (size - 1.0) * p / n * mu, others),
                    math.log1p(-p) + normal(step.mean, (size - 1.0) * p / n * mu, others),
                ]
            )
            - normal(step.mean, mu, moment / n + noise)
            for theta in step.candidates
        ]
        np.testing.assert_allclose(outcome.scores, expected, rtol=1.0e-8)
        deltas = step.candidates - mu
        exact = np.einsum("ij,jk,ik->i", deltas, np.linalg.inv(sigma), deltas)  # K is about Sigma, not about batches
        np.testing.assert_allclose(outcome.susceptibility, exact, rtol=1.0e-9)

    def test_paper_is_the_non_central_chi_squared_tail(self) -> None:
        mu, sigma, n = np.ones(6), covariance(6), 20
        step = view(background=None)
        outcome = glir_scores([step], method="paper", models=[GaussianModel.known(mu, sigma)])
        inverse = np.linalg.inv(sigma)
        gaps, deltas = step.mean - step.candidates, step.candidates - mu
        u = n * np.einsum("ij,jk,ik->i", gaps, inverse, gaps)
        k = np.einsum("ij,jk,ik->i", deltas, inverse, deltas)
        expected = scipy_stats.ncx2.cdf(u, 6, n * k)
        np.testing.assert_allclose(outcome.scores, -np.log(expected), rtol=1.0e-7)
        np.testing.assert_allclose(outcome.susceptibility, k, rtol=1.0e-9)

    def test_steps_add_up(self) -> None:
        model = GaussianModel.known(np.ones(6), covariance(6))
        steps = [view(background=None, mean=np.full(6, 0.9)), view(background=None, mean=np.full(6, 1.2))]
        for method in ("likelihood-ratio", "paper"):
            each = [glir_scores([s], method=method, models=[model]).scores for s in steps]
            both = glir_scores(steps, method=method, models=[model] * 2)
            np.testing.assert_allclose(both.scores, np.sum(each, axis=0), rtol=1.0e-12)

    def test_mixture_of_fixed_batches(self) -> None:
        model, p = GaussianModel.known(np.ones(6), covariance(6)), 0.2
        step = view(background=None, sampling="fixed", sample_rate=p)
        llr = glir_scores([step], models=[model]).scores
        mixed = glir_scores([step], method="mixture", models=[model])
        np.testing.assert_allclose(mixed.scores, np.log(1.0 - p + p * np.exp(llr)), rtol=1.0e-10)
        # a certain non-member costs log(1 - p), a certain member is worth its ratio times p: no overflow, no -inf
        far = dataclasses.replace(step, candidates=np.array([np.full(6, 1.0e4), step.mean * 20.0 - 19.0 + 1.0e3]))
        scores = glir_scores([far], method="mixture", models=[model]).scores
        assert np.all(np.isfinite(scores)) and scores[0] == pytest.approx(math.log1p(-p))

    def test_singular_covariance_leaves_out_what_cannot_vary(self) -> None:
        sigma = np.zeros((8, 8))
        sigma[:6, :6] = covariance(6)
        inside = view(background=None)
        padded = view(
            width=8,
            background=None,
            mean=np.append(inside.mean, [0.0, 0.0]),
            candidates=np.column_stack([inside.candidates, np.zeros((4, 2))]),
        )
        mu = np.ones(6)
        for method in ("likelihood-ratio", "paper"):
            small = glir_scores([inside], method=method, models=[GaussianModel.known(mu, covariance(6))])
            large = glir_scores([padded], method=method, models=[GaussianModel.known(np.append(mu, [0, 0]), sigma)])
            np.testing.assert_allclose(large.scores, small.scores, rtol=1.0e-9)
            assert large.rank == 6

    def test_batches_may_differ_in_size(self) -> None:
        """The last batch of an epoch is smaller: each step counts its own n and p = n/N."""
        model = GaussianModel.known(np.ones(6), covariance(6))
        steps = [
            view(background=None, sampling="fixed", batch_size=n, sample_rate=n / 50, mean=np.full(6, 0.9))
            for n in (20, 10)
        ]
        each = [glir_scores([s], method="mixture", models=[model]).scores for s in steps]
        both = glir_scores(steps, method="mixture", models=[model] * 2).scores
        np.testing.assert_allclose(both, np.sum(each, axis=0), rtol=1.0e-12)

    def test_joint_is_one_ratio_of_the_stacked_gradients(self) -> None:
        sigma = covariance(12, seed=4)
        steps = [view(background=None), view(background=None, mean=np.full(6, 1.1))]
        model = GaussianModel.known(np.ones(12), sigma)
        joint = glir_scores(steps, method="joint", models=[model])
        np.testing.assert_array_equal(joint.scores, glir_scores([stack(steps)], models=[model]).scores)


class TestEstimatedParameters:
    def test_what_estimation_costs(self) -> None:
        """Inflation and temperature against the traces that they stand for, with the truth known."""
        width, count, values = 150, 400, np.geomspace(1.0, 0.01, 150)
        truth = np.diag(values)
        for noise_std, ridge in ((0.0, 0.0), (0.03, 0.0), (0.0, 0.05)):
            ratios = []
            for seed in range(4):
                x = np.sqrt(values) * np.random.default_rng(seed).standard_normal((count, width))
                model = GaussianModel.fit(x, ridge=ridge)
                step = view(width, background=None, batch_size=50, noise_std=noise_std)
                test = StepTest.of(model, step)
                weights = model.directions / test.v1 @ model.directions.T
                spread = truth * test.others + noise_std**2 * np.eye(width)
                mean = np.trace(truth @ weights)
                batch = truth * (1.0 / 50 + 1.0 / count) + noise_std**2 * np.eye(width)
                rise = model.directions * (1.0 / test.v0 - 1.0 / test.v1) @ model.directions.T
                ratios.append(
                    [
                        test.temperature * np.trace(truth @ weights @ spread @ weights) / mean,
                        test.trace * count / mean,
                        test.dof / np.trace(model.directions / test.v0 @ model.directions.T @ batch),
                        test.level / np.trace(rise @ batch),
                    ]
                )
            np.testing.assert_allclose(np.mean(ratios, axis=0), 1.0, atol=0.03)

    def test_variances_count_the_error_of_the_background_mean(self) -> None:
        """Batches of 2, 5 background examples: the candidate's share of the batch is compared with no estimate."""
        rng = np.random.default_rng(4)
        theta, batch, known = 3.0, rng.standard_normal((200_000, 2)), rng.standard_normal((200_000, 5))
        mean = known.mean(axis=1)
        outside = batch.mean(axis=1) - mean
        inside = 0.5 * (theta + batch[:, 1]) - mean - (theta - mean) / 2.0
        model = GaussianModel.fit(known[0][:, None])
        test = StepTest.of(model, view(1, background=None, batch_size=2))
        phi = inflation(model, noise=0.0)
        assert phi is not None
        found = np.array([test.v0[0], test.v1[0]]) / (phi * model.spectrum[0])
        np.testing.assert_allclose(found, [outside.var(), inside.var()], rtol=4.0 * math.sqrt(2.0 / 200_000))

    def test_susceptibility_is_unbiased_but_for_the_mean(self) -> None:
        rng = np.random.default_rng(0)
        width, count, sigma = 30, 90, covariance(30)
        root = np.linalg.cholesky(sigma)
        thetas = rng.standard_normal((200, width)) @ root.T
        exact = np.einsum("ij,jk,ik->i", thetas, np.linalg.inv(sigma), thetas).mean()
        found = [
            np.mean(susceptibility(GaussianModel.fit(rng.standard_normal((count, width)) @ root.T), thetas))
            for _ in range(60)
        ]
        assert np.mean(found) == pytest.approx(exact + width / count, rel=4.0 * np.std(found) / np.sqrt(60) / exact)

    def test_known_parameters_are_the_limit_of_many_samples(self) -> None:
        rng = np.random.default_rng(1)
        width = 5
        step = view(width, background=rng.standard_normal((200_000, width)) + 1.0)
        for method in ("likelihood-ratio", "paper"):
            known = glir_scores([step], method=method, models=[GaussianModel.known(np.ones(width), np.ones(width))])
            fitted = glir_scores([step], method=method, play=None)
            np.testing.assert_allclose(fitted.scores, known.scores, rtol=0.02, atol=0.015)

    @pytest.mark.parametrize(
        ("method", "noise_std"), [*((method, 0.0) for method in METHODS), ("likelihood-ratio", 0.05), ("joint", 0.05)]
    )
    def test_coordinates_do_not_matter(self, method: str, noise_std: float) -> None:
        """Primal (60 samples, 20 dimensions) and dual (the same, turned about in 100 dimensions) agree."""
        turn = np.linalg.qr(np.random.default_rng(2).standard_normal((100, 100)))[0][:20]
        short = view(20, noise_std=noise_std)
        wide = View(
            mean=short.mean @ turn,
            candidates=short.candidates @ turn,
            background=np.asarray(short.background) @ turn,
            batch_size=20,
            noise_std=noise_std,
        )
        first, second = (glir_scores([v], method=method, play=None) for v in (short, wide))
        np.testing.assert_allclose(second.scores, first.scores, rtol=1.0e-6)
        np.testing.assert_allclose(second.susceptibility, first.susceptibility, rtol=1.0e-6)

    def test_too_few_samples(self) -> None:
        wide = GaussianModel.fit(np.random.default_rng(0).standard_normal((20, 50)))
        assert inflation(wide, noise=0.0) is None and susceptibility(wide, np.ones((1, 50))) is None
        assert inflation(wide.retuned(ridge=1.0), noise=0.0) is not None
        assert inflation(wide, noise=20.0) is not None  # noise is a ridge, if there is enough of it
        assert inflation(wide, noise=0.01) is None
        with pytest.raises(InvalidArgument, match="20 examples, too few for rank 19"):
            StepTest.of(wide, view(50))

    def test_float32_gradients(self) -> None:
        step = view(10)
        narrow = dataclasses.replace(
            step,
            candidates=step.candidates.astype(np.float32),
            background=np.asarray(step.background, dtype=np.float32),
        )
        np.testing.assert_allclose(
            glir_scores([narrow], play=None).scores, glir_scores([step], play=None).scores, rtol=1e-4, atol=1e-5
        )


class TestBadInput:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"mean": np.zeros((2, 3))}, "mean must have one dimension"),
            ({"mean": np.array([0.0, np.nan, 0, 0, 0, 0])}, "mean has 1 NaN"),
            ({"candidates": np.zeros((4, 5))}, "candidates has 5 columns where 6"),
            ({"candidates": np.full((4, 6), np.nan)}, "candidates has 4 rows"),
            ({"candidates": np.zeros((0, 6))}, "candidates is empty"),
            ({"background": np.zeros((60, 7))}, "background has 7 columns where 6"),
            ({"background": np.full((2, 6), np.inf)}, "background has 2 rows"),
            ({"batch_size": 0}, "batch_size"),
            ({"noise_std": -1.0}, "noise_std"),
            ({"sample_rate": 0.0, "sampling": "fixed"}, "sample_rate"),
            ({"sample_rate": 0.5}, "sample_rate = 0.5 does not fit sampling = 'full'"),
            ({"sampling": "sorted"}, "sampling = 'sorted' is not known"),
        ],
    )
    def test_views(self, changes: dict[str, Any], words: str) -> None:
        with pytest.raises(InvalidArgument, match=words):
            view(**changes)

    def test_views_that_do_not_belong_together(self) -> None:
        short = dataclasses.replace(view(), candidates=np.zeros((3, 6)))
        with pytest.raises(InvalidArgument, match="views differ in candidates"):
            glir_scores([view(), short], play=None)
        with pytest.raises(InvalidArgument, match="views differ in background"):
            glir_scores([view(), view(background=np.eye(6))], play=None)
        with pytest.raises(InvalidArgument, match="noise_std differs"):
            stack([view(), view(noise_std=0.1)])
        with pytest.raises(InvalidArgument, match="Only full-batch steps"):
            stack([view(sampling="fixed", sample_rate=0.5)])
        for empty in ([], ["not a view"]):
            with pytest.raises(InvalidArgument, match="views"):
                glir_scores(empty, play=None)

    def test_arguments(self) -> None:
        with pytest.raises(InvalidArgument, match="method = 'glir' is not known"):
            glir_scores([view()], method="glir")
        with pytest.raises(InvalidArgument, match="60 examples, and self-play with 20 members needs 440"):
            glir_scores([view()])
        with pytest.raises(InvalidArgument, match="no background"):
            glir_scores([view(background=None)], play=None)
        with pytest.raises(InvalidArgument, match="does not vary"):
            glir_scores([view(background=np.ones((60, 6)))], play=None)
        with pytest.raises(InvalidArgument, match="models has 2 entries for 1 steps"):
            glir_scores([view()], models=[GaussianModel.known(np.ones(6), np.ones(6))] * 2)
        with pytest.raises(InvalidArgument, match="models has one of 5 dimensions"):
            glir_scores([view()], models=[GaussianModel.known(np.ones(5), np.ones(5))])
        with pytest.raises(InvalidArgument, match="games"):
            Play(games=0)
        with pytest.raises(InvalidArgument, match="grid is empty"):
            Play(grid=())


class TestBatchOfOne:
    """The last batch of a shuffled epoch can be one record: N mod n = 1."""

    @pytest.mark.parametrize("noise_std", [0.0, 0.1])
    @pytest.mark.parametrize("by", ["vectors", "products", "no play"])
    def test_the_record_is_found(self, by: str, noise_std: float) -> None:
        rng = np.random.default_rng(5)
        dims, size = 40, 12
        background, candidates = rng.normal(size=(500, dims)), rng.normal(size=(30, dims))
        one = View(
            mean=candidates[7] + noise_std * rng.normal(size=dims),
            candidates=candidates,
            background=background,
            batch_size=1,
            noise_std=noise_std,
            sample_rate=1.0 / size,
            sampling="fixed",
        )
        play = None if by == "no play" else Play(games=8, tuning_games=4)
        step: Any = one.inner() if by == "products" else one
        found = glir_scores([step], method="mixture", play=play)
        assert np.isfinite(found.scores).all() and found.scores.argmax() == 7
        if found.p_values is not None:
            assert found.p_values[7] < 0.02 and np.delete(found.p_values, 7).mean() > 0.3
