"""What an audit found: plain, frozen, versioned, and the same as result.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, Self, get_args, overload

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from gmip._numbers import rate_key
from gmip.accounting.alternatives import Change, ClosedWay
from gmip.errors import GateFailed, GmipError, InvalidArgument
from gmip.vocabulary import Kind, NoisySGD, Rate, Recipe, SamplingFault

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


# -- what to do about a run -------------------------------------------------------------------------------------------


AdviceKind = Literal[
    "fix-record",  # its check failed
    "claim-refuted",  # do not rely on it
    "seed-guessed",  # train with a secret one
    "find-less",  # how the model was trained is not known, and it leaks
    "say-claim",  # so that it can be tested
    "guaranteed-already",  # the target is kept, whatever ran
    "bound-already",  # it is if the run was as declared
    "forecast-already",
    "to-guarantee",  # the first way that proves the target
    "only-forecasts",  # no way does
    "way",
    "clip-first",
    "closed-ways",
    "tune",
    "more-candidates",
]


class TriedAccuracy(Frozen):
    """Accuracy of trainings that were made to measure it, on records that they did not train on: the mean over `seeds`
    of them, its standard error (0 for one), and on how many records, none a member, they were trained."""

    mean: Share
    error: Annotated[float, Field(ge=0.0)]
    seeds: Annotated[int, Field(ge=1)]
    trained_on: Count


class UntriedWay(Frozen):
    """A way whose accuracy was not measured.

    change : the way; None: the run as it is, or, where "refused", all of them.
    why : "other-model" (it needs one), "schedule" (the run is one), "few-records" (only `records` are not members),
        "too-slow" (one training takes about `seconds`), "diverged", or "refused" (`problem` says why).
    """

    change: Change | None
    why: Literal["other-model", "schedule", "few-records", "too-slow", "diverged", "refused"]
    records: Count | None = None
    seconds: Annotated[float, Field(ge=0.0)] | None = None
    problem: str | None = None


class Way(Frozen):
    """One way to the goal, found and checked by the accountant.

    Attributes
    ----------
    change : what changes; nothing else does. "noise-alone": by noise alone (differential privacy), for any record.
    runs : what to run instead, phase after phase.
    tpr : the share of the members found at the goal's FPR then: at most (kind "bound"), or about ("forecast").
    for_whom : the record and the attacker that this is about.
    accuracy : what the model is then good for; None: not measured.
    """

    change: Change
    runs: tuple[NoisySGD, ...]
    tpr: Share
    kind: Kind
    for_whom: str
    accuracy: TriedAccuracy | None = None

    def changes(self, before: Sequence[NoisySGD]) -> dict[str, Any]:
        """Fields of the run as it was -> their new values; empty for a schedule."""
        if len(before) != 1 or len(self.runs) != 1:
            return {}
        old, new = dataclasses.asdict(before[0]), dataclasses.asdict(self.runs[0])
        return {name: value for name, value in new.items() if value != old[name] and name != "rank"}


class Advice(Frozen):
    """Something to do.

    Attributes
    ----------
    way : of "way".
    tpr, for_whom : of "forecast-already": about what is found, and whom that is about.
    closed : of "closed-ways".
    candidates : of "more-candidates": how many are needed.
    """

    kind: AdviceKind
    way: Way | None = None
    tpr: Share | None = None
    for_whom: str | None = None
    closed: tuple[ClosedWay, ...] = ()
    candidates: Count | None = None


class TrainingCommand(Frozen):
    """The `gmip train` of a run; `task` as the command line names it, `fix` for --fix-model."""

    task: str
    recipe: Recipe
    fix: bool = False


class CommandFacts(Frozen):
    """What commands for the reader are made from.

    trained_by : None: the run was not trained by `gmip train`.
    """

    trained_by: TrainingCommand | None = None


class NoiseCurve(Frozen):
    """What the accountant says of other noise, everything else as it is.

    Attributes
    ----------
    noise_std : on the batch mean, rising; of a schedule that of its first phase, the others in proportion.
    tpr : at the goal's FPR, for each noise.
    own : the place of the run itself.
    kind : "bound" if "at most" can be said of every number, else "forecast".
    for_whom : the record and the attacker that they are about.
    """

    noise_std: tuple[Annotated[float, Field(ge=0.0)], ...]
    tpr: tuple[Share, ...]
    own: Count
    kind: Kind
    for_whom: str

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if len(self.tpr) != len(self.noise_std) or self.own >= len(self.tpr):
            raise ValueError("needs a TPR for each noise, and the run's own among them")
        return self


class Histogram(Frozen):
    """How the scores of members and non-members are spread: counts between rising edges; the first and last count what
    lies beyond, too."""

    edges: tuple[float, ...]
    members: tuple[Count, ...]
    non_members: tuple[Count, ...]

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if not len(self.edges) - 1 == len(self.members) == len(self.non_members):
            raise ValueError("needs a count of members and of non-members between each two edges")
        return self


# -- what the run check found -----------------------------------------------------------------------------------------


CheckKey = Literal[
    "sizes",
    "batches",
    "continuity",
    "scale",
    "whole-clip",
    "clipping",
    "members",
    "noise-steps",
    "noise-layers",
    "noise-size",
    "noise-rows",
]
CHECKS: Final[tuple[CheckKey, ...]] = get_args(CheckKey)
CheckStatus = Literal["passed", "failed", "unchecked"]
CheckFinding = (
    SamplingFault
    | Literal[
        # what passed
        "as-declared",
        "data-unknown",
        "every-record",
        "follows-gradients",
        "no-matrix",
        "one-layer",
        "same-in-every-layer",
        # what failed: sizes, batches, continuity
        "too-many-members",
        "strangers",
        "changed-outside",
        # scale and clipping
        "scale-factor",
        "sum-not-mean",
        "divided-twice",
        "workers-summed",
        "workers-divided",
        "own-size",
        "factors-vary",
        "whole-clip",
        "steps-scaled",
        "unclipped",
        "unclipped-or-mean",
        "clipped-mean",
        "clipped-by-layer",
        "clipped-wider",
        # members
        "members-differ",
        "others-left",
        # noise
        "no-noise",
        "noise-size",
        "noise-divided-twice",
        "noise-not-averaged",
        "noise-averaged",
        "noise-not-normal",
        "noise-values-repeat",
        "noise-repeats",
        "noise-layers-differ",
        "noise-cancels",
        "noise-depends",
        "rows-share-noise",
        "columns-share-noise",
        "layers-share-noise",
        "odd-row",
        "odd-column",
        "odd-entry",
        # why something could not be checked
        "no-steps",
        "no-members",
        "no-ids",
        "members-left-out",
        "members-left-out-no-ids",
        "some-parameters",
        "not-a-mean",
        "local-training",
        "not-plain-descent",
        "distinct-before",
        "other-check-failed",
        "random-model",
        "reduced-precision",
        "hidden-by-noise",
        "hidden-by-batches",
        "few-entries",
        "imprecise",
        "zero-gradient",
        "none-to-clip",
        "not-compared",
        "one-step",
    ]
)
SmallFault = Literal[
    "noise-size",  # the noise is smaller than declared
    "noise-layer",  # it is in one parameter of the model
    "noise-step",  # it is at one step
    "noise-entry",  # it is in one entry of a parameter
    "noise-seed",  # others can draw it again
    "noise-dependence",  # some of it follows from the rest, or it is cut off
    "scale",  # the gradient is larger
    "clip-norm",  # records are clipped to a larger norm
    "own-size",  # Poisson batches are divided by their own size
    "divisor",  # Poisson batches are divided by a number that follows the number of records
    "drawn-often",  # one record is in more batches than others
    "drawn-together",  # some are in the same batches more often than by chance
    "records",  # members were replaced, or have another label
    "inputs",  # inputs or the model were changed, as augmentation and dropout do
    "counted",  # a record counts more than once, nobody lists it, or others are clipped by it
    "buffers",  # the released model holds others, or other frozen parameters, than it began with
    "optimizer",  # one that is not torch's goes by other gradients
    "steps",  # a fault is in steps that were not computed again
    "before",  # the model was trained before the recording began
]
# A bound rests on these. Who the members are, and a clip of the whole gradient, change nothing about it.
_BOUNDS_REST_ON: Final[frozenset[CheckKey]] = frozenset(
    ("sizes", "batches", "continuity", "scale", "clipping", "noise-steps", "noise-layers", "noise-size", "noise-rows")
)


class CheckOutcome(Frozen):
    """One question about a record: does it look as the declared run must look? `gmip.report.check_words` says it.

    Attributes
    ----------
    check : the question; finding : what was found, or why it could not be checked.
    value, expected : the number that was found and the one that the declared run has, where there is one.
    p_value : the chance of such a number if the run is as declared, where chance plays a part; for all that the check
        looked at together.
    error : standard error of `value`; for sizes of batches their standard deviation.
    factor_low, factor_high : range of factors between recorded and expected gradients.
    auc : how well the loss before the first step tells members from non-members.
    norm : a clip norm; size : of a batch, or the number of workers.
    records : members that are copies of others; steps : how many were looked at, or clipped; of_steps : among how many,
        or how many are needed.
    at_steps, layers, line : where: numbers of steps, names of parameters, a row or column.
    other : the check that failed instead; precision : the number format that the model computed in.
    """

    check: CheckKey
    status: CheckStatus
    finding: CheckFinding
    value: float | None = None
    expected: float | None = None
    p_value: Share | None = None
    error: float | None = None
    factor_low: float | None = None
    factor_high: float | None = None
    auc: Share | None = None
    norm: float | None = None
    size: Count | None = None
    records: Count | None = None
    steps: Count | None = None
    of_steps: Count | None = None
    at_steps: tuple[int, ...] = ()
    layers: tuple[str, ...] = ()
    line: Count | None = None
    other: CheckKey | None = None
    precision: str | None = None


class BeyondReach(Frozen):
    """A fault that the record of a run would not show, although the check that looks for it passed.

    up_to : the largest size that the record does not exclude, relative to what is declared; of "records" a share of
        them, of "drawn-often" the share of the batches that one can be in, of "steps" the share that was not looked
        at. None: of any size.
    """

    fault: SmallFault
    up_to: float | None = None


class RunCheck(Frozen):
    """Whether the record of a run is what the declared run would have left.

    Attributes
    ----------
    beyond_reach : faults that this record would not show, although all that was checked is right.
    least_noise : the least noise multiplier that the record does not exclude, as a share of the declared one: noise as
        much too small, gradients and clip norm as much too large as noise may hide.
    steps : numbers of the steps whose gradient was computed again.
    level : the chance that a sound run fails, for all checks together.
    """

    outcomes: tuple[CheckOutcome, ...]
    beyond_reach: tuple[BeyondReach, ...] = ()
    least_noise: Share = 1.0
    steps: tuple[int, ...] = ()
    level: Share = 0.01

    @property
    def failed(self) -> tuple[CheckOutcome, ...]:
        return tuple(one for one in self.outcomes if one.status == "failed")

    @property
    def unchecked(self) -> tuple[CheckOutcome, ...]:
        return tuple(one for one in self.outcomes if one.status == "unchecked")

    @property
    def passed(self) -> bool:
        """Whether nothing failed. What was not checked is in `unchecked`."""
        return not self.failed

    @property
    def noise_unchecked(self) -> bool:
        """Whether noise was declared, and its size, or whether it is drawn anew, could not be checked."""
        return any(one.check in ("noise-size", "noise-steps") for one in self.unchecked)

    @property
    def bound_unchecked(self) -> tuple[CheckOutcome, ...]:
        """What could not be checked although bounds rest on it: noise, scale, clipping, sampling, and that there was
        no other training."""
        return tuple(one for one in self.unchecked if one.check in _BOUNDS_REST_ON)

    @property
    def proves_less(self) -> bool:
        """Whether all is as declared as far as it was checked, and yet a little less noise is not excluded."""
        return self.passed and not self.bound_unchecked and self.least_noise < 1.0


# -- what an audit found ----------------------------------------------------------------------------------------------


FORMAT: Literal["gmip-audit"] = "gmip-audit"
VERSION: Literal[1] = 1

VerdictKind = Literal["consistent", "exposed", "inconclusive", "measured"]  # measured: nothing was claimed
Doubt = Literal["noise-unchecked", "suspect", "record"]
# What was audited.
SourceKind = Literal["recorded", "trained", "released", "estimator", "predictions", "scores", "deleted"]
ThreatModel = Literal["training", "released", "predictions", "scores"]  # what attackers are taken to see
# What an attacker sees, the most first; "scores" where only the scores of somebody's attack are known.
Sees = Literal["gradients", "weights", "predictions", "scores"]
Standing = Literal["proved", "approximation", "given", "measured"]
Origin = Literal["accountant", "given", "attack"]
OwnBy = Literal["data", "noise", "either"]  # by what single records' own mus are known


class Estimate(Frozen):
    """A measured number and its interval at the audit's confidence."""

    value: float
    lower: float
    upper: float


class Curve(Frozen):
    """Points of an ROC, from (0, 0) to (1, 1)."""

    fpr: tuple[Share, ...]
    tpr: tuple[Share, ...]

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        if len(self.fpr) != len(self.tpr) or len(self.fpr) < 2:
            raise ValueError(f"a curve needs as many FPRs as TPRs, two or more, not {len(self.fpr)}, {len(self.tpr)}")
        return self

    def __repr__(self) -> str:
        return f"<Curve of {len(self.fpr)} points>"


class Band(Frozen):
    """Interval of the TPR at some FPRs."""

    fpr: tuple[Share, ...]
    lower: tuple[Share, ...]
    upper: tuple[Share, ...]

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        if not len(self.fpr) == len(self.lower) == len(self.upper):
            raise ValueError("a band needs as many lower and upper ends as FPRs")
        return self

    def __repr__(self) -> str:
        return f"<Band of {len(self.fpr)} points>"


class GivenClaim(Frozen):
    """What somebody says is guaranteed: a mu, or an epsilon and a delta; all None: a curve."""

    mu: float | None = None
    epsilon: float | None = None
    delta: float | None = None


class ClaimedCurve(Frozen):
    """A curve that an attacker should stay below (accountant), or is expected to reach.

    Attributes
    ----------
    key : "claimed" (what the verdict is about), "susceptibility" (stochastic composition over the measured
        susceptibilities), "list" (about an attacker who holds a list that contains members), "gdp" (noise
        alone), "prediction" (what an attack expects of itself).
    origin : who says so: the accountant, whoever asked for the audit ("given"), or an attack about itself.
    given : the numbers, where the origin is "given".
    knows : for "list", the share of the members on it.
    standing : how far it can be trusted: proved under `assumptions`, an approximation, given by whoever asked for the
        audit, or measured.
    kind : "bound", if no attacker of `for_whom` does better under `assumptions`; "forecast", if one can.
    for_whom : the record and the attacker that it is about.
    mu : the Gaussian trade-off that covers the curve; None if it has none.
    tpr_at : FPR as a string ("0.01") -> TPR.
    """

    key: Literal["claimed", "susceptibility", "list", "gdp", "prediction"]
    origin: Origin
    given: GivenClaim | None = None
    knows: Share | None = None
    standing: Standing
    curve: Curve
    mu: float | None
    auc: Share
    tpr_at: dict[str, Share]
    kind: Kind
    assumptions: tuple[str, ...] = ()
    for_whom: str | None = None
    caveat: str | None = None
    adjacency: str | None = None  # of differential privacy: how neighbouring data sets differ

    def tpr(self, fpr: float) -> float:
        """The TPR at a rate: exact where it is known, else that of the next point of the curve at a higher rate."""
        if rate_key(fpr) in self.tpr_at:
            return self.tpr_at[rate_key(fpr)]
        return next((t for f, t in zip(self.curve.fpr, self.curve.tpr, strict=True) if f >= fpr), 1.0)

    @property
    def is_bound(self) -> bool:
        """Whether "at most" can be said of it."""
        return self.kind == "bound"


class MuBound(Frozen):
    """A lower confidence bound on mu, by one method."""

    method: str
    mu: Annotated[float, Field(ge=0.0)]


def enough_for(fpr: float, non_members: int) -> bool:
    """Whether so many non-members are enough for one false alarm at this rate."""
    return fpr * non_members * (1.0 + 1.0e-9) >= 1.0


class AttackOutcome(Frozen):
    """One attack on one run (or on several runs of one recipe: `repeats`)."""

    attack: str
    title: str
    needs: tuple[str, ...]  # in words
    members: Count
    non_members: Count
    repeats: Annotated[int, Field(ge=1)]
    seconds: Annotated[float, Field(ge=0.0)]
    roc: Curve
    band: Band
    auc: Estimate
    tpr_at: dict[str, Estimate]  # FPR as a string -> TPR
    tpr_lower: Share | None = None  # lower limit of the TPR at the goal's FPR, for all attacks together
    balanced_accuracy: Estimate
    advantage: Estimate
    # Bounds hold at the audit's confidence for all attacks together, so for the strongest, too.
    mu_lower: Annotated[float, Field(ge=0.0)]  # the default bound
    mu_bounds: tuple[MuBound, ...]  # all of them, each for itself
    epsilon_lower: Annotated[float, Field(ge=0.0)]
    sees: Sees = "gradients"
    attacker_knows: Share = 0.0  # the share of the members on a list that this attacker holds
    # The p-value of the claim about such an attacker: small refutes it. None: nothing was claimed.
    claim_p_value: Share | None = None
    turned: bool = False  # members score lower than non-members, beyond chance for all attacks together
    exceeds_claim: bool = False  # refuted, at the audit's confidence for all attacks together
    # Blocks of at least 1% of the candidates that share a score, as shares of all of them, ranked from low to high.
    ties: tuple[tuple[Share, Share], ...] = ()
    guessed_seed: int | None = None  # of the run, where the attack found it
    cut_short: bool = False  # the attack left something out to be in time
    facts: dict[str, str | bool | int | float] = Field(default_factory=dict)  # that the attack tells about itself
    notes: tuple[str, ...] = ()  # warnings of the attack

    @property
    def blind(self) -> bool:
        """Whether all candidates have the same score, so that the attack is evidence of nothing."""
        return self.roc.fpr == (0.0, 1.0) and self.roc.tpr == (0.0, 1.0)

    def tpr(self, fpr: float) -> float:
        """The measured TPR at a rate, as tables have it; else the highest at no more false alarms."""
        if rate_key(fpr) in self.tpr_at:
            return self.tpr_at[rate_key(fpr)].value
        return max(t for f, t in zip(self.roc.fpr, self.roc.tpr, strict=True) if f <= fpr)

    def measurable(self, fpr: float) -> bool:
        """Whether the non-members are enough for one false alarm at this rate."""
        return enough_for(fpr, self.non_members)

    def found(self, fpr: float) -> Estimate | None:
        """The TPR at the goal's FPR: its lower end is the limit that verdicts rest on, which holds for all attacks
        together. None where the non-members are too few for one false alarm, and the limit shows nothing either."""
        found = self.tpr_at.get(rate_key(fpr))
        if found is None or not (self.measurable(fpr) or (self.tpr_lower or 0.0) > fpr):
            return None
        lower = found.lower if self.tpr_lower is None else min(self.tpr_lower, found.value)
        return Estimate(value=found.value, lower=lower, upper=found.upper)

    @property
    def largest_tie(self) -> float:
        """The share of all candidates that have the most frequent score."""
        return max((high - low for low, high in self.ties), default=0.0)


class Verdict(Frozen):
    """Whether the attacks refute what was claimed.

    Attributes
    ----------
    kind : "exposed", some attack refutes the claim; "consistent", none does and one that is clearly broken would have
        been noticed; "inconclusive", none does and that says little; "measured", nothing was claimed.
    reason : of the test itself. "refuted" (exposed); "enough" candidates (consistent); "blind", all scores are alike,
        "weak-claim", it excludes next to nothing, "ties", most scores are alike, or "too-few" candidates
        (inconclusive); "no-claim" (measured).
    attack : the attack that it rests on: the one that refutes the claim, else the strongest that was judged by it;
        None: none was run.
    judged_by : the curve that was tested, by its key among the run's.
    allowed, allowed_auc, allowed_kind : the TPR at the goal's FPR and the AUC of that curve, and whether it is a bound;
        None: nothing was claimed.
    noticeable_auc : the AUC of the least excess that an audit should notice, where the test asks for one.
    candidates : of each kind that the attack with the fewest ties had, where their number counts.
    candidates_needed : members + non-members that would decide; None: no number would, or enough are there.
    list_leak : the attack by which somebody who holds a list finds more than the claim allows others, or
        None.
    doubts : why nothing is "consistent" although the test said so: declared noise could not be checked, the attacks
        may have looked at the wrong thing (`RunAudit.suspicion`), the record does not match the declared run.
    """

    kind: VerdictKind
    reason: Literal["refuted", "enough", "blind", "weak-claim", "ties", "too-few", "no-claim"]
    attack: str | None
    judged_by: Literal["claimed", "list"] = "claimed"
    allowed: Share | None = None
    allowed_auc: Share | None = None
    allowed_kind: Kind | None = None
    noticeable_auc: Share | None = None
    candidates: Count | None = None
    candidates_needed: Count | None = None
    list_leak: str | None = None
    doubts: tuple[Doubt, ...] = ()

    @property
    def unmatched(self) -> bool:
        """Whether the record fails its check."""
        return "record" in self.doubts


class Suspicion(Frozen):
    """A sign that the attacks looked at the wrong thing.

    Attributes
    ----------
    kind : the model answers its own training records "worse-than-guessing", or "no-better-than-guessing"; or members
        score lower than non-members beyond chance, and by more than any attack finds ("turned"); or non-members have
        the scores of members, as copies of them have ("copies"); or the distance of somebody else's scores from their
        middle tells more than they do ("spread").
    accuracy, guessing : on the training records, and of guessing, of the first two.
    attack : the most turned one, or the one of these scores.
    copied : the share of the smaller side that has a copy on the other.
    blinding : whether an audit that finds nothing clears nothing, so that no gate passes by it.
    """

    kind: Literal["worse-than-guessing", "no-better-than-guessing", "turned", "copies", "spread"]
    blinding: bool
    accuracy: Share | None = None
    guessing: Share | None = None
    attack: str | None = None
    copied: Share | None = None


class Persons(Frozen):
    """Persons with several rows, who were judged by one score each.

    Attributes
    ----------
    on_both_sides : persons with rows among members and among non-members, who were left out.
    uneven : whether members have more rows than non-members, or fewer, beyond chance.
    """

    rows: Count
    persons: Count
    most_rows: Count
    on_both_sides: Count = 0
    uneven: bool = False


class UnusedColumn(Frozen):
    """A column that looks like the ids of persons with several rows, and was not used: each row is a person then."""

    name: str
    values: Count
    rows: Count


class SharedRecords(Frozen):
    """How many of the members and of the non-members that were given are the same records, which were left out."""

    members: Count
    of_members: Count
    non_members: Count
    of_non_members: Count


class Deletion(Frozen):
    """The shares of the people who asked to be deleted of whom traces are found, at 5% false alarms: in the new release
    and, where that is known, in the one before."""

    found: Share
    before: Share | None = None


class ModelLimit(Frozen):
    """What about the model limits what attacks find.

    Attributes
    ----------
    kind : "untried", model and loss could not be tried on a few records; "softmax", the model returns probabilities
        where its loss expects logits; "dropout", it drops units of `layer` while it trains; "own-gradients", those of
        single records are not known.
    problem : why, of the first and the last.
    """

    kind: Literal["untried", "softmax", "dropout", "own-gradients"]
    layer: str | None = None
    problem: str | None = None


class Finding(Frozen):
    """What the strongest attack finds at the goal's FPR: the one with the highest lower limit there."""

    attack: str
    title: str
    tpr: Estimate


class AttackerAnswer(Frozen):
    """What one kind of attacker finds, and whether that is good enough.

    Attributes
    ----------
    sees, knows : who it is: what it sees, and the share of the members on a list that it holds.
    leak : "leak", some attack does better than guessing, at the audit's confidence for all attacks together;
        "none-seen", none does, and a leak as large as the goal would have been noticed with a chance of 80%; "too-few",
        it would not have been; "blind", all attacks gave (nearly) all candidates the same score, or they looked at
        the wrong thing: the record is not that of the declared run, or members score lower than others.
    evidence : what the strongest of its attacks finds at the goal's FPR; None if the attacks are blind, or the
        non-members too few for one false alarm.
    noticed : of "none-seen": the TPR at the goal's FPR that would have been noticed.
    needed : of "too-few": members, and as many non-members, that would be enough.
    target : "missed", an attack finds more than the goal allows, at the audit's confidence; "guaranteed", a bound of
        the accountant for such an attacker keeps it, and nothing speaks against that bound; else "not-guaranteed".
    within_groups : no attack does better than guessing on all candidates, but one does within a group ("leak").
    claimed : the TPR at the goal's FPR that the claim about such an attacker allows; None: there is none.
    worst : the same with the least noise multiplier that the check leaves possible, where a bound keeps the goal.
    tolerance : of "guaranteed": the share of the goal by which `worst`, all that the record alone proves, was allowed
        to exceed it; 0: it does not, so the target is kept whatever was declared.
    tpr_lower : the largest lower bound of any of its attacks on the TPR at the goal's FPR.
    """

    sees: Sees
    knows: Share = 0.0
    leak: Literal["leak", "none-seen", "too-few", "blind"]
    evidence: Finding | None = None
    noticed: Share | None = None
    needed: Count | None = None
    target: Literal["guaranteed", "not-guaranteed", "missed"]
    why: Literal[  # of the target
        "measured",  # missed: an attack finds more
        "group",  # missed within a group alone
        "bound",  # guaranteed by it
        "exceeds",  # not guaranteed: the bound exceeds the goal,
        "forecast",  # the curve is only a forecast,
        "given",  # it was given by whoever asked,
        "no-claim",  # there is none,
        "refuted",  # an attack refuted it,
        "record",  # the record does not match the run,
        "unchecked",  # the noise, scale, clipping or sampling that a bound rests on could not be checked,
        "imprecise",  # or not precisely enough
    ]
    within_groups: bool = False
    claimed: Share | None = None
    worst: Share | None = None
    tolerance: Share = 0.0
    tpr_lower: Share = 0.0


ConclusionKind = Literal["fails", "probably-fails", "inconclusive", "passes", "guaranteed"]


class Conclusion(Frozen):
    """Whether a run is good enough, against all attackers that were tried.

    Attributes
    ----------
    kind : "fails", an attack proves that the goal is missed; "probably-fails", members leak, and an attack measures
        more than the goal allows, but not beyond chance for all attacks together; "inconclusive", nothing can be said;
        "passes", the attacks stay within the goal, which nothing guarantees; "guaranteed", a bound keeps it.
    why : of "fails", "measured" or only within a "group"; of "inconclusive": "no-attack" was run, the "record" fails
        its check, the attacks are "suspect" of having looked at the wrong thing, or "blind", the candidates are
        "too-few", what was measured is above the goal "by-chance", with no sign of a leak, the interval of a leak is
        so "wide" that it includes the goal, or an attack on gradients was "left-out", as it could not run.
    attacker : the place among the answers of the attacker that it is about.
    """

    kind: ConclusionKind
    why: Literal[
        "measured",
        "group",
        "no-attack",
        "record",
        "suspect",
        "blind",
        "too-few",
        "by-chance",
        "wide",
        "left-out",
        "below",
        "bound",
    ]
    attacker: Count = 0


class ExposedRecord(Frozen):
    """A member that the attack which the answer rests on finds most easily; who that is, not what its record says."""

    id: int | str
    score: float
    p_value: Share | None = None
    posterior: Share | None = None  # at even prior odds
    susceptibility: Annotated[float, Field(ge=0.0)] | None = None
    group: str | None = None
    own_mu: Annotated[float, Field(ge=0.0)] | None = None  # by its own gradients; None: not known, or not finite


class GroupOutcome(Frozen):
    """What the attack that the answer rests on finds among the members and non-members of one group.

    Intervals and the bound on mu hold at the audit's confidence for all groups and attacks together. A group with fewer
    than 2 members or 2 non-members is counted but not measured.
    """

    group: str
    members: Count
    non_members: Count
    auc: Estimate | None = None
    tpr_at: dict[str, Estimate] = Field(default_factory=dict)  # FPR in the group as a string -> TPR
    mu_lower: Annotated[float, Field(ge=0.0)] | None = None
    folded: Count = 0  # in what is shared: how many small groups this row stands for


class IndividualMus(Frozen):
    """How the mus of the audited members, each by its own gradients along the run, compare with the claim.

    Attributes
    ----------
    members : how many were looked at.
    claimed_mu : of the claim (of noise alone, if they are by noise alone); None: it has none.
    beyond : the share of them whose own mu is above `claimed_mu`; None without one.
    median_mu, largest_mu : None: not finite.
    kind : "bound", or "forecast" where it rests on measured susceptibilities.
    by : measured susceptibilities, against an attacker who knows no members ("data"); noise alone, against one who
        knows all others ("noise"); or whichever is less ("either").
    """

    members: Count
    claimed_mu: float | None
    beyond: Share | None
    median_mu: float | None
    largest_mu: float | None
    kind: Kind
    by: OwnBy


class Gate(Frozen):
    """The target as a test for pipelines: the lower bound of the TPR at an FPR must not exceed `limit`, nor what was
    measured, where a leak is there beyond chance."""

    fpr: Share
    limit: Share
    tpr_lower: Share  # the highest of all attacks
    attack: str
    passed: bool
    within_group: bool = False  # `tpr_lower` is that of the most exposed group, which alone is above the limit
    blind: bool = False  # it could not fail: too few candidates, or every attack scored all of them alike
    noticeable_tpr: Share | None = None  # about the least TPR with which it fails with a chance of 80%
    doubted: bool = False  # nothing found, and no evidence: of a suspicion, or a record that is not that of the run
    probable: bool = (
        False  # the verdict is "probably-fails": the excess over the limit could be chance, the leak is not
    )


class RunFacts(Frozen):
    """What ran; None: not known. Where `noise_std` is not known, neither is whether gradients were clipped."""

    dataset_size: Count | None = None
    batch_size: Count | None = None
    num_steps: Count | None = None
    num_params: Count | None = None
    sampling: str | None = None
    clip_norm: float | None = None
    noise_std: float | None = None
    noise_multiplier: float | None = None
    optimizer: str | None = None
    learning_rate: float | None = None
    train_accuracy: Share | None = None
    test_accuracy: Share | None = None
    test_records: Count | None = None  # on which `test_accuracy` was measured
    chance_accuracy: Share | None = None  # of guessing among the classes
    complete: bool = True  # False: the run was not finished when it was audited
    recorded_params: Count | None = None  # None: all of num_params
    clients: Count | None = None  # of a federation, whose models are averaged in one recorded step; 1: each was seen


class OmittedAttack(Frozen):
    """An attack that could not run, and the fields of the error that says why (`gmip.errors.GmipError`)."""

    attack: str
    problem: str
    argument: str | None = None
    value: str | None = None  # as an error shows it
    remedy: str | None = None

    @classmethod
    def of(cls, attack: str, error: GmipError) -> OmittedAttack:
        """The attack of this name, because of this error."""
        return cls(
            attack=attack, problem=error.problem, argument=error.argument, value=error.shown, remedy=error.remedy
        )


class RunAudit(Frozen):
    """All about one run."""

    name: str
    source: SourceKind
    path: str | None  # of its trace, or of the file of scores
    task: str = ""  # empty: not known
    facts: RunFacts = RunFacts()
    declared: tuple[NoisySGD, ...] = ()  # what the accountant was asked about; empty: not known how it was trained
    commands: CommandFacts | None = None  # for commands to copy; None: nobody is to repeat the run
    claims: tuple[ClaimedCurve, ...]  # the first is what the verdict is about; none: nothing was claimed
    attacks: tuple[AttackOutcome, ...]  # the strongest first, those who hold a list of members last
    verdict: Verdict  # on the claim
    conclusion: Conclusion = Conclusion(kind="inconclusive", why="no-attack")  # on the goal
    left_out: tuple[OmittedAttack, ...] = ()  # attacks that could not run
    goal: Rate  # what is good enough: at most this TPR at this FPR
    answers: tuple[AttackerAnswer, ...] = ()  # one for each kind of attacker that was tried, who sees most first
    advice: tuple[Advice, ...] = ()
    tried: TriedAccuracy | None = None  # of the run as it is, under the same conditions as those of the advice
    tried_left_out: tuple[UntriedWay, ...] = ()
    noise_curve: NoiseCurve | None = None  # None: not known how the model was trained
    histogram: Histogram | None = None  # of the scores of the attack that ranked the exposed records
    exposed: tuple[ExposedRecord, ...] = ()
    exposed_by: str | None = None  # the attack that ranked them
    groups: tuple[GroupOutcome, ...] = ()  # the most exposed first
    grouped_by: str | None = None  # what the groups are, such as "class"
    individual: IndividualMus | None = None  # None: nothing is known about single records
    gate: Gate | None = None
    check: RunCheck | None = None  # of the record; None: there was none to check
    suspicion: Suspicion | None = None  # that the attacks looked at the wrong thing
    repeated: int = 0  # candidates that were left out because their scores repeat those of another of their side
    persons: Persons | None = None  # None: each candidate is a record
    unused_column: UnusedColumn | None = None
    in_both_files: SharedRecords | None = None
    deletion: Deletion | None = None  # None: nobody asked to be deleted
    limits: tuple[ModelLimit, ...] = ()
    warnings: tuple[str, ...] = ()  # of the attacks; what `facts` give reason to is said by the report

    @property
    def answer(self) -> AttackerAnswer | None:
        """The answer about the strongest attacker that was tried."""
        return next(iter(self.answers), None)

    @property
    def suspect(self) -> bool:
        """Whether the attacks may have looked at the wrong thing, and found nothing that shows the contrary."""
        if self.suspicion is None:
            return False
        return self.suspicion.kind in ("turned", "copies", "spread") or not any(
            one.mu_lower > 0.0 for one in self.attacks
        )

    def __repr__(self) -> str:
        return f"<RunAudit {self.name!r}: {self.verdict.kind}, {len(self.attacks)} attacks>"

    __str__ = __repr__


class AuditProvenance(Frozen):
    """How to repeat the audit."""

    command: str
    seed: int
    versions: dict[str, str]
    platform: str
    fingerprints: dict[str, str]  # of the data, by part
    config: dict[str, object] = Field(default_factory=dict)


class Candidate(NamedTuple):
    """A record that was attacked: who it is, what the attack that the answer rests on says about it, and the truth."""

    id: int | str
    member: bool
    score: float
    p_value: float | None = None
    posterior: float | None = None  # at even prior odds
    susceptibility: float | None = None
    group: str | None = None
    own_mu: float | None = None  # by its own gradients along the run


@dataclass(frozen=True)
class Candidates(Sequence[Candidate]):
    """Candidates as a table, the most exposed first; `columns` are fields of `Candidate`, None where not known."""

    columns: Mapping[str, list[Any] | None]

    def __len__(self) -> int:
        return len(self.columns["score"] or ())

    @overload
    def __getitem__(self, row: int) -> Candidate: ...
    @overload
    def __getitem__(self, row: slice) -> list[Candidate]: ...
    def __getitem__(self, row: int | slice) -> Candidate | list[Candidate]:
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        known: dict[str, Any] = {name: values and values[row] for name, values in self.columns.items()}
        return Candidate(**known)


class _Beside(dict[str, Candidates]):
    """Candidates by run, beside a result and no part of it: results that are otherwise equal are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Beside)

    __hash__ = None


class AuditResult(Frozen):
    """An audit of one or more runs. In memory its candidates come with it, which `write_report` writes; result.json has
    the most exposed only."""

    _candidates: _Beside = PrivateAttr(default_factory=_Beside)

    format: Literal["gmip-audit"] = FORMAT
    version: Literal[1] = VERSION
    title: str
    created: str  # ISO 8601, UTC
    confidence: Share
    delta: Share
    runs: Annotated[tuple[RunAudit, ...], Field(min_length=1)]
    provenance: AuditProvenance

    @property
    def threat_model(self) -> ThreatModel:
        """What the attackers of this audit are taken to see, at the most."""
        sources, sees = {run.source for run in self.runs}, {one.sees for run in self.runs for one in run.attacks}
        if sources & {"recorded", "trained"}:
            return "training"
        if "released" in sources or "weights" in sees:
            return "released"
        return "predictions" if "predictions" in sees or sources & {"predictions", "estimator"} else "scores"

    @property
    def passed(self) -> bool | None:
        """Whether every run passes the gate, as the exit code of `gmip audit --gate` says; None: there was none."""
        gates = [run.gate for run in self.runs if run.gate is not None]
        return all(gate.passed for gate in gates) if gates else None

    def raise_for_gate(self) -> None:
        """Raises `gmip.GateFailed`, in one sentence, unless the audit passes its gate."""
        from gmip.report.sentences import failed_gates

        if self.passed is None:
            raise InvalidArgument("The audit had no gate", remedy="audit with `gate` = True")
        if not self.passed:
            raise GateFailed("; ".join(one.rstrip(".") for one in failed_gates(self)))

    @property
    def candidates(self) -> Mapping[str, Candidates]:
        """Run -> all its candidates, the most exposed first; empty where the result was read from a file."""
        return self._candidates

    def with_candidates(self, candidates: Mapping[str, Candidates]) -> Self:
        copy = self.model_copy()
        copy._candidates = _Beside(candidates)
        return copy

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{run.name!r} {run.verdict.kind}" for run in self.runs[:3])
        more = f" and {len(self.runs) - 3} more" if len(self.runs) > 3 else ""
        return f"<AuditResult {self.title!r}: {verdicts}{more}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Notebooks show the verdicts and the curves; no record and no folder is named."""
        from gmip.report.html import to_card

        return to_card(self)


def numbered(names: Sequence[str]) -> list[str]:
    """These names, each once: one that was there before gets a number."""
    found: list[str] = []
    for base in names:
        name, count = base, 1
        while name in found:
            count += 1
            name = f"{base} ({count})"
        found.append(name)
    return found


def automatic_title(runs: Sequence[RunAudit], hidden: Sequence[str] = ()) -> str:
    """The title of an audit that nobody gave one: it names the tasks, or the runs without one, but for the hidden."""
    names = dict.fromkeys(run.task or run.name for run in runs)
    shown = ", ".join(name for name in names if name not in hidden)
    return f"Membership audit of {shown}" if shown else "Membership audit"


def merged(first: AuditResult, second: AuditResult) -> AuditResult:
    """The runs of both; a name that both have gets a number. Confidence and delta must agree, or nothing compares."""
    for name in ("confidence", "delta"):
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours != theirs:
            raise InvalidArgument(
                f"The audits differ in {name}, {ours:g} and {theirs:g}", remedy=f"audit again with the same `{name}`"
            )
    every = (*first.runs, *second.runs)
    names = numbered([run.name for run in every])
    runs = tuple(run.model_copy(update={"name": name}) for name, run in zip(names, every, strict=True))
    provenance = first.provenance.model_copy(
        update={
            "command": f"{first.provenance.command}; {second.provenance.command}",
            "fingerprints": first.provenance.fingerprints | second.provenance.fingerprints,
            "config": {},
        }
    )
    given = dict.fromkeys(one.title for one in (first, second) if one.title != automatic_title(one.runs))
    title = " and ".join(given) or automatic_title(runs)
    return first.model_copy(update={"title": title, "runs": runs, "provenance": provenance})
