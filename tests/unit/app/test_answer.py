"""The calculator's answers are those of `account`, `calibrate` and the commands that it prints."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from gmip import account, calibrate
from gmip.app.calculator import PRESETS, BadField, Question, answer
from gmip.cli import main

FORM = PRESETS["cifar10"] | {"tpr": "0.03"}


def ask(**changes: str) -> dict:
    return answer(Question.read(FORM | changes))


def test_the_sentence_is_the_accountants():
    run = Question.read(FORM).run
    told = ask()
    assert "about 4.39% of the members" in told["sentence"]
    assert account(run).tpr_at(0.01) == pytest.approx(0.0438, abs=1e-4)
    assert told["badge"] == "bad" and told["target"].startswith("Exceeds the target")


def test_the_noise_follows_the_target():
    told = ask(follow="target")
    run = calibrate(Question.read(FORM).run, target_tpr=(0.03, 0.01))
    assert float(told["fields"]["noise_std"]) == pytest.approx(run.noise_std, rel=1e-4)
    assert float(told["fields"]["noise_std"]) >= run.noise_std
    assert told["badge"] == "open"  # a forecast keeps nothing for sure
    gdp = calibrate(Question.read(FORM).run, target_tpr=(0.03, 0.01), notion="gdp")
    shown = dict(told["rows"])["Noise that differential privacy needs for the target (replace-one)"]
    assert float(shown) == pytest.approx(gdp.noise_std, rel=1e-4)


def test_only_a_bound_is_green():
    told = ask(attacker_knows="1", noise_std="20")
    assert told["badge"] == "good" and told["target"].startswith("Guaranteed")
    assert ask(noise_std="20")["badge"] == "open"


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"follow": "target"},
        {"sampling": "poisson", "noise_std": "1.5", "attacker_knows": "0.5", "fpr": "0.001"},
        {"keep": "steps", "num_steps": "77", "record": "900", "clip_norm": ""},
    ],
)
def test_the_command_and_the_python_give_the_same_number(changes, capsys):
    question = Question.read(FORM | changes)
    told = answer(question)
    words = shlex.split(told["command"])
    assert words[0] == "gmip"
    assert main([*words[1:], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    names: dict = {}
    exec(told["python"], names)
    tpr = names["curve"].tpr_at(question.fpr)
    by_command = printed["achieved"] if "achieved" in printed else next(iter(printed["tpr_at_fpr"].values()))
    assert tpr == pytest.approx(by_command, rel=1e-9)
    rates, found = np.loadtxt(told["csv"].splitlines(), delimiter=",", skiprows=1, usecols=(0, 1)).T
    at = int(np.argmin(np.abs(rates - 0.1)))
    assert found[at] == pytest.approx(names["curve"].tpr_at(rates[at]), rel=1e-4)


def test_the_chart_marks_the_target():
    assert "Target: 3% at 1% false alarms" in ask()["chart"]["log"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"follow": "target", "clip_norm": ""}, "clip_norm"),
        ({"follow": "target", "tpr": "0.005"}, "tpr"),
        ({"noise_std": "1", "clip_norm": ""}, "noise_std"),
    ],
)
def test_what_has_no_answer_is_said_at_its_field(changes, field):
    with pytest.raises(BadField) as caught:
        ask(**changes)
    assert caught.value.field == field


def test_that_knowing_more_changes_nothing_is_said():
    """Where the noise alone gives the answer, the slider of what the attacker knows has no effect."""
    said = "it does not depend on what the attacker knows"
    loud = ask(noise_std="500", attacker_knows="0.9")
    assert said in loud["standing"] and said not in ask()["standing"]
    assert said not in ask(noise_std="2")["standing"]
    everybody = ask(noise_std="500", attacker_knows="1")
    found = [dict(told["rows"])["Advantage over guessing"].split()[-1] for told in (loud, everybody)]
    assert found[0] == found[1]
