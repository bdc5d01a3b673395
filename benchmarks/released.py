"""Attacks on released weights alone: the table of docs/released-models.md.

    GMIP_DATA=... python benchmarks/released.py [--seeds 5] [SETTING ...]

For each setting, means over the seeds: AUC and TPR at 1% FPR of attacks that see only the released model, beside LiRA
with 32 shadow models; `distance` is how far the model is from an optimum (1 is what chance explains). "null" is a list
of two halves of strangers. Data that are not on this machine are left out, with a sentence on standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from _harness import Row, one_blas_thread, table
from sklearn.linear_model import LogisticRegression
from torch import nn

from gmip.attacks import Attack, Influence, LiRA, Loss, Optimum, OptimumDecode, Shadows
from gmip.errors import DataUnavailable, GmipWarning
from gmip.stats.reference_models import Moments, likelihood_ratios
from gmip.stats.roc import auc, tpr_at_fpr
from gmip.tasks import Examples, Task, load
from gmip.trace import Header, ParameterSpec, Trace, TraceWriter
from gmip.training import train

Ids = np.ndarray[Any, np.dtype[np.int64]]
MOST_BACKGROUND, SHADOWS = 20_000, 32


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


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


def released(task: Task, folder: str, members: Ids, others: Ids) -> tuple[Trace, float]:
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
    writer = TraceWriter.create(Path(folder) / "trace", header, members=members, non_members=others)
    writer.close({"weight": weight, "bias": bias})
    return Trace.open(Path(folder) / "trace"), strength / len(members)


def margins(model: LogisticRegression, x: Any, y: Any) -> Any:
    chance = np.clip(model.predict_proba(x)[np.arange(len(y)), np.searchsorted(model.classes_, y)], 1e-300, 1 - 1e-16)
    return (np.log(chance) - np.log1p(-chance))[:, None]


def lira(task: Task, members: Ids, listed: Ids, seed: int) -> tuple[Any, float]:
    """Scores of LiRA with shadow models by scikit-learn, on random halves of the candidates, and CPU seconds."""
    start = time.process_time()
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
    return likelihood_ratios(target, inside, outside), time.process_time() - start


def regression(name: str, size: int, seed: int) -> Row:
    task = load(name)
    if not isinstance(task.make_model(), nn.Linear):
        classes = int(task.pool.targets.max()) + 1
        task = dataclasses.replace(task, make_model=lambda: nn.Linear(task.pool.inputs[0].numel(), classes))
    order = np.random.default_rng(seed).permutation(len(task.pool))
    members, others = np.sort(order[:size]), np.sort(order[size : 2 * size])
    rest = order[2 * size :]
    with tempfile.TemporaryDirectory() as folder:
        trace, l2 = released(task, folder, members, others)
        row = games(task, trace, members, others, rest, {"weight": l2})
    listed = np.concatenate([members, others])
    scores, seconds = lira(task, members, listed, seed)
    return row | rates("lira", scores[:size], scores[size:]) | {"ratio": seconds / row.pop("seconds")}


def digits_network(seed: int, decay: float) -> Row:
    """300 steps of Adam; without a weight decay it comes to interpolate, and there is no optimum."""
    task = dataclasses.replace(load("digits"), make_model=network)
    changes = {"dataset_size": 200, "batch_size": 200, "sampling": "full", "optimizer": "Adam", "learning_rate": 1e-2}
    options = {"weight_decay": decay} if decay else {}
    recipe = task.recipe.replace(clip_norm=None, num_steps=300, optimizer_options=options, **changes)
    task = dataclasses.replace(task, recipe=recipe)
    with tempfile.TemporaryDirectory() as folder:
        found = train(task, recipe, seed=seed, out=Path(folder) / "run", every=1000)
        trace = Trace.open(Path(folder) / "run")
        members, others = found.split.members, found.split.non_members
        rest = np.random.default_rng(seed).permutation(found.split.unused)  # digits are sorted by writer
        row = games(task, trace, members, others, rest, None)
        start = time.process_time()
        attack = LiRA(shadows=Shadows(count=SHADOWS, workers=1, folder=Path(folder) / "shadows", seed=seed))
        scores = attack.run(task, trace)
        inside = np.isin(scores.ids, members)
        row |= rates("lira", scores.scores[inside], scores.scores[~inside])
        return row | {"ratio": (time.process_time() - start) / row.pop("seconds")}


def rates(name: str, ours: Any, theirs: Any) -> Row:
    return {f"{name}_auc": auc(ours, theirs), f"{name}_tpr": float(tpr_at_fpr(ours, theirs, 0.01))}


def games(task: Task, trace: Trace, members: Ids, others: Ids, rest: Ids, l2: Any) -> Row:
    """All attacks on the weights; `rest` are rows of nobody."""
    size = len(members)
    strangers = rest[:size], rest[size : 2 * size]
    influence = Influence(l2=l2, learning_rate=0.0, hessian_records=500, iterations=20, second_order=True)
    attacks: dict[str, tuple[Attack, Ids, Ids]] = {
        "loss": (Loss(), members, others),
        "influence": (influence, members, others),
        "glir": (Optimum(l2=l2), members, others),
        "decode": (OptimumDecode(l2=l2), members, others),
        "influence_null": (influence, *strangers),
        "glir_null": (Optimum(l2=l2), *strangers),
        "decode_null": (OptimumDecode(l2=l2), *strangers),
    }
    row: Row = {}
    for name, (attack, ins, outs) in attacks.items():
        start = time.process_time()
        with warnings.catch_warnings(action="ignore", category=GmipWarning):
            free = rest[:0] if "list" in attack.needs else rest[2 * size :] if ins is strangers[0] else rest
            found = attack.run(task, trace, np.concatenate([ins, outs]), task.pool[free[:MOST_BACKGROUND]])
        if name == "glir":
            row["seconds"], row["distance"] = time.process_time() - start, found.facts["distance"]
            if found.prediction is not None:
                row["predicted"] = found.prediction.auc
        inside = np.isin(found.ids, ins)
        row |= rates(name, found.scores[inside], found.scores[~inside])
    return row


SETTINGS: dict[str, Callable[[int], Row]] = {
    "adult, logistic regression, N = 790": lambda seed: regression("adult", 790, seed),
    "digits, softmax regression, N = 200": lambda seed: regression("digits", 200, seed),
    "digits network, 300 steps of Adam, weight decay .01": lambda seed: digits_network(seed, 0.01),
    "digits network, 300 steps of Adam": lambda seed: digits_network(seed, 0.0),
}


def main() -> None:
    one_blas_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=f"of {'; '.join(SETTINGS)} (default all)")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for setting in options.settings or SETTINGS:
        try:
            runs = [SETTINGS[setting](seed) for seed in range(options.seeds)]
        except DataUnavailable as missing:
            print(missing, file=sys.stderr)
            continue
        rows = []
        for name in ("loss", "influence", "glir", "decode", "lira", "influence_null", "glir_null", "decode_null"):
            areas = [run[f"{name}_auc"] for run in runs]
            error = stdev(areas) / len(areas) ** 0.5 if len(areas) > 1 else 0.0
            found = mean(run[f"{name}_tpr"] for run in runs)
            rows.append({"attack": name.replace("_", ", "), "auc": mean(areas), "error": error, "tpr": found})
        print(f"\n{setting}: distance {mean(run['distance'] for run in runs):.2f}", end="")
        if all("predicted" in run for run in runs):
            print(f", AUC of glir predicted by self-play {mean(run['predicted'] for run in runs):.3f}", end="")
        print(f", CPU time of lira / glir {mean(run['ratio'] for run in runs):.0f}", end="")
        columns = {"attack": "attack|s", "auc": "AUC|.3f", "error": "its error|.3f", "tpr": "TPR at 1%|.3f"}
        table(f"means over {options.seeds} seeds", columns, rows)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
