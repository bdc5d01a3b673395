"""Checkpoints of a training of which no step was recorded: the weights after each epoch, and who was in."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch

from gmip._io import reading
from gmip.attacks.publications import ADAM, SGD, CheckpointedModel, Moment, Way, flat, state_vectors
from gmip.auditing.attack_runs import AuditedRun, Workplace
from gmip.auditing.sources import TaskSource
from gmip.auditing.sources.released import Released, released_model_of
from gmip.errors import InvalidArgument
from gmip.tasks import Task
from gmip.training import initial_model
from gmip.training.models import load_weights, read_weights, trainable_parameters
from gmip.vocabulary import Recipe

_FILES: Final = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_OWN: Final = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "adapter_model.safetensors")
_OPTIONS: Final = ("betas", "eps", "weight_decay", "momentum", "dampening", "nesterov")


@dataclass(frozen=True, eq=False)
class Checkpoints(TaskSource):
    """Checkpoints of one training, each of a later moment than the one before, and who was in.

    Parameters
    ----------
    folder : with two or more checkpoints, in the order of the numbers in their names: files (.safetensors, .pt, .pth,
        .ckpt) or folders of Trainer (checkpoint-500). The optimizer's state is read from a file .pt, .pth or .ckpt that
        holds it beside the weights, under any name (Lightning's list `optimizer_states`, too), and in a folder from
        optimizer.pt. A state of Adam beside a recipe of SGD is refused.
    members, non_members, task, name : as in `gmip.Released`. Batch size, optimizer and learning rate are those of the
        task's recipe, where a checkpoint does not say otherwise; where its optimizer's state is not there, two
        checkpoints are taken to be one epoch apart.

    Guarantees
    ----------
    They are those of `gmip.audit`. Nothing is known about the training, so nothing is guaranteed but what a claim says.
    Of files nothing but tensors and plain values is loaded (weights_only).
    """

    folder: str | os.PathLike[str]
    members: str | os.PathLike[str] | Sequence[int]
    non_members: str | os.PathLike[str] | Sequence[int]
    task: str | Task
    name: str | None = None
    several_models: ClassVar[bool] = True

    def called(self) -> str:
        """The name, or that of the folder."""
        return self.name or Path(self.folder).resolve().name or "checkpoints"

    def plain(self) -> dict[str, Any]:
        """The checkpoints as audit.yaml writes them."""
        return self._released(self.folder).plain()

    def opened(self, task: Task, name: str, number: int, work: Workplace) -> AuditedRun:
        """The last model, what was published on the way to it, and the task with the records in question."""
        paths = checkpoint_paths(Path(self.folder).expanduser())
        if len(paths) < 2:
            raise InvalidArgument(
                f"{self.folder} holds {len(paths)} checkpoints",
                argument="folder",
                remedy="keep one after each epoch, with numbers in their names; or audit the last with gmip.Released",
            )
        last = self._released(paths[-1])
        run = last.opened(task, name, number, work)
        released = released_model_of(task, last)[1]
        moments, ways = _read(run.task, paths, released.header.recipe or task.recipe)
        model = CheckpointedModel(released, moments, ways)
        return dataclasses.replace(run, targets=(model,), path=os.fspath(self.folder))

    def _released(self, path: str | os.PathLike[str]) -> Released:
        return Released(path, self.members, self.non_members, self.task, name=self.name)


def checkpoint_paths(folder: Path) -> list[Path]:
    """The checkpoints in a folder by the numbers in their names; none if the folder is one checkpoint itself."""
    if not folder.is_dir() or any((folder / name).is_file() for name in _OWN):
        return []
    with reading(folder):
        found = [path for path in folder.iterdir() if _is_checkpoint(path)]
    return sorted(found, key=lambda path: ([int(text) for text in re.findall(r"\d+", path.stem)], path.name))


def _is_checkpoint(path: Path) -> bool:
    if not re.search(r"\d", path.stem):  # best.pt, last.ckpt: a copy of one of the others
        return False
    if path.is_dir():
        return any((path / name).is_file() for name in _OWN[:3])
    return path.suffix.lower() in _FILES and path.is_file()


def _read(task: Task, paths: Sequence[Path], recipe: Recipe) -> tuple[list[Moment], list[Way]]:
    model = initial_model(task, 0, checked=False)
    parameters = [p for _, p in trainable_parameters(model)]
    moments, groups = [], []
    for path in paths:
        load_weights(model, read_weights(path), path)
        state = _optimizer_state(path)
        first = second = None
        steps = 0
        if state is not None:
            first, second, steps = state_vectors(state, parameters)
            if second is not None and recipe.optimizer.lower() in SGD:
                raise InvalidArgument(
                    f"has optimizer {recipe.optimizer!r}, and {path} holds the state of Adam or one of its kind",
                    argument="recipe",
                    remedy="give the task's recipe the optimizer that trained (optimizer='Adam'), or scores miss leaks",
                )
        moments.append(Moment(flat(parameters), first, second, steps))
        groups.append({} if state is None else dict(state["param_groups"][0]))
    ways = [_way(recipe, moments[i : i + 2], groups[i : i + 2]) for i in range(len(paths) - 1)]
    return moments, ways


def _way(recipe: Recipe, ends: Sequence[Moment], groups: Sequence[Mapping[str, Any]]) -> Way:
    """The steps between two checkpoints, as far as they say; the recipe's epoch where they do not."""
    said = {name: groups[1][name] for name in _OPTIONS if groups[1].get(name) is not None}
    options = {
        name: value for name, value in said.items() if name in recipe.optimizer_options or _matters(recipe, name)
    }
    recipe = recipe.replace(optimizer_options=dict(recipe.optimizer_options) | options)
    steps = ends[1].step - ends[0].step if ends[1].step and (ends[0].step or _plain_start(ends[0])) else 0
    if steps < 1:
        steps = -(-recipe.dataset_size // recipe.batch_size)
    rates = [float(group.get("lr", recipe.learning_rate)) for group in groups]
    if recipe.optimizer.lower() in ADAM:
        known = ends[1].second is not None and (ends[0].second is not None or bool(ends[1].step == steps))
    else:
        begun = ends[0].first is not None or bool(groups[0])  # a state without momentum: no step was taken before
        known = not recipe.optimizer_options.get("momentum") or (begun and ends[1].first is not None)
    return Way(recipe, tuple(np.linspace(rates[0], rates[1], steps).tolist()), known)


def _matters(recipe: Recipe, name: str) -> bool:
    adam = recipe.optimizer.lower() in ADAM
    return name == "weight_decay" or adam == (name in ("betas", "eps"))


def _plain_start(moment: Moment) -> bool:
    """Whether the optimizer had not begun: no state at all."""
    return moment.first is None and moment.second is None


def _optimizer_state(path: Path) -> Mapping[str, Any] | None:
    """The optimizer's state_dict beside or among the weights; None: there is none that can be read."""
    file = path / "optimizer.pt" if path.is_dir() else path
    if file.suffix == ".safetensors" or not file.is_file():
        return None
    try:
        given: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # the weights of it were read, or say what is wrong; the attack does without the state
        return None
    beside = [given] if path.is_dir() else given.values() if isinstance(given, Mapping) else []
    kept = [one[0] if isinstance(one, Sequence) and one else one for one in beside]
    states = [one for one in kept if isinstance(one, Mapping) and one.get("param_groups")]
    return next((one for one in states if isinstance(one.get("state"), Mapping)), None)
