"""Does a record look as the declared run must look? The recorded gradients against the members' own.

The auditor knows the members, the parameters and what was declared. Recorded gradient minus the members' mean (clipped)
gradient must be independent normal noise of the declared size, and nothing where none was declared. NumPy only:
`gmip.auditing.recompute` computes the gradients, `gmip.report.check_words` words the outcomes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from gmip.auditing.schema import CHECKS, BeyondReach, CheckFinding, CheckKey, CheckOutcome
from gmip.stats.flat import Flat
from gmip.stats.record_tests import (
    EQUAL_ENTRIES,
    cancelled_noise,
    cosine_p_value,
    dependent_noise,
    equal_entries,
    normal_p_value,
    quadratic_form_p_value,
    shape_p_value,
    shared_noise,
    size_p_value,
)

# -- what the run check goes by ---------------------------------------------------------------------------------------


WIDER: Final = (1.1, 1.25, 1.5, 2.0)  # times the declared clip norm: faults that the steps are compared with
LEVEL: Final = 0.01  # chance that a sound run fails, all checks together
SHARE: Final = LEVEL / 10  # of one check: there are at most ten in which chance plays a part
SURE: Final = 5.0  # standard deviations at which a fault is seen nearly always at that level
LIMIT: Final = 2.72  # standard deviations: each of three limits (scale, clip norm, noise) errs with a chance of LEVEL/3
PRECISE: Final = 0.03  # of the noise multiplier: limits that are closer need no more steps
_ANGLES: Final = 31  # at which two faults at once are looked at
LEAST: Final = 0.005  # relative error of scale or noise that is worth a word, however sure
SAME: Final = 1.0e-3  # relative difference up to which factors and norms are the same


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Where a parameter lies in the flat vectors, and its shape."""

    name: str
    place: slice
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class MemberProducts:
    """Gradients of k members at a step, less their mean, in units of the noise: inner products among them (k, k), with
    the residual (`against`) and with `expected` (`toward`), (k,) each. `batch_size` : of the step."""

    ids: NDArray[np.int64]
    inner: Array
    against: Array
    toward: Array
    batch_size: int


class Clippings(NamedTuple):
    """What a step would have published if its gradients had been clipped in other ways, length d each."""

    unclipped: Flat
    by_layer: Flat
    wider: tuple[Flat, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class RecomputedStep:
    """One recorded step, and the members' gradients at its parameters.

    Attributes
    ----------
    published : the recorded mean gradient, a known whole-gradient clip undone, length d.
    expected : sum of the batch's gradients, each clipped as declared, over `divisor`, length d.
    otherwise : what other ways of clipping would publish, computed when it is asked for: without clipping, with each
        parameter of the model clipped to the norm on its own, and with norms that are `WIDER` times as large; None:
        nothing is clipped.
    noise_std : declared; size, divisor : of the batch.
    contribution : mean norm of a record's part of the published gradient, times the records: sum of norms/divisor.
    largest : the largest norm of one record's part.
    tolerance : norm of the difference that rounding explains.
    products : some members' gradients against the residual, where there is noise.
    """

    index: int
    published: Flat
    expected: Flat
    otherwise: Callable[[], Clippings] | None
    noise_std: float
    size: int
    divisor: float
    contribution: float
    largest: float
    tolerance: float
    products: MemberProducts | None = None

    @property
    def residual(self) -> Flat:
        return self.published - self.expected

    @cached_property
    def moved(self) -> bool:
        """Whether clipping as declared moves the gradient by more than rounding."""
        return self.otherwise is not None and (self.otherwise().unclipped - self.expected).norm > self.tolerance


@dataclass(frozen=True, kw_only=True, eq=False)
class Look:
    """What one noisy step adds to the tests that pool steps: inner products, in units of its noise.

    Attributes
    ----------
    toward, gram : of the shifts by which faults would move the gradient: with what is left of the published one, (k,),
        and with each other, (k, k). The first is `expected` itself (a larger scale), then no clipping, clipping
        of the mean, of each layer, and to the norms of `WIDER`; where nothing is clipped, the first alone.
    by_layer : squared norms of what is left in each layer, and the numbers of its entries, shape (L,) each.
    own_size : what division by the batch's own size adds, as a multiple of `expected`.
    moved : whether clipping as declared moves the gradient by more than rounding.
    """

    index: int
    toward: Array
    gram: Array
    by_layer: tuple[Array, Array]
    own_size: float
    moved: bool

    @property
    def squares(self) -> Array:
        return np.diag(self.gram)


def look(step: RecomputedStep, layers: Sequence[Layer], clip_norm: float | None) -> Look:
    """The part of a noisy step that is kept when its vectors are not."""
    left = step.residual / step.noise_std
    shifts = [step.expected, *(v - step.expected for _, v in _clipped_otherwise(step, clip_norm))]
    toward, gram = np.zeros(len(shifts)), np.zeros((len(shifts), len(shifts)))
    for place in left.blocks():
        parts = np.stack([shift.part(place) for shift in shifts])
        parts /= step.noise_std
        toward += parts @ left.part(place)
        gram += parts @ parts.T
    own = step.divisor / step.size - 1.0 if step.size else 0.0
    return Look(
        index=step.index,
        toward=toward,
        gram=gram,
        by_layer=(
            np.array([left.squares(layer.place) for layer in layers]),
            np.array([float(layer.place.stop - layer.place.start) for layer in layers]),
        ),
        own_size=own,
        moved=step.moved,
    )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What steps with noise do not exclude, each with a chance of error of LEVEL/3: how much larger than declared the
    scale and the clip norm may be, and both together (`gain`: of a record's part of the gradient); how much smaller the
    noise, in all, in one layer and at one step; inf: nothing is known. `own_size` : whether Poisson batches may have
    been divided by their own size, so that a record moves the mean of the others, too: by at most as much again."""

    scale: float
    clip_norm: float
    gain: float
    noise: float
    noise_layer: float
    noise_step: float
    own_size: bool

    @property
    def precise(self) -> bool:
        """Whether more steps would change next to nothing about what is guaranteed."""
        return self.least_noise > 1.0 - PRECISE

    @property
    def least_noise(self) -> float:
        """The least noise multiplier that is not excluded, as a share of the declared one."""
        return (1.0 - self.noise) / (1.0 + self.gain)


def limits(looks: Sequence[Look], *, clip_norm: float | None, expected: bool = False) -> Limits:
    """The limits that these steps set. `expected` : as they would be if the noise left were exactly the declared one,
    which depends on the run's gradients but not on its noise: more steps are looked at by that alone."""
    toward = np.zeros_like(looks[0].toward) if expected else np.sum([one.toward for one in looks], axis=0)
    gram = np.sum([one.gram for one in looks], axis=0)
    squares = np.diag(gram)
    # A shift by t times a fault's is not excluded up to t = (toward + LIMIT sqrt(squares))/squares.
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(squares > 0.0, np.maximum(toward + LIMIT * np.sqrt(squares), 0.0) / squares, np.inf)
    wide, gain = 0.0, float(share[0])
    if clip_norm is not None:
        none, mean, by_layer, *wider = share[1:].tolist()
        # Along the norm the shift grows ever more slowly, so that a part of a shift that is excluded is excluded, too.
        wide = min((times - 1.0) * t if t < 1.0 else math.inf for times, t in zip(WIDER, wider, strict=True))
        gain = max(
            gain, min(_joint_gain(toward, gram, times, len(share) - i) for i, times in enumerate(WIDER[::-1], 1))
        )
        if by_layer >= 1.0:
            wide, gain = (max(one, math.sqrt(looks[0].by_layer[0].size) - 1.0) for one in (wide, gain))
        if max(none, mean) >= 1.0:
            wide = gain = math.inf
    own, length = _own_size_part(looks)
    divided = any(one.own_size for one in looks) and (0.0 if expected else own) > length * (length - LIMIT)
    if divided:
        gain = max(gain, 2.0 * (1.0 + max(one.own_size for one in looks)) - 1.0)
    noise, noise_layer, noise_step = _noise_limits(looks, expected)
    return Limits(
        scale=float(share[0]),
        clip_norm=wide,
        gain=gain,
        noise=noise,
        noise_layer=noise_layer,
        noise_step=noise_step,
        own_size=divided,
    )


def _joint_gain(toward: Array, gram: Array, times: float, place: int) -> float:
    """How much larger a record's part may be if the scale, and the clip norm by up to `times`, are too large at once.

    Shifts s e + t D of the scale and of the clip norm are excluded by the test along themselves."""
    most = 0.0
    for angle in np.linspace(0.0, 0.5 * math.pi, _ANGLES):
        u = np.array([math.cos(angle), math.sin(angle)])
        square = float(u @ gram[np.ix_([0, place], [0, place])] @ u)
        if square <= 0.0:
            return math.inf
        s, t = (float(one) for one in u * max(float(u @ toward[[0, place]]) + LIMIT * math.sqrt(square), 0.0) / square)
        most = max(most, (1.0 + s) * (1.0 + (times - 1.0) * t) - 1.0 if t < 1.0 else math.inf)
    return most


def _noise_limits(looks: Sequence[Look], expected: bool) -> tuple[float, float, float]:
    """By how much the noise may be smaller than declared: in all, in one layer, at one step."""
    lefts, sizes = (np.stack([one.by_layer[i] for one in looks]) for i in range(2))
    if expected:
        lefts = sizes
    layers = zip(lefts.sum(axis=0).tolist(), sizes.sum(axis=0).tolist(), strict=True)
    steps = zip(lefts.sum(axis=1).tolist(), sizes.sum(axis=1).tolist(), strict=True)
    return (
        _noise_limit(float(lefts.sum()), float(sizes.sum())),
        max(_noise_limit(*one) for one in layers),
        max(_noise_limit(*one, len(looks)) for one in steps),
    )


def _noise_limit(squares: float, dof: float, limits: int = 1) -> float:
    """By how much the noise may be smaller than declared: sums of squares have a chi-squared distribution. `limits` :
    that hold together with the chance of error of one."""
    return max(1.0 - math.sqrt(squares / float(special.chdtri(dof, LEVEL / 3.0 / limits))), 0.0)


def gradient_checks(clip_norm: float | None) -> tuple[CheckKey, ...]:
    """The checks of what the recorded gradients are, noise left out."""
    if clip_norm is None:
        return ("scale", "whole-clip", "members")
    return ("scale", "whole-clip", "clipping", "members")


def passed(check: CheckKey, finding: CheckFinding = "as-declared", /, **numbers: Any) -> CheckOutcome:
    return CheckOutcome(check=check, status="passed", finding=finding, **numbers)


def failed(check: CheckKey, finding: CheckFinding, /, **numbers: Any) -> CheckOutcome:
    return CheckOutcome(check=check, status="failed", finding=finding, **numbers)


def unchecked(check: CheckKey, finding: CheckFinding, /, **numbers: Any) -> CheckOutcome:
    """A check that could not be made."""
    return CheckOutcome(check=check, status="unchecked", finding=finding, **numbers)


def not_judged(check: CheckKey, other: CheckKey) -> CheckOutcome:
    """A check that means nothing while another one fails."""
    return unchecked(check, "other-check-failed", other=other)


# -- what is left of recorded gradients without the members' own ------------------------------------------------------


_FEW_ENTRIES: Final = 8  # of a parameter: fewer cannot be compared with another's
_MOST_LAYERS: Final = 40
_MANY: Final = 2000  # entries of noise, from which on their fourth moment is nearly normal, up to
_SHAPE: Final = 2**24  # entries whose distribution is looked at
_AT_ONCE: Final = (
    2**26
)  # entries of a parameter, of all steps, whose rows and columns are compared: of fewer steps else
_MOST_LINES: Final = 2048  # of a parameter, whose dependence is looked at
_ODD_TAILS: Final = 6.0  # of its standard deviations
_EQUAL: Final = 1.2  # times the equal entries that chance gives: fewer may come from the arithmetic
_HALF: Final = 0.5  # of the declared noise: where less is not excluded, its size was not checked
_ROW_FAULTS: Final[tuple[CheckFinding, ...]] = (  # of equal p-values the first is named
    "layers-share-noise",
    "odd-column",
    "columns-share-noise",
    "odd-row",
    "rows-share-noise",
    "noise-cancels",
    "noise-depends",
)


@dataclass(frozen=True, eq=False)
class Left:
    """What is left of the published gradients of some steps, in units of the noise: a row of length d for each."""

    rows: tuple[Flat, ...]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def entries(self) -> int:
        """Entries of a row."""
        return len(self.rows[0])

    def part(self, place: slice) -> Array:
        """Entries there, shape (steps, k)."""
        return np.stack([row.part(place) for row in self.rows])

    def some(self, places: Sequence[int]) -> Left:
        """The rows with these numbers."""
        return Left(tuple(self.rows[place] for place in places))

    def over(self, divisor: float) -> Left:
        return Left(tuple(row / divisor for row in self.rows))

    def mean(self, power: int, place: slice | None = None) -> float:
        """Mean of that power of the entries."""
        blocks = list(self.rows[0].blocks(place))
        total = math.fsum(float(np.sum(self.part(block) ** power)) for block in blocks)
        return total / float(len(self) * sum(block.stop - block.start for block in blocks))

    def squares(self) -> list[float]:
        """Sums of the squares of each row."""
        found = np.zeros(len(self))
        for place in self.rows[0].blocks():
            found += np.sum(self.part(place) ** 2, axis=1)
        return [float(one) for one in found]

    def cosines(self) -> Array:
        """The cosine of each pair of rows."""
        norms, found = np.array([row.norm for row in self.rows]), np.zeros((len(self), len(self)))
        for place in self.rows[0].blocks():
            unit = self.part(place) / np.maximum(norms, 1.0e-300)[:, None]
            found += unit @ unit.T
        return found[np.triu_indices(len(self), 1)]

    def sample(self, most: int) -> Array:
        """Every so-many-th entry, row after row, so that there are at most so many."""
        stride = -(-len(self) * self.entries // most)
        found = []
        for number, row in enumerate(self.rows):
            for place in row.blocks():
                first = -(number * self.entries + place.start) % stride
                found.append(row.part(place)[first::stride])
        return np.concatenate(found)


def left_over(steps: Sequence[RecomputedStep], vectors: Sequence[Flat]) -> Left:
    """Published gradients less these vectors, in units of the declared noise."""
    return Left(tuple((s.published - v) / s.noise_std for s, v in zip(steps, vectors, strict=True)))


def judge_noise(
    steps: Sequence[RecomputedStep],
    vectors: Sequence[Flat],
    layers: Sequence[Layer],
    compared: int = 0,
    more: Sequence[Look] = (),
) -> list[CheckOutcome]:
    """Steps, layers, size and rows of what is left when these vectors are taken away. `more` : steps of which the
    squares alone are known."""
    z = left_over(steps, vectors)
    pairs = list(zip(steps, vectors, strict=True))
    none = all((s.published - v).norm <= 3.0 * s.tolerance for s, v in pairs)
    if none:
        others: tuple[CheckKey, ...] = ("noise-steps", "noise-layers", "noise-rows")
        return [_noise_size(z, steps, none, (), compared), *(unchecked(key, "no-noise") for key in others)]
    between = between_steps(z, steps, layers, compared)
    if between.status == "failed":
        z, more = z.some([0]), ()  # the others are no news
    size = _noise_size(z, steps, none, more, compared)
    if size.at_steps:  # the other steps may still be as declared
        left = [i for i, step in enumerate(steps) if step.index not in size.at_steps]
        z, more = z.some(left or [0]), [one for one in more if one.index not in size.at_steps]
    squares, entries = _squares(z, more)
    ratio = math.sqrt(float(squares.sum() / entries.sum()))
    layered = _noise_layers(z, layers, size.status == "failed", ratio, more)
    rows = _noise_rows(z.over(max(ratio, 1.0e-300)), layers)
    if all(one.status != "failed" for one in (between, size, layered, rows)):
        equal, expected, p = equal_entries(z.sample(EQUAL_ENTRIES))
        if p < SHARE and equal > _EQUAL * expected and not any(_rounded(s.published) for s in steps):
            size = failed("noise-size", "noise-values-repeat", value=float(equal), expected=expected, p_value=p)
    return [between, size, layered, rows]


def _rounded(published: Flat) -> bool:
    """Whether what was published has half precision, so that equal entries say nothing about the noise."""
    halves = cut = True
    for place in published.blocks():
        single = published.part(place).astype(np.float32)
        with np.errstate(over="ignore"):
            half = single.astype(np.float16).astype(np.float32)
        halves = halves and np.array_equal(half, single)
        cut = cut and not np.any(single.view(np.uint32) & 0xFFFF)
    return halves or cut


def _squares(z: Left, more: Sequence[Look]) -> tuple[Array, Array]:
    """Sums of squares of what is left at each step, and the numbers of entries."""
    squares = [*z.squares(), *(float(one.by_layer[0].sum()) for one in more)]
    return np.array(squares), np.array([*[z.entries] * len(z), *(float(one.by_layer[1].sum()) for one in more)])


def _noise_size(
    z: Left, steps: Sequence[RecomputedStep], none: bool, more: Sequence[Look], compared: int
) -> CheckOutcome:
    each, sizes = _squares(z, more)
    squares, entries = float(each.sum()), float(sizes.sum())
    ratio = math.sqrt(squares / entries)
    p = float(size_p_value(squares, entries))
    bad = p < SHARE and abs(ratio - 1.0) > LEAST
    if not bad and (odd_steps := _odd_steps(each, sizes, [*steps[: len(z)], *more], compared)) is not None:
        return odd_steps
    size = len(z) * z.entries
    tails = z.mean(4) / max(z.mean(2), 1.0e-300) ** 2
    odd = (tails - 3.0) / math.sqrt(24.0 / size)
    shape = shape_p_value(z.sample(_SHAPE))
    if not bad and ((size >= _MANY and abs(odd) > _ODD_TAILS) or shape < SHARE):
        p = min(normal_p_value(odd), shape)
        return failed("noise-size", "noise-not-normal", value=tails, expected=3.0, p_value=p)
    if bad:
        finding = "no-noise" if none else _noise_finding(ratio, steps)
        return failed("noise-size", finding, value=ratio, expected=1.0, p_value=p)
    if _noise_limit(squares, entries) > _HALF:
        return unchecked("noise-size", "few-entries")
    return passed("noise-size", "no-noise" if none else "as-declared", value=ratio, expected=1.0, p_value=p)


def _odd_steps(
    squares: Array, entries: Array, steps: Sequence[RecomputedStep | Look], compared: int
) -> CheckOutcome | None:
    """Steps whose own noise is not of the declared size; None where there are none. `compared` : steps among which
    these may have been chosen for their norms."""
    p = np.minimum(1.0, size_p_value(squares, entries) * max(len(steps), compared))
    ratios = np.sqrt(squares / entries)
    odd = np.flatnonzero((p < SHARE) & (np.abs(ratios - 1.0) > LEAST)).tolist()
    if not odd:
        return None
    worst = min(odd, key=lambda i: float(ratios[i]))
    return failed(
        "noise-size",
        "noise-size",
        at_steps=(steps[worst].index, *sorted(steps[i].index for i in odd if i != worst)),
        value=float(ratios[worst]),
        expected=1.0,
        p_value=float(p[worst]),
    )


def _noise_finding(ratio: float, steps: Sequence[RecomputedStep]) -> CheckFinding:
    sizes = {step.size for step in steps}
    if len(sizes) == 1 and (n := sizes.pop()) > 1:
        usual: tuple[tuple[float, CheckFinding], ...] = (
            (1.0 / n, "noise-divided-twice"),
            (float(n), "noise-not-averaged"),
            (1.0 / math.sqrt(n), "noise-averaged"),
        )
        for value, finding in usual:
            if abs(ratio / value - 1.0) < 0.05:
                return finding
    return "noise-size"


def _noise_layers(z: Left, layers: Sequence[Layer], bad: bool, ratio: float, more: Sequence[Look]) -> CheckOutcome:
    """`bad` : whether the size of the noise, `ratio` times the declared one, is a fault already."""
    if len(layers) < 2:
        return passed("noise-layers", "one-layer")
    dofs = np.array([float(len(z) * (layer.place.stop - layer.place.start)) for layer in layers])
    squares = np.array([z.mean(2, layer.place) for layer in layers]) * dofs
    squares, dofs = (np.sum([own, *(one.by_layer[i] for one in more)], axis=0) for i, own in enumerate((squares, dofs)))
    ratios = np.sqrt(squares / dofs)
    p = np.minimum(1.0, size_p_value(squares, dofs) * len(layers))
    odd = [i for i in range(len(layers)) if p[i] < SHARE and abs(ratios[i] - 1.0) > LEAST]
    alike = bad and bool(np.all(np.abs(ratios / ratio - 1.0) < 0.2))
    numbers = {"value": float(ratios[int(np.argmin(p))]), "expected": 1.0, "p_value": float(p.min())}
    if odd and not alike:
        return failed("noise-layers", "noise-layers-differ", layers=tuple(layers[i].name for i in odd), **numbers)
    if not bad and max(map(_noise_limit, squares.tolist(), dofs.tolist())) > _HALF:
        return unchecked("noise-layers", "few-entries")
    return passed("noise-layers", "same-in-every-layer" if bad else "as-declared", **numbers)


class _RowTest(NamedTuple):
    """One test of rows, columns or pairs of parameters."""

    p_value: float
    finding: CheckFinding
    layers: tuple[str, ...]
    value: float
    line: int = 0


def _noise_rows(z: Left, layers: Sequence[Layer]) -> CheckOutcome:
    """Rows and columns of weight matrices: their noise is shared by none, missing in none, and follows from no others';
    nor does that of a parameter add up to nothing, as if centred. z : unit variance."""
    tests: list[_RowTest] = []
    for layer in layers:
        name = (layer.name,)
        some = z.some(range(max(1, min(len(z), _AT_ONCE // (layer.place.stop - layer.place.start)))))
        part = some.part(layer.place)
        tests.append(_cancels(part.T, name))
        if len(layer.shape) < 2 or layer.shape[0] < 2:
            continue
        block = part.reshape(len(some), layer.shape[0], -1)
        kinds: tuple[tuple[Array, CheckFinding, CheckFinding], ...] = (
            (block.transpose(1, 0, 2), "rows-share-noise", "odd-row"),
            (block.transpose(2, 0, 1), "columns-share-noise", "odd-column"),
        )
        for lines, shared, odd in kinds:
            if len(lines) > 1:
                lines = lines.reshape(len(lines), -1)
                p, strength = shared_noise(lines)
                tests += [_RowTest(p, shared, name, strength), _odd_line(lines, odd, name), _cancels(lines, name)]
        tests += _dependent(some, block, layer, layers)
    tests += _same_seed(z, layers)
    # Dependence is named where no simpler fault explains it.
    plain = [one for one in tests if one.finding != "noise-depends"]
    odd_ones = [one for one in plain if one.p_value * len(tests) < SHARE] or tests
    worst = min(odd_ones, key=lambda one: (one.p_value, _ROW_FAULTS.index(one.finding)))
    p = min(1.0, worst.p_value * len(tests))
    if p >= SHARE:
        matrix = len(tests) > len(layers)
        return passed("noise-rows", "as-declared" if matrix else "no-matrix", p_value=p)
    return failed(
        "noise-rows",
        worst.finding,
        layers=worst.layers,
        line=worst.line if worst.finding in ("odd-row", "odd-column") else None,
        value=worst.value,
        p_value=p,
    )


def _dependent(z: Left, block: Array, layer: Layer, layers: Sequence[Layer]) -> list[_RowTest]:
    """Whether columns of a weight matrix, and biases with an entry for each row, depend linearly on each other; and
    rows likewise. `block` : its noise, shape (steps, rows, columns)."""
    found = []
    for lines in (block, block.transpose(0, 2, 1)):  # samples are steps and the second axis
        samples, size = len(lines) * lines.shape[1], lines.shape[2]
        if not size <= min(samples, _MOST_LINES):
            continue
        also = [one for one in layers if one.shape == (lines.shape[1],)][: min(samples, _MOST_LINES) - size]
        biases = np.stack([z.part(one.place) for one in also], axis=2) if also else np.zeros((*lines.shape[:2], 0))
        gram = np.zeros((size + len(also),) * 2)
        for noise, bias in zip(lines, biases, strict=True):
            gram[:size, :size] += noise.T @ noise
            gram[:size, size:] += noise.T @ bias
            gram[size:, size:] += bias.T @ bias
        gram[size:, :size] = gram[:size, size:].T
        names = (layer.name, *(one.name for one in also))
        p, least = dependent_noise(gram, samples)
        found.append(_RowTest(p, "noise-depends", names, least))
    return found


def _cancels(lines: Array, layer: tuple[str, ...]) -> _RowTest:
    """Whether lines of a parameter add up to less noise than they must."""
    size = math.sqrt(float(np.mean(lines.sum(axis=0) ** 2)) / len(lines))
    return _RowTest(cancelled_noise(lines), "noise-cancels", layer, size)


def _odd_line(lines: Array, finding: CheckFinding, layer: tuple[str, ...]) -> _RowTest:
    """The row (or column) whose noise is least of the common size; its p-value is for all of them."""
    own = size_p_value(np.sum(lines**2, axis=1), float(lines.shape[1])) * len(lines)
    odd = int(np.argmin(own))
    return _RowTest(min(1.0, float(own[odd])), finding, layer, math.sqrt(float(np.mean(lines[odd] ** 2))), odd)


def _same_seed(z: Left, layers: Sequence[Layer]) -> list[_RowTest]:
    """Parameters whose noise begins alike, as if each was drawn from the same seed."""
    some = [layer for layer in layers if layer.place.stop - layer.place.start >= _FEW_ENTRIES][:_MOST_LAYERS]
    found = []
    for first, second in itertools.combinations(some, 2):
        size = min(layer.place.stop - layer.place.start for layer in (first, second))
        one, two = (z.part(slice(layer.place.start, layer.place.start + size)).reshape(-1) for layer in (first, second))
        cosine = float(one @ two) / max(float(np.linalg.norm(one) * np.linalg.norm(two)), 1.0e-300)
        p = float(cosine_p_value(np.array([cosine]), one.size)[0])
        found.append(_RowTest(p, "layers-share-noise", (first.name, second.name), cosine))
    return found


def between_steps(z: Left, steps: Sequence[RecomputedStep], layers: Sequence[Layer], compared: int = 0) -> CheckOutcome:
    """Whether what is left of different steps is uncorrelated. `compared` : steps among which these were chosen, those
    that look alike among them."""
    if len(steps) < 2:
        return unchecked("noise-steps", "one-step")
    # Where layers differ in noise, fewer entries count.
    sums = np.array([z.mean(2, layer.place) for layer in layers])
    sizes = np.array([layer.place.stop - layer.place.start for layer in layers])
    d = int(float(sizes @ sums) ** 2 / max(float(sizes @ sums**2), 1.0e-300) + 0.5)
    cosines = z.cosines()
    tests = cosines.size + 1
    p_pair = float(np.min(cosine_p_value(cosines, d)))
    # Noise that is a little alike everywhere: all pairs together, nearly normal with variance 1/d each.
    p_all = normal_p_value(float(cosines.sum()) * math.sqrt(d / cosines.size))
    chosen, among = len(steps) * (len(steps) - 1.0), compared * (compared - 1.0)
    p = min(1.0, min(p_pair * max(1.0, among / chosen), p_all) * tests)  # the pairs that each one stands for
    i = int(np.argmax(np.abs(cosines)))
    first, second = (int(axis[i]) for axis in np.triu_indices(len(steps), 1))
    seen = {"steps": len(steps), "of_steps": max(len(steps), compared), "value": float(cosines[i]), "expected": 0.0}
    if p < SHARE:
        at = (steps[first].index, steps[second].index)
        return failed("noise-steps", "noise-repeats", at_steps=at, **seen, p_value=p)
    return passed("noise-steps", **seen, p_value=p)


# -- does a record look as the declared run must look? the recorded gradients against the members' own ----------------


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
    known, found = limits(looks, clip_norm=clip_norm), []
    if "noise-size" in right:
        found.append(BeyondReach(fault="noise-size", up_to=known.noise))
    if "noise-layers" in right and len(layers) > 1:
        found.append(BeyondReach(fault="noise-layer", up_to=known.noise_layer))
    if "noise-size" in right and len(looks) > 1:
        found.append(BeyondReach(fault="noise-step", up_to=known.noise_step))
    if "noise-size" in right:
        found += [BeyondReach(fault="noise-seed"), BeyondReach(fault="noise-dependence")]
    if "scale" in right:
        found.append(BeyondReach(fault="scale", up_to=known.scale))
    if known.own_size:
        found.append(BeyondReach(fault="own-size"))
    if "clipping" in right and clip_norm is not None:
        found.append(BeyondReach(fault="clip-norm", up_to=known.clip_norm))
    if "members" in right:
        test = _members_test(noisy, 1.0)
        found.append(BeyondReach(fault="records", up_to=None if test is None else test.seen))
        found.append(BeyondReach(fault="inputs"))
    found.append(BeyondReach(fault="counted"))
    return Hidden(tuple(found), known.least_noise)


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
    if repeats.status == "failed" and abs(repeats.value or 0.0) >= _REPEATED:
        # Tests over several steps count the same noise several times; what one step says holds.
        alone = _noisy_fault(steps[:1], looks[:1], clip_norm)
        others = _members_test(steps[:1], 1.0)
        if alone is None and (others is None or others.p_value >= SHARE):
            noise = judge_noise(steps, [s.expected for s in steps], layers, compared)
            return [*_direct(steps[:1], None, clip_norm, looks[:1]), *noise]
    direct = _direct(steps, why, clip_norm, looks)
    fails = next((one for one in direct if one.status == "failed"), None)
    if fails is not None and fails.check in ("members", "whole-clip"):  # then what is left is more than noise
        return [*direct, *(not_judged(key, fails.check) for key in CHECKS if key.startswith("noise-"))]
    return [*direct, *judge_noise(steps, vectors, layers, compared, more if why is None else ())]


# -- what the published gradients are ---------------------------------------------------------------------------------


def _plain_fault(steps: Sequence[RecomputedStep], clip_norm: float | None) -> Explanation | None:
    """Without noise: None if all residuals are rounding; otherwise the first explanation that fits to rounding."""
    if all(step.residual.norm <= step.tolerance for step in steps):
        return None
    for known in _clipping_faults(steps, clip_norm):
        pairs = list(zip(steps, known.vectors, strict=True))
        if all((step.published - vector).norm <= 3.0 * step.tolerance for step, vector in pairs):
            return known
    factors = np.array([_factor(step.published, step.expected) for step in steps])
    scaled = [factor * step.expected for factor, step in zip(factors, steps, strict=True)]
    if all(
        (step.published - vector).norm <= 3.0 * max(1.0, abs(factor)) * step.tolerance
        for step, vector, factor in zip(steps, scaled, factors, strict=True)
    ):
        return _scaled(steps, factors, scaled)
    worst = max(steps, key=lambda step: step.residual.norm / max(step.largest, 1.0e-300))
    excess = worst.residual.norm / max(worst.largest, 1.0e-300)
    outcome = failed("members", "members-differ", at_steps=(worst.index,), value=excess, expected=0.0)
    return Explanation(outcome, tuple(step.expected for step in steps))


def _noisy_fault(steps: Sequence[RecomputedStep], looks: Sequence[Look], clip_norm: float | None) -> Explanation | None:
    """With noise: the explanation that fits best, if a test along its direction refutes the declared run.

    `looks` : at these steps, and at more of them."""
    toward = np.sum([one.toward for one in looks], axis=0)
    squares = np.sum([one.squares for one in looks], axis=0)
    slope, error = _pooled_factor(looks)
    scaled = tuple(slope * step.expected for step in steps)
    constant = _constant_factor(steps, slope, 3.0 * error, scaled)
    # Each with what is left along its shift, and the shift's square.
    options = [
        (one, float(toward[i]), float(squares[i])) for i, one in enumerate(_clipping_faults(steps, clip_norm), 1)
    ]
    options.append((constant, (slope - 1.0) * float(toward[0]), (slope - 1.0) ** 2 * float(squares[0])))
    if (own := _own_size(steps)) is not None:
        along, length = _own_size_part(looks)
        options.append((own, along, length**2))
    best, most = None, -math.inf
    for option, along, square in options:
        if square == 0.0:
            continue
        z = along / math.sqrt(square)
        p = normal_p_value(z)
        # What is left less by, in squares. One number was fitted to the scale: it has to be better by more than that.
        gain = 2.0 * along - square - (4.0 if option is constant else 0.0)
        if p < SHARE / len(options) and z > 0.0 and gain > most:
            best, most = (option, p), gain
    if best is None:
        return None
    option, p = best
    if option is constant:
        norms = np.array([step.published.norm for step in steps])
        held = norms > (1.0 - SAME) * norms.max()
        if slope < 1.0 and held.sum() > 1:  # with noise on them, norms agree by clipping only
            return _clipped_whole(norms.max(), int(held.sum()), [slope], scaled, p)
        if (other := _members_test(steps, slope)) is not None and other.p_value < SHARE:
            return Explanation(_others_left(other), tuple(step.expected for step in steps))
    outcome = option.outcome.model_copy(update={"p_value": min(1.0, p * len(options))})
    return Explanation(outcome, option.vectors)


def _clipped_otherwise(step: RecomputedStep, clip_norm: float | None) -> list[tuple[CheckFinding, Flat]]:
    """The gradients that other ways of clipping would publish."""
    if clip_norm is None or step.otherwise is None:
        return []
    others = step.otherwise()
    return [
        ("unclipped", others.unclipped),
        ("clipped-mean", _clipped(others.unclipped, clip_norm)),
        ("clipped-by-layer", others.by_layer),
        *(("clipped-wider", wider) for wider in others.wider),
    ]


def _clipping_faults(steps: Sequence[RecomputedStep], clip_norm: float | None) -> list[Explanation]:
    if clip_norm is None:
        return []
    found, others = [], [_clipped_otherwise(step, clip_norm) for step in steps]
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


def _own_size_part(looks: Sequence[Look]) -> tuple[float, float]:
    """What is left along the shift of such division, times its length; and its length, in units of the noise."""
    along = sum(one.own_size * float(one.toward[0]) for one in looks)
    return along, math.sqrt(sum(one.own_size**2 * float(one.squares[0]) for one in looks))


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


def _clipped(vector: Flat, norm: float) -> Flat:
    length = vector.norm
    return vector if length <= norm else vector * (norm / length)
