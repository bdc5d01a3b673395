"""Attacks on arrays: what a model, and other models, say about records -> a score for each record.

The arithmetic of LiRA and RMIA is here, for predictions and for models alike. Nothing but arrays: any framework, any
language. Scores follow from predictions and labels alone, never from who was in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial import cKDTree
from scipy.special import expit, gammaln, logsumexp

from gmip.attacks.attack_table import ATTACKS, PLAIN_ENTROPY, Row, need_words
from gmip.errors import InvalidArgument
from gmip.stats.scores import Fact, finite

# -- the arithmetic of lira and rmia ----------------------------------------------------------------------------------


Variance = Literal["auto", "per-example", "pooled"]
OFFLINE_SCALE: Final = 0.3  # a of RMIA, unless given
_PRIOR: Final = 4.0  # observations that the pooled variance counts as under "auto"


class Moments:
    """Mean and scatter of c candidates' confidences over models, one model at a time (Welford).

    Attributes
    ----------
    count : shape (c,), models that were counted for a candidate.
    mean, scatter : shape (c, q), scatter the sum of squared deviations from the mean.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.count = np.zeros(shape[0])
        self.mean, self.scatter = np.zeros(shape), np.zeros(shape)

    def add(self, values: Array, rows: NDArray[np.bool_]) -> None:
        """One model: values of shape (c, q), counted for the candidates in `rows`, shape (c,)."""
        self.count[rows] += 1.0
        above = values[rows] - self.mean[rows]
        self.mean[rows] += above / self.count[rows, None]
        self.scatter[rows] += above * (values[rows] - self.mean[rows])

    def spread(self, variance: Variance) -> tuple[Array, Array]:
        """(variance of one more value around the mean, degrees of freedom of its estimate), shapes (c, q) and (c, 1).

        The mean is an estimate too, hence the factor 1 + 1/count.
        """
        own = self.count[:, None] - 1.0
        total = max(float(own.sum()), 1.0)
        pooled = self.scatter.sum(axis=0) / total
        pooled[pooled == 0.0] = 1.0  # all models agree on all candidates: any scale will do
        if variance == "pooled":
            found, freedom = np.broadcast_to(pooled, self.scatter.shape), np.full_like(own, total)
        elif variance == "per-example":
            found, freedom = self.scatter / np.maximum(own, 1.0), np.maximum(own, 1.0)
            found = np.where(found > 0.0, found, pooled)
        else:
            found, freedom = (self.scatter + _PRIOR * pooled) / (own + _PRIOR), own + _PRIOR
        return found * (1.0 + 1.0 / self.count[:, None]), freedom


def likelihood_ratios(phi: Array, inside: Moments, outside: Moments, variance: Variance = "auto") -> Array:
    """log p(phi | models with the candidate) - log p(phi | models without), shape (c,), mean over the columns.

    "pooled" and "per-example" are ratios of Gaussians. "auto" is a ratio of predictive distributions, given all models
    (docs/attacks.md): Student's t, since variances are estimated (as in BaVarIA, arXiv 2603.11799), around means that
    share what is known. A candidate's level is its own, but the shift that training on it makes is one of many: it has
    a Gaussian prior, whose mean and variance are those of all candidates' shifts.
    """
    if variance != "auto":
        logs = []
        for moments in (inside, outside):
            spread, _ = moments.spread(variance)
            logs.append(-0.5 * (np.log(spread) + (phi - moments.mean) ** 2 / spread))
        return np.asarray((logs[0] - logs[1]).mean(axis=1))
    groups = (inside, outside)
    counts = [moments.count[:, None] for moments in groups]
    spreads = [moments.spread(variance) for moments in groups]
    single = [spread / (1.0 + 1.0 / n) for (spread, _), n in zip(spreads, counts, strict=True)]
    errors = [one / n for one, n in zip(single, counts, strict=True)]  # of a mean
    shifts = inside.mean - outside.mean
    varies = np.maximum(shifts.var(axis=0) - (errors[0] + errors[1]).mean(axis=0), 0.0)
    weights = 1.0 / (errors[0] + errors[1] + varies)
    shift = (weights * shifts).sum(axis=0) / weights.sum(axis=0)
    logs = []
    for ours, theirs, sign in ((0, 1, 1.0), (1, 0, -1.0)):
        # The other group's mean, shifted, is a second measurement of ours.
        precisions = 1.0 / errors[ours], 1.0 / (errors[theirs] + varies)
        centre = precisions[0] * groups[ours].mean + precisions[1] * (groups[theirs].mean + sign * shift)
        total = precisions[0] + precisions[1]
        logs.append(_log_student(phi - centre / total, single[ours] + 1.0 / total, spreads[ours][1]))
    return np.asarray((logs[0] - logs[1]).mean(axis=1))


def _log_student(gap: Array, spread: Array, freedom: Array) -> Array:
    """log density of Student's t with this squared scale, up to log(pi)/2."""
    norm = gammaln((freedom + 1.0) / 2.0) - gammaln(freedom / 2.0) - np.log(freedom * spread) / 2.0
    return np.asarray(norm - (freedom + 1.0) / 2.0 * np.log1p(gap**2 / (freedom * spread)))


def standardised(phi: Array, outside: Moments, variance: Variance = "auto") -> Array:
    """How far phi, shape (c, 1), lies above the models without the candidate, in units of the spread: shape (c,)."""
    return np.asarray(((phi - outside.mean) / np.sqrt(outside.spread(variance)[0]))[:, 0])


def ranks_among(scores: Array, population: Array) -> Array:
    """(1 + how many of the population score as high or higher) / (1 + their number), shape of `scores`."""
    higher = len(population) - np.searchsorted(np.sort(population), scores, side="left")
    return np.asarray((1.0 + higher) / (1.0 + len(population)))


class LogMean:
    """Log of the mean probability of c records over models, one model at a time; shapes (c,)."""

    def __init__(self, size: int) -> None:
        self.count = np.zeros(size)
        self._log_sum = np.full(size, -np.inf)

    def add(self, log_p: Array, rows: NDArray[np.bool_]) -> None:
        """One model, counted for the records in `rows`."""
        self.count[rows] += 1.0
        self._log_sum[rows] = np.logaddexp(self._log_sum[rows], log_p[rows])

    @property
    def value(self) -> Array:
        """-inf where nothing was counted."""
        return np.asarray(self._log_sum - np.log(np.maximum(self.count, 1.0)))


def blended(log_out: Array, scale: float) -> Array:
    """log of ((1 + a) p_out + (1 - a))/2: the mean of p_out and of p_in = a p_out + (1 - a), which stands in for models
    that were not trained (Zarifzadeh et al. 2024, section 3)."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(np.log1p(scale) + log_out, np.log1p(-scale)) - np.log(2.0))


def usual_log_p(inside: LogMean | None, outside: LogMean, scale: float = OFFLINE_SCALE) -> Array:
    """log p(x) of RMIA: the mean over models with the record and models without it, where the former are guessed from
    the latter if there are none."""
    if inside is None:
        return blended(outside.value, scale)
    return np.asarray(np.logaddexp(inside.value, outside.value) - np.log(2.0))


def log_probabilities(phi: NDArray[np.floating[Any]]) -> Array:
    """log p of a logit-scaled confidence, of any shape."""
    return -np.logaddexp(0.0, -np.asarray(phi, dtype=np.float64))


def finite_range(parts: Iterable[NDArray[Any]]) -> tuple[float, float]:
    """The least and the largest finite number in some arrays."""
    low, high = np.inf, -np.inf
    for part in parts:
        finite = part[np.isfinite(part)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (-1.0, 1.0)  # none is finite: only the sign tells


# -- attacks on arrays ------------------------------------------------------------------------------------------------


Array = NDArray[np.float64]
Form = Literal["losses", "errors", "label probabilities", "probabilities", "logits", "classes"]
_LARGEST: Final = 1.0e100  # confidence: what is larger, as no model's is, overflows when it is squared
LEAST_LOG: Final = float(np.log(np.nextafter(0.0, 1.0)))  # log of the least probability that a float64 holds
_SUM_ERROR: Final = 0.02  # by which rounded probabilities of a record may miss 1
_VOTES: Final = 1.0e-5  # probabilities of 0 and 1 and none nearer to them than this are shares of votes


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
    only_classes : nothing but classes was answered, and p is the share of right answers.
    features : shape (c, d), what the records say, the label included.
    """

    log_p: Array | None
    phi: Array | None
    logs: Array | None = None
    labels: NDArray[np.intp] | None = None
    densities: bool = False
    only_classes: bool = False
    features: Array | None = None


class ReferenceAnswers(NamedTuple):
    """A reference model, and which of the records were in its training data, shape (c,); None: none of them."""

    answers: Answers
    inside: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class ArrayScores:
    """An attack's score for each record, shape (c,), and what to say about it."""

    name: str
    title: str
    needs: tuple[str, ...]
    scores: Array
    facts: dict[str, Fact]


def read_answers(form: Form, values: Array, labels: NDArray[np.intp] | None) -> Answers:
    """Reads losses or probabilities of the true label, shape (c,), or probabilities or logits of k classes, (c, k);
    errors of predicted values, in units of their usual size, as if they were normal; or the classes that were answered
    to q queries about each record, shape (c, q), where the share of right ones is taken for the probability of the true
    label."""
    if form == "classes":
        if labels is None:
            raise InvalidArgument("Classes alone tell nothing without the true labels", remedy="pass `labels`")
        votes = read_answers("label probabilities", (values == labels[:, None]).mean(axis=1), None)
        return dataclasses.replace(votes, only_classes=True)
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
            return Answers(np.maximum(logs, LEAST_LOG), logs - np.log1p(-values))
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
            logs = np.maximum(np.log(values), LEAST_LOG)
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


def array_attacks(model: Answers, references: Sequence[ReferenceAnswers] = ()) -> dict[str, ArrayScores]:
    """Name -> each attack that what is there allows; those come first that use most of it.

    With two classes the margin and the modified entropy have the order of the loss, and are not among them.
    """
    return {one.name: one for one in [*_with_references(model, references), *_alone(model)]}


def _signal(name: str, scores: Array, facts: dict[str, Fact] | None = None, entry: Row | None = None) -> ArrayScores:
    entry = entry or ATTACKS[name]
    return ArrayScores(name, entry.title, need_words(entry.array_needs or ()), finite(scores), facts or {})


def _alone(model: Answers) -> list[ArrayScores]:
    """Attacks without reference models."""
    found = []
    if model.phi is not None:
        found.append(_signal("label-only" if model.only_classes else "loss", model.phi))
        if model.features is not None:
            found.append(_signal("quantile", _above_median(model.phi, model.features)))
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
        found.append(_signal("entropy", (p * model.logs).sum(axis=1), entry=PLAIN_ENTROPY))
    return found


_NEIGHBOURS: Final = 30


def _above_median(phi: Array, features: Array) -> Array:
    """How far phi, shape (c,), lies above the median of the records nearest to this one: quantile regression (Bertran
    et al. 2023) by neighbours in the list, each feature in standard deviations, without who was in."""
    phi = np.clip(phi, *finite_range([phi]))
    scale = features.std(axis=0)
    places = features / np.where(scale > 0.0, scale, 1.0)
    count = min(_NEIGHBOURS + 1, len(phi))
    near = np.asarray(cKDTree(places).query(places, k=[*range(1, count + 1)])[1])
    return np.asarray(phi - np.median(phi[near[:, 1:]], axis=1)) if count > 1 else np.zeros_like(phi)


def _modified_entropy(log_p: Array, p: Array, own: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Array:
    """-(1 - p_y) log p_y - sum over the other classes of p log(1 - p): Song and Mittal 2021, equation 5."""
    with np.errstate(divide="ignore"):
        rest = p * np.maximum(np.log1p(-p), LEAST_LOG)
    rest[own] = 0.0
    return np.asarray(-(1.0 - p[own]) * log_p - rest.sum(axis=1))


def _with_references(model: Answers, references: Sequence[ReferenceAnswers]) -> list[ArrayScores]:
    if not references:
        return []
    if model.phi is None or model.log_p is None or any(one.answers.phi is None for one in references):
        raise InvalidArgument("Reference models need the true labels", remedy="add a column 'label', or losses")
    size = len(model.phi)
    online = _with_and_without(references, size)
    facts: dict[str, Fact] = {"online": online, "reference_models": len(references)}
    seen = _compared(model, references)
    found = [_signal("rmia", seen.rmia(online), facts)]
    learned = _learned(references) if online else None
    if learned is None:
        found.insert(0, _signal("base", _base(model, references, online), facts))
    # A spread needs two models somewhere.
    if seen.moments[1].count.max() >= 2.0 and (not online or seen.moments[0].count.max() >= 2.0):
        found.insert(0, _signal("lira", seen.lira(online), facts))
    return found if learned is None else [_signal("combined", learned(seen), facts), *found]


_TEMPERATURE: Final = 2.0  # of BASE, as its authors' program has it


def _base(model: Answers, references: Sequence[ReferenceAnswers], online: bool) -> Array:
    """log p minus the log of its mean over the references (Lassila et al. 2025), of probabilities at temperature 2.

    Where no reference has seen the record, what the references say counts as much as it tells about the model: the
    slope of the model's p on a reference's, as a share of the slope of one reference's p on another's. It is 1 if the
    model finds a record as hard as they do, and less the more it knows the records by heart, whoever they are.
    """
    own, *others = (_softened(one) for one in (model, *(one.answers for one in references)))
    usual = logsumexp(others, axis=0) - np.log(len(others))
    if online or model.densities:
        return np.asarray(own - usual)
    p = np.exp([one.log_p for one in (model, *(one.answers for one in references)) if one.log_p is not None])
    shared = np.cov(p)
    among = (shared[1:, 1:].sum() - np.trace(shared[1:, 1:])) / (len(others) - 1) if len(others) > 1 else shared[1, 1]
    weight = np.clip(shared[0, 1:].sum() / among, 0.0, 1.0) if among > 0.0 else 1.0
    return np.asarray(own - weight * usual)


def _softened(answers: Answers) -> Array:
    """log p of the label where logits are divided by the temperature; of losses, as if there were two classes."""
    assert answers.log_p is not None and answers.phi is not None
    if answers.densities:
        return answers.log_p
    if answers.logs is None or answers.labels is None:
        return np.maximum(log_probabilities(answers.phi / _TEMPERATURE), LEAST_LOG)
    logs = answers.logs / _TEMPERATURE
    return np.asarray(answers.log_p / _TEMPERATURE - logsumexp(logs, axis=1))


@dataclass(frozen=True, eq=False)
class _Comparison:
    """What one model says about c records beside what other models say: scores, and what they are made of."""

    phi: Array
    log_p: Array
    moments: tuple[Moments, Moments]  # of models with and without a record
    means: tuple[LogMean, LogMean]
    densities: bool

    def lira(self, online: bool) -> Array:
        return likelihood_ratios(self.phi, *self.moments) if online else standardised(self.phi, self.moments[1])

    def rmia(self, online: bool) -> Array:
        if not online and self.densities:  # what models with the record would say is guessed for probabilities only
            return np.asarray(self.log_p - self.means[1].value)
        return self.log_p - usual_log_p(self.means[0] if online else None, self.means[1])

    def features(self, lira: bool) -> Array:
        """What the combination learns from, shape (c, 4), and (c, 5) with the ratio of LiRA."""
        columns = [self.rmia(True), self.phi, *(one.mean for one in self.moments)]
        return np.column_stack([*columns, self.lira(True)] if lira else columns)


def _compared(
    model: Answers, references: Sequence[ReferenceAnswers], left_out: NDArray[np.intp] | None = None
) -> _Comparison:
    """The model beside the references; the one at place `left_out`, shape (c,), does not count for that record."""
    assert model.log_p is not None
    size = len(model.log_p)
    phi, *others = _comparable([model, *(one.answers for one in references)])
    moments, means = (Moments((size, 1)), Moments((size, 1))), (LogMean(size), LogMean(size))
    for place, ((answers, inside), values) in enumerate(zip(references, others, strict=True)):
        assert answers.log_p is not None
        counts = np.ones(size, dtype=np.bool_) if left_out is None else left_out != place
        out = np.ones(size, dtype=np.bool_) if inside is None else ~inside
        for side, rows in enumerate((~out & counts, out & counts)):
            moments[side].add(values, rows)
            means[side].add(answers.log_p, rows)
    densities = model.densities or any(one.answers.densities for one in references)
    return _Comparison(phi, model.log_p, moments, means, densities)


# -- one score of all -------------------------------------------------------------------------------------------------


_REHEARSED: Final = 8  # reference models that are attacked to learn the combination, at most
_REHEARSED_ROWS: Final = 20_000  # records of each, at most
_LEAST_EACH: Final = 2  # models with a record, and without it: a rehearsal takes one of each away
_LEAST_LIRA: Final = 4  # the same, for the ratio of LiRA to be learned from, whose variances need three
_FAR: Final = 8.0  # standard deviations beyond which a feature says no more


def _basis(features: Array, mean: Array, scale: Array) -> Array:
    """Each feature in standard deviations, squared, and bent at one on both sides: shape (c, 1 + 4 k)."""
    z = np.clip((features - mean) / scale, -_FAR, _FAR)
    ones = np.ones((len(z), 1))
    return np.concatenate([ones, z, z**2, np.maximum(z - 1.0, 0.0), np.maximum(-1.0 - z, 0.0)], axis=1)


def _learned(references: Sequence[ReferenceAnswers]) -> Callable[[_Comparison], Array] | None:
    """The attacker rehearses on his own models: each in turn is attacked with the others, and he knows who was in it.

    The attacked model has no part in it, so the score is a fixed function of what it says. For each record a model of
    the other kind is left out as well: where half of the models hold a record, the number of those that are left would
    tell whether the missing one did. None: too few models.
    """
    known = np.array([one.inside for one in references])
    least = np.minimum(known.sum(axis=0), (~known).sum(axis=0))
    rows = np.flatnonzero(least >= _LEAST_EACH)
    if rows.size < 2:
        return None
    lira = bool(least.min() >= _LEAST_LIRA)
    rows = rows[:: -(-rows.size // _REHEARSED_ROWS)]
    known = known[:, rows]
    some = [ReferenceAnswers(_taken(one.answers, rows), inside) for one, inside in zip(references, known, strict=True)]
    features, inside = [], []
    for place in range(0, len(some), -(-len(some) // _REHEARSED)):
        after = some[place + 1 :] + some[:place]
        opposite = np.array([one.inside != known[place] for one in after]).argmax(axis=0)
        features.append(_compared(some[place].answers, after, opposite).features(lira))
        inside.append(known[place])
    return _fitted(np.concatenate(features), np.concatenate(inside), lira)


def _taken(answers: Answers, rows: NDArray[np.intp]) -> Answers:
    assert answers.log_p is not None and answers.phi is not None
    return dataclasses.replace(answers, log_p=answers.log_p[rows], phi=answers.phi[rows], logs=None, labels=None)


def _fitted(features: Array, inside: NDArray[np.bool_], lira: bool) -> Callable[[_Comparison], Array]:
    """Log-odds of membership as a function of features, learned where membership is known: logistic regression with a
    ridge of 1 on everything but the constant."""
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale == 0.0] = 1.0
    basis, signs = _basis(features, mean, scale), np.where(inside, 1.0, -1.0)
    ridge = np.ones(basis.shape[1])
    ridge[0] = 0.0

    def loss(weights: Array) -> tuple[float, Array]:
        margins = signs * (basis @ weights)
        value = np.logaddexp(0.0, -margins).sum() + 0.5 * ridge @ weights**2
        return float(value), ridge * weights - basis.T @ (signs * expit(-margins))

    weights = minimize(loss, np.zeros(len(ridge)), jac=True, method="L-BFGS-B").x
    return lambda seen: np.asarray(_basis(seen.features(lira), mean, scale) @ weights)


def _with_and_without(references: Sequence[ReferenceAnswers], size: int) -> bool:
    """Whether every record was in the training data of some model; raises where a record was in that of all models."""
    count = np.sum([np.zeros(size) if one.inside is None else one.inside for one in references], axis=0)
    if count.max() == len(references):
        raise InvalidArgument(
            f"Record {count.argmax() + 1} was in the training data of every reference model",
            remedy="add a reference model without it",
        )
    return bool(count.min() >= 1.0)


def _comparable(models: Sequence[Answers]) -> list[Array]:
    """The confidences of each model on a scale on which LiRA may take them to be nearly Gaussian, shapes (c, 1).

    That is phi, and where it is infinite or absurd the largest one of any model that is not. But a forest's
    probabilities are shares of votes, of which many are 0 or 1: there it is the angle arcsin(sqrt(p)), which stabilises
    their variance.
    """
    phis = [one.phi for one in models if one.phi is not None]
    low, high = np.clip(finite_range(phis), -_LARGEST, _LARGEST)
    edge = any(np.isinf(phi).any() for phi in phis)
    if edge and max(-low, high) < -np.log(_VOTES):
        return [np.arcsin(np.sqrt(np.exp(one.log_p)))[:, None] for one in models if one.log_p is not None]
    return [np.clip(phi, low, high)[:, None] for phi in phis]
