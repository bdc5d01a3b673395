"""Runs with one fault each, recorded as if they were sound: what `gmip check` has to find.

A hand-written loop of noisy SGD on digits, two layers. What it declares is `Setting`; what it does differs by `Fault`.
Used by benchmarks/check.py, which prints the table of docs/evidence/check.md, and by the tests.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip.errors import GmipWarning
from gmip.tasks import Examples, Task, load
from gmip.training import make_sampler, record
from gmip.vocabulary import Recipe

__all__ = ["FAULTS", "SETTINGS", "Fault", "Setting", "make_task", "record_run"]

Vectors = dict[str, Tensor]
Sampling = Literal["full", "fixed", "poisson", "shuffled"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is declared. `ids` : whether the loop says who is in each batch."""

    sampling: Sampling = "full"
    dataset_size: int = 120
    batch_size: int = 120
    num_steps: int = 12
    clip_norm: float | None = 1.0
    noise_std: float = 0.02
    ids: bool = True


NoiseFault = Literal[
    "reused",
    "reseeded",
    "counted seeds",
    "first",
    "last",
    "weights",
    "rows",
    "columns",
    "layers",
    "row",
    "column",
    "entry",
    "low rank",
    "half rank",
    "turned",
    "bias",
    "correlated",
    "antithetic",
    "two of three",
    "all but one",
    "shrinking",
    "n",
    "root n",
    "uniform",
    "laplace",
    "signs",
    "float16",
    "bfloat16",
    "reordered",
    "cut",
    "redrawn",
]


BatchFault = Literal["as declared", "first", "replacement", "blocks", "favourite", "in order", "pairs", "couple"]


Clip = Literal["each", "mean", "none", "layers", "shares", "first", "value", "pairs", "normalised", "usual", "largest"]


Applied = Literal[
    "as recorded", "hook", "optimizer", "late", "in place", "trains", "trains after", "momentum", "loaded"
]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What the loop does otherwise. Each is a change of one thing.

    noise : "reused" (drawn once), "reseeded" (the same again in every epoch), "counted seeds" (seeds 0, 1, 2, ...:
        never the same, and anybody can draw it); "first" or "last" (layer only), "weights" (none on biases); "rows",
        "columns" and "layers" (share it), "row", "column" and "entry" (one has none), "low rank" (weights: of rank
        one), "half rank" (weights: in half of the directions), "turned" (half of the columns are others, turned),
        "bias" (sums of the rows of the weights);
        "correlated" (with the step before), "antithetic" (every second step has that of the step before, turned), "two
        of three", "all but one" (steps have it), "shrinking" (to half, along the run); "uniform", "laplace", "signs"
        (of that size, but not normal); "float16", "bfloat16" (drawn in that precision), "reordered" (drawn once, in
        another order at each step); "cut" and "redrawn" (beyond three standard deviations); or a factor on its standard
        deviation, "n" for 1/n, "root n".
    clip : "mean" (after averaging), "none", "layers" (each parameter on its own), "shares" (each to its share of the
        norm), "first" (first layer only), "value" (each entry), "pairs" (means of two records), "normalised" (all
        gradients to the norm), "usual" and "largest" (all by the factor that the batch's mean norm, or its largest,
        would need); clip_times : factor on the norm.
    scale : factor on the gradient, "sum" for n, "1/n", "fourth" for 3 in every fourth step; whole : norm to which the
        gradient of a batch is clipped by hand.
    decay, momentum : what an optimizer does, done to the gradient before it is recorded.
    batches : "first" (always the first n), "replacement" (drawn with replacement), "blocks" (the same again in every
        epoch), "favourite" (one record in each), "in order" (of the ids: windows that begin anywhere, epochs too),
        "pairs" (who is in has a partner who is, too), "couple" (two of all records have); or another sampling's name.
    wrong_members : share of the listed members who were not in, others in their place; extra : records in each batch
        that nobody lists; copies : how often one of the members counts.
    wrong_labels : share of the members whose label was another; changed : size of random changes of all inputs;
        input_times : factor on them.
    model : with ReLU, or with dropout; smoothed : labels, in the loss.
    divisor : "own" for Poisson batches that are divided by their own size.
    batch_times : how many times as large as declared batches are; vmapped : the loop calls the model on one example,
        and does not tell the recorder how many there are.
    declared_size : factor on `dataset_size` in the record.
    outside : plain steps of another optimizer within the recording, after the recorded ones; between : and after
        each of them; before : and before the recording; loaded : of a copy whose weights are loaded in the end.
    applied : "hook" for a hook of the optimizer, "optimizer" for a step of its own that takes the noise out after the
        gradient was recorded, "late" for gradients of the step before. "in place" : the hook writes into the memory of
        the gradient; "trains" and "trains after" : hooks before and after the step that take plain steps; "momentum" :
        plain gradients are added to it between steps; "loaded" : the state of an Adam that took plain steps elsewhere.
    """

    noise: NoiseFault | float = 1.0
    clip: Clip = "each"
    clip_times: float = 1.0
    scale: Literal["sum", "1/n", "fourth"] | float = 1.0
    whole: float | None = None
    decay: float = 0.0
    momentum: float = 0.0
    batches: BatchFault | Sampling = "as declared"
    wrong_members: float = 0.0
    extra: int = 0
    copies: int = 1
    wrong_labels: float = 0.0
    changed: float = 0.0
    input_times: float = 1.0
    model: Literal["as declared", "relu", "dropout"] = "as declared"
    smoothed: float = 0.0
    divisor: Literal["declared", "own"] = "declared"
    batch_times: float = 1.0
    vmapped: bool = False
    declared_size: float = 1.0
    outside: int = 0
    between: int = 0
    before: int = 0
    loaded: int = 0
    applied: Applied = "as recorded"


SETTINGS: dict[str, Setting] = {
    "full, noise": Setting(),
    "full": Setting(noise_std=0.0, clip_norm=None),
    "mini-batches, noise": Setting(sampling="fixed", batch_size=30),
    "mini-batches": Setting(sampling="shuffled", batch_size=30, noise_std=0.0, clip_norm=None),
    "mini-batches, noise, ids not recorded": Setting(sampling="poisson", batch_size=30, ids=False),
}
FAULTS: dict[str, Fault] = {
    # scale
    "gradient times 1.05": Fault(scale=1.05),
    "gradient times 1.1": Fault(scale=1.1),
    "gradient times 1.5": Fault(scale=1.5),
    "gradient times 2": Fault(scale=2.0),
    "gradient times 10": Fault(scale=10.0),
    "every fourth gradient times 3": Fault(scale="fourth"),
    "sum for mean": Fault(scale="sum"),
    "divided by n twice": Fault(scale="1/n"),
    "wrong world size": Fault(scale=0.5),
    "batches divided by their own size": Fault(divisor="own"),
    "weight decay in the gradient": Fault(decay=0.1),
    "momentum in the gradient": Fault(momentum=0.9),
    # clipping
    "clipping after averaging": Fault(clip="mean"),
    "no clipping": Fault(clip="none"),
    "clipping of each layer": Fault(clip="layers"),
    "clipping of each layer to its share": Fault(clip="shares"),
    "clipping of the first layer only": Fault(clip="first"),
    "clipping of each entry": Fault(clip="value"),
    "clipping of pairs of records": Fault(clip="pairs"),
    "all gradients scaled to C": Fault(clip="normalised"),
    "clipping by the mean norm of the batch": Fault(clip="usual"),
    "clipping by the largest norm of the batch": Fault(clip="largest"),
    "clipping at 1.1 C": Fault(clip_times=1.1),
    "clipping at 1.25 C": Fault(clip_times=1.25),
    "clipping at 1.5 C": Fault(clip_times=1.5),
    "clipping at 2 C": Fault(clip_times=2.0),
    "clipping at 4 C": Fault(clip_times=4.0),
    "clip_grad_norm_": Fault(whole=0.3),
    # noise
    "noise 5% too small": Fault(noise=0.95),
    "noise 10% too small": Fault(noise=0.9),
    "noise 24% too small": Fault(noise=0.76),
    "noise 35% too small": Fault(noise=0.65),
    "noise 50% too small": Fault(noise=0.5),
    "noise twice as large": Fault(noise=2.0),
    "noise off by n": Fault(noise="n"),
    "noise off by root n": Fault(noise="root n"),
    "zero noise": Fault(noise=0.0),
    "reused noise": Fault(noise="reused"),
    "re-seeded noise": Fault(noise="reseeded"),
    "noise from seeds 0, 1, 2, ...": Fault(noise="counted seeds"),
    "correlated noise": Fault(noise="correlated"),
    "antithetic noise": Fault(noise="antithetic"),
    "noise of low rank": Fault(noise="low rank"),
    "noise in half of the directions": Fault(noise="half rank"),
    "half of the noise is the other half, turned": Fault(noise="turned"),
    "noise of biases from that of weights": Fault(noise="bias"),
    "rows share their noise": Fault(noise="rows"),
    "columns share their noise": Fault(noise="columns"),
    "layers share their noise": Fault(noise="layers"),
    "noise on the first layer only": Fault(noise="first"),
    "noise on the last layer only": Fault(noise="last"),
    "no noise on biases": Fault(noise="weights"),
    "a row without noise": Fault(noise="row"),
    "a column without noise": Fault(noise="column"),
    "an entry without noise": Fault(noise="entry"),
    "every third step without noise": Fault(noise="two of three"),
    "one step without noise": Fault(noise="all but one"),
    "noise that shrinks to half": Fault(noise="shrinking"),
    "uniform noise": Fault(noise="uniform"),
    "Laplace noise": Fault(noise="laplace"),
    "noise of random signs": Fault(noise="signs"),
    "noise in float16": Fault(noise="float16"),
    "noise in bfloat16": Fault(noise="bfloat16"),
    "noise used again in another order": Fault(noise="reordered"),
    "noise cut off at 3 standard deviations": Fault(noise="cut"),
    "noise drawn again beyond 3 standard deviations": Fault(noise="redrawn"),
    # batches and sizes
    "batches always the first n": Fault(batches="first"),
    "duplicates": Fault(batches="replacement"),
    "the same blocks in every epoch": Fault(batches="blocks"),
    "one record in every batch": Fault(batches="favourite"),
    "batches in the order of the data": Fault(batches="in order"),
    "all records drawn in pairs": Fault(batches="pairs"),
    "two records always drawn together": Fault(batches="couple"),
    "fixed batches instead": Fault(batches="fixed"),
    "Poisson batches instead": Fault(batches="poisson"),
    "shuffled batches instead": Fault(batches="shuffled"),
    "batches twice as large": Fault(batch_times=2.0),
    "batches half as large": Fault(batch_times=0.5),
    "vmap, size not told": Fault(vmapped=True),
    "wrong dataset_size": Fault(declared_size=2.0),
    "dataset_size 10% too large": Fault(declared_size=1.1),
    # members and data
    "half of the member labels wrong": Fault(wrong_members=0.5),
    "1 of 30 members replaced": Fault(wrong_members=1 / 30),
    "two others in every batch": Fault(extra=2),
    "a member that counts five times": Fault(copies=5),
    "10% wrong labels": Fault(wrong_labels=0.1),
    "all labels wrong": Fault(wrong_labels=1.0),
    "augmentation": Fault(changed=0.1),
    "strong augmentation": Fault(changed=1.0),
    "other normalisation": Fault(input_times=0.5),
    # model
    "ReLU for tanh": Fault(model="relu"),
    "dropout": Fault(model="dropout"),
    "smoothed labels": Fault(smoothed=0.3),
    # training outside the record
    "trained on by another optimizer": Fault(outside=400),
    "another optimizer between steps": Fault(between=10),
    "trained elsewhere, then loaded": Fault(loaded=100),
    "trained before the recording": Fault(before=300),
    # other gradients than the recorded ones
    "noise removed by a later hook": Fault(applied="hook"),
    "noise removed by a later hook, in place": Fault(applied="in place"),
    "a later hook that trains": Fault(applied="trains"),
    "a hook after the step that trains": Fault(applied="trains after"),
    "momentum changed between steps": Fault(applied="momentum"),
    "an optimizer's state loaded": Fault(applied="loaded"),
    "noise left out by the optimizer": Fault(applied="optimizer"),
    "gradients of the step before": Fault(applied="late"),
}


def make_task() -> Task:
    """digits with a hidden layer of 16: 1,210 parameters."""
    digits = load("digits")
    pool, rest = digits.pool[np.arange(700)], digits.pool[np.arange(700, len(digits.pool))]

    def make_model() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))

    recipe = Recipe(dataset_size=120, batch_size=120, sampling="full", num_steps=12, learning_rate=0.3)
    return dataclasses.replace(digits, name="faulty", make_model=make_model, pool=pool, background=rest, recipe=recipe)


def record_run(
    task: Task,
    folder: Path,
    setting: Setting,
    fault: Fault = Fault(),  # noqa: B008 (frozen)
    *,
    seed: int = 0,
) -> None:
    """Train by the setting, but for the fault, and record it as if there were none."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = _model(task, fault)
    instead: dict[nn.Parameter, Tensor] = {}  # of the recorded gradients
    optimizer = _optimizer(model, fault, instead)
    total = setting.dataset_size
    rows = rng.permutation(len(task.pool))
    inside, others = rows[:total], rows[total : 2 * total]
    listed = inside.copy()
    wrong = rng.random(total) < fault.wrong_members
    listed[wrong] = others[wrong]
    outside = np.setdiff1d(rows[: 4 * total], np.concatenate([listed, inside]))
    declared = round(total * fault.declared_size)
    targets = task.pool.targets.clone()
    mislabelled = inside[rng.random(total) < fault.wrong_labels]
    targets[mislabelled] = (targets[mislabelled] + 1) % 10
    used = min(total, round(setting.batch_size * fault.batch_times))
    sampler = _batches(fault, setting, used, np.argsort(listed), seed)
    epoch = -(-total // setting.batch_size)
    loss = partial(_smoothed, fault.smoothed) if fault.smoothed else task.loss
    average: Vectors = {}
    before: Vectors = {}
    _train(model, task, inside, fault.before)
    noise = _Noise(model, setting, fault, epoch, seed)
    if fault.applied == "trains after":
        optimizer.register_step_post_hook(lambda *_: _train_aside(model, task, inside))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)  # the recorder, too, sees some of the faults
        with record(
            model,
            optimizer,
            folder,
            dataset_size=declared,
            batch_size=declared if setting.sampling == "full" else setting.batch_size,
            sampling=setting.sampling,
            clip_norm=setting.clip_norm,
            noise_std=setting.noise_std,
            members=np.sort(listed),
            non_members=outside,
            data=task,
        ) as recorder:
            _meanwhile(model, optimizer, task, inside, fault, instead)
            for step in range(setting.num_steps):
                blocks = fault.batches == "blocks"
                places = _drawn(sampler[step % epoch if blocks else step], fault, setting, rng)
                if setting.ids and not fault.vmapped:
                    recorder.batch(ids=listed[places])
                elif not fault.vmapped:
                    recorder.batch(len(places))
                own = setting.sampling != "poisson" or fault.divisor == "own"
                divisor = max(len(places), 1) if own else setting.batch_size
                rows = _counted(inside, places, others, fault)
                inputs = fault.input_times * task.pool.inputs[rows]
                inputs = inputs + fault.changed * torch.from_numpy(rng.normal(size=inputs.shape)).to(inputs.dtype)
                mean = _mean(model, Examples(inputs, targets[rows]), setting.clip_norm, fault, divisor, loss)
                scale = _scale(fault, step, len(places))
                added = noise(step, len(places))
                whole = {name: scale * mean[name] + added[name] for name in mean}
                weights = {name: p.detach() for name, p in model.named_parameters()}
                whole = {name: v + fault.decay * weights[name] for name, v in whole.items()}
                average = {
                    name: v + fault.momentum * average.get(name, torch.zeros_like(v)) for name, v in whole.items()
                }
                whole = average
                if fault.whole is not None:
                    norm = float(torch.stack([v.square().sum() for v in whole.values()]).sum().sqrt())
                    whole = {name: v * min(1.0, fault.whole / norm) for name, v in whole.items()}
                late = whole
                if fault.applied == "late" and before:
                    late, before = before, whole
                elif fault.applied == "late":
                    extra = noise(-1, len(places))
                    late, before = {name: scale * mean[name] + extra[name] for name in mean}, whole
                for name, p in model.named_parameters():
                    p.grad, instead[p] = late[name].clone(), scale * mean[name]
                optimizer.step()
                if fault.applied == "momentum":
                    for weights_of, gradient in instead.items():
                        optimizer.state[weights_of]["momentum_buffer"] += gradient
                _train(model, task, inside, fault.between)
            _train(model, task, inside, fault.outside)
            if fault.loaded:
                other = _model(task, fault)
                _train(other, task, inside, fault.loaded)
                model.load_state_dict(other.state_dict())


def _model(task: Task, fault: Fault) -> nn.Module:
    model = task.make_model()
    if fault.model != "as declared":
        assert isinstance(model, nn.Sequential)
        model[1] = nn.ReLU() if fault.model == "relu" else nn.Sequential(nn.Tanh(), nn.Dropout(0.3))
    return model


def _smoothed(share: float, outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=share)


def _scale(fault: Fault, step: int, size: int) -> float:
    named = {"sum": float(size), "1/n": 1.0 / max(size, 1), "fourth": 3.0 if step % 4 == 3 else 1.0}
    return fault.scale if isinstance(fault.scale, float) else named[fault.scale]


def _counted(
    inside: NDArray[np.int64], places: NDArray[np.int64], others: NDArray[np.int64], fault: Fault
) -> NDArray[np.int64]:
    """The rows whose gradients are summed."""
    again = np.repeat(inside[places[places == 0]], fault.copies - 1)
    return np.concatenate([inside[places], again, others[: fault.extra]])


def _optimizer(model: nn.Module, fault: Fault, instead: dict[nn.Parameter, Tensor]) -> torch.optim.Optimizer:
    if fault.applied == "loaded":
        return torch.optim.Adam(model.parameters(), lr=0.01)
    if fault.applied != "optimizer":
        return torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5 if fault.applied == "momentum" else 0.0)
    optimizer = _Another(model.parameters(), lr=0.3)
    optimizer.instead = instead
    return optimizer


def _meanwhile(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    task: Task,
    inside: NDArray[np.int64],
    fault: Fault,
    instead: dict[nn.Parameter, Tensor],
) -> None:
    """What happens to the optimizer when the recording has begun."""
    if fault.applied == "hook":
        optimizer.register_step_pre_hook(lambda *_: _exchange(instead))
    elif fault.applied == "in place":
        optimizer.register_step_pre_hook(lambda *_: _overwrite(instead))
    elif fault.applied == "trains":
        optimizer.register_step_pre_hook(lambda *_: _train_aside(model, task, inside))
    elif fault.applied == "loaded":
        copied = copy.deepcopy(model)
        other, batch = torch.optim.Adam(copied.parameters(), lr=0.01), task.pool[inside]
        for _ in range(100):
            other.zero_grad()
            task.loss(copied(batch.inputs), batch.targets).mean().backward()
            other.step()
        optimizer.load_state_dict(other.state_dict())


def _train_aside(model: nn.Module, task: Task, rows: NDArray[np.int64]) -> None:
    """A plain step that leaves the gradients as they are."""
    kept = [p.grad for p in model.parameters()]
    _train(model, task, rows, 1)
    for p, old in zip(model.parameters(), kept, strict=True):
        p.grad = old


def _overwrite(instead: dict[nn.Parameter, Tensor]) -> None:
    for p, gradient in instead.items():
        assert p.grad is not None
        p.grad.numpy()[...] = gradient.numpy()


def _exchange(instead: dict[nn.Parameter, Tensor]) -> None:
    for p, gradient in instead.items():
        p.grad = gradient


class _Another(torch.optim.SGD):
    """Steps along other gradients than those of the parameters, which it leaves as they are."""

    instead: dict[nn.Parameter, Tensor]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for p, gradient in self.instead.items():
            p.sub_(self.defaults["lr"] * gradient)


def _train(model: nn.Module, task: Task, rows: NDArray[np.int64], steps: int) -> None:
    other, batch = torch.optim.SGD(model.parameters(), lr=0.3), task.pool[rows]
    for _ in range(steps):
        other.zero_grad()
        task.loss(model(batch.inputs), batch.targets).mean().backward()
        other.step()


def _batches(
    fault: Fault, setting: Setting, size: int, order: NDArray[np.int64], seed: int
) -> Sequence[NDArray[np.int64]]:
    """Places of the records of each batch, of this size. `order` : of the records by their ids."""
    kind, total, rng = fault.batches, setting.dataset_size, np.random.default_rng([seed, 1])
    drawn = kind if kind in ("fixed", "poisson", "shuffled", "full") else setting.sampling
    halves = 2 if kind == "pairs" else 1
    sampler = make_sampler(
        drawn, dataset_size=total // halves, batch_size=size // halves, num_steps=setting.num_steps, seed=seed
    )
    if kind not in ("in order", "pairs", "couple"):
        return sampler
    batches = [np.array(one) for one in sampler]
    if kind == "pairs":
        return [np.concatenate([2 * one, 2 * one + 1]) for one in batches]
    epoch, start = -(-total // size) if drawn == "shuffled" else 1, 0
    for step, one in enumerate(batches):
        if kind == "in order":
            start = start if step % epoch else int(rng.integers(total))
            batches[step] = order[(start + np.arange(len(one))) % total]
            start += len(one)
        elif drawn == "shuffled" and (0 in one) != (1 in one):  # exchange two of the epoch's records
            other, here = (1, 0) if 0 in one else (0, 1)
            gives = int(rng.choice(one[one != here]))
            for later in batches[step - step % epoch : step - step % epoch + epoch]:
                was = later == other
                later[later == gives] = other
                later[was] = gives
        elif 1 in one and 0 not in one and len(one):
            batches[step] = _without(one, 1, total, rng, drawn == "fixed")
        elif 0 in one and 1 not in one:
            batches[step] = np.append(one[one != rng.choice(one[one != 0])] if drawn == "fixed" else one, 1)
    return batches


def _without(
    batch: NDArray[np.int64], record: int, total: int, rng: np.random.Generator, replaced: bool
) -> NDArray[np.int64]:
    others = np.setdiff1d(np.arange(2, total), batch)
    return np.append(batch[batch != record], rng.choice(others, 1) if replaced else batch[:0])


def _drawn(places: NDArray[np.int64], fault: Fault, setting: Setting, rng: np.random.Generator) -> NDArray[np.int64]:
    if fault.batches == "first":
        return np.arange(len(places))
    if fault.batches == "replacement":
        return rng.integers(0, setting.dataset_size, len(places))
    if fault.batches == "favourite" and 0 not in places:
        return np.append(places[1:], 0)
    return places


def _mean(
    model: nn.Module,
    batch: Examples,
    clip_norm: float | None,
    fault: Fault,
    divisor: float,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> Vectors:
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def one(weights: Vectors, x: Tensor, y: Tensor) -> Tensor:
        outputs: Any = torch.func.functional_call(model, weights, (x[None],))
        return loss(outputs, y[None])[0]

    each: Vectors = torch.func.vmap(torch.func.grad(one), (None, 0, 0), randomness="different")(
        parameters, batch.inputs, batch.targets
    )
    if fault.clip == "pairs":  # the first of each pair stands for their mean, twice
        each = {
            name: torch.stack([g[0::2][: len(g) // 2], g[1::2]]).mean(0).repeat(2, *[1] * (g.ndim - 1))
            for name, g in each.items()
        }
    norms = torch.stack([g.flatten(1).square().sum(1) for g in each.values()]).sum(0).sqrt()
    factor = torch.ones_like(norms)
    if clip_norm is not None and fault.clip in ("each", "pairs"):
        factor = (fault.clip_times * clip_norm / norms).clamp(max=1.0)
    if clip_norm is not None and fault.clip == "normalised":
        factor = clip_norm / norms
    if clip_norm is not None and fault.clip in ("usual", "largest"):
        whole = norms.mean() if fault.clip == "usual" else norms.amax()
        factor = (clip_norm / whole).clamp(max=1.0).expand_as(norms)
    if clip_norm is not None and fault.clip == "value":
        each = {name: g.clamp(-clip_norm / 10, clip_norm / 10) for name, g in each.items()}
    if clip_norm is not None and fault.clip in ("layers", "shares", "first"):
        limit = clip_norm / len(each) ** 0.5 if fault.clip == "shares" else clip_norm
        own = {name: (limit / g.flatten(1).norm(dim=1)).clamp(max=1.0) for name, g in each.items()}
        own = {
            name: v if fault.clip != "first" or name.startswith("0.") else torch.ones_like(v) for name, v in own.items()
        }
        each = {name: torch.einsum("i,i...->i...", own[name], g) for name, g in each.items()}
    mean = {name: torch.einsum("i,i...->...", factor, g) / divisor for name, g in each.items()}
    if clip_norm is not None and fault.clip == "mean":
        norm = float(torch.stack([m.square().sum() for m in mean.values()]).sum().sqrt())
        mean = {name: m * min(1.0, clip_norm / norm) for name, m in mean.items()}
    return mean


class _Noise:
    def __init__(self, model: nn.Module, setting: Setting, fault: Fault, epoch: int, seed: int) -> None:
        self._like = {name: p.detach() for name, p in model.named_parameters()}
        self._setting, self._fault, self._epoch, self._seed = setting, fault, epoch, seed

    def __call__(self, step: int, size: int) -> Vectors:
        kind, setting = self._fault.noise, self._setting
        if kind == "correlated":
            root = 0.75**0.5
            new, old = (self._drawn(number) for number in (step, step - 1))
            return {name: setting.noise_std * (0.5 * old[name] + root * new[name]) for name in new}
        if kind == "reordered":
            orders = np.random.default_rng([self._seed, step])
            return {
                name: setting.noise_std * v.flatten()[torch.from_numpy(orders.permutation(v.numel()))].reshape(v.shape)
                for name, v in self._drawn(0).items()
            }
        if kind == "antithetic":
            sign = -1.0 if step % 2 else 1.0
            return {name: sign * setting.noise_std * v for name, v in self._drawn(step - step % 2).items()}
        number = {"reused": 0, "reseeded": step % self._epoch}.get(str(kind), step)
        factors = {
            "n": 1.0 / max(size, 1),
            "root n": max(size, 1) ** -0.5,
            "two of three": float(step % 3 != 2),
            "all but one": float(step != 5),
            "shrinking": 1.0 - 0.5 * step / setting.num_steps,
        }
        std = setting.noise_std * (kind if isinstance(kind, float) else factors.get(kind, 1.0))
        drawn = self._drawn(number)
        return {name: std * self._shaped(name, drawn) for name in drawn}

    def _drawn(self, number: int) -> Vectors:
        known = self._fault.noise == "counted seeds"
        generator = torch.Generator().manual_seed(number if known else 1000 * self._seed + number + 1)
        return {name: torch.randn(p.shape, generator=generator) for name, p in self._like.items()}

    def _shaped(self, name: str, drawn: Vectors) -> Tensor:
        kind, one = self._fault.noise, drawn[name]
        silent = {"first": name.startswith("2."), "last": name.startswith("0."), "weights": name.endswith("bias")}
        if silent.get(str(kind), False):
            return torch.zeros_like(one)
        if kind == "cut":
            return one.clamp(-3.0, 3.0)
        if kind == "redrawn":
            return torch.nn.init.trunc_normal_(one, a=-3.0, b=3.0)
        if kind in ("float16", "bfloat16"):
            return one.to(getattr(torch, kind)).to(one.dtype)
        if kind == "layers":
            longest = max((v.flatten() for v in drawn.values()), key=len)
            return longest[: one.numel()].reshape(one.shape)
        if kind in ("uniform", "laplace", "signs"):
            share = (torch.special.ndtr(one.double()) - 0.5).clamp(-0.4999999, 0.4999999)
            shapes = {
                "uniform": share * 12.0**0.5,
                "laplace": -share.sign() * torch.log1p(-2.0 * share.abs()) / 2.0**0.5,
                "signs": share.sign(),
            }
            return shapes[kind].to(one.dtype)
        if kind == "bias" and name.endswith("bias"):
            weights = drawn[name.removesuffix("bias") + "weight"].flatten(1)
            return weights.sum(1) / weights.shape[1] ** 0.5
        if one.ndim < 2:
            return one
        if kind in ("half rank", "turned"):
            half = one.shape[1] // 2
            noise = one[:, :half]
            turn, _ = torch.linalg.qr(torch.randn(2 * half, 2 * half, generator=torch.Generator().manual_seed(7)))
            if kind == "half rank":
                made = 2.0**0.5 * noise @ turn[:half]
            else:
                made = torch.cat([noise, noise @ torch.linalg.qr(turn[:half, :half])[0]], 1)
            return torch.cat([made, one[:, 2 * half :]], 1)
        if kind == "rows":
            return one[:1].expand_as(one)
        if kind == "columns":
            return one[:, :1].expand_as(one)
        if kind == "low rank":
            return one[:, :1] * one[:1]
        kept = torch.ones_like(one)
        if kind == "row" and name.startswith("0."):
            kept[1] = 0.0
        if kind == "column" and name.startswith("0."):
            kept[:, 1] = 0.0
        if kind == "entry" and name.startswith("0."):
            kept.view(-1)[137] = 0.0
        return one * kept
