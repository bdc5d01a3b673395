"""Predictions of a model and of reference models as a table: told from scores by its columns, and turned into them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip.auditing.groups import Groups
from gmip.auditing.predictions import Form, Reference, Signal, read_answers, signals
from gmip.auditing.schema import LeftOut
from gmip.auditing.score_table import (
    About,
    Columns,
    ScoreTable,
    TableBuilder,
    asked_columns,
    find_columns,
    one_dimensional,
    usual_columns,
)
from gmip.errors import InvalidArgument

__all__ = [
    "PREDICTION_ROLES",
    "AnswerColumns",
    "PredictionBuilder",
    "builder_for",
    "scores_of",
    "table_from_columns",
]

Given = Mapping[str, str | Sequence[str]] | None
PREDICTION_ROLES: Final = ("member", "label", "probability", "logit", "loss", "id", "group", "run")
_OWN: Final = ("label", "probability", "logit", "loss")  # roles of predictions alone
_ANSWER: Final = re.compile(r"(loss|p|prob|proba|probability|logit)(?:_(.+))?", re.IGNORECASE)
_REFERENCE: Final = re.compile(r"(?:ref|reference)_?([a-z0-9]+)_(.+)", re.IGNORECASE)
_MOST_GROUPS: Final = 1000


@dataclass(frozen=True)
class AnswerColumns:
    """Columns that hold what a model says, the class that each is about, and the column of who was in its training."""

    form: Form
    columns: tuple[str, ...]
    classes: tuple[str, ...] = ()
    inside: str | None = None


@dataclass(frozen=True)
class PredictionColumns:
    """Which column is what, in the table, of the model, and of each reference model."""

    table: Columns
    model: AnswerColumns
    references: tuple[AnswerColumns, ...]


def builder_for(names: Sequence[str], given: Given = None, attacks: Sequence[str] | None = None) -> Any:
    """A builder of the table with these columns, of scores or of predictions (`TableBuilder`, `PredictionBuilder`).

    Predictions are known by roles in `given` that only they have; else, where no column is named as scores are, by
    columns named as predictions are. `attacks` : those to try on predictions; None: all that they allow.
    """
    roles = set(given or {})
    if not roles & {*_OWN} or "score" in roles:
        try:
            scores = TableBuilder(find_columns(names, {k: v for k, v in (given or {}).items() if k != "label"}))
        except InvalidArgument:
            if "score" in roles or not _answers({name.strip(): name for name in names}):
                raise
        else:
            if attacks:
                raise InvalidArgument(
                    "are for predictions, and this is a table of scores", argument="attacks", remedy="leave them out"
                )
            return scores
    return PredictionBuilder(_prediction_columns(names, given), attacks)


def _prediction_columns(names: Sequence[str], given: Given) -> PredictionColumns:
    asked = asked_columns(names, given, "predictions", PREDICTION_ROLES)
    found = usual_columns(names, asked, "predictions")
    own: dict[str, str] = {}
    others: dict[str, dict[str, str]] = {}
    for name in names:
        reference = _REFERENCE.fullmatch(name.strip())
        if reference:
            others.setdefault(reference[1].lower(), {})[reference[2]] = name
        else:
            own[name.strip()] = name
    model = _asked_answers(asked) or _answers(own)
    if model is None:
        raise InvalidArgument(
            "The predictions have no columns of losses, probabilities or logits",
            remedy="name them loss, p_CLASS or logit_CLASS, or with `columns` probability=NAME for each class",
        )
    references = []
    for who, columns in others.items():
        inside = next((columns[key] for key in columns if key.lower() in ("in", "member", "inside")), None)
        answers = _answers({key: name for key, name in columns.items() if name != inside})
        if answers is None:
            raise InvalidArgument(
                f"Reference model {who!r} has no columns of losses, probabilities or logits",
                remedy=f"name them ref_{who}_loss, ref_{who}_p_CLASS or ref_{who}_logit_CLASS",
            )
        references.append(dataclasses.replace(answers, inside=inside))
    numbers = [name for one in (model, *references) for name in (*one.columns, *([one.inside] if one.inside else []))]
    label = found["label"]
    if label is not None and model.form == "label probabilities":
        raise InvalidArgument(
            f"Column {model.columns[0]!r} is one probability beside a label: of class 1, or of the true label?",
            remedy="pass one column for each class, p_0 and p_1; or leave out the labels if it is of the true one",
        )
    table = Columns(
        member=str(found["member"]),
        scores={name: name for name in numbers},
        id=found["id"],
        group=found["group"],
        run=found["run"],
        label=label,
        flags=tuple(one.inside for one in references if one.inside is not None),
        what="predictions",
    )
    return PredictionColumns(table, model, tuple(references))


def _asked_answers(asked: Mapping[str, Sequence[str]]) -> AnswerColumns | None:
    forms: dict[str, Form] = {"logit": "logits", "probability": "probabilities", "loss": "losses"}
    role = next((role for role in forms if asked.get(role)), None)
    if role is None:
        return None
    columns = tuple(asked[role])
    if role == "probability" and len(columns) == 1:
        return AnswerColumns("label probabilities", columns)
    if role == "loss":
        return AnswerColumns("losses", columns)
    matched = [_ANSWER.fullmatch(name.strip()) for name in columns]
    return AnswerColumns(
        forms[role],
        columns,
        tuple(m[2] if m and m[2] else name for m, name in zip(matched, columns, strict=True)),
    )


def _answers(columns: Mapping[str, str]) -> AnswerColumns | None:
    """What is said by columns of usual names (name without its prefix -> column), the finest of what there is."""
    kinds: dict[str, list[tuple[str, str | None]]] = {}
    for key, name in columns.items():
        match = _ANSWER.fullmatch(key)
        if match:
            kind = match[1].lower() if match[1].lower() in ("loss", "logit") else "p"
            kinds.setdefault(kind, []).append((name, match[2]))
    forms: list[tuple[str, Form]] = [("logit", "logits"), ("p", "probabilities")]
    for kind, form in forms:
        found = [(name, of) for name, of in kinds.get(kind, []) if of is not None]
        if len(found) > 1:
            return AnswerColumns(form, tuple(name for name, _ in found), tuple(str(of) for _, of in found))
    single: list[tuple[str, Form]] = [("loss", "losses"), ("p", "label probabilities")]
    for kind, form in single:
        alone = [name for name, of in kinds.get(kind, []) if of is None]
        if alone:
            return AnswerColumns(form, (alone[0],))
    return None


@dataclass
class PredictionBuilder:
    """A `TableBuilder` whose table has the scores of attacks on the predictions that were added."""

    found: PredictionColumns
    attacks: Sequence[str] | None = None

    def __post_init__(self) -> None:
        self._builder = TableBuilder(self.found.table)
        self.columns = self.found.table
        self.add = self._builder.add

    def table(self) -> ScoreTable:
        """Scores of the attacks, by what all predictions say."""
        raw = self._builder.table()
        model = read_answers(self.found.model.form, *_values(raw, self.found.model))
        references = []
        for one in self.found.references:
            answers = read_answers(one.form, *_values(raw, one))
            references.append(Reference(answers, None if one.inside is None else raw.scores[one.inside] == 1.0))
        groups, by = raw.groups, raw.grouped_by
        if groups is None and raw.labels is not None and 2 <= len(raw.labels.names) <= _MOST_GROUPS:
            groups, by = raw.labels, "class"
        return scores_of(
            dataclasses.replace(raw, groups=groups, grouped_by=by), *signals(model, references, self.attacks)
        )


def scores_of(raw: ScoreTable, found: Sequence[Signal], left_out: tuple[LeftOut, ...]) -> ScoreTable:
    """The table with the scores of these attacks instead of its numbers, and the attacks that it does not allow."""
    return dataclasses.replace(
        raw,
        scores={one.name: one.scores for one in found},
        about={one.name: About(one.title, one.needs, one.facts) for one in found},
        left_out=left_out,
    )


def _values(raw: ScoreTable, which: AnswerColumns) -> tuple[NDArray[np.float64], NDArray[np.intp] | None]:
    """The numbers of a model, and the label of each record as a place among its classes."""
    if not which.classes:
        return raw.scores[which.columns[0]], None
    values = np.column_stack([raw.scores[name] for name in which.columns])
    if raw.labels is None:
        return values, None
    return values, _places(raw.labels, which.classes)


def _places(labels: Groups, classes: Sequence[str]) -> NDArray[np.intp]:
    """Labels are names of classes; else, if classes have no numbers for names, places from 0."""
    known = {name.strip(): place for place, name in enumerate(classes)}
    if not any(_whole(name) is not None for name in known):
        known = {str(place): place for place in range(len(classes))} | known
    found = []
    for text in labels.names:
        place = known.get(text.strip(), known.get(str(_whole(text)), -1))
        if place < 0:
            some = ", ".join(list(classes)[:6]) + (", ..." if len(classes) > 6 else "")
            raise InvalidArgument(
                f"The predictions have the label {text[:40]!r}, which is none of their classes ({some})",
                remedy="name columns of probabilities p_LABEL, one for each label",
            )
        found.append(place)
    return np.array(found, dtype=np.intp)[labels.codes]


def _whole(text: str) -> int | None:
    """3 for "3" and for "3.0", as data frames write classes with gaps."""
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() and abs(number) < 1.0e15 else None


def table_from_columns(
    cells: Mapping[str, Any], given: Given = None, attacks: Sequence[str] | None = None
) -> ScoreTable:
    """From columns as arrays or lists, of scores or of predictions."""
    named = {str(name): values for name, values in cells.items()}
    builder = builder_for(list(named), given, attacks)
    builder.add({name: one_dimensional(name, named[name]) for name in builder.columns.all()})
    table: ScoreTable = builder.table()
    return table
