"""What would be promised with other noise and other batches: a small table, computed by the accountant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from gmip._numbers import number
from gmip.accounting.account import account, coarsely
from gmip.auditing.advice_schema import WhatIf
from gmip.vocabulary import Claim, NoisySGD, weakest

__all__ = ["what_if"]

_SECONDS: Final = 10.0
_NOISE: Final = (0.25, 0.5, 0.71, 1.0, 1.4, 2.0, 4.0)  # of the noise that the goal needs
_BATCHES: Final = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the batch size


def what_if(
    runs: Sequence[NoisySGD], *, fpr: float, needed: float | None = None, seconds: float = _SECONDS
) -> WhatIf | None:
    """The promised TPR at `fpr` over a grid around the run; None without runs.

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
            with coarsely():  # which only shuffled epochs take notice of
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
        left_out=_left_out(runs, len(sizes) - len(kept)),
    )


def _left_out(runs: Sequence[NoisySGD], slow: int) -> str | None:
    said = []
    if any(run.clip_norm is None for run in runs):
        said.append("Noise needs clipped gradients, and these are not: only the batch size changes.")
    if len(runs) > 1:
        said.append("Phases keep their batch sizes; their noise changes in proportion.")
    if slow:
        said.append(f"{slow} batch {'size was' if slow == 1 else 'sizes were'} left out: they take long to compute.")
    return " ".join(said) or None


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
