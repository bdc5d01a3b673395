"""What is left of recorded gradients when the members' own are taken away: what that does not exclude, and whether it
is the declared noise.

It must be independent normal noise of the declared size, and nothing where none was declared.
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

from gmip.auditing.schema import CheckFinding, CheckKey, CheckOutcome
from gmip.stats.flat import Flat
from gmip.stats.record_tests import (
    EQUAL_ENTRIES,
    cancelled_noise,
    cosine_p_value,
    cut_off_p_value,
    dependent_noise,
    equal_entries,
    normal_p_value,
    shape_p_value,
    shared_noise,
    size_p_value,
)

Array = NDArray[np.float64]

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
    shifts = [step.expected, *(v - step.expected for _, v in clipped_otherwise(step, clip_norm))]
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
        wide, gain = _clip_limits(share.tolist(), toward, gram, looks[0].by_layer[0].size)
    own, length = own_size_part(looks)
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


def _clip_limits(share: Sequence[float], toward: Array, gram: Array, layers: int) -> tuple[float, float]:
    """How much larger than declared the clip norm, and a record's part of the gradient, may be."""
    scale, none, mean, by_layer, *wider = share
    if max(none, mean) >= 1.0:
        return math.inf, math.inf
    # Along the norm the shift grows ever more slowly, so that a part of a shift that is excluded is excluded, too.
    wide = min((times - 1.0) * t if t < 1.0 else math.inf for times, t in zip(WIDER, wider, strict=True))
    gain = max(scale, min(_joint_gain(toward, gram, times, len(share) - i) for i, times in enumerate(WIDER[::-1], 1)))
    least = math.sqrt(layers) - 1.0 if by_layer >= 1.0 else 0.0
    return max(wide, least), max(gain, least)


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


def clipped_otherwise(step: RecomputedStep, clip_norm: float | None) -> list[tuple[CheckFinding, Flat]]:
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


def own_size_part(looks: Sequence[Look]) -> tuple[float, float]:
    """What is left along the shift of such division, times its length; and its length, in units of the noise."""
    along = sum(one.own_size * float(one.toward[0]) for one in looks)
    return along, math.sqrt(sum(one.own_size**2 * float(one.squares[0]) for one in looks))


def _clipped(vector: Flat, norm: float) -> Flat:
    length = vector.norm
    return vector if length <= norm else vector * (norm / length)


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
_LEFT_BY_ROUNDING: Final = 1.0e-6  # of the variance of the noise
_CUT: Final = SHARE / 10  # chance that the noise of a sound run looks cut off
_EQUAL: Final = 1.2  # times the equal entries that chance gives: fewer may come from the arithmetic
_HALF: Final = 0.5  # of the declared noise: where less is not excluded, its size was not checked
_ROW_FAULTS: Final[tuple[CheckFinding, ...]] = (  # of equal p-values the first is named
    "layers-share-noise",
    "odd-column",
    "columns-share-noise",
    "odd-row",
    "rows-share-noise",
    "odd-entry",
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
        size = _odd_values(z, steps) or size
    return [between, size, layered, rows]


def _odd_values(z: Left, steps: Sequence[RecomputedStep]) -> CheckOutcome | None:
    """Whether entries of the noise are equal beyond chance and the arithmetic, or the largest are missing."""
    equal, expected, p = equal_entries(z.sample(EQUAL_ENTRIES))
    if p < SHARE and equal > _EQUAL * expected and not any(_rounded(s.published) for s in steps):
        return failed("noise-size", "noise-values-repeat", value=float(equal), expected=expected, p_value=p)
    if (p := cut_off_p_value(z.sample(_SHAPE))) < _CUT:
        tails = z.mean(4) / z.mean(2) ** 2
        return failed("noise-size", "noise-not-normal", value=tails, expected=3.0, p_value=p)
    return None


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
    if p < SHARE and abs(ratio - 1.0) > LEAST:
        finding = "no-noise" if none else _noise_finding(ratio, steps)
        return failed("noise-size", finding, value=ratio, expected=1.0, p_value=p)
    if (odd_steps := _odd_steps(each, sizes, [*steps[: len(z)], *more], compared)) is not None:
        return odd_steps
    size = len(z) * z.entries
    tails = z.mean(4) / max(z.mean(2), 1.0e-300) ** 2
    odd = (tails - 3.0) / math.sqrt(24.0 / size)
    shape = shape_p_value(z.sample(_SHAPE))
    if (size >= _MANY and abs(odd) > _ODD_TAILS) or shape < SHARE:
        return failed(
            "noise-size", "noise-not-normal", value=tails, expected=3.0, p_value=min(normal_p_value(odd), shape)
        )
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
    tests = [one for layer in layers for one in _layer_tests(z, layer, layers)] + _same_seed(z, layers)
    # Dependence is named where no simpler fault explains it.
    plain = [one for one in tests if one.finding != "noise-depends"]
    odd_ones = [one for one in plain if one.p_value * len(tests) < SHARE] or tests
    worst = min(odd_ones, key=lambda one: (one.p_value, _ROW_FAULTS.index(one.finding)))
    p = min(1.0, worst.p_value * len(tests))
    if p >= SHARE:
        matrix = len(tests) > 2 * len(layers)
        return passed("noise-rows", "as-declared" if matrix else "no-matrix", p_value=p)
    return failed(
        "noise-rows",
        worst.finding,
        layers=worst.layers,
        line=worst.line if worst.finding in ("odd-row", "odd-column", "odd-entry") else None,
        value=worst.value,
        p_value=p,
    )


def _layer_tests(z: Left, layer: Layer, layers: Sequence[Layer]) -> list[_RowTest]:
    """The tests of one parameter."""
    name = (layer.name,)
    some = z.some(range(max(1, min(len(z), _AT_ONCE // (layer.place.stop - layer.place.start)))))
    part = some.part(layer.place)
    tests = [_cancels(part.T, name), _odd_entry(part, name)]
    if len(layer.shape) < 2 or layer.shape[0] < 2:
        return tests
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
    return tests + _dependent(some, block, layer, layers)


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


def _odd_entry(part: Array, layer: tuple[str, ...]) -> _RowTest:
    """The entry whose noise over the steps, shape (steps, entries), is least of the declared size: one record alone may
    move it. Its p-value is for all entries."""
    steps, entries = part.shape
    squares = np.einsum("ij,ij->j", part, part)
    odd = int(np.argmin(squares))
    # Less than rounding leaves is no less: equal numbers at one step or two are no fault.
    p = float(special.chdtr(steps, max(float(squares[odd]), _LEFT_BY_ROUNDING * steps))) * entries
    return _RowTest(min(1.0, p), "odd-entry", layer, math.sqrt(float(squares[odd]) / steps), odd)


def entry_limit(steps: int, layers: Sequence[Layer]) -> float:
    """By how much the noise of one entry may be smaller than declared: where that of the least of all is expected."""
    sizes = [layer.place.stop - layer.place.start for layer in layers]
    seen, entries = max(1, min(steps, _AT_ONCE // max(sizes))), sum(sizes)
    return _noise_limit(float(special.chdtri(seen, 1.0 - 1.0 / max(entries, 2))), seen, entries)


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
