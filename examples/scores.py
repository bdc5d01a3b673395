"""Audit an attack of your own: scores of a scikit-learn model, in a file that gmip reads.

    python examples/scores.py scores.csv
    gmip audit scores.csv --claim mu=0.5 --target tpr=0.2@0.1 --gate

A random forest is trained on half of the digits. Two attacks, the simplest there are: the probability that the model
gives to the true class, and by how much that exceeds the next one; both are high for records that it was trained on.
Each record also has its digit, so that the report says which are more exposed. Nothing here needs gmip: any language
that writes CSV will do.
"""

from __future__ import annotations

import csv
import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split


def main(path: str) -> None:
    data = load_digits()
    ids = np.arange(data.target.size)
    inside, outside = train_test_split(ids, test_size=0.5, stratify=data.target, random_state=0)
    model = RandomForestClassifier(n_estimators=50, random_state=0).fit(data.data[inside], data.target[inside])
    chances = model.predict_proba(data.data)
    confidence = chances[ids, data.target]
    chances[ids, data.target] = 0.0
    margin = confidence - chances.max(axis=1)
    with open(path, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123
        table = csv.writer(file)
        table.writerow(["id", "member", "confidence_score", "margin_score", "group"])
        members = set(inside.tolist())
        for i in (*inside.tolist(), *outside.tolist()):
            table.writerow([i, int(i in members), confidence[i], margin[i], data.target[i]])
    print(f"Wrote {path}. Next: gmip audit {path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "scores.csv")
