"""Tests of the record of a run, exact where not said otherwise: is what is left of its gradients normal noise of the
declared size, and were its batches drawn as declared?

A residual is what is left of a recorded gradient when the members' mean gradient is taken away. NumPy and SciPy only.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from gmip.vocabulary import SamplingFault

Array = NDArray[np.float64]
_TURNS = 200


def normal_p_value(z: float) -> float:
    """Two-sided: P(|Z| >= |z|)."""
    return float(2.0 * special.ndtr(-abs(z)))


def bernstein_p_value(deviation: float, variance: float, largest: float) -> float:
    """Two-sided, at most: a sum of independent terms of mean 0, none beyond `largest`, and of normal noise, which have
    that variance together. Bernstein's inequality; terms drawn without replacement obey it, too (Hoeffding 1963)."""
    size = abs(deviation)
    if variance <= 0.0:
        return 1.0 if size == 0.0 else 0.0
    return min(1.0, 2.0 * math.exp(-0.5 * size**2 / (variance + largest * size / 3.0)))


def size_p_value(squares: Array | float, dof: Array | float) -> Array:
    """Two-sided, for a sum of `dof` squares of standard normal numbers: twice the smaller tail. Any shape."""
    low, high = special.chdtr(dof, squares), special.chdtrc(dof, squares)
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(low, high)))


def shape_p_value(entries: Array) -> float:
    """Tests that entries of any shape are normal with mean 0, by Kolmogorov's largest distance. Their size plays no
    part: it is estimated, which makes the p-value larger."""
    size = math.sqrt(float(np.mean(np.square(entries))))
    if size == 0.0:
        return 1.0
    chances = np.sort(special.ndtr(np.ravel(entries) / size))
    places = np.arange(chances.size + 1) / chances.size
    distance = max(float(np.max(places[1:] - chances)), float(np.max(chances - places[:-1])))
    return float(special.kolmogorov(math.sqrt(chances.size) * distance))


def cut_off_p_value(entries: Array) -> float:
    """Tests that the largest of normal entries of any shape, in units of their size, is not too small, as it is where
    they were cut off or drawn again beyond a limit: who sees one from beyond it knows what moved it there."""
    size = math.sqrt(float(np.mean(np.square(entries))))
    if size == 0.0:
        return 1.0
    return math.exp(entries.size * math.log1p(-2.0 * float(special.ndtr(-np.abs(entries).max() / size))))


_EQUAL = 2.0e-6  # of the size of the noise: entries are equal; some roundings of float32
EQUAL_ENTRIES = 100_000  # of which repetitions are counted


def equal_entries(entries: Array) -> tuple[int, float, float]:
    """(number found, most that are expected, p-value) of entries of normal noise, of any shape, that are equal but for
    sign and rounding.

    Noise on a grid, as float16 makes it, cut off, or taken from a store that is used again, in whatever order, has
    many. The number of close neighbours among sorted independent entries is nearly Poisson, at most that of close pairs
    in the mean; a gap of the absolute value has the density 1/sqrt(pi) at 0.
    """
    flat = np.ravel(entries)
    flat = np.sort(np.abs(flat[:: -(-flat.size // EQUAL_ENTRIES)]))
    size = math.sqrt(float(np.mean(np.square(flat))))
    expected = flat.size**2 * _EQUAL / math.sqrt(math.pi)
    found = int(np.count_nonzero(np.diff(flat) < _EQUAL * size))
    return found, expected, float(special.gammainc(found, expected)) if found else 1.0


def cosine_p_value(cosine: Array | float, dimension: int) -> Array:
    """Two-sided, for the cosine between two independent normal vectors of that dimension. Any shape.

    (1 + cosine)/2 is Beta((d-1)/2, (d-1)/2).
    """
    if dimension < 2:
        return np.ones_like(np.asarray(cosine, dtype=np.float64))
    half = 0.5 * (dimension - 1)
    tail = special.betainc(half, half, 0.5 * (1.0 - np.minimum(np.abs(cosine), 1.0)))
    return np.asarray(np.minimum(1.0, 2.0 * tail))


def shared_noise(matrix: Array) -> tuple[float, float]:
    """(p-value, strength) of noise that rows of a matrix share; entries standard normal if they share none.

    The sum over the rows is normal with a variance of their number; its squares add up to chi-squared. Strength: the
    mean correlation between rows, 1 where all are the same, 0 where they are independent. One-sided: shared noise adds.
    """
    rows, columns = matrix.shape
    if rows < 2:
        return 1.0, 0.0
    squares = float(np.sum(matrix.sum(axis=0) ** 2)) / rows
    return float(special.chdtrc(columns, squares)), (squares / columns - 1.0) / (rows - 1)


def cancelled_noise(matrix: Array) -> float:
    """P-value of noise that cancels when the rows of a matrix are summed, as centring makes it; entries standard normal
    if it does not. The squares of that sum are chi-squared, and too small."""
    rows, columns = matrix.shape
    return float(special.chdtr(columns, float(np.sum(matrix.sum(axis=0) ** 2)) / rows))


def dependent_noise(gram: Array, samples: int) -> tuple[float, float]:
    """(p-value, least noise) of columns that depend linearly on each other; `gram` : X^T X of independent normal
    entries of one size, of so many samples, at least as many as columns. Least noise: of any combination of the
    columns, 1 on average.

    Mauchy's statistic log |G| - p log(tr G/p), which is too small then. Its cumulants are known exactly (a determinant
    of Wishart matrices is a product of chi-squared numbers); Lugannani and Rice's formula, as below. One-sided.
    """
    p = len(gram)
    mean = float(np.trace(gram)) / p
    if p < 2 or samples < p or mean <= 0.0:
        return 1.0, 1.0
    spectrum = np.linalg.eigvalsh(gram) / mean
    least = math.sqrt(max(float(spectrum[0]), 0.0))
    found = float(np.sum(np.log(np.maximum(spectrum, 1.0e-16))))
    halves, whole = 0.5 * (samples - np.arange(p)), 0.5 * samples * p

    def slope(t: float) -> float:
        return float(np.sum(special.digamma(halves + t))) + p * (math.log(p) - float(special.digamma(whole + p * t)))

    low, high = -float(halves[-1]), 0.0  # K' rises from -infinity to the mean
    if found >= slope(high):
        return 1.0, least
    t = _saddle(slope, found, low, high)
    value = float(np.sum(special.gammaln(halves + t) - special.gammaln(halves))) + p * t * math.log(p)
    value -= float(special.gammaln(whole + p * t) - special.gammaln(whole))
    root = -math.sqrt(max(2.0 * (t * found - value), 0.0))
    bend = float(np.sum(special.polygamma(1, halves + t)) - p**2 * special.polygamma(1, whole + p * t))
    u = t * math.sqrt(max(bend, 0.0))
    if min(-u, -root) < 1.0e-2:  # next to the mean, where the formula is 0/0
        return 0.5, least
    return _tail(-root, -u), least


def _saddle(slope: Callable[[float], float], value: float, low: float, high: float) -> float:
    """Where the slope of a cumulant generating function, which rises, reaches the value."""
    for _ in range(_TURNS):
        t = 0.5 * (low + high)
        if t in (low, high):
            break
        low, high = (t, high) if slope(t) < value else (low, t)
    return t


def _tail(root: float, u: float) -> float:
    """Lugannani and Rice (1980): the upper tail; that of -root and -u is the lower one."""
    tail = special.ndtr(-root) + math.exp(-0.5 * root * root) / math.sqrt(2.0 * math.pi) * (1.0 / u - 1.0 / root)
    return float(min(max(tail, 0.0), 1.0))


def quadratic_form_p_value(value: float, weights: Array) -> float:
    """P(sum_j weights_j Z_j^2 >= value) for independent standard normal Z, weights >= 0, shape (k,).

    Lugannani and Rice (1980) with K(t) = -sum_j log(1 - 2 t w_j)/2: relative error of a few per cent in the tail.
    """
    w = np.asarray(weights, dtype=np.float64)
    w = w[w > 1.0e-12 * w.max(initial=0.0)]
    mean, spread = float(w.sum()), math.sqrt(2.0 * float(np.sum(w * w)))
    if w.size == 0 or value <= 0.0:
        return 1.0
    if (w.size < 3 and np.ptp(w) == 0.0) or abs(value - mean) < 1.0e-3 * spread:
        # One weight is chi-squared; at the mean, where the formula is 0/0, the two-moment match is accurate enough.
        dof = mean * mean / float(np.sum(w * w))
        return float(special.chdtrc(dof, value * dof / mean))
    low, high = -0.5 * w.size / value - 1.0 / float(w.max()), 0.5 / float(w.max())
    t = _saddle(lambda t: float(np.sum(w / (1.0 - 2.0 * t * w))), value, low, high)  # K' rises from 0 to infinity
    shrunk = 1.0 - 2.0 * t * w
    root = math.copysign(math.sqrt(max(2.0 * (t * value + 0.5 * float(np.sum(np.log(shrunk)))), 0.0)), t)
    u = t * math.sqrt(2.0 * float(np.sum((w / shrunk) ** 2)))
    return _tail(root, u)


# -- tests of who was in which batch ----------------------------------------------------------------------------------


Ids = NDArray[np.int64]
_TESTS = (
    7  # in which chance plays a part: of sizes, overlaps, neighbours, records seen, how often, who with, always who
)
MOST_OVERLAPS = 4.0e6  # of batches, that are counted
_SIZES = 7  # of batches, of which the skewness of overlaps is computed


def repeated_within(batches: Sequence[Ids]) -> int:
    """How many entries of a batch are there for the second time, over all batches."""
    return sum(ids.size for ids in batches) - _coded(batches).size


def _coded(batches: Sequence[Ids]) -> Ids:
    """A number for each record of each batch, none twice."""
    if not batches:
        return np.zeros(0, dtype=np.int64)
    _, places = np.unique(np.concatenate(batches), return_inverse=True)
    codes = np.repeat(np.arange(len(batches)), [ids.size for ids in batches]) * (places.size + 1) + places
    codes.sort()  # a hundred times as fast as np.unique, whose hashes of such numbers collide
    new: NDArray[np.bool_] = np.append(True, codes[1:] != codes[:-1])
    return np.asarray(codes[new[: codes.size]], dtype=np.int64)


def overlap_p_value(pairs: Sequence[tuple[Ids, Ids]], dataset_size: int) -> tuple[float, float, float]:
    """(two-sided p-value, overlap found, overlap expected) of pairs of batches, each a uniform subset of its size.

    The overlap of two such subsets is hypergeometric whatever one of them is, so overlaps of successive batches are
    independent. Exact: the laws are convolved.
    """
    kinds = Counter((first.size, second.size) for first, second in pairs)
    apart = _coded([first for first, _ in pairs]).size + _coded([second for _, second in pairs]).size
    found = apart - _coded([np.concatenate(pair) for pair in pairs]).size
    expected = sum(count * a * b / dataset_size for (a, b), count in kinds.items())
    length = 1 + sum(count * min(kind) for kind, count in kinds.items())
    law = np.ones(length // 2 + 1, dtype=np.complex128)
    for (a, b), count in kinds.items():
        law *= np.fft.rfft(_hypergeometric(dataset_size, a, b), length) ** count
    chances = np.maximum(np.fft.irfft(law, length), 0.0) if length > 1 else np.ones(1)
    tail = min(float(chances[: found + 1].sum()), float(chances[found:].sum()))
    return min(1.0, 2.0 * tail), float(found), float(expected)


def neighbours_p_value(groups: Sequence[Sequence[Ids]]) -> tuple[float, int, float]:
    """(two-sided p-value, pairs found, pairs expected) of neighbours in the order of the ids that a batch has together.

    `groups` : batches with nobody in common, such as an epoch; one group knows nothing of another. Whoever draws
    without looking at ids shuffles the labels of records (which batch, or none): mean and variance are exact, the
    p-value is that of a normal or, if larger, of a Poisson number. It is 1 where the variance is below 4.
    """
    everyone = np.unique(np.concatenate([ids for group in groups for ids in group]))
    total = float(everyone.size)
    surprise, variance, pairs, expected = 0.0, 0.0, 0, 0.0
    for group in groups:
        places = np.searchsorted(everyone, np.concatenate(group))
        order = np.argsort(places)
        labels = np.repeat(np.arange(len(group)), [ids.size for ids in group])[order]
        together = int(np.count_nonzero((np.diff(places[order]) == 1) & (np.diff(labels) == 0)))
        sizes = np.array([ids.size for ids in group], dtype=np.float64)
        mean = float(np.sum(sizes * (sizes - 1.0))) / total
        if total > 2.0:
            # Pairs of neighbouring pairs that share a record, and that do not.
            triples = float(np.sum(sizes * (sizes - 1.0) * (sizes - 2.0))) / (total * (total - 1.0))
            square = float(np.sum(sizes * (sizes - 1.0)))
            fours = square**2 - float(np.sum(4.0 * sizes**3 - 10.0 * sizes**2 + 6.0 * sizes))
            fours /= total * (total - 1.0)
            variance += mean + 2.0 * triples + fours - mean**2
        surprise += together - mean
        pairs, expected = pairs + together, expected + mean
    if variance < 4.0:
        return 1.0, pairs, expected
    p = normal_p_value(surprise / math.sqrt(variance))
    return max(p, float(special.pdtrc(pairs - 1, expected))) if surprise > 0.0 else p, pairs, expected


def together_p_value(
    groups: Sequence[Sequence[Ids]], dataset_size: int, most: float = MOST_OVERLAPS
) -> tuple[float, int, float]:
    """(p-value, pairs found, pairs expected) of records that are together in batches of two groups.

    `groups` : as in `neighbours_p_value`; the first ones, if they have more than `most` overlaps. Whoever draws each
    group anew permutes the records. Who is with whom is a matrix for each group; with its linear part (who is drawn at
    all) taken away, the cosine of two of them has mean 0 and variance 2/(N(N - 3)), and cosines of different pairs of
    groups are uncorrelated: exact, as the matrices lie in an irreducible representation of the permutations. Their sum
    is taken as a gamma number of the right skewness.
    """
    counted = np.cumsum([[len(group), sum(ids.size for ids in group)] for group in groups], axis=0)
    work = np.minimum(counted[:, 0] ** 2.0, counted[:, 1] * np.arange(1.0, len(groups) + 1.0))
    groups, total = groups[: max(int(np.count_nonzero(work <= most)), 3)], float(dataset_size)
    batches = [ids for group in groups for ids in group]
    sizes = np.array([ids.size for ids in batches], dtype=np.float64)
    _, places = np.unique(np.concatenate(batches), return_inverse=True)
    drawn = _marks(np.repeat(np.arange(sizes.size), sizes.astype(np.int64)), places, (sizes.size, dataset_size))
    of_group = _marks(np.repeat(np.arange(len(groups)), [len(group) for group in groups]), np.arange(sizes.size))
    shared = (drawn @ drawn.T).tocoo()
    pairs, inner = (
        (of_group @ sparse.coo_matrix((part, (shared.row, shared.col)), shared.shape) @ of_group.T).toarray()
        for part in _together(shared.data, sizes[shared.row], sizes[shared.col], total)
    )
    sums = of_group @ (sizes * (sizes - 1.0))
    apart = np.triu_indices(len(groups), 1)
    found, expected = 0.5 * float(pairs[apart].sum()), 0.5 * float(np.outer(sums, sums)[apart].sum())
    expected /= total * (total - 1.0)
    inner += np.outer(sums, sums) * (2.0 / (total * (total - 2.0)) - 1.0 / (total * (total - 1.0)))
    known = np.diag(inner) > 1.0e-9 * np.maximum(np.diag(pairs), 1.0)
    norms = np.sqrt(np.diag(inner)[known])
    dimension, count = 0.5 * total * (total - 3.0), 0.5 * norms.size * (norms.size - 1.0)
    if norms.size < 3:
        return 1.0, round(found), expected
    cosines = inner[np.ix_(known, known)] / np.outer(norms, norms)
    z = float(np.triu(cosines, 1).sum()) * math.sqrt(dimension / count)
    skew = _overlap_skewness(sizes, total) / max(sizes.size / len(groups) - 1.0, 1.0) / math.sqrt(count)
    shape = 4.0 / (skew + math.sqrt(8.0 / dimension)) ** 2
    return float(special.gammaincc(shape, max(shape + z * math.sqrt(shape), 0.0))), round(found), expected


def _together(shared: Array, first: Array, second: Array, total: float) -> tuple[Array, Array]:
    """Ordered pairs of records that two batches of these sizes share, and the same less what follows from who is drawn
    at all, up to a constant times the ordered pairs that each has."""
    pairs = shared * (shared - 1.0)
    return pairs, pairs - 2.0 * shared * (first - 1.0) * (second - 1.0) / (total - 2.0)


def _marks(rows: Ids, columns: Ids, shape: tuple[int, int] | None = None) -> sparse.csr_matrix:
    return sparse.csr_matrix((np.ones(columns.size), (rows, columns)), shape)


def _overlap_skewness(sizes: Array, total: float) -> float:
    """Mean third moment of what `together_p_value` adds, in units of its standard deviation, over pairs of batches."""
    some = np.round(np.quantile(sizes, np.linspace(0.0, 1.0, _SIZES))).astype(np.int64)
    found = []
    for a, b in itertools.combinations_with_replacement(some[(some > 1) & (some < total - 1.0)].tolist(), 2):
        chances = _hypergeometric(int(total), a, b)
        _, value = _together(np.arange(chances.size, dtype=np.float64), np.array(a), np.array(b), total)
        value -= chances @ value
        spread = float(chances @ value**2)
        found.append(float(chances @ value**3) / spread**1.5 if spread > 0.0 else 0.0)
    return max(float(np.mean(found)), 0.0) if found else 0.0


def inseparable_p_value(groups: Sequence[Sequence[Ids]], dataset_size: int) -> tuple[float, int]:
    """(p-value, records) of records that are in the same batches as another one, each time and as often as any such.

    `groups` : as in `neighbours_p_value`. The chance that two records are together, or both absent, is exact for each
    group, and groups are drawn anew; how often both are drawn is bounded by Chernoff's method. The p-value is the
    expected number of such pairs, which is an upper bound.
    """
    batches, total = [ids for group in groups for ids in group], float(dataset_size)
    everyone, places = np.unique(np.concatenate(batches), return_inverse=True)
    weights = np.random.default_rng(0).integers(0, 2**63, len(batches), dtype=np.uint64)
    hashes = np.zeros(everyone.size, dtype=np.uint64)  # sums of random numbers, one for each batch
    np.add.at(hashes, places, np.repeat(weights, [ids.size for ids in batches]))
    _, kinds, alike = np.unique(hashes, return_inverse=True, return_counts=True)
    often = np.bincount(places)[alike[kinds] > 1]
    if not often.size:
        return 1.0, 0
    k, steps = int(often.max()), len(groups)
    sizes = [np.array([ids.size for ids in group], dtype=np.float64) for group in groups]
    both = np.array([float(np.sum(one * (one - 1.0))) for one in sizes])
    absent = np.array([max((total - one.sum()) * (total - one.sum() - 1.0), 0.0) for one in sizes])
    tilt = max(k / max(steps - k, 1.0e-9) * float(absent.mean()) / float(both.mean()), 1.0)
    with np.errstate(divide="ignore"):
        log = float(np.sum(np.log(absent + tilt * both) - math.log(total * (total - 1.0)))) - k * math.log(tilt)
    return min(1.0, math.exp(min(log, 0.0)) * total * (total - 1.0) / 2.0), int(np.count_nonzero(often == k))


def coverage_p_value(batches: Sequence[Ids], dataset_size: int) -> tuple[float, int, float]:
    """(two-sided p-value, records seen, records expected) when every batch is a uniform subset of the data.

    The number of new records in a batch of n is hypergeometric given the past, so that their sum minus what was
    expected is a martingale: normal in the limit. A p-value of 1 where the variance is below 10, too small for that.
    """
    seen = 0
    surprise, variance, expected = 0.0, 0.0, 0.0
    n_all = float(dataset_size)
    for ids, new in zip(batches, _new_records(batches), strict=True):
        unseen, n = max(n_all - seen, 0.0), float(ids.size)
        surprise += new - n * unseen / n_all
        if n_all > 1.0:
            variance += n * (unseen / n_all) * (1.0 - unseen / n_all) * (n_all - n) / (n_all - 1.0)
        expected += n * (n_all - expected) / n_all
        seen += new
    if seen > dataset_size:
        return 0.0, seen, expected
    if variance < 10.0:
        return 1.0, seen, expected
    return normal_p_value(surprise / math.sqrt(variance)), seen, expected


def _new_records(batches: Sequence[Ids]) -> list[int]:
    """How many records of each batch no batch before it had."""
    _, first = np.unique(np.concatenate(batches), return_index=True)
    ends = np.cumsum([ids.size for ids in batches])
    found: list[int] = np.bincount(np.searchsorted(ends, first, side="right"), minlength=len(batches)).tolist()
    return found


def poisson_sizes_p_value(sizes: NDArray[np.int64], dataset_size: int, batch_size: float) -> float:
    """Two-sided, the smaller of two tests times 2: the sum of the sizes is binomial, and their variance is right.

    The variance is tested where a size has a variance of at least 5 (chi-squared is an approximation).
    """
    rate = batch_size / dataset_size
    total, trials = int(sizes.sum()), sizes.size * dataset_size
    low = float(special.bdtr(total, trials, rate))
    high = 1.0 if total == 0 else float(special.bdtrc(total - 1, trials, rate))
    sums = min(1.0, 2.0 * min(low, high))
    variance = dataset_size * rate * (1.0 - rate)
    if variance < 5.0 or sizes.size < 2:
        return sums
    squares = float(np.sum((sizes - batch_size) ** 2)) / variance
    return min(1.0, 2.0 * min(sums, float(size_p_value(squares, sizes.size))))


def _hypergeometric(total: int, marked: int, drawn: int) -> NDArray[np.float64]:
    """Chances of 0, 1, ..., min(marked, drawn) marked ones among `drawn` of `total`."""
    k = np.arange(min(marked, drawn) + 1, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        log = _log_choose(marked, k) + _log_choose(total - marked, drawn - k) - _log_choose(total, drawn)
    chances = np.where(drawn - k <= total - marked, np.exp(log), 0.0)
    return np.asarray(chances / chances.sum())


def _log_choose(n: float, k: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(special.gammaln(n + 1.0) - special.gammaln(np.asarray(k) + 1.0) - special.gammaln(n - k + 1.0))


class Contradiction(NamedTuple):
    """Batches that were not drawn as declared, with the number found and the one expected.

    `p_value` : the chance of that if they were; None where it is impossible. `spread` : of the sizes of batches.
    """

    fault: SamplingFault
    value: float
    expected: float
    p_value: float | None = None
    spread: float | None = None


def contradiction(
    *,
    sampling: str,
    dataset_size: int,
    batch_size: int,
    sizes: NDArray[np.int64],
    batches: Sequence[Ids] | None,
    share: float,
    sample_rate: float | None = None,
    max_batch_size: int | None = None,
    most_overlaps: float = MOST_OVERLAPS,
) -> Contradiction | None:
    """What speaks against the declared sampling and sizes, if anything does.

    Parameters
    ----------
    sizes : of the batch of each step, shape (T,).
    batches : who was in each step, all of them in their order; None: not known, and only sizes are judged.
    share : the chance that a sound run is accused.
    sample_rate : under "poisson", if it is not batch_size/dataset_size.
    max_batch_size : under "poisson", to which larger batches are cut.
    most_overlaps : of batches, that are counted to see who is drawn with whom.
    """
    if sizes.size == 0:
        return None
    mean = batch_size if sample_rate is None else sample_rate * dataset_size
    if max_batch_size is not None:
        if sizes.max() > max_batch_size:
            return Contradiction("batch-too-large", float(sizes.max()), max_batch_size)
        # Sizes, and who is in a batch, are those of Poisson batches but for the chance that one was cut.
        share -= sizes.size * float(special.bdtrc(max_batch_size, dataset_size, mean / dataset_size))
        if share <= 0.0:
            return None
    share /= _TESTS
    odd = _odd_sizes(sampling, dataset_size, batch_size, mean, sizes, share)
    if batches is not None:
        odd = itertools.chain(odd, _odd_batches(sampling, dataset_size, batch_size, batches, share, most_overlaps))
    return next(odd, None)


def most_often(sizes: NDArray[np.int64], dataset_size: int, share: float) -> int:
    """How many batches a single record can be in before `contradiction` says so, where batches are drawn anew.

    Given the sizes a record is in a batch with the chance size/dataset_size, in each on its own; sums of such are less
    spread than a binomial of the same mean (Hoeffding 1956)."""
    rate = min(float(sizes.mean()) / dataset_size, 1.0) if sizes.size else 1.0
    counts = np.arange(sizes.size + 1)
    chances = np.append(1.0, special.bdtrc(counts[:-1], sizes.size, rate))  # of so many batches, or more
    return int(counts[dataset_size * chances >= share / _TESTS].max())


# Each of these yields what it finds, the plainest first; nothing is computed after the first.


def _odd_sizes(
    sampling: str, total: int, n: int, mean: float, sizes: NDArray[np.int64], share: float
) -> Iterator[Contradiction]:
    low, most = int(sizes.min()), int(sizes.max())
    if sampling == "balls-in-bins":
        yield from _odd_bins(total, n, sizes, share)
        return
    if sampling != "poisson" and most > n:
        yield Contradiction("batch-too-large", most, n)
    if most < n and (sampling in ("fixed", "shuffled") or (sampling == "full" and most == 1)):
        yield Contradiction("batches-too-small", most, n)
    if sampling == "full" and low < total:
        yield Contradiction("not-all-records", low, total)
    yield from _odd_epoch_sizes(sampling, total, n, sizes)
    if sampling == "poisson" and (p := poisson_sizes_p_value(sizes, total, mean)) < share:
        yield Contradiction("poisson-sizes", float(sizes.mean()), float(mean), p, float(sizes.std()))


def _odd_epoch_sizes(sampling: str, total: int, n: int, sizes: NDArray[np.int64]) -> Iterator[Contradiction]:
    """Epochs where batches are drawn anew, or of another length than declared: by the small batch that ends one."""
    rest, epoch, small = total % n, -(-total // n), np.flatnonzero(sizes < n)
    ends = np.array_equal(small, np.arange(epoch - 1, sizes.size, epoch)) and np.all(sizes[small] == rest)
    if sampling == "fixed" and rest and small.size > 1 and ends:
        yield Contradiction("epochs-not-drawn-anew", rest, n)
    if sampling == "shuffled" and small.size:
        first, size = int(small[0]), int(sizes[small[0]])
        if first + 1 < sizes.size and (size != rest or first != epoch - 1):
            yield Contradiction("epoch-length", first * n + size, total)


def _odd_bins(total: int, n: int, sizes: NDArray[np.int64], share: float) -> Iterator[Contradiction]:
    """Epochs that do not hold every record once, and sizes that are those of a shuffled loader in every epoch."""
    bins = -(-total // n)
    epochs = sizes.size // bins
    held = np.add.reduceat(sizes, np.arange(0, sizes.size, bins))
    wrong = np.flatnonzero(np.append(held[:epochs] != total, held[epochs:] > total))
    if wrong.size:
        yield Contradiction("epoch-length", float(held[wrong[0]]), total)
    shuffled = np.append(np.full(bins - 1, n), total - (bins - 1) * n)
    if np.all(sizes[: epochs * bins].reshape(epochs, bins) == shuffled):
        chances = float(special.gammaln(total + 1.0) - special.gammaln(shuffled + 1.0).sum()) - total * math.log(bins)
        p = math.exp(epochs * min(chances, 0.0))
        if p < share:
            yield Contradiction("poisson-sizes", float(sizes.mean()), total / bins, p, float(sizes.std()))


def _odd_batches(
    sampling: str, total: int, n: int, batches: Sequence[Ids], share: float, most: float
) -> Iterator[Contradiction]:
    if twice := repeated_within(batches):
        yield Contradiction("twice-in-a-batch", twice, 0.0)
    seen, often = np.unique(np.concatenate(batches), return_counts=True)
    if seen.size > total:
        yield Contradiction("too-many-records", seen.size, total)
    if sampling == "full":
        return
    if sampling in ("shuffled", "balls-in-bins"):
        yield from _odd_epochs(total, n, batches, share, most)
        return
    alone = [[ids] for ids in batches]
    yield from _unlikely("batches-overlap", overlap_p_value(list(itertools.pairwise(batches)), total), share)
    yield from _unlikely("ids-in-order", neighbours_p_value(alone), share)
    yield from _unlikely("records-seen", coverage_p_value(batches, total), share)
    sizes = np.array([ids.size for ids in batches], dtype=np.int64)
    if often.max(initial=0) > most_often(sizes, total, share * _TESTS):
        yield Contradiction("drawn-too-often", int(often.max()), float(sizes.sum()) / total)
    yield from _odd_company(alone, total, share, most)


def _unlikely(fault: SamplingFault, found: tuple[float, float, float], share: float) -> Iterator[Contradiction]:
    """`found` : p-value, number found, number expected."""
    p, value, expected = found
    if p < share:
        yield Contradiction(fault, value, expected, p)


def _odd_epochs(total: int, n: int, batches: Sequence[Ids], share: float, most: float) -> Iterator[Contradiction]:
    """Shuffled epochs: nobody twice before everybody was once, and in another order each time."""
    dropped = total % n and all(ids.size == n for ids in batches)
    epoch = total // n if dropped else -(-total // n)
    groups = [batches[start : start + epoch] for start in range(0, len(batches), epoch)]
    for group in groups:
        ids = np.concatenate(group)
        if again := int(ids.size - np.unique(ids).size):
            yield Contradiction("back-too-early", again, 0.0)
    if epoch == 1:
        return
    if len(groups) > 1:
        firsts = itertools.pairwise([group[0] for group in groups])
        yield from _unlikely("not-reshuffled", overlap_p_value(list(firsts), total), share)
    yield from _unlikely("ids-in-order", neighbours_p_value(groups), share)
    yield from _odd_company(groups, total, share, most)


def _odd_company(groups: Sequence[Sequence[Ids]], total: int, share: float, most: float) -> Iterator[Contradiction]:
    """Records that are drawn together more often than by chance: many of them, or a few always."""
    if total >= 5:
        yield from _unlikely("drawn-together", together_p_value(groups, total, most), share)
        p, found = inseparable_p_value(groups, total)
        yield from _unlikely("always-together", (p, found, 0.0), share)
