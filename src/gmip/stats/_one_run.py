"""Guesses about one run's candidates: the f-DP analysis of Mahloujifar, Melis and Chaudhuri (arXiv 2410.22235)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.stats._families import Family
from gmip.stats._pooled_scores import Pooled

__all__ = ["Guesses", "guess", "one_run_bound", "refuted_parameter"]

Array = NDArray[np.float64]

# Guessing about a tenth of the candidates gave the highest bounds for Gaussian scores; below 50 guesses, guess more.
_GUESSED, _FEWEST = 0.1, 50
_GRID, _ROUNDS = 33, 3
_MOST = 50_000  # of each kind: each guess is a step of a loop, and more of them say little more


class Guesses(NamedTuple):
    """`correct` right answers among `made` guesses about `candidates` candidates."""

    correct: int
    made: int
    candidates: int


def guess(untied: Pooled, rng: np.random.Generator) -> Guesses:
    """Call the highest scores members and as many of the lowest non-members, and abstain in between.

    Sets are thinned out to the size of the smaller (at most 50,000), since the analysis is about fair coins. With
    as many members as non-members right answers may come in pairs, which coins do not do: one of them is not counted.
    How many guesses are made depends on the number of candidates only.
    """
    half = min(untied.members.size, untied.non_members.size, _MOST)
    ins = rng.permutation(untied.members)[:half]
    outs = rng.permutation(untied.non_members)[:half]
    order = np.argsort(np.concatenate([ins, outs]))
    member = order < half
    side = min(half, max(round(0.5 * _GUESSED * 2 * half), _FEWEST // 2))
    correct = int(np.count_nonzero(member[-side:])) + int(np.count_nonzero(~member[:side]))
    return Guesses(max(correct - 1, 0), 2 * side, 2 * half)


def one_run_bound(scores: Pooled, family: Family, alpha: float, seed: int) -> tuple[float, str]:
    """The bound and what it rests on."""
    guesses = guess(scores.comparable(seed).untied(seed), np.random.default_rng(seed))
    evidence = f"{guesses.correct} of {guesses.made} guesses right, {guesses.candidates} candidates"
    return refuted_parameter(guesses, family, alpha), evidence


def refuted_parameter(guesses: Guesses, family: Family, alpha: float) -> float:
    """The largest parameter that so many right answers refute: on a grid, refined, rounded down."""
    low, high = 0.0, 8.0
    while _refuted(guesses, family, np.array([high]), alpha)[0] and high < 1.0e3:
        low, high = high, 2.0 * high
    if not _refuted(guesses, family, np.array([low]), alpha)[0]:
        return 0.0
    for _ in range(_ROUNDS):
        grid = np.linspace(low, high, _GRID)
        refuted = _refuted(guesses, family, grid, alpha)
        last = int(np.argmin(refuted)) - 1 if not refuted.all() else _GRID - 2
        low, high = float(grid[last]), float(grid[last + 1])
    return low


def _refuted(guesses: Guesses, family: Family, parameters: Array, alpha: float) -> NDArray[np.bool_]:
    """Whether P(as many right answers) <= alpha under each f of the family.

    With p_k the chance of exactly k right answers out of c, r_i = sum_{k >= i} k p_k/m and h_i = sum_{k >= i}
    (c - k) p_k/m, flipping one candidate's coin turns a right answer into a wrong one, so f-DP says
    1 - r_{i+1} >= f(h_i), or h_i >= f(1 - r_{i+1}) for a symmetric f. Starting from a chance of alpha at the answers
    seen and going down, this forces more total probability than r_0 + h_0 = c/m if alpha was too much.
    """
    m, made = guesses.candidates, guesses.made
    right = np.full(parameters.shape, alpha * guesses.correct / m)
    wrong = np.full(parameters.shape, alpha * (made - guesses.correct) / m)
    for i in range(guesses.correct - 1, -1, -1):
        forced = np.maximum(wrong, family.fnr(parameters, 1.0 - np.minimum(right, 1.0)))
        right = right + i / (made - i) * (forced - wrong)
        wrong = forced
        if np.all(right + wrong > made / m):
            break
    return np.asarray(right + wrong > made / m)
