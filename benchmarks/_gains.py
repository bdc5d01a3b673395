"""What an attacker gains from gradients, beside all attacks on the trained model (a part of attacks.py).

In each setting a few targets are trained on random halves of the same candidates, and all attacks run on each of them.
They share one set of shadow models, as all have one recipe. The attacks on gradients use the first five steps, so they
run on the short runs only. In a null run the members are fresh records and all candidates are strangers to it, half of
whom, at random, are called members.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from _games import Book, Ids, Page, both, errors, markdown, network
from _harness import Row
from torch import nn

from gmip.attacks import CFD, CFDLRT, RMIA, Attack, Decode, Differences, GLiR, LiRA, Loss, Seed, Shadows
from gmip.attacks.arrays import Moments
from gmip.attacks.shadow import Variance, shadow_set
from gmip.attacks.signals import Confidence, released_model
from gmip.stats import ScoreSet
from gmip.tasks import Split, Task, load
from gmip.trace import Trace
from gmip.training import train

NAME, SEEDS, NULL_SEEDS = "gains", range(5), range(10)
SHADOWS, NULL_SHADOWS = 64, 16
COUNTS = (4, 8, 16, 32, 64)
STEPS = (5, 2_000)
MOST_NULL_BACKGROUND = 5_000
TRAINING, WITH_DISTANCES = "training of 64 shadow models", "training of 64 shadow models, with distances"
"""Rows that are a cost alone."""

GRADIENTS: dict[str, Attack] = {
    "glir": GLiR(steps=range(5)),
    "glir, with candidates": GLiR(steps=range(5), background="with-candidates"),
    "glir, no self-play": GLiR(steps=range(5), play=None, ridge=1.0e-2),
    "decode": Decode(steps=range(5)),
}
ONLY_NULL: dict[str, Attack] = {"differences": Differences(steps=range(5)), "seed": Seed(tries=20)}
MODELS: dict[str, Callable[[Shadows], Attack]] = {
    "loss": lambda _: Loss(),
    "lira": lambda shadows: LiRA(shadows=shadows),
    "lira, offline": lambda shadows: LiRA(shadows=shadows, online=False),
    "rmia": lambda shadows: RMIA(shadows=shadows),
    "rmia, offline": lambda shadows: RMIA(shadows=shadows, online=False),
    "cfd": lambda _: CFD(),
    "cfd-lrt": lambda shadows: CFDLRT(shadows=shadows),
}


@dataclass(frozen=True)
class Setting:
    """N = n = `members` of 2 N candidates, full batches; up to `background` records besides, of which `fresh` are those
    that null runs draw their members from."""

    task: str
    members: int
    background: int
    fresh: int
    recipe: Row
    make_model: Callable[[], nn.Module] | None = None  # instead of the task's own

    def prepared(self, steps: int, *, null: bool) -> Task:
        """The task with the candidates, and in null runs the fresh records, as its pool: all targets have the same."""
        task = load(self.task)
        order = np.random.default_rng(0).permutation(len(task.pool))
        candidates = 2 * self.members
        pool = candidates + self.fresh if null else candidates
        last = min(candidates + self.background, pool + MOST_NULL_BACKGROUND) if null else candidates + self.background
        recipe = {"dataset_size": self.members, "sampling": "full", "clip_norm": None, "num_steps": steps}
        parts = {field.name: getattr(task, field.name) for field in dataclasses.fields(Task)} | {
            "make_model": self.make_model or task.make_model,
            "pool": task.pool[order[:pool]],
            "background": task.pool[order[pool:last]],
            "recipe": task.recipe.replace(**recipe, **self.recipe),
        }
        return _NullTask(**parts, candidates=candidates) if null else Task(**parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class _NullTask(Task):
    """The first records of the pool are never members."""

    candidates: int

    def split(self, dataset_size: int, seed: int) -> Split:
        fresh = np.arange(self.candidates, len(self.pool))
        order = np.random.default_rng(seed).permutation(fresh)
        return Split(np.sort(order[:dataset_size]), np.arange(self.candidates), np.sort(order[dataset_size:]))


_DIGITS: Row = {"optimizer": "SGD", "learning_rate": 0.5}
_NETWORK: Row = {"optimizer": "Adam", "learning_rate": 1.0e-2}
_CIFAR: Row = {"optimizer": "Adam", "learning_rate": 2.0e-3}
KINDS = {
    "digits": Setting("digits", 120, 1_197, 240, _DIGITS),
    "digits network": Setting("digits", 200, 1_037, 237, _NETWORK, network),
    "cifar10": Setting("cifar10", 500, 20_000, 2_500, _CIFAR),
}
SETTINGS = {f"{kind}, {steps:,} steps": (kind, steps) for steps in STEPS for kind in KINDS}


def play(page: Page, folder: Path) -> None:
    """All attacks on the run of a seed."""
    kind, steps = SETTINGS[page.setting]
    count = NULL_SHADOWS if page.null else SHADOWS
    gradients: dict[str, Attack] = {} if steps > STEPS[0] else GRADIENTS | (ONLY_NULL if page.null else {})
    fewer = _fewer() if steps > STEPS[0] and not page.null else {}
    costs = (TRAINING, WITH_DISTANCES) if page.seed == 0 and not page.null else ()
    if not page.wants(*gradients, *MODELS, *fewer, *costs):
        return
    task = KINDS[kind].prepared(steps, null=page.null)
    run = folder / f"{page.setting}, null {page.null}, {page.seed}"
    train(task, seed=page.seed, out=run, resume=True, every=1 if steps == STEPS[0] else 1_000)
    trace = Trace.open(run)
    assert trace.members is not None and task.background is not None
    listed = np.arange(2 * KINDS[kind].members)
    called = np.random.default_rng(page.seed).permutation(listed)[: len(listed) // 2]
    members = called if page.null else trace.members
    others = np.setdiff1d(listed, members)
    shared = Shadows(count=count, workers=1, folder=folder / f"{page.setting}, null {page.null}")
    if page.wants(*costs, *(name for name in (*MODELS, *fewer) if name not in ("loss", "cfd"))):
        _train(page, task, trace, listed, shared, costs)
    for name, attack in gradients.items():  # decoding of a list that holds all members has no use for others
        background = task.pool[[]] if name == "decode" else task.background
        page.attack(name, attack, task, trace, members, others, background)
    for name, make in MODELS.items():
        page.attack(name, make(shared), task, trace, members, others, task.background)
    for name, (way, models) in fewer.items():
        some = dataclasses.replace(shared, count=models)
        if way == "gaussian":
            page.scored(name, lambda some=some: _gaussian(task, trace, listed, members, some))  # type: ignore[misc]
        else:
            page.attack(name, _way(way, some), task, trace, members, others, task.background)


def _fewer() -> dict[str, tuple[str, int]]:
    ways = ("gaussian", *get_args(Variance), "rmia", "rmia, offline")
    return {f"{way}, {count} models": (way, count) for count in COUNTS for way in ways}


def _way(way: str, shadows: Shadows) -> Attack:
    if way.startswith("rmia"):
        return RMIA(shadows=shadows, online=way == "rmia")
    return LiRA(shadows=shadows, variance=way)  # type: ignore[arg-type]


def _gaussian(task: Task, trace: Trace, listed: Ids, members: Ids, shadows: Shadows) -> tuple[ScoreSet, Ids]:
    """LiRA as "auto" was first: Gaussians, each candidate's variance blended with the pooled one of weight 4."""
    assert task.background is not None
    signal = Confidence()
    phi = signal(task, released_model(task, trace), task.pool[listed]).astype(float)
    inside, outside = Moments(phi.shape), Moments(phi.shape)
    for model in shadow_set(task, trace, listed, task.background, (signal,), shadows):
        values = model.signal(signal.key)[0].astype(float)
        inside.add(values, model.inside)
        outside.add(values, ~model.inside)
    logs = []
    for moments in (inside, outside):
        spread, _ = moments.spread("auto")
        logs.append(-0.5 * (np.log(spread) + (phi - moments.mean) ** 2 / spread))
    return ScoreSet(ids=listed, scores=(logs[0] - logs[1]).mean(axis=1), attack="gaussian"), np.isin(listed, members)


def _train(page: Page, task: Task, trace: Trace, listed: Ids, shared: Shadows, costs: Sequence[str]) -> None:
    """All shadow models; what 64 cost, by those that are trained now: a few without distances, then the others."""
    assert task.background is not None
    signals = ((Confidence(),), (Confidence(), *CFDLRT(shadows=shared).signals()))
    for name, some, count in zip((TRAINING, WITH_DISTANCES), signals, (COUNTS[0], shared.count), strict=True):
        seen: list[int] = []
        start = time.process_time()
        shadow_set(
            task,
            trace,
            listed,
            task.background,
            some,
            dataclasses.replace(shared, count=count),
            progress=lambda done, total, seen=seen: seen.append(done),  # type: ignore[misc]
        )
        trained = seen[-1] - seen[0]
        if name in costs and page.wants(name) and trained:
            page.timed(name, SHADOWS * (time.process_time() - start) / trained)


def tables(book: Book) -> dict[str, str]:
    """Tables of docs/evidence/attacks.md, by name."""
    shown = [name for name in SETTINGS if book.found(part=NAME, setting=name)]
    attacks = [name for name in (*GRADIENTS, *MODELS) if book.found(part=NAME, attack=name, null=False)]
    heads = [f"{kind}, {steps:,} steps" for kind in KINDS for steps in STEPS if f"{kind}, {steps:,} steps" in shown]

    def cells(setting: str, attack: str) -> list[Row]:
        return book.found(part=NAME, setting=setting, attack=attack, null=False)

    every = [[cells(setting, attack) for setting in heads] for attack in attacks]
    lines = [[attack, *map(both, row)] for attack, row in zip(attacks, every, strict=True)]
    return {
        "gains": markdown(["AUC, TPR", *heads], lines) + errors(rows for row in every for rows in row),
        "costs": _costs(book, heads),
        "shadow models": _counts(book),
    }


def _costs(book: Book, settings: Sequence[str]) -> str:
    heads = [
        "run",
        "glir",
        "with candidates",
        "decode",
        "lira",
        "cfd-lrt",
        "lira to glir",
        "to with candidates",
        "to decode",
    ]
    lines = []
    for setting in settings:
        short = f"{SETTINGS[setting][0]}, {STEPS[0]:,} steps"

        def seconds(attack: str, where: str) -> float:
            found = book.found(part=NAME, setting=where, attack=attack, null=False, seed=0)
            return float(found[0]["seconds"]) if found else float("nan")

        own = [seconds(attack, short) for attack in ("glir", "glir, with candidates", "decode")]
        lira = seconds(TRAINING, setting) + seconds("lira", setting)
        cfd = seconds(WITH_DISTANCES, setting) + seconds("cfd-lrt", setting)
        ratios = [f"{lira / one:.2g}" if lira < 10 * one else f"{lira / one:.0f}" for one in own]
        lines.append([setting, *(f"{value:.2f}" for value in (*own, lira, cfd)), *ratios])
    return markdown(heads, lines)


def _counts(book: Book) -> str:
    ways = ("auto", "gaussian", "per-example", "pooled", "rmia", "rmia, offline")
    heads = ["run", "shadow models", "lira, auto", "Gaussian, weight 4", *ways[2:]]
    lines = []
    for kind in KINDS:
        for count in COUNTS[::2]:
            setting = f"{kind}, {STEPS[1]:,} steps"
            rows = [book.found(part=NAME, setting=setting, attack=f"{way}, {count} models") for way in ways]
            texts = [both(some, digits=0) for some in rows]
            if any(texts):
                lines.append([kind, str(count), *texts])
    return markdown(heads, lines)
