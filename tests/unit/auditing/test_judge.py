from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip import Scores, account, audit
from gmip.auditing import Candidates, merged
from gmip.auditing.attack_runs import run_facts
from gmip.auditing.judge import AttackEvidence, AttackScores, Evidence, JudgeSettings, Labels, judge
from gmip.auditing.schema import CheckOutcome, RunAudit, RunCheck, RunFacts
from gmip.report import answer_words, card, sentences, to_html
from gmip.stats import RunScores, ScoreSet, epsilon_lower_bound, mu_lower_bound, tpr_lower_bound
from gmip.trace import ReleasedModel, Trace, TraceWriter
from gmip.vocabulary import Rate
from tests.unit.report import sample
from tests.unit.trace.build import header, write_steps

MEMBERS, OTHERS = np.arange(0, 60), np.arange(60, 120)
INSIDE = Labels(inside=np.arange(120) < 60)
ACCURACIES = {"train_accuracy": 0.9, "test_accuracy": None}


def trace(path: Path, *, steps: int = 2, interrupted: bool = False, noise_std: float = 0.25) -> Trace:
    with (
        contextlib.suppress(KeyboardInterrupt),
        TraceWriter.create(path, header(clip_norm=1.0), members=MEMBERS, non_members=OTHERS) as writer,
    ):
        write_steps(writer, steps, noise_std=noise_std)
        if interrupted:
            raise KeyboardInterrupt
    return Trace.open(path)


def attacked(
    name: str, shift: float, *, warnings: tuple[str, ...] = (), knows: float = 0.0, **about: Any
) -> AttackEvidence:
    scores = np.random.default_rng(1).normal(size=120) + shift * (np.arange(120) < 60)
    found = AttackScores(
        scores=ScoreSet(ids=np.arange(120), scores=scores, attack=name, **about), seconds=2.0, warnings=warnings
    )
    return AttackEvidence(
        name=name, title=name.upper(), needs=("a model",), found=(found,), labels=(INSIDE,), knows=knows
    )


def assembled(
    run: Trace,
    *attacks: AttackEvidence,
    claim_mu: float | None = 0.5,
    name_of: Any = None,
    check: RunCheck | None = None,
    **changes: Any,
) -> tuple[RunAudit, Candidates, list[tuple[int, int]]]:
    calls: list[tuple[int, int]] = []
    evidence = Evidence(
        name="run",
        source="recorded",
        attacks=attacks,
        runs=run.runs(),
        facts=run_facts(run, ACCURACIES),
        name_of=name_of,
        check=check,
    )
    settings = JudgeSettings.of({"claim": claim_mu, "fprs": (0.01, 0.1), **changes})
    one, rows = judge(evidence, settings, lambda done, total: calls.append((done, total)))
    return one, rows, calls


def test_the_strongest_attack_comes_first_and_ranks_the_records(tmp_path: Path) -> None:
    weak = attacked("weak", 0.0, warnings=("careful", "careful"))
    strong = attacked("strong", 3.0, calibration=(1.0, 0.0), facts={"rank": 7})
    one, rows, calls = assembled(trace(tmp_path / "a"), weak, strong, target=Rate(0.15, 0.1), gate=True)
    assert [outcome.attack for outcome in one.attacks] == ["strong", "weak"]
    assert one.exposed_by == "strong" and one.verdict.kind == "exposed"
    assert one.gate is not None and one.gate.attack == "strong" and not one.gate.passed
    assert one.attacks[0].facts == {"rank": 7} and one.attacks[1].notes == one.warnings == ("careful",)
    scores = [row.score for row in rows]
    assert scores == sorted(scores, reverse=True) and sum(row.member for row in rows) == 60
    assert [record.id for record in one.exposed] == [row.id for row in rows if row.member][:20]
    assert one.exposed[0].posterior is not None and one.exposed[0].p_value is None
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_a_record_that_is_not_of_the_run_passes_no_gate(tmp_path: Path) -> None:
    """The attacks find nothing in it, and that says nothing about the run."""
    failed = RunCheck(outcomes=(CheckOutcome(check="scale", status="failed", finding="sum-not-mean"),))
    one, _, _ = assembled(trace(tmp_path / "a"), attacked("weak", 0.0), check=failed, target=Rate(0.9, 0.1), gate=True)
    assert one.gate is not None and one.gate.doubted and not one.gate.passed
    assert "The record does not match the run" in sentences.gate(one, one.gate)


def test_an_attacker_with_a_list_is_judged_by_the_claim_for_one(tmp_path: Path) -> None:
    """All members are listed and found; that refutes nothing that was claimed, as there is no noise."""
    run, holder = trace(tmp_path / "a", steps=150, noise_std=0.0), attacked("list", 5.0, knows=1.0)
    one, _, _ = assembled(run, holder, attacked("weak", 0.0), target=Rate(0.15, 0.1), gate=True)
    assert [outcome.attack for outcome in one.attacks] == ["weak", "list"]  # whom the claim is about
    assert [outcome.attacker_knows for outcome in one.attacks] == [0.0, 1.0]
    assert one.answers[0].evidence is not None and one.answers[0].evidence.attack == "list"
    assert one.exposed_by == "list" and one.claims[0].key == "claimed"
    (listed,) = (claim for claim in one.claims if claim.key == "list")
    assert listed.tpr_at["0.01"] == pytest.approx(account(run.runs(), attacker_knows=1.0).tpr_at(0.01))
    assert listed.tpr_at["0.01"] > 0.999
    assert not one.attacks[1].exceeds_claim and (one.attacks[1].claim_p_value or 0.0) > 0.5
    assert one.verdict.list_leak == "list"
    assert "An attacker with a list of 100% of the members finds" in answer_words.verdict_headline(one)
    assert card.rows(one)[0].beside == "no guarantee" and card.rows(one)[0].label == "gradients and a list"
    assert one.gate is not None and one.gate.attack == "list" and not one.gate.passed  # a limit is about all attacks


def test_where_only_a_list_was_tried_its_claim_comes_first(tmp_path: Path) -> None:
    """The tables of a report compare the first attack with the first claim."""
    one, _, _ = assembled(trace(tmp_path / "a", steps=150, noise_std=0.0), attacked("list", 5.0, knows=1.0))
    assert [claim.key for claim in one.claims][:2] == ["list", "claimed"]
    assert one.verdict.kind == "inconclusive" and one.verdict.judged_by == "list"


def test_an_attacker_with_a_list_stays_last_where_the_others_are_blind(tmp_path: Path) -> None:
    same = AttackScores(scores=ScoreSet(ids=np.arange(120), scores=np.zeros(120), attack="blind"))
    blind = AttackEvidence(name="blind", title="BLIND", needs=(), found=(same,), labels=(INSIDE,))
    one, _, _ = assembled(trace(tmp_path / "a"), attacked("list", 5.0, knows=1.0), blind)
    assert [outcome.attack for outcome in one.attacks] == ["blind", "list"]


def test_what_was_not_recorded_is_a_fact(tmp_path: Path) -> None:
    whole = assembled(trace(tmp_path / "a"), attacked("one", 1.0))[0].facts
    assert whole.complete and (whole.num_params, whole.recorded_params) == (8, 5)
    assert (whole.train_accuracy, whole.test_accuracy, whole.num_steps) == (0.9, None, 2)
    assert not assembled(trace(tmp_path / "b", interrupted=True), attacked("one", 1.0))[0].facts.complete


def test_of_a_released_model_the_size_is_known_and_nothing_is_guaranteed() -> None:
    one = ReleasedModel(Path("w.pt"), header(clip_norm=1.0), members=MEMBERS, non_members=OTHERS, state={})
    facts = run_facts(one, ACCURACIES)
    assert facts == RunFacts(num_params=8, train_accuracy=0.9)
    evidence = Evidence(name="w", source="released", attacks=(attacked("one", 1.0),), facts=facts)
    audited = judge(evidence, JudgeSettings.of({"claim": 0.5}), lambda done, total: None).run
    assert [(claim.key, claim.standing) for claim in audited.claims] == [("claimed", "given")]


def test_merging_needs_equal_confidence() -> None:
    audit = sample.consistent()
    (name,) = (run.name for run in audit.runs)
    assert [run.name for run in merged(audit, audit).runs] == [name, f"{name} (2)"]
    with pytest.raises(ValueError, match=r"differ in confidence, 0\.95 and 0\.9"):
        merged(audit, audit.model_copy(update={"confidence": 0.9}))


def test_an_attack_that_gave_one_score_comes_last(tmp_path: Path) -> None:
    ids = np.concatenate([MEMBERS, OTHERS])
    blind = attacked("blind", 0.0)
    blind = dataclasses.replace(
        blind, found=(AttackScores(scores=ScoreSet(ids=ids, scores=np.zeros(120), attack="blind")),)
    )
    one, _, _ = assembled(trace(tmp_path / "a"), blind, attacked("worse than chance", -1.0))
    assert [outcome.attack for outcome in one.attacks] == ["worse than chance", "blind"]
    assert one.attacks[1].auc.value > one.attacks[0].auc.value
    alone, _, _ = assembled(trace(tmp_path / "b"), blind)
    assert alone.verdict.kind == "inconclusive"


def test_bounds_of_a_run_hold_for_the_strongest_of_five_attacks(tmp_path: Path) -> None:
    """Each attack gets a fifth of the error: in the bounds on mu and epsilon, in the test of the claim, in the gate."""
    names = [f"a{i}" for i in range(5)]
    attacks = [attacked(name, 1.0 + 0.1 * i) for i, name in enumerate(names)]
    target = {"target": Rate(0.11, 0.1), "gate": True}
    one, _, _ = assembled(trace(tmp_path / "a"), *attacks, **target)
    strongest = one.attacks[0]
    assert strongest.attack == "a4" and one.gate is not None
    scores = attacks[4].found[0].scores.scores
    split = [RunScores(scores[:60], scores[60:])]
    assert strongest.mu_lower == mu_lower_bound(split, confidence=0.99, seed=0)
    assert strongest.mu_lower < mu_lower_bound(split, confidence=0.95, seed=0)
    assert strongest.epsilon_lower == epsilon_lower_bound(split, delta=1e-5, confidence=0.99, seed=0)
    assert one.gate.tpr_lower == tpr_lower_bound(split, 0.1, confidence=0.99, seed=0)


def test_records_keep_the_names_they_were_given(tmp_path: Path) -> None:
    """And their susceptibilities are those of whichever attack measured them."""
    holder = attacked("list", 5.0, knows=1.0)
    other = attacked("glir", 0.0, susceptibility=np.arange(120.0))
    one, rows, _ = assembled(trace(tmp_path / "a"), holder, other, name_of=lambda ids: [f"p{i:03}" for i in ids])
    assert one.exposed_by == "list" and {row.id for row in rows} == {f"p{i:03}" for i in range(120)}
    assert all(f"p{round(row.susceptibility):03}" == row.id for row in rows if row.susceptibility is not None)
    assert all(record.id == f"p{round(record.susceptibility or 0):03}" for record in one.exposed)


@pytest.mark.parametrize("groups", [None, ["a", "b"] * 100])
def test_chance_among_ties_of_one_score_fails_nobody(groups: list[str] | None) -> None:
    """At this seed the ties, broken by chance, have a lower limit above the target at one rate."""
    table = {"member": [1] * 100 + [0] * 100, "score": [1.0] * 200} | ({} if groups is None else {"group": groups})
    result = audit(Scores(table), target=Rate(0.0101, 0.01), gate=True, claim=(0.0, 0.0), seed=52)
    run = result.runs[0]
    assert (run.conclusion.kind, run.conclusion.why) == ("inconclusive", "blind")
    assert run.answers[0].target != "missed"
    assert run.gate is not None and run.gate.passed and run.gate.blind
    to_html(result)
