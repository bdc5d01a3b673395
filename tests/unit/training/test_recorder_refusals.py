"""record: what it refuses, what it leaves behind, and how it goes on after an interruption."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gmip.errors import GmipWarning, InvalidArgument, TraceError, TraceMismatch, UnsupportedModel
from gmip.tasks.task import Examples, Task
from gmip.trace import Provenance, Trace, fingerprint
from gmip.training import record
from gmip.vocabulary import Recipe
from tests.unit.training.recording import (
    LR,
    QUIET,
    N,
    batches_of,
    check_trace,
    dataset,
    flat,
    make_model,
    n,
    plain_loop,
    recorded,
    sgd,
)

pytestmark = QUIET


def with_batch_norm() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(OrderedDict(body=nn.Linear(5, 4), norm=nn.BatchNorm1d(4), head=nn.Linear(4, 3)))


def test_batch_norm(path):
    model = with_batch_norm()
    with pytest.raises(UnsupportedModel, match=r"Layer norm \(BatchNorm1d\) mixes the examples"):
        record(model, sgd(model), path, dataset_size=N, batch_size=n, sampling="fixed", clip_norm=1.0)
    assert not path.exists()
    with pytest.warns(GmipWarning, match="Layer norm mixes the records of a batch.*nothing is guaranteed"):
        record(model, sgd(model), path, dataset_size=N, batch_size=n, sampling="fixed")
    model.norm.eval()
    batches = batches_of(8, 8)
    recorded(path, batches, model=model)
    reference = with_batch_norm()
    reference.norm.eval()
    check_trace(path, batches, model=reference)


def test_parameters_that_are_not_the_models(path):
    """Centres of classes in a loss would be trained with neither clipping nor noise. Frozen layers may be held."""
    model = make_model()
    model.body.requires_grad_(False)
    centres = nn.Parameter(torch.zeros(3))
    whose = {"dataset_size": N, "batch_size": n, "sampling": "fixed"}
    more = torch.optim.SGD([*model.parameters(), centres], lr=LR)
    for declared in ({"noise_std": 0.1}, {"clip_norm": 1.0}):
        record(model, sgd(model), path, **whose, **declared)
        with pytest.raises(InvalidArgument, match="holds 1 of 5 parameters that are not those of model,"):
            record(model, more, path, **whose, **declared)
    record(model, more, path, **whose)
    assert not path.exists()


def test_batch_norm_that_wakes_up(path):
    """A loop that calls model.train() at each epoch puts a frozen BatchNorm back to work."""
    model = with_batch_norm()
    model.norm.eval()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
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
        ({"sampling": "full"}, "batch_size = 8 must equal dataset_size = 20"),
        ({"loss_reduction": "none"}, "loss_reduction = 'none' is not known: pass one of 'mean', 'sum'"),
        ({"notes": {"model": object()}}, "notes must be plain JSON"),
        ({"recipe": {"fix": True}}, "recipe must be a gmip.Recipe, not dict.*notes"),
    ],
)
def test_bad_arguments(path, options, match):
    model = make_model()
    with pytest.raises(InvalidArgument, match=match):
        record(model, sgd(model), path, **{"dataset_size": N, "batch_size": n, "sampling": "fixed", **options})
    assert not path.exists()


def test_optimizer_of_another_model(path):
    with pytest.raises(InvalidArgument, match="optimizer holds no trainable parameter of model"):
        record(make_model(), sgd(make_model()), path, dataset_size=N, batch_size=n, sampling="fixed")


def test_folder_that_holds_a_trace(path):
    model = recorded(path, batches_of(8))
    optimizer = sgd(model)
    with (
        pytest.raises(TraceError, match="already holds a trace"),
        record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"),
    ):
        pass
    assert Trace.open(path).num_steps == 1


# Beginning, breaking off, going on


def test_hooks_are_gone_after_the_block(path):
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed") as recorder:
        plain_loop(model, optimizer, batches_of(8))
    plain_loop(model, optimizer, batches_of(8))
    assert recorder.num_steps == Trace.open(path).num_steps == 1
    assert not model._forward_pre_hooks and not optimizer._optimizer_step_pre_hooks


def test_exception_leaves_an_open_trace(path):
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 8)

    def fail() -> None:
        with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed"):
            plain_loop(model, optimizer, batches)
            raise RuntimeError("out of coffee")

    with pytest.raises(RuntimeError, match="out of coffee"):
        fail()
    trace = check_trace(path, batches)
    assert not trace.complete and trace.final_arrays() is None
    assert not model._forward_pre_hooks and not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_resume(path, at):
    """After a break at step 3 the run goes on from a checkpoint of step `at`: the trace is that of one without."""
    model = make_model()
    optimizer = sgd(model)
    batches = batches_of(8, 8, 4, 8, 8)
    options: dict[str, Any] = {
        "dataset_size": N,
        "batch_size": n,
        "sampling": "fixed",
        "members": [1, 2],
        "notes": {"lr": (LR,)},
    }
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
        {"every": 2},
        {"parameters": ["head"]},
        {"members": [3]},
        {"non_members": [3]},
    ],
)
def test_resume_of_another_run_changes_nothing(path, changes):
    options: dict[str, Any] = {"dataset_size": N, "batch_size": n, "sampling": "fixed", "members": [1, 2]}
    model = recorded(path, batches_of(8, 8, 8), **options)
    optimizer = sgd(model)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with (
        pytest.raises(TraceMismatch, match="records another run"),
        record(model, optimizer, path, **{**options, **changes}, resume_at=1),
    ):
        pass
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    with record(
        model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed", resume_at=1
    ):  # who is in need not be said again
        pass
    assert Trace.open(path).num_steps == 1


def test_resume_beyond_the_end(path):
    model = recorded(path, batches_of(8))
    optimizer = sgd(model)
    with (
        pytest.raises(InvalidArgument, match="at_step = 2 is beyond the 1 steps"),
        record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed", resume_at=2),
    ):
        pass
    with (
        pytest.raises(TraceError, match="holds no trace"),
        record(model, optimizer, path.with_name("other"), dataset_size=N, batch_size=n, sampling="fixed", resume_at=0),
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
        facts: dict[str, Any] = {"members": [5, 1], "non_members": np.array([7]), "notes": {"seed": 3, "fix": True}}
        recorded(tmp_path / name, batches_of(8), data=data, **facts)
        trace = Trace.open(tmp_path / name)
        assert trace.header.fingerprints == fingerprints
        assert trace.header.notes == {"seed": 3, "fix": True} and trace.header.recipe is None
        assert trace.header.provenance == Provenance()  # what people note steers nothing
        assert trace.members is not None and trace.members.tolist() == [5, 1]
        assert trace.non_members is not None and trace.non_members.tolist() == [7]


def test_members_that_are_not_indices(path):
    model = make_model()
    with (
        pytest.raises(InvalidArgument, match="members holds the index -1"),
        record(model, sgd(model), path, dataset_size=N, batch_size=n, sampling="fixed", members=[-1]),
    ):
        pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": None}, "model must be a torch.nn.Module, not NoneType"),
        ({"path": 3}, "path = 3 must name a folder"),
        ({"path": ""}, "path = '' must name a folder"),
        ({"path": "a\0b"}, "must name a folder"),
        ({"parameters": [3]}, "parameters = [3] must be names of parameters"),
        ({"parameters": 3}, "parameters = 3 must be names of parameters"),
        ({"data": 3}, "data must be a Task, Examples or (inputs, targets), not int"),
        ({"data": (1,)}, "data must be a Task, Examples or (inputs, targets), not tuple"),
    ],
)
def test_other_kinds_of_arguments_are_one_sentence(tmp_path, change, words):
    model = nn.Linear(2, 2)
    given = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "path": tmp_path / "a"} | change
    with pytest.raises(InvalidArgument) as caught:
        record(**given, dataset_size=4, batch_size=2, sampling="fixed")
    assert words in str(caught.value)


def test_no_step_in_the_block(path):
    model = make_model()
    with (
        pytest.raises(TraceError, match="has no steps, because none was taken while it was recorded: train in"),
        record(model, sgd(model), path, dataset_size=N, batch_size=n, sampling="fixed"),
    ):
        pass


def loader_of(rows: Any) -> Any:
    inputs, targets = torch.arange(40.0).reshape(20, 2), torch.zeros(20)
    subset = torch.utils.data.TensorDataset(inputs[rows], targets[rows])
    return torch.utils.data.DataLoader(subset, batch_size=5, shuffle=True), (inputs, targets)


def test_members_that_the_loader_does_not_draw(path):
    model = make_model()
    loader, data = loader_of(slice(0, 10))
    with pytest.raises(InvalidArgument, match=r"leaves out row 0 of data, which the loader draws"):
        record(model, sgd(model), path, loader=loader, members=range(10, 20), data=data)
    record(model, sgd(model), path, loader=loader, members=range(9, -1, -1), data=data)
    subset = torch.utils.data.Subset(torch.utils.data.TensorDataset(*data), range(10))
    loader = torch.utils.data.DataLoader(subset, batch_size=5, shuffle=True)
    with pytest.raises(InvalidArgument, match="names 1 records that the loader does not draw, such as 10"):
        record(model, sgd(model), path, loader=loader, members=range(1, 11), data=data)
    with pytest.raises(InvalidArgument, match="has 20 inputs and 19 targets"):
        record(model, sgd(model), path, loader=loader, data=(data[0], data[1][:19]))


def test_a_mask_names_members(path):
    model = make_model()
    mask = np.arange(N) < 10
    with record(
        model, sgd(model), path, dataset_size=10, batch_size=5, sampling="fixed", members=mask, non_members=~mask
    ) as recorder:
        loss = model(torch.ones(5, 5)).sum()
        loss.backward()
        recorder.batch(5)
        recorder.step()
    trace = Trace.open(path)
    assert trace.members is not None and trace.members.tolist() == list(range(10))
    assert trace.non_members is not None and trace.non_members.size == N - 10
