"""Are deleted people found? A table of ways to delete, and of how many requests have p <= 5% and 1% afterwards.

    python benchmarks/deleted.py [--seeds 5]    # about three CPU minutes

Digits with a tenth of the labels wrong: 100 people ask to be deleted from a model of 700, 400 controls were never in.
Logistic regression and a small convolutional network (both by full-batch Adam), and a forest of 100 trees. Attack: the
first that `gmip.Deleted` takes, with no reference models, 4 on random halves of those who stay, or 8 that know random
halves of requests and controls, too. Last, weights of logistic regressions of 200 at their optimum (weight decay .01),
of whom 100 ask: attacks on weights.

    retrained     on the 600 who stay, with another seed: the null
    nothing done  the old release once more
    fine-tuned    the old release, trained on with those who stay for a tenth of the steps; a forest: half of its trees
                  anew
    ascent        ten steps up the loss of the requests, then fine-tuned; not for forests
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _harness import Row, one_blas_thread, table
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor, nn

import gmip
from gmip import Examples, Recipe, Task

ASKED, STAY, CONTROLS = np.arange(100), np.arange(100, 700), np.arange(700, 1100)
ABOUT = np.r_[ASKED, CONTROLS]
STEPS = 300


def records(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))[:1100]
    x, y = (x[order] / 16).astype(np.float32), y[order]
    return x, np.where(rng.random(len(y)) < 0.1, rng.integers(0, 10, len(y)), y)


def linear() -> nn.Module:
    return nn.Linear(64, 10)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12 * 36, 10)
    )


class Net:
    """A model of torch that is trained, and trained on."""

    def __init__(self, make: Callable[[], nn.Module], seed: int) -> None:
        torch.manual_seed(seed)
        self.model = make()

    def descend(self, x: np.ndarray, y: np.ndarray, steps: int, rate: float = 1e-2, sign: float = 1.0) -> Net:
        optimizer = torch.optim.Adam(self.model.parameters(), lr=rate)
        inputs, targets = torch.from_numpy(x), torch.from_numpy(y)
        for _ in range(steps):
            optimizer.zero_grad()
            (sign * nn.functional.cross_entropy(self.model(inputs), targets)).backward()
            optimizer.step()
        return self

    def says(self, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.model(torch.from_numpy(x)).double().numpy()


Told = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def references(asked: Callable[[np.ndarray, int], np.ndarray], seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What 4 models on halves of those who stay say about requests and controls; and what 8 do that were trained on a
    half of these, too, the next one on the other half."""
    rng = np.random.default_rng(seed)
    without = [asked(rng.permutation(STAY)[:300], 2 + i) for i in range(4)]
    rng = np.random.default_rng(seed)
    both, inside = [], []
    for pair in range(4):
        half = rng.permutation(len(ABOUT)) < len(ABOUT) // 2
        for side, was in enumerate((half, ~half)):
            both.append(asked(np.r_[ABOUT[was], rng.permutation(STAY)[:400]], 10 + 2 * pair + side))
            inside.append(was)
    return {"references": np.array(without)}, {"references": np.array(both), "references_members": np.array(inside) * 1}


def of_nets(make: Callable[[], nn.Module], x: np.ndarray, y: np.ndarray, seed: int) -> Told:
    """Releases by how they were made, and reference models; what each says about the people asked about."""

    def fit(rows: np.ndarray, number: int) -> Net:
        return Net(make, 100 * seed + number).descend(x[rows], y[rows], STEPS)

    def old() -> Net:
        return fit(np.r_[ASKED, STAY], 0)

    tuned = old().descend(x[STAY], y[STAY], STEPS // 10)
    ascent = old().descend(x[ASKED], y[ASKED], 10, sign=-1.0).descend(x[STAY], y[STAY], STEPS // 10)
    releases = {"retrained": fit(STAY, 1), "nothing done": old(), "fine-tuned": tuned, "ascent": ascent}
    answers = {name: one.says(x[ABOUT]) for name, one in releases.items()}
    return answers, *references(lambda rows, number: fit(rows, number).says(x[ABOUT]), seed)


def of_forests(x: np.ndarray, y: np.ndarray, seed: int) -> Told:
    def fit(rows: np.ndarray, number: int) -> RandomForestClassifier:
        return RandomForestClassifier(100, random_state=100 * seed + number).fit(x[rows], y[rows])

    def says(model: RandomForestClassifier) -> np.ndarray:
        return np.log(np.clip(model.predict_proba(x[ABOUT]), 1e-3, 1.0))

    old, new = fit(np.r_[ASKED, STAY], 0), fit(STAY, 1)
    half = fit(STAY, 1)
    half.estimators_ = old.estimators_[:50] + new.estimators_[:50]
    answers = {"retrained": says(new), "nothing done": says(old), "fine-tuned": says(half)}
    return answers, *references(lambda rows, number: says(fit(rows, number)), seed)


def settled(model: nn.Module, x: Tensor, y: Tensor, steps: int, rate: float = 0.5, sign: float = 1.0) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        (sign * nn.functional.cross_entropy(model(x), y)).backward()
        optimizer.step()
    return model


def of_weights(seed: int, folder: Path) -> tuple[dict[str, Path], Task]:
    """Weights of releases by how they were made; and the task, whose pool has neither the 100 who stay nor others of
    the training: 100 who ask, 400 controls, and strangers."""
    rng = np.random.default_rng(seed)
    pixels, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(labels))
    labels = np.where(rng.random(len(labels)) < 0.1, rng.integers(0, 10, len(labels)), labels)
    x, y = torch.from_numpy((pixels[order] / 16).astype(np.float32)), torch.from_numpy(labels[order])
    asked, stay = (x[:100], y[:100]), (x[-100:], y[-100:])
    both = torch.cat([asked[0], stay[0]]), torch.cat([asked[1], stay[1]])

    def old() -> nn.Module:
        torch.manual_seed(seed)
        return settled(linear(), *both, 1000)

    ascent = settled(settled(old(), *asked, 10, 0.05, -1.0), *stay, 5)
    made = {"retrained": settled(linear(), *stay, 1000), "nothing done": old(), "fine-tuned": settled(old(), *stay, 5)}
    paths = {}
    for name, model in {**made, "ascent": ascent}.items():
        paths[name] = folder / f"{name}.pt"
        torch.save(model.state_dict(), paths[name])
    recipe = Recipe(
        dataset_size=200,
        batch_size=200,
        sampling="full",
        num_steps=1000,
        learning_rate=0.5,
        optimizer_options={"weight_decay": 0.01},
    )
    pool = Examples(x[:-100], y[:-100])
    return paths, Task(name="digits", make_model=linear, pool=pool, test=pool[:10], recipe=recipe)


def rows_of(kind: str, found: dict[tuple[str, str], list[gmip.AuditResult]]) -> Iterator[Row]:
    for (name, attack), results in found.items():
        p = np.array([one.p_value for result in results for one in result.candidates["deleted"] if one.member])
        fails = sum(result.runs[0].conclusion.kind in ("fails", "probably-fails") for result in results)
        row: Row = {"model": kind, "deletion": name, "attack": attack, "fails": f"{fails} of {len(results)}"}
        yield row | {"five": 100 * float((p <= 0.05).mean()), "one": 100 * float((p <= 0.01).mean())}


def main() -> None:
    one_blas_thread()
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("models", nargs="*", help="some of 'logistic regression', forest, CNN, weights; default all")
    options = parser.parse_args()
    kinds: dict[str, Callable[..., Told]] = {
        "logistic regression": lambda *given: of_nets(linear, *given),
        "forest": of_forests,
        "CNN": lambda *given: of_nets(convolutional, *given),
    }
    rows: list[Row] = []
    for kind, make in kinds.items():
        if options.models and kind not in options.models:
            continue
        found: dict[tuple[str, str], list[gmip.AuditResult]] = {}
        for seed in range(options.seeds):
            x, y = records(seed)
            releases, without, both = make(x, y, seed)
            for name, logits in releases.items():
                shown = {"labels": y[ABOUT], "logits": logits}
                for attack, more in (("none", {}), ("4 without", without), ("8 with and without", both)):
                    source = gmip.Predictions(ABOUT < 100, **shown, **more)
                    found.setdefault((name, attack), []).append(gmip.audit(gmip.Deleted(source)))
        rows += rows_of(kind, found)
    found = {}
    for seed in range(options.seeds if not options.models or "weights" in options.models else 0):
        with tempfile.TemporaryDirectory() as folder:
            paths, task = of_weights(seed, Path(folder))
            for name, path in paths.items():
                for attack in ("influence", "optimum"):
                    source = gmip.Released(path, range(100), range(100, 500), task)
                    result = gmip.audit(gmip.Deleted(source, attack=attack))
                    found.setdefault((name, attack), []).append(result)
    rows += rows_of("weights of logistic regression", found)
    columns = {"model": "model|s", "deletion": "deletion|s", "attack": "with|s"}
    columns |= {"five": "requests with p <= 5%|.1f", "one": "p <= 1%|.1f", "fails": "audit fails the target|s"}
    table(f"Traces of deleted people, {options.seeds} seeds", columns, rows)


if __name__ == "__main__":
    main()
