from __future__ import annotations

import numpy as np
import pytest

from gmip.attacks.shadow import Membership
from gmip.errors import InvalidArgument


def plan(c: int, N: int, b: int, seed: int = 0) -> Membership:
    return Membership(num_candidates=c, num_background=b, dataset_size=N, seed=seed)


def members(p: Membership, index: int) -> set[tuple[str, int]]:
    """Candidates and background records of a model."""
    inside = {("candidate", int(i)) for i in np.flatnonzero(p.inside(index))}
    return inside | {("background", int(i)) for i in p.filling[p.fill(index)]}


@pytest.mark.parametrize(
    ("c", "N", "b"), [(80, 40, 100), (80, 60, 100), (81, 60, 25), (7, 30, 30), (1, 5, 9), (2, 1, 0)]
)
def test_halves(c, N, b):
    p = plan(c, N, b)
    count = np.zeros(c, dtype=int)
    for pair in range(10):
        first, second = p.inside(2 * pair), p.inside(2 * pair + 1)
        assert np.array_equal(first, ~second)
        assert int(first.sum()) == c // 2
        count += first.astype(int) + second
    assert set(count) == {10}
    for index in range(20):
        assert len(members(p, index)) == N
    if c > 2:
        assert len({p.inside(index).tobytes() for index in range(20)}) > 2


@pytest.mark.parametrize(("c", "N"), [(81, 40), (100, 33), (100, 10), (5, 1)])
def test_more_candidates_than_records(c, N):
    p = plan(c, N, 50)
    group = c // N
    count = np.zeros(c, dtype=int)
    for index in range(6 * group):
        assert int(p.inside(index).sum()) == len(members(p, index)) == N
        count += p.inside(index)
    # No candidate is twice in a group, and each group leaves out c mod N of them.
    assert count.max() <= 6
    assert count.sum() == 6 * group * N
    if c % N == 0:
        assert set(count) == {6}


@pytest.mark.parametrize(
    ("c", "N", "b", "z"), [(80, 40, 100, 50), (80, 60, 100, 40), (80, 40, 5000, 1000), (80, 60, 20, 0)]
)
def test_population_is_in_no_model(c, N, b, z):
    p = plan(c, N, b)
    assert p.population.shape == (z,)
    assert np.array_equal(np.unique(p.population), p.population)
    assert not set(p.population) & set(p.filling)
    assert p.population.size == 0 or 0 <= p.population.min() <= p.population.max() < b
    if c // 2 < N:
        assert len(p.population) + len(p.filling) == b
        used = {i for index in range(60) for kind, i in members(p, index) if kind == "background"}
        assert used == set(p.filling.tolist())  # every record has its turn


def test_background_that_just_suffices():
    p = plan(80, 60, 20)
    assert len(p.filling) == 20 and p.fill(0).tolist() == list(range(20))
    with pytest.raises(InvalidArgument) as caught:
        plan(80, 60, 19)
    assert all(number in str(caught.value) for number in ("60 records", "80 candidates", "40", "19", "20"))


def test_membership_is_random():
    p = plan(50, 25, 0)
    inside = np.array([p.inside(2 * pair) for pair in range(2_000)])
    # Binomial: five standard errors.
    assert np.abs(inside.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(2_000)
    together = (inside[:, :1] & inside[:, 1:]).mean(0)
    assert np.abs(together - 0.5 * 24 / 49).max() < 5 * 0.5 / np.sqrt(2_000)


def test_seeds_and_models_differ():
    draws = {(seed, index): plan(80, 60, 100, seed).training_seed(index) for seed in range(3) for index in range(10)}
    assert len(set(draws.values())) == 30
    assert not set(draws.values()) & {plan(80, 60, 100, 0).signal_seed(index) for index in range(10)}
    assert plan(80, 60, 100, 0).inside(0).tobytes() != plan(80, 60, 100, 1).inside(0).tobytes()
    assert plan(80, 60, 100).fill(0).tolist() != plan(80, 60, 100).fill(1).tolist()
