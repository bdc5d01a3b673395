"""The nearest point at which a model changes its mind: counterfactual distances, for all inputs at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.counterfactual._approach import KEPT, approach
from gmip.attacks.counterfactual._classifier import Classifier, Region, frozen
from gmip.attacks.counterfactual._polish import CUTS, Rays, land, nearest, polish
from gmip.errors import InvalidArgument

__all__ = ["Counterfactuals", "counterfactuals"]

_REACH: Final = 100.0  # times the largest norm
_TRYOUT: Final = 4  # steps of every start, before the nearest alone goes on
_BISECTIONS: Final = 30
_TOUCH: Final = 1.0e-5  # share of the distance that may lie between the last point of a class and the first of another
_STAY: Final = 1.0e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Counterfactuals:
    """Of n inputs, in the space of the search.

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
    chunk_size: int | None = None,
    progress: Progress | None = None,
) -> Counterfactuals:
    """For each input the nearest point (L2) at which the model's class is another than at the input.

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
    chunk_size : inputs to work on at once; None: what fits 512 MiB.
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
        if chunk_size is None:
            size = classifier.chunk_size(inputs, rows=starts, vectors=3 * CUTS + 8)
        else:
            size = check.count("chunk_size", chunk_size)
        chunks = inputs.split(size)
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
    return Counterfactuals(
        distances=np.concatenate([part.distances for part in parts]),
        points=torch.cat([part.points for part in parts]),
        converged=np.concatenate([part.converged for part in parts]),
        iterations=np.concatenate([part.iterations for part in parts]),
        classes=np.concatenate([part.classes for part in parts]),
        reach=far,
    )


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
