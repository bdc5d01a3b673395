"""Devices: what is asked for is used, or the CPU with one sentence; on a GPU a run is the run on the CPU."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import gmip
from gmip.attacks import Loss
from gmip.errors import GmipWarning, InvalidArgument
from gmip.tasks.task import Examples, Task
from gmip.trace import Trace
from gmip.training import train
from gmip.training.models import usable_device
from gmip.vocabulary import Recipe
from tests.unit.training.recording import batches_of, check_trace, make_model, recorded

HERE = [kind for kind in ("cuda", "mps") if getattr(torch, kind).is_available()]
MISSING = next(kind for kind in ("mps", "cuda") if kind not in HERE)
WORDS = rf"^device = '{MISSING}' cannot be used \(.+\): the CPU is used\.$"
GPU = pytest.mark.skipif(not HERE, reason="needs a GPU")


@pytest.fixture(scope="module")
def task():
    x, y = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    pool = Examples(x + y[:, None], y)
    recipe = Recipe(dataset_size=20, batch_size=10, num_steps=4, learning_rate=0.5, clip_norm=1.0, noise_std=0.01)
    return Task(name="small", make_model=make_model, pool=pool, test=pool, recipe=recipe)


def test_the_cpu_is_there():
    assert usable_device("cpu") == "cpu" and usable_device("cpu", float64=True) == "cpu"


@pytest.mark.parametrize("device", ["toaster", "", "gpu", 3.5, None])
def test_what_is_no_device(device):
    with pytest.raises(InvalidArgument, match=r"^device = .+ is not a device: pass cpu, cuda .* or mps"):
        usable_device(device)


def test_a_device_that_is_not_there():
    with pytest.warns(GmipWarning, match=WORDS):
        assert usable_device(MISSING) == "cpu"


def test_double_precision_on_mps():
    with pytest.warns(GmipWarning, match="device = 'mps' cannot be used .it has no double precision, which this work"):
        assert usable_device("mps", float64=True) == "cpu"


def test_training_falls_back(task, tmp_path):
    with pytest.warns(GmipWarning, match=WORDS) as caught:
        train(task, seed=3, out=tmp_path / "asked", device=MISSING)
    assert len(caught) == 1
    train(task, seed=3, out=tmp_path / "cpu")
    asked, cpu = Trace.open(tmp_path / "asked"), Trace.open(tmp_path / "cpu")
    assert asked.header == cpu.header and asked.header.provenance.options.device == "cpu"
    assert all(np.array_equal(a.gradient, b.gradient) for a, b in zip(asked, cpu, strict=True))


def test_attacks_and_audits_fall_back(task, tmp_path):
    train(task, seed=3, out=tmp_path / "run")
    trace = Trace.open(tmp_path / "run")
    with pytest.warns(GmipWarning, match=r"the CPU is used\.$"):
        found = Loss(device=MISSING).run(task, trace)
    assert np.array_equal(found.scores, Loss().run(task, trace).scores)
    with pytest.warns(GmipWarning, match=WORDS) as caught:
        result = gmip.audit(task, runs=[trace.path, {"name": "new"}], attacks=["loss"], seed=0, device=MISSING)
    assert len([w for w in caught if "CPU" in str(w.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = gmip.audit(task, runs=[trace.path, {"name": "new"}], attacks=["loss"], seed=0)
    assert [run.attacks[0].auc for run in result.runs] == [run.attacks[0].auc for run in same.runs]


def test_audits_refuse_what_is_no_device(task):
    with pytest.raises(InvalidArgument, match="device is not a device: pass cpu, cuda"):
        gmip.audit(task, device="toaster")


@GPU
@pytest.mark.parametrize("device", HERE)
def test_gradients_on_a_gpu_are_copied_right(tmp_path, device):
    batches = [(x.to(device), y.to(device)) for x, y in batches_of(8, 8, 4)]
    recorded(tmp_path / "gpu", batches, model=make_model().to(device))
    check_trace(tmp_path / "gpu", batches_of(8, 8, 4), tolerance=1.0e-4)


@GPU
@pytest.mark.parametrize("device", HERE)
def test_training_and_audit_on_a_gpu(task, tmp_path, device):
    quiet = Recipe(dataset_size=20, batch_size=10, num_steps=4, learning_rate=0.5)
    for where in ("cpu", device):
        train(task, quiet, seed=3, out=tmp_path / where, device=where)
    cpu, gpu = Trace.open(tmp_path / "cpu"), Trace.open(tmp_path / device)
    for a, b in zip(cpu, gpu, strict=True):
        np.testing.assert_allclose(a.gradient, b.gradient, atol=1.0e-4 * float(np.abs(a.gradient).max()))
    if device != "mps":
        scores = [Loss(device=where).run(task, cpu).scores for where in ("cpu", device)]
        np.testing.assert_allclose(scores[0], scores[1], rtol=1.0e-4)
        gmip.audit(task, runs=[gpu.path], attacks=["glir"], seed=0, device=device)
