"""Attacks at an optimum on arrays, one candidate at a time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from gmip.attacks.glir import Play
from gmip.attacks.optimality import distance, inner_distance, optimum_scores
from gmip.errors import InvalidArgument
from tests.unit.attacks.released.ridge_regression import areas, ridge

PLAY = Play(games=8, tuning_games=4, grid=((1e-12, 0.0), (1e-12, 1e-2)))


def test_the_members_mean_gradient_is_minus_the_penaltys():
    at = ridge(0, 100, 20)
    np.testing.assert_allclose(at.members.mean(0), -at.penalty, atol=1e-12)


def test_glir_finds_members_as_theory_says():
    """K is about d for a random record, so the mean shift is about sqrt(d/N): AUC = Phi(sqrt(d/N/2))."""
    found = []
    for seed in range(6):
        at = ridge(seed, 150, 60)
        outcome = optimum_scores(at.listed, at.background, penalty_gradient=at.penalty, dataset_size=150, play=PLAY)
        assert outcome.at_optimum and outcome.glir is not None and outcome.decoded is None
        found.append(areas(outcome.log_odds, 150))
    error = np.sqrt(1.0 / 150.0 / 6.0 / 6.0)
    assert abs(np.mean(found) - norm.cdf(np.sqrt(60.0 / 150.0 / 2.0))) < 4.0 * error + 0.03  # heavy tails of K


def test_p_values_of_strangers_are_uniform_even_far_from_an_optimum():
    small, far = [], []
    for seed in range(5):
        at = ridge(seed, 100, 20, stop=1.0)
        outcome = optimum_scores(at.others, at.background, penalty_gradient=at.penalty, dataset_size=100, play=PLAY)
        assert outcome.glir is not None and outcome.glir.p_values is not None
        small.append(np.mean(outcome.glir.p_values <= 0.1))
        far.append(outcome.distance)
    assert np.mean(far) > 2.0
    assert np.mean(small) < 0.1 + 4.0 * np.sqrt(0.09 / 500.0)


@pytest.mark.parametrize("dims", [20, 300])
def test_distance_is_about_one_by_chance_and_less_at_an_optimum(dims):
    at = ridge(1, 100, dims, background=600)
    for pool, inside in ((at.background, False), (at.listed, True)):
        found = [
            distance(pool, -one.penalty, dataset_size=100, contains_members=inside)
            for one in (at, at._replace(penalty=-at.others.mean(0)))
        ]
        assert found[0] < 2.0 and 0.3 < found[1] < 2.0


def test_distance_grows_away_from_an_optimum():
    found = []
    for stop in (0.0, 0.5, 1.0):
        at = ridge(1, 100, 20, background=600, stop=stop)
        found.append([distance(at.background, -at.penalty, dataset_size=100, contains_members=False)])
        found[-1].append(distance(at.listed, -at.penalty, dataset_size=100, contains_members=True))
    for ours in zip(*found, strict=True):
        assert ours[0] < ours[1] < ours[2] and ours[2] > 2.0


@pytest.mark.parametrize("members", [100, 250])
def test_distance_by_inner_products(members):
    """A list that is longer than the data set, and one that is not."""
    at = ridge(1, 100, 300, background=600)
    rows = at.listed
    centred = rows - rows.mean(0)
    gap = -at.penalty - rows.mean(0)
    found = inner_distance(centred @ centred.T, centred @ gap, float(gap @ gap), dims=300, dataset_size=members, seed=0)
    expected = distance(rows, -at.penalty, dataset_size=members, contains_members=True)
    assert found == pytest.approx(expected, rel=1e-9)


def listed_areas(strangers: bool, dims: int, seeds: int) -> tuple[list[float], list[float], list[float]]:
    """AUC of `optimum_scores` with candidates and alone, and the share of p-values of others at 10% or less."""
    both, alone, small = [], [], []
    for seed in range(seeds):
        at = ridge(seed, 80, dims, background=600)
        listed = at.background[:160] if strangers else at.listed
        how = {"penalty_gradient": at.penalty, "dataset_size": 80, "play": PLAY, "seed": seed}
        found = optimum_scores(listed, at.background[160:], with_candidates=True, **how)
        assert found.glir is not None and found.glir.p_values is not None
        both.append(areas(found.log_odds, 80))
        alone.append(areas(optimum_scores(listed, at.background[160:], **how).log_odds, 80))
        small.append(float(np.mean(found.glir.p_values[0 if strangers else 80 :] <= 0.1)))
    return both, alone, small


def test_candidates_in_the_background_tell_more():
    both, alone, small = listed_areas(False, 60, 5)
    assert np.mean(both) > np.mean(alone) + 0.02
    assert np.mean(small) < 0.1 + 3.0 * np.sqrt(0.09 / (5 * 80))


def test_candidates_in_the_background_who_were_not_in():
    both, _, small = listed_areas(True, 60, 8)
    assert abs(np.mean(both) - 0.5) < 4.0 * np.sqrt(1.0 / 80.0 / 6.0 / 8.0)
    assert np.mean(small) < 0.1 + 3.0 * np.sqrt(0.09 / (8 * 160))


def test_too_few_records_for_a_distance():
    with pytest.raises(InvalidArgument, match="pool has 2 records"):
        distance(np.eye(2), np.zeros(2), dataset_size=20, contains_members=False)
