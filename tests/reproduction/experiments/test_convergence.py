from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ncx2, norm

from reproduction.experiments import convergence


@pytest.fixture(scope="module")
def rows():
    return [row for cell in convergence.cells(True) for row in convergence.run(cell)]


def test_both_curves_against_scipy():
    d, n = 20, 20
    for row in convergence.run(convergence.Size(part="curve", num_params=d, batch_size=n)):
        if not 1e-4 < row["fpr"] < 1:
            continue
        threshold = n / (n - 1) * ncx2.ppf(row["fpr"], d, n * d)
        assert row["tpr_theorem_5_1"] == pytest.approx(ncx2.cdf(threshold, d, (n - 1) * d), rel=1e-6)
        mu = np.sqrt(2 * d / (2 * n + 1))
        assert row["tpr_gaussian"] == pytest.approx(norm.cdf(norm.ppf(row["fpr"]) + mu), rel=1e-9)


def test_the_largest_gap_is_the_largest():
    (row,) = convergence.run(convergence.Size(part="audit", num_params=50, batch_size=40))
    fpr = np.linspace(0.01, 0.99, 99)
    threshold = 40 / 39 * ncx2.ppf(fpr, 50, 40 * 50)
    gaps = abs(ncx2.cdf(threshold, 50, 39 * 50) - norm.cdf(norm.ppf(fpr) + row["mu_step"]))
    assert row["largest_gap"] == pytest.approx(gaps.max(), rel=0.01)
    assert abs(row["tpr_theorem_5_1"] - row["tpr_gaussian"]) == pytest.approx(row["largest_gap"])


def test_claims_and_table(rows):
    claims = convergence.claims(rows)
    assert [claim.verdict for claim in claims] == ["agrees", "differs", "agrees"]
    assert "n^-1.00" in claims[0].measured
    assert len(convergence.table(rows).rows) == len(convergence.cells(True)) - 4


def test_a_curve_that_does_not_converge_is_noticed(rows):
    stuck = [row | {"largest_gap": 0.01} for row in rows]
    assert convergence.claims(stuck)[0].verdict == "contradicted"
