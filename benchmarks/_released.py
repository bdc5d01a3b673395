"""Attacks on released weights alone, beside LiRA with 32 shadow models (a part of attacks.py).

In a null run the attacks are asked about a list of two halves of strangers.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from _games import Book, Ids, Page, both, errors, markdown, network, percent
from _harness import Row
from sklearn.linear_model import LogisticRegression
from torch import nn

from gmip.attacks import Attack, Influence, LiRA, Loss, Optimum, OptimumDecode, Shadows
from gmip.attacks.arrays import Moments, likelihood_ratios
from gmip.stats import ScoreSet
from gmip.tasks import Examples, Task, load
from gmip.trace import Header, ParameterSpec, Trace, TraceWriter
from gmip.training import train

NAME = "released"
SEEDS = NULL_SEEDS = range(10, 15)  # on which nothing was tuned
MOST_BACKGROUND, SHADOWS = 20_000, 32


def arrays(examples: Examples) -> tuple[Any, Any]:
    return examples.inputs.double().flatten(1).numpy(), examples.targets.numpy()


def fit(task: Task, rows: Ids) -> LogisticRegression:
    return LogisticRegression(C=1.0, max_iter=10_000).fit(*arrays(task.pool[rows]))


def logits(model: LogisticRegression) -> tuple[Any, Any, float]:
    """Weights and bias of a softmax over all classes, and the strength of the penalty on them, times N."""
    if len(model.classes_) > 2:
        return model.coef_, model.intercept_, 1.0
    # Two classes have one logit w: the softmax of (-w/2, w/2), whose squares add up to half of it.
    return np.vstack([-model.coef_, model.coef_]) / 2, np.append(-model.intercept_, model.intercept_) / 2, 2.0


def released(task: Task, folder: Path, members: Ids, others: Ids) -> tuple[Trace, float]:
    """A trace without steps: scikit-learn's model of the members."""
    weight, bias, strength = logits(fit(task, members))
    header = Header(
        parameters=(ParameterSpec("weight", weight.shape), ParameterSpec("bias", bias.shape)),
        num_params=weight.size + bias.size,
        dataset_size=len(members),
        batch_size=len(members),
        sampling="full",
        fingerprints=task.fingerprints,
    )
    writer = TraceWriter.create(folder, header, members=members, non_members=others)
    writer.close({"weight": weight, "bias": bias})
    return Trace.open(folder), strength / len(members)


def margins(model: LogisticRegression, x: Any, y: Any) -> Any:
    chance = np.clip(model.predict_proba(x)[np.arange(len(y)), np.searchsorted(model.classes_, y)], 1e-300, 1 - 1e-16)
    return (np.log(chance) - np.log1p(-chance))[:, None]


def lira(task: Task, members: Ids, listed: Ids, seed: int) -> tuple[ScoreSet, Ids]:
    """Scores of LiRA with shadow models by scikit-learn, on random halves of the candidates, and who is in."""
    x, y = arrays(task.pool[listed])
    target = margins(fit(task, members), x, y)
    inside, outside = Moments(target.shape), Moments(target.shape)
    rng = np.random.default_rng(1000 + seed)
    for _ in range(SHADOWS):
        chosen = np.zeros(len(listed), dtype=bool)
        chosen[rng.permutation(len(listed))[: len(members)]] = True
        values = margins(fit(task, listed[chosen]), x, y)
        inside.add(values, chosen)
        outside.add(values, ~chosen)
    found = ScoreSet(ids=listed, scores=likelihood_ratios(target, inside, outside), attack="lira")
    return found, np.isin(listed, members)


def regression(page: Page, folder: Path, name: str, size: int) -> None:
    task = load(name)
    if not isinstance(task.make_model(), nn.Linear):
        classes = int(task.pool.targets.max()) + 1
        task = dataclasses.replace(task, make_model=lambda: nn.Linear(task.pool.inputs[0].numel(), classes))
    order = np.random.default_rng(page.seed).permutation(len(task.pool))
    members, others = np.sort(order[:size]), np.sort(order[size : 2 * size])
    with tempfile.TemporaryDirectory() as scratch:
        trace, l2 = released(task, Path(scratch) / "trace", members, others)
        games(page, task, trace, members, others, order[2 * size :], {"weight": l2})
    if not page.null:
        page.scored("lira", lambda: lira(task, members, np.concatenate([members, others]), page.seed))


def digits_network(page: Page, folder: Path, decay: float) -> None:
    """300 steps of Adam; without a weight decay it comes to interpolate, and there is no optimum."""
    task = dataclasses.replace(load("digits"), make_model=network)
    changes = {"dataset_size": 200, "batch_size": 200, "sampling": "full", "optimizer": "Adam", "learning_rate": 1e-2}
    options = {"weight_decay": decay} if decay else {}
    recipe = task.recipe.replace(clip_norm=None, num_steps=300, optimizer_options=options, **changes)
    task = dataclasses.replace(task, recipe=recipe)
    run = folder / f"released, decay {decay}, {page.seed}"
    found = train(task, recipe, seed=page.seed, out=run, every=1000, resume=True)
    trace, members, others = Trace.open(run), found.split.members, found.split.non_members
    rest = np.random.default_rng(page.seed).permutation(found.split.unused)  # digits are sorted by writer
    games(page, task, trace, members, others, rest, None)
    if not page.null:
        shadows = Shadows(count=SHADOWS, workers=1, folder=folder / "released, shadows", seed=page.seed)
        page.attack("lira", LiRA(shadows=shadows), task, trace, members, others, None)


ATTACKS: dict[str, Callable[[Any], Attack]] = {
    "loss": lambda _: Loss(),
    "influence": lambda l2: Influence(l2=l2, learning_rate=0.0, hessian_records=500, iterations=20, second_order=True),
    "optimum": lambda l2: Optimum(l2=l2),
    "optimum, with candidates": lambda l2: Optimum(l2=l2, background="with-candidates"),
    "optimum-decode": lambda l2: OptimumDecode(l2=l2),
}


def games(page: Page, task: Task, trace: Trace, members: Ids, others: Ids, rest: Ids, l2: Any) -> None:
    """All attacks on the weights; `rest` are rows of nobody."""
    if page.null:
        members, rest = rest[: len(members)], rest[len(members) :]
    for name, make in ATTACKS.items():
        free = rest[:0] if name == "optimum-decode" else rest[:MOST_BACKGROUND]
        page.attack(name, make(l2), task, trace, members, others, task.pool[free])


SETTINGS: dict[str, Callable[[Page, Path], None]] = {
    "adult, logistic regression, N = 790": lambda page, folder: regression(page, folder, "adult", 790),
    "digits, softmax regression, N = 200": lambda page, folder: regression(page, folder, "digits", 200),
    "digits network, weight decay .01, N = 200": lambda page, folder: digits_network(page, folder, 0.01),
    "the same without weight decay": lambda page, folder: digits_network(page, folder, 0.0),
}


def play(page: Page, folder: Path) -> None:
    """All attacks on the model of a seed."""
    if page.wants(*ATTACKS, *(() if page.null else ("lira",))):
        SETTINGS[page.setting](page, folder)


def tables(book: Book) -> dict[str, str]:
    """A table of docs/evidence/attacks.md."""
    settings = [name for name in SETTINGS if book.found(part=NAME, setting=name)]

    def rows(setting: str, attack: str, *, null: bool = False) -> list[Row]:
        return book.found(part=NAME, setting=setting, attack=attack, null=null)

    def average(setting: str, attack: str, key: str, *, null: bool = False) -> str:
        values = [row[key] for row in rows(setting, attack, null=null) if key in row]
        return f"{mean(values):.2f}" if values else ""

    titles = {name: name for name in ATTACKS} | {"lira": f"LiRA, {SHADOWS} shadow models"}
    lines = [
        [title, *(both(rows(s, name)) for s in settings)]
        for name, title in titles.items()
        if any(rows(s, name) for s in settings)
    ]
    lines.append(["distance", *(average(s, "optimum", "distance") for s in settings)])
    lines.append(["optimum's AUC, predicted", *(average(s, "optimum", "predicted") for s in settings)])
    lines.append(["decided by optimum-decode", *(percent(rows(s, "optimum-decode"), "decoded") for s in settings)])
    lines.append(
        ["the same, list of strangers", *(percent(rows(s, "optimum-decode", null=True), "decoded") for s in settings)]
    )
    ratios = []
    for setting in settings:
        times = [sum(row["seconds"] for row in rows(setting, name)) for name in ("lira", "optimum")]
        ratios.append(f"{times[0] / times[1]:.2g}" if all(times) else "")
    lines.append(["CPU time of LiRA to optimum", *ratios])
    told = errors(rows(setting, name) for name in titles for setting in settings)
    return {"released": markdown(["", *settings], lines) + told}
