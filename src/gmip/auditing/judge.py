"""The judge: evidence about one run -> what was found, and whether it is good enough.

Whatever is audited (a recorded run, released weights, predictions, scores, an estimator) comes here as `Evidence`, and
leaves as a `RunAudit` of numbers and enums. Words are the report's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._numbers import rate_key
from gmip._progress import Progress
from gmip.accounting.account import account
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.advice import advise, noise_curve
from gmip.auditing.curves import (
    GRID,
    OwnMu,
    OwnNorms,
    all_claims,
    given_claim,
    given_curve,
    listed_curve,
    own_mus,
    roc_points,
    summarised,
)
from gmip.auditing.schema import (
    Advice,
    AttackerAnswer,
    AttackOutcome,
    Band,
    Candidates,
    ClaimedCurve,
    CommandFacts,
    Curve,
    Deletion,
    Doubt,
    Estimate,
    ExposedRecord,
    GroupOutcome,
    Histogram,
    ModelLimit,
    MuBound,
    OmittedAttack,
    Persons,
    RunAudit,
    RunCheck,
    RunFacts,
    Sees,
    SharedRecords,
    SourceKind,
    Suspicion,
    TrainingCommand,
    UnusedColumn,
    Verdict,
)
from gmip.auditing.verdict import (
    attacker_answers,
    conclude,
    gate,
    is_own_bound,
    is_turned,
    leading_attack,
    suspicion,
    tpr_lower_bounds,
    untried_gradients,
    verdict,
    with_groups,
)
from gmip.errors import InvalidArgument
from gmip.stats import Pooled, RunScores, ScoreSet, bounds, intervals, pool, roc_curve, tie_blocks
from gmip.stats.scores import shared_scores
from gmip.vocabulary import GOOD_ENOUGH, NoisySGD, Rate

Array = NDArray[np.float64]
# Where a straight piece of an ROC is read.
_ON_LINES: Final[Array] = np.unique(
    np.round(np.concatenate([np.geomspace(1.0e-5, 1.0, 151), np.linspace(0.0, 1.0, 101)]), 12)
)[1:-1]
_FEWEST: Final = 2  # members, and non-members, in all runs together
_MOST_EXPOSED: Final = 20
_BINS: Final = 24  # of a histogram
_WIDE: Final = 50  # times the spread of one side: scores so far apart have bars that grow outwards
_DRAWN: Final = 1.0e300  # beyond that, differences overflow
_SHOWN: Final = (0.005, 0.995)  # it is drawn between these quantiles of all scores


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """The settings by which an audit judges, whatever its source; they are checked when it is made.

    Attributes
    ----------
    claim : what is said to hold: a `TradeOff`, a mu, or (epsilon, delta). None: what the accountant says about the run;
        where nothing is known about it, no claim is tested and what leaks is measured all the same.
    confidence, delta, fprs : of intervals and bounds; for epsilon; at which members found are reported.
    target : what is good enough: at most this TPR at this FPR, as "tpr=0.05@0.01", (0.05, 0.01) or a `gmip.Rate`.
    gate : whether pipelines ask if it is kept: see `AuditResult.passed`.
    seed : breaks ties, and draws what the bounds draw.
    """

    claim: TradeOff | None = None
    confidence: float = 0.95
    delta: float = 1.0e-5
    fprs: tuple[float, ...] = (0.001, 0.01, 0.1)
    target: Rate = GOOD_ENOUGH
    gate: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        confidence = check.probability("confidence", self.confidence, open_high=True)
        if confidence < 0.5:
            raise InvalidArgument("must be at least 0.5", argument="confidence", value=self.confidence)
        if np.ndim(self.fprs) != 1:
            raise InvalidArgument("must be a list of rates", argument="fprs", value=self.fprs)
        if np.size(self.fprs) == 0:
            raise InvalidArgument("is empty", argument="fprs", remedy="pass one rate or more")
        checked = {
            "claim": given_curve(self.claim),
            "confidence": confidence,
            "delta": check.inside("delta", self.delta),
            "fprs": tuple(check.inside("fprs", fpr) for fpr in self.fprs),
            "target": Rate.of_target("target", self.target),
            "seed": check.seed(self.seed),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def rates(self) -> tuple[float, ...]:
        """The FPRs at which members found are reported, that of the target among them."""
        return tuple(sorted({*self.fprs, self.target.fpr}))

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> JudgeSettings:
        """The settings of these names."""
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidArgument(
                    f"is not a setting{check.did_you_mean(name, known)}",
                    argument=name,
                    remedy=f"the settings are {', '.join([*known, 'title'])}",
                )
        return cls(**given)


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackScores:
    """What one attack found in one run, how long it took, of what it warned, and the seconds that all attacks had."""

    scores: ScoreSet
    seconds: float = 0.0
    budget: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Groups:
    """codes : array of shape (c,), the group of each candidate as a place in `names`."""

    codes: NDArray[np.intp]
    names: tuple[str, ...]

    def of(self, rows: NDArray[np.intp]) -> list[str]:
        """The names of the groups of some candidates."""
        return [self.names[code] for code in self.codes[rows].tolist()]

    def used(self) -> Groups:
        """The same without groups that nobody is in."""
        there, codes = np.unique(self.codes, return_inverse=True)
        return Groups(codes.astype(np.intp), tuple(self.names[code] for code in there.tolist()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """The truth about the candidates of one set of scores, in its order: who was in, and who belongs to which group.

    inside : array of shape (c,).
    """

    inside: NDArray[np.bool_]
    groups: Groups | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackEvidence:
    """An attack, what it found in each repetition of a run, and the truth about the candidates there.

    Attributes
    ----------
    needs : what its attacker must have, in words.
    knows : the share of the members on a list that its attacker holds; more than 0: it is judged by the curve for such
        an attacker.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    found: tuple[AttackScores, ...]
    labels: tuple[Labels, ...]
    sees: Sees = "gradients"
    knows: float = 0.0

    @property
    def first(self) -> ScoreSet:
        """The scores of the run itself, not of its repetitions."""
        return self.found[0].scores

    @property
    def members(self) -> NDArray[Any]:
        """The ids of the run's own members among the candidates."""
        return self.first.ids[self.labels[0].inside]

    def only(self, run: int, chosen: NDArray[np.bool_]) -> AttackEvidence:
        """The same with some of the candidates of one repetition."""
        found, labels = list(self.found), list(self.labels)
        found[run] = replace(found[run], scores=found[run].scores.only(chosen))
        known = labels[run]
        groups = None if known.groups is None else Groups(known.groups.codes[chosen], known.groups.names)
        labels[run] = Labels(inside=known.inside[chosen], groups=groups)
        return replace(self, found=tuple(found), labels=tuple(labels))

    def pooled(self, same_scale: bool) -> Pooled:
        pairs = zip(self.found, self.labels, strict=True)
        runs = [RunScores(one.scores.scores[known.inside], one.scores.scores[~known.inside]) for one, known in pairs]
        return pool(runs, same_scale=same_scale)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """All that a source knows about one run.

    Attributes
    ----------
    source : what was audited.
    runs : what ran, phase after phase; empty: how the model was trained is not known.
    path : of the trace, the weights or the file of scores.
    grouped_by : what the groups are, where labels have any.
    same_scale : whether scores of different repetitions can be compared.
    check : of the record, where there is one.
    norms : of the candidates' own gradients, where they are known.
    trained_by : the command that trained the run; None: it was not `gmip train`.
    name_of : what candidates with these ids are called by those who know them.
    left_out : attacks that could not run.
    persons : where candidates are persons with several rows; unused_column : that may say so.
    in_both_files : records that were left out.
    deletion : traces of those who asked to be deleted.
    limits : what about the model limits what attacks find.
    fingerprints : of the data or scores, by part.
    """

    name: str
    source: SourceKind
    attacks: tuple[AttackEvidence, ...]
    runs: tuple[NoisySGD, ...] = ()
    path: str | None = None
    task: str = ""
    facts: RunFacts = field(default_factory=RunFacts)
    grouped_by: str | None = None
    same_scale: bool = True
    check: RunCheck | None = None
    norms: OwnNorms | None = None
    trained_by: TrainingCommand | None = None
    name_of: Callable[[NDArray[Any]], list[Any]] | None = None
    left_out: tuple[OmittedAttack, ...] = ()
    persons: Persons | None = None
    unused_column: UnusedColumn | None = None
    in_both_files: SharedRecords | None = None
    deletion: Deletion | None = None
    limits: tuple[ModelLimit, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)


# -- what one attack found --------------------------------------------------------------------------------------------


def attack_outcome(
    attack: AttackEvidence,
    pooled: Pooled,
    claimed: TradeOff | None,
    settings: JudgeSettings,
    tests: int,
    tpr_lower: float | None = None,
) -> AttackOutcome:
    """What an attack found in the runs of one recipe.

    Parameters
    ----------
    claimed : the curve for this attacker, who holds a list with a share `attack.knows` of the members; None: there is
        none.
    tpr_lower : the lower limit of the TPR at the goal's FPR, for all attacks together.
    tests : the number of attacks that are tried. Each gets its share of the error in the test of the claim and in the
        bounds on mu and epsilon: a sound run is called exposed with a chance of at most 1 - confidence, and the largest
        bound exceeds the truth with no more than that, however many attacks are tried. Intervals (AUC, TPR, band) are
        each for itself.
    """
    fprs, confidence, seed, first = settings.rates, settings.confidence, settings.seed, attack.first
    found = intervals.summary(pooled, confidence=confidence, fprs=fprs, seed=seed)
    grid = GRID[(GRID > 0.0) & (GRID < 1.0)]
    band = intervals.roc_band(pooled, grid, confidence=confidence)
    shared = 1.0 - (1.0 - confidence) / tests
    mus = {
        method: bounds.mu_lower_bound(pooled, confidence=shared, method=method, seed=seed) for method in bounds.METHODS
    }
    p_value = None if claimed is None else bounds.claim_p_value(pooled, claimed, seed=seed)
    shown = pooled.comparable(seed)
    return AttackOutcome(
        attack=attack.name,
        title=attack.title,
        needs=attack.needs,
        members=pooled.members.size,
        non_members=pooled.non_members.size,
        repeats=pooled.num_runs,
        seconds=sum(one.seconds for one in attack.found),
        roc=measured_curve(shown.members, shown.non_members),
        band=Band(
            fpr=tuple(map(float, grid)),
            lower=tuple(map(float, band.lower)),
            upper=tuple(map(float, band.upper)),
        ),
        auc=_estimate(found.auc),
        tpr_at={rate_key(fpr): _estimate(found.tpr[fpr]) for fpr in fprs},
        tpr_lower=tpr_lower,
        balanced_accuracy=_estimate(found.balanced_accuracy),
        advantage=_estimate(found.advantage),
        mu_lower=mus[bounds.METHODS[0]],
        mu_bounds=tuple(MuBound(method=method, mu=mu) for method, mu in mus.items()),
        epsilon_lower=bounds.epsilon_lower_bound(pooled, delta=settings.delta, confidence=shared, seed=seed),
        sees=attack.sees,
        attacker_knows=attack.knows,
        claim_p_value=p_value,
        turned=found.auc.upper < 0.5 and is_turned(pooled, confidence=shared, seed=seed),
        exceeds_claim=p_value is not None and p_value < 1.0 - shared,
        ties=tie_blocks(shown.members, shown.non_members),
        guessed_seed=first.guessed_seed,
        cut_short=first.cut_short,
        facts=dict(first.facts),
        notes=_once(*(one.warnings for one in attack.found)),
    )


def measured_curve(members: Array, non_members: Array) -> Curve:
    """The ROC over every distinct score: its corners, which are all of it, or as many as a report can use.

    Where members and non-members share a score the ROC is a straight line, on which a coin gets: such lines have points
    of their own, because a curve is read as steps. Only scores that are all the same stay two points.
    """
    roc = roc_curve(members, non_members)
    fpr, tpr = roc.fpr, roc.tpr
    inner = np.ones(fpr.size, dtype=bool)
    inner[1:-1] = ~(
        ((fpr[:-2] == fpr[1:-1]) & (fpr[1:-1] == fpr[2:])) | ((tpr[:-2] == tpr[1:-1]) & (tpr[1:-1] == tpr[2:]))
    )
    fpr, tpr = fpr[inner], tpr[inner]
    if fpr.size > 2:
        piece = np.searchsorted(fpr, _ON_LINES, side="right") - 1
        straight = (fpr[piece] < _ON_LINES) & (tpr[piece] < tpr[piece + 1])
        between = _ON_LINES[straight]
        places = np.searchsorted(fpr, between)
        found = np.interp(between, fpr, tpr)
        fpr, tpr = np.insert(fpr, places, between), np.insert(tpr, places, found)
    return roc_points(fpr, tpr)


def _estimate(found: intervals.Interval) -> Estimate:
    """Converts an interval to the schema of result.json."""
    return Estimate(**found._asdict())


def group_outcomes(
    attack: AttackEvidence, settings: JudgeSettings, *, fprs: Sequence[float], tests: int, same_scale: bool = True
) -> tuple[GroupOutcome, ...]:
    """What an attack finds in each group, the most exposed first; empty without groups.

    Each group is judged by itself: its members against its non-members, and false alarms are counted in the group. So a
    group that scores high as a whole, members and non-members alike, does not look exposed.

    `tests` : how many attacks there are, of which this one was chosen.

    Guarantees
    ----------
    The error 1 - confidence is divided among groups and attacks (Bonferroni): all intervals of TPRs at one rate cover
    together, and so do all bounds on mu, whichever group and attack is looked at. Intervals of TPRs are exact for
    independent scores, those of the AUC approximate.
    """
    parts: dict[str, list[tuple[Array, Array]]] = {}
    for found, known in zip(attack.found, attack.labels, strict=True):
        scores, groups = found.scores.scores, known.groups
        if groups is None:
            return ()
        order = np.argsort(groups.codes, kind="stable")
        ends = np.searchsorted(groups.codes[order], np.arange(len(groups.names) + 1))
        for name, low, high in zip(groups.names, ends[:-1], ends[1:], strict=True):
            rows = order[low:high]
            here = known.inside[rows]
            parts.setdefault(name, []).append((scores[rows[here]], scores[rows[~here]]))
    if not parts:
        return ()
    shared = 1.0 - (1.0 - settings.confidence) / (len(parts) * tests)
    outcomes = [_outcome(name, pairs, fprs, shared, settings.seed, same_scale) for name, pairs in parts.items()]
    outcomes.sort(key=lambda one: (-(one.mu_lower or 0.0), -one.auc.value if one.auc else 0.0, one.group))
    return tuple(outcomes)


def _outcome(
    name: str,
    pairs: Sequence[tuple[Array, Array]],
    fprs: Sequence[float],
    confidence: float,
    seed: int,
    same_scale: bool,
) -> GroupOutcome:
    members, non_members = (sum(pair[side].size for pair in pairs) for side in (0, 1))
    both = [RunScores(*pair) for pair in pairs if pair[0].size and pair[1].size]
    # A run in which the group has members only, or non-members only, has nothing to compare them with.
    if any(sum(getattr(run, side).size for run in both) < _FEWEST for side in ("members", "non_members")):
        return GroupOutcome(group=name, members=members, non_members=non_members)
    pooled = pool(both, same_scale=same_scale)
    found = intervals.summary(pooled, confidence=confidence, fprs=tuple(fprs), seed=seed)
    return GroupOutcome(
        group=name,
        members=members,
        non_members=non_members,
        auc=_estimate(found.auc),
        tpr_at={rate_key(fpr): _estimate(found.tpr[fpr]) for fpr in fprs},
        mu_lower=bounds.mu_lower_bound(pooled, confidence=confidence, seed=seed),
    )


# -- all about one run ------------------------------------------------------------------------------------------------


class Judgement(NamedTuple):
    """The audit of a run, and its candidates by the attack that the first answer rests on, the most exposed first."""

    run: RunAudit
    candidates: Candidates


def judge(evidence: Evidence, settings: JudgeSettings, progress: Progress) -> Judgement:
    """All about one run.

    Guarantees
    ----------
    They are those of `attack_outcome`, `verdict`, `attacker_answers` and `group_outcomes`, each at the confidence of
    `settings` for all attacks together.
    """
    goal = settings.target
    evidence, repeated, copied = _distinct(evidence)
    pooled = {one.name: one.pooled(evidence.same_scale) for one in evidence.attacks}
    claims = _claims(evidence, settings)
    lower = tpr_lower_bounds(pooled, fpr=goal.fpr, confidence=settings.confidence, seed=settings.seed)
    outcomes = _outcomes(evidence, claims, pooled, lower, settings, progress)
    doubt = suspicion(evidence.facts, outcomes, copied, pooled, settings.confidence)
    doubts = _doubts(doubt, evidence.check)
    doubted, sound = "suspect" in doubts, "record" not in doubts
    judged = verdict(
        outcomes,
        claims.claimed,
        listed=claims.listed,
        fpr=goal.fpr,
        confidence=settings.confidence,
        doubts=doubts,
    )
    answers = attacker_answers(
        outcomes,
        claims.curves,
        goal=goal,
        lower=lower,
        confidence=settings.confidence,
        sound_record=sound,
        checked=evidence.check is None or not evidence.check.bound_unchecked,
        worst=_worst_bounds(evidence, claims, goal),
        doubted=doubted,
    )
    # Records and groups are ranked by the attack that the answer rests on.
    first = leading_attack(outcomes, answers) or outcomes[0]
    strongest = next(one for one in evidence.attacks if one.name == first.attack)
    tests, same_scale = len(outcomes), evidence.same_scale
    groups = group_outcomes(strongest, settings, fprs=settings.rates, tests=tests, same_scale=same_scale)
    answers = with_groups(answers, groups, first, goal)
    own = own_mus(evidence.runs, [one.first for one in evidence.attacks], evidence.norms)
    candidates = _candidates(strongest, own, evidence)
    advice = _advice(evidence, judged, outcomes, goal, next(iter(answers), None))
    conclusion = conclude(
        answers,
        goal=goal,
        sound_record=sound,
        doubted=doubted,
        measurable=any(one.measurable(goal.fpr) for one in outcomes),
        untried=untried_gradients(evidence.left_out),
    )
    audited = RunAudit(
        name=evidence.name,
        source=evidence.source,
        path=evidence.path,
        task=evidence.task,
        facts=evidence.facts,
        declared=evidence.runs,
        commands=CommandFacts(trained_by=evidence.trained_by),
        claims=claims.curves,
        attacks=outcomes,
        verdict=judged,
        conclusion=conclusion,
        left_out=evidence.left_out,
        goal=goal,
        answers=answers,
        advice=advice,
        noise_curve=noise_curve(evidence.runs, fpr=goal.fpr, needed=_needed_noise(advice, evidence.runs)),
        histogram=_histogram(strongest),
        exposed=_exposed(candidates),
        exposed_by=first.attack,
        groups=groups,
        grouped_by=evidence.grouped_by,
        check=evidence.check,
        individual=None if own is None else summarised(own, strongest.members, claims.curves),
        gate=None
        if not settings.gate
        else gate(
            pooled,
            lower,
            limit=goal.tpr,
            fpr=goal.fpr,
            confidence=settings.confidence,
            doubted=doubted or not sound or conclusion.why == "left-out",
            probable=conclusion.kind == "probably-fails",
            groups=groups,
        ),
        suspicion=doubt,
        repeated=repeated,
        persons=evidence.persons,
        unused_column=evidence.unused_column,
        in_both_files=evidence.in_both_files,
        deletion=evidence.deletion,
        limits=evidence.limits,
        warnings=_once(*(found.warnings for one in evidence.attacks for found in one.found)),
    )
    progress(len(outcomes) + 1, len(outcomes) + 1)
    return Judgement(audited, candidates)


def _doubts(suspicion: Suspicion | None, check: RunCheck | None) -> tuple[Doubt, ...]:
    """Why finding little would be no evidence."""
    doubts: dict[Doubt, bool] = {
        "record": check is not None and not check.passed,
        "suspect": suspicion is not None and suspicion.blinding,
        "noise-unchecked": check is not None and check.noise_unchecked,
    }
    return tuple(one for one, there in doubts.items() if there)


def _needed_noise(advice: Sequence[Advice], runs: Sequence[NoisySGD]) -> float | None:
    """The noise that reaches the goal, where the advice has it."""
    ways = [one.way for one in advice if one.way is not None]
    return next((way.changes(runs).get("noise_std") for way in ways if way.change == "noise"), None)


def _distinct(evidence: Evidence) -> tuple[Evidence, int, float]:
    """The evidence with each record once, how many candidates repeat another one, and the share of copies across."""
    attacks, repeated, copied = list(evidence.attacks), 0, 0.0
    for run in range(len(attacks[0].found) if attacks else 0):
        left, most = list(range(len(attacks))), 0
        while left:  # those that scored the same candidates are compared together
            ids = attacks[left[0]].found[run].scores.ids
            same = [i for i in left if np.array_equal(attacks[i].found[run].scores.ids, ids)]
            left = [i for i in left if i not in same]
            inside = attacks[same[0]].labels[run].inside
            shared = shared_scores(np.stack([attacks[i].found[run].scores.scores for i in same]), inside)
            if shared.copies:
                copied = max(copied, min(1.0, shared.copied / min(int(inside.sum()), int((~inside).sum()))))
            if shared.repeats and all(int((shared.first & side).sum()) > 1 for side in (inside, ~inside)):
                most = max(most, shared.repeated)
                for i in same:
                    attacks[i] = attacks[i].only(run, shared.first)
        repeated += most
    return replace(evidence, attacks=tuple(attacks)), repeated, copied


class _Claims(NamedTuple):
    """What is tested: the claimed curve, that for attackers with a list of members, and all curves for the result."""

    claimed: TradeOff | None
    listed: TradeOff | None
    curves: tuple[ClaimedCurve, ...]


def _claims(evidence: Evidence, settings: JudgeSettings) -> _Claims:
    runs, claim = evidence.runs, settings.claim
    claimed = account(list(runs)) if claim is None and runs else claim
    knows = max((one.knows for one in evidence.attacks), default=0.0)
    listed = listed_curve(runs, knows, claim) if knows else None
    if claimed is None:
        return _Claims(None, listed, ())
    if not runs:
        return _Claims(claimed, listed, (given_claim(claimed, settings.fprs),))
    curves = all_claims(
        runs,
        claimed,
        [one.first for one in evidence.attacks],
        given=claim is not None,
        fprs=settings.fprs,
        listed=listed,
        knows=knows,
        only_listed=all(one.knows for one in evidence.attacks),
    )
    return _Claims(claimed, listed, curves)


def _worst_bounds(evidence: Evidence, claims: _Claims, goal: Rate) -> dict[str, float]:
    """The bounds that keep the goal, with the least noise that the check leaves possible: key -> TPR."""
    check = evidence.check
    if check is None or not check.proves_less:
        return {}
    runs = [run.replace(noise_std=check.least_noise * run.noise_std) for run in evidence.runs]
    found: dict[str, float] = {}
    for one in claims.curves:
        if is_own_bound(one) and one.tpr(goal.fpr) <= goal.tpr:
            if one.key == "list":
                curve = account(runs, attacker_knows=one.knows or 0.0)
            else:
                curve = account(runs, notion="gdp") if one.key == "gdp" else account(runs)
            found[one.key] = min(1.0, float(curve.tpr_at(goal.fpr)))
    return found


def _outcomes(
    evidence: Evidence,
    claims: _Claims,
    pooled: Mapping[str, Pooled],
    lower: Mapping[str, float],
    settings: JudgeSettings,
    progress: Progress,
) -> tuple[AttackOutcome, ...]:
    """What each attack found, the strongest first, those whose attacker holds a list last."""
    outcomes, tests = [], len(evidence.attacks)
    for done, attack in enumerate(evidence.attacks):
        claimed = claims.listed if attack.knows else claims.claimed
        least = lower[attack.name]
        outcomes.append(attack_outcome(attack, pooled[attack.name], claimed, settings, tests, least))
        progress(done + 1, tests + 1)
    outcomes.sort(key=lambda one: (one.attacker_knows > 0.0, one.blind, -one.mu_lower, -one.auc.value, one.attack))
    return tuple(outcomes)


def _advice(
    evidence: Evidence, judged: Verdict, outcomes: Sequence[AttackOutcome], goal: Rate, answer: AttackerAnswer | None
) -> tuple[Advice, ...]:
    mend = (Advice(kind="fix-record"),) if judged.unmatched else ()
    if judged.unmatched and judged.kind != "exposed":
        return mend
    trained = evidence.trained_by is not None
    return *mend, *advise(evidence.runs, judged, outcomes, goal=goal, trained=trained, answer=answer)


def _once(*words: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for some in words for one in some))


def _susceptibilities(attacks: Sequence[AttackEvidence]) -> dict[Any, float]:
    """The susceptibilities by id, of the run itself, from whichever attack measured them."""
    measured = next((one.first for one in attacks if one.first.susceptibility is not None), None)
    if measured is None or measured.susceptibility is None:
        return {}
    return dict(zip(measured.ids.tolist(), measured.susceptibility.tolist(), strict=True))


def _candidates(attack: AttackEvidence, own: OwnMu | None, evidence: Evidence) -> Candidates:
    one, known = attack.first, attack.labels[0]
    susceptibility = _susceptibilities(evidence.attacks)
    order = np.argsort(-one.scores, kind="stable")
    optional = {"p_value": one.p_values, "posterior": None if one.calibration is None else one.posterior(0.5)}
    ids = one.ids[order].tolist()
    columns: dict[str, list[Any] | None] = {
        "id": ids if evidence.name_of is None else evidence.name_of(one.ids[order]),
        "member": known.inside[order].tolist(),
        "score": one.scores[order].tolist(),
        **{name: None if values is None else values[order].tolist() for name, values in optional.items()},
        "susceptibility": [susceptibility.get(id_) for id_ in ids] if susceptibility else None,
    }
    if known.groups is not None:
        columns["group"] = known.groups.of(order)
    if own is not None:
        columns["own_mu"] = own.of(one.ids[order]).tolist()
    return Candidates(columns)


def _histogram(attack: AttackEvidence) -> Histogram | None:
    """The scores of the run itself; None where all are alike, or too far apart to be drawn."""
    scores, inside = attack.first.scores, attack.labels[0].inside
    low, high = np.quantile(scores, _SHOWN, method="nearest")
    if not low < high:
        low, high = scores.min(), scores.max()
    if not low < high or max(-low, high) > _DRAWN:
        return None
    edges = np.linspace(low, high, _BINS + 1)
    spread = min(float(np.subtract(*np.quantile(scores[side], (0.75, 0.25)))) for side in (inside, ~inside))
    if 0.0 < spread < (high - low) / _WIDE:  # on even bars one of the sides would be one bar
        middle = float(np.median(scores[~inside]))
        first, last = (float(np.arcsinh((end - middle) / spread)) for end in (low, high))
        uneven = middle + spread * np.sinh(np.linspace(first, last, _BINS + 1))
        edges = uneven if np.all(np.diff(uneven) > 0.0) else edges
    clipped = np.clip(scores, edges[0], edges[-1])
    members, others = (np.histogram(clipped[side], edges)[0] for side in (inside, ~inside))
    return Histogram(edges=tuple(edges.tolist()), members=tuple(members.tolist()), non_members=tuple(others.tolist()))


def _exposed(candidates: Candidates) -> tuple[ExposedRecord, ...]:
    some = [candidates[int(i)]._asdict() for i in np.flatnonzero(candidates.columns["member"] or [])[:_MOST_EXPOSED]]
    for one in some:
        del one["member"]
        if one["own_mu"] is not None and not math.isfinite(one["own_mu"]):
            one["own_mu"] = None
    return tuple(map(ExposedRecord.model_validate, some))
