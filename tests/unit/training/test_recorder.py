"""record: what is in the trace of a loop, against gradients of single examples taken one by one by autograd.

`check_trace` puts the recorded parameters back into a model, in float64, and compares the recorded gradient with the
mean of the (clipped) per-example gradients there: so the parameters are those before the step, too.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gmip
from gmip.accounting.mechanism import NoisySGD
from gmip.errors import GmipWarning, InvalidArgument, TraceError, TraceMismatch, UnsupportedModel
from gmip.tasks.base import Examples, Recipe, Task
from gmip.trace import Trace, fingerprint
from gmip.training import record

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook is firing:UserWarning",  # torch, of any model whose inputs need no gradient, in Opacus
    "ignore:Secure RNG turned off:UserWarning",  # Opacus, of every engine made for experiments
)

N, n, LR = 20, 8, 0.5
Batch = tuple[Tensor, Tensor]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(OrderedDict(body=nn.Linear(5, 4), tanh=nn.Tanh(), head=nn.Linear(4, 3)))


def dataset(size: int = N) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(size, 5, generator=generator), torch.randint(0, 3, (size,), generator=generator)


def batches_of(*sizes: int) -> list[Batch]:
    """One after the other from the data, from the start again at its end."""
    x, y = dataset()
    found, start = [], 0
    for size in sizes:
        rows = torch.arange(start, start + size) % N
        found.append((x[rows], y[rows]))
        start += size
    return found


def loss_of(model: nn.Module, batch: Batch, reduction: str = "mean") -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction=reduction)


def plain_loop(model: nn.Module, optimizer: Any, batches: list[Batch], reduction: str = "mean") -> None:
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch, reduction).backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LR)


def recorded(path: Any, batches: list[Batch], *, model: Any = None, reduction: str = "mean", **options: Any) -> Any:
    """A plain loop with SGD, recorded; returns the model."""
    model = make_model() if model is None else model
    optimizer = sgd(model)
    with record(model, optimizer, path, **{"dataset_size": N, "batch_size": n, **options}):
        plain_loop(model, optimizer, batches, reduction)
    return model


def oracle(model: nn.Module, batch: Batch, *, names: list[str], clip_norm: float | None = None) -> Tensor:
    """Sum over the batch of the gradients of single examples, clipped as Opacus does; float64, shape (d,)."""
    parameters = [dict(model.named_parameters())[name] for name in names]
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    for x, y in zip(*batch, strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        g = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, parameters)])
        factor = 1.0 if clip_norm is None else min(1.0, clip_norm / (float(g.norm()) + 1e-6))
        total += factor * g
    return total


def check_trace(
    path: Any,
    batches: list[Batch],
    *,
    divisors: list[float] | None = None,
    clip_norm: float | None = None,
    tolerance: float = 2.0e-6,
    model: Any = None,
) -> Trace:
    """Every step of the trace is that of its batch; tolerance: some dozen roundings of float32 (6e-8), of the norm."""
    trace = Trace.open(path)
    assert trace.num_steps == len(trace) == len(batches)
    assert [info.batch_size for info in trace.infos] == [len(x) for x, _ in batches]
    divisors = [float(len(x)) for x, _ in batches] if divisors is None else divisors
    assert [info.divisor for info in trace.infos] == divisors
    at = (make_model() if model is None else copy.deepcopy(model)).double()
    names = [spec.name for spec in trace.header.parameters]
    for step, (x, y), divisor in zip(trace, batches, divisors, strict=True):
        for name, value in trace.named(step.parameters).items():
            at.get_parameter(name).data.copy_(torch.from_numpy(np.array(value, dtype=np.float64)))
        want = oracle(at, (x.double() if x.is_floating_point() else x, y), names=names, clip_norm=clip_norm) / divisor
        error = float((torch.from_numpy(np.array(step.gradient, dtype=np.float64)) - want).norm())
        assert error <= tolerance * float(want.norm())
    return trace


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# The plain loop


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace"


def test_plain_loop(path):
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 8, 8)
    with record(model, optimizer, path, dataset_size=N, batch_size=n) as recorder:
        assert recorder.num_steps == 0
        plain_loop(model, optimizer, batches)
        assert recorder.num_steps == 3
    trace = check_trace(path, batches)
    assert trace.complete and trace.header.clip_norm is None
    assert [spec.name for spec in trace.header.parameters] == ["body.weight", "body.bias", "head.weight", "head.bias"]
    assert trace.header.num_params == 39
    assert trace.runs() == (NoisySGD(dataset_size=N, batch_size=n, num_steps=3, num_params=39),)
    assert gmip.record is record


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_steps_can_be_replayed(path, kind):
    """For SGD w' = w - lr g, bit for bit, and the last one is the final state; Adam on the recorded gradients, too."""
    model = make_model()
    optimizer: Any = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    with record(model, optimizer, path, dataset_size=N, batch_size=n):
        plain_loop(model, optimizer, batches_of(8, 8, 4, 8))
    trace = Trace.open(path)
    w = nn.Parameter(torch.from_numpy(np.array(trace[0].parameters)))
    assert torch.equal(w, flat(make_model()))
    replay: Any = getattr(torch.optim, kind)([w], lr=0.1)
    for step in trace:
        assert np.array_equal(step.parameters, w.detach().numpy())
        w.grad = torch.from_numpy(np.array(step.gradient))
        replay.step()
    final = trace.final_state()
    assert final is not None and set(final) == set(model.state_dict())
    assert all(np.array_equal(value, model.state_dict()[name].numpy()) for name, value in final.items())
    assert torch.equal(w, flat(model))


def test_training_is_the_same_with_and_without(path):
    """Bit for bit, dropout and a schedule included."""

    def run(recording: bool) -> Tensor:
        model = make_model()
        model.tanh = nn.Sequential(nn.Tanh(), nn.Dropout(0.3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        torch.manual_seed(7)
        steps = batches_of(8, 8, 4, 8, 8)
        if recording:
            with record(model, optimizer, path, dataset_size=N, batch_size=n):
                for batch in steps:
                    plain_loop(model, optimizer, [batch])
                    schedule.step()
        else:
            for batch in steps:
                plain_loop(model, optimizer, [batch])
                schedule.step()
        return flat(model)

    assert torch.equal(run(True), run(False))
    assert Trace.open(path).num_steps == 5


def test_last_batch_of_an_epoch_is_recorded_and_accounted_as_what_it_is(path):
    batches = batches_of(8, 8, 4, 8, 8, 4)
    recorded(path, batches)
    sizes = {"dataset_size": N, "num_params": 39}
    assert check_trace(path, batches).runs() == (
        NoisySGD(**sizes, batch_size=8, num_steps=4),
        NoisySGD(**sizes, batch_size=4, num_steps=2),
    )


def test_shuffled_epochs(path):
    batches = batches_of(8, 8, 4, 8, 8, 4)
    recorded(path, batches, sampling="shuffled")
    assert check_trace(path, batches).runs() == (
        NoisySGD.shuffled(dataset_size=N, batch_size=n, num_steps=6, num_params=39),
    )


def test_gradient_accumulation(path):
    """Two halves, each loss divided by two, are one step of 8."""
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 8)
    with record(model, optimizer, path, dataset_size=N, batch_size=n):
        for x, y in batches:
            optimizer.zero_grad()
            for half in ((x[:4], y[:4]), (x[4:], y[4:])):
                (loss_of(model, half) / 2).backward()
            optimizer.step()
    check_trace(path, batches)


def test_sum_of_losses(path):
    batches = batches_of(8, 8, 4)
    recorded(path, batches, loss_reduction="sum", reduction="sum")
    check_trace(path, batches)


def test_sum_of_losses_of_poisson_batches(path):
    """Divided by the expected size, whatever their own; one of them is empty."""
    batches = batches_of(8, 11, 0, 5)
    recorded(path, batches, sampling="poisson", loss_reduction="sum", reduction="sum")
    trace = check_trace(path, batches, divisors=[8.0] * 4)
    assert trace.runs() == (NoisySGD(dataset_size=N, batch_size=n, num_steps=4, num_params=39, sampling="poisson"),)


def test_every_kth_step(path):
    batches = batches_of(8, 8, 4, 8, 8)
    recorded(path, batches, every=2)
    trace = Trace.open(path)
    assert trace.num_steps == 5 and trace.recorded.tolist() == [0, 2, 4]
    assert [info.batch_size for info in trace.infos] == [8, 8, 4, 8, 8]
    twin = make_model()
    for step, at in zip(trace, ([], batches[:2], batches[2:4]), strict=True):
        plain_loop(twin, sgd(twin), at)
        assert np.array_equal(step.parameters, flat(twin).numpy())


def test_evaluation_in_between_is_not_counted(path):
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 4)
    with record(model, optimizer, path, dataset_size=N, batch_size=n):
        for batch in batches:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            with torch.no_grad():
                model(dataset()[0])
            with torch.inference_mode():
                model(dataset()[0])
            loss.backward()
            optimizer.step()
    check_trace(path, batches)


def test_inputs_by_keyword(path):
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 3)
    with record(model, optimizer, path, dataset_size=N, batch_size=n):
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(input=x), y).backward()
            optimizer.step()
    check_trace(path, batches)


def test_inputs_that_cannot_be_counted(path):
    """Are taken for the nominal number, unless the recorder is told."""

    class OfList(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_model()

        def forward(self, parts: list[Tensor]) -> Tensor:
            out: Tensor = self.inner(torch.cat(parts))
            return out

    model = OfList()
    optimizer = sgd(model)
    batches = batches_of(8, 4)
    with record(model, optimizer, path, dataset_size=N, batch_size=n) as recorder:
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model([x[:2], x[2:]]), y).backward()
            recorder.batch(len(x))
            optimizer.step()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model([batches[0][0]]), batches[0][1]).backward()
        optimizer.step()
    assert [info.batch_size for info in Trace.open(path).infos] == [8, 4, 8]


def test_model_that_runs_twice_on_a_batch(path):
    """Warns once and is recorded as nominal; told, it is what it is told, without a word."""
    model = make_model()
    optimizer = sgd(model)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        (loss_of(model, batch) + model(batch[0]).square().mean()).backward()
        optimizer.step()

    with record(model, optimizer, path, dataset_size=N, batch_size=n) as recorder:
        with pytest.warns(GmipWarning, match=r"A step saw 16 examples where batch_size = 8.*recorder\.batch\(size\)"):
            step(batches_of(8)[0])
        step(batches_of(8)[0])
        recorder.batch(6)
        step(batches_of(6)[0])
    assert [info.batch_size for info in Trace.open(path).infos] == [8, 8, 6]


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "8", None])
def test_told_size_is_a_count(path, wrong):
    model = make_model()
    recorder = record(model, sgd(model), path, dataset_size=N, batch_size=n)
    with pytest.raises(InvalidArgument, match="size"):
        recorder.batch(wrong)


def test_told_size_under_poisson_may_be_zero(path):
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="poisson") as recorder:
        recorder.batch(0)
        optimizer.step()
        with pytest.raises(InvalidArgument, match="size"):
            recorder.batch(-1)
    trace = Trace.open(path)
    assert [info.batch_size for info in trace.infos] == [0]
    assert not trace[0].gradient.any()  # no gradient at all is one of zero


def test_empty_batch_where_there_are_none(path):
    model = make_model()
    optimizer = sgd(model)
    with (
        pytest.raises(InvalidArgument, match=r"saw no example, which sampling = 'fixed' does not do: .*'poisson'"),
        record(model, optimizer, path, dataset_size=N, batch_size=n),
    ):
        plain_loop(model, optimizer, batches_of(0), "sum")


# Parameters


def test_two_optimizers_on_one_model(tmp_path):
    """Each trace holds the parameters of its optimizer."""
    model = make_model()
    optimizers = {name: torch.optim.SGD(getattr(model, name).parameters(), lr=LR) for name in ("body", "head")}
    batches = batches_of(8, 8)
    sizes = {"dataset_size": N, "batch_size": n}
    with (
        record(model, optimizers["body"], tmp_path / "body", **sizes),
        record(model, optimizers["head"], tmp_path / "head", **sizes),
    ):
        for batch in batches:
            model.zero_grad()
            loss_of(model, batch).backward()
            for optimizer in optimizers.values():
                optimizer.step()
    for name, size in (("body", 24), ("head", 15)):
        trace = Trace.open(tmp_path / name)
        assert [spec.name for spec in trace.header.parameters] == [f"{name}.weight", f"{name}.bias"]
        assert trace.header.num_params == size
        got = torch.from_numpy(np.array(trace[0].gradient)).double()  # the first step has the initial weights
        want = oracle(make_model().double(), (batches[0][0].double(), batches[0][1]), names=[*trace.named(got)]) / 8
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        (["head"], ["head.weight", "head.bias"]),
        ("head", ["head.weight", "head.bias"]),
        (["head.bias", "body.weight"], ["body.weight", "head.bias"]),
        (["head", "head.bias"], ["head.weight", "head.bias"]),
    ],
)
def test_some_parameters(path, parameters, names):
    """In the model's order; num_params still counts all that the optimizer publishes."""
    batch = batches_of(8)
    recorded(path, batch, parameters=parameters)
    trace = check_trace(path, batch)
    assert [spec.name for spec in trace.header.parameters] == names
    assert trace.header.num_params == 39


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        (["haed"], "parameters has 'haed', which names no trainable parameter: the nearest is 'head"),
        (["head", "hea"], "parameters has 'hea'"),
        ([], "parameters is empty"),
    ],
)
def test_unknown_parameters(path, parameters, match):
    model = make_model()
    with pytest.raises(InvalidArgument, match=match):
        record(model, sgd(model), path, dataset_size=N, batch_size=n, parameters=parameters)


def test_frozen_parameters(path):
    model = make_model()
    model.body.requires_grad_(False)
    batches = batches_of(8, 8)
    recorded(path, batches, model=model)
    trace = check_trace(path, batches)
    assert [spec.name for spec in trace.header.parameters] == ["head.weight", "head.bias"]
    assert trace.header.num_params == 15
    final = trace.final_state()
    assert final is not None and set(final) == set(model.state_dict())


def test_part_called_module(path):
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.module, self.weight = nn.Linear(5, 3), nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.module(x) * self.weight
            return out

    batches = batches_of(8, 8)
    model = recorded(path, batches, model=Part())
    trace = check_trace(path, batches, model=Part())
    assert trace.header.num_params == 21
    final = trace.final_state()
    assert final is not None and set(final) == set(model.state_dict())


def test_parameter_without_a_gradient_is_zero(path):
    model = make_model()
    model.idle = nn.Linear(2, 2)
    model.forward = lambda x: model.head(model.tanh(model.body(x)))
    recorded(path, batches_of(8), model=model)
    trace = Trace.open(path)
    named = trace.named(trace[0].gradient)
    assert named["head.weight"].any() and not named["idle.weight"].any()


def test_sparse_gradients(path):
    def make() -> Any:
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(6, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))

    batch = torch.randint(0, 6, (8, 2)), batches_of(8)[0][1]
    recorded(path, [batch], model=make())
    dense = make()
    dense[0].sparse = False
    check_trace(path, [batch], model=dense)


# Precision


def test_double_precision(path):
    batches = [(x.double(), y) for x, y in batches_of(8, 8)]
    recorded(path, batches, model=make_model().double())
    trace = check_trace(path, batches, tolerance=1e-13)
    assert trace.header.dtype == "float64" and trace[0].gradient.dtype == np.float64


def test_bfloat16(path):
    """Stored as float32, which holds every bfloat16: nothing is lost of what the optimizer was handed."""
    model = make_model().to(torch.bfloat16)
    optimizer = sgd(model)
    handed: list[Tensor] = []

    def keep(*_: Any) -> None:
        handed.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))

    optimizer.register_step_pre_hook(keep)
    batches = [(x.to(torch.bfloat16), y) for x, y in batches_of(8, 8)]
    before = flat(model).float().numpy()
    with record(model, optimizer, path, dataset_size=N, batch_size=n):
        plain_loop(model, optimizer, batches)
    trace = check_trace(path, batches, tolerance=0.05)  # 8 bits
    assert trace.header.dtype == "float32"
    assert np.array_equal(trace[0].parameters, before)
    assert all(np.array_equal(s.gradient, g.float().numpy()) for s, g in zip(trace, handed, strict=True))
    final = trace.final_state()
    assert final is not None
    assert np.array_equal(final["head.bias"], model.head.bias.detach().float().numpy())


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
def test_grad_scaler(path, fused, unscale):
    """The trace holds the gradient without the scale, also where a fused optimizer is left to undo it; a step that is
    skipped for its infinities publishes nothing and is none."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    batches = batches_of(8, 8, 4)
    with record(model, optimizer, path, dataset_size=N, batch_size=n) as recorder:
        for i, batch in enumerate([batches[0], batches[0], *batches[1:]]):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, batch) * (torch.inf if i == 1 else 1.0)).backward()
            if unscale:
                scaler.unscale_(optimizer)
            recorder.batch(len(batch[0]))
            scaler.step(optimizer)
            scaler.update()
    check_trace(path, batches)


# Opacus


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
        record(model, optimizer, path, dataset_size=24, batch_size=8),
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
    with record(model, optimizer, path, dataset_size=24, batch_size=8):
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
    with record(model, optimizer, path, dataset_size=24, batch_size=8):
        plain_loop(used, optimizer, list(loader))
    check_trace(path, list(loader), clip_norm=0.8)


@pytest.mark.parametrize(("multiplier", "batch_size"), [(1.3, 8), (0.5, 6)])
def test_opacus_noise(path, multiplier, batch_size):
    """noise_std is s C/n, and the gradient in the trace is the noisy one that was used: it replays."""
    model, optimizer, loader = private(
        make_model(), batch_size=batch_size, noise_multiplier=multiplier, poisson_sampling=False
    )
    with record(model, optimizer, path, dataset_size=24, batch_size=batch_size):
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
    with record(model, optimizer, path, dataset_size=24, batch_size=8):
        plain_loop(model, optimizer, list(loader)[:2])
        optimizer.max_grad_norm = 0.5
        with pytest.raises(UnsupportedModel, match=r"clip norm changed from 0\.8 to 0\.5: a trace has one"):
            plain_loop(model, optimizer, list(loader)[2:])
    assert Trace.open(path).num_steps == 2


def test_opacus_clipping_per_layer(path):
    """The bound on the whole gradient is the norm of the bounds."""
    model, optimizer, loader = private(
        make_model(), poisson_sampling=False, clipping="per_layer", max_grad_norm=[0.3, 0.4, 0.3, 0.4]
    )
    with record(model, optimizer, path, dataset_size=24, batch_size=8):
        plain_loop(model, optimizer, list(loader))
    assert Trace.open(path).header.clip_norm == pytest.approx(np.sqrt(0.5), rel=1e-6)


def test_compiled_model(path):
    batches = batches_of(8, 4)
    recorded(path, batches, model=torch.compile(make_model(), backend="eager"))
    final = check_trace(path, batches).final_state()
    assert final is not None and set(final) == set(make_model().state_dict())


# What is refused


@pytest.mark.parametrize("step", [lambda o: o.step(lambda: 0.0), lambda o: o.step(closure=lambda: 0.0)])
def test_closures(path, step):
    model = make_model()
    optimizer = sgd(model)
    with (
        record(model, optimizer, path, dataset_size=N, batch_size=n),
        pytest.raises(UnsupportedModel, match=r"inside step\(closure\).*LBFGS"),
    ):
        step(optimizer)
    assert Trace.open(path).num_steps == 0


def test_no_closure_is_none(path):
    """Libraries pass step(None) on."""
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n):
        loss_of(model, batches_of(8)[0]).backward()
        optimizer.step(None)
        optimizer.step(closure=None)
    assert Trace.open(path).num_steps == 2


def with_batch_norm() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(OrderedDict(body=nn.Linear(5, 4), norm=nn.BatchNorm1d(4), head=nn.Linear(4, 3)))


def test_batch_norm(path):
    model = with_batch_norm()
    with pytest.raises(UnsupportedModel, match=r"Layer norm \(BatchNorm1d\) mixes the examples"):
        record(model, sgd(model), path, dataset_size=N, batch_size=n)
    assert not path.exists()
    model.norm.eval()
    batches = batches_of(8, 8)
    recorded(path, batches, model=model)
    reference = with_batch_norm()
    reference.norm.eval()
    check_trace(path, batches, model=reference)


def test_batch_norm_that_wakes_up(path):
    """A loop that calls model.train() at each epoch puts a frozen BatchNorm back to work."""
    model = with_batch_norm()
    model.norm.eval()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n):
        plain_loop(model, optimizer, batches_of(8))
        model.train()
        with pytest.raises(UnsupportedModel, match=r"Layer norm \(BatchNorm1d\)"):
            plain_loop(model, optimizer, batches_of(8))
    assert Trace.open(path).num_steps == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"dataset_size": 0}, "dataset_size = 0"),
        ({"batch_size": 2.5}, "batch_size = 2.5"),
        ({"batch_size": 21}, "batch_size = 21 exceeds dataset_size = 20"),
        ({"every": 0}, "every = 0"),
        ({"sampling": "uniform"}, "sampling = 'uniform' is not known"),
        ({"sampling": "full"}, "sampling = 'full' needs batch_size = dataset_size = 20, not 8"),
        ({"loss_reduction": "none"}, "loss_reduction = 'none' is not known: pass one of 'mean', 'sum'"),
        ({"recipe": {"model": object()}}, "recipe must be plain JSON"),
    ],
)
def test_bad_arguments(path, options, match):
    model = make_model()
    with pytest.raises(InvalidArgument, match=match):
        record(model, sgd(model), path, **{"dataset_size": N, "batch_size": n, **options})
    assert not path.exists()


def test_optimizer_of_another_model(path):
    with pytest.raises(InvalidArgument, match="optimizer holds no trainable parameter of model"):
        record(make_model(), sgd(make_model()), path, dataset_size=N, batch_size=n)


def test_folder_that_holds_a_trace(path):
    model = recorded(path, batches_of(8))
    optimizer = sgd(model)
    with (
        pytest.raises(TraceError, match="already holds a trace"),
        record(model, optimizer, path, dataset_size=N, batch_size=n),
    ):
        pass
    assert Trace.open(path).num_steps == 1


# Beginning, breaking off, going on


def test_hooks_are_gone_after_the_block(path):
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n) as recorder:
        plain_loop(model, optimizer, batches_of(8))
    plain_loop(model, optimizer, batches_of(8))
    assert recorder.num_steps == Trace.open(path).num_steps == 1
    assert not model._forward_pre_hooks and not optimizer._optimizer_step_pre_hooks


def test_exception_leaves_an_open_trace(path):
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 8)

    def fail() -> None:
        with record(model, optimizer, path, dataset_size=N, batch_size=n):
            plain_loop(model, optimizer, batches)
            raise RuntimeError("out of coffee")

    with pytest.raises(RuntimeError, match="out of coffee"):
        fail()
    trace = check_trace(path, batches)
    assert not trace.complete and trace.final_state() is None
    assert not model._forward_pre_hooks and not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_resume(path, at):
    """After a break at step 3 the run goes on from a checkpoint of step `at`: the trace is that of one without."""
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 8, 4, 8, 8)
    options: dict[str, Any] = {"dataset_size": N, "batch_size": n, "members": [1, 2], "recipe": {"lr": (LR,)}}
    checkpoints = []

    def interrupted() -> None:
        with record(model, optimizer, path, **options):
            for batch in batches[:3]:
                checkpoints.append(copy.deepcopy(model.state_dict()))
                plain_loop(model, optimizer, [batch])
            checkpoints.append(copy.deepcopy(model.state_dict()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    model = make_model(seed=1)
    model.load_state_dict(checkpoints[at])
    optimizer = sgd(model)
    with record(model, optimizer, path, **options, resume_at=at) as recorder:
        assert recorder.num_steps == at
        plain_loop(model, optimizer, batches[at:])
    trace = check_trace(path, batches)
    assert trace.complete
    twin = make_model()
    plain_loop(twin, sgd(twin), batches)
    assert torch.equal(flat(model), flat(twin))


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset_size": 21},
        {"sampling": "poisson"},
        {"recipe": {"lr": 1.0}},
        {"parameters": ["head"]},
        {"members": [3]},
        {"non_members": [3]},
    ],
)
def test_resume_of_another_run_changes_nothing(path, changes):
    options: dict[str, Any] = {"dataset_size": N, "batch_size": n, "members": [1, 2]}
    model = recorded(path, batches_of(8, 8, 8), **options)
    optimizer = sgd(model)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with (
        pytest.raises(TraceMismatch, match="records another run"),
        record(model, optimizer, path, **{**options, **changes}, resume_at=1),
    ):
        pass
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    with record(model, optimizer, path, dataset_size=N, batch_size=n, resume_at=1):  # who is in need not be said again
        pass
    assert Trace.open(path).num_steps == 1


def test_resume_beyond_the_end(path):
    model = recorded(path, batches_of(8))
    optimizer = sgd(model)
    with (
        pytest.raises(InvalidArgument, match="at_step = 2 is beyond the 1 steps"),
        record(model, optimizer, path, dataset_size=N, batch_size=n, resume_at=2),
    ):
        pass
    with (
        pytest.raises(TraceError, match="holds no trace"),
        record(model, optimizer, path.with_name("other"), dataset_size=N, batch_size=n, resume_at=0),
    ):
        pass


# What goes with it


def test_members_recipe_and_fingerprints(tmp_path):
    x, y = dataset()
    task = Task(
        name="toy",
        make_model=make_model,
        pool=Examples(x, y),
        test=Examples(x[:3], y[:3]),
        recipe=Recipe(dataset_size=10, batch_size=4, num_steps=2, learning_rate=LR),
    )
    pool = fingerprint(x.numpy(), y.numpy())
    for name, data, fingerprints in (
        ("task", task, {"pool": pool, "test": fingerprint(x[:3].numpy(), y[:3].numpy())}),
        ("examples", Examples(x, y), {"pool": pool}),
        ("tensors", (x, y), {"pool": pool}),
        ("arrays", (x.numpy(), y.numpy()), {"pool": pool}),
        ("nothing", None, {}),
    ):
        facts: dict[str, Any] = {"members": [5, 1], "non_members": np.array([7]), "recipe": {"seed": 3}}
        recorded(tmp_path / name, batches_of(8), data=data, **facts)
        trace = Trace.open(tmp_path / name)
        assert trace.header.fingerprints == fingerprints
        assert trace.header.recipe == {"seed": 3}
        assert trace.members is not None and trace.members.tolist() == [5, 1]
        assert trace.non_members is not None and trace.non_members.tolist() == [7]


def test_members_that_are_not_indices(path):
    model = make_model()
    with (
        pytest.raises(InvalidArgument, match="members holds the index -1"),
        record(model, sgd(model), path, dataset_size=N, batch_size=n, members=[-1]),
    ):
        pass
