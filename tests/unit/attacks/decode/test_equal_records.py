"""Candidates whose records are equal: how many are in can be told, who cannot."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gmip.attacks.decode import PublishedSum, counted, decode, equal_groups, from_products, from_rows
from tests.unit.attacks.decode.listed_games import C, N, sums_of

PAIRS = 10
DECIDED = np.log(100.0)


def twins(
    seed: int, *, noise: float, dims: int = 300, steps: int = 1, batch: int = N
) -> tuple[list[PublishedSum], Any]:
    """The first 2 x PAIRS candidates are pairs of equals, one of them in or both or none; who is in is random."""
    rng = np.random.default_rng(seed)
    inside = np.zeros(C, dtype=bool)
    inside[rng.permutation(C)[:N]] = True
    place = rng.permutation(C)
    sums = []
    for _ in range(steps):
        x = rng.normal(size=(C, dims))
        x[place[1 : 2 * PAIRS : 2]] = x[place[0 : 2 * PAIRS : 2]]
        drawn = rng.permutation(np.flatnonzero(inside))[:batch]
        std = max(noise * batch, 1.0e-5)
        total = (x[drawn].sum(0) + noise * batch * rng.normal(size=dims)) / std
        how: Any = {"share": batch / N, "draw": "full" if batch == N else "fixed", "noisy": noise > 0.0}
        if dims > C:
            both = np.vstack([x / std, total])
            sums.append(from_products(both @ both.T, C, dims=dims, **how))
        else:
            sums.append(from_rows(x / std, total, None, **how))
    return sums, (inside, place[: 2 * PAIRS].reshape(PAIRS, 2))


@pytest.mark.parametrize(
    ("noise", "run"),
    [
        (0.0, {}),
        (0.005, {}),
        (0.01, {"dims": 80}),
        (0.0, {"steps": 10, "batch": 10, "dims": 150}),
        (0.005, {"steps": 10, "batch": 10, "dims": 90}),
    ],
)
def test_nobody_is_accused_for_a_twin_and_others_are_found(noise: float, run: dict[str, Any]) -> None:
    accused, right = [], []
    for seed in range(5):
        sums, (inside, pairs) = twins(seed, noise=noise, **run)
        found = decode(sums, dataset_size=N)
        assert found.settled
        np.testing.assert_array_equal(found.log_odds[pairs[:, 0]], found.log_odds[pairs[:, 1]])
        split = inside[pairs].sum(1) == 1
        accused += (np.abs(found.log_odds[pairs[split]]) >= DECIDED).ravel().tolist()
        alone = np.setdiff1d(np.arange(C), pairs)
        if "steps" not in run:
            decided = np.concatenate([alone, pairs[~split].ravel()])
            assert (np.abs(found.log_odds[decided]) >= DECIDED).all()
            right += ((found.log_odds > 0.0) == inside)[decided].tolist()
        else:
            assert not (found.log_odds[~inside] >= DECIDED).any()
            right += [found.log_odds[alone][inside[alone]].mean() > found.log_odds[alone][~inside[alone]].mean() + 2.0]
    assert np.mean(accused) <= 0.01 and all(right)


def test_a_rare_member_does_not_decide_about_a_twin() -> None:
    """Two of 100 candidates are members: that one of two equals is in is much evidence, and no decision."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(C, 150))
    x[1] = x[0]
    both = np.vstack([x, x[0] + x[50]]) / 1.0e-5
    found = decode([from_products(both @ both.T, C, dims=150, share=1.0, draw="full", noisy=False)], dataset_size=2)
    assert abs(found.log_odds[0]) < 1.0 and found.log_odds[0] == found.log_odds[1]
    assert found.log_odds[50] > DECIDED and (found.log_odds[2:50] < -DECIDED).all()


def test_groups_are_equal_in_all_steps() -> None:
    rng = np.random.default_rng(0)
    for dims in (30, 150):
        x = rng.normal(size=(C, dims))
        x[[7, 3]] = x[90]
        x[11] = x[12] * (1.0 + 1.0e-7)
        y = x.copy()
        y[90] += 1.0
        made = [_sum(x), _sum(y)]
        assert [g.tolist() for g in sorted(equal_groups(made[:1]), key=min)] == [[3, 7, 90], [11, 12]]
        assert [g.tolist() for g in sorted(equal_groups(made), key=min)] == [[3, 7], [11, 12]]
        assert not equal_groups([*made, sums_of(0, dims=dims)[0]])


def _sum(x: Any) -> PublishedSum:
    total = x[:N].sum(0)
    if x.shape[1] < C:
        return from_rows(x, total, None, share=1.0, draw="full", noisy=True)
    both = np.vstack([x, total])
    return from_products(both @ both.T, C, dims=x.shape[1], share=1.0, draw="full", noisy=True)


def test_the_count_against_all_subsets() -> None:
    size, precision, pull, odds = 4, 1.3, 2.1, -0.4
    chance = 1.0 / (1.0 + np.exp(-odds))
    ways = np.array(list(itertools.product((0, 1), repeat=size)))
    s = ways.sum(1)
    weight = np.exp(pull * s - precision * s**2 / 2.0) * chance**s * (1.0 - chance) ** (size - s)
    first = weight[ways[:, 0] == 1].sum() / weight[ways[:, 0] == 0].sum()
    mean = weight @ s / weight.sum()
    expected = [np.log(first) - odds, mean, weight @ (s - mean) ** 2 / weight.sum(), np.log(weight.sum())]
    np.testing.assert_allclose(counted(size, precision, pull, odds), expected, rtol=1e-10)


def test_nearly_equal_records_are_not_confused() -> None:
    """Members' near twins who are not in, closer than noise lets one see, or hardly."""
    for apart, seed in itertools.product((1.0e-4, 0.003, 0.01, 0.03), range(3)):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(C, 300))
        x[N : N + 5] = x[:5] + apart * rng.normal(size=(5, 300))
        both = np.vstack([x, x[:N].sum(0) + 0.25 * rng.normal(size=300)]) / 0.25
        found = decode([from_products(both @ both.T, C, dims=300, share=1.0, draw="full", noisy=True)], dataset_size=N)
        assert (found.log_odds[N : N + 5] < DECIDED).all(), (apart, seed)
        assert (found.log_odds[5:N] > DECIDED).all() and (found.log_odds[N + 5 :] < -DECIDED).all()
