"""The answers in words, and which run to ship."""

from __future__ import annotations

import pytest

from gmip.auditing.schema import AttackerAnswer, AuditResult, BeyondReach, Estimate, Finding, RunCheck, Verdict
from gmip.report import answer_words
from gmip.vocabulary import Rate
from tests.unit.report import sample

GOAL = Rate(0.05, 0.01)
FOUND = Finding(attack="glir", title="GLiR", fpr=0.1, tpr=Estimate(value=0.648, lower=0.601, upper=0.693), claimed=0.39)


def made(**fields: object) -> AttackerAnswer:
    known: dict = {"sees": "gradients", "leak": "leak", "evidence": FOUND, "target": "not-guaranteed", "why": "exceeds"}
    return AttackerAnswer(**(known | fields))


def run(*answers: AttackerAnswer, **more: object):
    one = sample.consistent().runs[0]
    return one.model_copy(update={"goal": GOAL, "answers": answers} | more)


def test_a_leak_is_said_with_its_interval_and_what_was_claimed():
    one = made(claimed=0.34)
    assert answer_words.leak_sentence(run(one), one) == (
        "An attacker who sees every gradient finds 64.8% of the members at 10% false alarms (60.1% to 69.3%; "
        "guarantee: at most 39%). Guessing finds 10%."
    )
    assert answer_words.target_sentence(run(one), one) == (
        "The target is at most 5% of the members at 1% false alarms: the guarantee for such an attacker is at most 34%."
    )


def test_a_guarantee_says_whom_it_is_about_where_noise_hides_others():
    one = made(target="guaranteed", why="bound", claimed=0.038, worst=0.046)
    said = answer_words.target_sentence(run(one, check=None), one)
    assert said.endswith("is at most 3.8% (4.6% if noise, scale and clipping are as bad as the record allows).")
    hidden = RunCheck(outcomes=(), beyond_reach=(BeyondReach(fault="counted"),))
    said = answer_words.target_sentence(run(one, check=hidden), one)
    assert said.endswith("as the record allows), for whoever is listed and counts once: noise hides others.")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sees": "weights"}, "An attacker who sees the released weights"),
        ({"sees": "predictions"}, "An attacker who sees only predictions"),
        ({"knows": 1.0}, "An attacker who sees every gradient and holds a list that contains all members"),
        ({"knows": 0.5}, "An attacker who sees every gradient and holds a list that contains 50% of the members"),
    ],
)
def test_who(fields, words):
    assert answer_words.who(made(**fields)) == words


def test_no_leak_says_what_would_have_been_noticed_or_how_many_are_missing():
    seen = made(leak="none-seen", noticed=0.031)
    assert answer_words.leak_sentence(run(seen), seen).endswith(
        "no attack beat guessing. 80% power to detect a leak of 3.1% at 1% false alarms that all members share. A "
        "leak that affects few could be missed."
    )
    few = made(leak="too-few", needed=1200)
    assert answer_words.leak_sentence(run(few), few).endswith(
        "500 members and 500 others are too few to notice a leak of the size of the target; about 1,200 of each are "
        "needed."
    )


def test_green_is_only_for_a_target_that_a_bound_keeps():
    tones = {
        (leak, target): [badge.tone for badge in answer_words.badges(made(leak=leak, target=target))]
        for leak in ("leak", "none-seen", "too-few", "blind")
        for target in ("guaranteed", "not-guaranteed", "missed")
    }
    for (leak, target), (first, second) in tones.items():
        assert first != "good", leak
        assert (second == "good") == (target == "guaranteed")


def shipped(*pairs: tuple[float, AttackerAnswer]) -> answer_words.Recommendation:
    runs = [
        run(answer, name=f"run {i}", facts=sample.facts(test_accuracy=accuracy))
        for i, (accuracy, answer) in enumerate(pairs)
    ]
    result: AuditResult = sample.result(*runs)
    return answer_words.ship(result)


def test_which_run_to_ship():
    kept, open_, missed = made(target="guaranteed", why="bound"), made(), made(target="missed", why="measured")
    best = shipped((0.90, missed), (0.80, kept), (0.85, kept), (0.88, open_))
    assert best.run is not None and best.run.name == "run 2"
    assert best.words == (
        "Ship 'run 2': its target is guaranteed, with 85% test accuracy, the most of those that guarantee it."
    )
    none = shipped((0.90, missed), (0.80, made(why="refuted")))
    assert none.run is None and none.words.startswith("Ship none of these runs")
    maybe = shipped((0.90, missed), (0.80, open_))
    assert maybe.run is None and "'run 1' has no measured violation" in maybe.words


def test_a_leak_that_no_single_rate_shows_is_said_by_its_area():
    tied = FOUND.model_copy(update={"tpr": Estimate(value=0.0, lower=0.0, upper=0.27)})
    one = made(evidence=tied)
    told = answer_words.leak_sentence(run(one), one)
    assert "finds 0%" not in told and "the area under the curve of GLiR is" in told and "guessing has 0.5" in told


def test_weak_attacks_on_predictions_are_said_to_be_weak():
    one = made(sees="predictions", leak="none-seen", noticed=0.03, evidence=FOUND.model_copy(update={"attack": "loss"}))
    attacks = tuple(
        attack.model_copy(update={"sees": "predictions" if attack.attack == "loss" else "gradients"})
        for attack in sample.consistent().runs[0].attacks
    )
    assert "LiRA and RMIA (--attacks lira,rmia) are stronger" in answer_words.leak_sentence(
        run(one, attacks=attacks), one
    )


def test_both_claims_are_said_where_there_are_two():
    (run,) = sample.exposed().runs
    said = answer_words.both_claims(run)
    assert said == (
        "Accountant, at 1% false alarms: at most 3.39% by noise and the randomness of the data (GMIP), at most 8.44% "
        "by noise alone (differential privacy, for any data)."
    )
    claimed, gdp = run.claims[0], next(one for one in run.claims if one.key == "gdp")
    weak = gdp.model_copy(update={"tpr_at": {"0.01": 0.9999}, "kind": "forecast", "adjacency": "zero-out-one"})
    words = answer_words.both_claims(run.model_copy(update={"claims": (claimed, weak)}))
    assert "no limit by noise alone (differential privacy, zero-out-one)" in words
    assert words.endswith("so the second can be the smaller number.")
    assert answer_words.both_claims(run.model_copy(update={"claims": (claimed,)})) == ""
    given = claimed.model_copy(update={"origin": "given"})
    unknown = gdp.model_copy(update={"tpr_at": {}})
    for pair in ((claimed, unknown), (given, gdp)):
        assert answer_words.both_claims(run.model_copy(update={"claims": pair})) == ""


def test_one_answer_has_one_lower_bound():
    """The interval's end beside it, where that is enough; else the bound for all attacks together."""
    found = FOUND.model_copy(update={"fpr": 0.01, "tpr": Estimate(value=0.13, lower=0.0677, upper=0.215)})
    one = made(evidence=found, target="missed", why="measured", tpr_lower=0.0753)
    assert "6.77% to 21.5%" in answer_words.leak_sentence(run(one), one)
    assert answer_words.target_sentence(run(one), one).endswith("an attack finds 6.77% or more.")
    near = found.model_copy(update={"tpr": Estimate(value=0.13, lower=0.048, upper=0.215)})
    one = made(evidence=near, target="missed", why="measured", tpr_lower=0.0753)
    assert answer_words.target_sentence(run(one), one).endswith("an attack finds 7.53% or more.")


def test_a_badge_has_one_colour_whatever_stands_beside_it() -> None:
    """The table of several runs shows badges by their words."""
    kinds = [("not-guaranteed", "forecast"), ("missed", "measured"), ("guaranteed", "bound")]
    assert len({answer_words.badges(made(target=target, why=why))[0] for target, why in kinds}) == 1


def measured(**more: object):
    """A run for which nothing is claimed."""
    judged = Verdict(kind="measured", reason="no-claim", attack="glir")
    one = sample.consistent().runs[0]
    return one.model_copy(update={"claims": (), "verdict": judged, "goal": GOAL} | more)


def test_members_are_not_told_from_others_by_a_rate_at_which_guessing_is_better():
    """Once: "members can be told from non-members: lira finds 0.8% at 1% (guessing: 1%)"."""
    attack = sample.attack(1.0, seed=3)
    low = Estimate(value=0.008, lower=0.003, upper=0.02)
    attack = attack.model_copy(update={"tpr_at": attack.tpr_at | {"0.01": low}})
    rates = measured(attacks=(attack,), answers=(made(target="not-guaranteed", why="no-claim"),))
    assert "GLiR finds" in answer_words.verdict_headline(rates)
    assert "at 10% false alarms (guessing: 10%)" in answer_words.verdict_headline(rates)
    tied = attack.model_copy(update={"tpr_at": {"0.01": low}})
    area = answer_words.verdict_headline(measured(attacks=(tied,), answers=()))
    assert "0.8%" not in area and "GLiR has an AUC of" in area and "guessing: 0.5" in area


def test_a_leak_within_groups_is_no_contradiction():
    """Once "Leak" stood above "No attack did significantly better than guessing"."""
    blunt = sample.attack(0.0, seed=3).model_copy(update={"mu_lower": 0.0})
    within = made(evidence=None, within_groups=True, why="no-claim")
    said = answer_words.verdict_headline(measured(attacks=(blunt,), answers=(within,)))
    assert "guessing on all records together, but members can be distinguished from others within groups" in said


def test_the_headline_speaks_of_the_rate_of_the_breach():
    """The finding is clearest at 10%, the target is missed at 1%: the answer is about 1%."""
    missed = made(target="missed", why="measured", tpr_lower=0.2)
    one = run(missed, attacks=(sample.attack(2.0, seed=3),))
    said = answer_words.headline(one)
    assert said.count("1% false alarms") == 2 and "10% false alarms" not in said


def test_nothing_is_called_a_guarantee_where_the_target_is_not_guaranteed_for_want_of_checks():
    claim = sample.consistent().runs[0].claims[0]
    for why, word in (("bound", "guarantee"), ("unchecked", "bound"), ("record", "bound"), ("refuted", "bound")):
        assert answer_words.claim_word(run(made(why=why)), claim) == word
    assert answer_words.claim_word(run(made()), claim.model_copy(update={"kind": "forecast"})) == "forecast"
    assert answer_words.claim_word(run(made()), claim.model_copy(update={"origin": "given"})) == "claim"
