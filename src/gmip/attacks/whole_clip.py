"""A mean gradient that was clipped as a whole, by `clip_grad_norm_` say: what it was before.

What was published is s m with s = min(1, c/|m|). Where the recorder saw the factor it is undone. Where nobody knows it,
steps whose gradients have the same norm give themselves away, and s is estimated from the background: with M = s m and
m normal of mean mu and covariance V = Sigma (1/n + 1/k) + tau^2 I in the q main directions of k background gradients,
the log-likelihood of a = 1/s is q log a - (aM - mu)' V^-1 (aM - mu)/2, and its maximum

    a = (B + sqrt(B^2 + 4 A q)) / (2 A),    A = M' V^-1 M,    B = M' V^-1 mu.

Its relative error is 1/sqrt(q + A): the length of the mean is lost as evidence, one direction of r, and nothing else.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import compress, gram
from gmip.errors import GmipWarning
from gmip.tasks import Examples
from gmip.trace import Step, Trace

__all__ = ["estimated_growth", "unclipped"]

_SAME: Final = 1.0e-4  # relative: norms of gradients that were clipped to the same one
_NOISY: Final = 1.0e-5  # where noise was added, whose norms hardly differ if there are many parameters
_MOST: Final = 1000  # background records for an estimate
_PER_DIRECTION: Final = 5  # of them for each direction, so that variances are right to a fifth


def unclipped(trace: Trace, steps: Sequence[Step], gradients: PerExampleGradients, background: Examples) -> list[Step]:
    """The steps with the gradients that they had before they were clipped as a whole, where that happened."""
    norms = np.array([float(np.linalg.norm(np.asarray(step.gradient, dtype=np.float64))) for step in steps])
    # Of steps with unknown factors those at the largest norm, if there are several: chance makes none agree, nor three
    # with noise. A norm over some of the parameters shows nothing.
    noisy = any(step.info.noise_std > 0.0 for step in steps)
    open_ = np.array([step.info.clip_factor is None for step in steps])
    whole = trace.header.recorded_params == trace.header.num_params
    limit = float(norms[open_].max(initial=0.0))
    at_limit = open_ & (norms > (1.0 - (_NOISY if noisy else _SAME)) * limit) & whole & (limit > 0.0)
    if at_limit.sum() < (3 if noisy else 2):
        at_limit[:] = False
    found, factors = [], []
    for step, clipped in zip(steps, at_limit, strict=True):
        growth = 1.0 / (step.info.clip_factor or 1.0)
        if clipped and len(background) > 2 * _PER_DIRECTION:
            growth = _growth(trace, step, gradients, background)
            factors.append(1.0 / growth)
        if growth != 1.0:
            step = dataclasses.replace(
                step,
                info=dataclasses.replace(step.info, clip_factor=1.0),
                gradient=np.asarray(step.gradient, dtype=np.float64) * growth,
            )
        found.append(step)
    if factors:
        warnings.warn(
            f"{len(factors)} of {len(steps)} recorded gradients have the same norm {limit:.4g}: they were clipped as a "
            f"whole, by factors that are estimated here ({min(factors):.3g} to {max(factors):.3g}).",
            GmipWarning,
            stacklevel=4,
        )
    return found


def _growth(trace: Trace, step: Step, gradients: PerExampleGradients, background: Examples) -> float:
    info, poisson = step.info, trace.header.sampling == "poisson"
    n = trace.header.batch_size if poisson else info.batch_size
    some = background[np.random.default_rng(0).permutation(len(background))[:_MOST]]
    mean = np.asarray(step.gradient, dtype=np.float64) * (info.divisor / n)
    points = compress(gram(gradients.at(step.parameters), some, mean))
    return estimated_growth(points[-1], points[:-1], batch_size=n, noise_std=info.noise_std * info.divisor / n)


def estimated_growth(
    mean: NDArray[Any], background: NDArray[Any], *, batch_size: float, noise_std: float = 0.0
) -> float:
    """a = 1/s >= 1 from the clipped mean, shape (D,), and gradients of the same distribution, shape (k, D)."""
    k = len(background)
    centre = background.mean(axis=0)
    _, lengths, axes = np.linalg.svd(background - centre, full_matrices=False)
    variances = lengths**2 / (k - 1)
    q = min(max(1, k // _PER_DIRECTION), int(np.sum(variances > 1.0e-10 * variances[0])))
    v = variances[:q] * (1.0 / batch_size + 1.0 / k) + noise_std**2
    seen, expected = axes[:q] @ mean, axes[:q] @ centre
    a, b = float(np.sum(seen**2 / v)), float(np.sum(seen * expected / v))
    return max(1.0, (b + math.sqrt(b * b + 4.0 * a * q)) / (2.0 * a)) if a > 0.0 else 1.0
