"""What is searched, and how places in the unit cube become recipes."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.accounting.account import account
from gmip.errors import InvalidArgument
from gmip.tuning import SearchSpace
from gmip.tuning.search_space import calibrated
from gmip.vocabulary import PrivacyTarget, Recipe

RECIPE = Recipe(dataset_size=800, batch_size=100, num_steps=40, learning_rate=2.0, clip_norm=1.0)
GMIP = PrivacyTarget(target_tpr=(0.05, 0.01))
GDP = PrivacyTarget(target_tpr=(0.05, 0.01), notion="gdp")


def space(target: PrivacyTarget = GMIP, recipe: Recipe = RECIPE, **given) -> SearchSpace:
    made = SearchSpace.around(recipe, num_params=100, typical_norm=2.0, target=target, given=given)
    return made.with_least_noise(made.sizes())  # without noise: the largest batches


def test_every_place_is_a_recipe_that_can_be_accounted_for():
    rng = np.random.default_rng(0)
    whole = space()
    for point in map(tuple, rng.random((100, 4)).tolist()):
        recipe = whole.recipe_at(point)
        assert 0.059 <= (recipe.clip_norm or 0.0) <= 3.01 and recipe.noise_std == 0.0
        assert recipe.run(100).num_steps in whole.num_steps
        assert recipe.batch_size < 800 or recipe.sampling == "full"


def test_sizes_are_all_of_them_once():
    found = [(r.num_steps, r.batch_size, r.sampling) for r in space(num_steps=(5, 10), batch_size=(100, 800)).sizes()]
    assert sorted(found) == sorted(
        (steps, *rest) for steps in (5, 10) for rest in [(100, "fixed"), (100, "poisson"), (800, "full")]
    )


def test_the_least_noise_chooses_batch_size_and_sampling():
    made = SearchSpace.around(
        RECIPE, num_params=100, typical_norm=2.0, target=GMIP, given={"num_steps": (5, 10), "batch_size": (100, 400)}
    )
    noise = {("fixed", 100): 0.4, ("fixed", 400): 0.3, ("poisson", 100): 0.2, ("poisson", 400): 0.25}
    calibrated = [r.replace(noise_std=noise[r.sampling, r.batch_size]) for r in made.sizes()]
    assert made.with_least_noise(calibrated).best == ((5, 100, "poisson"), (10, 100, "poisson"))
    # Where noise is equal, larger batches have less randomness of their own.
    equal = [r.replace(noise_std=0.2) for r in made.sizes()]
    assert {size for _, size, _ in made.with_least_noise(equal).best} == {400}
    out_of_reach = [None if r.num_steps == 10 else r for r in equal]
    assert made.with_least_noise(out_of_reach).num_steps == (5,)


def test_the_pace_is_kept_whatever_clip_norm_and_steps():
    narrow = space(optimizer="SGD", sampling="fixed", batch_size=100)
    lengths = []
    for clip in (0.1, 0.4, 0.8):  # below and above the typical norm
        for steps in (0.05, 0.95):
            recipe = narrow.recipe_at((clip, 0.6, steps, 0.5))
            lengths.append(recipe.rate * recipe.num_steps * min(2.0, recipe.clip_norm or 2.0))
    assert max(lengths) / min(lengths) < 1.15  # two digits of rounding


def test_the_tasks_own_recipe_has_a_place():
    found = space().recipe_at(space().place_of(RECIPE))
    assert (found.num_steps, found.optimizer) == (40, "SGD")
    assert found.clip_norm == pytest.approx(1.0, rel=0.05) and found.learning_rate == pytest.approx(2.0, rel=0.05)


def test_differential_privacy_keeps_its_neighbours():
    assert space(GDP).sampling == ("fixed",)
    assert space(GDP, RECIPE.replace(sampling="poisson")).sampling == ("poisson",)
    assert space(GMIP).sampling == ("fixed", "poisson")
    assert space(GDP, sampling=("fixed", "poisson")).sampling == ("fixed", "poisson")  # who asks gets it


def test_given_values_replace_the_defaults():
    found = space(learning_rate=(0.1, 1.0), clip_norm=0.5, batch_size=[50, 200], num_steps=7, optimizer="Adam")
    recipes = [found.recipe_at(tuple(row)) for row in np.random.default_rng(1).random((50, 4)).tolist()]
    assert {r.clip_norm for r in recipes} == {0.5} and {r.num_steps for r in recipes} == {7}
    assert {r.batch_size for r in recipes} == {200} and {r.optimizer for r in recipes} == {"Adam"}
    assert all(0.099 <= r.rate <= 1.001 for r in recipes)


def test_slow_accounting_is_asked_about_few_sizes():
    slow = space(PrivacyTarget(target_tpr=(0.05, 0.01), susceptibility="any"))
    assert len(slow.num_steps) == 2 < len(space().num_steps)


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


def test_epochs_by_balls_in_bins_can_be_searched():
    target = PrivacyTarget(target_epsilon=3.0, delta=1e-3, notion="gdp")
    made = SearchSpace.around(
        RECIPE, num_params=100, typical_norm=2.0, target=target, given={"sampling": "balls-in-bins", "num_steps": 16}
    )
    ready = [calibrated(r, 100, target) for r in made.sizes() if r.batch_size in (100, 400)]
    chosen = made.with_least_noise(ready).recipe_at((0.5, 0.5, 0.5, 0.5))
    assert chosen.sampling == "balls-in-bins" and chosen.batch_size == 400
    for recipe in ready:
        curve = account(recipe.run(100), notion="gdp")
        assert curve.kind == "bound" and 2.99 < curve.epsilon(1e-3) <= 3.0
    # A recipe of epochs is compared with Poisson batches, which have its neighbours.
    whole = space(target, RECIPE.replace(sampling="balls-in-bins"))
    assert set(whole.sampling) == {"poisson", "balls-in-bins"}
