"""The laws of the samplers: who is in a batch, who with whom, and whether steps know of each other.

Seeds are fixed. Each tolerance is a quantile of the statistic under the null hypothesis, at a level (ALPHA, divided
among the comparisons of a test) at which a correct program fails once in ten thousand seeds.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from gmip.training import FixedSize, Poisson, Sampler, Shuffled

ALPHA = 1.0e-4


def membership(sampler: Sampler) -> np.ndarray:
    """Who is in which batch: 0 or 1, shape (num_steps, dataset_size)."""
    rows = np.zeros((len(sampler), sampler.dataset_size))
    for step, batch in enumerate(sampler):
        rows[step, batch] = 1.0
    return rows


def assert_frequencies(counts: np.ndarray, trials: int, probability: float) -> None:
    """Every count is binomial; the tolerance is shared among them."""
    low, high = stats.binom.interval(1.0 - ALPHA / counts.size, trials, probability)
    assert low <= counts.min() and counts.max() <= high


def assert_steps_independent(rows: np.ndarray, probability: float) -> None:
    """That i is in a step and j in the next happens with probability p^2; pairs of steps that do not overlap."""
    together = rows[0::2].T @ rows[1::2]
    assert_frequencies(together, len(rows) // 2, probability**2)


# FixedSize

N, n, T = 12, 5, 20_000


@pytest.fixture(scope="module")
def fixed() -> np.ndarray:
    return membership(FixedSize(dataset_size=N, batch_size=n, num_steps=T, seed=1))


def test_fixed_size_has_every_example_equally_often(fixed):
    assert_frequencies(fixed.sum(axis=0), T, n / N)


def test_fixed_size_has_every_pair_equally_often(fixed):
    pairs = (fixed.T @ fixed)[np.triu_indices(N, 1)]
    assert_frequencies(pairs, T, n * (n - 1) / (N * (N - 1)))


def test_fixed_size_steps_are_independent(fixed):
    assert_steps_independent(fixed, n / N)


def test_fixed_size_has_every_subset_equally_often():
    seen = [tuple(sorted(batch)) for batch in FixedSize(dataset_size=6, batch_size=3, num_steps=T, seed=2)]
    subsets = list(itertools.combinations(range(6), 3))
    counts = [seen.count(subset) for subset in subsets]
    assert sum(counts) == T
    assert stats.chisquare(counts).pvalue > ALPHA


@pytest.mark.parametrize(("dataset_size", "batch_size"), [(300, 10), (10_001, 1_001)])
def test_fixed_size_in_large_data(dataset_size, batch_size):
    """NumPy draws small and large samples by two algorithms. Counts have covariance T p(1-p) (I - 11'/N) N/(N-1)."""
    steps = 1000
    rows = membership(FixedSize(dataset_size=dataset_size, batch_size=batch_size, num_steps=steps, seed=3))
    p = batch_size / dataset_size
    excess = rows.sum(axis=0) - steps * p
    statistic = np.sum(excess**2) / (steps * p * (1.0 - p)) * (dataset_size - 1) / dataset_size
    low, high = stats.chi2.interval(1.0 - ALPHA, dataset_size - 1)
    assert low <= statistic <= high


def test_seeds_give_independent_batches(fixed):
    other = membership(FixedSize(dataset_size=N, batch_size=n, num_steps=T, seed=1 + 2**32))
    assert_frequencies(fixed.T @ other, T, (n / N) ** 2)


# Poisson


@pytest.fixture(scope="module")
def poisson() -> np.ndarray:
    return membership(Poisson(dataset_size=N, batch_size=n, num_steps=T, seed=4))


def test_poisson_has_every_example_equally_often(poisson):
    assert_frequencies(poisson.sum(axis=0), T, n / N)


def test_poisson_has_examples_independently(poisson):
    """Pairs at p^2, where a fixed size has n(n-1)/(N(N-1)), and triples at p^3."""
    pairs = (poisson.T @ poisson)[np.triu_indices(N, 1)]
    assert_frequencies(pairs, T, (n / N) ** 2)
    triples = [poisson[:, list(ids)].all(axis=1).sum() for ids in itertools.combinations(range(N), 3)]
    assert_frequencies(np.array(triples), T, (n / N) ** 3)


def test_poisson_batch_size_is_binomial(poisson):
    sizes = poisson.sum(axis=1)
    p = n / N
    mean, variance = N * p, N * p * (1 - p)
    bound = stats.norm.isf(ALPHA / 2)
    assert abs(sizes.mean() - mean) <= bound * np.sqrt(variance / T)
    # The variance of a sample variance of T is (fourth central moment - variance^2)/T.
    fourth = variance * (1 + 3 * (N - 2) * p * (1 - p))
    assert abs(np.mean((sizes - mean) ** 2) - variance) <= bound * np.sqrt((fourth - variance**2) / T)
    counts = np.bincount(sizes.astype(int), minlength=N + 1)
    expected = T * stats.binom.pmf(np.arange(N + 1), N, p)
    assert stats.chisquare(counts[:11], expected[:11] * counts[:11].sum() / expected[:11].sum()).pvalue > ALPHA
    assert_frequencies(counts[:1], T, (1 - p) ** N)  # empty batches


def test_poisson_steps_are_independent(poisson):
    assert_steps_independent(poisson, n / N)


# Shuffled


@pytest.mark.filterwarnings("ignore:Privacy amplification by subsampling:gmip.errors.GmipWarning")  # tested elsewhere
def test_shuffled_epochs_have_every_order_equally_often():
    sampler = Shuffled(dataset_size=4, batch_size=2, num_steps=T, seed=5)
    orders = [tuple(np.concatenate([sampler[t], sampler[t + 1]])) for t in range(0, T, 2)]
    counts = [orders.count(order) for order in itertools.permutations(range(4))]
    assert sum(counts) == T // 2
    assert stats.chisquare(counts).pvalue > ALPHA
    # Nor does an order tell about the next one.
    following = list(zip(orders[0::2], orders[1::2], strict=True))
    first = [sum(a[0] == i and b[0] == j for a, b in following) for i in range(4) for j in range(4)]
    assert stats.chisquare(first).pvalue > ALPHA
