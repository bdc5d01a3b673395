from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from gmip.attacks.step_vectors import Projection
from gmip.errors import InvalidArgument


def matrix(project):
    """R itself, from what it does to the unit vectors, shape (dims, size)."""
    return project(torch.eye(project.size, dtype=torch.float64)).T.numpy()


@pytest.mark.parametrize(("size", "dims"), [(300, 32), (64, 32), (33, 32), (7, 1), (70_005, 7_000)])
def test_one_sign_in_every_column_and_equally_full_rows(size, dims):
    project = Projection(size, dims, seed=2)
    probe = project(torch.ones(size, dtype=torch.float64)).numpy()
    norms = project.row_norms
    assert norms.shape == probe.shape == (dims,)
    assert np.all(np.abs(probe) <= norms**2) and norms.max() ** 2 - norms.min() ** 2 <= 1.0 + 1e-12
    assert round(float((norms**2).sum())) == size
    if size <= 300:
        r = matrix(project)
        assert (np.abs(r).sum(0) == 1.0).all() and set(np.unique(r)) <= {-1.0, 0.0, 1.0}
        np.testing.assert_allclose(r @ r.T, np.diag(norms**2), atol=1e-12)


def test_linear_and_the_same_for_one_vector_and_many():
    rng = np.random.default_rng(0)
    project = Projection(1000, 64, seed=1)
    x = torch.from_numpy(rng.normal(size=(5, 1000)))
    r = torch.from_numpy(matrix(project))
    torch.testing.assert_close(project(x), x @ r.T)
    torch.testing.assert_close(project(x[2]), project(x)[2])
    torch.testing.assert_close(project(x.mean(0)), project(x).mean(0))
    assert project(x.float()).dtype == torch.float32


def test_same_on_every_machine():
    for seed, digest in [(0, "8f9ac4f778e18ccb"), (2**70, "2f3d86c695414208")]:
        bits = matrix(Projection(77, 10, seed=seed)).astype(np.int8).tobytes()
        assert hashlib.sha256(bits).hexdigest()[:16] == digest
    assert not np.array_equal(matrix(Projection(77, 10, seed=0)), matrix(Projection(77, 10, seed=1)))


def test_inner_products_have_the_stated_mean_and_variance():
    rng = np.random.default_rng(3)
    size, dims, games = 120, 16, 4000
    # Unequal entries, so that blocks matter; correlated, so that <x, y> is not zero.
    x = rng.normal(size=size) * np.geomspace(1.0, 0.05, size)
    y = 0.5 * x + rng.normal(size=size) * np.geomspace(1.0, 0.1, size)
    both = torch.from_numpy(np.stack([x, y]))
    got = np.empty(games)
    for seed in range(games):
        a, b = Projection(size, dims, seed=seed)(both)
        got[seed] = float(a @ b)
    within = sum(
        (x[i : i + dims] @ x[i : i + dims]) * (y[i : i + dims] @ y[i : i + dims])
        + (x[i : i + dims] @ y[i : i + dims]) ** 2
        for i in range(0, size, dims)
    )
    variance = ((x @ x) * (y @ y) + (x @ y) ** 2 - within) / dims
    assert abs(got.mean() - x @ y) < 4.0 * np.sqrt(variance / games)
    # The error of a sample variance, from the fourth moment of the sample itself.
    error = np.sqrt((((got - x @ y) ** 2).var()) / games)
    assert abs(((got - x @ y) ** 2).mean() - variance) < 4.0 * error
    assert error < 0.05 * variance


def test_noise_stays_independent_with_known_scale():
    project = Projection(1000, 96, seed=4)
    noise = torch.from_numpy(np.random.default_rng(5).normal(size=(4000, 1000)))
    scaled = project(noise).numpy() / project.row_norms
    covariance = scaled.T @ scaled / len(noise)
    # Marchenko-Pastur: eigenvalues of the sample covariance of white noise lie in (1 -+ sqrt(96/4000))^2.
    eigenvalues = np.linalg.eigvalsh(covariance)
    edge = np.sqrt(96 / 4000)
    assert (1 - edge) ** 2 - 0.05 < eigenvalues[0] and eigenvalues[-1] < (1 + edge) ** 2 + 0.05


def test_bad_arguments_get_a_sentence():
    with pytest.raises(InvalidArgument, match="projection to 10 dimensions does not reduce 10"):
        Projection(10, 10)
    with pytest.raises(InvalidArgument, match="seed = -1 must be a whole number"):
        Projection(10, 2, seed=-1)
    with pytest.raises(InvalidArgument, match=r"vectors of shape \(3, 4\) and torch.float32 cannot be projected"):
        Projection(10, 2)(torch.zeros(3, 4))
    with pytest.raises(InvalidArgument, match="floating-point"):
        Projection(10, 2)(torch.zeros(10, dtype=torch.long))
