from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gmip.attacks import LiRA
from gmip.attacks import shadow as shadow_training
from gmip.attacks.attack import parties
from gmip.attacks.shadow import Membership, Shadows
from gmip.attacks.work import Budget
from gmip.errors import DataUnavailable, GmipError, GmipWarning, InvalidArgument, TraceMismatch, UnreachableTarget
from gmip.tasks import cross_entropy
from gmip.trace import Trace
from gmip.training import fit, train
from tests.unit.attacks.shadow.helpers import (
    RECIPE,
    Large,
    Losses,
    Outputs,
    Random,
    Troubled,
    about,
    bits,
    files,
    make_model,
    make_task,
    times,
)

pytestmark = pytest.mark.filterwarnings("ignore:The model drops units:gmip.GmipWarning")  # dropout is part of the case

# -- what is computed --------------------------------------------------------------------------------------------------


def test_models_are_those_of_the_targets_recipe_on_the_planned_records(shadows_of, run):
    found = shadows_of(Outputs(), Losses())
    task, who = make_task(), parties(make_task(), run, None, None)
    assert np.array_equal(found.candidates, who.ids) and len(found) == 4
    plan = Membership(num_candidates=80, num_background=150, dataset_size=40, seed=0)
    torch.testing.assert_close(found.population.inputs, who.background[plan.population].inputs)
    for model in found:
        assert np.array_equal(model.inside, plan.inside(model.index))
        members = who.candidates[np.flatnonzero(model.inside)]
        assert len(members) == 40
        by_hand = fit(task, RECIPE, members, seed=plan.training_seed(model.index))
        with torch.no_grad():
            for part, examples in zip(model.signal("outputs"), (who.candidates, found.population), strict=True):
                assert part is not None
                np.testing.assert_array_equal(part, by_hand(examples.inputs).numpy())
        losses, of_population = model.signal("losses-v1.0")
        assert losses.shape == (80,) and losses.dtype == np.float64 and of_population is None
    assert len({model.signal("outputs").candidates.tobytes() for model in found}) == 4


def test_background_fills_up(shadows_of, run):
    who = parties(make_task(), run, None, None)
    found = shadows_of(Outputs(), candidates=who.ids[:20])
    background = parties(make_task(), run, who.ids[:20], None).background
    plan = Membership(num_candidates=20, num_background=len(background), dataset_size=40, seed=0)
    model = list(found)[3]
    members = make_task().pool[found.candidates[model.inside]].joined(background[plan.filling[plan.fill(3)]])
    by_hand = fit(make_task(), RECIPE, members, seed=plan.training_seed(3))
    with torch.no_grad():
        np.testing.assert_array_equal(
            model.signal("outputs").candidates, by_hand(make_task().pool[who.ids[:20]].inputs).numpy()
        )


def test_options_of_the_run_are_used(shadows_of, tmp_path):
    """A noisy run in parts, of a model that is mended: a shadow model would fail without these options."""
    task = make_task(
        make_model=lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)),
        recipe=RECIPE.replace(clip_norm=1.0, noise_std=0.1),
    )
    options = {"fix": True, "max_physical_batch_size": 4, "grad_sample_mode": "hooks"}
    train(task, seed=1, out=tmp_path / "run", **options)
    found = shadows_of(Outputs(), task=task, trace=Trace.open(tmp_path / "run"), count=1)
    facts = about(files(found.path)[0][0])["facts"]
    assert facts["options"] == options | {"device": "cpu"}
    assert facts["recipe"]["noise_std"] == 0.1 and facts["seed"] == 0 and facts["task"] == "small"
    assert np.isfinite(next(iter(found)).signal("outputs").candidates).all()


def test_nothing_depends_on_or_changes_the_callers_state(shadows_of, tmp_path):
    alone = bits(shadows_of(Random()))
    torch.manual_seed(5)
    torch.set_num_threads(2)
    state, numpy_state = torch.get_rng_state(), np.array(np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002
    among_others = shadows_of(Outputs(), Random(), folder=tmp_path / "others")
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # type: ignore[index] # noqa: NPY002
    assert [row[-2:] for row in bits(among_others)] == [row[-2:] for row in alone]


def test_progress_counts_models(shadows_of):
    seen: list[tuple[int, int]] = []
    shadows_of(count=3, progress=lambda done, total: seen.append((done, total)))
    shadows_of(count=5, progress=lambda done, total: seen.append((done, total)))
    shadows_of(count=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3), (3, 5), (4, 5), (5, 5), (2, 2)]


def test_memory_does_not_grow_with_the_number_of_models(shadows_of):
    def peak(count: int) -> int:
        tracemalloc.start()
        try:
            for model in shadows_of(Large(), count=count):
                assert model.signal("large").candidates.nbytes > 2**20 - 2**14
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few = peak(2)
    assert few > 2**20
    assert peak(14) < few + 2**20  # twelve more would be 12 megabytes


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.fixture
def training_forbidden(monkeypatch):
    def forbid() -> None:
        monkeypatch.setattr(shadow_training, "compute", lambda *a: pytest.fail("a model was trained"))

    return forbid


def test_second_call_trains_nothing(shadows_of, training_forbidden):
    first = shadows_of(Outputs(), Losses())
    training_forbidden()
    for again in (shadows_of(Outputs(), Losses()), shadows_of(Losses(), Outputs(), Losses(), retries=0)):
        assert again.path == first.path
    assert bits(shadows_of(Outputs())) == [row[:4] for row in bits(first)]
    assert len(shadows_of(count=2)) == 2


def test_set_is_extended(shadows_of, tmp_path):
    few = shadows_of(count=2)
    before = times(few.path)
    many = shadows_of(count=6)
    assert many.path == few.path
    after = times(many.path)
    assert len(after) == 6 and before.items() <= after.items()
    assert bits(many) == bits(shadows_of(count=6, folder=tmp_path / "at-once"))
    assert bits(many)[:2] == bits(few)


def test_new_signal_is_added_to_the_old_ones(shadows_of, tmp_path, training_forbidden):
    shadows_of(Outputs(), count=3)
    added = shadows_of(Losses(), count=2)
    assert all(len(row) == 3 for row in bits(added))  # only what was asked for
    training_forbidden()
    both = shadows_of(Outputs(), Losses(), count=2)
    shadows_of(Outputs(), count=3)
    assert [len(stored) for stored in files(both.path).values()] == [3, 3, 2]


def test_damaged_file_is_trained_again(shadows_of):
    first = shadows_of()
    expected, before = bits(first), times(first.path)
    stored = files(first.path)
    path = stored[2][0]
    path.write_bytes(path.read_bytes()[:-1])
    stored[1][0].unlink()
    with pytest.warns(GmipWarning, match=rf"{path.name} is damaged"):
        again = shadows_of()
    assert bits(again) == expected
    after = times(again.path)
    assert [after[index] == before[index] for index in range(4)] == [True, False, False, True]
    stored[3][0].unlink()
    with pytest.raises(DataUnavailable, match=r"Shadow model 3 is not in .*: train the shadow set again"):
        list(again)


def test_a_signal_that_was_not_asked_for(shadows_of):
    found = shadows_of(count=1)
    with pytest.raises(InvalidArgument, match="Signal 'losses' is not in the shadow set"):
        next(iter(found)).signal("losses")
    assert "1 models, 80 candidates" in repr(found)


class Tanh(nn.Module):
    """Its structure and weights say nothing about what it does."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.layer, self._slope = nn.Linear(6, 3), slope

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self._slope * self.layer(inputs))


def dropping(rate: float) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(rate), nn.Linear(8, 3))


def halved() -> nn.Module:
    model = make_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    return model


def test_any_other_fact_is_another_set(shadows_of, run, tmp_path):
    task, who = make_task(), parties(make_task(), run, None, None)
    found = {"as it is": shadows_of(count=1).path}

    def other(name: str, **changes: Any) -> None:
        found[name] = shadows_of(count=1, **changes).path

    other("seed", seed=1)
    other("candidates", candidates=who.ids[1:], background=who.background)
    other("background", background=who.background[range(149)])
    other("model", task=make_task(make_model=lambda: nn.Linear(6, 3)))
    other("dropout", task=make_task(make_model=lambda: dropping(0.4)))
    other("initial weights", task=make_task(make_model=halved))
    other("forward pass 1", task=make_task(make_model=lambda: Tanh(1.0)))
    other("forward pass 2", task=make_task(make_model=lambda: Tanh(2.0)))
    other("loss", task=make_task(loss=lambda outputs, targets: 2.0 * cross_entropy(outputs, targets)))
    for number, recipe in enumerate([RECIPE.replace(learning_rate=0.4), RECIPE.replace(num_steps=6)]):
        train(task, recipe, seed=1, out=tmp_path / f"run-{number}")
        other(f"recipe {number}", trace=Trace.open(tmp_path / f"run-{number}"))
    assert len(set(found.values())) == len(found)
    # The number of models, the signals, the workers and the run's own seed are none of these facts.
    train(task, seed=2, out=tmp_path / "other-seed")
    same = [
        shadows_of(count=2),
        shadows_of(Losses(), count=1),
        shadows_of(count=1, retries=0),
        shadows_of(count=1, trace=Trace.open(tmp_path / "other-seed"), candidates=who.ids, background=who.background),
    ]
    assert {one.path for one in same} == {found["as it is"]}


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_too_little_background(shadows_of, run):
    who = parties(make_task(), run, None, None)
    with pytest.raises(InvalidArgument, match=r"needs 40 records.*10 candidates are 5.*only 30 of the missing 35"):
        shadows_of(candidates=who.ids[:10], background=who.background[range(30)])


def test_run_of_another_task_or_data(shadows_of):
    with pytest.raises(TraceMismatch, match="not of 'another'"):
        shadows_of(task=make_task(name="another"))
    task = make_task()
    with pytest.raises(TraceMismatch):
        shadows_of(task=make_task(pool=task.pool[range(199)]), candidates=[1, 2], background=task.pool)


def test_signal_that_is_now_wanted_for_the_population(shadows_of):
    without = shadows_of(Outputs(population=False), count=2)
    before = bits(without)
    assert [len(row) for row in before] == [3, 3]
    found = shadows_of(Outputs(), count=2)
    assert found.path == without.path
    assert [row[:3] for row in bits(found)] == before
    assert all(model.signal("outputs").population.shape == (75, 3) for model in found)
    with pytest.raises(InvalidArgument, match="Two signals have the key 'outputs' and differ in population"):
        shadows_of(Outputs(), Outputs(population=False))


def test_no_signal(run, tmp_path):
    who = parties(make_task(), run, None, None)
    with pytest.raises(InvalidArgument, match="signals is empty"):
        shadow_training.shadow_set(make_task(), run, who.ids, who.background, [], Shadows(folder=tmp_path))


@dataclass(frozen=True)
class Bad:
    value: Any
    key: str = "bad"
    population: bool = False

    def __call__(self, task: Any, model: Any, examples: Any) -> Any:
        return self.value


@pytest.mark.parametrize("value", [np.ones(3), np.ones(80, dtype=int), np.float64(1.0), np.full(80, "a")])
def test_signal_of_another_shape(shadows_of, value):
    with pytest.raises(
        InvalidArgument, match=r"Shadow model 0 cannot be computed: Signal 'bad' gave .* for 80 records"
    ):
        shadows_of(Bad(value))


def test_divergence_names_the_model(shadows_of, tmp_path):
    recipe = RECIPE.replace(learning_rate=1e3)
    train(make_task(), recipe, seed=0, out=tmp_path / "run")
    task = make_task(loss=lambda outputs, targets: torch.full((len(targets),), torch.nan) * outputs.sum())
    with pytest.raises(InvalidArgument, match=r"^Shadow model 0 cannot be computed: The loss is nan at step 1"):
        shadows_of(task=task, trace=Trace.open(tmp_path / "run"))


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_passing_trouble_is_retried(shadows_of, tmp_path, kind):
    expected = bits(shadows_of())
    with pytest.warns(GmipWarning, match="Computed again") as caught:
        found = shadows_of(Troubled(folder=str(tmp_path), times=2, kind=kind), folder=tmp_path / "troubled", retries=2)
    assert len(caught) == 2 and "shadow model 0" in str(caught[0].message)
    assert bits(found) == expected


def test_lasting_trouble_ends_in_a_sentence(shadows_of, tmp_path):
    shadows_of(count=2)
    signal = replace(Troubled(folder=str(tmp_path), times=-1, kind="disk"), key="outputs")
    with (
        pytest.warns(GmipWarning, match="Computed again"),
        pytest.raises(GmipError, match=r"Shadow model 2 could not be computed in 2 attempts.*No space left.*is kept"),
    ):
        shadows_of(signal, retries=1)
    assert len(times(shadows_of(count=2).path)) == 2


def test_error_of_a_signal_keeps_its_kind_and_names_the_model(shadows_of, tmp_path):
    with pytest.raises(UnreachableTarget, match=r"^Shadow model 0 cannot be computed: No noise is enough: take more\."):
        shadows_of(Troubled(folder=str(tmp_path), times=1, kind="gmip"))


def test_interruption_keeps_what_is_finished(shadows_of):
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shadows_of(progress=stop)
    kept = times(shadows_of(count=1).path)
    assert len(kept) == 2
    assert kept.items() <= times(shadows_of().path).items()


# -- little time -------------------------------------------------------------------------------------------------------


def test_no_time_is_four_models_and_a_later_call_trains_the_others(shadows_of):
    few = shadows_of(count=10, budget=Budget(1.0e-9))
    assert len(few) == 4 and [model.index for model in few] == [0, 1, 2, 3]
    seen: list[int] = []
    whole = shadows_of(count=10, budget=Budget(3600.0), progress=lambda done, total: seen.append(done))
    assert len(whole) == 10 and seen == list(range(4, 11))
    assert len(shadows_of(count=10, budget=Budget(1.0e-9))) == 10  # what is there is used


def test_an_attack_says_that_there_was_no_time(run, tmp_path):
    attack = LiRA(shadows=Shadows(count=8, folder=tmp_path / "sets", workers=1))
    with pytest.warns(GmipWarning, match=r"attack 'lira' had 0 seconds and uses 4 of 8 shadow models"):
        found = attack.run(make_task(), run, budget=1.0e-9)
    assert found.facts["shadows"] == 4 and found.cut_short
    found = attack.run(make_task(), run, budget="1h")
    assert found.facts["shadows"] == 8 and not found.cut_short
