"""record inside a loop of accelerate: what `prepare` returns is taken as it is."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from gmip.tasks.task import Examples
from gmip.trace import Trace
from gmip.training import record
from tests.unit.integrations.trainers import check_example
from tests.unit.training.recording import N, check_same_trace, dataset, loss_of, make_model, sgd


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_trace_of_a_prepared_loop_is_that_of_a_plain_one(path, tmp_path, accumulated):
    data, drawn = TensorDataset(*dataset()), []
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    model = make_model()
    loader = DataLoader(Subset(data, range(N)), batch_size=4, shuffle=True)
    model, optimizer, prepared = accelerator.prepare(model, sgd(model), loader)
    settings = {"batch_size": 4 * accumulated, "data": Examples(*dataset()), "members": range(N)}
    with record(model, optimizer, path, loader=prepared, **settings) as recorder:
        for _ in range(2):
            for number, (x, y) in enumerate(prepared):
                drawn.append((x, y))
                if accumulated == 2 and number == 4:  # the last of an odd number: divided by two all the same
                    recorder.batch(4, times=0.5)
                with accelerator.accumulate(model):
                    accelerator.backward(loss_of(model, (x, y)))
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 0.3)
                    optimizer.step()
                    optimizer.zero_grad()
    model = make_model()
    optimizer = sgd(model)
    epochs = [drawn[:5], drawn[5:]]
    steps = [epoch[i : i + accumulated] for epoch in epochs for i in range(0, 5, accumulated)]
    settings["sampling"], settings["dataset_size"] = "shuffled", N
    with record(model, optimizer, tmp_path / "plain", **settings) as recorder:
        for step in steps:
            sum(loss_of(model, batch) / accumulated for batch in step).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            recorder.batch(4 * len(step), times=len(step) / accumulated)
            optimizer.step()
            optimizer.zero_grad()
    check_same_trace(path, tmp_path / "plain")
    trace = Trace.open(path)
    x, _ = dataset()
    for i, step in enumerate(steps):
        ids = trace.batch_ids(i)
        assert ids is not None and torch.equal(x[ids.tolist()], torch.cat([batch for batch, _ in step]))
        assert trace.infos[i].clip_factor is not None


def test_example(tmp_path):
    check_example("accelerate_loop.py", tmp_path / "run")
