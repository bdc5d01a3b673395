"""What a training published, and how to publish other records in the same way (docs/rehearsal.md).

A `Publication` is one thing that an attacker saw: the gradient of a recorded step, the way between two checkpoints, a
round of a federation. The difference of two states is a sum of gradients: SGD and Adam are linear in the gradients but
for Adam's denominators, which change little between two states. Rehearsals measure what this misses.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip._io import sha256
from gmip.tasks import Examples, Task
from gmip.tasks.inputs import answer
from gmip.trace import Header, LocalTraining, ReleasedModel, Step
from gmip.training import make_optimizer
from gmip.training.models import trainable_parameters
from gmip.vocabulary import Recipe

Vector = NDArray[np.float64]

ADAM: Final = ("adam", "adamw")
SGD: Final = ("sgd",)
_FIRST: Final = ("exp_avg", "momentum_buffer")  # names of the first moment in torch's optimizers
_SECOND: Final = "exp_avg_sq"

Heard = Callable[[int], None]  # who hears of how many more records there is news


def unheard(count: int) -> None:
    """Nobody hears of it."""


class Moment(NamedTuple):
    """Weights and the optimizer's state at one moment; flat vectors of shape (d,), in the order of the parameters.

    `first` is momentum_buffer or exp_avg, `second` exp_avg_sq, `step` how many steps the optimizer has taken; None: not
    known.
    """

    weights: Vector
    first: Vector | None = None
    second: Vector | None = None
    step: int = 0


class Published(NamedTuple):
    """A mean gradient that was published, and the weights to which the records' gradients belong; shapes (d,)."""

    vector: Vector
    at: Vector


@dataclass(frozen=True)
class Way:
    """How training goes from one moment to the next: by the recipe, in shuffled passes over the records.

    Parameters
    ----------
    recipe : optimizer, its options and the batch size.
    rates : learning rate of each of the K steps.
    known : whether both ends have the optimizer's state.
    whole_clip_norm : bound on the norm of the mean gradient of a batch (clip_grad_norm_); None: none.
    """

    recipe: Recipe
    rates: tuple[float, ...]
    known: bool = True
    whole_clip_norm: float | None = None

    @property
    def kind(self) -> str:
        """The optimizer, in lower case."""
        return self.recipe.optimizer.lower()

    def published(self, start: Moment, end: Moment, stand_in: tuple[Moment, Moment] | None = None) -> Published:
        """The mean gradient between two moments; `stand_in` has the optimizer's states where these are not known."""
        options, steps = self.recipe.optimizer_options, len(self.rates)
        at = start.weights + (steps - 1) / (2.0 * steps) * (end.weights - start.weights)
        moved, decay = start.weights - end.weights, float(options.get("weight_decay", 0.0))
        before, after = (start, end) if stand_in is None else stand_in
        if self.kind == "adamw":
            moved = moved - float(options.get("weight_decay", 0.01)) * sum(self.rates) * at
            decay = 0.0
        weights, carried, last, kept = self._weights(before.step)
        if self.kind in ADAM:
            moved = moved * self._denominators(before, after)
        elif self.kind not in SGD:
            return Published(moved / sum(self.rates), at)
        momentum = np.zeros_like(moved) if before.first is None else before.first  # none yet, before the first step
        total = moved = moved - carried * momentum
        if last.any() and after.first is not None:
            # Weights of the two sums that make each gradient count as much as the others, as nearly as they can.
            (a, b), *_ = np.linalg.lstsq(np.stack([weights, last], 1), np.ones(steps), rcond=None)
            total = a * moved + b * (after.first - kept * momentum)
            weights = a * weights + b * last
        return Published(total / weights.sum() - decay * at, at)

    def _weights(self, taken: int) -> tuple[Vector, float, Vector, float]:
        """(how much each gradient counts in the way that was moved, how much the first moment at its start does; the
        same two for the first moment at the end)."""
        options, rates = self.recipe.optimizer_options, np.asarray(self.rates)
        steps = len(rates)
        if self.kind in ADAM:
            beta = float(options.get("betas", (0.9, 0.999))[0])
            rates, fresh, outer, direct = rates / (1.0 - beta ** (taken + 1.0 + np.arange(steps))), 1.0 - beta, 1.0, 0.0
        else:
            beta = float(options.get("momentum", 0.0))
            nesterov = bool(options.get("nesterov", False))
            fresh, outer, direct = (
                1.0 - float(options.get("dampening", 0.0)),
                beta if nesterov else 1.0,
                float(nesterov),
            )
            if not beta:
                return rates, 0.0, np.zeros(steps), 0.0
        ahead, later = np.zeros(steps), 0.0
        for step in reversed(range(steps)):
            ahead[step] = later = rates[step] + beta * later
        last = fresh * beta ** np.arange(steps - 1.0, -1.0, -1.0)
        return direct * rates + outer * fresh * ahead, outer * beta * later, last, beta**steps

    def _denominators(self, before: Moment, after: Moment) -> Vector:
        """Adam's, the mean of both ends."""
        options = self.recipe.optimizer_options
        beta, eps = float(options.get("betas", (0.9, 0.999))[1]), float(options.get("eps", 1.0e-8))
        found = [
            np.sqrt(one.second / (1.0 - beta**one.step)) + eps
            for one in (before, after)
            if one.second is not None and one.step > 0
        ]
        return np.asarray(np.mean(found, axis=0))


class Replay:
    """Trains pseudo-members as the real ones were trained, from the same moment on.

    Parameters
    ----------
    model : with the buffers of the run; it is copied.
    """

    def __init__(self, task: Task, model: nn.Module, way: Way) -> None:
        self._task, self.way = task, way
        self._model = copy.deepcopy(model).train()
        self.parameters = [p for _, p in trainable_parameters(self._model)]
        self._buffers = {name: b.clone() for name, b in self._model.named_buffers()}

    def train(self, start: Moment, records: Examples, rng: np.random.Generator, heard: Heard = unheard) -> Moment:
        """The moment after the K steps, on these records in random order."""
        with torch.no_grad():
            for name, buffer in self._model.named_buffers():
                buffer.copy_(self._buffers[name])
        set_flat(self.parameters, start.weights)
        optimizer = make_optimizer(self.way.recipe, self._model)
        self._give(optimizer, start)
        batches = self._batches(len(records), rng)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**62)))
            steps, count = len(self.way.rates), len(records)
            for step, rate in enumerate(self.way.rates):
                part = records[next(batches)]
                for group in optimizer.param_groups:
                    group["lr"] = rate
                optimizer.zero_grad()
                self._task.loss(answer(self._model, part.inputs), part.targets).mean().backward()
                if self.way.whole_clip_norm is not None:
                    nn.utils.clip_grad_norm_(self.parameters, self.way.whole_clip_norm)
                optimizer.step()
                heard(count * (step + 1) // steps - count * step // steps)
        return self._taken(optimizer, start.step + len(self.way.rates))

    def _batches(self, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        while True:
            order = rng.permutation(count)
            for first in range(0, count, self.way.recipe.batch_size):
                yield order[first : first + self.way.recipe.batch_size]

    def _give(self, optimizer: torch.optim.Optimizer, start: Moment) -> None:
        at = 0
        for parameter in self.parameters:
            part, state = slice(at, at + parameter.numel()), optimizer.state[parameter]
            at = part.stop
            if start.first is not None and (start.step or self.way.kind not in ADAM):
                name = _FIRST[0] if self.way.kind in ADAM else _FIRST[1]
                state[name] = _shaped(start.first[part], parameter)
            if start.step and start.second is not None and self.way.kind in ADAM:
                state[_SECOND], state["step"] = _shaped(start.second[part], parameter), torch.tensor(float(start.step))

    def _taken(self, optimizer: torch.optim.Optimizer, step: int) -> Moment:
        states = [optimizer.state.get(p, {}) for p in self.parameters]
        first = next((name for name in _FIRST if all(isinstance(s.get(name), Tensor) for s in states)), None)
        second = all(isinstance(s.get(_SECOND), Tensor) for s in states)
        return Moment(
            flat(self.parameters),
            None if first is None else flat([s[first] for s in states]),
            flat([s[_SECOND] for s in states]) if second else None,
            step,
        )


def mean_gradient(task: Task, model: nn.Module, records: Examples, chunk: int = 512) -> Vector:
    """The mean of the records' gradients, at the weights and in the mode of the model; shape (d,)."""
    parameters = [p for _, p in trainable_parameters(model)]
    total = np.zeros(sum(p.numel() for p in parameters))
    for first in range(0, len(records), chunk):
        part = records[slice(first, first + chunk)]
        loss = task.loss(answer(model, part.inputs), part.targets).sum()
        slopes: Sequence[Tensor | None] = torch.autograd.grad(loss, parameters, allow_unused=True)
        total += flat([p.new_zeros(p.shape) if g is None else g for g, p in zip(slopes, parameters, strict=True)])
    return total / len(records)


@torch.no_grad()
def settle_norms(model: nn.Module, records: Examples) -> None:
    """Gives BatchNorm layers the statistics of these records, at the weights of the model, which is in eval mode."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain average
        norm.train()
    answer(model, records.inputs)
    for norm in norms:
        norm.eval()


def flat(tensors: list[Any]) -> Vector:
    """One vector of all, in double precision."""
    return np.concatenate([t.detach().cpu().double().numpy().reshape(-1) for t in tensors])


def set_flat(parameters: list[nn.Parameter], values: Vector) -> None:
    """Puts a flat vector into parameters."""
    at = 0
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(_shaped(values[at : at + parameter.numel()], parameter))
            at += parameter.numel()


def _shaped(values: Vector, like: Tensor) -> Tensor:
    return torch.from_numpy(np.array(values)).to(like).view(like.shape)


def state_vectors(state: Mapping[str, Any], parameters: list[nn.Parameter]) -> tuple[Vector | None, Vector | None, int]:
    """(first moment, second moment, steps) of a torch optimizer's state_dict; None where it has none, or is of others.

    Parameters are matched in the order of the groups, and must have the shapes of the model's.
    """
    order = [key for group in state["param_groups"] for key in group["params"]]
    rows = [state["state"].get(key, {}) for key in order]

    def joined(name: str) -> Vector | None:
        found = [row.get(name) for row in rows]
        fits = len(found) == len(parameters) and all(
            isinstance(one, Tensor) and one.shape == p.shape for one, p in zip(found, parameters, strict=False)
        )
        return flat(found) if fits else None

    first = next((vector for name in _FIRST if (vector := joined(name)) is not None), None)
    steps = next((int(row["step"]) for row in rows if "step" in row), 0)
    return first, joined(_SECOND), steps


# -- what was published, and its replay -------------------------------------------------------------------------------


class Publication(ABC):
    """One thing that was published of a batch of records, and how other records are published in the same way.

    Attributes
    ----------
    seen : what was published.
    size : how many records are in it.
    ends : the weights before and after; None: nothing moved while it was computed.
    """

    seen: Published
    size: int
    ends: tuple[Vector, Vector] | None = None

    @abstractmethod
    def replayed(self, records: Examples, rng: np.random.Generator, heard: Heard = unheard) -> Published:
        """What these records would have published; `heard` is told of all of them, some at a time."""


class Move(Publication):
    """The way from one moment to the next, of one training or, on average, of several clients.

    Parameters
    ----------
    stand_in : the optimizer's states at both ends, where these are not known.
    clients : among whom the records are divided; each trains alone from `start` on, and their weights are averaged.
    """

    def __init__(
        self,
        replay: Replay,
        start: Moment,
        end: Moment,
        size: int,
        *,
        stand_in: tuple[Moment, Moment] | None = None,
        clients: int = 1,
    ) -> None:
        self._replay, self._stand_in, self._clients = replay, stand_in, clients
        self.seen, self.size = replay.way.published(start, end, stand_in), size
        self.ends = (start.weights, end.weights)
        self._start = start
        if stand_in is not None:
            begun = stand_in[0]
            self._start = start._replace(first=begun.first, second=begun.second, step=begun.step)

    def replayed(self, records: Examples, rng: np.random.Generator, heard: Heard = unheard) -> Published:
        """What these records would have published, in random order."""
        parts = np.array_split(rng.permutation(len(records)), self._clients)
        reached = [self._replay.train(self._start, records[part], rng, heard) for part in parts]
        end = reached[0]
        if self._clients > 1:
            sizes = [len(part) for part in parts]
            end = Moment(np.average([one.weights for one in reached], axis=0, weights=sizes))
        return self._replay.way.published(self._start, end, self._stand_in)


class RecordedGradient(Publication):
    """The gradient of a recorded step, by the task's `publish` or by one pass of the model in the mode of training.

    A `publish` that changes the weights trains as a client does: what counts is how far it moved them.

    Parameters
    ----------
    model : in the mode of training; it is copied.
    """

    def __init__(self, task: Task, model: nn.Module, header: Header, step: Step, size: int) -> None:
        self._task, self._model, self.size, self._info = task, copy.deepcopy(model), size, step.info
        self._parameters = [p for _, p in trainable_parameters(self._model)]
        self._buffers = {name: b.clone() for name, b in self._model.named_buffers()}
        self._weights = np.array(step.parameters, dtype=np.float64)
        self._local, self._rate = header.local, task.recipe.learning_rate or 1.0
        vector = np.array(step.gradient, dtype=np.float64)
        if self._local is not None:
            self._rate = self._local.learning_rate
            self.ends = (self._weights, self._weights - self._rate * vector)
        if task.publish is None and step.info.clip_factor:  # a replay that does not clip is compared with what was not
            vector /= step.info.clip_factor
        self.seen = self._published(vector)

    def replayed(self, records: Examples, rng: np.random.Generator, heard: Heard = unheard) -> Published:
        """What these records would have published; dropout, noise and whatever `publish` draws are drawn anew."""
        parts = np.array_split(rng.permutation(len(records)), 1 if self._local is None else self._local.clients)
        vectors = [self._one(records[part], rng) for part in parts]
        vector = np.average(vectors, axis=0, weights=[len(part) for part in parts])
        heard(len(records))
        return self._published(vector + self._info.noise_std * rng.standard_normal(len(vector)))

    def _published(self, vector: Vector) -> Published:
        if self._local is None:
            return Published(vector, self._weights)
        steps = self._local.steps
        return Published(vector / steps, self._weights - (steps - 1) / (2.0 * steps) * self._rate * vector)

    def _one(self, records: Examples, rng: np.random.Generator) -> Vector:
        model, task = self._model, self._task
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(self._buffers[name])
        set_flat(self._parameters, self._weights)
        before = flat(self._parameters)
        model.zero_grad()
        precision = self._info.precision
        device = self._parameters[0].device.type
        reduced = torch.autocast(device, getattr(torch, precision)) if precision else nullcontext()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**62)))
            if task.publish is not None:
                task.publish(model, records)
            else:
                with reduced:
                    loss = task.loss(answer(model, records.inputs), records.targets).mean()
                loss.backward()
        moved = before - flat(self._parameters)
        if moved.any():
            return moved / self._rate
        return flat([torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters])


def client_way(local: LocalTraining, size: int) -> Way:
    """How clients with `size` records together train, by SGD."""
    share = max(size // local.clients, 1)
    recipe = Recipe(
        optimizer="SGD",
        learning_rate=local.learning_rate,
        batch_size=min(local.batch_size or share, share),
        dataset_size=share,
        num_steps=local.steps,
        sampling="shuffled",
    )
    return Way(recipe, (local.learning_rate,) * local.steps)


class CheckpointedModel(ReleasedModel):
    """The weights of a model at several moments of a training of which no step was recorded, and who was in.

    Attributes
    ----------
    moments : in the order of training, at least two.
    ways : how training went from each to the next.
    """

    def __init__(self, released: ReleasedModel, moments: Sequence[Moment], ways: Sequence[Way]) -> None:
        self.__dict__.update(vars(released))
        self.moments, self.ways = tuple(moments), tuple(ways)

    @property
    def fingerprint(self) -> str:
        """That of the released model, and of all that is known of every moment and of the ways between them."""
        arrays = (part for one in self.moments for part in one[:3] if part is not None)
        return sha256(super().fingerprint.encode() + b"".join(a.tobytes() for a in arrays) + repr(self.ways).encode())
