"""What an attacker gains from gradients, and what each attack costs: the tables of docs/attacks.md.

    GMIP_DATA=... python benchmarks/attacks.py [--targets 5] [--shadows 64] [--attack NAME ...] [SETTING ...]

In each setting a few targets are trained on random halves of the same candidates, and all attacks run on each of them.
Their shadow set is shared, as all have one recipe. The first table has AUC and TPR at 1% FPR, mean and standard error
over the runs (`--attack` leaves out the others). The second has the CPU seconds of an attack on the first run, the
training of its shadow models included, in one process and on one thread, and their ratio to the first attack's, which
is GLiR with self-play. The third has the AUC with fewer shadow models, for the ways in which LiRA estimates variances,
and for RMIA. Data that are not on this machine are left out, with a sentence on standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import get_args

import numpy as np
import torch
from _harness import Row, table
from threadpoolctl import threadpool_limits
from torch import nn

from gmip.attacks import CFD, CFDLRT, RMIA, Attack, GLiR, LiRA, Loss, Shadows
from gmip.attacks.lira import Variance
from gmip.errors import DataUnavailable
from gmip.stats.roc import auc, tpr_at_fpr
from gmip.tasks import Task, load
from gmip.trace import Trace
from gmip.training import train

ATTACKS: dict[str, Callable[[Shadows], Attack]] = {
    "glir": lambda _: GLiR(steps=range(5)),
    "glir, with candidates": lambda _: GLiR(steps=range(5), background="with-candidates"),
    "glir, no self-play": lambda _: GLiR(steps=range(5), play=None, ridge=1.0e-2),
    "loss": lambda _: Loss(),
    "lira": lambda shadows: LiRA(shadows=shadows),
    "lira, offline": lambda shadows: LiRA(shadows=shadows, online=False),
    "rmia": lambda shadows: RMIA(shadows=shadows),
    "cfd": lambda _: CFD(),
    "cfd-lrt": lambda shadows: CFDLRT(shadows=shadows),
}
COSTED = ("glir", "glir, with candidates", "glir, no self-play", "lira", "cfd-lrt")  # rmia takes what lira has trained


@dataclass(frozen=True)
class Setting:
    """N = n = `members` of 2 N candidates, full batches; up to `background` records besides."""

    task: str
    members: int
    background: int
    recipe: Row
    make_model: Callable[[], nn.Module] | None = None  # instead of the task's own

    def prepared(self) -> Task:
        """The task with the candidates alone as its pool, so that all targets have the same."""
        task = load(self.task)
        order = np.random.default_rng(0).permutation(len(task.pool))
        candidates = 2 * self.members
        return dataclasses.replace(
            task,
            make_model=self.make_model or task.make_model,
            pool=task.pool[order[:candidates]],
            background=task.pool[order[candidates : candidates + self.background]],
            recipe=task.recipe.replace(dataset_size=self.members, sampling="full", clip_norm=None, **self.recipe),
        )


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


_DIGITS: Row = {"optimizer": "SGD", "learning_rate": 0.5}
_NETWORK: Row = {"optimizer": "Adam", "learning_rate": 1.0e-2}
_CIFAR: Row = {"optimizer": "Adam", "learning_rate": 2.0e-3}
SETTINGS = {
    "digits, 5 steps": Setting("digits", 120, 1_197, {**_DIGITS, "num_steps": 5}),
    "digits, 2,000 steps": Setting("digits", 120, 1_197, {**_DIGITS, "num_steps": 2_000}),
    "digits network, 5 steps": Setting("digits", 200, 1_037, {**_NETWORK, "num_steps": 5}, network),
    "digits network, 2,000 steps": Setting("digits", 200, 1_037, {**_NETWORK, "num_steps": 2_000}, network),
    "cifar10, 5 steps": Setting("cifar10", 500, 20_000, {**_CIFAR, "num_steps": 5}),
    "cifar10, 2,000 steps": Setting("cifar10", 500, 20_000, {**_CIFAR, "num_steps": 2_000}),
}


def rates(task: Task, trace: Trace, attack: Attack) -> tuple[float, float]:
    """AUC and TPR at 1% FPR over all candidates."""
    found = attack.run(task, trace, np.arange(len(task.pool)), task.background)
    inside = np.isin(found.ids, trace.members)
    members, others = found.scores[inside], found.scores[~inside]
    return auc(members, others), float(tpr_at_fpr(members, others, 0.01))


def fewer(task: Task, traces: Sequence[Trace], shared: Shadows) -> list[Row]:
    """Mean AUC and TPR over the runs with the first 4, 8, ... shadow models of the shared set."""
    found: list[Row] = []
    count = 4
    while count <= shared.count:
        shadows = dataclasses.replace(shared, count=count)
        ways: dict[str, Attack] = {"rmia": RMIA(shadows=shadows), "rmia_offline": RMIA(shadows=shadows, online=False)}
        for variance in get_args(Variance):
            ways[variance] = LiRA(shadows=shadows, variance=variance)
        runs = {name: np.mean([rates(task, trace, one) for trace in traces], axis=0) for name, one in ways.items()}
        found.append({"count": count} | {name: f"{area:.3f} {100.0 * tpr:.0f}%" for name, (area, tpr) in runs.items()})
        count *= 2
    return found


def compare(name: str, options: argparse.Namespace, folder: Path) -> tuple[list[Row], list[Row]]:
    """All attacks in one setting, and those with shadow models again with fewer."""
    task = SETTINGS[name].prepared()
    traces, losses = [], []
    for seed in range(options.targets):
        out = folder / f"{name}-{seed}"
        result = train(task, seed=seed, out=out)
        traces.append(Trace.open(out))
        losses.append((result.train_loss, result.test_loss))
    print(f"{name}: loss on members and test data {np.mean(losses, axis=0).round(3)}", file=sys.stderr, flush=True)
    shared = Shadows(count=options.shadows, workers=1, folder=folder / "shared")
    found: list[Row] = []
    for label, make in ATTACKS.items():
        if options.attack and label not in options.attack:
            continue
        start = time.process_time()
        runs = [rates(task, traces[0], make(shared))]
        row: Row = {"setting": name, "attack": label, "seconds": time.process_time() - start}
        runs += [rates(task, trace, make(shared)) for trace in traces[1:]]
        for key, values in zip(("auc", "tpr"), zip(*runs, strict=True), strict=True):
            row |= {key: mean(values), f"{key}_error": stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0}
        found.append(row)
        print(row, file=sys.stderr, flush=True)
    for row in found:
        row["ratio"] = row["seconds"] / found[0]["seconds"]
    return found, [{"setting": name} | row for row in fewer(task, traces, shared)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of {'; '.join(SETTINGS)} (default all)")
    parser.add_argument("--targets", type=int, default=5)
    parser.add_argument("--shadows", type=int, default=64)
    parser.add_argument("--attack", action="append", choices=list(ATTACKS), help="of the first tables (default all)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: list[Row] = []
    counts: list[Row] = []
    for name in options.settings or SETTINGS:
        with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
            try:
                rows, by_count = compare(name, options, Path(folder))
            except DataUnavailable as missing:
                print(missing, file=sys.stderr)
                continue
        found += rows
        counts += by_count
    columns = {"setting": "setting|s", "attack": "attack|s", "auc": "AUC|.3f", "auc_error": "+-|.3f"}
    columns |= {"tpr": "TPR at 1%|.3f", "tpr_error": "+-|.3f"}
    table(f"What an attacker finds: {options.targets} targets, {options.shadows} shadow models", columns, found)
    columns = {"setting": "setting|s", "attack": "attack|s", "seconds": "CPU seconds|.2f", "ratio": "of glir's|.2f"}
    columns |= {"tpr": "TPR at 1%|.3f"}
    table("What it costs, for one target", columns, [row for row in found if row["attack"] in COSTED])
    columns = {
        "setting": "setting|s",
        "count": "shadow models|d",
        "auto": "lira, auto|s",
        "per-example": "per-example|s",
    }
    columns |= {"per-example": "per-example|s", "pooled": "pooled|s", "rmia": "rmia|s", "rmia_offline": "offline|s"}
    table("AUC and TPR at 1% with fewer shadow models", columns, counts)


if __name__ == "__main__":
    main()
