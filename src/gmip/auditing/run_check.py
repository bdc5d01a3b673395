"""Does a record look as the declared run must look? The recorded gradients against the members' own, in words.

The auditor knows the members, the parameters and what was declared. Recorded gradient minus the members' mean (clipped)
gradient must be independent normal noise of the declared size, and nothing where none was declared. NumPy only:
`gmip.pipeline.recompute` computes the gradients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip._numbers import chance, count, number, percent
from gmip._validate import listed
from gmip.auditing.schema import BeyondReach, CheckOutcome
from gmip.stats.residuals import cosine_p_value, normal_p_value, quadratic_form_p_value, shared_noise, size_p_value

__all__ = [
    "LEAST",
    "LEVEL",
    "OWN_SIZE",
    "SAME",
    "SHARE",
    "SURE",
    "TITLES",
    "WIDER",
    "Compared",
    "Layer",
    "Recomputed",
    "between_steps",
    "judge",
    "judge_noise",
    "left_over",
    "named_factor",
    "passed",
    "small_faults",
    "unchecked",
]


# -- what the run check goes by ---------------------------------------------------------------------------------------


WIDER: Final = 1.1  # times the declared clip norm: a fault that is planted to tell whether it would be seen
LEVEL: Final = 0.01  # chance that a sound run fails, all checks together
SHARE: Final = LEVEL / 10  # of one check: there are at most ten in which chance plays a part
SURE: Final = 5.0  # standard deviations at which a fault is seen nearly always at that level
LEAST: Final = 0.005  # relative error of scale or noise that is worth a word, however sure
SAME: Final = 1.0e-3  # relative difference up to which factors and norms are the same

TITLES: Final = {
    "sizes": "Declared sizes",
    "batches": "How batches were drawn",
    "continuity": "Training outside the record",
    "scale": "Scale of the gradient",
    "whole-clip": "Clipping of the whole gradient",
    "clipping": "Clipping of each record's gradient",
    "members": "Members, model and data",
    "noise-steps": "Noise of different steps",
    "noise-layers": "Noise in every layer",
    "noise-size": "Size of the noise",
    "noise-rows": "Noise in every row",
}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Where a parameter lies in the flat vectors, and its shape."""

    name: str
    place: slice
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """Gradients of k members at a step, less their mean, in units of the noise: inner products among them (k, k), with
    the residual (`against`) and with `expected` (`toward`), (k,) each. `batch_size` : of the step."""

    ids: NDArray[np.int64]
    inner: Array
    against: Array
    toward: Array
    batch_size: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Recomputed:
    """One recorded step, and the members' gradients at its parameters.

    Attributes
    ----------
    published : the recorded mean gradient, a known whole-gradient clip undone, shape (d,).
    expected : sum of the batch's gradients, each clipped as declared, over `divisor`, shape (d,).
    unclipped : the same without clipping; `expected` itself where nothing is clipped.
    by_layer, wider : the same with each parameter of the model clipped to the norm on its own, and with a norm that is
        `WIDER` times as large; stretch : how much longer than the norm a record is in the former, at most.
    noise_std : declared; size, divisor : of the batch.
    contribution : mean norm of a record's part of the published gradient, times the records: sum of norms/divisor.
    largest : the largest norm of one record's part.
    tolerance : norm of the difference that rounding explains.
    compared : some members' gradients against the residual, where there is noise.
    """

    index: int
    published: Array
    expected: Array
    unclipped: Array
    by_layer: Array
    wider: Array
    noise_std: float
    size: int
    divisor: float
    contribution: float
    largest: float
    tolerance: float
    stretch: float = 1.0
    compared: Compared | None = None

    @property
    def residual(self) -> Array:
        return self.published - self.expected


def unchecked(check: str, why: str) -> CheckOutcome:
    """A check that could not be made."""
    return CheckOutcome(check=check, title=TITLES[check], status="unchecked", sentence=why)


def passed(
    check: str, sentence: str, value: float | None = None, expected: float | None = None, p: float | None = None
) -> CheckOutcome:
    """A check that found nothing wrong."""
    return CheckOutcome(
        check=check, title=TITLES[check], status="passed", sentence=sentence, value=value, expected=expected, p_value=p
    )


# -- what is left of recorded gradients without the members' own ------------------------------------------------------


_FEW_ENTRIES: Final = 8  # of a parameter: fewer cannot be compared with another's
_MOST_LAYERS: Final = 40


def left_over(steps: Sequence[Recomputed], vectors: Sequence[Array]) -> Array:
    """Published gradients less these vectors, in units of the declared noise, shape (steps, d)."""
    return np.stack([(s.published - v) / s.noise_std for s, v in zip(steps, vectors, strict=True)])


def judge_noise(
    steps: Sequence[Recomputed], vectors: Sequence[Array], layers: Sequence[Layer], compared: int = 0
) -> list[CheckOutcome]:
    """Steps, layers, size and rows of what is left when these vectors are taken away."""
    z = left_over(steps, vectors)
    pairs = list(zip(steps, vectors, strict=True))
    none = all(np.linalg.norm(s.published - v) <= 3.0 * s.tolerance for s, v in pairs)
    if none:
        silent = "There is no noise to be looked at."
        others = [unchecked(key, silent) for key in ("noise-steps", "noise-layers", "noise-rows")]
        return [_size(z, steps, none), *others]
    between = between_steps(z, steps, layers, compared)
    if between.status == "failed":
        z = z[:1]  # the others are no news
    size = _size(z, steps, none)
    return [between, size, _layers(z, layers, size), _rows(z / max(size.value or 0.0, 1.0e-300), layers)]


def _size(z: Array, steps: Sequence[Recomputed], none: bool) -> CheckOutcome:
    ratio = float(np.sqrt(np.mean(z**2)))
    p = float(size_p_value(float(np.sum(z**2)), z.size))
    bad = p < SHARE and abs(ratio - 1.0) > LEAST
    sentence = f"The noise is as large as declared ({number(ratio, 'nearest')} times)."
    if bad:
        sentence = f"The noise is {number(ratio, 'nearest')} times as large as declared{_noise_words(ratio, steps)}."
    if none:
        sentence = "There is no noise in the recorded gradients, where a standard deviation was declared."
    return CheckOutcome(
        check="noise-size",
        title=TITLES["noise-size"],
        status="failed" if bad else "passed",
        sentence=sentence,
        value=ratio,
        expected=1.0,
        p_value=p,
    )


def _noise_words(ratio: float, steps: Sequence[Recomputed]) -> str:
    sizes = {step.size for step in steps}
    if len(sizes) == 1 and (n := sizes.pop()) > 1:
        for value, words in (
            (1.0 / n, "as if divided by the batch size once more"),
            (float(n), "as if not divided by the batch size"),
            (1.0 / math.sqrt(n), "as if averaged like gradients of a batch"),
        ):
            if abs(ratio / value - 1.0) < 0.05:
                return f", {words}"
    return ""


def _layers(z: Array, layers: Sequence[Layer], size: CheckOutcome) -> CheckOutcome:
    bad, ratio = size.status == "failed", size.value or 1.0
    if len(layers) < 2:
        return passed("noise-layers", "There is one layer only, and its noise is judged by its size.")
    squares = np.array([float(np.sum(z[:, layer.place] ** 2)) for layer in layers])
    dofs = np.array([float(z[:, layer.place].size) for layer in layers])
    ratios = np.sqrt(squares / dofs)
    p = np.minimum(1.0, size_p_value(squares, dofs) * len(layers))
    odd = [i for i in range(len(layers)) if p[i] < SHARE and abs(ratios[i] - 1.0) > LEAST]
    alike = bad and bool(np.all(np.abs(ratios / ratio - 1.0) < 0.2))
    worst = int(np.argmin(p))
    if odd and not alike:
        names = listed([f"{layers[i].name} ({number(ratios[i], 'nearest')} times)" for i in odd[:4]])
        more = f" and {len(odd) - 4} more" if len(odd) > 4 else ""
        sentence = f"The noise is not as large as declared in {names}{more}."
    else:
        sentence = f"The noise is alike in all {count(len(layers))} parameters" + ("." if bad else ", and as declared.")
    return CheckOutcome(
        check="noise-layers",
        title=TITLES["noise-layers"],
        status="failed" if odd and not alike else "passed",
        sentence=sentence,
        value=float(ratios[worst]),
        expected=1.0,
        p_value=float(p.min()),
    )


def _rows(z: Array, layers: Sequence[Layer]) -> CheckOutcome:
    """Rows and columns of weight matrices: their noise is shared by none, and missing in none. z : unit variance."""
    tests: list[tuple[float, str, float]] = []
    for layer in layers:
        if len(layer.shape) < 2 or layer.shape[0] < 2:
            continue
        block = z[:, layer.place].reshape(len(z), layer.shape[0], -1)
        by_row = block.transpose(1, 0, 2).reshape(layer.shape[0], -1)
        p, strength = shared_noise(by_row)
        tests.append(
            (p, f"Rows of {layer.name} share their noise (correlation {number(strength, 'nearest')})", strength)
        )
        if block.shape[2] > 1:
            p, strength = shared_noise(block.transpose(2, 0, 1).reshape(block.shape[2], -1))
            words = f"Columns of {layer.name} share their noise (correlation {number(strength, 'nearest')})"
            tests.append((p, words, strength))
            tests.append(
                _odd_line(block.transpose(2, 0, 1).reshape(block.shape[2], -1), f"Column {{}} of {layer.name}")
            )
        tests.append(_odd_line(by_row, f"Row {{}} of {layer.name}"))
    tests += _same_seed(z, layers)
    if not tests:
        return passed("noise-rows", "There is no weight matrix whose rows could share their noise.")
    p, words, value = min(tests)
    p = min(1.0, p * len(tests))
    if p < SHARE:
        return CheckOutcome(
            check="noise-rows",
            title=TITLES["noise-rows"],
            status="failed",
            sentence=f"{words}: an attacker can take it away by comparing them.",
            value=value,
            p_value=p,
        )
    return passed("noise-rows", "Rows and columns of weight matrices have noise of their own.", p=p)


def _odd_line(lines: Array, name: str) -> tuple[float, str, float]:
    """The row (or column) whose noise is least of the common size: p-value for all of them, words, its size."""
    own = size_p_value(np.sum(lines**2, axis=1), float(lines.shape[1])) * len(lines)
    odd = int(np.argmin(own))
    size = math.sqrt(float(np.mean(lines[odd] ** 2)))
    words = f"{name.format(odd)} has {number(size, 'nearest')} times the noise of the others"
    return min(1.0, float(own[odd])), words, size


def _same_seed(z: Array, layers: Sequence[Layer]) -> list[tuple[float, str, float]]:
    """Parameters whose noise begins alike, as if each was drawn from the same seed."""
    some = [layer for layer in layers if layer.place.stop - layer.place.start >= _FEW_ENTRIES][:_MOST_LAYERS]
    found = []
    for first, second in itertools.combinations(some, 2):
        size = min(layer.place.stop - layer.place.start for layer in (first, second))
        one, two = (z[:, layer.place.start : layer.place.start + size].reshape(-1) for layer in (first, second))
        cosine = float(one @ two) / max(float(np.linalg.norm(one) * np.linalg.norm(two)), 1.0e-300)
        p = float(cosine_p_value(np.array([cosine]), one.size)[0])
        words = f"{first.name} and {second.name} share their noise (correlation {number(cosine, 'nearest')})"
        found.append((p, words, cosine))
    return found


def _looks(chosen: int, compared: int) -> float:
    """How many pairs of steps stand behind each of those that are tested."""
    return max(1.0, compared * (compared - 1.0) / max(chosen * (chosen - 1.0), 1.0))


def between_steps(z: Array, steps: Sequence[Recomputed], layers: Sequence[Layer], compared: int = 0) -> CheckOutcome:
    """Whether what is left of different steps is uncorrelated. `compared` : steps among which these were chosen, those
    that look alike among them."""
    if len(steps) < 2:
        return unchecked("noise-steps", "One step is not enough to compare the noise of different steps.")
    # Where layers differ in noise, fewer entries count.
    sums = np.array([float(np.mean(z[:, layer.place] ** 2)) for layer in layers])
    sizes = np.array([layer.place.stop - layer.place.start for layer in layers])
    d = int(float(sizes @ sums) ** 2 / max(float(sizes @ sums**2), 1.0e-300) + 0.5)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(len(steps), 1)]
    tests = cosines.size + 1
    p_pair = float(np.min(cosine_p_value(cosines, d)))
    # Noise that is a little alike everywhere: all pairs together, nearly normal with variance 1/d each.
    p_all = normal_p_value(float(cosines.sum()) * math.sqrt(d / cosines.size))
    p = min(1.0, min(p_pair * _looks(len(steps), compared), p_all) * tests)
    i = int(np.argmax(np.abs(cosines)))
    first, second = (int(axis[i]) for axis in np.triu_indices(len(steps), 1))
    if p < SHARE:
        return CheckOutcome(
            check="noise-steps",
            title=TITLES["noise-steps"],
            status="failed",
            sentence=(
                f"The noise of steps {steps[first].index} and {steps[second].index} has a correlation of "
                f"{number(float(cosines[i]), 'nearest')}: it was drawn once and used again, or from the same seed, and "
                f"the {'difference' if cosines[i] > 0 else 'sum'} of two steps is free of it."
            ),
            value=float(cosines[i]),
            expected=0.0,
            p_value=p,
        )
    return passed(
        "noise-steps",
        f"The noise of {count(len(steps))} steps is uncorrelated (at most {number(abs(float(cosines[i])), 'up')})"
        + (f"; they include the most alike of {count(compared)}." if compared > len(steps) else "."),
        float(cosines[i]),
        0.0,
        p,
    )


# -- does a record look as the declared run must look? the recorded gradients against the members' own ----------------


Array = NDArray[np.float64]
_MOST_WORKERS: Final = 64
_REPEATED: Final = 0.5  # correlation from which on noise is the same again, and no effect of gradients
_TRIES: Final = 400  # of simulated faults, to tell whether they would be seen
_SHARES: Final = tuple(0.5 / 2 ** (i / 2) for i in range(15))  # of members who are replaced in such faults
_REPLACED: Final = 0.5  # share of the members whose replacement must be seen, or who was in is not checked
OWN_SIZE: Final = (
    "The sum of a batch is divided by the batch's own size, where batch_size, the declared number, was to divide it."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """What the published gradients are instead of `expected`: which check fails, in which words, and the vectors."""

    check: str
    sentence: str
    vectors: tuple[Array, ...]
    value: float | None = None
    expected: float | None = None
    p_value: float | None = None


def judge(
    steps: Sequence[Recomputed], *, layers: Sequence[Layer], clip_norm: float | None, compared: int = 0
) -> list[CheckOutcome]:
    """All that the steps say, one outcome for each check that applies. Steps with noise and without are told apart.

    `compared` : steps among which these were chosen, if they were chosen for looking alike."""
    quiet = [step for step in steps if step.noise_std == 0.0]
    noisy = [step for step in steps if step.noise_std > 0.0]
    found: dict[str, CheckOutcome] = {}
    judged = [*(_judge_noisy(noisy, layers, clip_norm, compared) if noisy else ())]
    judged += _direct(quiet, _plain_fault(quiet, clip_norm), clip_norm) if quiet else ()
    for one in judged:
        if one.check not in found or one.status == "failed":
            found[one.check] = one
    return [found[key] for key in TITLES if key in found]


def small_faults(
    steps: Sequence[Recomputed], outcomes: Sequence[CheckOutcome], *, clip_norm: float | None
) -> list[BeyondReach]:
    """What noise hides although these checks passed: how large a fault may be that is not seen."""
    noisy = [step for step in steps if step.noise_std > 0.0]
    right = {one.check for one in outcomes if one.status == "passed"}
    if not noisy or any(one.status == "failed" for one in outcomes):
        return []
    found = []
    if "noise-size" in right:
        error = 1.0 / math.sqrt(2.0 * sum(step.published.size for step in noisy))
        found.append(BeyondReach(fault="noise-size", up_to=max(SURE * error, LEAST)))
    if "scale" in right:
        found.append(BeyondReach(fault="scale", up_to=SURE * _pooled_factor(noisy)[1]))
    if (own := _own_size(noisy)) is not None and _visible(noisy, own.vectors) < SURE:
        found.append(BeyondReach(fault="own-size"))
    if "clipping" in right and clip_norm is not None:
        seen = _visible(noisy, [step.wider for step in noisy])
        found.append(BeyondReach(fault="clip-norm", up_to=(WIDER - 1.0) * SURE / max(seen, 1.0e-3)))
    if "members" in right:
        test = _members_test(noisy, 1.0)
        found.append(BeyondReach(fault="records", up_to=None if test is None else test.seen))
        found.append(BeyondReach(fault="inputs"))
    return found


def _judge_noisy(
    steps: Sequence[Recomputed], layers: Sequence[Layer], clip_norm: float | None, compared: int
) -> list[CheckOutcome]:
    why = _noisy_fault(steps, clip_norm)
    vectors = [s.expected for s in steps] if why is None else why.vectors
    repeats = between_steps(left_over(steps, vectors), steps, layers, compared)
    if repeats.status == "failed" and abs(repeats.value or 0.0) >= _REPEATED:
        # Tests over several steps count the same noise several times; what one step says holds.
        alone = _noisy_fault(steps[:1], clip_norm)
        others = _members_test(steps[:1], 1.0)
        if alone is None and (others is None or others.p_value >= SHARE):
            noise = judge_noise(steps, [s.expected for s in steps], layers, compared)
            return [*_direct(steps[:1], None, clip_norm), *noise]
    direct = _direct(steps, why, clip_norm)
    fails = next((one for one in direct if one.status == "failed"), None)
    if fails is not None and fails.check in ("members", "whole-clip"):  # then what is left is more than noise
        words = f"Not judged, since another check fails: {TITLES[fails.check].lower()}."
        return [*direct, *(unchecked(key, words) for key in TITLES if key.startswith("noise-"))]
    return [*direct, *judge_noise(steps, vectors, layers, compared)]


# -- what the published gradients are ---------------------------------------------------------------------------------


def _plain_fault(steps: Sequence[Recomputed], clip_norm: float | None) -> Explanation | None:
    """Without noise: None if all residuals are rounding; otherwise the first explanation that fits to rounding."""
    if all(np.linalg.norm(step.residual) <= step.tolerance for step in steps):
        return None
    for known in _clipping_faults(steps, clip_norm):
        pairs = list(zip(steps, known.vectors, strict=True))
        if all(np.linalg.norm(step.published - vector) <= 3.0 * step.tolerance for step, vector in pairs):
            return known
    factors = np.array([_factor(step.published, step.expected) for step in steps])
    scaled = [factor * step.expected for factor, step in zip(factors, steps, strict=True)]
    if all(
        np.linalg.norm(step.published - vector) <= 3.0 * max(1.0, abs(factor)) * step.tolerance
        for step, vector, factor in zip(steps, scaled, factors, strict=True)
    ):
        return _scaled(steps, factors, scaled)
    worst = max(steps, key=lambda step: float(np.linalg.norm(step.residual)) / max(step.largest, 1.0e-300))
    excess = float(np.linalg.norm(worst.residual)) / max(worst.largest, 1.0e-300)
    cosine = _cosine(worst.published, worst.expected)
    return Explanation(
        check="members",
        sentence=(
            f"At step {worst.index} the recorded gradient differs from the mean gradient of the listed records by "
            f"{number(excess, 'nearest')} times the largest contribution of one of them (cosine "
            f"{number(cosine, 'nearest')}): other records, another model, other data, randomness in the model or "
            "reduced precision."
        ),
        vectors=tuple(step.expected for step in steps),
        value=excess,
        expected=0.0,
    )


def _noisy_fault(steps: Sequence[Recomputed], clip_norm: float | None) -> Explanation | None:
    """With noise: the explanation that fits best, if a test along its direction refutes the declared run."""
    options = list(_clipping_faults(steps, clip_norm))
    slope, error = _pooled_factor(steps)
    scaled = tuple(slope * step.expected for step in steps)
    constant = _constant_factor(steps, slope, 3.0 * error, scaled)
    options += [constant] if (own := _own_size(steps)) is None else [constant, own]
    best, least = None, math.inf
    for option in options:
        shift = [(v - s.expected) / s.noise_std for v, s in zip(option.vectors, steps, strict=True)]
        length = _visible(steps, option.vectors)
        if length == 0.0:
            continue
        z = sum(float(d @ s.residual) / s.noise_std for d, s in zip(shift, steps, strict=True)) / length
        p = normal_p_value(z)
        left = sum(
            float(np.sum((s.published - v) ** 2)) / s.noise_std**2 for v, s in zip(option.vectors, steps, strict=True)
        )
        # One number was fitted to the scale: it has to be better by more than that.
        left += 4.0 if option is constant else 0.0
        if p < SHARE / len(options) and z > 0.0 and left < least:
            best, least = (option, p), left
    if best is None:
        return None
    option, p = best
    if option is constant:
        norms = np.array([float(np.linalg.norm(step.published)) for step in steps])
        held = norms > (1.0 - SAME) * norms.max()
        if slope < 1.0 and held.sum() > 1:  # with noise on them, norms agree by clipping only
            return _clipped_whole(norms.max(), int(held.sum()), [slope], scaled, p)
        if (other := _members_test(steps, slope)) is not None and other.p_value < SHARE:
            return _other_members(other, vectors=tuple(step.expected for step in steps))
    return Explanation(
        check=option.check,
        sentence=option.sentence,
        vectors=option.vectors,
        value=option.value,
        expected=option.expected,
        p_value=min(1.0, p * len(options)),
    )


def _clipping_faults(steps: Sequence[Recomputed], clip_norm: float | None) -> list[Explanation]:
    if clip_norm is None:
        return []
    limit = number(clip_norm, "nearest")
    short = all(float(np.linalg.norm(step.unclipped)) <= clip_norm for step in steps)  # then both are the same
    return [
        Explanation(
            check="clipping",
            sentence=(
                f"The gradients of single records were not clipped to the declared norm {limit}"
                + (": not at all, or only their mean." if short else ".")
            ),
            vectors=tuple(step.unclipped for step in steps),
        ),
        Explanation(
            check="clipping",
            sentence=(
                f"The mean gradient was clipped to the declared norm {limit}, not the gradient of each record: one "
                "record can move it by more than the noise was meant for."
            ),
            vectors=tuple(_clipped(step.unclipped, clip_norm) for step in steps),
        ),
        Explanation(
            check="clipping",
            sentence=(
                f"Each parameter of the model was clipped to the declared norm {limit} on its own, not the whole "
                "gradient of a record, which is longer."
            ),
            vectors=tuple(step.by_layer for step in steps),
        ),
        Explanation(
            check="clipping",
            sentence=f"The gradients of single records were clipped to a norm larger than {limit}, the declared one.",
            vectors=tuple(step.wider for step in steps),
        ),
    ]


def _own_size(steps: Sequence[Recomputed]) -> Explanation | None:
    """Poisson batches divided by their own size; None where that is the declared divisor."""
    if all(step.size in (0, step.divisor) for step in steps):
        return None
    vectors = tuple(step.expected * (step.divisor / max(step.size, 1)) for step in steps)
    return Explanation(check="scale", sentence=OWN_SIZE, vectors=vectors)


def _visible(steps: Sequence[Recomputed], vectors: Sequence[Array]) -> float:
    """How many standard deviations of the noise lie between these vectors and the expected ones."""
    pairs = zip(steps, vectors, strict=True)
    return math.sqrt(sum(float(np.sum((v - s.expected) ** 2)) / s.noise_std**2 for s, v in pairs))


def _scaled(steps: Sequence[Recomputed], factors: Array, vectors: Sequence[Array]) -> Explanation:
    """The published gradients are the expected ones times a factor each."""
    low, high = float(factors.min()), float(factors.max())
    if high - low <= SAME * max(abs(high), abs(low)):
        return _constant_factor(steps, float(factors.mean()), SAME * abs(high), tuple(vectors))
    own = np.array([step.divisor / step.size if step.size else 1.0 for step in steps])
    if np.allclose(factors, own, rtol=SAME):
        return Explanation(check="scale", sentence=OWN_SIZE, vectors=tuple(vectors))
    norms = np.array([float(np.linalg.norm(step.published)) for step in steps])
    cut = factors < 1.0 - SAME
    if high <= 1.0 + SAME and np.ptp(norms[cut]) <= SAME * norms[cut].max():
        return _clipped_whole(float(norms[cut].max()), int(cut.sum()), factors[cut].tolist(), tuple(vectors), None)
    return Explanation(
        check="scale",
        sentence=(
            f"The recorded gradient is a multiple of the members' mean gradient that changes from step to step, "
            f"between {number(low, 'nearest')} and {number(high, 'nearest')}."
        ),
        vectors=tuple(vectors),
        value=high if abs(math.log(max(high, 1e-300))) > abs(math.log(max(low, 1e-300))) else low,
        expected=1.0,
    )


def _clipped_whole(
    norm: float, clipped: int, factors: Sequence[float], vectors: tuple[Array, ...], p: float | None
) -> Explanation:
    between = f"about {number(factors[0], 'nearest')}"
    if len(factors) > 1:
        between = f"{number(min(factors), 'nearest')} to {number(max(factors), 'nearest')}"
    return Explanation(
        check="whole-clip",
        sentence=(
            f"The gradient of a whole batch was clipped to norm {number(norm, 'nearest')} at {count(clipped)} of "
            f"{count(len(vectors))} steps (by factors of {between}), as clip_grad_norm_ does, and the record does not "
            "say so."
        ),
        vectors=vectors,
        value=min(factors),
        expected=1.0,
        p_value=p,
    )


def _constant_factor(
    steps: Sequence[Recomputed], factor: float, error: float, vectors: tuple[Array, ...]
) -> Explanation:
    sizes = {step.size for step in steps}
    words = named_factor(factor, error, sizes.pop() if len(sizes) == 1 else None)
    return Explanation(
        check="scale",
        sentence=f"The recorded gradient is {number(factor, 'nearest')} times the members' mean gradient{words}.",
        vectors=vectors,
        value=factor,
        expected=1.0,
    )


def named_factor(factor: float, error: float, size: int | None) -> str:
    """What a factor looks like, in words that begin with a comma, if one of the usual mistakes is within `error`."""
    usual: list[tuple[float, str]] = []
    if size is not None and size > 1:
        usual += [
            (float(size), f"the sum over a batch of {count(size)} instead of its mean"),
            (1.0 / size, f"the mean of a batch divided by its size of {count(size)} once more"),
        ]
    for k in range(2, _MOST_WORKERS + 1):
        usual.append((float(k), f"a sum over {k} processes or {k} accumulated batches instead of their mean"))
        usual.append((1.0 / k, f"divided once too often by {k} processes or {k} accumulated batches"))
    near = [(abs(factor - value), words) for value, words in usual if abs(factor - value) <= max(error, SAME * value)]
    if not near:
        return ""
    least = min(distance for distance, _ in near) + 1.0e-6 * abs(factor)
    return ", which looks like " + next(words for distance, words in near if distance <= least)


# -- outcomes ---------------------------------------------------------------------------------------------------------


def _direct(steps: Sequence[Recomputed], why: Explanation | None, clip_norm: float | None) -> list[CheckOutcome]:
    """Scale, whole-gradient clipping, clipping and members."""
    noisy = steps[0].noise_std > 0.0
    keys = ["scale", "whole-clip", *(["clipping"] if clip_norm is not None else []), "members"]
    found = []
    for key in keys:
        if why is not None and why.check == key:
            found.append(_failed(why))
        elif why is not None:
            found.append(unchecked(key, f"Not judged, since another check fails: {TITLES[why.check].lower()}."))
        elif key == "clipping":
            found.append(_clipping(steps, noisy, float(clip_norm or 0.0)))
        elif key == "members":
            found.append(_members(steps, noisy))
        elif key == "whole-clip":
            found.append(_whole_clip(steps, noisy))
        else:
            found.append(_scale(steps, noisy))
    return found


def _failed(why: Explanation) -> CheckOutcome:
    return CheckOutcome(
        check=why.check,
        title=TITLES[why.check],
        status="failed",
        sentence=why.sentence,
        value=why.value,
        expected=why.expected,
        p_value=why.p_value,
    )


def _scale(steps: Sequence[Recomputed], noisy: bool) -> CheckOutcome:
    if not noisy:
        worst = max(abs(_factor(step.published, step.expected) - 1.0) for step in steps)
        return passed(
            "scale",
            f"The recorded gradient is the members' mean gradient, to {number(max(worst, 1e-16), 'up')} of its size.",
            1.0 + worst,
            1.0,
        )
    slope, error = _pooled_factor(steps)
    p = normal_p_value((slope - 1.0) / error)
    if error > 1.0 / SURE:
        return unchecked(
            "scale",
            f"The noise hides the scale: the recorded gradient is {number(slope, 'nearest')} times the members' mean "
            f"gradient, give or take {number(error, 'up')}.",
        )
    return passed(
        "scale",
        f"The recorded gradient is {number(slope, 'nearest')} times the members' mean gradient, give or take "
        f"{number(error, 'up')}.",
        slope,
        1.0,
        p,
    )


def _whole_clip(steps: Sequence[Recomputed], noisy: bool) -> CheckOutcome:
    if not noisy:
        return passed("whole-clip", "No step was clipped as a whole, beyond what the record says.")
    # Factors of single steps that differ: chi-squared around the pooled one.
    slopes = np.array([_factor(step.published, step.expected) for step in steps])
    errors = np.array([step.noise_std / max(float(np.linalg.norm(step.expected)), 1.0e-300) for step in steps])
    if float(errors.max()) > 0.5 / SURE:
        return unchecked("whole-clip", "The noise hides whether single steps were scaled down as a whole.")
    squares = float(np.sum(((slopes - 1.0) / errors) ** 2))
    p = float(size_p_value(squares, len(steps)))
    if p < SHARE and squares > len(steps):
        return CheckOutcome(
            check="whole-clip",
            title=TITLES["whole-clip"],
            status="failed",
            sentence=(
                f"Steps are scaled by factors from {number(slopes.min(), 'nearest')} to "
                f"{number(slopes.max(), 'nearest')}, as clip_grad_norm_ does, and the record does not say so."
            ),
            value=float(slopes.min()),
            expected=1.0,
            p_value=p,
        )
    return passed("whole-clip", "No step was clipped as a whole, beyond what the record says.", p=p)


def _clipping(steps: Sequence[Recomputed], noisy: bool, clip_norm: float) -> CheckOutcome:
    moved = max(float(np.linalg.norm(step.unclipped - step.expected)) / step.tolerance for step in steps)
    if moved <= 1.0:
        return unchecked(
            "clipping",
            f"No record of the checked steps has a gradient beyond the clip norm {number(clip_norm, 'nearest')}: "
            "whether longer ones are clipped does not show.",
        )
    if noisy:
        # What makes records longer by less than WIDER is not among them: `small_faults` says how much is not seen.
        *gross, by_layer, _ = _clipping_faults(steps, clip_norm)
        longer = max(step.stretch for step in steps) > WIDER
        seen = [_visible(steps, one.vectors) for one in (*gross, *((by_layer,) if longer else ()))]
        if min(seen) < SURE:
            more = math.ceil(len(steps) * (SURE / max(min(seen), 1.0e-3)) ** 2)
            return unchecked(
                "clipping",
                f"The noise hides whether each record's gradient was clipped: {count(len(steps))} steps show a "
                f"difference of {number(min(seen), 'nearest')} standard deviations; about {count(more)} are needed.",
            )
    return passed("clipping", f"Each record's gradient was clipped to norm {number(clip_norm, 'nearest')}.")


def _members(steps: Sequence[Recomputed], noisy: bool) -> CheckOutcome:
    if not noisy:
        worst = max(float(np.linalg.norm(s.residual)) / max(s.largest, 1.0e-300) for s in steps)
        return passed(
            "members",
            "The recorded gradients follow from the listed members, the model and the data: what is left is "
            f"{percent(min(worst, 1.0), 'up')} of the largest contribution of one record.",
            worst,
            0.0,
        )
    found = _members_test(steps, 1.0)
    if found is None:
        return unchecked("members", "The members' gradients were not compared with the noise.")
    if found.p_value < SHARE:
        return _failed(_other_members(found, vectors=()))
    if found.seen > _REPLACED:
        return unchecked(
            "members",
            "The noise hides who was in: even with half of the members replaced by others, "
            f"{count(len(steps))} steps would look like these.",
        )
    words = "The recorded gradients follow from the listed members and noise."
    return passed("members", words, found.ratio, 1.0, found.p_value)


class _MembersTest(NamedTuple):
    """`ratio` : size of what is left in the directions of members' gradients, in units of noise. `seen` : share of
    members whose replacement by others is seen in four of five cases; 1 where none is."""

    p_value: float
    ratio: float
    seen: float


def _members_test(steps: Sequence[Recomputed], slope: float) -> _MembersTest | None:
    """Whether gradients of others are in what is left, `slope` times the expected gradients taken away.

    Without a fault what is left is noise. With a share s of the members replaced by others it is also a mean of
    differences of gradients, of covariance 2s S/n: in the eigenbasis of S, steps on the same records stacked into one,
    coordinates have variance 1 + 2s v_j instead of 1, and sum_j v_j/(1 + v_j) y_j^2 tells s = 1/2 best.
    """
    stacks: dict[bytes, list[Compared]] = {}
    for step in steps:
        if step.compared is None:
            return None
        stacks.setdefault(step.compared.ids.tobytes(), []).append(step.compared)
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


def _other_members(test: _MembersTest, *, vectors: tuple[Array, ...]) -> Explanation:
    p, ratio = test.p_value, test.ratio
    return Explanation(
        check="members",
        sentence=(
            "What is left of the recorded gradients without the listed members still looks like gradients of such "
            f"records ({number(ratio, 'nearest')} times the noise in their directions; chance: {chance(p)}): others "
            "were in, the model or the data changed, or the model is random."
        ),
        vectors=vectors,
        value=ratio,
        expected=1.0,
        p_value=p,
    )


# -- arithmetic -------------------------------------------------------------------------------------------------------


def _factor(published: Array, expected: Array) -> float:
    length = float(expected @ expected)
    return float(published @ expected) / length if length > 0.0 else math.inf


def _pooled_factor(steps: Sequence[Recomputed]) -> tuple[float, float]:
    """(factor, standard error) of published on expected, over steps with noise."""
    weight = sum(float(s.expected @ s.expected) / s.noise_std**2 for s in steps)
    if weight == 0.0:
        return 1.0, math.inf
    slope = sum(float(s.published @ s.expected) / s.noise_std**2 for s in steps) / weight
    return slope, 1.0 / math.sqrt(weight)


def _clipped(vector: Array, norm: float) -> Array:
    length = float(np.linalg.norm(vector))
    return vector if length <= norm else vector * (norm / length)


def _cosine(a: Array, b: Array) -> float:
    return float(a @ b) / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1.0e-300)
