"""Privacy targets: exactly one number, whose privacy it is about, and the way to a file and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gmip.errors import InvalidArgument, UnreachableTarget
from gmip.vocabulary import PrivacyTarget, Rate

TARGETS: list[tuple[dict[str, Any], str, float, str]] = [
    ({"target_mu": 0.3}, "mu", 0.3, "mu = 0.3"),
    ({"target_tpr": "0.05@0.01"}, "tpr", 0.05, "TPR = 0.05 at FPR = 0.01"),
    ({"target_advantage": 0.1, "attacker_knows": 0.5}, "advantage", 0.1, "advantage = 0.1"),
    ({"target_epsilon": 1, "delta": 1e-3, "notion": "gdp"}, "epsilon", 1.0, "epsilon = 1 at delta = 0.001"),
    ({"target_tpr": (0.1, 0.01), "susceptibility": np.array([100.0, 300.0])}, "tpr", 0.1, "TPR = 0.1 at FPR = 0.01"),
]


@pytest.mark.parametrize(("given", "measure", "value", "words"), TARGETS)
def test_what_it_says(given: dict[str, Any], measure: str, value: float, words: str) -> None:
    target = PrivacyTarget(**given)
    assert (target.measure, target.value, str(target)) == (measure, value, words)
    assert target.is_share == (measure in ("tpr", "advantage"))
    assert PrivacyTarget.of(None, given) == PrivacyTarget.of(target, {}) == target
    assert hash(target) == hash(PrivacyTarget(**given))


@pytest.mark.parametrize("given", [given for given, *_ in TARGETS])
def test_there_and_back(given: dict[str, Any]) -> None:
    target = PrivacyTarget(**given)
    assert PrivacyTarget.from_json(json.loads(json.dumps(target.as_json()))) == target


def test_files_keep_their_fields() -> None:
    assert PrivacyTarget(target_tpr=Rate(0.05, 0.01)).as_json() == {"target_tpr": [0.05, 0.01], "notion": "gmip"}


@pytest.mark.parametrize(
    ("given", "factor", "value"),
    [
        ({"target_mu": 0.4}, 0.5, 0.2),
        ({"target_epsilon": 2.0, "delta": 1e-6}, 2.0, 4.0),
        ({"target_advantage": 0.6}, 2.0, 1.0),
        ({"target_tpr": (0.05, 0.01)}, 0.5, 0.01 + 0.5 * (0.05 - 0.01)),  # what it has above guessing
    ],
)
def test_stricter_and_looser(given: dict[str, Any], factor: float, value: float) -> None:
    scaled = PrivacyTarget(**given, attacker_knows=0.5).scaled(factor)
    assert scaled.value == value and scaled.attacker_knows == 0.5
    assert scaled.delta == given.get("delta")


def test_by_noise_alone_is_for_everybody() -> None:
    target = PrivacyTarget(target_mu=0.4, susceptibility=[1.0, 2.0], attacker_knows=0.5)
    assert target.by_noise_alone() == PrivacyTarget(target_mu=0.4, notion="gdp")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({}, InvalidArgument, "^No privacy target was given: pass one of target_mu, target_tpr"),
        ({"target_mu": 1.0, "target_tpr": (0.1, 0.01)}, InvalidArgument, "^2 privacy targets were given"),
        ({"target_tpr": (0.01, 0.01)}, UnreachableTarget, "guessing alone"),
        ({"target_tpr": 0.5}, InvalidArgument, "^target_tpr must be TPR@FPR"),
        ({"target_epsilon": 1.0}, InvalidArgument, "^delta is missing"),
        ({"target_mu": 1.0, "delta": 1e-6}, InvalidArgument, "^delta belongs to target_epsilon"),
        ({"target_mu": 1.0, "notion": "dp"}, InvalidArgument, "notion"),
        ({"target_mu": 1.0, "notion": "gdp", "attacker_knows": 0.5}, InvalidArgument, "attacker_knows does not apply"),
        ({"target_mu": 1.0, "notion": "gdp", "susceptibility": "any"}, InvalidArgument, "susceptibility does not"),
        ({"target_mu": 1.0, "susceptibility": "all"}, InvalidArgument, "susceptibility"),
    ],
)
def test_bad_targets(given: dict[str, Any], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        PrivacyTarget(**given)


def test_one_of_both() -> None:
    with pytest.raises(InvalidArgument, match=r"^target is given beside notion"):
        PrivacyTarget.of(PrivacyTarget(target_mu=1.0), {"notion": "gdp"})


@pytest.mark.parametrize("given", [3, {"target_mi": 1.0}, {"target_mu": -1.0}])
def test_what_somebody_edited(given: Any) -> None:
    with pytest.raises(InvalidArgument):
        PrivacyTarget.from_json(given)
