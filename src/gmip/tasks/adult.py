"""Adult: does a person of the 1994 census earn more than 50,000 dollars; a linear head on random tanh features."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gmip.errors import DataUnavailable
from gmip.tasks.records import examples, scaling
from gmip.tasks.sources import DataFile, read
from gmip.tasks.task import Task
from gmip.vocabulary import Recipe

__all__ = ["FILES", "adult", "encode", "parse_rows", "random_features"]

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
FILES = tuple(
    DataFile(title="Adult", path=f"adult/{name}", checksum=f"sha256:{digest}", url=f"{_URL}/{name}")
    for name, digest in (
        ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
        ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    )
)
_FIELDS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
_LEFT_OUT = ("fnlwgt", "education", "income")  # a sampling weight, a copy of education-num, the target
_LOGARITHMIC = ("capital-gain", "capital-loss")
_NUMERIC = ("age", "education-num", "hours-per-week", *_LOGARITHMIC)
_FEATURES = 512
_TEST_ROWS = 5_000


def parse_rows(content: bytes) -> list[tuple[str, ...]]:
    """The 15 fields of each row. The heading of adult.test and empty lines are passed over."""
    lines = [line for line in content.decode("ascii").splitlines() if line.strip() and not line.startswith("|")]
    rows = [tuple(value.strip() for value in line.split(",")) for line in lines]
    for row in rows:
        if len(row) != len(_FIELDS):
            raise DataUnavailable(
                f"A row of Adult has {len(row)} fields, not {len(_FIELDS)}: {','.join(row)[:60]!r}",
            )
    return rows


def encode(rows: list[tuple[str, ...]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Twelve columns, shape (n, 12), and labels, shape (n,), 1 for more than 50,000 dollars.

    A category is its place in the alphabetical order of those that occur, "?" (unknown) among them; capital gain and
    loss are log10(1 + x).
    """
    fields = dict(zip(_FIELDS, zip(*rows, strict=True), strict=True))
    columns = []
    for name, values in fields.items():
        if name in _LEFT_OUT:
            continue
        if name in _NUMERIC:
            column = np.array(values, dtype=np.float64)
            columns.append(np.log10(1.0 + column) if name in _LOGARITHMIC else column)
        else:
            codes = {value: float(code) for code, value in enumerate(sorted(set(values)))}
            columns.append(np.array([codes[value] for value in values]))
    # adult.test ends its labels with a full stop.
    return np.stack(columns, axis=1), np.array([value.rstrip(".") == ">50K" for value in fields["income"]], np.int64)


def random_features(table: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """tanh of 512 random linear functions, drawn as torch initialises nn.Linear: shape (n, 512)."""
    generator = torch.Generator().manual_seed(seed)
    bound = 1.0 / math.sqrt(table.shape[1])
    weight = torch.empty(_FEATURES, table.shape[1]).uniform_(-bound, bound, generator=generator)
    bias = torch.empty(_FEATURES).uniform_(-bound, bound, generator=generator)
    # In double precision, so that rounding to single hides how a machine orders its sums.
    outputs: Tensor = torch.tanh(torch.from_numpy(table) @ weight.double().T + bias.double())
    return outputs.numpy()


def adult() -> Task:
    """48,842 people, adult.test before adult.data: the first 5,000 are the test, the other 43,842 the pool; linear head
    on 512 features with d = 1026. The columns are standardised with the pool's statistics."""
    table, labels = encode([row for content in read(*FILES) for row in parse_rows(content)])
    mean, std = scaling(table[_TEST_ROWS:])
    features = random_features((table - mean) / std, seed=0)
    return Task(
        name="adult",
        make_model=partial(nn.Linear, _FEATURES, 2),
        pool=examples(features[_TEST_ROWS:], labels[_TEST_ROWS:]),
        test=examples(features[:_TEST_ROWS], labels[:_TEST_ROWS]),
        # Sizes and clip_norm: the paper's utility experiment, 20 epochs.
        recipe=Recipe(
            dataset_size=43_000,
            batch_size=1_000,
            num_steps=860,
            learning_rate=1.0e-2,
            optimizer="Adam",
            clip_norm=800.0,
        ),
    )
