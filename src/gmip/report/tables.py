"""What a report says, the same for HTML and Markdown: blocks, which hold plain strings that still have to be escaped,
and the tables among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gmip._html import Html
from gmip._numbers import chance, count, duration, interval, noise, number, percent, rate, rate_key, setting
from gmip._validate import listed
from gmip.auditing.schema import (
    Advice,
    AttackOutcome,
    AuditResult,
    ClaimedCurve,
    Estimate,
    GroupOutcome,
    RunAudit,
    TriedAccuracy,
    Way,
)
from gmip.report import advice_words, answer_words, check_words, sentences
from gmip.report.account_words import most
from gmip.report.figures import Figure

SHOWN_RECORDS = 50
CHECKED = {"failed": "does not match", "unchecked": "not checked", "passed": "matches"}
_TONES = {"failed": "bad", "passed": "plain"}
_STATUS = ("guarantee", "forecast", "claim", "measured")
_NONE = "\u2013"
_SAMPLING = "An estimate: its interval shows the sampling error."


@dataclass(frozen=True)
class Cell:
    """A value and, smaller, lines that belong to it (its interval). Several sentences are kept apart, too.

    name : of the number, below its run; a page shows one value under one name (`card.quantity`).
    tone : of a page's colours for verdicts.
    """

    text: str
    details: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    name: str | None = None
    tone: str | None = None


@dataclass(frozen=True)
class Table:
    """`texts` are the columns that hold words rather than numbers; the first column names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    texts: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Steps:
    """What to do: sentences, and the commands that do it, where there are such."""

    items: Sequence[tuple[str, str | None]]


@dataclass(frozen=True)
class Folded:
    """Blocks below a title, which a page folds."""

    title: str
    blocks: Sequence[Block]
    unfolded: bool = False


# A paragraph, bullets, a table, ..., or a drawing, for pages alone.
Block = str | list[str] | Table | Steps | Folded | Callable[[], Html | None]


def table_of(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], texts: Sequence[int] = ()
) -> Table:
    cells = tuple(tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Table(caption, tuple(columns), cells, frozenset({0, *texts}))


def _estimate(estimate: Estimate | None, *, share: bool) -> Cell:
    if estimate is None:
        return Cell(_NONE)
    value = percent(estimate.value, "nearest") if share else number(estimate.value, "nearest")
    return Cell(value, (interval(estimate.lower, estimate.upper, share=share),))


def attack_table(result: AuditResult, run: RunAudit) -> Table:
    """Every attack with its numbers, in the order of their lower bounds on mu."""
    at = rate(run.goal.fpr)
    columns = [
        "Attack",
        f"Found at {at}",
        "AUC",
        "μ at least",
        "ε at least",
        *(["p-value of the claim"] if any(a.claim_p_value is not None for a in run.attacks) else []),
    ]
    rows: list[list[Cell | str]] = [
        [
            Cell(a.title, _effort(a)),
            _named(_found(a, found := a.found(run.goal.fpr), at), found, f"found/{a.attack}"),
            _estimate(a.auc, share=False),
            number(a.mu_lower, "down"),
            number(a.epsilon_lower, "down"),
            *([] if a.claim_p_value is None else [_refutation(a, a.claim_p_value)]),
        ]
        for a in run.attacks
    ]
    caption = (
        "Attacks; those with a list last. Below the name: members + non-members, computing time. Lower ends, and the "
        f"bounds on \u03bc and \u03b5 (\u03b4 = {setting(result.delta)}), hold for all attacks together"
    )
    return table_of(caption, columns, rows)


def _named(cell: Cell, found: Estimate | None, name: str) -> Cell:
    return cell if found is None else replace(cell, name=name)


def _refutation(attack: AttackOutcome, p_value: float) -> Cell:
    """How the claim fared, and for which list it is, where the attack was tested against one."""
    held = percent(attack.attacker_knows, "nearest")
    about = (f"claim for a list of {held} of the members",) if attack.attacker_knows else ()
    return Cell(chance(p_value), ("refuted" if attack.exceeds_claim else "not refuted", *about))


def group_table(run: RunAudit) -> Table:
    """What the strongest attack finds in each group, the most exposed first."""
    at, key = rate(run.goal.fpr), rate_key(run.goal.fpr)
    rows: list[list[Cell | str]] = [
        [
            one.group,
            f"{count(one.members)} + {count(one.non_members)}",
            _named(_found(one, found := answer_words.measured_at(one, key), at), found, f"group/{one.group}"),
            _estimate(one.auc, share=False),
            _NONE if one.mu_lower is None else number(one.mu_lower, "down"),
        ]
        for one in run.groups[:SHOWN_RECORDS]
    ]
    left = len(run.groups) - SHOWN_RECORDS
    more = f" {count(left)} more are in the CSV file" if left > 0 else ""
    columns = ("Group", "Members + non-members", f"Found at {at}", "AUC", "μ at least")
    return table_of(f"Groups, the most exposed first. False alarms are counted in the group.{more}", columns, rows)


def _effort(attack: AttackOutcome) -> tuple[str, ...]:
    candidates = f"{count(attack.members)} + {count(attack.non_members)}"
    over = (f"in {count(attack.repeats)} runs",) if attack.repeats > 1 else ()
    return (candidates, *over, duration(attack.seconds))


def _found(one: AttackOutcome | GroupOutcome, found: Estimate | None, at: str) -> Cell:
    """The TPR at the goal's rate, where the non-members are enough for one false alarm."""
    if found is None and one.tpr_at:
        return Cell("not measured", (f"{at} of {count(one.non_members)} is less than one",))
    return _estimate(found, share=True)


def exposed_table(run: RunAudit) -> Table:
    """Who is found most easily; a column that no record has is left out."""
    shown = run.exposed[:SHOWN_RECORDS]
    optional: list[tuple[str, str, Callable[[Any], str]]] = [
        ("Probability that a non-member scores as high", "p_value", chance),
        ("Probability of membership (prior 50%)", "posterior", partial(percent, rounding="nearest")),
        ("Susceptibility", "susceptibility", partial(number, rounding="nearest")),
        ("Own mu", "own_mu", partial(number, rounding="up")),
        ("Group", "group", str),
    ]
    used = [(title, name, write) for title, name, write in optional if any(getattr(e, name) is not None for e in shown)]
    rows = []
    for record in shown:
        values = [(getattr(record, name), write) for _, name, write in used]
        rows.append(
            [
                str(record.id),
                number(record.score, "nearest", 4),
                *(_NONE if value is None else write(value) for value, write in values),
            ]
        )
    by = f" by {sentences.attack_title(run, run.exposed_by)}" if run.exposed_by else ""
    return table_of(f"The members found most easily{by}", ("Record", "Score", *(title for title, _, _ in used)), rows)


def fact_table(run: RunAudit) -> Table:
    """What ran."""
    f = run.facts
    clip = "none" if f.noise_std is not None and f.clip_norm is None else f.clip_norm
    near = partial(percent, rounding="nearest")
    known: list[tuple[str, Any, Callable[[Any], str]]] = [
        ("Task", run.task or None, str),
        (_FILES.get(run.source, "Trace"), run.path, str),
        ("Records in the training data", f.dataset_size, count),
        ("Batch size and sampling", f.batch_size, lambda size: f"{count(size)}, {f.sampling or 'unknown sampling'}"),
        ("Steps", f.num_steps, count),
        ("Parameters", f.num_params, count),
        ("Optimizer", f.optimizer, str),
        ("Learning rate", f.learning_rate, setting),
        ("Clipping norm", clip, lambda norm: norm if isinstance(norm, str) else setting(norm)),
        ("Noise on the batch mean (std)", f.noise_std, lambda std: noise(std) if std else "none"),
        ("Noise multiplier", f.noise_multiplier, noise),
        ("Accuracy on training data", f.train_accuracy, near),
        ("Accuracy on test data", f.test_accuracy, near),
    ]
    rows = [[name, write(value)] for name, value, write in known if value is not None]
    return table_of(sentences.facts_title(run), ("Fact", "Value"), rows, texts=(1,))


_FILES = {"scores": "Scores", "predictions": "Predictions", "released": "Weights", "estimator": "Records"}


def standing_table(result: AuditResult) -> Table:
    """What each curve is, guarantees first; what several runs share stands once."""
    shared: dict[tuple[str, str, Cell], list[str]] = {}
    for run in result.runs:
        for p in run.claims:
            named = answer_words.curve_name(p), answer_words.claim_word(p), _grounds(p)
            shared.setdefault(named, []).append(run.name)
    for run in result.runs:
        for a in run.attacks:
            shared.setdefault((f"ROC of {a.title}", "measured", Cell(_SAMPLING)), []).append(run.name)
    rows: list[list[Cell | str]] = [
        [name, standing.capitalize(), grounds, *([_runs(runs, result)] if len(result.runs) > 1 else [])]
        for (name, standing, grounds), runs in sorted(shared.items(), key=lambda item: _STATUS.index(item[0][1]))
    ]
    columns = ("Curve", "Status", "Assumptions", *(["Runs"] if len(result.runs) > 1 else []))
    return table_of("What each curve is, and what it assumes", columns, rows, texts=(1, 2, 3))


def _runs(names: Sequence[str], result: AuditResult) -> str:
    return "all" if len(names) == len(result.runs) else listed(names)


def _grounds(claim: ClaimedCurve) -> Cell:
    """About whom a curve speaks, the caveat that must not be left out, and what it assumes."""
    whom = () if claim.for_whom is None else (f"For {claim.for_whom}.",)
    caveat = () if claim.caveat is None else (claim.caveat,)
    said = (*whom, *caveat, *claim.assumptions)
    return Cell(" ".join(said) or _NONE, sentences=said)


def check_table(run: RunAudit) -> Table:
    """What the check of the record found, faults first."""
    outcomes = () if run.check is None else run.check.outcomes
    order = list(CHECKED)
    rows: list[list[Cell | str]] = [
        [check_words.title(one), Cell(CHECKED[one.status], tone=_TONES.get(one.status)), check_words.sentence(one)]
        for one in sorted(outcomes, key=lambda one: order.index(one.status))
    ]
    return table_of("The record against the declared run", ("Check", "Result", "What was found"), rows, texts=(1, 2))


def version_table(result: AuditResult) -> Table:
    """What the audit ran on."""
    p = result.provenance
    rows = [
        ["Seed", str(p.seed)],
        ["Platform", p.platform],
        *([f"Version of {name}", version] for name, version in sorted(p.versions.items())),
        *([f"Fingerprint of {part}", print_] for part, print_ in sorted(p.fingerprints.items())),
    ]
    return table_of("What the audit ran on", ("Fact", "Value"), rows, texts=(1,))


def curve_table(figure: Figure) -> Table:
    """The curves in numbers, at rates from the lowest to 1."""
    decade, grid = figure.lowest, []
    while decade < 0.1:
        grid += [float(f"{decade * step:.3g}") for step in (1.0, 2.0, 5.0)]
        decade = float(f"{decade * 10:.0e}")
    grid += [0.1, 0.2, 0.5, 1.0]
    rows = [[rate(x), *(series.text(series.at(x)) for series in figure.series)] for x in grid]
    return table_of("Members found, by false alarms", ("False alarms", *(s.name for s in figure.series)), rows)


# -- ways to the target ------------------------------------------------------------------------------------------------

_NOT_MEASURED = "not measured"


def plain_advice(run: RunAudit) -> tuple[list[Advice], list[Advice]]:
    """Advice before and after the ways to the target, which the table has; all of it before, where there are none."""
    kinds = [one.way is not None for one in run.advice]
    end = kinds.index(True) if any(kinds) else len(kinds)
    return list(run.advice[:end]), [one for one in run.advice[end:] if one.way is None]


def ways_table(run: RunAudit) -> Table:
    """One row for each way to the target: the run as it is, then the most accurate first; empty if there are none."""
    goal = run.goal
    rows = [_way_row(run, one.way) for one in run.advice if one.way is not None]
    tried = run.tried is not None
    if rows and tried:
        key = "list" if run.answer is not None and run.answer.knows else "claimed"  # of whom the ways are about, too
        claim = next((p for p in run.claims if p.key == key), None)
        now = None if claim is None else claim.tpr_at.get(f"{goal.fpr:g}")
        found = "\u2013" if now is None or claim is None else f"{most(claim.kind)} {percent(now, 'up')}"
        rows.insert(0, (Cell("As it is"), Cell("\u2013"), Cell(found), _accuracy(run.tried)))
    return Table(
        f"Ways to at most {rate(goal.tpr)} at {rate(goal.fpr)} false alarms, "
        + ("the most accurate first" if tried else "each alone"),
        ("Way", "What to set", f"Then found at {rate(goal.fpr)}", "Accuracy"),
        tuple(rows),
        frozenset({0, 1}),
    )


def _way_row(run: RunAudit, way: Way) -> tuple[Cell, ...]:
    bound = way.kind == "bound"
    found = Cell(f"{most(way.kind)} {percent(way.tpr, 'up')}", ("guarantee" if bound else "forecast",))
    what = advice_words.setting_words(way.change, way.runs, run.declared)
    return Cell(advice_words.NAMES[way.change]), Cell(what), found, _accuracy(way.accuracy)


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
