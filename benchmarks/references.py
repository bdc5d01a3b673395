"""Attacks on predictions beside each other, with 2 reference models that have seen none of the records ("2 without")
and with 2, 4 and 16 that have seen half of them.

    python benchmarks/references.py              # about two CPU minutes
    python benchmarks/references.py --peers F    # and those of other programs, whose clones are in F (_array_peers.py)
    python benchmarks/references.py --null       # the attacked model was trained on other records: nobody can be found

Means over attacked models of AUC and of the members found at 0.1 and 1% false alarms, in per cent; +- is a standard
error. "forecast" has no AUC: it is the share of the others that the loss rules out at these rates of missed
members, which arXiv 2510.19773 takes for what LiRA will find, without any reference model. Data are simulated or come
with scikit-learn; a tenth of the labels is wrong, so that there is something to learn by heart.
"""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _array_peers as peers
import numpy as np
from _array_peers import Game
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from gmip.attacks.arrays import Answers, ReferenceAnswers, array_attacks, read_answers
from gmip.stats.scores import auc, tpr_at_fpr

Task = tuple[str, np.ndarray, np.ndarray, Callable[[int], Any]]


def tasks() -> Iterator[Task]:
    rng = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    wrong = rng.random(len(y)) < 0.1
    y = np.where(wrong, rng.integers(0, 10, len(y)), y)
    yield (
        "digits, network",
        x / 16,
        y,
        lambda seed: MLPClassifier((32,), max_iter=60, learning_rate_init=5e-3, random_state=seed),
    )
    x, y = make_classification(3000, 30, n_informative=12, n_classes=5, flip_y=0.1, random_state=1)
    yield (
        "simulated, network",
        x,
        y,
        lambda seed: MLPClassifier((64,), max_iter=25, learning_rate_init=3e-3, random_state=seed),
    )
    yield "simulated, logistic regression", x[:1500], y[:1500], lambda seed: LogisticRegression(C=10)
    x, y = make_classification(3000, 20, n_informative=8, n_classes=3, flip_y=0.1, random_state=2)
    yield "simulated, boosted trees", x, y, lambda seed: HistGradientBoostingClassifier(max_iter=40, random_state=seed)


def answers(p: np.ndarray, x: np.ndarray, y: np.ndarray) -> Answers:
    read = read_answers("probabilities", p, y.astype(np.intp))
    return dataclasses.replace(read, features=np.column_stack([x, y]))


def rates(members: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The share of members found at 0.1% and at 1% false alarms."""
    return float(tpr_at_fpr(members, others, 0.001)), float(tpr_at_fpr(members, others, 0.01))


def drawn(task: Task, references: int, offline: bool, null: bool, seed: int, rng: np.random.Generator) -> Game:
    """A model and its references. A third of the records is for references alone."""
    _, x, y, make = task
    order = rng.permutation(len(y))
    pool, rest = order[: 2 * len(y) // 3], order[2 * len(y) // 3 :]
    inside = rng.permutation(len(pool)) < len(pool) // 2

    def trained(rows: np.ndarray, number: int) -> Any:
        return make(1000 * seed + number).fit(x[rows], y[rows])

    def says(model: Any, about: np.ndarray) -> np.ndarray:
        p = np.clip(model.predict_proba(x[about]), 1e-12, 1.0)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    model, others, known = trained(rest if null else pool[inside], 0), [], []
    for pair in range(references // 2):
        half = rng.permutation(len(pool)) < len(pool) // 2
        for side, was in enumerate((half, ~half)):
            used = rng.permutation(rest)[: 2 * len(rest) // 3] if offline else pool[was]
            others.append(says(trained(used, 2 * pair + side + 1), pool))
            known.append(was)
    spare = x[rest], y[rest].astype(int), says(model, rest)
    who = None if offline else np.array(known)
    return Game(model, x[pool], y[pool].astype(int), says(model, pool), np.array(others), inside, who, spare)


def played(task: Task, references: int, offline: bool, options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Name -> (games, 3): AUC, members found at 0.1% and at 1%."""
    rng = np.random.default_rng(references + offline)
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for number in range(options.games):
        game = drawn(task, references, offline, options.null, number, rng)
        inside, x, y = game.inside, game.x, game.y
        known = [None] * references if game.known is None else list(game.known)
        others = [ReferenceAnswers(answers(p, x, y), was) for p, was in zip(game.references, known, strict=True)]
        attacks = {name: one.scores for name, one in array_attacks(answers(game.p, x, y), others).items()}
        attacks = {name: one for name, one in attacks.items() if name not in ("margin", "entropy", "confidence")}
        loss = attacks["loss"]
        if options.peers is not None:
            attacks |= peers.scores(game)
        for name, s in attacks.items():
            rows.setdefault(name, []).append((auc(s[inside], s[~inside]), *rates(s[inside], s[~inside])))
        rows.setdefault("forecast", []).append((np.nan, *rates(-loss[~inside], -loss[inside])))
    return {name: np.array(values) for name, values in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=6, help="attacked models (default 6)")
    parser.add_argument("--null", action="store_true", help="attack models that were trained on other records")
    parser.add_argument("--peers", type=Path, help="a folder with clones of other programs (_array_peers.py)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.peers is not None:
        peers.use(options.peers)
    print("| task | references | attack | AUC | 0.1% | 1% |\n|---|---|---|---|---|---|")
    far: list[str] = []
    for task in tasks():
        for references, offline in ((2, True), (2, False), (4, False), (16, False)):
            for name, values in played(task, references, offline, options).items():
                mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
                seen = f"{references} without" if offline else f"{references}"
                cells = [task[0], seen, name, f"{mean[0]:.3f} +- {error[0]:.3f}"]
                cells += [f"{100 * mean[i]:.1f} +- {100 * error[i]:.1f}" for i in (1, 2)]
                print("|", *(f"{cell} |" for cell in cells), flush=True)
                if options.null and abs(mean[0] - 0.5) > 2 * error[0]:
                    far.append(f"{name} ({task[0]}, {seen})")
    if options.null:
        print(f"\nAUC beyond two errors of .5: {', '.join(far) or 'none'}")


if __name__ == "__main__":
    main()
