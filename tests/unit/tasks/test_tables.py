"""What the tabular tasks share, on small hand-made tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gmip.tasks.builtin import examples, labelled_bits, random_split, scaling


@pytest.mark.parametrize("content", [b'"13",0,1,1\n"2",1,0,0\n', b"13,0,1,1\r\n2,1,0,0", b"13,0,1,1\n2,1,0,0\n"])
def test_labels_and_bits(content: bytes) -> None:
    labels, bits = labelled_bits(content)
    assert labels.tolist() == [13, 2] and labels.dtype == np.int64
    assert bits.tolist() == [[0, 1, 1], [1, 0, 0]] and bits.dtype == np.uint8


def test_scaling_leaves_constant_columns() -> None:
    table = np.array([[1.0, 5.0], [3.0, 5.0]])
    mean, std = scaling(table)
    assert mean.tolist() == [2.0, 5.0] and std.tolist() == [1.0, 1.0]
    assert ((table - mean) / std).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_scaling_of_bytes_does_not_overflow() -> None:
    mean, _ = scaling(np.full((1000, 1), 255, np.uint8))
    assert mean.tolist() == [255.0]


def test_a_random_split_is_disjoint_and_repeatable() -> None:
    pool, test = random_split(20, 6, seed=1)
    assert len(test) == 6 and sorted([*pool, *test]) == list(range(20))
    again = random_split(20, 6, seed=1)
    assert np.array_equal(pool, again[0]) and np.array_equal(test, again[1])
    assert not np.array_equal(test, random_split(20, 6, seed=2)[1])


def test_examples_have_the_types_of_cross_entropy() -> None:
    records = examples(np.array([[1, 0]], np.uint8), np.array([3], np.int32))
    assert records.inputs.dtype == torch.float32 and records.targets.dtype == torch.int64
