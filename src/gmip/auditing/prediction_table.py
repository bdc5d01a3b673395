"""Predictions of a model and of reference models as a table of scores, and tables of either kind from files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._tables import in_file, is_parquet, pieces, read_columns
from gmip.attacks.arrays import Answers, ArrayScores, Form, ReferenceAnswers, array_attacks, read_answers
from gmip.attacks.attack_table import ATTACKS, array_names
from gmip.auditing.judge import Groups
from gmip.auditing.schema import OmittedAttack, RunFacts
from gmip.auditing.score_table import (
    MOST_NAMES,
    AttackInfo,
    Columns,
    Given,
    ScoreTable,
    TableBuilder,
    asked_columns,
    find_columns,
    one_dimensional,
    usual_columns,
    with_roles,
)
from gmip.errors import InvalidArgument

PREDICTION_ROLES: Final = ("member", "label", "probability", "logit", "loss", "id", "person", "group", "run")
_OWN: Final = ("label", "probability", "logit", "loss")  # roles of predictions alone
_ANSWER: Final = re.compile(r"(loss|p|prob|proba|probability|logit)(?:_(.+))?", re.IGNORECASE)
_REFERENCE: Final = re.compile(r"(?:ref|reference)_?([a-z0-9]+)_(.+)", re.IGNORECASE)
_FORMS: Final[dict[str, Form]] = {"logit": "logits", "probability": "probabilities", "loss": "losses"}


@dataclass(frozen=True)
class AnswerColumns:
    """Columns that hold what a model says, the class that each is about, and the column of who was in its training."""

    form: Form
    columns: tuple[str, ...]
    classes: tuple[str, ...] = ()
    inside: str | None = None

    @property
    def one_of_two(self) -> bool:
        """Whether there is a probability of one class, and the other has the rest."""
        return self.form == "probabilities" and len(self.columns) == 1


@dataclass(frozen=True)
class PredictionColumns:
    """Which column is what, in the table, of the model, and of each reference model."""

    table: Columns
    model: AnswerColumns
    references: tuple[AnswerColumns, ...]


def find_any_columns(names: Sequence[str], given: Given = None) -> tuple[Columns, PredictionColumns | None]:
    """Which column is what, of scores or of predictions.

    Predictions are known by roles in `given` that only they have; else, where no column is named as scores are, by
    columns named as predictions are.
    """
    given = given or {}
    roles = {key.partition(":")[0] for key in given}
    if not roles & {*_OWN} or "score" in roles:
        try:
            return find_columns(names, {k: v for k, v in given.items() if k != "label"}), None
        except InvalidArgument:
            if "score" in roles or not _answers({name.strip(): name for name in names}):
                raise
    found = _prediction_columns(names, given)
    return found.table, found


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
    model = _asked_answers(asked, given) or _answers(own)
    if model is None:
        raise InvalidArgument(
            "The predictions have no columns of losses, probabilities or logits",
            remedy="name them loss, p_CLASS or logit_CLASS, or with `columns` probability:CLASS=NAME for each class "
            "(of two, one is enough)",
        )
    references = [_reference_columns(who, columns, model) for who, columns in others.items()]
    numbers = [name for one in (model, *references) for name in (*one.columns, *([one.inside] if one.inside else []))]
    label = found["label"]
    if label is not None and model.form == "label probabilities":
        raise InvalidArgument(
            f"Column {model.columns[0]!r} is one probability beside a label, and its class is unknown",
            remedy=f"name the class: `columns` probability:CLASS={model.columns[0]}; or leave out the labels if it is "
            "of the true one",
        )
    table = Columns(
        member=str(found["member"]),
        scores={name: name for name in numbers},
        label=label,
        flags=tuple(one.inside for one in references if one.inside is not None),
        what="predictions",
    )
    return PredictionColumns(with_roles(table, found, names, given), model, tuple(references))


def _reference_columns(who: str, columns: Mapping[str, str], model: AnswerColumns) -> AnswerColumns:
    """What a reference model says, in columns without their prefix -> columns."""
    inside = next((columns[key] for key in columns if key.lower() in ("in", "member", "inside")), None)
    answers = _answers({key: name for key, name in columns.items() if name != inside})
    if answers is None:
        raise InvalidArgument(
            f"Reference model {who!r} has no columns of losses, probabilities or logits",
            remedy=f"name them ref_{who}_loss, ref_{who}_p_CLASS or ref_{who}_logit_CLASS",
        )
    if model.one_of_two and answers.form == "label probabilities":
        answers = dataclasses.replace(answers, form=model.form, classes=model.classes)
    return dataclasses.replace(answers, inside=inside)


def _asked_answers(asked: Mapping[str, Sequence[str]], given: Given) -> AnswerColumns | None:
    role = next((role for role in _FORMS if asked.get(role)), None)
    if role is None:
        return None
    columns, named = tuple(asked[role]), _named_classes(role, given)
    if role == "loss":
        return AnswerColumns("losses", columns)
    if role == "probability" and len(columns) == 1 and not named:
        return AnswerColumns("label probabilities", columns)
    return AnswerColumns(_FORMS[role], columns, tuple(named.get(name) or _class_in(name) for name in columns))


def _named_classes(role: str, given: Given) -> dict[str, str]:
    """Column -> the class that it is about, as probability:CLASS=column says."""
    named: dict[str, str] = {}
    for key, wanted in (given or {}).items():
        kind, _, of = key.partition(":")
        if kind == role and of:
            named |= dict.fromkeys([wanted] if isinstance(wanted, str) else wanted, of)
    return named


def _class_in(name: str) -> str:
    """The class that the name of a column ends with; else the name."""
    match = _ANSWER.fullmatch(name.strip())
    return match[2] if match and match[2] else name


def _answers(columns: Mapping[str, str]) -> AnswerColumns | None:
    """What is said by columns of usual names (name without its prefix -> column), the finest of what there is."""
    kinds: dict[tuple[str, bool], dict[str, str]] = {}  # what it is, and whether of a class -> column -> class
    for key, name in columns.items():
        if match := _ANSWER.fullmatch(key):
            kind = match[1].lower() if match[1].lower() in ("loss", "logit") else "p"
            kinds.setdefault((kind, match[2] is not None), {})[name] = match[2] or ""
    forms: list[tuple[str, bool, Form]] = [
        *(("logit", True, "logits"), ("p", True, "probabilities")),
        *(("loss", False, "losses"), ("p", False, "label probabilities")),
    ]
    for kind, of_class, form in forms:
        found = kinds.get((kind, of_class), {})
        if len(found) > of_class:  # of classes there are two or more
            return AnswerColumns(
                form, *((tuple(found), tuple(found.values())) if of_class else ((next(iter(found)),),))
            )
    return None


def _attacked(raw: ScoreTable, found: PredictionColumns, attacks: Sequence[str] | None) -> ScoreTable:
    """The table with the scores of attacks on the predictions in it; records are grouped by class, if by nothing."""
    model = read_answers(found.model.form, *_values(raw, found.model))
    references = []
    for one in found.references:
        answers = read_answers(one.form, *_values(raw, one))
        references.append(ReferenceAnswers(answers, None if one.inside is None else raw.scores[one.inside] == 1.0))
    classes = 0 if raw.labels is None else len(raw.labels.names)
    if raw.groups is None and raw.persons is None and 2 <= classes <= MOST_NAMES:
        raw = dataclasses.replace(raw, groups=raw.labels, grouped_by="class")
    return scores_of(raw, model, *signals(model, references, attacks))


_NEEDED: Final = {
    "loss": "labels, or losses",
    "label-only": "`classes` and labels",
    "quantile": "`features`",
    "combined": "reference models, two or more with and two or more without each record",
    "base": "reference models too few for 'combined', or without the records",
}


def signals(
    model: Answers, references: Sequence[ReferenceAnswers] = (), attacks: Sequence[str] | None = None
) -> tuple[list[ArrayScores], tuple[OmittedAttack, ...]]:
    """The attacks that what is there allows, the first ones those that use most of it; or those of `attacks`, and which
    of these it does not allow. Raises where it allows none of them.

    With two classes the margin and the modified entropy have the order of the loss, and are not among them.
    """
    found = array_attacks(model, references)
    if not attacks:
        return list(found.values()), ()
    errors: dict[str, InvalidArgument] = {}
    for name in attacks:
        check.one_of("attacks", name, array_names())
        if name not in found:
            needs = "columns of reference models" if ATTACKS[name].compares else "probabilities of 3 classes or more"
            needs = _NEEDED.get(name, needs)
            errors[name] = InvalidArgument(
                f"has {name!r}, and the predictions do not allow it",
                argument="attacks",
                remedy=f"it needs {needs}; they allow {check.listed(found)}",
            )
    if len(errors) == len(set(attacks)):
        raise next(iter(errors.values()))
    left_out = tuple(OmittedAttack.of(name, error) for name, error in errors.items())
    return [found[name] for name in dict.fromkeys(attacks) if name in found], left_out


def scores_of(
    raw: ScoreTable, model: Answers, found: Sequence[ArrayScores], left_out: tuple[OmittedAttack, ...]
) -> ScoreTable:
    """The table with the scores of these attacks on `model` instead of its numbers, and the attacks that it does not
    allow."""
    return dataclasses.replace(
        raw,
        scores={one.name: one.scores for one in found},
        about={one.name: AttackInfo(one.title, one.needs, one.facts) for one in found},
        left_out=left_out,
        facts=_accuracy(raw.member, model),
    )


def _accuracy(member: NDArray[np.bool_], model: Answers) -> RunFacts:
    """How often the model is right, where it answers for every class and the labels are known. A tie is right."""
    if model.logs is None or model.labels is None:
        return RunFacts()
    right = np.take_along_axis(model.logs, model.labels[:, None], axis=1)[:, 0] >= model.logs.max(axis=1)
    return RunFacts(
        train_accuracy=float(right[member].mean()),
        test_accuracy=float(right[~member].mean()),
        test_records=int(np.count_nonzero(~member)),
        chance_accuracy=1.0 / model.logs.shape[1],
    )


def _values(raw: ScoreTable, which: AnswerColumns) -> tuple[NDArray[np.float64], NDArray[np.intp] | None]:
    """The numbers of a model, and the label of each record as a place among its classes."""
    if not which.classes:
        return raw.scores[which.columns[0]], None
    values, classes = np.column_stack([raw.scores[name] for name in which.columns]), which.classes
    if which.one_of_two:
        names = () if raw.labels is None else raw.labels.names
        other = next((name for name in names if name.strip() != classes[0]), f"not {classes[0]}")
        values, classes = np.column_stack([values, 1.0 - values]), (classes[0], other)
    if raw.labels is None:
        return values, None
    return values, _places(raw.labels, classes)


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


# -- tables of either kind ---------------------------------------------------------------------------------------------


def table_from_columns(
    cells: Mapping[str, Any], given: Given = None, attacks: Sequence[str] | None = None
) -> ScoreTable:
    """A table from columns as arrays or lists, of scores or of predictions; arguments as in `read_scores`."""
    named = {str(name): values for name, values in cells.items()}
    builder, found = _builder(list(named), given, attacks)
    builder.add({name: one_dimensional(name, named[name]) for name in builder.columns.all()})
    return _finished(builder, found, attacks)


def read_scores(path: Path, columns: Given = None, attacks: Sequence[str] | None = None) -> ScoreTable:
    """The scores in a file, or those of attacks on the predictions in it.

    `columns` : role -> column. `attacks` : those to try on predictions; None: all that they allow. What is wrong is one
    sentence that names the file."""
    with in_file(path):
        if is_parquet(path):
            return table_from_columns(read_columns(path), columns, attacks)
        begun = None
        for names, cells in pieces(path):
            begun = begun or _builder(names, columns, attacks)
            begun[0].add({name: cells[name] for name in begun[0].columns.all()})
        assert begun is not None  # an empty file is refused
        return _finished(*begun, attacks)


def _builder(
    names: Sequence[str], given: Given, attacks: Sequence[str] | None
) -> tuple[TableBuilder, PredictionColumns | None]:
    columns, found = find_any_columns(names, given)
    if attacks and found is None:
        raise InvalidArgument(
            "are for predictions, and this is a table of scores", argument="attacks", remedy="leave them out"
        )
    return TableBuilder(columns), found


def _finished(builder: TableBuilder, found: PredictionColumns | None, attacks: Sequence[str] | None) -> ScoreTable:
    return builder.table() if found is None else _attacked(builder.table(), found, attacks)
