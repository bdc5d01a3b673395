from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gmip.attacks import GLiR, Loss
from gmip.attacks.signals import released_model, run_model
from gmip.errors import TraceMismatch
from gmip.tasks.task import Examples, Task
from gmip.trace import Trace
from gmip.training import record
from gmip.training.recorder import base_fingerprint, released_state
from gmip.vocabulary import Recipe


class Adapted(nn.Module):
    """Frozen random features under a trained layer; with `peft_config` it looks like a model of peft."""

    def __init__(self, *, seed: int | None = None, adapters: bool = True) -> None:
        super().__init__()
        if seed is not None:
            torch.manual_seed(seed)
        self.base, self.head = nn.Linear(5, 8), nn.Linear(8, 3)
        self.base.requires_grad_(False)
        self.tied = self.base
        self.register_buffer("shift", torch.zeros(8))
        if adapters:
            self.peft_config = {"default": None}

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.base(x) + self.shift))


def make_task(seed: int | None, *, adapters: bool) -> Task:
    rng = np.random.default_rng(0)
    records = Examples(
        torch.from_numpy(rng.standard_normal((90, 5)).astype(np.float32)), torch.from_numpy(rng.integers(0, 3, 90))
    )
    recipe = Recipe(dataset_size=20, batch_size=20, num_steps=5, learning_rate=0.5, sampling="full")
    return Task(
        name="adapted",
        make_model=lambda: Adapted(seed=seed, adapters=adapters),
        pool=records[:80],
        test=records[80:],
        recipe=recipe,
    )


def recorded(path, task: Task, *, shift: float = 0.0, fails: bool = False) -> nn.Module:
    torch.manual_seed(123)
    model = task.make_model()
    model.get_buffer("shift").fill_(shift)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.5)  # type: ignore[union-attr]
    rows = slice(0, 20)
    who = {"members": range(20), "non_members": range(20, 40), "data": task}
    try:
        with record(model, optimizer, path, dataset_size=20, batch_size=20, sampling="full", **who):
            for _ in range(5):
                optimizer.zero_grad()
                task.loss(model(task.pool.inputs[rows]), task.pool.targets[rows]).mean().backward()
                optimizer.step()
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    return model


def test_base_weights_under_adapters_are_not_in_the_trace(tmp_path) -> None:
    task = make_task(7, adapters=True)
    model = recorded(tmp_path / "run", task)
    trace = Trace.open(tmp_path / "run")
    final = trace.final_arrays()
    assert final is not None and set(final) == {"head.weight", "head.bias", "shift"}
    assert trace.header.base_weights == base_fingerprint(model)
    for name, value in released_model(task, trace).state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name])
    assert GLiR(play=None).run(task, trace).ids.size == Loss().run(task, trace).ids.size == 40


@pytest.mark.parametrize("fails", [False, True])
def test_other_base_weights_are_refused(tmp_path, fails) -> None:
    recorded(tmp_path / "run", make_task(7, adapters=True), fails=fails)
    other, trace = make_task(8, adapters=True), Trace.open(tmp_path / "run")
    attacks = [GLiR(play=None)] if fails else [GLiR(play=None), Loss()]
    for attack in attacks:
        with pytest.raises(TraceMismatch, match="was trained on other base weights"):
            attack.run(other, trace)


def test_frozen_layers_of_a_run_are_those_of_its_trace(tmp_path) -> None:
    """Without adapters the trace holds all: gradients are those at the run's own random features, not at new ones."""
    task = make_task(None, adapters=False)
    model = recorded(tmp_path / "run", task, shift=0.3)
    trace = Trace.open(tmp_path / "run")
    assert base_fingerprint(model) is None and set(released_state(model)) == set(model.state_dict())
    found = run_model(task, trace)
    torch.testing.assert_close(found.get_parameter("base.weight"), model.get_parameter("base.weight"))
    torch.testing.assert_close(found.get_buffer("shift"), torch.full((8,), 0.3))
    # With the right features, members' gradients make up the published mean, in a batch of all of them.
    scores = GLiR(play=None).run(task, trace)
    members = np.isin(scores.ids, range(20))
    assert np.median(scores.scores[members]) > np.median(scores.scores[~members])
