"""Many softmax heads trained at once, and the best recipe for any amount of noise.

The heads take the steps of `gmip.train` for a linear model, in closed form. The gradient of one example is the outer
product of the error of its probabilities and its features, so its norm is a product of two norms, and heads that see
the same batches share one matrix product. A run of `gmip.train` with the same seed gives the same weights to rounding
(tests/reproduction/test_linear_heads.py), some fifty times slower.

Accuracy depends on a privacy target only through the noise that it needs. So recipes are trained once on a ladder of
noise multipliers, on records that serve for this alone; each target reads off what the recipes would give with the
noise that it asks of them, and takes the best. The chosen one is trained again, with its exact noise, on others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gmip.errors import InvalidArgument
from gmip.tasks.task import Examples, Task
from gmip.training import initial_model
from gmip.training.samplers import make_sampler
from gmip.training.steppers import noise_generator
from gmip.tuning import SearchRecords
from gmip.vocabulary import Recipe

_BLOCK: Final = 2_000_000  # numbers held at a time: rows of a batch, times classes, times heads
_GATHERED: Final = 4_000_000  # numbers of inputs gathered at a time: models, times rows of a batch, times features
_SHARED: Final = ("dataset_size", "batch_size", "sampling", "optimizer")  # what heads trained together agree on


class Heads(NamedTuple):
    """weights : shape (features + 1, classes, heads), the bias last; in the order of the recipes."""

    weights: Tensor

    def accuracy(self, examples: Examples) -> NDArray[np.float64]:
        """The share of the examples that each head gets right, shape (heads,)."""
        inputs, targets = _with_bias(examples), examples.targets
        right = torch.zeros(self.weights.shape[2])
        for rows in _blocks(len(targets), self.weights.shape[1] * self.weights.shape[2]):
            right += (_products(inputs[rows], self.weights).argmax(1) == targets[rows, None]).sum(0)
        return (right.double() / len(targets)).numpy()

    def confidences(self, examples: Examples) -> NDArray[np.float64]:
        """log(p/(1 - p)) of the true labels, p their probability; shape (examples, heads)."""
        logits = _products(_with_bias(examples), self.weights).double()
        rows = torch.arange(len(logits))
        true = logits[rows, examples.targets]
        logits[rows, examples.targets] = -torch.inf
        return np.asarray((true - torch.logsumexp(logits, dim=1)).numpy())

    def gradients(self, examples: Examples, head: int, clip_norm: float) -> Tensor:
        """Clipped gradients of one head, shape (examples, (features + 1) classes)."""
        inputs = _with_bias(examples)
        errors = _clipped_errors(inputs, examples.targets, self.weights[:, :, head : head + 1], torch.tensor(clip_norm))
        return (inputs[:, :, None] * errors[:, None, :, 0]).flatten(1)


def start_of(task: Task, seed: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear model before its first step, as `gmip.train` with that seed has them."""
    layer: Any = initial_model(task, seed)
    return layer.weight.detach(), layer.bias.detach()


def contrasts(classes: int) -> Tensor:
    """An orthonormal basis of the logits that sum to 0, shape (classes, classes - 1).

    A softmax does not see the mean of its logits, and no gradient has a part in that direction: a head with
    one output less than classes, mapped by this basis, is the same model with the same norms and fewer parameters.
    """
    spread: Tensor = torch.linalg.qr(torch.eye(classes, dtype=torch.float64)[:, 1:] - 1.0 / classes)[0]
    return spread.float()


def train_heads(
    members: Examples,
    recipes: Sequence[Recipe],
    *,
    seed: int,
    classes: int,
    initial: tuple[Tensor, Tensor] | None = None,
    basis: Tensor | None = None,
    shared_noise: bool = False,
) -> Heads:
    """The heads that these recipes give, all with the batches and the noise of one seed.

    Parameters
    ----------
    recipes : they may differ in steps, clipping norm, noise and learning rate; SGD or Adam, without options.
    initial : weight (outputs, features) and bias (outputs,) before the first step; None: zeros.
    basis : maps the outputs of the layer to logits, shape (classes, outputs), orthonormal: `contrasts`. None: the
        outputs are the logits.
    shared_noise : draw one noise vector and add it to every output: a defect of the paper's released code, see
        `reproduction.experiments.released`.
    """
    first = recipes[0]
    if any(getattr(r, name) != getattr(first, name) for r in recipes for name in _SHARED):
        raise InvalidArgument(
            "are trained together and differ in more than steps, clipping, noise and rate", argument="recipes"
        )
    if first.optimizer not in ("SGD", "Adam") or any(r.optimizer_options for r in recipes):
        raise InvalidArgument("is not SGD or Adam without options", argument="optimizer", value=first.optimizer)
    if basis is not None and first.optimizer != "SGD":  # Adam is another method in another basis
        raise InvalidArgument("cannot train a head with a basis", argument="optimizer", value=first.optimizer)
    # A run is the beginning of a longer one that is the same otherwise.
    last = max(r.num_steps for r in recipes)
    places = {r: i for i, r in enumerate(dict.fromkeys(_key(r) for r in recipes))}
    clip, noise, rate = (torch.tensor(column) for column in zip(*places, strict=True))
    inputs, targets = _with_bias(members), members.targets
    width, outputs = inputs.shape[1] - 1, classes if basis is None else basis.shape[1]
    weights = torch.zeros(width + 1, classes, len(places))
    if initial is not None:
        weights += _as_logits(*initial, basis)[:, :, None]
    optimizer = _Adam(rate) if first.optimizer == "Adam" else _SGD(rate)
    sampler = make_sampler(
        first.sampling,
        dataset_size=first.dataset_size,
        batch_size=first.batch_size,
        num_steps=last,
        seed=seed,
    )
    generator = noise_generator(seed)
    noisy, found = bool((noise > 0.0).any()), {}
    stops = {r.num_steps for r in recipes}
    for step in range(last):
        ids = sampler[step]
        rows = torch.from_numpy(ids)
        divisor = sampler.divisor(ids)
        gradient = _summed(inputs[rows], targets[rows], weights, clip) / divisor
        if noisy:  # weight, then bias: as the optimizer has them
            drawn = 1 if shared_noise else outputs
            draws = [torch.normal(0.0, 1.0, shape, generator=generator) for shape in ((drawn, width), (drawn,))]
            gradient += _as_logits(draws[0].expand(outputs, -1), draws[1].expand(outputs), basis)[:, :, None] * noise
        weights = weights - optimizer.change(gradient)
        if step + 1 in stops:
            found[step + 1] = weights.clone()
    return Heads(torch.stack([found[r.num_steps][:, :, places[_key(r)]] for r in recipes], dim=2))


def train_apart(
    pool: Examples,
    members: Sequence[NDArray[np.int64]],
    recipe: Recipe,
    *,
    seeds: Sequence[int],
    classes: int,
    initial: Callable[[int], tuple[Tensor, Tensor]],
) -> Heads:
    """One head for each seed by the same recipe, without noise: each has its own members (rows of the pool), batches
    and initial weights, as a run of `gmip.train` with that seed has. A shadow set in one go.
    """
    if recipe.noise_std or recipe.optimizer not in ("SGD", "Adam") or recipe.sampling not in ("fixed", "full"):
        raise InvalidArgument(
            "has noise, another optimizer than SGD and Adam, or batches of unequal size", argument="recipe"
        )
    inputs, targets = _with_bias(pool), pool.targets
    together = max(1, _GATHERED // (recipe.batch_size * inputs.shape[1]))
    found = [
        _train_group(
            inputs,
            targets,
            [torch.from_numpy(members[i]) for i in range(first, min(first + together, len(seeds)))],
            recipe,
            seeds=seeds[first : first + together],
            start=torch.stack([_as_logits(*initial(seed), None) for seed in seeds[first : first + together]]),
            classes=classes,
        )
        for first in range(0, len(seeds), together)
    ]
    return Heads(torch.cat(found).permute(1, 2, 0).contiguous())


def _train_group(
    inputs: Tensor,
    targets: Tensor,
    members: Sequence[Tensor],
    recipe: Recipe,
    *,
    seeds: Sequence[int],
    start: Tensor,
    classes: int,
) -> Tensor:
    """Weights of shape (models, features + 1, classes) that are trained side by side from `start`."""
    sizes = {name: getattr(recipe, name) for name in ("dataset_size", "batch_size", "num_steps")}
    samplers = [make_sampler(recipe.sampling, seed=seed, **sizes) for seed in seeds]
    weights, rate = start.clone(), torch.tensor(recipe.learning_rate)
    optimizer = _Adam(rate) if recipe.optimizer == "Adam" else _SGD(rate)
    clip = math.inf if recipe.clip_norm is None else recipe.clip_norm
    lengths = torch.linalg.vector_norm(inputs, dim=1)
    rows = x = wanted = torch.empty(0)
    for step in range(recipe.num_steps):
        if step == 0 or recipe.sampling != "full":
            rows = torch.stack([who[torch.from_numpy(s[step])] for who, s in zip(members, samplers, strict=True)])
            x, wanted = inputs[rows], torch.nn.functional.one_hot(targets[rows], classes)
        errors = torch.softmax(torch.bmm(x, weights), dim=2) - wanted
        norms = torch.linalg.vector_norm(errors, dim=2) * lengths[rows]
        errors *= (clip / norms).clamp_(max=1.0)[:, :, None]
        weights = weights - optimizer.change(torch.bmm(x.transpose(1, 2), errors) / rows.shape[1])
    return weights


def _key(recipe: Recipe) -> tuple[float, float, float]:
    clip = math.inf if recipe.clip_norm is None else recipe.clip_norm
    return clip, recipe.noise_std, recipe.rate


def _with_bias(examples: Examples) -> Tensor:
    """Features and a column of ones, shape (n, features + 1)."""
    inputs: Any = examples.inputs
    return torch.cat([inputs.float(), torch.ones(len(inputs), 1)], dim=1)


def _as_logits(weight: Tensor, bias: Tensor, basis: Tensor | None) -> Tensor:
    """A layer's parameters as (features + 1, classes)."""
    both = torch.cat([weight.T, bias[None]])
    return both if basis is None else both @ basis.T


def _products(inputs: Tensor, weights: Tensor) -> Tensor:
    """Logits of all heads, shape (n, classes, heads)."""
    return (inputs @ weights.flatten(1)).view(len(inputs), *weights.shape[1:])


def _clipped_errors(inputs: Tensor, targets: Tensor, weights: Tensor, clip: Tensor) -> Tensor:
    """Probabilities minus targets, scaled so that no gradient is longer than C; shape (n, classes, heads)."""
    errors = torch.softmax(_products(inputs, weights), dim=1)
    errors[torch.arange(len(targets)), targets] -= 1.0
    norms = torch.linalg.vector_norm(errors, dim=1) * torch.linalg.vector_norm(inputs, dim=1)[:, None]
    return errors.mul_((clip / norms).clamp_(max=1.0)[:, None])


def _summed(inputs: Tensor, targets: Tensor, weights: Tensor, clip: Tensor) -> Tensor:
    """Sum of the clipped gradients of a batch, like the weights."""
    total = torch.zeros_like(weights)
    for rows in _blocks(len(targets), weights.shape[1] * weights.shape[2]):
        errors = _clipped_errors(inputs[rows], targets[rows], weights, clip)
        total += (inputs[rows].T @ errors.flatten(1)).view_as(weights)
    return total


def _blocks(rows: int, width: int) -> list[slice]:
    size = max(64, _BLOCK // width)
    return [slice(start, start + size) for start in range(0, rows, size)]


class _SGD:
    def __init__(self, rate: Tensor) -> None:
        self.rate = rate

    def change(self, gradient: Tensor) -> Tensor:
        return self.rate * gradient


class _Adam:
    """torch.optim.Adam with its defaults, a rate for each head."""

    def __init__(self, rate: Tensor) -> None:
        self.rate, self.steps = rate, 0
        self.mean = self.square = torch.zeros(())

    def change(self, gradient: Tensor) -> Tensor:
        self.steps += 1
        self.mean = torch.lerp(self.mean.expand_as(gradient), gradient, 0.1)
        self.square = 0.999 * self.square + 0.001 * gradient * gradient
        scale = math.sqrt(1.0 - 0.999**self.steps)
        return self.rate / (1.0 - 0.9**self.steps) * self.mean / (self.square.sqrt() / scale + 1.0e-8)


# -- the ladder of noise ----------------------------------------------------------------------------------------------


class Ladder:
    """Accuracies of recipes (which have no noise of their own) at the noise multipliers of the rungs.

    steps : the rungs, increasing, from 0, shape (m,); accuracies : shape (recipes, m).
    """

    def __init__(self, recipes: Sequence[Recipe], steps: Sequence[float], accuracies: ArrayLike) -> None:
        self.recipes, self.steps = list(recipes), np.asarray(steps, dtype=np.float64)
        self.accuracies = np.asarray(accuracies, dtype=np.float64)

    def best(self, multiplier: Callable[[Recipe], float | None]) -> tuple[float, Recipe]:
        """The highest accuracy of a recipe with the noise that it needs (None: it cannot be taken), and the recipe.

        By linear interpolation; beyond the last rung, as there.
        """
        needed = [multiplier(recipe) for recipe in self.recipes]
        reached = [
            -np.inf if asked is None else float(np.interp(asked, self.steps, row))
            for asked, row in zip(needed, self.accuracies, strict=True)
        ]
        place = int(np.argmax(reached))
        return reached[place], self.recipes[place]


def rungs(multipliers: Sequence[float], count: int) -> list[float]:
    """0, and `count` - 1 multipliers spread evenly in the logarithm over those that will be asked for."""
    asked = [m for m in multipliers if m > 0.0]
    if not asked:
        return [0.0, 1.0]
    low, high = min(asked), max(asked)
    return [0.0, *np.geomspace(low, max(high, 1.001 * low), count - 1).tolist()]


def with_multiplier(recipe: Recipe, multiplier: float) -> Recipe:
    """The recipe with noise given as Opacus gives it: of standard deviation multiplier times C on the SUM."""
    assert recipe.clip_norm is not None
    return recipe.replace(noise_std=multiplier * recipe.clip_norm / recipe.batch_size)


def train_ladder(
    records: Sequence[SearchRecords],
    recipes: Sequence[Recipe],
    steps: Sequence[float],
    *,
    seeds: Sequence[int],
    classes: int,
    basis: Tensor | None = None,
    initial: Callable[[int], tuple[Tensor, Tensor]] | None = None,
) -> Ladder:
    """Train every recipe at every rung: one run for each seed, on its own records.

    recipes : those that can be trained together (`train_heads`).
    """
    noisy = [with_multiplier(recipe, step) for recipe in recipes for step in steps]
    found = np.zeros((len(recipes), len(steps)))
    for seed, mine in zip(seeds, records, strict=True):
        heads = train_heads(
            mine.train,
            [mine.recipe(recipe) for recipe in noisy],
            seed=seed,
            classes=classes,
            basis=basis,
            initial=None if initial is None else initial(seed),
        )
        found += heads.accuracy(mine.validation).reshape(found.shape) / len(seeds)
    return Ladder(recipes, steps, found)
