"""The answers of an audit in words: who finds how many, whether that is good enough, and how the claim fared."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from gmip._numbers import chance, count, interval, number, percent, rate, rate_key
from gmip._validate import listed
from gmip.attacks.attack_table import ATTACKS
from gmip.auditing.curves import excludes_nothing
from gmip.auditing.schema import (
    AttackerAnswer,
    AttackOutcome,
    AuditResult,
    ClaimedCurve,
    Estimate,
    Finding,
    GroupOutcome,
    RunAudit,
    Suspicion,
    ThreatModel,
    Verdict,
)
from gmip.auditing.verdict import claim_of, exposed_group, leading_attack
from gmip.report import check_words
from gmip.vocabulary import Kind, Rate

# -- the verdict on what was claimed in words -------------------------------------------------------------------------


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
_LABELS_GIVEN: Final = "The membership labels are assumed correct"

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
        f"{_LABELS_GIVEN}, and the scores must not use them.",
        _SAME_DISTRIBUTION,
        _INDEPENDENT,
        _CANNOT_PROVE,
    ),
}


def verdict_label(verdict: Verdict) -> str:
    """The answer in few words: not that a claim holds where an attacker whom it is not about finds more."""
    if verdict.unmatched and verdict.kind != "exposed":
        return "The record does not match the run"
    if verdict.list_leak is not None and verdict.kind != "exposed":
        return "Exposed to an attacker with a list"
    return LABELS[verdict.kind]


def verdict_headline(run: RunAudit) -> str:
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


def verdict_reasons(run: RunAudit) -> list[str]:
    """The verdict for those who ask why: what failed, what the test needs, and what each attack found."""
    if not run.attacks:
        return []
    verdict = run.verdict
    failed = run.check.failed if verdict.unmatched and run.check is not None else ()
    said = [f"{check_words.title(one)}: {check_words.sentence(one)}" for one in failed]
    if "suspect" in verdict.doubts:
        said.append(_tested(run))
    said += _power(run)
    by_key = {one.key: one for one in run.claims}
    listed = by_key.get("list", by_key.get("claimed"))
    if listed is not None and not all(one.attacker_knows for one in run.attacks):
        judged = [one for one in run.attacks if one.attacker_knows and one.claim_p_value is not None]
        said += [_with_list(run, one, listed) for one in judged]
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
    if found.kind == "copies":
        return (
            f"{percent(found.copied or 0.0, 'nearest')} of the candidates have the scores of one on the other side: "
            "the same records seem to be among members and non-members. No attack can tell copies apart, so what was "
            "not found is no evidence: pass non-members that were not in the training data."
        )
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
        return f"No claim was tested: {_measured(run)}."
    begins, allowed = _most(run), percent(verdict.allowed or 0.0, "up")
    limit = f"{allowed} of the members at {at}"
    if verdict.reason == "refuted":
        excess = []
        if attack.tpr(goal.fpr) > (verdict.allowed or 0.0):
            excess.append(f"it finds {found} of the members at {at} ({begins} {allowed})")
        if attack.auc.value > (verdict.allowed_auc or 0.0):
            auc, allowed_auc = number(attack.auc.value, "nearest"), number(verdict.allowed_auc or 0.0, "up")
            excess.append(f"its AUC is {auc} ({begins} {allowed_auc})")
        shown = ", and ".join(excess) or "all rates together show it, no single one"
        return (
            f"More exposed than claimed: {attack.title} separates members from non-members better than the claim "
            f"allows. {shown[:1].upper()}{shown[1:]}."
        )
    if verdict.reason == "blind":
        return (
            f"Inconclusive: no attack could test the claim ({begins} {limit}), because each gave all candidates the "
            "same score."
        )
    if verdict.reason == "weak-claim":
        return (
            "Inconclusive: the claim is too weak to test, because it allows an attacker to find up to "
            f"{limit}. {_best(run)}"
        )
    if verdict.reason == "enough":
        return f"Consistent with the claim: {_consistent(run)}"
    nothing = f"Inconclusive: no attack found significantly more than claimed ({begins} {limit}), but "
    if verdict.reason == "ties":
        return (
            f"{nothing}{percent(attack.largest_tie, 'nearest')} of the candidates have the same score "
            f"({attack.title}), so it could hardly have found more."
        )
    enough = verdict.candidates_needed
    needed = "" if enough is None else f"; about {count(enough // 2)} are needed"
    return f"{nothing}{count(verdict.candidates or 0)} candidates of each kind are too few to be sure{needed}."


def _consistent(run: RunAudit) -> str:
    verdict, goal = run.verdict, run.goal
    limit = f"{percent(verdict.allowed or 0.0, 'up')} of the members at {rate(goal.fpr)} false alarms"
    return f"no attack found significantly more than claimed ({_most(run)} {limit}). {_best(run)}"


def _best(run: RunAudit) -> str:
    attack, goal = _attack(run, run.verdict.attack), run.goal
    knowing = {one.attacker_knows > 0.0 for one in run.attacks if one.claim_p_value is not None}
    without = " without a list" if len(knowing) == 2 else ""
    return f"{attack.title}, which the test{without} rests on, finds {percent(attack.tpr(goal.fpr), 'nearest')}."


def _measured(run: RunAudit) -> str:
    """What was found where nothing was claimed: by the attack that the answer rests on, and at the answer's rate."""
    attack = leading_attack(run.attacks, run.answers) or run.attacks[0]
    if not attack.mu_lower:
        attack = _attack(run, run.verdict.attack)
    if attack.blind:
        return "nothing was measured either, because each attack gave all candidates the same score"
    evidence = next(
        (one.evidence for one in run.answers if one.evidence and one.evidence.attack == attack.attack), None
    )
    fpr = _shown_rate(attack, run.goal.fpr, run.goal.fpr if evidence is None else evidence.fpr)
    if attack.mu_lower > 0.0:
        between = interval(attack.auc.lower, attack.auc.upper, share=False)
        area = f"has an AUC of {number(attack.auc.value, 'nearest')} ({between}; guessing: 0.5)"
        finds = area if fpr is None else f"finds {_share_found(attack, fpr)}"
        least = number(attack.mu_lower, "down")
        return f"members can be distinguished from non-members: {attack.title} {finds}, mu is at least {least}"
    where = "guessing"
    if any(one.within_groups for one in run.answers):
        where = "guessing on all records together, but members can be distinguished from others within groups"
    found = _share_found(attack, run.goal.fpr)
    return f"no attack did significantly better than {where}; {attack.title} finds {found}"


def _shown_rate(attack: AttackOutcome, *rates: float) -> float | None:
    """The first rate at which the attack finds more than guessing, by its interval; None: no rate shows it."""
    shown = (fpr for fpr in rates if (at := attack.tpr_at.get(rate_key(fpr))) is not None and at.lower > fpr)
    return next(shown, None)


def _share_found(attack: AttackOutcome, fpr: float) -> str:
    found = percent(attack.tpr(fpr), "nearest")
    return f"{found} of the members at {rate(fpr)} false alarms (guessing: {rate(fpr)})"


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


def _with_list(run: RunAudit, attack: AttackOutcome, listed: ClaimedCurve) -> str:
    """What an attacker found who holds a list that contains members, and what is claimed about one."""
    fpr = run.goal.fpr
    claimed = listed.tpr(fpr)
    against = allowed_words(run, listed, percent(claimed, "up"))
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


def allowed_words(run: RunAudit, claim: ClaimedCurve, share: str) -> str:
    """What a curve allows: "guarantee: at most 5%", "forecast: about 5%", or "claim: at most 5%" where it was given."""
    return f"{claim_word(run, claim)}: {most(claim.kind)} {share}"


def most(kind: Kind) -> str:
    """How a number of a bound, or of a forecast, begins."""
    return "at most" if kind == "bound" else "about"


def claim_word(run: RunAudit, claim: ClaimedCurve) -> str:
    """What a curve is: a claim that somebody gave, a guarantee or a forecast; "bound" where nothing is guaranteed,
    because the run was not checked, is another one, or an attack found more."""
    if claim.origin == "given":
        return "claim"
    if not claim.is_bound:
        return "forecast"
    open_ = any(one.why in ("unchecked", "record", "refuted") for one in run.answers)
    return "bound" if open_ or any(one.exceeds_claim for one in run.attacks) else "guarantee"


def says(run: RunAudit, claim: ClaimedCurve) -> str:
    """The end of a sentence that begins with the TPR of a curve."""
    if not claim.is_bound:
        return "is about what is expected (forecast)"
    return f"is the most that the {claim_word(run, claim)} allows"


def _most(run: RunAudit) -> str:
    """The beginning of what the tested curve allows."""
    begins = most(run.verdict.allowed_kind or "forecast")
    tested = next((one for one in run.claims if one.key == run.verdict.judged_by), None)
    return begins if tested is None else f"{claim_word(run, tested)}: {begins}"


def _attack(run: RunAudit, name: str | None) -> AttackOutcome:
    return next((one for one in run.attacks if one.attack == name), run.attacks[0])


def _uncapitalised(words: str) -> str:
    return words[:1].lower() + words[1:]


def curve_name(run: RunAudit, claim: ClaimedCurve) -> str:
    """What a curve is called, in tables and beside it; a guarantee only if the run was checked and nothing is
    approximate."""
    worth = claim_word(run, claim).capitalize()
    if worth == "Guarantee" and claim.standing == "approximation":
        worth = "Bound"
    if claim.key == "list":
        share = percent(1.0 if claim.knows is None else claim.knows, "nearest")
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


# -- the answers of an audit in words ---------------------------------------------------------------------------------


Tone = Literal["good", "bad", "open", "plain"]
LEAKS: Final = {  # what badges say, wherever they are shown
    "leak": "Leak detected",
    "none-seen": "No leak seen",
    "too-few": "Too few records to tell",
    "blind": "Nothing was measured",
}
TARGETS: Final = {
    "guaranteed": "Target guaranteed",
    "not-guaranteed": "Target not guaranteed",
    "missed": "Target missed",
}
_SEES: Final = {
    "gradients": "who sees every gradient",
    "weights": "who sees the released weights",
    "predictions": "who sees only predictions",
    "scores": "who computed these scores",
}
_LEAK_TONES: Final[dict[str, Tone]] = {"leak": "open", "none-seen": "plain", "too-few": "open", "blind": "open"}
_TARGET_TONES: Final[dict[str, Tone]] = {"guaranteed": "good", "not-guaranteed": "open", "missed": "bad"}
_WEAK: Final = frozenset(name for name, one in ATTACKS.items() if one.on_arrays and not one.compares)


class Badge(NamedTuple):
    """Few words and a tone: good (green, only of a target that a bound keeps), bad, open (amber) or plain."""

    text: str
    tone: Tone


def badges(answer: AttackerAnswer) -> tuple[Badge, Badge]:
    """The badges of the leak and of the target."""
    leak = Badge(LEAKS[answer.leak], _LEAK_TONES[answer.leak])
    return leak, Badge(TARGETS[answer.target], _TARGET_TONES[answer.target])


def all_badges(run: RunAudit) -> list[Badge]:
    """The badges of the first answer, of a record that does not match, of a refuted claim and of the gate."""
    shown = [] if run.answer is None else list(badges(run.answer))
    if run.check is not None and not run.check.passed:
        shown.insert(0, Badge("The record does not match the run", "bad"))
    if run.verdict.kind == "exposed":
        shown.append(Badge("Claim refuted", "bad"))
    if run.gate is not None and run.gate.doubted:
        shown.append(Badge("Gate cannot tell", "bad"))
    elif run.gate is not None and run.gate.blind:
        shown.append(Badge("Gate could not fail", "open"))
    elif run.gate is not None:
        shown.append(Badge("Gate passed", "plain") if run.gate.passed else Badge("Gate failed", "bad"))
    return shown


def who(answer: AttackerAnswer) -> str:
    """The attacker, as the subject of a sentence."""
    words = f"An attacker {_SEES[answer.sees]}"
    if not answer.knows:
        return words
    share = "all members" if answer.knows >= 1.0 else f"{percent(answer.knows, 'nearest')} of the members"
    return f"{words} and holds a list that contains {share}"


def goal_words(goal: Rate) -> str:
    return f"at most {rate(goal.tpr)} of the members at {rate(goal.fpr)} false alarms"


def both_claims(run: RunAudit) -> str:
    """What the accountant says by noise and data (GMIP), and by noise alone (GDP), where it says both; else empty."""
    kinds = {one.key: one for one in run.claims}
    ours, alone = kinds.get("claimed"), kinds.get("gdp")
    if ours is None or alone is None or ours.origin == "given":
        return ""
    fpr = run.goal.fpr
    said = [_claimed(one, fpr) for one in (ours, alone)]
    if None in said:
        return ""
    game = ""
    if alone.adjacency == "zero-out-one":
        game = (
            " The second compares with the record's gradient set to zero, the first with another record in its place, "
            "which is a larger change: so the second can be the smaller number."
        )
    return (
        f"Accountant, at {rate(fpr)} false alarms: {said[0]} by noise and the randomness of the data (GMIP), {said[1]} "
        f"by noise alone (differential privacy, {alone.adjacency or 'for any data'}).{game}"
    )


def _claimed(claim: ClaimedCurve, fpr: float) -> str | None:
    tpr = claim.tpr_at.get(rate_key(fpr))
    if tpr is None:
        return None
    if excludes_nothing(tpr):
        return "no limit"
    return f"at most {percent(tpr, 'up')}" if claim.is_bound else f"about {percent(tpr, 'up')} (forecast)"


def mostly_tied(run: RunAudit) -> str | None:
    """Says so where every attack gave most candidates one score; else None."""
    least = min((one.largest_tie for one in run.attacks), default=0.0)
    return f"{percent(least, 'nearest')} of the candidates have the same score" if least > 0.5 else None


def leak_sentence(run: RunAudit, answer: AttackerAnswer) -> str:
    """What this attacker finds."""
    goal, found = run.goal, answer.evidence
    if answer.within_groups:
        return _within_groups(run, answer)
    if found is None:
        if run.suspect:
            return f"{who(answer)}: what the attacks found is no evidence either way."
        if tied := mostly_tied(run):
            return f"{who(answer)}: no answer, because {tied}."
        return f"{who(answer)} could not be tried: the attacks gave no evidence either way."
    if answer.leak == "leak":
        return _leaking(run, answer, found)
    size = min((a.members, a.non_members) for a in run.attacks if a.attack == found.attack)
    beaten = f"{who(answer)}: no attack beat guessing"
    if answer.leak == "none-seen" and answer.noticed is not None:
        return (
            f"{beaten}. 80% power to detect a leak of {percent(answer.noticed, 'up')} at {rate(goal.fpr)} false alarms "
            "that all members share. A leak that affects few could be missed."
            f"{_tried(run, answer)}"
        )
    few = f"{count(size[0])} members and {count(size[1])} others are too few to notice a leak of the size of the target"
    if tied := mostly_tied(run):
        few += f", as {tied}"
    needed = "" if answer.needed is None else f"; about {count(answer.needed)} of each are needed"
    return f"{beaten}, but {few}{needed}."


def _within_groups(run: RunAudit, answer: AttackerAnswer) -> str:
    leaking = [one for one in run.groups if one.mu_lower and one.auc is not None]
    words = f"{who(answer)} tells members from others within groups, not in all records together"
    if not leaking:
        return f"{words}."
    best = leaking[0]
    assert best.auc is not None
    among = sum(one.folded or 1 for one in run.groups)
    return (
        f"{words}: in {len(leaking)} of {among} groups; in {best.group!r} the area under the curve is "
        f"{number(best.auc.value, 'nearest')} ({interval(best.auc.lower, best.auc.upper, share=False)}), guessing has "
        "0.5."
    )


def within_group(run: RunAudit, fpr: float) -> str:
    """What is found in the most exposed group; a group that is not named, in what is shared, has no number."""
    worst = exposed_group(run.groups, fpr)
    if worst is None:
        return "more is found within a small group"
    least = percent(worst.tpr_at[rate_key(fpr)].lower, "down")
    return (
        f"within the group {worst.group!r} at least {least} of its members are found, with false alarms counted there"
    )


def _leaking(run: RunAudit, answer: AttackerAnswer, found: Finding) -> str:
    found = _breach(run, answer, found)
    claim, claimed = claim_of(run, answer), ""
    share = found.claimed
    if claim is not None and answer.why in ("bound", "unchecked", "imprecise"):  # the bound that the target rests on
        share = claim.tpr_at.get(rate_key(found.fpr))
    if share is not None and claim is not None:
        claimed = f"; {allowed_words(run, claim, percent(share, 'up'))}"
        if excludes_nothing(share):
            claimed = "; no guarantee covers this attacker"
    if found.tpr.lower > found.fpr:
        between = interval(max(found.tpr.lower, 0.0), min(found.tpr.upper, 1.0), share=True)
        return (
            f"{who(answer)} finds {percent(found.tpr.value, 'nearest')} of the members at {rate(found.fpr)} false "
            f"alarms ({between}{claimed}). Guessing finds {rate(found.fpr)}."
        )
    # No one rate shows it (ties, few records): all of them together do.
    attack = next(one for one in run.attacks if one.attack == found.attack)
    between = interval(attack.auc.lower, attack.auc.upper, share=False)
    return (
        f"{who(answer)} tells members from others better than guessing: the area under the curve of {found.title} is "
        f"{number(attack.auc.value, 'nearest')} ({between}), guessing has 0.5."
    )


def _breach(run: RunAudit, answer: AttackerAnswer, found: Finding) -> Finding:
    """The finding at the target's rate, where the target is missed there: the answer speaks of one rate."""
    key = rate_key(run.goal.fpr)
    attack = next((one for one in run.attacks if one.attack == found.attack), None)
    at = None if attack is None else attack.tpr_at.get(key)
    if answer.why != "measured" or found.fpr == run.goal.fpr or at is None or at.lower <= run.goal.fpr:
        return found
    claim = claim_of(run, answer)
    claimed = None if claim is None else claim.tpr_at.get(key)
    return found.model_copy(update={"fpr": run.goal.fpr, "tpr": at, "claimed": claimed})


def _tried(run: RunAudit, answer: AttackerAnswer) -> str:
    """Says that stronger attacks were not tried, where that is so."""
    own = {one.attack for one in run.attacks if one.sees == answer.sees}
    if answer.sees != "predictions" or not own <= _WEAK:
        return ""
    return " Only attacks without shadow models were tried: LiRA and RMIA (--attacks lira,rmia) are stronger."


def target_sentence(run: RunAudit, answer: AttackerAnswer) -> str:
    """Whether that is good enough."""
    goal = run.goal
    target = f"The target is {goal_words(goal)}"
    claimed = "" if answer.claimed is None else percent(answer.claimed, "up")
    why = {
        "measured": f"an attack finds {percent(_at_least(run, answer), 'down')} or more",
        "group": within_group(run, goal.fpr),
        "bound": f"the guarantee for such an attacker is at most {claimed}{_worst(answer)}{_whose(run)}",
        "imprecise": f"a bound says at most {claimed}, but the record is not precise enough{_worst(answer)}",
        "exceeds": _exceeds(run, answer, claimed),
        "forecast": f"about {claimed} is expected (forecast)",
        "given": f"the claim ({claimed}) would keep it, but an audit cannot prove a claim",
        "no-claim": "no guarantee covers this attacker",
        "refuted": "an attack found more than the claim allows, so the claim cannot be relied on",
        "unchecked": f"a bound says at most {claimed}, but not all that it rests on could be checked{_open(run)}",
        "record": "the record does not match the declared run, so the claim may be about another run",
    }[answer.why]
    return f"{target}: {why}."


def _exceeds(run: RunAudit, answer: AttackerAnswer, share: str) -> str:
    claim = claim_of(run, answer)
    if claim is None:
        return ""
    return f"the {claim_word(run, claim)} for such an attacker is {most(claim.kind)} {share}"


def _worst(answer: AttackerAnswer) -> str:
    """The bound with the least noise multiplier that the record does not exclude, in parentheses."""
    if answer.worst is None:
        return ""
    return f" ({percent(answer.worst, 'up')} if noise, scale and clipping are as bad as the record allows)"


def _whose(run: RunAudit) -> str:
    """Whom a guarantee is about, where noise hides who else was in."""
    hidden = run.check is not None and any(one.fault == "counted" for one in run.check.beyond_reach)
    return ", for whoever is listed and counts once: noise hides others" if hidden else ""


def _open(run: RunAudit) -> str:
    """What a bound rests on and nobody could check, in parentheses."""
    titles = [] if run.check is None else [_uncapitalised(check_words.title(one)) for one in run.check.bound_unchecked]
    return f" ({listed(titles)})" if titles else ""


def _at_least(run: RunAudit, answer: AttackerAnswer) -> float:
    """A lower bound: that of the interval beside it where it is enough, so that one sentence has one; else the
    one-sided bound for all attacks together."""
    goal, found = run.goal, None if answer.evidence is None else _breach(run, answer, answer.evidence)
    own = found is not None and found.fpr == goal.fpr and goal.tpr < found.tpr.lower < answer.tpr_lower
    return found.tpr.lower if found is not None and own else answer.tpr_lower


def headline(run: RunAudit) -> str:
    """The answer in two sentences: does it leak to the strongest attacker, and is it good enough? A record that does
    not match the declared run comes first, and that the attacks may have looked at the wrong thing."""
    answer = run.answer
    if answer is None:
        return "No attack was run: nothing was measured."
    unlike = "" if run.check is None or run.check.passed else f"{check_words.headline(run.check)} "
    doubt = "" if not run.suspect or run.suspicion is None else f"{suspicion(run, run.suspicion)} "
    target = _uncapitalised(target_sentence(run, answer))
    return f"{unlike}{doubt}{leak_sentence(run, answer)} {badges(answer)[1].text}: {target}"


def exposure(run: RunAudit, answer: AttackerAnswer) -> tuple[float | None, float | None]:
    """(measured, claimed) TPR at the goal's rate; measured by the attack that the answer rests on."""
    key = rate_key(run.goal.fpr)
    found = next((a for a in run.attacks if answer.evidence and a.attack == answer.evidence.attack), None)
    at = None if found is None else measured_at(found, key)
    return None if at is None else min(max(at.value, 0.0), 1.0), answer.claimed


def measured_at(found: AttackOutcome | GroupOutcome, key: str) -> Estimate | None:
    """The TPR at a rate; None where the non-members are too few for one false alarm at that rate."""
    if found.non_members and float(key) * found.non_members * (1.0 + 1.0e-9) < 1.0:
        return None
    return found.tpr_at.get(key)


class Recommendation(NamedTuple):
    """Which of several runs to ship, and why; `run` None: none of them."""

    run: RunAudit | None
    words: str


def ship(result: AuditResult) -> Recommendation:
    """The most accurate run whose target is guaranteed against the strongest attacker that was tried."""
    kept, possible = [], []
    for run in result.runs:
        answer = run.answer
        if answer is None:
            continue
        if answer.target == "guaranteed":
            kept.append(run)
        elif answer.target == "not-guaranteed" and answer.why not in ("refuted", "record") and answer.leak != "blind":
            possible.append((exposure(run, answer)[0] or 0.0, run))
    if kept:
        best = max(kept, key=lambda run: run.facts.test_accuracy or 0.0)
        accuracy = "" if best.facts.test_accuracy is None else _accuracy(best, len(kept))
        return Recommendation(best, f"Ship {best.name!r}: its target is guaranteed{accuracy}.")
    goal = goal_words(result.runs[0].goal)
    if not possible:
        return Recommendation(None, f"Ship none of these runs: none keeps the target, {goal}.")
    _, least = min(possible, key=lambda pair: pair[0])
    return Recommendation(
        None,
        f"None of these runs guarantees the target, {goal}. Where nothing better is at hand, {least.name!r} has no "
        "measured violation of it.",
    )


def _accuracy(run: RunAudit, kept: int) -> str:
    share = percent(run.facts.test_accuracy or 0.0, "nearest")
    most = ", the most of those that guarantee it" if kept > 1 else ""
    return f", with {share} test accuracy{most}"
