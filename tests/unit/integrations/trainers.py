"""What the tests of frameworks share: records that note how they are drawn, and the plain loop to compare with."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from gmip.attacks import GLiR, Loss
from gmip.tasks import Task
from gmip.tasks.inputs import answer, rows_of
from gmip.trace import Trace
from gmip.training import record
from tests.unit.training.recording import check_same_trace

ROOT = Path(__file__).parents[3]


class Noted(Dataset[Any]):
    """A data set that notes which rows were asked for."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.drawn = inner, list[int]()

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, row: int) -> Any:
        self.drawn.append(row)
        return self.inner[row]


def drawn_batches(drawn: Sequence[int], size: int, total: int) -> list[list[int]]:
    """The batches of epochs over `total` records."""
    epochs = [list(drawn[first : first + total]) for first in range(0, len(drawn), total)]
    return [epoch[first : first + size] for epoch in epochs for first in range(0, len(epoch), size)]


def joined_in(batches: Sequence[list[int]], count: int, per_epoch: int) -> list[list[list[int]]]:
    """So many batches for each step, fewer in the last one of an epoch."""
    epochs = [batches[first : first + per_epoch] for first in range(0, len(batches), per_epoch)]
    return [list(epoch[i : i + count]) for epoch in epochs for i in range(0, len(epoch), count)]


def plain_run(
    path: Path,
    task: Task,
    model: nn.Module,
    steps: Sequence[Sequence[list[int]]],
    *,
    optimize: Callable[[nn.Module], tuple[Any, Any]],
    max_grad_norm: float | None = None,
    divide_by: Callable[[int], float] = float,
    **options: Any,
) -> None:
    """A loop without any framework: in each step the mean losses of its batches are added up and divided."""
    optimizer, schedule = optimize(model)
    device_rows = [[torch.tensor(batch) for batch in step] for step in steps]
    with record(model, optimizer, path, data=task, **options) as recorder:
        for step in device_rows:
            optimizer.zero_grad()
            divisor = divide_by(len(step))
            for rows in step:
                loss: Tensor = task.loss(answer(model, rows_of(task.pool.inputs, rows)), task.pool.targets[rows]).mean()
                (loss / divisor).backward()
            if max_grad_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
            recorder.batch(sum(map(len, step)), times=len(step) / divisor)
            optimizer.step()
            if schedule is not None:
                schedule.step()


def check_example(name: str, out: Path) -> None:
    """The example trains and records; GLiR tells its members from others."""
    torch.manual_seed(0)
    example = runpy.run_path(str(ROOT / "examples" / name))
    example["main"](str(out))
    trace = Trace.open(out)
    assert trace.complete and trace.batch_ids(0) is not None
    found = GLiR(play=None).run(example["make_task"](), trace)
    assert trace.members is not None
    inside = np.isin(found.ids, trace.members)
    ours, theirs = found.scores[inside], found.scores[~inside]
    assert np.mean(ours[:, None] > theirs) > 0.75  # the AUC; its standard error under no leak is 0.065


def check_same_run(task: Task, ours: Path, plain: Path) -> None:
    """Equal traces, and attacks that find the same in both."""
    check_same_trace(ours, plain)
    for attack in (GLiR(play=None), Loss()):
        one, other = (attack.run(task, Trace.open(path)) for path in (ours, plain))
        assert np.array_equal(one.ids, other.ids)
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-3, atol=1e-3 * np.abs(other.scores).max())
