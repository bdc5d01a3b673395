"""What is left of recorded gradients without the members' own: independent noise of the declared size, or not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip._numbers import count, number
from gmip._validate import listed
from gmip.auditing.check_schema import CheckOutcome
from gmip.auditing.evidence import LEAST, SHARE, TITLES, Layer, Recomputed, passed, unchecked
from gmip.stats.residuals import cosine_p_value, normal_p_value, shared_noise, size_p_value

__all__ = ["between_steps", "judge_noise", "left_over"]

Array = NDArray[np.float64]
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
