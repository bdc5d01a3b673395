"""Clipping norms from records that are no members."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from gmip.errors import GmipWarning, InvalidArgument
from gmip.training.loop import initial_model
from gmip.tuning import auto_clip, consider_clipping, gradient_norms, search_records
from tests.unit.tuning.toy import toy_task


def test_norms_are_autograds():
    task = toy_task()
    model = initial_model(task, 0)
    examples = search_records(task, 60, seed=0, split_seed=3).train
    expected = []
    for i in range(len(examples)):
        model.zero_grad()
        one = examples[[i]]
        task.loss(model(one.inputs), one.targets).sum().backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        expected.append(float(torch.cat([g.flatten() for g in grads]).norm()))
    assert gradient_norms(task, 60, split_seed=3) == pytest.approx(expected, rel=1e-5)


def test_members_have_no_influence():
    task = toy_task()
    before = auto_clip(task, 60, split_seed=3)
    task.pool.inputs[torch.from_numpy(task.split(60, 3).members)] *= 100.0
    assert auto_clip(task, 60, split_seed=3) == before
    assert auto_clip(task, 60, split_seed=4).clip_norm != before.clip_norm
    assert before.records == 60 and before.quantile == 0.5
    assert auto_clip(task, 60, split_seed=3, quantile=0.9).clip_norm > before.clip_norm


def test_only_members_at_hand_is_refused():
    with pytest.raises(InvalidArgument, match="will not be members"):
        auto_clip(toy_task(), 280)


def test_a_clip_norm_that_clips_nothing_is_told():
    task = toy_task()
    median = float(np.median(gradient_norms(task, 60)))
    recipe = task.recipe.replace(clip_norm=float(f"{60 * median:.3g}"), noise_std=1.0)
    with pytest.warns(GmipWarning, match=r"is (5\d|6\d) times the median"):
        consider_clipping(task, recipe)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consider_clipping(task, recipe.replace(noise_std=0.0))  # without noise it costs nothing
        consider_clipping(task, recipe.replace(clip_norm=median))
        consider_clipping(task, recipe.replace(clip_norm=None, noise_std=0.0))
