"""Scores: what an attack hands to an audit, the scores of several runs together, and their exact ROC."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from scipy.special import bdtrc, expit, logit

from gmip import _validate as check
from gmip._curves import corners, read_steps, thin_steps
from gmip._html import card
from gmip._numbers import count, number
from gmip.errors import InvalidArgument

Array = NDArray[np.float64]
Fact: TypeAlias = str | int | float | bool
Scope = Literal["step", "run"]
_KEPT: Final = 2000  # points of a curve that is stored
_CLOSE: Final = 50  # times closer than candidates are on average: scores that are equal but for rounding
_NEAR: Final = 20  # distinct scores on each side, at most, that tell the share of members around one
_NO_CHANCE: Final = 1.0e-4
_FEWEST_PAIRS: Final = 14  # of different sides, all of them: fewer are no proof
_MOST_PLACES: Final = 50_000  # candidates whose nearest neighbours are looked for
_FAR: Final = 1.0e6  # times the range of most scores: all that is farther out is there


@dataclass(frozen=True, kw_only=True, eq=False)
class ExpectedRoc:
    """The ROC that an attack expects of itself, without a label of the run; arrays are copied and read-only.

    Attributes
    ----------
    fpr, tpr : arrays of shape (k,), rising, from (0, 0) to (1, 1).
    auc : the expected AUC.
    """

    fpr: Array
    tpr: Array
    auc: float

    def __post_init__(self) -> None:
        for name in ("fpr", "tpr"):
            rates = check.probability_array(name, getattr(self, name)).copy()
            if rates.ndim != 1 or rates.size < 2 or (np.diff(rates) < 0.0).any():
                raise InvalidArgument("must be two or more rates that do not fall", argument=name)
            rates.setflags(write=False)
            object.__setattr__(self, name, rates)
        if self.fpr.size != self.tpr.size:
            raise InvalidArgument(f"has {self.tpr.size} rates for the {self.fpr.size} of `fpr`", argument="tpr")
        object.__setattr__(self, "auc", check.probability("auc", self.auc))

    def __repr__(self) -> str:
        return f"ExpectedRoc(auc={self.auc:.3f}, {self.fpr.size} points)"

    def tpr_at(self, fpr: ArrayLike) -> float | Array:
        """The expected TPR, shaped like `fpr`: the highest at no more false positives (no interpolation)."""
        rates = check.probability_array("fpr", fpr)
        found = read_steps(self.fpr, self.tpr, rates)
        return float(found) if np.ndim(fpr) == 0 else np.asarray(found)

    def thinned(self) -> ExpectedRoc:
        """The curve at about 2,000 points at most, even on a linear and on a logarithmic scale."""
        if self.fpr.size <= _KEPT:
            return self
        least = self.fpr[self.fpr > 0.0].min()
        wanted = np.concatenate([np.linspace(0.0, 1.0, _KEPT // 2), np.geomspace(least, 1.0, _KEPT // 2)])
        fpr, tpr = thin_steps(*corners(self.fpr, self.tpr), wanted)
        return ExpectedRoc(fpr=np.append(0.0, fpr), tpr=np.append(0.0, tpr), auc=self.auc)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreSet:
    """Scores of c candidates; arrays are copied and read-only.

    Attributes
    ----------
    ids : array of shape (c,), who the candidates are (numbers or names, each once).
    scores : array of shape (c,), higher = more likely a member.
    attack : name of the attack.
    p_values : array of shape (c,) or None, chance of such a score if the candidate is not a member.
    susceptibility : array of shape (c,) or None, K of each candidate.
    susceptibility_of : what K refers to: "step", a step of the run (the mean over steps); "run", all steps stacked to
        one. None: not to the run as it was recorded, or there is no K.
    calibration : (a, b) or None: a * score + b is the log-odds of membership at even prior odds.
    prediction : the ROC that the attack expects of itself, or None.
    cut_short : whether the attack left something out to be in time.
    guessed_seed : the seed of the run, where the attack found it.
    facts : plain facts for people (a rank, a cut-off, how many shadow models), by name.
    """

    ids: NDArray[Any]
    scores: Array
    attack: str
    p_values: Array | None = None
    susceptibility: Array | None = None
    susceptibility_of: Scope | None = None
    calibration: tuple[float, float] | None = None
    prediction: ExpectedRoc | None = None
    cut_short: bool = False
    guessed_seed: int | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = np.array(self.ids)
        if ids.ndim != 1 or ids.size == 0:
            raise InvalidArgument(
                f"must be a non-empty one-dimensional array, not one of shape {ids.shape}", argument="ids"
            )
        ordered = np.sort(ids)
        repeated = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
        if repeated:
            raise InvalidArgument(f"has {repeated} repeated entries", argument="ids", remedy="name each record once")
        attack: object = self.attack
        if not isinstance(attack, str) or not attack:
            raise InvalidArgument("must be the attack's name", argument="attack", value=attack)
        check.fields(self, susceptibility_of=get_args(Scope), prediction=ExpectedRoc)
        given = {"scores": self.scores, "p_values": self.p_values, "susceptibility": self.susceptibility}
        arrays = {
            name: check.vector(name, one, length=ids.size).copy() for name, one in given.items() if one is not None
        }
        if self.p_values is not None:
            check.probability_array("p_values", arrays["p_values"])
        if self.susceptibility is not None and arrays["susceptibility"].min() < 0.0:
            raise InvalidArgument(
                "has negative entries", argument="susceptibility", remedy="pass squared lengths, 0 or more"
            )
        if self.susceptibility_of is not None and self.susceptibility is None:
            raise InvalidArgument(
                "needs a `susceptibility`", argument="susceptibility_of", value=self.susceptibility_of
            )
        if self.calibration is not None:
            slope, offset = (check.number("calibration", value) for value in self.calibration)
            if not (np.isfinite(slope) and np.isfinite(offset) and slope >= 0.0):
                raise InvalidArgument(
                    "must be finite, with a slope of 0 or more", argument="calibration", value=self.calibration
                )
            object.__setattr__(self, "calibration", (slope, offset))
        for name, array in {"ids": ids, **arrays}.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "facts", MappingProxyType({str(k): _plain(k, v) for k, v in self.facts.items()}))

    def __len__(self) -> int:
        return int(self.scores.size)

    def __repr__(self) -> str:
        return f"<ScoreSet of {self.attack}: {len(self)} candidates>"

    def _repr_html_(self) -> str:
        """Notebooks show how many and how large the scores are; no candidate is named."""
        low, middle, high = (number(float(x), "nearest") for x in np.quantile(self.scores, (0.0, 0.5, 1.0)))
        known = {"p-values": self.p_values, "susceptibilities": self.susceptibility, "calibration": self.calibration}
        rows = [
            ("candidates", count(len(self))),
            ("scores (higher: more likely a member)", f"{low} to {high}, median {middle}"),
            ("also known", ", ".join(name for name, value in known.items() if value is not None) or "nothing"),
        ]
        return card(f"Scores of {self.attack}", rows)

    def only(self, chosen: NDArray[np.bool_]) -> ScoreSet:
        """Some of the candidates, by a mask of shape (c,)."""
        return dataclasses.replace(
            self,
            ids=self.ids[chosen],
            scores=self.scores[chosen],
            p_values=None if self.p_values is None else self.p_values[chosen],
            susceptibility=None if self.susceptibility is None else self.susceptibility[chosen],
        )

    def posterior(self, prior: float) -> Array:
        """P(member | score) for each candidate, shape (c,), when a share `prior` of the candidates are members."""
        share = check.inside("prior", prior)
        if self.calibration is None:
            raise InvalidArgument(
                f"Attack {self.attack!r} gives no calibration, which a posterior needs",
                remedy="use its p-values or scores",
            )
        slope, offset = self.calibration
        return np.asarray(expit(slope * self.scores + offset + logit(share)))


def _plain(name: str, value: object) -> Fact:
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, (str, int, float)) or (isinstance(plain, float) and not np.isfinite(plain)):
        raise InvalidArgument(
            "must be text, a finite number or True or False",
            argument=f"facts.{name}",
            value=value,
            remedy="leave it out",
        )
    return plain


def finite(values: Array) -> Array:
    """Scores of any shape: they are finite, what they are made of need not be."""
    limit = np.finfo(np.float64).max
    return np.clip(values, -limit, limit)


def logistic_calibration(members: ArrayLike, non_members: ArrayLike) -> tuple[float, float]:
    """(a, b), a >= 0, such that a * score + b is the log-odds of membership at even prior odds.

    Logistic regression (Newton) in which members and non-members have the same total weight. Targets are pulled in
    by one example of each kind (Platt 1999), so that scores that separate perfectly still give finite answers.
    Scores that say nothing, or the opposite, give (0, 0).
    """
    ins, outs = check.vector("members", members), check.vector("non_members", non_members)
    if ins.size == 0 or outs.size == 0:
        raise InvalidArgument("`members` and `non_members` must each hold at least one score")
    scores = np.concatenate([ins, outs])
    centre, spread = float(np.median(scores)), float(scores.std())
    if spread == 0.0:
        return 0.0, 0.0
    x = np.column_stack([(scores - centre) / spread, np.ones(scores.size)])
    weight = np.concatenate([np.full(ins.size, 0.5 / ins.size), np.full(outs.size, 0.5 / outs.size)])
    target = np.concatenate(
        [np.full(ins.size, (ins.size + 1.0) / (ins.size + 2.0)), np.full(outs.size, 1.0 / (outs.size + 2.0))]
    )

    def loss(beta: Array) -> float:
        odds = x @ beta
        return float(weight @ (np.logaddexp(0.0, odds) - target * odds))

    beta = np.zeros(2)
    value = loss(beta)
    for _ in range(100):
        chance = expit(x @ beta)
        gradient = x.T @ (weight * (chance - target))
        hessian = (x * (weight * chance * (1.0 - chance))[:, None]).T @ x
        step = np.linalg.solve(hessian + 1.0e-12 * np.eye(2), gradient)
        size = 1.0
        while (trial := loss(beta - size * step)) > value and size > 1.0e-10:
            size *= 0.5
        beta, done = beta - size * step, value - trial < 1.0e-13
        value = min(trial, value)
        if done:
            break
    slope, offset = float(beta[0]) / spread, float(beta[1] - beta[0] * centre / spread)
    return (slope, offset) if slope > 0.0 else (0.0, 0.0)


# -- scores of an audit's runs ----------------------------------------------------------------------------------------


Indices = NDArray[np.intp]
T = TypeVar("T")

# From this many runs on, the differences between runs are measured and enter every interval.
MIN_RUNS = 5
_MAX_GROUPS = 50


@dataclass(frozen=True, eq=False)
class RunScores:
    """Scores (higher = member) of one run, of shape (a,) and (b,); copied and read-only."""

    members: Array
    non_members: Array

    def __post_init__(self) -> None:
        for name in ("members", "non_members"):
            scores = check.vector(name, getattr(self, name)).copy()
            if scores.size == 0:
                raise InvalidArgument("is empty", argument=name, remedy="pass at least one score of each kind")
            scores.setflags(write=False)
            object.__setattr__(self, name, scores)


@dataclass(frozen=True, eq=False)
class Pooled:
    """All runs together.

    members, non_members : scores, shape (n1,) and (n0,).
    member_run, non_member_run : the number of the run of each.
    same_scale : whether scores of different runs can be compared.
    known : what was computed from the scores, and is not computed again.
    """

    members: Array
    non_members: Array
    member_run: Indices
    non_member_run: Indices
    num_runs: int
    same_scale: bool
    known: dict[Any, Any] = field(init=False, default_factory=dict, repr=False)

    def once(self, name: object, compute: Callable[[], T]) -> T:
        """What `compute` returned the first time that it was asked for by this name."""
        if name not in self.known:
            self.known[name] = compute()
        return cast("T", self.known[name])

    @cached_property
    def ordered_members(self) -> Array:
        """The members' scores, rising."""
        return np.sort(self.members)

    @cached_property
    def ordered_non_members(self) -> Array:
        """The non-members' scores, rising."""
        return np.sort(self.non_members)

    @property
    def has_spread(self) -> bool:
        """Whether there are enough runs to measure how much they differ."""
        return self.num_runs >= MIN_RUNS

    @property
    def num_groups(self) -> int:
        """Runs, or groups of runs that are as independent as they and keep the cost of a jackknife down."""
        return min(self.num_runs, _MAX_GROUPS)

    @property
    def member_group(self) -> Indices:
        return self.member_run % self.num_groups

    @property
    def non_member_group(self) -> Indices:
        return self.non_member_run % self.num_groups

    def comparable(self, seed: int) -> Pooled:
        """Scores that can be compared between runs.

        A score that cannot becomes its place among the (other) non-members of its run, between 0 and 1, with a coin
        for where it falls between two of them. For non-members that is uniform, exactly, however small the run; a
        rank among all candidates would also tell how many members there are. Every run is thinned out to the same
        share of members: otherwise the few non-members of one run would be the measure for many members, while those
        of another made them look many.
        """
        if self.same_scale:
            return self
        return self.once(("comparable", seed), lambda: self._made_comparable(seed))

    def _made_comparable(self, seed: int) -> Pooled:
        coins = self._coins(seed, *(np.concatenate(self._of(run)) for run in range(self.num_runs)))
        share = self.members.size / self.non_members.size
        parts = []
        for run in range(self.num_runs):
            ins, outs = self._of(run)
            ins = coins.permutation(ins)[: max(1, min(ins.size, round(share * outs.size)))]
            outs = coins.permutation(outs)[: max(1, min(outs.size, round(ins.size / share)))]
            parts.append((_place(ins, outs, 0, coins), _place(outs, outs, 1, coins)))
        return _joined(parts, same_scale=True)

    def untied(self, seed: int) -> Pooled:
        """The same order of scores; where there are ties, as ranks with ties broken at random: an attacker who tosses
        coins."""
        return self.once(("untied", seed), lambda: self._made_untied(seed))

    def _made_untied(self, seed: int) -> Pooled:
        # Stable sorting merges two rising parts in one pass.
        rising = np.sort(np.concatenate([self.ordered_members, self.ordered_non_members]), kind="stable")
        if (rising[1:] > rising[:-1]).all():
            return self
        scores = np.concatenate([self.members, self.non_members])
        places = np.unique(scores, return_inverse=True)[1]
        ranks = places.astype(np.float64)
        ranks[np.lexsort((self._coins(seed, scores).random(scores.size), places))] = np.arange(scores.size)
        return dataclasses.replace(self, members=ranks[: self.members.size], non_members=ranks[self.members.size :])

    @staticmethod
    def _coins(seed: int, *scores: Array) -> np.random.Generator:
        """Coins that depend on the seed and on the order of the scores. With coins from the seed alone, all audits of
        one size and seed would share one toss, and an unlucky one would mislead them all."""
        digest = hashlib.blake2b(digest_size=16)
        for part in scores:
            digest.update(np.unique(part, return_inverse=True)[1].astype("<i8").tobytes())
        return np.random.default_rng([seed, int.from_bytes(digest.digest(), "little")])

    def _of(self, run: int) -> tuple[Array, Array]:
        return self.members[self.member_run == run], self.non_members[self.non_member_run == run]

    def without(self, group: int) -> tuple[Array, Array]:
        """Scores of members and non-members of all runs but those of one group."""
        return self.members[self.member_group != group], self.non_members[self.non_member_group != group]


def pool(runs: RunScores | Sequence[RunScores] | Pooled, *, same_scale: bool = True) -> Pooled:
    """Put the runs together. What is pooled already stays as it is: it keeps what was computed from it.

    same_scale : whether scores of different runs can be compared. If not, sums count pairs within a run only, and
        elsewhere a score stands for its place among the non-members of its run. If so, membership must not go along
        with the run: runs that score high as a whole and hold more members look like leakage.
    """
    if isinstance(runs, Pooled):
        return runs
    several: list[Any] = list(runs) if isinstance(runs, Iterable) else [runs]
    if not several:
        raise InvalidArgument("is empty", argument="runs", remedy="pass the scores of at least one run")
    for run in several:
        if not isinstance(run, RunScores):
            raise InvalidArgument(f"must be RunScores or a sequence of them, not {type(run).__name__}", argument="runs")
    parts = [(run.members, run.non_members) for run in several]
    for name, side in (("members", 0), ("non_members", 1)):
        total = sum(part[side].size for part in parts)
        if total < 2:
            raise InvalidArgument(
                f"hold {total} score in all runs together", argument=name, remedy="pass at least 2 for an audit"
            )
    return _joined(parts, same_scale=same_scale or len(parts) == 1)


def _joined(parts: Sequence[tuple[Array, Array]], *, same_scale: bool) -> Pooled:
    members, non_members = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    member_run, non_member_run = (
        np.repeat(np.arange(len(parts)), [part[side].size for part in parts]) for side in (0, 1)
    )
    return Pooled(members, non_members, member_run, non_member_run, len(parts), same_scale)


def _place(scores: Array, others: Array, own: int, coins: np.random.Generator) -> Array:
    """Smoothed share of `others` below each score; `own` of those equal to it are the score itself."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, scores, side="left")
    equal = np.searchsorted(ordered, scores, side="right") - below - own
    return np.asarray((below + coins.random(scores.size) * (equal + 1)) / (ordered.size - own + 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedScores:
    """Candidates with the same scores, or nearly the same, as copies of one record have them.

    Attributes
    ----------
    first : array of shape (c,), whether a candidate is the first of its side with its scores.
    copied : how many of a side share their scores with the other side, nearly or quite, at most one for each of the
        other.
    repeated : candidates that are not the first of their side with their scores.
    copies, repeats : whether so many are no chance: scores that are coarse, or that saturate, are shared within the
        sides and across them alike; copies in both sides are shared across, repeated records within.
    """

    first: NDArray[np.bool_]
    copied: int
    repeated: int
    copies: bool
    repeats: bool


def shared_scores(scores: Array, inside: NDArray[np.bool_]) -> SharedScores:
    """Whether candidates share their scores because records are copies of each other.

    scores : array of shape (k, c), of k attacks. inside : array of shape (c,), who was a member. The scores of all
    attacks are compared, and those of each alone: one of them may draw.

    Guarantees
    ----------
    If candidates whose scores are equal were members independently of each other (each with the share of members among
    candidates of nearly the same score), copies and repeats are each found with a chance of at most 1e-4 a comparison.
    """
    ways = [scores, *(scores[:, None] if len(scores) > 1 else ())]
    found = [_shared(one, inside) for one in ways]
    repeats = next((one for one in found if one.repeats), found[0])
    near = _nearly_shared(scores, inside)
    copied = [*(one.copied for one in found if one.copies), *([near] if near else [])]
    return dataclasses.replace(repeats, copied=max(copied, default=0), copies=bool(copied))


def _shared(scores: Array, inside: NDArray[np.bool_]) -> SharedScores:
    scores = scores / 2.0  # exact, and differences of the largest numbers stay finite
    low, high = np.quantile(scores, (0.1, 0.9), axis=1, keepdims=True)
    spread = np.where(high > low, high - low, np.ptp(scores, axis=1, keepdims=True))  # outliers do not make it large
    finest = np.argsort([np.unique(row).size for row in scores])
    order = np.lexsort(scores[finest])  # by the attack with most distinct scores
    equal = np.abs(np.diff(scores[:, order])) <= spread / (_CLOSE * inside.size)
    group = np.empty(inside.size, dtype=np.intp)
    group[order] = np.cumsum(np.append(True, ~equal.all(axis=0))) - 1
    ins = np.bincount(group, weights=inside)
    outs = np.bincount(group) - ins
    # The share of members near each distinct score: a leak gathers members, and they may share scores for it.
    share = _smooth((ins > outs) + 0.5 * (ins == outs))
    several = ins + outs > 1
    count = (ins + outs)[several]
    mixed = several & (ins > 0) & (outs > 0)
    all_alike = float(np.sum(share[several] ** count + (1.0 - share[several]) ** count))
    not_alike = float(np.sum(1.0 - 2.0 * 0.5**count))  # at most, whatever the share
    _, firsts = np.unique(group * 2 + inside, return_index=True)
    first = np.zeros(inside.size, dtype=bool)
    first[firsts] = True
    return SharedScores(
        first=first,
        copied=int(np.sum(np.minimum(ins, outs)[mixed])),
        repeated=int(inside.size - firsts.size),
        copies=_no_chance(int(mixed.sum()), count.size, not_alike / max(count.size, 1)),
        repeats=_no_chance(int((several & ~mixed).sum()), count.size, all_alike / max(count.size, 1)),
    )


def _nearly_shared(scores: Array, inside: NDArray[np.bool_]) -> int:
    """How many of a side have nearly the scores of one of the other side, as near-copies have; 0 if by chance.

    Two candidates, each of whom has the nearest scores to the other's, are of different sides with a chance of at most
    1/2, however much the scores leak; so are the closest half, quarter and so on of such pairs. Scores that are quite
    equal are left to `_shared`.
    """
    low, high = np.quantile(scores / 2.0, (0.1, 0.9), axis=1)
    with np.errstate(over="ignore"):
        places = (scores / 2.0 / np.where(high > low, high - low, 1.0)[:, None]).T
    places = places.clip(-_FAR, _FAR)
    _, which, counts = np.unique(places, axis=0, return_inverse=True, return_counts=True)
    alone = np.flatnonzero(counts[which.reshape(-1)] == 1)
    if not 2 * _FEWEST_PAIRS <= alone.size <= _MOST_PLACES:
        return 0
    places, inside, own = places[alone], inside[alone], np.arange(alone.size)
    distances, near = map(np.asarray, cKDTree(places).query(places, k=2))
    other = np.where(near[:, 0] == own, near[:, 1], near[:, 0])
    pairs = np.flatnonzero((other[other] == own) & (own < other))
    pairs = pairs[np.argsort(distances[pairs, 1], kind="stable")]
    mixed = np.cumsum(inside[pairs] != inside[other[pairs]])
    closest = [pairs.size >> i for i in range(pairs.size.bit_length()) if pairs.size >> i >= _FEWEST_PAIRS]
    found = [
        2 * int(mixed[n - 1]) - n
        for n in closest
        if mixed[n - 1] > n / 2 and bdtrc(mixed[n - 1] - 1, n, 0.5) < _NO_CHANCE / len(closest)
    ]
    return max(found, default=0)


def _no_chance(seen: int, of: int, probability: float) -> bool:
    """Whether so many successes are too many (Hoeffding 1956: unequal probabilities spread less than their mean)."""
    return seen >= of * probability + 1.0 and bool(bdtrc(seen - 1, of, probability) < _NO_CHANCE)


def _smooth(flags: Array) -> Array:
    """The mean of each entry's neighbours, without itself and with a half for luck."""
    near = max(2, min(_NEAR, flags.size // 10))
    kernel = np.ones(2 * near + 1)
    total = np.convolve(flags, kernel)[near:-near] - flags
    number = np.convolve(np.ones(flags.size), kernel)[near:-near] - 1.0
    return (total + 0.5) / (number + 1.0)


# -- the exact ROC: every distinct score is a threshold, ties are right -----------------------------------------------


class RocCurve(NamedTuple):
    """Rates of the test "score >= threshold", each of shape (k + 1,) for k distinct scores; the first point is (0, 0)
    at an infinite threshold, the last (1, 1)."""

    fpr: Array
    tpr: Array
    thresholds: Array


def _pair(members: ArrayLike, non_members: ArrayLike) -> tuple[Array, Array]:
    pair = check.vector("members", members), check.vector("non_members", non_members)
    for name, scores in zip(("members", "non_members"), pair, strict=True):
        if scores.size == 0:
            raise InvalidArgument("is empty", argument=name, remedy="pass at least one score")
    return pair


def roc_curve(members: ArrayLike, non_members: ArrayLike) -> RocCurve:
    """The ROC of scores (higher = member) of shape (a,) and (b,)."""
    ins, outs = _pair(members, non_members)
    ins, outs = np.sort(ins), np.sort(outs)
    rising = np.sort(np.concatenate([ins, outs]), kind="stable")  # two rising parts: merged in one pass
    thresholds = rising[np.append(True, rising[1:] > rising[:-1])][::-1]
    # Counts are divided last: 1 of 100 is 0.01, the same number that people write.
    rates = [
        np.append(0, scores.size - np.searchsorted(scores, thresholds, side="left")) / scores.size
        for scores in (outs, ins)
    ]
    return RocCurve(rates[0], rates[1], np.concatenate([[np.inf], thresholds]))


def auc(members: ArrayLike, non_members: ArrayLike) -> float:
    """P(a member's score is higher than a non-member's) + P(they are equal)/2."""
    ins, outs = _pair(members, non_members)
    ordered = np.sort(outs)
    wins = np.searchsorted(ordered, ins, side="left").sum() + np.searchsorted(ordered, ins, side="right").sum()
    return float(wins) / (2.0 * ins.size * outs.size)


def _above(rising: Array, barrier: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """How many scores are above each barrier, and how many equal it."""
    last = np.searchsorted(rising, barrier, side="right")
    return np.asarray(rising.size - last), np.asarray(last - np.searchsorted(rising, barrier, side="left"))


@overload
def tpr_at_fpr(members: ArrayLike, non_members: ArrayLike, fpr: float) -> float: ...
@overload
def tpr_at_fpr(members: ArrayLike, non_members: ArrayLike, fpr: ArrayLike) -> float | Array: ...
def tpr_at_fpr(members: ArrayLike, non_members: ArrayLike, fpr: ArrayLike) -> float | Array:
    """The TPR of the threshold whose empirical FPR is `fpr`, shaped like `fpr`; a coin decides among equal scores.

    Between scores that differ nothing is interpolated: it is the largest TPR at an FPR of at most `fpr`. Where members
    and non-members have the same score, the same share of both is taken (a straight piece of the ROC): scores that are
    all equal find `fpr` of the members, as guessing does, not none.
    """
    ins, outs = _pair(members, non_members)
    rates = check.probability_array("fpr", fpr)
    allowed = np.searchsorted(np.arange(outs.size + 1) / outs.size, rates, side="right") - 1  # false positives
    # The threshold may fall just above the first non-member that must not be taken.
    ins, outs = np.sort(ins), np.sort(outs)
    barrier = np.append(outs[::-1], -np.inf)[allowed]
    (above, tied), (alarms, equal) = (_above(scores, barrier) for scores in (ins, outs))
    coin = np.clip((np.maximum(rates * outs.size, allowed) - alarms) / np.maximum(equal, 1), 0.0, 1.0)
    result = (above + tied * coin) / ins.size
    return float(result) if np.ndim(fpr) == 0 else np.asarray(result)
