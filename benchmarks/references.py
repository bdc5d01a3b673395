"""Attacks on predictions beside each other, with 2 reference models (offline) and with 4 and 16 (online).

    python benchmarks/references.py              # about a CPU minute
    python benchmarks/references.py --null       # the attacked model was trained on other records: nobody can be found

Mean over attacked models of AUC and of the members found at 0.1 and 1% false alarms, in per cent; +- is the standard
error of the last. "forecast" has no AUC: it is the share of the others that the loss rules out at these rates of missed
members, which arXiv 2510.19773 takes for what LiRA will find, without any reference model. Data are simulated or come
with scikit-learn; a tenth of the labels is wrong, so that there is something to learn by heart.
"""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from gmip.attacks.arrays import Answers, ReferenceAnswers, array_attacks, read_answers
from gmip.stats.scores import auc

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


def asked(task: Task, trained_on: np.ndarray, about: np.ndarray, seed: int) -> Answers:
    _, x, y, make = task
    p = np.clip(make(seed).fit(x[trained_on], y[trained_on]).predict_proba(x[about]), 1e-12, 1.0)
    answers = read_answers("probabilities", p / p.sum(axis=1, keepdims=True), y[about].astype(np.intp))
    return dataclasses.replace(answers, features=np.column_stack([x[about], y[about]]))


def found(scores: np.ndarray, inside: np.ndarray, fpr: float) -> float:
    others = np.sort(scores[~inside])[::-1]
    return float((scores[inside] > others[int(fpr * len(others))]).mean())


def played(task: Task, references: int, games: int, null: bool) -> dict[str, np.ndarray]:
    """Name -> (games, 3): AUC, members found at 0.1% and at 1%. A third of the records is for references alone."""
    rng = np.random.default_rng(references)
    size = len(task[1])
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for game in range(games):
        order = rng.permutation(size)
        pool, rest = order[: 2 * size // 3], order[2 * size // 3 :]
        inside = rng.permutation(len(pool)) < len(pool) // 2
        model = asked(task, rest if null else pool[inside], pool, 1000 * game)
        others = []
        for pair in range(references // 2):
            half = rng.permutation(len(pool)) < len(pool) // 2
            for side, was in enumerate((half, ~half)):
                offline = references == 2
                used = rng.permutation(rest)[: 2 * len(rest) // 3] if offline else pool[was]
                one = asked(task, used, pool, 1000 * game + 2 * pair + side + 1)
                others.append(ReferenceAnswers(one, None if offline else was))
        for name, attack in array_attacks(model, others).items():
            s = attack.scores
            if name == "loss":
                ruled_out = (np.nan, found(-s, ~inside, 0.001), found(-s, ~inside, 0.01))
                rows.setdefault("forecast", []).append(ruled_out)
            rows.setdefault(name, []).append(
                (auc(s[inside], s[~inside]), found(s, inside, 0.001), found(s, inside, 0.01))
            )
    return {name: np.array(values) for name, values in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=6, help="attacked models (default 6)")
    parser.add_argument("--null", action="store_true", help="attack models that were trained on other records")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| task | references | attack | AUC | 0.1% | 1% |\n|---|---|---|---|---|---|")
    for task in tasks():
        for references in (2, 4, 16):
            for name, values in played(task, references, options.games, options.null).items():
                if name in ("margin", "entropy", "confidence"):
                    continue
                area, low, one = values.mean(axis=0)
                error = values[:, 2].std(ddof=1) / np.sqrt(len(values))
                cells = [task[0], references, name, f"{area:.3f}", f"{100 * low:.1f}"]
                print("|", *(f"{cell} |" for cell in cells), f"{100 * one:.1f} +- {100 * error:.1f} |", flush=True)


if __name__ == "__main__":
    main()
