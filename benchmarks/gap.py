"""The gap between what is proved and what is found, for public runs that anybody can train again: docs/gap.md.

    GMIP_DATA=... python benchmarks/gap.py [--out docs/gap.md] [NAME ...]      # about three CPU minutes for all

Each run is trained from its seed and attacked by all of gmip's attacks and by those of others (LiRA and RMIA with 16
shadow models, loss). A file benchmarks/gap/NAME/WHO.csv with the columns id (row of the task's pool) and score is
judged with them: who is a member is taken from the run, not from the file.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import warnings
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np
from _harness import one_blas_thread, written

import gmip
from gmip._numbers import percent
from gmip.auditing.schema import AttackOutcome
from gmip.errors import DataUnavailable, GmipWarning

HERE = Path(__file__).parent
FPR, SEED, SHADOWS = 0.01, 1, {"count": 16}
HEAD = """| run | proved: any record, attacker knows all others | forecast: typical record, attacker knows none | \
gmip, with a list | gmip, one by one | others' attacks | submitted |
|---|---|---|---|---|---|---|"""
OURS, OTHERS = ("glir", "decode"), ("lira", "rmia", "loss")
DIGITS = {"dataset_size": 400, "batch_size": 100, "num_steps": 20, "learning_rate": 1.0, "sampling": "poisson"}
CANCER = {"dataset_size": 120, "batch_size": 30, "num_steps": 20, "learning_rate": 0.5, "sampling": "poisson"}
LARGE = {"dataset_size": 400, "batch_size": 100, "num_steps": 10, "learning_rate": 0.1, "sampling": "poisson"}
# name -> task, recipe, noise multiplier at clip norm 1 (0: neither noise nor clipping)
RUNS = {
    f"{task}-{label}": (task, recipe, noise)
    for task, recipe in (("digits", DIGITS), ("breast-cancer", CANCER), ("adult", LARGE), ("cifar10", LARGE))
    for label, noise in (("plain", 0.0), ("noise-1", 1.0), ("noise-4", 4.0))
}


def recipe_of(name: str) -> gmip.Recipe:
    """The recipe of a run."""
    _, settings, noise = RUNS[name]
    private = {"clip_norm": 1.0, "noise_std": noise / settings["batch_size"]} if noise else {}
    return gmip.Recipe(**settings, **private)


def submissions(name: str, trace: gmip.Trace) -> Iterator[tuple[str, gmip.Scores]]:
    """The scores that somebody sent in for a run."""
    for path in sorted((HERE / "gap" / name).glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            scores = {int(row["id"]): float(row["score"]) for row in csv.DictReader(file)}
        asked = set(map(int, [*trace.members, *trace.non_members]))
        if missing := asked - set(scores):
            raise SystemExit(f"{path} has no score for {len(missing)} candidates of {name}, {min(missing)} among them.")
        sides = [np.array([scores[int(one)] for one in ids]) for ids in (trace.members, trace.non_members)]
        yield path.stem, gmip.Scores(*sides)


def found(outcomes: list[AttackOutcome]) -> str:
    """The strongest of some attacks, with its interval."""
    rates = {one.attack: one.found(FPR) for one in outcomes}
    known = [(rate.lower, rate.value, name, rate) for name, rate in rates.items() if rate is not None]
    if not known:
        return "too few records"
    *_, name, rate = max(known)
    low, high = percent(rate.lower, "down"), percent(rate.upper, "up")
    return f"{percent(rate.value, 'nearest')} ({low} to {high}), {name}"


def row(name: str, folder: str) -> str:
    """One run: trained, accounted, attacked."""
    task = gmip.tasks.load(RUNS[name][0])
    recipe = recipe_of(name)
    path = f"{folder}/{name}"
    gmip.train(task, recipe, seed=SEED, out=path)
    trace = gmip.Trace.open(path)
    result = gmip.audit(task, runs=[path], attacks=[*OURS, *OTHERS], shadows=SHADOWS, seed=SEED)
    run = recipe.run(trace.header.num_params)
    curves = [gmip.account(run, attacker_knows=knows) for knows in (1.0, 0.0)]
    proved, expected = (
        f"{'' if one.kind == 'bound' else 'about '}{percent(float(one.tpr_at(FPR)), 'up')}" for one in curves
    )
    by = {one.attack: one for one in result.runs[0].attacks}
    cells = [name, proved if RUNS[name][2] else "none", expected]
    cells += [found([by[one] for one in some if one in by]) for some in (("decode",), ("glir",), OTHERS)]
    sent = [(who, gmip.audit(scores).runs[0].attacks) for who, scores in submissions(name, trace)]
    cells.append("; ".join(f"{who}: {found(list(outcomes))}" for who, outcomes in sent) or "-")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RUNS))
    parser.add_argument("--out", type=Path, help="a page; without it the table is printed")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)
        for name in chosen.names or RUNS:
            try:
                rows.append(row(name, folder))
            except DataUnavailable as error:
                print(f"{name} is left out: {error}")
                continue
            print(rows[-1], flush=True)
    if chosen.out:
        found = "\n".join([HEAD, *rows, "", f"(gmip {version('gmip')}, {date.today()})", ""])
        page = written(chosen.out.read_text(encoding="utf-8"), "gap.py", {"runs": found})
        chosen.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    one_blas_thread()
    main()
