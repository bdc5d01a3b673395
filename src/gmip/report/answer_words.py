"""The answers of an audit in words: who can find how many, whether that is good enough, and which run to ship."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from gmip._numbers import count, interval, number, percent, rate, rate_key
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
)
from gmip.auditing.verdict import claim_of, exposed_group
from gmip.report import check_words, verdict_words
from gmip.vocabulary import Rate

__all__ = [
    "LEAKS",
    "TARGETS",
    "Badge",
    "Ship",
    "all_badges",
    "badges",
    "both_claims",
    "exposure",
    "front",
    "goal_words",
    "headline",
    "leak_sentence",
    "measured_at",
    "ship",
    "target_sentence",
    "who",
]

Tone = Literal["good", "bad", "open", "plain"]
LEAKS: Final = {  # what badges say, wherever they are shown
    "leak": "Leak measured",
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
    """Of the leak and of the target."""
    leak = Badge(LEAKS[answer.leak], _LEAK_TONES[answer.leak])
    return leak, Badge(TARGETS[answer.target], _TARGET_TONES[answer.target])


def all_badges(run: RunAudit, answer: AttackerAnswer | None) -> list[Badge]:
    """Those of the answer, of a record that does not match, of a refuted claim and of the gate."""
    shown = [] if answer is None else list(badges(answer))
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


def front(result: AuditResult, run: RunAudit) -> AttackerAnswer | None:
    """The answer about the strongest attacker that was tried."""
    return next(iter(run.answers), None)


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
    """Of an audit in which every attack gave most candidates one score: that."""
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
            return f"{who(answer)}: nothing can be told, because {tied}."
        return f"{who(answer)} could not be tried: the attacks gave no evidence either way."
    if answer.leak == "leak":
        return _leaking(run, answer, found)
    size = min((a.members, a.non_members) for a in run.attacks if a.attack == found.attack)
    beaten = f"{who(answer)}: no attack beat guessing"
    if answer.leak == "none-seen" and answer.noticed is not None:
        return (
            f"{beaten}. A leak that concerns all members, of {percent(answer.noticed, 'up')} at {rate(goal.fpr)} false "
            "alarms, would have been noticed with a chance of 80%; one that concerns a few of them may not."
            f"{_tried(run, answer)}"
        )
    few = f"{count(size[0])} members and {count(size[1])} others are too few to notice a leak of the size of the target"
    if tied := mostly_tied(run):
        few += f", as {tied}"
    needed = "" if answer.needed is None else f"; about {count(answer.needed)} of each are needed"
    return f"{beaten}, but {few}{needed}."


def _within_groups(run: RunAudit, answer: AttackerAnswer) -> str:
    told = [one for one in run.groups if one.mu_lower and one.auc is not None]
    words = f"{who(answer)} tells members from others within groups, not in all records together"
    if not told:
        return f"{words}."
    best = told[0]
    assert best.auc is not None
    among = sum(one.folded or 1 for one in run.groups)
    return (
        f"{words}: in {len(told)} of {among} groups; in {best.group!r} the area under the curve is "
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
    claim, claimed = claim_of(run, answer), ""
    share = found.claimed
    if claim is not None and answer.why in ("bound", "unchecked"):  # the bound that the target rests on
        share = claim.tpr_at.get(rate_key(found.fpr))
    if share is not None and claim is not None:
        claimed = f"; {verdict_words.allowed_words(claim, percent(share, 'up'))}"
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


def _tried(run: RunAudit, answer: AttackerAnswer) -> str:
    """That stronger attacks were not tried, where that is so."""
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
        "measured": f"an attack finds {percent(_at_least(answer, goal), 'down')} or more",
        "group": within_group(run, goal.fpr),
        "bound": f"the guarantee for such an attacker is at most {claimed}",
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
    most = "at most" if claim.is_bound else "about"
    return f"the {verdict_words.claim_word(claim)} for such an attacker is {most} {share}"


def _open(run: RunAudit) -> str:
    """What a bound rests on and nobody could check, in parentheses."""
    titles = [] if run.check is None else [_after(check_words.title(one)) for one in run.check.bound_unchecked]
    return f" ({listed(titles)})" if titles else ""


def _at_least(answer: AttackerAnswer, goal: Rate) -> float:
    """A lower bound: that of the interval beside it where it is enough, so that one sentence has one; else the
    one-sided bound for all attacks together."""
    found = answer.evidence
    own = found is not None and found.fpr == goal.fpr and goal.tpr < found.tpr.lower < answer.tpr_lower
    return found.tpr.lower if found is not None and own else answer.tpr_lower


def headline(result: AuditResult, run: RunAudit) -> str:
    """The answer in two sentences: does it leak to the strongest attacker, and is it good enough? A record that does
    not match the declared run comes first, and that the attacks may have looked at the wrong thing."""
    answer = front(result, run)
    if answer is None:
        return "No attack was run: nothing was measured."
    unlike = "" if run.check is None or run.check.passed else f"{check_words.headline(run.check)} "
    doubt = "" if not run.suspect or run.suspicion is None else f"{verdict_words.suspicion(run, run.suspicion)} "
    return (
        f"{unlike}{doubt}{leak_sentence(run, answer)} {badges(answer)[1].text}: {_after(target_sentence(run, answer))}"
    )


def _after(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


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


class Ship(NamedTuple):
    """Which of several runs to ship, and why; `run` None: none of them."""

    run: RunAudit | None
    words: str


def ship(result: AuditResult) -> Ship:
    """The most accurate run whose target is guaranteed against the strongest attacker that was tried."""
    kept, possible = [], []
    for run in result.runs:
        answer = front(result, run)
        if answer is None:
            continue
        if answer.target == "guaranteed":
            kept.append(run)
        elif answer.target == "not-guaranteed" and answer.why not in ("refuted", "record") and answer.leak != "blind":
            possible.append((exposure(run, answer)[0] or 0.0, run))
    if kept:
        best = max(kept, key=lambda run: run.facts.test_accuracy or 0.0)
        accuracy = "" if best.facts.test_accuracy is None else _accuracy(best, len(kept))
        return Ship(best, f"Ship {best.name!r}: its target is guaranteed{accuracy}.")
    goal = goal_words(result.runs[0].goal)
    if not possible:
        return Ship(None, f"Ship none of these runs: none keeps the target, {goal}.")
    _, least = min(possible, key=lambda pair: pair[0])
    return Ship(
        None,
        f"None of these runs guarantees the target, {goal}. Where nothing better is at hand, {least.name!r} has no "
        "measured violation of it.",
    )


def _accuracy(run: RunAudit, kept: int) -> str:
    share = percent(run.facts.test_accuracy or 0.0, "nearest")
    most = ", the most of those that guarantee it" if kept > 1 else ""
    return f", with {share} test accuracy{most}"
