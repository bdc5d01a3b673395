"""Reports on disk: written whole or not at all, and read back."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from gmip._io import make_folder, write
from gmip._validate import did_you_mean, listed
from gmip.auditing import Candidate
from gmip.auditing.schema import FORMAT, VERSION, AuditResult
from gmip.errors import InvalidArgument
from gmip.report.html import to_html
from gmip.report.markdown import to_markdown

__all__ = ["Written", "read_result", "write_report"]

RESULT = "result.json"
_WRITTEN_BY = f"pass a {RESULT} that gmip audit wrote"


@dataclass(frozen=True)
class Written:
    """Where the parts of a report are."""

    folder: Path
    html: Path
    markdown: Path
    json: Path
    csv: tuple[Path, ...] = ()


def write_report(
    result: AuditResult,
    folder: str | PathLike[str],
    *,
    candidates: Mapping[str, Sequence[Candidate]] | None = None,
) -> Written:
    """Writes report.html, report.md, result.json and, for each run in `candidates`, exposed-<run>.csv.

    Parameters
    ----------
    folder : made if it is not there; files of an earlier report are replaced.
    candidates : name of a run -> its candidates, as they shall stand in the file.

    Guarantees
    ----------
    Everything is rendered before the first file is touched, and each file appears whole or stays as it was; result.json
    is the last, so that its presence says that the report is complete. No spreadsheet takes a cell for a formula: a
    string that begins like one gets a leading apostrophe.
    """
    target = Path(folder)
    names = _csv_names(result, candidates or {})
    texts = {names[run]: _csv(run, records) for run, records in (candidates or {}).items()}
    texts |= {"report.md": to_markdown(result), "report.html": to_html(result), RESULT: _json(result)}
    make_folder(target)
    for name, text in texts.items():
        write(target / name, text.encode("utf-8", "backslashreplace"))
    csvs = tuple(target / name for name in names.values())
    return Written(target, target / "report.html", target / "report.md", target / RESULT, csvs)


def _json(result: AuditResult) -> str:
    # Not pydantic's own JSON: it stops at half a surrogate pair, which a file name can hold.
    return json.dumps(result.model_dump(mode="python"), indent=1, allow_nan=False, default=str) + "\n"


def _csv_names(result: AuditResult, candidates: Mapping[str, object]) -> dict[str, str]:
    known = [run.name for run in result.runs]
    names: dict[str, str] = {}
    for run in candidates:
        if run not in known:
            raise InvalidArgument(
                f"names the run {run!r}, which is not in the result{did_you_mean(run, known)}",
                argument="candidates",
                remedy=f"use {listed([repr(name) for name in dict.fromkeys(known)], 'or')}",
            )
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", run).strip("-.")[:80] or "run"
        name, again = f"exposed-{stem}.csv", 2
        while name.lower() in {taken.lower() for taken in names.values()}:
            name, again = f"exposed-{stem}-{again}.csv", again + 1
        names[run] = name
    return names


def _csv(run: str, records: Sequence[Candidate]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Candidate._fields)
    writer.writerows([_cell(run, key, value) for key, value in record._asdict().items()] for record in records)
    return text.getvalue()


def _cell(run: str, key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    if isinstance(value, (bool, int, float)):
        return f"{value}"
    raise InvalidArgument(
        f"has {key} = {value!r:.60} for the run {run!r}",
        argument="candidates",
        remedy="pass numbers, strings and None, never the records themselves",
    )


# -- reading ----------------------------------------------------------------------------------------------------------


def read_result(path: str | PathLike[str]) -> AuditResult:
    """The result in a file, or in the folder of a report. Anything else is refused in one sentence."""
    file = Path(path)
    if file.is_dir():
        file = file / RESULT
    try:
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise InvalidArgument(f"{file} does not exist", remedy=f"pass a {RESULT} or the folder of a report") from None
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read ({error.strerror})", remedy="check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{file} is not JSON ({error})", remedy=_WRITTEN_BY) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidArgument(f"{file} is not the result of an audit", remedy=_WRITTEN_BY)
    if data.get("version") != VERSION:
        raise InvalidArgument(
            f"{file} has version {data.get('version')!r:.40} and this gmip reads version {VERSION}",
            remedy="repeat the audit, or use the gmip that wrote it",
        )
    try:
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
        known = _fields_at(fault["loc"][:-1])
        unknown = f"has an unknown key {place}{did_you_mean(fault['loc'][-1], known)}"
        return unknown, f"the keys are {', '.join(known)}"
    return f"is wrong at {place} ({fault['msg'][:1].lower()}{fault['msg'][1:].replace(chr(10), ' ')})", _WRITTEN_BY


def _fields_at(place: Sequence[int | str]) -> list[str]:
    """The keys that exist at a place in a result."""
    model: type[BaseModel] = AuditResult
    for part in place:
        if part in model.model_fields:
            model = next(iter(_models_in(model.model_fields[str(part)].annotation)), model)
    return list(model.model_fields)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
