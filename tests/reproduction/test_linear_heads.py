"""Heads trained at once are those of `gmip.train`, one by one, and a ladder of noise gives the best of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gmip.errors import InvalidArgument
from gmip.tasks import Examples, Task, load
from gmip.training import fit, initial_model
from gmip.tuning import SearchRecords
from gmip.vocabulary import Recipe
from reproduction.linear_heads import Ladder, contrasts, rungs, train_apart, train_heads, train_ladder, with_multiplier

CLASSES, FEATURES, SIZE = 4, 3, 60
BASIS = contrasts(CLASSES)


def records(seed, size=SIZE):
    rng = np.random.default_rng(seed)
    inputs = torch.from_numpy(rng.standard_normal((size, FEATURES)).astype(np.float32))
    return Examples(inputs, torch.from_numpy(rng.integers(0, CLASSES, size)))


def plain_model():
    return nn.Linear(FEATURES, CLASSES)


def contrast_model():
    fixed = nn.Linear(CLASSES - 1, CLASSES, bias=False)
    with torch.no_grad():
        fixed.weight.copy_(BASIS)
    return nn.Sequential(nn.Linear(FEATURES, CLASSES - 1), fixed.requires_grad_(False))


def recipe(**changes):
    settings = {"dataset_size": SIZE, "batch_size": 20, "num_steps": 6, "learning_rate": 0.5, "clip_norm": 0.8}
    return Recipe(**(settings | {"noise_std": 0.05} | changes))


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "full"])
@pytest.mark.parametrize(("optimizer", "make"), [("SGD", plain_model), ("Adam", plain_model), ("SGD", contrast_model)])
def test_every_step_is_that_of_the_noisy_stepper(sampling, optimizer, make):
    task = Task(name="heads", make_model=make, pool=records(0, 200), test=records(1), recipe=recipe())
    common = {"sampling": sampling, "optimizer": optimizer}
    rate = 0.1 if optimizer == "Adam" else 0.7
    recipes = [
        recipe(num_steps=1, **common),
        recipe(num_steps=4, **common),
        recipe(num_steps=6, learning_rate=rate, clip_norm=0.3, noise_std=0.1, **common),
        recipe(num_steps=6, learning_rate=rate, noise_std=0.0, **common),
        recipe(num_steps=5, clip_norm=100.0, **common),
    ]
    layer: Any = initial_model(task, 5)
    layer = layer if make is plain_model else layer[0]
    heads = train_heads(
        task.pool[np.arange(SIZE)],
        recipes,
        seed=5,
        classes=CLASSES,
        initial=(layer.weight.detach(), layer.bias.detach()),
        basis=None if make is plain_model else BASIS,
    )
    accuracies = heads.accuracy(task.test)
    for place, one in enumerate(recipes):
        model = fit(task, one, task.pool[np.arange(SIZE)], seed=5)
        with torch.no_grad():
            ours = task.test.inputs @ heads.weights[:-1, :, place] + heads.weights[-1, :, place]
            theirs = model(task.test.inputs)
        assert torch.allclose(ours, theirs, atol=2.0e-5)
        assert accuracies[place] == pytest.approx(float((theirs.argmax(1) == task.test.targets).float().mean()))


def test_gradients_are_clipped_and_those_of_autograd():
    examples = records(2, 10)
    heads = train_heads(examples, [recipe(dataset_size=10, batch_size=10)], seed=0, classes=CLASSES)
    clipped = heads.gradients(examples, 0, 0.5)
    norms = torch.linalg.vector_norm(clipped, dim=1)
    assert float(norms.max()) <= 0.5 + 1.0e-6 and float(norms.min()) > 0.1
    weights = heads.weights[:, :, 0].clone().requires_grad_()
    for i in range(10):
        logits = torch.cat([examples.inputs[i], torch.ones(1)]) @ weights
        (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(logits, examples.targets[i]), weights)
        expected = gradient.flatten() * min(1.0, 0.5 / float(gradient.norm()))
        assert torch.allclose(clipped[i], expected, atol=1.0e-6)


def test_contrasts_are_orthonormal_and_sum_to_zero():
    assert torch.allclose(BASIS.T @ BASIS, torch.eye(CLASSES - 1), atol=1.0e-6)
    assert torch.allclose(BASIS.sum(0), torch.zeros(CLASSES - 1), atol=1.0e-6)


@pytest.mark.parametrize(
    ("recipes", "basis", "what"),
    [
        ([recipe(), recipe(batch_size=10)], None, "differ in more than"),
        ([recipe(optimizer="AdamW")], None, "SGD or Adam"),
        ([recipe(optimizer="Adam")], BASIS, "with a basis"),
    ],
)
def test_what_cannot_be_trained_together_is_refused(recipes, basis, what):
    with pytest.raises(InvalidArgument, match=what):
        train_heads(records(0), recipes, seed=0, classes=CLASSES, basis=basis)


def ladder_recipe(**changes):
    settings = {"dataset_size": 40, "batch_size": 10, "num_steps": 3, "learning_rate": 1.0, "clip_norm": 2.0}
    return Recipe(**(settings | changes))


def test_rungs_cover_what_will_be_asked():
    assert rungs([0.0, 8.0, 2.0, 4.0], 4) == pytest.approx([0.0, 2.0, 4.0, 8.0])
    assert rungs([0.0], 4) == [0.0, 1.0]
    assert len(rungs([3.0], 4)) == 4 and rungs([3.0], 4)[1] == pytest.approx(3.0)


def test_a_target_takes_the_best_recipe_at_the_noise_it_needs():
    fast, slow = ladder_recipe(learning_rate=2.0), ladder_recipe(learning_rate=0.5)
    ladder = Ladder([fast, slow], [0.0, 1.0, 2.0], [[0.9, 0.6, 0.5], [0.8, 0.75, 0.7]])
    assert ladder.best(lambda r: 0.0) == (0.9, fast) and ladder.best(lambda r: 1.0) == (0.75, slow)
    accuracy, taken = ladder.best(lambda r: None if r == slow else 0.5)
    assert taken == fast and accuracy == pytest.approx(0.75)
    assert ladder.best(lambda r: 9.0) == (0.7, slow)


def test_a_ladder_is_what_training_gives():
    rng = np.random.default_rng(0)
    examples = Examples(torch.from_numpy(rng.standard_normal((90, 2)).astype(np.float32)), torch.arange(90) % 2)
    records = SearchRecords(examples[np.arange(30)], examples[np.arange(30, 90)])
    plans = [ladder_recipe(), ladder_recipe(learning_rate=0.1, num_steps=2)]
    ladder = train_ladder([records], plans, [0.0, 3.0], seeds=[7], classes=2)
    noisy = ladder_recipe(dataset_size=30, noise_std=0.6)
    assert with_multiplier(ladder_recipe(), 3.0).noise_std == pytest.approx(0.6)
    expected = train_heads(records.train, [noisy], seed=7, classes=2).accuracy(records.validation)
    assert ladder.accuracies[0, 1] == pytest.approx(float(expected[0]))


@pytest.mark.parametrize(("sampling", "optimizer", "clip_norm"), [("fixed", "Adam", 2.0), ("full", "SGD", None)])
def test_heads_trained_apart_are_those_of_single_runs(sampling, optimizer, clip_norm):
    task = load("digits")
    recipe = Recipe(
        dataset_size=60,
        batch_size=60 if sampling == "full" else 20,
        num_steps=7,
        learning_rate=0.05,
        optimizer=optimizer,
        clip_norm=clip_norm,
        sampling=sampling,
    )
    members = [np.random.default_rng(seed).permutation(len(task.pool))[:60] for seed in range(3)]
    start = [(torch.randn(10, 64, generator=torch.Generator().manual_seed(s)), torch.zeros(10)) for s in range(3)]
    heads = train_apart(task.pool, members, recipe, seeds=[0, 1, 2], classes=10, initial=lambda s: start[s])
    for seed in range(3):
        alone = train_heads(task.pool[members[seed]], [recipe], seed=seed, classes=10, initial=start[seed])
        torch.testing.assert_close(heads.weights[:, :, seed], alone.weights[:, :, 0], atol=1e-5, rtol=1e-4)
    p = torch.softmax(task.test.inputs @ heads.weights[:-1, :, 1] + heads.weights[-1, :, 1], 1)
    true = p[torch.arange(len(p)), task.test.targets].double().numpy()
    near = (true > 0.01) & (true < 0.99)
    np.testing.assert_allclose(
        heads.confidences(task.test)[near, 1], np.log(true / (1 - true))[near], atol=1e-3, rtol=1e-3
    )
