"""Curvature and its inverse, where both are known: least squares, and a network's Hessian by torch's own way."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="attacks on models need the extra gmip[train]")

import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call

from gmip.attacks.released_attacks import Curvature, exact_solver, positive_solver, solve_iteratively
from gmip.tasks import Examples, cross_entropy

L2 = 0.1


def half_square(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 0.5 * (outputs[:, 0] - targets) ** 2


def least_squares(count: int = 30, dims: int = 6) -> tuple[nn.Linear, Examples, torch.Tensor]:
    """Model at the ridge optimum of all examples, the examples, and the inputs with a one for the bias."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, dims, generator=generator, dtype=torch.float64)
    y = x @ torch.randn(dims, generator=generator, dtype=torch.float64) + torch.randn(count, generator=generator)
    wide = torch.column_stack([x, torch.ones(count)])
    w = torch.linalg.solve(wide.T @ wide / count + L2 * torch.eye(dims + 1), wide.T @ y / count)
    model = nn.Linear(dims, 1).double()
    with torch.no_grad():
        model.weight.copy_(w[None, :-1])
        model.bias.copy_(w[-1:])
    return model, Examples(x, y), wide


def curvature(model: nn.Module, examples: Examples, loss=half_square, l2: float = L2) -> Curvature:
    names = tuple(name for name, _ in model.named_parameters())
    size = sum(p.numel() for p in model.parameters())
    return Curvature(model, loss, names, examples, torch.full((size,), l2, dtype=torch.float64))


def test_least_squares():
    model, data, wide = least_squares()
    torch.testing.assert_close(curvature(model, data).matrix(), wide.T @ wide / 30 + L2 * torch.eye(7).double())


def test_gauss_newton_is_the_hessian_of_a_linear_model_and_never_negative():
    model, data, wide = least_squares()
    every = torch.eye(7, dtype=torch.float64)
    torch.testing.assert_close(curvature(model, data).positive_products(every), wide.T @ wide / 30 + L2 * every)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    data = Examples(torch.randn(40, 4), torch.randint(0, 3, (40,)))
    mine = curvature(network, data, cross_entropy, l2=0.0)
    found = mine.positive_products(torch.eye(43, dtype=torch.float64))
    torch.testing.assert_close(found, found.T)
    torch.testing.assert_close(mine.positive_matrix(), found)
    assert torch.linalg.eigvalsh(found)[0] > -1e-12 and torch.linalg.eigvalsh(mine.matrix())[0] < -1e-3


def test_solvers_agree_and_negative_curvature_counts_as_none():
    some = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for matrix in (some @ some.T, some + some.T):
        torch.testing.assert_close(positive_solver(matrix, 0.1)(some), exact_solver(matrix, 0.1)(some))


def test_influence_of_a_record_is_exact_for_least_squares():
    """Training without record z moves the weights by (Hessian of the others, summed)^-1 g_z, and by no more."""
    model, data, wide = least_squares()
    others = data[range(1, 30)]
    # The penalty of all 30, on the mean of 29.
    solve = exact_solver(curvature(model, others, l2=L2 * 30 / 29).matrix(), 0.0)
    with torch.no_grad():
        w = torch.cat([model.weight[0], model.bias])
        g = (wide[0] @ w - data.targets[0]) * wide[0]
    rest, y = wide[1:], data.targets[1:]
    without = torch.linalg.solve(rest.T @ rest + 30 * L2 * torch.eye(7), rest.T @ y)
    torch.testing.assert_close(w + solve(g[None])[0] / 29, without)


def test_a_networks_hessian():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    data = Examples(torch.randn(1100, 4), torch.randint(0, 3, (1100,)))  # more than at a time
    mine = curvature(model, data, cross_entropy)
    wide = {name: p.detach().double() for name, p in model.named_parameters()}
    sizes = [p.numel() for p in wide.values()]

    def mean_loss(flat: torch.Tensor) -> torch.Tensor:
        parts = {n: part.view(p.shape) for (n, p), part in zip(wide.items(), flat.split(sizes), strict=True)}
        return cross_entropy(functional_call(model, parts, (data.inputs.double(),)), data.targets).mean()

    flat = torch.cat([p.reshape(-1) for p in wide.values()])
    expected = hessian(mean_loss, flat) + L2 * torch.eye(len(flat), dtype=torch.float64)
    torch.testing.assert_close(mine.matrix(), expected, rtol=1e-8, atol=1e-10)
    generator = torch.Generator().manual_seed(0)
    trace = float(mine.positive_products(torch.eye(len(flat), dtype=torch.float64)).trace())
    assert abs(mine.mean_eigenvalue(generator) - trace / len(flat)) < 0.05
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_conjugate_gradients_solve_what_the_inverse_solves():
    model, data, _ = least_squares()
    mine = curvature(model, data)
    vectors = torch.randn(5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    vectors[3] = 0.0
    found, left = solve_iteratively(mine.positive_products, vectors, 0.01, iterations=20, tolerance=1e-10)
    torch.testing.assert_close(found, exact_solver(mine.matrix(), 0.01)(vectors), rtol=1e-7, atol=1e-9)
    assert left < 1e-9 and not found[3].any()
    _, unsolved = solve_iteratively(mine.positive_products, vectors, 0.01, iterations=1, tolerance=1e-10)
    assert unsolved > 0.01


def test_negative_curvature_counts_as_none():
    matrix = torch.diag(torch.tensor([2.0, -1.0], dtype=torch.float64))
    vectors = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    found = exact_solver(matrix, 0.5)(vectors)
    torch.testing.assert_close(found, torch.tensor([[0.4, 2.0], [0.0, 2.0]], dtype=torch.float64))
    stopped, left = solve_iteratively(lambda v: v @ matrix, vectors, 0.5, iterations=5, tolerance=1e-9)
    assert torch.isfinite(stopped).all() and not stopped[1].any() and left >= 1.0
