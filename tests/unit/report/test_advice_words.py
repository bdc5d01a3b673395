from __future__ import annotations

import dataclasses
import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from gmip import Gaussian, NoisySGD
from gmip.accounting.alternatives import ClosedWay, ClosedWhy
from gmip.auditing.advice import advise
from gmip.auditing.schema import (
    Advice,
    AdviceKind,
    AttackerAnswer,
    AttackOutcome,
    CommandFacts,
    RunAudit,
    TrainingCommand,
)
from gmip.auditing.verdict import verdict
from gmip.cli import main
from gmip.report.advice_words import closed_sentence, command, text
from gmip.report.share import shareable
from gmip.vocabulary import PrivacyTarget, Rate, Recipe
from tests.unit.auditing.scored import CONFIDENCE, measured
from tests.unit.report import sample

RUN = NoisySGD(dataset_size=600, batch_size=100, num_steps=20, num_params=170, clip_norm=1.0, noise_std=0.01)
TRAINED = TrainingCommand(
    task="digits",
    recipe=Recipe(
        dataset_size=250,
        batch_size=25,
        num_steps=5,
        clip_norm=1.0,
        learning_rate=2.0,
        optimizer_options={"momentum": 0.5},
    ),
)
GOAL = Rate(0.05, 0.01)


@cache
def found() -> AttackOutcome:
    return measured(0.5, 200, 1.0)


def audited(
    *runs: NoisySGD, answer: AttackerAnswer | None = None, trained_by: TrainingCommand | None = None
) -> RunAudit:
    one = found()
    judged = verdict([one], Gaussian(1.0), fpr=0.01, confidence=CONFIDENCE)
    more = {
        "goal": GOAL,
        "declared": runs,
        "commands": CommandFacts(trained_by=trained_by),
        "answers": () if answer is None else (answer,),
        "advice": advise(runs, judged, [one], goal=GOAL, trained=trained_by is not None, answer=answer),
    }
    return sample.consistent().runs[0].model_copy(update=more)


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    words = shlex.split(command)
    assert words[0] == "gmip" and main([*words[1:], "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("runs", [(RUN,), (RUN.replace(sampling="poisson"),)])
def test_every_command_prints_what_the_advice_says(runs: tuple[NoisySGD, ...], capsys: Any) -> None:
    run = audited(*runs)
    ways = [one for one in run.advice if one.way is not None]
    assert len(ways) == 7
    for one in ways:
        shown = command(one, run)
        assert one.way is not None and shown is not None and "\n" not in shown
        answer = printed(shown, capsys)
        found = answer["achieved"] if shown.startswith("gmip calibrate") else answer["tpr_at_fpr"]["0.01"]
        assert found == pytest.approx(one.way.tpr, rel=1e-3)  # settings are rounded to five digits
        assert one.way.tpr <= 0.05 and answer["kind"] == one.way.kind and answer["for_whom"] == one.way.for_whom
        said = "Guaranteed: at most 5%" if one.way.kind == "bound" else "Forecast: about"
        assert said in text(one, run)


@pytest.mark.parametrize(
    "runs", [(RUN, RUN.replace(batch_size=50, num_steps=7, noise_std=0.02)), (RUN.replace(shaped_noise=0.02),)]
)
def test_what_has_no_options_has_no_command(runs: tuple[NoisySGD, ...]) -> None:
    run = audited(*runs)
    assert not any(command(one, run) for one in run.advice)


def test_a_shared_result_has_no_commands() -> None:
    run = audited(RUN, trained_by=TRAINED)
    (shared,) = shareable(sample.result(run)).runs
    assert any(command(one, run) for one in run.advice)
    assert not any(command(one, shared) for one in shared.advice)
    assert [text(one, shared) for one in shared.advice] == [text(one, run) for one in run.advice]


def test_advice_survives_the_file() -> None:
    run = audited(RUN, RUN.replace(batch_size=50), trained_by=TRAINED)
    assert RunAudit.model_validate_json(run.model_dump_json()) == run


def test_the_target_of_an_attacker_with_a_list_is_in_the_command() -> None:
    listed = AttackerAnswer(sees="gradients", knows=1.0, leak="leak", target="not-guaranteed", why="exceeds")
    run = audited(RUN.replace(noise_std=0.0235), answer=listed)
    lead, noise, *_ = run.advice
    assert "--attacker-knows 1" in str(command(noise, run))
    assert text(lead, run).startswith("To guarantee the target: noise multiplier 2.69 instead of 2.35 ")


@pytest.mark.parametrize("kind", get_args(AdviceKind))
def test_every_kind_has_its_own_words(kind: AdviceKind) -> None:
    """A model of unknown training has other words than a run that was declared."""
    run = audited(RUN)
    way = next(one.way for one in run.advice if one.way is not None)
    closed = (ClosedWay("batch", "batch", 126, 1.0), ClosedWay("steps", "one-step", value=0.505))
    one = Advice(kind=kind, way=way if kind == "way" else None, tpr=0.04, for_whom="any record", closed=closed)
    said = text(one, run)
    assert said.endswith((".", ")")) and "promise" not in said and "None" not in said
    if kind == "closed-ways":
        assert said.startswith("These alone do not reach the target: larger batches (best size 126: 100%); fewer steps")
    if kind == "claim-refuted":
        assert said != text(one, run.model_copy(update={"declared": ()}))


@pytest.mark.parametrize("why", get_args(ClosedWhy))
def test_every_closed_way_says_why(why: ClosedWhy) -> None:
    said = closed_sentence([ClosedWay("noise", why, 7, 0.25)], PrivacyTarget(target_mu=0.1))
    assert said.startswith("These alone do not reach the target: more noise (") and "%" not in said


def test_the_command_trains_what_it_says(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    pytest.importorskip("torch", reason="training needs the extra gmip[train]")
    run = NoisySGD(dataset_size=250, batch_size=25, num_steps=5, num_params=650, clip_norm=1.0)
    one = audited(run, trained_by=TRAINED)
    others = {advice.way.change if advice.way else advice.kind: advice for advice in one.advice}
    noise = others["noise"]
    shown, tune = command(noise, one), command(others["tune"], one)
    monkeypatch.chdir(tmp_path)
    assert shown is not None and noise.way is not None and shown.startswith("gmip train digits ")
    assert "--seed" not in shown  # a secret one is drawn
    answer = printed(shown, capsys)
    wanted = dataclasses.asdict(TRAINED.recipe) | noise.way.changes([run])
    assert answer["recipe"] == wanted | {"noise_std": pytest.approx(wanted["noise_std"], rel=1e-2)}
    assert answer["recipe"]["noise_std"] >= wanted["noise_std"]
    assert answer["privacy"]["gmip"]["tpr_at_fpr"]["0.01"] <= noise.way.tpr * (1.0 + 1e-6)
    multiplier = shown.split("--noise-multiplier ")[1].split()[0]
    assert f"noise multiplier {multiplier} " in text(noise, one)  # what is said is what is copied
    assert tune == "gmip tune digits --target tpr=0.05@0.01 --dataset-size 250"
    assert main([*shlex.split(tune)[1:], "--budget", "nonetrials"]) == 2
    assert capsys.readouterr().err.startswith("--budget must be")  # and all else was understood
    for change in ("parameters", "data"):  # what the same training cannot do is shown by the accountant
        assert str(command(others[change], one)).startswith("gmip account ")
