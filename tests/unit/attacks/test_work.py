"""Time to be done in."""

from __future__ import annotations

import math

import pytest

from gmip.attacks.work import Budget, as_seconds, check_time
from gmip.errors import InvalidArgument, UnsupportedModel


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5min", 300.0), ("90s", 90.0), ("1.5 h", 5400.0), (7, 7.0), ("12", 12.0), (None, math.inf), ("none", math.inf)],
)
def test_lengths_of_time(text: object, seconds: float) -> None:
    assert as_seconds("budget", text) == seconds


@pytest.mark.parametrize("text", ["soon", "5 weeks", "-3s", 0, -1.0, "0min"])
def test_others_are_one_sentence(text: object) -> None:
    with pytest.raises(InvalidArgument, match="budget"):
        as_seconds("budget", text)


def test_a_budget_runs_out() -> None:
    assert Budget().left() == math.inf and not Budget().limited
    assert 9.0 < Budget(10.0).left() <= 10.0
    assert Budget(1.0e-9).left() < 0.0


def test_what_cannot_end_in_time_is_not_begun() -> None:
    check_time("glir", 29.0, Budget(10.0, 40.0))  # others may need less
    check_time("glir", 4.0, Budget(1.0e-9))
    check_time("glir", 11.5, Budget(10.0))  # a budget is kept within a fifth
    for needed, budget in ((31.0, Budget(10.0, 40.0)), (26.0, Budget(10.0, 25.0)), (13.0, Budget(10.0))):
        with pytest.raises(UnsupportedModel, match=rf"needs about {needed:.0f} seconds .* has 10 of the budget"):
            check_time("glir", needed, budget)
