"""RMIA against its paper's formulas, written out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

from gmip.attacks import RMIA, LiRA, Shadows
from gmip.attacks.arrays import LogMean, blended, ranks_among
from gmip.attacks.shadow import ModelAnswers, ModelSignal
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet


class Models:
    """A shadow set in memory: candidates of shape (models, c), population (models, z), inside (models, c)."""

    path = Path("nowhere")

    def __init__(self, candidates: np.ndarray, population: np.ndarray, inside: np.ndarray) -> None:
        self.values, self.others, self.inside = candidates, population, inside
        self.candidates = np.arange(inside.shape[1])

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self):
        for values, others, inside in zip(self.values, self.others, self.inside, strict=True):
            parts = ModelSignal(values[:, None], others[:, None])
            yield SimpleNamespace(inside=inside, signal=lambda key, parts=parts: parts)


def attacked(monkeypatch, phi: np.ndarray, others: np.ndarray, models: Models, **options: Any) -> ScoreSet:
    found = ModelAnswers(phi[:, None], others[:, None], models)
    monkeypatch.setattr(RMIA, "_model_answers", lambda *_, **__: found)
    return RMIA(shadows=Shadows(count=len(models)), **options)._score(None, None, None, None)


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    half = rng.permutation(10) < 5
    inside = np.stack([half, ~half, ~half, half])
    models = Models(rng.normal(1.0, 2.0, (4, 10)), rng.normal(1.0, 2.0, (4, 300)), inside)
    return rng.normal(1.5, 2.0, 10), rng.normal(1.0, 2.0, 300), models


def test_mean_of_probabilities():
    rng = np.random.default_rng(1)
    p, rows = rng.random((9, 5)), rng.random((9, 5)) < 0.7
    mean = LogMean(5)
    for one, mask in zip(p, rows, strict=True):
        mean.add(np.log(one), mask)
    np.testing.assert_allclose(mean.value, [np.log(p[rows[:, i], i].mean()) for i in range(5)])
    assert LogMean(1).value == -np.inf


def test_blend():
    p = np.array([0.0, 0.2, 1.0])
    with np.errstate(divide="ignore"):
        logs = np.log(p)
        for scale in (0.0, 0.3, 1.0):
            np.testing.assert_allclose(blended(logs, scale), np.log(0.5 * ((1 + scale) * p + 1 - scale)), atol=1e-15)


def test_ranks():
    population = np.array([3.0, 1.0, 2.0, 2.0])
    np.testing.assert_allclose(ranks_among(np.array([0.0, 2.0, 2.5, 9.0]), population), np.array([5, 4, 2, 1]) / 5)


def test_online_is_the_mean_over_all_models(monkeypatch, drawn):
    phi, others, models = drawn
    found = attacked(monkeypatch, phi, others, models)
    np.testing.assert_allclose(found.scores, np.log(expit(phi) / expit(models.values).mean(0)))


@pytest.mark.parametrize("online", [True, False])
def test_the_papers_score_has_the_same_order(monkeypatch, drawn, online):
    """The share of population records with ratio_x >= gamma ratio_z, for some gamma; the p-value, of ratios by models
    without the record in both modes, is that of gamma = 1."""
    phi, others, models = drawn
    found = attacked(monkeypatch, phi, others, models, online=online, offline_scale=0.4)
    out = ~models.inside
    p_out = np.where(out, expit(models.values), 0.0).sum(0) / out.sum(0)
    without = expit(phi) / (0.5 * (1.4 * p_out + 0.6))
    ratios = expit(phi) / expit(models.values).mean(0) if online else without
    twins = out[:, np.arange(300) % 10]  # population records have as many models without them as candidates do
    p_z = np.where(twins, expit(models.others), 0.0).sum(0) / twins.sum(0)
    ratios_z = expit(others) / (0.5 * (1.4 * p_z + 0.6))
    for gamma in (0.5, 1.0, 2.0):
        share = (ratios[:, None] >= gamma * ratios_z).mean(1)
        assert np.all(np.diff(share[np.argsort(found.scores)]) >= 0.0)
    expected = (1 + (ratios_z >= without[:, None]).sum(1)) / 301
    np.testing.assert_allclose(found.p_values, expected)
    assert found.facts["population"] == 300


def test_offline_never_looks_at_models_with_the_candidate(monkeypatch, drawn):
    phi, others, models = drawn
    usual = attacked(monkeypatch, phi, others, models, online=False)
    models.values = np.where(models.inside, 99.0, models.values)
    np.testing.assert_array_equal(attacked(monkeypatch, phi, others, models, online=False).scores, usual.scores)


@pytest.mark.parametrize("online", [True, False])
def test_p_values_are_valid(monkeypatch, online):
    """Candidates that are not members, with their own difficulty: population records are like them."""
    rng = np.random.default_rng(2)
    c, z = 1500, 800
    half = rng.permutation(c) < c // 2
    level_c, level_z = rng.normal(0.0, 2.0, c), rng.normal(0.0, 2.0, z)
    inside = np.stack([half, ~half])
    models = Models(level_c + 3.0 * inside + rng.normal(size=(2, c)), level_z + rng.normal(size=(2, z)), inside)
    found = attacked(monkeypatch, level_c + rng.normal(size=c), level_z + rng.normal(size=z), models, online=online)
    assert found.p_values is not None
    for rate in (0.01, 0.1, 0.5):
        assert abs(np.mean(found.p_values <= rate) - rate) < 4.0 * np.sqrt(rate * (1 - rate) * (1 / c + 1 / z)) + 2 / z


def test_extreme_confidences(monkeypatch, drawn):
    phi, others, models = drawn
    phi[0], phi[1], phi[2] = np.inf, -np.inf, -5000.0
    models.values[:, 1], models.values[:, 2], models.values[:, 3] = -np.inf, -5000.0, np.inf
    for online in (True, False):
        scores = attacked(monkeypatch, phi, others, models, online=online).scores
        assert np.isfinite(scores).all()
        if online:
            np.testing.assert_allclose(scores[1:3], 0.0)


def test_without_population_there_are_no_p_values(monkeypatch, drawn):
    phi, _, models = drawn
    models.others = np.empty((4, 0))
    assert attacked(monkeypatch, phi, np.empty(0), models).p_values is None


def test_too_few_models(monkeypatch, drawn):
    phi, others, models = drawn
    one = Models(models.values[:1], models.others[:1], models.inside[:1])
    with pytest.raises(
        InvalidArgument,
        match=r"Candidate \d has 0 of 1 shadow models with it, and rmia needs 1 or more: raise count.*, or",
    ):
        attacked(monkeypatch, phi, others, one)
    with pytest.raises(
        InvalidArgument,
        match=r"shadow models without it, and rmia needs 1 or more: raise count of shadows, which is 1\.",
    ):
        attacked(monkeypatch, phi, others, one, online=False)


def test_settings():
    with pytest.raises(InvalidArgument, match=r"offline_scale = 1\.5"):
        RMIA(offline_scale=1.5)
    assert RMIA().signals() == LiRA().signals()  # one shadow set serves both
