"""The Opacus accountant: epsilon is Opacus' own, the curve is gmip.account's, and rounding never flatters."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant, create_accountant, register_accountant
from opacus.grad_sample import GradSampleModule
from opacus.schedulers import LambdaNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from scipy.special import log_ndtr, ndtr
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gmip
import gmip.integrations.opacus as integration
from gmip.integrations.opacus import GmipAccountant
from gmip.training.samplers import FixedSize

pytestmark = [
    # Every PrivacyEngine says so; a secure generator needs torchcsprng, and tests need a seed.
    pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning"),
    # Opacus hooks the first layer too, whose input needs no gradient.
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),
]

RATES = np.array([1.0e-5, 1.0e-3, 1.0e-2, 0.1, 0.5, 0.9, 0.999])
HISTORY = [(1.0, 0.05, 60), (0.8, 0.05, 30), (0.8, 0.1, 10)]
RUN = gmip.NoisySGD(
    dataset_size=2000, batch_size=100, num_steps=60, num_params=50, clip_norm=3.0, sampling="poisson"
).with_noise_multiplier(1.0)


def accountant_of(history: list[tuple[float, float, int]]) -> GmipAccountant:
    accountant = GmipAccountant()
    for noise_multiplier, sample_rate, num_steps in history:
        for _ in range(num_steps):
            accountant.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
    return accountant


# -- an accountant among Opacus' own ----------------------------------------------------------------------------------


def test_registered_once_and_again():
    assert type(create_accountant("gmip")) is GmipAccountant
    try:
        again = importlib.reload(integration)
        assert type(create_accountant("gmip")) is again.GmipAccountant
    finally:
        register_accountant("gmip", GmipAccountant, force=True)
    assert GmipAccountant.mechanism() == "gmip"


def test_registers_by_import_alone():
    code = (
        "import sys, gmip; assert not {'opacus', 'torch'} & set(sys.modules); import gmip.integrations.opacus; "
        "from opacus.accountants import create_accountant; print(create_accountant('gmip').mechanism())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gmip"]


def test_history_is_kept_as_opacus_keeps_it():
    ours, theirs = accountant_of(HISTORY), PRVAccountant()
    for noise_multiplier, sample_rate, num_steps in HISTORY:
        for _ in range(num_steps):
            theirs.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
    assert ours.history == theirs.history == HISTORY
    assert len(ours) == 100 and len(GmipAccountant()) == 0


def test_state_dict_round_trip():
    first, second = accountant_of(HISTORY), GmipAccountant()
    state = first.state_dict()
    second.load_state_dict(state)
    assert second.history == HISTORY
    second.step(noise_multiplier=0.8, sample_rate=0.1)
    assert len(second) == 101 and len(first) == 100
    assert state["history"] == HISTORY  # neither shares its list with the state


def test_foreign_and_broken_states_are_refused():
    accountant = accountant_of(HISTORY)
    with pytest.raises(ValueError, match="state_dict of prv cannot be loaded"):
        accountant.load_state_dict(PRVAccountant().state_dict())
    with pytest.raises(ValueError, match="None or empty"):
        accountant.load_state_dict({})
    with pytest.raises(gmip.InvalidArgument, match="sample_rate = 2"):
        accountant.load_state_dict({"mechanism": "gmip", "history": [(1.0, 0.5, 3), (1.0, 2.0, 3)]})
    assert accountant.history == HISTORY


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise_multiplier": -1.0, "sample_rate": 0.1}, "noise_multiplier = -1"),
        ({"noise_multiplier": math.nan, "sample_rate": 0.1}, "noise_multiplier is NaN"),
        ({"noise_multiplier": 1.0, "sample_rate": 0.0}, "sample_rate = 0"),
        ({"noise_multiplier": 1.0, "sample_rate": 1.5}, "sample_rate = 1.5"),
    ],
)
def test_impossible_steps_are_refused(arguments, message):
    accountant = accountant_of(HISTORY)
    with pytest.raises(gmip.InvalidArgument, match=message):
        accountant.step(**arguments)
    assert accountant.history == HISTORY


# -- epsilon ----------------------------------------------------------------------------------------------------------


def test_epsilon_is_that_of_opacus_prv():
    theirs = PRVAccountant()
    theirs.history = HISTORY[1:]
    ours = accountant_of(HISTORY[1:])
    assert ours.get_epsilon(1.0e-3) == theirs.get_epsilon(1.0e-3)
    assert ours.get_epsilon(1.0e-5, eps_error=0.1, delta_error=1.0e-7, max_clipbound=3.0) == theirs.get_epsilon(
        1.0e-5, eps_error=0.1, delta_error=1.0e-7
    )


@pytest.mark.parametrize("history", [HISTORY, [(2.0, 1.0, 4)], [(30.0, 0.2, 1)]], ids=["mixed", "full", "noisy"])
def test_epsilon_is_that_of_the_gdp_curve(history):
    # An oracle that shares no code with Opacus: gmip's own composition. PRV adds its eps_error of 0.01.
    accountant = accountant_of(history)
    curve = accountant.get_tradeoff(dataset_size=2000, num_params=1, notion="gdp")
    assert accountant.get_epsilon(1.0e-5) == pytest.approx(curve.epsilon(1.0e-5) + 0.01, abs=1.0e-3)


def test_epsilon_before_the_first_step_and_without_noise():
    assert GmipAccountant().get_epsilon(1.0e-5) == 0.0
    assert accountant_of([(1.0, 0.1, 3), (0.0, 0.1, 1)]).get_epsilon(1.0e-5) == math.inf
    assert accountant_of([(1.0e-160, 0.1, 1)]).get_epsilon(1.0e-5) == math.inf


@pytest.mark.parametrize(
    "history", [[(0.01, 0.001, 1)], [(0.05, 0.5, 100)], [(0.3, 0.5, 2000)]], ids=["overflow", "memory", "large"]
)
@pytest.mark.filterwarnings("ignore:Optimal order is the:UserWarning")  # the oracle's; ours must not let it out
def test_epsilon_falls_back_to_rdp_where_prv_fails(history):
    theirs = RDPAccountant()
    theirs.history = list(history)
    epsilon = accountant_of(history).get_epsilon(1.0e-5)
    assert epsilon == theirs.get_epsilon(1.0e-5) > 500.0


def test_prv_alone_would_be_wrong_without_an_error():
    # One step, sample rate q, mu = 100: delta(epsilon) = q delta_mu(log(1 + (e^epsilon - 1)/q)); here for 5000.
    level = 5000.0 - math.log(0.001)
    delta = 0.001 * (ndtr(50.0 - level / 100.0) - math.exp(level + log_ndtr(-50.0 - level / 100.0)))
    assert delta > 1.0e-4
    prv = PRVAccountant()
    prv.history = [(0.01, 0.001, 1)]
    with np.errstate(all="ignore"), pytest.warns(UserWarning, match="Optimal order"):
        assert prv.get_epsilon(1.0e-5, eps_error=0.1) < 710.0
    assert accountant_of([(0.01, 0.001, 1)]).get_epsilon(1.0e-5, eps_error=0.1) > 5000.0


def test_prv_errors_fall_back_to_rdp(monkeypatch):
    def fail(*args: Any, **options: Any) -> float:
        raise RuntimeError("Discrete mean differs significantly from continuous mean.")

    monkeypatch.setattr(PRVAccountant, "get_epsilon", fail)
    ours, theirs = accountant_of(HISTORY[:1]), RDPAccountant()
    theirs.history = HISTORY[:1]
    expected = theirs.get_epsilon(1.0e-5)
    assert ours.get_epsilon(1.0e-5) == expected
    monkeypatch.setattr(PRVAccountant, "get_epsilon", lambda *args, **options: math.nan)
    assert ours.get_epsilon(1.0e-5) == expected


def test_vast_noise_is_counted_as_less():
    assert accountant_of([(1.0e8, 0.01, 1)]).get_epsilon(1.0e-5) == pytest.approx(0.01, abs=1.0e-3)
    assert accountant_of([(1.0e200, 0.9, 1)]).get_epsilon(1.0e-5) == pytest.approx(0.01, abs=1.0e-3)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, "small"])
def test_epsilon_needs_a_delta_inside(delta):
    with pytest.raises(gmip.InvalidArgument, match="delta"):
        accountant_of(HISTORY).get_epsilon(delta)


# -- the membership curve ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"susceptibility": 120.0},
        {"susceptibility": [20.0, 50.0, 400.0]},
        {"bound": "paper", "composition": "clt"},
        {"notion": "gdp"},
    ],
    ids=["default", "susceptibility", "stochastic", "paper", "gdp"],
)
def test_curve_is_that_of_account(options):
    by_hand = gmip.account(
        [
            RUN,
            RUN.replace(num_steps=30).with_noise_multiplier(0.8),
            RUN.replace(num_steps=10, batch_size=200).with_noise_multiplier(0.8),
        ],
        **options,
    )
    accountant = accountant_of(HISTORY)
    curve = accountant.get_tradeoff(dataset_size=2000, num_params=50, **options)
    np.testing.assert_allclose(curve(RATES), by_hand(RATES), rtol=0.0, atol=1.0e-9)
    assert curve.assumptions == by_hand.assumptions
    mu = accountant.get_mu(dataset_size=2000, num_params=50, **options)
    assert mu == pytest.approx(by_hand.equivalent_mu(), rel=1.0e-7)


def test_fixed_batches_are_accounted_by_their_sizes_and_rank():
    by_hand = gmip.account(
        gmip.NoisySGD(
            dataset_size=500, batch_size=40, num_steps=25, num_params=30, clip_norm=1.0, sampling="fixed", rank=7
        ).with_noise_multiplier(1.5)
    )
    # The rate that Opacus records is 1/len(data_loader), which is not that of a sampler of one's own.
    accountant = accountant_of([(1.5, 1.0 / 25, 25)])
    curve = accountant.get_tradeoff(dataset_size=500, batch_size=40, num_params=30, rank=7, sampling="fixed")
    np.testing.assert_allclose(curve(RATES), by_hand(RATES), rtol=0.0, atol=1.0e-9)
    assert any("fixed size" in sentence for sentence in curve.assumptions)


def test_either_size_will_do():
    accountant = accountant_of(HISTORY[:2])
    sizes: list[dict[str, Any]] = [
        {"dataset_size": 2000},
        {"batch_size": 100},
        {"dataset_size": 2000, "batch_size": 100},
    ]
    curves = [accountant.get_tradeoff(num_params=50, **size)(RATES) for size in sizes]
    np.testing.assert_array_equal(curves[0], curves[1])
    np.testing.assert_array_equal(curves[0], curves[2])


def test_models_are_counted():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].weight.requires_grad_(False)
    accountant = accountant_of(HISTORY[:1])
    expected = accountant.get_mu(dataset_size=2000, num_params=3 + 6 + 2)
    assert accountant.get_mu(dataset_size=2000, num_params=model) == expected
    assert accountant.get_mu(dataset_size=2000, num_params=GradSampleModule(model)) == expected


def test_membership_privacy_is_weaker_than_differential_privacy():
    accountant = accountant_of(HISTORY)
    for susceptibility in (1.0, 50.0, 1.0e7):
        mu = accountant.get_mu(dataset_size=2000, num_params=50, susceptibility=susceptibility)
        assert mu <= accountant.get_mu(dataset_size=2000, num_params=50, notion="gdp") * (1.0 + 1.0e-6)
    assert mu > accountant.get_mu(dataset_size=2000, num_params=50)


def test_more_noise_and_more_records_help():
    noisy = [accountant_of([(noise, 0.05, 50)]).get_mu(dataset_size=2000, num_params=50) for noise in (0, 0.5, 1, 2, 4)]
    assert all(a > b for a, b in pairwise(noisy))
    sizes = [accountant_of(HISTORY).get_mu(dataset_size=size, num_params=50) for size in (500, 1000, 2000, 4000)]
    assert all(a > b for a, b in pairwise(sizes))


def test_without_noise_the_data_still_hide_a_record():
    accountant = accountant_of([(0.0, 0.05, 60)])
    quiet = RUN.replace(noise_std=0.0)
    mu = accountant.get_mu(dataset_size=2000, num_params=50)
    assert 0.0 < mu < 5.0 and mu == pytest.approx(gmip.account(quiet).equivalent_mu(), rel=1.0e-9)
    curve = accountant.get_tradeoff(dataset_size=2000, num_params=50, notion="gdp")
    assert curve.tpr_at(0.0) == pytest.approx(1.0 - 0.95**60, abs=1.0e-9)


def test_before_the_first_step_all_is_private():
    curve = GmipAccountant().get_tradeoff(dataset_size=100, num_params=5)
    np.testing.assert_allclose(curve(RATES), 1.0 - RATES, atol=1.0e-15)
    assert GmipAccountant().get_mu(batch_size=10, num_params=5) == 0.0
    assert "No step" in curve.assumptions[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "dataset_size is missing"),
        ({"batch_size": 100}, r"3 sample rates|2 sample rates"),
        ({"dataset_size": 2000, "batch_size": 128}, "contradict the recorded sample rate 0.05"),
        ({"dataset_size": 5}, "batches of less than one record"),
        ({"dataset_size": 2000.5}, "dataset_size = 2000.5"),
        ({"dataset_size": 2000, "sampling": "fixed"}, "needs both dataset_size and batch_size"),
        ({"batch_size": 100, "sampling": "fixed"}, "needs both dataset_size and batch_size"),
        ({"dataset_size": 2000, "sampling": "shuffled"}, "sampling = 'shuffled' is not known"),
        ({"dataset_size": 2000, "num_params": 0}, "num_params = 0"),
        ({"dataset_size": 2000, "num_params": nn.Identity()}, "num_params = 0"),
        ({"dataset_size": 2000, "num_params": [50]}, r"num_params = \[50\] must be a number"),
        ({"dataset_size": 2000, "rank": 51}, "rank = 51 exceeds num_params"),
        ({"dataset_size": 2000, "notion": "dp"}, "notion = 'dp' is not known"),
    ],
)
def test_wrong_arguments_get_a_sentence(options, message):
    with pytest.raises(gmip.InvalidArgument, match=message):
        accountant_of(HISTORY).get_tradeoff(**{"num_params": 50, **options})


# -- rates that make no whole batch -----------------------------------------------------------------------------------


def exact_curve(*, others: float, rate: float, noise: float, steps: int, susceptibility: float) -> gmip.TradeOff:
    """Theorem 4 of docs/theory/reuse.md in units of the sum, for any real rate and number of others in a batch."""
    data = (susceptibility + 1.0) / (others * (1.0 - rate))
    return gmip.Gaussian(1.0 / math.sqrt(1.0 / data + noise**2)).subsample(rate).compose(steps)


@pytest.mark.parametrize("noise", [0.0, 0.7, 3.0])
@pytest.mark.parametrize(
    ("records", "rate"),
    [(10, 1 / 3), (1000, 1 / 7), (999, 1 / 49), (2000, 0.05), (101, 2 / 30), (640, 0.0123), (77, 0.9), (2000, 1 / 92)],
)
def test_rounded_sizes_are_never_optimistic(records, rate, noise):
    steps, K = 20, 30.0
    curve = accountant_of([(noise, rate, steps)]).get_tradeoff(dataset_size=records, num_params=30)
    exact = exact_curve(others=rate * (records - 1), rate=rate, noise=noise, steps=steps, susceptibility=K)
    tpr, least = np.asarray(curve.tpr_at(RATES)), np.asarray(exact.tpr_at(RATES))
    assert np.all(tpr >= least - 2.0e-5)
    # Nor more pessimistic than one record less in a batch (two for 1/92, see below) at a rate higher by as much.
    fewer = rate * records - (2.0 if rate == 1 / 92 else 1.0)
    worse = min(rate * (1.0 + 1.0 / fewer), 0.999)
    bracket = exact_curve(others=fewer - worse, rate=worse, noise=noise, steps=steps, susceptibility=K)
    assert np.all(tpr <= np.asarray(bracket.tpr_at(RATES)) + 2.0e-5)


@pytest.mark.parametrize("batches", [7, 49, 93, 103, 107, 1000])
def test_whole_batches_are_not_rounded(batches):
    accountant = accountant_of([(1.0, 1.0 / batches, 3)])
    curve = accountant.get_tradeoff(dataset_size=12 * batches, num_params=5)
    run = RUN.replace(dataset_size=12 * batches, batch_size=12, num_steps=3, num_params=5).with_noise_multiplier(1.0)
    np.testing.assert_array_equal(curve(RATES), gmip.account(run)(RATES))
    assert not any("safe side" in sentence for sentence in curve.assumptions)


def test_rounding_is_said():
    curve = accountant_of([(1.0, 1.0 / 7, 3)]).get_tradeoff(dataset_size=100, num_params=5)
    assert "Batches of 14 out of 98 records stand for a sample rate of 0.142857 among 100, on the safe side." in (
        curve.assumptions
    )


# -- real runs --------------------------------------------------------------------------------------------------------


class Run:
    """A tiny linear regression under a PrivacyEngine with the gmip accountant."""

    def __init__(
        self, *, records: int = 120, batch_size: int = 30, noise: float = 1.2, sampler: Any = None, **options: Any
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(records, 3, generator=generator)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        drawn: dict[str, Any] = {"batch_sampler": sampler} if sampler else {"batch_size": batch_size}
        self.plain = nn.Linear(3, 1)
        self.engine = PrivacyEngine(accountant="gmip")
        self.model, self.optimizer, self.loader = self.engine.make_private(
            module=self.plain,
            optimizer=torch.optim.SGD(self.plain.parameters(), lr=0.05),
            data_loader=DataLoader(data, generator=generator, **drawn),
            noise_multiplier=noise,
            max_grad_norm=1.0,
            noise_generator=torch.Generator().manual_seed(2),
            **options,
        )

    def epoch(self, loader: Any = None) -> None:
        for inputs, targets in self.loader if loader is None else loader:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(inputs), targets).backward()
            self.optimizer.step()

    @property
    def accountant(self) -> GmipAccountant:
        found = self.engine.accountant
        assert isinstance(found, GmipAccountant)
        return found


def test_engine_with_a_noise_schedule_and_virtual_steps(tmp_path):
    run = Run()
    scheduler = LambdaNoise(run.optimizer, noise_lambda=lambda epoch: 2.0 if epoch else 1.0)
    run.epoch()
    scheduler.step()
    # Physical batches of 7 records: four or five of them make one step.
    with BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=7, optimizer=run.optimizer) as loader:
        run.epoch(loader)
    accountant = run.accountant
    assert accountant.history == [(1.2, 0.25, 4), (2.4, 0.25, 4)] and len(accountant) == 8

    theirs = PRVAccountant()
    theirs.history = list(accountant.history)
    assert run.engine.get_epsilon(1.0e-4) == theirs.get_epsilon(1.0e-4)
    first = gmip.NoisySGD(
        dataset_size=120, batch_size=30, num_steps=4, num_params=4, clip_norm=1.0, sampling="poisson"
    ).with_noise_multiplier(1.2)
    curve = gmip.account([first, first.with_noise_multiplier(2.4)])
    for params in (4, run.plain, run.model):
        assert accountant.get_mu(dataset_size=120, num_params=params) == pytest.approx(curve.equivalent_mu(), rel=1e-9)
    assert accountant.get_mu(batch_size=run.optimizer.expected_batch_size, num_params=4) == pytest.approx(
        curve.equivalent_mu(), rel=1.0e-9
    )

    run.engine.save_checkpoint(path=tmp_path / "run.pt", module=run.model, optimizer=run.optimizer)
    other = Run()
    other.engine.load_checkpoint(path=tmp_path / "run.pt", module=other.model, optimizer=other.optimizer)
    assert other.accountant.history == accountant.history
    assert torch.equal(other.plain.weight, run.plain.weight)


def test_engine_with_a_target_epsilon():
    plain = nn.Linear(3, 1)
    data = TensorDataset(torch.randn(100, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(100, 1))
    engine = PrivacyEngine(accountant="gmip")
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=plain,
        optimizer=torch.optim.SGD(plain.parameters(), lr=0.05),
        data_loader=DataLoader(data, batch_size=10),
        target_epsilon=3.0,
        target_delta=1.0e-4,
        epochs=2,
        max_grad_norm=1.0,
    )
    for _ in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    assert len(engine.accountant) == 20
    assert 3.0 - 0.01 <= engine.get_epsilon(1.0e-4) <= 3.0  # Opacus' tolerance


def test_engine_that_loses_a_batch():
    # Opacus' Poisson loader has int(1/(1/93)) = 92 batches: it draws at 1/93 and records 1/92.
    run = Run(records=925, batch_size=10)
    run.epoch()
    assert run.loader.sample_rate == 1 / 93
    assert run.accountant.history == [(1.2, 1 / 92, 92)]
    # Taken at face value, that rate means more company in a batch than there was: too little for an exposed record.
    accountant = accountant_of([(0.0, 1 / 92, 1)])
    tpr = accountant.get_tradeoff(dataset_size=925, num_params=40).tpr_at(1.0e-5)
    exact = exact_curve(others=924 / 93, rate=1 / 93, noise=0.0, steps=1, susceptibility=40.0).tpr_at(1.0e-5)
    naive = exact_curve(others=924 / 92, rate=1 / 92, noise=0.0, steps=1, susceptibility=40.0).tpr_at(1.0e-5)
    assert naive < exact <= tpr


def test_engine_with_batches_of_fixed_size():
    # One sampler for the whole run, so that no batch comes twice; Opacus takes its length for an epoch.
    sampler = FixedSize(dataset_size=120, batch_size=30, num_steps=8, seed=3)
    run = Run(noise=0.0, poisson_sampling=False, sampler=sampler)
    run.optimizer.expected_batch_size = 30
    run.epoch()
    assert run.accountant.history == [(0.0, 1 / 8, 8)]
    assert run.engine.get_epsilon(1.0e-5) == math.inf
    mu = run.accountant.get_mu(dataset_size=120, batch_size=30, num_params=4, sampling="fixed")
    by_hand = gmip.NoisySGD(dataset_size=120, batch_size=30, num_steps=8, num_params=4)
    assert mu == pytest.approx(gmip.account(by_hand).equivalent_mu(), rel=1.0e-9)
