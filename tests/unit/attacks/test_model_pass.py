"""Every model of docs/models.md: its gradients against one backward pass for each example."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import pytest
import torch

from gmip.attacks.gradients import PerExampleGradients
from gmip.errors import GmipWarning

SHOWN = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "models.py"))
ALONE = {"RNN", "LSTM", "GRU", "LSTM, time first", "GRU, packed sequences", "branches on the data"}


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
@pytest.mark.parametrize("name", SHOWN["MODELS"])
def test_gradients_are_those_of_single_examples(name):
    model, examples = SHOWN["make"](name, 5)
    gradients = PerExampleGradients(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)
        rows = gradients.rows(examples)
    assert (gradients.plan(examples).alone is not None) == (name in ALONE)
    expected = SHOWN["one_by_one"](model, examples)
    assert torch.linalg.vector_norm(rows - expected) <= 1e-12 * torch.linalg.vector_norm(expected)
    assert expected.norm(dim=1).min() > 1e-3
