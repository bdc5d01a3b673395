"""Audits that looked at the wrong thing: they say so, and clear nothing."""

from __future__ import annotations

import numpy as np
import pytest

import gmip
from gmip.auditing.schema import RunFacts
from gmip.auditing.verdict import folded_mu, is_turned, suspicion
from gmip.report.card import headline
from gmip.report.sentences import cautions, gate
from gmip.stats import RunScores, pool
from tests.unit.auditing.scored import measured


def test_scores_of_the_wrong_sign_pass_no_gate() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(-0.6, 1.0, 800), rng.normal(0.0, 1.0, 800)
    result = gmip.audit(gmip.Scores(members, others), claim=1.0, target="tpr=0.05@0.01", gate=True)
    (run,) = result.runs
    assert run.attacks[0].turned and run.answers[0].leak == "blind" and run.verdict.kind == "inconclusive"
    assert run.gate is not None and run.gate.doubted and not run.gate.passed and not run.gate.blind
    assert run.suspect and run.suspicion is not None and run.suspicion.kind == "turned" and len(cautions(run)) == 1
    assert headline(run).startswith("Members score lower than non-members, beyond chance")
    assert gate(run, run.gate).startswith("Cannot tell, so it does not pass: Members score lower")
    (right,) = gmip.audit(gmip.Scores(-members, -others), target="tpr=0.05@0.01", gate=True).runs
    assert right.suspicion is None and right.answers[0].leak == "leak"


def test_a_few_copies_do_not_hide_a_wrong_sign() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(-2.0, 1.0, 1000), rng.normal(0.0, 1.0, 1000)
    others[:35] = members[:35]
    (run,) = gmip.audit(gmip.Scores(members, others), target="tpr=0.05@0.01", gate=True).runs
    assert run.suspicion is not None and run.suspicion.kind == "turned"
    assert run.gate is not None and not run.gate.passed and run.conclusion.kind == "inconclusive"


def test_an_attack_that_leaks_is_not_doubted_for_another_that_is_turned() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.8, 1.0, 500), rng.normal(0.0, 1.0, 500)
    (run,) = gmip.audit(
        gmip.Scores({"a": members, "b": -members}, {"a": others, "b": -others}), target="tpr=0.9@0.01", gate=True
    ).runs
    assert run.suspicion is None and run.answers[0].leak == "leak" and run.gate is not None and run.gate.passed
    assert any("b: members score lower than non-members" in words for words in cautions(run))


def test_scores_that_say_nothing_are_rarely_called_turned() -> None:
    rng = np.random.default_rng(1)
    called = [
        is_turned(pool(RunScores(rng.normal(size=60), rng.normal(size=90))), confidence=0.95, seed=0)
        for _ in range(400)
    ]
    assert np.mean(called) <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / 400)


@pytest.mark.parametrize(
    ("facts", "kind", "blinding"),
    [
        ({"train_accuracy": 0.03}, "worse-than-guessing", True),
        ({"train_accuracy": 0.34}, "no-better-than-guessing", False),
        ({"train_accuracy": 0.6}, None, False),
        ({"train_accuracy": 0.03, "noise_std": 0.5}, None, False),  # noise explains it
        ({"train_accuracy": None}, None, False),
    ],
)
def test_a_model_that_does_not_know_its_own_records(facts: dict[str, float], kind: str | None, blinding: bool) -> None:
    found = suspicion(RunFacts(dataset_size=900, chance_accuracy=1 / 3, **facts), [measured(0.0, 300, 1.0)])
    assert (None if found is None else found.kind) == kind and (found is not None and found.blinding) == blinding


@pytest.mark.parametrize("rolled", [0, 1])
def test_class_columns_in_another_order_pass_no_gate(rolled: int) -> None:
    """`confidence` needs no labels and finds something; three attacks that do need them are turned, but by less."""
    rng = np.random.default_rng(0)
    member, labels = np.arange(2000) < 1000, rng.integers(0, 10, 2000)
    logits = rng.normal(size=(2000, 10))
    logits[np.arange(2000), labels] += np.where(member, 2.3, 2.0)
    told = gmip.Predictions(member, labels=labels, logits=np.roll(logits, rolled, axis=1))
    result = gmip.audit(told, target="tpr=0.2@0.01", gate=True)
    (run,) = result.runs
    assert max(one.mu_lower for one in run.attacks) > 0.0
    assert result.passed is not bool(rolled)
    assert (None if run.suspicion is None else run.suspicion.kind) == (None, "worse-than-guessing")[rolled]


@pytest.mark.parametrize("spread", [0.3, 2.5])
def test_members_packed_in_the_middle_pass_no_gate(spread: float) -> None:
    rng = np.random.default_rng(0)
    (run,) = gmip.audit(gmip.Scores(rng.normal(0.0, spread, 200), rng.normal(0.0, 1.0, 200)), gate=True).runs
    if run.conclusion.kind != "fails":  # the higher half of those who are wide apart is found as it is
        assert run.suspect and run.suspicion is not None and run.suspicion.kind == "spread"
        assert run.conclusion.kind == "inconclusive" and run.gate is not None
        assert "from the middle" in gate(run, run.gate)
    assert run.gate is not None and not run.gate.passed


def test_noise_and_plain_leaks_are_not_called_spread() -> None:
    """At most 1% of them; of 300 more than 8 are a chance of 1 in 100."""
    found = 0
    for seed in range(300):
        rng = np.random.default_rng([seed, 3])
        shift, size = (0.0, 0.0, 0.5)[seed % 3], (80, 10)[seed % 2]
        members, others = rng.normal(shift, 1.0, 80), rng.normal(0.0, 1.0, size)
        found += folded_mu(pool([RunScores(members, others)]), confidence=0.95, seed=seed) > 0.0
    assert found <= 8
