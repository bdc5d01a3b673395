from __future__ import annotations

import math

import numpy as np
import pytest

from gmip._cli import show


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.0, "0", "0"),
        (1.3, "1.30", "1.30"),
        (0.69641, "0.697", "0.696"),
        (9.991, "10.0", "9.99"),
        (1234.5, "1240", "1230"),
        (1.2345e-9, "1.24e-9", "1.23e-9"),
        (5.4321e12, "5.44e12", "5.43e12"),
        (math.inf, "infinite", "infinite"),
    ],
)
def test_rounding_is_directed(value, up, down):
    assert (show.round_up(value), show.round_down(value)) == (up, down)


def test_rounding_never_crosses_the_value():
    rng = np.random.default_rng(0)
    for value in (10.0 ** rng.uniform(-15, 15, size=2000)).tolist():
        assert value <= float(show.round_up(value)) <= value * 1.0101
        assert value * 0.9899 <= float(show.round_down(value)) <= value


def test_percentages():
    assert [show.percent(x) for x in (0.04335518, 0.0071711, 0.999999, 1.0, 0.05, 1e-12, 0.0)] == (
        ["4.34%", "0.718%", "100%", "100%", "5.00%", "1e-10%", "0%"]
    )
    assert [show.percent_exact(x) for x in ("0.01", "1e-3", "0.125", "1", "0", 0.05)] == [
        "1%",
        "0.1%",
        "12.5%",
        "100%",
        "0%",
        "5%",
    ]


def test_no_number_is_no_answer():
    with pytest.raises(OverflowError):
        show.print_json({"mu": math.nan})
    with pytest.raises(OverflowError):
        show.round_up(math.nan)
