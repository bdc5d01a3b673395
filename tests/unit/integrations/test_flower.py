"""Flower's own strategies, messages and client apps, with clients in this process. `make test` runs these in
.venv-flower, because Flower does not go with the pinned versions of the main environment."""

from __future__ import annotations

import importlib.util
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower has an environment of its own: .venv-flower, made by make test")

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import SimpleClientManager
from flwr.server import strategy as fit
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedProx,
)

import gmip
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.integrations.flower import GmipFitStrategy, GmipStrategy, clients_run
from gmip.trace import Trace
from gmip.training import record
from gmip.vocabulary import NoisySGD
from tests.unit.training.recording import (
    LR,
    check_same_trace,
    dataset,
    make_model,
    plain_loop,
    sgd,
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_federation.py"
SIZES = (9, 6, 5)  # examples of the three clients


@pytest.fixture(scope="module")
def example() -> Any:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    spec = importlib.util.spec_from_file_location("flower_federation", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hospital(*, steps: int = 1, weight: int | None = None, mods: Any = (), fails: bool = False) -> ClientApp:
    """A client with its share of the data, that takes so many steps."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        k = context.node_config["partition-id"]
        if fails and k == 1:
            return Message(Error(code=0, reason="no power"), reply_to=message)
        x, y = dataset()
        own = x.split(SIZES)[k], y.split(SIZES)[k]
        model = make_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        plain_loop(model, sgd(model), [own] * steps)
        metrics = {"num-examples": len(own[0]) if weight is None else weight, "row": 7 + k}
        return Message(
            RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}), reply_to=message
        )

    return app


def federation(example: Any, path: Any, strategy: Any = None, app: Any = None, rounds: int = 3, **options: Any) -> Any:
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=3) if strategy is None else strategy
    sizes = {"unit": "examples", "dataset_size": 20, "batch_size": 20, "sampling": "full", "learning_rate": LR}
    model = make_model()
    with GmipStrategy(strategy, model, path, **{**sizes, **options}) as recorded:
        grid = example.LocalGrid(hospital() if app is None else app, 3)
        return recorded.start(grid, ArrayRecord(model.state_dict()), num_rounds=rounds)


def test_fedsgd_is_a_plain_loop(example, tmp_path):
    result = federation(example, tmp_path / "flower")
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, tmp_path / "plain", dataset_size=20, batch_size=20, sampling="full"):
        plain_loop(model, optimizer, [dataset()] * 3)
    check_same_trace(tmp_path / "flower", tmp_path / "plain", tolerance=2.0e-5)
    trace = Trace.open(tmp_path / "flower")
    assert trace.header.notes["framework"] == "flower" and trace.header.notes["strategy"] == "FedAvg"
    final = trace.final_arrays()
    assert final is not None
    for name, value in result.arrays.to_torch_state_dict().items():
        assert np.array_equal(final[name], value.numpy())


def test_the_federation_is_not_changed(example, tmp_path):
    """The same models with and without a recorder, FedProx and several local steps as well."""
    model = make_model()
    for strategy in (FedAvg, FedProx):
        options = {"proximal_mu": 0.1} if strategy is FedProx else {}
        made = [strategy(fraction_evaluate=0.0, min_train_nodes=3, **options) for _ in range(2)]
        kept = federation(example, tmp_path / strategy.__name__, made[0], hospital(steps=3))
        plain = made[1].start(example.LocalGrid(hospital(steps=3), 3), ArrayRecord(model.state_dict()), num_rounds=3)
        for name, value in plain.arrays.to_torch_state_dict().items():
            torch.testing.assert_close(value, kept.arrays.to_torch_state_dict()[name])  # clients come in any order
        assert Trace.open(tmp_path / strategy.__name__).num_steps == 3


def private(kind: Any, multiplier: float = 1.5, **options: Any) -> Any:
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=3)
    return kind(inner, noise_multiplier=multiplier, clipping_norm=0.2, num_sampled_clients=3, **options)


CLIENTS: dict[str, Any] = {"unit": "clients", "dataset_size": 3, "batch_size": 3, "learning_rate": 1.0}


@pytest.mark.parametrize("side", ["server", "client"])
def test_private_rounds_are_accounted_by_clients(example, tmp_path, side):
    kind = (
        DifferentialPrivacyServerSideFixedClipping if side == "server" else DifferentialPrivacyClientSideFixedClipping
    )
    app = hospital(weight=1, steps=5, mods=[] if side == "server" else [fixedclipping_mod])
    np.random.seed(0)  # noqa: NPY002 - Flower draws its noise from it
    federation(example, tmp_path / "a", private(kind), app, client_id="row", **CLIENTS)
    trace = Trace.open(tmp_path / "a")
    assert trace.header.clip_norm == pytest.approx(0.2)
    assert [info.noise_std for info in trace.infos] == pytest.approx([1.5 * 0.2 / 3] * 3)
    assert sorted(trace.batch_ids(2)) == [7, 8, 9]
    run = clients_run(private(kind), num_clients=3, num_rounds=3, num_params=39, sampling="full")
    (found,) = trace.runs()
    assert found.noise_multiplier == pytest.approx(1.5) and run.noise_multiplier == pytest.approx(1.5)
    assert found.replace(noise_std=0.0, clip_norm=1.0) == run.replace(noise_std=0.0, clip_norm=1.0)
    # The noise is in the vectors: 3 rounds of 39 draws, the clipped mean update has a norm of at most 0.2.
    noise = np.concatenate([step.gradient for step in trace])
    assert 0.6 < float(np.sqrt(np.mean(noise**2))) / 0.1 < 1.4


def test_clients_without_the_mod_are_found(example, tmp_path):
    strategy = private(DifferentialPrivacyClientSideFixedClipping)
    with pytest.raises(UnsupportedModel, match=r"above the clip norm 0\.2, so it was not clipped"):
        federation(example, tmp_path / "a", strategy, hospital(weight=1, steps=5), **CLIENTS)


def test_without_noise_clipping_is_recorded(example, tmp_path):
    strategy = private(DifferentialPrivacyServerSideFixedClipping, multiplier=0.0)
    federation(example, tmp_path / "a", strategy, hospital(weight=1, steps=5), rounds=1, **CLIENTS)
    (step,) = Trace.open(tmp_path / "a")
    assert 0.05 < float(np.linalg.norm(step.gradient)) <= 0.2 + 1e-6


@pytest.mark.parametrize("sampling", ["fixed", "full"])
def test_the_accountant_is_that_of_the_described_run(sampling):
    inner = FedAvg(fraction_train=0.1)
    strategy = DifferentialPrivacyServerSideFixedClipping(
        inner, noise_multiplier=1.2, clipping_norm=0.5, num_sampled_clients=40
    )
    total = 40 if sampling == "full" else 400
    run = clients_run(strategy, num_clients=total, num_rounds=50, num_params=make_model(), sampling=sampling)
    sizes: dict[str, Any] = {"dataset_size": total, "batch_size": 40, "num_steps": 50, "num_params": 39}
    same = NoisySGD(**sizes, clip_norm=1.0, sampling=sampling).with_noise_multiplier(1.2)
    for notion in ("gmip", "gdp"):
        ours, theirs = (gmip.account(one, notion=notion) for one in (run, same))
        assert ours.tpr_at(0.01) == pytest.approx(theirs.tpr_at(0.01), rel=1e-9)


def test_epsilon_against_flowers_own_accountant():
    """Replacing a client moves the sum by twice the clip norm: as much as removing one at half the noise, for which
    Flower has an upper bound (RDP). Ours is exact, so below it, and above it with a tenth less noise."""
    config = PrivacyConfig(1e-5, 40, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION)
    accountant = RdpAccountant(config)
    for _ in range(20):
        accountant.compose(GaussianPrivacyEvent(2.0, 40, 40))
    bound = accountant.get_privacy_spent().epsilon

    def epsilon(multiplier: float) -> float:
        strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), multiplier, 0.5, 40)
        run = clients_run(strategy, num_clients=40, num_rounds=20, num_params=39, sampling="full")
        return gmip.account(run, notion="gdp").epsilon(1e-5)

    assert epsilon(4.0) < bound < epsilon(3.6)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: FedAdam(), "FedAdam does more than average"),
        (lambda: DifferentialPrivacyServerSideFixedClipping(FedAdam(), 1.0, 1.0, 3), "FedAdam does more than average"),
        (
            lambda: DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 1.0, 100),
            "ServerSideAdaptiveClipping computes its clip norm from a noisy count",
        ),
    ],
)
def test_strategies_that_are_refused(tmp_path, make, match):
    with pytest.raises(UnsupportedModel, match=match):
        GmipStrategy(make(), make_model(), tmp_path / "a", **CLIENTS)
    assert not (tmp_path / "a").exists()


def test_strategies_of_the_other_make(tmp_path):
    with pytest.raises(InvalidArgument, match=r"strategy is one of flwr\.server\.strategy: wrap it in GmipFitStrategy"):
        GmipStrategy(fit.FedAvg(), make_model(), tmp_path / "a", **CLIENTS)
    for strategy in (FedAvg(), fit.FedAdam(initial_parameters=ndarrays_to_parameters([]))):
        with pytest.raises(UnsupportedModel, match="does more than average"):
            GmipFitStrategy(strategy, make_model(), tmp_path / "a", **CLIENTS)
    with pytest.raises(UnsupportedModel, match=r"DPFedAvgFixed is Flower's former strategy.*FixedClipping"):
        GmipFitStrategy(fit.DPFedAvgFixed(fit.FedAvg(), 3, 1.0), make_model(), tmp_path / "a", **CLIENTS)


def fitted(path: Any, strategy: Any, *, weight: int | None = None, rounds: int = 3, **options: Any) -> None:
    """Rounds of the older interface: what the server's loop does with three clients."""
    model = make_model()
    sizes = {"unit": "examples", "dataset_size": 20, "batch_size": 20, "sampling": "full", "learning_rate": LR}
    with GmipFitStrategy(strategy, model, path, **{**sizes, **options}) as recorded:
        parameters = ndarrays_to_parameters([value.numpy() for value in model.state_dict().values()])
        manager = SimpleClientManager()
        for k in range(3):
            manager.register(LocalClient(str(k)))
        for number in range(1, rounds + 1):
            results = []
            for proxy, asked in recorded.configure_fit(number, parameters, manager):
                x, y = dataset()
                k = int(proxy.cid)
                own = x.split(SIZES)[k], y.split(SIZES)[k]
                arrays = [torch.from_numpy(a) for a in parameters_to_ndarrays(asked.parameters)]
                model.load_state_dict(dict(zip(model.state_dict(), arrays, strict=True)))
                plain_loop(model, sgd(model), [own])
                sent = ndarrays_to_parameters([value.numpy().copy() for value in model.state_dict().values()])
                count = len(own[0]) if weight is None else weight
                results.append((proxy, FitRes(Status(Code.OK, ""), sent, count, {"row": 7 + k})))
            parameters, _ = recorded.aggregate_fit(number, results, [])


class LocalClient(ClientProxy):  # type: ignore[misc]
    """Only its name is used."""

    def get_properties(self, *args: Any) -> Any: ...
    def get_parameters(self, *args: Any) -> Any: ...
    def fit(self, *args: Any) -> Any: ...
    def evaluate(self, *args: Any) -> Any: ...
    def reconnect(self, *args: Any) -> Any: ...


def test_fedsgd_by_fit(example, tmp_path):
    """The older interface gives the trace of the newer one."""
    fitted(tmp_path / "fit", fit.FedAvg(min_fit_clients=3, min_available_clients=3))
    federation(example, tmp_path / "train")
    check_same_trace(tmp_path / "fit", tmp_path / "train", tolerance=2.0e-5)


def test_private_rounds_by_fit(tmp_path):
    inner = fit.FedAvg(min_fit_clients=3, min_available_clients=3)
    strategy = fit.DifferentialPrivacyServerSideFixedClipping(inner, 1.5, 0.2, 3)
    fitted(tmp_path / "a", strategy, weight=1, client_id="row", **CLIENTS)
    trace = Trace.open(tmp_path / "a")
    (found,) = trace.runs()
    run = clients_run(strategy, num_clients=3, num_rounds=3, num_params=39, sampling="full")
    assert found.noise_multiplier == pytest.approx(1.5) and run.noise_multiplier == pytest.approx(1.5)
    assert sorted(trace.batch_ids(0)) == [7, 8, 9]


def test_no_private_strategy_no_account():
    with pytest.raises(InvalidArgument, match="strategy is FedAvg, which neither clips nor adds noise"):
        clients_run(FedAvg(), num_clients=10, num_rounds=2, num_params=3)


def test_a_client_that_fails_is_not_counted(example, tmp_path):
    federation(example, tmp_path / "a", app=hospital(fails=True), rounds=1)
    (info,) = Trace.open(tmp_path / "a").infos
    assert info.batch_size == 14


def test_replies_that_say_too_little(example, tmp_path):
    with pytest.raises(InvalidArgument, match=r"reply has no 'place' among its metrics \(num-examples, row\)"):
        federation(example, tmp_path / "a", app=hospital(weight=1), client_id="place", **CLIENTS)


def test_evaluation_is_passed_on(example, tmp_path):
    inner = FedAvg(min_train_nodes=3)
    with GmipStrategy(inner, make_model(), tmp_path / "a", **CLIENTS) as strategy:
        strategy.summary()
        grid = example.LocalGrid(hospital(), 3)
        sent = strategy.configure_evaluate(1, ArrayRecord(make_model().state_dict()), ConfigRecord(), grid)
        replies = [Message(RecordDict({"m": MetricRecord({"num-examples": 2, "loss": 0.5})}), reply_to=m) for m in sent]
        found = strategy.aggregate_evaluate(1, replies)
        assert found is not None and found["loss"] == pytest.approx(0.5)


def test_the_example(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second, third = done.stdout.splitlines()
    assert first.startswith("50 patients of 5 hospitals, 30 rounds: GLiR's AUC is 0.")
    assert "a typical client is found at most" in second and "any client (differential privacy)" in third
