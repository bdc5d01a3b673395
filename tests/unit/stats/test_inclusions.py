"""Batches that were drawn as declared, and those that were not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from gmip.stats.record_tests import (
    Contradiction,
    contradiction,
    coverage_p_value,
    inseparable_p_value,
    most_often,
    overlap_p_value,
    poisson_sizes_p_value,
    together_p_value,
)

TOTAL, SIZE, STEPS = 60, 14, 25
Batches = list[np.ndarray]


def fixed(rng: np.random.Generator, total: int = TOTAL) -> Batches:
    return [rng.choice(total, SIZE, replace=False) for _ in range(STEPS)]


def poisson(rng: np.random.Generator, total: int = TOTAL) -> Batches:
    return [np.flatnonzero(rng.random(total) < SIZE / TOTAL) for _ in range(STEPS)]


def shuffled(rng: np.random.Generator, total: int = TOTAL) -> Batches:
    orders = [rng.permutation(total) for _ in range(STEPS // 5)]
    return [order[i : i + SIZE] for order in orders for i in range(0, total, SIZE)]


def bins(rng: np.random.Generator, total: int = TOTAL) -> Batches:
    places = [rng.integers(-(-TOTAL // SIZE), size=total) for _ in range(STEPS // 5)]
    return [np.flatnonzero(place == i) for place in places for i in range(-(-TOTAL // SIZE))]


def judged(sampling: str, batches: Batches, *, share: float = 0.001, known: bool = True):
    sizes = np.array([ids.size for ids in batches])
    given = {"sampling": sampling, "dataset_size": TOTAL, "batch_size": SIZE, "share": share}
    return contradiction(sizes=sizes, batches=batches if known else None, **given)


@pytest.mark.parametrize(
    ("sampling", "draw"),
    [("fixed", fixed), ("poisson", poisson), ("shuffled", shuffled), ("balls-in-bins", bins)],
)
def test_sound_batches_are_accused_as_often_as_said(sampling: str, draw: Callable[..., Batches]) -> None:
    """At most 5% of 150; five standard deviations above that."""
    rng = np.random.default_rng(7)
    accused = sum(judged(sampling, draw(rng), share=0.05) is not None for _ in range(150))
    assert accused <= 150 * 0.05 + 5 * np.sqrt(150 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("sampling", "draw", "faults"),
    [
        ("fixed", lambda rng: [np.arange(SIZE)] * STEPS, {"batches-overlap"}),
        ("fixed", lambda rng: shuffled(rng), {"epochs-not-drawn-anew"}),
        ("fixed", lambda rng: fixed(rng, TOTAL // 2), {"batches-overlap", "records-seen"}),
        ("fixed", lambda rng: fixed(rng, 2 * TOTAL), {"too-many-records"}),
        ("fixed", lambda rng: [rng.integers(0, TOTAL, SIZE) for _ in range(STEPS)], {"twice-in-a-batch"}),
        ("poisson", fixed, {"poisson-sizes"}),
        ("poisson", lambda rng: [np.arange(k) for k in rng.binomial(TOTAL, SIZE / TOTAL, STEPS)], {"batches-overlap"}),
        ("shuffled", fixed, {"back-too-early"}),
        ("shuffled", lambda rng: [*np.array_split(np.arange(TOTAL), range(SIZE, TOTAL, SIZE))] * 4, {"not-reshuffled"}),
        ("shuffled", lambda rng: shuffled(rng, 2 * TOTAL), {"epoch-length", "too-many-records"}),
        ("full", fixed, {"not-all-records"}),
        ("balls-in-bins", shuffled, {"poisson-sizes"}),
        ("balls-in-bins", poisson, {"epoch-length"}),
        ("balls-in-bins", lambda rng: bins(rng, 2 * TOTAL), {"epoch-length"}),
        ("balls-in-bins", lambda rng: bins(rng)[:5] * 4, {"not-reshuffled"}),
    ],
)
def test_others_are_told(sampling: str, draw: Callable[..., Batches], faults: set[str]) -> None:
    found = judged(sampling, draw(np.random.default_rng(3)))
    assert found is not None and found.fault in faults


@pytest.mark.parametrize(
    ("sampling", "draw"),
    [
        ("shuffled", lambda rng: np.split(np.arange(TOTAL), range(SIZE, TOTAL, SIZE))),  # one epoch, in order
        ("shuffled", lambda rng: [np.arange(i, 4 * TOTAL, 5) for i in range(5)]),  # every fifth record
        ("fixed", lambda rng: [(rng.integers(TOTAL) + np.arange(SIZE)) % TOTAL for _ in range(STEPS)]),  # windows
    ],
)
def test_batches_that_follow_the_order_of_the_data(sampling: str, draw: Callable[..., Batches]) -> None:
    """Ids are any numbers: what counts is their order."""
    batches = [10 * ids + 3 for ids in draw(np.random.default_rng(0))]
    size = max(ids.size for ids in batches)
    found = contradiction(
        sampling=sampling,
        dataset_size=np.unique(np.concatenate(batches)).size,
        batch_size=size,
        sizes=np.array([ids.size for ids in batches]),
        batches=batches,
        share=0.001,
    )
    assert found is not None and found.fault == "ids-in-order"


def test_sizes_alone_tell_epochs_and_their_length() -> None:
    rng = np.random.default_rng(1)
    assert judged("fixed", shuffled(rng), known=False) is not None
    assert judged("shuffled", shuffled(rng, TOTAL - 20), known=False) is not None
    assert judged("shuffled", shuffled(rng), known=False) is None
    assert judged("fixed", [np.arange(SIZE)] * STEPS, known=False) is None  # not to be seen without ids


def test_overlap_is_hypergeometric() -> None:
    a, b = np.arange(14), np.arange(4, 18)
    p, found, expected = overlap_p_value([(a, b)], 60)
    law = stats.hypergeom(60, 14, 14)
    assert found == 10.0 and expected == pytest.approx(14 * 14 / 60)
    assert p == pytest.approx(2 * law.sf(9), rel=1e-9)


def test_coverage_counts_the_different_ones() -> None:
    p, seen, expected = coverage_p_value([np.arange(30), np.arange(30)], 60)
    assert (seen, expected) == (30, 45.0)
    p, seen, _ = coverage_p_value([np.arange(61)], 60)
    assert (p, seen) == (0.0, 61)


def test_poisson_sizes_at_the_mean_vary() -> None:
    assert poisson_sizes_p_value(np.full(30, 30), 100, 30) < 1e-6
    assert poisson_sizes_p_value(np.array([30]), 100, 30) > 0.5
    assert poisson_sizes_p_value(np.array([60]), 100, 30) < 1e-6


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_a_record_that_is_in_every_batch(sampling: str) -> None:
    """It is seen where chance does not put one of all records so often; sound runs are not accused."""
    rng = np.random.default_rng(0)

    def found(favourite: bool, steps: int) -> Contradiction | None:
        batches = []
        for _ in range(steps):
            size = 10 if sampling == "fixed" else int(rng.binomial(40, 0.25))
            ids = rng.permutation(40)[:size]
            batches.append(np.append(ids[1:], 7) if favourite and 7 not in ids else ids)
        sizes = np.array([ids.size for ids in batches])
        return contradiction(
            sampling=sampling, dataset_size=40, batch_size=10, sizes=sizes, batches=batches, share=0.001
        )

    assert sum(found(False, 30) is not None for _ in range(50)) <= 1
    told = found(True, 30)
    assert told is not None and told.fault == "drawn-too-often" and told.value == 30
    assert found(True, 6) is None and most_often(np.full(6, 10), 40, 0.001) == 6
    assert 15 <= most_often(np.full(30, 10), 40, 0.001) <= 22


def in_pairs(rng: np.random.Generator, chosen: int = TOTAL // 2) -> np.ndarray:
    """Records i and i + 30 are never apart."""
    return np.add.outer(rng.permutation(TOTAL // 2)[:chosen], [0, TOTAL // 2]).ravel()


def epochs_in_pairs(rng: np.random.Generator) -> Batches:
    return [order[i : i + SIZE] for order in (in_pairs(rng) for _ in range(5)) for i in range(0, TOTAL, SIZE)]


@pytest.mark.parametrize(
    ("sampling", "draw"),
    [
        ("fixed", lambda rng: [in_pairs(rng, SIZE // 2) for _ in range(STEPS)]),
        ("poisson", lambda rng: [in_pairs(rng, rng.binomial(TOTAL // 2, SIZE / TOTAL)) for _ in range(STEPS)]),
        ("shuffled", epochs_in_pairs),
        ("fixed", lambda rng: (fixed(rng)[:13] * 2)[:STEPS]),  # the thirteenth batch after each is the same
    ],
)
def test_records_that_are_drawn_together(sampling: str, draw: Callable[..., Batches]) -> None:
    """Each is drawn as often as declared; who comes back with whom tells."""
    found = [judged(sampling, draw(np.random.default_rng(seed))) for seed in range(6)]
    assert sum(one is not None and one.fault in ("drawn-together", "poisson-sizes") for one in found) >= 5
    told = next(one for one in found if one is not None and one.fault == "drawn-together")
    assert told.value > 1.05 * told.expected


def test_two_records_that_are_never_apart() -> None:
    """In a run that is long enough: chance does not keep two together for so many steps."""
    rng = np.random.default_rng(0)
    draws = [rng.random(200) < 0.1 for _ in range(150)]
    for one in draws:
        one[7] = one[3]
    batches = [np.flatnonzero(one) for one in draws]
    given = {"sampling": "poisson", "dataset_size": 200, "batch_size": 20, "share": 0.001}
    found = contradiction(sizes=np.array([ids.size for ids in batches]), batches=batches, **given)
    assert found is not None and (found.fault, found.value) == ("always-together", 2)
    p, pairs = inseparable_p_value([[ids] for ids in batches[:20]], 200)
    assert p == 1.0 and pairs >= 2  # too few steps to say so


@pytest.mark.parametrize("draw", [fixed, poisson, shuffled, bins])
def test_pairs_that_come_back_have_a_null(draw: Callable[..., Batches]) -> None:
    """Both p-values are below 5% in at most that share of sound runs; the pairs expected are those found on average."""
    rng, told, off = np.random.default_rng(11), [], []
    for _ in range(300):
        batches = draw(rng)
        groups = (
            [batches[i : i + 5] for i in range(0, STEPS, 5)] if draw in (shuffled, bins) else [[b] for b in batches]
        )
        p, found, expected = together_p_value(groups, TOTAL)
        told.append((p, inseparable_p_value(groups, TOTAL)[0]))
        off.append(found - expected)
    assert np.all(np.mean(np.array(told) < 0.05, axis=0) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 300))
    assert abs(np.mean(off)) < 4 * np.std(off) / np.sqrt(300)
