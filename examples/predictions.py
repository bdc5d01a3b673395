"""Audit a model by its predictions alone: class probabilities, labels, who was in, and a few reference models.

    python examples/predictions.py predictions.csv
    gmip audit predictions.csv --target tpr=0.3@0.1 --gate

A small neural network of scikit-learn is trained on half of the digits. Eight reference models are trained as it was,
in pairs on the two halves of a random split, and the file says who was in which (ref_NAME_in): so LiRA and RMIA can
compare the model's confidence in a record with that of models with it and without it. Without reference models, loss,
margin, entropy and confidence are left. Any language that writes CSV will do.
"""

from __future__ import annotations

import csv
import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

REFERENCES = 8


def main(path: str) -> None:
    data = load_digits()
    inputs, labels = data.data / 16.0, data.target
    size = len(labels)
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(size) < 0.1, rng.integers(0, 10, size), labels)  # some are wrong, and learnt by heart

    def trained(seed: int, half: int) -> tuple[np.ndarray, np.ndarray]:
        """Who was in, and the probabilities of all classes, of a model trained on half 0 or 1 of a random split."""
        inside = np.random.default_rng(seed).permutation(size) % 2 == half
        model = MLPClassifier((64,), alpha=0.0, max_iter=60, learning_rate_init=0.01, random_state=seed, tol=0.0)
        model.fit(inputs[inside], labels[inside])
        return inside, model.predict_proba(inputs)

    member, chances = trained(1, 0)
    columns: dict[str, np.ndarray] = {"member": member.astype(int), "label": labels}
    columns |= {f"p_{digit}": chances[:, digit] for digit in range(10)}
    for i in range(REFERENCES):
        inside, others = trained(100 + i // 2, i % 2)
        columns[f"ref_{i}_in"] = inside.astype(int)
        columns[f"ref_{i}_loss"] = -np.log(np.maximum(others[np.arange(size), labels], 1.0e-300))
    with open(path, "w", encoding="utf-8", newline="") as file:  # noqa: PTH123
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    print(f"Wrote {path}. Next: gmip audit {path}")


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")  # scikit-learn's, that 60 epochs are few
    main(sys.argv[1] if len(sys.argv) > 1 else "predictions.csv")
