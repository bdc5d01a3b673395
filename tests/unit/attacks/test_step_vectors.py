from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from torch import nn

from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.step_vectors import collect, held_by_rows
from gmip.errors import InvalidArgument
from gmip.tasks.task import Examples
from tests.unit.attacks.models import make


@dataclass
class Published:
    parameters: NDArray[np.float64]
    gradient: NDArray[np.float64]


def published(gradients, members, *, steps, noise_std=0.0, seed=0):
    """Steps at random parameters, each with the mean gradient of the members."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(steps):
        parameters = rng.normal(size=gradients.num_params) * 0.3
        mean = gradients.at(parameters).rows(members).mean(0).numpy()
        result.append(Published(parameters, mean + noise_std * rng.normal(size=mean.shape)))
    return result


def llr(collected, *, n, noise_std, ridge):
    """Gaussian log-likelihood ratio of each candidate, with the covariance background + ridge I, dense."""
    mu = collected.background.mean(0)
    centred = collected.background - mu
    covariance = centred.T @ centred / len(centred) + ridge * np.eye(len(mu))
    eye = noise_std**2 * np.eye(len(mu))
    h0, h1 = covariance / n + eye, (n - 1) / n**2 * covariance + eye
    gap0 = collected.mean - mu
    gap1 = gap0 - (collected.candidates - mu) / n
    # Dimensions without a coordinate: the background does not vary there, so the covariance is the ridge.
    rest = np.log(ridge / n + noise_std**2) - np.log((n - 1) / n**2 * ridge + noise_std**2)
    dets = np.linalg.slogdet(h0)[1] - np.linalg.slogdet(h1)[1] + collected.extra_dims * rest
    return 0.5 * (dets + gap0 @ np.linalg.solve(h0, gap0) - np.sum(gap1.T * np.linalg.solve(h1, gap1.T), axis=0))


def same_products(a, b, *, rtol):
    for x, y in ((a.background, b.background), (a.candidates, b.candidates)):
        for u, v in ((a.background, b.background), (a.candidates, b.candidates), (a.mean[None], b.mean[None])):
            scale = np.linalg.norm(y, axis=1)[:, None] * np.linalg.norm(v, axis=1)
            assert np.max(np.abs(x @ u.T - y @ v.T) / scale) < rtol
    assert a.mean @ a.mean == pytest.approx(b.mean @ b.mean, rel=rtol)


@pytest.mark.parametrize(
    ("kind", "steps", "clip_norm"),
    [("three layers", 1, None), ("three layers", 3, 0.5), ("convolution", 2, 0.5), ("few wide tokens", 2, None)],
)
def test_both_routes_give_the_same_likelihood_ratio(kind, steps, clip_norm):
    model, examples = make(kind, 60)
    gradients = PerExampleGradients(model, clip_norm=clip_norm)
    background, candidates = examples[range(40)], examples[range(40, 60)]
    noise_std = 0.0 if clip_norm is None else 0.01
    trace = published(gradients, candidates[range(10)], steps=steps, noise_std=noise_std)
    full = collect(gradients, trace, background, candidates, by_rows=True)
    dual = collect(gradients, trace, background, candidates, by_rows=False)
    size = steps * gradients.num_params
    assert full.background.shape == (40, size) and full.mean.shape == (size,)
    assert full.extra_dims == 0
    assert dual.mean.shape[0] + dual.extra_dims == size and dual.mean.shape[0] <= 61
    same_products(dual, full, rtol=1e-9)
    ridge = 1e-3 * full.background.var(0).mean()
    scores = [llr(c, n=10, noise_std=noise_std, ridge=ridge) for c in (full, dual)]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-6, atol=1e-6 * np.abs(scores[0]).max())
    # Streamed: a few examples at a time, one block held at a time.
    slow = PerExampleGradients(model, clip_norm=clip_norm, chunk=7)
    least = 5 * 8 * 61**2 * 4 // 3 + 10
    streamed = collect(slow.within(least), trace, background, candidates, by_rows=False)
    same_products(streamed, dual, rtol=1e-9)
    again = llr(streamed, n=10, noise_std=noise_std, ridge=ridge)
    np.testing.assert_allclose(again, scores[1], rtol=1e-6, atol=1e-6 * np.abs(scores[0]).max())
    same_products(collect(slow, trace, background, candidates, by_rows=True), full, rtol=1e-12)


def test_joint_materialised_columns_are_those_of_the_steps():
    model, examples = make("three layers", 200)
    gradients = PerExampleGradients(model, dtype=torch.float32)
    background, candidates = examples[range(150)], examples[range(150, 200)]
    trace = published(gradients, candidates, steps=2)
    joint = collect(gradients, trace, background, candidates, by_rows=True)
    for i, step in enumerate(trace):
        one = collect(gradients, step, background, candidates)
        assert one.extra_dims == 0  # 132 parameters, 201 vectors
        columns = slice(i * 132, (i + 1) * 132)
        np.testing.assert_array_equal(joint.background[:, columns], one.background)
        np.testing.assert_array_equal(joint.candidates[:, columns], one.candidates)
        np.testing.assert_array_equal(joint.mean[columns], step.gradient)
    assert joint.background.dtype == np.float64


def test_the_form_follows_from_the_sizes():
    gradients = PerExampleGradients(make("three layers", 1)[0])  # 132 parameters
    assert held_by_rows(gradients, 200, 5, 1)
    assert not held_by_rows(gradients, 200, 5, 2)
    assert not held_by_rows(gradients, 50, 5, 1)
    assert held_by_rows(gradients, 200, 5, 2, projection=16)
    # 206 vectors: inner products need 5 * 8 * 206^2 bytes, rows 8 * 206 * 264.
    assert held_by_rows(gradients.within(4 * 8 * 206 * 264 / 3 + 10), 200, 5, 2)
    with pytest.raises(InvalidArgument, match=r"205 examples with 264 parameters need 425 KiB, .* projection = 2048"):
        held_by_rows(gradients.within("500 KiB"), 200, 5, 2)
    with pytest.raises(InvalidArgument, match=r"need 1\.62 MiB"):
        held_by_rows(gradients.within("1 MiB"), 200, 5, 2, asked=False)


def test_projection_is_the_same_for_all_and_keeps_noise_as_it_was():
    model, examples = make("three layers", 30)
    gradients = PerExampleGradients(model)
    trace = published(gradients, examples, steps=2)
    got = collect(gradients, trace, examples, examples[range(4)], projection=20, seed=3)
    assert got.background.shape == (30, 40) and got.extra_dims == 0
    np.testing.assert_allclose(got.background[:4], got.candidates, rtol=1e-12)
    np.testing.assert_allclose(got.background.mean(0), got.mean, atol=1e-12)  # the mean was that of all of them
    noise = [Published(step.parameters, e) for step, e in zip(trace, np.eye(132)[:2], strict=True)]
    other = collect(gradients, noise, examples, examples, projection=20, seed=3)
    # A unit vector falls on one coordinate, of which 6 or 7 others fall on the same.
    assert np.count_nonzero(other.mean) == 2
    assert set(np.round(other.mean[other.mean != 0] ** -2)) <= {6.0, 7.0}
    assert not np.allclose(collect(gradients, trace, examples, examples, projection=20, seed=4).mean, got.mean)
    with pytest.raises(InvalidArgument, match="projection to 132 dimensions does not reduce 132"):
        collect(gradients, trace, examples, examples, projection=132)


def _digits(n):
    """Images of 28 x 28 with a few hundred pixels that vary."""
    inputs, targets = load_digits(return_X_y=True)
    small = torch.tensor(inputs[:n] / 16.0, dtype=torch.float32).view(n, 1, 8, 8)
    return Examples(nn.functional.interpolate(small, size=(28, 28)).flatten(1), torch.tensor(targets[:n]))


def test_projection_of_a_million_parameters_keeps_the_ranking(capsys):
    examples = _digits(240)
    candidates, background = examples[range(120)], examples[range(120, 240)]
    members = candidates[range(60)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 240), nn.ReLU(), nn.Linear(240, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(11):  # the last only for its gradient
        optimizer.step()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(members.inputs), members.targets).backward()
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy()
    mean = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).numpy()
    gradients = PerExampleGradients(model, dtype=torch.float32)
    assert gradients.num_params > 1_000_000
    exact = collect(gradients, Published(parameters, mean), background, candidates)
    projected = collect(gradients, Published(parameters, mean), background, candidates, projection=2048)
    assert exact.extra_dims > 1_000_000 and projected.extra_dims == 0
    scores, sizes = [], []
    for found in (exact, projected):
        mu = found.background.mean(0)
        centred, shift = found.candidates - mu, found.mean - mu
        scores.append(centred @ shift)
        sizes.append(np.linalg.norm(centred, axis=1) * np.linalg.norm(shift))
    rank = spearmanr(*scores).statistic
    scale = gradients.num_params / 2048  # the projection is scaled for noise, not for inner products
    error = np.sqrt(np.mean(((scale * scores[1] - scores[0]) / sizes[0]) ** 2) * 2048)
    with capsys.disabled():
        print(f"\n{gradients.num_params} parameters to 2048: Spearman correlation of the scores {rank:.4f}")
    assert rank > 0.97
    assert error < 3.0 * np.sqrt(2.0)  # all scores share a mean, so their errors are not independent


def test_bad_arguments_get_a_sentence():
    model, examples = make("linear", 12)
    gradients = PerExampleGradients(model)
    (step,) = published(gradients, examples, steps=1)
    with pytest.raises(InvalidArgument, match="There are no background examples: pass at least one of each"):
        collect(gradients, step, examples[[]], examples)
    with pytest.raises(InvalidArgument, match="There are no steps: "):
        collect(gradients, [], examples, examples)
    with pytest.raises(InvalidArgument, match=r"gradient of a step has shape \(3,\), not \(27,\)"):
        collect(gradients, Published(step.parameters, np.zeros(3)), examples, examples)
    with pytest.raises(InvalidArgument, match="gradient of a step is not finite"):
        collect(gradients, Published(step.parameters, np.full(27, np.nan)), examples, examples)
