from __future__ import annotations

import pytest

from gmip import NoisySGD, calibrate
from reproduction.experiments import tau_table
from reproduction.paper import TARGET_MUS, UTILITY

LEVELS = (0, 5)  # mu = 0.40 and 1.43


@pytest.fixture(scope="module")
def rows():
    return [row for cell in tau_table.cells(False) if cell.level in LEVELS for row in tau_table.run(cell)]


def test_every_published_value_has_a_cell():
    assert len(tau_table.cells(False)) == len(tau_table.cells(True)) == 60


def test_noise_is_what_calibrate_says(rows):
    run = NoisySGD(dataset_size=48_000, batch_size=400, num_steps=1_200, num_params=650, clip_norm=500.0)
    row = next(row for row in rows if row["setting"] == "cifar10" and row["mu"] == TARGET_MUS[0])
    assert row["gmip-tight"] == calibrate(run, target_mu=0.4).noise_std
    assert row["gdp-exact"] == calibrate(run, target_mu=0.4, notion="gdp").noise_std
    assert row["gdp_published"] == row["gmip-paper_published"] == 2.84 and f"{row['gdp']:.2f}" == "2.84"


def test_claims(rows):
    claims = tau_table.claims(rows)
    assert [claim.verdict for claim in claims] == [
        "agrees",
        "agrees",
        "agrees",
        "agrees",
        "agrees",
        "differs",
        "contradicted",
    ]
    assert claims[0].measured == f"{2 * len(rows)} of {2 * len(rows)} recomputed to both decimals"
    assert "μ = 0.86" in claims[1].published and "0.787" in claims[1].measured and "0.703" in claims[1].measured
    assert len(tau_table.table(rows).rows) == len(rows)


def test_other_noise_is_noticed(rows):
    wrong = [rows[0] | {"gdp": 2.85}, *rows[1:]]
    assert tau_table.claims(wrong)[0].verdict != "agrees"
    more = [rows[0] | {"gmip-paper": 9.0}, *rows[1:]]
    assert tau_table.claims(more)[4].verdict != "agrees"
    late = [row | {"gmip-paper_no_noise_from": 1.5} for row in rows]
    assert tau_table.claims(late)[1].verdict != "agrees"


def test_lines_fall_where_no_noise_is_needed(rows):
    mine = [row for row in rows if row["setting"] == "adult"]
    mu, noise = tau_table._line(mine, "gmip-paper")
    place = mu.index(mine[0]["gmip-paper_no_noise_from"])
    assert mu == sorted(mu) and mu[place] == mu[place + 1]
    assert noise[place] > 1.0 and noise[place + 1 :] == [0.0] * (len(noise) - place - 1)
    assert set(mu) > {row["mu"] for row in mine} and len(UTILITY) == 3


def test_no_published_value_is_above_the_axes(rows):
    _, beside = tau_table.drawings(rows)
    assert all(axes.get_ylim()[1] > 4.72 for axes in beside.figure.axes)
