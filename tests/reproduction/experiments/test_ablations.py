from __future__ import annotations

import numpy as np
import pytest

from reproduction import figures
from reproduction.experiments import ablations


@pytest.fixture(scope="module")
def rows():
    """All parts, with few runs."""
    found = []
    for cell in ablations.cells(True):
        if cell.seed == 0:
            found += ablations.run(ablations.Game(**{**vars(cell), "runs": max(cell.runs // 8, 10)}))
    return found


def test_cells_have_the_extremes_of_the_paper():
    cells = ablations.cells(False)
    assert {cell.seed for cell in cells} == set(range(5))
    assert min(cell.batch_size for cell in cells) == 5 and min(cell.num_params for cell in cells) == 2
    assert {cell.clip_norm for cell in cells} == {0.0, 1.0, 3.0, 5.0} and any(cell.uniform for cell in cells)


def test_gradients_are_what_they_should_be():
    for cell in ablations.cells(True):
        drawn = ablations._gradients(cell, np.random.default_rng(0), 50_000)
        norms = np.linalg.norm(drawn, axis=1)
        if cell.clip_norm > 0.0:
            assert norms.max() <= cell.clip_norm * (1 + 1.0e-12)
        else:
            assert np.mean(norms**2) == pytest.approx(25.0, rel=0.02)
            assert np.cov(drawn.T) == pytest.approx(np.eye(cell.num_params) * 25.0 / cell.num_params, abs=0.35)
        if cell.uniform:
            assert np.abs(drawn).max() <= 5.0 * np.sqrt(3.0 / cell.num_params)


def test_the_attack_follows_the_theorem_over_records(rows):
    """Independent of the formulas: TPR of simulated attacks."""
    areas = {(row["part"], row["level"], row["curve"]): row["auc"] for row in rows}
    for part, level, curve in areas:
        if curve == "likelihood-ratio":
            assert areas[part, level, curve] == pytest.approx(areas[part, level, "records"], abs=0.03)
    assert areas["n", 5.0, "records"] - areas["n", 5.0, "corollary"] > 0.02


def test_parts_are_evidence_of_their_own(rows):
    base = {row["part"]: row["auc"] for row in rows if row["level"] == 20.0 and row["curve"] == "likelihood-ratio"}
    assert len(set(base.values())) == 3


def test_claims_drawing_and_table(rows):
    assert next(claim.verdict for claim in ablations.claims(rows)) == "agrees" and len(ablations.claims(rows)) == 4
    with figures.style():
        (drawing,) = ablations.drawings(rows)
        assert len(drawing.figure.axes) == 8 and len(figures.to_svg(drawing.figure)) < 500_000
    assert len(ablations.table(rows).rows) == 3 + 3 + 4 + 4


def test_claims_fail_where_they_should(rows):
    def changed(part, level, factor):
        return [
            {k: v * factor if k.startswith("tpr") and v is not None else v for k, v in row.items()}
            if (row["part"], row["level"], row["curve"]) == (part, level, "likelihood-ratio")
            else row
            for row in rows
        ]

    assert ablations.claims(changed("n, uniform", 100.0, 0.8))[1].verdict == "contradicted"
    assert ablations.claims(changed("C", 1.0, 0.8))[2].verdict == "contradicted"
    assert ablations.claims(changed("d", 2.0, 0.8))[3].verdict == "contradicted"
    assert ablations.claims(changed("n", 100.0, 0.8))[0].verdict == "contradicted"
