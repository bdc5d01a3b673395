"""Numbers and sentences."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmip.auditing.schema import Estimate, Verdict
from gmip.report import words
from tests.unit.report import sample


@pytest.mark.parametrize(
    ("share", "rounding", "text"),
    [
        (0.109, "nearest", "10.9%"),
        (0.10949, "nearest", "10.9%"),
        (0.10901, "up", "11%"),
        (0.0434, "up", "4.34%"),  # 4.34 in floats is a little more: no step up for that
        (0.00212, "down", "0.21%"),
        (0.00212, "up", "0.22%"),
        (0.0, "up", "0%"),
        (1.0, "nearest", "100%"),
        (0.99999, "nearest", "over 99.9%"),
        (0.99999, "up", "100%"),
        (0.99999, "down", "99.9%"),
        (1e-5, "nearest", "0.001%"),
        (3.2e-11, "nearest", "3.2e-9%"),
    ],
)
def test_percent(share, rounding, text):
    assert words.percent(share, rounding) == text


@given(st.floats(0, 1, allow_subnormal=False))
def test_percentages_err_on_the_asked_side(share):
    exact = Decimal(share) * 100
    slack = exact * Decimal("1e-15")  # the shortest decimal of a float is not the float
    assert Decimal(words.percent(share, "down")[:-1]) <= exact + slack
    assert Decimal(words.percent(share, "up")[:-1]) >= exact - slack
    assert Decimal(words.percent(share, "up")[:-1]) <= 100


@given(st.floats(-1e12, 1e12, allow_subnormal=False), st.integers(1, 8))
def test_numbers_err_on_the_asked_side(value, digits):
    slack = abs(Decimal(value)) * Decimal("1e-15")
    assert Decimal(words.number(value, "down", digits)) <= Decimal(value) + slack
    assert Decimal(words.number(value, "up", digits)) >= Decimal(value) - slack


def test_numbers():
    assert words.number(1.0951) == "1.1" and words.number(1.0951, "down") == "1.09" and words.number(1.3, "up") == "1.3"
    assert words.number(1980.5) == "1980" and words.number(1e-5) == "1e-5" and words.number(2.5e9) == "2.5e9"
    assert words.number(0.0004) == "0.0004" and words.number(0.0) == "0" and words.number(-9.1) == "-9.1"
    assert words.count(1234567) == "1,234,567"
    assert words.rate("0.001") == "0.1%" and words.rate("1e-2") == "1%" and words.rate(0.05) == "5%"
    assert words.rate("0.123456") == "12.3456%"  # as asked for, not rounded
    assert words.interval(Estimate(value=0.1, lower=0.08199, upper=0.12101), share=True) == "8.19% to 12.2%"
    assert words.interval(Estimate(value=0.7, lower=0.6789, upper=0.7211), share=False) == "0.678 to 0.722"


def test_times():
    assert (
        words.duration(0.04) == "under 0.1 s" and words.duration(0.44) == "0.44 s" and words.duration(12.34) == "12 s"
    )
    assert words.duration(184) == "3 min 4 s" and words.duration(7_380) == "2 h 3 min"
    assert words.moment("2026-03-05T14:02:11+00:00") == "5 March 2026, 14:02 UTC"
    assert (
        words.moment("2026-03-05T14:02:11Z") == words.moment("2026-03-05T15:02:11+01:00") == "5 March 2026, 14:02 UTC"
    )
    assert words.moment("2026-03-05T14:02:11") == "5 March 2026, 14:02 UTC"
    assert words.moment("yesterday") == "yesterday"


def test_listing():
    assert words.listing(["a"]) == "a" and words.listing(["a", "b"]) == "a and b"
    assert words.listing(["a", "b", "c"]) == "a, b and c"


def test_rates_are_numbers_in_order():
    run = sample.consistent().runs[0]
    assert words.rates(run) == ("0.001", "0.01", "0.1") and words.headline_rate(run) == "0.01"
    odd = sample.promise("claimed", "c", 1.0).model_copy(
        update={"tpr_at": {"0.05": 0.1, "low": 0.2, "nan": 0.1, "7": 1.0}}
    )
    other = run.model_copy(update={"promises": (odd,), "attacks": ()})
    assert words.rates(other) == ("0.05",) and words.headline_rate(other) == "0.05"
    assert words.headline_rate(run.model_copy(update={"promises": (), "attacks": ()})) is None


def test_a_promise_does_not_choose_the_rate_of_the_attack():
    run = sample.consistent().runs[0]
    attack = run.attacks[0].model_copy(update={"tpr_at": {"0.1": run.attacks[0].tpr_at["0.1"]}})
    assert words.headline_rate(run.model_copy(update={"attacks": (attack,)})) == "0.1"


def test_sentences():
    result = sample.exposed()
    run = result.runs[0]
    assert words.meaning(run.attacks[0], "0.01") == (
        "An attacker who accepts 1% false alarms finds 11% of the members; guessing would find 1%."
    )
    assert "at most 5% of audits. 500 members and 500 non-members were tested." in words.certainty(result, run)
    assert "About 4,200 candidates" in words.certainty(sample.inconclusive(), sample.inconclusive().runs[0])
    assert "never that there is none" in words.certainty(sample.consistent(), sample.consistent().runs[0])
    assert words.certainty(sample.bare(), sample.bare().runs[0]).startswith("No attack was run")
    assert words.gate(run, run.gate).startswith("Broken: at 1% false alarms at least 8.39% of the members")
    assert words.tally(["consistent", "exposed", "consistent"]) == (
        "Of 3 runs, 1 is more exposed than claimed and 2 are consistent with the promise."
    )


def test_repeated_runs_are_said():
    run = sample.consistent().runs[0]
    repeated = run.model_copy(update={"attacks": (run.attacks[0].model_copy(update={"repeats": 5}),)})
    assert "over 5 repeated runs" in words.certainty(sample.consistent(), repeated)


def test_headline_does_not_repeat_its_label():
    verdict = Verdict(kind="exposed", headline="More exposed than claimed: it finds 9%.", reasons=())
    assert words.headline(verdict) == "It finds 9%."
    verdict = Verdict(kind="inconclusive", headline="no idea", reasons=())
    assert words.headline(verdict) == "No idea"


def test_attacks_are_named_by_their_titles():
    run = sample.consistent().runs[0]
    assert words.attack_title(run, "lira") == "LiRA, 16 shadow models" and words.attack_title(run, "other") == "other"
