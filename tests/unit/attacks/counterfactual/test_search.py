"""Counterfactual distances: closed forms, an exact oracle for piecewise-linear networks, and what cannot be found."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import nn

from gmip.attacks.counterfactual import Classifier, Counterfactuals, counterfactuals
from gmip.errors import InvalidArgument
from gmip.tasks import load
from gmip.training.loop import train


class Made(nn.Module):
    """A model from a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs):
        return self.function(inputs)


def drawn(*shape: int, seed: int = 0, dtype: Any = torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def filled(model: Any, seed: int = 0, dtype: Any = torch.float64) -> Any:
    """The model with weights that do not depend on anybody's random state."""
    model = model.to(dtype)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(drawn(*parameter.shape, seed=100 * seed + number + 1))
    return model


def closed_form(weight, bias, points) -> np.ndarray:
    """min over j of (f_i - f_j)/|w_i - w_j|."""
    W, b, x = (np.asarray(part.detach().double()) for part in (weight, bias, points))
    scores = x @ W.T + b
    own = scores.argmax(1)
    gaps = scores[np.arange(len(x)), own][:, None] - scores
    norms = np.linalg.norm(W[own][:, None] - W[None], axis=2)
    norms[np.arange(len(x)), own] = np.nan
    return np.nanmin(gaps / norms, axis=1)


def check_valid(model: nn.Module, inputs, found: Counterfactuals) -> None:
    """The class changes at the point and not just before it; the distance is that of the point."""
    with torch.no_grad():
        own, there = model(inputs).argmax(1), model(found.points).argmax(1)
        before = model(inputs + (1.0 - 1.0e-4) * (found.points - inputs)).argmax(1)
    np.testing.assert_array_equal(found.classes, np.stack([own, there], axis=1))
    assert bool((own != there).all()) and bool((own == before).all())
    lengths = (found.points - inputs).flatten(1).norm(dim=1)
    np.testing.assert_allclose(found.distances, lengths, rtol=1.0e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 10])
def test_linear_classifiers_have_the_closed_form(classes, dtype):
    model = filled(nn.Linear(20, classes), dtype=dtype)
    inputs = drawn(300, 20, dtype=dtype)
    found = counterfactuals(model, inputs)
    exact = closed_form(model.weight, model.bias, inputs)
    rounding = 1.0e-5 if dtype == torch.float32 else 0.0  # of inputs of length 5, for those that nearly touch
    np.testing.assert_allclose(found.distances, exact, rtol=1.0e-4, atol=rounding)
    assert found.converged.all() and found.points.dtype == dtype
    if dtype == torch.float64:
        check_valid(model, inputs, found)


def test_digits():
    """A trained model in single precision, on all candidates of a real task."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    task = load("digits")
    model: Any = train(task, seed=0).model
    started = time.process_time()
    found = counterfactuals(model, task.pool.inputs)
    seconds = time.process_time() - started
    errors = found.distances / closed_form(model.weight, model.bias, task.pool.inputs) - 1.0
    print(f"digits: {len(errors)} distances in {seconds:.1f} s, largest relative error {abs(errors).max():.1e}")
    assert found.converged.all() and abs(errors).max() < 1.0e-3


@pytest.mark.parametrize("flat", [False, True])
def test_one_logit_is_two_classes(flat):
    layer = filled(nn.Linear(5, 1))
    model = nn.Sequential(layer, nn.Flatten(0)) if flat else layer
    inputs = drawn(50, 5)
    found = counterfactuals(model, inputs)
    logits = layer(inputs).detach().numpy()[:, 0]
    np.testing.assert_allclose(found.distances, abs(logits) / float(layer.weight.detach().norm()), rtol=1.0e-4)
    np.testing.assert_array_equal(found.classes, np.stack([logits > 0, logits <= 0], axis=1))


@pytest.mark.parametrize("inplace", [False, True])
def test_feature_space(inplace):
    """Behind a fixed map and an activation that may overwrite what it is given."""
    model = filled(nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=inplace), nn.Linear(8, 4)))
    inputs = drawn(40, 6)
    features = model[:2](inputs).detach()
    found = counterfactuals(model, inputs, space="1")
    np.testing.assert_allclose(found.distances, closed_form(model[2].weight, model[2].bias, features), rtol=1.0e-4)
    assert found.points.shape == (40, 8) and found.converged.all()
    moved = counterfactuals(model, inputs, space="0")  # the activation belongs to the classifier then
    before = model[0](inputs).detach()
    alone = counterfactuals(model[1:], before)
    np.testing.assert_allclose(moved.distances, alone.distances, rtol=1.0e-6)
    np.testing.assert_allclose(moved.distances, (moved.points - before).norm(dim=1), rtol=1.0e-6)
    assert torch.equal(before, model[0](inputs))  # not written on


def slsqp(x: np.ndarray, G: np.ndarray, g: np.ndarray) -> Any:
    """Nearest z with G z + g >= 0."""
    solve: Any = minimize  # its types know no functions of any array
    inside = {"type": "ineq", "fun": lambda z: G @ z + g, "jac": lambda _: G}
    return solve(
        lambda z: (((z - x) ** 2).sum(), 2.0 * (z - x)),
        x,
        jac=True,
        method="SLSQP",
        constraints=inside,
        options={"ftol": 1.0e-12},
    )


def nearest_over_pieces(model: nn.Sequential, x: np.ndarray) -> float:
    """Exact distance for one hidden layer of ReLU: a convex programme for each pattern of active units and rival."""
    (A, a), (B, b) = ([p.detach().numpy() for p in layer.parameters()] for layer in (model[0], model[2]))
    own = int((B @ np.maximum(A @ x + a, 0.0) + b).argmax())
    best = np.inf
    for pattern in itertools.product((0.0, 1.0), repeat=len(a)):
        on = np.array(pattern)
        for rival in set(range(len(b))) - {own}:
            row = (B[rival] - B[own]) * on
            G = np.vstack([(2.0 * on - 1.0)[:, None] * A, row @ A])
            g = np.append((2.0 * on - 1.0) * a, row @ a + b[rival] - b[own])
            solved = slsqp(x, G, g)
            if solved.success and (G @ solved.x + g).min() > -1.0e-7:
                best = min(best, float(np.sqrt(solved.fun)))
    return best


def test_piecewise_linear_networks_against_all_their_pieces():
    model = filled(nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3)), seed=3)
    inputs = 2.0 * drawn(16, 2, seed=4)
    exact = np.array([nearest_over_pieces(model, x.numpy()) for x in inputs])
    quick, thorough = counterfactuals(model, inputs), counterfactuals(model, inputs, restarts=40)
    check_valid(model, inputs, quick)
    assert quick.converged.all() and thorough.converged.all()
    np.testing.assert_allclose(thorough.distances, exact, rtol=1.0e-3)
    assert (quick.distances > (1.0 - 1.0e-4) * exact).all()
    missed = np.sort(quick.distances / exact - 1.0)[::-1]
    print(f"farther than the nearest piece by {', '.join(f'{share:.1%}' for share in missed[:4])}, ...")
    assert (missed > 0.001).sum() <= 2  # the search is local


def test_deep_network_against_a_grid():
    model = filled(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)), seed=1)
    inputs = drawn(40, 2, seed=2)
    found = counterfactuals(model, inputs)
    check_valid(model, inputs, found)
    assert found.converged.mean() >= 0.95
    angle = torch.linspace(0.0, 2.0 * np.pi, 721, dtype=torch.float64)[:-1]
    circle = torch.stack([angle.cos(), angle.sin()], dim=1)
    with torch.no_grad():
        own = model(inputs).argmax(1)
        nearer = [
            bool((model(x + share * d * circle).argmax(1) != c).any())
            for x, d, c in zip(inputs, found.distances, own, strict=True)
            for share in (0.3, 0.6, 0.8, 0.9, 0.95, 0.99)
        ]
    assert np.array(nearer).reshape(40, -1).any(1).sum() <= 2  # the search is local


def test_corners():
    """Class 1 is the quadrant beyond (1, 1): the nearest point is its corner, where no gradient points to."""
    model = Made(lambda z: z.amin(1) - 1.0)
    inputs = torch.tensor([[0.0, 0.0], [-1.0, 0.5], [0.5, 3.0]], dtype=torch.float64)
    found = counterfactuals(model, inputs)
    np.testing.assert_allclose(found.distances, [np.sqrt(2.0), np.hypot(2.0, 0.5), 0.5], rtol=1.0e-4)
    assert found.converged.all()


@pytest.mark.parametrize("radius", [1.5, 4.0])
def test_spheres(radius):
    """From outside the boundary bends away, from inside towards the input."""
    centre = drawn(1, 8, seed=5)
    model = Made(lambda z: (z - centre).square().sum(1) - radius**2)
    inputs = drawn(50, 8, seed=6)
    found = counterfactuals(model, inputs)
    exact = ((inputs - centre).norm(dim=1) - radius).abs()
    np.testing.assert_allclose(found.distances, exact, rtol=2.0e-3)
    assert found.converged.mean() >= 0.95


@pytest.mark.parametrize(
    "function",
    [
        lambda z: torch.zeros(len(z), 3),
        lambda z: 0.0 * z[:, :2] + torch.arange(2.0),
        lambda z: 0.0 * z.reshape(len(z), 2, -1).sum(2),  # not for empty batches
    ],
    ids=["no gradient", "zero gradient", "no empty batch"],
)
def test_constant_models_are_reported(function):
    inputs = drawn(7, 4, dtype=torch.float32)
    found = counterfactuals(Made(function), inputs)
    largest = float(inputs.norm(dim=1).max())
    assert not found.converged.any() and found.reach == pytest.approx(100.0 * largest)
    np.testing.assert_array_equal(found.distances, found.reach)
    assert torch.equal(found.points, inputs) and (found.classes[:, 0] == found.classes[:, 1]).all()
    assert np.isfinite(counterfactuals(Made(function), torch.zeros(2, 4)).distances).all()


def test_flat_starts_are_rescued():
    """No gradient at the inputs, and the other class in every direction, far away."""
    model = Made(lambda z: (z.norm(dim=1) - 5.0).relu() - 0.5)
    found = counterfactuals(model, 0.1 * drawn(20, 3))
    assert (found.distances < 6.0).all() and (found.distances > 5.0).all()


def test_beyond_reach():
    model = Made(lambda z: z[:, 0] - 10.0)
    inputs = torch.zeros(1, 2, dtype=torch.float64)
    assert counterfactuals(model, inputs, reach=11.0).distances[0] == pytest.approx(10.0)
    far = counterfactuals(model, inputs, reach=9.0)
    assert far.distances[0] == 9.0 and not far.converged[0]


def test_inputs_on_the_boundary():
    model = filled(nn.Linear(3, 2))
    with torch.no_grad():
        model.bias.zero_()
    found = counterfactuals(model, torch.zeros(1, 3, dtype=torch.float64), reach=10.0)
    assert 0.0 < found.distances[0] < 1.0e-5


def test_distances_do_not_depend_on_company(monkeypatch):
    model = filled(nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4)), seed=2)
    inputs = drawn(50, 10, seed=7)
    whole = counterfactuals(model, inputs, reach=500.0)
    with monkeypatch.context() as patch:
        patch.setattr(Classifier, "chunk_size", lambda *_, **__: 20)
        parts = counterfactuals(model, inputs, reach=500.0)
    np.testing.assert_allclose(parts.distances, whole.distances, rtol=1.0e-6)
    turned = counterfactuals(model, inputs.flip(0)[:20], reach=500.0)
    np.testing.assert_allclose(turned.distances, whole.distances[::-1][:20], rtol=1.0e-6)
    np.testing.assert_array_equal(counterfactuals(model, inputs, reach=500.0).distances, whole.distances)


def test_images_in_eval_mode():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Tanh(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8, 3)
    )
    model = filled(model)
    inputs = drawn(9, 1, 4, 4)
    found = counterfactuals(model, inputs)
    assert found.points.shape == inputs.shape and found.converged.mean() > 0.8
    check_valid(model.eval(), inputs, found)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails):
    model = filled(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 2)))
    model[1].eval()
    model[0].weight.requires_grad_(False)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, random = drawn(5, 4), torch.random.get_rng_state()
    kept = inputs.clone()
    if fails:
        with pytest.raises(InvalidArgument, match="NaN"):
            counterfactuals(nn.Sequential(model, Made(lambda z: z / 0.0 * 0.0)), inputs)
    else:
        counterfactuals(model, inputs, space="0")
    assert [module.training for module in model] == [True, False, True, True] and model.training
    assert [p.requires_grad for p in model.parameters()] == [False, *[True] * 5]
    assert all(p.grad is None for p in model.parameters())
    assert all(not module._forward_hooks for module in model.modules())
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(random, torch.random.get_rng_state()) and torch.equal(inputs, kept)


def test_progress(monkeypatch):
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(Classifier, "chunk_size", lambda *_, **__: 4)
    counterfactuals(filled(nn.Linear(3, 2)), drawn(10, 3), progress=lambda *at: seen.append(at))
    assert seen == [(4, 10), (8, 10), (10, 10)]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.pair = nn.Linear(3, 3), Made(lambda z: (z, z))

    def forward(self, inputs):
        return self.layer(self.layer(self.pair(inputs)[0]))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": 3}, "model must be a torch.nn.Module, not int"),
        ({"inputs": np.zeros((2, 3))}, "inputs must be a tensor .* not ndarray"),
        ({"inputs": torch.zeros(0, 3)}, r"not shape \(0, 3\)"),
        ({"inputs": torch.zeros(3)}, r"not shape \(3,\)"),
        ({"inputs": torch.zeros(2, 3, dtype=torch.int64)}, "inputs are torch.int64"),
        ({"inputs": torch.tensor([[0.0, 1.0, torch.nan]])}, "inputs has 1 rows with NaN"),
        ({"model": Made(lambda z: z / 0.0 * 0.0)}, "model gives NaN for 2 of 2 inputs"),
        ({"model": Made(lambda z: z[:, :, None])}, r"model puts out \(., 3, 1\)"),
        ({"model": Made(lambda z: [z])}, "model puts out list"),
        ({"space": "layer"}, "space = 'layer' is called 2 times"),
        ({"space": "pair"}, "space = 'pair' puts out tuple for"),
        (
            {"space": "layr"},
            "space = 'layr' is not a submodule of the model, did you mean 'layer': pass",
        ),
        ({"model": nn.Linear(3, 2), "space": "head"}, "space = 'head' is not a submodule of the model: leave it out"),
        ({"restarts": -1}, "restarts = -1"),
        ({"rivals": 0}, "rivals = 0"),
        ({"tolerance": 0.0}, "tolerance = 0.0"),
        ({"max_steps": 0}, "max_steps = 0"),
        ({"reach": -1.0}, "reach = -1.0"),
    ],
)
def test_bad_arguments(change, sentence):
    arguments: dict[str, Any] = {"model": Twice(), "inputs": torch.zeros(2, 3)} | change
    with pytest.raises(InvalidArgument, match=sentence):
        counterfactuals(**arguments)
