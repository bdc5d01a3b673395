"""Which planted faults `gmip check` finds, by which check, and how often it accuses sound runs.

    python benchmarks/check.py            the table of docs/check.md, 3 runs a cell (3 minutes)
    python benchmarks/check.py --sound 40 sound runs instead: 40 of each of the 5 settings

A cell names the check that heads the answer ("The record does not match the declared run."); a number is the share
of runs in which it fails, where that is not all. "-": the fault does not apply, "unchecked": it is not found, and the
check that would see it says why it cannot; "beyond reach": it is not found, and the answer names it; "no": it is not
found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from _harness import Row, table

from gmip.auditing import check_run

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.unit.auditing.faulty_runs import FAULTS, SETTINGS, Fault, Setting, make_task, record_run

NOISE = {"reused noise", "re-seeded noise", "noise off by n", "zero noise", "noise 24% too small"} | {
    f"noise on the {layer} layer only" for layer in ("first", "last")
}

# Checks that would see a fault; where one of them is "unchecked", its sentence says why.
SEEN_BY = {
    "noise on the first layer only": ("noise-layers",),
    "batches always the first n": ("batches",),
    "duplicates": ("batches",),
    "half of the member labels wrong": ("members",),
    "wrong dataset_size": ("sizes", "batches"),
    "clipping of each layer": ("clipping",),
    "clipping at 1.1 C": ("clipping",),
    "1 of 30 members replaced": ("members",),
    "10% wrong labels": ("members",),
    "augmentation": ("members",),
}

# What an answer lists as beyond its reach, of faults that are too small to be seen.
HIDDEN = {
    "noise 24% too small": "noise-size",
    "clipping at 1.1 C": "clip-norm",
    "batches divided by their own size": "own-size",
    "1 of 30 members replaced": "records",
    "10% wrong labels": "records",
    "augmentation": "inputs",
}


def applies(fault: str, setting: Setting) -> bool:
    if fault in NOISE and setting.noise_std == 0.0:
        return False
    if "clipping" in fault and setting.clip_norm is None:
        return False
    if fault == "batches divided by their own size" and setting.sampling != "poisson":
        return False
    if fault == "batches twice as large" and setting.sampling == "full":
        return False
    return not (fault in ("batches always the first n",) and setting.sampling == "full")


def cell(fault: str, setting: Setting, runs: int, folder: Path) -> str:
    if not applies(fault, setting):
        return "-"
    found: Counter[str] = Counter()
    blind = named = 0
    task = make_task()
    for seed in range(runs):
        path = folder / f"{fault}-{id(setting)}-{seed}".replace(" ", "_")
        record_run(task, path, setting, FAULTS[fault], seed=100 + seed)
        result = check_run(task, path)
        if result.failed:
            found[result.failed[0].check] += 1
        blind += any(one.check in SEEN_BY.get(fault, ()) for one in result.unchecked)
        named += any(one.fault == HIDDEN.get(fault) for one in result.beyond_reach)
    total = sum(found.values())
    if total == 0:
        return "unchecked" if blind == runs else "beyond reach" if named == runs else "no"
    names = ", ".join(name for name, _ in found.most_common())
    return names if total == runs else f"{names} ({total}/{runs})"


def sound(runs: int, folder: Path) -> list[Row]:
    rows, task = [], make_task()
    for name, setting in SETTINGS.items():
        accused: Counter[str] = Counter()
        start = time.perf_counter()
        for seed in range(runs):
            path = folder / f"sound-{id(setting)}-{seed}"
            record_run(task, path, setting, Fault(), seed=1000 + seed)
            result = check_run(task, path)
            if result.failed:
                accused[result.failed[0].check] += 1
        rows.append(
            {
                "setting": name,
                "number": runs,
                "accused": sum(accused.values()),
                "by": ", ".join(accused) or "",
                "seconds": round(time.perf_counter() - start, 1),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each cell")
    parser.add_argument("--sound", type=int, metavar="RUNS", help="sound runs of each setting, instead of faults")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gmip-bench-") as folder:
        if given.sound:
            rows = sound(given.sound, Path(folder))
            total, accused = (sum(int(row[key]) for row in rows) for key in ("number", "accused"))
            columns = {
                "setting": "setting|",
                "number": "runs|d",
                "accused": "accused|d",
                "by": "by|",
                "seconds": "s|.0f",
            }
            table("Sound runs", columns, rows)
            print(f"\nSound runs accused: {accused} of {total}")
            return
        rows = []
        for fault in FAULTS:
            cells = {name: cell(fault, setting, given.runs, Path(folder)) for name, setting in SETTINGS.items()}
            rows.append({"fault": fault, **cells})
        markdown = [
            ["fault", *SETTINGS],
            ["---"] * (len(SETTINGS) + 1),
            *([str(v) for v in row.values()] for row in rows),
        ]
        print("\n".join("| " + " | ".join(line) + " |" for line in markdown))


if __name__ == "__main__":
    main()
