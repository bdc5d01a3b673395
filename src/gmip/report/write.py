"""Reports on disk: written whole or not at all, and read back."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gmip._io import make_folder, read_if_there, sha256, write
from gmip._validate import did_you_mean, fields_at
from gmip.auditing.schema import FORMAT, VERSION, AuditResult, RunAudit
from gmip.errors import FileError, InvalidArgument
from gmip.report import answer_words, card, check_words, sentences
from gmip.report.html import to_html, to_summary
from gmip.report.markdown import to_markdown
from gmip.report.share import shareable, unnamed

RESULT = "result.json"
SHARED = "report-to-share.html"
SUMMARY = "summary.html"
_ROWS = 65_536  # of a CSV that are written at a time
_GROUP = ("group", "members", "non_members")
_CHECKSUM = "checksum"  # in result.json, of all else in it
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # line breaks and tabs too: what follows could begin a cell
_INVISIBLE = ("Z", "C")  # categories of characters (spaces, marks of direction) that a spreadsheet may drop
_FORMULA = ("=", "+", "-", "@", "\u2212")
_WRITTEN_BY = f"pass a {RESULT} that gmip audit wrote"


@dataclass(frozen=True)
class ReportFiles:
    """Where the parts of a report are."""

    folder: Path
    html: Path
    markdown: Path
    json: Path
    summary: Path
    shared: Path
    csv: tuple[Path, ...] = ()


def write_report(result: AuditResult, folder: str | PathLike[str]) -> ReportFiles:
    """Writes report.html and result.json; report-to-share.html, report.md and summary.html, which name no record and no
    file; for each run with groups groups-<run>.csv, and for each run whose candidates came with the result
    exposed-<run>.csv. A result that was read from result.json has none: files of an earlier report of it stay.

    Parameters
    ----------
    folder : made if it is not there; files of an earlier report are replaced, those of another audit removed.

    Guarantees
    ----------
    Everything is rendered before the first file is touched, and each file appears whole or stays as it was; result.json
    is the last, so that its presence says that the report is complete, and holds a checksum. No spreadsheet takes a
    cell for a formula: a string that begins like one gets a leading apostrophe, and control characters are spelled out.
    """
    target = Path(folder)
    known = [run.name for run in result.runs]
    tables = {run: records.columns for run, records in result.candidates.items() if run in known}
    names = _csv_names("exposed", tables)
    contents = {names[run]: _csv(run, columns) for run, columns in tables.items()}
    grouped = {run.name: _group_columns(run) for run in result.runs if run.groups}
    group_names = _csv_names("groups", grouped)
    contents |= {group_names[run]: _csv(run, columns) for run, columns in grouped.items()}
    texts = {
        SHARED: to_html(shareable(result), shared=True),
        SUMMARY: to_summary(result),
        "report.md": to_markdown(unnamed(result)),
        "report.html": to_html(result),
        RESULT: _json(result),
    }
    contents |= {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()}
    make_folder(target)
    for name in _former(target, result) - contents.keys():
        (target / name).unlink(missing_ok=True)
    for name, content in contents.items():
        write(target / name, content)
    csvs = tuple(target / name for name in (*names.values(), *group_names.values()))
    return ReportFiles(
        folder=target,
        html=target / "report.html",
        markdown=target / "report.md",
        json=target / RESULT,
        summary=target / SUMMARY,
        shared=target / SHARED,
        csv=csvs,
    )


def _former(folder: Path, result: AuditResult) -> set[str]:
    """What an earlier audit wrote there, other than what every report has; empty if it is the same audit."""
    try:
        old = read_result(folder)
    except InvalidArgument:
        return set()
    if _json(old) == _json(result):
        return set()
    runs = [run.name for run in old.runs]
    return {name for kind in ("exposed", "groups") for name in _csv_names(kind, runs).values()}


def _json(result: AuditResult) -> str:
    # Not pydantic's own JSON: it stops at half a surrogate pair, which a file name can hold.
    data = result.model_dump(mode="python")
    content = json.loads(json.dumps(data, allow_nan=False, default=str))
    return json.dumps(content | {_CHECKSUM: _checksum(content)}, indent=1) + "\n"


def _checksum(content: Mapping[str, Any]) -> str:
    """The same for all ways of writing the same JSON."""
    return sha256(json.dumps(content, sort_keys=True))


def _group_columns(run: RunAudit) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [getattr(one, name) for one in run.groups] for name in _GROUP}
    measured = {"auc": [one.auc for one in run.groups]}
    for key in dict.fromkeys(key for one in run.groups for key in one.tpr_at):
        measured[f"tpr_at_{key}"] = [one.tpr_at.get(key) for one in run.groups]
    for name, found in measured.items():
        for end, of in (("value", name), ("lower", f"{name}_lower"), ("upper", f"{name}_upper")):
            columns[of] = [None if one is None else getattr(one, end) for one in found]
    return columns | {"mu_lower": [one.mu_lower for one in run.groups]}


def _csv_names(kind: str, runs: Iterable[str]) -> dict[str, str]:
    """Run -> the name of a file, each once whatever the case of its letters."""
    names: dict[str, str] = {}
    for run in runs:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip("-.")[:80] or "run"
        name, again = f"{kind}-{stem}.csv", 2
        while name.lower() in {taken.lower() for taken in names.values()}:
            name, again = f"{kind}-{stem}-{again}.csv", again + 1
        names[run] = name
    return names


def exposed_names(result: AuditResult) -> dict[str, str]:
    """Run -> the name of the file with its candidates, where they were written."""
    return _csv_names("exposed", [run.name for run in result.runs])


def _csv(run: str, columns: Mapping[str, Sequence[Any] | None]) -> bytes:
    """Some rows at a time: a table of a million records does not fit into memory many times over."""
    length = max((len(values) for values in columns.values() if values is not None), default=0)
    rows = zip(*(_column(run, name, values, length) for name, values in columns.items()), strict=True)
    parts: list[bytes] = []
    lines = itertools.chain([tuple(columns)], rows)
    while some := list(itertools.islice(lines, _ROWS)):
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(some)
        parts.append(text.getvalue().encode("utf-8", "backslashreplace"))
    return b"".join(parts)


def _column(run: str, name: str, values: Sequence[Any] | None, length: int) -> Iterable[object]:
    """Cells of a column."""
    if values is None:
        return itertools.repeat("", length)
    if set(map(type, values)) <= {bool, int, float}:  # the CSV writer writes them as they are
        return values
    return (_cell(run, name, value) for value in values)


def _cell(run: str, key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _text_cell(value)
    if isinstance(value, (bool, int, float)):
        return f"{value}"
    raise InvalidArgument(
        f"has {key} = {value!r:.60} for the run {run!r}",
        argument="candidates",
        remedy="pass numbers, strings and None, never the records themselves",
    )


def _text_cell(text: str) -> str:
    """The text, so that no spreadsheet takes it, or a line of it, for a formula."""
    seen = next((character for character in text if unicodedata.category(character)[0] not in _INVISIBLE), "")
    spelled = _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
    # Full-width and small signs are those signs to a spreadsheet.
    return f"'{spelled}" if unicodedata.normalize("NFKC", seen).startswith(_FORMULA) else spelled


# -- reading ----------------------------------------------------------------------------------------------------------


def read_result(path: str | PathLike[str]) -> AuditResult:
    """The result in a file, or in the folder of a report. Anything else is refused in one sentence."""
    file = Path(path)
    inside = file.is_dir()
    if inside:
        file = file / RESULT
    try:
        content = read_if_there(file) if inside else file.read_bytes()
        if content is None:
            raise FileNotFoundError
    except FileNotFoundError:
        raise InvalidArgument(f"{file} does not exist", remedy=f"pass a {RESULT} or the folder of a report") from None
    except FileError as error:
        raise InvalidArgument(error.problem, remedy=error.remedy) from None
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read ({error.strerror})", remedy="check its permissions") from error
    return parsed_result(content, file)


def parsed_result(content: str | bytes, file: Path) -> AuditResult:
    """The result that a file holds; `InvalidArgument` names the file."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{file} is not JSON ({error})", remedy=_WRITTEN_BY) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidArgument(f"{file} is not the result of an audit", remedy=_WRITTEN_BY)
    if data.get("version") != VERSION:
        raise InvalidArgument(
            f"{file} has version {data.get('version')!r:.40} and this gmip reads version {VERSION}",
            remedy="repeat the audit, or use the gmip that wrote it",
        )
    written = data.pop(_CHECKSUM, None)
    try:
        if written != _checksum(data):
            raise InvalidArgument(
                f"{file} is not as gmip wrote it (its checksum does not match)",
                remedy="copy it again from where it was written, or repeat the audit",
            )
        return AuditResult.model_validate(data)
    except ValidationError as error:
        problem, remedy = _first_fault(error)
        raise InvalidArgument(f"{file} {problem}", remedy=remedy) from None
    except RecursionError:
        raise InvalidArgument(f"{file} is nested too deeply", remedy=_WRITTEN_BY) from None


def _first_fault(error: ValidationError) -> tuple[str, str]:
    """Problem and remedy."""
    fault = error.errors(include_url=False, include_context=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).lstrip(".")
    if fault["type"] == "extra_forbidden":
        known = fields_at(AuditResult, fault["loc"][:-1])
        unknown = f"has an unknown key {place}{did_you_mean(fault['loc'][-1], known)}"
        return unknown, f"the keys are {', '.join(known)}"
    return f"is wrong at {place} ({fault['msg'][:1].lower()}{fault['msg'][1:].replace(chr(10), ' ')})", _WRITTEN_BY


# -- verdict and gate as junit xml ------------------------------------------------------------------------------------


def write_junit(result: AuditResult, path: Path) -> None:
    """One test for each run's target, the verdict of the card (probably fails: a failure; inconclusive: skipped), one
    for its claim (inconclusive, nothing claimed, or a leak to an attacker with a list: skipped), one for the check of
    its record (what could not be checked: skipped), one for each gate (that could not fail: skipped; that passed: with
    what it would have noticed). The folder is made if it is not there."""
    suite = ElementTree.Element("testsuite", name=_clean(result.title))
    counts = {"tests": 0, "failure": 0, "skipped": 0}
    for run in result.runs:
        for name, kind, words in cases(run):
            case = ElementTree.SubElement(suite, "testcase", classname="gmip.audit", name=_clean(f"{run.name}: {name}"))
            counts["tests"] += 1
            if kind != "passed":
                kind = "failure" if kind == "warning" else kind
                ElementTree.SubElement(case, kind, message=_clean(words))
                counts[kind] += 1
            elif words:
                ElementTree.SubElement(case, "system-out").text = _clean(words)
    for name, count in counts.items():
        suite.set("failures" if name == "failure" else name, str(count))
    make_folder(path.parent, shared=True)
    write(path, ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True), shared=True)


def cases(run: RunAudit) -> Iterator[tuple[str, str, str]]:
    """The tests of a run: name, "failure", "warning", "skipped" or "passed", and what is said of it."""
    verdict, check, gate = run.verdict, run.check, run.gate
    target = {"fails": "failure", "probably-fails": "warning", "inconclusive": "skipped"}
    yield "target", target.get(run.conclusion.kind, "passed"), f"{card.look(run).title}. {card.headline(run)}"
    if verdict.kind == "exposed":
        yield "claim", "failure", answer_words.verdict_headline(run)
    elif verdict.kind in ("inconclusive", "measured") or verdict.list_leak is not None:
        yield "claim", "skipped", answer_words.verdict_headline(run)
    else:
        yield "claim", "passed", ""
    if check is not None and not check.passed:
        yield "record", "failure", check_words.headline(check)
    elif check is not None:
        yield "record", "skipped" if check.unchecked else "passed", " ".join(check_words.unchecked(check))
    if gate is not None:
        kind = "failure" if not gate.passed else "skipped" if gate.blind else "passed"
        yield "gate", kind, sentences.gate(run, gate)


def _clean(text: str) -> str:
    """Drops the control characters that XML does not know."""
    return "".join(c for c in text if c in "\t\n" or (c.isprintable() or c == " "))
