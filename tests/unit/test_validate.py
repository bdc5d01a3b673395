"""Validators: what passes comes out plain, what does not is named in one sentence with its remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gmip import _validate as check
from gmip.errors import InvalidArgument


@pytest.mark.parametrize("value", [3, 3.0, np.int32(3), np.float32(3.0), np.float64(3.0)])
def test_numbers_of_any_kind(value: Any) -> None:
    for validator in (check.number, check.positive, check.non_negative):
        result = validator("x", value)
        assert type(result) is float and result == 3.0
    assert type(check.count("x", value)) is int


@pytest.mark.parametrize("value", ["3", None, True, [3], np.array([3.0]), 3j])
@pytest.mark.parametrize(
    "validator", [check.number, check.positive, check.non_negative, check.count, check.probability]
)
def test_what_is_no_number(validator: Callable[[str, Any], Any], value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^batch_size = .* must be a number: "):
        validator("batch_size", value)


def test_nan_and_huge_integers() -> None:
    with pytest.raises(InvalidArgument, match="x is NaN"):
        check.number("x", math.nan)
    with pytest.raises(InvalidArgument, match="too large"):
        check.number("x", 10**400)
    assert check.number("x", math.inf) == math.inf


@pytest.mark.parametrize(
    ("validator", "wrong"),
    [
        (check.positive, 0.0),
        (check.positive, -1.0),
        (check.positive, math.inf),
        (check.non_negative, -1.0e-300),
        (check.non_negative, math.inf),
        (check.count, 0),
        (check.count, 1.5),
        (check.count, math.inf),
        (check.probability, -1.0e-9),
        (check.probability, 1.0 + 1.0e-9),
    ],
)
def test_outside_the_domain(validator: Callable[[str, Any], Any], wrong: float) -> None:
    with pytest.raises(InvalidArgument) as caught:
        validator("the_name", wrong)
    message = str(caught.value)
    assert "the_name" in message and str(wrong) in message
    assert "\n" not in message and message.endswith(".")


def test_integral_floats_are_counts() -> None:
    assert check.count("x", 1e6) == 1_000_000
    assert check.non_negative("x", 0) == 0.0


def test_open_ends() -> None:
    assert check.probability("p", 0) == 0.0 and check.probability("p", 1) == 1.0
    with pytest.raises(InvalidArgument, match=r"\(0, 1\]"):
        check.probability("p", 0.0, open_low=True)
    with pytest.raises(InvalidArgument, match=r"\[0, 1\)"):
        check.probability("p", 1.0, open_high=True)


def test_one_of() -> None:
    assert check.one_of("mode", "a", ("a", "b")) == "a"
    with pytest.raises(InvalidArgument, match="mode = 'c' is not known: pass one of 'a', 'b'"):
        check.one_of("mode", "c", ("a", "b"))


def test_positive_arrays() -> None:
    np.testing.assert_array_equal(check.positive_array("k", [1, 2.5]), [1.0, 2.5])
    assert check.positive_array("k", 3.0).shape == (1,)
    for wrong in ([], [[1.0]], [1.0, 0.0], [1.0, math.inf], [math.nan], "abc", ["x"], None):
        with pytest.raises(InvalidArgument, match="k"):
            check.positive_array("k", wrong)
    with pytest.raises(InvalidArgument, match=r"2 entries.*-1\.0"):
        check.positive_array("k", [1.0, -1.0, 0.0])


def test_probability_arrays() -> None:
    assert check.probability_array("p", 0.5).shape == ()
    assert check.probability_array("p", [[0.0, 1.0]]).shape == (1, 2)
    for wrong in ([0.5, 1.5], -0.1, [math.nan], "x"):
        with pytest.raises(InvalidArgument, match="p"):
            check.probability_array("p", wrong)


@pytest.mark.parametrize(
    ("given", "known", "hint"),
    [
        ("digts", ["adult", "digits"], ", did you mean 'digits'"),
        ("CIFAR10", ["cifar10"], ", did you mean 'cifar10'"),
        ("linear.wieght", ["Linear.weight"], ", did you mean 'Linear.weight'"),
        ("tau", ["table", "tau-table"], ", did you mean 'tau-table'"),
        ("nonsense", ["confidence"], ""),
        ("ta", ["tau-table"], ""),
        ("zzz", ["adult", "digits"], ""),
        (3, ["adult"], ""),
        ("x", [], ""),
    ],
)
def test_did_you_mean(given, known, hint):
    assert check.did_you_mean(given, known) == hint


def test_lists() -> None:
    assert check.listed(["a"]) == "a" and check.listed(("a", "b")) == "a and b"
    assert check.listed(["a", "b", "c"], "or") == "a, b or c"


@pytest.mark.parametrize("values", [np.ones(3) * 1j, [1.0, 2.0 + 1.0j], np.array([1.0, 1j], dtype=object)])
def test_complex_numbers_are_refused(values: Any) -> None:
    """NumPy would drop what is imaginary in them."""
    for validator in (check.vector, check.positive_array, check.probability_array):
        with pytest.raises(InvalidArgument, match="must be a"):
            validator("scores", values)
