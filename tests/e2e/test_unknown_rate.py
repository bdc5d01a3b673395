"""A run that was recorded, by somebody who does not say its learning rate: audited, and loaded again."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gmip
from gmip.attacks import LiRA
from gmip.attacks.shadow import Shadows
from gmip.report.markdown import to_markdown


def _task() -> gmip.Task:
    rng = np.random.default_rng(0)
    inputs = torch.as_tensor(rng.normal(size=(160, 4)), dtype=torch.float32)
    labels = torch.as_tensor(rng.integers(0, 2, 160))
    return gmip.Task(
        name="own",
        make_model=lambda: nn.Linear(4, 2),
        pool=gmip.Examples(inputs[:120], labels[:120]),
        test=gmip.Examples(inputs[120:], labels[120:]),
        recipe=gmip.Recipe(dataset_size=40, batch_size=40, num_steps=5, sampling="full"),
    )


def test_a_recording_is_audited_and_loaded_without_a_learning_rate(tmp_path: Path) -> None:
    task = _task()
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    members = np.arange(40)
    inputs, labels = task.pool.inputs[:40], task.pool.targets[:40]
    how = {"dataset_size": 40, "batch_size": 40, "sampling": "full"}
    with gmip.record(model, optimizer, tmp_path / "run", data=task, members=members, non_members=range(40, 80), **how):
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    again = task.make_model()
    again.load_state_dict(gmip.Trace.open(tmp_path / "run").final_state())
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
    result = gmip.audit(gmip.Recorded(tmp_path / "run", task=task), attacks=["loss", "glir"])
    assert to_markdown(result)
    with pytest.raises(gmip.InvalidArgument, match="no learning rate"):
        gmip.train(task, out=tmp_path / "trained")


def test_a_number_of_shadow_models_is_enough() -> None:
    assert LiRA(shadows=8) == LiRA(shadows=Shadows(count=8))
    with pytest.raises(gmip.InvalidArgument, match="shadows"):
        LiRA(shadows=0)
