"""What a list of candidates is worth to an attacker: the table of docs/attacks.md, "Decoding".

    GMIP_DATA=... python benchmarks/decoding.py [--seeds 3] [SETTING ...]

For each setting, means over the seeds: AUC and TPR at 1% FPR of GLiR and of decoding; then of decoding when the
attacker lists half of the members (and as many others), and of a null run: a list of two halves of strangers. Data
that are not on this machine are left out, with a sentence on standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from statistics import mean

import numpy as np
import torch
from _harness import Row, table
from torch import nn

from gmip.attacks import Attack, Decode, GLiR
from gmip.errors import DataUnavailable, GmipWarning
from gmip.stats.roc import auc, tpr_at_fpr
from gmip.tasks import Examples, Recipe, Task, load
from gmip.trace import Trace
from gmip.training import train

FULL = {"sampling": "full", "optimizer": "Adam", "learning_rate": 2.0e-3}
CIFAR = {"dataset_size": 500, "batch_size": 500, **FULL}
ADULT = {"dataset_size": 790, "batch_size": 790, "num_steps": 1, **FULL}
NETWORK = {"dataset_size": 200, "batch_size": 200, "num_steps": 5, "sampling": "full", "optimizer": "Adam"}
LINEAR = {"dataset_size": 200, "batch_size": 20, "num_steps": 20, "learning_rate": 0.1}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def digits_network() -> Task:
    task = load("digits")
    return dataclasses.replace(task, make_model=network)


def linear() -> Task:
    """Gaussian records of five classes, a linear model: 5 x 76 + 5 = 385 parameters."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (2400,), generator=generator)
    inputs = torch.randn(2400, 76, generator=generator)
    inputs[:, :5] += nn.functional.one_hot(labels, 5)
    data = Examples(inputs, labels)
    return Task(
        name="linear",
        make_model=lambda: nn.Linear(76, 5),
        pool=data[range(2300)],
        test=data[range(2300, 2400)],
        recipe=Recipe(dataset_size=200, batch_size=20, num_steps=20, learning_rate=0.1),
    )


SETTINGS: dict[str, tuple[Callable[[], Task], Row]] = {
    "linear, fixed": (linear, {**LINEAR, "sampling": "fixed"}),
    "linear, poisson": (linear, {**LINEAR, "sampling": "poisson"}),
    "linear, shuffled": (linear, {**LINEAR, "sampling": "shuffled"}),
    "digits network, 5 steps": (digits_network, {**NETWORK, "learning_rate": 1.0e-2}),
    "cifar10, 1 step": (lambda: load("cifar10"), {**CIFAR, "num_steps": 1}),
    "cifar10, 5 steps": (lambda: load("cifar10"), {**CIFAR, "num_steps": 5}),
    "adult, 1 step": (lambda: load("adult"), ADULT),
}
MOST_BACKGROUND = 8000


def rates(
    task: Task, trace: Trace, attack: Attack, members: np.ndarray, others: np.ndarray, background: Examples
) -> tuple[float, float, float]:
    """AUC, TPR at 1% FPR, and CPU seconds."""
    start = time.process_time()
    with warnings.catch_warnings(action="ignore", category=GmipWarning):
        found = attack.run(task, trace, np.concatenate([members, others]), background)
    inside = np.isin(found.ids, members)
    ours, theirs = found.scores[inside], found.scores[~inside]
    return auc(ours, theirs), float(tpr_at_fpr(ours, theirs, 0.01)), time.process_time() - start


def attack(make: Callable[[], Task], changes: Row, seed: int) -> Row:
    task = make()
    with tempfile.TemporaryDirectory() as folder:
        result = train(task, task.recipe.replace(clip_norm=None, **changes), seed=seed, out=folder)
        trace, unused = Trace.open(folder), result.split.unused
        members, others = trace.members, trace.non_members
        assert members is not None and others is not None
        half = len(members) // 2
        background = task.pool[unused[2 * len(members) :][:MOST_BACKGROUND]]
        nobody = task.pool[[]]
        fresh = unused[: len(members)], unused[len(members) : 2 * len(members)]
        games = {
            "glir": (GLiR(), members, others, background),
            "decode": (Decode(), members, others, nobody),
            "half": (Decode(), members[:half], others[:half], background),
            "null": (Decode(), *fresh, nobody),
        }
        row: Row = {}
        for name, (one, ins, outs, rest) in games.items():
            row[f"{name}_auc"], row[f"{name}_tpr"], row[f"{name}_seconds"] = rates(task, trace, one, ins, outs, rest)
        row["ratio"] = row["decode_seconds"] / row["glir_seconds"]
        return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of {'; '.join(SETTINGS)} (default all)")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for setting in options.settings or SETTINGS:
        try:
            runs = [attack(*SETTINGS[setting], seed) for seed in range(options.seeds)]
        except DataUnavailable as missing:
            print(missing, file=sys.stderr)
            continue
        rows.append({"setting": setting} | {key: mean(one[key] for one in runs) for key in runs[0]})
        print(rows[-1], file=sys.stderr, flush=True)
    columns = {"setting": "setting|s"}
    for name, title in (("glir", "glir"), ("decode", "decode"), ("half", "half listed"), ("null", "null")):
        columns |= {f"{name}_auc": f"{title}: AUC|.3f", f"{name}_tpr": "TPR at 1%|.3f"}
    columns["ratio"] = "CPU time of decode / glir|.2f"
    table(f"A list of candidates, means over {options.seeds} seeds", columns, rows)


if __name__ == "__main__":
    main()
