"""Adult: the coding on hand-made rows, the random features, and the real table."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gmip.tasks import builtin as module
from gmip.tasks.builtin import ADULT_FILES, adult, encode_adult, parse_adult, random_features, scaling
from gmip.tasks.data_files import DataFile, checksum, read_files
from tests.unit.tasks.real import need

TEST = b"""|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 40, United-States, <=50K.
38, ?, 89814, HS-grad, 9, Divorced, ?, Husband, White, Female, 99, 0, 50, ?, >50K.

"""
DATA = b"""39, State-gov, 77516, Bachelors, 13, Never-married, Sales, Husband, White, Male, 0, 999, 40, Cuba, >50K
"""


def test_rows_of_both_files() -> None:
    rows = parse_adult(TEST)
    assert len(rows) == 2 and len(parse_adult(DATA)) == 1
    assert rows[1][:3] == ("38", "?", "89814") and rows[1][-1] == ">50K."


def test_coding() -> None:
    table, labels = encode_adult(parse_adult(TEST) + parse_adult(DATA))
    # age, workclass, education-num, marital status, occupation, relationship, race, sex, gain, loss, hours, country;
    # "?" comes first in the alphabet.
    assert table.tolist() == [
        [25, 1, 7, 1, 1, 1, 0, 1, 0.0, 0.0, 40, 2],
        [38, 0, 9, 0, 0, 0, 1, 0, 2.0, 0.0, 50, 0],
        [39, 2, 13, 1, 1, 0, 1, 1, 0.0, 3.0, 40, 1],
    ]
    assert labels.tolist() == [0, 1, 1]


def test_features_are_those_of_a_fresh_linear_layer() -> None:
    table = np.random.default_rng(0).standard_normal((5, 12))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        layer = nn.Linear(12, 512)
    before = torch.get_rng_state()
    found = random_features(table, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    expected = torch.tanh(layer(torch.from_numpy(table).float()))
    assert torch.allclose(torch.from_numpy(found).float(), expected, atol=1e-6)


def test_rows_of_adult_test_come_first_and_scaling_ignores_the_test(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_folder / "adult").mkdir()
    files = []
    for name, content in (("adult.test", TEST), ("adult.data", DATA)):
        (data_folder / "adult" / name).write_bytes(content)
        files.append(DataFile(title="Toy", path=f"adult/{name}", checksum=checksum(content, "md5"), url=""))
    monkeypatch.setattr(module, "ADULT_FILES", tuple(files))
    monkeypatch.setattr(module, "_ADULT_TEST_ROWS", 1)
    monkeypatch.setattr(module, "random_features", lambda table, seed: table)
    task = adult()
    assert task.test.targets.tolist() == [0] and task.pool.targets.tolist() == [1, 1]
    # Two rows of a pool stand one deviation to either side of their mean, or on it where they agree.
    assert task.pool.inputs.tolist() == [
        [-1, -1, -1, -1, -1, 0, 0, -1, 1, -1, 1, -1],
        [1, 1, 1, 1, 1, 0, 0, 1, -1, 1, -1, 1],
    ]
    assert float(task.test.inputs[0, 0]) == -27.0  # age 25 against 38 and 39


def test_real_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """UCI counts 48,842 people, 23.93% of them with more than 50,000 dollars; a plain logistic fit gets about 83%."""
    need(monkeypatch, *ADULT_FILES)
    from sklearn.linear_model import LogisticRegression

    table, labels = encode_adult([row for content in read_files(*ADULT_FILES) for row in parse_adult(content)])
    assert table.shape == (48_842, 12) and labels.sum() == 11_687
    assert np.isfinite(table).all()
    assert table.max(axis=0)[[1, 3, 4, 5, 6, 7, 11]].tolist() == [8, 6, 14, 5, 4, 1, 41]  # number of categories less 1
    mean, std = scaling(table[5_000:])
    scaled = (table - mean) / std
    plain = LogisticRegression().fit(scaled[5_000:], labels[5_000:])
    assert plain.score(scaled[:5_000], labels[:5_000]) == pytest.approx(0.83, abs=0.01)


def test_real_task(monkeypatch: pytest.MonkeyPatch) -> None:
    need(monkeypatch, *ADULT_FILES)
    task = adult()
    assert task.pool.inputs.shape == (43_842, 512) and task.test.inputs.shape == (5_000, 512)
    assert float(task.pool.inputs.abs().max()) <= 1.0
    assert int(task.pool.targets.sum()) + int(task.test.targets.sum()) == 11_687
    # Least squares on +-1 labels: a closed form, so no optimizer is tested here.
    inputs = torch.cat([task.pool.inputs, torch.ones(len(task.pool), 1)], dim=1).double()
    signs = 2.0 * task.pool.targets.double() - 1.0
    weights = torch.linalg.solve(inputs.T @ inputs + torch.eye(513, dtype=torch.float64), inputs.T @ signs)
    scores = task.test.inputs.double() @ weights[:-1] + weights[-1]
    accuracy = float(((scores > 0) == (task.test.targets == 1)).double().mean())
    assert accuracy == pytest.approx(0.84, abs=0.01)
    assert math.isclose(task.recipe.num_steps * task.recipe.batch_size / task.recipe.dataset_size, 20)
