"""What to do about a run: the least noise, or the batch, for a target; what weakens the audit itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from gmip._numbers import number
from gmip.accounting.account import account, coarse_epochs
from gmip.accounting.alternatives import Alternative, Ways, alternatives
from gmip.auditing.schema import Advice, AttackerAnswer, AttackOutcome, Verdict, Way, WhatIf
from gmip.vocabulary import Claim, NoisySGD, PrivacyTarget, Rate, weakest

__all__ = ["advise", "ranked", "what_if"]

_SECONDS: Final = 20.0  # for all ways to the target: shuffled epochs of long runs are left out one by one
_GRID_SECONDS: Final = 10.0
_NOISE: Final = (0.25, 0.5, 0.71, 1.0, 1.4, 2.0, 4.0)  # of the noise that the goal needs
_BATCHES: Final = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the batch size


def advise(
    runs: Sequence[NoisySGD],
    verdict: Verdict,
    attacks: Sequence[AttackOutcome],
    *,
    goal: Rate,
    trained: bool = False,
    answer: AttackerAnswer | None = None,
) -> tuple[Advice, ...]:
    """Advice in the order of what matters.

    Parameters
    ----------
    runs : what ran, phase after phase; empty: how the model was trained is not known.
    goal : what is good enough.
    trained : whether `gmip train` did it, so that `gmip tune` can search for a better recipe.
    answer : about the strongest attacker that was tried, whose target the ways are to reach; None: about one who holds
        no list of members.
    """
    said: list[Advice] = []
    if verdict.kind == "exposed":
        said.append(Advice(kind="claim-refuted"))
    if any(one.guessed_seed is not None for one in attacks):
        said.append(Advice(kind="seed-guessed"))
    if not runs:
        said += _unknown_training(verdict, attacks)
    elif answer is not None and answer.target == "guaranteed":
        said.append(Advice(kind="guaranteed-already"))
    else:
        said += _towards(runs, goal, trained, answer)
    if verdict.kind == "inconclusive" and verdict.candidates_needed is not None:
        said.append(Advice(kind="more-candidates", candidates=verdict.candidates_needed))
    return tuple(said)


def _unknown_training(verdict: Verdict, attacks: Sequence[AttackOutcome]) -> list[Advice]:
    said = []
    if any(one.mu_lower > 0.0 for one in attacks):  # an attacker with a list comes last, and counts, too
        said.append(Advice(kind="find-less"))
    if verdict.kind == "measured":
        said.append(Advice(kind="say-claim"))
    return said


def _towards(runs: Sequence[NoisySGD], goal: Rate, trained: bool, answer: AttackerAnswer | None) -> list[Advice]:
    """The ways to the goal, by the accountant: those that prove it first."""
    target = PrivacyTarget(target_tpr=goal, attacker_knows=0.0 if answer is None else answer.knows)
    ways = alternatives(runs, target, seconds=_SECONDS)
    found = sorted(ways.open, key=lambda way: way.curve.kind != "bound")
    said = _as_it_is(ways)
    if not (ways.met and ways.curve.kind == "bound") and found:
        said.append(Advice(kind="to-guarantee" if found[0].curve.kind == "bound" else "only-forecasts"))
    said += [Advice(kind="way", way=_way(one)) for one in found]
    if any(one.change == "noise" for one in ways.closed) and any(run.clip_norm is None for run in runs):
        said.append(Advice(kind="clip-first"))
    if ways.closed:
        said.append(Advice(kind="closed-ways", closed=ways.closed))
    if trained and not ways.met:
        said.append(Advice(kind="tune"))
    return said


def _as_it_is(ways: Ways) -> list[Advice]:
    """That the accountant's answer keeps the goal already, where it does, and what that is worth."""
    if not ways.met:
        return []
    if ways.curve.kind == "bound":
        return [Advice(kind="bound-already")]
    return [Advice(kind="forecast-already", tpr=ways.now, for_whom=ways.curve.for_whom)]


def _way(way: Alternative) -> Way:
    return Way(change=way.change, runs=way.runs, tpr=way.value, kind=way.curve.kind, for_whom=way.curve.for_whom)


def ranked(advice: Sequence[Advice]) -> tuple[Advice, ...]:
    """The ways to the goal by their measured accuracy, the best first, then those that were not measured; other advice
    keeps its place around them."""
    ways = [one for one in advice if one.way is not None]
    best = iter(sorted(ways, key=_loss))
    return tuple(one if one.way is None else next(best) for one in advice)


def _loss(advice: Advice) -> float:
    tried = None if advice.way is None else advice.way.accuracy
    return 2.0 if tried is None else 1.0 - tried.mean  # what was not measured comes last


def what_if(
    runs: Sequence[NoisySGD], *, fpr: float, needed: float | None = None, seconds: float = _GRID_SECONDS
) -> WhatIf | None:
    """The accountant's TPR at `fpr` over a grid around the run; None without runs.

    Parameters
    ----------
    needed : noise_std of the (first phase of the) run that reaches the goal, where it is known: the grid is centred
        on it; else on the run's own noise, or on a noise multiplier of 1.
    seconds : columns that take longer are left out, that of the run's own batch size excepted.

    Guarantees
    ----------
    Each number is that of `account`, on grids that err on the attacker's side (shuffled epochs: on coarse ones).
    """
    if not runs:
        return None
    first = runs[0]
    levels, sizes = _levels(first, needed), _sizes(runs)
    column = sizes.index(first.batch_size)
    deadline = time.monotonic() + seconds
    found: dict[int, list[float]] = {}
    claims: list[Claim] = []
    for size in sorted(sizes, key=lambda size: abs(sizes.index(size) - column)):
        values = []
        for level in levels:
            if found and time.monotonic() > deadline:
                break
            with coarse_epochs():  # which only shuffled epochs take notice of
                curve = account(_changed(runs, level, size))
            claims.append(curve.claim)
            values.append(min(1.0, max(0.0, float(curve.tpr_at(fpr)))))
        if len(values) == len(levels):
            found[size] = values
    kept = sorted(found)
    return WhatIf(
        noise_std=levels,
        batch_size=tuple(kept),
        tpr=tuple(tuple(found[size][i] for size in kept) for i in range(len(levels))),
        own=(levels.index(first.noise_std), kept.index(first.batch_size)),
        kind=weakest(claim.kind for claim in claims),
        for_whom=claims[0].for_whom,
        left_out=len(sizes) - len(kept),
    )


def _levels(run: NoisySGD, needed: float | None) -> tuple[float, ...]:
    if run.clip_norm is None:
        return (0.0,)
    centre = needed or run.noise_std or run.clip_norm / run.batch_size
    rounded = {float(number(centre * factor, "up", 3)) for factor in _NOISE if factor != 1.0}
    own = run.noise_std
    apart = {level for level in rounded if abs(level - own) > 0.1 * own}  # hardly another noise
    return tuple(sorted({0.0, own, centre, *apart}))


def _sizes(runs: Sequence[NoisySGD]) -> list[int]:
    run = runs[0]
    if len(runs) > 1 or run.sampling == "full":
        return [run.batch_size]
    return sorted({min(run.dataset_size, max(1, round(run.batch_size * factor))) for factor in _BATCHES})


def _changed(runs: Sequence[NoisySGD], level: float, size: int) -> list[NoisySGD]:
    first = runs[0]
    if len(runs) == 1:
        return [first.replace(noise_std=level, batch_size=size)]
    if level == first.noise_std:
        return list(runs)

    def scaled(run: NoisySGD) -> float:
        if first.noise_std > 0.0:
            return run.noise_std * (level / first.noise_std)
        return level if run.clip_norm is None or first.clip_norm is None else _in_units(run, first, level)

    return [run.replace(noise_std=scaled(run)) for run in runs]


def _in_units(run: NoisySGD, first: NoisySGD, level: float) -> float:
    """The same noise multiplier in each phase, where none had noise."""
    multiplier = first.replace(noise_std=level).noise_multiplier
    assert multiplier is not None  # gradients are clipped
    return run.with_noise_multiplier(multiplier).noise_std
