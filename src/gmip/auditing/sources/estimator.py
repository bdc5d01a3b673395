"""Estimators of scikit-learn's kind: fitted on half of the records, attacked with refits on other halves."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from gmip import _validate as check
from gmip._progress import Watch, silent
from gmip._random import Stream
from gmip.attacks import attack_table
from gmip.attacks.optimality import decode_optimum
from gmip.auditing.judge import Evidence
from gmip.auditing.schema import OmittedAttack, RunFacts
from gmip.auditing.score_table import AttackInfo, ScoreTable, one_dimensional
from gmip.auditing.sources.table_sources import prediction_scores, table_evidence
from gmip.errors import GmipError, InvalidArgument
from gmip.parallel import Workers, compute

# -- linear models whose weights are an optimum that is known ---------------------------------------------------------


class LinearOptimum(NamedTuple):
    """Gradients of the records' losses at the weights, shape (n, d), and of the penalty, shape (d,), which the members'
    mean gradient cancels."""

    gradients: Array
    penalty_gradient: Array


def linear_optimum(model: Any, X: Any, y: NDArray[Any], members: int) -> LinearOptimum | None:
    """None where the optimum is not known: not a linear model of scikit-learn with an L2 penalty, or weighted classes.

    LogisticRegression minimises C sum loss + |w|^2/2 (so l2 = 1/(C N) on the mean), Ridge the sum of squared errors
    + alpha |w|^2; neither penalises the intercept.
    """
    for step in getattr(model, "steps", [("", model)])[:-1]:
        X = step[1].transform(X)
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    inputs = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    weights = getattr(last, "coef_", None)
    if weights is None or getattr(last, "class_weight", None) is not None or not hasattr(last, "intercept_"):
        return None
    rows = np.column_stack([inputs, np.ones(len(inputs))]) if last.fit_intercept else inputs
    coef = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    flat = np.column_stack([coef, np.zeros(len(coef))]) if last.fit_intercept else coef
    outputs = inputs @ coef.T + np.asarray(last.intercept_, dtype=np.float64)
    kind = type(last).__name__
    if kind == "LogisticRegression" and getattr(last, "penalty", "l2") in ("l2", "deprecated"):
        if getattr(last, "l1_ratio", None):
            return None
        errors = _class_errors(outputs, y, last.classes_)
        return LinearOptimum(_outer(errors, rows), (flat / (last.C * members)).reshape(-1))
    if kind == "Ridge" and np.ndim(last.alpha) == 0 and y.dtype.kind == "f":
        errors = 2.0 * (outputs - y[:, None])
        return LinearOptimum(_outer(errors, rows), (2.0 * last.alpha / members * flat).reshape(-1))
    return None


def _class_errors(outputs: Array, y: NDArray[Any], classes: NDArray[Any]) -> Array:
    """Derivative of the loss by the outputs: one for two classes, else one for each."""
    if outputs.shape[1] == 1:
        return np.asarray(expit(outputs) - (y == classes[1])[:, None])
    return np.asarray(softmax(outputs, axis=1) - (y[:, None] == classes[None, :]))


def _outer(errors: Array, rows: Array) -> Array:
    return np.asarray(np.einsum("nk,nd->nkd", errors, rows).reshape(len(rows), -1))


# -- estimators of scikit-learn's kind --------------------------------------------------------------------------------


Array = NDArray[np.float64]
_DECODE: Final = "optimum-decode"


@dataclass(frozen=True, eq=False)
class Estimator:
    """An estimator of scikit-learn's kind: does it, trained as you train it, reveal who was in its training data?

    A random half of the records trains the estimator under attack, the other half are non-members; shadow models are
    refits on other random halves. For a linear model at a known optimum (LogisticRegression, Ridge; at the end of a
    Pipeline, too) the weights are attacked as well.

    Parameters
    ----------
    make : returns a new estimator with `fit`, and `predict_proba`, `decision_function` or (regression) `predict`; or an
        estimator, which is copied. scikit-learn, XGBoost, LightGBM, CatBoost and others of that kind.
    X, y : records, of shape (n, ...) (array, data frame, sparse matrix), and labels or values of shape (n,).
    shadows : how many shadow models LiRA and RMIA compare with (16 or more are worth it); 0: attacks without any.
    attacks : some of combined, lira, rmia, loss, margin, entropy, confidence, optimum-decode; None: all possible ones.
    ids, groups, persons : array-likes of shape (n,): who the records are, to which group they belong (by default,
        classes), and whose they are: halves are of persons then, who are judged by all their records.
    workers : refits at once, or `gmip.parallel.Workers` for a cluster. The result does not depend on it.

    Guarantees
    ----------
    They are those of `gmip.audit`, about an estimator trained on half of these records. One that is trained on all of
    them leaks less as a rule, not always.
    """

    make: Any
    X: Any
    y: Any
    _: KW_ONLY
    shadows: int = 32
    attacks: Sequence[str] | None = None
    ids: Any = None
    groups: Any = None
    persons: Any = None
    workers: int | Workers | None = 1

    def evidence(self, seed: int = 0, watch: Watch = silent) -> Evidence:
        """The scores of attacks on the estimator, which is fitted here, as its shadow models are."""
        make, attacks, workers = self.make, self.attacks, self.workers
        data, count = _data(self.X, self.y, _new(make)), _shadow_count(self.shadows)
        settings = workers if isinstance(workers, Workers) else Workers(workers=workers)
        refits = _Refits(
            make=make,
            X=data.X,
            y=data.y,
            classes=data.classes,
            seed=check.seed(seed),
            owner=_owners(self.persons, data),
        )
        target = refits.fit(0)
        answered = _fitted_references(refits, count, settings, watch)
        unit = _usual_error(target, answered) if target.form == "errors" else 1.0
        scores = prediction_scores(
            target.inside,
            form=target.form,
            values=target.values / unit,
            labels=data.places,
            references=[(one.values / unit, one.inside) for one in answered],
            attacks=None if attacks is None else [name for name in attacks if name != _DECODE] or None,
            ids=self.ids,
            groups=self.groups,
            persons=self.persons,
        )
        scores = _with_class_names(scores, data.classes)
        if attacks is None or _DECODE in attacks:
            known = linear_optimum(target.model, data.X, data.y, int(target.inside.sum()))
            scores = _decoded(scores, target, known, attacks)
        return table_evidence(
            scores,
            name=_title(target.model),
            facts=RunFacts(
                dataset_size=int(target.inside.sum()),
                train_accuracy=target.accuracy[0],
                test_accuracy=target.accuracy[1],
                test_records=int((~target.inside).sum()),
                chance_accuracy=None if data.classes is None else 1.0 / len(data.classes),
            ),
            source="estimator",
        )


def _shadow_count(given: int) -> int:
    count = check.count("shadows", given) if given else 0
    if count == 1:
        raise InvalidArgument("compares with nothing", argument="shadows", value=1, remedy="pass 0, or 2 and more")
    return count


class _Data(NamedTuple):
    X: Any
    y: NDArray[Any]
    classes: NDArray[Any] | None  # None: values, not classes
    places: NDArray[np.intp] | None  # of the labels among the classes


def _data(X: Any, y: ArrayLike, model: Any) -> _Data:
    targets = np.asarray(y)
    rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if targets.ndim != 1 or len(targets) != rows:
        raise InvalidArgument(
            f"has shape {targets.shape} for {rows} records", argument="y", remedy="pass one label or value per record"
        )
    if rows < 8:
        raise InvalidArgument(f"has {rows} records", argument="X", remedy="pass more: half of them are trained on")
    if targets.dtype.kind == "f" and not np.isfinite(targets).all():
        raise InvalidArgument("has entries that are not finite", argument="y", remedy="leave out these records")
    if targets.dtype.kind in "fiu" and (_predicts_values(model) or np.any(targets != np.round(targets))):
        return _Data(X, targets.astype(np.float64), None, None)
    classes, places = np.unique(targets, return_inverse=True)
    return _Data(X, targets, classes, places.reshape(-1).astype(np.intp))


def _with_class_names(scores: ScoreTable, classes: NDArray[Any] | None) -> ScoreTable:
    """Groups that are classes are called as in y, not by their places."""
    if scores.grouped_by != "class" or scores.groups is None or classes is None:
        return scores
    names = tuple(str(classes[int(place)])[:80] for place in scores.groups.names)
    return dataclasses.replace(scores, groups=dataclasses.replace(scores.groups, names=names))


def _owners(persons: Any, data: _Data) -> NDArray[np.intp]:
    """The number of the person of each record."""
    if persons is None:
        return np.arange(len(data.y))
    given = one_dimensional("persons", persons)
    if len(given) != len(data.y):
        raise InvalidArgument(f"has {len(given)} entries for {len(data.y)} records", argument="persons")
    owners = np.unique(given.astype(np.str_), return_inverse=True)[1].reshape(-1).astype(np.intp)
    if owners.max() < 3:
        raise InvalidArgument(f"names {owners.max() + 1} persons", argument="persons", remedy="pass at least 4")
    return owners


def _predicts_values(model: Any) -> bool:
    """Whether whole numbers in y are values, not names of classes."""
    try:
        from sklearn.base import is_regressor

        return bool(is_regressor(model))
    except Exception:  # no scikit-learn, or an estimator that does not know its tags
        return not hasattr(model, "predict_proba") and not hasattr(model, "decision_function")


class _Answered(NamedTuple):
    """What a fitted model says about all records, and who was in its training data, both of n rows."""

    inside: NDArray[np.bool_]
    form: str
    values: Array
    model: Any
    accuracy: tuple[float | None, float | None]  # on those who were in, and on the others


@dataclass(frozen=True, eq=False)
class _Refits:
    """Model `number` of an audit: 0 is attacked, the others are its shadows. A `gmip.parallel.SharedWork`."""

    make: Any
    X: Any
    y: NDArray[Any]
    classes: NDArray[Any] | None
    seed: int
    owner: NDArray[np.intp]  # whose each record is

    @property
    def name(self) -> str:
        return "The estimator"

    def title(self, job: int) -> str:
        return f"shadow model {job}"

    def compute(self, job: int) -> _Answered:
        return self.fit(job)._replace(model=None)

    def fit(self, number: int) -> _Answered:
        # Shadow models come in pairs, one on the records that the other leaves out: each record is in half of them.
        rng = Stream.MEMBERS.rng(self.seed, (number + 1) // 2)
        persons = int(self.owner.max()) + 1
        drawn = np.zeros(persons, dtype=np.bool_)
        drawn[rng.permutation(persons)[: persons // 2]] = True
        inside = drawn[self.owner]
        if number and number % 2 == 0:
            inside = ~inside
        model = _new(self.make)
        _user_call("fit", model, lambda: model.fit(_rows(self.X, inside), self.y[inside]))
        form, values = _answers(model, self.X, self.classes, self.y)
        return _Answered(inside, form, values, model, _accuracies(self.classes, self.y, values, inside))


def _fitted_references(refits: _Refits, count: int, settings: Workers, watch: Watch) -> list[_Answered]:
    found: dict[int, _Answered] = {}
    progress = watch("shadow models")

    def take(job: int, answered: _Answered) -> None:
        found[job] = answered
        progress(len(found), count)

    if count:
        compute(refits, range(1, count + 1), settings, take)
    return [found[job] for job in sorted(found)]


def _usual_error(target: _Answered, answered: list[_Answered]) -> float:
    """The root mean square of the errors that shadow models make on records that they were not fitted to, so that no
    score depends on the units of y. Without any, of all errors of the model: who was in plays no part."""
    squares = [float(np.mean(one.values[~one.inside] ** 2)) for one in answered] or [float(np.mean(target.values**2))]
    return float(np.sqrt(np.mean(squares))) or 1.0


def _new(make: Any) -> Any:
    if hasattr(make, "fit") and not isinstance(make, type):
        return copy.deepcopy(make)  # unfitted, as it was given; clone() asks for scikit-learn's own base class
    if not callable(make):
        raise InvalidArgument(
            "must be an estimator or return one", argument="make", value=make, remedy="pass lambda: YourEstimator(...)"
        )
    model = _user_call("make", None, make)
    if not hasattr(model, "fit"):
        raise InvalidArgument(f"returned {type(model).__name__}, which has no fit", argument="make")
    return model


def _title(model: Any) -> str:
    """The name of the class; a Pipeline has that of its last step."""
    return type(model.steps[-1][1] if hasattr(model, "steps") else model).__name__


def _user_call(what: str, model: Any, call: Callable[[], Any]) -> Any:
    """An error in the user's estimator is reported as theirs."""
    try:
        return call()
    except GmipError:
        raise
    except Exception as error:
        whose = "make()" if model is None else f"{type(model).__name__}.{what}"
        raise InvalidArgument(
            f"{whose} raised {type(error).__name__}: {' '.join(str(error).split())[:200]}",
            remedy="try it on half of the records first",
        ) from error


def _rows(X: Any, chosen: NDArray[np.bool_]) -> Any:
    return X.iloc[np.flatnonzero(chosen)] if hasattr(X, "iloc") else X[np.flatnonzero(chosen)]


def _answers(model: Any, X: Any, classes: NDArray[Any] | None, y: NDArray[Any]) -> tuple[str, Array]:
    """("probabilities" or "logits", (n, k)) of all classes, those that the model never saw included; or ("errors",
    (n,)) of predicted values."""
    if classes is None:
        predicted = np.asarray(_user_call("predict", model, lambda: model.predict(X)), dtype=np.float64).reshape(-1)
        return "errors", predicted - y
    if hasattr(model, "predict_proba"):
        given = np.asarray(_user_call("predict_proba", model, lambda: model.predict_proba(X)), dtype=np.float64)
        return "probabilities", _placed(given, model, classes, 0.0)
    if hasattr(model, "decision_function"):
        given = np.asarray(_user_call("decision_function", model, lambda: model.decision_function(X)), dtype=np.float64)
        if given.ndim == 1:
            given = np.column_stack([-given / 2.0, given / 2.0])
        return "logits", _placed(given, model, classes, float(given.min()) - 10.0)
    raise InvalidArgument(
        f"makes a {type(model).__name__}, which has neither predict_proba nor decision_function", argument="make"
    )


def _placed(given: Array, model: Any, classes: NDArray[Any], absent: float) -> Array:
    seen = np.asarray(getattr(model, "classes_", classes))
    if given.shape[1] != len(seen):
        raise InvalidArgument(f"{type(model).__name__} answers {given.shape[1]} classes, and y has {len(classes)}")
    values = np.full((len(given), len(classes)), absent)
    values[:, np.searchsorted(classes, seen)] = given
    return values


def _accuracies(
    classes: NDArray[Any] | None, y: NDArray[Any], values: Array, inside: NDArray[np.bool_]
) -> tuple[float | None, float | None]:
    if classes is None:
        return None, None
    right = classes[values.argmax(axis=1)] == y
    return float(right[inside].mean()), float(right[~inside].mean())


def _decoded(
    scores: ScoreTable, target: _Answered, known: LinearOptimum | None, attacks: Sequence[str] | None
) -> ScoreTable:
    """With the scores of decoding, where the optimum is known; one that was asked for is left out with the reason."""
    alone = attacks is not None and set(attacks) == {_DECODE}
    try:
        if known is not None:
            return _with_decoding(scores, known, target.inside, alone=alone)
        if attacks is None:
            return scores
        raise InvalidArgument(
            f"has {_DECODE!r}, and the optimum that {type(target.model).__name__} is trained to is not known",
            argument="attacks",
            remedy="leave it out",
        )
    except InvalidArgument as error:
        if alone:
            raise
        return dataclasses.replace(scores, left_out=(*scores.left_out, OmittedAttack.of(_DECODE, error)))


def _with_decoding(table: ScoreTable, known: LinearOptimum, inside: NDArray[np.bool_], *, alone: bool) -> ScoreTable:
    found = decode_optimum(
        known.gradients, penalty_gradient=known.penalty_gradient, dataset_size=int(inside.sum()), coverage=1.0
    )
    entry = attack_table.ATTACKS[_DECODE]
    about = AttackInfo(
        entry.title,
        attack_table.need_words(entry.needs),
        {"distance": found.distance, "parameters": known.gradients.shape[1]},
        sees=attack_table.seen(entry.needs),
        knows=1.0,
    )
    scores = {} if alone else dict(table.scores)
    abouts = {} if alone else dict(table.about)
    return dataclasses.replace(table, scores=scores | {_DECODE: found.log_odds}, about=abouts | {_DECODE: about})
