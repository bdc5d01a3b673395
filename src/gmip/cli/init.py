"""`gmip init`: settings of an audit, or a task file, to begin with."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import Field

from gmip.cli import parse
from gmip.cli.errors import BadRequest
from gmip.cli.options import Option, Settings, from_settings, names_of

TASK: Final = "A task file (FILE.py)"
ROLES: Final = ("label", "id", "group", "ignore")


class InitSettings(Settings):
    """Settings of `gmip init`."""

    path: Annotated[str, Option("FILE", argument=True), Field(description="The file to write, .yaml or .py.")] = (
        "audit.yaml"
    )
    data: Annotated[
        str | None, Option("TABLE", TASK), Field(description="Records to train and audit on: features and a label.")
    ] = None
    members: Annotated[
        str | None, Option("TABLE", TASK), Field(description="Records that a released model was trained on.")
    ] = None
    non_members: Annotated[
        str | None, Option("TABLE", TASK), Field(description="Records that it was not trained on.")
    ] = None
    columns: Annotated[
        dict[str, list[str]] | None,
        Option("ROLE=NAME", TASK, partial(parse.columns, roles=ROLES), repeated=True),
        Field(
            description="Column of the tables; ROLE is label (default: label, target, y, class), id (default: id, row, "
            "record), group (default: group) or ignore, which is no feature; repeat for several."
        ),
    ] = None
    model: Annotated[
        str | None,
        Option("WEIGHTS|NET.py:NAME", TASK),
        Field(
            description="The model: weights, from which a chain of linear layers is read, or the code that makes it."
        ),
    ] = None


@from_settings(InitSettings)
def init(asked: InitSettings) -> None:
    """Write a settings file for gmip audit, or a task file.

    FILE.yaml holds all settings with explanations. FILE.py says what the
    model and the records are; gmip asks for what you do not pass. Its recipe
    is a guess: change it there.

    Examples: gmip init
              gmip init task.py --data records.csv --model net.py:Net
              gmip init task.py --model weights.safetensors
                  --members members.csv --non-members others.csv
    """
    file = Path(asked.path)
    if file.suffix.lower() != ".py":
        unused = next((name for field, name in names_of(InitSettings).items() if field in asked.model_fields_set), None)
        if unused is not None:
            raise BadRequest("is for a task file", argument=unused, remedy="name one, such as gmip init task.py ...")
        from gmip.auditing.settings import template

        _write(file, template())
        print(f"Wrote {asked.path}. Next: gmip audit {shlex.quote(asked.path)}")
        return
    if file.exists():
        raise _exists(file)
    _write_task(file, _completed(asked))


def _completed(asked: InitSettings) -> InitSettings:
    """Completes what a task file needs and was not given."""
    data, members, non_members = asked.data, asked.members, asked.non_members
    if data is not None and (members is not None or non_members is not None):
        raise BadRequest("--data and --members are both given", remedy="pass --data, or --members and --non-members")
    if data is None and members is None and non_members is None:
        data = _asked(
            "Table of records (CSV, JSON lines, Parquet), with a column for each feature and a label", "--data"
        )
    elif data is None:
        members = members or _asked("Table of the members", "--members")
        non_members = non_members or _asked("Table of the non-members", "--non-members")
    model = asked.model or _asked("Code that makes the model (such as net.py:Net), or its weights", "--model")
    known = {"data": data, "members": members, "non_members": non_members, "model": model}
    return asked.model_copy(update=known)


def _write_task(file: Path, asked: InitSettings) -> None:
    from gmip.cli import task_file
    from gmip.errors import GmipError
    from gmip.tasks import load

    model = str(asked.model)
    named = ":" in model and not Path(model).exists()
    made = task_file.named_model(model) if named else task_file.guessed_model(Path(model))
    tables = [Path(name) for name in (asked.data, asked.members, asked.non_members) if name is not None]
    roles: dict[str, Any] = {role: names[-1] for role, names in (asked.columns or {}).items()}
    drafted = task_file.draft(
        file.parent,
        tables,
        made,
        name=file.stem,
        label=roles.get("label"),
        own={"id": roles.get("id"), "group": roles.get("group")},
        ignore=(asked.columns or {}).get("ignore", []),
    )
    _write(file, drafted.text)
    command = f"gmip audit {shlex.quote(str(file))}:make_task"
    if asked.data is None:
        weights = "WEIGHTS" if named else shlex.quote(model)
        command += f" --model {weights} --members 0:{drafted.members} --non-members {drafted.members}:{drafted.records}"
    if drafted.classes is not None:
        print(
            f"The classes are numbered in alphabetical order ({', '.join(drafted.classes[:6])}"
            f"{', ...' if len(drafted.classes) > 6 else ''}), which is a guess: if the model's outputs have another "
            "order, change CLASSES, or the audit is blind."
        )
    if asked.data is None and named:
        print("Put the file of the weights in place of WEIGHTS.")
    print(f"Wrote {file}: check the lines with an arrow. Next: {command}")
    try:
        load(f"{file}:make_task")
    except GmipError as error:
        print(f"It cannot be used yet. {error}")


def _asked(what: str, option: str) -> str:
    """Asks, where somebody can answer."""
    if not sys.stdin.isatty():
        raise BadRequest(f"A task file needs {option}", remedy="pass it, or run gmip init in a terminal")
    answer: str = typer.prompt(what)
    return answer


def _exists(file: Path) -> BadRequest:
    return BadRequest(f"{file} already exists", remedy="remove it, or pass another file name")


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise _exists(file) from None
    except OSError as error:
        raise BadRequest(f"{file} cannot be written ({error.strerror})", remedy="pass another file name") from None
