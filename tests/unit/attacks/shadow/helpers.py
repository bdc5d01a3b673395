"""A task that trains in milliseconds, and signals that do what the tests need."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from gmip.attacks.shadow import ShadowSet
from gmip.errors import UnreachableTarget
from gmip.tasks import Examples, Task, cross_entropy, load
from gmip.vocabulary import Recipe

# A task's file and one beside it, from which it takes its model's class: other processes can import neither.
MODEL = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, hidden):
        super().__init__(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, inputs):
        return scale(super().forward(inputs))

def scale(outputs):
    return 2.0 * outputs
"""
TASK = """
import os
import gmip_test_neighbour
import torch
from gmip_test_neighbour import Net
from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe

WEIGHT = 0.5

def loss(outputs, targets):
    assert os.getpid() and gmip_test_neighbour.Net is not None
    return WEIGHT * torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

def make_task():
    inputs = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    data = Examples(inputs, inputs[:, :3].argmax(1))
    recipe = Recipe(dataset_size=40, batch_size=10, num_steps=5, learning_rate=0.5)
    return Task(name="mine", make_model=lambda: Net(7), pool=data[range(180)], test=data[range(180, 200)],
                recipe=recipe, loss=loss)
"""


def load_own_task(folder: Path) -> Task:
    """The task of these files, which are written to `folder`."""
    (folder / "gmip_test_neighbour.py").write_text(MODEL)
    (folder / "task.py").write_text(TASK)
    sys.modules.pop("gmip_test_neighbour", None)
    return load(f"{folder / 'task.py'}:make_task")


RECIPE = Recipe(dataset_size=40, batch_size=10, num_steps=5, learning_rate=0.5)


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def make_task(**changes: Any) -> Task:
    """A pool of 200 and 30 records more as background: runs have 40 members, 40 non-members, 150 of background."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(260, 6, generator=generator)
    data = Examples(inputs, inputs[:, :3].argmax(1))
    given = {
        "name": "small",
        "make_model": make_model,
        "pool": data[range(200)],
        "test": data[range(200, 230)],
        "background": data[range(230, 260)],
        "recipe": RECIPE,
        "loss": cross_entropy,
    }
    return Task(**(given | changes))


@dataclass(frozen=True)
class Outputs:
    """The model's outputs."""

    key: str = "outputs"
    population: bool = True

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Any:
        assert not model.training and len(task.pool) == 0
        with torch.no_grad():
            return model(examples.inputs).numpy()


@dataclass(frozen=True)
class Losses:
    key: str = "losses-v1.0"
    population: bool = False

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Any:
        with torch.no_grad():
            return task.loss(model(examples.inputs), examples.targets).double().numpy()


@dataclass(frozen=True)
class Random:
    """Draws from torch's global generator."""

    key: str = "random"
    population: bool = True

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Any:
        return torch.rand(len(examples)).numpy()


@dataclass(frozen=True)
class Large:
    """A megabyte for 80 candidates."""

    key: str = "large"
    population: bool = False

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Any:
        return np.full((len(examples), 2**20 // 640), 1.0)


@dataclass(frozen=True)
class Slow(Outputs):
    """The model's outputs, after a while."""

    seconds: float = 0.3

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Any:
        time.sleep(self.seconds)
        return super().__call__(task, model, examples)


@dataclass(frozen=True)
class Troubled(Outputs):
    """The model's outputs, but `times` times trouble before, counted by files in `folder`; -1: always.

    The first `after` calls are without trouble.
    """

    folder: str = ""
    times: int = 1
    kind: str = "kill"
    after: int = 0

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> Any:
        if not self._among_the_first(self.after, "calm") and self._among_the_first(self.times, "trouble"):
            self._trouble()
        return super().__call__(task, model, examples)

    def _among_the_first(self, most: int, name: str) -> bool:
        for number in range(most if most >= 0 else 1_000):
            with contextlib.suppress(FileExistsError):
                (Path(self.folder) / f"{name}-{number}").touch(exist_ok=False)
                return True
        return False

    def _trouble(self) -> None:
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise {
            "disk": OSError(28, "No space left on device"),
            "memory": RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            "shape": RuntimeError("shapes do not fit"),
            "bug": ValueError("nothing\nhere"),
            "gmip": UnreachableTarget("No noise is enough: take more."),
        }[self.kind]


def bits(shadows: ShadowSet) -> list[tuple[Any, ...]]:
    """Everything that is known, model by model."""
    found = []
    for model in shadows:
        parts = [model.signal(signal.key) for signal in shadows.signals]
        arrays = [array for part in parts for array in part if array is not None]
        found.append((model.index, model.inside.tobytes(), *((a.dtype.str, a.shape, a.tobytes()) for a in arrays)))
    return found


def files(folder: Path) -> dict[int, list[Path]]:
    """What is stored of each model."""
    found: dict[int, list[Path]] = {}
    for path in folder.glob("*.entry"):
        found.setdefault(about(path)["key"]["model"], []).append(path)
    return dict(sorted(found.items()))


def about(entry: Path) -> dict[str, Any]:
    """What an entry says that it depends on."""
    found: dict[str, Any] = json.loads(entry.read_bytes().split(b"\n")[1])
    return found


def times(folder: Path) -> dict[int, int]:
    """When each model was stored."""
    return {index: max(path.stat().st_mtime_ns for path in paths) for index, paths in files(folder).items()}
