"""ScoreSet: what it checks, posteriors, and the logistic calibration behind them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet, logistic_calibration
from tests.unit.report.page import Page


def scored(**changes: object) -> ScoreSet:
    given = {"ids": [4, 5, 6], "scores": [0.0, 1.0, -2.0], "attack": "glir", "calibration": (2.0, -1.0)}
    return ScoreSet(**{**given, **changes})


def test_posterior() -> None:
    np.testing.assert_allclose(scored().posterior(0.5), expit([-1.0, 1.0, -5.0]))
    even, rare = scored().posterior(0.5), scored().posterior(0.01)
    np.testing.assert_allclose(rare / (1.0 - rare), even / (1.0 - even) / 99.0)


def test_is_frozen_and_a_copy() -> None:
    scores = np.array([0.0, 1.0, 2.0])
    result = scored(scores=scores, info={"rank": 3})
    scores[0] = 9.0
    assert result.scores[0] == 0.0 and len(result) == 3 and result.info["rank"] == 3
    with pytest.raises(ValueError, match="read-only"):
        result.scores[0] = 1.0
    with pytest.raises(TypeError):
        result.info["rank"] = 4  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scores": [1.0, 2.0]}, "scores has 2 entries where 3"),
        ({"scores": [1.0, np.nan, 2.0]}, "scores has 1 NaN"),
        ({"ids": [1, 1, 2]}, "1 repeated"),
        ({"ids": []}, "non-empty"),
        ({"attack": ""}, "attack"),
        ({"p_values": [0.1, 0.2, 1.5]}, "p_values"),
        ({"p_values": [0.1]}, "p_values has 1"),
        ({"susceptibility": [1.0, -1.0, 2.0]}, "susceptibility"),
        ({"calibration": (-1.0, 0.0)}, "calibration"),
        ({"calibration": (1.0, np.inf)}, "calibration"),
    ],
)
def test_what_does_not_fit(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        scored(**changes)


def test_posterior_needs_calibration_and_a_prior() -> None:
    with pytest.raises(InvalidArgument, match="no calibration"):
        scored(calibration=None).posterior(0.5)
    for prior in (0.0, 1.0, np.nan):
        with pytest.raises(InvalidArgument, match="prior"):
            scored().posterior(prior)


class TestCalibration:
    def test_recovers_log_likelihood_ratios(self) -> None:
        rng = np.random.default_rng(0)
        ins, outs = rng.normal(0.5, 1.0, 40_000), rng.normal(-0.5, 1.0, 10_000)  # log-likelihood ratio = score
        slope, offset = logistic_calibration(3.0 * ins + 2.0, 3.0 * outs + 2.0)
        assert slope == pytest.approx(1.0 / 3.0, abs=0.01)
        assert offset == pytest.approx(-2.0 / 3.0, abs=0.03)

    def test_against_scikit_learn(self) -> None:
        rng = np.random.default_rng(1)
        ins, outs = rng.normal(1.0, 2.0, 3000), rng.standard_t(3, 2000)
        theirs = LogisticRegression(C=1.0e8, class_weight="balanced", tol=1.0e-10)
        theirs.fit(np.concatenate([ins, outs])[:, None], np.repeat([1, 0], [3000, 2000]))
        ours = logistic_calibration(ins, outs)
        assert ours == pytest.approx((theirs.coef_[0, 0], theirs.intercept_[0]), abs=3.0e-3)  # Platt's targets

    def test_perfect_separation_stays_finite(self) -> None:
        slope, offset = logistic_calibration(np.arange(10.0, 20.0), np.arange(10.0))
        assert 0.0 < slope < 100.0
        assert slope * 9.5 + offset == pytest.approx(0.0, abs=0.5)

    def test_no_information(self) -> None:
        assert logistic_calibration([1.0, 1.0], [1.0]) == (0.0, 0.0)
        assert logistic_calibration([0.0, 0.1], [1.0, 1.1]) == (0.0, 0.0)
        with pytest.raises(InvalidArgument, match="at least one"):
            logistic_calibration([], [1.0])


def test_shows_no_candidate() -> None:
    ids = np.array(["patient-<1>", "patient-<2>", "patient-<3>"])
    scores = ScoreSet(
        ids=ids, scores=np.array([0.5, 2.0, -1.25]), attack="mine <b>", p_values=np.array([0.1, 0.2, 0.3])
    )
    assert repr(scores) == "<ScoreSet of mine <b>: 3 candidates>"
    source = scores._repr_html_()
    page = Page(source)
    assert page.all("strong")[0][1] == "Scores of mine <b>" and not page.all("b")
    assert [text for _, text in page.all("td")] == ["3", "-1.25 to 2, median 0.5", "p-values"]
    assert "patient" not in source + repr(scores)
