"""What a list of candidates is worth to an attacker of gradients: decoding and GLiR II (a part of attacks.py).

Each run is attacked by GLiR, which asks about one candidate at a time; by GLiR with the candidates, unlabelled, as
background; and by decoding. Then the list holds half or a tenth of the members only, and as many others. In a null run
nobody of the list was in the run. Background: up to 10,000 other records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import torch
from _games import Book, Ids, Page, both, errors, markdown, network
from _harness import Row
from torch import nn

from gmip.attacks import Attack, Decode, GLiR
from gmip.tasks import Examples, Task, load
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe

NAME = "lists"
SEEDS = NULL_SEEDS = range(10, 15)  # on which nothing was tuned
MOST_BACKGROUND = 10_000

FULL = {"sampling": "full", "optimizer": "Adam", "learning_rate": 2.0e-3}
CIFAR = {"dataset_size": 500, "batch_size": 500, **FULL}
ADULT = {"dataset_size": 790, "batch_size": 790, **FULL}
NETWORK = {"dataset_size": 200, "batch_size": 200, "num_steps": 5, "sampling": "full", "optimizer": "Adam"}
LINEAR = {"dataset_size": 200, "batch_size": 20, "num_steps": 20, "learning_rate": 0.1}


def digits_network() -> Task:
    return dataclasses.replace(load("digits"), make_model=network)


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
    "linear, 385 parameters, N = 200, n = 20, 20 steps, fixed": (linear, {**LINEAR, "sampling": "fixed"}),
    "the same, Poisson": (linear, {**LINEAR, "sampling": "poisson"}),
    "the same, shuffled": (linear, {**LINEAR, "sampling": "shuffled"}),
    "digits network, N = n = 200, 5 steps": (digits_network, {**NETWORK, "learning_rate": 1.0e-2}),
    "cifar10, N = n = 500, 1 step": (lambda: load("cifar10"), {**CIFAR, "num_steps": 1}),
    "cifar10, 5 steps": (lambda: load("cifar10"), {**CIFAR, "num_steps": 5}),
    "adult, N = n = 790, 1 step": (lambda: load("adult"), {**ADULT, "num_steps": 1}),
}
ATTACKS: dict[str, Attack] = {
    "glir": GLiR(),
    "glir, with candidates": GLiR(background="with-candidates"),
    "decode": Decode(),
}
SHARES = {"half": 2, "a tenth": 10}


def play(page: Page, folder: Path) -> None:
    """All attacks on the run of a seed."""
    listed = [name for name in ATTACKS if name != "glir"]
    names = ["glir", *listed]
    names += ["decode, no background"] if page.null else [f"{name}, {part}" for part in SHARES for name in listed]
    if not page.wants(*names):
        return
    make, changes = SETTINGS[page.setting]
    task = make()
    run = folder / f"{page.setting}, {page.seed}"
    found = train(task, task.recipe.replace(clip_norm=None, **changes), seed=page.seed, out=run, resume=True)
    trace, members, others = Trace.open(run), found.split.members, found.split.non_members
    rest = np.random.default_rng(page.seed).permutation(found.split.unused)  # digits are sorted by writer
    size = len(members)
    if page.null:
        members, rest = rest[:size], rest[size:]
    background, nobody = task.pool[rest[:MOST_BACKGROUND]], task.pool[[]]

    def attack(name: str, kind: str, ins: Ids, outs: Ids, others: Examples) -> None:
        page.attack(name, ATTACKS[kind], task, trace, ins, outs, others)

    for name in names:
        kind = next(kind for kind in reversed(ATTACKS) if name.startswith(kind))
        count = size // next((n for part, n in SHARES.items() if name.endswith(part)), 1)
        # All members are listed: decoding has no use for others.
        alone = name == "decode, no background" or (name == "decode" and not page.null)
        ins, outs = (np.random.default_rng(page.seed).permutation(one)[:count] for one in (members, others))
        attack(name, kind, ins, outs, nobody if alone else background)


def tables(book: Book) -> dict[str, str]:
    """Tables of docs/evidence/attacks.md, by name."""
    lines, partly, told = [], [], []
    listed = [name for name in ATTACKS if name != "glir"]
    ways = [f"{name}, {part}" for part in SHARES for name in listed]
    for setting in SETTINGS:
        if not book.found(part=NAME, setting=setting):
            continue
        found = {a: book.found(part=NAME, setting=setting, attack=a, null=False) for a in (*ATTACKS, *ways)}
        told += found.values()
        times = [(a["seconds"], b["seconds"]) for a, b in zip(found["decode"], found["glir"], strict=False)]
        ratio = f"{sum(a for a, _ in times) / sum(b for _, b in times):.2g}" if times else ""
        lines.append([setting, *(both(found[name], digits=0) for name in ATTACKS), ratio])
        shares = [row["coverage"] for row in found["decode, half"]]
        taken = f"{mean(shares):.2f} ± {stdev(shares):.2f}".replace("0.", ".") if len(shares) > 1 else ""
        partly.append([setting, *(both(found[name], digits=0) for name in ways), taken])
    heads = [f"{part}: {name}" for part in SHARES for name in listed]
    return {
        "lists": markdown(["run", *ATTACKS, "CPU time of decode to glir"], lines),
        "lists, partly": markdown(["run", *heads, "decode's estimate of the half"], partly) + errors(told),
    }
