"""Words of the run check: every finding has a sentence, and the numbers of an outcome are in it."""

from __future__ import annotations

import string
from typing import get_args

import pytest

from gmip.auditing.schema import CHECKS, BeyondReach, CheckFinding, CheckOutcome, RunCheck
from gmip.report import check_words

FINDINGS = {name for part in get_args(CheckFinding) for name in get_args(part)}
BY_CHECK: dict[str, set[str]] = {  # findings whose words depend on the check
    "as-declared": set(CHECKS),
    "hidden-by-noise": {"scale", "whole-clip", "clipping", "members"},
    "hidden-by-batches": {"scale", "noise-size", "noise-steps"},
}
SUM = CheckOutcome(check="scale", status="failed", finding="sum-not-mean", value=30.0, expected=1.0, size=30)
SOUND = CheckOutcome(check="whole-clip", status="passed", finding="as-declared")
NO_IDS = [CheckOutcome(check=key, status="unchecked", finding="no-ids") for key in ("clipping", "members")]


@pytest.mark.parametrize("finding", sorted(FINDINGS))
def test_every_finding_has_a_sentence(finding: str) -> None:
    for check in BY_CHECK.get(finding, {"noise-size"}):
        said = check_words.sentence(CheckOutcome(check=check, status="failed", finding=finding))
        assert said.endswith(".") and said[0] in string.ascii_uppercase + string.digits and "{" not in said


def test_every_check_has_a_title() -> None:
    assert len({check_words.title(SOUND.model_copy(update={"check": key})) for key in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize(
    ("finding", "numbers", "words"),
    [
        ("sum-not-mean", {"value": 30.0, "size": 30}, ["30 times", "batch of 30"]),
        (
            "noise-repeats",
            {"value": 1.0, "at_steps": (3, 40)},
            ["steps 3 and 40", "correlation of 1", "The difference"],
        ),
        ("noise-repeats", {"value": -1.0, "at_steps": (3, 40)}, ["The sum of the two steps"]),
        ("noise-layers-differ", {"value": 0.5, "layers": tuple("abcdef")}, ["a, b, c, d and 2 more", "0.5 times"]),
        ("odd-entry", {"value": 0.0, "line": 7, "layers": ("0.weight",)}, ["Entry 7 of 0.weight", "has 0 times"]),
        ("odd-column", {"value": 0.0, "line": 7, "layers": ("0.weight",)}, ["Column 7 of 0.weight has 0 times"]),
        ("changed-outside", {"at_steps": (0, 2, 3)}, ["before the first", "before 2 of the later steps (2 and 3)"]),
        ("changed-outside", {"layers": ("head",)}, ["after the last step (head)"]),
        ("whole-clip", {"norm": 0.3, "steps": 2, "of_steps": 5}, ["norm 0.3 at 2 of 5 steps"]),
        (
            "scale-factor",
            {"value": 2.0, "error": 0.1, "precision": "float16"},
            ["2 times", "± 0.1", "float16"],
        ),
        ("other-check-failed", {"other": "scale"}, ["another check fails: scale of the gradient"]),
        ("poisson-sizes", {"value": 30.0, "expected": 30.0, "error": 0.0}, ["mean is 30", "standard deviation 0"]),
        ("batches-overlap", {"value": 1040.0, "expected": 16.04}, ["share 1,040 records", "would share 16.04"]),
    ],
)
def test_numbers_are_in_the_sentence(finding: str, numbers: dict, words: list[str]) -> None:
    said = check_words.sentence(CheckOutcome(check="noise-size", status="failed", finding=finding, **numbers))
    assert all(part in said for part in words), said


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ((SOUND, SUM), "The record does not match the declared run. The recorded gradient is 30 times"),
        (NO_IDS, "The record could not be checked"),
        ((SOUND, *NO_IDS), "in all that could be checked. 2 of 3 checks could not be made."),
        ((SOUND,), "The record matches the declared run"),
    ],
)
def test_headline(outcomes: tuple[CheckOutcome, ...], words: str) -> None:
    assert words in check_words.headline(RunCheck(outcomes=tuple(outcomes)))


def test_a_reason_is_given_once_and_not_after_a_failure() -> None:
    (said,) = check_words.unchecked(RunCheck(outcomes=(SOUND, *NO_IDS)))
    assert "clipping of each record's gradient and members, model and data" in said
    assert check_words.unchecked(RunCheck(outcomes=(SUM, *NO_IDS))) == check_words.unchecked(None) == []


def test_beyond_reach() -> None:
    hidden = (BeyondReach(fault="noise-size", up_to=0.031), BeyondReach(fault="steps", up_to=0.75))
    said = check_words.beyond_reach(RunCheck(outcomes=(SOUND,), beyond_reach=hidden))
    assert said is not None and "too small by less than 3.1%" in said and "the 75% of the steps" in said
    assert check_words.beyond_reach(RunCheck(outcomes=(SOUND,))) is None
