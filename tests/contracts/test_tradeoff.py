"""The trade-off contract, applied to every family and to what `account` returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest

from gmip.accounting.account import account
from gmip.accounting.composition import Maximum, compose, stochastic_composition
from gmip.accounting.families import EpsilonDelta, Gaussian, PiecewiseLinear
from gmip.accounting.gaussian_pair import ChiSquared, GaussianPair
from gmip.accounting.tradeoff import Symmetrised, TradeOff
from gmip.vocabulary import NoisySGD
from tests.contracts.tradeoff import RATES, OrderContract, TradeOffContract
from tests.spectral import spectral_step


def roc() -> PiecewiseLinear:
    rng = np.random.default_rng(7)
    return PiecewiseLinear.from_roc(rng.normal(0.8, 1.3, 200), rng.normal(0.0, 1.0, 300))


def mixed_pair() -> GaussianPair:
    return GaussianPair(drop=[0.0, 0.01, 0.2], shift=[0.7, 0.4, 0.5], multiplicity=[1, 30, 2])


def spectral(noise_std: float) -> TradeOff:
    rng = np.random.default_rng(11)
    eigenvalues = np.arange(1, 13, dtype=float) ** -1.5
    return spectral_step(eigenvalues, rng.normal(size=12) * np.sqrt(eigenvalues), batch_size=10, noise_std=noise_std)


Factory = Callable[[], TradeOff]


CURVES: dict[str, Factory] = {
    **{f"gaussian-{mu}": partial(Gaussian, mu) for mu in (0, 1, 8, math.inf)},
    **{
        f"eps-{eps}-delta-{delta}": partial(EpsilonDelta, eps, delta)
        for eps, delta in [(0, 0), (0, 0.1), (1, 0), (0.3, 0.2), (30, 0), (2, 1)]
    },
    "polygon": lambda: PiecewiseLinear([0.1, 0.3, 0.35], [0.5, 0.2, 0.6]),
    "polygon-with-jumps": lambda: PiecewiseLinear([0.0, 0.2, 0.7], [0.8, 0.3, 0.0]),
    "polygon-of-no-points": lambda: PiecewiseLinear([], []),
    "roc": roc,
    "pair-shift-only": lambda: GaussianPair(drop=[0.0], shift=[1.5], multiplicity=[3]),
    "pair-nothing": lambda: GaussianPair(drop=[0.0], shift=[0.0], multiplicity=[4]),
    "subsampled-gaussian": lambda: Gaussian(2.0).subsample(0.1),
    "subsampled-polygon": lambda: roc().subsample(0.3),
    "c-p": lambda: Symmetrised(Gaussian(2.0).subsample(0.1)),
    "symmetrised-polygon": lambda: roc().symmetrise(),
    "inverse-subsampled": lambda: Gaussian(2.0).subsample(0.1).inverse(),
    "inverse-polygon": lambda: PiecewiseLinear([0.0, 0.2, 0.7], [0.8, 0.3, 0.0]).inverse(),
    **{f"composed-{times}": partial(Gaussian(1.14).subsample(0.01).compose, times) for times in (1, 1200)},
    "composed-c-p": lambda: Gaussian(1.0).subsample(0.05).symmetrise().compose(50),
    "composed-polygon": lambda: EpsilonDelta(0.3, 1e-3).compose(10),
    "composed-perfect": lambda: Gaussian(math.inf).subsample(0.2).compose(3),
    "composed-unlike": lambda: compose(
        [
            (Gaussian(1.0).subsample(0.1), 20),
            (ChiSquared(dimension=20, susceptibility=30, batch_size=10).subsample(0.2), 5),
            (Gaussian(0.3), 4),
        ]
    ),
    "composed-inverse": lambda: Gaussian(1.0).subsample(0.1).compose(30).inverse(),
    "stochastic": lambda: stochastic_composition(
        [
            Gaussian(0.3),
            Gaussian(1.0).subsample(0.3).compose(5),
            ChiSquared(dimension=2, susceptibility=3, batch_size=5),
        ],
        [0.5, 0.3, 0.2],
    ),
    "stochastic-with-a-lost-record": lambda: stochastic_composition([Gaussian(0.5), Gaussian(math.inf)], [0.9, 0.1]),
}

RUNS = {
    "fixed": NoisySGD(dataset_size=60, batch_size=20, num_steps=12, num_params=10, clip_norm=1.0, noise_std=0.05),
    "poisson": NoisySGD(
        dataset_size=60, batch_size=20, num_steps=12, num_params=10, clip_norm=1.0, noise_std=0.05, sampling="poisson"
    ),
    "full": NoisySGD(
        dataset_size=60, batch_size=60, num_steps=5, num_params=10, clip_norm=1.0, noise_std=0.02, sampling="full"
    ),
}

# A point of these is a quadrature for each turn of a search: they are looked at in fewer places.
COSTLY: dict[str, Factory] = {
    "chi2-cifar": lambda: ChiSquared(dimension=650, susceptibility=650, batch_size=500),
    "chi2-small": lambda: ChiSquared(dimension=2, susceptibility=3, batch_size=5),
    "chi2-one": lambda: ChiSquared(dimension=1, susceptibility=2.5, batch_size=4),
    "subsampled-chi2": lambda: ChiSquared(dimension=2, susceptibility=3, batch_size=5).subsample(0.4),
    "pair-mixed": mixed_pair,
    "pair-drop-only": lambda: GaussianPair(drop=[0.3], shift=[0.0], multiplicity=[8]),
    "spectral": lambda: spectral(0.1),
    "full-tight-exact-gmip": lambda: account(RUNS["full"]),
}

# One for each way to a curve, not one for each mixture of options: the families above are what they are made of.
ACCOUNTS: dict[str, Factory] = {
    "fixed": lambda: account(RUNS["fixed"]),
    "poisson": lambda: account(RUNS["poisson"]),
    "poisson-clt": lambda: account(RUNS["poisson"], composition="clt"),
    "fixed-paper": lambda: account(RUNS["fixed"], bound="paper"),
    "full-paper-clt": lambda: account(RUNS["full"], bound="paper", composition="clt"),
    "poisson-gdp": lambda: account(RUNS["poisson"], notion="gdp"),
    "full-gdp": lambda: account(RUNS["full"], notion="gdp"),
    "fixed-gdp-clt": lambda: account(RUNS["fixed"], notion="gdp", composition="clt"),
    "noise-free": lambda: account(RUNS["fixed"].replace(noise_std=0.0)),
    "noise-free-gdp": lambda: account(RUNS["fixed"].replace(noise_std=0.0), notion="gdp"),
    "schedule": lambda: account([RUNS["fixed"], RUNS["full"]]),
    "schedule-gdp": lambda: account([RUNS["fixed"], RUNS["fixed"].replace(batch_size=30)], notion="gdp"),
    "measured": lambda: account(RUNS["fixed"], susceptibility=[2.0, 5.0, 40.0]),
    "measured-clt": lambda: account(RUNS["full"], susceptibility=[2.0, 5.0, 40.0], composition="clt", bound="paper"),
}

# Curves that cross: at each rate the higher one holds, and the delta of the pair is bounded, not found.
MAXIMA: dict[str, Factory] = {
    "maximum": lambda: Maximum([Gaussian(1.0), Gaussian(2.0).subsample(0.5)]),
    "maximum-of-one": lambda: Maximum([Gaussian(1.0).subsample(0.5)]),
    "maximum-composed": lambda: Maximum([Gaussian(1.0).subsample(0.1).compose(100), EpsilonDelta(1.0, 0.01)]),
}

every = cache(lambda name: {**CURVES, **COSTLY, **ACCOUNTS, **MAXIMA}[name]())


def remembered(curve: TradeOff) -> TradeOff:
    """The same curve, which does not work out the same rates twice."""
    if "_log_fnr" not in vars(curve):
        work, known = curve._log_fnr, dict[bytes, np.ndarray]()

        def log_fnr(fpr: np.ndarray) -> np.ndarray:
            key = fpr.tobytes()
            if key not in known or known[key].shape != fpr.shape:
                known[key] = work(fpr)
            return known[key].copy()

        setattr(curve, "_log_fnr", log_fnr)  # noqa: B010
    return curve


class TestFamilies(TradeOffContract, OrderContract):
    @pytest.fixture(params=CURVES)
    def curve(self, request: pytest.FixtureRequest) -> TradeOff:
        return every(request.param)


class TestCostlyFamilies(TradeOffContract):
    rates = np.concatenate([RATES[:2], RATES[2:-1:8], [1.0]])
    epsilons = np.array([-1.0, 0.0, 0.5, 3.0])
    area_points = 201

    @pytest.fixture(
        params=[
            pytest.param(name, marks=pytest.mark.slow) if name in ("pair-drop-only", "spectral") else name
            for name in COSTLY
        ]
    )
    def curve(self, request: pytest.FixtureRequest) -> TradeOff:
        return remembered(every(request.param))


@pytest.mark.slow
class TestCostlyOrder(OrderContract):
    rates = np.array([0.0, 1.0e-6, 0.01, 0.1, 0.5, 0.9, 0.999, 1.0])

    @pytest.fixture(params=["chi2-small"])
    def curve(self, request: pytest.FixtureRequest) -> TradeOff:
        return every(request.param)


class TestAccounts(TradeOffContract, OrderContract):
    @pytest.fixture(params=ACCOUNTS)
    def curve(self, request: pytest.FixtureRequest) -> TradeOff:
        return every(request.param)


class TestMaxima(TradeOffContract, OrderContract):
    delta_is_tight = False

    @pytest.fixture(params=MAXIMA)
    def curve(self, request: pytest.FixtureRequest) -> TradeOff:
        return every(request.param)
