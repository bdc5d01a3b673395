"""Canaries against DP-SGD of a known epsilon: the table of docs/evidence/audits.md.

    python benchmarks/canaries.py [--seeds 5] [--canaries 1000]
    python benchmarks/canaries.py --sound 25    # only: how many of so many sound runs (a smaller network) are accused
    python benchmarks/canaries.py --live 40     # only: how many of so many runs of 50 steps the test of the noise stops

A network of 76,810 parameters is trained on digits by DP-SGD (Poisson batches, a tenth of 1,000 records in each of 100
steps) at epsilon 1, 4 and 8 for delta = 1e-5, as dp-accounting has it for adding or removing a record; once more with
half the noise that epsilon 4 needs. 1,000 direction canaries take part. Lower bounds on epsilon at 95% confidence from
the same scores, means over the seeds:

    here          mu by ranks ("auto"), then epsilon of that Gaussian curve
    no shape      epsilon by ranks, for any curve
    f-DP, 1 run   guesses, analysed by f-DP of Gaussian curves (Mahloujifar, Melis and Chaudhuri 2024)
    eps, 1 run    guesses, analysed by (epsilon, delta) (Steinke, Nasr and Jagielski 2023, Theorem 5.2)
    pairs         epsilon, by dp-accounting, of the largest noise that all directions of all steps leave possible: each
                  step is a pair of Gaussians whose standard deviation is measured (as arXiv 2606.12733 takes them)
    Gaussian fit  epsilon of the two groups' fitted means (Andrew et al. 2023): an estimate, no bound

"accused": in how many of the runs the audit refutes the trade-off curve of the declared noise (dp-accounting's).
"records" is the rank bound of 400 mislabelled records as canaries, scored by the final model's loss.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
import warnings
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
import torch
from _harness import Row, one_blas_thread, table
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.optimize import brentq
from scipy.stats import binom
from torch import nn

from gmip.accounting.convert import epsilon_from_mu
from gmip.accounting.families import PiecewiseLinear
from gmip.canaries import DirectionCanaries, RecordCanaries
from gmip.errors import GmipWarning
from gmip.stats.bounds import claim_p_value, epsilon_lower_bound, mu_lower_bound
from gmip.stats.intervals import RunScores
from gmip.tasks import Task, load
from gmip.training import train
from gmip.vocabulary import Recipe

DELTA = 1.0e-5
SIZE, BATCH, STEPS = 1000, 100, 100
SETTINGS = {"epsilon 1": (1.0, 1.0), "epsilon 4": (4.0, 1.0), "epsilon 8": (8.0, 1.0), "4, half the noise": (4.0, 0.5)}


def network(width: int = 1024) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def losses(noise: float) -> Any:
    """The privacy loss of the run with this noise multiplier, for adding or removing a record."""
    one = from_gaussian_mechanism(noise, sampling_prob=BATCH / SIZE, value_discretization_interval=1.0e-3)
    return one.self_compose(STEPS)


def multiplier(epsilon: float) -> float:
    """The least noise multiplier with which the run is (epsilon, delta)-differentially private."""
    return float(brentq(lambda noise: losses(noise).get_epsilon_for_delta(DELTA) - epsilon, 0.4, 20.0, xtol=1.0e-3))


def by_epsilon(scores: Any, inside: Any, *, error: float = 0.05) -> float:
    """Steinke et al.: the least epsilon at which so many right guesses (5% at either end) are not too unlikely."""
    order, count = np.argsort(scores), len(scores)
    side = max(25, round(0.05 * count))
    right = int(np.count_nonzero(inside[order[-side:]]) + np.count_nonzero(~inside[order[:side]]))

    def p_value(epsilon: float) -> float:
        chance = 1.0 / (1.0 + math.exp(-epsilon))
        tail = float(binom.sf(right - 1, 2 * side, chance))
        below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), 2 * side, chance))
        return tail + 2.0 * count * DELTA * float(np.max(below / np.arange(1, right + 1), initial=0.0))

    low, high = 0.0, 20.0
    if p_value(low) > error:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= error else (low, middle)
    return low


def as_epsilon(mu: float) -> float:
    return float(epsilon_from_mu(mu, delta=DELTA)) if mu > 0.0 else 0.0


def dp_sgd(task: Task, noise: float) -> Recipe:
    return task.recipe.replace(
        dataset_size=SIZE,
        batch_size=BATCH,
        num_steps=STEPS,
        sampling="poisson",
        clip_norm=1.0,
        noise_std=noise / BATCH,
        learning_rate=1.0,
        optimizer="SGD",
    )


def sound(task: Task, count: int, canaries: int) -> None:
    """How many sound runs are accused."""
    task = dataclasses.replace(task, make_model=partial(network, 256))
    for epsilon in (1.0, 4.0):
        noise = multiplier(epsilon)
        curve, chances = PiecewiseLinear.from_dp_accounting(losses(noise)), []
        for seed in range(20, 20 + count):
            planted = DirectionCanaries(canaries, seed=5000 + seed)
            train(task, dp_sgd(task, noise), seed=seed, canaries=planted)
            scores, inside = planted.scores, planted.inside
            chances.append(claim_p_value(RunScores(scores[inside], scores[~inside]), curve))
        accused = sum(chance <= 0.05 for chance in chances)
        print(f"epsilon {epsilon:g}: {accused} of {count} sound runs accused", flush=True)


def live(task: Task, count: int, canaries: int) -> None:
    """How many runs of 50 steps the test of the noise stops, and when; and what taking part costs."""
    task = dataclasses.replace(task, make_model=partial(network, 256))
    rows: list[Row] = []
    declared = multiplier(4.0)
    for share in (1.0, 0.95, 0.9, 0.5):
        stopped = []
        for seed in range(count):
            planted = DirectionCanaries(canaries, seed=7000 + seed)
            # The loop declares one noise and adds another.
            trained_with(task, planted, share * declared, declared, seed)
            stopped.append(planted.noise.refuted_at)
        found = [at for at in stopped if at is not None]
        at = "" if not found else f"{np.median(found):.0f} ({min(found)} to {max(found)})"
        rows.append({"noise": share, "stopped": f"{len(found)} of {count}", "at": at})
    table(
        f"Noise tested while training runs, {canaries} canaries",
        {"noise": "noise, of the declared|.2f", "stopped": "stopped|s", "at": "at step|s"},
        rows,
    )
    for width in (256, 1024):
        one = dataclasses.replace(task, make_model=partial(network, width))
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for seed in range(5):
            for planted in (None, DirectionCanaries(canaries, seed=seed)):
                began = time.process_time()
                train(one, dp_sgd(one, declared).replace(num_steps=50), seed=seed, canaries=planted)
                seconds[planted is not None].append(time.process_time() - began)
        ratio = np.median(np.array(seconds[True]) / np.array(seconds[False]))
        print(f"{width} hidden units: CPU time with canaries to without {ratio:.2f}")


def trained_with(task: Task, planted: DirectionCanaries, noise: float, declared: float, seed: int) -> None:
    """Trains with `noise` under canaries that are told of `declared`."""
    attached = planted.attached
    planted.attached = partial(attached, noise_multiplier=declared)  # type: ignore[method-assign]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)
        train(task, dp_sgd(task, noise).replace(num_steps=50), seed=seed, canaries=planted)


def run(task: Task, epsilon: float, share: float, count: int, seed: int) -> Row:
    claimed = multiplier(epsilon)
    noise = share * claimed
    recipe = dp_sgd(task, noise)
    canaries = DirectionCanaries(count, seed=1000 + seed)
    trained = train(task, recipe, seed=seed, canaries=canaries)
    scores, inside = canaries.scores, canaries.inside
    groups = RunScores(scores[inside], scores[~inside])
    curve = PiecewiseLinear.from_dp_accounting(losses(claimed))
    spread = math.sqrt((scores[inside].var() + scores[~inside].var()) / 2)
    row: Row = {
        "multiplier": noise,
        "accuracy": trained.test_accuracy,
        "here": as_epsilon(mu_lower_bound(groups)),
        "no_shape": epsilon_lower_bound(groups, delta=DELTA),
        "one_run": as_epsilon(mu_lower_bound(groups, method="one-run")),
        "steinke": by_epsilon(scores, inside),
        "pairs": losses(canaries.noise.share_upper() * noise).get_epsilon_for_delta(DELTA),
        "andrew": as_epsilon(max(0.0, float(scores[inside].mean() - scores[~inside].mean()) / spread)),
        "accused": float(canaries.audit(claim=curve).runs[0].verdict.kind == "exposed"),
    }
    spare = task.pool[trained.split.unused[:400]]
    records = RecordCanaries(spare, seed=1000 + seed)
    planted = records.planted(dataclasses.replace(task, recipe=recipe.replace(dataset_size=SIZE - 200)))
    model = train(planted, planted.recipe.replace(dataset_size=SIZE - 200 + int(records.inside.sum())), seed=seed).model
    found = records.scores(model)
    row["records"] = as_epsilon(mu_lower_bound(RunScores(found[records.inside], found[~records.inside])))
    return row


def main() -> None:
    one_blas_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--canaries", type=int, default=1000)
    parser.add_argument("--sound", type=int, default=0)
    parser.add_argument("--live", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = dataclasses.replace(load("digits"), make_model=network)
    if options.sound:
        sound(task, options.sound, options.canaries)
        return
    if options.live:
        live(task, options.live, options.canaries)
        return
    rows: list[Row] = []
    for name, (epsilon, share) in SETTINGS.items():
        runs = [run(task, epsilon, share, options.canaries, seed) for seed in range(options.seeds)]
        rows.append({"setting": name} | {key: mean(float(one[key]) for one in runs) for key in runs[0]})
        rows[-1]["accused"] = f"{sum(one['accused'] for one in runs):.0f} of {len(runs)}"
    columns = {"setting": "declared|s", "multiplier": "noise|.2f", "accuracy": "accuracy|.3f", "here": "here|.2f"}
    columns |= {"no_shape": "no shape|.2f", "one_run": "f-DP, 1 run|.2f", "steinke": "eps, 1 run|.2f"}
    columns |= {"pairs": "pairs|.2f", "andrew": "Gaussian fit|.2f", "accused": "accused|s", "records": "records|.2f"}
    table(f"Lower bounds on epsilon at 95%, {options.canaries} canaries, {options.seeds} seeds", columns, rows)


if __name__ == "__main__":
    main()
