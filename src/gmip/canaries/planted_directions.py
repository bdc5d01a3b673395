"""Canaries that are gradients: each adds a vector of the clip norm to the batches that it is in."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _validate as check
from gmip._random import CanaryStream
from gmip.auditing.schema import AuditResult
from gmip.canaries.coins import Coins
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.training.models import bare_optimizer, trainable_parameters

__all__ = ["DirectionCanaries"]

_CONTROLS: Final = 0.25  # directions, for each canary, that are never planted: they show how much the others vary
_FEWEST_CONTROLS: Final = 25


class DirectionCanaries(Coins):
    """`count` records whose clipped gradients are random directions, planted into any training loop.

        canaries = DirectionCanaries(500)
        with canaries.attached(model, optimizer, sample_rate=64 / 50_000):
            ...  # the training loop as it is
        canaries.audit(claim=(8.0, 1e-5))

    In each step the entries of the gradient are dealt out to the canaries, at random but as evenly as it goes, with
    random signs that are new in each step: directions of norm 1 that are orthogonal to each other, so canaries do not
    hide each other, and what real records add is noise that does not repeat. A canary that is in the batch adds
    clip_norm times its direction to the sum of clipped gradients. What the optimizer is then handed is projected on
    all directions, and the score of a canary is the log-likelihood ratio of "in, and drawn with `sample_rate`".

    Parameters
    ----------
    count : canaries; about half will be in. The model must have more parameters than 1.25 times as many.
    seed : of coins, batches and directions; None: a random one.

    Guarantees
    ----------
    Each canary is a record of norm `clip_norm` in every batch that it is in, as differential privacy allows: a run that
    keeps (epsilon, delta), or a trade-off function, under adding one record keeps it for the canaries' scores. They
    test the noise that was really added and the accounting of it. They do not pass through the loop's own clipping or
    sampling: for these plant records (`RecordCanaries`). Scores are functions of what the optimizer was handed.
    """

    def __init__(self, count: int = 1000, *, seed: int | None = None) -> None:
        super().__init__(count, seed)
        self._controls = max(_FEWEST_CONTROLS, round(_CONTROLS * self.count))
        self._scores = np.zeros(self.count)
        self._steps = 0

    def __repr__(self) -> str:
        return f"<DirectionCanaries: {self.count}, {self._steps} steps seen>"

    @contextlib.contextmanager
    def attached(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        sample_rate: float,
        clip_norm: float | None = None,
        batch_size: int | None = None,
    ) -> Iterator[None]:
        """In the block, the canaries take part in every step of the optimizer.

        A recorder that is entered before it records the gradients without the canaries, one that is entered inside it
        with them.

        Parameters
        ----------
        sample_rate : p, the chance that a record is in a batch: batch_size/dataset_size; 1 for full batches.
        clip_norm, batch_size : C, and what the sum of clipped gradients is divided by; read from Opacus' optimizer.
        """
        rate = check.probability("sample_rate", sample_rate, open_low=True)
        wrapper: Any = bare_optimizer(optimizer)
        private = wrapper if hasattr(wrapper, "original_optimizer") else None
        inner: Optimizer = wrapper if private is None else wrapper.original_optimizer
        held = {id(p) for group in inner.param_groups for p in group["params"]}
        parameters = [p for _, p in trainable_parameters(model) if id(p) in held]
        norm = _given("clip_norm", clip_norm, None if private is None else float(private.max_grad_norm))
        if private is None:
            _given("batch_size", batch_size, None)
        garden = _Garden(parameters, self.count, self._controls, self.seed)

        def before_step(_: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if (args[1] if len(args) > 1 else kwargs.get("closure")) is not None:
                raise UnsupportedModel(
                    "Canaries cannot be planted into step(closure)", remedy="call the closure first, then step()"
                )
            if private is None:
                divisor = float(batch_size or 1)
            elif private.loss_reduction == "sum":
                divisor = 1.0
            else:
                divisor = float(private.expected_batch_size * private.accumulated_iterations)
            rng = CanaryStream.BATCHES.rng(self.seed, self._steps)
            drawn = self.inside & (rng.random(self.count) < rate)
            seen = garden.plant(self._steps, drawn, norm / divisor)
            self._scores += _evidence(seen[: self.count], seen[self.count :], rate)
            self._steps += 1

        handle = inner.register_step_pre_hook(before_step)
        try:
            yield
        finally:
            handle.remove()

    @property
    def scores(self) -> NDArray[np.float64]:
        """The log-likelihood ratio of each canary, shape (count,), over the steps so far."""
        if self._steps == 0:
            raise InvalidArgument(
                "The canaries have seen no step", remedy="train inside `with canaries.attached(model, optimizer, ...)`"
            )
        return self._scores.copy()

    def audit(
        self,
        *,
        claim: Any = None,
        delta: float = 1.0e-5,
        confidence: float = 0.95,
        fprs: Sequence[float] = (0.01, 0.1),
        title: str | None = None,
    ) -> AuditResult:
        """Whether the run keeps its guarantee against these canaries: (epsilon, delta), a mu or a `TradeOff`."""
        return self._audited(self.scores, claim=claim, delta=delta, confidence=confidence, fprs=fprs, title=title)


class _Garden:
    """Who has which entries of the gradient."""

    def __init__(self, parameters: Sequence[Tensor], count: int, controls: int, seed: int) -> None:
        self._parameters = parameters
        self._size, self._beds = sum(p.numel() for p in parameters), count + controls
        if self._beds > self._size:
            raise InvalidArgument(
                f"needs {self._beds} directions, and the model has {self._size} trainable parameters",
                argument="count",
                value=count,
                remedy=f"plant at most {int(self._size / (1.0 + _CONTROLS))}",
            )
        self._count, self._seed = count, seed
        order = CanaryStream.DIRECTIONS.rng(seed).permutation(self._size)
        bed = np.empty(self._size, dtype=np.int64)
        bed[order] = np.arange(self._size) % self._beds
        self._bed = torch.from_numpy(bed).to(parameters[0].device)
        self._root = torch.bincount(self._bed, minlength=self._beds).double().sqrt()

    def plant(self, step: int, drawn: NDArray[np.bool_], length: float) -> NDArray[np.float64]:
        """Add `length` times their directions for those drawn; return the projections of what is there then on all
        directions, in units of `length`, shape (count + controls,)."""
        device = self._bed.device
        generator = torch.Generator().manual_seed(CanaryStream.SIGNS.torch_seed(self._seed, step))
        signs = torch.randint(0, 2, (self._size,), generator=generator, dtype=torch.int8).to(device) * 2 - 1
        weights = torch.zeros(self._beds, dtype=torch.float64, device=device)
        weights[: self._count] = torch.from_numpy(drawn).to(device) * length
        weights /= self._root
        seen = torch.zeros(self._beds, dtype=torch.float64, device=device)
        first = 0
        for p in self._parameters:
            rows = slice(first, first + p.numel())
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad += (signs[rows] * weights[self._bed[rows]]).view_as(p).to(p.grad.dtype)
            seen.scatter_add_(0, self._bed[rows], signs[rows] * p.grad.detach().reshape(-1).double())
            first = rows.stop
        found: NDArray[np.float64] = (seen / self._root / length).cpu().numpy()
        return found


def _evidence(seen: NDArray[np.float64], controls: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """log of (1 - p) + p N(x; 1, v)/N(x; 0, v), with the variance that directions have which nobody planted."""
    variance = max(float(np.mean(controls**2)), np.finfo(np.float64).tiny)
    ratio = np.clip((seen - 0.5) / variance, -1.0e6, 1.0e6)  # without noise it has no bound
    return ratio if rate == 1.0 else np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


def _given(name: str, value: float | None, known: float | None) -> float:
    if value is not None:
        return check.positive(name, value)
    if known is None:
        raise InvalidArgument(
            "is not known: the optimizer is not Opacus'",
            argument=name,
            remedy="pass what the loop clips and divides by",
        )
    return known
