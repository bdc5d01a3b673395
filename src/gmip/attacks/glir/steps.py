"""A view with the model of its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.glir.likelihood import StepTest, inflation, susceptibility, susceptibility_at
from gmip.attacks.glir.views import View
from gmip.errors import InvalidArgument
from gmip.stats.covariance import GaussianModel, Shrinkage, fit_white

__all__ = ["FittedStep"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FittedStep:
    """A view with the models of gradients and of what a batch sums up (the same unless batches are Poisson)."""

    view: View
    gradients: GaussianModel
    batches: GaussianModel

    @classmethod
    def of(cls, view: View, model: GaussianModel) -> FittedStep:
        return cls(view, model, model.plus_mean(1.0 - view.sample_rate) if view.sampling == "poisson" else model)

    @classmethod
    def fitted(
        cls,
        view: View,
        rows: Any,
        setting: tuple[float, float],
        shrinkage: Shrinkage | None,
        *,
        final: bool = False,
    ) -> FittedStep:
        """From these rows of the background; `final` when no other setting will be asked of it."""
        if view.background is None:
            raise InvalidArgument("views have no background: pass background gradients, or known parameters as models.")
        plain = view.noise_std == 0.0 and view.sampling != "poisson" and setting[1] == 0.0 and shrinkage is None
        if final and plain:
            return cls.of(view, fit_white(view.background[rows], cutoff=setting[0]))
        model = GaussianModel.fit(view.background[rows], shrinkage=shrinkage, extra_dims=view.extra_dims)
        return cls.of(view, model).retuned(setting)

    def retuned(self, setting: tuple[float, float]) -> FittedStep:
        cutoff, ridge = setting
        model = self.gradients.retuned(cutoff=cutoff, ridge=ridge)
        if self.batches is self.gradients:
            return FittedStep(self.view, model, model)
        return FittedStep(self.view, model, self.batches.retuned(cutoff=cutoff, ridge=ridge))

    def usable(self) -> bool:
        """Whether there are enough samples for the directions kept."""
        share = 1.0 / self.view.batch_size + 1.0 / self.batches.num_samples
        return inflation(self.batches, noise=self.view.noise_std**2 / share) is not None

    def test(self) -> StepTest:
        return StepTest.of(self.batches, self.view)

    def embed(self, vectors: NDArray[Any], tests: Sequence[StepTest], *, centred: bool = True) -> Array:
        """Coordinates (k, w) that serve all of the given tests of this step."""
        return self.batches.embed(vectors, residual=self.needs_residual(tests), centred=centred)

    def susceptibility(self, places: Array) -> Array | None:
        """K of each candidate, shape (c,); places : their coordinates, by `embed` for this step's test at least."""
        if self.batches is self.gradients:
            return susceptibility_at(self.gradients, places)
        return susceptibility(self.gradients, self.view.candidates)

    def needs_residual(self, tests: Sequence[StepTest]) -> bool:
        return max(test.v0.size for test in tests) > self.batches.spectrum.size
