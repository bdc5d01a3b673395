"""RoundRecorder: rounds of a small federation, against the mean gradients of its clients and a plain loop."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gmip.attacks import GLiR
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.integrations.federated import Clipping, Reply, RoundRecorder
from gmip.tasks.task import Examples, Task
from gmip.trace import Trace
from gmip.training import record
from gmip.vocabulary import Recipe
from tests.unit.training.recording import LR, check_same_trace, dataset, loss_of, make_model, plain_loop, sgd

SIZES = (9, 6, 5)  # examples of the three clients


def arrays_of(model: nn.Module) -> dict[str, Any]:
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def client(model: Any, batch: Any, *, steps: int = 1, **options: Any) -> Reply:
    """What a client replies that takes so many steps of SGD on its batch."""
    own = copy.deepcopy(model)
    plain_loop(own, sgd(own), [batch] * steps)
    return Reply(arrays=arrays_of(own), **{"weight": len(batch[0]), **options})


def mean_of(replies: list[Reply]) -> dict[str, Any]:
    total = sum(reply.weight for reply in replies)
    return {
        name: np.sum([reply.arrays[name] * np.float32(reply.weight / total) for reply in replies], axis=0)
        for name in replies[0].arrays
    }


def shares() -> list[Any]:
    x, y = dataset()
    return list(zip(x.split(SIZES), y.split(SIZES), strict=True))


def federation(path: Any, *, rounds: int = 3, steps: int = 1, **options: Any) -> nn.Module:
    """FedAvg of all three clients, recorded; returns the last model."""
    model = make_model()
    sizes = {"unit": "examples", "dataset_size": 20, "batch_size": 20, "sampling": "full", "learning_rate": LR}
    with RoundRecorder(model, path, **{**sizes, **options}) as recorder:
        for _ in range(rounds):
            recorder.begin(arrays_of(model))
            replies = [client(model, batch, steps=steps) for batch in shares()]
            new = mean_of(replies)
            recorder.end(new, replies)
            model.load_state_dict({name: torch.from_numpy(value) for name, value in new.items()})
        assert recorder.num_rounds == rounds
    return model


def test_fedsgd_is_the_mean_gradient_of_all_examples(tmp_path):
    federation(tmp_path / "federation")
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, tmp_path / "plain", dataset_size=20, batch_size=20, sampling="full"):
        plain_loop(model, optimizer, [dataset()] * 3)
    check_same_trace(tmp_path / "federation", tmp_path / "plain", tolerance=2.0e-5)
    notes = Trace.open(tmp_path / "federation").header.notes
    assert notes["unit"] == "examples" and notes["learning_rate"] == LR and "sent out" in notes["vector"]


def test_fedavg_is_the_update_in_units_of_the_learning_rate(tmp_path):
    """Two local steps: the vector is not the gradient at the start, and it does lead to the new model."""
    last = federation(tmp_path / "a", steps=2)
    trace = Trace.open(tmp_path / "a")
    steps = list(trace)
    after = [step.parameters for step in steps[1:]]
    after.append(np.concatenate([p.detach().numpy().reshape(-1) for p in last.parameters()]))
    for step, new in zip(steps, after, strict=True):
        np.testing.assert_allclose(step.parameters - LR * step.gradient, new, atol=1.0e-6)
    model = make_model()
    loss_of(model, dataset()).backward()
    gradient = np.concatenate([p.grad.numpy().reshape(-1) for p in model.parameters()])
    assert np.linalg.norm(steps[0].gradient - gradient) > 0.1 * np.linalg.norm(gradient)


class Client(nn.Module):
    """A record of this task is a client: the model answers for each of its examples."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.layer(inputs)


def client_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over the examples of each client, shape (n,)."""
    return nn.functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none").mean(1)


@pytest.fixture(scope="module")
def clients():
    """80 clients with four examples each, every one of a class of its own."""
    generator = torch.Generator().manual_seed(5)
    y = torch.randint(0, 3, (80, 4), generator=generator)
    x = torch.randn(80, 4, 5, generator=generator) + 1.5 * torch.randn(80, 1, 5, generator=generator)
    recipe = Recipe(dataset_size=16, batch_size=16, num_steps=6, learning_rate=LR, sampling="full")
    pool = Examples(x, y)
    return Task(name="clients", make_model=Client, pool=pool, test=pool[:2], recipe=recipe, loss=client_loss)


def test_clients_are_attacked_as_in_a_plain_loop(clients, tmp_path):
    """Membership of a client: the traces of a federation and of a loop over clients are the same, their scores too."""
    torch.manual_seed(0)
    model = Client()
    plain = copy.deepcopy(model)
    who: dict[str, Any] = {"members": np.arange(16), "non_members": np.arange(16, 32), "data": clients}
    sizes: dict[str, Any] = {"dataset_size": 16, "batch_size": 16, "sampling": "full"}
    with RoundRecorder(model, tmp_path / "federation", unit="clients", learning_rate=LR, **sizes, **who) as recorder:
        for _ in range(6):
            recorder.begin(arrays_of(model))
            replies = []
            for k in range(16):
                own = copy.deepcopy(model)
                optimizer = sgd(own)
                clients.loss(own(clients.pool.inputs[k : k + 1]), clients.pool.targets[k : k + 1]).mean().backward()
                optimizer.step()
                replies.append(Reply(arrays=arrays_of(own), weight=1.0, client=k))
            new = mean_of(replies)
            recorder.end(new, replies)
            model.load_state_dict({name: torch.from_numpy(value) for name, value in new.items()})
    optimizer = sgd(plain)
    with record(plain, optimizer, tmp_path / "plain", **sizes, **who):
        for _ in range(6):
            optimizer.zero_grad()
            clients.loss(plain(clients.pool.inputs[:16]), clients.pool.targets[:16]).mean().backward()
            optimizer.step()
    check_same_trace(tmp_path / "federation", tmp_path / "plain", tolerance=5.0e-5)
    traces = [Trace.open(tmp_path / name) for name in ("federation", "plain")]
    ours, theirs = (GLiR(play=None, shrinkage="oas").run(clients, trace) for trace in traces)
    np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1.0e-2, atol=1.0e-2 * np.abs(theirs.scores).max())
    assert traces[0].header.notes["unit"] == "clients"
    assert np.array_equal(traces[0].batch_ids(0), np.arange(16))


def round_of(path: Any, replies: list[Reply], new: Any = None, **options: Any) -> Trace:
    model = make_model()
    sizes: dict[str, Any] = {"unit": "clients", "dataset_size": 30, "batch_size": 4}
    with RoundRecorder(model, path, **{**sizes, **options}) as recorder:
        recorder.begin(arrays_of(model))
        recorder.end(mean_of(replies) if new is None else new, replies)
    return Trace.open(path)


def alike(number: int) -> list[Reply]:
    return [client(make_model(), batch, weight=1.0) for batch in (shares() * 2)[:number]]


def test_clipping_and_noise_are_of_clients(tmp_path):
    """Noise for four clients, of whom three replied: on their sum it is less than on four."""
    clipping = Clipping(norm=0.2, noise_std=1.5 * 0.2 / 4, by_clients=False)
    trace = round_of(tmp_path / "a", alike(3), clipping=clipping, learning_rate=0.5)
    (info,) = trace.infos
    assert (info.batch_size, info.divisor) == (3, 3.0)
    assert trace.header.clip_norm == pytest.approx(0.4) and info.noise_std == pytest.approx(0.15)
    (run,) = trace.runs()
    assert run.noise_multiplier == pytest.approx(1.5 * 3 / 4)


def test_a_client_that_does_not_clip_is_found(tmp_path):
    clipping = Clipping(norm=0.01, noise_std=0.1, by_clients=True)
    with pytest.raises(UnsupportedModel, match=r"update has norm 0\.\d+, above the clip norm 0\.01.*fixedclipping_mod"):
        round_of(tmp_path / "a", alike(4), clipping=clipping)
    assert Trace.open(tmp_path / "a").num_steps == 0
    wide = Clipping(norm=100.0, noise_std=0.1, by_clients=True)
    assert round_of(tmp_path / "b", alike(4), clipping=wide).num_steps == 1


def test_what_is_not_an_average(tmp_path):
    replies = alike(4)
    half = {name: 0.5 * value for name, value in mean_of(replies).items()}
    with pytest.raises(UnsupportedModel, match=r"new body\.weight is not the weighted mean of its clients'.*FedAvg"):
        round_of(tmp_path / "a", replies, half)


def test_clients_that_weigh_more(tmp_path):
    replies = [client(make_model(), batch) for batch in shares()]
    with pytest.raises(UnsupportedModel, match=r"Clients weigh 5 to 9 in the average.*num-examples = 1"):
        round_of(tmp_path / "a", replies)
    odd = [client(make_model(), batch, weight=1.5) for batch in shares()]
    with pytest.raises(InvalidArgument, match=r"A client reports 1\.5 as its number of examples"):
        round_of(tmp_path / "b", odd, unit="examples")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"unit": "people"}, "unit = 'people' is not known"),
        ({"learning_rate": 0.0}, "learning_rate = 0"),
        ({"sampling": "some"}, "sampling = 'some' is not known"),
        ({"batch_size": 31}, "batch_size = 31 exceeds dataset_size = 30"),
        (
            {"unit": "examples", "clipping": Clipping(norm=1.0, noise_std=1.0, by_clients=True)},
            "unit = 'examples' does not go with a strategy that clips the updates of clients.*pass 'clients'",
        ),
    ],
)
def test_bad_arguments(tmp_path, options, match):
    with pytest.raises(InvalidArgument, match=match):
        round_of(tmp_path / "a", alike(4), **options)
    assert not (tmp_path / "a").exists()


def test_rounds_that_fail(tmp_path):
    """A round without a new model is no step; other models, and an end without a beginning, are refused."""
    model = make_model()
    with RoundRecorder(model, tmp_path / "a", unit="clients", dataset_size=30, batch_size=4) as recorder:
        recorder.begin(arrays_of(model))
        recorder.end(None, [])
        assert recorder.num_rounds == 0
        with pytest.raises(InvalidArgument, match="end needs a begun round"):
            recorder.end(arrays_of(model), alike(4))
        with pytest.raises(InvalidArgument, match=r"sent out lacks it: parameter body\.bias of model, of shape \(4,\)"):
            recorder.begin({name: value for name, value in arrays_of(model).items() if name != "body.bias"})
        with pytest.raises(InvalidArgument, match=r"has it in shape \(3, 3\): parameter head\.weight"):
            recorder.begin({**arrays_of(model), "head.weight": np.zeros((3, 3))})
    assert Trace.open(tmp_path / "a").complete
    other = tmp_path / "b"
    with (
        pytest.raises(ZeroDivisionError),
        RoundRecorder(model, other, unit="clients", dataset_size=30, batch_size=4),
    ):
        _ = 1 / 0
    assert not Trace.open(other).complete


def test_layers_that_mix_examples(tmp_path):
    """They are recorded as such, unless clipping is to protect clients."""
    model, sizes = nn.Sequential(nn.BatchNorm1d(5)), {"unit": "clients", "dataset_size": 3, "batch_size": 3}
    RoundRecorder(model, tmp_path / "a", **sizes)
    assert Trace.open(tmp_path / "a").header.mixes == "0"
    clipping = Clipping(norm=1.0, noise_std=0.1, by_clients=False)
    with pytest.raises(UnsupportedModel, match="BatchNorm1d"):
        RoundRecorder(model, tmp_path / "b", **sizes, clipping=clipping)
