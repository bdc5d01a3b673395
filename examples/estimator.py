"""Audit a random forest and a logistic regression of scikit-learn: half of the records train, the others do not.

    python examples/estimator.py audit-forest

Any estimator with fit and predict_proba, decision_function or predict works: XGBoost, LightGBM, CatBoost, a Pipeline.
"""

from __future__ import annotations

import sys

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gmip
from gmip.auditing import merged
from gmip.report import answer_words, write_report


def main(folder: str) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    forest = gmip.audit_estimator(lambda: RandomForestClassifier(50, random_state=0), X, y, shadows=16)
    linear = gmip.audit_estimator(make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), X, y, shadows=16)
    both = merged(forest, linear)
    for run in both.runs:
        print(f"{run.name}: {answer_words.headline(both, run)}")
    print(f"Report: {write_report(both, folder).html}")


if __name__ == "__main__":
    main(*sys.argv[1:])
