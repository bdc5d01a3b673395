"""What the tabular tasks share: a reader, scaling, and the split of a set that has no official one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gmip.errors import DataUnavailable
from gmip.tasks.task import Examples

__all__ = ["examples", "labelled_bits", "random_split", "scaling"]


def examples(inputs: NDArray[Any], labels: NDArray[np.integer]) -> Examples:
    """Inputs as float32, labels as int64: what cross-entropy takes."""
    return Examples(torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels.astype(np.int64)))


def random_split(rows: int, test_rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sorted row numbers of pool and test, the same for the same arguments on every machine."""
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[test_rows:]), np.sort(order[:test_rows])


def scaling(table: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each column, shape (columns,); 1 for the deviation of a constant one."""
    std = table.std(axis=0, dtype=np.float64)
    return table.mean(axis=0, dtype=np.float64), np.where(std > 0.0, std, 1.0)


def labelled_bits(content: bytes, title: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Labels of shape (n,) and columns of 0 and 1 of shape (n, k), from lines such as `"13",0,1,1` or `13,0,1,1`."""
    lines = content.splitlines()
    width = len(lines[0].partition(b",")[2]) if lines else 0
    labels, bits = np.empty(len(lines), np.int64), np.empty((len(lines), (width + 1) // 2), np.uint8)
    for i, line in enumerate(lines):
        label, _, row = line.partition(b",")
        label = label.strip(b'"')
        if not label.isdigit() or len(row) != width or row[1::2].strip(b","):
            raise DataUnavailable(
                f"Line {i + 1} of {title} is not a label and {bits.shape[1]} columns of 0 or 1",
                remedy="fetch the file again",
            )
        labels[i], bits[i] = int(label), np.frombuffer(row, np.uint8)[::2]
    bits -= ord("0")
    if bits.size == 0 or bits.max() > 1:
        raise DataUnavailable(f"{title} has no columns, or values other than 0 and 1", remedy="fetch the file again")
    return labels, bits
