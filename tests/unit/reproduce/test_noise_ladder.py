from __future__ import annotations

import numpy as np
import pytest
import torch

from gmip.reproduce.linear_heads import train_heads
from gmip.reproduce.noise_ladder import Ladder, climb, rungs, susceptibilities, with_multiplier
from gmip.tasks import Examples
from gmip.tuning import SearchRecords
from gmip.vocabulary import Recipe


def recipe(**changes):
    settings = {"dataset_size": 40, "batch_size": 10, "num_steps": 3, "learning_rate": 1.0, "clip_norm": 2.0}
    return Recipe(**(settings | changes))


def test_rungs_cover_what_will_be_asked():
    assert rungs([0.0, 8.0, 2.0, 4.0], 4) == pytest.approx([0.0, 2.0, 4.0, 8.0])
    assert rungs([0.0], 4) == [0.0, 1.0]
    assert len(rungs([3.0], 4)) == 4 and rungs([3.0], 4)[1] == pytest.approx(3.0)


def test_a_target_takes_the_best_recipe_at_the_noise_it_needs():
    fast, slow = recipe(learning_rate=2.0), recipe(learning_rate=0.5)
    ladder = Ladder([fast, slow], [0.0, 1.0, 2.0], [[0.9, 0.6, 0.5], [0.8, 0.75, 0.7]])
    assert ladder.best(lambda r: 0.0) == (0.9, fast) and ladder.best(lambda r: 1.0) == (0.75, slow)
    accuracy, taken = ladder.best(lambda r: None if r == slow else 0.5)
    assert taken == fast and accuracy == pytest.approx(0.75)
    assert ladder.best(lambda r: 9.0) == (0.7, slow)


def test_a_ladder_is_what_training_gives():
    rng = np.random.default_rng(0)
    examples = Examples(torch.from_numpy(rng.standard_normal((90, 2)).astype(np.float32)), torch.arange(90) % 2)
    records = SearchRecords(examples[np.arange(30)], examples[np.arange(30, 90)], "outsiders")
    plans = [recipe(), recipe(learning_rate=0.1, num_steps=2)]
    ladder = climb([records], plans, [0.0, 3.0], seeds=[7], classes=2)
    noisy = recipe(dataset_size=30, noise_std=0.6)
    assert with_multiplier(recipe(), 3.0).noise_std == pytest.approx(0.6)
    expected = train_heads(records.train, [noisy], seed=7, classes=2).accuracy(records.validation)
    assert ladder.accuracies[0, 1] == pytest.approx(float(expected[0]))


@pytest.mark.parametrize("shape", [(50, 6), (8, 20)])
def test_susceptibilities_are_mahalanobis_norms_and_their_mean_is_the_rank(shape):
    gradients = torch.from_numpy(np.random.default_rng(1).standard_normal(shape))
    found = susceptibilities(gradients)
    centred = (gradients - gradients.mean(0)).numpy()
    inverse = np.linalg.pinv(centred.T @ centred / shape[0])
    assert found == pytest.approx(np.einsum("ni,ij,nj->n", centred, inverse, centred))
    assert found.mean() == pytest.approx(min(shape[1], shape[0] - 1))
