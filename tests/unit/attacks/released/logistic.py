"""Logistic regression of scikit-learn as a task, and its released model as a trace without steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import nn

from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import Header, ParameterSpec, Trace, TraceWriter
from gmip.vocabulary import Recipe

MEMBERS, WIDTH, CLASSES, ROWS = 80, 20, 3, 1200
L2 = {"weight": 1.0 / MEMBERS}  # of C = 1; the bias is not penalised


def make_released_task() -> Task:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (ROWS,), generator=generator)
    inputs = torch.randn(ROWS, WIDTH, generator=generator)
    inputs[:, :CLASSES] += nn.functional.one_hot(labels, CLASSES)
    data = Examples(inputs, labels)
    return Task(
        name="released",
        make_model=lambda: nn.Linear(WIDTH, CLASSES),
        pool=data[range(ROWS - 50)],
        test=data[range(ROWS - 50, ROWS)],
        recipe=Recipe(dataset_size=MEMBERS, batch_size=MEMBERS, num_steps=1, learning_rate=0.1, sampling="full"),
    )


def train(task: Task) -> LogisticRegression:
    """On the first records of the pool, to an optimum."""
    ours = task.pool[range(MEMBERS)]
    return LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(ours.inputs.double().numpy(), ours.targets.numpy())


def gradients(model: LogisticRegression, examples: Examples) -> NDArray[np.float64]:
    """The gradient of the cross-entropy by the weights, then the bias."""
    x, y = examples.inputs.double().numpy(), examples.targets.numpy()
    errors = model.predict_proba(x)
    errors[np.arange(len(y)), y] -= 1.0
    return np.concatenate([(errors[:, :, None] * x[:, None]).reshape(len(x), -1), errors], axis=1)


PLAIN = {"dataset_size": MEMBERS, "batch_size": MEMBERS, "num_steps": 1, "sampling": "full", "learning_rate": 0.1}


def released_trace(task: Task, folder: Path, weight: Any, bias: Any, **recipe: Any) -> Trace:
    """The first records are the members, as many others the non-members."""
    header = Header(
        parameters=(ParameterSpec("weight", (CLASSES, WIDTH)), ParameterSpec("bias", (CLASSES,))),
        num_params=CLASSES * (WIDTH + 1),
        dataset_size=MEMBERS,
        batch_size=MEMBERS,
        sampling="full",
        fingerprints=task.fingerprints,
        recipe=Recipe(**{**PLAIN, **recipe}),
    )
    ids = np.arange(2 * MEMBERS)
    writer = TraceWriter.create(folder, header, members=ids[:MEMBERS], non_members=ids[MEMBERS:])
    writer.close({"weight": weight.astype(np.float64), "bias": bias.astype(np.float64)})
    return Trace.open(folder)


def area(scores: NDArray[np.float64]) -> float:
    return auc(scores[:MEMBERS], scores[MEMBERS:])
