"""An audit of a file that was dropped on the page: its columns, card and report. Nothing leaves the machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gmip import auditing
from gmip._html import tag
from gmip._tables import SUFFIXES, is_parquet, pieces, read_columns
from gmip.app.calculator import frame, labelled, text_input
from gmip.auditing.sources.table_sources import TableFile
from gmip.errors import GmipError, InvalidArgument
from gmip.report.card import card_html
from gmip.report.html import to_html

MOST_BYTES: Final = 64 * 2**20
# What a column can be -> what people read beside the choice.
ROLES: Final = {
    "member": "Who was in the training data",
    "score": "Score (higher: member)",
    "loss": "Loss",
    "probability": "Probability of the true class",
    "label": "True class",
    "group": "Group",
    "person": "Person (several rows each)",
    "id": "Name of the record",
}


def audit_file(path: Path, columns: Mapping[str, str], target: str) -> dict[str, Any]:
    """The names of the columns, and the card and the report, or one sentence that says what is wrong.

    `columns` : role -> column, of those that were chosen; the others are found by their names.
    """
    names: list[str] = []
    try:
        names = list(read_columns(path)) if is_parquet(path) else list(next(pieces(path))[0])
        unknown = [role for role in columns if role.partition(":")[0] not in ROLES]
        if unknown:
            raise InvalidArgument(f"{unknown[0]!r} is no kind of column", remedy=f"use {', '.join(ROLES)}")
        table = auditing.read_scores(path, dict(columns))
        settings = auditing.JudgeSettings.of({"target": target})
        result = auditing.audit_sources([TableFile(table, path)], settings, title=f"Audit of {path.stem}", command="")
    except StopIteration:
        return {"names": names, "problem": "The file is empty."}
    except GmipError as error:
        here = "`columns`" in (error.remedy or "")  # else what a terminal would do
        said = GmipError(error.problem, remedy="choose it under Columns") if here else error
        return {"names": names, "problem": said.sentence().replace(f"{path.parent}/", "")}
    (run,) = result.runs
    hidden = result.model_copy(update={"runs": (run.model_copy(update={"path": path.name}),)})
    return {"names": names, "card": card_html(run, "run-1"), "report": to_html(hidden)}


def drop_page(*, audits: bool) -> str:
    """The page on which a file can be dropped."""
    kinds = ",".join(SUFFIXES)
    zone = tag(
        "label",
        tag("strong", "Drop a file here, or choose one"),
        tag("span", f"Scores or predictions of members and non-members: {kinds.replace(',', ' ')}, up to 64 MB"),
        tag("input", type="file", id="file", accept=kinds),
        id="zone",
        for_="file",
    )
    automatic = tag("option", "automatic", value="")
    choices = [
        labelled(f"role-{role}", words, tag("select", automatic, id=f"role-{role}", data_role=role))
        for role, words in ROLES.items()
    ]
    form = tag(
        "form",
        tag(
            "fieldset",
            tag("legend", "Columns"),
            *choices,
            labelled(
                "member-value",
                "Members are called",
                text_input("member-value", "text", placeholder="1, yes, train ..."),
            ),
        ),
        tag(
            "fieldset",
            tag("legend", "Target"),
            labelled("target-tpr", "Members found, at most", text_input("target-tpr", value="0.05")),
            labelled("target-fpr", "at false alarms of", text_input("target-fpr", value="0.01")),
        ),
        id="columns",
        hidden=True,
        aria_label="Columns and target",
    )
    result = tag(
        "section",
        tag("p", id="status", role="status"),
        tag("p", id="problem", class_="problem", role="alert", hidden=True),
        tag("div", id="card"),
        tag("p", tag("button", "Download the report", type="button", id="download"), id="after", hidden=True),
        aria_label="The answer",
    )
    return frame(
        "Audit a file",
        tag("h1", "Audit a file"),
        tag(
            "p",
            "Does a model leak who was in its training data? The file is read by gmip on this machine.",
            class_="intro",
        ),
        tag("noscript", tag("p", "This page needs JavaScript; gmip audit scores.csv answers in a terminal.")),
        zone,
        tag("div", form, result, class_="drop-columns"),
        audits=audits,
        script="audit.js",
    )
