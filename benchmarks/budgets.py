"""Whether `gmip audit --budget` is kept, and what a larger one buys: five runs, to 11 M parameters or 20,000 members.

    GMIP_DATA=... python benchmarks/budgets.py [--budgets 30s,2min,10min] [NAME ...] [--wall] [--docs]
    python benchmarks/budgets.py --show [--docs]

An audit (the attacks that run if nobody names any) is a process of its own, of one thread, told that 12 GiB are free.
Each is a row of benchmarks/budgets.csv (--keep), and is not repeated while the row is there. A budget is seconds of the
clock, and on a busy machine those say nothing: here the program is shown processor time in their place, which is what
a machine with nothing else to do would show; --wall shows it the clock. --docs writes the table and the picture into
docs/evidence. Runs are kept in --folder, which may be removed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from _games import Book, markdown
from _harness import BLAS_THREADS, Row, resident, written
from cnn import network
from rehearsal import digits, people, perceptron, photographs
from scale import resnet18
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gmip
from gmip._html import Html, tag
from gmip._svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Series
from gmip.attacks.work import as_seconds
from gmip.auditing import attack_runs
from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe

HERE = Path(__file__).parent
EVIDENCE = HERE.parent / "docs/evidence"
NUMBERS = ("budget", "check", "seconds", "all", "cpu", "load", "memory", "cut", "auc", "tpr")
LOOKS = ("blue", "vermillion", "green", "purple", "orange")
WALL = " of the clock"
FREE = 12 * 2**30  # bytes, half of which an attack may take


class Run(NamedTuple):
    """Pool and network, members, batch size, epochs, and how it is trained."""

    pool: Callable[[], Examples]
    make: Callable[[], nn.Module]
    members: int
    batch: int
    epochs: int
    rate: float
    optimizer: str = "SGD"


def dropout() -> nn.Module:
    """The layers of pytorch/examples' mnist: 1.2 million parameters, and dropout."""
    first = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))


def pictures() -> Examples:
    """Digits in 28 x 28."""
    flat, _, _ = digits()
    small = torch.as_tensor(flat.inputs).reshape(-1, 1, 8, 8)
    return Examples(nn.functional.interpolate(small, size=(28, 28), mode="bilinear"), flat.targets)


RUNS = {
    "digits": Run(lambda: digits()[0], digits()[1], 200, 20, 5, 0.1),
    "adult": Run(lambda: people(45_000), lambda: perceptron("", 12, 2), 20_000, 500, 2, 0.1),
    "cnn": Run(lambda: photographs(10_000, 2), network, 1_000, 50, 2, 0.05),
    "dropout": Run(pictures, dropout, 200, 64, 4, 1.0, "Adadelta"),
    "resnet18": Run(lambda: photographs(1_000, 1), resnet18, 64, 64, 4, 0.05),
}


def task_of(name: str) -> Task:
    run = RUNS[name]
    pool = run.pool()
    recipe = Recipe(
        dataset_size=run.members,
        batch_size=run.batch,
        num_steps=run.epochs * -(-run.members // run.batch),
        learning_rate=run.rate,
        optimizer=run.optimizer,
        sampling="shuffled",
    )
    return Task(name=name, make_model=run.make, pool=pool, test=pool[:10], recipe=recipe)


def train(task: Task, run: Run, folder: Path) -> None:
    """A loop, recorded as README says."""
    members, others = np.split(np.random.default_rng(0).permutation(len(task.pool))[: 2 * run.members], 2)
    torch.manual_seed(0)
    model = task.make_model()
    optimizer = getattr(torch.optim, run.optimizer)(model.parameters(), lr=run.rate)
    some = task.pool[np.sort(members)]
    loader: Any = DataLoader(TensorDataset(some.inputs, some.targets), batch_size=run.batch, shuffle=True)
    who: Any = {"members": np.sort(members), "non_members": np.sort(others)}
    with gmip.record(model, optimizer, folder, loader=loader, data=task, **who):
        for _ in range(run.epochs):
            for inputs, targets in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()


def audited(name: str, folder: Path, budget: str) -> dict[str, Row]:
    """An audit of the recorded run: rows by attack, and one of the whole."""
    task = task_of(name)
    with tempfile.TemporaryDirectory(dir=folder) as out, warnings.catch_warnings(action="ignore"):
        start, cpu = time.time(), time.process_time()
        checking, checked = [0.0], attack_runs.check_run

        def check(*args: Any, **options: Any) -> Any:
            begun = time.monotonic()
            found = checked(*args, **options)
            checking[0] += time.monotonic() - begun
            return found

        free = mock.patch("gmip.attacks.work.available_bytes", return_value=FREE)
        with free, mock.patch.object(attack_runs, "check_run", check):
            source = gmip.Recorded(folder / name, task)
            result = gmip.audit(source, budget=budget, candidates=RUNS[name].members, seed=0, out=out)
        whole = {"all": time.time() - start, "cpu": time.process_time() - cpu}
    attacks = result.runs[0].attacks
    whole |= {"check": checking[0], "seconds": sum(one.seconds for one in attacks), "load": os.getloadavg()[0]}
    whole |= {"memory": resident("VmHWM") / 2**30, "budget": as_seconds("budget", budget)}
    found: dict[str, Row] = {"all": whole}
    for one in attacks:
        told = {"auc": one.auc.value, "tpr": one.tpr_at["0.01"].value, "seconds": one.seconds}
        found[one.attack] = told | {"budget": whole["budget"], "cut": float(one.cut_short)}
    for one in result.runs[0].left_out:
        print(f"{name}, {budget}: {one.attack} left out: {one.problem}", file=sys.stderr)
    return found


def table(book: Book) -> str:
    """Budgets and what they bought."""
    heads = [
        "run",
        "budget",
        "run check",
        "attacks",
        "all",
        "of the budget",
        "of the clock",
        "load",
        "GiB",
        "found at 1%",
    ]
    lines = []
    for row in sorted(book.found(attack="all"), key=lambda row: (list(RUNS).index(row["part"]), row["budget"])):
        told = [one for one in book.found(part=row["part"], setting=row["setting"]) if "tpr" in one]
        found = ", ".join(f"{one['attack']} {one['tpr']:.0%}{' (cut)' if one['cut'] else ''}" for one in told)
        took = row["all"] if row["setting"].endswith(WALL) else row["cpu"]
        spent = [f"{row[key]:.0f} s" if key in row else "" for key in ("check", "seconds")]
        line = [row["part"], row["setting"], *spent, f"{took:.0f} s"]
        line += [f"{took / row['budget']:.0%}", f"{row['all']:.0f} s", f"{row['load']:.1f}", f"{row['memory']:.1f}"]
        line += [found]
        lines.append(line)
    return markdown(heads, lines)


def picture(book: Book) -> Html:
    """Members found at 1% false alarms by the best attack, against the budget."""
    wholes = book.found(attack="all")
    budgets = sorted({row["budget"]: row["setting"] for row in wholes if WALL not in row["setting"]}.items())
    across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    places = {seconds: LEFT + across * (i + 0.5) / len(budgets) for i, (seconds, _) in enumerate(budgets)}
    parts: list[Html] = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = HEIGHT - BOTTOM - up * share
        parts.append(tag("path", d=f"M{LEFT} {y:g}H{WIDTH - RIGHT}", stroke="#8a93a0", stroke_opacity=0.35))
        parts.append(tag("text", f"{share:.0%}", x=LEFT - 7, y=y, dy="0.35em", text_anchor="end"))
    for seconds, name in budgets:
        parts.append(tag("text", name, x=places[seconds], y=HEIGHT - BOTTOM + 21, text_anchor="middle"))
    for number, (run, look) in enumerate(zip(RUNS, LOOKS, strict=True)):
        colour = Series("", "attack", f"{look} solid", np.zeros(1), np.zeros(1)).colour
        points = []
        for seconds, name in budgets:
            told = [one["tpr"] for one in book.found(part=run, setting=name) if "tpr" in one]
            if told:
                points.append((places[seconds], HEIGHT - BOTTOM - up * max(told)))
        if not points:
            continue
        way = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(tag("path", d=way, fill="none", stroke=colour, stroke_width=2.4))
        parts += [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4.5, fill=colour) for x, y in points]
        y = TOP + 18 * number + 12
        parts.append(tag("circle", cx=WIDTH + 6, cy=y - 4, r=4.5, fill=colour))
        parts.append(tag("text", run, x=WIDTH + 16, y=y))
    title = "Members found at 1% false alarms by the best attack, against the budget of the audit"
    middle = TOP + up / 2
    parts.append(tag("text", "Budget", x=LEFT + across / 2, y=HEIGHT - 10, text_anchor="middle"))
    parts.append(
        tag("text", "Members found at 1%", transform=f"translate(15 {middle:g}) rotate(-90)", text_anchor="middle")
    )
    return tag(
        "svg",
        tag("rect", width=WIDTH + 100, height=HEIGHT, fill="white"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH + 100} {HEIGHT}",
        role="img",
        aria_label=title,
        font_size=13.5,
        font_family="sans-serif",
    )


def main() -> None:
    """Rows that are missing, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RUNS)} (default: all)")
    parser.add_argument("--budgets", default="30s,2min,10min")
    parser.add_argument("--keep", type=Path, default=HERE / "budgets.csv")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/gmip-budgets"))
    parser.add_argument("--wall", action="store_true", help="budgets of the clock")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--docs", action="store_true", help="write table and picture into the docs")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in RUNS]:
        parser.error(f"{unknown[0]} is no run: choose among {', '.join(RUNS)}")
    torch.set_num_threads(1)
    if given.alone:
        if not given.wall:
            time.monotonic = time.perf_counter = time.process_time
        print(json.dumps(audited(given.names[0], given.folder, given.budgets)))
        return
    book = Book(given.keep, numbers=NUMBERS)
    for budget in [] if given.show else given.budgets.split(","):
        for name in given.names or RUNS:
            key: Row = {"part": name, "setting": budget + WALL * given.wall, "seed": 0, "null": False}
            if not book.wants(key | {"attack": "all"}):
                continue
            if not (given.folder / name).exists():
                given.folder.mkdir(parents=True, exist_ok=True)
                train(task_of(name), RUNS[name], given.folder / name)
            options = [name, "--alone", "--budgets", budget, "--folder", str(given.folder)]
            options += ["--wall"] * given.wall
            alone = {**os.environ, **dict.fromkeys(BLAS_THREADS, "1")}
            done = subprocess.run([sys.executable, __file__, *options], env=alone, check=True, stdout=subprocess.PIPE)
            for attack, row in reversed(json.loads(done.stdout.splitlines()[-1]).items()):
                book.add(key | {"attack": attack} | row)
            print(table(book).splitlines()[-1], file=sys.stderr)
    found = {"budgets": table(book)}
    print(found["budgets"])
    if given.docs:
        page = EVIDENCE / "cost.md"
        page.write_text(written(page.read_text(encoding="utf-8"), "budgets.py", found), encoding="utf-8")
        (EVIDENCE / "budgets.svg").write_text(f"{picture(book)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
