"""The accountant beside its peers: speed at equal error, and memory, as ratios measured in one run.

    python benchmarks/accounting.py [--quick] [--json]

Times are CPU seconds, the median of several interleaved rounds, with BLAS kept to one thread unless the environment
says otherwise. benchmarks/README.md tells how to read the tables.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from _harness import BLAS_THREADS, Row, one_blas_thread, race, report, table
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import ncx2

from gmip.accounting import noncentral_chi2
from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate
from gmip.vocabulary import NoisySGD

Array = NDArray[np.float64]

PROBLEMS = [(48_000, 400, 1_200), (100_000, 400, 10_000), (10_000, 1_000, 100)]  # dataset, expected batch, steps
ADVANTAGES = [0.05, 0.1, 0.3]
TOLERANCE = 1.0e-4
ACCOUNT = ("account", "--dataset-size", "48000", "--batch-size", "400", "--steps", "1200", "--params", "650")


def poisson_run(dataset: int, batch: int, steps: int, noise_multiplier: float = 0.0) -> NoisySGD:
    """A run whose differential privacy does not depend on the number of parameters."""
    run = NoisySGD(
        dataset_size=dataset, batch_size=batch, num_steps=steps, num_params=1, clip_norm=1.0, sampling="poisson"
    )
    return run.with_noise_multiplier(noise_multiplier)


# -- measuring --------------------------------------------------------------------------------------------------------


def peak_memory(work: Callable[[], Any]) -> int:
    """Bytes held at the worst moment, over those held before, as tracemalloc sees them (NumPy's arrays included)."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    work()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


# -- the exact answer -------------------------------------------------------------------------------------------------


def exact_deltas(noise_multiplier: float, rate: float, steps: int, epsilons: Sequence[float]) -> Array:
    """delta at each epsilon, the larger of "add" and "remove", with no grid of losses and no fast transform.

    For a loss S with moment generating function M, E[(1 - e^(eps - S))+] = 1/(2 pi i) times the integral of
    M(z) e^(-z eps) / (z (z + 1)) along Re z = 1. The integrands are analytic, so the trapezoidal rule is exact
    to rounding.
    """
    mu = 1.0 / noise_multiplier
    step = 0.02 / max(mu, 1.0)
    y = np.arange(-12.0, 12.0 + 3.0 * mu, step)
    weight = step * np.exp(-0.5 * y**2) / math.sqrt(2.0 * math.pi)  # P0 = N(0, 1), P1 = (1 - rate) P0 + rate N(mu, 1)
    loss = np.log1p(rate * np.expm1(mu * y - 0.5 * mu**2))

    def one_direction(sign: float, mass: Array) -> Array:
        spacing, size = 0.15, 256
        while True:
            z = 1.0 + 1.0j * spacing * np.arange(size)
            parts = np.array_split(z, size // 256)
            # M - 1, not M: what rounds off here is raised to the power `steps`
            log_moment = np.concatenate([np.log1p(np.expm1(sign * part[:, None] * loss) @ mass) for part in parts])
            if steps * float(log_moment[-1].real - log_moment[0].real) < -30.0:
                break
            size *= 2
        terms = np.exp(steps * log_moment - z * np.asarray(epsilons)[:, None]) / (z * (z + 1.0))
        terms[:, 0] *= 0.5
        return np.asarray(spacing / math.pi * terms.sum(axis=1).real, dtype=np.float64)

    return np.maximum(one_direction(1.0, weight * np.exp(loss)), one_direction(-1.0, weight))


def exact_noise_multiplier(advantage: float, rate: float, steps: int, guess: float) -> float:
    def excess(noise_multiplier: float) -> float:
        return float(exact_deltas(noise_multiplier, rate, steps, [0.0])[0]) - advantage

    return float(brentq(excess, 0.98 * guess, 1.02 * guess, xtol=1e-12, rtol=1e-10))


def epsilon_range(noise_multiplier: float, rate: float, steps: int) -> Array:
    """41 values of epsilon from 0 to where delta is about 1e-6."""
    high = 1.0
    while exact_deltas(noise_multiplier, rate, steps, [high])[0] > 1.0e-6:
        high *= 1.1
    return np.linspace(0.0, high, 41)


# -- 1. calibration ---------------------------------------------------------------------------------------------------


def calibration(quick: bool) -> list[Row]:
    from riskcal.calibration.dpsgd import find_noise_multiplier_for_advantage, get_advantage_for_dpsgd

    cases = [(*problem, advantage) for problem in PROBLEMS for advantage in ADVANTAGES]
    if quick:
        cases = [case for case in cases if case[-1] == 0.1]
    rows = []
    for dataset, batch, steps, advantage in cases:
        rate = batch / dataset
        ours = partial(calibrate, poisson_run(dataset, batch, steps), target_advantage=advantage, notion="gdp")
        theirs = partial(find_noise_multiplier_for_advantage, advantage, rate, steps)
        times, found = race({"gmip": ours, "riskcal": theirs}, 3 if quick else 5, budget=10.0)
        gmip, riskcal = float(found["gmip"].noise_multiplier), float(found["riskcal"])
        exact = exact_noise_multiplier(advantage, rate, steps, gmip)
        rows.append(
            {
                "rate": rate,
                "steps": steps,
                "advantage": advantage,
                "gmip": gmip,
                "riskcal": riskcal,
                "exact": exact,
                "difference": gmip / riskcal - 1.0,
                "gmip_off": gmip / exact - 1.0,
                "riskcal_off": riskcal / exact - 1.0,
                "riskcal_fine_advantage_at_gmip": get_advantage_for_dpsgd(gmip, rate, steps, grid_step=5.0e-5),
                "gmip_seconds": times["gmip"],
                "riskcal_seconds": times["riskcal"],
                "times_faster": times["riskcal"] / times["gmip"],
            }
        )
    return rows


# -- 2. composition ---------------------------------------------------------------------------------------------------

Deltas = Callable[[float], float]


def composed_by_gmip(noise_multiplier: float, dataset: int, batch: int, steps: int) -> Deltas:
    return account(poisson_run(dataset, batch, steps, noise_multiplier), notion="gdp").delta


def composed_by_dp_accounting(noise_multiplier: float, rate: float, steps: int, grid: float) -> Deltas:
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = pld.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=rate, value_discretization_interval=grid, use_connect_dots=True
    )
    composed = step.self_compose(steps)
    return lambda epsilon: float(composed.get_delta_for_epsilon(epsilon))


def composed_by_prv(noise_multiplier: float, rate: float, steps: int, eps_error: float) -> Deltas:
    """Its estimate, which is no bound: its bounds are apart by 2 eps_error in epsilon."""
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    step = PoissonSubsampledGaussianMechanism(noise_multiplier=noise_multiplier, sampling_probability=rate)
    accountant = PRVAccountant(step, eps_error=eps_error, delta_error=1.0e-9, max_self_compositions=steps)
    composed = accountant.compute_composition(steps)
    return lambda epsilon: float(composed.compute_delta_estimate(epsilon))


PEERS: dict[str, tuple[Callable[[float, float, int, float], Deltas], float]] = {  # and the coarsest setting tried
    "dp-accounting": (composed_by_dp_accounting, 1.0e-2),
    "prv-accountant": (composed_by_prv, 1.0),
}


def advantage_of(compose: Callable[..., Deltas], *arguments: float) -> float:
    return compose(*arguments)(0.0)


def worst_error(deltas: Deltas, epsilons: Array, exact: Array) -> float:
    return max(abs(deltas(float(e)) - float(d)) for e, d in zip(epsilons, exact, strict=True))


def coarsest_setting(
    peer: str, wanted: float, noise: float, rate: float, steps: int, epsilons: Array, exact: Array
) -> tuple[float, float]:
    """The coarsest setting (they are a factor of sqrt(2) apart) whose error is at most `wanted`, and that error.

    Where no setting reaches that, the one with the least error.
    """
    compose, setting = PEERS[peer]
    finest, tried = setting / 1000.0, [(math.inf, setting)]
    while tried[-1][0] > wanted and setting > finest:
        setting /= math.sqrt(2.0)
        tried.append((worst_error(compose(noise, rate, steps, setting), epsilons, exact), setting))
    reached, setting = min(tried)
    return setting, reached


def composition(quick: bool) -> list[Row]:
    rows = []
    for (dataset, batch, steps), noise in list(zip(PROBLEMS, (1.0, 1.0, 1.4), strict=True))[: 1 if quick else None]:
        rate = batch / dataset
        epsilons = epsilon_range(noise, rate, steps)
        exact = exact_deltas(noise, rate, steps, list(epsilons))
        gmip_error = worst_error(composed_by_gmip(noise, dataset, batch, steps), epsilons, exact)
        contestants: dict[str, Callable[[], Any]] = {
            "gmip": partial(advantage_of, composed_by_gmip, noise, dataset, batch, steps)
        }
        tuned: list[tuple[str, str, float, float]] = []
        for peer, (compose, _) in PEERS.items():
            for asked, wanted in (("gmip's", gmip_error), (f"{TOLERANCE:g}", TOLERANCE)):
                setting, reached = coarsest_setting(peer, wanted, noise, rate, steps, epsilons, exact)
                contestants[peer + asked] = partial(advantage_of, compose, noise, rate, steps, setting)
                tuned.append((peer, asked, setting, reached))
        times, _ = race(contestants, 5 if quick else 11, budget=10.0)
        rows += [
            {
                "rate": rate,
                "steps": steps,
                "noise_multiplier": noise,
                "exact_advantage": float(exact[0]),
                "peer": peer,
                "error_asked": asked,
                "peer_setting": setting,
                "gmip_error": gmip_error,
                "peer_error": reached,
                "gmip_seconds": times["gmip"],
                "peer_seconds": times[peer + asked],
                "times_faster": times[peer + asked] / times["gmip"],
            }
            for peer, asked, setting, reached in tuned
        ]
    return rows


# -- 3. the non-central chi-squared distribution ----------------------------------------------------------------------


def exact_log_cdf(x: float, df: int, nc: float) -> float:
    """By the Poisson mixture of central distributions, in 40 digits."""
    import mpmath as mp

    with mp.workdps(40):
        half, rate = mp.mpf(x) / 2, mp.mpf(nc) / 2
        spread = 14 * math.sqrt(nc / 2)
        first, last = max(0, int(nc / 2 - 2 * spread)), int(nc / 2 + spread)
        shape = mp.mpf(df) / 2 + last
        central = mp.gammainc(shape, 0, half, regularized=True)
        term = mp.exp(shape * mp.log(half) - half - mp.loggamma(shape + 1))  # P(a, h) - P(a + 1, h)
        poisson = mp.exp(last * mp.log(rate) - rate - mp.loggamma(last + 1))
        total = mp.mpf(0)
        for j in range(last, first - 1, -1):
            total += poisson * central
            poisson *= j / rate
            term *= shape / half
            shape -= 1
            central += term
        return float(mp.log(total))


def chi_squared(quick: bool) -> Row:
    df, nc = 650, 3.25e5
    mean, std = df + nc, math.sqrt(2 * (df + 2 * nc))
    x = np.linspace(mean - 6 * std, mean + 6 * std, 10_000 if quick else 100_000)
    times, _ = race(
        {"gmip": lambda: noncentral_chi2.log_cdf(x, df, nc), "scipy": lambda: ncx2.logcdf(x, df, nc)}, 3, budget=30.0
    )
    checked = [mean + score * std for score in (-6.0, -4.0, -2.0, -0.5, 0.0, 1.0, 3.0)]
    exact = np.array([exact_log_cdf(value, df, nc) for value in checked])
    # In the logarithm, that is relative in the probability.
    return {
        "points": x.size,
        "df": df,
        "nc": nc,
        "gmip_seconds": times["gmip"],
        "scipy_seconds": times["scipy"],
        "times_faster": times["scipy"] / times["gmip"],
        "gmip_error": float(np.max(np.abs(noncentral_chi2.log_cdf(checked, df, nc) - exact))),
        "scipy_error": float(np.max(np.abs(ncx2.logcdf(checked, df, nc) - exact))),
    }


# -- 4. memory --------------------------------------------------------------------------------------------------------


def memory(quick: bool) -> list[Row]:
    """Runs of about the same exposure: noise multiplier 1 and a rate of 0.5/sqrt(steps)."""
    rows = []
    for steps in (100, 10_000) if quick else (100, 10_000, 1_000_000):
        dataset = 1_000_000
        batch = round(0.5 / math.sqrt(steps) * dataset)
        rate = batch / dataset
        exact = exact_deltas(1.0, rate, steps, [0.0])
        ours = partial(advantage_of, composed_by_gmip, 1.0, dataset, batch, steps)
        gmip_error, gmip_bytes = abs(ours() - float(exact[0])), peak_memory(ours)
        like, _ = coarsest_setting("dp-accounting", gmip_error, 1.0, rate, steps, np.zeros(1), exact)
        for grid in (1.0e-4, like):
            theirs = partial(advantage_of, composed_by_dp_accounting, 1.0, rate, steps, grid)
            times, found = race({"gmip": ours, "peer": theirs}, 5, budget=10.0)
            peer_bytes = peak_memory(theirs)
            rows.append(
                {
                    "rate": rate,
                    "steps": steps,
                    "exact_advantage": float(exact[0]),
                    "gmip_error": gmip_error,
                    "gmip_bytes": gmip_bytes,
                    "gmip_seconds": times["gmip"],
                    "peer_setting": grid,
                    "peer_error": abs(found["peer"] - float(exact[0])),
                    "peer_bytes": peer_bytes,
                    "peer_seconds": times["peer"],
                    "times_less": peer_bytes / gmip_bytes,
                    "times_faster": times["peer"] / times["gmip"],
                }
            )
    return rows


# -- 5. the command line ----------------------------------------------------------------------------------------------


def command_line(quick: bool) -> list[Row]:
    """Processes from start to end, the least of several: `gmip account` against the imports that it cannot do without.

    Compiled modules are cached in a folder of their own, which a first, unmeasured round fills.
    """
    commands = {
        "imports": [sys.executable, "-c", "import numpy, scipy.special"],
        "account": [sys.executable, "-m", "gmip", *ACCOUNT],
        "account --json": [sys.executable, "-m", "gmip", *ACCOUNT, "--json"],
    }
    least = dict.fromkeys(commands, (math.inf, math.inf))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for turn in range(6 if quick else 16):
            for name, command in commands.items():
                before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
                after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                if turn:
                    least[name] = (min(least[name][0], cpu), min(least[name][1], wall))
    return [
        {
            "command": name,
            "cpu_seconds": cpu,
            "wall_seconds": wall,
            "cpu_ratio": cpu / least["imports"][0],
            "wall_ratio": wall / least["imports"][1],
        }
        for name, (cpu, wall) in least.items()
    ]


# -- 5. shuffled epochs -----------------------------------------------------------------------------------------------


def shuffled_run(mu: float, batches: int, epochs: int) -> NoisySGD:
    """A run in which a batch that holds the record is shifted by mu, if the attacker knows all others."""
    return NoisySGD(
        dataset_size=batches,
        batch_size=1,
        num_steps=batches * epochs,
        num_params=1,
        clip_norm=1.0,
        sampling="shuffled",
    ).with_noise_multiplier(2.0 / mu)


def simulated_tpr(mu: float, batches: int, epochs: int, games: int, fpr: float, seed: int = 0) -> float:
    """TPR at `fpr` of the optimal test, from `games` runs without and with the record."""
    rng = np.random.default_rng(seed)
    scores = []
    for member in (False, True):
        total = np.zeros(games)
        for _ in range(epochs):
            x = rng.standard_normal((games, batches))
            if member:
                x[:, 0] += mu  # any batch: they are alike
            total += np.log(np.mean(np.exp(mu * x - 0.5 * mu * mu), axis=1))
        scores.append(total)
    return float(np.mean(scores[1] > np.quantile(scores[0], 1.0 - fpr)))


def shuffled(quick: bool) -> list[Row]:
    """The time of a simulation is taken with few games and grows in proportion to them."""
    rows = []
    games = 4_000
    cases = [(1.27475, 120, 10), (3.0, 20, 5), (0.5, 10, 20)]
    for mu, batches, epochs in cases[: 1 if quick else None]:
        run = shuffled_run(mu, batches, epochs)
        curve = account(run, attacker_knows=1.0)
        for fpr in (0.01, 0.1):
            tpr, step = float(curve.tpr_at(fpr)), 0.05 * fpr
            slope = float(curve.tpr_at(fpr + step) - curve.tpr_at(fpr - step)) / (2.0 * step)
            variance = tpr * (1.0 - tpr) + slope**2 * fpr * (1.0 - fpr)  # of one game: members, and the threshold
            wanted = variance / curve.tpr_error**2
            times, found = race(
                {
                    "gmip": lambda run=run, fpr=fpr: account(run, attacker_knows=1.0).tpr_at(fpr),
                    "games": partial(simulated_tpr, mu, batches, epochs, games, fpr),
                },
                3 if quick else 7,
                budget=10.0,
            )
            rows.append(
                {
                    "mu": mu,
                    "batches": batches,
                    "epochs": epochs,
                    "fpr": fpr,
                    "gmip": tpr,
                    "gmip_error": curve.tpr_error,
                    "gmip_seconds": times["gmip"],
                    "simulated": float(found["games"]),
                    "games_wanted": wanted,
                    "games_seconds": times["games"] * wanted / games,
                    "times_faster": times["games"] * wanted / games / times["gmip"],
                }
            )
    return rows


# -- other risks ------------------------------------------------------------------------------------------------------


def other_risks(quick: bool) -> list[Row]:
    """How often a secret is guessed, given a blind guess: riskcal's curve covers both directions, gmip's the one that
    counts."""
    from riskcal.dpsgd import get_beta_for_dpsgd

    rows = []
    for dataset, batch, steps in PROBLEMS[: 2 if quick else None]:
        run = poisson_run(dataset, batch, steps, 1.0)
        for baseline in (0.001, 0.1, 0.5):
            times, found = race(
                {
                    "gmip": lambda run=run, b=baseline: account(run, notion="gdp").risk(b),
                    "gmip_both": lambda run=run, b=baseline: account(run, notion="gdp").tpr_at(b),
                    "riskcal": lambda run=run, b=baseline: (
                        1.0 - float(get_beta_for_dpsgd(1.0, run.sample_rate, run.num_steps, b))
                    ),
                },
                3,
                budget=10.0,
            )
            rows.append(
                {
                    "rate": run.sample_rate,
                    "steps": steps,
                    "baseline": baseline,
                    **found,
                    "difference": found["gmip_both"] / found["riskcal"] - 1.0,
                    "gmip_seconds": times["gmip"],
                    "riskcal_seconds": times["riskcal"],
                    "times_faster": times["riskcal"] / times["gmip"],
                }
            )
    return rows


# -- persons and bins -------------------------------------------------------------------------------------------------


def persons_by_dp_accounting(rows: int, rate: float, steps: int, delta: float) -> float:
    """The epsilon of a person with that many rows: both directions, noise multiplier 1, a grid of 1e-3."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from scipy.stats import binom

    counts = np.arange(rows + 1)
    step = pld.from_mixture_gaussian_mechanism(
        standard_deviation=1.0,
        sensitivities=counts.tolist(),
        sampling_probs=binom.pmf(counts, rows, rate).tolist(),
        value_discretization_interval=1.0e-3,  # 1e-4 takes minutes
    )
    return float(step.self_compose(steps).get_epsilon_for_delta(delta))


def persons(quick: bool) -> list[Row]:
    """Persons with several rows, Poisson batches: the same pair of mixtures in dp-accounting."""
    rows = []
    for most in (2,) if quick else (2, 5):
        run = poisson_run(10_000, 100, 1_000, 1.0).replace(rows_per_person=most)
        times, found = race(
            {
                "gmip": lambda run=run: account(run, notion="gdp").epsilon(1e-5),
                "dp_accounting": partial(persons_by_dp_accounting, most, run.sample_rate, run.num_steps, 1e-5),
            },
            3,
            budget=10.0,
        )
        rows.append(
            {
                "rows_per_person": most,
                **found,
                "difference": found["gmip"] / found["dp_accounting"] - 1.0,
                "gmip_seconds": times["gmip"],
                "dp_accounting_seconds": times["dp_accounting"],
                "times_faster": times["dp_accounting"] / times["gmip"],
            }
        )
    return rows


def bins(quick: bool) -> list[Row]:
    """Epochs by balls in bins beside Poisson batches of the same rate and noise, by dp-accounting, which has no
    bins."""
    rows = []
    for shift, number, epochs in [(1.0, 20, 3), (1.0, 100, 10), (2.0, 100, 1)][: 1 if quick else None]:
        run = poisson_run(100 * number, 100, number * epochs, 1.0 / shift).replace(sampling="balls-in-bins")
        times, found = race(
            {
                "gmip": lambda run=run: account(run, notion="gdp").epsilon(1e-5),
                "poisson": partial(poisson_by_dp_accounting, 1.0 / shift, 1.0 / number, number * epochs, 1e-5),
            },
            3,
            budget=10.0,
        )
        rows.append(
            {
                "shift": shift,
                "bins": number,
                "epochs": epochs,
                **found,
                "gmip_seconds": times["gmip"],
                "poisson_seconds": times["poisson"],
                "times_as_long": times["gmip"] / times["poisson"],
            }
        )
    return rows


def poisson_by_dp_accounting(noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = pld.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=rate, value_discretization_interval=TOLERANCE, use_connect_dots=True
    )
    return float(step.self_compose(steps).get_epsilon_for_delta(delta))


# -- showing ----------------------------------------------------------------------------------------------------------


def show(results: Row) -> None:
    table(
        "1. Noise multiplier for an advantage, Poisson batches, riskcal as it comes (aim: 20 times faster, within 1%)",
        {
            "rate": "rate|.4g",
            "steps": "steps|d",
            "advantage": "advantage|g",
            "gmip": "gmip|.5f",
            "riskcal": "riskcal|.5f",
            "difference": "gmip/riskcal-1|+.1e",
            "gmip_off": "gmip/exact-1|+.1e",
            "riskcal_off": "riskcal/exact-1|+.1e",
            "riskcal_fine_advantage_at_gmip": "of gmip's, by riskcal at 5e-5|.6f",
            "gmip_seconds": "gmip s|.3f",
            "riskcal_seconds": "riskcal s|.2f",
            "times_faster": "times faster|.0f",
        },
        results["calibration"],
    )
    table(
        "2. Composition: worst error in delta over epsilon >= 0, each peer as coarse as the error asked for allows",
        {
            "rate": "rate|.4g",
            "steps": "steps|d",
            "noise_multiplier": "noise|g",
            "gmip_error": "gmip error|.1e",
            "gmip_seconds": "gmip s|.4f",
            "peer": "peer|s",
            "error_asked": "error asked|s",
            "peer_setting": "its setting|.1e",
            "peer_error": "its error|.1e",
            "peer_seconds": "its s|.4f",
            "times_faster": "times faster|.1f",
        },
        results["composition"],
    )
    table(
        "3. log CDF of the non-central chi-squared distribution, mean +- 6 standard deviations (aim: 50 times faster)",
        {
            "points": "points|d",
            "df": "df|d",
            "nc": "nc|g",
            "gmip_seconds": "gmip s|.3f",
            "scipy_seconds": "scipy s|.3f",
            "times_faster": "times faster|.0f",
            "gmip_error": "gmip error|.1e",
            "scipy_error": "scipy error|.1e",
        },
        [results["chi_squared"]],
    )
    table(
        "4. Peak memory of a composed advantage: dp-accounting at its default grid, then at gmip's error or nearest",
        {
            "rate": "rate|.4g",
            "steps": "steps|d",
            "gmip_error": "gmip error|.1e",
            "gmip_bytes": "gmip bytes|,d",
            "peer_setting": "its grid|.1e",
            "peer_error": "its error|.1e",
            "peer_bytes": "its bytes|,d",
            "times_less": "times less|.1f",
            "times_faster": "times faster|.1f",
        },
        results["memory"],
    )
    table(
        "5. Shuffled epochs: TPR, against a simulation with as many games as make its standard error gmip's error",
        {
            "mu": "mu|g",
            "batches": "batches|d",
            "epochs": "epochs|d",
            "fpr": "FPR|g",
            "gmip": "gmip|.5f",
            "gmip_error": "gmip error|.1e",
            "gmip_seconds": "gmip s|.3f",
            "simulated": "4,000 games|.4f",
            "games_wanted": "games wanted|.1e",
            "games_seconds": "their s|.0f",
            "times_faster": "times faster|.0f",
        },
        results["shuffled"],
    )

    table(
        "6. gmip account from start to end, against import numpy, scipy.special (aim: at most 2)",
        {
            "command": "command|s",
            "cpu_seconds": "CPU s|.3f",
            "wall_seconds": "wall s|.3f",
            "cpu_ratio": "CPU ratio|.2f",
            "wall_ratio": "wall ratio|.2f",
        },
        results["command_line"],
    )
    table(
        "7. A secret guessed, given the blind guess: noise multiplier 1, Poisson batches (aim: riskcal's, or less)",
        {
            "rate": "rate|.4g",
            "steps": "steps|d",
            "baseline": "blind|g",
            "gmip": "gmip|.5f",
            "gmip_both": "both directions|.5f",
            "riskcal": "riskcal|.5f",
            "difference": "both/riskcal-1|+.1e",
            "gmip_seconds": "gmip s|.3f",
            "riskcal_seconds": "riskcal s|.3f",
            "times_faster": "times faster|.0f",
        },
        results["other_risks"],
    )
    table(
        "8. Epsilon at 1e-5 of persons with several rows: rate .01, 1,000 steps, noise multiplier 1 (aim: the same)",
        {
            "rows_per_person": "rows|d",
            "gmip": "gmip|.5f",
            "dp_accounting": "dp-accounting|.5f",
            "difference": "gmip/theirs-1|+.1e",
            "gmip_seconds": "gmip s|.3f",
            "dp_accounting_seconds": "dp-accounting s|.3f",
            "times_faster": "times faster|.1f",
        },
        results["persons"],
    )
    table(
        "9. Epsilon at 1e-5 of epochs by balls in bins, and of Poisson batches with the same rate and noise",
        {
            "shift": "C/(n tau)|g",
            "bins": "bins|d",
            "epochs": "epochs|d",
            "gmip": "balls in bins, gmip|.4f",
            "poisson": "Poisson, dp-accounting|.4f",
            "gmip_seconds": "gmip s|.3f",
            "poisson_seconds": "dp-accounting s|.3f",
            "times_as_long": "times as long|.1f",
        },
        results["bins"],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="gmip's accountant beside its peers, as ratios.")
    parser.add_argument("--quick", action="store_true", help="fewer problems and rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(arguments)
    try:
        report(
            [
                partial(part, options.quick)
                for part in (
                    calibration,
                    composition,
                    chi_squared,
                    memory,
                    command_line,
                    shuffled,
                    other_risks,
                    persons,
                    bins,
                )
            ],
            show,
            packages=("numpy", "scipy", "riskcal", "dp-accounting", "prv-accountant", "mpmath"),
            setting={"BLAS threads": os.environ.get(BLAS_THREADS[0])},
            as_json=options.json,
        )
    except ImportError as missing:
        sys.exit(f"{missing.name} is not installed: pip install -e '.[dev,bench]', or run make bench.")


if __name__ == "__main__":
    one_blas_thread()
    main()
