"""Rates: one parser, one way to write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gmip.errors import InvalidArgument
from gmip.vocabulary import Rate


@pytest.mark.parametrize(
    "given",
    [
        *("0.05@0.01", " 5e-2 @ 1e-2", (0.05, 0.01), [0.05, 0.01], np.array([0.05, 0.01]), Rate(0.05, 0.01)),
        *({"tpr": 0.05, "fpr": 0.01}, {"fpr": 0.01, "tpr": 0.05}),
    ],
)
def test_all_forms_are_one(given: Any) -> None:
    found = Rate.parse("target_tpr", given)
    assert found == Rate(0.05, 0.01) and hash(found) == hash(Rate(0.05, 0.01))
    assert str(found) == "0.05@0.01"


@pytest.mark.parametrize("rate", [Rate(1, 0.5), Rate(0.1 + 0.2, 1e-7)])
def test_text_is_exact(rate: Rate) -> None:
    assert Rate.parse("x", str(rate)) == rate
    assert str(Rate(1, 0.5)) == "1@0.5"


@pytest.mark.parametrize(
    "given",
    [
        *(
            "0.05",
            "0.05@",
            "@0.01",
            "a@b",
            "0.05@0.01@1",
            "5@0.01",
            "0.05@0",
            "0.05@1",
            "0@0.1",
            "nan@0.1",
            "0.05 0.01",
        ),
        *("", 0.5, None, True, (0.5,), (0.1, 0.2, 0.3), (True, 0.1), ("0.1", "0.2"), (0.1, 10**400)),
        *({}, {"tpr": 0.1}, {"tpr": 0.1, "fpr": 0.2, "for": 0.3}, {"tpr": 0.1, "fpt": 0.2}),
    ],
)
def test_what_is_none_is_refused_by_name(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^--goal must be TPR@FPR, two numbers between 0 and 1, not .*0.05@0.01"):
        Rate.parse("--goal", given)
