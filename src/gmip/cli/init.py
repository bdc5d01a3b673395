"""`gmip init`: settings of an audit, or a task file, to begin with."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gmip.cli import options
from gmip.cli.errors import BadRequest, needs_extra

__all__ = ["init"]

TASK = "A task file (FILE.py)"


def init(
    path: Annotated[str, typer.Argument(metavar="FILE", help="The file to write, .yaml or .py.")] = "audit.yaml",
    data: Annotated[
        str | None, options.option("--data", "TABLE", TASK, "Records to train and audit on: features and a label.")
    ] = None,
    members: Annotated[
        str | None, options.option("--members", "TABLE", TASK, "Records that a released model was trained on.")
    ] = None,
    non_members: Annotated[
        str | None, options.option("--non-members", "TABLE", TASK, "Records that it was not trained on.")
    ] = None,
    label: Annotated[
        str | None, options.option("--label", "COLUMN", TASK, "Column of the label (default: label, target, y, class).")
    ] = None,
    id: Annotated[
        str | None, options.option("--id", "COLUMN", TASK, "Column that names the records (default: id, row, record).")
    ] = None,
    group: Annotated[
        str | None, options.option("--group", "COLUMN", TASK, "Column of the group of a record (default: group).")
    ] = None,
    ignore: Annotated[
        list[str] | None, options.option("--ignore", "COLUMN", TASK, "Column that is no feature; may be repeated.")
    ] = None,
    model: Annotated[
        str | None,
        options.option("--model", "WEIGHTS", TASK, "Weights of the model: a chain of linear layers is read from them."),
    ] = None,
    make_model: Annotated[
        str | None, options.option("--make-model", "NET.py:NAME", TASK, "Code that makes the model, if it is another.")
    ] = None,
    recipe: Annotated[
        str | None,
        options.option(
            "--recipe",
            "NAME=VALUE,...",
            TASK,
            "How it is trained, such as optimizer=Adam,learning_rate=0.001,sampling=shuffled,batch_size=32,epochs=20.",
        ),
    ] = None,
) -> None:
    """Write a settings file for gmip audit, or a task file.

    FILE.yaml holds all settings with explanations. FILE.py says what the
    model and the records are; what is not given is asked for.

    Examples: gmip init
              gmip init task.py --data records.csv --make-model net.py:Net
              gmip init task.py --model weights.safetensors
                  --members members.csv --non-members others.csv
    """
    file = Path(path)
    given = {"--data": data, "--members": members, "--non-members": non_members, "--label": label}
    given |= {"--id": id, "--group": group, "--ignore": next(iter(ignore or []), None)}
    given |= {"--model": model, "--make-model": make_model, "--recipe": recipe}
    if file.suffix.lower() != ".py":
        unused = next((option for option, value in given.items() if value is not None), None)
        if unused is not None:
            raise BadRequest("is for a task file", argument=unused, remedy="name one, such as gmip init task.py ...")
        from gmip.auditing.settings import TEMPLATE

        _write(file, TEMPLATE)
        print(f"Wrote {path}. Next: gmip audit {shlex.quote(path)}")
        return
    if file.exists():
        raise _exists(file)
    if data is not None and (members is not None or non_members is not None):
        raise BadRequest("--data and --members are both given", remedy="pass --data, or --members and --non-members")
    if data is None and members is None and non_members is None:
        data = _asked(
            "Table of records (CSV, JSON lines, Parquet), with a column for each feature and a label", "--data"
        )
    elif data is None:
        members = members or _asked("Table of the members", "--members")
        non_members = non_members or _asked("Table of the non-members", "--non-members")
    if model is None and make_model is None:
        make_model = _asked("Code that makes the model (such as net.py:Net)", "--make-model")
    columns: dict[str, Any] = {"label": label, "own": {"id": id, "group": group}, "ignore": ignore or []}
    _write_task(file, data, members, non_members, columns, model, make_model, _pairs(recipe))


def _write_task(
    file: Path,
    data: str | None,
    members: str | None,
    non_members: str | None,
    columns: dict[str, Any],
    model: str | None,
    make_model: str | None,
    recipe: dict[str, str],
) -> None:
    with needs_extra("audit", "gmip init"):
        from gmip.auditing import task_file
        from gmip.errors import GmipError
        from gmip.tasks import load
    made = task_file.named_model(make_model) if make_model is not None else task_file.guessed_model(Path(str(model)))
    tables = [Path(str(name)) for name in ([data] if data is not None else [members, non_members])]
    drafted = task_file.draft(file.parent, tables, made, name=file.stem, recipe=recipe, **columns)
    _write(file, drafted.text)
    command = f"gmip audit {shlex.quote(str(file))}:make_task"
    if data is None:
        weights = "WEIGHTS" if model is None else shlex.quote(model)
        command += f" --model {weights} --members 0:{drafted.members} --non-members {drafted.members}:{drafted.records}"
    if drafted.classes is not None:
        print(
            f"The classes are numbered in alphabetical order ({', '.join(drafted.classes[:6])}"
            f"{', ...' if len(drafted.classes) > 6 else ''}), which is a guess: if the model's outputs have another "
            "order, change CLASSES, or the audit is blind."
        )
    if data is None and model is None:
        print("Put the file of the weights in place of WEIGHTS.")
    print(f"Wrote {file}: check the lines with an arrow. Next: {command}")
    try:
        load(f"{file}:make_task")
    except GmipError as error:
        print(f"It cannot be used yet. {error}")


def _pairs(text: str | None) -> dict[str, str]:
    """NAME=VALUE,... as a mapping."""
    found = {}
    for part in (text or "").split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if part.strip() and not (name and equals and value):
            raise BadRequest(f"has {part.strip()!r}", argument="--recipe", remedy="write NAME=VALUE,NAME=VALUE")
        if name:
            found[name] = value
    return found


def _asked(what: str, option: str) -> str:
    """By asking, where somebody can answer."""
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
