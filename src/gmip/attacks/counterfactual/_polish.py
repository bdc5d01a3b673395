"""From some counterfactual to the nearest around: a bundle method along the boundary, for all rows at once.

A row is a ray from an input, with a radius at which the class has changed. At a point p where the margin is g with
gradient a, the linear model of the margin says that a counterfactual at move d has n.d >= h, n = -a/|a| and
h = n.p + g/|a|: a cut. The shortest move that meets all cuts of a row (one cut: the step of Hasofer, Lind, Rackwitz and
Fiessler; several: what the corners of piecewise-linear networks need) gives the next ray, within a trust region.
A radius never grows, so that a search that is stopped still has a valid point.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import torch
from torch import Tensor

from gmip.attacks.counterfactual._classifier import Region

__all__ = ["CUTS", "Rays", "land", "nearest", "polish", "shortened"]

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
