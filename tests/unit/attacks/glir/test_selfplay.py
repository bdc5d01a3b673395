"""Self-play, and what keeps the attack the right way round where the background is small."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gmip.attacks.glir import METHODS, Play, View, background_needed, glir_scores, selfplay
from gmip.attacks.glir.likelihood import StepTest
from gmip.attacks.glir.selfplay import Ground, measured, split
from gmip.errors import InvalidArgument
from gmip.stats import GaussianModel
from gmip.stats.roc import auc
from tests.unit.attacks.views import QUICK, view


def played(method: str = "likelihood-ratio", *, seed: int = 0, play: Play = QUICK, **changes: Any) -> Any:
    rng = np.random.default_rng(5)
    steps = [
        view(
            8,
            background=rng.standard_normal((600, 8)) * np.arange(1.0, 9.0) + 1.0,
            candidates=rng.standard_normal((40, 8)) * np.arange(1.0, 9.0) + 1.0,
            **{"batch_size": 30, **changes},
        )
        for _ in range(2)
    ]
    return glir_scores(steps, method=method, play=play, seed=seed)


class TestSelfPlay:
    @pytest.mark.parametrize("method", METHODS)
    def test_the_seed_decides(self, method: str) -> None:
        one, again, other = played(method), played(method), played(method, seed=1)
        for name in ("scores", "p_values", "null_scores", "llr"):
            np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
        np.testing.assert_array_equal(one.prediction.members, again.prediction.members)
        assert not np.array_equal(one.scores, other.scores)

    def test_p_values_are_ranks_among_the_held_out(self) -> None:
        found = played()
        above = [(1 + np.sum(found.null_scores >= s)) / (1 + found.null_scores.size) for s in found.scores]
        np.testing.assert_allclose(found.p_values, above)
        assert found.null_scores.size == max(30 + 200, 600 // 4)
        assert found.prediction.members.size == 6 * 30
        assert found.prediction.non_members.size == 6 * (found.null_scores.size - 30)

    def test_given_settings_are_kept(self) -> None:
        rng = np.random.default_rng(5)
        step = view(8, background=rng.standard_normal((600, 8)))
        found = glir_scores([step], play=QUICK, cutoff=1.0e-3, ridge=0.5)
        assert (found.cutoff, found.ridge) == (1.0e-3, 0.5)

    def test_a_ridge_is_chosen_where_it_is_needed(self) -> None:
        """80 dimensions, 150 samples for the estimate, a spectrum that falls fast: no ridge is the worse choice."""
        rng = np.random.default_rng(6)
        scales = np.geomspace(1.0, 1.0e-3, 300)
        background, members = rng.standard_normal((500, 300)) * scales, rng.standard_normal((20, 300)) * scales
        step = View(mean=members.mean(axis=0), candidates=members, background=background, batch_size=20)
        found = glir_scores([step], play=Play(games=4, tuning_games=10))
        assert found.ridge > 0.0 or found.cutoff > 1.0e-12

    def test_split(self) -> None:
        estimation, held_out = split(1000, 100, share=0.25, seed=3)
        assert held_out.size == 300 and np.intersect1d(estimation, held_out).size == 0
        assert np.union1d(estimation, held_out).size == 1000
        assert split(4_000, 100, share=0.25, seed=3)[1].size == 1000
        assert split(100_000, 100, share=0.25, seed=3)[1].size == 2000  # enough is enough
        assert split(100_000, 3_000, share=0.25, seed=3)[1].size == 6000  # or twice the data set
        assert split(600, 100, share=0.25, seed=3)[1].size == 300  # never more than half
        assert background_needed(100) == 600
        with pytest.raises(InvalidArgument, match="599 examples, and self-play with 100 members needs 600"):
            split(599, 100, share=0.25, seed=3)

    @pytest.mark.parametrize("sampling", ["full", "fixed", "poisson"])
    def test_published_means_are_those_of_the_batches(self, sampling: Any) -> None:
        """A game without noise publishes sums of the play examples' gradients over n: solve for who was in."""
        rng = np.random.default_rng(8)
        n, p = (12, 1.0) if sampling == "full" else (3, 0.25)
        x = rng.standard_normal((20, 40)) + 2.0
        centre = np.full(40, 2.0)
        step = view(40, background=None, batch_size=n, sample_rate=p, sampling=sampling)
        ground = Ground(view=step, places=x - centre, centre=centre, directions=None)
        inside = np.zeros((300, 20), dtype=np.bool_)
        inside[:, :12] = True
        means = ground.publish(inside, rng) + centre
        drawn = n * np.linalg.lstsq(x.T, means.T, rcond=None)[0].T
        np.testing.assert_allclose(drawn, np.round(drawn), atol=1.0e-8)
        assert set(np.unique(np.round(drawn))) <= {0.0, 1.0}
        assert not np.round(drawn[:, 12:]).any()
        sizes = np.round(drawn).sum(axis=1)
        if sampling == "poisson":
            assert sizes.mean() == pytest.approx(3.0, abs=4.0 * math.sqrt(12 * 0.25 * 0.75 / 300))
            assert np.unique(sizes).size > 3
        else:
            np.testing.assert_array_equal(sizes, n)
        if sampling == "fixed":  # every member as often as the others
            np.testing.assert_allclose(drawn[:, :12].mean(axis=0), p, atol=4.5 * math.sqrt(p * (1.0 - p) / 300))

    @pytest.mark.parametrize("residual", [True, False])
    def test_noise_has_unit_variance_in_every_direction(self, residual: bool) -> None:
        rng = np.random.default_rng(9)
        model = GaussianModel.fit(rng.standard_normal((10, 15)))
        step = view(15, background=None, noise_std=0.5)
        vectors = rng.standard_normal((6, 15))
        places = model.embed(vectors, residual=residual)
        ground = Ground(
            view=step,
            places=places,
            centre=np.zeros(places.shape[1]),
            directions=model.directions if residual else None,
        )
        noise = ground._noise(40_000, rng) @ places.T  # along the vectors, as a test sees it
        np.testing.assert_allclose(np.cov(noise.T), places @ places.T, atol=0.05 * np.abs(places @ places.T).max())

    def test_measured_temperature_is_the_formula_for_gaussian_gradients(self) -> None:
        rng = np.random.default_rng(10)
        model = GaussianModel.fit(rng.standard_normal((300, 100)))
        for noise_std in (0.0, 0.1):
            test = StepTest.of(model, view(100, background=None, noise_std=noise_std))
            found = measured(test, model.embed(rng.standard_normal((1500, 100))))
            assert found.temperature == pytest.approx(test.temperature, rel=0.04)

    @pytest.mark.parametrize("decay", [0.0, 1.0, 2.0])
    @pytest.mark.parametrize("samples", [150, 260])
    @pytest.mark.parametrize("ridge", [0.1, 1.0, 10.0, 100.0])
    def test_it_is_with_a_ridge_and_few_samples_too(self, samples: int, ridge: float, decay: float) -> None:
        rng, scales = np.random.default_rng(11), np.arange(1, 201) ** (-0.5 * decay)
        model = GaussianModel.fit(rng.standard_normal((samples, 200)) * scales, ridge=ridge)
        test = StepTest.of(model, view(200, background=None))
        places = model.embed(rng.standard_normal((1000, 200)) * scales, residual=samples < 200)
        assert measured(test, places).temperature == pytest.approx(test.temperature, rel=0.15)

    @pytest.mark.parametrize("sampling", ["fixed", "poisson"])
    def test_it_is_positive_whatever_the_sizes(self, sampling: Any) -> None:
        rng, tried = np.random.default_rng(13), 0
        for _ in range(600):
            width, samples = int(rng.integers(1, 60)), int(rng.integers(3, 120))
            scales = np.arange(1, width + 1) ** (-0.5 * rng.uniform(0.0, 4.0))
            background = rng.standard_normal((samples, width)) * scales + rng.uniform(-1.0, 1.0)
            ridge, noise_std = (float(rng.choice([0.0, 10.0 ** rng.uniform(-8.0, 3.0)])) for _ in range(2))
            model = GaussianModel.fit(background, ridge=ridge)
            rate = {"sample_rate": 0.3, "sampling": sampling} if sampling == "poisson" else {}
            step = view(width, background=None, noise_std=noise_std, batch_size=int(rng.integers(2, 100)), **rate)
            with contextlib.suppress(InvalidArgument):  # too few samples
                test = StepTest.of(model.plus_mean(0.7) if rate else model, step)
                assert 0.0 < test.temperature < math.inf
                tried += 1
        assert tried > 400

    def test_a_setting_that_would_take_members_for_others_is_not_used(self, monkeypatch: Any) -> None:
        signs = iter([1.0, -1.0])  # of the settings of the grid

        def wrong(test: StepTest, places: np.ndarray) -> StepTest:
            return dataclasses.replace(test, temperature=next(signs) * measured(test, places).temperature)

        monkeypatch.setattr(selfplay, "measured", wrong)
        game = simulated(width=20, n=30, background=1000)
        assert glir_scores([game], play=QUICK).ridge == QUICK.grid[0][1]
        monkeypatch.setattr(selfplay, "measured", lambda test, places: dataclasses.replace(test, temperature=np.nan))
        with pytest.raises(InvalidArgument, match="too few for every cutoff and ridge of the grid"):
            glir_scores([game], play=QUICK)


def simulated(*, width: int, n: int, background: int, decay: float = 0.0) -> View:
    """A step on Gaussian gradients; the first n of 2n candidates are members."""
    rng, scales = np.random.default_rng(12), np.arange(1, width + 1) ** (-0.5 * decay)
    drawn = rng.standard_normal((2 * n + background, width)) * scales
    return View(mean=drawn[:n].mean(axis=0), candidates=drawn[: 2 * n], background=drawn[2 * n :], batch_size=n)


@pytest.mark.parametrize("method", ["likelihood-ratio", "paper"])
@pytest.mark.parametrize("ridge", [1.0e-4, 1.0e-3, 1.0e-2, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("decay", [0.0, 1.0, 2.0])
def test_fewer_samples_than_directions_never_turn_the_attack_round(method: str, ridge: float, decay: float) -> None:
    game, found = simulated(width=600, n=60, background=200, decay=decay), None
    with contextlib.suppress(InvalidArgument):
        found = glir_scores([game], method=method, ridge=ridge, play=None)
    if found is None:
        assert ridge <= 1.0e-3  # too small to help, and refused
        return
    assert np.isfinite(found.scores).all()
    assert auc(found.scores[:60], found.scores[60:]) > 0.55
