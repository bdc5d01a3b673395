from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from gmip import Gaussian, NoisySGD, account
from gmip.auditing.advice import TrainingCommand, advise, ranked
from gmip.auditing.advice_schema import Advice, TriedAccuracy, Way
from gmip.auditing.schema import AttackerAnswer
from gmip.auditing.verdict import verdict
from gmip.cli import main
from gmip.vocabulary import Rate, Recipe
from tests.unit.auditing.scored import CONFIDENCE, measured

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


def advice(
    *runs: NoisySGD, kind: str = "consistent", answer: AttackerAnswer | None = None, **changes: Any
) -> tuple[Advice, ...]:
    one = measured(0.5, 200, 1.0, **changes)
    judged = verdict([one], Gaussian(1.0), fpr=0.01, confidence=CONFIDENCE).model_copy(update={"kind": kind})
    return advise(runs, judged, [one], goal=GOAL, answer=answer)


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    words = shlex.split(command)
    assert words[0] == "gmip" and main([*words[1:], "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    "runs", [(RUN,), (RUN.replace(sampling="poisson"),), (RUN, RUN.replace(batch_size=50, num_steps=7, noise_std=0.02))]
)
def test_every_command_prints_what_the_advice_says(runs: tuple[NoisySGD, ...], capsys: Any) -> None:
    ways = [one for one in advice(*runs) if one.way is not None]
    assert len(ways) == 7
    for one in ways:
        assert one.way is not None and one.command is not None and "\n" not in one.command
        answer = printed(one.command, capsys)
        found = answer["achieved"] if one.command.startswith("gmip calibrate") else answer["tpr_at_fpr"]["0.01"]
        assert found == pytest.approx(one.way.tpr, rel=1e-3)  # settings are rounded to five digits
        assert one.way.tpr <= 0.05 and answer["kind"] == one.way.kind and answer["for_whom"] == one.way.for_whom
        said = "Proved: at most 5%" if one.way.kind == "bound" else "Forecast: about"
        assert said in one.text


def test_changes_are_those_of_the_run() -> None:
    for one in advice(RUN):
        if one.way is not None:
            notion: Any = "gdp" if one.way.change == "noise-alone" else "gmip"
            assert account(RUN.replace(**one.way.changes), notion=notion).tpr_at(0.01) == one.way.tpr


def test_the_command_trains_what_it_says(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    pytest.importorskip("torch", reason="training needs the extra gmip[train]")
    run = NoisySGD(dataset_size=250, batch_size=25, num_steps=5, num_params=650, clip_norm=1.0)
    one = measured(0.5, 200, 1.0)
    judged = verdict([one], Gaussian(1.0), fpr=0.01, confidence=CONFIDENCE)
    others = advise([run], judged, [one], goal=GOAL, trained_by=TRAINED)
    noise = next(each for each in others if each.way is not None and each.way.change == "noise")
    monkeypatch.chdir(tmp_path)
    assert noise.command is not None and noise.way is not None and noise.command.startswith("gmip train --task digits ")
    assert "--seed" not in noise.command  # a secret one is drawn
    answer = printed(noise.command, capsys)
    assert answer["recipe"] == dataclasses.asdict(TRAINED.recipe) | noise.way.changes
    assert answer["privacy"]["gmip"]["tpr_at_fpr"]["0.01"] == pytest.approx(noise.way.tpr, rel=1e-6)
    assert others[-1].command == "gmip tune digits --target-tpr 0.05@0.01 --dataset-size 250"
    assert main([*shlex.split(others[-1].command)[1:], "--trials", "none"]) == 2
    assert capsys.readouterr().err.startswith("--trials must be")  # and all else was understood
    for other in others:  # what the same training cannot do is shown by the accountant
        if other.way is not None and other.way.change in ("parameters", "data"):
            assert other.command is not None and other.command.startswith("gmip account ")


def answer(target: str, why: str, knows: float = 0.0) -> AttackerAnswer:
    return AttackerAnswer(sees="gradients", knows=knows, leak="leak", target=target, why=why)


def test_nothing_to_do_for_a_target_that_is_guaranteed() -> None:
    (only,) = advice(RUN, answer=answer("guaranteed", "bound"))
    assert only.text == "Nothing to do for the target: a bound keeps at most 5% of the members at 1% false alarms."


def test_a_target_that_is_only_forecast_leads_with_the_noise_that_proves_it() -> None:
    run = RUN.replace(noise_std=0.0235)
    now, lead, first, *_ = advice(run, answer=answer("not-guaranteed", "forecast"))
    assert now.text.startswith("The target is forecast, not guaranteed: about 4.") and "at most" not in now.text
    assert lead.text.startswith("To guarantee the target: noise_std = 0.028584 ")
    assert lead.text.endswith("That is proved for any record, whatever the others are, and any attacker.")
    assert first.way is not None and first.way.change == "noise-alone" and first.way.kind == "bound"


def test_the_ways_are_about_the_attacker_of_the_headline() -> None:
    """What is enough against one without a list is not against one who holds it."""
    run = RUN.replace(noise_std=0.0235)
    lead, noise, *_ = advice(run, answer=answer("not-guaranteed", "exceeds", knows=1.0))
    assert noise.way is not None and noise.way.kind == "bound" and "--attacker-knows 1" in str(noise.command)
    assert account(RUN.replace(**noise.way.changes), attacker_knows=1.0).tpr_at(0.01) <= 0.05
    assert lead.text.startswith("To guarantee the target: noise_std = 0.026839 ")


def test_advice_without_clipping() -> None:
    run = NoisySGD(dataset_size=2000, batch_size=200, num_steps=50, num_params=650)
    texts = [one.text for one in advice(run)]
    assert any("Clip the gradient of each record" in text for text in texts)
    assert texts[-1].startswith("These alone are not enough: ")


def test_advice_about_exposure_and_seeds() -> None:
    assert any("Do not rely on the promise" in one.text for one in advice(RUN.replace(noise_std=1.0), kind="exposed"))
    assert any("seed can be guessed" in one.text for one in advice(RUN.replace(noise_std=1.0), guessed_seed=7))


def test_the_best_model_comes_first_and_what_was_not_measured_last() -> None:
    def way(name: str, accuracy: float | None) -> Advice:
        tried = None if accuracy is None else TriedAccuracy(mean=accuracy, error=0.01, seeds=3, trained_on="others")
        found = Way(change="noise", name=name, setting="", tpr=0.05, kind="bound", for_whom="anybody", accuracy=tried)
        return Advice(text=name, way=found)

    other = Advice(text="first of all")
    given = [other, way("none", None), way("good", 0.8), way("bad", 0.2), way("best", 0.9), Advice(text="last")]
    assert [one.text for one in ranked(given)] == ["first of all", "best", "good", "bad", "none", "last"]


def test_where_the_training_is_not_known_the_first_word_is_to_find_less() -> None:
    """Also where only an attacker with a list finds anybody, who stands last among the attacks."""
    nothing, listed = measured(0.0, 300, 1.0), measured(2.0, 300, 1.0, attacker_knows=1.0)
    judged = verdict([nothing, listed], None, fpr=0.01, confidence=CONFIDENCE)
    said = advise((), judged, [nothing, listed], goal=GOAL)
    assert said[0].text.startswith("To find less: ") and said[1].command == "gmip audit ... --claim-mu 1"
    assert not any("To find less" in one.text for one in advise((), judged, [nothing], goal=GOAL))
