"""Scores of any attack, and what models answer: audits without a trace and without the model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._io import sha256, sha256_of_file
from gmip._progress import Watch, silent
from gmip.attacks.arrays import Answers, Form, ReferenceAnswers, read_answers
from gmip.auditing.judge import AttackEvidence, AttackScores, Evidence, Groups, Labels
from gmip.auditing.prediction_table import read_scores, scores_of, signals, table_from_columns
from gmip.auditing.schema import RunFacts, SourceKind
from gmip.auditing.score_table import (
    GIVEN,
    AttackInfo,
    Columns,
    Given,
    ScoreTable,
    TableBuilder,
    by_person,
    one_dimensional,
)
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet

_NEEDS: Final = ("what the scores were computed from",)
_EVEN: Final = 0.05  # by how much shares of members may differ between runs whose scores are compared


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of attacks, of any kind and in any framework: do they reveal who was in the training data?

    Parameters
    ----------
    members, non_members : array-like of shape (n,) and (m,), scores of an attack (higher = member); or mappings of the
        names of attacks to such arrays. Without `non_members`, a table as the first argument: a file (CSV, JSON lines,
        Parquet), a data frame, or a mapping of names to columns.
    columns : of a table: which column is "member" (1 or 0), "score" (one or several), "id", "person", "group", "run".
        By default columns of these names, and as scores also score_NAME and NAME_score. "member:train": members are
        those of which the column says "train". A person with several rows is judged by their sum (docs/audit.md).

    Guarantees
    ----------
    They are those of `gmip.audit`, for scores that are independent given the run and not made from the membership
    labels.
    """

    members: Any
    non_members: Any = None
    _: KW_ONLY
    columns: Given = None

    def evidence(self, seed: int = 0, watch: Watch = silent) -> Evidence:
        """The scores, and who was in."""
        if self.non_members is None:
            table, path = _read_table(self.members, self.columns)
            return table_evidence(table, path=path)
        if self.columns is not None:
            raise InvalidArgument("are for tables", argument="columns", remedy="leave them out")
        return table_evidence(_from_arrays(self.members, self.non_members))


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model answers: do its predictions reveal who was in its training data?

    Parameters
    ----------
    members : array-like of shape (c,), 1 for records that were in the training data and 0 for others; or a table of
        predictions: a file (CSV, JSON lines, Parquet), a data frame, or a mapping of names to columns.
    labels : array-like of shape (c,), the true class of each record as a place from 0.
    probabilities, logits, losses, classes : one of them: array-like of shape (c, k) for k classes; losses of shape
        (c,); where only a class is answered, these classes, shape (c,), or (c, q) for q queries about each record: the
        record itself and changed copies of it, such as flipped images.
    references : array-like of shape (r, c, k), or (r, c) for losses and classes: what r reference models say about the
        records, in the same form. They should be trained as the model was, on records of the same distribution.
    references_members : array-like of shape (r, c), which records were in which of them; None: none in any. Where each
        record was in some and not in others, LiRA and RMIA are the stronger online attacks, and from four models
        on they are combined.
    features : array-like of shape (c, d), what the records say, for quantile regression.
    ids, groups, persons : array-likes of shape (c,): who the records are, to which group they belong (by default, their
        label), and whose they are: a person with several records is judged by all of them.
    attacks : some of combined, lira, rmia, base, loss, label-only, quantile, margin, entropy, confidence; None: all
        that is possible.
    columns : of a table: which column is "member", "label", "probability" (one for each class), "logit", "loss", "id",
        "person", "group", "run"; "probability:ill" is that of the class "ill". By default columns of these names,
        p_CLASS, logit_CLASS, and of reference models ref_NAME_loss, ref_NAME_p_CLASS, ref_NAME_logit_CLASS,
        ref_NAME_in.

    Guarantees
    ----------
    They are those of `gmip.audit`. Scores never depend on `members`. An audit measures these attacks: others that see
    more of the model may find more.
    """

    members: Any
    _: KW_ONLY
    labels: Any = None
    probabilities: Any = None
    logits: Any = None
    losses: Any = None
    classes: Any = None
    references: Any = None
    references_members: Any = None
    features: Any = None
    ids: Any = None
    groups: Any = None
    persons: Any = None
    attacks: Sequence[str] | None = None
    columns: Given = None

    def evidence(self, seed: int = 0, watch: Watch = silent) -> Evidence:
        """The scores of the attacks that the predictions allow."""
        arrays = {
            "probabilities": self.probabilities,
            "logits": self.logits,
            "losses": self.losses,
            "classes": self.classes,
        }
        given = {name: value for name, value in arrays.items() if value is not None}
        records = {name: getattr(self, name) for name in ("labels", "features", "ids", "groups", "persons")}
        if given:
            named = [*given, *(["columns"] if self.columns else [])]
            if len(given) > 1 or self.columns is not None:
                raise InvalidArgument(f"`{', `'.join(named)}` cannot go together")
            form, values = next(iter(given.items()))
            references = _references(self.references, self.references_members, values)
            found = prediction_scores(
                self.members, form=form, values=values, references=references, attacks=self.attacks, **records
            )
            return table_evidence(found, name="predictions")
        beside = records | {"references": self.references, "references_members": self.references_members}
        unused = next((name for name, value in beside.items() if value is not None), None)
        if unused is not None:
            raise InvalidArgument("needs one of `probabilities`, `logits`, `losses` and `classes`", argument=unused)
        table, path = _read_table(self.members, self.columns, self.attacks)
        if not table.about:
            raise InvalidArgument("is a table of scores", argument="members", remedy="pass it to gmip.Scores")
        return table_evidence(table, path=path, name="predictions")


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file of scores or predictions that was read already."""

    table: ScoreTable
    path: Path

    def evidence(self, seed: int = 0, watch: Watch = silent) -> Evidence:
        """What the table holds."""
        return table_evidence(self.table, path=self.path)


def table_evidence(
    table: ScoreTable,
    *,
    path: Path | None = None,
    name: str = "scores",
    facts: RunFacts | None = None,
    source: SourceKind | None = None,
) -> Evidence:
    """The evidence in a table, from the file `path` if any, else called `name`; `facts` about the model, if known."""
    table, persons = by_person(table)
    rows = _runs(table)
    return Evidence(
        name=name if path is None else printable(path.stem),
        source=source or ("predictions" if table.about else "scores"),
        path=None if path is None else printable(str(path)),
        attacks=_attacks(table, rows),
        facts=facts or table.facts,
        grouped_by=table.grouped_by,
        same_scale=_comparable(table, rows),
        left_out=table.left_out,
        persons=persons,
        unused_column=table.unused,
        fingerprints={"scores": _fingerprint(table) if path is None else sha256_of_file(path)},
    )


# -- what is given ----------------------------------------------------------------------------------------------------


def _read_table(given: Any, columns: Given, attacks: Sequence[str] | None = None) -> tuple[ScoreTable, Path | None]:
    """A table of scores or predictions from a file, a mapping or a data frame, and the path of the file."""
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        return read_scores(path, columns, attacks), path
    if isinstance(given, Mapping):
        return table_from_columns(given, columns, attacks), None
    if hasattr(given, "columns") and hasattr(given, "__getitem__"):  # a data frame
        return table_from_columns({str(name): given[name] for name in given.columns}, columns, attacks), None
    raise InvalidArgument(
        f"must be a table if there are no `non_members`, not {type(given).__name__}",
        argument="members",
        remedy="pass the scores of both, a file, a data frame or a mapping of columns",
    )


def _from_arrays(members: Any, non_members: Any) -> ScoreTable:
    ins = members if isinstance(members, Mapping) else {GIVEN: members}
    outs = non_members if isinstance(non_members, Mapping) else {GIVEN: non_members}
    if not ins or set(ins) != set(outs):
        raise InvalidArgument("`members` and `non_members` must hold scores of the same attacks")
    scores = {}
    for attack in ins:
        parts = [check.vector("members", ins[attack]), check.vector("non_members", outs[attack])]
        for name, part in zip(("members", "non_members"), parts, strict=True):
            if part.size < 2:
                raise InvalidArgument(f"hold {part.size} scores", argument=name, remedy="pass at least 2 for an audit")
        scores[str(attack)] = np.concatenate(parts)
        inside = np.arange(scores[str(attack)].size) < parts[0].size
        if inside.size != next(iter(scores.values())).size or inside.sum() != len(next(iter(ins.values()))):
            raise InvalidArgument("`members` and `non_members` must have as many scores by each attack")
    return ScoreTable(member=inside, scores=scores, ids=np.arange(1, inside.size + 1))


# -- what is made of it -----------------------------------------------------------------------------------------------


def _runs(table: ScoreTable) -> list[NDArray[np.intp] | slice]:
    """The rows of each run."""
    if table.runs is None:
        return [slice(None)]
    return [np.flatnonzero(table.runs.codes == code) for code in range(len(table.runs.names))]


def _attacks(table: ScoreTable, rows: Sequence[NDArray[np.intp] | slice]) -> tuple[AttackEvidence, ...]:
    labels = tuple(_labels(table, chosen) for chosen in rows)
    made = []
    for attack, scores in table.scores.items():
        about = table.about.get(attack, AttackInfo(attack, _NEEDS, {}, sees="scores"))
        sets = [
            ScoreSet(ids=table.ids[chosen], scores=scores[chosen], attack=attack, facts=about.facts) for chosen in rows
        ]
        made.append(
            AttackEvidence(
                name=printable(attack),
                title=printable(about.title),
                needs=about.needs,
                found=tuple(AttackScores(scores=one) for one in sets),
                labels=labels,
                sees=about.sees,
                knows=about.knows,
            )
        )
    return tuple(made)


def _labels(table: ScoreTable, rows: NDArray[np.intp] | slice) -> Labels:
    groups = table.groups
    return Labels(
        inside=table.member[rows], groups=None if groups is None else Groups(groups.codes[rows], groups.names)
    )


def _comparable(table: ScoreTable, rows: Sequence[NDArray[np.intp] | slice]) -> bool:
    """Whether scores of different runs are compared. Where runs differ in their share of members that could look like
    a leak, because a run can score high as a whole."""
    shares = [float(table.member[chosen].mean()) for chosen in rows]
    return max(shares) - min(shares) <= _EVEN * max(shares)


def printable(text: str) -> str:
    """The text without halves of surrogate pairs, which names of files can hold and no file."""
    return text.encode("utf-8", "replace").decode()


def _fingerprint(table: ScoreTable) -> str:
    parts = [table.member.tobytes(), *(name.encode() + scores.tobytes() for name, scores in table.scores.items())]
    return sha256(b"".join(parts))


# -- attacks on predictions ------------------------------------------------------------------------------------------


def _references(
    references: Any, members: Any, values: Any
) -> list[tuple[NDArray[np.float64], NDArray[np.bool_] | None]]:
    """What each reference model says, in the form of `values`, and who was in it."""
    if references is None:
        if members is not None:
            raise InvalidArgument("needs `references`", argument="references_members")
        return []
    others = _numbers("references", references, (None, *np.shape(values)))
    if members is None:
        return [(one, None) for one in others]
    inside = _numbers("references_members", members, others.shape[:2])
    if not np.isin(inside, (0.0, 1.0)).all():
        raise InvalidArgument("must hold 1 and 0 only", argument="references_members")
    return list(zip(others, inside == 1.0, strict=True))


def prediction_scores(
    members: Any,
    *,
    form: str,
    values: Any,
    labels: Any,
    references: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_] | None]],
    attacks: Sequence[str] | None,
    features: Any = None,
    ids: Any = None,
    groups: Any = None,
    persons: Any = None,
) -> ScoreTable:
    """Scores of the attacks on predictions: `form` and `values` as in `Predictions` (or "errors" of predicted
    values in units of their usual size), reference models one by one, each with who was in it (None: nobody)."""
    raw = _records(members, ids, labels if groups is None else groups, persons)
    if groups is None and raw.groups is not None:
        by_class = raw.persons is None
        raw = dataclasses.replace(raw, groups=raw.groups if by_class else None, grouped_by="class")
    single = form in ("losses", "errors") or (form == "classes" and np.ndim(values) == 1)
    if form == "probabilities" and np.ndim(values) == 1:
        raise InvalidArgument(
            "has one number for each record, and its class is unknown",
            argument=form,
            remedy="pass a column for each class, of two classes np.column_stack([1 - p, p])",
        )
    own = _numbers(form, values, (len(raw),) if single else (len(raw), None))
    found = _labels_for(form, labels, own)
    models = [ReferenceAnswers(_answers(form, one, found), inside) for one, inside in references]
    model = _answers(form, own, found)
    if features is not None:
        known = [_numbers("features", features, (len(raw), None)), *([] if found is None else [found[:, None]])]
        model = dataclasses.replace(model, features=np.concatenate(known, axis=1))
    return scores_of(raw, model, *signals(model, models, attacks))


def _labels_for(form: str, labels: Any, own: NDArray[np.float64]) -> NDArray[np.intp] | None:
    """The labels beside what a model answers: classes themselves, or places among its classes; None: none count."""
    if labels is None:
        return None
    if form == "classes":
        return _numbers("labels", labels, (len(own),)).astype(np.intp)
    return None if own.ndim == 1 else _places(labels, *own.shape)


def _records(members: Any, ids: Any, groups: Any, persons: Any) -> ScoreTable:
    """Who was in, ids and groups of records that nobody has scored yet."""
    cells = {"member": members, "id": ids, "group": groups, "person": persons}
    given = {name: one_dimensional(name, values) for name, values in cells.items() if values is not None}
    id_, group, person = (name if name in given else None for name in ("id", "group", "person"))
    builder = TableBuilder(Columns("member", {}, id_, group, what="predictions", person=person))
    builder.add(given)
    return builder.table()


def _answers(form: str, values: NDArray[np.float64], labels: NDArray[np.intp] | None) -> Answers:
    forms: dict[str, Form] = {one: one for one in ("losses", "errors", "probabilities", "logits", "classes")}
    return read_answers(forms[form], values.reshape(len(values), -1) if form == "classes" else values, labels)


def _numbers(name: str, values: Any, shape: Sequence[int | None]) -> NDArray[np.float64]:
    try:
        found = check.real(values).astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise InvalidArgument("must be numbers in an array", argument=name) from None
    fits = found.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, found.shape, strict=True))
    if not fits or not found.size:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InvalidArgument(f"has shape {found.shape}", argument=name, remedy=f"pass one of shape ({wanted})")
    if not np.isfinite(found).all():
        raise InvalidArgument("has entries that are not finite", argument=name, remedy="leave out these records")
    return found


def _places(labels: Any, size: int, classes: int) -> NDArray[np.intp]:
    if np.asarray(labels).dtype.kind in "USO" and any(isinstance(one, str) for one in np.ravel(labels)):
        raise InvalidArgument(
            f"holds names, such as {str(np.ravel(labels)[0])[:40]!r}",
            argument="labels",
            remedy=f"pass the place of each among the {classes} classes, from 0, in the order of the model's answers",
        )
    found = _numbers("labels", labels, (size,))
    wrong = (found != np.floor(found)) | (found < 0) | (found >= classes)
    if wrong.any():
        raise InvalidArgument(
            f"has {found[wrong][0]:g}", argument="labels", remedy=f"pass places among the {classes} classes, from 0"
        )
    return found.astype(np.intp)
