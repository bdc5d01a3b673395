"""Poisson batches with a largest size: the game by numerical integration, the sampler, the record, the check."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gmip import InvalidArgument, NoisySGD, Recipe, UnreachableTarget, account, calibrate
from gmip.stats.record_tests import contradiction

N, SIZE, NOISE = 12, 3, 0.3
RUN = NoisySGD(dataset_size=N, batch_size=SIZE, num_steps=1, num_params=1, sampling="poisson", clip_norm=1.0)
RUN = RUN.with_noise_multiplier(NOISE)


def _played(most: int, steps: int, *, swapped: bool) -> tuple[np.ndarray, np.ndarray]:
    """FPR and TPR of the best test where the record is at 1, all others at -1, and who of them was drawn is told.

    In a batch that is full the record takes the place of another: the sum moves by 2, not by 1.
    """
    x = np.linspace(-4.0, 4.0, 81 if steps > 1 else 2001)  # the sum, from where it is without the record
    without, member = [], []
    for drawn in range(N):
        chance = stats.binom.pmf(drawn, N - 1, SIZE / N)
        kept, shift = min(1.0, most / (drawn + 1)), 1.0 if drawn < most else 2.0
        law = stats.norm.pdf(x, scale=NOISE)
        rate = SIZE / N * kept
        without.append(chance * law)
        member.append(chance * ((1.0 - rate) * law + rate * stats.norm.pdf(x, loc=shift, scale=NOISE)))
    p0, p1 = (np.concatenate(laws) / np.sum(laws) for laws in (without, member))
    if steps == 2:
        p0, p1 = np.outer(p0, p0).ravel(), np.outer(p1, p1).ravel()
    if swapped:
        p0, p1 = p1, p0
    order = np.argsort(-p1 / np.maximum(p0, 1e-300))
    return np.cumsum(p0[order]), np.cumsum(p1[order])


@pytest.mark.parametrize("most", [5, 7])
def test_chosen_data_exceed_the_curve_of_batches_that_are_not_cut_but_not_this_one(most):
    exceeded = 0.0
    for steps in (1, 2):
        run = RUN.replace(num_steps=steps, max_batch_size=most)
        for swapped in (False, True):
            fpr, tpr = _played(most, steps, swapped=swapped)
            rates = np.array([1e-3, 1e-2, 0.1, 0.3, 0.6])
            found = np.interp(rates, fpr, tpr)
            assert np.all(found <= account(run, notion="gdp").tpr_at(rates) + 1e-6)
            if not swapped:
                assert np.all(found <= account(run, attacker_knows=1.0).tpr_at(rates) + 1e-6)
                plain = account(run.replace(max_batch_size=None), attacker_knows=1.0)
                exceeded = max(exceeded, float(np.max(found - plain.tpr_at(rates))))
    assert exceeded > (0.01 if most == 5 else 1e-4)


def test_the_chance_of_a_cut_batch_is_added_to_both_errors():
    run = RUN.replace(dataset_size=1000, batch_size=30, num_steps=50).with_noise_multiplier(1.0)
    plain, chance = account(run, notion="gdp"), 50 * stats.binom.sf(60, 1001, 0.03)
    cut = account(run.replace(max_batch_size=60), notion="gdp")
    for rate in (1e-3, 0.1):
        assert cut.fnr_at(rate) == pytest.approx(plain.fnr_at(rate + chance) - chance, abs=1e-5)
    assert cut.kind == "bound" and cut.gdp_mu is None and "max_batch_size" in " ".join(cut.assumptions)
    assert cut.epsilon(1e-9) == np.inf  # less likely than a cut
    assert account(run.replace(max_batch_size=1001), notion="gdp").epsilon(1e-5) == pytest.approx(plain.epsilon(1e-5))
    wanted = {"notion": "gdp", "target_epsilon": 2.0, "delta": 1e-4}
    least = calibrate(run.replace(max_batch_size=60), **wanted)
    assert least.noise_std > calibrate(run, **wanted).noise_std
    assert account(least, notion="gdp").epsilon(1e-4) <= 2.0
    with pytest.raises(UnreachableTarget, match="max_batch_size"):
        calibrate(run.replace(max_batch_size=40), **wanted)


def test_sampler_record_and_check():
    pytest.importorskip("torch", reason="samplers need gmip[train]")
    from gmip.training import Poisson
    from gmip.training.batch_log import drawing_of

    sizes = {"dataset_size": 200, "batch_size": 20, "num_steps": 400, "seed": 3}
    sampler, plain = Poisson(**sizes, max_batch_size=25), Poisson(**sizes)
    held = np.array([ids.size for ids in sampler])
    assert held.tolist() == [min(ids.size, 25) for ids in plain] and held.max() == 25
    assert drawing_of(sampler).max_batch_size == 25
    judged = {"sampling": "poisson", "dataset_size": 200, "batch_size": 20, "batches": None, "share": 1e-3}
    assert contradiction(**judged, sizes=held, max_batch_size=25) is None
    for sizes_seen, most, fault in ((held, 24, "batch-too-large"), (np.full(400, 20), 60, "poisson-sizes")):
        found = contradiction(**judged, sizes=sizes_seen, max_batch_size=most)
        assert found is not None and found.fault == fault


@pytest.mark.parametrize(("sampling", "most"), [("fixed", 30), ("poisson", 2)])
def test_refusals(sampling, most):
    with pytest.raises(InvalidArgument, match="max_batch_size"):
        RUN.replace(sampling=sampling, max_batch_size=most)
    with pytest.raises(InvalidArgument, match="max_batch_size"):
        Recipe(dataset_size=N, batch_size=3, num_steps=1, learning_rate=1.0, sampling=sampling, max_batch_size=most)
