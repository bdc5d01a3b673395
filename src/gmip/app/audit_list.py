"""The audits of a folder: found, compared in one table, and their reports, by keys that name no path."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

from gmip import _numbers
from gmip._html import Html, join, tag
from gmip._io import open_file
from gmip.app.calculator import frame
from gmip.auditing.schema import AuditResult, Finding, RunAudit
from gmip.errors import InvalidArgument
from gmip.report.answer_words import LEAKS, TARGETS
from gmip.report.write import parsed_result
from gmip.vocabulary import SAMPLINGS

_RESULT, _REPORT = "result.json", "report.html"
_DEPTH: Final = 4
_MOST_FOLDERS: Final = 5_000
_MOST_BYTES: Final = 64 * 2**20


class FoundAudit(NamedTuple):
    """An audit on disk: a key for its address, its folder below the one searched, and what it found.

    `result` is None where result.json cannot be read; `report` tells whether there is a page to open.
    """

    key: str
    place: str
    result: AuditResult | None
    report: bool


def find_audits(folder: Path) -> list[FoundAudit]:
    """The audits below a folder, the newest first; links are not followed."""
    audits = []
    for place, path in _folders(folder):
        text = _text(path / _RESULT)
        if text is None:
            continue
        try:
            result = parsed_result(text, path / _RESULT)
        except InvalidArgument:
            if _other(text):
                continue
            result = None
        audits.append(FoundAudit(_key(place), place, result, _regular(path / _REPORT)))
    return sorted(audits, key=lambda audit: "" if audit.result is None else audit.result.created, reverse=True)


def _other(text: str) -> bool:
    """Whether it is the result of another command, such as `gmip train`: whole, but without the runs of an audit."""
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(known, dict) and "format" in known and "runs" not in known


def read_report(folder: Path, key: str) -> str | None:
    """The page of the audit that has this key; None if there is none. No part of the key is part of a path."""
    for place, path in _folders(folder):
        if _key(place) == key and _regular(path / _RESULT):
            return _text(path / _REPORT)
    return None


def _key(place: str) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()[:16]


def _folders(folder: Path) -> Iterator[tuple[str, Path]]:
    """(place below `folder`, path) of it and of the folders below it, breadth first."""
    waiting = [(".", folder, 0)]
    for _ in range(_MOST_FOLDERS):
        if not waiting:
            return
        place, path, depth = waiting.pop(0)
        yield place, path
        if depth == _DEPTH:
            continue
        try:
            inside = sorted(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
        waiting += [(f"{place}/{name}".removeprefix("./"), path / name, depth + 1) for name in inside]


def _regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _text(path: Path) -> str | None:
    """A plain file of a sensible size, no link; None where there is none."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            return None
        return file.read(_MOST_BYTES).decode("utf-8", "replace")


def audits_page(audits: Sequence[FoundAudit]) -> str:
    """One line for each run of each audit."""
    columns = ("Audit", "Run", "Leak", "Target", "Clearest evidence", "Test accuracy", "When", "Calculator")
    head = tag("tr", *(tag("th", name, scope="col") for name in columns))
    rows = [row for audit in audits for row in _rows(audit)]
    table = tag(
        "div",
        tag("table", tag("caption", "The newest first."), tag("thead", head), tag("tbody", *rows)),
        class_="scroll",
        role="region",
        tabindex="0",
        aria_label="Audits",
    )
    nothing = tag("p", "No audit here yet: gmip audit writes result.json and report.html into a folder.")
    return frame("Audits", tag("h1", "Audits"), table if rows else nothing, audits=True)


def _rows(audit: FoundAudit) -> list[Html]:
    name = audit.place if audit.result is None else audit.result.title
    link = tag("a", name, href=f"/audits/{audit.key}") if audit.report else join(name)
    first = tag("th", link, tag("small", audit.place), scope="row")
    if audit.result is None:
        return [tag("tr", first, tag("td", "result.json cannot be read", colspan=7))]
    rows = []
    for run in audit.result.runs:
        answer = run.answer
        found = None if answer is None else answer.evidence
        accuracy = run.facts.test_accuracy
        cells = (
            run.name,
            "No attack was run" if answer is None else LEAKS[answer.leak],
            "not known" if answer is None else TARGETS[answer.target],
            "none" if found is None else _evidence(found),
            "not known" if accuracy is None else _numbers.percent(accuracy, "nearest"),
            audit.result.created[:16].replace("T", " "),
            _calculated(run),
        )
        rows.append(tag("tr", first, *(tag("td", cell) for cell in cells)))
    return rows


def _calculated(run: RunAudit) -> Html | str:
    """A link to the calculator with what the run was; not where its training is not known."""
    f, goal = run.facts, run.goal
    if not (f.dataset_size and f.batch_size and f.num_steps and f.num_params and f.sampling in SAMPLINGS):
        return "not known"
    form = {
        "dataset_size": f.dataset_size,
        "batch_size": f.batch_size,
        "keep": "steps",
        "num_steps": f.num_steps,
        "num_params": f.num_params,
        "sampling": f.sampling,
        "clip_norm": "" if f.clip_norm is None else f"{f.clip_norm:.12g}",
        "noise_std": f"{f.noise_std or 0.0:.12g}",
        "tpr": f"{goal.tpr:g}",
        "fpr": f"{goal.fpr:g}",
    }
    return tag("a", "Open", href=f"/?{urlencode(form)}", aria_label=f"Open {run.name} in the calculator")


def _evidence(found: Finding) -> str:
    share = _numbers.percent(min(max(found.tpr.value, 0.0), 1.0), "nearest")
    return f"{found.title}: {share} at {_numbers.rate(found.fpr)} false alarms"
