"""Exposure beside accuracy in scikit-learn's own search."""

from __future__ import annotations

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.neighbors import KNeighborsClassifier

import gmip
from gmip.integrations.sklearn import privacy_scorer

RNG = np.random.default_rng(1)
X = RNG.normal(size=(120, 4))
Y = RNG.integers(0, 2, 120)


def test_a_search_sees_which_neighbours_memorise():
    grid = {"weights": ["distance", "uniform"]}  # by distance, a member is its own nearest neighbour
    search = GridSearchCV(KNeighborsClassifier(30), grid, scoring=privacy_scorer(X, Y), refit="privacy", cv=3).fit(X, Y)
    memorised, smooth = search.cv_results_["mean_test_privacy"]
    assert memorised < -0.9 < -0.6 < smooth
    assert search.best_params_ == {"weights": "uniform"}
    assert all(0.3 < share < 0.7 for share in search.cv_results_["mean_test_accuracy"])


def test_regressors():
    told = cross_validate(Ridge(), X, X[:, 0], scoring=privacy_scorer(X, X[:, 0]), cv=3)
    assert set(told) >= {"test_r2", "test_privacy"} and (told["test_r2"] > 0.9).all()


def test_other_records_are_refused():
    model = KNeighborsClassifier(1).fit(X, Y)
    with pytest.raises(gmip.InvalidArgument, match="does not hold the records of the search"):
        privacy_scorer(X, Y)(model, X + 1.0, Y)


def test_ties_are_no_privacy():
    """A forest is as sure of most others as of its members: no threshold has few false alarms, a coin does."""
    forest = RandomForestClassifier(10, random_state=0)
    told = cross_validate(forest, X, Y, scoring=privacy_scorer(X, Y), cv=3)
    assert (told["test_privacy"] < -0.1).all()


def test_a_search_does_not_choose_one_neighbour():
    """All members are known for certain, and half of the others: a leak, not the best privacy."""
    grid = {"n_neighbors": [1, 40]}
    search = GridSearchCV(KNeighborsClassifier(), grid, scoring=privacy_scorer(X, Y), refit="privacy", cv=3).fit(X, Y)
    one, many = search.cv_results_["mean_test_privacy"]
    assert one < -0.1 and search.best_params_ == {"n_neighbors": 40} and one < many


def test_a_search_in_several_processes_scores_the_same():
    """Workers begin with another salt of Python's hash than the process that made the scorer."""
    options = {"scoring": privacy_scorer(X, Y), "refit": "privacy", "cv": 3}
    grid = {"n_neighbors": [1, 40]}
    alone = GridSearchCV(KNeighborsClassifier(), grid, **options).fit(X, Y)
    try:
        shared = GridSearchCV(KNeighborsClassifier(), grid, n_jobs=2, **options).fit(X, Y)
    finally:
        get_reusable_executor().shutdown(wait=True)
    np.testing.assert_array_equal(alone.cv_results_["mean_test_privacy"], shared.cv_results_["mean_test_privacy"])
