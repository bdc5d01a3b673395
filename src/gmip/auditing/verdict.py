"""Promise against measurement, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from scipy.special import ndtr, ndtri

from gmip._numbers import chance, count, interval, number, percent, rate, rate_key
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.attacker_answers import enough_candidates, exposed_group
from gmip.auditing.check_schema import RunCheck
from gmip.auditing.promises import excludes_nothing
from gmip.auditing.schema import AttackOutcome, Gate, GroupOutcome, Verdict, VerdictKind
from gmip.stats import Pooled, RunScores, noticeable_tpr, pool, tie_blocks, tpr_lower_bound

__all__ = [
    "PREDICTIONS_THREAT_MODEL",
    "RELEASED_THREAT_MODEL",
    "SCORES_THREAT_MODEL",
    "THREAT_MODEL",
    "gate",
    "tpr_lower_bounds",
    "verdict",
]

THREAT_MODEL: Final = (
    "The attacker sees every published mean gradient and the parameters at each step, as in federated learning; the "
    "table of attacks says what each of them needs of that.",
    "The promise is about an attacker who knows nobody else in the data. One who holds a list that contains members is "
    "judged by the promise for such an attacker.",
    "The attacker neither poisons nor chooses the training data.",
    "Candidates are drawn from the distribution of the data: nothing is claimed about a record made to be found.",
    "Batch means are taken to be Gaussian (central limit theorem): promises that assume this are approximate.",
    "f-membership-inference privacy is weaker than f-differential privacy: it averages over the data, and gives no "
    "guarantee for a worst-case data set.",
    "An audit measures the attacks that were tried. It can refute a promise, it cannot prove one.",
)

SCORES_THREAT_MODEL: Final = (
    "The attacker knows what the scores were computed from. This audit saw the scores and who was a member, not how "
    "the scores were made.",
    "Who was a member is taken as given, and the scores must not have been computed from it.",
    "Members and non-members are taken to come from the same distribution: if they differ in anything else (date, "
    "site, source), that difference looks like a leak.",
    "Scores of different candidates are taken to be independent, given the run.",
    THREAT_MODEL[-1],
)

PREDICTIONS_THREAT_MODEL: Final = (
    "The attacker sees what the model answers about a record, and what the table of attacks says beside it: its label, "
    "reference models. Gradients and weights are not attacked.",
    SCORES_THREAT_MODEL[1].split(",")[0] + ".",
    "Reference models are taken to be trained as the model was, on records of the same distribution; where the table "
    "does not say what they were trained on, on none of these records.",
    *SCORES_THREAT_MODEL[2:],
)

RELEASED_THREAT_MODEL: Final = (
    "The attacker has the released model, or asks it; the table of attacks says what each of them needs beside that. "
    "How it was trained, and its gradients, were not attacked: an attacker who saw them may find more.",
    SCORES_THREAT_MODEL[1].split(",")[0] + ".",
    "Records of the task's pool that are in neither list are taken to be non-members, and attacks may use them.",
    *SCORES_THREAT_MODEL[2:],
)

_HARDLY_A_PROMISE: Final = 3.0  # mu beyond which a claimed curve excludes next to nothing
_MOSTLY_TIED: Final = 0.5  # with more equal scores than that, ties and not numbers are what an audit lacks
_LEAST_EXCESS: Final = 0.5  # in mu: an audit should notice this much more than claimed, or twice the claim


def verdict(
    attacks: Sequence[AttackOutcome],
    claimed: TradeOff | None,
    *,
    fpr: float,
    confidence: float,
    listed: TradeOff | None = None,
) -> Verdict:
    """Consistent, more exposed than claimed, or inconclusive; "measured" where nothing was claimed.

    Exposed: some attack refutes the claimed curve at `confidence`, all attacks taken together. Inconclusive: none does,
    but the candidates are too few to notice, with a chance of 80%, a run whose mu exceeds the claimed one by 0.5 or by
    the claim itself, whichever is more; or the claim, beyond mu = 3, excludes so little that nothing can refute it; or
    every attack gave all candidates the same score. `attacks` : the strongest first, those that gave one score last.
    `fpr` is the false-alarm rate that sentences speak of. `listed` is the promise for attackers who hold a list that
    contains members; they are judged by it alone, and where there is nobody else, so is the run. Where one of them
    does better than guessing and finds more than the claimed curve allows others, the headline says so.
    """
    if claimed is None:
        return _measured(attacks, fpr=fpr)
    judged = _judged(attacks, claimed, listed, fpr=fpr, confidence=confidence)
    leaks = [one for one in attacks if one.attacker_knows and one.mu_lower > 0.0 and _beyond(one, claimed, fpr)]
    if not leaks:
        return judged
    worst = max(leaks, key=lambda one: (_tpr(one, fpr), one.auc.value))
    words = (
        f"An attacker who holds a list of {percent(worst.attacker_knows, 'nearest')} of the members ({worst.title}) "
        f"finds {percent(_tpr(worst, fpr), 'nearest')} of those on it at {rate(fpr)} false alarms."
    )
    if judged.kind == "exposed":
        headline = f"{judged.headline} {words}"
    else:
        alone = all(one.attacker_knows for one in attacks)
        whom = "Judged by the promise for such an attacker" if alone else "Without a list"
        headline = f"{words} {whom}: {judged.headline[:1].lower()}{judged.headline[1:]}"
    return judged.model_copy(update={"headline": headline, "list_leak": True})


def unverified(judged: Verdict) -> Verdict:
    """The verdict where noise was declared and could not be checked: then nothing is consistent."""
    if judged.kind != "consistent":
        return judged
    said = judged.headline.replace("Consistent with the promise: no attack", "no attack")
    return judged.model_copy(
        update={
            "kind": "inconclusive",
            "headline": f"Inconclusive: the declared noise could not be checked, and {said[:1].lower()}{said[1:]}",
        }
    )


def doubtful(judged: Verdict, words: str) -> Verdict:
    """The verdict where the attacks may have looked at the wrong thing: that comes first, and nothing is consistent."""
    if judged.kind == "exposed":
        return judged
    kind: VerdictKind = "measured" if judged.kind == "measured" else "inconclusive"
    label = "No promise was tested" if kind == "measured" else "Inconclusive"
    headline = f"{label}: {words[:1].lower()}{words[1:]}"
    return judged.model_copy(update={"kind": kind, "headline": headline, "reasons": (judged.headline, *judged.reasons)})


def unmatched(judged: Verdict, check: RunCheck) -> Verdict:
    """The verdict on a run whose record fails its check: that comes first, and nothing is consistent after it."""
    rest = "What the attacks found says nothing about the promise until that is fixed."
    if judged.kind == "exposed":
        rest = judged.headline
    elif judged.list_leak:
        rest = judged.headline.split(" Without a list: ")[0].split(" Judged by the promise")[0]
    return judged.model_copy(
        update={
            "kind": judged.kind if judged.kind in ("exposed", "measured") else "inconclusive",
            "headline": f"{check.headline} {rest}",
            "reasons": (*(f"{one.title}: {one.sentence}" for one in check.failed), *judged.reasons),
            "candidates_needed": None,
            "unmatched": True,
        }
    )


def _beyond(attack: AttackOutcome, claimed: TradeOff, fpr: float) -> bool:
    return _tpr(attack, fpr) > claimed.tpr_at(fpr) or attack.auc.value > claimed.auc()


def _judged(
    attacks: Sequence[AttackOutcome], claimed: TradeOff, listed: TradeOff | None, *, fpr: float, confidence: float
) -> Verdict:
    others = [one for one in attacks if not one.attacker_knows]
    if listed is None or not others:
        claimed = claimed if listed is None else listed
        extra: tuple[str, ...] = ()
    else:
        extra = tuple(_with_list(one, listed, fpr) for one in attacks if one.attacker_knows)
    promised = claimed.tpr_at(fpr)
    strongest = next(iter(others or attacks))
    promised_area = number(min(claimed.auc(), 1.0), "up")
    at = f"{rate(fpr)} false alarms"
    most = "at most" if claimed.kind == "bound" else "about"
    limit = f"{percent(promised, 'up')} of the members at {at}"
    found = [_found(one) for one in attacks]
    refuted = [one for one in attacks if one.exceeds_claim]
    if refuted:
        worst = min(refuted, key=lambda one: (one.claim_p_value or 0.0, -one.auc.value))
        unlikely = chance(worst.claim_p_value or 0.0)
        broken = listed if listed is not None and worst.attacker_knows else claimed
        promised, promised_area = broken.tpr_at(fpr), number(min(broken.auc(), 1.0), "up")
        most = "at most" if broken.kind == "bound" else "about"
        return Verdict(
            kind="exposed",
            headline=(
                f"More exposed than claimed: {worst.title} separates members from non-members better than the promise "
                f"allows. It finds {percent(_tpr(worst, fpr), 'nearest')} of the members at {at} (promised: {most} "
                f"{percent(promised, 'up')}), and its AUC is {number(worst.auc.value, 'nearest')} (promised: {most} "
                f"{promised_area})."
            ),
            reasons=(
                f"If the promise held, the probability of scores like these would be {unlikely}.",
                *extra,
                *found,
            ),
        )
    if strongest.blind:
        return Verdict(
            kind="inconclusive",
            headline=(
                f"Inconclusive: no attack could test the promise (at most {limit}), because each gave all candidates "
                "the same score."
            ),
            reasons=("Try other attacks: gmip attacks lists them.", *extra, *found),
        )
    without = " without a list" if extra else ""
    best = f"The strongest attack{without}, {strongest.title}, finds {percent(_tpr(strongest, fpr), 'nearest')}"
    mu = math.sqrt(2.0) * float(ndtri(min(max(claimed.auc(), 0.5), 1.0 - 1.0e-12)))
    if mu > _HARDLY_A_PROMISE:
        return Verdict(
            kind="inconclusive",
            headline=(
                f"Inconclusive: the promise is too weak to test, because it allows an attacker to find up to {limit}. "
                f"{best}."
            ),
            reasons=(
                "Judge by what the attacks found, or train with more noise or larger batches for a stronger promise.",
                *extra,
                *found,
            ),
        )
    noticed = mu + max(mu, _LEAST_EXCESS)
    finest = min(others or attacks, key=lambda one: one.largest_tie)  # what could have noticed most
    needed = enough_candidates(mu, noticed, finest.ties, 1.0 - (1.0 - confidence) / len(attacks))
    excess = f"an AUC of {number(float(ndtr(noticed / math.sqrt(2.0))), 'nearest')} instead of {promised_area}"
    at_hand = min(finest.members, finest.non_members)
    if needed is None or (at_hand < needed and finest.largest_tie > _MOSTLY_TIED):
        return Verdict(
            kind="inconclusive",
            headline=(
                f"Inconclusive: no attack found significantly more than promised ({most} {limit}), but "
                f"{percent(finest.largest_tie, 'nearest')} of the candidates have the same score ({finest.title}),"
                " so it could hardly have found more."
            ),
            reasons=("Use scores that tell candidates apart, or try other attacks.", *extra, *found),
        )
    if at_hand < needed:
        return Verdict(
            kind="inconclusive",
            headline=(
                f"Inconclusive: no attack found significantly more than promised ({most} {limit}), but "
                f"{count(at_hand)} candidates of each kind are too few to be sure; about {count(needed)} are needed."
            ),
            reasons=(
                f"An audit should detect {excess} with a probability of 80%. Use more candidates, or repeat the run.",
                *extra,
                *found,
            ),
            candidates_needed=2 * needed,
        )
    return Verdict(
        kind="consistent",
        headline=(
            f"Consistent with the promise: no attack found significantly more than promised ({most} {limit}). {best}."
        ),
        reasons=(
            f"There are enough candidates to detect {excess} with a probability of 80%.",
            *extra,
            *found,
        ),
    )


def _measured(attacks: Sequence[AttackOutcome], *, fpr: float) -> Verdict:
    """Nothing was promised: what was found, and whether it is more than guessing finds."""
    strongest = max(attacks, key=lambda one: one.mu_lower)  # the first of those that find nothing
    finds = (
        f"{percent(_tpr(strongest, fpr), 'nearest')} of the members at {rate(fpr)} false alarms (guessing: {rate(fpr)})"
    )
    if strongest.blind:
        words = "nothing was measured either, because each attack gave all candidates the same score"
    elif strongest.mu_lower > 0.0:
        words = f"members can be told from non-members: {strongest.title} finds {finds}, mu is at least "
        words += number(strongest.mu_lower, "down")
    else:
        words = f"no attack did significantly better than guessing; the strongest, {strongest.title}, finds {finds}"
    return Verdict(
        kind="measured",
        headline=f"No promise was tested: {words}.",
        reasons=(
            "Nothing was promised, so nothing could be refuted; this is what was measured.",
            *map(_found, attacks),
        ),
    )


def _with_list(attack: AttackOutcome, listed: TradeOff, fpr: float) -> str:
    """What an attacker found who holds a list that contains members, and what was promised against one."""
    share = percent(attack.attacker_knows, "nearest")
    promised = listed.tpr_at(fpr)
    most = "at most" if listed.kind == "bound" else "about"
    against = f"promised against such an attacker: {most} {percent(promised, 'up')}"
    if excludes_nothing(promised):
        against = "nothing is promised against such an attacker, so the list can give everything away"
    return (
        f"An attacker who holds a list that contains {share} of the members ({attack.title}) finds "
        f"{percent(_tpr(attack, fpr), 'nearest')} of them at {rate(fpr)} false alarms; {against}."
    )


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


def _found(one: AttackOutcome) -> str:
    if one.blind:
        return f"{one.title}: all candidates got the same score, which neither supports nor refutes a promise."
    return (
        f"{one.title}: AUC {number(one.auc.value, 'nearest')} ({interval(one.auc.lower, one.auc.upper, share=False)}), "
        f"mu at least {number(one.mu_lower, 'down')}"
        + ("." if one.claim_p_value is None else f", p-value of the promise {chance(one.claim_p_value)}.")
    )


def _tpr(attack: AttackOutcome, fpr: float) -> float:
    """The measured TPR, as the tables of a report have it; else the highest at no more false alarms."""
    if rate_key(fpr) in attack.tpr_at:
        return min(max(attack.tpr_at[rate_key(fpr)].value, 0.0), 1.0)
    return max(t for f, t in zip(attack.roc.fpr, attack.roc.tpr, strict=True) if f <= fpr)
