"""Attacks on predictions: what a model, and reference models, say about records -> a score for each record.

Nothing but arrays: any framework, any language. Scores follow from predictions and labels alone, never from who was in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from gmip import _validate as check
from gmip.auditing.schema import LeftOut
from gmip.errors import InvalidArgument
from gmip.stats.reference_models import LogMean, Moments, blended, finite_range, likelihood_ratios, standardised
from gmip.stats.scores import Fact

__all__ = ["ATTACKS", "Answers", "Form", "Reference", "Signal", "read_answers", "signals"]

Array = NDArray[np.float64]
Form = Literal["losses", "errors", "label probabilities", "probabilities", "logits"]
_LEAST: Final = float(np.log(np.nextafter(0.0, 1.0)))  # log of the least probability that a float64 holds
_SUM_ERROR: Final = 0.02  # by which rounded probabilities of a record may miss 1
_OFFLINE_SCALE: Final = 0.3  # of RMIA, as in `gmip.attacks.RMIA`
_VOTES: Final = 1.0e-5  # probabilities of 0 and 1 and none nearer to them than this are shares of votes

_QUERY, _LABELS = "query access to the model", "true labels of the candidates"
_SHADOWS: Final = "reference models"
# Name -> title and needs; in the order in which they are tried.
ATTACKS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "lira": ("LiRA (Carlini et al. 2022)", (_QUERY, _LABELS, _SHADOWS)),
    "rmia": ("RMIA (Zarifzadeh et al. 2024)", (_QUERY, _LABELS, _SHADOWS)),
    "loss": ("Loss (Yeom et al. 2018)", (_QUERY, _LABELS)),
    "margin": ("Margin to the next class", (_QUERY, _LABELS)),
    "entropy": ("Modified entropy (Song and Mittal 2021)", (_QUERY, _LABELS)),
    "confidence": ("Confidence in any class (Salem et al. 2019)", (_QUERY,)),
}
_PLAIN_ENTROPY: Final = ("Entropy (Salem et al. 2019)", (_QUERY,))


@dataclass(frozen=True, eq=False)
class Answers:
    """What one model says about c records; fields are None where they do not follow from what is given.

    Attributes
    ----------
    log_p : shape (c,), log of the probability of the true label; minus the loss.
    phi : shape (c,), logit-scaled confidence log(p/(1 - p)) in the true label, infinite where p is 0 or 1; of losses
        that are negative, which come from densities, minus the loss; of errors, minus their size.
    logs, labels : shapes (c, k) and (c,), log-probabilities of all classes, and the place of the true one.
    densities : losses are of densities, not of probabilities.
    """

    log_p: Array | None
    phi: Array | None
    logs: Array | None = None
    labels: NDArray[np.intp] | None = None
    densities: bool = False


class Reference(NamedTuple):
    """A reference model, and which of the records were in its training data, shape (c,); None: none of them."""

    answers: Answers
    inside: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class Signal:
    """An attack's score for each record, shape (c,), and what to say about it."""

    name: str
    title: str
    needs: tuple[str, ...]
    scores: Array
    facts: dict[str, Fact]


def read_answers(form: Form, values: Array, labels: NDArray[np.intp] | None) -> Answers:
    """From losses or probabilities of the true label, shape (c,), or probabilities or logits of k classes, (c, k); or
    from errors of predicted values, in units of their usual size, as if they were normal."""
    if form == "errors":
        return Answers(-0.5 * values**2, -np.abs(values), densities=True)
    if form == "losses":
        if values.size and values.min() < 0.0:
            return Answers(-values, -values, densities=True)
        return Answers(-values, _logit_scaled(-values))
    if form == "label probabilities":
        _check_probabilities(values)
        with np.errstate(divide="ignore"):
            logs = np.log(values)
            return Answers(np.maximum(logs, _LEAST), logs - np.log1p(-values))
    if form == "probabilities":
        _check_probabilities(values)
        total = values.sum(axis=1)
        if np.abs(total - 1.0).max(initial=0.0) > _SUM_ERROR:
            row = int(np.abs(total - 1.0).argmax())
            raise InvalidArgument(
                f"The probabilities of record {row + 1} sum to {total[row]:.4g}, not to 1",
                remedy="pass the probabilities of all classes, or name the columns as logits",
            )
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(values), _LEAST)
    else:
        logs = values - logsumexp(values, axis=1, keepdims=True)
    if labels is None:
        return Answers(None, None, logs)
    rows = np.arange(len(logs))
    others = logs.copy()
    others[rows, labels] = -np.inf
    log_p = logs[rows, labels]
    if form == "logits":
        return Answers(log_p, log_p - logsumexp(others, axis=1), logs, labels)
    rest = values.copy()
    rest[rows, labels] = 0.0
    with np.errstate(divide="ignore"):
        return Answers(log_p, np.log(values[rows, labels]) - np.log(rest.sum(axis=1)), logs, labels)


def _check_probabilities(values: Array) -> None:
    wrong = ((values < 0.0) | (values > 1.0)).reshape(len(values), -1)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise InvalidArgument(
            f"Record {row + 1} has the probability {values.reshape(len(values), -1)[row, column]:.4g}",
            remedy="pass probabilities from 0 to 1, or name the columns as logits",
        )


def _logit_scaled(log_p: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(log_p - np.log(-np.expm1(log_p)))


def signals(
    model: Answers, references: Sequence[Reference] = (), attacks: Sequence[str] | None = None
) -> tuple[list[Signal], tuple[LeftOut, ...]]:
    """The attacks that what is there allows, the first ones those that use most of it; or those of `attacks`, and which
    of these it does not allow. Raises where it allows none of them.

    With two classes the margin and the modified entropy have the order of the loss, and are not among them.
    """
    found = {one.name: one for one in [*_with_references(model, references), *_alone(model)]}
    if not attacks:
        return list(found.values()), ()
    errors: dict[str, InvalidArgument] = {}
    for name in attacks:
        check.one_of("attacks", name, tuple(ATTACKS))
        if name not in found:
            needs = "columns of reference models" if name in ("lira", "rmia") else "probabilities of 3 classes or more"
            needs = "labels, or losses" if name == "loss" else needs
            errors[name] = InvalidArgument(
                f"has {name!r}, and the predictions do not allow it",
                argument="attacks",
                remedy=f"it needs {needs}; they allow {check.listed(found)}",
            )
    if len(errors) == len(set(attacks)):
        raise next(iter(errors.values()))
    left_out = tuple(LeftOut.of(name, error) for name, error in errors.items())
    return [found[name] for name in dict.fromkeys(attacks) if name in found], left_out


def _signal(
    name: str,
    scores: Array,
    facts: dict[str, Fact] | None = None,
    about: tuple[str, tuple[str, ...]] | None = None,
) -> Signal:
    title, needs = about or ATTACKS[name]
    limit = np.finfo(np.float64).max  # a score is finite
    return Signal(name, title, needs, np.clip(scores, -limit, limit), facts or {})


def _alone(model: Answers) -> list[Signal]:
    """Attacks without reference models."""
    found = []
    if model.phi is not None:
        found.append(_signal("loss", model.phi))
    if model.logs is None:
        return found
    classes = model.logs.shape[1]
    p = np.exp(model.logs)
    if model.log_p is not None and model.labels is not None and classes > 2:
        own = np.arange(len(p)), model.labels
        others = model.logs.copy()
        others[own] = -np.inf
        found.append(_signal("margin", model.log_p - others.max(axis=1)))
        found.append(_signal("entropy", -_modified_entropy(model.log_p, p, own)))
    if classes > 1:
        top = model.logs.copy()
        rows = np.arange(len(top))
        best = top.argmax(axis=1)
        top[rows, best] = -np.inf
        found.append(_signal("confidence", model.logs[rows, best] - logsumexp(top, axis=1)))
    if model.log_p is None and classes > 2:
        found.append(_signal("entropy", (p * model.logs).sum(axis=1), about=_PLAIN_ENTROPY))
    return found


def _modified_entropy(log_p: Array, p: Array, own: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Array:
    """-(1 - p_y) log p_y - sum over the other classes of p log(1 - p): Song and Mittal 2021, equation 5."""
    with np.errstate(divide="ignore"):
        rest = p * np.maximum(np.log1p(-p), _LEAST)
    rest[own] = 0.0
    return np.asarray(-(1.0 - p[own]) * log_p - rest.sum(axis=1))


def _with_references(model: Answers, references: Sequence[Reference]) -> list[Signal]:
    if not references:
        return []
    if model.phi is None or model.log_p is None or any(one.answers.phi is None for one in references):
        raise InvalidArgument("Reference models need the true labels", remedy="add a column 'label', or losses")
    size = len(model.phi)
    known = [one.inside for one in references]
    outside_count = sum(np.ones(size) if inside is None else (~inside).astype(float) for inside in known)
    inside_count = sum(np.zeros(size) if inside is None else inside.astype(float) for inside in known)
    if np.min(outside_count) < 1.0:
        row = int(np.argmin(outside_count))
        raise InvalidArgument(
            f"Record {row + 1} was in the training data of every reference model",
            remedy="add a reference model without it",
        )
    online = bool(np.min(inside_count) >= 1.0)
    phi, *theirs = _comparable([model, *(one.answers for one in references)])
    moments, means = (Moments((size, 1)), Moments((size, 1))), (LogMean(size), LogMean(size))
    for (answers, inside), values in zip(references, theirs, strict=True):
        assert answers.log_p is not None
        out = np.ones(size, dtype=np.bool_) if inside is None else ~inside
        for side, rows in enumerate((~out, out)):
            moments[side].add(values, rows)
            means[side].add(answers.log_p, rows)
    facts: dict[str, Fact] = {"online": online, "reference_models": len(references)}
    found = []
    # A spread needs two models somewhere.
    if moments[1].count.max() >= 2.0 and (not online or moments[0].count.max() >= 2.0):
        score = likelihood_ratios(phi, *moments) if online else standardised(phi, moments[1])
        found.append(_signal("lira", score, facts))
    if online:
        usual = np.logaddexp(means[0].value, means[1].value) - np.log(2.0)
    elif model.densities or any(one.answers.densities for one in references):
        usual = means[1].value  # what models with the record would say can be guessed for probabilities only
    else:
        usual = blended(means[1].value, _OFFLINE_SCALE)
    found.append(_signal("rmia", model.log_p - usual, facts))
    return found


def _comparable(models: Sequence[Answers]) -> list[Array]:
    """The confidences of each model on a scale on which LiRA may take them to be nearly Gaussian, shapes (c, 1).

    That is phi, and where it is infinite the largest finite one of any model. But a forest's probabilities are shares
    of votes, of which many are 0 or 1: there it is the angle arcsin(sqrt(p)), which stabilises their variance.
    """
    phis = [one.phi for one in models if one.phi is not None]
    low, high = finite_range(phis)
    edge = any(np.isinf(phi).any() for phi in phis)
    if edge and max(-low, high) < -np.log(_VOTES):
        return [np.arcsin(np.sqrt(np.exp(one.log_p)))[:, None] for one in models if one.log_p is not None]
    return [np.clip(phi, low, high)[:, None] for phi in phis]
