"""recorder.step() and recorder.batch(times=...): loops that hooks do not reach, or that scale their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gmip.errors import InvalidArgument
from gmip.trace import Trace
from gmip.training import record
from gmip.training.models import dropouts
from tests.unit.training.recording import LR, N, batches_of, check_trace, loss_of, make_model, n, sgd


def test_a_loop_without_an_optimizer(path):
    model = make_model()
    batches = batches_of(8, 8, 4)
    with record(model, None, path, dataset_size=N, batch_size=n, sampling="shuffled") as recorder:
        for batch in batches:
            model.zero_grad()
            loss_of(model, batch).backward()
            recorder.step()
            with torch.no_grad():
                for p in model.parameters():
                    p -= LR * p.grad
    check_trace(path, batches)


@pytest.mark.parametrize("closure", [False, True])
def test_a_step_that_the_hooks_see_too_is_recorded_once(path, closure):
    model = make_model()
    optimizer, batches = sgd(model), batches_of(8, 8)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed") as recorder:
        for batch in batches:
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            recorder.step()
            optimizer.step(*[lambda: None] * closure)
    check_trace(path, batches)


def test_means_that_were_added_up(path):
    batches, joined = batches_of(4, 4, 4, 4), batches_of(8, 8)
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, dataset_size=N, batch_size=n, sampling="fixed") as recorder:
        for i, batch in enumerate(batches):
            loss_of(model, batch).backward()
            if i % 2:
                recorder.batch(8, times=2.0)
                optimizer.step()
                optimizer.zero_grad()
    check_trace(path, joined)
    assert Trace.open(path).num_steps == 2
    with pytest.raises(InvalidArgument, match="times"):
        recorder.batch(8, times=0.0)


def test_who_drops_units():
    layers = [nn.Linear(2, 2), nn.Dropout(0.1), nn.Dropout(0.0), nn.LSTM(2, 2, num_layers=2, dropout=0.2)]
    model = nn.Sequential(*layers, nn.MultiheadAttention(2, 1, dropout=0.3), nn.MultiheadAttention(2, 1))
    assert dropouts(model) == ["1", "3", "4"]
    model[1].eval()
    assert dropouts(model) == ["3", "4"] and dropouts(model.eval()) == []
    assert dropouts(nn.Dropout(0.5)) == ["Dropout"]
