"""Targets, the run, and the one line on what an answer is."""

from __future__ import annotations

import pytest

import gmip
from gmip._cli import options, show
from gmip._cli.errors import BadRequest
from tests.e2e.cli import CLIPPED, PAPER


@pytest.mark.parametrize(
    ("given", "keywords", "shown"),
    [
        (("0.4", None, None), {"target_mu": 0.4}, "0.201"),
        ((None, "0.05@0.01", None), {"target_tpr": (0.05, 0.01)}, "20.1%"),
        ((None, None, "0.1"), {"target_advantage": 0.1}, "20.1%"),
    ],
)
def test_a_target_says_its_measure_rounded_up(given, keywords, shown):
    target = options.read_target(*given)
    assert target.keywords == keywords
    assert target.shown(0.20001) == shown


def test_a_target_measures_the_curve():
    curve = gmip.account(PAPER)
    measured = [options.read_target(*given).measure(curve) for given in (("1", None, None), (None, "0.1@0.01", None))]
    assert measured == [curve.equivalent_mu(), curve.tpr_at(0.01)]
    assert options.read_target(None, None, "1").measure(curve) == curve.advantage()


def test_what_is_wrong_is_data():
    with pytest.raises(BadRequest) as caught:
        options.read_target(None, None, None)
    assert caught.value.problem == "No privacy target was given"
    assert caught.value.remedy == "pass one of --target-mu, --target-tpr and --target-advantage"


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            {},
            "For a typical record and an attacker who knows the distribution of the data but none of the others; ",
        ),
        ({}, "a forecast, not a bound."),
        ({"susceptibility": 30.0}, "For a record of susceptibility at most 30 and an attacker"),
        ({"susceptibility": 30.0}, "; a bound."),
        ({"susceptibility": [30.0, 40.0]}, "For a random one of 2 records of measured susceptibility and an attacker"),
        ({"attacker_knows": 1.0}, "For any record and an attacker who knows all other members; a bound."),
        ({"notion": "gdp"}, "For any record, whatever the others are, and any attacker; a bound."),
        ({"notion": "gdp", "composition": "clt"}, "a forecast, not a bound."),
    ],
)
def test_one_line_says_what_and_for_whom(how, words):
    curve = gmip.account(CLIPPED.replace(noise_std=2.0), **how)
    assert words in show.one_line(curve)
    assert show.one_line(curve).endswith(". --explain lists what it assumes.")
    assert show.one_line(curve, explained=True).endswith(". It assumes:")
