"""record: what is in the trace of a loop, against gradients of single examples taken one by one by autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gmip
from gmip.errors import GmipWarning, InvalidArgument, UnsupportedModel
from gmip.trace import Trace
from gmip.training import record
from gmip.vocabulary import NoisySGD
from tests.unit.training.recording import (
    LR,
    QUIET,
    Batch,
    N,
    batches_of,
    check_trace,
    dataset,
    flat,
    loss_of,
    make_model,
    n,
    oracle,
    plain_loop,
    recorded,
    sgd,
)

pytestmark = QUIET


def test_plain_loop(path):
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 8, 8)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed") as recorder:
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
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
        plain_loop(model, optimizer, batches_of(8, 8, 4, 8))
    trace = Trace.open(path)
    w = nn.Parameter(torch.from_numpy(np.array(trace[0].parameters)))
    assert torch.equal(w, flat(make_model()))
    replay: Any = getattr(torch.optim, kind)([w], lr=0.1)
    for step in trace:
        assert np.array_equal(step.parameters, w.detach().numpy())
        w.grad = torch.from_numpy(np.array(step.gradient))
        replay.step()
    final = trace.final_arrays()
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
            with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
                for batch in steps:
                    plain_loop(model, optimizer, [batch])
                    schedule.step()
        else:
            for batch in steps:
                plain_loop(model, optimizer, [batch])
                schedule.step()
        return flat(model)

    with pytest.warns(GmipWarning, match=r"drops units at random while it trains \(layer tanh.1\)") as told:
        with_recorder = run(True)
    assert torch.equal(with_recorder, run(False)) and len(told) == 1
    assert Trace.open(path).num_steps == 5


def test_last_batch_of_an_epoch_is_recorded_and_accounted_as_what_it_is(path):
    batches = batches_of(8, 8, 4, 8, 8, 4)
    with pytest.warns(GmipWarning, match="epochs not drawn anew.*sampling = 'fixed', which is not what the loop did"):
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
        NoisySGD(dataset_size=N, batch_size=n, num_steps=6, num_params=39, sampling="shuffled"),
    )


def test_gradient_accumulation(path):
    """Two halves, each loss divided by two, are one step of 8."""
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 8)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
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
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
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
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
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
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed") as recorder:
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

    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed") as recorder:
        with pytest.warns(GmipWarning, match=r"A step saw 16 examples where batch_size = 8.*recorder\.batch\(size\)"):
            step(batches_of(8)[0])
        step(batches_of(8)[0])
        recorder.batch(6)
        step(batches_of(6)[0])
    assert [info.batch_size for info in Trace.open(path).infos] == [8, 8, 6]


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "8", None])
def test_told_size_is_a_count(path, wrong):
    model = make_model()
    recorder = record(model, sgd(model), path, dataset_size=N, batch_size=n, sampling="fixed")
    with pytest.raises(InvalidArgument, match="size"):
        recorder.batch(wrong)


def test_told_size_under_poisson_may_be_zero(path):
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="poisson") as recorder:
        recorder.batch(0)
        optimizer.step()
        for size in (8, 10, 7, 9):  # so that one empty batch is nothing odd
            recorder.batch(size)
            optimizer.step()
        with pytest.raises(InvalidArgument, match="size"):
            recorder.batch(-1)
    trace = Trace.open(path)
    assert [info.batch_size for info in trace.infos] == [0, 8, 10, 7, 9]
    assert not trace[0].gradient.any()  # no gradient at all is one of zero


def test_empty_batch_where_there_are_none(path):
    model = make_model()
    optimizer = sgd(model)
    with (
        pytest.raises(InvalidArgument, match=r"saw no example, which sampling = 'fixed' does not do: .*'poisson'"),
        record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"),
    ):
        plain_loop(model, optimizer, batches_of(0), "sum")


# Parameters


def test_two_optimizers_on_one_model(tmp_path):
    """Each trace holds the parameters of its optimizer, and says that others changed, too: bounds are about its own."""
    model = make_model()
    optimizers = {name: torch.optim.SGD(getattr(model, name).parameters(), lr=LR) for name in ("body", "head")}
    batches = batches_of(8, 8)
    sizes = {"dataset_size": N, "batch_size": n, "sampling": "fixed"}

    def loop() -> None:
        with (
            record(model, optimizers["body"], tmp_path / "body", **sizes),
            record(model, optimizers["head"], tmp_path / "head", **sizes),
        ):
            for batch in batches:
                model.zero_grad()
                loss_of(model, batch).backward()
                for optimizer in optimizers.values():
                    optimizer.step()

    with pytest.warns(GmipWarning, match=r"not a recorded step changed (body|head)\.weight and 1 more"):
        loop()
    for name, size in (("body", 24), ("head", 15)):
        trace = Trace.open(tmp_path / name)
        assert [spec.name for spec in trace.header.parameters] == [f"{name}.weight", f"{name}.bias"]
        assert trace.header.num_params == size
        other = {"body": "head", "head": "body"}[name]
        assert trace.changed_at_end == (f"{other}.weight", f"{other}.bias")
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
        (["haed"], "parameters has 'haed', which is not a trainable parameter, did you mean 'head': pass"),
        (["head", "hea"], "parameters has 'hea'"),
        ([], "parameters is empty"),
    ],
)
def test_unknown_parameters(path, parameters, match):
    model = make_model()
    with pytest.raises(InvalidArgument, match=match):
        record(model, sgd(model), path, dataset_size=N, batch_size=n, sampling="fixed", parameters=parameters)


def test_frozen_parameters(path):
    model = make_model()
    model.body.requires_grad_(False)
    batches = batches_of(8, 8)
    recorded(path, batches, model=model)
    trace = check_trace(path, batches)
    assert [spec.name for spec in trace.header.parameters] == ["head.weight", "head.bias"]
    assert trace.header.num_params == 15
    final = trace.final_arrays()
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
    final = trace.final_arrays()
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
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
        plain_loop(model, optimizer, batches)
    trace = check_trace(path, batches, tolerance=0.05)  # 8 bits
    assert trace.header.dtype == "float32"
    assert np.array_equal(trace[0].parameters, before)
    assert all(np.array_equal(s.gradient, g.float().numpy()) for s, g in zip(trace, handed, strict=True))
    final = trace.final_arrays()
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
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed") as recorder:
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


def test_compiled_model(path):
    batches = batches_of(8, 4)
    recorded(path, batches, model=torch.compile(make_model(), backend="eager"))
    final = check_trace(path, batches).final_arrays()
    assert final is not None and set(final) == set(make_model().state_dict())


# What is refused


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_closures_that_are_called_once(tmp_path, kind, by_name):
    """The trace of step(closure) is that of a plain loop, bit for bit, the counted steps between stored ones too."""
    batches = batches_of(8, 8, 4, 8)
    traces = []
    for name in ("closure", "plain"):
        model = make_model()
        optimizer: Any = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
        with record(
            model, optimizer, tmp_path / name, dataset_size=N, batch_size=n, sampling="fixed", every=2
        ) as recorder:
            for batch in batches:
                if name == "plain":
                    plain_loop(model, optimizer, [batch])
                    continue

                def closure(model=model, optimizer=optimizer, batch=batch):
                    optimizer.zero_grad()
                    loss = loss_of(model, batch)
                    loss.backward()
                    return loss

                found = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
                assert isinstance(found, Tensor)
            assert recorder.num_steps == 4
        traces.append(Trace.open(tmp_path / name))
    same, plain = traces
    assert same.infos == plain.infos and len(same) == 2
    for a, b in zip(same, plain, strict=True):
        assert np.array_equal(a.parameters, b.parameters) and np.array_equal(a.gradient, b.gradient)


class Twice(torch.optim.SGD):
    """Evaluates its closure twice, as optimizers with a line search do."""

    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            closure()
        return super().step(closure)


class Never(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        return None


class Derived(torch.optim.SGD):
    """Comes to hooks on step() twice as soon as there has been a plain SGD in the process."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


@pytest.mark.parametrize("with_closure", [False, True])
def test_a_step_that_calls_its_super_is_one(path, with_closure):
    model = make_model()
    sgd(model)
    optimizer = Derived(model.parameters(), lr=LR)
    batches = batches_of(8, 8, 4)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
        for batch in batches:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step((lambda: 0.0) if with_closure else None)
    check_trace(path, batches)


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (torch.optim.LBFGS, r"LBFGS computes several gradients in one step\(closure\).*SGD or Adam"),
        (Twice, "Twice calls its closure more than once in a step"),
        (Never, r"Never did not call the closure.*call the closure first and step\(\) without it"),
    ],
)
def test_closures_that_are_not(path, kind, match):
    model = make_model()
    optimizer = kind(model.parameters(), lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batches_of(8)[0])
        loss.backward()
        return loss

    with (
        record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"),
        pytest.raises(UnsupportedModel, match=match),
    ):
        optimizer.step(closure)
    assert Trace.open(path).num_steps == 0


def test_no_closure_is_none(path):
    """Libraries pass step(None) on."""
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
        loss_of(model, batches_of(8)[0]).backward()
        optimizer.step(None)
        optimizer.step(closure=None)
    assert Trace.open(path).num_steps == 2
