"""Decoding at an optimum on arrays: ridge regression, whose optimum is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.attacks.optimality import decode_optimum, decode_optimum_products
from gmip.errors import InvalidArgument
from tests.unit.attacks.released.ridge_regression import areas, ridge


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
    found, doubted = [], 0
    for seed in range(8):
        at = ridge(seed, 60, 40, background=0, spare=120)
        fresh = ridge(seed, 60, 40, background=120).background  # the same records, as strangers
        outcome = decode_optimum(fresh, penalty_gradient=at.penalty, dataset_size=60)
        found.append(areas(outcome.log_odds, 60))
        doubted += not outcome.explained
        assert outcome.explained or outcome.sure == 0.0
    assert abs(np.mean(found) - 0.5) < 4.0 * np.sqrt(1.0 / 60.0 / 6.0 / 8.0)
    assert doubted >= 5  # of 8: there are 40 directions to tell by


def test_scores_shrink_away_from_an_optimum():
    at = ridge(2, 60, 20, stop=0.8)
    found = decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=60)
    assert found.distance > 2.0 and found.decoded is not None
    smaller = found.decoded.log_odds / found.distance
    if not found.explained:
        smaller /= max(1.0, np.abs(smaller).max())
    if not found.explained and found.distance > 3.0:
        smaller = np.zeros(len(smaller))
    np.testing.assert_allclose(found.log_odds, smaller)


@pytest.mark.parametrize("dims", [20, 150])
def test_a_wrong_penalty_ranks_nobody(dims):
    """With twenty times the penalty the published sum is not that of the members: the order would be reversed."""
    for seed in range(5):
        at = ridge(seed, 60, dims)
        found = decode_optimum(at.listed, penalty_gradient=20.0 * at.penalty, dataset_size=60)
        assert not found.explained
        assert found.distance > 3.0
        np.testing.assert_array_equal(found.log_odds, 0.0)


@pytest.mark.parametrize("dims", [30, 75, 200])
def test_inner_products_tell_the_same(dims):
    """The same as `decode_optimum` where it takes rows, with fewer parameters than candidates and with more."""
    at = ridge(5, 80, dims, background=0)
    vectors = np.vstack([at.listed, at.penalty])
    found = decode_optimum_products(vectors @ vectors.T, dims=dims, dataset_size=80)
    usual = decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=80)
    assert found.distance == pytest.approx(usual.distance, rel=1e-6)
    assert found.residual == pytest.approx(usual.residual, rel=1e-3)
    assert np.corrcoef(found.log_odds, usual.log_odds)[0, 1] > 0.99


def test_members_of_the_list_are_not_doubted():
    doubted = 0
    for seed in range(20):
        at = ridge(seed, 60, 60, background=0)
        doubted += not decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=60).explained
    assert doubted <= 2


def test_strangers_in_many_directions_are_always_seen():
    """The weights of a model with 100 parameters: nobody of a list of strangers counts as decided."""
    for seed in range(6):
        at = ridge(seed, 100, 100, background=200)
        found = decode_optimum(at.background, penalty_gradient=at.penalty, dataset_size=100)
        assert not found.explained and found.sure == 0.0 and np.abs(found.log_odds).max() <= 1.0
        assert found.excess is not None and found.excess > 1.25


def test_what_is_refused():
    at = ridge(0, 20, 5)
    with pytest.raises(InvalidArgument, match="penalty_gradient has 4 entries where 5"):
        decode_optimum(at.listed, penalty_gradient=at.penalty[:4], dataset_size=20)
    with pytest.raises(InvalidArgument, match="coverage"):
        decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=20, coverage=0.0)
    with pytest.raises(InvalidArgument, match="background has 3 columns"):
        decode_optimum(at.listed, penalty_gradient=at.penalty, dataset_size=20, background=np.zeros((50, 3)))
