"""GLiR on real runs: a table of docs/evidence/attacks.md.

    GMIP_DATA=... python benchmarks/real_runs.py [--seeds 5] [--clip C] [--background WAY] [SETTING ...]

For each setting and method, means over the seeds: AUC, the AUC that self-play predicted, TPR at 1% and 0.1% FPR, and
the share of members with a p-value of at most 1% (a threshold from held-out background instead of the few non-members).
Data that are not on this machine are left out, with a sentence on standard error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from statistics import mean, stdev

import numpy as np
from _harness import Row, table

from gmip.attacks import GLiR
from gmip.errors import DataUnavailable
from gmip.stats.scores import auc, tpr_at_fpr
from gmip.tasks import load
from gmip.trace import Trace
from gmip.training import train

FULL = {"sampling": "full", "optimizer": "Adam", "learning_rate": 2.0e-3}
CIFAR = {"dataset_size": 500, "batch_size": 500, **FULL}
ADULT = {"dataset_size": 790, "batch_size": 790, **FULL}
DIGITS = {"dataset_size": 120, "learning_rate": 0.5}
SETTINGS: dict[str, tuple[str, Row, tuple[str, ...]]] = {
    "cifar10-1": ("cifar10", {**CIFAR, "num_steps": 1}, ("likelihood-ratio", "paper")),
    "cifar10-5": ("cifar10", {**CIFAR, "num_steps": 5}, ("joint",)),
    "adult-1": ("adult", {**ADULT, "num_steps": 1}, ("likelihood-ratio", "paper")),
    "adult-5": ("adult", {**ADULT, "num_steps": 5}, ("joint",)),
    "digits-mini": ("digits", {**DIGITS, "batch_size": 30, "num_steps": 20}, ("mixture", "paper")),
    "digits-full": ("digits", {**DIGITS, "sampling": "full", "num_steps": 5}, ("joint", "paper")),
}
BACKGROUND = {"cifar10": 20_000}  # of the paper's verification; elsewhere all other rows


def attack(name: str, changes: Row, methods: tuple[str, ...], seed: int, way: str) -> list[Row]:
    task = load(name)
    with tempfile.TemporaryDirectory() as folder:
        result = train(task, task.recipe.replace(**changes), seed=seed, out=folder)
        trace = Trace.open(folder)
        background = task.pool[result.split.unused[: BACKGROUND[name]]] if name in BACKGROUND else None
        rows = []
        for method in methods:
            scores = GLiR(method=method, background=way).run(task, trace, background=background)
            inside = np.isin(scores.ids, trace.members)
            members, others = scores.scores[inside], scores.scores[~inside]
            rows.append(
                {
                    "method": method,
                    "auc": auc(members, others),
                    "predicted": scores.prediction.auc,
                    "tpr1": float(tpr_at_fpr(members, others, 0.01)),
                    "tpr01": float(tpr_at_fpr(members, others, 0.001)),
                    "found": float(np.mean(scores.p_values[inside] <= 0.01)),
                    "false": float(np.mean(scores.p_values[~inside] <= 0.05)),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of {', '.join(SETTINGS)}; default all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--clip", type=float, default=None, help="clip norm of the runs (default: none)")
    parser.add_argument("--background", default="alone", choices=("alone", "with-candidates"))
    options = parser.parse_args()
    rows: list[Row] = []
    for setting in options.settings or SETTINGS:
        name, changes, methods = SETTINGS[setting]
        try:
            changes = {**changes, "clip_norm": options.clip}
            runs = [attack(name, changes, methods, seed, options.background) for seed in range(options.seeds)]
        except DataUnavailable as missing:
            print(missing, file=sys.stderr)
            continue
        for found in zip(*runs, strict=True):
            row: Row = {"setting": setting, "method": found[0]["method"]}
            row |= {key: mean(one[key] for one in found) for key in found[0] if key != "method"}
            row["spread"] = stdev(one["auc"] for one in found) if len(found) > 1 else 0.0
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    columns = {"setting": "setting|s", "method": "method|s", "auc": "AUC|.4f", "spread": "its spread|.4f"}
    columns |= {"predicted": "predicted|.4f", "tpr1": "TPR at 1%|.4f", "tpr01": "at 0.1%|.4f"}
    columns |= {"found": "members with p <= 1%|.4f", "false": "others with p <= 5%|.4f"}
    table(f"GLiR on real runs, means over {options.seeds} seeds", columns, rows)


if __name__ == "__main__":
    main()
