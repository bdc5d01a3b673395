"""The pipeline on a small run: what it keeps, what it repeats, what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gmip
from gmip.attacks.attack import parties
from gmip.attacks.glir.glir_attack import GLiR
from gmip.attacks.loss import Loss
from gmip.auditing import attack_runs, make_config, run_audit
from gmip.auditing.attack_runs import attack_seconds, choose_candidates
from gmip.auditing.recompute import check_run
from gmip.auditing.schema import AuditResult, GivenClaim
from gmip.errors import GmipWarning, InvalidArgument, TraceMismatch
from gmip.report.card import headline
from gmip.report.sentences import cautions, gate
from gmip.report.share import shareable
from gmip.tasks import Task, load
from gmip.trace import Trace
from gmip.training import record, train
from gmip.training.batch_log import CANDIDATES
from gmip.vocabulary import Recipe

SMALL = {"dataset_size": 40, "batch_size": 40, "sampling": "full", "num_steps": 2, "clip_norm": None}


@pytest.fixture(scope="module")
def task() -> Task:
    digits = load("digits")
    return dataclasses.replace(digits, recipe=digits.recipe.replace(**SMALL))


@pytest.fixture(scope="module")
def run(task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "recorded"
    train(task, seed=77, out=folder)
    return folder


class Stages:
    """Remembers the stages of an audit; may interrupt one."""

    def __init__(self, stop_at: str | None = None) -> None:
        self.words: list[str] = []
        self.stop_at = stop_at

    def __call__(self, words: str) -> Callable[[int, int], None]:
        self.words.append(words)
        if self.stop_at is not None and words.startswith(self.stop_at):
            raise KeyboardInterrupt
        return lambda done, total: None


def without_times(result: AuditResult) -> dict[str, Any]:
    plain = result.model_dump()
    plain["created"] = ""
    for one in plain["runs"]:
        for attack in one["attacks"]:
            attack["seconds"] = 0.0
    return plain


def test_the_run_check_is_part_of_the_budget(task: Task, run: Path, monkeypatch: Any) -> None:
    """Attacks have half of it, however long the check took, and the audit says that it takes longer."""
    assert [attack_seconds(30.0), attack_seconds(30.0, 5.0), attack_seconds(30.0, 50.0)] == [24.0, 19.0, 15.0]
    assert attack_seconds(3600.0, 60.0) == 3530.0 and attack_seconds(None, 60.0) == math.inf
    given: list[tuple[float, float]] = []
    original = Loss._score
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def slow(*args: Any, **options: Any) -> Any:
        clock[0] += 40.0
        return check_run(*args, **options)

    def told(self: Loss, task: Task, target: Any, who: Any, work: Any) -> Any:
        given.append((work.budget.seconds, work.budget.most()))
        return original(self, task, target, who, work)

    monkeypatch.setattr(attack_runs, "check_run", slow)
    monkeypatch.setattr(Loss, "_score", told)
    gmip.audit(task, runs=[run], attacks=["loss"], budget=100.0)
    with pytest.warns(GmipWarning, match=r"The run check took 40 of the 60 seconds of the budget. The attacks get 30 "):
        gmip.audit(task, runs=[run], attacks=["loss"], budget=60.0)
    assert given == [(50.0, 50.0), (30.0, 30.0)]


def test_an_audit_without_out_keeps_nothing(task: Task, run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    result = gmip.audit(task, runs=[run], attacks=["loss"])
    assert list(tmp_path.iterdir()) == []
    (one,) = result.runs
    assert (one.name, one.path, one.task) == ("recorded", str(run), "digits")
    assert (one.facts.dataset_size, one.facts.num_steps, one.facts.noise_std) == (40, 2, 0.0)
    summary = json.loads((run / "result.json").read_text())
    assert one.facts.test_accuracy == pytest.approx(summary["test"]["accuracy"])
    assert one.facts.train_accuracy == pytest.approx(summary["train"]["accuracy"])
    assert [p.key for p in one.claims] == ["claimed"]


def test_an_interrupted_audit_goes_on_where_it_was(task: Task, tmp_path: Path) -> None:
    config = make_config({"out": str(tmp_path / "a"), "seed": 3, "attacks": ["loss", "glir"], "repeats": 2})
    with pytest.raises(KeyboardInterrupt):
        run_audit(config, task=task, watch=Stages("glir on run, 2 of 2"))
    again = Stages()
    resumed = run_audit(config, task=task, watch=again)
    assert [words for words in again.words if not words.startswith("training")] == [
        "checking the record of run",
        "glir on run, 2 of 2",
        "judging run",
    ]
    whole = run_audit(config.model_copy(update={"out": str(tmp_path / "b")}), task=task)
    assert without_times(resumed) == without_times(whole) | {"provenance": without_times(resumed)["provenance"]}
    assert resumed.candidates == whole.candidates
    (one,) = resumed.runs
    assert {p.key for p in one.claims} == {"claimed", "susceptibility", "prediction"}
    assert all((attack.repeats, attack.members) == (2, 80) for attack in one.attacks)


def test_a_seed_is_drawn_and_kept(task: Task, tmp_path: Path) -> None:
    config = make_config({"out": str(tmp_path), "attacks": ["loss"]})
    first, second = (run_audit(config, task=task).provenance.seed for _ in range(2))
    assert first == second
    other = run_audit(config.model_copy(update={"out": str(tmp_path / "b")}), task=task).provenance.seed
    assert other != first


def test_other_options_and_other_runs_are_attacked_anew(task: Task, run: Path, tmp_path: Path) -> None:
    def attacked(**changes: Any) -> list[str]:
        stages = Stages()
        config = make_config({"out": str(tmp_path), "seed": 3, "runs": [str(run)], "attacks": ["loss"]} | changes)
        run_audit(config, task=task, watch=stages)
        return [words for words in stages.words if "loss" in words]

    assert attacked() == ["loss on recorded"]
    assert attacked() == []
    assert attacked(attacks=[{"name": "loss", "options": {"device": "cpu:0"}}]) == ["loss on recorded"]
    assert attacked(candidates=10) == ["loss on recorded"]
    assert attacked() == []


def test_a_changed_recipe_is_trained_anew_in_the_same_folder(task: Task, tmp_path: Path) -> None:
    def trained(**recipe: Any) -> AuditResult:
        config = make_config({"out": str(tmp_path), "runs": [{"recipe": recipe}], "attacks": ["loss"]})
        return run_audit(config, task=task)

    steps = [trained(num_steps=count).runs[0].facts.num_steps for count in (1, 3, 1)]
    assert steps == [1, 3, 1]
    assert len(list((tmp_path / "work" / "runs").iterdir())) == 2


def test_candidates(run: Path) -> None:
    trace = Trace.open(run)
    assert trace.members is not None and trace.non_members is not None
    everybody = choose_candidates(trace, 1000, 0)
    np.testing.assert_array_equal(everybody, np.sort(np.concatenate([trace.members, trace.non_members])))
    some = choose_candidates(trace, 10, 0)
    assert np.isin(some, trace.members).sum() == 10 and some.size == 20
    np.testing.assert_array_equal(some, choose_candidates(trace, 10, 0))
    assert not np.array_equal(some, choose_candidates(trace, 10, 1))


def test_default_attacks(task: Task, run: Path, tmp_path: Path) -> None:
    noisy = dataclasses.replace(task, recipe=task.recipe.replace(clip_norm=1.0, noise_std=0.1))
    train(noisy, seed=77, out=tmp_path / "noisy")
    names = {
        path: {one.attack for one in gmip.audit(of, runs=[path]).runs[0].attacks}
        for of, path in ((task, run), (noisy, tmp_path / "noisy"))
    }
    assert names[run] == {"glir", "decode", "loss", "seed"}
    assert names[tmp_path / "noisy"] == {
        "glir",
        "decode",
        "loss",
        "seed",
        "glir-no-noise",
        "glir-no-clip",
        "differences",
    }


@pytest.mark.parametrize(("candidates", "share"), [(1000, 1.0), (20, 0.5)])
def test_decoding_on_request_is_compared_with_the_claim_for_a_list(
    task: Task, run: Path, candidates: int, share: float
) -> None:
    """Who is a candidate is on the list: all 40 members, or 20 of them."""
    (one,) = gmip.audit(task, runs=[run], attacks=["loss", "decode"], candidates=candidates).runs
    assert [(a.attack, a.attacker_knows) for a in one.attacks] == [("loss", 0.0), ("decode", share)]
    assert "a list that contains the members" in one.attacks[1].needs
    (claimed,) = (p for p in one.claims if p.key == "list")
    assert claimed.tpr_at["0.01"] == gmip.account(Trace.open(run).runs(), attacker_knows=share).tpr_at(0.01)
    assert one.claims[0].key == "claimed" and not one.attacks[1].exceeds_claim
    if share == 1.0:
        assert one.attacks[1].auc.value > 0.99 and one.verdict.list_leak
        assert one.verdict.list_leak == one.attacks[1].attack


def test_several_runs_with_targets(task: Task, tmp_path: Path) -> None:
    clipped = dataclasses.replace(task, recipe=task.recipe.replace(clip_norm=1.0))
    result = gmip.audit(
        clipped,
        runs=[
            {"name": "no noise"},
            {"target": "mu=1"},
            {"target": "mu=1", "notion": "gdp"},
            {"recipe": {"num_steps": 1}},
        ],
        attacks=["loss"],
        seed=1,
        title="Three ways",
    )
    assert result.title == "Three ways"
    assert [one.name for one in result.runs] == ["no noise", "GMIP mu 1.0", "GDP mu 1.0", "run"]
    noises = [one.facts.noise_std or 0.0 for one in result.runs]
    assert noises[0] == 0.0 and 0.0 < noises[1] <= noises[2] and noises[3] == 0.0
    assert [p.key for p in result.runs[1].claims] == ["claimed", "gdp"]
    assert result.runs[1].claims[0].mu == pytest.approx(1.0, rel=1e-3)
    assert result.runs[3].facts.num_steps == 1


def test_a_claim_of_ones_own(task: Task, run: Path) -> None:
    (one,) = gmip.audit(task, runs=[run], attacks=["loss"], claim=0.5).runs
    assert one.claims[0].mu == pytest.approx(0.5)
    assert one.claims[0].given == GivenClaim(mu=0.5)


def test_a_claim_of_differential_privacy_is_about_attackers_with_a_list_too(task: Task, run: Path) -> None:
    """Every member can be decoded from this run without noise, which epsilon = 1 excludes and a mu does not."""
    audits = [
        gmip.audit(task, runs=[run], attacks=["decode", "loss"], seed=1, **claim).runs[0]
        for claim in ({"claim": "epsilon=1@1e-3"}, {"claim": "epsilon=30"}, {"claim": 3.0})
    ]
    assert audits[0].claims[0].given == GivenClaim(epsilon=1.0, delta=0.001)
    assert audits[0].claims[0].tpr_at["0.01"] == pytest.approx(np.e * 0.01 + 0.001)
    decoded = [next(a for a in one.attacks if a.attack == "decode") for one in audits]
    assert decoded[0].attacker_knows == 1.0 and decoded[0].mu_lower > 1.0
    assert [one.verdict.kind == "exposed" for one in audits] == [True, False, False]
    assert [one.exceeds_claim for one in decoded] == [True, False, False]


def test_gate(task: Task, run: Path) -> None:
    (one,) = gmip.audit(task, runs=[run], attacks=["loss"], target="tpr=0.9@0.1", gate=True).runs
    assert one.gate is not None and one.gate.passed


def test_exposed_records_are_members_by_falling_score(task: Task, run: Path) -> None:
    config = make_config({"runs": [str(run)], "attacks": ["loss"]})
    members = set(np.asarray(Trace.open(run).members).tolist())
    audited = run_audit(config.model_copy(update={"out": str(run.parent / "out")}), task=task)
    (one,) = audited.runs
    assert one.exposed_by == "loss" and len(one.exposed) == 20
    assert {record.id for record in one.exposed} <= members
    scores = [record.score for record in one.exposed]
    assert scores == sorted(scores, reverse=True)
    rows = audited.candidates["recorded"]
    assert len(rows) == 80 and sum(row.member for row in rows) == 40


def test_warnings_of_attacks_are_reported(run: Path, task: Task) -> None:
    small = {"dataset_size": 600, "num_steps": 1, "batch_size": 600}
    result = gmip.audit(task, runs=[{"recipe": small}], attacks=["glir"], seed=0, candidates=50)
    assert any("self-play" in words for words in result.runs[0].warnings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"attacks": ["glir", "liar"]}, "'liar' is not known, did you mean 'lira'"),
        ({"attacks": [{"name": "glir", "options": {"methd": "paper"}}]}, "did you mean 'method'"),
        ({"attacks": [{"name": "glir", "options": {"method": "best"}}]}, "method = 'best' is not known"),
        ({"attacks": [{"name": "glir", "options": {"steps": "all"}}]}, "steps = 'all' must be a list"),
        ({"runs": [{"recipe": {"batch_size": 50, "sampling": "fixed"}}]}, "batch_size = 50 exceeds"),
        ({"runs": [{"recipe": {"dataset_size": "many"}}]}, "dataset_size"),
        ({"runs": ["nowhere/at/all"]}, "nowhere"),
        ({"zzz": 1}, "zzz is not a setting: the settings are"),
    ],
)
def test_bad_requests(task: Task, settings: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidArgument, gmip.GmipError), match=words):
        gmip.audit(task, **({"attacks": ["loss"]} | settings))


def test_data_of_another_task_are_refused(run: Path) -> None:
    with pytest.raises(TraceMismatch, match="other data"):
        gmip.audit("breast-cancer", runs=[run])


def test_a_trace_without_members_is_refused(task: Task, tmp_path: Path) -> None:
    model = task.make_model()
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gmip.record(model, optimizer, tmp_path / "r", dataset_size=40, batch_size=40, data=task):
        optimizer.zero_grad()
        task.loss(model(task.pool.inputs[:40]), task.pool.targets[:40]).mean().backward()
        optimizer.step()
    with pytest.raises(InvalidArgument, match="does not name both members and non-members"):
        gmip.audit(task, runs=[tmp_path / "r"])


def test_repeats_of_a_loop_of_ones_own_need_its_recipe(task: Task, run: Path, tmp_path: Path) -> None:
    other = dataclasses.replace(task, recipe=Recipe(dataset_size=41, batch_size=41, num_steps=2, learning_rate=1.0))
    train(task, seed=1, out=tmp_path / "r")
    result = gmip.audit(other, runs=[tmp_path / "r"], attacks=["loss"], repeats=2, seed=0)
    assert result.runs[0].attacks[0].repeats == 2  # by the recipe in the trace, not by the task's


def test_keys_name_all_that_scores_depend_on() -> None:
    assert repr(Loss()) != repr(Loss(device="cuda"))
    assert repr(GLiR()) != repr(GLiR(doubt="noise"))


@pytest.fixture(scope="module")
def bare(task: Task, tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, Path]:
    """A run of which every record is a member or a non-member: no background is left."""
    own = dataclasses.replace(task, pool=task.pool[np.arange(80)], background=None)
    folder = tmp_path_factory.mktemp("runs") / "bare"
    model = own.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inside = own.pool[np.arange(40)]
    split = {"members": np.arange(40), "non_members": np.arange(40, 80)}
    with pytest.warns(GmipWarning, match="no background left"):
        recorder = record(model, optimizer, folder, dataset_size=40, batch_size=40, sampling="full", data=own, **split)
    with recorder:
        for _ in range(2):
            optimizer.zero_grad()
            own.loss(model(inside.inputs), inside.targets).mean().backward()
            optimizer.step()
    return own, folder


def test_an_attack_that_cannot_run_is_left_out(bare: tuple[Task, Path]) -> None:
    task, run = bare
    (audited,) = gmip.audit(task, runs=[run], attacks=["loss", "glir"], seed=1).runs
    assert [one.attack for one in audited.attacks] == ["loss"]
    (left,) = audited.left_out
    assert left.attack == "glir" and "no background examples" in left.problem and left.remedy is not None
    assert any("glir could not run and was left out: There are" in words for words in cautions(audited))
    shared = shareable(gmip.audit(task, runs=[run], attacks=["loss", "glir"], seed=1)).runs[0]
    assert shared.left_out[0].attack == "glir" and str(run) not in shared.model_dump_json()


def test_what_weak_attacks_did_not_find_passes_no_gate_where_a_strong_one_was_left_out(bare: tuple[Task, Path]) -> None:
    task, run = bare
    asked = {"target": "tpr=0.98@0.5", "gate": True, "seed": 1}
    (audited,) = gmip.audit(task, runs=[run], attacks=["loss", "glir"], **asked).runs
    assert (audited.conclusion.kind, audited.conclusion.why) == ("inconclusive", "left-out")
    assert audited.gate is not None and audited.gate.doubted and not audited.gate.passed
    assert headline(audited).startswith("Gradient LRT (GLiR, Leemann et al. 2023) could not run. The other attacks")
    assert gate(audited, audited.gate) == f"Cannot tell, so it does not pass: {headline(audited)}"
    (asked_for,) = gmip.audit(task, runs=[run], attacks=["loss"], **asked).runs
    assert asked_for.conclusion.kind == "passes" and asked_for.gate is not None and asked_for.gate.passed


def test_an_audit_in_which_no_attack_can_run_ends_with_the_error(bare: tuple[Task, Path]) -> None:
    task, run = bare
    with pytest.raises(InvalidArgument, match="no background examples"):
        gmip.audit(task, runs=[run], attacks=["glir"], seed=1)


def test_non_members_that_are_not_candidates_are_background(bare: tuple[Task, Path]) -> None:
    task, run = bare
    trace = Trace.open(run)
    found = parties(task, trace, choose_candidates(trace, 10, 1), None)
    assert len(found.background) == 30 and len(found.candidates) == 20


def test_the_recorder_knows_how_many_an_audit_attacks() -> None:
    assert make_config({}).candidates == CANDIDATES


def test_a_recorded_run_is_a_source(task: Task, run: Path) -> None:
    how = {"attacks": ["loss"], "seed": 3}
    (one,) = gmip.audit(gmip.Recorded(run, task, name="mine"), **how).runs
    (same,) = gmip.audit(task, runs=[{"path": str(run), "name": "mine"}], **how).runs
    assert (one.name, one.verdict, one.answers) == ("mine", same.verdict, same.answers) and one.source == "recorded"
    both = [gmip.Recorded(run, task), gmip.Scores([1.0, 2.0], [0.0, 0.5])]
    with pytest.raises(InvalidArgument, match="holds a Scores beside a Recorded"):
        gmip.audit(both)
    with pytest.raises(InvalidArgument, match="named by the sources already"):
        gmip.audit(gmip.Recorded(run, task), runs=[run])
