"""Audit estimators of scikit-learn: half of the records train, the others do not.

    python examples/estimator.py audit-estimators

A random forest, a logistic regression (whose weights are attacked, too) and a regressor; then a grid search that shows
exposure beside accuracy. Any estimator with fit and predict_proba, decision_function or predict works: XGBoost,
LightGBM, CatBoost, a Pipeline.
"""

from __future__ import annotations

import sys

from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gmip
from gmip.auditing import merged
from gmip.integrations.sklearn import privacy_scorer
from gmip.report import card, write_report


def main(folder: str) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    forest = gmip.audit(gmip.Estimator(lambda: RandomForestClassifier(50, random_state=0), X, y, shadows=16))
    linear = gmip.audit(
        gmip.Estimator(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), X, y, shadows=16)
    )
    values = gmip.audit(
        gmip.Estimator(lambda: RandomForestRegressor(20, random_state=0), *load_diabetes(return_X_y=True), shadows=16)
    )
    audits = merged(merged(forest, linear), values)
    for run in audits.runs:
        print(f"{run.name}: {card.look(run).title}. {card.headline(run)}")
    print(f"Report: {write_report(audits, folder).html}")

    depths = {"max_depth": [2, 4, None]}
    search = GridSearchCV(
        RandomForestClassifier(20, random_state=0), depths, scoring=privacy_scorer(X, y), refit="accuracy"
    ).fit(X, y)
    for depth, accuracy, privacy in zip(
        depths["max_depth"],
        search.cv_results_["mean_test_accuracy"],
        search.cv_results_["mean_test_privacy"],
        strict=True,
    ):
        print(f"depth {depth}: accuracy {accuracy:.3f}, members found at 10% false alarms {-privacy:.1%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
