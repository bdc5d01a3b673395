"""Does a record look as the declared run must look? The recorded gradients against the members' own.

The auditor knows the members, the parameters and what was declared. Recorded gradient minus the members' mean (clipped)
gradient must be independent normal noise of the declared size, and nothing where none was declared. NumPy only:
`gmip.auditing.recompute` computes the gradients, `gmip.report.check_words` words the outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.auditing.noise_check import (
    LIMIT,
    SAME,
    SHARE,
    SURE,
    Layer,
    Look,
    MemberProducts,
    RecomputedStep,
    between_steps,
    clipped_otherwise,
    entry_limit,
    failed,
    gradient_checks,
    judge_noise,
    left_over,
    limits,
    look,
    not_judged,
    own_size_part,
    passed,
    unchecked,
)
from gmip.auditing.schema import CHECKS, BeyondReach, CheckFinding, CheckKey, CheckOutcome, SmallFault
from gmip.stats.flat import Flat
from gmip.stats.record_tests import normal_p_value, quadratic_form_p_value, size_p_value

Array = NDArray[np.float64]
_MOST_WORKERS: Final = 64
_REPEATED: Final = 0.5  # correlation from which on noise is the same again, and no effect of gradients
_TRIES: Final = 400  # of simulated faults, to tell whether they would be seen
_SHARES: Final = tuple(0.5 / 2 ** (i / 2) for i in range(15))  # of members who are replaced in such faults
_REPLACED: Final = 0.5  # share of the members whose replacement must be seen, or who was in is not checked
_TWICE: Final = 2.0  # times the declared scale or clip norm: where that is not excluded, it was not checked
_OWN_SIZE: Final = failed("scale", "own-size")


class Explanation(NamedTuple):
    """What the published gradients are instead of `expected`: the check that fails, and the vectors."""

    outcome: CheckOutcome
    vectors: tuple[Flat, ...]


def judge(
    steps: Sequence[RecomputedStep],
    *,
    layers: Sequence[Layer],
    clip_norm: float | None,
    compared: int = 0,
    more: Sequence[Look] = (),
) -> list[CheckOutcome]:
    """All that the steps say, one outcome for each check that applies. Steps with noise and without are kept apart.

    `compared` : steps among which these were chosen, if they were chosen for looking alike. `more` : other steps with
    noise, for the tests that pool steps."""
    quiet = [step for step in steps if step.noise_std == 0.0]
    noisy = [step for step in steps if step.noise_std > 0.0]
    found: dict[CheckKey, CheckOutcome] = {}
    judged = [*(_judge_noisy(noisy, layers, clip_norm, compared, more) if noisy else ())]
    judged += _direct(quiet, _plain_fault(quiet, clip_norm), clip_norm) if quiet else ()
    for one in judged:
        if one.check not in found or one.status == "failed":
            found[one.check] = one
    return [found[key] for key in CHECKS if key in found]


class Hidden(NamedTuple):
    """Faults that steps do not exclude, and the least noise multiplier, as a share of the declared one."""

    faults: tuple[BeyondReach, ...]
    least_noise: float


def small_faults(
    steps: Sequence[RecomputedStep],
    outcomes: Sequence[CheckOutcome],
    *,
    layers: Sequence[Layer],
    clip_norm: float | None,
    more: Sequence[Look] = (),
) -> Hidden:
    """What noise hides although these checks passed: how large a fault may be that the steps do not exclude."""
    noisy = [step for step in steps if step.noise_std > 0.0]
    right = {one.check for one in outcomes if one.status == "passed"}
    if not noisy or any(one.status == "failed" for one in outcomes):
        return Hidden((), 1.0)
    looks = [*(look(step, layers, clip_norm) for step in noisy), *more]
    known, size = limits(looks, clip_norm=clip_norm), "noise-size" in right
    records = _members_test(noisy, 1.0) if "members" in right else None
    faults: tuple[tuple[bool, SmallFault, float | None], ...] = (
        (size, "noise-size", known.noise),
        ("noise-layers" in right and len(layers) > 1, "noise-layer", known.noise_layer),
        (size and len(looks) > 1, "noise-step", known.noise_step),
        (size, "noise-entry", entry_limit(len(noisy), layers)),
        (size, "noise-seed", None),
        (size, "noise-dependence", None),
        ("scale" in right, "scale", known.scale),
        (known.own_size, "own-size", None),
        ("clipping" in right, "clip-norm", known.clip_norm),
        ("members" in right, "records", None if records is None else records.seen),
        ("members" in right, "inputs", None),
        (True, "counted", None),
    )
    return Hidden(
        tuple(BeyondReach(fault=fault, up_to=up_to) for hidden, fault, up_to in faults if hidden), known.least_noise
    )


def _judge_noisy(
    steps: Sequence[RecomputedStep],
    layers: Sequence[Layer],
    clip_norm: float | None,
    compared: int,
    more: Sequence[Look],
) -> list[CheckOutcome]:
    looks = [*(look(step, layers, clip_norm) for step in steps), *more]
    why = _noisy_fault(steps, looks, clip_norm)
    vectors = [s.expected for s in steps] if why is None else [vector.kept() for vector in why.vectors]
    repeats = between_steps(left_over(steps, vectors), steps, layers, compared)
    repeated = repeats.status == "failed" and abs(repeats.value or 0.0) >= _REPEATED
    # Tests over several steps count the same noise several times; what one step says holds.
    if repeated and _sound(steps[:1], looks[:1], clip_norm):
        noise = judge_noise(steps, [s.expected for s in steps], layers, compared)
        return [*_direct(steps[:1], None, clip_norm, looks[:1]), *noise]
    direct = _direct(steps, why, clip_norm, looks)
    fails = next((one for one in direct if one.status == "failed"), None)
    if fails is not None and fails.check in ("members", "whole-clip"):  # then what is left is more than noise
        return [*direct, *(not_judged(key, fails.check) for key in CHECKS if key.startswith("noise-"))]
    return [*direct, *judge_noise(steps, vectors, layers, compared, more if why is None else ())]


def _sound(steps: Sequence[RecomputedStep], looks: Sequence[Look], clip_norm: float | None) -> bool:
    """Whether nothing but noise is wrong with these steps."""
    others = _members_test(steps, 1.0)
    return _noisy_fault(steps, looks, clip_norm) is None and (others is None or others.p_value >= SHARE)


# -- what the published gradients are ---------------------------------------------------------------------------------


def _plain_fault(steps: Sequence[RecomputedStep], clip_norm: float | None) -> Explanation | None:
    """Without noise: None if all residuals are rounding; otherwise the first explanation that fits to rounding."""
    if all(step.residual.norm <= step.tolerance for step in steps):
        return None
    for known in _clipping_faults(steps, clip_norm):
        pairs = list(zip(steps, known.vectors, strict=True))
        if all((step.published - vector).norm <= 3.0 * step.tolerance for step, vector in pairs):
            return known
    if (scaled := _plainly_scaled(steps)) is not None:
        return scaled
    worst = max(steps, key=lambda step: step.residual.norm / max(step.largest, 1.0e-300))
    excess = worst.residual.norm / max(worst.largest, 1.0e-300)
    outcome = failed("members", "members-differ", at_steps=(worst.index,), value=excess, expected=0.0)
    return Explanation(outcome, tuple(step.expected for step in steps))


def _plainly_scaled(steps: Sequence[RecomputedStep]) -> Explanation | None:
    """Without noise: the explanation by a factor of each step; None if what is left then is more than rounding."""
    factors = np.array([_factor(step.published, step.expected) for step in steps])
    scaled = [factor * step.expected for factor, step in zip(factors, steps, strict=True)]
    fits = all(  # not so where a factor is infinite, because nothing was expected
        (step.published - vector).norm <= 3.0 * max(1.0, abs(factor)) * step.tolerance
        for step, vector, factor in zip(steps, scaled, factors, strict=True)
    )
    return _scaled(steps, factors, scaled) if fits else None


def _noisy_fault(steps: Sequence[RecomputedStep], looks: Sequence[Look], clip_norm: float | None) -> Explanation | None:
    """With noise: the explanation that fits best, if a test along its direction refutes the declared run.

    `looks` : at these steps, and at more of them."""
    toward = np.sum([one.toward for one in looks], axis=0)
    squares = np.sum([one.squares for one in looks], axis=0)
    slope, error = _pooled_factor(looks)
    scaled = tuple(slope * step.expected for step in steps)
    # Each with what is left along its shift, the shift's square, and what it has to be better by, if a number of it was
    # fitted.
    options = [
        (one, float(toward[i]), float(squares[i]), 0.0) for i, one in enumerate(_clipping_faults(steps, clip_norm), 1)
    ]
    constant = _constant_factor(steps, slope, 3.0 * error, scaled)
    options.append((constant, (slope - 1.0) * float(toward[0]), (slope - 1.0) ** 2 * float(squares[0]), 4.0))
    if (own := _own_size(steps)) is not None:
        along, length = own_size_part(looks)
        options.append((own, along, length**2, 0.0))
    best, p, most = None, 1.0, -math.inf
    for option, along, square, cost in options:
        if square == 0.0:
            continue
        z = along / math.sqrt(square)
        own_p, gain = normal_p_value(z), 2.0 * along - square - cost  # what is left less by, in squares
        if own_p < SHARE / len(options) and z > 0.0 and gain > most:
            best, p, most = option, own_p, gain
    if best is None:
        return None
    if best is constant and (other := _instead_of_scale(steps, slope, scaled, p)) is not None:
        return other
    outcome = best.outcome.model_copy(update={"p_value": min(1.0, p * len(options))})
    return Explanation(outcome, best.vectors)


def _instead_of_scale(
    steps: Sequence[RecomputedStep], slope: float, scaled: tuple[Flat, ...], p: float
) -> Explanation | None:
    """What else gives one factor for all steps: the whole gradient clipped, or records of others; None: neither."""
    norms = np.array([step.published.norm for step in steps])
    held = norms > (1.0 - SAME) * norms.max()
    if slope < 1.0 and held.sum() > 1:  # with noise on them, norms agree by clipping only
        return _clipped_whole(norms.max(), int(held.sum()), [slope], scaled, p)
    if (other := _members_test(steps, slope)) is not None and other.p_value < SHARE:
        return Explanation(_others_left(other), tuple(step.expected for step in steps))
    return None


def _clipping_faults(steps: Sequence[RecomputedStep], clip_norm: float | None) -> list[Explanation]:
    if clip_norm is None:
        return []
    found, others = [], [clipped_otherwise(step, clip_norm) for step in steps]
    # Then both are the same.
    short = all(step.otherwise is not None and step.otherwise().unclipped.norm <= clip_norm for step in steps)
    for same in zip(*others, strict=True):
        finding: CheckFinding = "unclipped-or-mean" if short and same[0][0] == "unclipped" else same[0][0]
        outcome = failed("clipping", finding, norm=clip_norm)
        found.append(Explanation(outcome, tuple(vector for _, vector in same)))
    return found


def _own_size(steps: Sequence[RecomputedStep]) -> Explanation | None:
    """Poisson batches divided by their own size; None where that is the declared divisor."""
    if all(step.size in (0, step.divisor) for step in steps):
        return None
    vectors = tuple(step.expected * (step.divisor / max(step.size, 1)) for step in steps)
    return Explanation(_OWN_SIZE, vectors)


def _scaled(steps: Sequence[RecomputedStep], factors: Array, vectors: Sequence[Flat]) -> Explanation:
    """The published gradients are the expected ones times a factor each."""
    low, high = float(factors.min()), float(factors.max())
    if high - low <= SAME * max(abs(high), abs(low)):
        return _constant_factor(steps, float(factors.mean()), SAME * abs(high), tuple(vectors))
    own = np.array([step.divisor / step.size if step.size else 1.0 for step in steps])
    if np.allclose(factors, own, rtol=SAME):
        return Explanation(_OWN_SIZE, tuple(vectors))
    norms = np.array([step.published.norm for step in steps])
    cut = factors < 1.0 - SAME
    if high <= 1.0 + SAME and np.ptp(norms[cut]) <= SAME * norms[cut].max():
        return _clipped_whole(float(norms[cut].max()), int(cut.sum()), factors[cut].tolist(), tuple(vectors), None)
    outcome = failed(
        "scale",
        "factors-vary",
        factor_low=low,
        factor_high=high,
        value=high if abs(math.log(max(high, 1e-300))) > abs(math.log(max(low, 1e-300))) else low,
        expected=1.0,
    )
    return Explanation(outcome, tuple(vectors))


def _clipped_whole(
    norm: float, clipped: int, factors: Sequence[float], vectors: tuple[Flat, ...], p: float | None
) -> Explanation:
    outcome = failed(
        "whole-clip",
        "whole-clip",
        norm=norm,
        steps=clipped,
        of_steps=len(vectors),
        factor_low=min(factors),
        factor_high=max(factors),
        value=min(factors),
        expected=1.0,
        p_value=p,
    )
    return Explanation(outcome, vectors)


def _constant_factor(
    steps: Sequence[RecomputedStep], factor: float, error: float, vectors: tuple[Flat, ...]
) -> Explanation:
    sizes = {step.size for step in steps}
    finding, size = factor_finding(factor, error, sizes.pop() if len(sizes) == 1 else None)
    outcome = failed("scale", finding, size=size, value=factor, expected=1.0)
    return Explanation(outcome, vectors)


def factor_finding(factor: float, error: float, size: int | None) -> tuple[CheckFinding, int | None]:
    """The usual mistake that gives such a factor, if one is within `error`, and the batch size or the number of workers
    that it is about."""
    usual: list[tuple[float, CheckFinding, int]] = []
    if size is not None and size > 1:
        usual += [(float(size), "sum-not-mean", size), (1.0 / size, "divided-twice", size)]
    for k in range(2, _MOST_WORKERS + 1):
        usual += [(float(k), "workers-summed", k), (1.0 / k, "workers-divided", k)]
    near = [
        (abs(factor - value), name, n) for value, name, n in usual if abs(factor - value) <= max(error, SAME * value)
    ]
    if not near:
        return "scale-factor", None
    least = min(distance for distance, _, _ in near) + 1.0e-6 * abs(factor)
    return next((name, n) for distance, name, n in near if distance <= least)


# -- outcomes ---------------------------------------------------------------------------------------------------------


def _direct(
    steps: Sequence[RecomputedStep], why: Explanation | None, clip_norm: float | None, looks: Sequence[Look] = ()
) -> list[CheckOutcome]:
    """Scale, whole-gradient clipping, clipping and members. `looks` : where there is noise."""
    noisy = steps[0].noise_std > 0.0
    found = []
    for key in gradient_checks(clip_norm):
        if why is not None:
            found.append(why.outcome if why.outcome.check == key else not_judged(key, why.outcome.check))
        elif key == "clipping":
            found.append(_clipping(steps, looks, float(clip_norm or 0.0)))
        elif key == "members":
            found.append(_members(steps, noisy))
        elif key == "whole-clip":
            found.append(_whole_clip(steps, noisy))
        else:
            found.append(_scale(steps, looks))
    return found


def _scale(steps: Sequence[RecomputedStep], looks: Sequence[Look]) -> CheckOutcome:
    if not looks:
        worst = max(abs(_factor(step.published, step.expected) - 1.0) for step in steps)
        return passed("scale", value=1.0 + worst, expected=1.0)
    slope, error = _pooled_factor(looks)
    p = normal_p_value((slope - 1.0) / error)
    if slope + LIMIT * error > _TWICE:
        known = math.isfinite(error)
        return unchecked(
            "scale",
            "hidden-by-noise",
            factor_low=slope - error if known else None,
            factor_high=slope + error if known else None,
        )
    return passed("scale", value=slope, error=error, expected=1.0, p_value=p)


def _whole_clip(steps: Sequence[RecomputedStep], noisy: bool) -> CheckOutcome:
    if not noisy:
        return passed("whole-clip")
    # Factors of single steps that differ: chi-squared around the pooled one.
    slopes = np.array([_factor(step.published, step.expected) for step in steps])
    errors = np.array([step.noise_std / max(step.expected.norm, 1.0e-300) for step in steps])
    if float(errors.max()) > 0.5 / SURE:
        return unchecked("whole-clip", "hidden-by-noise")
    squares = float(np.sum(((slopes - 1.0) / errors) ** 2))
    p = float(size_p_value(squares, len(steps)))
    if p < SHARE and squares > len(steps):
        return failed(
            "whole-clip",
            "steps-scaled",
            factor_low=float(slopes.min()),
            factor_high=float(slopes.max()),
            value=float(slopes.min()),
            expected=1.0,
            p_value=p,
        )
    return passed("whole-clip", p_value=p)


def _clipping(steps: Sequence[RecomputedStep], looks: Sequence[Look], clip_norm: float) -> CheckOutcome:
    if not any(step.moved for step in steps) and not any(one.moved for one in looks):
        return unchecked("clipping", "none-to-clip", norm=clip_norm)
    if looks and 1.0 + limits(looks, clip_norm=clip_norm).clip_norm > _TWICE:
        seen = math.sqrt(float(np.sum([one.squares[1:] for one in looks], axis=0).min()))
        more = math.ceil(len(looks) * (SURE / max(seen, 1.0e-3)) ** 2)
        return unchecked("clipping", "hidden-by-noise", steps=len(looks), of_steps=max(more, len(looks) + 1))
    return passed("clipping", norm=clip_norm)


def _members(steps: Sequence[RecomputedStep], noisy: bool) -> CheckOutcome:
    if not noisy:
        worst = max(s.residual.norm / max(s.largest, 1.0e-300) for s in steps)
        return passed("members", value=worst, expected=0.0)
    found = _members_test(steps, 1.0)
    if found is None:
        return unchecked("members", "not-compared")
    if found.p_value < SHARE:
        return _others_left(found)
    if found.seen > _REPLACED:
        return unchecked("members", "hidden-by-noise", steps=len(steps))
    return passed("members", value=found.ratio, expected=1.0, p_value=found.p_value)


class _MembersTest(NamedTuple):
    """`ratio` : size of what is left in the directions of members' gradients, in units of noise. `seen` : share of
    members whose replacement by others is seen in four of five cases; 1 where none is."""

    p_value: float
    ratio: float
    seen: float


def _members_test(steps: Sequence[RecomputedStep], slope: float) -> _MembersTest | None:
    """Whether gradients of others are in what is left, `slope` times the expected gradients taken away.

    Without a fault what is left is noise. With a share s of the members replaced by others it is also a mean of
    differences of gradients, of covariance 2s S/n: in the eigenbasis of S, steps on the same records stacked into one,
    coordinates have variance 1 + 2s v_j instead of 1, and sum_j v_j/(1 + v_j) y_j^2 tells s = 1/2 best.
    """
    stacks: dict[bytes, list[MemberProducts]] = {}
    for step in steps:
        if step.products is None:
            return None
        stacks.setdefault(step.products.ids.tobytes(), []).append(step.products)
    parts = []
    for stack in stacks.values():
        inner = np.sum([one.inner for one in stack], axis=0)
        left = np.sum([one.against - (slope - 1.0) * one.toward for one in stack], axis=0)
        spectrum, axes = np.linalg.eigh(inner)
        keep = spectrum > 1.0e-9 * max(float(spectrum[-1]), 1.0e-300)
        y = (axes[:, keep].T @ left) / np.sqrt(spectrum[keep])
        parts.append((y, spectrum[keep] / (len(inner) * stack[0].batch_size)))
    y, v = (np.concatenate([part[i] for part in parts]) for i in range(2))
    w = v / (1.0 + v)
    value, mean = float(np.sum(w * y * y)), float(np.sum(w))
    squares = np.random.default_rng(0).standard_normal((_TRIES, v.size)) ** 2
    seen = 1.0
    for share in _SHARES:  # the largest first
        tried = squares @ (w * (1.0 + 2.0 * share * v))
        if quadratic_form_p_value(float(np.quantile(tried, 0.2)), w) >= SHARE:
            break
        seen = share
    return _MembersTest(quadratic_form_p_value(value, w), value / max(mean, 1.0e-300), seen)


def _others_left(test: _MembersTest) -> CheckOutcome:
    return failed("members", "others-left", value=test.ratio, expected=1.0, p_value=test.p_value)


# -- arithmetic -------------------------------------------------------------------------------------------------------


def _factor(published: Flat, expected: Flat) -> float:
    length = expected @ expected
    return published @ expected / length if length > 0.0 else math.inf


def _pooled_factor(looks: Sequence[Look]) -> tuple[float, float]:
    """(factor, standard error) of published on expected, over steps with noise."""
    weight = sum(float(one.squares[0]) for one in looks)
    if weight == 0.0:
        return 1.0, math.inf
    return 1.0 + sum(float(one.toward[0]) for one in looks) / weight, 1.0 / math.sqrt(weight)
