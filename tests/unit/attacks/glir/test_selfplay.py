"""Self-play, and what keeps the attack the right way round where the background is small."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gmip.attacks.glir import METHODS, Play, View, background_needed, glir_scores
from gmip.attacks.glir.scoring import StepTest, inflation
from gmip.attacks.glir.selfplay import Games, StepScale, split
from gmip.attacks.glir.step_fits import fit_step
from gmip.errors import InvalidArgument
from gmip.stats import GaussianModel
from gmip.stats.scores import auc
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
        for name in ("scores", "p_values", "null_scores"):
            np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
        np.testing.assert_array_equal(one.prediction.tpr, again.prediction.tpr)
        assert not np.array_equal(one.scores, other.scores)

    def test_p_values_are_ranks_among_the_background(self) -> None:
        found = played()
        above = [(1 + np.sum(found.null_scores >= s)) / (1 + found.null_scores.size) for s in found.scores]
        np.testing.assert_allclose(found.p_values, above)
        assert found.null_scores.size == 600
        steps = np.diff(found.prediction.tpr), np.diff(found.prediction.fpr)  # 6 games of 30 members and 80 others
        assert all(np.allclose(n * rise, np.round(n * rise)) for n, rise in zip((180, 480), steps, strict=True))

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
        estimation, held_out = split(1000, 100, share=0.15, seed=3)
        assert held_out.size == 180 and np.intersect1d(estimation, held_out).size == 0
        assert np.union1d(estimation, held_out).size == 1000
        assert split(4_000, 100, share=0.15, seed=3)[1].size == 600
        assert split(100_000, 100, share=0.15, seed=3)[1].size == 1000  # enough is enough
        assert split(100_000, 3_000, share=0.15, seed=3)[1].size == 4500  # or half as many again as the data set
        assert split(600, 100, share=0.9, seed=3)[1].size == 300  # never more than half
        assert background_needed(100) == 600
        with pytest.raises(InvalidArgument, match="599 examples, and self-play with 100 members needs 600"):
            split(599, 100, share=0.25, seed=3)

    @pytest.mark.parametrize("sampling", ["full", "fixed", "poisson"])
    def test_batches_are_drawn_from_the_members_of_a_game(self, sampling: Any) -> None:
        n, p = (12, 1.0) if sampling == "full" else (3, 0.25)
        games = Games(np.arange(20), 12, Play(games=150, tuning_games=150), seed=8)
        np.testing.assert_array_equal(games.inside.sum(axis=1), 12)
        drawn = n * games.draw(view(4, batch_size=n, sample_rate=p, sampling=sampling), 0).weights
        assert set(np.unique(drawn)) <= {0.0, 1.0}
        assert not drawn[~games.inside].any()
        sizes = drawn.sum(axis=1)
        if sampling == "poisson":
            assert sizes.mean() == pytest.approx(3.0, abs=4.0 * math.sqrt(12 * 0.25 * 0.75 / 300))
            assert np.unique(sizes).size > 3
        else:
            np.testing.assert_array_equal(sizes, n)
        again = n * games.draw(view(4, batch_size=n, sample_rate=p, sampling=sampling), 1).weights
        assert np.array_equal(drawn, again) == (sampling == "full")  # another step, another batch

    def test_shuffled_epochs_have_every_member_once(self) -> None:
        games = Games(np.arange(30), 12, Play(games=20, tuning_games=5), seed=8)

        def batch(n: int, drawn: int, epoch: int) -> Any:
            step = view(4, batch_size=n, sample_rate=n / 12, sampling="shuffled", epoch=epoch, drawn=drawn)
            return n * games.draw(step, 0).weights

        for epoch in range(2):
            np.testing.assert_array_equal(batch(5, 0, epoch) + batch(5, 5, epoch) + batch(2, 10, epoch), games.inside)
        assert not np.array_equal(batch(5, 0, 0), batch(5, 0, 1))

    @pytest.mark.parametrize("decay", [0.0, 1.0, 2.0])
    @pytest.mark.parametrize(("samples", "ridge"), [(300, 0.0), (150, 0.1), (150, 1.0), (260, 10.0)])
    def test_measured_temperature_is_the_formula_for_gaussian_gradients(
        self, samples: int, ridge: float, decay: float
    ) -> None:
        """For records that were held out, and for those of the fit as if they had been."""
        rng, scales = np.random.default_rng(11), np.arange(1, 201) ** (-0.5 * decay)
        drawn = rng.standard_normal((samples + 900, 200)) * scales
        step = view(200, background=drawn, candidates=drawn[:2])
        model = GaussianModel.fit(drawn[:samples], ridge=ridge)
        test, phi = StepTest.of(model, step), inflation(model, noise=0.0)
        for rows, inside in ((np.arange(samples, samples + 900), False), (np.arange(samples), True)):
            metric = fit_step(step, np.arange(samples), rows, shrinkage=None, dual=samples <= 200).metric(
                (1e-12, ridge)
            )
            assert metric is not None and phi is not None
            pairs = Games(np.arange(rows.size), 20, QUICK, seed=0).pairs(0, np.arange(rows.size))
            found = StepScale.measured(metric, step, pairs, inside=inside, both=inside)
            # The formula's weights are smaller by phi.
            assert found.temperature * phi == pytest.approx(test.temperature, rel=0.15)

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
        right = StepScale.measured
        signs = iter([1.0, -1.0, 1.0])  # of the settings of the grid, and of the scores by the first

        def wrong(*given: Any, **how: Any) -> StepScale:
            found = right(*given, **how)
            return dataclasses.replace(found, temperature=next(signs) * found.temperature)

        monkeypatch.setattr(StepScale, "measured", wrong)
        game = simulated(width=20, n=30, background=1000)
        assert glir_scores([game], play=QUICK).ridge == QUICK.grid[0][1]
        broken = lambda *given, **how: dataclasses.replace(right(*given, **how), temperature=np.nan)  # noqa: E731
        monkeypatch.setattr(StepScale, "measured", broken)
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
