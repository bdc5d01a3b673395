"""What `gmip check` says of runs with one planted fault each, and how often it accuses sound runs.

    python benchmarks/check.py [--seeds 10] [--fault TEXT] [--setting TEXT]
    python benchmarks/check.py --sound 29     sound runs instead: so many of each setting
    python benchmarks/check.py --show [--docs]

Every run is a row of benchmarks/check.csv (--keep) the moment it is done, and is not repeated while the row is there: a
command that was killed goes on. `--docs` writes the tables into docs/evidence/check.md.

A run is "found" if a check fails; "unchecked" if none does, and something that bounds rest on could not be checked, so
that no target is guaranteed; "beyond reach" if the answer names the fault as one that it would not see, and the least
noise multiplier with which bounds are computed again has room for it; "harmless" if no bound is weaker for it and
nobody says anything; "silent" otherwise.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from _games import markdown  # noqa: E402
from _harness import one_blas_thread, written  # noqa: E402

from gmip.auditing import check_run  # noqa: E402
from gmip.auditing.schema import RunCheck  # noqa: E402
from tests.unit.auditing.faulty_runs import FAULTS, Fault, Setting, make_task, record_run  # noqa: E402

SOUND = "sound"
TINY = Setting(dataset_size=60, batch_size=20, noise_std=0.03)
SETTINGS: dict[str, Setting] = {
    "full": replace(TINY, sampling="full", batch_size=60, noise_std=0.01),
    **{
        f"{sampling}{'' if ids else ', no ids'}": replace(TINY, sampling=sampling, ids=ids)
        for ids in (True, False)
        for sampling in ("fixed", "poisson", "shuffled")
    },
}
# The columns of the table of faults; each setting on its own is in check.csv.
WITHOUT = tuple(name for name, one in SETTINGS.items() if not one.ids)
SHOWN = {"full batches": ("full",), "mini-batches with ids": ("fixed", "poisson", "shuffled"), "without ids": WITHOUT}
COLUMNS = ("fault", "setting", "seed", "outcome", "by", "least_noise")

# What an answer lists as beyond its reach, of faults that are too small to be seen.
NAMED: dict[str, tuple[str, ...]] = {
    "batches divided by their own size": ("own-size",),
    "noise from seeds 0, 1, 2, ...": ("noise-seed",),
    "noise in half of the directions": ("noise-dependence",),
    "half of the noise is the other half, turned": ("noise-dependence",),
    "noise of biases from that of weights": ("noise-dependence",),
    "clipping by the mean norm of the batch": ("counted",),
    "clipping by the largest norm of the batch": ("counted",),
    "one record in every batch": ("drawn-often",),
    "all records drawn in pairs": ("drawn-together",),
    "two records always drawn together": ("drawn-together",),
    "half of the member labels wrong": ("records",),
    "1 of 30 members replaced": ("records",),
    "two others in every batch": ("records", "counted"),
    "a member that counts five times": ("records", "counted"),
    "10% wrong labels": ("records",),
    "all labels wrong": ("records",),
    "augmentation": ("inputs",),
    "strong augmentation": ("inputs",),
    "other normalisation": ("inputs",),
    "ReLU for tanh": ("inputs",),
    "smoothed labels": ("inputs",),
    "trained before the recording": ("before",),
    "dropout": ("inputs",),
    "noise left out by the optimizer": ("optimizer",),
    "a hook after the step that trains": ("optimizer",),
}
# No bound is weaker for these: less of a record is published, or more noise.
HARMLESS = {
    "divided by n twice",
    "wrong world size",
    "clipping of each layer to its share",
    "clip_grad_norm_",
    "all gradients scaled to C",
    "noise twice as large",
    "batches half as large",
    "gradients of the step before",  # each is of known parameters, clipped, with noise of its own
}


@dataclass(frozen=True)
class Row:
    fault: str
    setting: str
    seed: int
    outcome: str
    by: str
    least_noise: float

    @property
    def key(self) -> tuple[str, str, int]:
        return self.fault, self.setting, self.seed


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(one["fault"], one["setting"], int(one["seed"]), one["outcome"], one["by"], float(one["least_noise"]))
            for one in csv.DictReader(file)
        ]


def add(path: Path, row: Row) -> None:
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        writer.writerow([row.fault, row.setting, row.seed, row.outcome, row.by, f"{row.least_noise:.4f}"])


def applies(name: str, fault: Fault, setting: Setting) -> bool:
    """Whether the fault changes anything in such a run."""
    if fault.divisor == "own":
        return setting.sampling == "poisson"
    if fault.batch_times != 1.0 or fault.batches not in ("as declared", "replacement"):
        return setting.sampling not in ("full", fault.batches)
    return True


def share_left(fault: Fault, clip_norm: float) -> float | None:
    """The noise multiplier that such a run has, as a share of the declared one, where a number says it."""
    larger = fault.clip_times * (fault.scale if isinstance(fault.scale, float) else 1.0)
    larger *= {"layers": 2.0, "first": 2.0}.get(fault.clip, 1.0)
    if fault.clip not in ("each", "layers") or isinstance(fault.scale, str) or not isinstance(fault.noise, float):
        return None
    return fault.noise / larger if fault.noise != larger else None


def judged(name: str, fault: Fault, found: RunCheck) -> tuple[str, str]:
    """(outcome, by what)."""
    if found.failed:
        return "found", found.failed[0].check
    if name == SOUND:
        return "passed", ""
    if found.bound_unchecked:
        return "unchecked", found.bound_unchecked[0].check
    hidden = {one.fault for one in found.beyond_reach}
    named = next((one for one in NAMED.get(name, ()) if one in hidden), None)
    if named is not None:
        return "beyond reach", named
    share = share_left(fault, 1.0)
    if share is not None and found.least_noise <= share < 1.0:
        return "beyond reach", "least_noise"
    if name in NAMED and any(one.check == "members" for one in found.unchecked):
        return "unchecked", "members"
    return ("harmless", "") if name in HARMLESS else ("silent", "")


def run(faults: dict[str, Fault], settings: dict[str, Setting], seeds: int, path: Path) -> None:
    known, task = {row.key for row in read(path)}, make_task()
    for seed in range(seeds):
        for where, setting in settings.items():
            for name, fault in faults.items():
                if (name, where, seed) in known or not applies(name, fault, setting):
                    continue
                with tempfile.TemporaryDirectory(prefix="gmip-bench-") as folder:
                    record_run(task, Path(folder) / "run", setting, fault, seed=100 + seed)
                    found = check_run(task, Path(folder) / "run")
                add(path, Row(name, where, seed, *judged(name, fault, found), found.least_noise))


def cell(rows: list[Row]) -> str:
    """An outcome where all runs agree, "found 8, beyond reach 2" otherwise."""
    counts = Counter(row.outcome for row in rows)
    if len(counts) > 1:
        return ", ".join(f"{outcome} {count}" for outcome, count in counts.most_common())
    return "".join(counts) or "-"


def tables(rows: list[Row]) -> dict[str, str]:
    """The tables of docs/evidence/check.md by name."""
    faulty = [row for row in rows if row.fault != SOUND]
    always: dict[str, tuple[list[str], list[str]]] = {}  # by the check that heads most answers: without ids too, or not
    lines = []
    for name in (name for name in FAULTS if any(row.fault == name for row in faulty)):
        own = [row for row in faulty if row.fault == name]
        cells = [cell([row for row in own if row.setting in group]) for group in SHOWN.values()]
        if {*cells[:2]} <= {"found", "-"}:
            ((check, _),) = Counter(row.by for row in own if row.by and row.setting not in WITHOUT).most_common(1)
            always.setdefault(check, ([], []))[cells[2] != "found"].append(name)
        else:
            lines.append([name, *cells])
    found = [[check, "; ".join(both), "; ".join(known)] for check, (both, known) in sorted(always.items())]
    counts: list[list[str]] = []
    for where in SETTINGS:
        here = [row for row in faulty if row.setting == where]
        sound = [row for row in rows if row.fault == SOUND and row.setting == where]
        number = Counter(row.outcome for row in here)
        kinds = ("found", "unchecked", "beyond reach", "harmless", "silent")
        accused = f"{sum(row.outcome == 'found' for row in sound)} of {len(sound)}"
        counts.append([where, str(len(here)), *(str(number[kind]) for kind in kinds), accused])
    total = [sum(int(line[i]) for line in counts) for i in range(1, 7)]
    everyone = [row for row in rows if row.fault == SOUND]
    accused = f"{sum(row.outcome == 'found' for row in everyone)} of {len(everyone)}"
    counts.append(["all", *(str(one) for one in total), accused])
    heads = ["setting", "runs", "found", "unchecked", "beyond reach", "harmless", "silent", "sound runs accused"]
    return {
        "found": markdown(["check", "without ids, too", "only with ids, or in full batches"], found),
        "faults": markdown(["fault", *SHOWN], lines),
        "counts": markdown(heads, counts),
    }


def main() -> None:
    one_blas_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="runs of each cell")
    parser.add_argument("--sound", type=int, metavar="RUNS", help="sound runs of each setting, instead of faults")
    parser.add_argument("--fault", default="", help="faults whose names contain this")
    parser.add_argument("--setting", default="", help="settings whose names contain this")
    parser.add_argument("--keep", type=Path, default=HERE / "check.csv")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/evidence/check.md")
    given: Any = parser.parse_args()
    settings = {name: one for name, one in SETTINGS.items() if given.setting in name}
    faults = {name: one for name, one in FAULTS.items() if given.fault in name}
    if not given.show:
        run({SOUND: Fault()} if given.sound else faults, settings, given.sound or given.seeds, given.keep)
    found = tables(read(given.keep))
    if given.docs:
        page = HERE.parent / "docs" / "evidence" / "check.md"
        page.write_text(written(page.read_text(encoding="utf-8"), "check.py", found), encoding="utf-8")
    print("\n".join(found.values()))


if __name__ == "__main__":
    main()
