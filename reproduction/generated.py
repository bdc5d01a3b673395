"""A stand-in for Purchase-100, which few machines have: generated records of the same shape, in the same file format.

197,324 rows of 600 bits in 100 classes, of which the 20 most frequent have as many rows as the authors' notebook counts
(65,494). Nothing else is taken from the published file, and no figure on the stand-in is one of the paper.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gmip.tasks import Task
from gmip.tasks.builtin import build_purchase
from gmip.tasks.data_files import DataFile

__all__ = ["STAND_IN", "archive", "class_sizes", "stand_in"]

STAND_IN: Final = "purchase-stand-in"  # in place of a task's name
ROWS, COLUMNS, CLASSES = 197_324, 600, 100
_FREQUENT, _FREQUENT_ROWS, _TEST_ROWS = 20, 65_494, 10_000
_CHUNK: Final = 10_000
_FILE: Final = DataFile(
    title="The stand-in for Purchase-100",
    path="purchase/generated.tgz",
    checksum="generated:1",  # names the cache; to be raised when other records are generated
    url="",
)


def stand_in() -> Task:
    """The task purchase on generated records; its features are computed once (a minute) and kept in the cache."""
    return build_purchase(_FILE, test_rows=_TEST_ROWS, read=lambda _: [archive(class_sizes(), COLUMNS)])


def class_sizes() -> NDArray[np.int64]:
    """Rows of each class, in descending order."""
    shares = np.concatenate([np.linspace(1.3, 0.7, _FREQUENT), np.linspace(1.3, 0.7, CLASSES - _FREQUENT)])
    totals = np.repeat([_FREQUENT_ROWS / _FREQUENT, (ROWS - _FREQUENT_ROWS) / (CLASSES - _FREQUENT)], [20, 80])
    sizes = np.floor(shares * totals).astype(np.int64)
    sizes[0] += _FREQUENT_ROWS - sizes[:_FREQUENT].sum()
    sizes[_FREQUENT] += ROWS - sizes.sum()
    return np.asarray(sizes)


def archive(sizes: Sequence[int] | NDArray[np.int64], columns: int, *, seed: int = 0) -> bytes:
    """A tar archive of one file with a line `label,bit,bit,...` for each record, classes numbered from 1 and in random
    order. A column is rarely 1, and more often so in some classes."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    logits = rng.normal(-2.0, 1.0, columns) + rng.normal(0.0, 1.0, (len(sizes), columns))
    rates = (1.0 / (1.0 + np.exp(-logits))).astype(np.float32)
    lines = []
    for start in range(0, len(labels), _CHUNK):
        mine = labels[start : start + _CHUNK]
        ones = rng.random((len(mine), columns), dtype=np.float32) < rates[mine]
        text = np.full((len(mine), 2 * columns), ord(","), np.uint8)
        text[:, 1::2] = ord("0") + ones
        lines += [b"%d%b\n" % (label + 1, row.tobytes()) for label, row in zip(mine, text, strict=True)]
    content, packed = b"".join(lines), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as stream:
        entry = tarfile.TarInfo("generated")
        entry.size = len(content)
        stream.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), 1, mtime=0)
