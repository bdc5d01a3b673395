"""Problems, contestants that train on them, and the race between them: what benchmarks/training.py compares."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise

import torch
from _harness import Row
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gmip.tasks import cross_entropy
from gmip.training import NoisyStepper, noise_generator

Steps = Callable[[int], None]  # takes so many optimizer steps

CLIP_NORM, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 1.0, 0.01
MODES = ("hooks", "functorch", "ew", "ghost")
_BATCHES = 8


# -- what is trained --------------------------------------------------------------------------------------------------


def mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for inner, outer in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inner, outer, 3, stride=2, padding=1), nn.GroupNorm(8, outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


@dataclass(frozen=True)
class Problem:
    """A model with random data of its shape; `block` steps are timed at a time."""

    name: str
    make_model: Callable[[], nn.Module]
    shape: tuple[int, ...]
    batch_size: int
    block: int

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make_model()

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(1)
        return [
            (
                torch.randn(self.batch_size, *self.shape, generator=generator),
                torch.randint(0, 10, (self.batch_size,), generator=generator),
            )
            for _ in range(_BATCHES)
        ]


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("CNN 3x32x32", cnn, (3, 32, 32), 64, 4),
        Problem("MLP 784-256-10", partial(mlp, 784, 256, 10), (784,), 128, 20),
        Problem("linear 64-10", partial(mlp, 64, 10), (64,), 60, 200),
    )
}
LARGE = (
    Problem("MLP 784-1024-256-10", partial(mlp, 784, 1024, 256, 10), (784,), 128, 4),
    Problem("MLP 784-4096-4096-1024-10", partial(mlp, 784, 4096, 4096, 1024, 10), (784,), 128, 1),
)


def count_params(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)


# -- measuring --------------------------------------------------------------------------------------------------------


@dataclass
class Lap:
    wall: float
    cpu: float


def race(contestants: dict[str, Steps], block: int, seconds: float, least: int = 5) -> dict[str, list[Lap]]:
    """Blocks of `block` steps in turn, the order reversed every other round, for about `seconds` after a warm-up."""
    laps: dict[str, list[Lap]] = {name: [] for name in contestants}
    for steps in contestants.values():
        steps(max(block // 2, 2))
    gc.collect()
    end = time.perf_counter() + seconds
    names = list(contestants)
    while len(laps[names[-1]]) < least or time.perf_counter() < end:
        for name in names:
            wall, cpu = time.perf_counter(), time.process_time()
            contestants[name](block)
            laps[name].append(Lap(time.perf_counter() - wall, time.process_time() - cpu))
        names.reverse()
    return laps


def compare(laps: dict[str, list[Lap]], ours: str, theirs: str, block: int) -> Row:
    """Ratios of time, ours to theirs.

    ratio : median over rounds, with its quartiles; waits that hit few rounds (a sync to disk) do not show in it
    ratio_least : fastest block to fastest block
    ratio_total : all blocks together: every wait counts, and whatever else the machine did
    ratio_cpu : median, of the processor time of all threads of this process
    """
    pairs = list(zip(laps[ours], laps[theirs], strict=True))
    walls = sorted(a.wall / b.wall for a, b in pairs)
    low, middle, high = statistics.quantiles(walls, n=4)
    return {
        "rounds": len(pairs),
        "block": block,
        "step_us": statistics.median(b.wall for _, b in pairs) / block * 1e6,
        "ratio": middle,
        "ratio_low": low,
        "ratio_high": high,
        "ratio_least": min(a.wall for a, _ in pairs) / min(b.wall for _, b in pairs),
        "ratio_total": sum(a.wall for a, _ in pairs) / sum(b.wall for _, b in pairs),
        "ratio_cpu": statistics.median(a.cpu / b.cpu for a, b in pairs),
    }


# -- contestants ------------------------------------------------------------------------------------------------------


def plain_steps(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Sequence[Sequence[Tensor]]) -> Steps:
    """The textbook loop."""
    source = cycle(batches)

    def steps(number: int) -> None:
        for _ in range(number):
            inputs, targets = next(source)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

    return steps


def opacus_steps(model: nn.Module, batches: Sequence[Sequence[Tensor]], mode: str, *, noise_multiplier: float) -> Steps:
    """Stock Opacus: what make_private returns, in the loop of its tutorial."""
    size, data = len(batches[0][0]), TensorDataset(*(torch.cat(parts) for parts in zip(*batches, strict=True)))
    found = PrivacyEngine().make_private(
        module=model,
        optimizer=sgd(model),
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(data, batch_size=size),
        noise_multiplier=noise_multiplier,
        max_grad_norm=CLIP_NORM,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    private, optimizer = found[:2]
    criterion = found[2] if mode == "ghost" else nn.CrossEntropyLoss()
    source = cycle(batches)

    def steps(number: int) -> None:
        for _ in range(number):
            inputs, targets = next(source)
            optimizer.zero_grad()
            criterion(private(inputs), targets).backward()
            optimizer.step()

    return steps


def gmip_steps(model: nn.Module, batches: Sequence[Sequence[Tensor]], mode: str, *, noise_multiplier: float) -> Steps:
    size = len(batches[0][0])
    stepper = NoisyStepper(
        model,
        sgd(model),
        cross_entropy,
        clip_norm=CLIP_NORM,
        noise_std=noise_multiplier * CLIP_NORM / size,
        generator=noise_generator(0),
        grad_sample_mode=mode,
    )
    source = cycle(batches)

    def steps(number: int) -> None:
        for _ in range(number):
            stepper.step(*next(source), divisor=size)

    return steps


NOISY: dict[str, Callable[..., Steps]] = {"gmip": gmip_steps, "opacus": opacus_steps}
