"""`gmip init`: settings of an audit, or a task file, to begin with."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import Field

from gmip.cli import parse
from gmip.cli.errors import BadRequest
from gmip.cli.options import Option, Settings, from_settings, names_of
from gmip.errors import GmipError, InvalidArgument

if TYPE_CHECKING:
    from torch import Tensor

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
    from gmip.tasks import load

    model = str(asked.model)
    named = ":" in model and not Path(model).exists()
    made = named_model(model) if named else guessed_model(Path(model))
    tables = [Path(name) for name in (asked.data, asked.members, asked.non_members) if name is not None]
    roles: dict[str, Any] = {role: names[-1] for role, names in (asked.columns or {}).items()}
    drafted = draft(
        file.parent,
        tables,
        made,
        name=file.stem,
        label=roles.get("label"),
        own={"id": roles.get("id"), "group": roles.get("group")},
        ignore=(asked.columns or {}).get("ignore", []),
    )
    _write(file, drafted.text)
    _print_next(file, drafted, None if asked.data is not None else "WEIGHTS" if named else shlex.quote(model))
    try:
        load(f"{file}:make_task")
    except GmipError as error:
        print(f"It cannot be used yet. {error}")


def _print_next(file: Path, drafted: TaskFile, weights: str | None) -> None:
    """What to look at, and the command that audits; `weights` : of a released model."""
    command = f"gmip audit {shlex.quote(str(file))}:make_task"
    if weights is not None:
        command += f" --model {weights} --members 0:{drafted.members} --non-members {drafted.members}:{drafted.records}"
    if drafted.classes is not None:
        print(
            f"The classes are numbered in alphabetical order ({', '.join(drafted.classes[:6])}"
            f"{', ...' if len(drafted.classes) > 6 else ''}), which is a guess: if the model's outputs have another "
            "order, change CLASSES, or the audit is blind."
        )
    if weights == "WEIGHTS":
        print("Put the file of the weights in place of WEIGHTS.")
    print(f"Wrote {file}: check the lines with an arrow. Next: {command}")


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


# -- the ten lines of a task file, from tables of records and from weights or code of a model --------------------------


_CODE = re.compile(r"([\w./\\-]+?)(?:\.py)?:([A-Za-z_]\w*)")
_EPOCHS, _BATCH, _TEST = 10, 64, 0.2


@dataclass(frozen=True)
class TaskFile:
    """The text of a task file, how many records it has, how many members among them, and names of classes whose order
    was guessed."""

    text: str
    records: int
    members: int
    classes: Sequence[str] | None = None


@dataclass(frozen=True)
class ModelCode:
    """Code of a model: lines above the task, and what makes it; `sure` : nothing of it was guessed."""

    code: str
    make: str
    sure: bool


def draft(
    folder: Path,
    records: Sequence[Path],
    model: ModelCode,
    *,
    label: str | None,
    name: str,
    own: Mapping[str, str | None] | None = None,
    ignore: Sequence[str] = (),
) -> TaskFile:
    """A task file in `folder`.

    records : one table, of which a fifth is for testing; or two, the members of a released model and others.
    own : the columns of the "id" and the "group" of records, where they have other names than these.
    ignore : columns that are no features.
    """
    from gmip.tasks.records import class_names, read_records

    own = own or {}
    apart = list(dict.fromkeys([*ignore, *(name for name in own.values() if name)]))
    classes = class_names(*records, label=label)
    sizes = [len(read_records(path, label=label, classes=classes, ignore=apart)) for path in records]
    read_records(*records, label=label, ignore=apart)  # and that they belong together
    places = ", ".join(f'HERE / "{_relative(path, folder)}"' for path in records)
    order = ""
    if classes is not None:
        order = f"# <- alphabetical, a guess: put them in the order of the model's outputs\nCLASSES = {classes!r}\n"
    if len(records) == 1:
        last = sizes[0] - max(1, round(_TEST * sizes[0]))
        members = max(1, last // 3)
        parts = (f"records[range({last})]", f"records[range({last}, {sizes[0]})]")
        cut = f"[:{last}]"
        about = "a third of the pool are members: the others are non-members and background"
    else:
        members = sizes[0]
        parts = ("records", f"records[range({members}, {sum(sizes)})]")
        cut = ""
        about = f"the first {members} are the members; for shadow models, say how it was trained"
    names = _name_lines(records, own, places, cut)
    reading = "read_column, read_records" if names else "read_records"
    trained = ", ".join(f"{key}={value!r}" for key, value in _recipe(members).items())
    guess = "" if model.sure else "  # <- check the activations: the weights do not show them"
    text = f'''"""What gmip audits. Written by gmip init: check the lines with an arrow."""

from pathlib import Path

from torch import nn

from gmip import Recipe, Task
from gmip.tasks import {reading}

HERE = Path(__file__).parent
{order}{model.code}

def make_task() -> Task:
    records = read_records({places}{_reading_options(label, classes, apart)})
    return Task(
        name={name!r},
        make_model={model.make},{guess}
        pool={parts[0]},
        test={parts[1]},
{names}        # <- {about}
        recipe=Recipe({trained}),
    )
'''
    return TaskFile(text, sum(sizes), members, classes)


def _reading_options(label: str | None, classes: Sequence[str] | None, apart: Sequence[str]) -> str:
    """The code of the arguments of `read_records` that follow its files."""
    given = "" if label is None else f", label={label!r}"
    given += "" if classes is None else ", classes=CLASSES"
    given += f", ignore={apart!r}" if apart else ""
    return given


def _name_lines(records: Sequence[Path], own: Mapping[str, str | None], places: str, cut: str) -> str:
    """The lines of a task file that say the names and groups of its records; none where no column holds them.

    places : the code of the files of the records. cut : the code of the part of a column that is the pool.
    """
    from gmip.tasks.records import find_column

    id_column = own.get("id") or _naming_column(records)
    group_column = own.get("group") or find_column("group", *records)
    lines = ""
    if id_column is not None:
        lines += f"        record_names=read_column({places}, column={id_column!r}){cut},\n"
    if group_column is not None:
        lines += f'        groups={{"group": read_column({places}, column={group_column!r}){cut}}},\n'
    return lines


def _naming_column(records: Sequence[Path]) -> str | None:
    """The column "id" of the records, where it names each of them once."""
    from gmip.tasks.records import find_column, read_column

    column = find_column("id", *records)
    if column is None:
        return None
    cells = read_column(*records, column=column)
    return column if len(set(cells)) == len(cells) else None


def _recipe(members: int) -> dict[str, Any]:
    """Settings of a `Recipe` for so many members: a guess."""
    batch = min(_BATCH, members)
    steps = max(1, _EPOCHS * members // max(batch, 1))
    return {"dataset_size": members, "num_steps": steps, "learning_rate": 0.1, "batch_size": batch}


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def named_model(text: str) -> ModelCode:
    """The model that module:function, or file.py:Class, names."""
    match = _CODE.fullmatch(text)
    module = match[1].replace("\\", "/").strip("/").replace("/", ".") if match else ""
    if match is None or not all(part.isidentifier() for part in module.split(".")):
        raise InvalidArgument(
            "must be MODULE:NAME, or a file of weights", argument="model", value=text, remedy="pass such as net.py:Net"
        )
    return ModelCode(
        f"\n\ndef make_model() -> nn.Module:\n    from {module} import {match[2]}\n\n    return {match[2]}()\n",
        "make_model",
        True,
    )


def guessed_model(path: Path) -> ModelCode:
    """Linear layers one after the other, with ReLU in between; other architectures are refused."""
    from gmip.training.models import read_weights

    weights = read_weights(path)
    layers = _layers(weights)
    if not layers:
        some = ", ".join(list(weights)[:4])
        raise InvalidArgument(
            f"{path} is not a chain of linear layers ({some}), so its model cannot be guessed",
            remedy="pass `make_model`, such as net.py:Net",
        )
    made = {name: f"nn.Linear({shape[1]}, {shape[0]}{'' if bias else ', bias=False'})" for name, shape, bias in layers}
    if list(made) != [""] and not all(name.isdigit() for name in made):
        return ModelCode(_net(made), "Net", len(made) == 1)
    model = made.get("") or f"nn.Sequential({', '.join(_sequence(made))})"
    return ModelCode(f"\n\ndef make_model() -> nn.Module:\n    return {model}\n", "make_model", len(made) == 1)


def _sequence(made: Mapping[str, str]) -> Iterator[str]:
    """The parts of an `nn.Sequential`: what stands behind a layer is a guess."""
    for place in range(int(list(made)[-1]) + 1):
        yield made.get(str(place), "nn.ReLU()" if str(place - 1) in made else "nn.Identity()")


def _net(made: Mapping[str, str]) -> str:
    """A module whose layers have names."""
    *first, last = made
    lines = [
        *("", "", "class Net(nn.Module):", "    def __init__(self):", "        super().__init__()"),
        *(f"        self.{name} = {layer}" for name, layer in made.items()),
        *("", "    def forward(self, x):"),
        *(f"        x = self.{name}(x).relu()" for name in first),
        f"        return self.{last}(x)",
    ]
    return "\n".join([*lines, ""])


Layer = tuple[str, tuple[int, ...], bool]  # its name, the shape of the weight, whether there is a bias


def _layers(weights: Mapping[str, Tensor]) -> list[Layer]:
    """Layers of a chain; empty if the weights are anything else."""
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        layer, _, kind = name.rpartition(".")
        parts.setdefault(layer, {})[kind] = tensor
    found = [one for name, part in parts.items() if (one := _linear(name, part)) is not None]
    if all(name.isdigit() for name, _, _ in found):
        found.sort(key=lambda one: int(one[0]))
    chained = all(b[1][1] == a[1][0] for a, b in itertools.pairwise(found))
    return found if chained and len(found) == len(parts) else []


def _linear(name: str, parts: Mapping[str, Tensor]) -> Layer | None:
    """None if these are not the parameters of a linear layer, or its name is none that code can have."""
    weight, bias = parts.get("weight"), parts.get("bias")
    if not parts.keys() <= {"weight", "bias"} or weight is None or weight.ndim != 2:
        return None
    if name and not (name.isidentifier() or name.isdigit()):
        return None
    if bias is not None and bias.shape != weight.shape[:1]:
        return None
    return name, tuple(weight.shape), bias is not None
