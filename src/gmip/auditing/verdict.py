"""What was claimed against what was measured: the test of the claim, and the gate of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from scipy.special import ndtr, ndtri

from gmip._numbers import rate_key
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.attacker_answers import enough_candidates, exposed_group
from gmip.auditing.schema import AttackOutcome, Doubt, Gate, GroupOutcome, Verdict
from gmip.stats import Pooled, RunScores, noticeable_tpr, pool, tie_blocks, tpr_lower_bound

__all__ = ["gate", "tpr_lower_bounds", "verdict"]

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
    leaks = [one for one in attacks if one.attacker_knows and one.mu_lower > 0.0 and _beyond(one, claimed, fpr)]
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


def _beyond(attack: AttackOutcome, claimed: TradeOff, fpr: float) -> bool:
    return attack.tpr(fpr) > claimed.tpr_at(fpr) or attack.auc.value > claimed.auc()


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


def tpr_lower_bounds(
    scores: Mapping[str, Sequence[RunScores] | Pooled], *, fpr: float, confidence: float, seed: int
) -> dict[str, float]:
    """Lower bounds on the TPR of each attack at a rate, which hold together: they share the error."""
    share = 1.0 - (1.0 - confidence) / max(len(scores), 1)
    return {name: tpr_lower_bound(runs, fpr, confidence=share, seed=seed) for name, runs in scores.items()}


def gate(
    scores: Mapping[str, Sequence[RunScores] | Pooled],
    *,
    limit: float,
    fpr: float,
    confidence: float,
    seed: int,
    doubted: bool = False,
    groups: Sequence[GroupOutcome] = (),
) -> Gate:
    """Whether no attack finds more than `limit` at `fpr`, beyond doubt, in all candidates or in one of `groups`. Where
    finding nothing is no evidence (`doubted`), it does not pass."""
    lower = tpr_lower_bounds(scores, fpr=fpr, confidence=confidence, seed=seed)
    worst, name = max((least, name) for name, least in lower.items())
    most = exposed_group(groups, fpr)
    within = 0.0 if most is None else most.tpr_at[rate_key(fpr)].lower
    in_group = worst <= limit < within
    worst = within if in_group else worst
    pooled = {attack: runs if isinstance(runs, Pooled) else pool(runs) for attack, runs in scores.items()}
    noticeable = [
        noticeable_tpr(
            runs.members.size,
            runs.non_members.size,
            limit=limit,
            fpr=fpr,
            confidence=1.0 - (1.0 - confidence) / len(scores),
            ties=tie_blocks(runs.members, runs.non_members),
        )
        for runs in pooled.values()
        if min(runs.members.min(), runs.non_members.min()) < max(runs.members.max(), runs.non_members.max())
    ]
    seen = [tpr for tpr in noticeable if tpr is not None]
    return Gate(
        fpr=fpr,
        limit=limit,
        tpr_lower=worst,
        attack=name,
        passed=worst <= limit and not doubted,
        within_group=in_group,
        blind=worst <= limit and not doubted and not seen,
        doubted=worst <= limit and doubted,
        noticeable_tpr=min(seen, default=None),
    )
