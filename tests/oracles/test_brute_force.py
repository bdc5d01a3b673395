"""Bounds by noise alone against all batches of tiny runs: exact laws of one or two steps, chosen data, the best test.

Everything is enumerated and nothing simulated: who is drawn, who is cut, who is in which bin. Outputs are put in
cells, which can only hide something from the attacker; the noise on a sum is `s`, the clipping norm 1.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from scipy.stats import binom, hypergeom, norm

from gmip import Gaussian, NoisySGD, TradeOff, account

Array = np.ndarray
RATES = np.array([1e-4, 1e-3, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9])
REPLACED = {"notion": "gdp", "adjacency": "replace-one"}
DATA = ((-1.0, -1.0), (0.0, 0.0), (1.0, 1.0), (-1.0, 0.5), (1.0, -1.0))  # two values that the others take in turn


def run_of(sampling: str, total: int, size: int, steps: int, s: float, **more) -> NoisySGD:
    run = NoisySGD(
        dataset_size=total, batch_size=size, num_steps=steps, num_params=1, clip_norm=1.0, sampling=sampling, **more
    )
    return run.with_noise_multiplier(s)


def law(sums: Iterable[tuple[tuple[float, ...], float]], s: float, cells: int) -> Array:
    """Chances of the cells of outputs, given what is published without noise and how likely it is."""
    chances: dict[tuple[float, ...], float] = defaultdict(float)
    for place, chance in sums:
        chances[tuple(np.round(place, 9))] += chance
    x = np.linspace(-9.0 - 6.0 * s, 9.0 + 6.0 * s, cells + 1)
    found = np.zeros(1)
    for place, chance in chances.items():
        masses = np.ones(1)
        for mean in place:
            masses = np.multiply.outer(masses, np.diff(norm.cdf((x - mean) / s))).ravel()
        found = found + chance * masses
    return found


def found_by_the_best(p0: Array, p1: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        order = np.argsort(np.where(p1 > 0.0, -p1 / p0, 0.0))
    return np.interp(RATES, np.append(0.0, np.cumsum(p0[order])), np.append(0.0, np.cumsum(p1[order])))


def assert_never_exceeded(curve: TradeOff, p0: Array, p1: Array, *, both: bool = False) -> float:
    """How much of what the curve allows, beyond guessing, is found at best."""
    assert curve.kind == "bound"
    allowed = curve.tpr_at(RATES)
    pairs = [(p0, p1), (p1, p0)] if both else [(p0, p1)]
    most = np.max([found_by_the_best(*pair) for pair in pairs], axis=0)
    assert np.all(most <= allowed + 1e-9), (most - allowed).max()
    return float(((most - RATES) / (allowed - RATES)).max())


def others(pair: tuple[float, float], size: int) -> list[float]:
    return list(itertools.islice(itertools.cycle(pair), size))


def fixed(values: Sequence[float], size: int) -> list[tuple[tuple[float], float]]:
    chance = 1.0 / math.comb(len(values), size)
    return [((sum(part),), chance) for part in itertools.combinations(values, size)]


def poisson(values: Sequence[float], rate: float) -> list[tuple[tuple[float], float]]:
    drawn = itertools.product([0, 1], repeat=len(values))
    return [
        ((sum(v for v, d in zip(values, who, strict=True) if d),), math.prod(rate if d else 1.0 - rate for d in who))
        for who in drawn
    ]


def bins(values: Sequence[float], number: int, ran: int) -> list[tuple[tuple[float, ...], float]]:
    sums = []
    for places in itertools.product(range(number), repeat=len(values)):
        held = np.bincount(places, values, number) if values else np.zeros(number)
        sums.append((tuple(held[:ran].tolist()), 1.0 / number ** len(values)))
    return sums


@pytest.mark.parametrize(
    ("total", "size", "rows", "s"),
    [(2, 1, 1, 0.5), (2, 1, 1, 3.0), (6, 1, 1, 1.0), (6, 5, 1, 1.0), (6, 1, 3, 0.5), (8, 3, 5, 2.0)],
)
def test_fixed_batches(total, size, rows, s):
    """Batches of one, of all but one, and persons with more rows than a batch."""
    run, reached = run_of("fixed", total, size, 1, s), 0.0
    for pair in DATA:
        rest = others(pair, total - rows)
        p0, p1 = law(fixed(rest, size), s, 3000), law(fixed([*rest, *[1.0] * rows], size), s, 3000)
        own = account(run, attacker_knows=1.0, rows_per_person=rows)
        reached = max(reached, assert_never_exceeded(own, p0, p1))
        if rows == 1:  # in place of another
            p0 = law(fixed([*rest, -1.0], size), s, 3000)
        assert_never_exceeded(account(run, notion="gdp", rows_per_person=rows), p0, p1, both=True)
    assert reached > 0.99


@pytest.mark.parametrize(("total", "size", "rows"), [(2, 1, 1), (4, 4, 1), (7, 1, 5), (9, 8, 2)])
def test_poisson_batches(total, size, rows):
    """N of 2, a rate of 1, persons with more rows than the mean batch."""
    run, rate, reached, other = run_of("poisson", total, size, 1, 1.0), size / total, 0.0, 0.0
    for pair in DATA:
        rest = others(pair, total - rows)
        p0, p1 = law(poisson(rest, rate), 1.0, 3000), law(poisson([*rest, *[1.0] * rows], rate), 1.0, 3000)
        own = account(run, attacker_knows=1.0, rows_per_person=rows)
        reached = max(reached, assert_never_exceeded(own, p0, p1))
        assert_never_exceeded(account(run, notion="gdp", rows_per_person=rows), p0, p1, both=True)
        if rows == 1:
            p0 = law(poisson([*rest, -1.0], rate), 1.0, 3000)
            other = max(other, assert_never_exceeded(account(run, **REPLACED), p0, p1, both=True))
    assert reached > 0.99 and (rows > 1 or other > 0.99)


@pytest.mark.parametrize(("total", "size", "most", "rows"), [(4, 1, 1, 1), (8, 1, 2, 3), (8, 2, 5, 2)])
@pytest.mark.parametrize("on_top", [False, True])
def test_batches_that_are_cut(total, size, most, rows, on_top):
    """A person with several rows, the others at -1, who of them were drawn is told."""
    rate, rest = size / total, total if on_top else total - rows
    p0, p1 = [], []
    for drawn in range(rest + 1):
        chance = binom.pmf(drawn, rest, rate)
        p0.append(chance * law([((-float(min(drawn, most)),), 1.0)], 0.5, 3000))
        sums = []
        for own in range(rows + 1):
            kept = min(own + drawn, most)
            for left in range(max(kept - drawn, 0), min(own, kept) + 1):
                weight = hypergeom.pmf(left, own + drawn, own, kept) if kept else 1.0
                sums.append(((float(left - (kept - left)),), binom.pmf(own, rows, rate) * weight))
        p1.append(chance * law(sums, 0.5, 3000))
    run, laws = run_of("poisson", total, size, 1, 0.5, max_batch_size=most), (np.concatenate(p0), np.concatenate(p1))
    assert_never_exceeded(account(run, attacker_knows=1.0, rows_per_person=rows), *laws)
    assert_never_exceeded(account(run, notion="gdp", rows_per_person=rows), *laws, both=True)


@pytest.mark.parametrize(("total", "size", "steps"), [(3, 2, 1), (4, 2, 2), (3, 2, 3), (5, 2, 2)])
def test_balls_in_bins_that_end_within_an_epoch(total, size, steps):
    run, reached, other = run_of("balls-in-bins", total, size, steps, 1.0), 0.0, 0.0
    number, of_another = run.steps_per_epoch, account(run, **REPLACED)
    for pair in DATA:
        p0, p1, replaced = np.ones(1), np.ones(1), np.ones(1)
        for first in range(0, steps, number):
            ran, rest = min(number, steps - first), others(pair, total - 1)
            cells = 3000 if steps == 1 else 200 if steps == 2 else 60
            p0 = np.multiply.outer(p0, law(bins(rest, number, ran), 1.0, cells)).ravel()
            p1 = np.multiply.outer(p1, law(bins([*rest, 1.0], number, ran), 1.0, cells)).ravel()
            replaced = np.multiply.outer(replaced, law(bins([*rest, -1.0], number, ran), 1.0, cells)).ravel()
        reached = max(reached, assert_never_exceeded(account(run), p0, p1))
        assert_never_exceeded(account(run, notion="gdp"), p0, p1, both=True)
        other = max(other, assert_never_exceeded(of_another, replaced, p1, both=True))
    assert reached > 0.95 and other > 0.95


@pytest.mark.parametrize("phases", [("fixed", "poisson"), ("full", "fixed"), ("poisson", "full")])
def test_schedules(phases):
    """Phases of different samplings and noise, against the run on the others alone."""
    total, noises = 4, (1.0, 0.5)
    runs = [run_of(kind, total, total if kind == "full" else 2, 1, s) for kind, s in zip(phases, noises, strict=True)]
    for pair in DATA:
        rest, laws = others(pair, total - 1), [np.ones(1), np.ones(1)]
        for run, s in zip(runs, noises, strict=True):
            for member, values in enumerate((rest, [*rest, 1.0])):
                sums = {
                    "fixed": lambda v=values: fixed(v, 2),
                    "poisson": lambda v=values: poisson(v, 0.5),
                    "full": lambda v=values: fixed(v, len(v)),
                }[run.sampling]()
                laws[member] = np.multiply.outer(laws[member], law(sums, s, 300)).ravel()
        assert_never_exceeded(account(runs, attacker_knows=1.0), *laws)


@pytest.mark.parametrize("drop_last", [False, True])
def test_shuffled_epochs_keep_the_mu_of_a_known_order(drop_last):
    """One epoch with an incomplete last batch; the record's gradient against zero."""
    run = run_of("shuffled", 5, 3, 1 if drop_last else 2, 1.0, drop_last=drop_last)
    proved = Gaussian(account(run, notion="gdp").gdp_mu or math.nan)
    for pair in DATA:
        laws = []
        for own in (0.0, 1.0):
            values = [*others(pair, 4), own]
            orders = itertools.permutations(values)
            sums = [((sum(o[:3]),) if drop_last else (sum(o[:3]), sum(o[3:])), 1.0 / 120.0) for o in orders]
            laws.append(law(sums, 1.0, 200))
        assert_never_exceeded(proved, *laws, both=True)


@pytest.mark.parametrize("sampling", ["full", "poisson", "fixed"])
@pytest.mark.parametrize("trials", [1.01, 2.0, 100.0])
def test_the_best_of_several_runs(sampling, trials):
    """Chosen by the loss, against it, by its size, and by rounded losses whose ties a coin breaks."""
    curve = account(run_of(sampling, 4, 4 if sampling == "full" else 2, 1, 1.0), notion="gdp").best_of(trials)
    with_, without = {
        "full": ([((1.0,), 1.0)], [((-1.0,), 1.0)]),
        "poisson": ([((1.0,), 0.5), ((0.0,), 0.5)], [((0.0,), 1.0)]),
        "fixed": ([((1.0,), 0.5), ((0.0,), 0.5)], [((-1.0,), 0.5), ((0.0,), 0.5)]),
    }[sampling]
    laws = [law(sums, 1.0, 3000) for sums in (without, with_)]
    loss = np.log(np.maximum(laws[1], 1e-300) / np.maximum(laws[0], 1e-300))
    stop = 1.0 / trials
    for score in (loss, -loss, np.abs(loss), -np.abs(loss - 1.0), np.round(loss)):
        _, level = np.unique(score, return_inverse=True)
        best = []
        for one in laws:
            mass = np.bincount(level, one / one.sum())
            below = np.minimum(np.append(0.0, np.cumsum(mass)), 1.0)
            chosen = np.diff(stop * below / (1.0 - (1.0 - stop) * below))  # the generating function of a geometric law
            best.append(one * np.where(mass > 1e-13, chosen / np.maximum(mass, 1e-300), trials)[level])
        assert_never_exceeded(curve, *best, both=True)
