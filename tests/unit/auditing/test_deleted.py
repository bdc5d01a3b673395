"""Deleted or not: retrained models are the null; nothing done, fine-tuned away and overdone are found."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import gmip
from gmip.errors import InvalidArgument
from gmip.report.markdown import to_markdown

pytest.importorskip("sklearn", reason="models come from scikit-learn")

from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression


def audited(after: np.ndarray, asked: np.ndarray, **options: Any) -> Any:
    return gmip.audit(gmip.Deleted(gmip.Predictions(asked, losses=after), **options))


def p_values(result: Any) -> np.ndarray:
    return np.array([one.p_value for one in result.candidates["deleted"] if one.member])


def simulated(seed: int, shift: float, requests: int = 80, controls: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Losses of requests, shifted, and of controls."""
    asked = np.arange(requests + controls) < requests
    return np.exp(np.random.default_rng(seed).normal(size=len(asked)) - shift * asked), asked


def test_p_values_of_a_retrained_model_are_valid():
    """100 releases, 10 requests each: every p-value has its nominal chance; four standard errors are left."""
    found = []
    for seed in range(100):
        losses, asked = simulated(seed, 0.0, requests=10)
        scores = gmip.Deleted(gmip.Predictions(asked, losses=losses)).evidence().attacks[0].first
        assert scores.p_values is not None
        found.append(scores.p_values[:10])
    every = np.concatenate(found)
    for p in (0.05, 0.2, 0.5):
        assert (every <= p).mean() <= p + 4.0 * np.sqrt(p * (1 - p) / every.size)
    assert (every <= 0.5).mean() > 0.35  # and they are not idle


@pytest.mark.parametrize("shift", [2.0, -2.0])
def test_traces_are_found_either_way(shift):
    losses, asked = simulated(0, shift)
    result = audited(losses, asked, before=gmip.Predictions(asked, losses=simulated(1, 2.0)[0]))
    assert result.runs[0].conclusion.kind == "fails" and result.runs[0].suspicion is None
    assert (p_values(result) <= 0.05).mean() > 0.2
    found = result.runs[0].deletion
    assert found.found == pytest.approx((p_values(result) <= 0.05).mean()) and found.before > 0.2
    text = to_markdown(result)
    assert "asked to be deleted" in text and "in the release before" in text and "score lower" not in text


def test_what_is_refused():
    losses, asked = simulated(0, 0.0)
    with pytest.raises(InvalidArgument, match="before is about other requests"):
        audited(losses, asked, before=gmip.Predictions(~asked, losses=losses))
    with pytest.raises(InvalidArgument, match="after must be a source, not ndarray"):
        gmip.audit(gmip.Deleted(losses))
    with pytest.raises(InvalidArgument, match="attack"):
        audited(losses, asked, attack="lira")
    assert "pass the release before" in to_markdown(audited(losses, asked))


@cache
def records() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """900 records with noisy labels; the first 100 ask to be deleted, then 500 who stay, then 300 controls."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 20))
    return x, (x[:, 0] + 2.0 * rng.normal(size=900) > 0).astype(int), np.r_[0:100, 600:900]


def asked_about(model: Any) -> gmip.Predictions:
    x, y, rows = records()
    answers = [one.predict_proba(x[rows]) for one in (model, *retrained(type(model)))]
    return gmip.Predictions(rows < 100, labels=y[rows], probabilities=answers[0], references=answers[1:])


def fitted(kind: Any, rows: Any, seed: int) -> Any:
    x, y, _ = records()
    model = RandomForestClassifier(30, random_state=seed) if kind is RandomForestClassifier else kind(C=1e6)
    return model.fit(x[rows], y[rows])


@cache
def retrained(kind: Any) -> list[Any]:
    """Reference models on random four fifths of those who stay."""
    rng = np.random.default_rng(1)
    return [fitted(kind, 100 + rng.permutation(500)[:400], seed) for seed in range(4)]


@pytest.mark.parametrize(("kind", "found"), [(RandomForestClassifier, 0.5), (LogisticRegression, 0.02)])
def test_models_that_forgot_and_models_that_did_not(kind, found):
    whole, without = fitted(kind, np.arange(600), 7), fitted(kind, np.arange(100, 600), 8)
    before = asked_about(whole)
    kept = gmip.audit(gmip.Deleted(asked_about(whole), before=before))
    assert (p_values(kept) <= 0.05).mean() >= found
    gone = gmip.audit(gmip.Deleted(asked_about(without), before=before))
    assert (p_values(gone) <= 0.05).mean() <= 0.05 + 4.0 * np.sqrt(0.05 * 0.95 / 100)
    assert gone.runs[0].conclusion.kind != "fails"


def test_models_of_several_moments_are_refused(tmp_path):
    """The way from the old release, which knew them, accuses models that were retrained (12% of requests at 5%)."""
    pytest.importorskip("torch", reason="checkpoints need the extra gmip[audit]")
    with pytest.raises(InvalidArgument, match=r"after holds several models.*gmip\.Released"):
        gmip.audit(gmip.Deleted(gmip.Checkpoints(tmp_path, [0, 1], [2, 3], "digits")))


def test_two_requests_are_told_to_read_their_p_values():
    """They are too few for a verdict; a release before without traces says that nothing could be seen."""
    losses, asked = simulated(0, 0.0, requests=2)
    result = audited(losses, asked, before=gmip.Predictions(asked, losses=losses))
    text = to_markdown(result)
    assert "Read the p-value of each person who asked" in text and "finding none proves nothing" in text
