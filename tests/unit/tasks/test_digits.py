"""Digits: sizes, range, classes."""

from __future__ import annotations

import torch

from gmip.tasks.builtin import digits


def test_data() -> None:
    task = digits()
    assert task.pool.inputs.shape == (1_437, 64) and task.test.inputs.shape == (360, 64)
    assert float(task.pool.inputs.min()) == 0.0 and float(task.pool.inputs.max()) == 1.0
    counts = torch.bincount(torch.cat([task.pool.targets, task.test.targets]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as scikit-learn's description says
    assert float((task.pool.inputs.sum() + task.test.inputs.sum()) * 16) == 561_718.0


def test_pool_and_test_share_no_record() -> None:
    task = digits()
    pool = {tuple(row) for row in task.pool.inputs.tolist()}
    assert not pool & {tuple(row) for row in task.test.inputs.tolist()}
