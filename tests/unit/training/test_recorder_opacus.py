"""record of loops that Opacus has changed: clipping and noise are read from its optimizers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gmip
from gmip.errors import GmipWarning, UnsupportedModel
from gmip.integrations.opacus import GmipAccountant
from gmip.trace import Trace
from gmip.training import record
from gmip.vocabulary import NoisySGD
from tests.unit.training.recording import (
    LR,
    QUIET,
    check_trace,
    dataset,
    loss_of,
    make_model,
    plain_loop,
    sgd,
)

pytestmark = QUIET


def private(model: nn.Module, *, size: int = 24, batch_size: int = 8, **options: Any) -> tuple[Any, ...]:
    """(model, optimizer, [criterion,] loader) of an engine without noise that clips about half of the gradients."""
    torch.manual_seed(3)
    loader = DataLoader(TensorDataset(*dataset(size)), batch_size=batch_size)
    options = {"noise_multiplier": 0.0, "max_grad_norm": 0.8, **options}
    return PrivacyEngine().make_private(module=model, optimizer=sgd(model), data_loader=loader, **options)


@pytest.mark.parametrize("poisson", [True, False])
@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew"])
def test_opacus(path, mode, poisson):
    model, optimizer, loader = private(make_model(), poisson_sampling=poisson, grad_sample_mode=mode)
    batches = []
    sampling: Any = "poisson" if poisson else "fixed"
    with record(model, optimizer, path, dataset_size=24, batch_size=8, sampling=sampling):
        for _ in range(2):
            for batch in loader:
                batches.append(batch)
                plain_loop(model, optimizer, [batch])
    assert len(batches) == 6 and (len({len(x) for x, _ in batches}) > 1) == poisson
    trace = check_trace(path, batches, divisors=[8.0] * 6, clip_norm=0.8)
    sizes: dict[str, Any] = {"dataset_size": 24, "batch_size": 8, "num_steps": 6, "num_params": 39}
    assert trace.runs() == (NoisySGD(**sizes, clip_norm=0.8, sampling=sampling),)
    assert trace.header.parameters[0].name == "body.weight"
    with pytest.raises(AssertionError):  # the test does see whether gradients are clipped
        check_trace(path, batches, divisors=[8.0] * 6)


@pytest.mark.parametrize("poisson", [True, False])
def test_opacus_with_a_sum_of_losses(path, poisson):
    """Opacus then divides by nothing; the trace still holds the mean. Batches of 1 expected are sometimes empty."""
    options: dict[str, Any] = {"size": 24, "batch_size": 1 if poisson else 8}
    model, optimizer, loader = private(make_model(), **options, poisson_sampling=poisson, loss_reduction="sum")
    batches = []
    sampling: Any = "poisson" if poisson else "fixed"
    with record(model, optimizer, path, dataset_size=24, batch_size=options["batch_size"], sampling=sampling):
        for batch in loader:
            batches.append(batch)
            plain_loop(model, optimizer, [batch], "sum")
    assert (0 in {len(x) for x, _ in batches}) == poisson
    divisors = [float(options["batch_size"])] * len(batches)
    check_trace(path, batches, divisors=divisors, clip_norm=0.8)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_opacus_virtual_batches_are_one_step(path, mode):
    made = private(make_model(), poisson_sampling=False, grad_sample_mode=mode)
    model, optimizer, loader = made[0], made[1], made[-1]
    criterion = made[2] if mode == "ghost" else nn.CrossEntropyLoss()
    parts = []
    with (
        record(model, optimizer, path, dataset_size=24, batch_size=8, sampling="fixed"),
        BatchMemoryManager(data_loader=loader, max_physical_batch_size=3, optimizer=optimizer) as split,
    ):
        for x, y in split:
            parts.append(len(x))
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    assert len(parts) == 9 and max(parts) == 3
    check_trace(path, list(loader), clip_norm=0.8)


@pytest.mark.parametrize("poisson", [True, False])
def test_opacus_ghost_clipping(path, poisson):
    model, optimizer, criterion, loader = private(
        make_model(), poisson_sampling=poisson, grad_sample_mode="ghost", criterion=nn.CrossEntropyLoss()
    )
    batches = []
    with record(model, optimizer, path, dataset_size=24, batch_size=8, sampling="poisson" if poisson else "fixed"):
        for x, y in loader:
            batches.append((x, y))
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    check_trace(path, batches, divisors=[8.0] * 3, clip_norm=0.8)


def test_opacus_gradient_accumulation(path):
    """Two backward passes for a step: Opacus divides by twice the batch size that it expects."""
    model, optimizer, loader = private(make_model(), batch_size=4, poisson_sampling=False)
    (a, b), (c, d) = list(loader)[:2]
    with record(model, optimizer, path, dataset_size=24, batch_size=8, sampling="fixed"):
        optimizer.zero_grad()
        for batch in ((a, b), (c, d)):
            loss_of(model, batch).backward()
        optimizer.step()
    check_trace(path, [(torch.cat([a, c]), torch.cat([b, d]))], clip_norm=0.8)


@pytest.mark.parametrize("options", [{"wrap_model": False}, {}])
def test_opacus_beside_the_model(path, options):
    """The model as it was before the engine, used in the loop or not, is the same model."""
    model = make_model()
    wrapped, optimizer, loader = private(model, poisson_sampling=False, **options)
    used = wrapped if isinstance(wrapped, nn.Module) else model
    with record(model, optimizer, path, dataset_size=24, batch_size=8, sampling="fixed"):
        plain_loop(used, optimizer, list(loader))
    check_trace(path, list(loader), clip_norm=0.8)


@pytest.mark.parametrize(("multiplier", "batch_size"), [(1.3, 8), (0.5, 6)])
def test_opacus_noise(path, multiplier, batch_size):
    """noise_std is s C/n, and the gradient in the trace is the noisy one that was used: it replays."""
    model, optimizer, loader = private(
        make_model(), batch_size=batch_size, noise_multiplier=multiplier, poisson_sampling=False
    )
    with record(model, optimizer, path, dataset_size=24, batch_size=batch_size, sampling="fixed"):
        plain_loop(model, optimizer, list(loader))
    trace = Trace.open(path)
    tau = multiplier * 0.8 / batch_size
    assert [info.noise_std for info in trace.infos] == pytest.approx([tau] * len(loader), rel=1e-12)
    (run,) = trace.runs()
    assert run.noise_std == pytest.approx(tau, rel=1e-12) and run.clip_norm == 0.8
    assert run.noise_multiplier == pytest.approx(multiplier, rel=1e-12)
    for step, later in zip(trace, list(trace)[1:], strict=False):
        w = torch.add(torch.from_numpy(np.array(step.parameters)), torch.from_numpy(np.array(step.gradient)), alpha=-LR)
        assert np.array_equal(later.parameters, w.numpy())
    with pytest.raises(AssertionError):
        check_trace(path, list(loader), clip_norm=0.8)


def test_opacus_expects_another_batch_size(path):
    """50 records in batches of 16 are 4 batches, of which Opacus makes a rate of 1/4 and a divisor of 12."""
    model, optimizer, loader = private(make_model(), size=50, batch_size=16)
    batches = list(loader)
    with record(model, optimizer, path, dataset_size=50, batch_size=16, sampling="poisson"):
        with pytest.warns(GmipWarning, match="Opacus divides by 12.*where batch_size = 16 was given"):
            plain_loop(model, optimizer, batches[:1])
        plain_loop(model, optimizer, batches[1:])  # and no more of it
    check_trace(path, batches, divisors=[12.0] * 4, clip_norm=0.8)


def test_clip_norm_that_changes(path):
    model, optimizer, loader = private(make_model(), poisson_sampling=False)
    with record(model, optimizer, path, dataset_size=24, batch_size=8, sampling="fixed"):
        plain_loop(model, optimizer, list(loader)[:2])
        optimizer.max_grad_norm = 0.5
        with pytest.raises(UnsupportedModel, match=r"clip norm changed from 0\.8 to 0\.5, and a trace has one"):
            plain_loop(model, optimizer, list(loader)[2:])
    assert Trace.open(path).num_steps == 2


def test_opacus_clipping_per_layer(path):
    """The bound on the whole gradient is the norm of the bounds."""
    model, optimizer, loader = private(
        make_model(), poisson_sampling=False, clipping="per_layer", max_grad_norm=[0.3, 0.4, 0.3, 0.4]
    )
    with record(model, optimizer, path, dataset_size=24, batch_size=8, sampling="fixed"):
        plain_loop(model, optimizer, list(loader))
    assert Trace.open(path).header.clip_norm == pytest.approx(np.sqrt(0.5), rel=1e-6)


@pytest.mark.parametrize(("size", "batch_size"), [(24, 8), (50, 16), (54, 14), (93, 1), (99, 1)])
def test_the_loader_says_how_opacus_samples(path, size, batch_size):
    """Rates that make no whole batches, and Opacus' epochs that lose a batch (93): accounted as its accountant does."""
    model, optimizer, loader = private(make_model(), size=size, batch_size=batch_size, noise_multiplier=1.1)
    accountant = GmipAccountant()
    optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=loader.sample_rate))
    batches = list(loader)[:4]
    with warnings.catch_warnings():
        warnings.simplefilter("error", GmipWarning)
        with record(model, optimizer, path, loader=loader):
            plain_loop(model, optimizer, batches)
    trace = Trace.open(path)
    header = trace.header
    assert (header.sampling, header.dataset_size, header.sample_rate) == ("poisson", size, loader.sample_rate)
    expected = optimizer.expected_batch_size
    assert {info.divisor for info in trace.infos} == {float(expected)}
    assert [info.noise_std for info in trace.infos] == pytest.approx([1.1 * 0.8 / expected] * len(batches))
    (run,) = trace.runs()
    assert run.noise_multiplier == pytest.approx(1.1) and run.sample_rate >= loader.sample_rate * (1 - 1e-12)
    ours = gmip.account(run)
    theirs = accountant.get_tradeoff(dataset_size=size, num_params=39)
    assert ours.tpr_at(0.01) == pytest.approx(theirs.tpr_at(0.01), rel=1e-6)


def test_opacus_without_a_wrapped_model_is_the_plain_engine(tmp_path):
    """wrap_model=False and True on the same batches: the same trace, bit for bit, and the model is the user's own."""
    for name in ("wrapped", "bare"):
        model = make_model()
        made, optimizer, loader = private(model, wrap_model=name == "wrapped")
        torch.manual_seed(5)
        with record(model, optimizer, tmp_path / name, loader=loader):
            plain_loop(made if name == "wrapped" else model, optimizer, list(loader))
    bare, wrapped = Trace.open(tmp_path / "bare"), Trace.open(tmp_path / "wrapped")
    assert bare.header == wrapped.header and bare.infos == wrapped.infos and len(bare) == 3
    for a, b in zip(bare, wrapped, strict=True):
        assert np.array_equal(a.gradient, b.gradient) and np.array_equal(a.parameters, b.parameters)
