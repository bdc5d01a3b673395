"""GLiR on a CNN with 19,626 parameters and 4,000 records: what a shuffled run of 40 steps costs and finds.

    python benchmarks/cnn.py [--budget 5min] [--steps 40] [--background with-candidates]
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

from gmip.attacks import GLiR
from gmip.attacks.glir import Play
from gmip.attacks.glir.played_run import PlayedRun
from gmip.attacks.glir.published_step import GramView
from gmip.attacks.glir.scoring import scores_by_play
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import inner_products
from gmip.stats.roc import auc, tpr_at_fpr
from gmip.tasks import Examples, Recipe, Task
from gmip.trace import Trace
from gmip.training import train

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


def images(steps: int) -> Task:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 10, (RECORDS + 100,), generator=generator)
    classes = torch.randn(10, 3, 16, 16, generator=generator)
    inputs = 0.5 * classes[targets] + torch.randn(RECORDS + 100, 3, 16, 16, generator=generator)
    recipe = Recipe(dataset_size=MEMBERS, batch_size=BATCH, num_steps=steps, learning_rate=0.05, sampling="shuffled")
    pool, test = Examples(inputs[:RECORDS], targets[:RECORDS]), Examples(inputs[RECORDS:], targets[RECORDS:])
    return Task(name="cnn", make_model=network, pool=pool, test=test, recipe=recipe)


def audited(task: Task, trace: Trace, budget: str, background: str) -> Row:
    start = time.process_time()
    found = GLiR(background=background).run(task, trace, budget=budget)
    inside = np.isin(found.ids, trace.members)
    members, others = found.scores[inside], found.scores[~inside]
    return {
        "background": background,
        "budget": budget,
        "steps": found.facts["steps"],
        "seconds": time.process_time() - start,
        "auc": auc(members, others),
        "predicted": found.prediction.auc,
        "tpr": float(tpr_at_fpr(members, others, 0.01)),
    }


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
        scores.append(scores_by_play([lambda view=view: view], run).scores)
        rows.append({"precision": str(dtype), "products": taken, "algebra": time.process_time() - start})
    for row in rows:
        row["correlation"] = float(spearmanr(scores[0], scores[1])[0])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="none")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--background", default="alone", choices=("alone", "with-candidates"))
    parser.add_argument("--precision", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1), warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest, **more: print(message, file=sys.stderr)
        task = images(1 if options.precision else options.steps)
        train(task, seed=1, out=folder)
        trace = Trace.open(folder)
        if options.precision:
            columns = {"precision": "precision|s", "products": "products, s|.2f", "algebra": "fits and games, s|.2f"}
            columns |= {"correlation": "rank correlation|.7f"}
            table("One step, 2,000 records", columns, precisions(task, trace))
            return
        columns = {"background": "background|s", "budget": "budget|s", "steps": "steps|d", "seconds": "CPU seconds|.0f"}
        columns |= {"auc": "AUC|.3f", "predicted": "predicted|.3f", "tpr": "TPR at 1%|.3f"}
        table("A CNN with 19,626 parameters", columns, [audited(task, trace, options.budget, options.background)])


if __name__ == "__main__":
    main()
