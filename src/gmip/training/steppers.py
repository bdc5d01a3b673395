"""One optimizer step: plain where nothing is clipped or added; `gmip.training.noisy_stepper` has the other kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _validate as check
from gmip._random import Stream
from gmip.errors import InvalidArgument
from gmip.tasks.inputs import Inputs, answer, rows_of

GRAD_SAMPLE_MODES: Final = ("hooks", "functorch", "ew", "ghost")
Loss = Callable[[Tensor, Tensor], Tensor]


def noise_generator(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator whose whole state comes from `seed`.

    torch's own manual_seed keeps 32 bits of it on the CPU: few enough to try them all and subtract the noise. Still a
    Mersenne twister, not a cryptographic generator, and whoever knows the seed knows the noise.
    """
    sequence = Stream.NOISE.sequence(check.seed(seed))
    generator = torch.Generator(device)
    if generator.device.type != "cpu":
        return generator.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))
    # State of torch's CPU generator: seed (8 bytes), words left, seeded, next (16 bytes), 624 words of 8 bytes, ...
    state = generator.manual_seed(0).get_state()
    words = np.random.MT19937(sequence).state["state"]["key"].astype(np.uint64)
    state[24 : 24 + 8 * 624] = torch.from_numpy(words.view(np.uint8).copy())
    generator.set_state(state)
    return generator


class Stepper(ABC):
    """`step(inputs, targets, divisor=n)` takes one optimizer step on (sum of gradients)/divisor.

    Parameters
    ----------
    loss : (outputs, targets) -> loss of each example, shape (n,).
    max_physical_batch_size : a larger batch is computed in parts of at most this size; the step is the same.
    generator : of the noise, if there is any.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss,
        *,
        max_physical_batch_size: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.model, self.optimizer, self.loss, self.generator = model, optimizer, loss, generator
        if max_physical_batch_size is not None:
            max_physical_batch_size = check.count("max_physical_batch_size", max_physical_batch_size)
        self._part = max_physical_batch_size

    @abstractmethod
    def step(self, inputs: Inputs, targets: Tensor, *, divisor: int) -> tuple[Tensor, Tensor] | None:
        """Returns (outputs, losses) of the batch, detached; None if the batch is empty."""

    def release(self) -> nn.Module:
        """The model as it was handed in, trained, with no hooks left on it."""
        return self.model

    def _forward(self, inputs: Inputs, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs = answer(self.model, inputs)
        losses = self.loss(outputs, targets)
        # Any other shape would pass through the sums below and give another gradient, in ghost mode an unclipped one.
        if losses.shape != (len(targets),):
            raise InvalidArgument(
                f"returned shape {tuple(losses.shape)} for {len(targets)} examples",
                argument="loss",
                remedy=f"return one number for each, shape ({len(targets)},), such as with reduction='none'",
            )
        return outputs, losses

    def _parts(self, inputs: Inputs, targets: Tensor) -> list[tuple[Inputs, Tensor]]:
        size = self._part or max(1, len(targets))
        parts = [slice(first, first + size) for first in range(0, len(targets), size)]
        return [(rows_of(inputs, part), targets[part]) for part in parts]


class PlainStepper(Stepper):
    """No clipping, no noise, no per-example gradients: a plain PyTorch step."""

    def step(self, inputs: Inputs, targets: Tensor, *, divisor: int) -> tuple[Tensor, Tensor] | None:
        if len(targets) == 0:
            for p in _parameters(self.optimizer):
                p.grad = torch.zeros_like(p)
            self.optimizer.step()
            return None
        self.optimizer.zero_grad()
        seen = []
        for part, labels in self._parts(inputs, targets):
            outputs, losses = self._forward(part, labels)
            losses.backward(torch.full_like(losses, 1.0 / divisor))  # of sum/divisor, with less to differentiate
            seen.append((outputs.detach(), losses.detach()))
        self.optimizer.step()
        return joined(seen)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def joined(seen: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Outputs and losses of the parts of a batch as those of the batch."""
    return seen[0] if len(seen) == 1 else (torch.cat([o for o, _ in seen]), torch.cat([x for _, x in seen]))
