"""The least noise (or the batch size, or the number of steps) that keeps a run within a privacy target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from scipy.special import ndtri

from gmip import _validate as check
from gmip.accounting._epoch import coarse_epochs
from gmip.accounting.account import Composition, account, as_runs
from gmip.accounting.convert import mu_from_epsilon_delta
from gmip.accounting.step import Bound
from gmip.errors import InvalidArgument, UnreachableTarget
from gmip.vocabulary import NoisySGD, PrivacyTarget, Recipe

SolveFor = Literal["noise_std", "batch_size", "num_steps"]
SOLVABLE: tuple[SolveFor, ...] = ("noise_std", "batch_size", "num_steps")
Hold = Literal["steps", "epochs"]

TOLERANCE = 1.0e-6  # of the target, on the safe side of it
GRID_TOLERANCE = 1.0e-3  # the same, for shuffled epochs: as fine as the grid of their losses is
LOOSE_TOLERANCE = 1.0e-2  # the same, for curves that are found by search and are not smooth
MAX_STEPS = 10**9
FIRST_REACH = 0.05  # half of the first step away from where a search starts, in the logarithm of the noise
_FARTHEST = 600.0  # natural logarithm of the noise multiplier at which the search gives up


@overload
def calibrate(run: NoisySGD, target: PrivacyTarget | None = ..., /, **options: Any) -> NoisySGD: ...
@overload
def calibrate(run: Sequence[NoisySGD], target: PrivacyTarget | None = ..., /, **options: Any) -> list[NoisySGD]: ...
def calibrate(
    run: NoisySGD | Sequence[NoisySGD],
    target: PrivacyTarget | None = None,
    /,
    *,
    bound: Bound = "tight",
    composition: Composition = "exact",
    solve_for: SolveFor = "noise_std",
    hold: Hold = "steps",
    **wanted: Any,
) -> NoisySGD | list[NoisySGD]:
    """The run changed as little as needed to meet a target.

    Parameters
    ----------
    run : the run; its own noise_std is ignored when noise is solved for. For a schedule (a sequence of runs)
        one factor scales the noise of all phases; if none has any, all get the same noise multiplier.
    target, wanted : what to keep, and for whom: a `PrivacyTarget`, or its keywords, as in target_mu=0.4 or
        target_tpr=(0.05, 0.01). The run that is returned says how many rows a person has, but no more of for whom:
        give `account` the same notion, susceptibility and attacker_knows.
    bound, composition : as in `account`.
    solve_for : "noise_std" gives the least noise on the batch MEAN (0 when none is needed); "num_steps" the largest
        number of steps at the run's noise (at most 1e9); "batch_size" the smallest batch at the run's noise.
    hold : with solve_for="batch_size", what stays: the number of "steps", or of "epochs" (steps times batch size).

    Guarantees
    ----------
    The returned run meets the target (measured <= target) by the accounting asked for. With noise, measured is within
    1e-6 of the target, relatively: less noise would miss it (1e-3 with epochs, as fine as their grid is; 1e-2
    for a random record, whose curve is found by search).

    Raises
    ------
    UnreachableTarget
        With one sentence why no setting meets the target.
    """
    target = PrivacyTarget.of(target, wanted)
    runs = as_runs(run, target.rows_per_person)
    check.one_of("solve_for", solve_for, SOLVABLE)
    check.one_of("hold", hold, ("steps", "epochs"))

    whose = target.whose

    def measured(candidate: Sequence[NoisySGD]) -> float:
        return account(candidate, bound=bound, composition=composition, **whose).exposure(target)

    if solve_for != "noise_std":
        if not isinstance(run, NoisySGD):
            raise InvalidArgument(
                "is found for a single run, not for a schedule",
                argument="solve_for",
                value=solve_for,
                remedy="pass one NoisySGD, or solve for 'noise_std'",
            )
        if solve_for == "num_steps":
            return _most_steps(runs[0], target, lambda one: measured([one]))
        return _smallest_batch(runs[0], target, lambda one: measured([one]), hold)
    found = _least_noise(runs, target, measured, bound)
    return found[0] if isinstance(run, NoisySGD) else found


def with_least_noise(recipe: Recipe, num_params: int, target: PrivacyTarget | None = None, **options: Any) -> Recipe:
    """The recipe with the least noise that meets a target; arguments as in `calibrate`."""
    return recipe.replace(noise_std=calibrate(recipe.run(num_params), target, **options).noise_std)


def _least_noise(
    runs: list[NoisySGD],
    target: PrivacyTarget,
    measured: Callable[[Sequence[NoisySGD]], float],
    bound: Bound,
) -> list[NoisySGD]:
    quiet = [r.replace(noise_std=0.0) for r in runs]
    shuffled = any(r.in_epochs for r in runs)
    with coarse_epochs():  # which only shuffled epochs take notice of
        without = measured(quiet)
    if without <= target.value or (shuffled and without <= 2.0 * target.value and measured(quiet) <= target.value):
        return quiet
    if any(r.clip_norm is None for r in runs):
        raise InvalidArgument(
            f"is missing: without noise the run misses {target}, and noise needs gradients clipped to a norm",
            argument="clip_norm",
            remedy="add it",
        )
    scales = _noise_scales(runs)

    def with_noise(log_factor: float) -> list[NoisySGD]:
        return [r.replace(noise_std=math.exp(log_factor) * scale) for r, scale in zip(runs, scales, strict=True)]

    def rough(candidate: list[NoisySGD]) -> float:
        """A cheap stand-in to start from: the CLT with a single susceptibility."""
        plain: dict[str, Any] = {"max_batch_size": None, "rows_per_person": 1}
        drawn = [r.replace(**plain, sampling="fixed" if r.in_epochs else r.sampling) for r in candidate]
        return account(drawn, bound=bound, composition="clt", notion=target.notion).equivalent_mu()

    if any(r.max_batch_size is not None for r in runs) and measured(with_noise(_FARTHEST)) > target.value:
        raise UnreachableTarget(
            f"{target} is missed by the chance alone that a batch is cut to `max_batch_size`",
            remedy="raise `max_batch_size`",
        )
    if not all(scales) and measured(with_noise(_FARTHEST)) > target.value:
        raise UnreachableTarget(
            f"{target} is missed by the phases without noise alone, however much the others have",
            remedy="give every phase a `noise_std`",
        )
    start = _bracketed(lambda x: _safe_log(rough(with_noise(x)), _rough_mu(target)), 0.0, 1e-2)

    def excess(log_factor: float) -> float:
        return _safe_log(measured(with_noise(log_factor)), target.value)

    reach = FIRST_REACH
    tolerance = LOOSE_TOLERANCE if isinstance(target.susceptibility, str) else GRID_TOLERANCE if shuffled else TOLERANCE
    if shuffled:  # come near on coarse grids, which take a twentieth of the time
        with coarse_epochs():
            start = _bracketed(excess, start, tolerance)
        reach = 0.1 * tolerance
    return with_noise(_bracketed(excess, start, tolerance, reach))


def _noise_scales(runs: list[NoisySGD]) -> list[float]:
    """The noise of each phase for a factor of 1: as given, or a noise multiplier of 1 in each."""
    given = [r.noise_std for r in runs]
    if len(runs) > 1 and any(given):
        return given
    return [r.clip_norm / r.batch_size for r in runs if r.clip_norm is not None]


def _rough_mu(target: PrivacyTarget) -> float:
    """About the mu of a Gaussian curve that just meets the target: where the search begins."""
    if target.rate is not None:
        tpr, fpr = target.rate.tpr, target.rate.fpr
        return float(ndtri(tpr) - ndtri(fpr)) if tpr < 1.0 else 10.0
    if target.delta is not None:
        return mu_from_epsilon_delta(epsilon=target.value, delta=target.delta)
    if target.target_mu is not None:
        return target.target_mu
    return 2.0 * float(ndtri(0.5 + 0.5 * min(target.value, 1.0 - 1e-12)))


def _safe_log(measured: float, wanted: float) -> float:
    """log(measured/wanted), the function whose zero is sought."""
    if measured <= 0.0:
        return -math.inf
    return math.log(measured) - math.log(wanted) if measured < math.inf else math.inf


def _bracketed(excess: Callable[[float], float], start: float, tolerance: float, reach: float = FIRST_REACH) -> float:
    """An x with -tolerance <= excess(x) <= 0, for a function that falls from above 0 to below 0 as x grows.

    The bracket is widened from `start`, by twice `reach` and then further each time: nothing has to be known about
    where the zero lies. Inside it, Chandrupatla's method (1997): inverse quadratic interpolation where that is safe,
    bisection elsewhere. Where the function jumps over the wanted interval, the least double that meets the target is
    the answer.
    """
    x, f = start, excess(start) + 0.5 * tolerance
    if abs(f) <= 0.5 * tolerance:
        return x
    low, high = (x, math.inf) if f > 0.0 else (-math.inf, x)
    f_low = f_high = f
    while math.isinf(low) or math.isinf(high):
        # d log(exposure)/d log(noise) is near -1: go a little beyond where that leads.
        reach = max(2.0 * reach, min(1.2 * abs(f), 3.0) if math.isfinite(f) else 3.0)
        x = x + reach if f > 0.0 else x - reach
        if abs(x) > _FARTHEST:
            if f > 0.0:
                raise UnreachableTarget("No noise that a double can hold meets the target")
            return high
        f = excess(x) + 0.5 * tolerance
        if abs(f) <= 0.5 * tolerance:
            return x
        if f > 0.0:
            low, f_low = x, f
        else:
            high, f_high = x, f
    steep = math.isfinite(f_low) and math.isfinite(f_high) and high - low < FIRST_REACH  # almost straight in between
    x = low + (high - low) * (f_low / (f_low - f_high) if steep else 0.5)
    while not -0.5 * tolerance <= f_high:
        if not low < x < high:
            return high
        f = excess(x) + 0.5 * tolerance
        if 0.0 < f <= 0.5 * tolerance:
            return x
        if f > 0.0:
            previous, f_previous, low, f_low = low, f_low, x, f
            x = low + _share(low, f_low, high, f_high, previous, f_previous) * (high - low)
        else:
            previous, f_previous, high, f_high = high, f_high, x, f
            x = high + _share(high, f_high, low, f_low, previous, f_previous) * (low - high)
    return high


def _share(x1: float, f1: float, x2: float, f2: float, x3: float, f3: float) -> float:
    """How far to go from the newest point x1 towards the other end x2, x3 being the end that x1 replaced."""
    if f3 in (f1, f2) or not all(map(math.isfinite, (f1, f2, f3))):
        return 0.5
    xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
    if not (phi**2 < xi and (1.0 - phi) ** 2 < 1.0 - xi):
        return 0.5
    quadratic = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
    return min(max(quadratic, 1e-9), 1.0 - 1e-9)


def _most_steps(run: NoisySGD, target: PrivacyTarget, measured: Callable[[NoisySGD], float]) -> NoisySGD:
    def meets(steps: int) -> bool:
        return measured(run.replace(num_steps=steps)) <= target.value

    start = 1
    if run.in_epochs:  # come near on coarse grids, which take a twentieth of the time
        with coarse_epochs():
            start = _most(meets, 1) if meets(1) else 1
    if not meets(start):
        start = 1
        if not meets(1):
            raise UnreachableTarget(
                f"{target} is already missed after one step ({measured(run.replace(num_steps=1)):.4g})",
                remedy="add noise, or take larger batches",
            )
    return run.replace(num_steps=_most(meets, start))


def _most(meets: Callable[[int], bool], low: int) -> int:
    """The largest number up to MAX_STEPS that meets the target, given that `low` does."""
    reach = max(low // 500, 1)
    high = min(low + reach, MAX_STEPS)
    while low < MAX_STEPS and meets(high):
        low, reach = high, 2 * reach
        high = min(low + reach, MAX_STEPS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def _smallest_batch(
    run: NoisySGD, target: PrivacyTarget, measured: Callable[[NoisySGD], float], hold: Hold
) -> NoisySGD:
    if run.sampling == "full":
        raise InvalidArgument(
            "fixes `batch_size` to `dataset_size`",
            argument="sampling",
            value=run.sampling,
            remedy="solve for `noise_std` or `num_steps`",
        )

    def at(size: int) -> NoisySGD:
        steps = run.num_steps if hold == "steps" else max(1, math.ceil(run.num_steps * run.batch_size / size))
        return run.replace(batch_size=size, num_steps=steps)

    size, best, least = smallest_that_meets(
        lambda size: measured(at(size)),
        target.value,
        lowest=1,
        highest=min(run.max_batch_size or run.dataset_size, run.dataset_size),
    )
    if size is None:
        raise UnreachableTarget(
            f"{target} is met by no batch size (the best, {best}, gives {least:.4g})",
            remedy="add noise or take fewer steps",
        )
    return at(size)


def smallest_that_meets(
    measured: Callable[[int], float], limit: float, *, lowest: int, highest: int
) -> tuple[int | None, int, float]:
    """The smallest batch size whose exposure is at most `limit` (None: none is), the best size seen, and its exposure.

    The exposure first falls with the batch (each record weighs less) and, with the steps held, rises again (each record
    is seen more often): look at sizes spread evenly in the logarithm, then close in.
    """
    share = math.log(highest / lowest) / math.log(highest) if 1 < lowest < highest else 1.0
    points = max(4, math.ceil(24 * share))
    sizes = sorted({min(highest, math.ceil(lowest * (highest / lowest) ** (i / points))) for i in range(points + 1)})
    values: dict[int, float] = {}

    def value(size: int) -> float:
        if size not in values:
            values[size] = measured(size)
        return values[size]

    high = next((size for size in sizes if value(size) <= limit), None)
    if high is None:
        best = min(sizes, key=value)
        i = sizes.index(best)
        left, right = sizes[max(i - 1, 0)], sizes[min(i + 1, len(sizes) - 1)]
        while right - left > 3:
            a, b = left + (right - left) // 3, right - (right - left) // 3
            left, right = (left, b) if value(a) <= value(b) else (a, right)
        best = min(range(left, right + 1), key=value)
        if value(best) > limit:
            return None, best, value(best)
        low, high = sizes[max(i - 1, 0)], best
    else:
        low = max((size for size in sizes if size < high), default=lowest - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if value(middle) <= limit else (middle, high)
    return high, high, value(high)
