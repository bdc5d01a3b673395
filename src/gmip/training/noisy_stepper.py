"""One step with clipping and noise: the paper's Algorithm 2 (errata applied), on Opacus.

    g_i <- gradient of example i;  g_i <- g_i min(1, C/|g_i|);  mean <- sum g_i / n;  mean <- mean + N(0, tau^2 I)

and then any torch optimizer. Noise is drawn for every entry of every parameter on its own. Importing Opacus takes as
long as importing torch: this module is loaded by the first run that needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import torch
from opacus.grad_sample import wrap_model
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _validate as check
from gmip.errors import UnsupportedModel
from gmip.tasks.inputs import Inputs, answer, rows_of
from gmip.training.models import check_model, trainable_parameters
from gmip.training.steppers import GRAD_SAMPLE_MODES, Loss, Stepper, joined

_TOLERANCE: Final = 1.0e-2  # of a gradient's norm: rounding stays far below, a wrong formula far above


class NoisyStepper(Stepper):
    """Clipped per-example gradients and noise, on Opacus.

    Parameters
    ----------
    clip_norm : C.
    noise_std : tau, of the noise on every entry of the MEAN.
    batch_size : n, if batches may be smaller (the last of an epoch): the noise on the SUM of such a batch is that of n
        examples, as the accountant takes it to be.
    grad_sample_mode : Opacus' way to per-example gradients: "hooks", "functorch", "ew" (torch's expanded weights),
        "ghost" (norms only: two backward passes, about the memory of plain SGD). "auto" takes "ghost" for plain stacks
        of linear layers, where it is many times faster, and "hooks" otherwise.
    generator : of the noise (see `noise_generator`).
    """

    model: Any  # Opacus' wrapper, with methods that nn.Module has not
    optimizer: DPOptimizer

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loss: Loss,
        *,
        clip_norm: float,
        noise_std: float,
        generator: torch.Generator,
        batch_size: int = 1,
        grad_sample_mode: str = "auto",
        max_physical_batch_size: int | None = None,
    ) -> None:
        check_model(model, per_example=True)
        self.clip_norm = check.positive("clip_norm", clip_norm)
        self.noise_std = check.non_negative("noise_std", noise_std)
        self.batch_size = check.count("batch_size", batch_size)
        check.one_of("grad_sample_mode", grad_sample_mode, ("auto", *GRAD_SAMPLE_MODES))
        if grad_sample_mode == "auto":
            grad_sample_mode = "ghost" if _is_stack_of_linear_layers(model) else "hooks"
        self._mode = grad_sample_mode
        self._ghost = grad_sample_mode == "ghost"
        _check_layers(model, grad_sample_mode)
        wrapped = wrap_model(model, grad_sample_mode=grad_sample_mode, loss_reduction="sum")
        private = (DPOptimizerFastGradientClipping if self._ghost else _ExactClipping)(
            optimizer,
            noise_multiplier=0.0,  # set in each step, with its divisor
            max_grad_norm=self.clip_norm,
            expected_batch_size=1,
            generator=generator,
        )
        super().__init__(wrapped, private, loss, max_physical_batch_size=max_physical_batch_size, generator=generator)
        self._held = {id(p) for p in private.params}
        self._verified = False

    def step(self, inputs: Inputs, targets: Tensor, *, divisor: int) -> tuple[Tensor, Tensor] | None:
        optimizer = self.optimizer
        # Opacus adds noise of std noise_multiplier * C to the sum and then divides by expected_batch_size.
        optimizer.expected_batch_size = divisor
        optimizer.noise_multiplier = self.noise_std * max(divisor, self.batch_size) / self.clip_norm
        optimizer.zero_grad(set_to_none=True)
        if len(targets) == 0:
            for p in optimizer.params:
                p.grad, p.grad_sample = torch.zeros_like(p), p.new_zeros((0, *p.shape))
            optimizer.step()
            return None
        parts = self._parts(inputs, targets)
        if not self._verified:
            self._verify(*parts[0])
        seen = []
        for i, (part, labels) in enumerate(parts):
            outputs, losses = self._forward(part, labels)
            self._backward(losses)
            seen.append((outputs.detach(), losses.detach()))
            optimizer.signal_skip_step(do_skip=i < len(parts) - 1)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return joined(seen)

    def release(self) -> nn.Module:
        self.optimizer.zero_grad(set_to_none=True)
        plain: nn.Module = self.model.to_standard_module()
        return plain

    def _backward(self, losses: Tensor) -> None:
        """Leaves per-example gradients in `grad_sample`, or (ghost) the sum of the clipped ones in `grad`."""
        if self._ghost:
            for p in self.model.parameters():  # norms of the last batch, should this one have none
                vars(p).pop("_norm_sample", None)
        losses.sum().backward(retain_graph=self._ghost)
        self._check_complete("_norm_sample" if self._ghost else "grad_sample")
        if self._ghost:
            self.optimizer.zero_grad(set_to_none=True)
            factor = _clip_factor(self.model.get_norm_sample(), self.clip_norm)
            self.model.disable_hooks()
            (factor * losses).sum().backward()
            self.model.enable_hooks()

    def _verify(self, inputs: Inputs, targets: Tensor) -> None:
        """Compare Opacus' gradient of one example with autograd's, once.

        A layer whose formula is wrong, or a weight that is also used outside its layer, gives gradients that are
        clipped by the wrong norm: the guarantee would fail unnoticed.
        """
        with torch.random.fork_rng(enabled=targets.device.type == "cpu"):
            with torch.no_grad():
                self._forward(inputs, targets)  # refuses a loss that is not per example, in terms of the whole batch
            inputs, targets = rows_of(inputs, slice(1)), targets[:1]
            state = torch.get_rng_state()
            self._verified = True
            with self._without_hooks() as plain:
                try:
                    outputs = answer(plain, inputs)
                except ValueError:  # torch refuses one example to a GroupNorm whose groups hold a single value
                    return
                self.loss(outputs, targets).sum().backward()
            expected = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in self._clipped()}
            self.optimizer.zero_grad(set_to_none=True)
            torch.set_rng_state(state)
            # forward() itself: a recorder's hook on the model must not count this example
            self.loss(answer(self.model.forward, inputs), targets).sum().backward()
            # A gradient that is small beside the others may be all rounding.
            floor = 1.0e-3 * torch.linalg.vector_norm(torch.stack([g.norm() for g in expected.values()]))
            for name, p in self._clipped():
                exact = torch.linalg.vector_norm(expected[name])
                if self._ghost:
                    error = (getattr(p, "_norm_sample", exact) - exact).abs().max()
                else:
                    error = torch.linalg.vector_norm(getattr(p, "grad_sample", expected[name]) - expected[name])
                if error > _TOLERANCE * (exact + floor):
                    raise UnsupportedModel(
                        f"Opacus' gradient of parameter {name} for one example is off by "
                        f"{float(error / (exact + floor)):.0%} in `grad_sample_mode` = {self._mode!r} (a layer "
                        "computed wrongly, or a weight used outside its layer)",
                        remedy="use another mode, such as 'functorch' or 'ew', or change the layer",
                    )
            self.optimizer.zero_grad(set_to_none=True)

    def _clipped(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, p) for name, p in trainable_parameters(self.model) if id(p) in self._held)

    @contextlib.contextmanager
    def _without_hooks(self) -> Iterator[nn.Module]:
        switch = hasattr(self.model, "disable_hooks")  # expanded weights have none: the inner module is plain torch
        if switch:
            self.model.disable_hooks()
        try:
            yield self.model._module
        finally:
            if switch:
                self.model.enable_hooks()

    def _check_complete(self, attribute: str) -> None:
        for name, p in trainable_parameters(self.model):
            if getattr(p, attribute, None) is None and (self._ghost or id(p) in self._held):
                raise UnsupportedModel(
                    f"Opacus found no per-example gradient of parameter {name} to clip",
                    remedy="freeze it with requires_grad_(False) if it takes no part in the loss, else try another "
                    "`grad_sample_mode`",
                )


class _ExactClipping(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimizer with the factor min(1, C/norm) itself, where Opacus takes min(1, C/(norm + 1e-6))."""

    def clip_and_accumulate(self) -> None:
        samples = [g.reshape(len(g), p.numel()) for p, g in zip(self.params, self.grad_samples, strict=True)]
        norms = torch.stack([torch.linalg.vector_norm(g, dim=1) for g in samples])
        factor = _clip_factor(torch.linalg.vector_norm(norms, dim=0), self.max_grad_norm)
        for p, g in zip(self.params, samples, strict=True):
            total = (factor @ g).view_as(p)
            p.summed_grad = total if p.summed_grad is None else p.summed_grad + total


def _is_stack_of_linear_layers(model: nn.Module) -> bool:
    layers = [layer for _, layer in model.named_modules(remove_duplicate=False)]
    weights = [id(layer.weight) for layer in layers if isinstance(layer, nn.Linear)]
    plain = (nn.Sequential, nn.Linear, nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid, nn.Dropout, nn.Flatten)
    return bool(weights) and len(set(weights)) == len(weights) and all(type(layer) in plain for layer in layers)


def _check_layers(model: nn.Module, grad_sample_mode: str) -> None:
    """Refuse layers that Opacus 1.6 on torch 2.13 gets wrong without an error, in some modes."""
    right: tuple[str, ...]
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and module.padding_idx is not None and module.weight.requires_grad:
            wrong, right = "padding_idx", ("functorch",)
        elif isinstance(module, nn.modules.conv._ConvNd) and module.padding_mode != "zeros":
            wrong, right = f"padding_mode = {module.padding_mode!r}", ("functorch", "ew")
        else:
            continue
        if grad_sample_mode not in right:
            raise UnsupportedModel(
                f"Opacus ignores {wrong} of layer {name or 'model'} ({type(module).__name__}) in `grad_sample_mode` = "
                f"{grad_sample_mode!r}",
                remedy=f"use {' or '.join(map(repr, right))}, or leave it out",
            )


def _clip_factor(norms: Tensor, clip_norm: float) -> Tensor:
    """min(1, C/norm), shape (n,); 1 for a gradient of zero."""
    return (clip_norm / norms).clamp(max=1.0)
