"""Clipping of the whole gradient is seen, and changed in nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad, clip_grad_norm_

from gmip.errors import GmipWarning
from gmip.trace import Trace
from gmip.training import record
from tests.unit.training.recording import N, batches_of, flat, loss_of, make_model, n, sgd

SIZES = {"dataset_size": N, "batch_size": n, "sampling": "fixed"}


def clipped_loop(model, optimizer, limit, clip=clip_grad_norm_):
    norms = []
    for batch in batches_of(8, 8, 8):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        norms.append(float(clip(model.parameters(), limit)))
        optimizer.step()
    return norms


def test_factor_is_recorded_and_nothing_changes(path):
    model, other = make_model(), make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, **SIZES):
        norms = clipped_loop(model, optimizer, 0.3)
    clipped_loop(other, sgd(other), 0.3)
    assert torch.equal(flat(model), flat(other))
    assert max(norms) > 0.3
    found = [info.clip_factor for info in Trace.open(path).infos]
    assert np.allclose(found, [min(1.0, 0.3 / norm) for norm in norms], rtol=1e-4)
    assert clip_grad._clip_grads_with_norm_.__module__ == "torch.nn.utils.clip_grad"  # as it was


def test_unclipped_loops_have_no_factor(path):
    model = make_model()
    optimizer = sgd(model)
    with record(model, optimizer, path, **SIZES):
        clipped_loop(model, optimizer, 0.0, clip=lambda parameters, limit: 0.0)
    assert [info.clip_factor for info in Trace.open(path).infos] == [None] * 3


def test_two_recorders_listen_at_once_each_to_its_own(tmp_path):
    models = [make_model(0), make_model(1)]
    optimizers = [sgd(model) for model in models]
    with record(models[0], optimizers[0], tmp_path / "a", **SIZES):
        with record(models[1], optimizers[1], tmp_path / "b", **SIZES):
            clipped_loop(models[1], optimizers[1], 1e-3)
        clipped_loop(models[0], optimizers[0], 1e3)
    assert [info.clip_factor for info in Trace.open(tmp_path / "a").infos] == [1.0] * 3
    assert all((info.clip_factor or 1.0) < 0.1 for info in Trace.open(tmp_path / "b").infos)


def test_a_clip_by_hand_is_declared(path):
    """At the norm nobody knows the factor, below it there was none."""
    model = make_model()
    optimizer = sgd(model)
    sizes = {**SIZES, "max_grad_norm": 0.3}
    with record(model, optimizer, path, **sizes):
        for batch, scale in zip(batches_of(8, 8), (1.0, 1e-3), strict=True):
            optimizer.zero_grad()
            (loss_of(model, batch) * scale).backward()
            norm = float(torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()])))
            for p in model.parameters():
                p.grad.mul_(min(1.0, 0.3 / norm))
            optimizer.step()
    assert [info.clip_factor for info in Trace.open(path).infos] == [None, 1.0]


def test_clip_of_a_part_has_no_factor(path):
    model = make_model()
    optimizer = sgd(model)
    with pytest.warns(GmipWarning, match="a part of the recorded parameters"), record(model, optimizer, path, **SIZES):
        clipped_loop(
            model, optimizer, 0.01, clip=lambda parameters, limit: clip_grad_norm_(model.head.parameters(), limit)
        )
    assert [info.clip_factor for info in Trace.open(path).infos] == [None] * 3


def test_clipping_the_mean_where_examples_were_declared_is_told(path):
    model = make_model()
    optimizer = sgd(model)
    with (
        pytest.warns(GmipWarning, match="clips the mean of a batch"),
        record(model, optimizer, path, **SIZES, clip_norm=0.3, noise_std=0.01),
    ):
        clipped_loop(model, optimizer, 0.3)
