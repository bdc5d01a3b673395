"""What the attacker knows about one published step, or about several full-batch steps stacked into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.errors import InvalidArgument
from gmip.vocabulary import Sampling

__all__ = ["GramView", "StepView", "View", "same_run", "stack"]

_NOTHING = 1.0e-15  # of the largest eigenvalue: what rounding leaves of zero
_SAMPLINGS: tuple[Sampling, ...] = ("fixed", "poisson", "full", "shuffled")  # how one batch is drawn


@dataclass(frozen=True, kw_only=True, eq=False)
class StepView:
    """How a step was taken; `View` and `GramView` add what was seen of it.

    Parameters
    ----------
    batch_size : n, examples averaged (under "poisson" the expected number, and the divisor).
    noise_std : tau, noise on every entry of the published MEAN.
    sample_rate : p, chance that an example of the training set is in the batch.
    sampling : "fixed", "poisson", "full" or "shuffled", as in `NoisySGD`.
    extra_dims : dimensions in which no vector has a part and which were left out (an isometric compression).
    length_counts : whether the length of the mean is evidence: a batch without the candidate varies a little more. Not
        for an attack that doubts `noise_std`: noise that is there after all would say "not in the batch" of everybody.
    epoch, drawn : under "shuffled", which epoch the batch is of and how many examples came before it in that epoch.
    """

    batch_size: int
    noise_std: float = 0.0
    sample_rate: float = 1.0
    sampling: Sampling = "full"
    extra_dims: int = 0
    length_counts: bool = True
    epoch: int = 0
    drawn: int = 0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "batch_size", check.count("batch_size", self.batch_size))
        put(self, "noise_std", check.non_negative("noise_std", self.noise_std))
        put(self, "sample_rate", check.probability("sample_rate", self.sample_rate, open_low=True))
        check.one_of("sampling", self.sampling, _SAMPLINGS)
        put(self, "extra_dims", self.extra_dims and check.count("extra_dims", self.extra_dims))
        if self.sampling == "full" and self.sample_rate != 1.0:
            raise InvalidArgument(
                "does not fit `sampling` = 'full', where every example is in the batch",
                argument="sample_rate",
                value=self.sample_rate,
                remedy="set it to 1, or `sampling` to 'fixed' or 'poisson'",
            )

    @property
    def dataset_size(self) -> int:
        """N = n/p, to the nearest whole number."""
        return round(self.batch_size / self.sample_rate)

    @property
    def num_candidates(self) -> int:
        """c."""
        raise NotImplementedError

    @property
    def num_background(self) -> int:
        """m; 0 without background."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class View(StepView):
    """One published mean gradient, and the gradients of candidates and background at the same parameters.

    Parameters
    ----------
    mean : array of shape (D,), what was published.
    candidates : array of shape (c, D).
    background : array of shape (m, D), vectors of the same distribution that are not in the run; None when the
        parameters of the distribution are known.
    others : see `StepView`.

    Arrays are float32 or float64 and are not copied; sums over them are float64.
    """

    mean: NDArray[Any]
    candidates: NDArray[Any]
    background: NDArray[Any] | None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "mean", check.vector("mean", self.mean))
        put(self, "candidates", check.matrix("candidates", self.candidates, columns=self.mean.size))
        if self.candidates.shape[0] == 0:
            raise InvalidArgument("is empty", argument="candidates", remedy="pass at least one gradient")
        if self.background is not None:
            put(self, "background", check.matrix("background", self.background, columns=self.mean.size))
        super().__post_init__()

    @property
    def num_candidates(self) -> int:
        return int(self.candidates.shape[0])

    @property
    def num_background(self) -> int:
        return 0 if self.background is None else int(self.background.shape[0])

    def reduced(self) -> View:
        """The same view without the directions in which no example has a part (softmax heads: one class in k).

        An isometry of the examples. What the published mean has outside is noise, which says nothing about them.
        """
        groups = [self.candidates] if self.background is None else [self.candidates, self.background]
        if sum(len(group) for group in groups) <= self.mean.size:
            return self
        moment = sum(group.T.astype(np.float64) @ group for group in groups)
        values, directions = np.linalg.eigh(moment)
        kept = directions[:, values > _NOTHING * values[-1]]
        if kept.shape[1] == self.mean.size:
            return self
        return dataclasses.replace(
            self,
            mean=self.mean @ kept,
            candidates=self.candidates @ kept,
            background=None if self.background is None else self.background @ kept,
            extra_dims=self.extra_dims + self.mean.size - kept.shape[1],
        )

    def inner(self) -> GramView:
        """The same view by its inner products."""
        groups = [self.candidates] if self.background is None else [self.background, self.candidates]
        rows = np.concatenate([group.astype(np.float64, copy=False) for group in (*groups, self.mean[None])])
        how = {field.name: getattr(self, field.name) for field in dataclasses.fields(StepView)}
        how["extra_dims"] = 0
        return GramView(
            products=rows @ rows.T,
            background_size=self.num_background,
            dimension=self.mean.size + self.extra_dims,
            **how,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class GramView(StepView):
    """The same as `View` by inner products alone: for models with more parameters than there are records.

    Parameters
    ----------
    products : array of shape (m + c + 1, m + c + 1), all inner products of background, candidates and the mean, in
        this order.
    background_size : m.
    dimension : D, the number of (stacked) parameters.
    others : see `StepView`.
    """

    products: NDArray[np.float64]
    background_size: int
    dimension: int

    @property
    def num_candidates(self) -> int:
        return int(self.products.shape[0]) - 1 - self.background_size

    @property
    def num_background(self) -> int:
        return self.background_size


def stack(views: Sequence[View]) -> View:
    """Several full-batch steps as one view: the gradients of all steps of an example, one after the other.

    The published means of full batches stack to the mean of the stacked gradients (docs/theory/glir.md, "Several
    steps"), so one likelihood ratio covers what the steps share. The steps must have one batch size and one noise_std.
    """
    same_run(views)
    first = views[0]
    if any(view.sample_rate != 1.0 for view in views):
        raise InvalidArgument(
            "Only full-batch steps can be stacked, because an example is not in every mini-batch",
            remedy="use `method` = 'mixture'",
        )
    if any(view.batch_size != first.batch_size for view in views):
        raise InvalidArgument(
            "differs between the steps, and stacked steps are means over the same examples", argument="batch_size"
        )
    if any(view.noise_std != first.noise_std for view in views):
        raise InvalidArgument("differs between the steps, and stacked steps need one noise level", argument="noise_std")
    if len(views) == 1:
        return first
    backgrounds = [view.background for view in views if view.background is not None]
    return View(
        mean=np.concatenate([view.mean for view in views]),
        candidates=np.concatenate([view.candidates for view in views], axis=1),
        background=np.concatenate(backgrounds, axis=1) if backgrounds else None,
        batch_size=first.batch_size,
        noise_std=first.noise_std,
        extra_dims=sum(view.extra_dims for view in views),
        length_counts=first.length_counts,
    )


def same_run(views: Sequence[StepView]) -> None:
    """Raise unless the views are steps of one run: the same candidates, background and data set size."""
    if not views or not all(isinstance(view, StepView) for view in views):
        raise InvalidArgument("must be a non-empty sequence of View, one for each step", argument="views")
    for name, sizes in (
        ("candidates", {view.num_candidates for view in views}),
        ("background", {view.num_background for view in views}),
        ("dataset_size", {view.dataset_size for view in views}),
    ):
        if len(sizes) > 1:
            raise InvalidArgument(
                f"differ in {name} ({', '.join(map(str, sorted(sizes, key=str)))})",
                argument="views",
                remedy="pass steps of one run, with the same examples in each",
            )
