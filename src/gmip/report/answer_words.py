"""The words of an audit beside the card: how the claim fared, what curves are called, doubts, which run to ship."""

from __future__ import annotations

from typing import Final

from gmip._numbers import chance, count, interval, number, percent, rate, rate_key
from gmip.attacks.attack_table import ATTACKS
from gmip.auditing.curves import excludes_nothing
from gmip.auditing.schema import (
    AttackerAnswer,
    AttackOutcome,
    AuditResult,
    ClaimedCurve,
    ConclusionKind,
    Estimate,
    GroupOutcome,
    RunAudit,
    Suspicion,
    ThreatModel,
    enough_for,
)
from gmip.auditing.verdict import exposed_group
from gmip.report import check_words
from gmip.report.account_words import most

# -- the claim --------------------------------------------------------------------------------------------------------


_CANNOT_PROVE: Final = "An audit measures the attacks that were tried. It can refute a claim, it cannot prove one."
_SAME_DISTRIBUTION: Final = (
    "Members and non-members are assumed to come from the same distribution. Any other difference between them "
    "(date, site, source) looks like a leak."
)
_INDEPENDENT: Final = "Scores of different candidates are assumed independent, given the run."
_LABELS_GIVEN: Final = "The membership labels are assumed correct"

# What the attackers of an audit are taken to see, and what its numbers assume.
THREAT_MODELS: Final[dict[ThreatModel, tuple[str, ...]]] = {
    "training": (
        "The attacker sees every published mean gradient and the parameters at each step, as in federated learning. "
        "The table of attacks lists what each attack needs.",
        "The claim is about an attacker who knows no members. Attackers with a list are tested against the claim "
        "for a list.",
        "The attacker neither poisons nor chooses the training data.",
        "Candidates come from the distribution of the data. No claim covers a record that was crafted to be found.",
        "Batch means are assumed Gaussian (central limit theorem), so claims that rest on it are approximate.",
        "f-membership-inference privacy is weaker than f-differential privacy: it averages over the data, and gives no "
        "guarantee for a worst-case data set.",
        _CANNOT_PROVE,
    ),
    "released": (
        "The attacker has the released model or queries it. The table of attacks lists what else each attack needs. "
        "The training and its gradients were not attacked: an attacker who saw them may find more.",
        f"{_LABELS_GIVEN}.",
        "Records of the task's pool that are in neither list are assumed to be non-members. Attacks may use them.",
        _SAME_DISTRIBUTION,
        _INDEPENDENT,
        _CANNOT_PROVE,
    ),
    "predictions": (
        "The attacker sees the model's predictions and what the table of attacks lists: labels, reference models. "
        "Gradients and weights are not attacked.",
        f"{_LABELS_GIVEN}.",
        "Reference models, if any, are assumed to be trained like the model, on records of the same distribution. "
        "Where the table does not say which, they are assumed to have seen none of these records.",
        _SAME_DISTRIBUTION,
        _INDEPENDENT,
        _CANNOT_PROVE,
    ),
    "scores": (
        "The attacker can compute the scores. This audit saw the scores and the membership labels, not how the "
        "scores were made.",
        f"{_LABELS_GIVEN}, and the scores must not use them.",
        _SAME_DISTRIBUTION,
        _INDEPENDENT,
        _CANNOT_PROVE,
    ),
}
_WEAK: Final = frozenset(name for name, one in ATTACKS.items() if one.on_arrays and not one.compares)


def verdict_headline(run: RunAudit) -> str:
    """The test of the claim in one or two sentences."""
    verdict = run.verdict
    if not run.attacks:
        return "No attack was run."
    leak = "" if verdict.list_leak is None else f" {_list_leak(run, _attack(run, verdict.list_leak))}"
    if verdict.unmatched and run.check is not None and verdict.kind != "exposed":
        return f"{check_words.headline(run.check)} Until that is fixed the claim is not tested.{leak}"
    if "suspect" in verdict.doubts and run.suspicion is not None:
        return f"Claim not tested. {suspicion(run, run.suspicion)}"
    if "noise-unchecked" in verdict.doubts and verdict.reason == "enough":
        return f"Claim not tested: the declared noise could not be checked.{leak}"
    return f"{_tested(run)}{leak}"


def _tested(run: RunAudit) -> str:
    """What the test of the claim said, taken by itself."""
    verdict, fpr = run.verdict, run.goal.fpr
    attack, at = _attack(run, verdict.attack), f"{rate(fpr)} false alarms"
    if verdict.reason == "no-claim":
        return "No claim was tested."
    tested = next((one for one in run.claims if one.key == verdict.judged_by), None)
    word = "claim" if tested is None else claim_word(tested)
    allowed = f"{word}: {most(verdict.allowed_kind or 'forecast')} {percent(verdict.allowed or 0.0, 'up')} at {at}"
    if verdict.reason == "refuted":
        if attack.tpr(fpr) > (verdict.allowed or 0.0):
            return f"Claim refuted: {attack.title} finds {percent(attack.tpr(fpr), 'nearest')} ({allowed})."
        if attack.auc.value > (verdict.allowed_auc or 0.0):
            auc, area = number(attack.auc.value, "nearest"), number(verdict.allowed_auc or 0.0, "up")
            return f"Claim refuted: the AUC of {attack.title} is {auc}; the claim allows {area}."
        return f"Claim refuted by all false-alarm rates together ({attack.title}; {allowed})."
    if verdict.reason == "enough":
        return f"Consistent with the claim: no attack found significantly more ({allowed})."
    if verdict.reason == "blind":
        return "Claim not tested: every attack gave all candidates the same score."
    if verdict.reason == "weak-claim":
        return f"Claim not testable: it excludes too little ({allowed})."
    if verdict.reason == "ties":
        tied = percent(attack.largest_tie, "nearest")
        return f"Claim not tested: {tied} of the candidates have the same score ({attack.title})."
    enough = verdict.candidates_needed
    needed = "" if enough is None else f"; about {count(enough // 2)} are needed"
    return f"Claim not tested: {count(verdict.candidates or 0)} candidates of each kind are too few{needed}."


def verdict_reasons(run: RunAudit) -> list[str]:
    """The reasons: what failed, what the test needs, and both claims where there are two."""
    if not run.attacks:
        return []
    failed = run.check.failed if run.verdict.unmatched and run.check is not None else ()
    said = [f"{check_words.title(one)}: {check_words.sentence(one)}" for one in failed]
    verdict, attack = run.verdict, _attack(run, run.verdict.attack)
    excess = ""
    if verdict.noticeable_auc is not None and verdict.allowed_auc is not None:
        expected = number(verdict.allowed_auc, "up")
        excess = f"an AUC of {number(verdict.noticeable_auc, 'nearest')} instead of {expected}"
    said += {
        "refuted": [f"Probability of such scores if the claim held: {chance(attack.claim_p_value or 0.0)}."],
        "enough": [f"80% power to detect {excess}."],
        "blind": ["Try other attacks: gmip attacks lists them."],
        "weak-claim": ["Train with more noise or larger batches for a guarantee that can be tested."],
        "ties": ["Use scores that differ between candidates, or try other attacks."],
        "too-few": [f"A test should have 80% power to detect {excess}: use more candidates, or repeat the run."],
        "no-claim": [],
    }[verdict.reason]
    return [*said, *([both] if (both := both_claims(run)) else [])]


def _list_leak(run: RunAudit, worst: AttackOutcome) -> str:
    fpr = run.goal.fpr
    return (
        f"An attacker with a list of {percent(worst.attacker_knows, 'nearest')} of the members finds "
        f"{percent(worst.tpr(fpr), 'nearest')} of them at {rate(fpr)} false alarms ({worst.title})."
    )


def both_claims(run: RunAudit) -> str:
    """What the accountant says by noise and data (GMIP), and by noise alone (GDP), where it says both; else empty."""
    kinds = {one.key: one for one in run.claims}
    ours, alone = kinds.get("claimed"), kinds.get("gdp")
    if ours is None or alone is None or ours.origin == "given":
        return ""
    first, second = (allowed(one, run.goal.fpr) for one in (ours, alone))
    game = ""
    if alone.adjacency == "zero-out-one":
        game = (
            " The second can be smaller: it compares with the record's gradient set to zero, the first with another "
            "record in its place, a larger change."
        )
    return (
        f"Accountant at {rate(run.goal.fpr)} false alarms: {first} by noise and the randomness of the data (GMIP); "
        f"{second} by noise alone (differential privacy, {alone.adjacency or 'for any data'}).{game}"
    )


def allowed(claim: ClaimedCurve, fpr: float) -> str:
    """What a curve says, under its name: "guarantee: at most 5%", "forecast: about 5%", "no guarantee"."""
    share = claim.tpr(fpr)
    if claim.is_bound and excludes_nothing(share):
        return "no guarantee"
    return f"{claim_word(claim)}: {most(claim.kind)} {percent(share, 'up')}"


def claim_word(claim: ClaimedCurve) -> str:
    """What a curve is, from its type: a claim that somebody gave, a guarantee (a bound) or a forecast."""
    if claim.origin == "given":
        return "claim"
    return "guarantee" if claim.is_bound else "forecast"


def _attack(run: RunAudit, name: str | None) -> AttackOutcome:
    return next((one for one in run.attacks if one.attack == name), run.attacks[0])


def curve_name(claim: ClaimedCurve) -> str:
    """What a curve is called, in tables and beside it."""
    worth = claim_word(claim).capitalize()
    if claim.key == "list":
        share = percent(1.0 if claim.knows is None else claim.knows, "nearest")
        return f"{worth} against an attacker with a list of {share} of the members"
    if claim.origin == "given":
        numbers = given_words(claim)
        return f"Claim: {numbers}" if numbers else "Claim"
    return {
        "claimed": f"{worth} by the accountant (GMIP)",
        "susceptibility": f"{worth} from measured susceptibilities",
        "gdp": f"{worth} by noise alone (differential privacy)",
        "prediction": "Forecast by self-play, without member labels",
    }[claim.key]


def given_words(claim: ClaimedCurve) -> str:
    """The numbers that somebody claims; empty where nobody does, or a curve is claimed."""
    given = claim.given
    if given is None:
        return ""
    said = ""
    if given.mu is not None:
        said = f"mu = {given.mu:g}"
    elif given.epsilon is not None:
        said = f"epsilon = {given.epsilon:g} at delta = {given.delta or 0.0:g}"
    meant = "" if claim.adjacency is None else f"differential privacy, {claim.adjacency}"
    return f"{said} ({meant})" if said and meant else said or meant


# -- doubts -----------------------------------------------------------------------------------------------------------


def suspicion(run: RunAudit, found: Suspicion) -> str:
    """Why the attacks may have looked at the wrong thing."""
    check = "check the weights, the order of the classes and the preprocessing"
    if found.kind == "turned":
        worst = _attack(run, found.attack)
        cause = f"A model fits its members: {check}, and that members and non-members are not swapped."
        if worst.sees == "scores":
            cause = "High scores must mean members. If these mean the opposite, negate them and audit again."
        auc = number(worst.auc.value, "nearest")
        return f"Members score lower than non-members, beyond chance ({worst.title}, AUC {auc}). {cause}"
    if found.kind == "spread":
        return (
            f"The distance of a score from the middle separates members better than its height "
            f"({_attack(run, found.attack).title}): audit that distance as a score, too."
        )
    if found.kind == "copies":
        return (
            f"{percent(found.copied or 0.0, 'nearest')} of the candidates have the same scores as one on the other "
            f"side: some records seem to be both members and non-members. No attack can distinguish copies, so "
            f"finding nothing is no evidence. Pass non-members that were not in the training data."
        )
    right, guessing = (percent(share or 0.0, "nearest") for share in (found.accuracy, found.guessing))
    numbers = f"({right} right, guessing: {guessing})"
    if found.kind == "worse-than-guessing":
        return (
            f"The model answers its own training records worse than guessing {numbers}: {check}. Until then, "
            f"finding nothing is no evidence."
        )
    return (
        f"The model answers its own training records no better than guessing {numbers}: if that is not what you "
        f"expect, {check}."
    )


def turned_scores(run: RunAudit) -> list[str]:
    """What is to be said of scores that are the wrong way round, where they come from somebody else."""
    if run.source not in ("scores", "predictions", "estimator"):
        return []
    turned = [one.title for one in run.attacks if one.auc.upper < 0.5 and not (run.suspect and one.turned)]
    return [
        f"{title}: members score lower than non-members. High scores must mean members. If these mean the opposite, "
        f"as a loss does, negate them and audit again."
        for title in turned
    ]


def mostly_tied(run: RunAudit) -> str | None:
    """Says so where every attack gave most candidates one score; else None."""
    least = min((one.largest_tie for one in run.attacks), default=0.0)
    return f"{percent(least, 'nearest')} of the candidates have the same score" if least > 0.5 else None


def weak_attacks(run: RunAudit, answer: AttackerAnswer) -> str:
    """Says that stronger attacks were not tried, where that is so."""
    own = {one.attack for one in run.attacks if one.sees == answer.sees}
    if answer.sees != "predictions" or not own <= _WEAK:
        return ""
    return " Only attacks without shadow models were tried: LiRA and RMIA (--attacks lira,rmia) are stronger."


def within_group(run: RunAudit, fpr: float) -> str:
    """What is found in the most exposed group; a group that is not named, in what is shared, has no number."""
    worst = exposed_group(run.groups, fpr)
    if worst is None:
        return "more is found within a small group"
    found = worst.tpr_at[rate_key(fpr)]
    between = interval(found.lower, found.upper, share=True)
    return f"{percent(found.value, 'nearest')} ({between}) of the members of the group {worst.group!r} are found"


def measured_at(found: AttackOutcome | GroupOutcome, key: str) -> Estimate | None:
    """The TPR at a rate; None where the non-members are too few for one false alarm at that rate."""
    few = found.non_members and not enough_for(float(key), found.non_members)
    return None if few else found.tpr_at.get(key)


IF_DECLARED: Final = "guaranteed if the run is as declared"


def guaranteed(run: RunAudit) -> str:
    """What a run is whose target a bound keeps: with a condition, where its record alone proves a little less."""
    return IF_DECLARED if run.answer is not None and run.answer.tolerance else "guaranteed"


# -- several runs -----------------------------------------------------------------------------------------------------


def ship(result: AuditResult) -> tuple[ConclusionKind, str]:
    """Which of several runs to ship, and the best verdict of any: the most accurate one that is guaranteed, else which
    one passes the attacks."""
    kept = [run for run in result.runs if run.conclusion.kind == "guaranteed"]
    if kept:
        best = max(kept, key=lambda run: run.facts.test_accuracy or 0.0)
        share = best.facts.test_accuracy
        most = ", the highest of the guaranteed runs" if len(kept) > 1 else ""
        accuracy = "" if share is None else f", with {percent(share, 'nearest')} test accuracy{most}"
        return "guaranteed", f"Ship {best.name!r}: its target is {guaranteed(best)}{accuracy}."
    passing = [run for run in result.runs if run.conclusion.kind == "passes"]
    if not passing:
        return "fails", "Ship none of these runs: none is guaranteed, and none passes the attacks."
    best = max(passing, key=lambda run: run.facts.test_accuracy or 0.0)
    return "passes", f"No run is guaranteed. {best.name!r} passes the attacks, which is no guarantee."
