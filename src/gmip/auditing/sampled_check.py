"""What can be said of steps whose batch is not known: the recorded gradient against the mean gradient of all members.

Who is drawn is random, so the recorded mean scatters around theirs with covariance (1/n)(1 - n/N) S and the noise on
top. That is enough to see a wrong scale, noise of another size and noise that is used again; it is a central limit
theorem and not exact, so that small differences are no fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip._numbers import count, number
from gmip.auditing.check_schema import CheckOutcome, CheckStatus
from gmip.auditing.evidence import SHARE, TITLES, unchecked
from gmip.auditing.run_check import named_factor
from gmip.stats.residuals import normal_p_value

__all__ = ["Sampled", "judge_sampled"]

_UNKNOWN: Final = "The record does not say who was in each batch (recorder.batch(ids=...) does)"
_SCALE: Final = 0.25  # relative error of the scale that is a fault
_SIZE: Final = 0.25  # of the size of what is left
_SURE: Final = 5.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """One recorded step, and the gradients of all members at its parameters.

    Attributes
    ----------
    published : shape (d,); centre : the members' mean (clipped) gradient, shape (d,).
    along : variance of the published gradient in the direction of `centre`, noise left out.
    spread, spread_squares : trace of its covariance and of the square of that, noise left out.
    """

    index: int
    published: NDArray[np.float64]
    centre: NDArray[np.float64]
    along: float
    spread: float
    spread_squares: float
    noise_std: float
    size: int


def judge_sampled(steps: Sequence[Sampled], *, clip_norm: float | None) -> list[CheckOutcome]:
    """Scale, size of the noise and noise between steps, roughly; what else would need the batches is not checked."""
    noisy = any(step.noise_std > 0.0 for step in steps)
    others = ["whole-clip", *(["clipping"] if clip_norm is not None else []), "members"]
    found = [_scale(steps), *(unchecked(key, f"{_UNKNOWN}.") for key in others)]
    if noisy:
        silent = found[0].status == "failed"
        why = f"Not judged, since another check fails: {TITLES['scale'].lower()}."
        found += [
            unchecked("noise-size", why) if silent else _size(steps),
            unchecked("noise-layers", f"{_UNKNOWN}."),
            unchecked("noise-rows", f"{_UNKNOWN}."),
            unchecked("noise-steps", why) if silent else _between(steps),
        ]
    return found


def _outcome(check: str, status: CheckStatus, sentence: str, value: float, expected: float, p: float) -> CheckOutcome:
    return CheckOutcome(
        check=check, title=TITLES[check], status=status, sentence=sentence, value=value, expected=expected, p_value=p
    )


def _scale(steps: Sequence[Sampled]) -> CheckOutcome:
    weight, total = 0.0, 0.0
    for step in steps:
        length = float(step.centre @ step.centre)
        variance = step.along + step.noise_std**2
        if length > 0.0 and variance > 0.0:
            weight += length / variance
            total += float(step.published @ step.centre) / variance
    if weight == 0.0:
        return unchecked("scale", "The members' mean gradient is zero at the checked steps.")
    slope, error = total / weight, 1.0 / math.sqrt(weight)
    p = normal_p_value((slope - 1.0) / error)
    about = (
        f"The recorded gradient is about {number(slope, 'nearest')} times the mean gradient of all members, give or "
        f"take {number(error, 'up')}"
    )
    if p < SHARE and abs(slope - 1.0) > _SCALE:
        sizes = {step.size for step in steps}
        size = sizes.pop() if len(sizes) == 1 else None
        words = named_factor(slope, max(3.0 * error, 0.1 * abs(slope)), size)
        return _outcome("scale", "failed", f"{about}{words}.", slope, 1.0, p)
    if error > 1.0 / _SURE:
        return unchecked("scale", f"{about}: too little to tell. {_UNKNOWN}.")
    return _outcome("scale", "passed", f"{about}.", slope, 1.0, p)


def _size(steps: Sequence[Sampled]) -> CheckOutcome:
    """Squared lengths of what is left, each in units of what is expected."""
    found, variance, noise = 0.0, 0.0, 0.0
    for step in steps:
        left = step.published - step.centre
        d, tau2 = left.size, step.noise_std**2
        scale = 1.0 / (step.spread + d * tau2)
        found += scale * float(left @ left)
        variance += 2.0 * scale**2 * (step.spread_squares + 2.0 * tau2 * step.spread + d * tau2 * tau2)
        noise += scale * d * tau2
    ratio, share = math.sqrt(found / len(steps)), noise / len(steps)
    p = normal_p_value((found - len(steps)) / math.sqrt(variance))
    words = (
        f"What is left of the recorded gradients without the members' mean is {number(ratio, 'nearest')} times as "
        "large as random batches and the declared noise make it."
    )
    if p < SHARE and abs(ratio - 1.0) > _SIZE * max(share, 0.2):
        return _outcome("noise-size", "failed", words, ratio, 1.0, p)
    if share < 0.5:
        return unchecked("noise-size", f"Random batches hide the noise. {_UNKNOWN}.")
    return _outcome("noise-size", "passed", words, ratio, 1.0, p)


def _between(steps: Sequence[Sampled]) -> CheckOutcome:
    if len(steps) < 2:
        return unchecked("noise-steps", "One step is not enough to compare the noise of different steps.")
    worst, pairs, power = (1.0, 0.0, 0, 0), 0, 0.0
    for i, first in enumerate(steps):
        for second in steps[i + 1 :]:
            a, b = first.published - first.centre, second.published - second.centre
            d, x, y = a.size, first.noise_std**2, second.noise_std**2
            # Cross terms of sampling are bounded by Cauchy and Schwarz.
            mixed = math.sqrt(first.spread_squares * second.spread_squares)
            deviation = math.sqrt(mixed + x * second.spread + y * first.spread + d * x * y)
            same = d * first.noise_std * second.noise_std
            pairs, power = pairs + 1, max(power, same / deviation)
            # One-sided: noise that is used again adds up, while batches of one epoch exclude each other.
            p = 0.5 * math.erfc(float(a @ b) / deviation / math.sqrt(2.0))
            if p < worst[0]:
                worst = (p, float(a @ b) / max(same, 1.0e-300), first.index, second.index)
    p, strength, one, other = worst
    p = min(1.0, p * pairs)
    if p < SHARE and strength > 0.1:
        words = (
            f"What is left of steps {one} and {other} agrees, by {number(strength, 'nearest')} of the declared noise: "
            "the noise was drawn once and used again, or from the same seed, and the difference of two steps is free "
            "of it."
        )
        return _outcome("noise-steps", "failed", words, strength, 0.0, p)
    if power < _SURE:
        return unchecked("noise-steps", f"Random batches hide whether noise is used again. {_UNKNOWN}.")
    words = f"What is left of {count(len(steps))} steps does not agree."
    return _outcome("noise-steps", "passed", words, strength, 0.0, p)
