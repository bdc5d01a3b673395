"""Attacks on released weights: the members' mean gradient at an optimum, and the inverse Hessian."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vjp, vmap

from gmip import _validate as check
from gmip._progress import Progress
from gmip.attacks.attack import Attack, AttackedRecords
from gmip.attacks.glir import Play, background_needed
from gmip.attacks.glir.scoring import Background
from gmip.attacks.gradients import LossFunction, PerExampleGradients, evaluating
from gmip.attacks.optimality import (
    FAR,
    OptimumOutcome,
    decode_optimum,
    decode_optimum_products,
    enough_background,
    optimum_scores,
)
from gmip.attacks.signals import losses, released_model
from gmip.attacks.step_vectors import compress, gram
from gmip.attacks.work import as_bytes, rows_that_fit
from gmip.errors import InvalidArgument, UnsupportedModel, warn
from gmip.stats import ScoreSet
from gmip.stats.scores import finite
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import Inputs, arguments, logits, mapped, named, placed, rows_of
from gmip.trace import Header, ModelRecord

# -- a released model and the gradients of records at its weights -----------------------------------------------------


Array = NDArray[np.float64]
Penalty = float | Mapping[str, float] | None
_DECOUPLED: Final = ("adamw", "nadamw", "radamw", "lion")  # their decay is no penalty of the loss


class AtWeights(NamedTuple):
    """Gradients of the records' losses at the released weights, and the penalty's, in some orthonormal coordinates."""

    candidates: Array
    background: Array
    penalty: Array
    extra_dims: int


class ReleasedGradients(NamedTuple):
    """Attributes
    ----------
    model : the released one.
    gradients : of single records at its weights.
    penalty : array of shape (d,), the gradient of the penalty there.
    """

    model: nn.Module
    gradients: PerExampleGradients
    penalty: Array
    l2: Array  # the strength of the penalty on each entry

    def vectors(self, who: AttackedRecords) -> AtWeights:
        """Gradients of candidates and background: their entries, or where there are more of these than records,
        coordinates in the span of all vectors."""
        cut = len(who.candidates)
        if self.gradients.num_params <= cut + len(who.background) + 1:
            rows = [self._rows(one) for one in (who.candidates, who.background)]
            return AtWeights(rows[0], rows[1], self.penalty, 0)
        points = compress(self.products(who.candidates, who.background))
        return AtWeights(points[:cut], points[cut:-1], points[-1], self.gradients.num_params - points.shape[1])

    def products(self, *sets: Examples) -> Array:
        """All inner products of the records' gradients, set after set, and the penalty's."""
        return gram(self.gradients, [one for one in sets if len(one)], self.penalty)

    def _rows(self, examples: Examples) -> Array:
        if not len(examples):
            return np.empty((0, self.gradients.num_params))
        return self.gradients.rows(examples).double().cpu().numpy()


def released(
    task: Task, target: ModelRecord, *, l2: Penalty, device: str = "cpu", memory_limit: float | str | None = None
) -> ReleasedGradients:
    """The model that the run released last, and its penalty; nothing else of the trace is used but its header."""
    model = released_model(task, target, device=device)
    gradients = PerExampleGradients.for_trace(model, task.loss, target.header, memory_limit=memory_limit)
    values = dict(model.named_parameters())
    strength = _strengths(l2, target.header, {name: values[name] for name in gradients.names})
    flat = torch.cat([values[name].detach().reshape(-1) for name in gradients.names]).double().cpu().numpy()
    return ReleasedGradients(model, gradients, strength * flat, strength)


def check_penalty(l2: Penalty) -> None:
    """Raise unless it is a number, numbers by the name of a parameter, or None."""
    if isinstance(l2, Mapping):
        for name, value in l2.items():
            check.non_negative(f"l2[{name!r}]", value)
    elif l2 is not None:
        check.non_negative("l2", l2)


def _strengths(l2: Penalty, header: Header, parameters: Mapping[str, Tensor]) -> Array:
    if l2 is None:
        l2 = _decay(header)
    if isinstance(l2, Mapping):
        for name in l2:
            if name not in parameters:
                raise InvalidArgument(
                    f"has {name!r}, which is not a recorded parameter{check.did_you_mean(name, parameters)}",
                    argument="l2",
                    remedy=f"pass some of {', '.join(list(parameters)[:8])}",
                )
    each = l2 if isinstance(l2, Mapping) else dict.fromkeys(parameters, l2)
    parts = [np.full(p.numel(), float(each.get(name, 0.0))) for name, p in parameters.items()]
    return np.concatenate(parts)


def _decay(header: Header) -> float:
    """The weight decay of the recipe, where it is a penalty of the loss; 0 if there is none."""
    if header.recipe is None:
        return 0.0
    decay = header.recipe.optimizer_options.get("weight_decay", 0.0)
    if decay and header.recipe.optimizer.lower() in _DECOUPLED:
        raise InvalidArgument(
            f"The run's optimizer, {header.recipe.optimizer}, decays weights apart from the loss, so its model does "
            f"not converge to an optimum of a penalised loss",
            remedy="pass `l2` = 0 to attack it nevertheless",
        )
    return float(decay) if isinstance(decay, (int, float)) else 0.0


# -- attacks on a model that was trained to an optimum ----------------------------------------------------------------


_NOTHING: Final = 0.01  # bits per candidate: less is not decoded


@dataclass(frozen=True, kw_only=True)
class _AtOptimum(Attack):
    l2: Penalty = None
    memory_limit: float | str | None = None
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        check_penalty(self.l2)
        if self.memory_limit is not None:
            as_bytes("memory_limit", self.memory_limit)
        check.seed(self.seed)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Progress) -> ScoreSet:
        found = self._found(task, target, who)
        if not found.at_optimum:
            listed = ", or the list does not contain its members" if found.decoded is not None else ""
            limit = FAR[found.decoded is not None]
            warn(
                f"the released model is not an optimum of its loss and penalty{listed}: the mean gradient of the "
                f"records "
                f"at hand is {found.distance:.3g} times what chance explains, squared (up to {limit:g} is an optimum), "
                f"so attack {self.name!r} is unreliable here and its scores are shrunk. Check `l2`, or attack the "
                "gradients of training, or use shadow models (lira)."
            )
        elif found.fitted:
            warn(
                "the released model fits its members so well that their gradients are much smaller than others' (the "
                f"mean gradient of the records at hand is {found.distance:.2g} of what chance gives it, squared), so "
                f"attack {self.name!r} is weak and its log-odds are too sure. Use shadow models (lira) as well."
            )
        elif not found.explained:
            warn(
                "a random draw from the list does not explain the released weights (the members' sum of gradients "
                f"varies {found.excess:.3g} times as much): the list does not contain the members, or the model fits "
                "them so well that their gradients are unlike others'. So no candidate counts as decided. "
                "Check the list, or pass `coverage` and background records, or use shadow models (lira)."
            )
        scores = found.log_odds
        parts: dict[str, Any] = {"facts": {"distance": found.distance, "at_optimum": found.at_optimum}}
        if found.glir is not None:
            parts["p_values"] = found.glir.p_values
            if found.at_optimum and not found.fitted:
                parts["prediction"] = found.glir.prediction
            parts["facts"] |= {"rank": found.glir.rank, "cutoff": found.glir.cutoff, "ridge": found.glir.ridge}
            parts["facts"]["background"] = len(who.background)
        if found.decoded is not None:
            parts["facts"] |= {
                "residual": float(found.residual or 0.0),
                "coverage": found.decoded.coverage,
                "decoded": found.sure,
                "explained": found.explained,
                "bits": max(0.0, found.decoded.gain) if found.explained else 0.0,
                "misfit": found.decoded.misfit,
            }
            parts["p_values"] = np.exp(-np.maximum(scores, 0.0))
        progress(len(scores), len(scores))
        return ScoreSet(ids=who.ids, scores=scores, attack=self.name, calibration=(1.0, 0.0), **parts)

    @abstractmethod
    def _found(self, task: Task, target: ModelRecord, who: AttackedRecords) -> OptimumOutcome:
        """What the weights tell about the candidates."""


@dataclass(frozen=True, kw_only=True)
class Optimum(_AtOptimum):
    """GLiR on released weights, for models trained to an optimum (docs/released-models.md). Nothing is trained.

    Where loss + (l2/2)|w|^2 is least, the members' mean gradient is -l2 w: GLiR takes that for a published mean.
    Only the header and the released model of the trace are used.

    Parameters
    ----------
    l2 : strength of the penalty (l2/2)|w|^2 on the MEAN loss: a number, or numbers by the name of a parameter (those
        not named are not penalised); None: the weight decay of the run's recipe, or 0. For scikit-learn's
        LogisticRegression it is 1/(C N), of the weights and not of the bias.
    play : self-play, as of GLiR; None: none.
    background : "with-candidates" fits on background and candidates alike, as of GLiR: an attacker who holds a list
        that contains members, and judged as such by an audit. It needs self-play.
    memory_limit : bytes or "3 GiB"; None: half of what is free.
    device : where gradients are computed.
    seed : of self-play; the same seed gives the same scores.

    Guarantees
    ----------
    No label of the run is used. With self-play p-values hold whatever the model, as GLiR's do. Scores are log-odds at
    even prior odds at an optimum, approximately; how far the model is from one is measured (`distance` in facts: the
    pool's mean gradient, squared, in units of what chance explains), and where that is above 2 scores are divided by it
    and a GmipWarning says so; another says where the model fits its members too well for the test.
    """

    play: Play | None = field(default_factory=Play)
    background: Background = "alone"

    name: ClassVar[str] = "optimum"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.play is not None and not isinstance(self.play, Play):
            raise InvalidArgument("must be a gmip.attacks.glir.Play or None", argument="play", value=self.play)
        check.one_of("background", self.background, get_args(Background))
        if self.holds_list and self.play is None:
            raise InvalidArgument(
                "needs self-play", argument="background", value=self.background, remedy="leave out `play` = None"
            )

    @property
    def holds_list(self) -> bool:
        """An attacker with candidates in the background holds a list."""
        return self.background == "with-candidates"

    def _found(self, task: Task, target: ModelRecord, who: AttackedRecords) -> OptimumOutcome:
        size, count = target.header.dataset_size, len(who.background)
        if not count:
            raise InvalidArgument("has no records", argument="background", remedy="pass some that are not members")
        if self.play is not None and not self.holds_list and count < background_needed(size):
            warn(
                f"background has {count} examples and self-play with {size} members needs {background_needed(size)}, "
                "so the attack runs without self-play. Pass more background."
            )
        at = released(task, target, l2=self.l2, device=self.device, memory_limit=self.memory_limit).vectors(who)
        return optimum_scores(
            at.candidates,
            at.background,
            penalty_gradient=at.penalty,
            dataset_size=size,
            play=self.play,
            with_candidates=self.holds_list,
            extra_dims=at.extra_dims,
            seed=self.seed,
        )


@dataclass(frozen=True, kw_only=True)
class OptimumDecode(_AtOptimum):
    """Decoding of released weights, for models trained to an optimum (docs/released-models.md). Nothing is trained.

    Where loss + (l2/2)|w|^2 is least, the members' gradients add up to -N l2 w: decoding solves that for all candidates
    of a list at once. Only the header and the released model of the trace are used.

    Parameters
    ----------
    l2, memory_limit, device : as of `Optimum`.
    coverage : q, the share of the members that the candidates contain; None: estimated.
    most_sweeps : as of `Decode`.
    seed : of the measure of the distance from an optimum.

    Guarantees
    ----------
    They are those of `Decode`: log-odds at even prior odds, without a label of the run, approximate. How exactly
    training met its optimum is estimated. A p-value is exp(-score), at most 1. This attacker holds a list that contains
    the members: no guarantee for an attacker who knows nobody speaks about it. Away from an optimum, and where members
    drawn from the list do not explain the weights (strangers, a model that interpolates), scores are shrunk, with a
    GmipWarning. For c candidates memory is about four c x c matrices.
    """

    coverage: float | None = None
    most_sweeps: int = 15

    name: ClassVar[str] = "optimum-decode"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coverage is not None:
            check.above_zero("coverage", self.coverage)
        check.count("most_sweeps", self.most_sweeps)

    def _found(self, task: Task, target: ModelRecord, who: AttackedRecords) -> OptimumOutcome:
        model = released(task, target, l2=self.l2, device=self.device, memory_limit=self.memory_limit)
        params = model.gradients.num_params
        how: dict[str, Any] = {
            "dataset_size": target.header.dataset_size,
            "coverage": self.coverage,
            "most_sweeps": self.most_sweeps,
            "seed": self.seed,
        }
        if 2 * params > len(who.candidates) and not enough_background(len(who.background), params):
            found = decode_optimum_products(model.products(who.candidates), dims=params, **how)
        else:
            at = model.vectors(who)
            found = decode_optimum(at.candidates, penalty_gradient=at.penalty, background=at.background, **how)
        if found.at_optimum and found.explained and found.decoded is not None and found.decoded.gain < _NOTHING:
            warn(
                "the released weights do not distinguish the listed candidates: decoding finds less than "
                f"{_NOTHING:g} bits per candidate."
            )
        return found


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

    def positive_products(self, vectors: Tensor) -> Tensor:
        """G v for each row, shape (k, d), of the generalised Gauss-Newton matrix G = J'LJ, L the Hessian of the loss by
        the model's outputs and J their Jacobian: never negative where the loss is convex in the outputs, and the
        Hessian itself for models that are linear in their parameters or fit perfectly."""
        total = self._penalty * vectors
        with self._reported():
            for inputs, targets in self._parts(_MOST_EXAMPLES):
                product, size = self._gauss_newton(inputs, targets), self._at_a_time(inputs)
                for part in range(0, len(vectors), size):
                    some = slice(part, part + size)
                    total[some] += vmap(product)(vectors[some]).detach() / len(self._examples)
        return total

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

    def _at_a_time(self, inputs: Inputs) -> int:
        """How many vectors to multiply at a time."""
        entries = self.size + sum(t.numel() for t in named(inputs).values())
        return rows_that_fit(64 * entries, _WORKING_BYTES, at_most=256)

    def _parts(self, size: int) -> Iterator[tuple[Inputs, Tensor]]:
        """Inputs and targets of so many examples at a time, as the model takes them."""
        for first in range(0, len(self._examples), size):
            rows = slice(first, first + size)
            inputs, targets = (
                placed(rows_of(part, rows), self._at.device, self._at.dtype)
                for part in (self._examples.inputs, self._examples.targets)
            )
            assert isinstance(targets, Tensor)
            yield inputs, targets

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            with evaluating(self._model):
                yield
        except _FAILURES as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UnsupportedModel(
                f"The curvature of the model's loss cannot be computed (torch.func: {why})",
                remedy="use the attacks 'loss' or 'lira'",
            ) from error

    def matrix(self) -> Tensor:
        """All of the Hessian, shape (d, d)."""

        def loss(flat: Tensor, inputs: Inputs, targets: Tensor) -> Tensor:
            return self._loss(self._outputs(flat, inputs), targets).sum()

        total = self._penalty.diag()
        with self._reported():
            for inputs, targets in self._parts(_MOST_EXAMPLES):
                found = jacrev(grad(loss), chunk_size=self._at_a_time(inputs))(self._at, inputs, targets)
                total += found.detach() / len(self._examples)
        return (total + total.T) / 2

    def num_outputs(self) -> int:
        """How many numbers the model says of one example."""
        with self._reported():
            inputs, _ = next(self._parts(1))
            return self._outputs(self._at, inputs).numel()

    def positive_matrix(self) -> Tensor:
        """All of the Gauss-Newton matrix, shape (d, d), from the Jacobians of single examples."""

        def outputs_of_one(flat: Tensor, inputs: Inputs) -> Tensor:
            return self._outputs(flat, mapped(lambda t: t[None], inputs))[0]

        def loss_of_one(outputs: Tensor, target: Tensor) -> Tensor:
            return self._loss(outputs[None], target[None]).sum()

        total = torch.zeros(self.size, self.size, dtype=self._at.dtype, device=self._at.device)
        wide = self.num_outputs()
        with self._reported():
            for inputs, targets in self._parts(rows_that_fit(32 * wide * self.size, _WORKING_BYTES, at_most=256)):
                outputs = self._outputs(self._at, inputs).detach()
                jacobian = vmap(jacrev(outputs_of_one), in_dims=(None, 0))(self._at, inputs).detach()
                jacobian = jacobian.reshape(len(outputs), wide, self.size)
                middle = vmap(jacrev(grad(loss_of_one)))(outputs, targets).detach().reshape(len(outputs), wide, wide)
                total += (middle @ jacobian).reshape(-1, self.size).T @ jacobian.reshape(-1, self.size)
        return total / len(self._examples) + self._penalty.diag()

    def mean_eigenvalue(self, generator: torch.Generator) -> float:
        """The mean eigenvalue of the Gauss-Newton matrix, estimated from products with random signs (Hutchinson)."""
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


def positive_solver(matrix: Tensor, damping: float) -> Callable[[Tensor], Tensor]:
    """The same, in a fraction of the time where no curvature is negative."""
    factor, failed = torch.linalg.cholesky_ex(matrix + damping * torch.eye(len(matrix)).to(matrix))
    if bool(failed):  # the loss is not convex in the outputs
        return exact_solver(matrix, damping)
    return lambda vectors: torch.cholesky_solve(vectors.T, factor).T


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
_WRITTEN: Final = 8000  # up to this many the Gauss-Newton matrix, where that is less work than to do without
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
    iterations : of conjugate gradients, for models with many parameters (more than 8,000, or fewer with many outputs);
        smaller ones are solved exactly.
    second_order : whether the term |H^-1 g|^2/N is computed, for which every candidate is solved for; None: where that
        takes no more than some minutes, else it is left out, with a GmipWarning. The last term needs two solutions in
        all, since it is g'H^-2 G0.
    device : where the model is.
    seed : of the draw of background records for H.

    Guarantees
    ----------
    No label of the run is used. Scores order the candidates; they are no log-odds and there are no p-values. Negative
    curvature counts as none; above 1,500 parameters H is the generalised Gauss-Newton matrix, which has none. Clipped
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

    def __post_init__(self) -> None:
        check_penalty(self.l2)
        if self.damping is not None:
            check.positive("damping", self.damping)
        if self.learning_rate is not None:
            check.non_negative("learning_rate", self.learning_rate)
        check.count("hessian_records", self.hessian_records)
        check.count("iterations", self.iterations)
        check.seed(self.seed)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Progress) -> ScoreSet:
        if not len(who.background):
            raise InvalidArgument("has no records", argument="background", remedy="pass some that are not members")
        candidates = who.candidates
        at = released(task, target, l2=self.l2, device=self.device)
        rows = np.random.default_rng(self.seed).permutation(len(who.background))[: self.hessian_records]
        some = who.background[np.sort(rows)]
        curvature = Curvature(at.model, task.loss, at.gradients.names, some, torch.from_numpy(at.l2))
        generator = torch.Generator().manual_seed(self.seed)
        matrix = self._matrix(curvature, len(some), len(candidates))
        exact = matrix is not None
        mean = float(matrix.trace()) / len(matrix) if matrix is not None else curvature.mean_eigenvalue(generator)
        damping = self.damping if self.damping is not None else max(_DAMPING * mean, np.finfo(np.float64).tiny)
        solver = exact_solver if curvature.size <= _EXACT else positive_solver
        exactly = None if matrix is None else solver(matrix, damping)
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
        weights = losses(task, at.model, candidates) * self._loss_weight(target)
        scores, first = np.empty(len(candidates)), 0
        for chunk in at.gradients.chunks(candidates):
            for part in chunk.double().split(_AT_A_TIME):
                terms = 2.0 * (part @ off)
                if second:
                    terms += (solve(part) ** 2).sum(1) / target.header.dataset_size
                scores[first : first + len(part)] = weights[first : first + len(part)] - terms.cpu().numpy()
                first += len(part)
                progress(first, len(candidates))
        if worst > _UNSOLVED:
            warn(
                f"conjugate gradients left {worst:.0%} of a right-hand side unsolved after {self.iterations} "
                "iterations: raise `iterations` or `damping`."
            )
        facts: dict[str, Any] = {"damping": damping, "exact": exact, "second_order": second, "unsolved": worst}
        facts["hessian_records"] = len(some)
        return ScoreSet(ids=who.ids, scores=finite(scores), attack=self.name, facts=facts)

    def _matrix(self, curvature: Curvature, records: int, candidates: int) -> Tensor | None:
        """H written down, or None where conjugate gradients are less work, or as much as there is room for."""
        size = curvature.size
        if size <= _EXACT:
            return curvature.matrix()
        if size > _WRITTEN:
            return None
        solved = candidates if self.second_order is not False else 2
        written = 2.0 * records * curvature.num_outputs() * size**2 + size**3
        if written > self._work(solved, size, records):
            return None
        try:
            return curvature.positive_matrix()
        except UnsupportedModel:  # one example at a time; products may work still
            return None

    def _work(self, candidates: int, params: int, records: int) -> float:
        """Operations of conjugate gradients."""
        return float(candidates) * self.iterations * records * params * _PASSES

    def _second_order(self, candidates: int, params: int, records: int, exact: bool) -> bool:
        if self.second_order is not None or exact:
            return self.second_order is not False
        work = self._work(candidates, params, records)
        if work <= _MOST_WORK:
            return True
        warn(
            f"the term of second order of attack {self.name!r} is left out: it takes about {work:.1g} operations for "
            f"{candidates} candidates. Lower `hessian_records` or `iterations`, or set `second_order`."
        )
        return False

    def _loss_weight(self, target: ModelRecord) -> float:
        recipe = target.header.recipe
        momentum = 0.0 if recipe is None else recipe.optimizer_options.get("momentum", 0.0)
        rate = self.learning_rate
        if rate is None:
            rate = 0.0 if recipe is None else recipe.learning_rate or 0.0
        return float(rate) / (1.0 + float(momentum))
