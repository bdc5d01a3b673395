"""What a list of candidates is worth to an attacker: the tables of docs/attacks.md, "Decoding".

    GMIP_DATA=... python benchmarks/decoding.py [--seeds 5] [--first-seed 10] [--keep FILE] [--no-glir] [SETTING ...]
    python benchmarks/decoding.py --sizes

For each setting, means over the seeds and their standard errors: AUC and TPR at 1% FPR of GLiR and of decoding; then of
decoding when the attacker lists half of the members (and as many others), with the share that it estimates; and of a
null run: the members are fresh records, so the list holds two halves of strangers. Of the null runs also how many
candidates have a p-value of 5% and 1% at most. Data that are not on this machine are left out, with a sentence on
standard error. --keep adds each run to a file of JSON lines, and runs that are in it are not repeated.

--sizes: CPU time and the peak of the resident memory (whole process) for growing numbers of candidates and parameters,
each in a process of its own. Linux.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from _harness import Row, one_blas_thread, resident, table
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
MOST_BACKGROUND = 10_000


def attack(make: Callable[[], Task], changes: Row, seed: int, *, glir: bool) -> Row:
    task = make()
    row: Row = {}
    with tempfile.TemporaryDirectory() as folder:
        result = train(task, task.recipe.replace(clip_norm=None, **changes), seed=seed, out=folder)
        trace, unused = Trace.open(folder), result.split.unused
        members, others = trace.members, trace.non_members
        assert members is not None and others is not None
        half, size = len(members) // 2, len(members)
        background = task.pool[unused[2 * size :][:MOST_BACKGROUND]]
        nobody = task.pool[[]]
        games: dict[str, tuple[Attack, np.ndarray, np.ndarray, Examples]] = {
            "glir": (GLiR(), members, others, background),
            "decode": (Decode(), members, others, nobody),
            "half": (Decode(), members[:half], others[:half], background),
            "null": (Decode(), unused[:size], unused[size : 2 * size], nobody),
            "null_told": (Decode(), unused[:half], unused[size : size + half], background),
        }
        for name, (one, ins, outs, rest) in games.items():
            if name == "glir" and not glir:
                continue
            start = time.process_time()
            with warnings.catch_warnings(action="ignore", category=GmipWarning):
                found = one.run(task, trace, np.concatenate([ins, outs]), rest)
            row[f"{name}_seconds"] = time.process_time() - start
            inside = np.isin(found.ids, ins)
            ours, theirs = found.scores[inside], found.scores[~inside]
            row[f"{name}_auc"], row[f"{name}_tpr"] = auc(ours, theirs), float(tpr_at_fpr(ours, theirs, 0.01))
            row[f"{name}_coverage"] = float(found.facts.get("coverage", 0.0))
            assert found.p_values is not None
            strangers = found.p_values if name.startswith("null") else found.p_values[~inside]
            row |= {f"{name}_p{percent}": float(np.mean(strangers <= percent / 100.0)) for percent in (1, 5)}
    return row


def several(setting: str, seeds: range, keep: Path | None, *, glir: bool) -> list[Row]:
    kept: list[Row] = []
    if keep is not None and keep.exists():
        kept = [json.loads(line) for line in keep.read_text().splitlines()]
    rows = []
    for seed in seeds:
        known = next((one for one in kept if (one["setting"], one["seed"]) == (setting, seed)), None)
        if known is None:
            known = {"setting": setting, "seed": seed, **attack(*SETTINGS[setting], seed, glir=glir)}
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps(known) + "\n")
        rows.append(known)
    return rows


def summary(setting: str, runs: list[Row]) -> Row:
    numbers = [key for key in runs[0] if key not in ("setting", "seed")]
    row: Row = {key: mean(one[key] for one in runs) for key in numbers} | {"setting": setting}
    for name in ("glir", "decode", "half", "null", "null_told"):
        if f"{name}_auc" not in row:
            continue
        spread = stdev([one[f"{name}_auc"] for one in runs]) / len(runs) ** 0.5 if len(runs) > 1 else 0.0
        row[name] = f"{row[f'{name}_auc']:.3f} +- {spread:.3f}, {100 * row[f'{name}_tpr']:.0f}%"
        row[f"{name}_p"] = f"{100 * row[f'{name}_p5']:.1f}%, {100 * row[f'{name}_p1']:.1f}%"
    row["ratio"] = row["decode_seconds"] / row["glir_seconds"] if "glir_seconds" in row else 0.0
    row.setdefault("glir", "")
    spread = stdev([one["half_coverage"] for one in runs]) if len(runs) > 1 else 0.0
    row["estimated"] = f"{row['half_coverage']:.2f} +- {spread:.2f}"
    return row


def wide(inputs: int) -> Task:
    """100 (inputs + 1) parameters, 20,000 Gaussian records."""
    generator = torch.Generator().manual_seed(0)
    data = Examples(torch.randn(20_100, inputs, generator=generator), torch.arange(20_100) % 100)
    return Task(
        name="wide",
        make_model=lambda: nn.Linear(inputs, 100),
        pool=data[range(20_000)],
        test=data[range(20_000, 20_100)],
        recipe=Recipe(dataset_size=5000, batch_size=5000, num_steps=1, learning_rate=0.1, sampling="full"),
    )


def one_size(candidates: int, inputs: int) -> Row:
    task, half = wide(inputs), candidates // 2
    with tempfile.TemporaryDirectory() as folder:
        train(task, task.recipe.replace(dataset_size=half, batch_size=half, clip_norm=None), seed=0, out=folder)
        trace = Trace.open(folder)
        before, start = resident("VmHWM"), time.process_time()
        with warnings.catch_warnings(action="ignore", category=GmipWarning):
            found = Decode(memory_limit="3 GiB").run(task, trace)
        seconds = time.process_time() - start
        inside = np.isin(found.ids, trace.members)
        return {
            "candidates": len(found.ids),
            "parameters": 100 * (inputs + 1),
            "seconds": seconds,
            "before": before / 2**30,
            "peak": resident("VmHWM") / 2**30,
            "auc": auc(found.scores[inside], found.scores[~inside]),
        }


def sizes() -> None:
    rows = []
    for candidates, inputs in ((2500, 120), (5000, 120), (10_000, 120), (2500, 1920)):
        script = [sys.executable, __file__, "--one-size", str(candidates), str(inputs)]
        rows.append(json.loads(subprocess.run(script, check=True, capture_output=True, text=True).stdout))
        print(rows[-1], file=sys.stderr, flush=True)
    columns = {"candidates": "candidates|,d", "parameters": "parameters|,d", "seconds": "CPU s|.1f"}
    columns |= {"before": "GiB before|.2f", "peak": "peak GiB|.2f", "auc": "AUC|.3f"}
    table("One full batch, every second candidate a member, memory_limit = 3 GiB", columns, rows)


def main() -> None:
    one_blas_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of {'; '.join(SETTINGS)} (default all)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--no-glir", action="store_true", help="leave out the column of GLiR, which takes longest")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--one-size", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one_size:
        print(json.dumps(one_size(*options.one_size)))
        return
    if options.sizes:
        sizes()
        return
    rows: list[Row] = []
    for setting in options.settings or SETTINGS:
        try:
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            rows.append(summary(setting, several(setting, seeds, options.keep, glir=not options.no_glir)))
        except DataUnavailable as missing:
            print(missing, file=sys.stderr)
            continue
        print(rows[-1], file=sys.stderr, flush=True)
    columns = {"setting": "setting|s"}
    for name, title in (("glir", "glir"), ("decode", "decode"), ("half", "half listed")):
        columns[name] = f"{title}: AUC, TPR at 1%|s"
    columns |= {"estimated": "its estimate of the half|s", "null": "null|s", "null_told": "null with background|s"}
    columns |= {"null_p": "null: p <= 5%, 1%|s", "null_told_p": "with background|s"}
    columns["ratio"] = "CPU time of decode / glir|.2f"
    table(f"A list of candidates, {options.seeds} seeds from {options.first_seed}", columns, rows)


if __name__ == "__main__":
    main()
