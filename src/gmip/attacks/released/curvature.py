"""The curvature of a loss at a model's weights, and its inverse on vectors: exact for small models, else by conjugate
gradients on products of the Hessian with vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from gmip.attacks.memory import rows_that_fit
from gmip.attacks.model_pass import LossFunction, evaluating
from gmip.errors import UnsupportedModel
from gmip.tasks import Examples
from gmip.tasks.inputs import Inputs, arguments, logits, named, placed, rows_of

__all__ = ["Curvature", "exact_solver", "solve_iteratively"]

_MOST_EXAMPLES: Final = 1024  # at a time
_WORKING_BYTES: Final = 2**28
_PROBES: Final = 16  # random signs that estimate a trace
_FAILURES: Final = (RuntimeError, TypeError, ValueError, NotImplementedError)


class Curvature:
    """The Hessian of the mean loss of some examples plus a penalty, at the weights of a model, in float64.

    Parameters
    ----------
    model : in eval mode; the Hessian is by its parameters `names`, flattened in that order.
    examples : over which the loss is averaged.
    penalty : shape (d,), added to the diagonal: the second derivative of the penalty.
    """

    def __init__(
        self, model: nn.Module, loss: LossFunction, names: tuple[str, ...], examples: Examples, penalty: Tensor
    ) -> None:
        self._model, self._loss, self._examples = model, loss, examples
        state = {n: t.detach() for n, t in (*model.named_parameters(), *model.named_buffers())}
        wide = {n: t.double() if t.is_floating_point() else t for n, t in state.items()}
        self._shapes = {name: wide[name].shape for name in names}
        self._rest = {name: t for name, t in wide.items() if name not in self._shapes}
        self._at = torch.cat([wide[name].reshape(-1) for name in names])
        self._penalty = penalty.to(self._at)
        self.size = self._at.numel()

    def products(self, vectors: Tensor) -> Tensor:
        """H v for each row, shape (k, d)."""
        return self._summed(vectors, self._hessian)

    def positive_products(self, vectors: Tensor) -> Tensor:
        """The same of the generalised Gauss-Newton matrix J'LJ, L the Hessian of the loss by the model's outputs and J
        their Jacobian: never negative where the loss is convex in the outputs, and the Hessian itself for models that
        are linear in their parameters or fit perfectly."""
        return self._summed(vectors, self._gauss_newton)

    def _hessian(self, inputs: Inputs, targets: Tensor) -> Callable[[Tensor], Tensor]:
        def loss(flat: Tensor) -> Tensor:
            return self._loss(self._outputs(flat, inputs), targets).sum()

        back = vjp(grad(loss), self._at)[1]  # the Hessian is symmetric: v'H is Hv
        return lambda v: back(v)[0]

    def _gauss_newton(self, inputs: Inputs, targets: Tensor) -> Callable[[Tensor], Tensor]:
        def outputs_at(flat: Tensor) -> Tensor:
            return self._outputs(flat, inputs)

        def loss_of(outputs: Tensor) -> Tensor:
            return self._loss(outputs, targets).sum()

        outputs, back = vjp(outputs_at, self._at)[:2]

        def transposed(u: Tensor) -> Tensor:  # J'u, linear in u: its own transpose is J
            found: Tensor = back(u)[0]
            return found

        forward = vjp(transposed, torch.zeros_like(outputs))[1]
        middle = vjp(grad(loss_of), outputs)[1]
        return lambda v: transposed(middle(forward(v)[0])[0])

    def _outputs(self, flat: Tensor, inputs: Inputs) -> Tensor:
        args, kwargs = arguments(inputs)
        found: Tensor = logits(functional_call(self._model, {**self._rest, **self._named(flat)}, args, kwargs))
        return found

    def _summed(self, vectors: Tensor, make: Callable[[Inputs, Tensor], Callable[[Tensor], Tensor]]) -> Tensor:
        total = self._penalty * vectors
        count = len(self._examples)
        for first in range(0, count, _MOST_EXAMPLES):
            rows = slice(first, min(first + _MOST_EXAMPLES, count))
            inputs, targets = (
                placed(rows_of(part, rows), self._at.device, self._at.dtype)
                for part in (self._examples.inputs, self._examples.targets)
            )
            entries = self.size + sum(t.numel() for t in named(inputs).values())
            at_a_time = rows_that_fit(64 * entries, _WORKING_BYTES, at_most=256)
            try:
                with evaluating(self._model):
                    product = make(inputs, targets)
                    for part in range(0, len(vectors), at_a_time):
                        some = slice(part, part + at_a_time)
                        total[some] += vmap(product)(vectors[some]).detach() / count
            except _FAILURES as error:
                why = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise UnsupportedModel(
                    f"The curvature of the model's loss cannot be computed (torch.func: {why})",
                    remedy="use the attacks 'loss' or 'lira'",
                ) from error
        return total

    def matrix(self) -> Tensor:
        """All of it, shape (d, d)."""
        found = self.products(torch.eye(self.size, dtype=torch.float64, device=self._at.device))
        return (found + found.T) / 2

    def mean_eigenvalue(self, generator: torch.Generator) -> float:
        """Of the Gauss-Newton matrix: its trace over d, estimated from products with random signs (Hutchinson)."""
        signs = torch.randint(0, 2, (_PROBES, self.size), generator=generator).double().to(self._at) * 2.0 - 1.0
        return float((signs * self.positive_products(signs)).sum()) / signs.numel()

    def _named(self, flat: Tensor) -> Mapping[str, Tensor]:
        sizes = [shape.numel() for shape in self._shapes.values()]
        parts = flat.split(sizes)
        return {name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)}


def exact_solver(matrix: Tensor, damping: float) -> Callable[[Tensor], Tensor]:
    """(H + damping)^-1 v for each row of shape (k, d), negative curvature counted as none."""
    values, axes = torch.linalg.eigh(matrix)
    scale = 1.0 / (values.clamp(min=0.0) + damping)
    return lambda vectors: (vectors @ axes * scale) @ axes.T


def solve_iteratively(
    products: Callable[[Tensor], Tensor], vectors: Tensor, damping: float, *, iterations: int, tolerance: float
) -> tuple[Tensor, float]:
    """(H + damping)^-1 v for each row by conjugate gradients, shape (k, d), and the largest relative residual left.

    A row stops where its residual is below `tolerance`, or where a direction of negative curvature comes up.
    """
    found = torch.zeros_like(vectors)
    left = vectors.clone()
    step = left.clone()
    norms = (vectors**2).sum(1)
    squares = norms.clone()
    active = norms > 0.0
    for _ in range(iterations):
        if not bool(active.any()):
            break
        some = active.nonzero()[:, 0]
        image = products(step[some]) + damping * step[some]
        curvature = (step[some] * image).sum(1)
        good = curvature > 0.0
        active[some[~good]] = False
        some, image, curvature = some[good], image[good], curvature[good]
        length = squares[some] / curvature
        found[some] += length[:, None] * step[some]
        left[some] -= length[:, None] * image
        after = (left[some] ** 2).sum(1)
        step[some] = left[some] + (after / squares[some])[:, None] * step[some]
        squares[some] = after
        active[some[after <= tolerance**2 * norms[some]]] = False
    known = norms > 0.0
    worst = (left[known].square().sum(1) / norms[known]).sqrt().max() if bool(known.any()) else torch.tensor(0.0)
    return found, float(worst)
