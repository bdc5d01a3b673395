"""Targets, the run, and the one line on what an answer is."""

from __future__ import annotations

import pytest

import gmip
from gmip.accounting.claims import at_most, found
from gmip.cli import options, show
from gmip.errors import InvalidArgument
from tests.e2e.cli import CLIPPED, PAPER


@pytest.mark.parametrize(
    ("given", "answer", "shown"),
    [
        (("0.4", None, None), {"mu": 0.4}, "0.201"),
        ((None, "0.05@0.01", None), {"tpr": 0.05, "fpr": 0.01}, "20.1%"),
        ((None, None, "0.1"), {"advantage": 0.1}, "20.1%"),
        ((None, None, None, "3", "1e-6"), {"epsilon": 3.0, "delta": 1e-6}, "0.201"),
    ],
)
def test_a_target_says_its_measure_rounded_up(given, answer, shown):
    target = options.read_target(*given)
    assert options.target_as_json(target) == answer
    assert options.shown(target, 0.20001) == shown


def test_a_target_measures_the_curve():
    curve = gmip.account(PAPER)
    measured = [curve.exposure(options.read_target(*given)) for given in (("1", None, None), (None, "0.1@0.01", None))]
    assert measured == [curve.equivalent_mu(), curve.tpr_at(0.01)]
    assert curve.exposure(options.read_target(None, None, "1")) == curve.advantage()
    assert curve.exposure(options.read_target(None, None, None, "1", "1e-6")) == curve.epsilon(1e-6)


@pytest.mark.parametrize(
    "given", [("0.4", None, None), (None, "0.05@0.01", None), (None, None, "0.1"), (None, None, None, "3", "1e-6")]
)
def test_a_target_says_at_most_only_of_a_bound(given):
    target = options.read_target(*given)
    assert "at most" in options.target_sentence(target, gmip.account(PAPER, susceptibility=900.0))
    assert "at most" not in options.target_sentence(target, gmip.account(PAPER))


def test_what_is_wrong_is_data():
    with pytest.raises(InvalidArgument) as caught:
        options.read_target(None, None, None)
    assert caught.value.problem == "No privacy target was given"
    assert caught.value.remedy == "pass one of `target_mu`, `target_tpr`, `target_advantage` and `target_epsilon`"


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ({}, "A forecast, not a bound."),
        ({"susceptibility": 30.0}, "A bound."),
        ({"susceptibility": [30.0, 40.0]}, "A bound."),
        ({"attacker_knows": 1.0}, "A bound."),
        ({"notion": "gdp"}, "A bound."),
        ({"notion": "gdp", "composition": "clt"}, "A forecast, not a bound."),
    ],
)
def test_one_line_says_what_the_numbers_are(how, kind):
    curve = gmip.account(CLIPPED.replace(noise_std=2.0), **how)
    game = "" if how.get("notion") == "gdp" else f" Not a member means: {curve.claim.not_a_member}."
    caveat = "" if curve.claim.caveat is None else f" {curve.claim.caveat}"
    assert (caveat == "") == (how.get("notion") == "gdp" or how.get("attacker_knows") == 1.0)
    assert show.one_line(curve) == f"{kind}{game}{caveat} --explain lists what it assumes."
    assert show.one_line(curve, explained=True) == f"{kind}{game}{caveat} It assumes:"
    assert ("at most" in found(curve, "0.01")) == (at_most(curve) == "at most") == (kind == "A bound.")


def test_the_caveat_is_always_shown():
    curve = gmip.account(PAPER.replace(num_params=100_000))
    assert curve.claim.caveat is not None
    assert curve.claim.caveat in show.one_line(curve)
