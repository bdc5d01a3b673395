"""What can be said of steps whose batch is not known: the recorded gradient against the mean gradient of all members.

Who is drawn is random, so the recorded mean scatters around theirs with a covariance L and the noise on top. Batches
lie in the span of the members' gradients, and across it what is left is noise and nothing else. So the tests weigh
each direction by how much of it is noise, tau^2/(tau^2 + L); how precise that is follows from the members' gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip.auditing.noise_check import (
    LEAST,
    LIMIT,
    SURE,
    failed,
    gradient_checks,
    not_judged,
    passed,
    unchecked,
)
from gmip.auditing.run_check import factor_finding
from gmip.auditing.schema import BeyondReach, CheckOutcome
from gmip.stats.flat import Flat
from gmip.stats.record_tests import bernstein_p_value, size_p_value

Array = NDArray[np.float64]
_ACCUSED: Final = 1.0e-4  # chance that one of these tests accuses a sound run
_HALF: Final = 0.5  # noise that is too small by this share must be seen, or nothing is known of its size
_SHOWN: Final = 0.9  # of the declared noise: where less is not excluded, it is not shown to be as declared
_AGREES: Final = 0.1  # of the noise of two steps: less is no noise that is used again


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledStep:
    """One recorded step, and the gradients of all members at its parameters.

    Attributes
    ----------
    published, centre : of length d, and its mean over all batches of that size, by the members' (clipped) gradients.
    mean : the members' mean (clipped) gradient, of length d.
    along : variance of the published gradient in the direction of `centre`, noise left out; largest : the most that
        one record moves it in that direction.
    spread, spread_squares : trace of its covariance and of the square of that, noise left out.
    variances, left : eigenvalues of that covariance and what is left of the published gradient along its eigenvectors,
        shape (k,) each; empty where the members are too many, and only the spread is known.
    peaks : how much the fourth moments of who is drawn add to the variance of the weighted squares.
    """

    index: int
    published: Flat
    centre: Flat
    mean: Flat
    along: float
    largest: float
    spread: float
    spread_squares: float
    variances: Array
    left: Array
    peaks: float
    noise_std: float
    size: int


def judge_sampled(
    steps: Sequence[SampledStep], *, clip_norm: float | None, poisson: bool
) -> tuple[list[CheckOutcome], list[BeyondReach]]:
    """Scale, size of the noise and noise between steps; what else would need the batches is not checked."""
    noisy = [step for step in steps if step.noise_std > 0.0]
    scale, reach = _scale(steps, poisson)
    found = [scale, *(unchecked(key, "no-ids") for key in gradient_checks(clip_norm) if key != "scale")]
    if noisy:
        wrong = scale.status == "failed"
        size, hidden = _size(noisy)
        reach += [] if wrong else hidden
        found += [
            not_judged("noise-size", "scale") if wrong else size,
            unchecked("noise-layers", "no-ids"),
            unchecked("noise-rows", "no-ids"),
            not_judged("noise-steps", "scale") if wrong else _between(noisy),
        ]
    return found, reach


def _scale(steps: Sequence[SampledStep], poisson: bool) -> tuple[CheckOutcome, list[BeyondReach]]:
    excess, error, p = _along(steps, [step.centre for step in steps])
    slope = 1.0 + excess
    if not math.isfinite(error):
        return unchecked("scale", "zero-gradient"), []
    if p < _ACCUSED and abs(excess) > LEAST:
        sizes = {step.size for step in steps}
        size = sizes.pop() if len(sizes) == 1 else None
        finding, number = factor_finding(slope, max(3.0 * error, 0.1 * abs(slope)), size)
        return failed("scale", finding, size=number, value=slope, error=error, expected=1.0, p_value=p), []
    reach = []
    if poisson:  # what division by a batch's own size adds, all of it or nothing
        added, off, p_own = _along(steps, [step.mean - step.centre for step in steps])
        if p_own < _ACCUSED and added > 0.0:
            return failed("scale", "own-size", value=added, expected=0.0, p_value=p_own), []
        reach = [BeyondReach(fault="own-size")] if off > 1.0 / SURE else []
    if error > 1.0 / SURE:
        between = {"factor_low": slope - error, "factor_high": slope + error}
        return unchecked("scale", "hidden-by-batches", **between), reach
    reach.append(BeyondReach(fault="scale", up_to=SURE * error))
    return passed("scale", value=slope, error=error, expected=1.0, p_value=p), reach


def _along(steps: Sequence[SampledStep], vectors: Sequence[Flat]) -> tuple[float, float, float]:
    """(coefficient, standard error, p-value of 0) of what is left on these vectors, each along the step's centre."""
    weight, total, most = 0.0, 0.0, 0.0
    for step, vector in zip(steps, vectors, strict=True):
        length, variance = vector.norm, step.along + step.noise_std**2
        if length > 0.0 and variance > 0.0:
            weight += length**2 / variance
            total += (step.published - step.centre) @ vector / variance
            most = max(most, length * step.largest / variance)
    if weight == 0.0:
        return 0.0, math.inf, 1.0
    return total / weight, weight**-0.5, bernstein_p_value(total / weight, 1.0 / weight, most / weight)


def _size(steps: Sequence[SampledStep]) -> tuple[CheckOutcome, list[BeyondReach]]:
    """Squares of what is left in units of their expectation, each weighed by the share of noise in it."""
    found, mean, variance, information = 0.0, 0.0, 0.0, 0.0
    for step in steps:
        left, tau2 = step.published - step.centre, step.noise_std**2
        d, k = len(left), step.left.size
        if k:
            share = tau2 / (step.variances + tau2)
            found += float(np.sum(share * step.left**2 / (step.variances + tau2)))
            found += max(left @ left - float(step.left @ step.left), 0.0) / tau2
            mean += float(share.sum()) + d - k
            variance += 2.0 * (float(np.sum(share**2)) + d - k) + step.peaks
            information += float(np.sum(share**2)) + d - k
        else:
            each = step.spread / d + tau2
            share0 = tau2 / each
            found += share0 * left @ left / each
            mean += share0 * d
            squares = step.spread_squares + 2.0 * tau2 * step.spread + d * tau2 * tau2
            variance += 2.0 * (share0 / each) ** 2 * squares + step.peaks
            information += share0**2 * d
    # Squares of the noise enter with the weight `information`; a gamma law of the same mean and variance is the test.
    ratio = math.sqrt(max(1.0 + (found - mean) / information, 0.0))
    error = 0.5 * math.sqrt(variance) / information
    dof = 2.0 * mean**2 / variance
    p = float(size_p_value(found * dof / mean, dof))
    numbers = {"value": ratio, "error": error, "expected": 1.0, "p_value": p}
    if p < _ACCUSED and abs(ratio - 1.0) > LEAST:
        return failed("noise-size", "noise-size", **numbers), []
    if SURE * error > _HALF:
        return unchecked("noise-size", "hidden-by-batches"), []
    least = ratio - LIMIT * error
    if least < _SHOWN:
        return unchecked("noise-size", "imprecise", factor_low=max(least, 0.0), **numbers), []
    return passed("noise-size", **numbers), [BeyondReach(fault="noise-size", up_to=max(1.0 - least, LEAST))]


def _between(steps: Sequence[SampledStep]) -> CheckOutcome:
    if len(steps) < 2:
        return unchecked("noise-steps", "one-step")
    worst, pairs = (1.0, 0.0, 0, 0), 0
    for i, first in enumerate(steps):
        for second in steps[i + 1 :]:
            a, b = first.published - first.centre, second.published - second.centre
            d, x, y = len(a), first.noise_std**2, second.noise_std**2
            # Cross terms of sampling are bounded by Cauchy and Schwarz.
            mixed = math.sqrt(first.spread_squares * second.spread_squares)
            deviation = math.sqrt(mixed + x * second.spread + y * first.spread + d * x * y)
            same = d * first.noise_std * second.noise_std
            if same < SURE * deviation:  # batches that share records agree, too
                continue
            pairs += 1
            # One-sided: noise that is used again adds up, while batches of one epoch exclude each other.
            p = 0.5 * math.erfc(a @ b / deviation / math.sqrt(2.0))
            if p < worst[0]:
                worst = (p, a @ b / max(same, 1.0e-300), first.index, second.index)
    if not pairs:
        return unchecked("noise-steps", "hidden-by-batches")
    p, strength, one, other = worst
    p = min(1.0, p * pairs)
    seen = {"steps": len(steps), "of_steps": len(steps), "value": strength, "expected": 0.0, "p_value": p}
    if p < _ACCUSED and strength > _AGREES:
        return failed("noise-steps", "noise-repeats", at_steps=(one, other), **seen)
    return passed("noise-steps", **seen)
