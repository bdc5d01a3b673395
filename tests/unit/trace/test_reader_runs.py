"""Trace.runs: what the accountant is told of the steps that were taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.accounting.account import account, mu_per_step
from gmip.errors import GmipWarning, TraceMismatch
from gmip.trace import Trace, TraceWriter
from gmip.vocabulary import NoisySGD
from tests.statistical.games import assert_bound
from tests.unit.trace.build import header


def runs(path: Path, steps: list[dict[str, Any]], **changes: Any) -> tuple[NoisySGD, ...]:
    with TraceWriter.create(path, header(**changes)) as writer:
        for step in steps:
            writer.commit(recorded=False, **step)
    return Trace.open(path).runs()


def test_fixed_without_noise(tmp_path: Path) -> None:
    found = runs(tmp_path, [{"batch_size": 10}] * 7)
    assert found == (NoisySGD(dataset_size=100, batch_size=10, num_steps=7, num_params=8),)


def test_num_params_is_that_of_the_model(tmp_path: Path) -> None:
    assert runs(tmp_path, [{"batch_size": 10}], num_params=1000)[0].num_params == 1000


def test_recorded_and_skipped_steps_count_alike(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        for index in range(6):
            if index % 3:
                writer.commit(recorded=False, batch_size=10)
            else:
                writer.row()
                writer.commit(batch_size=10)
    assert [run.num_steps for run in Trace.open(tmp_path).runs()] == [6]


def test_the_last_incomplete_batch_is_a_run_of_its_own(tmp_path: Path) -> None:
    epoch = [{"batch_size": 10, "noise_std": 0.5}] * 3 + [{"batch_size": 4, "noise_std": 0.5}]
    found = runs(tmp_path, epoch * 2, clip_norm=1.0)
    common: dict[str, Any] = {"dataset_size": 100, "num_params": 8, "clip_norm": 1.0, "noise_std": 0.5}
    assert found == (
        NoisySGD(batch_size=10, num_steps=6, **common),
        NoisySGD(batch_size=4, num_steps=2, **common),
    )
    assert account(found).tpr_at(0.01) > account(NoisySGD(batch_size=10, num_steps=8, **common)).tpr_at(0.01)


def test_noise_is_that_of_the_mean_over_the_examples_seen(tmp_path: Path) -> None:
    # Opacus divides by the nominal batch size: the sum has noise 0.5 * 10, the mean over the 4 examples seen 5/4.
    (found,) = runs(tmp_path, [{"batch_size": 4, "divisor": 10, "noise_std": 0.5}], clip_norm=1.0)
    assert (found.batch_size, found.noise_std) == (4, 1.25)


def test_more_examples_than_nominal_count_as_they_are(tmp_path: Path) -> None:
    (found,) = runs(tmp_path, [{"batch_size": 20, "noise_std": 0.5}], clip_norm=1.0)
    assert (found.batch_size, found.noise_std) == (20, 0.5)


def test_larger_batches_than_declared_are_not_accounted_too_well(tmp_path: Path) -> None:
    """A header that says 100 of 1000 and steps that draw 400, against the best attack on such steps.

    Gradients are Gaussian with K = num_params = 8; the optimal test of a step is between the sums of 400 of the 999
    others and of 399 of them and the record.
    """
    (found,) = runs(tmp_path, [{"batch_size": 400}] * 60, dataset_size=1000, batch_size=100)
    rng = np.random.default_rng(25)
    n, others, k, games = 400, 999, 8.0, 20_000
    narrow = 1.0 - ((others + 1 - 2 * n) / (others - 1)) / (n * (others - n) / (others - 1))
    shift = np.sqrt(k / (n * (others - n) / (others - 1)))

    def losses(member: bool) -> np.ndarray:
        total = np.zeros(games)
        for _ in range(60):
            drawn = (rng.random(games) < 0.4) & member
            along = np.where(drawn, shift + np.sqrt(narrow) * rng.standard_normal(games), rng.standard_normal(games))
            rest = rng.chisquare(7, games) * np.where(drawn, narrow, 1.0)
            loss = -4.0 * np.log(narrow) + 0.5 * (along**2 + rest) - 0.5 * ((along - shift) ** 2 + rest) / narrow
            total += np.log1p(0.4 * np.expm1(loss))
        return total

    assert_bound(account(found, susceptibility=k), losses(False), losses(True))


def test_batches_that_cannot_be_right_are_refused(tmp_path: Path) -> None:
    for sampling in ("fixed", "poisson", "shuffled"):
        with pytest.raises(TraceMismatch, match="Step 1 averaged 101 examples, and the data set has 100"):
            runs(tmp_path / sampling, [{"batch_size": 10}, {"batch_size": 101}], sampling=sampling)
    with pytest.raises(TraceMismatch, match="40 examples on average, and Poisson batches of this trace hold 10"):
        runs(tmp_path / "larger", [{"batch_size": 40}] * 20, sampling="poisson")
    with pytest.raises(TraceMismatch, match="The 10 bins of an epoch held 110 examples, and the data set has 100"):
        runs(tmp_path / "bins", [{"batch_size": 11}] * 20, sampling="balls-in-bins")


def test_noise_that_changes_makes_a_schedule(tmp_path: Path) -> None:
    steps = [{"batch_size": 10, "noise_std": std} for std in (0.1, 0.2, 0.1)]
    assert [(r.noise_std, r.num_steps) for r in runs(tmp_path, steps, clip_norm=1.0)] == [(0.1, 2), (0.2, 1)]


def test_full(tmp_path: Path) -> None:
    steps = [{"batch_size": 100}] * 3 + [{"batch_size": 60}]
    found = runs(tmp_path, steps, batch_size=100, sampling="full")
    assert [(r.sampling, r.batch_size, r.num_steps) for r in found] == [("full", 100, 3), ("full", 60, 1)]


def test_poisson_counts_the_nominal_size(tmp_path: Path) -> None:
    steps = [{"batch_size": size, "noise_std": 0.5} for size in (0, 7, 10, 25)]
    found = runs(tmp_path, steps, sampling="poisson", clip_norm=2.0)
    assert found == (
        NoisySGD(
            dataset_size=100,
            batch_size=10,
            num_steps=4,
            num_params=8,
            clip_norm=2.0,
            noise_std=0.5,
            sampling="poisson",
        ),
    )


def test_bins_count_the_nominal_size_and_the_least_noise(tmp_path: Path) -> None:
    steps = [{"batch_size": size, "noise_std": std} for size, std in ((0, 0.5), (7, 0.5), (10, 0.25), (25, 0.5))]
    (found,) = runs(tmp_path, steps, sampling="balls-in-bins", clip_norm=2.0)
    assert (found.sampling, found.batch_size, found.num_steps, found.noise_std) == ("balls-in-bins", 10, 4, 0.25)


def test_poisson_with_another_divisor(tmp_path: Path) -> None:
    (found,) = runs(tmp_path, [{"batch_size": 8, "divisor": 5, "noise_std": 0.5}], sampling="poisson", clip_norm=2.0)
    assert found.noise_std == 0.25


def test_shuffled_is_the_plan(tmp_path: Path) -> None:
    epoch = [{"batch_size": size, "noise_std": 0.5} for size in (30, 30, 30, 10)]
    sizes: dict[str, Any] = {"batch_size": 30, "clip_norm": 1.0, "sampling": "shuffled"}
    # The noise on the sum of the last batch is 5, and that of the others counts as no more.
    plan = NoisySGD(dataset_size=100, num_steps=6, num_params=8, noise_std=5.0 / 30.0, **sizes)
    assert runs(tmp_path / "a", (epoch * 2)[:6], **sizes) == (plan,)


def test_shuffled_takes_the_least_noise_on_the_sum(tmp_path: Path) -> None:
    # As Opacus does it: every batch is divided by 30, so the sum has noise 15 in each, also over the last 10 examples.
    epoch = [{"batch_size": size, "divisor": 30, "noise_std": 0.5} for size in (30, 30, 30, 10)]
    (found,) = runs(tmp_path / "a", epoch, batch_size=30, sampling="shuffled", clip_norm=1.0)
    assert (found.batch_size, found.noise_std, found.num_steps, found.drop_last) == (30, 0.5, 4, False)
    epoch[1]["noise_std"] = 0.1
    (found,) = runs(tmp_path / "b", epoch, batch_size=30, sampling="shuffled", clip_norm=1.0)
    assert found.noise_std == pytest.approx(0.1)


def test_shuffled_with_batches_that_no_epoch_has_counts_as_known_order(tmp_path: Path) -> None:
    steps = [{"batch_size": size, "noise_std": 0.5} for size in (30, 30, 30, 3)]
    (found,) = runs(tmp_path, steps, batch_size=30, sampling="shuffled", clip_norm=1.0)
    # An epoch that drops its rest has three batches of 30, so the batch of 3 may be of a second one.
    assert (found.sampling, found.batch_size, found.dataset_size, found.num_steps) == ("full", 3, 3, 2)
    assert found.noise_std == pytest.approx(0.5)


def test_shuffled_epochs_that_drop_the_rest_are_shorter(tmp_path: Path) -> None:
    # 100 = 3 * 30 + 10, and no batch of 10 was ever seen: 12 steps are 4 epochs of 3, not 3 of 4.
    (found,) = runs(tmp_path, [{"batch_size": 30}] * 12, batch_size=30, sampling="shuffled")
    assert found.drop_last and found.steps_per_epoch == 3 and found.num_steps == 12


def test_shuffled_with_larger_batches_counts_every_epoch(tmp_path: Path) -> None:
    # 12 steps of 50 out of 100 are six epochs, not the two that batches of 20 would make.
    (found,) = runs(tmp_path / "a", [{"batch_size": 50}] * 12, batch_size=20, sampling="shuffled")
    assert (found.sampling, found.batch_size, found.num_steps) == ("full", 20, 6)
    # An epoch has one batch of the rest: more of them are no plan.
    (found,) = runs(tmp_path / "b", [{"batch_size": 10}] * 8, batch_size=30, sampling="shuffled")
    assert (found.sampling, found.batch_size) == ("full", 10)


def test_noise_without_clipping_is_left_out_with_a_warning(tmp_path: Path) -> None:
    for sampling in ("fixed", "poisson", "shuffled"):
        with pytest.warns(GmipWarning, match="clip_norm"):
            (found,) = runs(tmp_path / sampling, [{"batch_size": 10, "noise_std": 0.5}], sampling=sampling)
        assert found.noise_std == 0.0


def test_shuffled_is_never_more_private_than_any_of_its_steps(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for case in range(20):
        steps = [
            {
                "batch_size": int(rng.integers(1, 31)),
                "divisor": float(rng.choice([30.0, 7.0])),
                "noise_std": float(rng.uniform(0.01, 0.5)),
            }
            for _ in range(4)
        ]
        (found,) = runs(tmp_path / str(case), steps, batch_size=30, sampling="shuffled", clip_norm=1.0)
        for step in steps:
            n = step["batch_size"]
            tau = step["noise_std"] * step["divisor"] / n
            taken = NoisySGD(
                dataset_size=n, batch_size=n, num_steps=1, num_params=8, clip_norm=1.0, noise_std=tau, sampling="full"
            )
            for rules in ({"bound": "tight"}, {"bound": "paper"}, {"notion": "gdp"}):
                assert mu_per_step(found, **rules) >= mu_per_step(taken, **rules) * (1 - 1e-9)
