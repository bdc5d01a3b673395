"""LiRA: moments against NumPy, ratios against SciPy, p-values against simulation, and what is degenerate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

from gmip.attacks import LiRA, Shadows
from gmip.attacks.arrays import Moments, likelihood_ratios
from gmip.attacks.shadow import ModelAnswers, ModelSignal
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats import ScoreSet
from gmip.stats.scores import auc

VARIANCES = ("auto", "per-example", "pooled")


@dataclass
class Models:
    """A shadow set in memory: values of shape (models, c, q), inside of shape (models, c), and of the population values
    of shape (models, z, q)."""

    values: np.ndarray
    inside: np.ndarray
    others: np.ndarray | None = None
    path: Path = Path("nowhere")

    @property
    def candidates(self) -> np.ndarray:
        return np.arange(self.inside.shape[1])

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self):
        for number, (values, inside) in enumerate(zip(self.values, self.inside, strict=True)):
            parts = ModelSignal(values, None if self.others is None else self.others[number])
            yield SimpleNamespace(inside=inside, signal=lambda key, parts=parts: parts)


def attacked(
    monkeypatch, phi: np.ndarray, models: Models, population: np.ndarray | None = None, **options: Any
) -> ScoreSet:
    """LiRA on made-up confidences, phi of shape (c, q)."""
    found = ModelAnswers(phi, np.empty((0, phi.shape[1])) if population is None else population, models)
    monkeypatch.setattr(LiRA, "_model_answers", lambda *_, **__: found)
    return LiRA(shadows=Shadows(count=len(models)), **options)._score(None, None, None, None)


def pairs(rng: np.random.Generator, count: int, c: int) -> np.ndarray:
    halves = [rng.permutation(c) < c // 2 for _ in range(count // 2)]
    return np.stack([mask for half in halves for mask in (half, ~half)])


def filled(values: np.ndarray, rows: np.ndarray) -> Moments:
    moments = Moments(values.shape[1:])
    for one, mask in zip(values, rows, strict=True):
        moments.add(one, mask)
    return moments


def test_moments_are_numpys():
    rng = np.random.default_rng(0)
    values, rows = rng.normal(50.0, 3.0, (12, 7, 2)), rng.random((12, 7)) < 0.6
    moments = filled(values, rows)
    for i in range(7):
        kept = values[rows[:, i], i]
        assert moments.count[i] == len(kept)
        np.testing.assert_allclose(moments.mean[i], kept.mean(0))
        np.testing.assert_allclose(moments.scatter[i], ((kept - kept.mean(0)) ** 2).sum(0))


def test_three_variances():
    values = np.array([[[1.0], [0.0]], [[3.0], [0.0]], [[2.0], [3.0]]])
    moments = filled(values, np.ones((3, 2), dtype=bool))
    own = np.array([[1.0], [3.0]])  # each with 2 degrees of freedom
    factor = 1.0 + 1.0 / 3.0
    for variance, expected, freedom in [
        ("pooled", np.full((2, 1), 2.0), 4.0),
        ("per-example", own, 2.0),
        ("auto", (2.0 * own + 4.0 * 2.0) / 6.0, 6.0),
    ]:
        found, known = moments.spread(variance)
        np.testing.assert_allclose(found, factor * expected)
        np.testing.assert_array_equal(known, np.full((2, 1), freedom))


def test_auto_goes_from_pooled_to_per_example():
    rng = np.random.default_rng(1)
    scales = np.array([0.5, 1.0, 2.0])
    for count, nearer in (2, "pooled"), (200, "per-example"):
        moments = filled(scales[:, None] * rng.normal(size=(count, 3, 1)), np.ones((count, 3), dtype=bool))
        logs = {name: np.log(moments.spread(name)[0][0, 0]) for name in VARIANCES}
        other = "per-example" if nearer == "pooled" else "pooled"
        assert abs(logs["auto"] - logs[nearer]) < abs(logs["auto"] - logs[other])


@pytest.mark.parametrize("variance", ["per-example", "pooled"])
def test_ratios_are_scipys(variance):
    rng = np.random.default_rng(2)
    values, inside = rng.normal(size=(16, 5, 3)) + np.arange(3), pairs(rng, 16, 5)
    phi = rng.normal(size=(5, 3))
    groups = [filled(values, mask) for mask in (inside, ~inside)]
    logs = [np.mean(stats.norm.logpdf(phi, group.mean, np.sqrt(group.spread(variance)[0])), axis=1) for group in groups]
    np.testing.assert_allclose(likelihood_ratios(phi, groups[0], groups[1], variance), logs[0] - logs[1])


def test_automatic_ratios_are_those_of_a_linear_model():
    """Level a (any) and shift d ~ N(m, v) of a candidate, its values a + noise, or a + d + noise: the predictive mean
    and variance by solving the normal equations, with the prior as one more observation."""
    rng = np.random.default_rng(5)
    c, count = 40, 6
    level, shift = rng.normal(0.0, 3.0, c), rng.normal(1.0, 0.7, c)
    inside = pairs(rng, count, c)
    values = (level + shift * inside + rng.normal(0.0, 0.5, (count, c)))[..., None]
    phi = level[:, None] + rng.normal(size=(c, 1))
    groups = [filled(values, mask) for mask in (inside, ~inside)]
    counts = [group.count[:, None] for group in groups]
    noise = [group.spread("auto")[0] / (1.0 + 1.0 / n) for group, n in zip(groups, counts, strict=True)]
    gaps, errors = groups[0].mean - groups[1].mean, noise[0] / counts[0] + noise[1] / counts[1]
    varies = float(gaps.var() - errors.mean())
    assert varies > 0.0
    mean = float(np.average(gaps, weights=1.0 / (errors + varies)))
    expected = np.empty(c)
    for i in range(c):
        design = [[1.0, float(mask[i])] for mask in inside] + [[0.0, 1.0]]
        scale = [noise[0 if mask[i] else 1][i, 0] for mask in inside] + [varies]
        x, weights, y = np.array(design), 1.0 / np.array(scale), np.append(values[:, i, 0], mean)
        cov = np.linalg.inv(x.T @ (x * weights[:, None]))
        best = cov @ x.T @ (weights * y)
        logs = []
        for k, row in ((0, np.array([1.0, 1.0])), (1, np.array([1.0, 0.0]))):
            spread = noise[k][i, 0] + row @ cov @ row
            freedom = groups[k].spread("auto")[1][i, 0]
            logs.append(stats.t.logpdf(phi[i, 0], freedom, row @ best, np.sqrt(spread)))
        expected[i] = logs[0] - logs[1]
    np.testing.assert_allclose(likelihood_ratios(phi, groups[0], groups[1]), expected)


def test_few_models_find_more_where_candidates_share_a_shift():
    """Two models with and two without: a candidate's own means are poor, what all share is not."""
    rng = np.random.default_rng(6)
    c, found = 3000, {}
    member = rng.random(c) < 0.5
    level = rng.normal(0.0, 3.0, c)
    values = (level + rng.normal(size=(4, c)))[..., None]
    inside = pairs(rng, 4, c)
    values[..., 0] += inside
    phi = (level + member + rng.normal(size=c))[:, None]
    groups = [filled(values, mask) for mask in (inside, ~inside)]
    for variance in VARIANCES:
        scores = likelihood_ratios(phi, groups[0], groups[1], variance)
        found[variance] = auc(scores[member], scores[~member])
    assert found["auto"] > found["pooled"] + 0.01 > found["per-example"]


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("count", [4, 16])
def test_p_values_are_valid_for_any_law(monkeypatch, variance, count):
    """Heavy tails and spreads of their own, which no fit knows: population records are like candidates in them. Members
    of the shadow models have other confidences, which offline attacks never look at."""
    rng = np.random.default_rng(3)
    c, z = 3000, 1500

    def drawn(size: int, models: int) -> np.ndarray:
        own = np.random.default_rng(size)
        level, spread = own.normal(0.0, 5.0, size), np.exp(own.normal(size=size))
        return level + spread * rng.standard_t(3, (models, size))

    inside = pairs(rng, count, c)
    values, others = drawn(c, count + 1), drawn(z, count + 1)
    models = Models((values[1:] + 9.0 * inside)[..., None], inside, others[1:, :, None])
    found = attacked(monkeypatch, values[0][:, None], models, others[0][:, None], online=False, variance=variance)
    assert found.p_values is not None
    for rate in (0.01, 0.1):
        error = np.sqrt(rate * (1.0 - rate) * (1.0 / c + 1.0 / z))
        assert abs(np.mean(found.p_values <= rate) - rate) < 4.0 * error + 1.0 / z


def test_finds_members_of_made_up_models(monkeypatch):
    """Two Gaussians one apart: AUC is Phi(1/sqrt 2) if their parameters are known, and nearly so with 64 models."""
    rng = np.random.default_rng(4)
    c = 3000
    truth, inside = rng.random(c) < 0.5, pairs(rng, 64, c)
    level = rng.normal(0.0, 5.0, c)
    values = level + inside + rng.normal(size=(64, c))
    phi = level + truth + rng.normal(size=c)
    models = Models(values[..., None], inside)
    for online, loss in (True, 0.02), (False, 0.03):
        scores = attacked(monkeypatch, phi[:, None], models, online=online).scores
        area = stats.mannwhitneyu(scores[truth], scores[~truth]).statistic / (truth.sum() * (~truth).sum())
        best = stats.norm.cdf(1.0 / np.sqrt(2.0))
        assert best - loss < area < best + 4.0 * np.sqrt(1.0 / (12.0 * c / 4.0))


def test_offline_never_looks_at_models_with_the_candidate(monkeypatch):
    rng = np.random.default_rng(5)
    values, inside, phi = rng.normal(size=(8, 6, 2)), pairs(rng, 8, 6), rng.normal(size=(6, 2))
    usual = attacked(monkeypatch, phi, Models(values, inside), online=False)
    # Within the range of the others, so that the bounds for infinite values stay.
    other = attacked(monkeypatch, phi, Models(np.where(inside[..., None], 0.0, values), inside), online=False)
    np.testing.assert_array_equal(usual.scores, other.scores)
    assert usual.p_values is None and usual.facts["online"] is False  # nobody to compare with
    online = attacked(monkeypatch, phi, Models(values, inside))
    assert online.p_values is None and online.facts["shadows"] == 8


def test_infinite_confidences_count_as_the_largest_seen(monkeypatch):
    rng = np.random.default_rng(6)
    values, inside, phi = rng.normal(size=(8, 6, 1)), pairs(rng, 8, 6), rng.normal(size=(6, 1))
    values[0, :, 0], values[1, 0, 0], phi[2, 0] = np.inf, -np.inf, np.inf
    finite = np.concatenate([part[np.isfinite(part)] for part in (values, phi)])
    high, low = finite.max(), finite.min()
    capped = Models(np.clip(values, low, high), inside)
    for options in {}, {"online": False}, {"variance": "per-example"}:
        found = attacked(monkeypatch, phi, Models(values, inside), **options)
        expected = attacked(monkeypatch, np.clip(phi, low, high), capped, **options)
        np.testing.assert_allclose(found.scores, expected.scores)


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("online", [True, False])
def test_degenerate_models(monkeypatch, variance, online):
    """All shadow models say the same of a candidate, or of all: scores are finite and in the right order."""
    rng = np.random.default_rng(7)
    inside = pairs(rng, 8, 4)
    constant = np.where(inside, 1.0, 0.0)[..., None]
    phi = np.array([[-1.0], [0.0], [1.0], [2.0]])
    scores = attacked(monkeypatch, phi, Models(constant, inside), variance=variance, online=online).scores
    assert np.all(np.diff(scores) > 0.0)
    some = constant.copy()
    some[:, 2:] += rng.normal(size=(8, 2, 1))
    scores = attacked(monkeypatch, phi, Models(some, inside), variance=variance, online=online).scores
    assert np.isfinite(scores).all() and scores.argmax() == 3
    nothing = np.full((8, 4, 1), np.inf)
    scores = attacked(monkeypatch, nothing[0], Models(nothing, inside), variance=variance, online=online).scores
    np.testing.assert_array_equal(scores, np.zeros(4))


def test_too_few_models(monkeypatch):
    rng = np.random.default_rng(8)
    inside = pairs(rng, 4, 4)
    values, phi = rng.normal(size=(4, 4, 1)), rng.normal(size=(4, 1))
    with pytest.raises(InvalidArgument, match=r"Candidate \d has 0 of 1 shadow models with it, and lira needs 1"):
        attacked(monkeypatch, phi, Models(values[:1], inside[:1]))
    with pytest.raises(InvalidArgument, match="0 of 1 shadow models without it"):
        attacked(monkeypatch, phi, Models(values[:1], inside[:1]), online=False)
    with pytest.raises(InvalidArgument, match=r"No candidate has two shadow models with it.*shadows, which is 2"):
        attacked(monkeypatch, phi, Models(values[:2], inside[:2]))
    with pytest.raises(InvalidArgument, match="has 1 of 2 shadow models with it, and lira needs 2 or more"):
        attacked(monkeypatch, phi, Models(values[:2], inside[:2]), variance="per-example")
    assert np.isfinite(attacked(monkeypatch, phi, Models(values, inside)).scores).all()


def test_bad_settings():
    with pytest.raises(InvalidArgument, match="variance = 'own' is not known"):
        LiRA(variance="own")
    with pytest.raises(InvalidArgument, match="augmentations has 'spin'"):
        LiRA(augmentations=("spin",))


def test_signals_say_what_is_asked_of_shadow_models():
    plain, flipped = LiRA().signals(), LiRA(augmentations=("flip",)).signals()
    assert [signal.key for signal in plain] == ["confidence"] != [signal.key for signal in flipped]


@pytest.mark.parametrize("online", [True, False])
def test_views_that_training_did_not_use_are_left_out(monkeypatch, online):
    """Shadow models play the released one: a view in which members do not stand out is only noise."""
    rng = np.random.default_rng(0)
    inside = pairs(rng, 16, 200)
    values = rng.normal(size=(16, 200, 2))
    released, truth = rng.normal(size=(200, 2)), rng.random(200) < 0.5
    values[:, :, 0] += 1.5 * inside
    released[:, 0] += 1.5 * truth
    options = {"augmentations": ("flip",), "online": online}
    with pytest.warns(GmipWarning, match="leaves out its `augmentations`"):
        found = attacked(monkeypatch, released, Models(values, inside), **options)
    assert found.facts["views"] == 1
    alone = attacked(monkeypatch, released[:, :1], Models(values[:, :, :1], inside), online=online)
    np.testing.assert_allclose(found.scores, alone.scores)
    values[:, :, 1] += 1.5 * inside
    released[:, 1] += 1.5 * truth
    both = attacked(monkeypatch, released, Models(values, inside), **options)
    assert both.facts["views"] == 2
    assert auc(both.scores[truth], both.scores[~truth]) > auc(alone.scores[truth], alone.scores[~truth])
