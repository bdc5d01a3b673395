"""The sentences of a report."""

from __future__ import annotations

import pytest

from gmip.report import answer_words, sentences
from tests.unit.report import sample


def test_moments():
    assert sentences.moment("2026-03-05T14:02:11+00:00") == "5 March 2026, 14:02 UTC"
    assert sentences.moment("2026-03-05T14:02:11Z") == "5 March 2026, 14:02 UTC"
    assert sentences.moment("2026-03-05T15:02:11+01:00") == "5 March 2026, 14:02 UTC"
    assert sentences.moment("2026-03-05T14:02:11") == "5 March 2026, 14:02 UTC"
    assert sentences.moment("yesterday") == "yesterday"


def test_rates_are_numbers_in_order():
    run = sample.consistent().runs[0]
    assert sentences.rates(run) == ("0.001", "0.01", "0.1") and sentences.headline_rate(run) == "0.01"
    odd = sample.claimed_curve("claimed", 1.0).model_copy(
        update={"tpr_at": {"0.05": 0.1, "low": 0.2, "nan": 0.1, "7": 1.0}}
    )
    other = run.model_copy(update={"claims": (odd,), "attacks": ()})
    assert sentences.rates(other) == ("0.05",) and sentences.headline_rate(other) == "0.05"
    assert sentences.headline_rate(run.model_copy(update={"claims": (), "attacks": ()})) is None


def test_a_claim_does_not_choose_the_rate_of_the_attack():
    run = sample.consistent().runs[0]
    attack = run.attacks[0].model_copy(update={"tpr_at": {"0.1": run.attacks[0].tpr_at["0.1"]}})
    assert sentences.headline_rate(run.model_copy(update={"attacks": (attack,)})) == "0.1"


def test_sentences():
    result = sample.exposed()
    run = result.runs[0]
    assert sentences.meaning(run.attacks[0], "0.01") == (
        "An attacker who accepts 1% false alarms finds 11% of the members; guessing would find 1%."
    )
    assert (
        "at most 5% of audits would reach this verdict by chance. 500 members and 500 non-members were tested."
        in sentences.certainty(result, run)
    )
    assert "About 4,200 candidates" in sentences.certainty(sample.inconclusive(), sample.inconclusive().runs[0])
    assert "never that there is none" in sentences.certainty(sample.consistent(), sample.consistent().runs[0])
    assert sentences.certainty(sample.bare(), sample.bare().runs[0]).startswith("No attack was run")
    assert sentences.gate(run, run.gate).startswith("Failed: at 1% false alarms at least 8.39% of the members")


def test_a_label_does_not_hide_what_a_list_finds():
    fine, exposed = sample.consistent().runs[0].verdict, sample.exposed().runs[0].verdict
    leak, both = (one.model_copy(update={"list_leak": "decode"}) for one in (fine, exposed))
    assert answer_words.verdict_label(fine) == "Consistent with the claim"
    assert answer_words.verdict_label(leak) == "Exposed to an attacker with a list"
    assert answer_words.verdict_label(both) == "More exposed than claimed"


def test_repeated_runs_are_said():
    run = sample.consistent().runs[0]
    repeated = run.model_copy(update={"attacks": (run.attacks[0].model_copy(update={"repeats": 5}),)})
    assert "over 5 repeated runs" in sentences.certainty(sample.consistent(), repeated)


@pytest.mark.parametrize("make", [sample.consistent, sample.exposed, sample.inconclusive])
def test_the_verdict_does_not_repeat_its_label(make):
    said = sentences.verdict_sentences(make().runs[0])
    label = answer_words.LABELS[make().runs[0].verdict.kind]
    assert said.startswith(f"{label}. ") and said.count(label) == 1 and said.split(". ")[1][0].isupper()


def test_attacks_are_named_by_their_titles():
    run = sample.consistent().runs[0]
    assert (
        sentences.attack_title(run, "lira") == "LiRA, 16 shadow models"
        and sentences.attack_title(run, "other") == "other"
    )


def test_facts_of_attacks_are_worded_and_warnings_follow():
    (run,) = sample.consistent().runs
    facts = {"rank": 585, "ridge": 0.0123456, "online": False, "own_number": 3, "folder": "x" * 81}
    attack = run.attacks[0].model_copy(update={"facts": facts, "notes": ("Careful.", "Careful.")})
    assert sentences.attack_notes(attack) == (
        "Directions that the covariance keeps: 585.",
        "Ridge: 0.0123.",
        "Online: no.",
        "Own number: 3.",
        "Careful.",
    )


def test_cautions_say_what_was_not_recorded():
    (run,) = sample.exposed().runs
    assert sentences.cautions(run) == run.warnings
    part = run.model_copy(update={"facts": run.facts.model_copy(update={"complete": False, "recorded_params": 3})})
    assert len(sentences.cautions(part)) == len(run.warnings) + 2
    assert "was not finished" in sentences.cautions(part)[-2] and "Only some" in sentences.cautions(part)[-1]
