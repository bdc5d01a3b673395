from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.value.search import FPR, TUNED, Grid, Search, multiplier, project, susceptibilities
from gmip import NoisySGD, account, calibrate
from gmip.tasks import load

GRID = Grid(
    components=(3,),
    shares=(0.5, 1.0),
    steps=(5, 10),
    clip_norms=(0.3,),
    moves=(2.0, 8.0),
    rungs=3,
    tuning_seeds=1,
)


@pytest.fixture(scope="module")
def search():
    return Search(load("breast-cancer"), 100, GRID, (0.03, 0.1, 0.3))


@pytest.fixture(scope="module")
def chosen(search):
    return search.chosen()


def test_records_to_tune_on_are_not_those_to_report_on():
    task = load("breast-cancer")
    found = project(task, 30, 200)
    tuning, members = (np.unique(part.inputs.numpy().round(5), axis=0) for part in (found.tuning, found.members))
    both = np.concatenate([tuning, members])
    assert len(np.unique(both, axis=0)) == len(tuning) + len(members)
    assert len(project(task, 3, 300).members) == len(task.pool)  # more than half of the pool


def test_features_are_principal_components_of_mean_square_norm_1():
    found = project(load("digits"), 4, 100)
    inputs = found.tuning.inputs.double()
    assert float(inputs.square().sum(1).mean()) == pytest.approx(1.0, abs=1e-5)
    products = inputs.T @ inputs
    assert torch.allclose(products, torch.diag(torch.diag(products)), atol=1e-2) and found.num_params == 9 * 5


def test_every_choice_keeps_its_target(search, chosen):
    """Recomputed from the recipe: nothing rests on the estimates that the choice was made by."""
    assert {one.arm for one in chosen} == {"none", *TUNED}
    for one in chosen:
        if one.target is None:
            continue
        run = one.recipe.run(search.features[one.components].num_params)
        assert account(run, **TUNED[one.arm].keywords).tpr_at(FPR) <= one.target * (1.0 + 1.0e-9)
        assert one.recipe.sampling in (*TUNED[one.arm].samplings, *TUNED[one.arm].full)


@pytest.mark.parametrize("arm", ["gmip", "half", "gdp"])
@pytest.mark.parametrize("share", [0.125, 0.5])
def test_estimates_are_close_to_what_is_needed(search, arm, share):
    recipe = search.recipes(share)[0].replace(sampling="poisson")
    estimate, sampling = search._estimate(arm, 0.1, 3, recipe)
    run = NoisySGD(
        dataset_size=100,
        batch_size=recipe.batch_size,
        num_steps=recipe.num_steps,
        num_params=search.features[3].num_params,
        clip_norm=1.0,
        sampling=sampling,
    )
    exact = calibrate(run, target_tpr=(0.1, FPR), **TUNED[arm].keywords).noise_std * recipe.batch_size
    assert estimate == pytest.approx(exact, rel=0.15, abs=0.15)


def test_another_claim_for_the_same_recipe(search, chosen):
    (gdp,) = [one for one in chosen if (one.arm, one.target) == ("gdp", 0.1)]
    ours = search.again(gdp, "gmip")
    assert multiplier(ours.recipe) <= multiplier(gdp.recipe)
    assert ours.recipe.replace(noise_std=0.0) == gdp.recipe.replace(noise_std=0.0)


def test_measured_susceptibilities_have_at_least_the_mean_of_the_rank(search, chosen):
    (ours,) = [one for one in chosen if (one.arm, one.target) == ("gmip", 0.3)]
    found = search.measured(ours)
    assert found.shape == (100,) and found.mean() >= search.features[3].num_params - 1e-6


def test_reports_are_the_same_for_the_same_seed_and_good_without_noise(search, chosen):
    first, again, other = (search.reported(chosen, seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first[0] > 0.85  # without noise


@pytest.mark.parametrize("shape", [(50, 6), (8, 20)])
def test_susceptibilities_are_mahalanobis_norms_and_their_mean_is_the_rank(shape):
    gradients = torch.from_numpy(np.random.default_rng(1).standard_normal(shape))
    found = susceptibilities(gradients)
    centred = (gradients - gradients.mean(0)).numpy()
    inverse = np.linalg.pinv(centred.T @ centred / shape[0])
    assert found == pytest.approx(np.einsum("ni,ij,nj->n", centred, inverse, centred))
    assert found.mean() == pytest.approx(min(shape[1], shape[0] - 1))
