"""The audit of predictions: attacks on what a model answers, without the model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._progress import Watch, silent
from gmip.attacks.arrays import Answers, Form, Reference, read_answers
from gmip.auditing.judge import Evidence
from gmip.auditing.schema import AuditResult
from gmip.auditing.score_audit import Claim, Standards, audit_sources, read_table, table_evidence
from gmip.auditing.score_table import ScoreTable, scores_of, signals, table_from_columns
from gmip.errors import InvalidArgument
from gmip.vocabulary import RateLike

__all__ = ["audit_predictions", "prediction_scores"]


def audit_predictions(
    members: ArrayLike | str | os.PathLike[str] | Any,
    *,
    labels: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    logits: ArrayLike | None = None,
    losses: ArrayLike | None = None,
    references: ArrayLike | None = None,
    references_members: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    attacks: Sequence[str] | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    claim: Claim | None = None,
    confidence: float = 0.95,
    delta: float = 1.0e-5,
    fprs: Sequence[float] = (0.001, 0.01, 0.1),
    target_tpr: RateLike = (0.05, 0.01),
    fail_above_tpr: RateLike | None = None,
    seed: int = 0,
    title: str | None = None,
) -> AuditResult:
    """Do a model's answers reveal who was in its training data, and more than was claimed?

    Parameters
    ----------
    members : array-like of shape (c,), 1 for records that were in the training data and 0 for others; or a table of
        predictions: a file (CSV, JSON lines, Parquet), a data frame, or a mapping of names to columns.
    labels : array-like of shape (c,), the true class of each record as a place from 0.
    probabilities, logits, losses : one of them: array-like of shape (c, k) for k classes; losses of shape (c,).
    references : array-like of shape (r, c, k), or (r, c) for losses: what r reference models say about the records, in
        the same form. They should be trained as the model was, on records of the same distribution.
    references_members : array-like of shape (r, c), which records were in which of them; None: none in any. Where each
        record was in some and not in others, LiRA and RMIA are the stronger online attacks.
    ids, groups : array-likes of shape (c,): who the records are, and to which group they belong (by default, their
        label).
    attacks : some of lira, rmia, loss, margin, entropy, confidence; None: all that is possible.
    columns : of a table: which column is "member", "label", "probability" (one for each class), "logit", "loss", "id",
        "group", "run". By default columns of these names, p_CLASS, logit_CLASS, and of reference models ref_NAME_loss,
        ref_NAME_p_CLASS, ref_NAME_logit_CLASS and ref_NAME_in.
    claim, confidence, delta, fprs, target_tpr, fail_above_tpr, seed, title : as in `gmip.audit_scores`.

    Guarantees
    ----------
    Those of `gmip.audit_scores`. Scores never depend on `members`. An audit measures these attacks: others that see
    more of the model may find more.
    """
    standards = Standards(
        claim=claim,
        confidence=confidence,
        delta=delta,
        fprs=fprs,
        target_tpr=target_tpr,
        fail_above_tpr=fail_above_tpr,
        seed=seed,
    )
    source = Predictions(
        members,
        labels=labels,
        probabilities=probabilities,
        logits=logits,
        losses=losses,
        references=references,
        references_members=references_members,
        ids=ids,
        groups=groups,
        attacks=attacks,
        columns=columns,
    )
    return audit_sources([source], standards, title=title, command="gmip.audit_predictions(...)")


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model answers; see `gmip.audit_predictions` for what each of these is."""

    members: Any
    _: KW_ONLY
    labels: Any = None
    probabilities: Any = None
    logits: Any = None
    losses: Any = None
    references: Any = None
    references_members: Any = None
    ids: Any = None
    groups: Any = None
    attacks: Sequence[str] | None = None
    columns: Mapping[str, str | Sequence[str]] | None = None

    def evidence(self, standards: Standards, watch: Watch = silent) -> Evidence:
        """The scores of the attacks that the predictions allow."""
        arrays = {"probabilities": self.probabilities, "logits": self.logits, "losses": self.losses}
        given = {name: value for name, value in arrays.items() if value is not None}
        beside = {
            "labels": self.labels,
            "references": self.references,
            "references_members": self.references_members,
            "ids": self.ids,
            "groups": self.groups,
        }
        if given:
            named = [*given, *(["columns"] if self.columns else [])]
            if len(given) > 1 or self.columns is not None:
                raise InvalidArgument(f"`{', `'.join(named)}` cannot go together")
            form, values = next(iter(given.items()))
            return table_evidence(_table(self.members, form, values, self.attacks, **beside), name="predictions")
        unused = next((name for name, value in beside.items() if value is not None), None)
        if unused is not None:
            raise InvalidArgument("needs one of `probabilities`, `logits` and `losses`", argument=unused)
        table, path = read_table(self.members, self.columns, self.attacks)
        if not table.about:
            raise InvalidArgument("is a table of scores", argument="members", remedy="pass it to gmip.Scores")
        return table_evidence(table, path=path, name="predictions")


def _table(
    members: Any,
    form: str,
    values: Any,
    attacks: Sequence[str] | None,
    *,
    labels: Any,
    references: Any,
    references_members: Any,
    ids: Any,
    groups: Any,
) -> ScoreTable:
    others = None if references is None else _numbers("references", references, (None, *np.shape(values)))
    if others is None and references_members is not None:
        raise InvalidArgument("needs `references`", argument="references_members")
    inside = None
    if others is not None and references_members is not None:
        inside = _numbers("references_members", references_members, others.shape[:2])
        if not np.isin(inside, (0.0, 1.0)).all():
            raise InvalidArgument("must hold 1 and 0 only", argument="references_members")
    pairs = [
        (one, None if inside is None else inside[i] == 1.0) for i, one in enumerate(() if others is None else others)
    ]
    return prediction_scores(
        members, form=form, values=values, labels=labels, references=pairs, attacks=attacks, ids=ids, groups=groups
    )


def prediction_scores(
    members: Any,
    *,
    form: str,
    values: Any,
    labels: Any,
    references: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_] | None]],
    attacks: Sequence[str] | None,
    ids: Any = None,
    groups: Any = None,
) -> ScoreTable:
    """Scores of the attacks on predictions: `form` and `values` as in `audit_predictions` (or "errors" of predicted
    values in units of their usual size), reference models one by one, each with who was in it (None: nobody)."""
    cells = {"member": members, "score": np.zeros(len(np.asarray(members).reshape(-1)))}
    cells |= {name: value for name, value in (("id", ids), ("group", groups)) if value is not None}
    if groups is None and labels is not None:
        cells["group"] = labels
    raw = table_from_columns(cells)
    if groups is None and raw.groups is not None:
        raw = dataclasses.replace(raw, grouped_by="class")
    single = form in ("losses", "errors")
    own = _numbers(form, values, (len(raw),) if single else (len(raw), None))
    found = None if labels is None or single else _labels(labels, len(raw), own.shape[1])
    models = [Reference(_answers(form, one, found), inside) for one, inside in references]
    return scores_of(raw, *signals(_answers(form, own, found), models, attacks))


def _answers(form: str, values: NDArray[np.float64], labels: NDArray[np.intp] | None) -> Answers:
    forms: dict[str, Form] = {one: one for one in ("losses", "errors", "probabilities", "logits")}
    return read_answers(forms[form], values, labels)


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


def _labels(labels: Any, size: int, classes: int) -> NDArray[np.intp]:
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
