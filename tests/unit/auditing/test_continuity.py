"""The run check about training that the record does not have."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gmip.auditing.recompute import check_run, continuity
from gmip.errors import GmipWarning, TraceError
from gmip.tasks import Task
from gmip.trace import Trace
from gmip.training import record
from tests.unit.auditing.faulty_runs import SETTINGS, Fault, make_task, record_run

STEPS = 5
LAYERS = ("0.weight", "0.bias", "2.weight", "2.bias")


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task()


def plain_step(task: Task, model: Any, optimizer: Any, rows: Any) -> None:
    optimizer.zero_grad()
    task.loss(model(task.pool[rows].inputs), task.pool[rows].targets).mean().backward()
    optimizer.step()


def by_hand(
    task: Task, path: Path, change: Callable[[int, Any, Any], None], *, every: int = 1, double: bool = False
) -> Trace:
    """A loop that changes the parameters itself: `change` of (step, parameters, gradients)."""
    torch.manual_seed(0)
    model = task.make_model().double() if double else task.make_model()
    rows = np.arange(120)
    batch = task.pool[rows]
    inputs = batch.inputs.double() if double else batch.inputs
    with record(model, None, path, dataset_size=120, batch_size=120, every=every, members=rows, data=task) as recorder:
        for step in range(STEPS):
            model.zero_grad()
            task.loss(model(inputs), batch.targets).mean().backward()
            recorder.step()
            with torch.no_grad():
                change(step, list(model.parameters()), [p.grad for p in model.parameters()])
    return Trace.open(path)


def descent(step: int, parameters: Any, gradients: Any) -> None:
    for p, g in zip(parameters, gradients, strict=True):
        p -= 0.3 * g


def decayed(step: int, parameters: Any, gradients: Any) -> None:
    for p, g in zip(parameters, gradients, strict=True):
        p *= 0.99
        p -= 0.3 / (1 + step) * g


def signed(step: int, parameters: Any, gradients: Any) -> None:
    for p, g in zip(parameters, gradients, strict=True):
        p -= 0.01 * g.sign()


def moved_once(at: int) -> Callable[[int, Any, Any], None]:
    def change(step: int, parameters: Any, gradients: Any) -> None:
        descent(step, parameters, gradients)
        if step == at:
            parameters[0] += 0.001 * torch.randn_like(parameters[0])

    return change


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("change", [descent, decayed])
def test_gradient_descent_by_hand(task: Task, tmp_path: Path, change: Any, double: bool) -> None:
    found = continuity(task, by_hand(task, tmp_path / "run", change, double=double))
    assert (found.status, found.finding) == ("passed", "follows-gradients")


@pytest.mark.parametrize("change", [signed, moved_once(2), moved_once(STEPS - 1)])
def test_other_changes_by_hand(task: Task, tmp_path: Path, change: Any) -> None:
    """Nobody knows: it may be a rule of another kind, or training besides."""
    found = continuity(task, by_hand(task, tmp_path / "run", change))
    assert (found.status, found.finding) == ("unchecked", "not-plain-descent")


def test_steps_that_are_not_stored(task: Task, tmp_path: Path) -> None:
    assert continuity(task, by_hand(task, tmp_path / "run", descent, every=2)).status == "unchecked"


@pytest.mark.parametrize(
    ("before", "between", "after", "at_steps", "layers"),
    [
        (0, 0, 0, (), ()),
        (0, 0, 3, (), LAYERS),
        (0, 3, 0, (1, 2, 3, 4), ()),
        (3, 0, 0, (0,), ()),
        (3, 3, 3, (0, 1, 2, 3, 4), LAYERS),
    ],
)
def test_what_the_recorder_saw(
    task: Task,
    tmp_path: Path,
    before: int,
    between: int,
    after: int,
    at_steps: tuple[int, ...],
    layers: tuple[str, ...],
) -> None:
    torch.manual_seed(0)
    model, rows = task.make_model(), np.arange(120)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    other = torch.optim.SGD(model.parameters(), lr=0.3)
    with (
        warnings.catch_warnings(),
        record(model, optimizer, tmp_path / "run", dataset_size=120, batch_size=120) as recorder,
    ):
        warnings.simplefilter("ignore", GmipWarning)
        for _ in range(before):
            plain_step(task, model, other, rows)
        for step in range(STEPS):
            for _ in range(between if step else 0):
                plain_step(task, model, other, rows)
            recorder.batch(120)
            plain_step(task, model, optimizer, rows)
        for _ in range(after):
            plain_step(task, model, other, rows)
    found = continuity(task, Trace.open(tmp_path / "run"))
    assert (found.at_steps, found.layers) == (at_steps, layers)
    status, finding = ("failed", "changed-outside") if before + between + after else ("passed", "as-declared")
    assert (found.status, found.finding) == (status, finding)


@pytest.mark.parametrize("how", ["hook", "optimizer", "nesterov"])
def test_a_gradient_that_is_exchanged_after_it_was_recorded(task: Task, tmp_path: Path, how: str) -> None:
    """A step without the noise of the record. Torch's own optimizers may reuse the memory of a gradient."""

    def exchange(parameters: Any) -> None:
        for p in parameters:
            p.grad = 0.5 * p.grad + 0.1

    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            exchange(self.param_groups[0]["params"])
            return super().step(closure)

    torch.manual_seed(0)
    model = task.make_model()
    if how == "nesterov":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, foreach=True)
    else:
        optimizer = (Own if how == "optimizer" else torch.optim.SGD)(model.parameters(), lr=0.3)
    with record(model, optimizer, tmp_path / "run", dataset_size=120, batch_size=120) as recorder:
        if how == "hook":
            optimizer.register_step_pre_hook(lambda *_: exchange(model.parameters()))
        for _ in range(STEPS):
            recorder.batch(120)
            plain_step(task, model, optimizer, np.arange(120))
    found = continuity(task, Trace.open(tmp_path / "run"))
    status = ("passed", "as-declared") if how == "nesterov" else ("unchecked", "not-plain-descent")
    assert (found.status, found.finding) == status


@pytest.mark.parametrize(
    ("applied", "status"), [("trains", "failed"), ("momentum", "unchecked"), ("loaded", "unchecked")]
)
def test_training_inside_a_step(task: Task, tmp_path: Path, applied: Any, status: str) -> None:
    """By a hook between what is recorded and the step, or through the state of the optimizer."""
    record_run(task, tmp_path / "run", SETTINGS["full, noise"], Fault(applied=applied), seed=0)
    assert continuity(task, Trace.open(tmp_path / "run")).status == status


@pytest.mark.parametrize("applied", ["hook", "in place"])
def test_what_later_hooks_make_of_a_gradient_is_recorded(task: Task, tmp_path: Path, applied: Any) -> None:
    """From the second step on: before the first one nobody knew of them."""
    record_run(task, tmp_path / "run", SETTINGS["full, noise"], Fault(applied=applied), seed=0)
    found = check_run(task, tmp_path / "run")
    assert "noise-steps" in {one.check for one in found.failed}
    assert "continuity" in {one.check for one in found.bound_unchecked}


@pytest.mark.parametrize(("applied", "listed"), [("optimizer", True), ("trains after", True), ("as recorded", False)])
def test_an_optimizer_that_goes_by_other_gradients(task: Task, tmp_path: Path, applied: Any, listed: bool) -> None:
    """It leaves those that were recorded as they are, so that nothing shows it but the step."""
    record_run(task, tmp_path / "run", SETTINGS["full, noise"], Fault(applied=applied), seed=0)
    found = check_run(task, tmp_path / "run")
    assert found.passed and ("optimizer" in {one.fault for one in found.beyond_reach}) is listed


def test_a_step_of_its_own_along_the_recorded_gradient(task: Task, tmp_path: Path) -> None:
    class Own(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            for p in self.param_groups[0]["params"]:
                p -= 0.3 * p.grad

    torch.manual_seed(0)
    model, rows = task.make_model(), np.arange(120)
    optimizer = Own(model.parameters(), {})
    told = {"dataset_size": 120, "batch_size": 120, "members": rows, "data": task}
    with record(model, optimizer, tmp_path / "run", **told):
        for _ in range(STEPS):
            plain_step(task, model, optimizer, rows)
    assert Trace.open(tmp_path / "run").header.optimizer == "Own"
    assert "optimizer" not in {one.fault for one in check_run(task, tmp_path / "run").beyond_reach}


@pytest.mark.parametrize("between", [None, "weights", "gradient"])
def test_what_comes_between_the_announcement_of_a_step_and_the_step(
    task: Task, tmp_path: Path, between: str | None
) -> None:
    """Neither leaves another version of a tensor."""
    torch.manual_seed(0)
    model: Any = task.make_model()
    optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.3), task.pool[np.arange(120)]
    with record(model, optimizer, tmp_path / "run", dataset_size=120, batch_size=120) as recorder:
        for _ in range(STEPS):
            optimizer.zero_grad()
            task.loss(model(batch.inputs), batch.targets).mean().backward()
            recorder.step()
            changed = {None: torch.zeros(1), "weights": model[0].weight.data, "gradient": model[0].weight.grad}[between]
            changed.numpy()[...] += 0.01 * torch.randn(changed.shape).numpy()
            optimizer.step()
    trace = Trace.open(tmp_path / "run")
    status, finding = ("passed", "as-declared") if between is None else ("unchecked", "not-plain-descent")
    found = continuity(task, trace)
    assert (found.status, found.finding, trace.num_steps) == (status, finding, STEPS)


def test_no_steps(task: Task, tmp_path: Path) -> None:
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    nothing_done = record(model, optimizer, tmp_path / "run", dataset_size=120, batch_size=120)
    with pytest.raises(TraceError, match="has no steps"), nothing_done:
        pass
    assert continuity(task, Trace.open(tmp_path / "run")).status == "unchecked"


@pytest.mark.parametrize("before", [0, 300])
def test_training_before_the_recording_began(task: Task, tmp_path: Path, before: int) -> None:
    """The optimizer is new and tells nothing; the model does, if its members are better known to it than others."""
    torch.manual_seed(0)
    model, rows = task.make_model(), np.random.default_rng(0).permutation(len(task.pool))
    members, others = rows[:60], rows[60:500]
    for _ in range(before):
        plain_step(task, model, torch.optim.SGD(model.parameters(), lr=1.0), members)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told = {"members": members, "non_members": others, "data": task}
    with record(model, optimizer, tmp_path / "run", dataset_size=60, batch_size=60, **told):
        for _ in range(3):
            plain_step(task, model, optimizer, members)
    found = continuity(task, Trace.open(tmp_path / "run"))
    assert found.status == ("unchecked" if before else "passed")
    assert found.finding == ("distinct-before" if before else "as-declared") and found.auc is not None


@pytest.mark.parametrize("seeded", [True, False])
def test_a_start_that_nobody_can_draw_again_is_beyond_reach(task: Task, tmp_path: Path, seeded: bool) -> None:
    def drawn() -> Any:
        torch.manual_seed(7)
        return task.make_model()

    known = dataclasses.replace(task, make_model=drawn) if seeded else task
    record_run(known, tmp_path / "run", SETTINGS["full, noise"], Fault(), seed=0)
    faults = {one.fault for one in check_run(known, tmp_path / "run").beyond_reach}
    assert faults and ("before" in faults) is not seeded
