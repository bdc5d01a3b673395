"""Attacks at an optimum on arrays: ridge regression, whose optimum is known in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from gmip.attacks.glir import Play
from gmip.attacks.released import decode_optimum, distance, optimum_scores
from gmip.errors import InvalidArgument
from gmip.stats.roc import auc

Array = NDArray[np.float64]
PLAY = Play(games=8, tuning_games=4, grid=((1e-12, 0.0), (1e-12, 1e-2)))


class Ridge(NamedTuple):
    """Gradients of members, others and background at the weights, and the penalty's gradient."""

    members: Array
    others: Array
    background: Array
    penalty: Array

    @property
    def listed(self) -> Array:
        return np.vstack([self.members, self.others])


def ridge(
    seed: int, members: int, dims: int, *, l2: float = 0.05, background: int = 1000, stop: float = 0.0, spare: int = 0
) -> Ridge:
    """Least squares + (l2/2)|w|^2 on `members` records; `stop` of 1 leaves the weights at 0, of 0 at the optimum."""
    rng = np.random.default_rng(seed)
    count = 2 * members + background + spare
    x = rng.standard_normal((count, dims))
    y = x @ rng.standard_normal(dims) / np.sqrt(dims) + 0.5 * rng.standard_normal(count)
    ours = slice(0, members)
    hessian = x[ours].T @ x[ours] / members + l2 * np.eye(dims)
    w = (1.0 - stop) * np.linalg.solve(hessian, x[ours].T @ y[ours] / members)
    rows = x * (x @ w - y)[:, None]
    return Ridge(rows[ours], rows[members : 2 * members], rows[2 * members : 2 * members + background], l2 * w)


def areas(scores: Array, members: int) -> float:
    return auc(scores[:members], scores[members:])


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


def test_decoding_names_every_member():
    for seed in range(3):
        at = ridge(seed, 40, 60, background=0)
        found = decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=40)
        assert found.at_optimum and found.decoded is not None and found.glir is None
        assert areas(found.log_odds, 40) == 1.0
        assert (found.log_odds[:40] > 0.0).all() and (found.log_odds[40:] < 0.0).all()
        assert found.residual is not None and found.residual < 1e-3


def test_an_unfinished_solver_is_measured_and_costs_certainty():
    exact = decode_optimum(ridge(0, 40, 60).listed, penalty_gradient=ridge(0, 40, 60).penalty, dataset_size=40)
    at = ridge(0, 40, 60, stop=0.05)
    loose = decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=40)
    assert exact.residual is not None and loose.residual is not None and exact.decoded and loose.decoded
    assert loose.residual > 100.0 * exact.residual
    assert loose.decoded.gain < exact.decoded.gain


def test_decoding_half_of_the_members():
    found = []
    for seed in range(4):
        at = ridge(seed, 60, 50)
        listed = np.vstack([at.members[:30], at.others[:30]])
        outcome = decode_optimum(listed, penalty_gradient=at.penalty, dataset_size=60, background=at.background)
        assert outcome.decoded is not None and outcome.decoded.coverage < 1.0
        found.append(areas(outcome.log_odds, 30))
    assert np.mean(found) > 0.75


def test_a_list_of_strangers_tells_nothing():
    found = []
    for seed in range(8):
        at = ridge(seed, 60, 40, background=0, spare=120)
        fresh = ridge(seed, 60, 40, background=120).background  # the same records, as strangers
        outcome = decode_optimum(fresh, penalty_gradient=at.penalty, dataset_size=60)
        found.append(areas(outcome.log_odds, 60))
    assert abs(np.mean(found) - 0.5) < 4.0 * np.sqrt(1.0 / 60.0 / 6.0 / 8.0)


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


def test_scores_shrink_away_from_an_optimum():
    at = ridge(2, 60, 20, stop=0.8)
    found = decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=60)
    assert found.distance > 2.0 and found.decoded is not None
    np.testing.assert_allclose(found.log_odds, found.decoded.log_odds / found.distance)


def test_what_is_refused():
    at = ridge(0, 20, 5)
    with pytest.raises(InvalidArgument, match="penalty_gradient has 4 entries where 5"):
        decode_optimum(at.listed, penalty_gradient=at.penalty[:4], dataset_size=20)
    with pytest.raises(InvalidArgument, match="coverage"):
        decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=20, coverage=0.0)
    with pytest.raises(InvalidArgument, match="background has 3 columns"):
        decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=20, background=np.zeros((50, 3)))
    with pytest.raises(InvalidArgument, match="pool has 2 records"):
        distance(at.members[:2], -at.penalty, dataset_size=20, contains_members=False)
