"""Recorded steps and rounds that are no means of the records' gradients, attacked by rehearsal."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import gmip
from gmip.attacks import Decode, RehearsalSteps
from gmip.attacks.publications import RecordedGradient
from gmip.attacks.rehearsal import summed
from gmip.errors import GmipWarning, InvalidArgument, UnsupportedModel
from gmip.integrations.federated import Reply, RoundRecorder
from gmip.stats.scores import auc
from gmip.trace import Trace
from tests.unit.attacks.rehearsal.test_rehearsal import MEMBERS, ROWS, make_task

WIDTH, DECOYS = 40, 100
#: Two errors above 5%: of the share of so many others, and of the ranks among so many decoys.
HIGHEST = 0.05 + 2 * np.sqrt(0.05 * 0.95 * (1 / MEMBERS + 1 / DECOYS))


def network(*layers):
    return lambda: nn.Sequential(nn.Linear(12, WIDTH), *(make() for make in layers), nn.Tanh(), nn.Linear(WIDTH, 4))


def signs(model, records):
    nn.functional.cross_entropy(model(records.inputs), records.targets).backward()
    for parameter in model.parameters():
        parameter.grad.sign_()


def record_run(task, path, rows, *, steps=3, batch=MEMBERS, publish=None, others=None):
    """A plain loop under gmip.record, full batches unless `batch` is smaller."""
    torch.manual_seed(5)
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampling = "full" if batch == len(rows) else "shuffled"
    who = {"data": task, "members": rows, "non_members": others}
    options = {"dataset_size": len(rows), "batch_size": batch, "sampling": sampling}
    with gmip.record(model, optimizer, path, **who, **options):
        for _ in range(steps):
            for part in torch.randperm(len(rows)).split(batch):
                some = task.pool[rows[part.numpy()]]
                optimizer.zero_grad()
                if publish is None:
                    task.loss(model(some.inputs), some.targets).mean().backward()
                else:
                    publish(model, some)
                optimizer.step()
    return Trace.open(path)


@pytest.fixture
def who():
    order = np.random.default_rng(1).permutation(ROWS)
    return np.sort(order[:MEMBERS]), np.sort(order[MEMBERS : 2 * MEMBERS])


def rates(found, inside):
    member = np.isin(found.ids, inside)
    return auc(found.scores[member], found.scores[~member]), (found.p_values[~member] <= 0.05).mean()


@pytest.mark.parametrize("kind", ["batch-norm", "dropout", "signs"])
def test_members_are_found_through_what_mixes_thins_or_compresses(tmp_path, who, kind):
    layers = {"batch-norm": (lambda: nn.BatchNorm1d(WIDTH),), "dropout": (lambda: nn.Dropout(0.25),), "signs": ()}
    publish = signs if kind == "signs" else None
    task = dataclasses.replace(make_task(batch_size=MEMBERS), make_model=network(*layers[kind]), publish=publish)
    if kind == "signs":
        trace = record_run(task, tmp_path / "a", who[0], publish=publish, others=who[1])
    else:
        with pytest.warns(GmipWarning, match="mixes the records" if kind == "batch-norm" else "drops units"):
            trace = record_run(task, tmp_path / "a", who[0], others=who[1])
    found = RehearsalSteps(rehearsals=16, decoys=DECOYS).run(task, trace)
    told, low = rates(found, who[0])
    assert told > 0.85
    assert low <= HIGHEST


@pytest.mark.filterwarnings("ignore:what was published does not fit")  # which is right: the list explains nothing
def test_strangers_are_not_found(tmp_path, who):
    """The list has nobody who was in: p-values are uniform over several seeds of the decoys."""
    task = dataclasses.replace(make_task(batch_size=MEMBERS), make_model=network(lambda: nn.BatchNorm1d(WIDTH)))
    rest = np.setdiff1d(np.arange(ROWS), np.concatenate(who))
    with pytest.warns(GmipWarning, match="mixes the records"):
        trace = record_run(task, tmp_path / "a", rest[:MEMBERS], steps=1, others=who[1])
    low, candidates, background = [], np.concatenate(who), task.pool[rest[MEMBERS:]]
    for seed in range(4):
        found = RehearsalSteps(rehearsals=16, decoys=DECOYS, seed=seed).run(task, trace, candidates, background)
        assert found.p_values is not None
        low.append(np.mean(found.p_values <= 0.05))
    assert np.mean(low) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / (2 * MEMBERS))


def test_small_batches_of_shuffled_epochs_add_up(tmp_path, who):
    task = dataclasses.replace(make_task(), make_model=network(lambda: nn.BatchNorm1d(WIDTH)))
    with pytest.warns(GmipWarning, match="mixes the records"):
        trace = record_run(task, tmp_path / "a", who[0], steps=2, batch=20, others=who[1])
    one, all_of_them = (
        rates(RehearsalSteps(rehearsals=16, decoys=DECOYS, publications=count).run(task, trace), who[0])[0]
        for count in (1, 4)
    )
    assert all_of_them > max(one, 0.8)


@pytest.mark.usefixtures("quiet_machine")
def test_a_budget_leaves_out_steps_and_then_rehearsals(tmp_path, who):
    task = dataclasses.replace(make_task(batch_size=MEMBERS), publish=signs)
    trace = record_run(task, tmp_path / "a", who[0], publish=signs, others=who[1])
    heard = []
    attack = RehearsalSteps(rehearsals=16, decoys=DECOYS)
    with pytest.warns(GmipWarning) as said:
        found = attack.run(task, trace, budget=0.01, progress=lambda *at: heard.append(at))
    assert found.cut_short and found.facts["publications"] == 1 and heard
    texts = [str(one.message) for one in said]
    assert any("8 of 16 rehearsals" in text for text in texts)
    assert any("used 1 of 3 publications" in text for text in texts)


def test_too_little_background_for_self_play_is_said(tmp_path, who):
    task = dataclasses.replace(make_task(batch_size=MEMBERS), publish=signs)
    trace = record_run(task, tmp_path / "a", who[0], steps=1, publish=signs, others=who[1])
    rest = np.setdiff1d(np.arange(ROWS), np.concatenate(who))[:250]
    with pytest.warns(GmipWarning, match="nobody knows how much was published"):
        found = RehearsalSteps(rehearsals=16).run(task, trace, np.concatenate(who), task.pool[rest])
    assert "self_play_auc" not in found.facts
    assert RehearsalSteps().planned(task, trace, np.concatenate(who), task.pool[rest[:140]]) is None
    with pytest.raises(InvalidArgument, match="has 100 records, and rehearsals need 140 or more"):
        RehearsalSteps().planned(task, trace, np.concatenate(who), task.pool[rest[:100]])


def test_an_audit_of_batch_norm_attacks_and_guarantees_nothing(tmp_path, who):
    task = dataclasses.replace(make_task(batch_size=MEMBERS), make_model=network(lambda: nn.BatchNorm1d(WIDTH)))
    with pytest.warns(GmipWarning, match="nothing is guaranteed"):
        record_run(task, tmp_path / "a", who[0], others=who[1])
    result = gmip.audit(gmip.Recorded(tmp_path / "a", task), seed=0)
    run = result.runs[0]
    assert {one.attack for one in run.attacks} >= {"rehearsal-steps", "loss"}
    assert not run.declared and run.verdict.kind != "consistent"
    assert run.check is not None
    assert {one.finding for one in run.check.outcomes if one.status == "unchecked"} == {"not-a-mean"}
    with pytest.raises(UnsupportedModel, match="rehearsal-steps"):
        Decode().run(task, Trace.open(tmp_path / "a"))


def test_clipped_gradients_with_batch_norm_are_still_refused(tmp_path):
    model = network(lambda: nn.BatchNorm1d(WIDTH))()
    with pytest.raises(UnsupportedModel, match="mixes the examples"):
        gmip.record(model, None, tmp_path / "a", dataset_size=4, batch_size=2, sampling="fixed", clip_norm=1.0)


@pytest.mark.filterwarnings("ignore::gmip.errors.GmipWarning")
def test_the_replay_of_the_members_is_what_was_recorded(tmp_path, who):
    """Through BatchNorm; in another order, so up to rounding."""
    task = dataclasses.replace(make_task(batch_size=MEMBERS), make_model=network(lambda: nn.BatchNorm1d(WIDTH)))
    trace = record_run(task, tmp_path / "a", who[0], steps=1, others=who[1])
    one = RecordedGradient(task, task.make_model().train(), trace.header, trace[0], MEMBERS)
    again = one.replayed(task.pool[who[0]], np.random.default_rng(0))
    np.testing.assert_allclose(again.vector, one.seen.vector, atol=1e-6)
    other = one.replayed(task.pool[who[1]], np.random.default_rng(0))
    assert np.linalg.norm(other.vector - one.seen.vector) > 0.1 * np.linalg.norm(one.seen.vector)


# -- federations ------------------------------------------------------------------------------------------------------


def federation(task, path, shares, *, steps, rounds=1, others=None, **options):
    """FedAvg of clients with these rows, each by some steps of SGD on batches of 5."""
    torch.manual_seed(7)
    model = task.make_model()
    rows = np.concatenate(shares)
    who = {"data": task, "members": rows, "non_members": others}
    sizes = {"dataset_size": len(rows), "batch_size": len(rows), "sampling": "full"}
    local = {"local_steps": steps, "local_batch_size": 5, "learning_rate": 0.1}
    with RoundRecorder(model, path, unit="examples", **who, **sizes, **local, **options) as recorder:
        for _ in range(rounds):
            recorder.begin(arrays_of(model))
            replies = [client(task, model, part, steps) for part in shares]
            total = sum(one.weight for one in replies)
            new = {name: sum(one.arrays[name] * (one.weight / total) for one in replies) for name in replies[0].arrays}
            recorder.end(new, replies)
            model.load_state_dict({name: torch.from_numpy(value) for name, value in new.items()})
    return Trace.open(path)


def arrays_of(model):
    return {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}


def client(task, model, rows, steps):
    own = task.make_model()
    own.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    batches = [batch for _ in range(steps) for batch in torch.randperm(len(rows)).split(5)][:steps]
    for batch in batches:
        part = task.pool[rows[batch.numpy()]]
        optimizer.zero_grad()
        task.loss(own(part.inputs), part.targets).mean().backward()
        optimizer.step()
    return Reply(arrays=arrays_of(own), weight=float(len(rows)))


@pytest.mark.parametrize("per_client", [True, False], ids=["replies", "average"])
def test_members_are_found_from_replies_of_fedavg(tmp_path, who, per_client):
    task = make_task()
    options = {"per_client": True} if per_client else {"clients": 2}
    parts = np.array_split(np.random.default_rng(0).permutation(who[0]), 2)
    trace = federation(task, tmp_path / "a", parts, steps=8, rounds=2, others=who[1], **options)
    assert len(trace) == (4 if per_client else 2)
    checked = gmip.check_run(task, trace)
    assert checked.passed and checked.bound_unchecked
    found = RehearsalSteps(rehearsals=16, decoys=DECOYS).run(task, trace)
    told, low = rates(found, who[0])
    assert told > 0.9
    assert low <= HIGHEST


def test_steps_that_do_not_reach_all_records_of_a_client(tmp_path, who):
    """Four steps of 5 on 40 records: half of them are in, and members are found as far as that goes."""
    task = make_task()
    trace = federation(task, tmp_path / "a", [who[0]], steps=4, others=who[1], per_client=True)
    found = RehearsalSteps(rehearsals=16, decoys=DECOYS).run(task, trace)
    told, low = rates(found, who[0])
    assert 0.6 < told < 0.9
    assert low <= HIGHEST


def test_an_audit_of_fedavg_answers_for_every_attacker(tmp_path, who):
    task = make_task()
    federation(task, tmp_path / "a", np.array_split(who[0], 2), steps=8, rounds=2, others=who[1], clients=2)
    run = gmip.audit(gmip.Recorded(tmp_path / "a", task), seed=0).runs[0]
    assert {one.attack for one in run.attacks} >= {"rehearsal-steps", "loss"}
    assert not run.declared and run.verdict.kind != "consistent"


def test_how_many_clients_reply_must_be_said(tmp_path):
    model = make_task().make_model()
    sizes = {"dataset_size": 40, "batch_size": 40, "sampling": "full"}
    with pytest.raises(InvalidArgument, match=r"clients.*how many reply"):
        RoundRecorder(model, tmp_path / "a", unit="examples", **sizes, learning_rate=0.1, local_steps=8)


def test_publications_of_an_epoch_exclude_each_other():
    """Against the likelihood ratio written out: in one of two batches of an epoch, one of which was not seen."""
    first, second = np.array([2.0, -1.0]), np.array([0.5, 3.0])
    together = summed([(0, 0.5, first), (0, 0.5, second)])
    np.testing.assert_allclose(together, np.log(0.5 * np.exp(first) + 0.5 * np.exp(second)))
    np.testing.assert_allclose(summed([(0, 0.25, first)]), np.log(0.75 + 0.25 * np.exp(first)))
    np.testing.assert_allclose(summed([(0, 1.0, first), (1, 1.0, second)]), first + second)


@pytest.mark.parametrize("kind", ["batch-norm", "reply"])
def test_decoys_are_treated_as_strangers_are(tmp_path, who, kind):
    """Strangers and decoys change places, and nobody's score changes: so nobody's rank among the decoys tells which
    of both he is. Decoys of whom anything else is made (a centre, rehearsals, statistics of BatchNorm) would fail."""
    layers = (lambda: nn.BatchNorm1d(WIDTH),) if kind == "batch-norm" else ()
    task = dataclasses.replace(make_task(batch_size=MEMBERS), make_model=network(*layers))
    if kind == "reply":
        trace = federation(task, tmp_path / "a", [who[0]], steps=8, others=who[1], per_client=True)
    else:
        with pytest.warns(GmipWarning, match="mixes the records"):
            trace = record_run(task, tmp_path / "a", who[0], steps=1, others=who[1])
    rest = np.setdiff1d(np.arange(ROWS), np.concatenate(who))
    swapped = rest.copy()
    places = np.random.default_rng(0).permutation(len(rest))[:MEMBERS]  # where decoys of seed 0 stand
    decoys = np.sort(rest[places])
    swapped[places] = who[1]
    told = []
    for others, background in ((who[1], rest), (decoys, swapped)):
        attack = RehearsalSteps(rehearsals=8, decoys=MEMBERS)
        told.append(attack.run(task, trace, np.concatenate([who[0], others]), task.pool[background]))
    one, other = (found.scores for found in told)
    np.testing.assert_allclose(other[:MEMBERS], one[:MEMBERS], rtol=1e-4, atol=1e-4)
    higher = (other[MEMBERS:][None] >= one[MEMBERS:, None]).sum(1)  # of the decoys, by their scores as strangers
    assert told[0].p_values is not None
    np.testing.assert_allclose(told[0].p_values[MEMBERS:], (1 + higher) / (1 + MEMBERS))
