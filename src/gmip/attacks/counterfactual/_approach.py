"""A first counterfactual: linearised steps from each input towards other classes; rays where those fail."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from gmip.attacks.counterfactual._classifier import Region
from gmip.attacks.counterfactual._polish import Rays, nearest, shortened

__all__ = ["KEPT", "approach"]

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
