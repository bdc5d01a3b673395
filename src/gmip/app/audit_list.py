"""The audits of a folder: found, their cards, and their reports, by keys that name no path."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlencode

from gmip._html import Html, join, tag
from gmip._io import open_file
from gmip.app.calculator import frame
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.errors import InvalidArgument
from gmip.report.card import card_html
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
    """The card of each run of each audit."""
    nothing = tag("p", "No audit here yet: gmip audit writes result.json and report.html into a folder.")
    listed = [tag("p", "The newest first."), *map(_audit, audits)] if audits else [nothing]
    return frame("Audits", tag("h1", "Audits"), *listed, audits=True)


def _audit(audit: FoundAudit) -> Html:
    name = audit.place if audit.result is None else audit.result.title
    link = tag("a", name, href=f"/audits/{audit.key}") if audit.report else join(name)
    when = "" if audit.result is None else f", {audit.result.created[:16].replace('T', ' ')}"
    head = tag("h2", link, tag("small", f"{audit.place}{when}"))
    if audit.result is None:
        return tag("section", head, tag("p", "result.json cannot be read"))
    runs = audit.result.runs
    cards = [card_html(run, f"{audit.key}-{i}", _calculated(run), name=_name(run, runs)) for i, run in enumerate(runs)]
    return tag("section", head, *cards, class_="audit")


def _name(run: RunAudit, runs: Sequence[RunAudit]) -> Html | None:
    return tag("h3", run.name) if len(runs) > 1 else None


def _calculated(run: RunAudit) -> Html | None:
    """A link to the calculator with what the run was; not where its training is not known."""
    f, goal = run.facts, run.goal
    if not (f.dataset_size and f.batch_size and f.num_steps and f.num_params and f.sampling in SAMPLINGS):
        return None
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
    label = f"Open {run.name} in the calculator"
    return tag("p", tag("a", "Open in the calculator", href=f"/?{urlencode(form)}", aria_label=label))
