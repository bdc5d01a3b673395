"""Epochs in which every record picks its batch on its own: reference values, a brute-force game with chosen data, and
what exact sizes do to the same run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import logsumexp, ndtr

from gmip import Gaussian, InvalidArgument, NoisySGD, PrivacyTarget, account, calibrate
from gmip.accounting._epoch import _FINE, _delta

RATES = (0.001, 0.01, 0.1)
# c / B / E -> TPR with H0 = "without", TPR with H0 = "with", epsilons at 1e-5 (another program: FFT on a linear grid)
REFERENCE = {
    (1.0, 20, 3): ((0.00532, 0.03517, 0.21670), (0.00431, 0.03156, 0.21013), (2.388, 1.807)),
    (2.0, 100, 1): ((0.01280, 0.05337, 0.23542), (0.00321, 0.02592, 0.19328), (5.397, 1.334)),
    (1.25, 50, 5): ((0.00751, 0.04471, 0.24729), (0.00543, 0.03792, 0.23638), (3.151, 2.141)),
}


# One record in another's place: 5 to 10 million simulated epochs, standard errors at most 1.3e-4, of epsilon .004
REPLACED = {
    (1.0, 20, 3): ((0.01171, 0.06615, 0.32199), 3.552),
    (0.5, 100, 20): ((0.00414, 0.03027, 0.20270), 1.770),
    (1.25, 50, 5): ((0.01530, 0.07997, 0.35740), 4.196),
}


def balls(shift: float, bins: int, epochs: float, size: int = 10) -> NoisySGD:
    run = NoisySGD(
        dataset_size=size * bins,
        batch_size=size,
        num_steps=round(bins * epochs),
        num_params=5,
        clip_norm=1.0,
        sampling="balls-in-bins",
    )
    return run.with_noise_multiplier(1.0 / shift)


@pytest.mark.parametrize("case", REFERENCE)
def test_reference_values(case):
    without, with_, epsilons = REFERENCE[case]
    run = balls(*case)
    one, both = account(run), account(run, notion="gdp")
    assert (one.kind, both.kind, both.claim.adjacency) == ("bound", "bound", "add-or-remove-one")
    assert one.tpr_at(RATES) == pytest.approx(without, abs=4e-5)
    assert one.inverse().tpr_at(RATES) == pytest.approx(with_, abs=4e-5)
    assert (one.epsilon(1e-5), one.inverse().epsilon(1e-5)) == pytest.approx(epsilons, abs=5e-3)
    assert both.epsilon(1e-5) == pytest.approx(one.epsilon(1e-5))
    assert np.all(both.tpr_at(RATES) >= np.maximum(without, with_) - 1e-5)


@pytest.mark.parametrize("case", REPLACED)
def test_reference_values_of_one_record_in_the_place_of_another(case):
    found, epsilon = REPLACED[case]
    run = balls(*case)
    curve = account(run, notion="gdp", adjacency="replace-one")
    assert (curve.kind, curve.claim.adjacency) == ("bound", "replace-one")
    assert curve.tpr_at(RATES) == pytest.approx(found, abs=3e-4)
    assert curve.epsilon(1e-5) == pytest.approx(epsilon, abs=0.015)
    assert np.all(curve.tpr_at(RATES) > account(run, notion="gdp").tpr_at(RATES))
    assert curve.gdp_mu == pytest.approx(2.0 * math.sqrt(case[2]) * case[0])  # the order known


@pytest.mark.parametrize("shift", [0.01, 0.3, 1.0, 3.0])
def test_two_bins_are_gaussian_where_a_record_is_replaced(shift):
    """log((e^u + e^v)/(e^-u + e^-v)) = u + v, so that the loss is c (x_1 + x_2)."""
    curve, exact = account(balls(shift, 2, 1), notion="gdp", adjacency="replace-one"), Gaussian(math.sqrt(2.0) * shift)
    rates = np.array([1e-3, 0.01, 0.1, 0.5, 0.9, 1e-6])
    assert np.all(curve.tpr_at(rates) >= exact.tpr_at(rates) - 1e-12)
    assert curve.tpr_at(rates[:5]) == pytest.approx(exact.tpr_at(rates[:5]), rel=4e-3)
    assert curve.tpr_at(1e-6) == pytest.approx(exact.tpr_at(1e-6), rel=0.06)
    if shift <= 1.0:
        assert curve.epsilon(1e-9) == pytest.approx(exact.epsilon(1e-9), rel=5e-3)


@pytest.mark.parametrize("shift", [1.0, 5.0, 7.9])
@pytest.mark.parametrize("bins", [2, 100])
def test_one_batch_of_several_bins_where_a_record_is_replaced(shift, bins):
    """What is seen is N(c) or N(-c) with chance 1/B and N(0) otherwise, whose likelihood ratio rises: a threshold."""
    curve = account(balls(shift, bins, 1.0 / bins, size=1), notion="gdp", adjacency="replace-one")
    threshold = np.linspace(-shift, shift + 5.0, 40)
    fpr, tpr = (ndtr(-threshold - s) / bins + ndtr(-threshold) * (1.0 - 1.0 / bins) for s in (shift, -shift))
    assert curve.kind == "bound"
    assert np.all(curve.tpr_at(fpr) >= tpr - 1e-12)
    usual = fpr >= 1e-6
    assert curve.tpr_at(fpr[usual]) == pytest.approx(tpr[usual], abs=0.002)


@pytest.mark.parametrize(("run", "loss"), [(500, 25.0), (999, 30.0)])
def test_rounding_errors_do_not_cut_the_delta_of_a_large_shift(run, loss):
    """delta = E1[(1 - e^(loss - L))+], by simulation of epochs in which the record is in a batch that was run."""
    shift, bins = 5.0, 1000
    x = np.random.default_rng(3).standard_normal((10_000, run))
    x[:, 0] += shift
    other = math.log(bins - run)
    up, down = (np.logaddexp(logsumexp(s * x - 0.5 * shift**2, axis=1), other) for s in (shift, -shift))
    seen = np.maximum(-np.expm1(np.minimum(loss - (up - down), 0.0)), 0.0) * run / bins
    found = _delta(loss, shift, bins, run, _FINE)
    assert max(seen.mean() - 5.0 * seen.std() / 100.0, 0.0) <= found <= 1.0


def test_neighbours_that_are_asked_for():
    run = balls(1.0, 20, 3)
    poisson, options = run.replace(sampling="poisson"), {"notion": "gdp", "adjacency": "replace-one"}
    own = account(poisson, notion="gdp", adjacency="add-or-remove-one")
    assert own.tpr_at(0.01) == account(poisson, notion="gdp").tpr_at(0.01) < account(poisson, **options).tpr_at(0.01)
    mixed = account([poisson, run.replace(sampling="fixed")], **options)
    assert (mixed.kind, mixed.claim.adjacency) == ("bound", "replace-one")
    assert account(poisson.replace(max_batch_size=11), **options).tpr_at(0.01) > 0.1
    for sampling in ("balls-in-bins", "poisson"):
        quiet = account(run.replace(sampling=sampling, noise_std=0.0), **options)
        assert quiet.tpr_at(0.01) == pytest.approx(1.0 if sampling == "balls-in-bins" else 1.01 - 0.95**60)
    found = calibrate(poisson, target_epsilon=2.0, delta=1e-5, **options)
    assert account(found, **options).epsilon(1e-5) == pytest.approx(2.0, rel=1e-5)
    refused = [
        (run.replace(sampling="fixed"), {"notion": "gdp", "adjacency": "add-or-remove-one"}),
        (run.replace(sampling="shuffled"), options),
        (poisson, {"adjacency": "replace-one"}),
        (poisson, {**options, "rows_per_person": 2}),
        (poisson, {**options, "composition": "clt"}),
        (poisson, {**options, "adjacency": "replace"}),
    ]
    for one, asked in refused:
        with pytest.raises(InvalidArgument, match="adjacency"):
            account(one, **asked)
    with pytest.raises(InvalidArgument, match="adjacency"):
        PrivacyTarget(target_mu=1.0, adjacency="replace-one")


def played(run: NoisySGD, others: float, games: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood ratios of the optimal attacker who knows the bins of all others, without and with the record.

    The record's gradient is 1 and all others are `others`; whether the record is there changes nobody else's bin.
    """
    rng = np.random.default_rng(seed)
    bins, shift = run.steps_per_epoch, 1.0 / (run.noise_multiplier or math.nan)
    scores = np.zeros((2, games))
    for first in range(0, run.num_steps, bins):
        ran = min(bins, run.num_steps - first)
        for member in (0, 1):
            own = rng.integers(bins, size=games)
            background = others * rng.multinomial(run.dataset_size - 1, np.full(bins, 1.0 / bins), size=games)
            seen = background + (rng.standard_normal((games, bins)) / shift)
            seen[np.arange(games), own] += member
            x = ((seen - background) * shift)[:, :ran]  # in units of the noise, the others taken off
            ratio = np.exp(shift * x - 0.5 * shift**2).sum(axis=1) + (bins - ran)
            scores[member] += np.log(ratio / bins)
    return scores[0], scores[1]


@pytest.mark.parametrize("epochs", [3, 2.5])
def test_the_best_attack_on_chosen_data_reaches_it_and_no_more(epochs):
    run, games = balls(1.0, 8, epochs), 40_000
    without, with_ = played(run, others=-1.0, games=games, seed=1)
    curve, error = account(run), math.sqrt(0.25 / games)
    for fpr in (0.01, 0.1, 0.5):
        found = float(np.mean(with_ > np.quantile(without, 1.0 - fpr)))
        assert found == pytest.approx(curve.tpr_at(fpr), abs=6.0 * error)
        mirrored = float(np.mean(without < np.quantile(with_, fpr)))
        assert mirrored == pytest.approx(curve.inverse().tpr_at(fpr), abs=6.0 * error)


def test_exact_sizes_exceed_it_and_stay_a_forecast():
    """Somebody has to make room: all others at -x test mean_t N(c e_t) against mean_t N(2c e_t) (THEORY 21)."""
    run = balls(1.0, 20, 3)
    shuffled = account(run.replace(sampling="shuffled"), notion="gdp")
    rng, games = np.random.default_rng(2), 20_000
    scores = np.zeros((2, games))
    for member in (0, 1):
        for _ in range(3):
            x = rng.standard_normal((games, 20))
            x[:, 0] += 1.0 + member
            scores[member] += np.log(np.exp(2.0 * x - 2.0).sum(axis=1) / np.exp(x - 0.5).sum(axis=1))
    found = float(np.mean(scores[1] > np.quantile(scores[0], 0.99)))
    assert found == pytest.approx(0.1454, abs=0.012)
    assert shuffled.kind == "forecast" and shuffled.tpr_at(0.01) < 0.04
    assert shuffled.gdp_mu == pytest.approx(math.sqrt(3.0))  # what is proved


def test_noise_alone_protects():
    run = balls(1.0, 20, 3)
    curve = account(run)
    for options in ({"susceptibility": "any"}, {"susceptibility": 3.0}, {"attacker_knows": 1.0}):
        other = account(run, **options)
        assert (other.tpr_at(0.01), other.kind, other.for_whom) == (curve.tpr_at(0.01), "bound", curve.for_whom)
    quiet = account(run.replace(noise_std=0.0))
    assert quiet.tpr_at(0.01) == 1.0 and "without noise nothing is guaranteed" in (quiet.claim.caveat or "")


def test_calibration_and_sizes():
    run = balls(1.0, 20, 3)
    found = calibrate(run, target_epsilon=2.0, delta=1e-5, notion="gdp")
    assert account(found, notion="gdp").epsilon(1e-5) == pytest.approx(2.0, rel=2e-3)
    odd = run.replace(dataset_size=195)
    assert (odd.steps_per_epoch, odd.sample_rate, odd.epochs) == (20, 1 / 20, 3.0)
    assert account(odd).tpr_at(0.01) == account(run).tpr_at(0.01)
    one = run.replace(dataset_size=10, num_steps=3)
    assert account(one, notion="gdp").gdp_mu == pytest.approx(math.sqrt(3.0))


def test_every_record_is_once_in_every_epoch_on_its_own():
    pytest.importorskip("torch", reason="samplers need gmip[train]")
    from gmip.training import BallsInBins

    sampler = BallsInBins(dataset_size=13, batch_size=4, num_steps=4000, seed=1)
    bins = np.zeros((1000, 13), dtype=int)
    for step, ids in enumerate(sampler):
        epoch, place = divmod(step, 4)
        assert sampler.divisor(ids) == 4
        bins[epoch, ids] += place + 4
    assert np.all((bins >= 4) & (bins < 8))  # once each
    together = np.array([[np.mean(bins[:, i] == bins[:, j]) for j in range(i)] for i in range(12, 13)])
    again = np.mean(bins[:-1] == bins[1:])
    assert together == pytest.approx(0.25, abs=0.06) and again == pytest.approx(0.25, abs=0.02)
