"""Breast cancer: sizes, classes, scaling without the test records."""

from __future__ import annotations

import torch

from gmip.tasks.builtin import breast_cancer


def test_data() -> None:
    task = breast_cancer()
    assert task.pool.inputs.shape == (455, 30) and task.test.inputs.shape == (114, 30)
    counts = torch.bincount(torch.cat([task.pool.targets, task.test.targets]))
    assert counts.tolist() == [212, 357]  # malignant, benign
    assert sum(p.numel() for p in task.make_model().parameters()) == 530


def test_scaled_with_the_pool_alone() -> None:
    task = breast_cancer()
    assert task.pool.inputs.mean(dim=0).abs().max() < 1e-6
    assert (task.pool.inputs.std(dim=0, correction=0) - 1.0).abs().max() < 1e-5
    assert task.test.inputs.mean(dim=0).abs().max() > 0.01
