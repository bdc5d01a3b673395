"""From a recorded step (or several) to the vectors that an attack compares, by the cheapest exact way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.gram import compress, gram
from gmip.attacks.memory import as_bytes, readable
from gmip.attacks.projection import Projection
from gmip.errors import InvalidArgument
from gmip.tasks.task import Examples

__all__ = ["ROUTES", "Collected", "Published", "Route", "collect"]

Route = Literal["materialise", "gram", "projection"]
ROUTES: tuple[Route, ...] = ("materialise", "gram", "projection")
_FLOAT: Final = 8  # bytes
_WORKING: Final = 4  # the share of the limit that is left to the computation is 1/4
_GRAM_COPIES: Final = 5  # the matrix, its eigenvectors, twice as much that LAPACK works in, and the result


class Published(Protocol):
    """What is known of a step, such as `gmip.trace.Step`: the parameters and the mean gradient, each of shape (d,)."""

    @property
    def parameters(self) -> NDArray[np.floating]: ...

    @property
    def gradient(self) -> NDArray[np.floating]: ...


class Collected(NamedTuple):
    """Gradients of all examples, and the published mean, in D' coordinates. float64.

    Attributes
    ----------
    background, candidates, mean : shapes (m, D'), (c, D'), (D',).
    extra_dims : dimensions of the space of gradients in which none of these vectors has a component, and which have no
        coordinate: D' + extra_dims is the number of (stacked) parameters, or of dimensions projected to.
    route : how they were computed. "materialise": the entries of the gradients, step after step. "gram": coordinates in
        the span of all vectors, with the same inner products. "projection": projected, step by step, and scaled so that
        noise of some standard deviation on every entry of a gradient is noise of the same on every coordinate.
    """

    background: NDArray[np.float64]
    candidates: NDArray[np.float64]
    mean: NDArray[np.float64]
    extra_dims: int
    route: Route


def collect(
    gradients: PerExampleGradients,
    steps: Published | Sequence[Published],
    background: Examples,
    candidates: Examples,
    *,
    projection: int | None = None,
    seed: int = 0,
    memory_limit: float | str | None = None,
    route: Route | None = None,
) -> Collected:
    """The vectors of a step, or, for several steps, those of all of them stacked into one.

    Parameters
    ----------
    gradients : of the model of the run; where in parameter space it stands does not matter.
    projection : project the gradients of each step to this many dimensions, at random, by `seed`.
    memory_limit : bytes, or "3 GiB"; None: that of `gradients`.
    route : None takes "projection" if it is asked for, "gram" where there are more (stacked) parameters than vectors,
        "materialise" otherwise, and the other of these two where only that fits into memory_limit.
    """
    several = list(steps) if isinstance(steps, Sequence) else [steps]
    if not several or not len(background) or not len(candidates):
        raise InvalidArgument(
            f"collect got {len(several)} steps, {len(background)} background examples and {len(candidates)} "
            "candidates: pass at least one of each."
        )
    means = [_mean(step, gradients.num_params) for step in several]
    limit = gradients.memory_limit if memory_limit is None else as_bytes("memory_limit", memory_limit)
    vectors = len(background) + len(candidates) + 1
    if projection is not None:
        projection = check.count("projection", projection)
    chosen = _route(vectors, len(several) * gradients.num_params, len(several), projection, limit, route)
    gradients = gradients.within(limit // _WORKING)
    if chosen == "gram":
        return _by_gram(gradients, several, means, background, candidates, limit)
    project = Projection(gradients.num_params, projection, seed=seed) if projection is not None else None
    return _by_rows(gradients, several, means, background, candidates, project)


def _route(vectors: int, size: int, steps: int, projection: int | None, limit: int, asked: Route | None) -> Route:
    if asked is not None:
        check.one_of("route", asked, ROUTES)
    if asked is not None and (asked == "projection") != (projection is not None):
        raise InvalidArgument(
            f"route = {asked!r} with projection = {projection}: give a number of dimensions with route 'projection', "
            "and only with it."
        )
    needed: dict[Route, int] = {
        "gram": _GRAM_COPIES * _FLOAT * vectors**2,
        "materialise": _FLOAT * vectors * size,
        "projection": _FLOAT * vectors * steps * (projection or 0),
    }
    order: tuple[Route, ...] = ("gram", "materialise") if size > vectors else ("materialise", "gram")
    if asked is not None:
        order = (asked,)
    elif projection is not None:
        order = ("projection",)
    room = limit - limit // _WORKING
    fitting = next((r for r in order if needed[r] <= room), None)
    if fitting is None:
        least = min(needed[r] for r in order)
        ways = "fewer dimensions in projection" if projection is not None else "projection = 2048, say"
        raise InvalidArgument(
            f"{vectors - 1} examples with {size} parameters need {readable(least)}, which memory_limit = "
            f"{readable(limit)} has no room for: raise it, or pass fewer background examples, or {ways}."
        )
    return fitting


def _by_rows(
    gradients: PerExampleGradients,
    steps: Sequence[Published],
    means: Sequence[NDArray[np.float64]],
    background: Examples,
    candidates: Examples,
    project: Projection | None,
) -> Collected:
    width = gradients.num_params if project is None else project.dims
    parts = [torch.empty(len(group), len(steps) * width, dtype=torch.float64) for group in (background, candidates)]
    rescale = None if project is None else torch.from_numpy(1.0 / project.row_norms)
    mean = torch.empty(len(steps) * width, dtype=torch.float64)
    for i, step in enumerate(steps):
        here = gradients.at(step.parameters)
        columns = slice(i * width, (i + 1) * width)
        published = torch.from_numpy(means[i])
        mean[columns] = published if project is None or rescale is None else project(published) * rescale
        for group, part in zip((background, candidates), parts, strict=True):
            if project is None or rescale is None:
                here.rows(group, out=part[:, columns])
                continue
            first = 0
            for chunk in here.chunks(group):
                part[first : first + len(chunk), columns] = project(chunk).to(part) * rescale
                first += len(chunk)
                del chunk  # before the next one is made
    route: Route = "materialise" if project is None else "projection"
    return Collected(parts[0].numpy(), parts[1].numpy(), mean.numpy(), 0, route)


def _by_gram(
    gradients: PerExampleGradients,
    steps: Sequence[Published],
    means: Sequence[NDArray[np.float64]],
    background: Examples,
    candidates: Examples,
    limit: int,
) -> Collected:
    m, c = len(background), len(candidates)
    total = np.zeros((m + c + 1, m + c + 1))
    for step, mean in zip(steps, means, strict=True):
        here = gradients.at(step.parameters)
        total += gram(here, (background, candidates), mean, memory_limit=limit - total.nbytes)
    points = compress(total)
    extra = len(steps) * gradients.num_params - points.shape[1]
    return Collected(points[:m], points[m : m + c], points[-1], extra, "gram")


def _mean(step: Published, d: int) -> NDArray[np.float64]:
    mean = np.array(step.gradient, dtype=np.float64)
    if mean.shape != (d,):
        raise InvalidArgument(
            f"gradient of a step has shape {mean.shape}, not ({d},): pass the steps of this model's run."
        )
    if not np.isfinite(mean).all():
        raise InvalidArgument("gradient of a step is not finite: leave out the steps at which training diverged.")
    return mean
