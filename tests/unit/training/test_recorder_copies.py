"""Copies of a model or an optimizer that is being recorded: they can be made, and the recorder does not hear them."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

from gmip.trace import Trace
from gmip.training import record
from tests.unit.training.recording import (
    QUIET,
    N,
    batches_of,
    check_trace,
    dataset,
    loss_of,
    n,
    plain_loop,
    sgd,
)

pytestmark = QUIET


def large_model() -> nn.Module:
    """Its rows are large enough to be written by another thread, which nobody can copy."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 3))


def through_file(thing: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, through_file, AveragedModel])
def test_a_copy_of_the_model_is_not_recorded(path: Path, copied: Callable[[nn.Module], Any]) -> None:
    model, batches = large_model(), batches_of(8, 8, 8)
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed") as recorder:
        for batch in batches:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            twin = copied(model)
            assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), model.parameters(), strict=True))
            plain_loop(twin, sgd(twin), batches_of(8, 5))  # neither counted with the batch nor a step
            optimizer.step()
        assert recorder.num_steps == 3
    trace = check_trace(path, batches, model=large_model())
    final = trace.final_arrays()
    assert final is not None and set(final) == set(model.state_dict())
    plain_loop(twin, sgd(twin), batches_of(8))  # long after the recorder has gone
    assert Trace.open(path).num_steps == 3


def test_a_saved_model_is_loaded_without_gmip(path: Path, tmp_path: Path) -> None:
    model = large_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
        plain_loop(model, optimizer, batches_of(8))
        torch.save(model, tmp_path / "model.pt")
    loads = (
        "import sys, torch; model = torch.load(sys.argv[1], weights_only=False); model(torch.zeros(2, 5)); "
        "assert not [name for name in sys.modules if name.startswith('gmip')]"
    )
    subprocess.run([sys.executable, "-c", loads, str(tmp_path / "model.pt")], check=True, cwd=tmp_path)


@pytest.mark.parametrize("private", [False, True])
def test_copies_of_the_optimizer(path: Path, private: bool) -> None:
    """A copy belongs to parameters of its own: its steps are not those of the run."""
    model: Any = large_model()
    optimizer: Any = torch.optim.Adam(model.parameters())
    loader: Any = DataLoader(TensorDataset(*dataset()), batch_size=n, shuffle=True)
    if private:
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
        )
    with record(model, optimizer, path, loader=loader) as recorder:
        plain_loop(model, optimizer, batches_of(8, 8))
        state = through_file(optimizer.state_dict())
        twin = copy.deepcopy(getattr(optimizer, "original_optimizer", optimizer))
        for group in twin.param_groups:
            for p in group["params"]:
                p.grad = torch.ones_like(p)
        twin.step()
        optimizer.load_state_dict(state)
        assert recorder.num_steps == 2
    assert Trace.open(path).num_steps == 2
