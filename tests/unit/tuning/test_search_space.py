"""What is searched, and how places in the unit cube become recipes."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.errors import InvalidArgument
from gmip.tasks import Recipe
from gmip.tuning import PrivacyTarget, SearchSpace

RECIPE = Recipe(dataset_size=800, batch_size=100, num_steps=40, learning_rate=2.0, clip_norm=1.0)
GMIP = PrivacyTarget(target_tpr=(0.05, 0.01))
GDP = PrivacyTarget(target_tpr=(0.05, 0.01), notion="gdp")


def space(target: PrivacyTarget = GMIP, recipe: Recipe = RECIPE, **given) -> SearchSpace:
    return SearchSpace.around(recipe, num_params=100, typical_norm=2.0, target=target, given=given)


def test_every_place_is_a_recipe_that_can_be_accounted_for():
    rng = np.random.default_rng(0)
    for point in map(tuple, rng.random((300, 6)).tolist()):
        recipe = space().recipe_at(point)
        assert 0.059 <= (recipe.clip_norm or 0.0) <= 3.01 and recipe.noise_std == 0.0
        assert recipe.sampling == "poisson" or (recipe.sampling == "full") == (recipe.batch_size == 800)
        assert recipe.run(100).num_steps == recipe.num_steps
        assert recipe.batch_size < 800 or recipe.sampling == "full"


def test_the_pace_is_kept_whatever_clip_norm_and_steps():
    narrow = space(optimizer="SGD", sampling="fixed", batch_size=100)
    lengths = []
    for clip in (0.1, 0.4, 0.8):  # below and above the typical norm
        for steps in (0.05, 0.95):
            recipe = narrow.recipe_at((clip, 0.6, 0.5, steps, 0.5, 0.5))
            lengths.append(recipe.learning_rate * recipe.num_steps * min(2.0, recipe.clip_norm or 2.0))
    assert max(lengths) / min(lengths) < 1.15  # two digits of rounding


def test_the_tasks_own_recipe_has_a_place():
    found = space().recipe_at(space().place_of(RECIPE))
    assert (found.batch_size, found.num_steps, found.sampling, found.optimizer) == (100, 40, "fixed", "SGD")
    assert found.clip_norm == pytest.approx(1.0, rel=0.05) and found.learning_rate == pytest.approx(2.0, rel=0.05)
    full = RECIPE.replace(sampling="full", batch_size=800)
    assert space(recipe=full).recipe_at(space(recipe=full).place_of(full)).sampling == "full"


def test_differential_privacy_keeps_its_neighbours():
    assert space(GDP).sampling == ("fixed",)
    assert space(GDP, RECIPE.replace(sampling="poisson")).sampling == ("poisson",)
    assert space(GMIP).sampling == ("fixed", "poisson")
    assert space(GDP, sampling=("fixed", "poisson")).sampling == ("fixed", "poisson")  # who asks gets it


def test_given_values_replace_the_defaults():
    found = space(learning_rate=(0.1, 1.0), clip_norm=0.5, batch_size=[50, 200], num_steps=7, optimizer="Adam")
    recipes = [found.recipe_at(tuple(row)) for row in np.random.default_rng(1).random((50, 6)).tolist()]
    assert {r.clip_norm for r in recipes} == {0.5} and {r.num_steps for r in recipes} == {7}
    assert {r.batch_size for r in recipes} == {50, 200} and {r.optimizer for r in recipes} == {"Adam"}
    assert all(0.099 <= r.learning_rate <= 1.001 for r in recipes)


def test_slow_accounting_is_asked_about_few_sizes():
    slow = space(PrivacyTarget(target_tpr=(0.05, 0.01), susceptibility="any"))
    assert len(slow.batch_size) * len(slow.num_steps) <= 6 < len(space().batch_size) * len(space().num_steps)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"clipnorm": 1.0}, "did you mean 'clip_norm'"),
        ({"clip_norm": (3.0, 1.0)}, "swap them"),
        ({"batch_size": ()}, "leaves no batch_size"),
        ({"batch_size": 900}, "exceeds"),
        ({"num_steps": 0}, "num_steps"),
        ({"sampling": "random"}, "sampling"),
    ],
)
def test_bad_spaces(given: dict, words: str):
    with pytest.raises(InvalidArgument, match=words):
        space(**given)
