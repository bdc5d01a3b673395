"""The answer about a run, in a box: badges, the sentence, the target, and what it rests on."""

from __future__ import annotations

from typing import Final

from gmip import _numbers
from gmip._html import Html, join, tag
from gmip.auditing.curves import excludes_nothing
from gmip.auditing.schema import AttackerAnswer, AuditResult, RunAudit
from gmip.auditing.verdict import claim_of
from gmip.report import advice_words, answer_words, check_words, sentences, verdict_words
from gmip.report.page import bullets

__all__ = ["answer_box", "badge", "icon", "marks", "reasons", "tiles"]

_ICONS: Final = {
    "good": "M6 12.5L10.5 17L18.5 7.5",
    "bad": "M12 6V13.5M12 17V18",
    "open": "M8.8 9.2A3.2 3.2 0 1 1 12 12.6V14M12 17.4V18.2",
    "plain": "M12 10.5V18M12 6V7",
}


def answer_box(result: AuditResult, run: RunAudit, key: str, *more: Html | None) -> Html:
    """Does it leak to the strongest attacker, and is it good enough? `more` is what else stands in the box."""
    first = answer_words.front(result, run)
    found = "No attack was run." if first is None else answer_words.leak_sentence(run, first)
    return tag(
        "div",
        tag("p", *map(badge, answer_words.all_badges(run, first)), class_="badges"),
        None if run.check is None or run.check.passed else tag("p", check_words.headline(run.check), class_="headline"),
        tag("p", verdict_words.suspicion(run, run.suspicion), class_="headline")
        if run.suspect and run.suspicion is not None
        else None,
        tag("p", found, class_="headline"),
        None if first is None else tag("p", answer_words.target_sentence(run, first), class_="target"),
        *more,
        id=f"{key}-verdict",
        class_=f"verdict tone-{_tone(run, first)}",
    )


def reasons(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    """What stands behind the answer: numbers, the claim, how sure it is, other attackers, warnings."""
    answers = [
        ("What to do", tag("dd", _first_advice(run, key))),
        ("The claim", tag("dd", sentences.claim(run))),
        ("How sure", tag("dd", sentences.certainty(result, run))),
        ("Pipeline limit", tag("dd", sentences.gate(run, run.gate))) if run.gate else None,
    ]
    definitions = [tag("div", tag("dt", name), text) for name, text in filter(None, answers)]
    others = [
        tag("li", *map(badge, answer_words.badges(one)), tag("p", answer_words.leak_sentence(run, one)))
        for one in run.answers[1:]
    ]
    notes = None
    if said := sentences.cautions(run):
        notes = tag("div", tag("p", tag("strong", "Warnings")), bullets(said), class_="warnings")
    return [
        tiles(result, run),
        tag("dl", *definitions, class_="answers"),
        tag("div", tag("p", tag("strong", "Other attackers")), tag("ul", *others), class_="others") if others else None,
        notes,
    ]


def marks(result: AuditResult) -> dict[str, Html]:
    """Each label of a badge, as a badge."""
    every = [answer_words.badges(answer) for run in result.runs for answer in run.answers]
    return {one.text: badge(one) for pair in every for one in pair}


def badge(one: answer_words.Badge) -> Html:
    return tag("span", icon(one.tone), one.text, class_=f"mark tone-{one.tone}")


def icon(kind: str) -> Html:
    shape = "M12 2L23 21.5H1Z" if kind == "bad" else "M12 1.5A10.5 10.5 0 1 1 12 22.5A10.5 10.5 0 1 1 12 1.5Z"
    return tag(
        "svg", tag("path", d=shape), tag("path", d=_ICONS[kind]), viewBox="0 0 24 24", aria_hidden="true", class_="icon"
    )


def tiles(result: AuditResult, run: RunAudit) -> Html | None:
    """Measured, claimed, wished for at the rate of the target; and what the model is good for."""
    answer = answer_words.front(result, run)
    shown: list[tuple[str, str]] = []
    if answer is not None:
        goal = run.goal
        measured, claimed = answer_words.exposure(run, answer)
        at = f"at {_numbers.rate(goal.fpr)} false alarms"
        if measured is not None:
            shown.append((_numbers.percent(min(max(measured, 0.0), 1.0), "nearest"), f"of the members found {at}"))
        if claimed is not None:
            curve = claim_of(run, answer)
            says = "" if curve is None else verdict_words.says(curve)
            shown.append(
                ("No limit", "for such an attacker")
                if excludes_nothing(claimed)
                else (_numbers.percent(claimed, "up"), says)
            )
        shown.append((_numbers.rate(goal.tpr), f"is the target (guessing: {_numbers.rate(goal.fpr)})"))
    if run.facts.test_accuracy is not None:
        shown.append((_numbers.percent(run.facts.test_accuracy, "nearest"), "accuracy of the model on test data"))
    if not shown:
        return None
    items = [tag("li", tag("span", value, class_="figure"), tag("span", text, class_="unit")) for value, text in shown]
    return tag("ul", *items, class_="tiles")


def _tone(run: RunAudit, answer: AttackerAnswer | None) -> str:
    """Green only where a target is guaranteed and nothing speaks against it."""
    tones = {one.tone for one in answer_words.all_badges(run, answer)}
    return next((tone for tone in ("bad", "open", "good") if tone in tones), "plain") if answer else "open"


def _first_advice(run: RunAudit, key: str) -> Html:
    if not run.advice:
        return join("No recommendation.")
    first = run.advice[0]
    more = len(run.advice) > 1 or advice_words.command(first, run)
    return join(
        advice_words.text(first, run),
        " " if more else None,
        tag("a", "All steps", href=f"#{key}-advice") if more else None,
    )
