"""The sentences of a report."""

from __future__ import annotations

from gmip.auditing.schema import Advice
from gmip.report import advice_words, sentences
from tests.unit.report import sample


def test_moments():
    assert sentences.moment("2026-03-05T14:02:11+00:00") == "5 March 2026, 14:02 UTC"
    assert sentences.moment("2026-03-05T14:02:11Z") == "5 March 2026, 14:02 UTC"
    assert sentences.moment("2026-03-05T15:02:11+01:00") == "5 March 2026, 14:02 UTC"
    assert sentences.moment("2026-03-05T14:02:11") == "5 March 2026, 14:02 UTC"
    assert sentences.moment("yesterday") == "yesterday"


def test_a_gate_is_said_with_its_limit():
    run = sample.exposed().runs[0]
    assert sentences.gate(run, run.gate).startswith("Failed: at 1% false alarms at least 8.39% of the members")


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


def test_a_federation_is_told_what_attackers_saw_and_how_it_is_protected():
    (run,) = sample.exposed().runs
    for clients, words in ((1, "the model of each client"), (5, "the average of 5 clients' models")):
        one = run.model_copy(update={"facts": run.facts.model_copy(update={"clients": clients})})
        assert any(words in said for said in sentences.cautions(one))
        told = advice_words.text(Advice(kind="find-less"), one)
        assert "gmip train" not in told and "noise on their average" in told
    assert "gmip train" in advice_words.text(Advice(kind="find-less"), run)
    assert not any("clients" in said for said in sentences.cautions(run))
