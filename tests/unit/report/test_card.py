"""The card: five verdicts, one line for each attacker, and one value for one number on all pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from gmip.auditing.schema import (
    Advice,
    AttackerAnswer,
    AuditResult,
    BeyondReach,
    Conclusion,
    Estimate,
    Finding,
    GroupOutcome,
    RunAudit,
    RunCheck,
    Way,
)
from gmip.auditing.verdict import conclude
from gmip.report import card, to_html, to_markdown
from gmip.report.figures import run_figure
from gmip.report.html import to_card, to_summary
from tests.unit.report import sample
from tests.unit.report.page import Page

FOUND = Finding(attack="glir", title="GLiR", tpr=Estimate(value=0.343, lower=0.2, upper=0.5))


def made(**fields: Any) -> AttackerAnswer:
    known: dict[str, Any] = {"sees": "gradients", "leak": "leak", "evidence": FOUND}
    return AttackerAnswer(**(known | {"target": "not-guaranteed", "why": "exceeds"} | fields))


def run(*answers: AttackerAnswer, **more: Any) -> RunAudit:
    (one,) = sample.consistent().runs
    update = {"answers": answers, "conclusion": conclude(answers, goal=one.goal), "verdict": one.verdict}
    return one.model_copy(update=update | more)


LOW = FOUND.model_copy(update={"tpr": Estimate(value=0.012, lower=0.003, upper=0.031)})


@pytest.mark.parametrize(
    ("one", "title", "words"),
    [
        (
            run(made(target="missed", why="measured", tpr_lower=0.2)),
            "Fails the target",
            "34.3% (20% to 50%) of the members can be identified at 1% false alarms; the limit is 5%.",
        ),
        (
            run(made()),
            "Probably fails",
            "34.3% (20% to 50%) of the members were identified at 1% false alarms; the limit is 5%. There is a leak, "
            "but the excess over the limit could be chance (all attacks taken together).",
        ),
        (
            run(made(leak="none-seen")),
            "Inconclusive",
            "34.3% of the members were identified at 1% false alarms, above the limit of 5%, but no attack beats "
            "guessing by more than chance.",
        ),
        (
            run(made(leak="too-few", needed=1200, evidence=None)),
            "Inconclusive",
            "500 members and 500 non-members are too few to test 5% at 1% false alarms. About 1,200 of each are "
            "needed.",
        ),
        (
            run(made(leak="none-seen", evidence=LOW)),
            "Passes the attacks, no guarantee",
            "1.2% (0.3% to 3.1%) of the members were identified at 1% false alarms; the limit is 5%. No leak "
            "was detected.",
        ),
        (
            run(made(target="guaranteed", why="bound", claimed=0.038, worst=0.046)),
            "Guaranteed",
            "At most 3.8% of the members can be identified at 1% false alarms; the limit is 5%. By the record alone: "
            "at most 4.6%. There is a leak, within the limit.",
        ),
        (
            run(made(target="guaranteed", why="bound", claimed=0.041, worst=0.0549, tolerance=0.1)),
            "Guaranteed if the run is as declared",
            "At most 4.1% of the members can be identified at 1% false alarms; the limit is 5%. By the record alone: "
            "at most 5.49% (10% above the limit is allowed for the precision of the check). There is a leak, within "
            "the limit.",
        ),
    ],
    ids=["fails", "probably", "by chance", "too few", "passes", "guaranteed", "guaranteed if as declared"],
)
def test_each_verdict_says_its_number_and_the_limit(one: RunAudit, title: str, words: str) -> None:
    assert (card.look(one).title, card.headline(one)) == (title, words)
    assert card.card_text(one)[0] == f"{title.upper()}: {words}"


def test_each_verdict_has_its_own_colour_and_shape() -> None:
    assert len({look.tone for look in card.VERDICTS.values()}) == 5
    assert len({look.shape for look in card.VERDICTS.values()}) == 5


def test_a_guarantee_says_whom_it_is_about_where_noise_hides_others() -> None:
    hidden = RunCheck(outcomes=(), beyond_reach=(BeyondReach(fault="counted"),))
    one = run(made(target="guaranteed", why="bound", claimed=0.038), check=hidden)
    assert card.headline(one).endswith("Holds for records that are listed and count once.")


def test_a_group_that_fails_is_named_with_its_number() -> None:
    found = {"0.01": Estimate(value=0.16, lower=0.07, upper=0.33)}
    group = GroupOutcome(group="rural clinic", members=300, non_members=300, tpr_at=found)
    answer = made(target="missed", why="group", evidence=LOW)
    one = run(answer, groups=(group,))
    assert one.conclusion == Conclusion(kind="fails", why="group")
    assert card.headline(one).startswith("In the group 'rural clinic' 16% (7% to 33%) of the members can be identified")
    assert "Worst group: rural clinic 16% (7% to 33%)" in card.card_text(one)


def test_who_sees_more_inherits_what_weaker_attackers_find() -> None:
    first, second = card.rows(run(made(knows=1.0), made()))
    assert (first.label, second.label) == ("gradients and a list", "gradients")
    assert first.small == "by a weaker attacker's GLiR" and second.small == "GLiR"


@pytest.mark.parametrize(
    ("claim", "why", "beside"),
    [
        ({}, "exceeds", "guarantee 34%"),
        ({}, "unchecked", "guarantee 34%, not checked"),
        ({}, "refuted", "guarantee 34%, refuted"),
        ({"kind": "forecast"}, "forecast", "forecast 34%"),
        ({"origin": "given"}, "given", "claim 34%"),
        (None, "no-claim", "no guarantee"),
    ],
)
def test_a_line_names_its_curve_by_its_type(claim: dict[str, Any] | None, why: str, beside: str) -> None:
    (known, *_) = sample.consistent().runs[0].claims
    claims = () if claim is None else (known.model_copy(update=claim),)
    (row,) = card.rows(run(made(why=why, claimed=None if claim is None else 0.34), claims=claims))
    assert row.beside == beside


def test_the_picture_in_characters() -> None:
    (line,) = card.forest_text(card.rows(run(made(claimed=0.6))), sample.GOAL)[1:2]
    assert line.startswith("gradients") and line.endswith("34.3% (20% to 50%); guarantee 60%")
    picture = line[23:64]
    places = {sign: picture.index(sign) for sign in ".!|oG"}
    assert places["."] < places["!"] < places["|"] < places["o"] < places["G"]


def test_an_accuracy_has_an_interval_where_its_records_are_counted() -> None:
    one = run(made(), facts=sample.facts(test_records=500))
    found = card.accuracy(one)
    assert found is not None and found[1] == "87.3% (84% to 90%)"


MAKERS: list[Callable[[], AuditResult]] = [sample.exposed, sample.tried, sample.three_runs, sample.hostile, sample.bare]


@pytest.mark.parametrize("make", MAKERS)
def test_no_page_shows_two_values_for_one_number(make: Callable[[], AuditResult]) -> None:
    shown: defaultdict[str, set[str]] = defaultdict(set)
    for text in (to_html(make()), to_summary(make())):
        page = Page(text)
        for (_, attributes), words in zip(page.elements, page.texts, strict=True):
            if attributes.get("data-name"):
                shown[str(attributes["data-name"])].add(words)
    assert {name: values for name, values in shown.items() if len(values) > 1} == {}
    assert make is sample.bare or len(shown) > 3


def test_card_figure_and_tables_name_the_same_numbers() -> None:
    """What the strongest attack finds has one name in the card, beside the curves and in the table of attacks."""
    page = Page(to_html(sample.exposed()))
    (one,) = sample.exposed().runs
    evidence = one.answers[0].evidence
    assert evidence is not None
    names = [attributes.get("data-name") for _, attributes in page.elements]
    assert names.count(f"run-1/found/{evidence.attack}") >= 3


def test_a_verdict_that_is_open_names_its_number_too() -> None:
    (run_,) = sample.inconclusive().runs
    wide = run_.conclusion.model_copy(update={"kind": "inconclusive", "why": "wide", "attacker": 0})
    open_ = run_.model_copy(update={"conclusion": wide})
    page = Page(to_html(sample.result(open_)))
    assert open_.answers[0].evidence is not None
    name = f"run-1/found/{open_.answers[0].evidence.attack}"
    assert [attributes.get("data-name") for _, attributes in page.elements].count(name) >= 4


def test_the_same_words_everywhere() -> None:
    result = sample.exposed()
    (one,) = result.runs
    words = card.headline(one)
    for text in (
        Page(to_html(result)).texts[0],
        Page(to_summary(result)).texts[0],
        to_markdown(result),
        to_card(result),
    ):
        assert words in text and card.look(one).title.lower() in text.lower()


def test_a_name_cannot_break_the_lines_of_a_terminal() -> None:
    lines = card.card_text(sample.hostile().runs[0]) + card.runs_text(sample.hostile())
    assert not any("\x1b" in line or "\n" in line for line in lines)


def test_what_one_false_alarm_cannot_measure_has_no_number() -> None:
    """Five records: the legend said "not measured", and the card said 80%."""
    (one,) = sample.consistent().runs
    few = tuple(attack.model_copy(update={"non_members": 50}) for attack in one.attacks)
    attack = FOUND.model_copy(update={"attack": few[0].attack})
    (row,) = card.rows(run(made(evidence=attack), attacks=few))
    assert row.found is None and row.numbers == "too few to measure"
    (row,) = card.rows(run(made(evidence=attack, target="missed", why="measured"), attacks=few))
    assert row.found is not None


def test_a_worst_group_needs_others_and_a_class_is_called_so() -> None:
    """Nine classes were too small, and the tenth was "worst" with less than all members together."""
    found = {"0.01": Estimate(value=0.05, lower=0.01, upper=0.3)}
    large = GroupOutcome(group="0", members=100, non_members=100, tpr_at=found)
    small = large.model_copy(update={"group": "1", "non_members": 90})
    assert card.worst_group(run(made(), groups=(large, small), grouped_by="class")) is None
    row = card.worst_group(run(made(), groups=(large, large), grouped_by="class"))
    assert row is not None and (row.label, row.numbers) == ("class 0", "5% (1% to 30%)")
    result = sample.consistent()
    one = run(made(), groups=(large, small), grouped_by="class")
    (words, *_) = Page(to_html(result.model_copy(update={"runs": (one,)}))).texts
    assert "1 of 2 groups are too small to measure at 1% false alarms." in words


def test_a_bound_that_allows_everything_is_not_drawn() -> None:
    """The card says "no guarantee", so the figure has no "guarantee: at most 100%"."""
    (one,) = sample.consistent().runs
    nothing = one.claims[0].model_copy(update={"tpr_at": dict.fromkeys(one.claims[0].tpr_at, 1.0)})
    names = [series.name for series in run_figure(run(made(), claims=(nothing,)), "f").series]
    assert not any("uarantee" in name for name in names)


def test_groups_that_are_too_small_are_a_sentence_and_not_a_plot() -> None:
    """Ten lines of "too few to measure" filled half a sheet."""
    result = sample.consistent()
    (one,) = result.runs
    small = tuple(GroupOutcome(group=name, members=9, non_members=9) for name in ("a", "b"))
    (words, *_) = Page(to_html(result.model_copy(update={"runs": (one.model_copy(update={"groups": small}),)}))).texts
    assert "Every group is too small to measure at 1% false alarms." in words and "too few to measure" not in words


def test_where_only_forecasts_are_left_the_next_step_is_to_clip_and_add_noise() -> None:
    way = Way(change="data", runs=(sample.DECLARED,), tpr=0.05, kind="forecast", for_whom="a typical record")
    advice = (Advice(kind="only-forecasts"), Advice(kind="way", way=way), Advice(kind="clip-first"))
    said, command = card.next_step(run(made(), advice=advice))
    assert said.startswith("Clip the gradient of each record and add noise") and command is None
    assert "none of them guarantees" in card.next_step(run(made(), advice=advice[:2]))[0]


def test_a_bound_that_the_record_does_not_prove_says_what_would() -> None:
    run_check = RunCheck(outcomes=(), least_noise=0.8774, steps=tuple(range(sample.DECLARED.num_steps)))
    one = run(made(), check=run_check, advice=(Advice(kind="bound-already"),))
    said = card.next_step(one)[0]
    assert said.endswith("only what 87.7% of that noise would: train with 1.14 times the noise and audit again.")
    fewer = one.model_copy(update={"check": run_check.model_copy(update={"steps": ()})})
    assert card.next_step(fewer)[0].endswith("again, or record more steps.")
    own = run_check.model_copy(update={"beyond_reach": (BeyondReach(fault="own-size"),)})
    assert "divided by their own size" in card.next_step(one.model_copy(update={"check": own}))[0]
