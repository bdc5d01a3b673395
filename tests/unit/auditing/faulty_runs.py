"""Runs with one fault each, recorded as if they were sound: what `gmip check` has to find.

A hand-written loop of noisy SGD on digits, two layers. What it declares is `Setting`; what it does differs by `Fault`.
Used by benchmarks/check.py, which prints the table of docs/check.md, and by the tests.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What the loop does otherwise. Each is a change of one thing.

    noise : "reused" (drawn once), "reseeded" (the same again in every epoch), "first" or "last" (layer only); or a
        factor on its standard deviation, "n" for 1/n.
    clip : "mean" (after averaging), "none", "layers" (each parameter on its own); clip_times : factor on the norm.
    scale : factor on the gradient, "sum" for n; whole : norm to which the gradient of a batch is clipped by hand.
    batches : "first" (always the first n), "replacement" (drawn with replacement).
    wrong_members : share of the listed members who were not in, others in their place.
    wrong_labels : share of the members whose label was another; changed : size of random changes of all inputs.
    divisor : "own" for Poisson batches that are divided by their own size.
    batch_times : how many times as large as declared batches are; vmapped : the loop calls the model on one example,
        and does not tell the recorder how many there are.
    declared_size : factor on `dataset_size` in the record.
    outside : plain steps of another optimizer within the recording, after the recorded ones; before : and before it.
    """

    noise: str | float = 1.0
    clip: Literal["each", "mean", "none", "layers"] = "each"
    clip_times: float = 1.0
    scale: str | float = 1.0
    whole: float | None = None
    batches: Literal["as declared", "first", "replacement"] = "as declared"
    wrong_members: float = 0.0
    wrong_labels: float = 0.0
    changed: float = 0.0
    divisor: Literal["declared", "own"] = "declared"
    batch_times: int = 1
    vmapped: bool = False
    declared_size: int = 1
    outside: int = 0
    before: int = 0


SETTINGS: dict[str, Setting] = {
    "full, noise": Setting(),
    "full": Setting(noise_std=0.0, clip_norm=None),
    "mini-batches, noise": Setting(sampling="fixed", batch_size=30),
    "mini-batches": Setting(sampling="shuffled", batch_size=30, noise_std=0.0, clip_norm=None),
    "mini-batches, noise, ids not recorded": Setting(sampling="poisson", batch_size=30, ids=False),
}
FAULTS: dict[str, Fault] = {
    "reused noise": Fault(noise="reused"),
    "re-seeded noise": Fault(noise="reseeded"),
    "noise off by n": Fault(noise="n"),
    "noise on the first layer only": Fault(noise="first"),
    "noise on the last layer only": Fault(noise="last"),
    "zero noise": Fault(noise=0.0),
    "clipping after averaging": Fault(clip="mean"),
    "no clipping": Fault(clip="none"),
    "sum for mean": Fault(scale="sum"),
    "wrong world size": Fault(scale=0.5),
    "clip_grad_norm_": Fault(whole=0.3),
    "batches always the first n": Fault(batches="first"),
    "duplicates": Fault(batches="replacement"),
    "half of the member labels wrong": Fault(wrong_members=0.5),
    "wrong dataset_size": Fault(declared_size=2),
    "noise 24% too small": Fault(noise=0.76),
    "clipping of each layer": Fault(clip="layers"),
    "clipping at 1.1 C": Fault(clip_times=1.1),
    "gradient times 2": Fault(scale=2.0),
    "batches twice as large": Fault(batch_times=2),
    "vmap, size not told": Fault(vmapped=True),
    "batches divided by their own size": Fault(divisor="own"),
    "1 of 30 members replaced": Fault(wrong_members=1 / 30),
    "10% wrong labels": Fault(wrong_labels=0.1),
    "augmentation": Fault(changed=0.1),
    "trained on by another optimizer": Fault(outside=400),
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
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    total = setting.dataset_size
    rows = rng.permutation(len(task.pool))
    inside, others = rows[:total], rows[total : 2 * total]
    listed = inside.copy()
    wrong = rng.random(total) < fault.wrong_members
    listed[wrong] = others[wrong]
    outside = np.setdiff1d(rows[: 4 * total], np.concatenate([listed, inside]))
    declared = total * fault.declared_size
    targets = task.pool.targets.clone()
    mislabelled = inside[rng.random(total) < fault.wrong_labels]
    targets[mislabelled] = (targets[mislabelled] + 1) % 10
    used = min(total, setting.batch_size * fault.batch_times)
    sampler = make_sampler(
        setting.sampling, dataset_size=total, batch_size=used, num_steps=setting.num_steps, seed=seed
    )
    _train(model, task, inside, fault.before)
    noise = _Noise(model, setting, fault, -(-total // setting.batch_size), seed)
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
            for step in range(setting.num_steps):
                places = _drawn(sampler[step], fault, setting, rng)
                if setting.ids and not fault.vmapped:
                    recorder.batch(ids=listed[places])
                elif not fault.vmapped:
                    recorder.batch(len(places))
                own = setting.sampling != "poisson" or fault.divisor == "own"
                divisor = max(len(places), 1) if own else setting.batch_size
                inputs = task.pool.inputs[inside[places]]
                inputs = inputs + fault.changed * torch.from_numpy(rng.normal(size=inputs.shape)).to(inputs.dtype)
                mean = _mean(
                    model, Examples(inputs, targets[inside[places]]), setting.clip_norm, fault, divisor, task.loss
                )
                scale = float(len(places)) if fault.scale == "sum" else float(fault.scale)
                added = noise(step, len(places))
                whole = {name: scale * mean[name] + added[name] for name in mean}
                if fault.whole is not None:
                    norm = float(torch.stack([v.square().sum() for v in whole.values()]).sum().sqrt())
                    whole = {name: v * min(1.0, fault.whole / norm) for name, v in whole.items()}
                for name, p in model.named_parameters():
                    p.grad = whole[name].clone()
                optimizer.step()
            _train(model, task, inside, fault.outside)


def _train(model: nn.Module, task: Task, rows: NDArray[np.int64], steps: int) -> None:
    other, batch = torch.optim.SGD(model.parameters(), lr=0.3), task.pool[rows]
    for _ in range(steps):
        other.zero_grad()
        task.loss(model(batch.inputs), batch.targets).mean().backward()
        other.step()


def _drawn(places: NDArray[np.int64], fault: Fault, setting: Setting, rng: np.random.Generator) -> NDArray[np.int64]:
    if fault.batches == "first":
        return np.arange(len(places))
    if fault.batches == "replacement":
        return rng.integers(0, setting.dataset_size, len(places))
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

    each: Vectors = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(parameters, batch.inputs, batch.targets)
    norms = torch.stack([g.flatten(1).square().sum(1) for g in each.values()]).sum(0).sqrt()
    factor = torch.ones_like(norms)
    if clip_norm is not None and fault.clip == "each":
        factor = (fault.clip_times * clip_norm / norms).clamp(max=1.0)
    if clip_norm is not None and fault.clip == "layers":
        own = {name: g.flatten(1).norm(dim=1) for name, g in each.items()}
        scaled = {
            name: torch.einsum("i,i...->i...", (clip_norm / own[name]).clamp(max=1.0), g) for name, g in each.items()
        }
        each = scaled
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
        kind = self._fault.noise
        number = {"reused": 0, "reseeded": step % self._epoch}.get(str(kind), step)
        generator = torch.Generator().manual_seed(1000 * self._seed + number + 1)
        std = self._setting.noise_std
        if kind == "n":
            std /= max(size, 1)
        elif isinstance(kind, float):
            std *= kind
        drawn = {name: std * torch.randn(p.shape, generator=generator) for name, p in self._like.items()}
        silent = {"first": "2.", "last": "0."}.get(str(kind))
        return {name: v * (silent is None or not name.startswith(silent)) for name, v in drawn.items()}
