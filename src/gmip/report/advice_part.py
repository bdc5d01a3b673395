"""What to do about a run: advice in words, and the ways to its target in one table with what they cost."""

from __future__ import annotations

from gmip._html import Html, tag
from gmip._numbers import count, percent, rate
from gmip.auditing.advice_schema import Advice, TriedAccuracy, Way
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.report import advice_words
from gmip.report.page import command as page_command
from gmip.report.page import folded, table_html
from gmip.report.tables import Cell, Table

__all__ = ["accuracy_words", "advice_part", "plain_advice", "price_notes", "ways_table"]

_NOT_MEASURED = "not measured"


def advice_part(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    """Other advice, the ways to the target, and commands to copy."""
    if not run.advice:
        return [tag("p", "No recommendation.")]
    ways = [one for one in run.advice if one.way is not None]
    first, last = plain_advice(run)
    commands = [
        tag("li", tag("p", advice_words.NAMES[one.way.change]), page_command(copied))
        for one in ways
        if one.way is not None and (copied := advice_words.command(one, run)) is not None
    ]
    return [
        _listed(run, first),
        table_html(ways_table(run), key, "ways-table") if ways else None,
        *(tag("p", note, class_="note") for note in price_notes(run)),
        folded("Commands to copy", tag("ul", *commands, class_="advice commands")) if commands else None,
        _listed(run, last),
    ]


def _listed(run: RunAudit, some: list[Advice]) -> Html | None:
    items = []
    for one in some:
        copied = advice_words.command(one, run)
        items.append(tag("li", tag("p", advice_words.text(one, run)), None if copied is None else page_command(copied)))
    return tag("ul", *items, class_="advice") if items else None


def plain_advice(run: RunAudit) -> tuple[list[Advice], list[Advice]]:
    """Advice before and after the ways to the target, which the table has; all of it before, where there are none."""
    kinds = [one.way is not None for one in run.advice]
    end = kinds.index(True) if any(kinds) else len(kinds)
    return list(run.advice[:end]), [one for one in run.advice[end:] if one.way is None]


def ways_table(run: RunAudit) -> Table:
    """One row for each way to the target: the run as it is, then the most accurate first; empty if there are none."""
    goal = run.goal
    rows = [_row(run, one.way) for one in run.advice if one.way is not None]
    tried = run.tried is not None
    if rows and tried:
        key = "list" if any(one.knows for one in run.answers[:1]) else "claimed"  # of whom the ways are about, too
        claim = next((p for p in run.claims if p.key == key), None)
        now = None if claim is None else claim.tpr_at.get(f"{goal.fpr:g}")
        found = "\u2013" if now is None or claim is None else f"{_most(claim.is_bound)} {percent(now, 'up')}"
        rows.insert(0, (Cell("As it is"), Cell("\u2013"), Cell(found), _accuracy(run.tried)))
    return Table(
        f"Ways to at most {rate(goal.tpr)} at {rate(goal.fpr)} false alarms, "
        + ("the most accurate first" if tried else "each alone"),
        ("Way", "What to set", f"Then found at {rate(goal.fpr)}", "Accuracy"),
        tuple(rows),
        frozenset({0, 1}),
    )


def _row(run: RunAudit, way: Way) -> tuple[Cell, ...]:
    bound = way.kind == "bound"
    found = Cell(f"{_most(bound)} {percent(way.tpr, 'up')}", ("proved, any record" if bound else "a forecast",))
    what = advice_words.setting_words(way.change, way.runs, run.declared)
    return Cell(advice_words.NAMES[way.change]), Cell(what), found, _accuracy(way.accuracy)


def _most(bound: bool) -> str:
    return "at most" if bound else "about"


def _accuracy(tried: TriedAccuracy | None) -> Cell:
    return Cell(_NOT_MEASURED) if tried is None else Cell(accuracy_words(tried), (f"{tried.seeds} trainings",))


def accuracy_words(tried: TriedAccuracy) -> str:
    """Mean and standard error."""
    error = "" if tried.seeds == 1 else f" \u00b1 {percent(tried.error, 'up')}"
    return f"{percent(tried.mean, 'nearest')}{error}"


def price_notes(run: RunAudit) -> list[str]:
    """What the accuracies in the table are, or how to measure them."""
    ways = [one.way for one in run.advice if one.way is not None]
    if not ways:
        return []
    left_out = [advice_words.not_tried(one) for one in run.tried_left_out]
    if run.tried is None:
        return left_out or [
            "What each way costs in accuracy was not measured: gmip audit --try-advice trains each a few times."
        ]
    size = run.facts.dataset_size
    fewer = "" if size is None or size == run.tried.trained_on else f" (the run had {count(size)})"
    records = f"{count(run.tried.trained_on)} records that are not members{fewer}"
    return [f"Accuracy: mean and standard error of trainings on {records}.", *left_out]
