"""The verdict on what was claimed in words, what casts doubt on it, and what attackers are taken to see."""

from __future__ import annotations

from typing import Final

from gmip._numbers import chance, count, interval, number, percent, rate
from gmip.auditing.curves import excludes_nothing
from gmip.auditing.schema import AttackOutcome, ClaimedCurve, RunAudit, Suspicion, ThreatModel, Verdict
from gmip.report import check_words

__all__ = [
    "LABELS",
    "THREAT_MODELS",
    "allowed_words",
    "claim_word",
    "curve_name",
    "given_words",
    "headline",
    "label",
    "reasons",
    "says",
    "suspicion",
    "turned_scores",
]

LABELS: Final = {
    "consistent": "Consistent with the claim",
    "exposed": "More exposed than claimed",
    "inconclusive": "Inconclusive",
    "measured": "No claim was tested",
}
_CANNOT_PROVE: Final = "An audit measures the attacks that were tried. It can refute a claim, it cannot prove one."
_SAME_DISTRIBUTION: Final = (
    "Members and non-members are taken to come from the same distribution: if they differ in anything else (date, "
    "site, source), that difference looks like a leak."
)
_INDEPENDENT: Final = "Scores of different candidates are taken to be independent, given the run."
_LABELS_GIVEN: Final = "Who was a member is taken as given"

# What the attackers of an audit are taken to see, and what its numbers assume.
THREAT_MODELS: Final[dict[ThreatModel, tuple[str, ...]]] = {
    "training": (
        "The attacker sees every published mean gradient and the parameters at each step, as in federated learning; "
        "the table of attacks says what each of them needs of that.",
        "The claim is about an attacker who knows nobody else in the data. One who holds a list that contains "
        "members is judged by the claim about such an attacker.",
        "The attacker neither poisons nor chooses the training data.",
        "Candidates are drawn from the distribution of the data: nothing is claimed about a record made to be found.",
        "Batch means are taken to be Gaussian (central limit theorem): claims that assume this are approximate.",
        "f-membership-inference privacy is weaker than f-differential privacy: it averages over the data, and gives no "
        "guarantee for a worst-case data set.",
        _CANNOT_PROVE,
    ),
    "released": (
        "The attacker has the released model, or asks it; the table of attacks says what each of them needs beside "
        "that. How it was trained, and its gradients, were not attacked: an attacker who saw them may find more.",
        f"{_LABELS_GIVEN}.",
        "Records of the task's pool that are in neither list are taken to be non-members, and attacks may use them.",
        _SAME_DISTRIBUTION,
        _INDEPENDENT,
        _CANNOT_PROVE,
    ),
    "predictions": (
        "The attacker sees what the model answers about a record, and what the table of attacks says beside it: its "
        "label, reference models. Gradients and weights are not attacked.",
        f"{_LABELS_GIVEN}.",
        "Reference models are taken to be trained as the model was, on records of the same distribution; where the "
        "table does not say what they were trained on, on none of these records.",
        _SAME_DISTRIBUTION,
        _INDEPENDENT,
        _CANNOT_PROVE,
    ),
    "scores": (
        "The attacker knows what the scores were computed from. This audit saw the scores and who was a member, not "
        "how the scores were made.",
        f"{_LABELS_GIVEN}, and the scores must not have been computed from it.",
        _SAME_DISTRIBUTION,
        _INDEPENDENT,
        _CANNOT_PROVE,
    ),
}


def label(verdict: Verdict) -> str:
    """The answer in few words: not that a claim holds where an attacker whom it is not about finds more."""
    if verdict.unmatched and verdict.kind != "exposed":
        return "The record does not match the run"
    if verdict.list_leak is not None and verdict.kind != "exposed":
        return "Exposed to an attacker with a list"
    return LABELS[verdict.kind]


def headline(run: RunAudit) -> str:
    """The verdict in one or two sentences."""
    verdict = run.verdict
    if not run.attacks:
        return "No attack was run: nothing was measured."
    leak = "" if verdict.list_leak is None else _list_leak(run, _attack(run, verdict.list_leak))
    if verdict.unmatched and run.check is not None:
        rest = leak or "What the attacks found says nothing about the claim until that is fixed."
        if verdict.kind == "exposed":
            rest = f"{_tested(run)} {leak}".strip()
        return f"{check_words.headline(run.check)} {rest}"
    if "suspect" in verdict.doubts and run.suspicion is not None:
        return f"{LABELS[verdict.kind]}: {_uncapitalised(suspicion(run, run.suspicion))}"
    said = _tested(run)
    if "noise-unchecked" in verdict.doubts and verdict.reason == "enough":
        said = f"Inconclusive: the declared noise could not be checked, and {_consistent(run)}"
    if not leak:
        return said
    if verdict.kind == "exposed":
        return f"{said} {leak}"
    alone = all(one.attacker_knows for one in run.attacks)
    whom = "Judged by the claim about such an attacker" if alone else "Without a list"
    return f"{leak} {whom}: {_uncapitalised(said)}"


def reasons(run: RunAudit) -> list[str]:
    """The verdict for those who ask why: what failed, what the test needs, and what each attack found."""
    if not run.attacks:
        return []
    verdict, goal = run.verdict, run.goal
    failed = run.check.failed if verdict.unmatched and run.check is not None else ()
    said = [f"{check_words.title(one)}: {check_words.sentence(one)}" for one in failed]
    if "suspect" in verdict.doubts:
        said.append(_tested(run))
    said += _power(run)
    by_key = {one.key: one for one in run.claims}
    listed = by_key.get("list", by_key.get("claimed"))
    if listed is not None and not all(one.attacker_knows for one in run.attacks):
        judged = [one for one in run.attacks if one.attacker_knows and one.claim_p_value is not None]
        said += [_with_list(one, listed, goal.fpr) for one in judged]
    return [*said, *map(_found, run.attacks)]


def suspicion(run: RunAudit, found: Suspicion) -> str:
    """Why the attacks may have looked at the wrong thing."""
    check = "check the weights, the order of the classes and the preprocessing"
    if found.kind == "turned":
        worst = _attack(run, found.attack)
        cause = f"Members are fitted, so this should not be: {check}, and that members and others are not exchanged."
        if worst.sees == "scores":
            cause = "A score must be high for a member: if it means the opposite, negate it and audit again."
        auc = number(worst.auc.value, "nearest")
        return f"Members score lower than non-members, beyond chance ({worst.title}, AUC {auc}). {cause}"
    right, guessing = (percent(share or 0.0, "nearest") for share in (found.accuracy, found.guessing))
    numbers = f"({right} right, guessing: {guessing})"
    if found.kind == "worse-than-guessing":
        return (
            f"The model answers its own training records worse than guessing {numbers}: {check}. Until then nothing "
            "that was not found is evidence."
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
        f"{title}: members score lower than non-members. A high score must mean a member: if this one means the "
        "opposite, as a loss does, negate it and audit again."
        for title in turned
    ]


# -- the test of the claim --------------------------------------------------------------------------------------------


def _tested(run: RunAudit) -> str:
    """What the test of the claim said, taken by itself."""
    verdict, goal = run.verdict, run.goal
    attack = _attack(run, verdict.attack)
    found, at = percent(attack.tpr(goal.fpr), "nearest"), f"{rate(goal.fpr)} false alarms"
    if verdict.reason == "no-claim":
        return f"No claim was tested: {_measured(attack, goal.fpr)}."
    most, allowed = _most(run), percent(verdict.allowed or 0.0, "up")
    limit = f"{allowed} of the members at {at}"
    if verdict.reason == "refuted":
        auc, allowed_auc = number(attack.auc.value, "nearest"), number(verdict.allowed_auc or 0.0, "up")
        return (
            f"More exposed than claimed: {attack.title} separates members from non-members better than the claim "
            f"allows. It finds {found} of the members at {at} ({most} {allowed}), and its AUC is {auc} "
            f"({most} {allowed_auc})."
        )
    if verdict.reason == "blind":
        return (
            f"Inconclusive: no attack could test the claim ({most} {limit}), because each gave all candidates the "
            "same score."
        )
    if verdict.reason == "weak-claim":
        return (
            "Inconclusive: the claim is too weak to test, because it allows an attacker to find up to "
            f"{limit}. {_best(run)}"
        )
    if verdict.reason == "enough":
        said = _consistent(run)
        return f"Consistent with the claim: {said}"
    nothing = f"Inconclusive: no attack found significantly more than claimed ({most} {limit}), but "
    if verdict.reason == "ties":
        return (
            f"{nothing}{percent(attack.largest_tie, 'nearest')} of the candidates have the same score "
            f"({attack.title}), so it could hardly have found more."
        )
    needed = _needed(verdict)
    return f"{nothing}{count(verdict.candidates or 0)} candidates of each kind are too few to be sure{needed}."


def _needed(verdict: Verdict) -> str:
    needed = verdict.candidates_needed
    return "" if needed is None else f"; about {count(needed // 2)} are needed"


def _consistent(run: RunAudit) -> str:
    verdict, goal = run.verdict, run.goal
    limit = f"{percent(verdict.allowed or 0.0, 'up')} of the members at {rate(goal.fpr)} false alarms"
    return f"no attack found significantly more than claimed ({_most(run)} {limit}). {_best(run)}"


def _best(run: RunAudit) -> str:
    attack, goal = _attack(run, run.verdict.attack), run.goal
    knowing = {one.attacker_knows > 0.0 for one in run.attacks if one.claim_p_value is not None}
    without = " without a list" if len(knowing) == 2 else ""
    return f"The strongest attack{without}, {attack.title}, finds {percent(attack.tpr(goal.fpr), 'nearest')}."


def _measured(attack: AttackOutcome, fpr: float) -> str:
    found = percent(attack.tpr(fpr), "nearest")
    finds = f"{found} of the members at {rate(fpr)} false alarms (guessing: {rate(fpr)})"
    if attack.blind:
        return "nothing was measured either, because each attack gave all candidates the same score"
    if attack.mu_lower > 0.0:
        least = number(attack.mu_lower, "down")
        return f"members can be told from non-members: {attack.title} finds {finds}, mu is at least {least}"
    return f"no attack did significantly better than guessing; the strongest, {attack.title}, finds {finds}"


def _power(run: RunAudit) -> list[str]:
    verdict = run.verdict
    attack = _attack(run, verdict.attack)
    excess = ""
    if verdict.noticeable_auc is not None and verdict.allowed_auc is not None:
        expected = number(verdict.allowed_auc, "up")
        excess = f"an AUC of {number(verdict.noticeable_auc, 'nearest')} instead of {expected}"
    return {
        "refuted": [
            f"If the claim held, the probability of scores like these would be {chance(attack.claim_p_value or 0.0)}."
        ],
        "enough": [f"There are enough candidates to detect {excess} with a probability of 80%."],
        "blind": ["Try other attacks: gmip attacks lists them."],
        "weak-claim": [
            "Judge by what the attacks found, or train with more noise or larger batches for a stronger guarantee."
        ],
        "ties": ["Use scores that tell candidates apart, or try other attacks."],
        "too-few": [
            f"An audit should detect {excess} with a probability of 80%. Use more candidates, or repeat the run."
        ],
        "no-claim": ["Nothing was claimed, so nothing could be refuted; this is what was measured."],
    }[verdict.reason]


def _list_leak(run: RunAudit, worst: AttackOutcome) -> str:
    goal = run.goal
    return (
        f"An attacker who holds a list of {percent(worst.attacker_knows, 'nearest')} of the members ({worst.title}) "
        f"finds {percent(worst.tpr(goal.fpr), 'nearest')} of those on it at {rate(goal.fpr)} false alarms."
    )


def _with_list(attack: AttackOutcome, listed: ClaimedCurve, fpr: float) -> str:
    """What an attacker found who holds a list that contains members, and what is claimed about one."""
    claimed = listed.tpr(fpr)
    against = allowed_words(listed, percent(claimed, "up"))
    if excludes_nothing(claimed):
        against = "no guarantee covers this attacker"
    return (
        f"An attacker who holds a list that contains {percent(attack.attacker_knows, 'nearest')} of the members "
        f"({attack.title}) finds {percent(attack.tpr(fpr), 'nearest')} of them at {rate(fpr)} false alarms; {against}."
    )


def _found(one: AttackOutcome) -> str:
    if one.blind:
        return f"{one.title}: all candidates got the same score, which neither supports nor refutes a claim."
    return (
        f"{one.title}: AUC {number(one.auc.value, 'nearest')} ({interval(one.auc.lower, one.auc.upper, share=False)}), "
        f"mu at least {number(one.mu_lower, 'down')}"
        + ("." if one.claim_p_value is None else f", p-value of the claim {chance(one.claim_p_value)}.")
    )


def allowed_words(claim: ClaimedCurve, share: str) -> str:
    """What a curve allows: "guarantee: at most 5%", "forecast: about 5%", or "claim: at most 5%" where it was given."""
    return f"{claim_word(claim)}: {'at most' if claim.is_bound else 'about'} {share}"


def claim_word(claim: ClaimedCurve) -> str:
    """What a curve is: a claim that somebody gave, a guarantee or a forecast."""
    return "claim" if claim.origin == "given" else "guarantee" if claim.is_bound else "forecast"


def says(claim: ClaimedCurve) -> str:
    """The end of a sentence that begins with the TPR of a curve."""
    return (
        f"is the most that the {claim_word(claim)} allows" if claim.is_bound else "is about what is expected (forecast)"
    )


def _most(run: RunAudit) -> str:
    """The beginning of what the tested curve allows."""
    most = "at most" if run.verdict.allowed_kind == "bound" else "about"
    tested = next((one for one in run.claims if one.key == run.verdict.judged_by), None)
    return most if tested is None else f"{claim_word(tested)}: {most}"


def _attack(run: RunAudit, name: str | None) -> AttackOutcome:
    return next((one for one in run.attacks if one.attack == name), run.attacks[0])


def _uncapitalised(words: str) -> str:
    return words[:1].lower() + words[1:]


def curve_name(claim: ClaimedCurve) -> str:
    """What a guarantee or a forecast is called, in tables and beside its curve."""
    worth = "Guarantee" if claim.is_bound else "Forecast"
    if claim.key == "list":
        share = percent(1.0 if claim.knows is None else claim.knows, "nearest")
        worth = "Claim" if claim.origin == "given" else worth
        return f"{worth} against an attacker with a list of {share} of the members"
    if claim.origin == "given":
        numbers = given_words(claim)
        return f"Claimed: {numbers}" if numbers else "Claimed"
    return {
        "claimed": f"{worth} by the accountant (GMIP)",
        "susceptibility": f"{worth} from measured susceptibilities",
        "gdp": f"{worth} by noise alone (differential privacy)",
        "prediction": "Expected by self-play, without member labels",
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
