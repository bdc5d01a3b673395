"""Rehearsal: on arrays whose law is known, the algebra of optimizers, and checkpoints of trainings."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import gmip
from gmip.attacks.publications import Moment, Replay, Way, flat, mean_gradient, set_flat
from gmip.attacks.rehearsal import Rehearsed, error_model, list_scores
from gmip.attacks.rehearsal_attack import Rehearsal
from gmip.auditing.attack_runs import Workplace
from gmip.auditing.settings import AttackSettings
from gmip.errors import GmipWarning, InvalidArgument, UnsupportedModel
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe

MEMBERS, ROWS = 40, 620


def make_task(**recipe):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (ROWS + 20,), generator=generator)
    inputs = torch.randn(ROWS + 20, 12, generator=generator)
    inputs[:, :4] += nn.functional.one_hot(labels, 4)
    data = Examples(inputs, labels)
    usual = {"dataset_size": MEMBERS, "batch_size": 10, "num_steps": 4, "learning_rate": 0.1, "sampling": "shuffled"}
    return Task(
        name="four",
        make_model=lambda: nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 4)),
        pool=data[range(ROWS)],
        test=data[range(ROWS, ROWS + 20)],
        recipe=Recipe(**usual | recipe),
    )


def save_checkpoints(task, folder, rows, *, epochs=2, state=True, rate=None):
    """Plain training in epochs, by torch's own optimizer; a checkpoint before it and after each epoch."""
    folder.mkdir()
    torch.manual_seed(3)
    model = task.make_model()
    recipe = task.recipe
    kind = getattr(torch.optim, recipe.optimizer)
    optimizer = kind(model.parameters(), lr=rate or recipe.learning_rate, **recipe.optimizer_options)

    def save(epoch):
        kept = {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(kept if state else model.state_dict(), folder / f"epoch-{epoch}.pt")

    save(0)
    for epoch in range(epochs):
        for batch in torch.randperm(len(rows)).split(recipe.batch_size):
            part = task.pool[rows[batch.numpy()]]
            optimizer.zero_grad()
            task.loss(model(part.inputs), part.targets).mean().backward()
            optimizer.step()
        save(epoch + 1)
    return folder


@pytest.fixture
def who():
    order = np.random.default_rng(1).permutation(ROWS)
    return np.sort(order[:MEMBERS]), np.sort(order[MEMBERS : 2 * MEMBERS])


# -- arrays -----------------------------------------------------------------------------------------------------------


def simulated(rng, *, dimensions=400, members=50, listed=150, loading=3.0, rehearsals=24):
    """Vectors, what is published of the first `members`, and rehearsals, with errors in few directions."""
    directions = rng.standard_normal((3, dimensions))

    def error():
        return 0.05 * rng.standard_normal(dimensions) + loading * rng.standard_normal(3) @ directions

    vectors = rng.standard_normal((listed, dimensions))
    means = rng.standard_normal((rehearsals, dimensions)) / np.sqrt(members)
    rehearsed = Rehearsed(np.array([mean + error() for mean in means]), means)
    return vectors, vectors[:members].mean(axis=0) + error(), rehearsed


def test_the_error_is_learned_from_rehearsals_and_members_stand_out():
    rng = np.random.default_rng(0)
    vectors, published, rehearsed = simulated(rng)
    found = list_scores(error_model(rehearsed), published, vectors, np.zeros(400), 50)
    assert auc(found.scores[:50], found.scores[50:]) > 0.99
    assert 0.7 < found.scale < 1.4
    blind = error_model(Rehearsed(np.zeros((24, 400)) + 1e-3 * rng.standard_normal((24, 400)), np.zeros((24, 400))))
    unaware = list_scores(blind, published, vectors, np.zeros(400), 50)
    assert auc(unaware.scores[:50], unaware.scores[50:]) < auc(found.scores[:50], found.scores[50:]) - 0.05


def test_scores_are_the_leave_one_out_ratios_of_the_gaussian_model():
    """Against dense covariances."""
    rng = np.random.default_rng(1)
    vectors, published, rehearsed = simulated(rng, dimensions=60, members=10, listed=20)
    model = error_model(rehearsed)
    found = list_scores(model, published, vectors, np.zeros(60), 10)
    basis = model.basis / (1.0 - model.shrinks)[:, None] ** 2
    low = model.basis.T @ basis - model.basis.T @ model.basis
    noise = found.scale**2 * np.diag(model.deviations) @ (np.eye(60) + low) @ np.diag(model.deviations)
    rows = vectors / 10
    for i in (0, 15):
        others = np.delete(rows, i, axis=0)
        precision = np.linalg.inv(noise + 0.25 * others.T @ others)
        rest = published - 0.5 * others.sum(axis=0)
        assert found.scores[i] == pytest.approx(rows[i] @ precision @ (rest - 0.5 * rows[i]), rel=1e-6, abs=1e-8)


def test_whitened_errors_have_unit_scale():
    """The errors are those of rehearsals that the model has not seen."""
    *_, all_of_them = simulated(np.random.default_rng(2), rehearsals=48)
    seen, fresh = (Rehearsed(*(part[rows] for part in all_of_them)) for rows in (slice(24), slice(24, 48)))
    white = error_model(seen).whitened(fresh.published - fresh.means)
    assert white.std() == pytest.approx(1.0, abs=0.15)


# -- the algebra of optimizers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "options", "error"),
    [
        ("SGD", {}, 1e-3),
        ("SGD", {"weight_decay": 0.1}, 1e-3),
        ("SGD", {"momentum": 0.9}, 1e-3),
        ("SGD", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}, 1e-3),
        ("Adam", {}, 0.15),
        ("AdamW", {"weight_decay": 0.1}, 0.15),
    ],
    ids=["sgd", "decay", "momentum", "nesterov", "adam", "adamw"],
)
def test_two_states_give_the_mean_gradient(optimizer, options, error):
    task = make_task(optimizer=optimizer, optimizer_options=options)
    torch.manual_seed(0)
    model = task.make_model()
    way = Way(task.recipe, (1e-6,) * 4)  # steps so short that the weights hardly move
    replay, rng = Replay(task, model, way), np.random.default_rng(0)
    replay._model.double()  # in place: single precision would drown steps as short as these
    records = Examples(task.pool.inputs[:MEMBERS].double(), task.pool.targets[:MEMBERS])
    moment = Moment(flat(list(model.parameters())))
    for _ in range(3):
        start, moment = moment, replay.train(moment, records, rng)
    seen = way.published(start, moment)
    set_flat(replay.parameters, seen.at)
    true = mean_gradient(task, replay._model, records)
    assert np.linalg.norm(seen.vector - true) < error * np.linalg.norm(true)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def scores(task, folder, who, **options):
    source = gmip.Checkpoints(folder, who[0].tolist(), who[1].tolist(), task)
    work = Workplace(settings=AttackSettings(), folder=folder, seed=0, watch=lambda _: lambda *_: None)
    run = source.opened(task, "a", 0, work)
    return Rehearsal(decoys=100, rehearsals=16, **options).run(task, run.target)


def test_members_are_found_from_checkpoints_and_strangers_are_not(tmp_path, who):
    task = make_task(optimizer="Adam", learning_rate=2e-3)
    folder = save_checkpoints(task, tmp_path / "a", who[0])
    found = scores(task, folder, who)
    inside = np.isin(found.ids, who[0])
    assert auc(found.scores[inside], found.scores[~inside]) > 0.9
    assert abs(found.facts["self_play_auc"] - 0.95) < 0.1
    assert (found.p_values[inside] <= 0.05).mean() > 0.6
    assert (found.p_values[~inside] <= 0.05).mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / MEMBERS)


@pytest.mark.filterwarnings("ignore:what was published does not fit")  # which is right: the list explains nothing
def test_nobody_on_the_list_was_in(tmp_path, who):
    task = make_task()
    rest = np.setdiff1d(np.arange(ROWS), np.concatenate(who))
    folder = save_checkpoints(task, tmp_path / "a", rest[:MEMBERS])
    low = []
    for seed in range(3):
        found = scores(task, folder, who, seed=seed)
        inside = np.isin(found.ids, who[0])
        low.append((found.p_values <= 0.05).mean())
        assert abs(auc(found.scores[inside], found.scores[~inside]) - 0.5) < 0.2
    assert np.mean(low) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / (2 * MEMBERS))


@pytest.mark.filterwarnings("ignore:what was published does not fit")  # as the guessed state does not
def test_without_the_optimizers_state_it_says_so(tmp_path, who):
    task = make_task(optimizer_options={"momentum": 0.9}, learning_rate=0.02)
    folder = save_checkpoints(task, tmp_path / "a", who[0], state=False)
    with pytest.warns(GmipWarning, match="lack the optimizer's state"):
        found = scores(task, folder, who)
    inside = np.isin(found.ids, who[0])
    assert auc(found.scores[inside], found.scores[~inside]) > 0.55


def test_files_hold_the_state_under_any_name(tmp_path, who):
    """Lightning's .ckpt has state_dict, a list of optimizer_states, and numbers; a loop of one's own what it likes."""
    task = make_task(optimizer="Adam", learning_rate=2e-3)
    plain = save_checkpoints(task, tmp_path / "a", who[0])
    folder = tmp_path / "b"
    folder.mkdir()
    for path in plain.iterdir():
        kept = torch.load(path, weights_only=True)
        state = {"optimizer_states": [kept["optimizer"]]} if "1" in path.stem else {"adam": kept["optimizer"]}
        torch.save({"epoch": 1, "state_dict": kept["state_dict"]} | state, folder / f"{path.stem}.ckpt")
    np.testing.assert_array_equal(scores(task, folder, who).scores, scores(task, plain, who).scores)


def test_a_state_of_adam_beside_a_recipe_of_sgd_is_refused(tmp_path, who):
    folder = save_checkpoints(make_task(optimizer="Adam", learning_rate=2e-3), tmp_path / "a", who[0], epochs=1)
    with pytest.raises(InvalidArgument, match="holds the state of Adam"):
        scores(make_task(), folder, who)


def test_a_recorder_that_stores_the_states_of_epochs_only(tmp_path, who):
    """Two epochs of four steps: three states, those of a plain loop, and who was in."""
    task = make_task(optimizer="Adam", learning_rate=2e-3)
    plain = save_checkpoints(task, tmp_path / "a", who[0])
    torch.manual_seed(3)
    model = task.make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    folder = tmp_path / "b"
    sizes = {"dataset_size": MEMBERS, "batch_size": 10, "sampling": "shuffled"}
    options = {"members": who[0], "non_members": who[1], "data": task, "every": "epoch"}
    with gmip.record(model, optimizer, folder, **sizes, **options):
        for _ in range(2):
            for batch in torch.randperm(MEMBERS).split(10):
                part = task.pool[who[0][batch.numpy()]]
                optimizer.zero_grad()
                task.loss(model(part.inputs), part.targets).mean().backward()
                optimizer.step()
    assert sorted(path.name for path in folder.glob("*.pt")) == [f"epoch-{i}.pt" for i in range(3)]
    np.testing.assert_allclose(scores(task, folder, who).scores, scores(task, plain, who).scores, rtol=1e-6)
    source = gmip.Checkpoints(folder, folder / "members.csv", folder / "non_members.csv", task)
    work = Workplace(settings=AttackSettings(), folder=folder, seed=0, watch=lambda _: lambda *_: None)
    np.testing.assert_array_equal(source.opened(task, "a", 0, work).target.members, who[0])
    with pytest.raises(InvalidArgument, match="not empty"), gmip.record(model, optimizer, folder, **sizes, **options):
        pass
    with pytest.raises(InvalidArgument, match="has none"):
        gmip.record(model, optimizer, tmp_path / "c", **(sizes | {"sampling": "fixed"}), **options)


def test_another_learning_rate_than_declared_is_noticed(tmp_path, who):
    task = make_task()
    folder = save_checkpoints(task, tmp_path / "a", who[0], state=False, rate=2.0)
    with pytest.warns(GmipWarning, match="does not fit the recipe"):
        scores(task, folder, who)


def test_one_model_and_a_long_list_are_refused(tmp_path, who):
    task = make_task()
    folder = save_checkpoints(task, tmp_path / "a", who[0], epochs=1)
    small = dataclasses.replace(task, make_model=lambda: nn.Linear(12, 4))
    its = save_checkpoints(small, tmp_path / "b", who[0], epochs=1)
    with pytest.raises(UnsupportedModel, match="dimensions"):
        scores(small, its, who)
    (folder / "epoch-1.pt").unlink()
    with pytest.raises(InvalidArgument, match="holds 1 checkpoints"):
        scores(task, folder, who)


def test_the_audit_of_a_folder_uses_it(tmp_path, who):
    task = make_task()
    folder = save_checkpoints(task, tmp_path / "a", who[0])
    result = gmip.audit(gmip.Checkpoints(folder, who[0].tolist(), who[1].tolist(), task), seed=0)
    names = [one.attack for one in result.runs[0].attacks]
    assert "rehearsal" in names and "loss" in names
