"""The noise of noisy SGD: independent Gaussians of standard deviation tau on every entry of the mean, once per step.

Seeds are fixed. Each tolerance is a quantile of the statistic under the null hypothesis, at a level (ALPHA, divided
among the comparisons of a test) at which a correct program fails once in ten thousand seeds.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from scipy import stats
from torch import nn

from gmip.accounting.convert import noise_std_from_multiplier
from gmip.training import NoisyStepper, noise_generator
from gmip.training.steppers import GRAD_SAMPLE_MODES

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # torch, of any model whose inputs need no gradient, in Opacus
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),
]

ALPHA = 1.0e-4
CLIP_NORM, BATCH = 0.5, 8


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))  # d = 30 + 5 + 15 + 3


def batch(size: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(size, 6, generator=generator), torch.randint(0, 3, (size,), generator=generator)


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def gradients_of_steps(num_steps: int, *, noise_std: float, size: int = BATCH, divisor: int = BATCH, **options):
    """The gradients that the optimizer is handed in steps on one and the same batch and model, shape (num_steps, d)."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # the model stays where it is
    handed: list[np.ndarray] = []
    optimizer.register_step_pre_hook(lambda *_: handed.append(flat_gradient(model)))
    generator = noise_generator(options.pop("seed", 0))
    stepper = NoisyStepper(
        model, optimizer, loss, clip_norm=CLIP_NORM, noise_std=noise_std, generator=generator, **options
    )
    for _ in range(num_steps):
        stepper.step(*batch(size), divisor=divisor)
    return np.array(handed)


def flat_gradient(model: nn.Module) -> np.ndarray:
    grads = [p.grad for p in model.parameters()]
    return torch.cat([g.reshape(-1) for g in grads if g is not None]).double().numpy()


def noise_of_steps(num_steps: int, *, noise_std: float, **options):
    """Their noise in units of noise_std: the noisy gradient minus the one without noise."""
    clean = gradients_of_steps(1, noise_std=0.0, **{k: v for k, v in options.items() if k != "seed"})
    return (gradients_of_steps(num_steps, noise_std=noise_std, **options) - clean) / noise_std


def assert_unit_variance(noise: np.ndarray, *, scale: float = 1.0) -> None:
    """All entries pooled: their sum of squares is chi-squared if the standard deviation is `scale`."""
    low, high = stats.chi2.interval(1.0 - ALPHA, noise.size)
    assert low <= np.sum((noise / scale) ** 2) <= high


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    """1500 steps in the default mode, shape (1500, 53)."""
    return noise_of_steps(1500, noise_std=0.3)


def test_mean_is_zero(noise):
    T, d = noise.shape
    assert np.abs(noise.mean(axis=0)).max() <= stats.norm.isf(ALPHA / 2 / d) / np.sqrt(T)


def test_every_entry_has_variance_tau_squared(noise):
    T, d = noise.shape
    low, high = stats.chi2.interval(1.0 - ALPHA / d, T)
    squares = np.sum(noise**2, axis=0)
    assert low <= squares.min() and squares.max() <= high


def test_entries_are_independent_of_each_other(noise):
    """All entries of all parameters: no row of a weight shares its noise with another, no weight with a bias."""
    T, d = noise.shape
    above = np.triu_indices(d, 1)
    z = (noise.T @ noise)[above] / np.sqrt(T)  # each is N(0, 1) if its two entries are independent, as T grows
    assert np.abs(z).max() <= stats.norm.isf(ALPHA / 2 / z.size)
    low, high = stats.chi2.interval(1.0 - ALPHA, z.size)  # and they are uncorrelated with each other
    assert low <= np.sum(z**2) <= high


def test_steps_are_independent_of_each_other(noise):
    T, _ = noise.shape
    for lag in (1, 2):
        z = noise[:-lag].T @ noise[lag:] / np.sqrt(T - lag)  # every entry with every entry of the later step
        assert np.abs(z).max() <= stats.norm.isf(ALPHA / 2 / z.size)
        low, high = stats.chi2.interval(1.0 - ALPHA, z.size)
        assert low <= np.sum(z**2) <= high


def test_marginals_are_gaussian(noise):
    assert stats.kstest(noise.ravel(), "norm").pvalue > ALPHA
    for entry in noise.T:
        assert stats.kstest(entry, "norm").pvalue > ALPHA / noise.shape[1]
    # Kolmogorov-Smirnov is weak in the tails: the fourth moment of n Gaussians has mean 3 and variance 96/n.
    assert abs(np.mean(noise**4) - 3.0) <= stats.norm.isf(ALPHA / 2) * np.sqrt(96.0 / noise.size)


@pytest.mark.parametrize("mode", GRAD_SAMPLE_MODES)
@pytest.mark.parametrize("part", [None, 3])
def test_noise_is_added_once_per_step(mode, part):
    """A batch of 8 in parts of 3: noise on each part would give sqrt(3) tau."""
    noise = noise_of_steps(60, noise_std=0.2, grad_sample_mode=mode, max_physical_batch_size=part)
    assert noise.shape == (60, 53)
    assert_unit_variance(noise)


@pytest.mark.parametrize("mode", GRAD_SAMPLE_MODES)
def test_empty_batch_is_noise_alone(mode):
    noise = gradients_of_steps(100, noise_std=0.2, size=0, grad_sample_mode=mode)
    assert_unit_variance(noise, scale=0.2)
    assert stats.kstest(noise.ravel() / 0.2, "norm").pvalue > ALPHA


def test_noise_does_not_depend_on_the_batch():
    """Poisson batches: tau is on the sum over the nominal size, whether 2 or 11 examples are in."""
    for size in (2, 11):
        assert_unit_variance(noise_of_steps(60, noise_std=0.1, size=size, divisor=BATCH))


@pytest.mark.parametrize("value", [0.3, 1.7])
@pytest.mark.parametrize(
    ("convert", "std"),
    [
        (lambda tau: tau, lambda tau: tau),  # noise_std: on the mean
        # Opacus' noise_multiplier s: the noise on the sum has standard deviation s C, so s C/n on the mean
        (
            lambda s: noise_std_from_multiplier(s, clip_norm=CLIP_NORM, batch_size=BATCH),
            lambda s: s * CLIP_NORM / BATCH,
        ),
    ],
    ids=["noise_std", "noise_multiplier"],
)
def test_scale_in_each_convention(convert, std, value):
    clean = gradients_of_steps(1, noise_std=0.0)
    noise = gradients_of_steps(100, noise_std=convert(value)) - clean
    assert_unit_variance(noise, scale=std(value))


def test_same_noise_as_stock_opacus():
    """Opacus' own optimizer with the same multiplier: the ratio of the two variances is F-distributed."""
    multiplier, num_steps = 1.3, 150
    model = GradSampleModule(make_model(), loss_reduction="sum")
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    stock = DPOptimizer(
        inner,
        noise_multiplier=multiplier,
        max_grad_norm=CLIP_NORM,
        expected_batch_size=BATCH,
        generator=torch.Generator().manual_seed(5),
    )
    handed: list[np.ndarray] = []
    inner.register_step_pre_hook(lambda *_: handed.append(flat_gradient(model)))
    inputs, targets = batch()
    for _ in range(num_steps):
        stock.zero_grad()
        loss(model(inputs), targets).sum().backward()
        stock.step()
    theirs = np.array(handed)
    theirs -= theirs.mean(axis=0)

    tau = noise_std_from_multiplier(multiplier, clip_norm=CLIP_NORM, batch_size=BATCH)
    ours = gradients_of_steps(num_steps, noise_std=tau)
    ours -= ours.mean(axis=0)
    freedom = (num_steps - 1) * ours.shape[1]
    low, high = stats.f.interval(1.0 - ALPHA, freedom, freedom)
    assert low <= np.sum(ours**2) / np.sum(theirs**2) <= high


def test_noise_of_other_seeds_is_independent():
    a, b = (noise_of_steps(100, noise_std=0.3, seed=seed) for seed in (7, 7 + 2**40))
    z = a.T @ b / np.sqrt(len(a))
    low, high = stats.chi2.interval(1.0 - ALPHA, z.size)
    assert low <= np.sum(z**2) <= high


def test_noise_is_the_same_by_seed_in_all_modes():
    noises = [noise_of_steps(3, noise_std=10.0, grad_sample_mode=mode) for mode in GRAD_SAMPLE_MODES]
    for other in noises[1:]:
        # The gradient without noise is of order 0.1 and differs between modes by its float32 rounding.
        np.testing.assert_allclose(other, noises[0], atol=1e-6)


def test_the_tests_see_shared_noise(noise):
    """The noise of one row copied to another is far outside the tolerance."""
    shared = noise.copy()
    shared[:, 6:12] = shared[:, 0:6]
    with pytest.raises(AssertionError):
        test_entries_are_independent_of_each_other(shared)
