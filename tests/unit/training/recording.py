"""Loops to record, and what their traces must hold.

`check_trace` puts the recorded parameters back into a model, in float64, and compares the recorded gradient with the
mean of the (clipped) per-example gradients there: so the parameters are those before the step, too.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gmip.trace import Trace
from gmip.training import record

QUIET = pytest.mark.filterwarnings(
    "ignore:Full backward hook is firing:UserWarning",  # torch, of any model whose inputs need no gradient, in Opacus
    "ignore:Secure RNG turned off:UserWarning",  # Opacus, of every engine made for experiments
)
N, n, LR = 20, 8, 0.5
Batch = tuple[Tensor, Tensor]


def make_model(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return nn.Sequential(OrderedDict(body=nn.Linear(5, 4), tanh=nn.Tanh(), head=nn.Linear(4, 3)))


def dataset(size: int = N) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(size, 5, generator=generator), torch.randint(0, 3, (size,), generator=generator)


def batches_of(*sizes: int) -> list[Batch]:
    """One after the other from the data, from the start again at its end."""
    x, y = dataset()
    found, start = [], 0
    for size in sizes:
        rows = torch.arange(start, start + size) % N
        found.append((x[rows], y[rows]))
        start += size
    return found


def loss_of(model: nn.Module, batch: Batch, reduction: str = "mean") -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction=reduction)


def plain_loop(model: nn.Module, optimizer: Any, batches: list[Batch], reduction: str = "mean") -> None:
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch, reduction).backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LR)


def recorded(path: Any, batches: list[Batch], *, model: Any = None, reduction: str = "mean", **options: Any) -> Any:
    """A plain loop with SGD, recorded; returns the model."""
    model = make_model() if model is None else model
    optimizer = sgd(model)
    with record(model, optimizer, path, **{"dataset_size": N, "batch_size": n, "sampling": "fixed", **options}):
        plain_loop(model, optimizer, batches, reduction)
    return model


def oracle(model: nn.Module, batch: Batch, *, names: list[str], clip_norm: float | None = None) -> Tensor:
    """Sum over the batch of the gradients of single examples, clipped as Opacus does; float64, shape (d,)."""
    parameters = [dict(model.named_parameters())[name] for name in names]
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    for x, y in zip(*batch, strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        g = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, parameters)])
        factor = 1.0 if clip_norm is None else min(1.0, clip_norm / (float(g.norm()) + 1e-6))
        total += factor * g
    return total


def check_trace(
    path: Any,
    batches: list[Batch],
    *,
    divisors: list[float] | None = None,
    clip_norm: float | None = None,
    tolerance: float = 2.0e-6,
    model: Any = None,
) -> Trace:
    """Every step of the trace is that of its batch; tolerance: some dozen roundings of float32 (6e-8), of the norm."""
    trace = Trace.open(path)
    assert trace.num_steps == len(trace) == len(batches)
    assert [info.batch_size for info in trace.infos] == [len(x) for x, _ in batches]
    divisors = [float(len(x)) for x, _ in batches] if divisors is None else divisors
    assert [info.divisor for info in trace.infos] == divisors
    at = (make_model() if model is None else copy.deepcopy(model)).double()
    names = [spec.name for spec in trace.header.parameters]
    for step, (x, y), divisor in zip(trace, batches, divisors, strict=True):
        for name, value in trace.named(step.parameters).items():
            at.get_parameter(name).data.copy_(torch.from_numpy(np.array(value, dtype=np.float64)))
        want = oracle(at, (x.double() if x.is_floating_point() else x, y), names=names, clip_norm=clip_norm) / divisor
        error = float((torch.from_numpy(np.array(step.gradient, dtype=np.float64)) - want).norm())
        assert error <= tolerance * float(want.norm())
    return trace


def check_same_trace(a: Any, b: Any, *, tolerance: float = 1.0e-5) -> None:
    """Two traces of the same batches: equal facts, and vectors that differ by roundings of float32."""
    one, other = Trace.open(a), Trace.open(b)
    assert one.header.parameters == other.header.parameters
    factors = np.array([[info.clip_factor or 1.0 for info in trace.infos] for trace in (one, other)])  # None: none
    np.testing.assert_allclose(factors[0], factors[1], rtol=tolerance)
    facts, theirs = ([replace(info, clip_factor=None, outside=None) for info in trace.infos] for trace in (one, other))
    assert facts == theirs
    assert one.complete == other.complete and one.runs() == other.runs()
    for x, y in zip(one, other, strict=True):
        np.testing.assert_allclose(x.parameters, y.parameters, rtol=0.0, atol=tolerance * np.abs(y.parameters).max())
        np.testing.assert_allclose(x.gradient, y.gradient, rtol=0.0, atol=tolerance * np.abs(y.gradient).max())
    first, second = one.final_arrays(), other.final_arrays()
    assert first is not None and second is not None and first.keys() == second.keys()
    for name, value in second.items():
        np.testing.assert_allclose(first[name], value, rtol=0.0, atol=tolerance)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# The plain loop
