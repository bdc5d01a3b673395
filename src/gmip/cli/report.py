"""`gmip report`: finished audits, written again or compared."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gmip._io import read_if_there, write
from gmip.cli.errors import BadRequest
from gmip.cli.options import Option, Settings, from_settings

if TYPE_CHECKING:
    from gmip.auditing.schema import AuditResult


def _for(option: str, text: str) -> str:
    if "," in text:
        raise BadRequest("takes one at a time", argument=option, remedy="run the command once for each")
    return text


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
    for_: Annotated[
        Literal["release", "dpia", "registry", "model-card", "sarif"] | None,
        Option("release|dpia|registry|model-card|sarif", read=_for),
        Field(
            description="Write only what others ask for, one at a time, without records, files and seeds: a folder "
            "release (and a folder keep with the rest, which names members), a draft "
            "for an impact assessment or for the registry of DP deployments, a Hugging Face model card, or SARIF."
        ),
    ] = None


@from_settings(ReportSettings)
def report(asked: ReportSettings) -> None:
    """Write the report of a finished audit again, or compare several.

    Examples: gmip report audit
              gmip report audit-a audit-b --out both
              gmip report audit --for dpia

    Several audits are compared: verdict, attackers and accuracy of each run.
    With --out, one report has the runs of all, and result.json beside it.
    """
    from gmip import report as reports
    from gmip.auditing.schema import merged
    from gmip.report import answer_words, card

    audits = [reports.read_result(path) for path in asked.results]
    result, out = reduce(merged, audits), _target(asked)
    if asked.for_ is not None:
        if out is None:
            raise BadRequest("Several audits have no folder of their own", remedy="add --out")
        for path in reports.write_for(result, asked.for_, out):
            print(f"Written: {path}")
        if asked.for_ == "release":
            _keep(result, Path(out))
        return
    written = None if out is None else reports.write_report(result, out)
    if len(audits) > 1:
        print("\n".join([answer_words.ship(result)[1], "", *card.runs_text(result)]))
    if written is not None:
        print(f"Report: {written.html}")
        print(f"To share: {written.shared}")


def _keep(result: AuditResult, out: Path) -> None:
    """Beside what is released, a folder with what stays: the report, and the tables of the most exposed members."""
    from gmip.report.write import exposed_names, write_report

    kept = write_report(result, out / "keep").folder
    for name in exposed_names(result).values():
        if (table := read_if_there(out / name)) is not None:
            write(kept / name, table)
    print(f"To keep with the data, because it names members: {kept} (and all else in {out})")


def _target(asked: ReportSettings) -> str | None:
    """The folder for the report; None: several audits have none of their own."""
    folders = [path if path.is_dir() else path.parent for path in map(Path, asked.results)]
    if len(folders) == 1:
        return str(folders[0]) if asked.out is None else asked.out
    if asked.out is not None and Path(asked.out).resolve() in [folder.resolve() for folder in folders]:
        raise BadRequest(
            f"{asked.out} holds one of the audits, which the report of several would replace",
            argument="--out",
            remedy="name another folder",
        )
    return asked.out
