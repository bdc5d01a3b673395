"""Samplers: batches by (seed, step), their divisors, and what they refuse. Their laws are in tests/statistical."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gmip.errors import InvalidArgument
from gmip.training import FixedSize, FullBatch, Poisson, Sampler, Shuffled, make_sampler

SIZES: dict[str, Any] = {"dataset_size": 10, "batch_size": 4, "num_steps": 7, "seed": 3}
KINDS = ("fixed", "poisson", "full", "shuffled", "balls-in-bins")


def sampler_of(kind: str, **changes: Any) -> Sampler:
    sizes = {**SIZES, **({"batch_size": 10} if kind == "full" else {}), **changes}
    return make_sampler(kind, **sizes)


@pytest.mark.parametrize("kind", KINDS)
class TestEverySampler:
    def test_random_access_equals_iteration(self, kind):
        sampler = sampler_of(kind)
        assert len(sampler) == 7
        batches = list(sampler)
        assert len(batches) == 7
        for step in (6, 0, 3, 3, 5):  # in any order, again and again, in another instance
            np.testing.assert_array_equal(sampler[step], batches[step])
            np.testing.assert_array_equal(sampler_of(kind)[step], batches[step])

    def test_batches_hold_ids_once(self, kind):
        for batch in sampler_of(kind, num_steps=50):
            assert batch.dtype == np.int64 and batch.ndim == 1
            assert len(set(batch.tolist())) == len(batch)
            assert all(0 <= i < 10 for i in batch)

    def test_a_batch_does_not_depend_on_the_number_of_steps(self, kind):
        for short, long in zip(sampler_of(kind), sampler_of(kind, num_steps=100), strict=False):
            np.testing.assert_array_equal(short, long)

    def test_who_changes_a_batch_changes_no_other(self, kind):
        sampler = sampler_of(kind)
        before = sampler[1].copy()
        batch = sampler[1]
        batch[:] = 0
        np.testing.assert_array_equal(sampler[1], before)

    def test_ends_where_it_ends(self, kind):
        sampler = sampler_of(kind)
        for step in (-1, 7, 100):
            with pytest.raises(IndexError, match=f"step {step} of 7"):
                sampler[step]
        with pytest.raises(TypeError):
            sampler[0.5]

    @pytest.mark.parametrize("wrong", [-1, 1.5, True, None, "1"])
    def test_seed_is_a_whole_number(self, kind, wrong):
        with pytest.raises(InvalidArgument, match=r"seed = .* must be a whole number"):
            sampler_of(kind, seed=wrong)

    @pytest.mark.parametrize("name", ["dataset_size", "batch_size", "num_steps"])
    @pytest.mark.parametrize("wrong", [0, -1, 2.5, "4", True])
    def test_sizes_are_counts(self, kind, name, wrong):
        with pytest.raises(InvalidArgument, match=name):
            sampler_of(kind, **{name: wrong})

    def test_batch_within_the_data(self, kind):
        with pytest.raises(InvalidArgument, match="batch_size = 11 exceeds dataset_size = 10"):
            sampler_of(kind, batch_size=11)

    def test_is_a_batch_sampler_of_torch(self, kind):
        sampler = sampler_of(kind, batch_size=10 if kind == "full" else 6)  # of seed 3 no Poisson batch is empty
        data = TensorDataset(torch.arange(100, 110))
        seen = [ids for (ids,) in DataLoader(data, batch_sampler=sampler)]
        assert len(seen) == 7
        for ids, batch in zip(seen, (sampler[step] for step in range(7)), strict=True):
            np.testing.assert_array_equal(ids.numpy() - 100, batch)

    def test_a_second_pass_goes_on_with_other_draws(self, kind):
        sampler, longer = sampler_of(kind), sampler_of(kind, num_steps=14)
        twice = [*sampler, *sampler]
        for batch, wanted in zip(twice, longer, strict=True):
            np.testing.assert_array_equal(batch, wanted)
        np.testing.assert_array_equal(sampler[0], longer[0])


@pytest.mark.parametrize("kind", ["fixed", "poisson", "shuffled", "balls-in-bins"])
def test_seeds_differ(kind):
    def first(seed: int) -> tuple[int, ...]:
        return tuple(np.concatenate(list(sampler_of(kind, dataset_size=100, batch_size=40, seed=seed))))

    assert len({first(seed) for seed in (0, 1, 2**32, 2**32 + 1, 2**63)}) == 5


def test_fixed_size():
    sampler = FixedSize(**SIZES)
    assert {len(batch) for batch in sampler} == {4}
    assert sampler.divisor(sampler[0]) == 4
    assert len({tuple(sorted(batch)) for batch in sampler}) > 1


def test_poisson_divides_by_the_expected_size():
    sampler = Poisson(**SIZES | {"batch_size": 1, "num_steps": 100})
    sizes = [len(batch) for batch in sampler]
    assert {0, 1, 2} <= set(sizes)
    assert {sampler.divisor(batch) for batch in sampler} == {1}
    assert sampler[sizes.index(0)].dtype == np.int64  # an empty batch still indexes


def test_poisson_of_everything():
    sampler = Poisson(**SIZES | {"batch_size": 10})
    assert all(sorted(batch) == list(range(10)) for batch in sampler)


def test_full_batch():
    sampler = FullBatch(dataset_size=10, num_steps=3)
    assert [batch.tolist() for batch in sampler] == [list(range(10))] * 3
    assert sampler.divisor(sampler[0]) == 10
    with pytest.raises(InvalidArgument, match="batch_size = 4 must equal dataset_size = 10"):
        FullBatch(**SIZES)


def test_shuffled_epochs():
    """10 examples in batches of 4: each epoch is 4 + 4 + 2, every example once, in another order each time."""
    sampler = sampler_of("shuffled", num_steps=12)
    batches = list(sampler)
    assert [len(batch) for batch in batches] == [4, 4, 2] * 4
    assert [sampler.divisor(batch) for batch in batches] == [4, 4, 2] * 4
    epochs = [np.concatenate(batches[i : i + 3]).tolist() for i in range(0, 12, 3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4


def test_shuffled_without_remainder():
    assert [len(batch) for batch in sampler_of("shuffled", batch_size=5)] == [5] * 7


def test_by_name():
    assert isinstance(sampler_of("fixed"), FixedSize)
    assert isinstance(sampler_of("poisson"), Poisson)
    assert isinstance(sampler_of("full"), FullBatch)
    assert isinstance(sampler_of("shuffled"), Shuffled)
    with pytest.raises(InvalidArgument, match="sampling = 'uniform' is not known: pass one of 'fixed', 'poisson'"):
        make_sampler("uniform", **SIZES)


def test_sizes_are_by_keyword():
    with pytest.raises(TypeError):
        FixedSize(10, 4, 7, 3)  # type: ignore[call-arg]
