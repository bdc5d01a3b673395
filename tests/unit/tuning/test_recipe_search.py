"""`gmip.tune`: finds a good recipe, keeps the target, comes back to the same answer."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from torch.nn import Linear

from gmip.accounting.account import account
from gmip.errors import GmipWarning, InvalidArgument, UnreachableTarget
from gmip.report import write_tuning
from gmip.report.tuning_page import exposure_notes, tuning_html
from gmip.tuning import TuneResult, tune
from gmip.tuning.recipe_search import Quality, Schedule
from gmip.tuning.trials import Training, TrialRunner, TrialWork
from gmip.vocabulary import PrivacyTarget
from tests.unit.tuning.toy import toy_task

TARGET: dict[str, Any] = {"target_tpr": (0.2, 0.01), "attacker_knows": 1.0}  # so that noise is needed
SMALL: dict[str, Any] = {
    **TARGET,
    "trials": 24,
    "workers": 1,
    "split_seed": 0,
    "space": {"num_steps": (6, 12), "optimizer": "SGD"},
}


@pytest.fixture(scope="module")
def found() -> TuneResult:
    return tune(toy_task(), **SMALL)


def test_every_trial_and_the_answer_keep_the_target(found: TuneResult):
    assert found.exposure <= 0.2
    for recipe in [one.recipe for one in found.tried] + [found.recipe]:
        assert account(recipe.run(found.num_params), attacker_knows=1.0).tpr_at(0.01) <= 0.2 * (1.0 + 1e-12)
    assert found.own is not None and found.own.exposure <= 0.2


def test_the_answer_is_good(found: TuneResult):
    assert found.quality.mean > 0.85  # guessing is 0.5, the best that can be known about 0.93


def test_the_frontier_rises_with_exposure(found: TuneResult):
    names = [point.name for point in found.frontier]
    exposures = [point.exposure for point in found.frontier]
    assert {"the target", "stricter", "no noise"} <= set(names) and exposures == sorted(exposures)
    stricter = found.stricter()
    assert stricter is not None and stricter.exposure < 0.2
    noises = [point.recipe.noise_std / (point.recipe.clip_norm or 1.0) for point in found.frontier]
    assert noises == sorted(noises, reverse=True) and noises[-1] == 0.0


def test_an_interrupted_search_comes_to_the_same_answer(tmp_path, monkeypatch, found: TuneResult):
    class Killed(BaseException):
        pass

    computed = 0
    original = TrialWork.compute

    def dying(self, job):
        nonlocal computed
        computed += 1
        if computed == 17:
            raise Killed
        return original(self, job)

    monkeypatch.setattr(TrialWork, "compute", dying)
    with pytest.raises(Killed):
        tune(toy_task(), **SMALL, folder=tmp_path)
    kept = len(list(tmp_path.glob("trials-*/*.entry")))
    assert kept == 16
    damaged = next(tmp_path.glob("trials-*/*.entry"))
    damaged.write_bytes(damaged.read_bytes()[:20])
    computed = 17
    with pytest.warns(GmipWarning, match="damaged"):
        again = tune(toy_task(), **SMALL, folder=tmp_path)
    assert (again.recipe, again.quality, again.frontier) == (found.recipe, found.quality, found.frontier)
    total = computed
    assert tune(toy_task(), **SMALL, folder=tmp_path).recipe == found.recipe
    assert computed == total  # all of it was kept


def test_written(tmp_path, found: TuneResult):
    from gmip.tuning.recipe_search import read_recipe_file

    read = read_recipe_file(write_tuning(found, tmp_path))
    assert read.recipe == found.recipe and read.split_seed == 0 and read.task == "toy"
    kept = json.loads((tmp_path / "tuning.json").read_text())
    assert kept["exposure"] == found.exposure and len(kept["frontier"]) == len(found.frontier)
    page = (tmp_path / "tuning.html").read_text()
    assert "<svg" in page and "the price of privacy" in page.lower() and "<script" not in page
    assert len((tmp_path / "trials.csv").read_text().splitlines()) == 1 + len(found.tried)


def test_bad_requests():
    with pytest.raises(UnreachableTarget, match="guessing alone"):
        tune(toy_task(), target_tpr=(0.01, 0.01))
    with pytest.raises(InvalidArgument, match="is NaN or infinite for all 10 recipes"):
        tune(toy_task(), **(SMALL | {"metric": lambda task, model, examples: math.nan}))
    with pytest.raises(InvalidArgument, match="10 records that will not be members"):
        tune(toy_task(), **TARGET, recipe=toy_task().recipe.replace(dataset_size=290))
    with pytest.raises(InvalidArgument, match="budget = 'soon' is not a length of time"):
        tune(toy_task(), **TARGET, budget="soon")


def test_json_is_strict_and_noise_is_not_rounded_down(tmp_path, found: TuneResult):
    odd = dataclasses.replace(found, exposure=math.inf, quality=Quality((math.nan, 0.5)))
    odd = dataclasses.replace(odd, recipe=found.recipe.replace(noise_std=0.0730251))
    text = json.dumps(odd.summary(), allow_nan=False)
    assert json.loads(text)["exposure"] == "Infinity" and json.loads(text)["test"]["mean"] == "NaN"
    assert "0.073026" in tuning_html(dataclasses.replace(found, recipe=odd.recipe))


def test_measured_susceptibilities_are_no_bound_for_another_recipe(found: TuneResult):
    measured = dataclasses.replace(found, target=PrivacyTarget(target_mu=1.0, susceptibility=[4.0, 9.0]))
    assert any("measure them again" in line for line in exposure_notes(measured))
    assert not any("measure them again" in line for line in exposure_notes(found))
    assert found.claim.kind == "bound" and exposure_notes(found)[0].startswith("The exposure is a proved bound")


@pytest.mark.parametrize("halfway", [math.nan, -1.0])
def test_a_model_that_ended_half_way_is_not_taken_for_complete(halfway: float):
    values = iter([halfway, 1.0])
    task = toy_task()
    work = TrialWork(task=task, num_params=6, metric=lambda task, model, examples: next(values), split_seed=0)
    outcome = work.compute(Training(recipe=task.recipe, seed=0, least=0.5))
    assert outcome.stopped and outcome.metric != 1.0


def test_a_budget_in_time_counts_calibrations(monkeypatch):
    """A budget of a minute took five where the noise of many sizes had to be found first."""
    monkeypatch.setattr(TrialRunner, "spent", 1.0e9)
    result = tune(toy_task(), **(SMALL | {"trials": None, "budget": "10min"}))
    assert len(result.tried) <= 26


@pytest.mark.parametrize("trials", [24, 30, 60, 120])
def test_the_parts_of_a_schedule_add_up(trials: int):
    plan = Schedule(trials)
    assert plan.start + 3 * (plan.round + 1) + (plan.finalists + 1) * plan.seeds <= trials + 2


ON_MEMBERS: dict[str, Any] = {"target_epsilon": 3.0, "delta": 1e-3, "notion": "gdp", "on_members": 4, "workers": 1}


@pytest.fixture
def same_secrets(monkeypatch):
    monkeypatch.setattr("gmip.tuning.recipe_search.secrets.randbits", random.Random(25).getrandbits)


@pytest.mark.usefixtures("same_secrets")
def test_a_search_on_members_keeps_the_target_after_the_choice_and_tells_nothing_else(tmp_path):
    task = toy_task(members=240)  # 60 others, to measure on
    found = tune(task, **ON_MEMBERS, split_seed=0, folder=tmp_path / "kept")
    run = found.recipe.run(found.num_params)
    one = account(run, notion="gdp")
    assert found.claim.kind == "bound" and found.recipe.num_steps == task.recipe.num_steps
    assert one.best_of(4).epsilon(1e-3) == pytest.approx(3.0, rel=1e-5) == found.exposure
    assert one.epsilon(1e-3) < 2.5  # what one run may spend
    assert found.model is not None and found.quality.mean > 0.6
    plain = found.summary()
    assert [plain[name] for name in ("trials", "trainings", "seconds", "seed")] == [None] * 4
    assert found.tried == () and found.frontier == () and found.own is None
    path = write_tuning(found, tmp_path / "out")
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["model.safetensors", "tuning.json"]
    assert sorted(one.name for one in (tmp_path / "kept").iterdir() if one.name[0] != ".") == []  # no trials
    found.model.load_state_dict(load_file(path))
    again = tune(task, **ON_MEMBERS, split_seed=0)
    assert again.recipe != found.recipe  # seeds are nobody's


def test_bad_requests_on_members():
    for wrong, words in (
        ({"notion": "gmip"}, "by differential privacy alone"),
        ({"trials": 30}, "has to be random"),
        ({"space": {"num_steps": (6, 12)}}, "all runs need the same"),
        ({"on_members": 0.5}, "must be at least 1"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            tune(toy_task(), **(ON_MEMBERS | wrong))


@pytest.mark.usefixtures("same_secrets")
def test_the_number_of_runs_on_members_is_geometric(monkeypatch):
    counts: list[int] = []

    def fitted(*_, **__) -> Linear:
        counts.append(1)
        return Linear(4, 2).eval()

    monkeypatch.setattr("gmip.tuning.recipe_search.fit", fitted)
    numbers = []
    for _ in range(60):
        tune(toy_task(), **ON_MEMBERS)
        numbers.append(len(counts))
        counts.clear()
    # P(K = 1) = 1/4 and the mean is 4, with standard errors of .056 and .45.
    assert 0.06 < np.mean(np.array(numbers) == 1) < 0.48 and 2.2 < np.mean(numbers) < 6.0
