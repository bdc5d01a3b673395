"""An audit of a CNN with 19,626 parameters and 4,000 records: what a shuffled run of 40 steps costs and tells.

    python benchmarks/cnn.py [--budget 5min] [--steps 40] [--noise 0.5] [audit] [whole]
    python benchmarks/cnn.py --precision    # one step, 2,000 records: products in single and in double precision

CPU seconds of one process, BLAS and torch on one thread. Records are images of ten classes with noise.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
from _harness import Row, table
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits
from torch import nn

from gmip.attacks import Attack, Decode, GLiR, Loss
from gmip.attacks.glir import Play
from gmip.attacks.glir.selfplay import PlayedRun
from gmip.attacks.glir.step_fits import GramView
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import inner_products
from gmip.attacks.work import Budget, as_seconds
from gmip.stats.scores import auc, tpr_at_fpr
from gmip.tasks import Examples, Task
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe

RECORDS, MEMBERS, BATCH = 4_000, 400, 100


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 20, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Conv2d(20, 32, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 48),
        nn.ReLU(),
        nn.Linear(48, 10),
    )


def images(steps: int, noise: float = 0.0) -> Task:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 10, (RECORDS + 100,), generator=generator)
    classes = torch.randn(10, 3, 16, 16, generator=generator)
    inputs = 0.5 * classes[targets] + torch.randn(RECORDS + 100, 3, 16, 16, generator=generator)
    recipe = Recipe(dataset_size=MEMBERS, batch_size=BATCH, num_steps=steps, learning_rate=0.05, sampling="shuffled")
    if noise > 0.0:
        recipe = recipe.replace(clip_norm=1.0, noise_std=noise / BATCH)
    pool, test = Examples(inputs[:RECORDS], targets[:RECORDS]), Examples(inputs[RECORDS:], targets[RECORDS:])
    return Task(name="cnn", make_model=network, pool=pool, test=test, recipe=recipe)


def audited(task: Task, trace: Trace, way: str, budget: str | None) -> list[Row]:
    """The attacks that an audit runs when nobody names any, one after the other; each gets its share of what is left
    of the budget, as there. "whole" uses every step, even where nothing is left to find."""
    attacks: list[Attack] = [GLiR(), Decode(), Loss()]
    if way == "whole":
        attacks[0] = GLiR(play=Play(stop_when_decided=False))
        attacks[1] = Decode(most_work=1.0e15)
    rows: list[Row] = []
    clock = Budget(as_seconds("budget", budget))
    for place, attack in enumerate(attacks):
        start = time.process_time()
        share = clock.left() / (len(attacks) - place) if clock.limited else None
        found = attack.run(task, trace, budget=share)
        inside = np.isin(found.ids, trace.members)
        members, others = found.scores[inside], found.scores[~inside]
        rows.append(
            {
                "way": way,
                "attack": attack.name,
                "steps": str(found.facts.get("steps", "")),
                "seconds": time.process_time() - start,
                "auc": auc(members, others),
                "predicted": "" if found.prediction is None else f"{found.prediction.auc:.3f}",
                "tpr": float(tpr_at_fpr(members, others, 0.01)),
                "false": "" if found.p_values is None else f"{np.mean(found.p_values[~inside] <= 0.05):.3f}",
            }
        )
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def precisions(task: Task, trace: Trace) -> list[Row]:
    """One step on 1,200 background records and all candidates, both ways."""
    ids = np.sort(np.concatenate([trace.members, trace.non_members]))
    rest = np.setdiff1d(np.arange(RECORDS), ids)[:1_200]
    rows, scores = [], []
    for dtype in (torch.float64, torch.float32):
        gradients = PerExampleGradients.for_trace(task.make_model(), task.loss, trace.header, dtype=dtype)
        start = time.process_time()
        products = inner_products(gradients, [trace[0]], task.pool[rest], task.pool[ids])
        taken = time.process_time() - start
        view = GramView(
            products=products,
            background_size=rest.size,
            dimension=gradients.num_params,
            batch_size=BATCH,
            sample_rate=BATCH / MEMBERS,
            sampling="shuffled",
        )
        run = PlayedRun(
            background=rest.size,
            candidates=ids.size,
            dataset_size=MEMBERS,
            method="mixture",
            play=Play(games=10, tuning_games=4),
            grid=[(1.0e-12, ridge) for ridge in (1.0e-4, 1.0e-3, 1.0e-2)],
            shrinkage=None,
            seed=0,
            listed=False,
        )
        start = time.process_time()
        scores.append(run.run([lambda view=view: view]).scores)
        rows.append({"precision": str(dtype), "products": taken, "algebra": time.process_time() - start})
    for row in rows:
        row["correlation"] = float(spearmanr(scores[0], scores[1])[0])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help="of audit, whole (default both)")
    parser.add_argument("--budget", default=None, help="of the audit, such as 5min (default: none)")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--noise", type=float, default=0.0, help="noise multiplier at clip norm 1 (default: no noise)")
    parser.add_argument("--precision", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1), warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest, **more: print(message, file=sys.stderr)
        task = images(1 if options.precision else options.steps, options.noise)
        train(task, seed=1, out=folder)
        trace = Trace.open(folder)
        if options.precision:
            columns = {"precision": "precision|s", "products": "products, s|.2f", "algebra": "fits and games, s|.2f"}
            columns |= {"correlation": "rank correlation|.7f"}
            table("One step, 2,000 records", columns, precisions(task, trace))
            return
        columns = {"way": "way|s", "attack": "attack|s", "steps": "steps|s", "seconds": "CPU seconds|.1f"}
        columns |= {"auc": "AUC|.4f", "predicted": "predicted|s", "tpr": "TPR at 1%|.4f", "false": "others, p <= 5%|s"}
        rows = []
        for way in options.ways or ("audit", "whole"):
            rows += audited(task, trace, way, options.budget if way == "audit" else None)
        title = f"A CNN with 19,626 parameters, {RECORDS:,} records, {options.steps} shuffled steps"
        table(title + (f", noise multiplier {options.noise:g}" if options.noise else ""), columns, rows)
        for way in dict.fromkeys(row["way"] for row in rows):
            print(f"{way}: {sum(row['seconds'] for row in rows if row['way'] == way):.0f} CPU seconds in all")


if __name__ == "__main__":
    main()
