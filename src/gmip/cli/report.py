"""`gmip report`: finished audits, written again or compared."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Annotated

from pydantic import Field

from gmip.cli.errors import BadRequest, needs_extra
from gmip.cli.options import Option, Settings, from_settings

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

    Several audits are compared: verdict, attackers and accuracy of each run.
    With --out, one report has the runs of all, and result.json beside it.
    """
    with needs_extra("audit", "gmip report"):
        from gmip import report as reports
        from gmip.auditing.schema import merged
        from gmip.report import answer_words, card
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
        print("\n".join([answer_words.ship(result).words, "", *card.runs_text(result)]))
    if written is not None:
        print(f"Report: {written.html}")
        print(f"To share: {written.shared}")


def _folder(result: str) -> Path:
    path = Path(result).resolve()
    return path if path.is_dir() else path.parent
