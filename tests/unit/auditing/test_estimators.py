"""Audits of estimators: known answers (a model that memorises, one that cannot), nulls, optimum, mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gmip
from gmip.report import to_html

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 5))
Y = (X[:, 0] + 0.5 * RNG.normal(size=200) > 0).astype(int)


def attacks(result: Any) -> dict[str, Any]:
    return {one.attack: one for one in result.runs[0].attacks}


class Constant:
    """Learns nothing but how often each class occurs."""

    def fit(self, X: Any, y: Any) -> Constant:
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares = counts / counts.sum()
        return self

    def predict_proba(self, X: Any) -> Any:
        return np.tile(self.shares, (len(X), 1))


def test_a_model_that_memorises_is_found_out():
    labels = np.array(["ill", "well"])[RNG.integers(0, 2, 200)]  # nothing to learn but the records themselves
    found = gmip.audit(gmip.Estimator(lambda: KNeighborsClassifier(9, weights="distance"), X, labels, shadows=4))
    (run,) = found.runs
    assert {one.group for one in run.groups} == {"ill", "well"}
    assert run.answers[0].leak == "leak" and run.answers[0].target == "missed"
    assert attacks(found)["loss"].auc.value > 0.7
    assert run.facts.train_accuracy == 1.0 and run.facts.dataset_size == 100
    assert "a customer who asks the model questions" in to_html(found)


def test_a_model_that_learns_nothing_gives_nothing_away():
    for seed in range(3):
        found = gmip.audit(gmip.Estimator(Constant, X, Y, shadows=6), seed=seed)
        assert all(one.mu_lower == 0.0 for one in found.runs[0].attacks)


def test_the_seed_decides():
    one, two = (gmip.audit(gmip.Estimator(LogisticRegression(), X, Y, shadows=4), seed=3) for _ in range(2))
    assert one.runs[0].attacks[0].roc == two.runs[0].attacks[0].roc
    other = gmip.audit(gmip.Estimator(LogisticRegression(), X, Y, shadows=4), seed=4)
    assert other.runs[0].attacks[0].roc != one.runs[0].attacks[0].roc


@pytest.mark.parametrize("kind", ["logistic", "softmax", "ridge"])
def test_linear_models_at_an_optimum_are_decoded(kind):
    """30 records of 40 numbers: the mean gradient at the optimum tells who was in. It must be an optimum."""
    x = RNG.normal(size=(60, 40))
    y: Any = {
        "logistic": RNG.integers(0, 2, 60),
        "softmax": RNG.integers(0, 3, 60),
        "ridge": RNG.normal(size=60),
    }[kind]
    model: Any = Ridge(5.0) if kind == "ridge" else LogisticRegression(C=0.05, tol=1e-8, max_iter=5000)
    found = gmip.audit(gmip.Estimator(make_pipeline(StandardScaler(), model), x, y, shadows=0))
    decoded = attacks(found)["optimum-decode"]
    assert (decoded.sees, decoded.attacker_knows) == ("weights", 1.0)
    assert decoded.auc.value > 0.95
    assert decoded.facts["distance"] < 2.0
    assert [one.sees for one in found.runs[0].answers] == ["weights", "predictions"]


def test_regression_and_decision_functions():
    values = X[:, 0] + RNG.normal(size=200)
    found = gmip.audit(gmip.Estimator(lambda: KNeighborsClassifier(1), X, Y, shadows=0, attacks=["loss"]))
    assert list(attacks(found)) == ["loss"]
    regression = gmip.audit(gmip.Estimator(lambda: Ridge(1.0), X, values, shadows=4))
    assert {"loss", "lira", "rmia"} <= set(attacks(regression)) and regression.runs[0].facts.test_accuracy is None


def test_regression_in_any_units():
    """Whole numbers are values where the estimator is a regressor; metres and millimetres leak the same."""
    values = np.round(100.0 * X[:, 0] + 50.0 * np.random.default_rng(5).normal(size=200))
    found = [
        gmip.audit(
            gmip.Estimator(KNeighborsRegressor(2), X, scale * values, shadows=8, attacks=["loss", "lira", "rmia"])
        )
        for scale in (1.0, 1000.0)
    ]
    metres, millimetres = ({name: a.auc.value for name, a in attacks(one).items()} for one in found)
    assert metres == pytest.approx(millimetres) and min(metres["rmia"], metres["lira"]) > metres["loss"] > 0.55


class OnlyPredicts:
    """An estimator of nobody's library."""

    def fit(self, X: Any, y: Any) -> None:
        self.model = KNeighborsRegressor(1).fit(X, y)

    def predict(self, X: Any) -> Any:
        return self.model.predict(X)


def test_an_estimator_that_only_predicts():
    found = gmip.audit(gmip.Estimator(OnlyPredicts, X, np.round(10.0 * X[:, 0]), shadows=0))
    assert attacks(found)["loss"].auc.value > 0.7


class Broken:
    def fit(self, X: Any, y: Any) -> None:
        raise RuntimeError("no memory of this")


@pytest.mark.parametrize(
    ("make", "x", "y", "words"),
    [
        (lambda: 3, X, Y, "make returned int, which has no fit"),
        (7, X, Y, "make = 7 must be an estimator or return one"),
        (Broken, X, Y, "Broken.fit raised RuntimeError: no memory of this"),
        (LogisticRegression(), X, Y[:-1], "y has shape (199,) for 200 records"),
        (LogisticRegression(), X[:4], Y[:4], "X has 4 records"),
        (LogisticRegression(), X, np.where(Y == 1, np.nan, 0.0), "y has entries that are not finite"),
    ],
)
def test_mistakes_are_one_sentence(make, x, y, words):
    with pytest.raises(gmip.InvalidArgument) as caught:
        gmip.audit(gmip.Estimator(make, x, y, shadows=2))
    assert words in str(caught.value)


def test_an_optimum_that_is_not_known_is_refused():
    with pytest.raises(gmip.InvalidArgument, match="the optimum that KNeighborsClassifier is trained to is not known"):
        gmip.audit(gmip.Estimator(lambda: KNeighborsClassifier(1), X, Y, shadows=0, attacks=["optimum-decode"]))
    several = gmip.audit(
        gmip.Estimator(lambda: KNeighborsClassifier(1), X, Y, shadows=0, attacks=["optimum-decode", "lira", "loss"])
    )
    assert [one.attack for one in several.runs[0].attacks] == ["loss"]
    assert [one.attack for one in several.runs[0].left_out] == ["lira", "optimum-decode"]
