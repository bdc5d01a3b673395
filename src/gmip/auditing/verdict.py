"""What the numbers of attacks say about a leak, the target, the claim, and the limit of a pipeline."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import numpy as np
from scipy.special import ndtr, ndtri

from gmip._numbers import rate_key
from gmip.accounting.tradeoff import TradeOff
from gmip.attacks.attack_table import ATTACKS
from gmip.auditing.curves import excludes_nothing
from gmip.auditing.schema import (
    AttackerAnswer,
    AttackOutcome,
    ClaimedCurve,
    Conclusion,
    Doubt,
    Finding,
    Gate,
    GroupOutcome,
    OmittedAttack,
    RunAudit,
    RunFacts,
    Sees,
    Suspicion,
    Verdict,
    enough_for,
)
from gmip.errors import UnreachableTarget
from gmip.stats import (
    Pooled,
    bounds,
    candidates_needed,
    noticeable_mu,
    noticeable_tpr,
    tie_blocks,
    tpr_lower_bound,
)
from gmip.vocabulary import Rate

# -- does it leak -----------------------------------------------------------------------------------------------------


_HOPELESS: Final = 100  # where ties ask for this many times the candidates, the score measures nothing
_TOLERANCE: Final = 0.1  # of the goal, by which a bound may exceed it if the run is as bad as its check leaves possible
_ORDER: Final[tuple[Sees, ...]] = get_args(Sees)


def attacker_answers(
    attacks: Sequence[AttackOutcome],
    claims: Sequence[ClaimedCurve],
    *,
    goal: Rate,
    lower: Mapping[str, float],
    confidence: float,
    sound_record: bool = True,
    checked: bool = True,
    worst: Mapping[str, float] | None = None,
    doubted: bool = False,
) -> tuple[AttackerAnswer, ...]:
    """One answer for each kind of attacker, the one who sees and knows most first. Stronger attackers can run weaker
    attacks, too: an answer rests on all attacks that its attacker can run.

    Parameters
    ----------
    claims : the accountant's: "claimed" is about attackers who hold no list, "list" about those who do. A claim about
        an attacker who sees every gradient covers those who see less.
    lower : attack -> lower bound on its TPR at the goal's FPR, at `confidence` for all attacks together.
    sound_record : whether the record of the run is that of the declared run, as far as it was checked.
    checked : whether all that bounds rest on (noise, scale, clipping, sampling, no other training) was checked.
    worst : key of a bound -> its TPR at the goal's FPR if noise, scale and clipping are as bad as the check of the
        record leaves possible, where that is more than its own.
    doubted : whether the attacks looked at the wrong thing, so that finding nothing is no evidence.

    Guarantees
    ----------
    "leak" where there is none, and "missed" where the goal is kept, have each a chance of at most 1 - confidence for
    all attacks together, as far as scores are independent given the run. "guaranteed" is the accountant's bound, with
    its assumptions; if the run is as bad as its check leaves possible, it exceeds the goal by at most a tenth.
    """
    shared = 1.0 - (1.0 - confidence) / max(len(attacks), 1)
    made = []
    # In both cases the run is not what the accountant was told.
    against = "refuted" if any(one.exceeds_claim for one in attacks) else None if sound_record else "record"
    for rank, without in sorted(set(map(_kind, attacks))):
        own = [one for one in attacks if _available(one, rank, without)]
        claim = next((p for p in claims if p.key == ("claimed" if without else "list")), None)
        found = _leak(own, goal, shared, sound_record and not doubted)
        least = max((lower.get(one.attack, 0.0) for one in own), default=0.0)
        # What holds against whoever knows more, or against anybody, holds against this attacker, too.
        covering = [p for p in claims if p is claim or p.key in ("gdp", "list")]
        target = _target(claim, covering, goal, least, against, checked, worst or {})
        shown = found["leak"] != "blind" or target["target"] == "missed"
        made.append(
            AttackerAnswer(
                sees=_ORDER[rank],
                knows=max(one.attacker_knows for one in own),
                **found,
                evidence=_strongest(own, goal) if shown else None,
                **target,
                tpr_lower=least,
            )
        )
    return tuple(made)


def with_groups(
    answers: Sequence[AttackerAnswer], groups: Sequence[GroupOutcome], attack: AttackOutcome, goal: Rate
) -> tuple[AttackerAnswer, ...]:
    """The answers after a look into groups, by an attack that finds more there: offsets between groups can hide it.

    Guarantees
    ----------
    A group changes an answer falsely with a chance of at most 1 - confidence, for all groups and attacks together, in
    addition to that of the answers themselves.
    """
    if attack.blind:
        return tuple(answers)
    worst = exposed_group(groups, goal.fpr)
    missed = worst is not None and worst.tpr_at[rate_key(goal.fpr)].lower > goal.tpr
    leaking = any(one.mu_lower for one in groups)
    made = []
    for answer in answers:
        if _available(attack, _ORDER.index(answer.sees), answer.knows == 0.0):
            if missed and answer.target != "missed":
                answer = answer.model_copy(update={"target": "missed", "why": "group"})
            if leaking and answer.leak != "leak":
                found = {"leak": "leak", "within_groups": True, "noticed": None, "needed": None}
                answer = answer.model_copy(update=found)
        made.append(answer)
    return tuple(made)


def exposed_group(groups: Sequence[GroupOutcome], fpr: float) -> GroupOutcome | None:
    """The group of which most is found at a rate, by its lower bound; of those with enough non-members."""
    key = rate_key(fpr)
    able = [one for one in groups if key in one.tpr_at and enough_for(fpr, one.non_members)]
    return max(able, key=lambda one: one.tpr_at[key].lower, default=None)


def _kind(attack: AttackOutcome) -> tuple[int, bool]:
    return _ORDER.index(attack.sees), attack.attacker_knows == 0.0


def _available(attack: AttackOutcome, rank: int, without: bool) -> bool:
    """Whether an attacker of that kind can run it: it needs to see no more, and no list that he does not hold."""
    sees, listless = _kind(attack)
    return sees >= rank and (listless or not without)


def leading_attack(attacks: Sequence[AttackOutcome], answers: Sequence[AttackerAnswer]) -> AttackOutcome | None:
    """The strongest attack, by which records and groups are ranked: that of the first answer; where that has no
    evidence, the one that shows most of a leak at all rates together."""
    found = next((one.evidence.attack for one in answers[:1] if one.evidence is not None), None)
    most = max(attacks, key=lambda one: (not one.blind, one.mu_lower, one.auc.value), default=None)
    return next((one for one in attacks if one.attack == found), most)


def conclude(
    answers: Sequence[AttackerAnswer],
    *,
    goal: Rate,
    sound_record: bool = True,
    doubted: bool = False,
    measurable: bool = True,
    untried: bool = False,
) -> Conclusion:
    """What the answers about all attackers say together about the goal.

    measurable : whether the non-members are enough for one false alarm at the goal's FPR; where they are not, what was
        found there is no measurement, and only a lower limit says anything.
    untried : whether an attack that sees gradients could not run (`untried_gradients`): what others did not find says
        little.

    Guarantees
    ----------
    "fails" where the goal is kept has a chance of at most twice 1 - confidence (all attacks together, and all groups
    together). "guaranteed" is the accountant's bound, with its assumptions. The others are no proof of anything.
    """
    if not answers:
        return Conclusion(kind="inconclusive", why="no-attack")
    for place, one in enumerate(answers):
        if one.target == "missed":
            return Conclusion(kind="fails", why="group" if one.why == "group" else "measured", attacker=place)
    if not sound_record:
        return Conclusion(kind="inconclusive", why="record")
    if all(one.target == "guaranteed" for one in answers):
        return Conclusion(kind="guaranteed", why="bound")
    if doubted:
        return Conclusion(kind="inconclusive", why="suspect")
    return _unproved(answers, goal, measurable, untried)


def _unproved(answers: Sequence[AttackerAnswer], goal: Rate, measurable: bool, untried: bool) -> Conclusion:
    """Where neither an attack nor a bound decides: what was measured."""
    above = [i for i, one in enumerate(answers) if one.evidence is not None and one.evidence.tpr.value > goal.tpr]
    leaking = [i for i in above if answers[i].leak == "leak"]
    if leaking and measurable:
        return Conclusion(kind="probably-fails", why="measured", attacker=leaking[0])
    if untried:
        return Conclusion(kind="inconclusive", why="left-out")
    if answers[0].leak == "blind":
        return Conclusion(kind="inconclusive", why="blind")
    if answers[0].leak == "too-few" or answers[0].evidence is None or not measurable:
        return Conclusion(kind="inconclusive", why="too-few")
    if above:
        return Conclusion(kind="inconclusive", why="by-chance", attacker=above[0])
    for place, one in enumerate(answers):  # a leak whose interval includes the goal says nothing
        if one.leak == "leak" and one.evidence is not None and one.evidence.tpr.upper > goal.tpr:
            return Conclusion(kind="inconclusive", why="wide", attacker=place)
    return Conclusion(kind="passes", why="below")


def untried_gradients(left_out: Sequence[OmittedAttack]) -> bool:
    """Whether one of the attacks on gradients, which find more than others, is among those that could not run."""
    return any(one.attack in ATTACKS and "gradients" in ATTACKS[one.attack].needs for one in left_out)


def claim_of(run: RunAudit, answer: AttackerAnswer) -> ClaimedCurve | None:
    """The claim that the answer about the target names: the bound that keeps it, else that about such an attacker."""
    own = next((one for one in run.claims if one.key == ("list" if answer.knows else "claimed")), None)
    if answer.why not in ("bound", "unchecked", "imprecise"):
        return own
    fpr = run.goal.fpr
    covering = [p for p in run.claims if p is own or p.key in ("gdp", "list")]
    return next((p for p in covering if p.is_bound and p.tpr(fpr) == answer.claimed), own)


def is_own_bound(claim: ClaimedCurve) -> bool:
    """Whether it is a bound that the accountant proves, not one that somebody names."""
    return claim.is_bound and claim.origin == "accountant"


def _leak(attacks: Sequence[AttackOutcome], goal: Rate, confidence: float, trusted: bool) -> dict[str, Any]:
    seeing = [one for one in attacks if not one.blind]
    if any(one.mu_lower > 0.0 for one in seeing):
        return {"leak": "leak"}
    if not seeing or not trusted or any(one.turned for one in seeing):
        return {"leak": "blind"}
    finest = min(seeing, key=lambda one: one.largest_tie)  # what could have noticed most
    size = min(finest.members, finest.non_members)
    wanted = float(ndtri(goal.tpr) - ndtri(goal.fpr))
    mu = noticeable_mu(size, confidence=confidence, ties=finest.ties)
    if mu <= wanted:
        return {"leak": "none-seen", "noticed": float(ndtr(mu + ndtri(goal.fpr)))}
    needed = enough_candidates(0.0, wanted, finest.ties, confidence) if wanted > 0.0 else None
    if wanted > 0.0 and finest.ties and (needed is None or needed > _HOPELESS * size):
        return {"leak": "blind"}
    return {"leak": "too-few", "needed": needed}


def _strongest(attacks: Sequence[AttackOutcome], goal: Rate) -> Finding | None:
    """The attack with the highest lower limit at the goal's FPR; of those with none, the one that shows most of a leak
    at all rates together."""
    able = [(one, found) for one in attacks if not one.blind and (found := one.found(goal.fpr)) is not None]
    if not able:
        return None
    best, tpr = max(able, key=lambda pair: (pair[1].lower, pair[0].mu_lower, pair[0].auc.value))
    return Finding(attack=best.attack, title=best.title, tpr=tpr)


def enough_candidates(
    claimed: float, actual: float, ties: Sequence[tuple[float, float]], confidence: float
) -> int | None:
    """The number that `candidates_needed` finds; None where no number is enough, because scores tie."""
    try:
        return candidates_needed(claimed=claimed, actual=actual, confidence=confidence, ties=ties)
    except UnreachableTarget:
        return None


def _target(
    own: ClaimedCurve | None,
    covering: Sequence[ClaimedCurve],
    goal: Rate,
    lower: float,
    against: str | None,
    checked: bool,
    worst: Mapping[str, float],
) -> dict[str, Any]:
    claimed = None if own is None else own.tpr(goal.fpr)
    if lower > goal.tpr:
        return {"target": "missed", "why": "measured", "claimed": claimed}
    bounds = [(worst.get(p.key, p.tpr(goal.fpr)), p.tpr(goal.fpr)) for p in covering if is_own_bound(p)]
    most, least = min((pair for pair in bounds if pair[1] <= goal.tpr), default=(1.0, 1.0))
    kept = least <= goal.tpr
    if against is not None:
        why = against
    elif kept and checked:
        return _by_bound(least, most, goal)
    elif kept:
        why, claimed = "unchecked", least
    else:
        why = _no_bound(own, claimed, goal)
    return {"target": "not-guaranteed", "why": why, "claimed": claimed}


def _by_bound(least: float, most: float, goal: Rate) -> dict[str, Any]:
    """By a bound of `least`, which is `most` if the run is as bad as its check leaves possible."""
    kept = most <= goal.tpr * (1.0 + _TOLERANCE)
    return {
        "target": "guaranteed" if kept else "not-guaranteed",
        "why": "bound" if kept else "imprecise",
        "claimed": least,
        "worst": most if most > least else None,
        "tolerance": _TOLERANCE if kept and most > goal.tpr else 0.0,
    }


def _no_bound(own: ClaimedCurve | None, claimed: float | None, goal: Rate) -> str:
    """Why no bound keeps the goal."""
    if own is None or claimed is None or excludes_nothing(claimed):
        return "no-claim"
    if claimed > goal.tpr:
        return "exceeds"
    return "given" if own.standing == "given" else "forecast"


# -- what was claimed against what was measured -----------------------------------------------------------------------


_WEAK_CLAIM: Final = 3.0  # mu beyond which a claimed curve excludes next to nothing
_MOSTLY_TIED: Final = 0.5  # with more equal scores than that, ties and not numbers are what an audit lacks
_LEAST_EXCESS: Final = 0.5  # in mu: an audit should notice this much more than claimed, or twice the claim


def verdict(
    attacks: Sequence[AttackOutcome],
    claimed: TradeOff | None,
    *,
    fpr: float,
    confidence: float,
    listed: TradeOff | None = None,
    doubts: Sequence[Doubt] = (),
) -> Verdict:
    """Consistent, more exposed than claimed, or inconclusive; "measured" where nothing was claimed.

    Exposed: some attack refutes the claimed curve at `confidence`, all attacks taken together. Inconclusive: none does,
    but the candidates are too few to notice, with a chance of 80%, a run whose mu exceeds the claimed one by 0.5 or by
    the claim itself, whichever is more; or the claim, beyond mu = 3, excludes so little that nothing can refute it; or
    every attack gave all candidates the same score; or there are `doubts` that what was attacked is what was declared.

    Parameters
    ----------
    attacks : the strongest first, those that gave one score last.
    fpr : the false-alarm rate at which the curves are compared.
    listed : the curve for attackers who hold a list that contains members; they are judged by it alone, and where there
        is nobody else, so is the run.
    """
    if claimed is None:
        strongest = max(attacks, key=lambda one: one.mu_lower)  # the first of those that find nothing
        return Verdict(kind="measured", reason="no-claim", attack=strongest.attack, doubts=tuple(doubts))
    found = _tested(attacks, claimed, listed, fpr=fpr, confidence=confidence)
    allowed, area = claimed.tpr_at(fpr), claimed.auc()
    leaks = [
        one
        for one in attacks
        if one.attacker_knows and one.mu_lower > 0.0 and (one.tpr(fpr) > allowed or one.auc.value > area)
    ]
    worst = max(leaks, key=lambda one: (one.tpr(fpr), one.auc.value), default=None)
    refuted = found.kind == "exposed"
    return found.model_copy(
        update={
            "kind": "inconclusive" if doubts and not refuted else found.kind,
            "candidates_needed": None if "record" in doubts else found.candidates_needed,
            "list_leak": None if worst is None else worst.attack,
            "doubts": tuple(one for one in doubts if one == "record" or not refuted),
        }
    )


def _tested(
    attacks: Sequence[AttackOutcome], claimed: TradeOff, listed: TradeOff | None, *, fpr: float, confidence: float
) -> Verdict:
    """The test of the claim, taken by itself."""
    others = [one for one in attacks if not one.attacker_knows]
    curves = {"claimed": claimed, "list": claimed if listed is None else listed}
    judged_by = "claimed" if listed is None or others else "list"

    def made(kind: str, reason: str, attack: AttackOutcome, by: str = judged_by, **numbers: Any) -> Verdict:
        curve = curves[by]
        named = {"kind": kind, "reason": reason, "attack": attack.attack, "judged_by": by, "allowed_kind": curve.kind}
        allowed = {"allowed": curve.tpr_at(fpr), "allowed_auc": min(curve.auc(), 1.0)}
        return Verdict.model_validate({**named, **allowed, **numbers})

    refuted = [one for one in attacks if one.exceeds_claim]
    if refuted:
        worst = min(refuted, key=lambda one: (one.claim_p_value or 0.0, -one.auc.value))
        by = "list" if listed is not None and worst.attacker_knows else judged_by
        return made("exposed", "refuted", worst, by)
    strongest = next(iter(others or attacks))
    if strongest.blind:
        return made("inconclusive", "blind", strongest)
    mu = math.sqrt(2.0) * float(ndtri(min(max(curves[judged_by].auc(), 0.5), 1.0 - 1.0e-12)))
    if mu > _WEAK_CLAIM:
        return made("inconclusive", "weak-claim", strongest)
    noticed = mu + max(mu, _LEAST_EXCESS)
    finest = min(others or attacks, key=lambda one: one.largest_tie)  # what could have noticed most
    needed = enough_candidates(mu, noticed, finest.ties, 1.0 - (1.0 - confidence) / len(attacks))
    area, at_hand = float(ndtr(noticed / math.sqrt(2.0))), min(finest.members, finest.non_members)
    if needed is None or (at_hand < needed and finest.largest_tie > _MOSTLY_TIED):
        return made("inconclusive", "ties", finest, noticeable_auc=area)
    if at_hand < needed:
        needed *= 2
        return made(
            "inconclusive", "too-few", strongest, noticeable_auc=area, candidates=at_hand, candidates_needed=needed
        )
    return made("consistent", "enough", strongest, noticeable_auc=area)


def tpr_lower_bounds(scores: Mapping[str, Pooled], *, fpr: float, confidence: float, seed: int) -> dict[str, float]:
    """Lower bounds on the TPR of each attack at a rate, which hold together: they share the error. One score for all
    candidates is no evidence, whatever chance makes of the ties."""
    share = 1.0 - (1.0 - confidence) / max(len(scores), 1)
    return {
        name: tpr_lower_bound(runs, fpr, confidence=share, seed=seed) if _tells_apart(runs) else 0.0
        for name, runs in scores.items()
    }


def _tells_apart(scores: Pooled) -> bool:
    """Whether not all candidates have one score."""
    return bool(
        min(scores.members.min(), scores.non_members.min()) < max(scores.members.max(), scores.non_members.max())
    )


def gate(
    scores: Mapping[str, Pooled],
    lower: Mapping[str, float],
    *,
    limit: float,
    fpr: float,
    confidence: float,
    doubted: bool = False,
    probable: bool = False,
    groups: Sequence[GroupOutcome] = (),
) -> Gate:
    """Whether no attack finds more than `limit` at `fpr`, beyond doubt, in all candidates or in one of `groups`. Where
    finding nothing is no evidence (`doubted`), or the run probably fails (`probable`), it does not pass.

    `lower` : attack -> lower bound on its TPR, at `confidence` for all attacks together."""
    worst, name = max((least, name) for name, least in lower.items())
    in_group = False
    if worst <= limit and (most := exposed_group(groups, fpr)) is not None:
        within = most.tpr_at[rate_key(fpr)].lower
        in_group, worst = within > limit, within if within > limit else worst
    share = 1.0 - (1.0 - confidence) / len(scores)
    noticeable = [_noticeable(runs, limit=limit, fpr=fpr, confidence=share) for runs in scores.values()]
    seen = [tpr for tpr in noticeable if tpr is not None]
    kept = worst <= limit
    passed = kept and not doubted and not probable
    return Gate(
        fpr=fpr,
        limit=limit,
        tpr_lower=worst,
        attack=name,
        passed=passed,
        within_group=in_group,
        blind=passed and not seen,
        doubted=kept and doubted,
        probable=kept and not doubted and probable,
        noticeable_tpr=min(seen, default=None),
    )


def _noticeable(scores: Pooled, *, limit: float, fpr: float, confidence: float) -> float | None:
    """About the least TPR at which these candidates would close a gate; None: no TPR would."""
    if not _tells_apart(scores):
        return None
    sizes, ties = (scores.members.size, scores.non_members.size), tie_blocks(scores.members, scores.non_members)
    return noticeable_tpr(*sizes, limit=limit, fpr=fpr, confidence=confidence, ties=ties)


# -- whether the attacks may have looked at the wrong thing -----------------------------------------------------------


_ERRORS: Final = 2.0  # standard errors within which an accuracy is that of guessing
_CLEARLY: Final = 3.0  # standard errors below it that are no chance: one model of 700 that knows nothing
_BLINDING_COPIES: Final = 0.05  # of the smaller side: so many copies, and finding nothing is no evidence


def is_turned(scores: Pooled, *, confidence: float, seed: int) -> bool:
    """Whether members score lower than non-members, beyond chance: scores that say nothing are called so with a chance
    of at most a fifth of 1 - confidence, because a sound audit that is called blind is a nuisance."""
    confidence = 1.0 - (1.0 - confidence) / 5.0
    turned = dataclasses.replace(scores, members=-scores.members, non_members=-scores.non_members)
    return bounds.mu_lower_bound(turned, confidence=confidence, method="gaussian-sum", seed=seed) > 0.0


def folded_mu(scores: Pooled, *, confidence: float, seed: int) -> float:
    """Lower bound on the mu of an attacker who asks how far a score is from the middle of all, whichever of the two
    kinds is nearer to it; with a tenth of the error for each way. Scores of several runs are not looked at."""
    if scores.num_runs > 1:
        return 0.0
    middle = float(np.median(np.concatenate([scores.members, scores.non_members])))
    error = (1.0 - confidence) / 10.0
    return max(
        bounds.mu_lower_bound(
            dataclasses.replace(
                scores,
                members=sign * np.abs(scores.members - middle),
                non_members=sign * np.abs(scores.non_members - middle),
            ),
            confidence=1.0 - error,
            method="gaussian-sum",
            seed=seed,
        )
        for sign in (-1.0, 1.0)
    )


def _spread(scores: Mapping[str, Pooled], attacks: Sequence[AttackOutcome], confidence: float) -> Suspicion | None:
    most = max((mu.mu for one in attacks for mu in one.mu_bounds), default=0.0)
    share = 1.0 - (1.0 - confidence) / max(len(attacks), 1)
    for one in attacks:
        if one.sees == "scores" and folded_mu(scores[one.attack], confidence=share, seed=0) > most:
            return Suspicion(kind="spread", blinding=True, attack=one.attack)
    return None


def suspicion(
    facts: RunFacts,
    attacks: Sequence[AttackOutcome],
    copied: float = 0.0,
    scores: Mapping[str, Pooled] | None = None,
    confidence: float = 0.95,
) -> Suspicion | None:
    """Copies of members among the non-members (`copied` is their share); a model that answers its own records no better
    than guessing (noise explains that; nothing else should); an attack that finds less than guessing, and would find
    more than all others if it were turned round; or `scores` of somebody else of which the distance from the middle
    tells more than they do. One that blinds the audit comes before one that does not."""
    turned = [one for one in attacks if one.turned]
    found = [
        Suspicion(kind="copies", blinding=copied >= _BLINDING_COPIES, copied=copied) if copied else None,
        _guessing(facts, attacks),
        _turned(turned, attacks),
        None if scores is None or turned else _spread(scores, attacks, confidence),
    ]
    there = [one for one in found if one is not None]
    return next((one for one in there if one.blinding), next(iter(there), None))


def _guessing(facts: RunFacts, attacks: Sequence[AttackOutcome]) -> Suspicion | None:
    right, chance = facts.train_accuracy, facts.chance_accuracy
    if right is not None and chance is not None and not facts.noise_std:
        records = facts.dataset_size or max(one.members for one in attacks)
        error = math.sqrt(chance * (1.0 - chance) / max(records, 1))
        if right < chance - _CLEARLY * error:
            return Suspicion(kind="worse-than-guessing", blinding=True, accuracy=right, guessing=chance)
        if right <= chance + _ERRORS * error:
            return Suspicion(kind="no-better-than-guessing", blinding=False, accuracy=right, guessing=chance)
    return None


def _turned(turned: Sequence[AttackOutcome], attacks: Sequence[AttackOutcome]) -> Suspicion | None:
    if not turned:
        return None
    worst = min(turned, key=lambda one: one.auc.value)
    as_good = 1.0 - worst.auc.value - 1.0e-12  # the same scores, turned round by the user, are no sign
    if any(one.mu_lower > 0.0 and one.auc.value >= as_good for one in attacks):
        return None
    return Suspicion(kind="turned", blinding=True, attack=worst.attack)
