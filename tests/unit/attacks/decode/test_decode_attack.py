"""Decoding of recorded runs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

from torch import nn

from gmip.attacks import Decode
from gmip.attacks import decode_attack as listed_steps
from gmip.attacks.attack import AttackedRecords
from gmip.attacks.decode import decode
from gmip.attacks.decode_attack import DecodePlan, plan, published_sums
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.work import Budget, Counted, Speed
from gmip.errors import GmipWarning, InvalidArgument, UnsupportedModel
from gmip.stats import ScoreSet
from gmip.stats.scores import auc
from gmip.store import Store
from gmip.tasks import Task
from gmip.trace import Trace, TraceWriter
from gmip.training import train
from tests.contracts.attacks import CLASSES, MEMBERS, WIDTH, make_task

RECIPE: dict[str, Any] = {"num_steps": 8, "learning_rate": 0.5}


def wide() -> nn.Module:
    """243 parameters, more than the 80 candidates."""
    return nn.Sequential(nn.Linear(WIDTH, 20), nn.Tanh(), nn.Linear(20, CLASSES))


def recorded(folder: Any, **changes: Any) -> tuple[Task, Trace]:
    task = make_task(make_model=wide)
    train(task, task.recipe.replace(**RECIPE | changes), seed=1, out=folder)
    return task, Trace.open(folder)


def sized(trace: Trace, **changes: Any) -> DecodePlan:
    sizes = {"candidates": 80, "background": 0, "num_params": 243, "limit": 2**30, "most_work": 1e12}
    return plan(trace, list(trace), **sizes | changes)


def area(found: ScoreSet, trace: Trace) -> float:
    inside = np.isin(found.ids, trace.members)
    return auc(found.scores[inside], found.scores[~inside])


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_a_network_with_more_parameters_than_candidates(tmp_path, clip_norm):
    task, trace = recorded(tmp_path / "a", num_steps=5, clip_norm=clip_norm)
    found = Decode().run(task, trace)
    assert area(found, trace) == 1.0
    assert found.facts["coverage"] == 1.0 and found.facts["decoded"] == 1.0 and found.facts["steps"] == 5
    assert (found.posterior(0.5)[np.isin(found.ids, trace.members)] > 0.99).all()


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "shuffled"])
def test_mini_batches(tmp_path, sampling):
    task, trace = recorded(tmp_path / "a", batch_size=10, sampling=sampling)
    found = Decode().run(task, trace)
    assert area(found, trace) > (0.99 if sampling == "shuffled" else 0.85)
    batches = Decode().decoded(task, trace).batches
    assert batches.shape == (8, 2 * MEMBERS)
    sizes = [info.batch_size for info in trace.infos]
    np.testing.assert_allclose(batches.sum(1), sizes, atol=0.5)
    assert batches.T[~np.isin(np.sort(found.ids), trace.members)].max() < 0.5


def test_the_last_batch_of_an_epoch_may_be_smaller(tmp_path):
    task, trace = recorded(tmp_path / "a", batch_size=15, sampling="shuffled")
    assert {info.batch_size for info in trace.infos} == {10, 15}
    assert sized(trace).epochs == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert area(Decode().run(task, trace), trace) > 0.95


def test_much_noise_leaves_nothing_and_that_is_said(tmp_path):
    task, trace = recorded(tmp_path / "a", num_steps=2, clip_norm=1.0, noise_std=5.0)
    with pytest.warns(GmipWarning, match="do not distinguish the listed candidates"):
        found = Decode().run(task, trace)
    assert float(found.facts["bits"]) < 0.01 and np.abs(found.scores).max() < 1.0


def test_a_list_of_strangers_is_said(tmp_path):
    task, trace = recorded(tmp_path / "a", num_steps=3)
    named = np.concatenate([trace.members, trace.non_members])
    strangers = np.setdiff1d(np.arange(len(task.pool)), named)[:80]
    with pytest.warns(GmipWarning, match="does not explain the published gradients"):
        Decode(coverage=1.0).run(task, trace, strangers)


def test_rows_and_inner_products_give_the_same(tmp_path):
    """With all members listed: what is left is noise, the same in every direction."""
    task, trace = recorded(tmp_path / "a", num_steps=1, clip_norm=1.0, noise_std=0.02)
    ids = np.concatenate([trace.members, trace.non_members])
    rest = np.setdiff1d(np.arange(len(task.pool)), ids)
    who = AttackedRecords(ids, task.pool[ids], task.pool[rest])
    gradients = PerExampleGradients.for_trace(wide(), task.loss, trace.header)
    chosen = sized(trace)
    assert not chosen.cost.by_rows
    found = [
        decode(
            published_sums(
                gradients, trace, who, chosen._replace(cost=chosen.cost._replace(by_rows=by_rows)), lambda count: None
            ),
            dataset_size=MEMBERS,
            coverage=1.0,
        ).log_odds
        for by_rows in (True, False)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5 * np.abs(found[0]).max())


def test_steps_that_do_not_fit_are_left_out(tmp_path):
    task, trace = recorded(tmp_path / "a", batch_size=10, sampling="fixed")
    chosen = sized(trace, limit=8 * 80 * 80 * 4)
    assert chosen.steps == 2 and "the first 2 of 8 recorded steps, which is what `memory_limit" in chosen.left_out
    chosen = sized(trace, most_work=3.5 * sized(trace).cost.work / 8)
    assert chosen.steps == 3 and chosen.cost.work < 3.5 * sized(trace).cost.work / 8
    assert "the first 3 of 8 recorded steps, which is what `most_work" in chosen.left_out
    assert sized(trace, most_work=1.0).steps == 1
    with pytest.raises(InvalidArgument, match=r"80 candidates need .*more than memory_limit"):
        Decode(memory_limit=1000).run(task, trace)
    assert Decode(steps=[0, 5]).run(task, trace).facts["steps"] == 2


class Stopped(Exception):
    pass


@pytest.mark.parametrize("changes", [{"batch_size": 10, "sampling": "shuffled", "num_steps": 6}, {"num_steps": 5}])
@pytest.mark.parametrize("stop", [3, 8])
def test_an_attempt_goes_on_where_it_stopped(tmp_path, monkeypatch, changes, stop):
    monkeypatch.setattr("gmip.attacks.step_vectors._KEEP_AFTER", 0.0)
    task, trace = recorded(tmp_path / "a", **changes)
    whole = Decode().run(task, trace)

    def interrupt(done: int, total: int) -> None:
        if done >= stop:
            raise Stopped

    with pytest.raises(Stopped):
        Decode().run(task, trace, progress=interrupt, parts=Store(tmp_path, "parts"))
    again: list[tuple[int, int]] = []
    found = Decode().run(
        task, trace, progress=lambda done, total: again.append((done, total)), parts=Store(tmp_path, "parts")
    )
    np.testing.assert_array_equal(found.scores, whole.scores)
    assert found.facts == whole.facts
    assert again[-1][0] == again[-1][1] == 2 * changes["num_steps"]
    kept = len(list(tmp_path.glob("parts-*/*.entry")))
    Decode().run(task, trace, parts=Store(tmp_path, "parts"))
    assert len(list(tmp_path.glob("parts-*/*.entry"))) == kept  # all of it was there


def test_a_budget_leaves_out_steps_and_a_larger_one_goes_on(tmp_path, monkeypatch):
    task, trace = recorded(tmp_path / "a", batch_size=10, sampling="shuffled")
    with pytest.warns(GmipWarning) as caught:
        found = Decode().run(task, trace, budget=1.0e-6, parts=Store(tmp_path, "parts"))
    said = [str(one.message) for one in caught]
    assert "the first 1 of 8 recorded steps, which is what there is time for" in said[0]
    assert "had 0 seconds and ended after 1 of its sweeps" in said[1]
    assert found.facts["steps"] == 1 and found.cut_short
    more = Decode().run(task, trace, budget="1h", parts=Store(tmp_path, "parts"))
    assert more.facts["steps"] == 8 and not more.cut_short
    np.testing.assert_array_equal(more.scores, Decode().run(task, trace).scores)
    slow = Speed(record=1.0, rate=1.0e12)  # a second for each gradient
    chosen = sized(trace, speed=slow, seconds=3.5 * 80)
    assert chosen.cut_short and "the first 3 of 8" in chosen.left_out
    # Where inner products of a large layer are cheap, more steps fit than by the number of its entries.
    large: dict[str, Any] = {"num_params": 1_000_000, "seconds": 5.0}
    entries = sized(trace, speed=Speed(record=1.0e-3, rate=1.0e10), **large)
    known = sized(trace, speed=Speed(record=1.0e-3, rate=1.0e10, row=0.1, pair=1.0e-6), **large)
    assert known.steps == 8 and known.projection is None and known.left_out == ""
    assert entries.projection is not None or entries.steps < 8
    monkeypatch.setattr(Speed, "measured", lambda *_: slow)
    with pytest.raises(UnsupportedModel, match=r"'decode' needs about 80 seconds for the least .* and has 10"):
        Decode().run(task, trace, budget=10.0)


def test_sweeps_end_with_the_time(tmp_path):
    """The first one is always made, and that there was no time for more is said."""
    task, trace = recorded(tmp_path / "a", batch_size=10, sampling="poisson", clip_norm=1.0, noise_std=0.02)
    ids = np.sort(np.concatenate([trace.members, trace.non_members]))
    gradients = PerExampleGradients.for_trace(wide(), task.loss, trace.header)
    who, options = AttackedRecords(ids, task.pool[ids], task.pool[[]]), {"dataset_size": MEMBERS, "coverage": 1.0}
    sums = list(published_sums(gradients, trace, who, sized(trace), lambda count: None))
    late, whole = decode(sums, budget=Budget(0.0), **options), decode(sums, **options)
    assert (late.sweeps, late.late, late.settled) == (1, True, False)
    assert whole.sweeps > 1 and not whole.late


def test_gradients_are_projected_before_steps_are_left_out(tmp_path):
    """Without noise a batch of 4 is told from all others by far fewer numbers than the model has."""
    task, trace = recorded(tmp_path / "a", batch_size=4, num_steps=10, sampling="shuffled")
    half = 0.5 * sized(trace, candidates=400, num_params=10_000).cost.work
    chosen = sized(trace, candidates=400, num_params=10_000, most_work=half)
    assert chosen.steps == 10 and chosen.projection == 128 and chosen.cost.by_rows and chosen.cost.work < half
    ids = np.sort(np.concatenate([trace.members, trace.non_members]))
    who = AttackedRecords(ids, task.pool[ids], task.pool[[]])
    gradients = PerExampleGradients.for_trace(wide(), task.loss, trace.header)
    found = decode(
        published_sums(gradients, trace, who, chosen._replace(projection=100), lambda count: None),
        dataset_size=MEMBERS,
        epochs=chosen.epochs,
    )
    inside = np.isin(ids, trace.members)
    assert auc(found.log_odds[inside], found.log_odds[~inside]) > 0.99


def test_of_many_candidates_as_many_numbers_are_solved_for_as_there_is_room_and_work(tmp_path):
    """No matrix of all pairs of 100,000 candidates."""
    _, trace = recorded(tmp_path / "a", batch_size=10, sampling="poisson", clip_norm=1.0, noise_std=0.02, num_steps=1)
    sizes = {"candidates": 100_000, "background": 10_000, "num_params": 10_000}
    for limit, most_work, expected in ((2**33, 2e13, 2048), (2**33, 2e12, 1024), (2**30, 2e13, 256)):
        chosen = sized(trace, **sizes, limit=limit, most_work=most_work)
        assert chosen.projection == expected and chosen.cost.by_rows and chosen.cost.memory <= limit
        assert chosen.cost.work <= most_work
        assert f"Gradients are projected to {expected} numbers." in chosen.left_out


def test_a_mean_that_was_clipped_as_a_whole(tmp_path):
    """The recorded factor undoes it."""
    task, trace = recorded(tmp_path / "a", num_steps=2)
    assert trace.members is not None and trace.non_members is not None
    who = {"members": trace.members, "non_members": trace.non_members}
    with TraceWriter.create(tmp_path / "b", trace.header, **who) as writer:
        for step in trace:
            parameters, gradient = writer.row()
            parameters[:], gradient[:] = step.parameters, 0.25 * np.asarray(step.gradient)
            writer.commit(batch_size=step.info.batch_size, clip_factor=0.25)
    clipped = Trace.open(tmp_path / "b")
    assert area(Decode().run(task, clipped), clipped) == 1.0


def test_background_tells_how_unlisted_members_vary(tmp_path):
    task, trace = recorded(tmp_path / "a", num_steps=1)
    rest = np.setdiff1d(np.arange(len(task.pool)), np.concatenate([trace.members, trace.non_members]))
    assert trace.members is not None and trace.non_members is not None
    ids = np.concatenate([trace.members[::2], trace.non_members[::2]])
    with warnings.catch_warnings():
        warnings.simplefilter("error", GmipWarning)
        found = Decode().run(task, trace, ids, task.pool[rest])
    assert float(found.facts["coverage"]) < 0.9 and float(found.facts["misfit"]) < 2.0 and area(found, trace) > 0.6


@pytest.mark.parametrize(
    "options", [{"coverage": 0.0}, {"coverage": 1.5}, {"most_sweeps": 0}, {"most_work": 0.0}, {"steps": "all"}]
)
def test_options_are_checked(options):
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        Decode(**options)


def test_p_values_are_ranks_among_decoys(tmp_path):
    """Without background there are none, and where sweeps do not settle neither p-values nor posteriors."""
    task, trace = recorded(tmp_path / "a", batch_size=10, sampling="shuffled", clip_norm=1.0, noise_std=0.01)
    alone = Decode().run(task, trace)
    assert alone.p_values is None and alone.calibration is not None
    ids = np.concatenate([trace.members, trace.non_members])
    background = task.pool[np.setdiff1d(np.arange(len(task.pool)), ids)]
    found = Decode().run(task, trace, ids, background)
    decoys = found.facts["decoys"]
    assert decoys == min(len(ids), len(background) // 2) and found.p_values is not None
    np.testing.assert_allclose(found.p_values * (decoys + 1), np.round(found.p_values * (decoys + 1)), atol=1e-9)
    assert np.all(np.diff(found.p_values[np.argsort(-found.scores)]) >= 0.0)
    assert Decode(decoys=0).run(task, trace, ids, background).p_values is None
    with pytest.warns(GmipWarning, match="did not settle"):
        hasty = Decode(most_sweeps=2).run(task, trace, ids, background)
    assert not hasty.facts["settled"] and hasty.p_values is None and hasty.calibration is None


def test_a_list_that_explains_all_needs_no_background(tmp_path, monkeypatch):
    """Without noise: gradients of background records that are no decoys are not computed; half a list needs them."""
    task, trace = recorded(tmp_path / "a", num_steps=3)
    ids = np.concatenate([trace.members, trace.non_members])
    background = task.pool[np.setdiff1d(np.arange(len(task.pool)), ids)]
    seen: list[int] = []
    rows = listed_steps.published_sums

    def counted(gradients: Any, trace: Any, who: AttackedRecords, *rest: Any) -> Any:
        seen.append(len(who.background))
        return rows(gradients, trace, who, *rest)

    monkeypatch.setattr(listed_steps, "published_sums", counted)
    found = Decode().run(task, trace, ids, background)
    assert seen == [0] and found.facts["coverage"] == 1.0 and area(found, trace) == 1.0
    assert found.p_values is not None
    assert trace.members is not None and trace.non_members is not None
    half = np.concatenate([trace.members[: MEMBERS // 2], trace.non_members])
    assert float(Decode().run(task, trace, half, background).facts["coverage"]) < 0.9
    assert seen[1] == 0 < seen[2]

    def no_time(attack: str, needed: float, left: float) -> None:
        if len(seen) == 4:
            raise UnsupportedModel("There is no time")

    monkeypatch.setattr(listed_steps, "check_time", no_time)
    with pytest.warns(GmipWarning) as caught:
        late = Decode().run(task, trace, half, background, budget="1h")
    assert "no time; decoding did without background records" in str(caught[0].message)
    assert len(seen) == 4 and late.cut_short and late.facts["coverage"] == 1.0


def test_progress_moves_while_a_step_lasts(tmp_path, monkeypatch):
    """And it never goes back."""
    monkeypatch.setattr("gmip.attacks.work._TELL_EVERY", 0.0)
    task, trace = recorded(tmp_path / "a", num_steps=2)
    told: list[float] = []
    gradients = PerExampleGradients.for_trace(wide(), task.loss, trace.header, chunk=16)
    counted = Counted(lambda done, total: told.append(done / total), 2, 80, rest=2)
    ids = np.sort(np.concatenate([trace.members, trace.non_members]))
    who = AttackedRecords(ids, task.pool[ids], task.pool[[]])
    list(published_sums(gradients.heard(counted.records), trace, who, sized(trace), counted.ready))
    counted.after(1, 1)
    assert len(told) >= 10 and told[-1] == 1.0 and told == sorted(told)
