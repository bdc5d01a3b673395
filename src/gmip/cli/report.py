"""`gmip report` and `gmip compare`: finished audits, written again or compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gmip import _numbers
from gmip.cli import options, show
from gmip.cli.errors import needs_extra

if TYPE_CHECKING:
    from gmip.auditing.schema import AttackOutcome, AuditResult, RunAudit

__all__ = ["compare", "report"]

Out = Annotated[str | None, typer.Option("--out", metavar="DIR", show_default=False, help="Folder for the report.")]


def report(
    result: Annotated[str, typer.Argument(metavar="RESULT.json", help="A result.json of gmip audit, or its folder.")],
    out: Out = None,
    share: Annotated[
        bool, typer.Option("--share", help="Also write report-to-share.html, which names no record, file or seed.")
    ] = False,
) -> None:
    """Write the report of a finished audit again."""
    reports = _reports()
    audited = reports.read_result(result)
    beside = Path(result) if Path(result).is_dir() else Path(result).parent
    written = reports.write_report(audited, out or beside, share=share)
    print(f"Report: {written.html}")
    if written.shared is not None:
        print(f"To share: {written.shared}")


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A result.json of gmip audit, or its folder.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    out: Out = None,
    json: options.Json = False,
) -> None:
    """Compare two audits: promises, findings and accuracy.

    With --out, also write one report with the runs of both.
    """
    reports = _reports()
    audits = [reports.read_result(path) for path in (first, second)]
    from gmip.auditing.schema import merged

    both = merged(*audits)
    written = None if out is None else reports.write_report(both, out)
    if json:
        show.print_json({"runs": [_facts(run) for run in both.runs]})
        return
    _print(both)
    if written is not None:
        print(f"Report: {written.html}")


def _reports() -> Any:
    with needs_extra("audit", "gmip report"):
        from gmip import report as reports
    return reports


def _leading(run: RunAudit) -> AttackOutcome:
    """The attack that the answer rests on."""
    from gmip.auditing.verdict import leading_attack

    return leading_attack(run.attacks, run.answers) or run.attacks[0]


def _facts(run: RunAudit) -> dict[str, Any]:
    strongest = _leading(run)
    return {
        "run": run.name,
        "task": run.task,
        "verdict": run.verdict.kind,
        "noise_std": run.facts.noise_std,
        "test_accuracy": run.facts.test_accuracy,
        "promised_mu": run.promises[0].mu if run.promises else None,
        "promised_tpr_at": run.promises[0].tpr_at if run.promises else {},
        "attack": strongest.attack,
        "auc": strongest.auc.model_dump(),
        "tpr_at": {fpr: found.model_dump() for fpr, found in strongest.tpr_at.items()},
        "mu_lower": strongest.mu_lower,
    }


def _print(both: AuditResult) -> None:
    table = Table()
    table.add_column("")
    for run in both.runs:
        table.add_column(Text(run.name), justify="right")
    strongest = [_leading(run) for run in both.runs]
    rates = [fpr for fpr in strongest[0].tpr_at if all(fpr in one.tpr_at for one in strongest)]
    promised = [run.promises[0] if run.promises else None for run in both.runs]
    lines: list[tuple[str, list[str]]] = [
        ("task", [run.task or "unknown" for run in both.runs]),
        ("verdict", [run.verdict.kind for run in both.runs]),
        ("noise std", [_setting(run.facts.noise_std) for run in both.runs]),
        ("accuracy on test data", [_share(run.facts.test_accuracy) for run in both.runs]),
        (
            "promised mu",
            ["none" if one is None or one.mu is None else _numbers.number(one.mu, "up") for one in promised],
        ),
        ("strongest attack", [one.attack for one in strongest]),
        ("its AUC", [_numbers.number(one.auc.value, "nearest") for one in strongest]),
        ("mu at least", [_numbers.number(one.mu_lower, "down") for one in strongest]),
    ]
    for fpr in rates:
        words = f"members found at {_numbers.rate(fpr)} false alarms"
        most = [None if one is None else one.tpr_at.get(fpr) for one in promised]
        lines.append(
            (f"{words}, promised at most", ["none" if one is None else _numbers.percent(one, "up") for one in most])
        )
        measured = [one.tpr_at.get(fpr) for one in strongest]
        lines.append((f"{words}, measured", [_share(None if one is None else one.value) for one in measured]))
    for name, cells in lines:
        table.add_row(Text(name), *(Text(cell) for cell in cells))
    Console(highlight=False).print(table)


def _setting(value: float | None) -> str:
    return "unknown" if value is None else _numbers.setting(value)


def _share(share: float | None) -> str:
    return "unknown" if share is None else _numbers.percent(share, "nearest")
