"""The ten lines of a task file, from tables of records and from weights or code of a model."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from gmip.errors import InvalidArgument
from gmip.tasks import read_records
from gmip.tasks.records import class_names, find_column, read_column
from gmip.training.models import read_weights

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
    weights = read_weights(path)
    layers = _layers(weights)
    if not layers:
        some = ", ".join(list(weights)[:4])
        raise InvalidArgument(
            f"{path} is not a chain of linear layers ({some}), so its model cannot be guessed",
            remedy="pass `make_model`, such as net.py:Net",
        )
    made = {name: f"nn.Linear({shape[1]}, {shape[0]}{'' if bias else ', bias=False'})" for name, shape, bias in layers}
    names = list(made)
    if names == [""]:
        body = f"    return {made['']}\n"
        return ModelCode(f"\n\ndef make_model() -> nn.Module:\n{body}", "make_model", True)
    if all(name.isdigit() for name in names):
        parts = []
        for place in range(int(names[-1]) + 1):
            activation = "nn.ReLU()" if str(place - 1) in made else "nn.Identity()"
            parts.append(made.get(str(place), activation))
        body = f"    return nn.Sequential({', '.join(parts)})\n"
        return ModelCode(f"\n\ndef make_model() -> nn.Module:\n{body}", "make_model", len(names) == 1)
    lines = [f"        self.{name} = {layer}" for name, layer in made.items()]
    steps = [f"        x = self.{name}(x).relu()" for name in names[:-1]]
    code = "\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n" + "\n".join(lines)
    code += "\n\n    def forward(self, x):\n" + "\n".join([*steps, f"        return self.{names[-1]}(x)"]) + "\n"
    return ModelCode(code, "Net", len(names) == 1)


def _layers(weights: dict[str, Tensor]) -> list[tuple[str, tuple[int, ...], bool]]:
    """(name, shape of the weight, whether there is a bias) of a chain; empty if the weights are anything else."""
    found = []
    for name, tensor in weights.items():
        layer, _, kind = name.rpartition(".")
        if kind == "weight" and tensor.ndim == 2 and (not layer or layer.isidentifier() or layer.isdigit()):
            bias = weights.get(f"{layer}.bias" if layer else "bias")
            if bias is not None and bias.shape != tensor.shape[:1]:
                return []
            found.append((layer, tuple(tensor.shape), bias is not None))
        elif kind != "bias":
            return []
    if all(name.isdigit() for name, _, _ in found):
        found.sort(key=lambda one: int(one[0]))
    if sum(1 + bias for _, _, bias in found) != len(weights):
        return []
    chained = all(b[1][1] == a[1][0] for a, b in itertools.pairwise(found))
    return found if chained else []
