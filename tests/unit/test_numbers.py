"""Numbers for people: one format, rounded to the side that was asked for."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gmip import _numbers


@pytest.mark.parametrize(
    ("share", "rounding", "text"),
    [
        (0.109, "nearest", "10.9%"),
        (0.10949, "nearest", "10.9%"),
        (0.10901, "up", "11%"),
        (0.0434, "up", "4.34%"),  # 4.34 in floats is a little more: no step up for that
        (0.002121, "down", "0.212%"),
        (0.002121, "up", "0.213%"),
        (0.0071711, "up", "0.718%"),
        (1.0000000001, "up", "100%"),
        (0.05, "up", "5%"),
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
    assert _numbers.percent(share, rounding) == text


@given(st.floats(0, 1, allow_subnormal=False))
def test_percentages_err_on_the_asked_side(share):
    exact = Decimal(share) * 100
    slack = exact * Decimal("1e-15")  # the shortest decimal of a float is not the float
    assert Decimal(_numbers.percent(share, "down")[:-1]) <= exact + slack
    assert Decimal(_numbers.percent(share, "up")[:-1]) >= exact - slack
    assert Decimal(_numbers.percent(share, "up")[:-1]) <= 100


@given(st.floats(-1e12, 1e12, allow_subnormal=False), st.integers(1, 8))
def test_numbers_err_on_the_asked_side(value, digits):
    slack = abs(Decimal(value)) * Decimal("1e-15")
    assert Decimal(_numbers.number(value, "down", digits)) <= Decimal(value) + slack
    assert Decimal(_numbers.number(value, "up", digits)) >= Decimal(value) - slack


def test_numbers():
    assert [_numbers.number(1.0951, how) for how in ("nearest", "down", "up")] == ["1.1", "1.09", "1.1"]
    assert _numbers.number(1980.5, "nearest") == "1980" and _numbers.number(2.5e9, "up") == "2.5e9"
    assert _numbers.number(1e-5, "up") == "0.00001" and _numbers.number(1.2345e-6, "up") == "1.24e-6"
    assert _numbers.number(0.0, "up") == "0" and _numbers.number(-9.1, "down") == "-9.1"
    assert _numbers.number(9.991, "up") == "10" and _numbers.number(1234.5, "down", 2) == "1200"
    assert _numbers.number(math.inf, "up") == "infinite"
    assert _numbers.count(1234567) == "1,234,567" and _numbers.setting(0.0132427) == "0.013243"
    assert _numbers.interval(0.08199, 0.12101, share=True) == "8.19% to 12.2%"
    assert _numbers.interval(0.6789, 0.7211, share=False) == "0.678 to 0.722"
    assert _numbers.chance(2e-9) == "below 0.01%" and _numbers.chance(0.041234) == "4.13%"


def test_rates_are_not_rounded():
    assert [_numbers.rate(x) for x in ("0.01", "1e-3", "0.125", "1", "0", 0.05, "0.123456", " 1e-7 ")] == (
        ["1%", "0.1%", "12.5%", "100%", "0%", "5%", "12.3456%", "0.00001%"]
    )


def test_no_number_is_no_answer():
    with pytest.raises(OverflowError):
        _numbers.number(math.nan, "up")


def test_durations():
    assert [_numbers.duration(s) for s in (0.04, 0.44, 12.34, 184, 7_380)] == (
        ["under 0.1 s", "0.44 s", "12 s", "3 min 4 s", "2 h 3 min"]
    )
