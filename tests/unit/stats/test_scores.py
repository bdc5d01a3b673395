"""ScoreSet: what it checks, posteriors, and the logistic calibration behind them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from gmip.errors import InvalidArgument
from gmip.stats import ExpectedRoc, ScoreSet, logistic_calibration, roc_curve, tpr_at_fpr
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
    result = scored(scores=scores, facts={"rank": np.int64(3)})
    scores[0] = 9.0
    assert result.scores[0] == 0.0 and len(result) == 3 and result.facts == {"rank": 3}
    with pytest.raises(ValueError, match="read-only"):
        result.scores[0] = 1.0
    with pytest.raises(TypeError):
        result.facts["rank"] = 4  # type: ignore[index]


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
        ({"susceptibility_of": "run"}, "susceptibility_of = 'run' needs a susceptibility"),
        ({"susceptibility": [1.0, 1.0, 2.0], "susceptibility_of": "week"}, "susceptibility_of = 'week' is not known"),
        ({"prediction": 0.8}, "prediction = 0.8 must be an ExpectedRoc"),
        ({"facts": {"ranks": [1, 2]}}, r"facts.ranks = \[1, 2\] must be text"),
        ({"facts": {"error": np.nan}}, "facts.error = nan must be"),
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


def expected(count: int) -> tuple[ExpectedRoc, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    members, others = rng.normal(1.0, 1.0, count), rng.normal(0.0, 1.0, count)
    roc = roc_curve(members, others)
    return ExpectedRoc(fpr=roc.fpr, tpr=roc.tpr, auc=0.76), members, others


def test_an_expected_roc_has_the_rates_of_its_scores() -> None:
    roc, members, others = expected(3000)
    rates = np.array([0.0, 1e-3, 0.01, 0.1, 0.5, 1.0])
    np.testing.assert_array_equal(roc.tpr_at(rates), tpr_at_fpr(members, others, rates))
    assert roc.tpr_at(0.01) == tpr_at_fpr(members, others, 0.01)
    assert repr(roc) == "ExpectedRoc(auc=0.760, 6001 points)"
    with pytest.raises(ValueError, match="read-only"):
        roc.fpr[0] = 0.5


def test_a_long_expected_roc_is_thinned_from_zero_to_one() -> None:
    roc, *_ = expected(3000)
    few = roc.thinned()
    assert few.fpr.size <= 2100 and few.auc == roc.auc and few.thinned() is few
    assert (few.fpr[0], few.tpr[0], few.fpr[-1], few.tpr[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert few.tpr_at(0.01) == pytest.approx(roc.tpr_at(0.01), abs=0.01)
    short = expected(20)[0]
    assert short.thinned() is short


@pytest.mark.parametrize(
    ("fpr", "tpr", "words"),
    [
        ([0.0, 1.0], [0.0, 0.5, 1.0], "tpr has 3 rates for the 2 of fpr"),
        ([0.0, 0.5, 0.4, 1.0], [0.0, 0.5, 0.6, 1.0], "fpr must be two or more rates that do not fall"),
        ([0.0], [0.0], "two or more"),
        ([0.0, 2.0], [0.0, 1.0], "fpr = 2.0 must lie in"),
    ],
)
def test_no_roc(fpr: list[float], tpr: list[float], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        ExpectedRoc(fpr=fpr, tpr=tpr, auc=0.5)
