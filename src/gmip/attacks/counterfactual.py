"""Attacks by counterfactual distance: members lie farther from where the model changes its mind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtr
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gmip import _validate as check
from gmip._io import sha256
from gmip._progress import Progress
from gmip.attacks.arrays import Moments, Variance, standardised
from gmip.attacks.attack import Attack, AttackedRecords
from gmip.attacks.shadow import ShadowAttack, Signal
from gmip.attacks.signals import released_model
from gmip.attacks.work import Work
from gmip.errors import InvalidArgument, warn
from gmip.stats import ScoreSet
from gmip.stats.scores import Fact
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import one_table
from gmip.trace import ModelRecord
from gmip.training.models import has_classes, in_eval_mode

# -- a first counterfactual -------------------------------------------------------------------------------------------


KEPT: Final = 3  # rays of an input that are worth polishing
_STEPS: Final = 12
_OVERSHOOT: Final = 1.02  # of a linearised step, to end beyond the boundary
_RIVALS_SEEN: Final = 32  # classes of which the linearised distance is taken, the likeliest
_DIRECTIONS: Final = 16  # of the rescue, at random
_RADII: Final = 24  # of the rescue, each twice the one before, the last the reach
_SEED: Final = 0  # of directions, the same for all inputs: a distance does not depend on the inputs beside


def approach(region: Region, *, rivals: int, restarts: int, reach: float) -> Rays:
    """Up to `KEPT` rays to another class for each input, none for inputs without any within `reach`.

    First from the input towards its nearest rivals, then from points at random in the ball that the first rays leave.
    """
    every = torch.arange(len(region), device=region.origin.device)
    chosen = _rivals(region, every, rivals)
    count = chosen.shape[1]
    moves = region.origin.new_zeros(len(region) * count, region.origin.shape[1])
    row, moves = _linearised(region, every.repeat_interleave(count), chosen.flatten(), moves, reach)
    lost = ~torch.zeros_like(every, dtype=torch.bool).index_fill(0, row, True)
    if bool(lost.any()):
        found = _rescue(region, lost.nonzero()[:, 0], chosen[lost], reach)
        row, moves = torch.cat([row, found[0]]), torch.cat([moves, found[1]])
    rays = nearest(shortened(region, _rays(row, moves)), KEPT)
    if restarts == 0 or len(rays) == 0:
        return rays
    first = nearest(rays, 1)
    share = (1.0 + torch.arange(restarts)).to(region.origin) / (1.0 + restarts)
    begin = first.radius[:, None, None] * (share[:, None] * _directions(region, restarts))
    rival = chosen[:, torch.arange(restarts) % count][first.row]
    row, moves = _linearised(region, first.row.repeat_interleave(restarts), rival.flatten(), begin.flatten(0, 1), reach)
    return nearest(rays.joined(shortened(region, _rays(row, moves))), KEPT)


def _rays(row: Tensor, moves: Tensor) -> Rays:
    length = moves.norm(dim=1)
    nothing = torch.zeros_like(row)
    return Rays(row, moves / length[:, None], length, nothing, nothing > 0)


def _rivals(region: Region, every: Tensor, rivals: int) -> Tensor:
    """The other classes of smallest linearised distance, nearest first, shape (n, at most rivals)."""
    seen = min(max(_RIVALS_SEEN, rivals), region.scores.shape[1] - 1)
    likely = region.scores.scatter(1, region.own[:, None], -torch.inf).topk(seen, dim=1).indices
    distance = torch.empty(likely.shape, dtype=region.origin.dtype, device=likely.device)
    still = torch.zeros_like(region.origin)
    for k in range(seen):
        _, against, gradient = region.slope(every, still, likely[:, k])
        distance[:, k] = (against / gradient.norm(dim=1)).nan_to_num(torch.inf, torch.inf)
    return likely.gather(1, distance.argsort(dim=1, stable=True)[:, :rivals])


def _linearised(region: Region, row: Tensor, rival: Tensor, moves: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """(rows, moves) that came to another class. Each step goes to the shortest move at which the linear model of
    the margin against the rival, taken where the last step ended, is crossed."""
    found, todo = torch.zeros_like(moves), torch.arange(len(row), device=row.device)
    for _ in range(_STEPS):
        gap, against, gradient = region.slope(row[todo], moves, rival[todo])
        changed = gap < 0.0
        found[todo[changed]] = moves[changed]
        norm = gradient.norm(dim=1)
        keep = ~changed & (norm > 0.0) & norm.isfinite() & against.isfinite()
        todo, moves, gradient, against, norm = todo[keep], moves[keep], gradient[keep], against[keep], norm[keep]
        if len(todo) == 0:
            break
        normal = -gradient / norm[:, None]
        length = (normal * moves).sum(1) + against / norm
        # A model that has the input itself beyond the boundary is wrong: then half way back.
        forward = (_OVERSHOOT * length + region.resolution[row[todo]]).clamp(max=reach)[:, None] * normal
        moves = torch.where((length > 0.0)[:, None], forward, 0.5 * moves)
    arrived = found.any(1)
    return row[arrived], found[arrived]


def _rescue(region: Region, lost: Tensor, rivals: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """(rows, moves) for inputs that no linearised step helped: the first change on rays down the gradients, and at
    random."""
    still = torch.zeros_like(region.origin[lost])
    rays = [-region.slope(lost, still, rivals[:, k])[2] for k in range(rivals.shape[1])]
    rays += [ray.expand_as(still) for ray in _directions(region, _DIRECTIONS)]
    best = torch.full_like(still[:, 0], torch.inf)
    moves = torch.zeros_like(still)
    radii = reach * 2.0 ** torch.arange(1.0 - _RADII, 1.0).to(still)
    for ray in rays:
        ray = torch.nn.functional.normalize(ray, dim=1)
        tried = (radii[:, None] * ray[:, None]).flatten(0, 1)  # all radii at once: many calls with few rows are slow
        changed = (region.gap(lost.repeat_interleave(_RADII), tried) < 0.0).unflatten(0, (-1, _RADII))
        radius = torch.where(changed, radii, torch.inf).amin(1)
        nearer = radius < best
        best = torch.minimum(best, radius)
        moves[nearer] = radius[nearer, None] * ray[nearer]
    found = best.isfinite()
    return lost[found], moves[found]


def _directions(region: Region, count: int) -> Tensor:
    """Unit vectors, shape (count, D)."""
    drawn = torch.randn(count, region.origin.shape[1], generator=torch.Generator().manual_seed(_SEED))
    return torch.nn.functional.normalize(drawn.to(region.origin), dim=1)


# -- from some counterfactual to the nearest around -------------------------------------------------------------------


CUTS: Final = 8  # of a row; the first is that of its own point
_PIVOTS: Final = 24  # of a quadratic programme
_LANDINGS: Final = 5  # evaluations to land after a step; `land` does the rest
_NEAR_END: Final = 0.999  # of a radius: where to look first for the own class
_NEAR: Final = 0.02  # cuts from within this share of the distance may certify a corner
_PARALLEL: Final = 1.0e-5  # less than the cosine of two cuts
_LEAST_TRUST: Final = 1.0e-5  # then no step helps


@dataclass(eq=False)
class Rays:
    """Rows of a search: `row` (index of the example), unit `direction` (rows, D), `radius` (rows,) where the class has
    changed, `steps` taken and whether the row is `stationary`."""

    row: Tensor
    direction: Tensor
    radius: Tensor
    steps: Tensor
    stationary: Tensor

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, which: Tensor) -> Rays:
        return Rays(*(getattr(self, field.name)[which] for field in fields(self)))

    def put(self, which: Tensor, new: Rays) -> None:
        """Write rows back to where they were taken from."""
        for field in fields(self):
            getattr(self, field.name)[which] = getattr(new, field.name)

    def joined(self, other: Rays) -> Rays:
        """These rows and then the others."""
        return Rays(*(torch.cat([getattr(self, field.name), getattr(other, field.name)]) for field in fields(self)))

    @property
    def moves(self) -> Tensor:
        """Shape (rows, D)."""
        return self.radius[:, None] * self.direction


def polish(region: Region, rays: Rays, *, tolerance: float, max_steps: int) -> None:
    """Shorten the rays, in place, until no row's cuts allow a move shorter by more than a share `tolerance`.

    Only cuts from close by make a row `stationary` (Goldstein's criterion): in a smooth place the move is then parallel
    to the gradient of the margin, in a corner it is a combination of gradients around, with weights of 0 or more.
    """
    where = torch.arange(len(rays), device=rays.row.device)
    now, bundle = rays[where], _Bundle(region, rays)
    for _ in range(max_steps):
        shortest, now.stationary = bundle.settle(now, tolerance * now.radius + region.resolution[now.row])
        rest = ~now.stationary & (bundle.trust >= _LEAST_TRUST)
        if not bool(rest.all()):
            rays.put(where, now)
            where, now, shortest = where[rest], now[rest], shortest[rest]
            bundle.keep(rest)
        if len(now) == 0:
            return
        now.steps += 1
        _step(region, now, bundle, shortest)
    _, now.stationary = bundle.settle(now, tolerance * now.radius + region.resolution[now.row])
    rays.put(where, now)


def land(region: Region, rays: Rays, *, bisections: int) -> Tensor:
    """Bisect between the input and the end of each ray, in place; returns the radius just before, where the class is
    still the input's own, shape (rows,)."""
    low = _NEAR_END * rays.radius
    low = low.masked_fill(region.gap(rays.row, low[:, None] * rays.direction) < 0.0, 0.0)
    for _ in range(bisections):
        middle = 0.5 * (low + rays.radius)
        beyond = region.gap(rays.row, middle[:, None] * rays.direction) < 0.0
        rays.radius = torch.where(beyond, middle, rays.radius)
        low = torch.where(beyond, low, middle)
    return low


def shortened(region: Region, rays: Rays) -> Rays:
    """The rays, cut closer to the boundary."""
    end = region.gap(rays.row, rays.moves)
    radius = _first_landing(region, rays.row, rays.direction, rays.radius, end)
    return Rays(rays.row, rays.direction, radius, rays.steps, rays.stationary)


def nearest(rays: Rays, count: int) -> Rays:
    """The `count` shortest rays of each example, examples in order and the shortest first."""
    by_radius = rays.radius.argsort(stable=True)
    order = by_radius[rays.row[by_radius].argsort(stable=True)]
    row = rays.row[order]
    position = torch.arange(len(row), device=row.device)
    new = torch.ones_like(row, dtype=torch.bool)
    new[1:] = row[1:] != row[:-1]
    begun = position.masked_fill(~new, 0).cummax(0).values if len(row) else position
    return rays[order[position - begun < count]]


def _step(region: Region, now: Rays, bundle: _Bundle, shortest: Tensor) -> None:
    """Turn each ray towards its shortest move; where that crosses the boundary before the radius, take it."""
    turn = torch.nn.functional.normalize(shortest, dim=1) - now.direction
    share = (bundle.trust / turn.norm(dim=1).clamp(min=1.0e-30)).clamp(max=1.0)
    trial = torch.nn.functional.normalize(now.direction + share[:, None] * turn, dim=1)
    angle = (trial - now.direction).norm(dim=1)
    end = region.gap(now.row, now.radius[:, None] * trial)
    nearer = end < 0.0
    radius = now.radius.clone()
    if bool(nearer.any()):
        radius[nearer] = _first_landing(region, now.row[nearer], trial[nearer], radius[nearer], end[nearer])
    bundle.trust = torch.where(nearer, (2.0 * torch.maximum(angle, bundle.trust)).clamp(max=2.0), 0.5 * angle)
    now.direction = torch.where(nearer[:, None], trial, now.direction)
    now.radius = radius
    bundle.add(region, now, radius[:, None] * trial, at_point=nearer)


def _first_landing(region: Region, row: Tensor, direction: Tensor, radius: Tensor, end: Tensor) -> Tensor:
    """A radius closer to the boundary, by false position (Illinois), at which the class has changed."""
    low, high, at_high = torch.zeros_like(radius), radius, end
    at_low = region.own_gap[row]
    for _ in range(_LANDINGS):
        share = (at_low / (at_low - at_high)).clamp(0.02, 0.98)
        middle = low + share * (high - low)
        value = region.gap(row, middle[:, None] * direction)
        beyond = value < 0.0
        # The end that stays counts half, lest it stay for ever.
        at_low, at_high = torch.where(beyond, 0.5 * at_low, value), torch.where(beyond, value, 0.5 * at_high)
        low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
    return high


class _Bundle:
    """The cuts of each row: unit normals (rows, CUTS, D), offsets, where they come from, and their multipliers."""

    def __init__(self, region: Region, rays: Rays) -> None:
        rows, dimension = rays.direction.shape
        like = rays.direction
        self.normals, self.points = like.new_zeros(rows, CUTS, dimension), like.new_zeros(rows, CUTS, dimension)
        self.offsets = like.new_full((rows, CUTS), -torch.inf)  # no cut
        self.weights = like.new_zeros(rows, CUTS)
        self.trust = like.new_full((rows,), 2.0)
        everywhere = torch.ones(rows, dtype=torch.bool, device=like.device)
        self.add(region, rays, rays.moves, at_point=everywhere)

    def keep(self, which: Tensor) -> None:
        self.normals, self.points, self.offsets = self.normals[which], self.points[which], self.offsets[which]
        self.weights, self.trust = self.weights[which], self.trust[which]

    def settle(self, now: Rays, slack: Tensor) -> tuple[Tensor, Tensor]:
        """(shortest move that meets the cuts, whether the row is stationary: that is not shorter by more than `slack`).

        Where only cuts from afar forbid a shorter move they are let go, and the trust region shrinks to look around.
        """
        shortest, bound = self._project()
        settled = bound >= now.radius - slack
        absurd = bound > now.radius + slack
        far = (self.points - now.moves[:, None]).norm(dim=2) > _NEAR * now.radius[:, None]
        far |= absurd[:, None]  # cuts that contradict each other
        far[:, 0] = False
        doubtful = settled & (far & (self.weights > 0.0)).any(1)
        self._forget(far & doubtful[:, None])
        self.trust = torch.where(doubtful, self.trust.clamp(max=_NEAR), self.trust)
        alone = self.offsets[:, :1] * self.normals[:, 0]  # towards the own cut, until there are others again
        return torch.where(doubtful[:, None], alone, shortest), settled & ~doubtful

    def add(self, region: Region, now: Rays, moves: Tensor, *, at_point: Tensor) -> None:
        """Cuts at `moves`, which are the rows' own points where `at_point`; then forget cuts that these refute."""
        gap, _, gradient = region.slope(now.row, moves)
        norm = gradient.norm(dim=1)
        sound = (norm > 0.0) & norm.isfinite() & gap.isfinite()
        normal = torch.where(sound[:, None], -gradient / norm[:, None], 0.0)
        offset = torch.where(sound, (normal * moves).sum(1) + gap / norm, -torch.inf)
        rows = torch.arange(len(moves), device=moves.device)
        # The old own cut, or this one, takes the place of the idlest.
        slot = 1 + torch.where(self.offsets[:, 1:].isinf(), -1.0, self.weights[:, 1:]).argmin(1)
        first = torch.zeros_like(slot)
        source = torch.where(at_point, first, slot)
        self._copy(rows, first, torch.where(at_point, slot, first))
        self.normals[rows, source], self.points[rows, source] = normal, moves
        self.offsets[rows, source], self.weights[rows, source] = offset, 0.0
        slack = 1.0e-6 * now.radius + region.resolution[now.row]
        reached = torch.einsum("rcd,rd->rc", self.normals, now.moves)
        refuted = reached < self.offsets - slack[:, None]  # the row's own counterfactual is one that the cut denies
        refuted[:, 0] = False
        self._forget(refuted)
        self._forget(self._repeated(normal, source))

    def _repeated(self, normal: Tensor, slot: Tensor) -> Tensor:
        """Cuts parallel to the new one in `slot`; where that is the own cut, the new one itself."""
        parallel = torch.einsum("rcd,rd->rc", self.normals, normal) > 1.0 - _PARALLEL
        like_own = parallel[:, 0] & (slot > 0)
        parallel[:, 0] = False
        return parallel.scatter(1, slot[:, None], like_own[:, None])

    def _copy(self, rows: Tensor, source: Tensor, target: Tensor) -> None:
        for state in (self.normals, self.points, self.offsets, self.weights):
            state[rows, target] = state[rows, source]

    def _forget(self, which: Tensor) -> None:
        self.offsets = self.offsets.masked_fill(which, -torch.inf)
        self.weights = self.weights.masked_fill(which, 0.0)

    def _project(self) -> tuple[Tensor, Tensor]:
        """The shortest move under the cuts, shape (rows, D), and a lower bound of its length, (rows,)."""
        cut = ~self.offsets.isinf()
        normals = self.normals.double()  # rounding would make cuts disagree where there are more than dimensions
        gram, offsets = normals @ normals.mT, self.offsets.masked_fill(~cut, 0.0).double()
        weights = _multipliers(gram, offsets, self.weights.double(), cut)
        self.weights = weights.to(self.offsets.dtype)
        shortest = torch.einsum("rc,rcd->rd", weights, normals)
        # The value of the dual bounds the length for any multipliers: stopped early, they cost a step, not the truth.
        dual = 2.0 * (weights * offsets).sum(1) - shortest.square().sum(1)
        bound = torch.maximum(dual.clamp(min=0.0).sqrt(), offsets[:, 0])  # offsets[:, 0]: the own cut alone
        return shortest.to(self.offsets.dtype), bound.to(self.offsets.dtype)


def _multipliers(gram: Tensor, offsets: Tensor, weights: Tensor, cut: Tensor) -> Tensor:
    """Maximise offsets.w - w.gram.w/2 over w >= 0, 0 where there is no cut, shape (rows, CUTS), from a feasible start:
    the active-set method of Lawson and Hanson, all rows at once."""
    found, todo = weights.clone(), torch.arange(len(weights), device=weights.device)
    used, scale = weights > 0.0, 1.0e-9 * offsets[:, :1].abs()
    for _ in range(_PIVOTS):
        aim = _solved(gram, offsets, used)
        blocked = used & (aim <= 0.0)
        step = torch.where(blocked, weights / (weights - aim).clamp(min=1.0e-300), 1.0).amin(1, keepdim=True)
        weights = (weights + step * (aim - weights)).clamp(min=0.0)
        used = used & ~(blocked & (weights <= scale))
        weights = weights * used
        found[todo] = weights
        arrived = ~blocked.any(1)
        lacking = offsets - torch.einsum("rce,re->rc", gram, weights)
        most, worst = lacking.masked_fill(~cut | used, 0.0).max(1)
        more = arrived & (most > 1.0e3 * scale[:, 0])
        used[more, worst[more]] = True
        rest = more | ~arrived
        if not bool(rest.all()):
            todo, gram, offsets, weights = todo[rest], gram[rest], offsets[rest], weights[rest]
            cut, used, scale = cut[rest], used[rest], scale[rest]
        if len(todo) == 0:
            break
    return found


def _solved(gram: Tensor, offsets: Tensor, used: Tensor) -> Tensor:
    """Multipliers with which the cuts in use hold with equality, the others 0."""
    system = gram * (used[:, :, None] & used[:, None, :])
    system.diagonal(dim1=1, dim2=2).add_(torch.where(used, 1.0e-9, 1.0))  # lest parallel cuts make it singular
    solution: Tensor = torch.linalg.solve_ex(system, offsets * used)[0]
    return solution * used


# -- a model as the search sees it ------------------------------------------------------------------------------------


_ROUNDINGS: Final = 8.0  # of a point's last digit
_BUDGET: Final = 2**29  # bytes of a chunk. Not what is free: the size of chunks enters the last digits of distances


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """The model in eval mode and without gradients of parameters; every part is left as it was."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        with in_eval_mode(model):
            for parameter in wanted:
                parameter.requires_grad_(False)
            yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)


class Classifier:
    """A frozen model whose class follows from a point: the input itself, or the output of the submodule `space`."""

    def __init__(self, model: nn.Module, space: str | None) -> None:
        self._model, self._space = model, space
        self._part = None if space is None else _submodule(model, space)
        self._like = next((p for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()), None)

    def region(self, inputs: Tensor) -> Region:
        """The points of the inputs (shape (n, ...)), and the classes that the model gives them."""
        return Region(self, self._placed(inputs), self.origin(inputs))

    def origin(self, inputs: Tensor) -> Tensor:
        """The points of the inputs, shape (n, ...)."""
        inputs = self._placed(inputs)
        return inputs if self._part is None else self._feature(inputs)

    def chunk_size(self, inputs: Tensor, *, rows: int, vectors: int) -> int:
        """How many inputs to work on at once: each has so many rows, a row so many vectors of the space and what the
        layers put out."""
        sizes: list[int] = []

        def measure(_: nn.Module, __: Any, output: Any) -> None:
            sizes.append(output.numel() if isinstance(output, Tensor) else 0)

        handles = [module.register_forward_hook(measure) for module in self._model.modules()]
        try:
            origin = self.region(inputs[:1]).origin
        finally:
            for handle in handles:
                handle.remove()
        numbers = rows * (vectors * origin.numel() + sum(sizes))
        return max(1, int(_BUDGET // (origin.element_size() * numbers)))

    def logits(self, inputs: Tensor, points: Tensor) -> Tensor:
        """Outputs at points of the space, shape (n, classes); a single logit becomes two classes."""
        if self._part is None:
            outputs = self._model(points)
        else:
            handle = self._part.register_forward_hook(lambda *_: points)
            try:
                outputs = self._model(inputs)
            finally:
                handle.remove()
        return _two_classes_at_least(outputs, len(points))

    def _placed(self, inputs: Tensor) -> Tensor:
        inputs = inputs.detach()
        if self._like is None:
            return inputs
        return inputs.to(self._like if inputs.is_floating_point() else self._like.device)

    def _feature(self, inputs: Tensor) -> Tensor:
        seen: list[Any] = []
        assert self._part is not None
        # A copy: the next layer may work in place.
        handle: RemovableHandle = self._part.register_forward_hook(
            lambda _, __, output: seen.append(output.clone() if isinstance(output, Tensor) else output)
        )
        try:
            with torch.no_grad():
                self._model(inputs.clone())
        finally:
            handle.remove()
        if len(seen) != 1:
            raise InvalidArgument(
                f"is called {len(seen)} times in the model",
                argument="space",
                value=self._space,
                remedy="choose a submodule called once",
            )
        found = seen[0]
        if not isinstance(found, Tensor) or not found.is_floating_point() or found.shape[:1] != inputs.shape[:1]:
            what = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InvalidArgument(
                f"puts out {what} for {len(inputs)} inputs",
                argument="space",
                value=self._space,
                remedy="choose a submodule whose output is one tensor of real numbers, a row for each input",
            )
        return found


class Region:
    """n inputs in a space of D dimensions, each in the region of its own class; moves are flat, shape (rows, D).

    Attributes
    ----------
    origin : tensor of shape (n, D).
    shape : of a point.
    scores : tensor of shape (n, classes), outputs at the inputs.
    own, own_gap : tensors of shape (n,), the class there and its margin.
    resolution : tensor of shape (n,), a length that is lost in rounding.
    """

    def __init__(self, classifier: Classifier, inputs: Tensor, origin: Tensor) -> None:
        self._classifier, self._inputs, self.shape = classifier, inputs, origin.shape[1:]
        self.origin = origin.reshape(len(origin), -1)
        with torch.no_grad():
            self.scores = classifier.logits(inputs.clone(), origin.clone())  # the first layer may work in place
        self.own = self.scores.argmax(1)
        self.resolution = _ROUNDINGS * torch.finfo(origin.dtype).eps * self.origin.norm(dim=1)
        self.own_gap = self._gap(self.scores, torch.arange(len(origin), device=origin.device), None)

    def __len__(self) -> int:
        return len(self.origin)

    def gap(self, rows: Tensor, moves: Tensor) -> Tensor:
        """Own logit minus the largest other, shape (rows,): the class has changed where this is below 0."""
        with torch.no_grad():
            return self._gap(self._logits(rows, moves), rows, None)

    def changed(self, rows: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        """(gap, the class there)."""
        with torch.no_grad():
            logits = self._logits(rows, moves)
            return self._gap(logits, rows, None), logits.argmax(1)

    def slope(self, rows: Tensor, moves: Tensor, rivals: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """(gap, gap against the rival, its gradient of shape (rows, D)); rival None: the strongest other class."""
        with torch.enable_grad():
            moves = moves.detach().requires_grad_(True)
            logits = self._logits(rows, moves)
            against = self._gap(logits, rows, rivals)
            gradient = None  # of a model that does not look at the point
            if against.requires_grad:
                (gradient,) = torch.autograd.grad(against.sum(), moves, allow_unused=True)
        with torch.no_grad():
            gap = against if rivals is None else self._gap(logits, rows, None)
        return gap.detach(), against.detach(), torch.zeros_like(moves) if gradient is None else gradient.detach()

    def _logits(self, rows: Tensor, moves: Tensor) -> Tensor:
        if len(rows) == 0:
            return self.scores[:0]  # there are models that cannot take an empty batch
        points = (self.origin[rows] + moves).unflatten(1, self.shape)
        return self._classifier.logits(self._inputs[rows], points).to(self.origin.dtype)

    def _gap(self, logits: Tensor, rows: Tensor, rivals: Tensor | None) -> Tensor:
        own = self.own[rows][:, None]
        mine = logits.gather(1, own)[:, 0]
        if rivals is None:
            return mine - logits.scatter(1, own, -torch.inf).amax(1)
        return mine - logits.gather(1, rivals[:, None])[:, 0]


def _two_classes_at_least(outputs: Any, rows: int) -> Tensor:
    shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if isinstance(outputs, Tensor) and outputs.shape in ((rows,), (rows, 1)):
        logit = outputs.reshape(rows, 1)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)  # class 1 where the logit is above 0
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != rows:
        raise InvalidArgument(
            f"puts out {shape} for {rows} inputs, and counterfactuals need one row of class scores for each",
            argument="model",
        )
    return outputs


def _submodule(model: nn.Module, name: str) -> nn.Module:
    modules: dict[str, nn.Module] = {known: module for known, module in model.named_modules() if known}
    if name not in modules:
        raise InvalidArgument(
            f"is not a submodule of the model{check.did_you_mean(name, modules)}",
            argument="space",
            value=name,
            remedy=f"pass one of {', '.join(map(repr, list(modules)[:8]))}" if modules else "leave it out",
        )
    return modules[name]


# -- the nearest point at which a model changes its mind --------------------------------------------------------------


_REACH: Final = 100.0  # times the largest norm
_TRYOUT: Final = 4  # steps of every start, before the nearest alone goes on
_BISECTIONS: Final = 30
_TOUCH: Final = 1.0e-5  # share of the distance that may lie between the last point of a class and the first of another
_STAY: Final = 1.0e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Counterfactuals:
    """The counterfactuals of n inputs, in the space of the search.

    Attributes
    ----------
    distances : array of shape (n,), L2 distance to the nearest counterfactual found; `reach` where there is none.
    points : tensor of shape (n, ...), where it lies; the input's own point where there is none.
    converged : array of shape (n,), whether the class changes at the point and not just before it, and no nearer point
        is in sight: the move is parallel to the gradient of the margin, or in the cone of the gradients of a corner.
    iterations : array of shape (n,), steps of the search along the boundary.
    classes : array of shape (n, 2), the model's class of the input and of the point.
    reach : the farthest distance tried.
    """

    distances: NDArray[np.float64]
    points: Tensor
    converged: NDArray[np.bool_]
    iterations: NDArray[np.int64]
    classes: NDArray[np.int64]
    reach: float


def counterfactuals(
    model: nn.Module,
    inputs: Tensor,
    *,
    space: str | None = None,
    rivals: int = 9,
    restarts: int = 4,
    tolerance: float = 1.0e-5,
    max_steps: int = 40,
    reach: float | None = None,
    progress: Progress | None = None,
) -> Counterfactuals:
    """The nearest point (L2) to each input at which the model's class is another than at the input.

    Parameters
    ----------
    model : scores of classes, shape (n, classes), or one logit (class 1 where it is above 0).
    inputs : tensor of shape (n, ...).
    space : name of a submodule whose output is moved instead of the input; the rest of the model is the classifier.
    rivals : how many other classes to start towards, those with the smallest linearised distance.
    restarts : further starts, from points around the input (directions from a fixed seed, the same for all inputs).
    tolerance : stop where the linear models of the margin allow no move that is shorter by more than this share.
    max_steps : of the search along the boundary.
    reach : the farthest distance to try; None: 100 times the largest norm of an input in the space.
    progress : called with (done, total) inputs.

    Guarantees
    ----------
    No label and no loss is used. The model is evaluated in eval mode and left as it was. Every distance is finite, and
    where less than `reach` there is a counterfactual at it: an upper bound of the distance to the nearest, exact for
    linear models. The search is local: of several parts of the boundary it may miss the nearest.
    """
    _check_inputs(model, inputs, space)
    starts = max(check.count("rivals", rivals), check.count("restarts", restarts) if restarts else 0, KEPT)
    tolerance, max_steps = check.positive("tolerance", tolerance), check.count("max_steps", max_steps)
    with frozen(model):
        classifier = Classifier(model, space)
        chunks = inputs.split(classifier.chunk_size(inputs, rows=starts, vectors=3 * CUTS + 8))
        far = _reach(classifier, chunks) if reach is None else check.positive("reach", reach)
        parts = []
        for chunk in chunks:
            region = classifier.region(chunk)
            _check_scores(region)
            rays = approach(region, rivals=rivals, restarts=restarts, reach=far)
            polish(region, rays, tolerance=tolerance, max_steps=min(max_steps, _TRYOUT))
            rays = nearest(rays, 1)
            polish(region, rays, tolerance=tolerance, max_steps=max_steps)
            parts.append(_nearest_points(region, rays, far))
            if progress is not None:
                progress(sum(len(part.distances) for part in parts), len(inputs))
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("distances", "converged", "iterations", "classes")
    }
    return Counterfactuals(points=torch.cat([part.points for part in parts]), reach=far, **arrays)


def _nearest_points(region: Region, rays: Rays, reach: float) -> Counterfactuals:
    """The ray of each input, landed on the boundary and looked at once more."""
    polished = rays.radius
    before = land(region, rays, bisections=_BISECTIONS)
    gap, there = region.changed(rays.row, rays.moves)
    rounding = region.resolution[rays.row]
    touches = (gap < 0.0) & (rays.radius - before <= _TOUCH * rays.radius + rounding)
    stayed = rays.radius >= (1.0 - _STAY) * polished - rounding  # else another crossing on the way was found
    distances = torch.full((len(region),), reach, dtype=torch.float64, device=rays.row.device)
    distances[rays.row] = rays.radius.double()
    converged = torch.zeros_like(region.own, dtype=torch.bool)
    converged[rays.row] = rays.stationary & touches & stayed
    classes = region.own[:, None].repeat(1, 2)
    classes[rays.row, 1] = there
    return Counterfactuals(
        distances=distances.cpu().numpy(),
        points=region.origin.index_add(0, rays.row, rays.moves).unflatten(1, region.shape),
        converged=converged.cpu().numpy(),
        iterations=torch.zeros_like(region.own).index_add(0, rays.row, rays.steps).cpu().numpy(),
        classes=classes.cpu().numpy(),
        reach=reach,
    )


def _reach(classifier: Classifier, chunks: tuple[Tensor, ...]) -> float:
    largest = max(float(classifier.origin(chunk).flatten(1).norm(dim=1).max()) for chunk in chunks)
    return _REACH * largest if largest > 0.0 else _REACH


def _check_inputs(model: object, inputs: object, space: str | None) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"must be a torch.nn.Module, not {type(model).__name__}", argument="model")
    if not isinstance(inputs, Tensor) or inputs.ndim < 2 or len(inputs) == 0:
        what = f"shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise InvalidArgument(f"must be a tensor with one row for each input, not {what}", argument="inputs")
    if not inputs.is_floating_point() and space is None:
        raise InvalidArgument(
            f"are {inputs.dtype}, which cannot be moved by small steps",
            argument="inputs",
            remedy="pass real numbers, or a `space`, the name of the submodule whose output is to be moved",
        )
    if not bool(inputs.isfinite().all()):
        bad = int((~inputs.isfinite().flatten(1).all(1)).sum())
        raise InvalidArgument(
            f"has {bad} rows with NaN or infinite entries", argument="inputs", remedy="drop or fix them"
        )


def _check_scores(region: Region) -> None:
    bad = int(region.scores.isnan().any(1).sum())
    if bad:
        raise InvalidArgument(
            f"gives NaN for {bad} of {len(region)} inputs, so training diverged or they cannot be used",
            argument="model",
            remedy="leave these inputs out",
        )


# -- attacks by counterfactual distance -------------------------------------------------------------------------------


Array = NDArray[np.float64]
_ENOUGH: Final = 0.95  # of searches that should converge
_LEAST: Final = 1.0e-6  # of the median distance: closer than that, the log of a distance is that of rounding


@dataclass(frozen=True)
class Distance:
    """The signal of CFD: counterfactual distance of each record and whether the search converged, shape (n, 2).

    Parameters as in `counterfactuals`.
    """

    space: str | None = None
    rivals: int = 9
    restarts: int = 4
    max_steps: int = 40

    def __post_init__(self) -> None:
        space: object = self.space
        if space is not None and not isinstance(space, str):
            raise InvalidArgument(
                "must be the name of a submodule, or None for the input", argument="space", value=space
            )
        check.count("rivals", self.rivals)
        check.count("max_steps", self.max_steps)
        if self.restarts != 0:
            check.count("restarts", self.restarts)

    population: ClassVar[bool] = False  # only candidates are looked at

    @property
    def key(self) -> str:
        """Changes with the settings."""
        return f"distance-{sha256(repr(self))[:16]}"

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Array:
        found = self.search(model, examples)
        return np.column_stack([found.distances, found.converged])

    def search(self, model: nn.Module, examples: Examples, progress: Progress | None = None) -> Counterfactuals:
        """The counterfactuals of the records."""
        return counterfactuals(
            model,
            one_table(examples.inputs, "a counterfactual is a change of one"),
            space=self.space,
            rivals=self.rivals,
            restarts=self.restarts,
            max_steps=self.max_steps,
            progress=progress,
        )


@dataclass(frozen=True, kw_only=True)
class _DistanceAttack(Attack):
    """Attacks by counterfactual distance; the fields are those of `CFD`."""

    space: str | None = None
    rivals: int = 9
    restarts: int = 4
    max_steps: int = 40
    device: str = "cpu"

    def __post_init__(self) -> None:
        self._distance()

    def _distance(self) -> Distance:
        return Distance(self.space, self.rivals, self.restarts, self.max_steps)

    def _search(
        self, task: Task, target: ModelRecord, candidates: Examples, progress: Progress | None
    ) -> Counterfactuals:
        """The counterfactuals of the candidates under the released model."""
        targets = task.pool.targets
        if not has_classes(targets) and not bool(((targets == 0) | (targets == 1)).all()):
            raise InvalidArgument(
                f"Task {task.name!r} has targets that are not classes, and a counterfactual is a change of class",
                remedy="use another attack, such as loss",
            )
        found = self._distance().search(released_model(task, target, device=self.device), candidates, progress)
        _check_convergence(float(found.converged.mean()), "over candidates")
        return found

    def _facts(self, found: Counterfactuals) -> dict[str, Fact]:
        """What is worth knowing about the searches on the released model."""
        facts: dict[str, Fact] = {} if self.space is None else {"space": self.space}
        return facts | {
            "converged": float(found.converged.mean()),
            "found": float((found.distances < found.reach).mean()),
            "iterations": float(found.iterations.mean()),
            "reach": found.reach,
        }


@dataclass(frozen=True, kw_only=True)
class CFD(_DistanceAttack):
    """Score = distance from the candidate to its nearest counterfactual (Pawelczyk, Lakkaraju and Neel 2023).

    Neither labels nor losses are used: classes are the model's own predictions. A record deep inside its class looks
    like a member, trained on or not; CFD-LRT corrects that by shadow models.

    A candidate without a counterfactual within reach has the reach as its score, the largest of all.

    Parameters
    ----------
    space : name of a submodule in whose output to measure distances; None: the input.
    rivals, restarts, max_steps : of the search, see `gmip.attacks.counterfactual.counterfactuals`.
    device : where the model is evaluated.
    """

    name: ClassVar[str] = "cfd"

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Progress) -> ScoreSet:
        found = self._search(task, target, who.candidates, progress)
        return ScoreSet(ids=who.ids, scores=found.distances, attack=self.name, facts=self._facts(found))


@dataclass(frozen=True, kw_only=True)
class CFDLRT(_DistanceAttack, ShadowAttack):
    """Is the distance larger than under models trained without the candidate (Pawelczyk et al. 2023)?

    Distances over trainings are taken as log-normal, with mean and spread from shadow models without the candidate. The
    score is how many spreads the log of the distance lies above that mean, the p-value its one-sided tail.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained.
    variance : of log-distances: "pooled", "per-example" or "auto", a weighted mean of the two, see `LiRA`.
    space, rivals, restarts, max_steps, device : as in `CFD`.

    Guarantees
    ----------
    p-values rest on distances being log-normal over trainings and on shadow models being trained as the released model
    was: an approximation. Distances below a millionth of the median under the released model count as that; a model
    without a counterfactual within reach counts with the reach.
    """

    variance: Variance = "auto"

    name: ClassVar[str] = "cfd-lrt"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.one_of("variance", self.variance, get_args(Variance))

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (self._distance(),)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        signal, ids = self._distance(), who.ids
        # The released model first: what is wrong with it is said before anything is trained.
        found = self._search(task, target, who.candidates, None)
        models = self._models(task, target, ids, who.background, signal, progress)
        least = _LEAST * float(np.median(found.distances))
        outside, converged = Moments((len(ids), 1)), 0.0
        for model in models:
            values = model.signal(signal.key)[0]
            outside.add(np.log(np.maximum(values[:, :1], least)), ~model.inside)
            converged += float(values[:, 1].mean()) / len(models)
        needed = 2 if self.variance == "per-example" else 1
        self._check_counts(ids, None, outside.count, needed=needed, spread=True)
        _check_convergence(converged, "over candidates and shadow models")
        logs = np.log(np.maximum(found.distances[:, None], least))
        scores = standardised(logs, outside, self.variance)
        p_values = np.asarray(stdtr(outside.spread(self.variance)[1][:, 0], -scores))  # Student's t
        facts = self._facts(found) | {"variance": self.variance, "shadows_converged": converged}
        return self._scored(ids, scores, p_values, models, facts)


def _check_convergence(share: float, where: str) -> None:
    if share < _ENOUGH:
        warn(
            f"Only {share:.1%} of the searches for counterfactuals converged, {where}: the other distances are upper "
            "bounds, or the reach where nothing was found; raise max_steps, or measure in another space."
        )
