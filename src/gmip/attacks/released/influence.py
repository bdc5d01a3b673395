"""The inverse-Hessian attack: how far a record would have moved the weights, and in which direction they are off."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp, vmap

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import Attack, Need, Parties
from gmip.attacks.memory import rows_that_fit
from gmip.attacks.model_pass import LossFunction, evaluating
from gmip.attacks.released.released_gradients import Penalty, check_penalty, released
from gmip.attacks.signals import losses, released_model
from gmip.errors import GmipWarning, InvalidArgument, UnsupportedModel
from gmip.stats import ScoreSet
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import Inputs, arguments, logits, named, placed, rows_of
from gmip.trace import Trace

__all__ = [
    "Curvature",
    "Influence",
    "exact_solver",
    "solve_iteratively",
]


# -- the curvature of a loss at a model's weights ---------------------------------------------------------------------


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


# -- the inverse-hessian attack ---------------------------------------------------------------------------------------


_EXACT: Final = 1500  # parameters: up to this many the Hessian is written down
_DAMPING: Final = 0.1  # of the mean eigenvalue
_TOLERANCE: Final = 1.0e-4  # of conjugate gradients
_UNSOLVED: Final = 0.1  # a residual above this is said
_AT_A_TIME: Final = 256  # candidates
_PASSES: Final = 12.0  # operations for each parameter and record, of a product with the curvature
_MOST_WORK: Final = 2.0e12  # operations: some minutes of one core


@dataclass(frozen=True, kw_only=True)
class Influence(Attack):
    """The inverse-Hessian attack IHA (Suri, Zhang and Evans 2024) on released weights; no shadow model is trained.

    For a record with gradient g at the weights, N members, and the gradient G0 and Hessian H of the objective (mean
    loss and penalty) over OTHER records, the score is

        learning_rate loss/(1 + momentum) - |H^-1 g|^2/N - 2 (H^-1 G0)'(H^-1 g).

    In the paper the attacker knows the other members. Here they are not known, and background records stand in for
    them: at an optimum their G0 is off by what the members' draw explains, which is what the last term reads.

    Parameters
    ----------
    l2 : of the penalty (l2/2)|w|^2 on the mean loss, as of `Optimum`; None: the recipe's weight decay, or 0.
    damping : added to the eigenvalues of H; None: a tenth of their mean, which was chosen on digits and Adult with
        labels at hand (between .01 and 1 of the mean changes little there).
    learning_rate : weight of the loss in the score; None: the recipe's, or 0 if it has none; 0 leaves it out.
    hessian_records : how many of the background records H is averaged over.
    iterations : of conjugate gradients, for models with more than 1,500 parameters; smaller ones are solved exactly.
    second_order : whether the term |H^-1 g|^2/N is computed, for which every candidate is solved for; None: where that
        takes no more than some minutes, else it is left out, with a GmipWarning. The last term needs two solutions in
        all, since it is g'H^-2 G0.
    device : where the model is.
    seed : of the draw of background records for H.

    Guarantees
    ----------
    No label of the run is used. Scores order the candidates; they are no log-odds and there are no p-values. Negative
    curvature counts as none; for conjugate gradients H is the generalised Gauss-Newton matrix, which has none. Clipped
    gradients of a run are taken as clipped, their curvature as it is.
    """

    l2: Penalty = None
    damping: float | None = None
    learning_rate: float | None = None
    hessian_records: int = 2000
    iterations: int = 50
    second_order: bool | None = None
    device: str = "cpu"
    seed: int = 0

    name: ClassVar[str] = "influence"
    title: ClassVar[str] = "Inverse-Hessian attack (IHA, Suri et al. 2024)"
    needs: ClassVar[frozenset[Need]] = frozenset({"weights", "loss", "population", "labels"})

    def __post_init__(self) -> None:
        check_penalty(self.l2)
        if self.damping is not None:
            check.positive("damping", self.damping)
        if self.learning_rate is not None:
            check.non_negative("learning_rate", self.learning_rate)
        check.count("hessian_records", self.hessian_records)
        check.count("iterations", self.iterations)
        check.seed(self.seed)

    def _score(self, task: Task, trace: Trace, who: Parties, progress: Progress) -> ScoreSet:
        if not len(who.background):
            raise InvalidArgument("has no records", argument="background", remedy="pass some that are not members")
        order = np.argsort(who.ids)
        candidates = who.candidates[order]
        model = released_model(task, trace, device=self.device)
        at = released(task, trace, l2=self.l2, device=self.device)
        rows = np.random.default_rng(self.seed).permutation(len(who.background))[: self.hessian_records]
        some = who.background[np.sort(rows)]
        strength = torch.from_numpy(at.l2)
        curvature = Curvature(model, task.loss, at.gradients.names, some, strength)
        generator = torch.Generator().manual_seed(self.seed)
        exact = curvature.size <= _EXACT
        matrix = curvature.matrix() if exact else None
        mean = float(matrix.trace()) / len(matrix) if matrix is not None else curvature.mean_eigenvalue(generator)
        damping = self.damping if self.damping is not None else max(_DAMPING * mean, np.finfo(np.float64).tiny)
        exactly = None if matrix is None else exact_solver(matrix, damping)
        worst = 0.0

        def solve(vectors: Tensor) -> Tensor:
            nonlocal worst
            if exactly is not None:
                return exactly(vectors)
            found, left = solve_iteratively(
                curvature.positive_products, vectors, damping, iterations=self.iterations, tolerance=_TOLERANCE
            )
            worst = max(worst, left)
            return found

        others = torch.zeros(curvature.size, dtype=torch.float64, device=at.gradients.device)
        for chunk in at.gradients.chunks(who.background):
            others += chunk.double().sum(0)
        others = others / len(who.background) + torch.from_numpy(at.penalty).to(others)
        off = solve(solve(others[None]))[0]
        second = self._second_order(len(candidates), curvature.size, len(some), exact)
        weights = losses(task, model, candidates) * self._loss_weight(trace)
        scores, first = np.empty(len(candidates)), 0
        for chunk in at.gradients.chunks(candidates):
            for part in chunk.double().split(_AT_A_TIME):
                terms = 2.0 * (part @ off)
                if second:
                    terms += (solve(part) ** 2).sum(1) / trace.header.dataset_size
                scores[first : first + len(part)] = weights[first : first + len(part)] - terms.cpu().numpy()
                first += len(part)
                progress(first, len(candidates))
        if worst > _UNSOLVED:
            warnings.warn(
                f"conjugate gradients left {worst:.0%} of a right-hand side unsolved after {self.iterations} "
                "iterations: raise `iterations` or `damping`.",
                GmipWarning,
                stacklevel=3,
            )
        limit = np.finfo(np.float64).max
        found = np.empty_like(scores)
        found[order] = np.clip(scores, -limit, limit)
        facts: dict[str, Any] = {"damping": damping, "exact": exact, "second_order": second, "unsolved": worst}
        facts["hessian_records"] = len(some)
        return ScoreSet(ids=who.ids, scores=found, attack=self.name, facts=facts)

    def _second_order(self, candidates: int, params: int, records: int, exact: bool) -> bool:
        if self.second_order is not None or exact:
            return self.second_order is not False
        work = float(candidates) * self.iterations * records * params * _PASSES
        if work <= _MOST_WORK:
            return True
        warnings.warn(
            f"the term of second order of attack {self.name!r} is left out: it takes about {work:.1g} operations for "
            f"{candidates} candidates. Lower `hessian_records` or `iterations`, or set `second_order`.",
            GmipWarning,
            stacklevel=4,
        )
        return False

    def _loss_weight(self, trace: Trace) -> float:
        recipe = trace.header.recipe
        momentum = 0.0 if recipe is None else recipe.optimizer_options.get("momentum", 0.0)
        rate = self.learning_rate
        if rate is None:
            rate = 0.0 if recipe is None else recipe.learning_rate
        return float(rate) / (1.0 + float(momentum))
