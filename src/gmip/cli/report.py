"""`gmip report`: finished audits, written again or compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gmip import _numbers
from gmip.cli.errors import BadRequest, needs_extra
from gmip.cli.options import Option, Settings, from_settings

if TYPE_CHECKING:
    from gmip.auditing.schema import AttackOutcome, AuditResult, ClaimedCurve, RunAudit

__all__ = ["report"]


class ReportSettings(Settings):
    """Settings of `gmip report`."""

    results: Annotated[
        tuple[str, ...],
        Option("RESULT.json", argument=True),
        Field(description="A result.json of gmip audit, or its folder; several are compared."),
    ]
    out: Annotated[
        str | None,
        Option("DIR"),
        Field(description="Folder for the report (default: that of the result; several have none)."),
    ] = None


@from_settings(ReportSettings)
def report(asked: ReportSettings) -> None:
    """Write the report of a finished audit again, or compare several.

    Examples: gmip report audit
              gmip report audit-a audit-b --out both

    Of several, claims, findings and accuracy stand side by side; with --out,
    one report has the runs of all, and result.json beside it.
    """
    with needs_extra("audit", "gmip report"):
        from gmip import report as reports
        from gmip.auditing.schema import merged
    audits = [reports.read_result(path) for path in asked.results]
    first = Path(asked.results[0])
    result = reduce(merged, audits)
    out = asked.out
    if out is None and len(audits) == 1:
        out = str(first if first.is_dir() else first.parent)
    if len(audits) > 1 and out is not None and Path(out).resolve() in {_folder(path) for path in asked.results}:
        raise BadRequest(
            f"{out} holds one of the audits, which the report of several would replace",
            argument="--out",
            remedy="name another folder",
        )
    written = None if out is None else reports.write_report(result, out)
    if len(audits) > 1:
        _print(result)
    if written is not None:
        print(f"Report: {written.html}")
        print(f"To share: {written.shared}")


def _folder(result: str) -> Path:
    path = Path(result).resolve()
    return path if path.is_dir() else path.parent


def _leading(run: RunAudit) -> AttackOutcome:
    """The attack that the answer rests on."""
    from gmip.auditing.verdict import leading_attack

    return leading_attack(run.attacks, run.answers) or run.attacks[0]


def _print(result: AuditResult) -> None:
    """One column for each run."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    table.add_column("")
    for run in result.runs:
        table.add_column(Text(run.name), justify="right")
    for name, cells in _lines(result.runs):
        table.add_row(Text(name), *(Text(cell) for cell in cells))
    Console(highlight=False).print(table)


def _lines(runs: Sequence[RunAudit]) -> list[tuple[str, list[str]]]:
    strongest = [_leading(run) for run in runs]
    claimed = [run.claims[0] if run.claims else None for run in runs]
    lines: list[tuple[str, list[str]]] = [
        ("task", [run.task or "unknown" for run in runs]),
        ("verdict", [run.verdict.kind for run in runs]),
        ("noise std", [_or("unknown", run.facts.noise_std, _numbers.noise) for run in runs]),
        ("accuracy on test data", [_or("unknown", run.facts.test_accuracy, _nearest) for run in runs]),
        ("claimed mu", [_or("none", None if one is None else one.mu, _up) for one in claimed]),
        ("attack that the answer rests on", [one.attack for one in strongest]),
        ("its AUC", [_numbers.number(one.auc.value, "nearest") for one in strongest]),
        ("mu at least", [_numbers.number(one.mu_lower, "down") for one in strongest]),
    ]
    for fpr in strongest[0].tpr_at:
        if all(fpr in one.tpr_at for one in strongest):
            lines += _at(fpr, claimed, strongest)
    return lines


def _at(
    fpr: str, claimed: Sequence[ClaimedCurve | None], strongest: Sequence[AttackOutcome]
) -> list[tuple[str, list[str]]]:
    from gmip.report.answer_words import measured_at

    words = f"members found at {_numbers.rate(fpr)} false alarms"
    measured = [measured_at(one, fpr) for one in strongest]
    return [
        (f"{words}, claimed", [_claimed(one, fpr) for one in claimed]),
        (f"{words}, measured", [_or("not measured", None if one is None else one.value, _nearest) for one in measured]),
    ]


def _claimed(curve: ClaimedCurve | None, fpr: str) -> str:
    if curve is None or fpr not in curve.tpr_at:
        return "none"
    return f"{'at most' if curve.is_bound else 'about'} {_numbers.percent(curve.tpr_at[fpr], 'up')}"


def _or(nothing: str, value: float | None, words: Callable[[float], str]) -> str:
    return nothing if value is None else words(value)


def _nearest(share: float) -> str:
    return _numbers.percent(share, "nearest")


def _up(value: float) -> str:
    return _numbers.number(value, "up")
