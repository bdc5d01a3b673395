"""Persons with several records: reference values of another program, the game itself, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from gmip import InvalidArgument, NoisySGD, PrivacyTarget, account, calibrate
from gmip.accounting.alternatives import alternatives
from gmip.accounting.composition import compose
from gmip.accounting.families import Discrete, Gaussian
from gmip.accounting.persons import mixture_atoms
from gmip.report.advice_words import alternative_command

RATES = (0.001, 0.01, 0.1)
RUN = NoisySGD(dataset_size=10_000, batch_size=100, num_steps=1000, num_params=10, clip_norm=1.0)
RUN = RUN.with_noise_multiplier(1.0)
REFERENCE = {
    ("poisson", 2): ((0.01319, 0.06989, 0.32393), 3.979),
    ("poisson", 5): ((0.15424, 0.38439, 0.75788), 11.64),
    ("fixed", 2): ((0.46560, 0.69821, 0.91287), 26.6),
    ("fixed", 5): ((0.99408, 0.99899, 0.99995), 70.5),
}


@pytest.mark.parametrize("case", REFERENCE)
def test_reference_values(case):
    (sampling, rows), (tprs, epsilon) = case, REFERENCE[case]
    one, both = (
        account(RUN.replace(sampling=sampling), rows_per_person=rows, **options)
        for options in ({"attacker_knows": 1.0}, {"notion": "gdp"})
    )
    assert (one.kind, both.kind, both.claim.adjacency) == ("bound", "bound", "add-or-remove-one")
    assert one.tpr_at(RATES) == pytest.approx(tprs, abs=3e-5)
    assert one.epsilon(1e-5) == pytest.approx(epsilon, rel=2e-3)
    assert both.epsilon(1e-5) == pytest.approx(epsilon, rel=2e-3)


@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_the_game_on_chosen_data_reaches_it_and_no_more(sampling):
    """The person's k gradients are 1, all others -1 (fixed: they make room) or 0; the others are known."""
    rows, steps, games, rng = 3, 10, 60_000, np.random.default_rng(1)
    run = RUN.replace(dataset_size=60, batch_size=12, num_steps=steps, sampling=sampling).with_noise_multiplier(3.0)
    poisson = sampling == "poisson"
    law = stats.binom(rows, 0.2) if poisson else stats.hypergeom(60, rows, 12)
    chances, apart = law.pmf(np.arange(rows + 1)), 1.0 if poisson else 2.0
    scores = np.zeros((2, games))
    for member in (0, 1):
        held = law.rvs((games, steps), random_state=rng) * member
        others = 0.0 if poisson else -(12.0 - held)
        seen = held + others + 3.0 * rng.standard_normal((games, steps))
        x = (seen if poisson else seen + 12.0) / 3.0
        shifts = apart * np.arange(rows + 1) / 3.0
        scores[member] = np.log(np.exp(x[..., None] * shifts - 0.5 * shifts**2) @ chances).sum(axis=1)
    curve = account(run, attacker_knows=1.0, rows_per_person=rows)
    for fpr in (0.01, 0.1, 0.5):
        found = float(np.mean(scores[1] > np.quantile(scores[0], 1.0 - fpr)))
        assert found == pytest.approx(curve.tpr_at(fpr), abs=3.0 / math.sqrt(games))


@pytest.mark.parametrize(("total", "size", "rows", "noise"), [(4, 1, 2, 0.5), (20, 10, 15, 3.0), (100, 2, 30, 1.0)])
def test_more_rows_than_the_mean_batch(total, size, rows, noise):
    """All records of a person may be in one Poisson batch; the best test of one step, by its law."""
    run = NoisySGD(dataset_size=total, batch_size=size, num_steps=1, num_params=1, clip_norm=1.0, sampling="poisson")
    curve = account(run.with_noise_multiplier(noise), notion="gdp", rows_per_person=rows)
    j = np.arange(rows + 1)
    reached = stats.binom.pmf(j, rows, size / total) @ stats.norm.sf(stats.norm.isf(0.01) - j / noise)
    assert reached <= curve.tpr_at(0.01) <= reached + 1e-3


def test_membership_by_the_randomness_of_others():
    run = NoisySGD(dataset_size=300, batch_size=30, num_steps=30, num_params=5, sampling="poisson")
    curve = account(run, susceptibility=11.0, rows_per_person=3)
    assert curve.kind == "bound" and "a person with at most 3 records" in curve.for_whom
    # Simulated with equal records: .140 .332 .464, standard error .003.
    assert curve.tpr_at([0.01, 0.05, 0.1]) == pytest.approx([0.145, 0.336, 0.466], abs=6e-4)
    assert account(run, rows_per_person=3).kind == "forecast"
    quiet = account(run, attacker_knows=1.0, rows_per_person=3)  # who took part is found
    assert quiet.tpr_at(0.0) == pytest.approx(1.0 - 0.9**90, abs=1e-9)


def test_one_record_is_the_subsampled_gaussian():
    grid = Discrete(mixture_atoms(np.array([0.9, 0.1]), np.array([0.0, 2.0])))
    assert compose([(grid, 20)]).tpr_at(RATES) == pytest.approx(
        Gaussian(2.0).subsample(0.1).compose(20).tpr_at(RATES), abs=3e-5
    )
    full = account(RUN.replace(batch_size=10_000, sampling="full"), notion="gdp", rows_per_person=3)
    assert full.equivalent_mu() == pytest.approx(3 * math.sqrt(1000) * 2 * 100 / 10_000)


def test_calibration_and_refusals():
    run = RUN.replace(sampling="poisson", num_steps=50)
    target = PrivacyTarget(target_epsilon=2.0, delta=1e-5, notion="gdp", rows_per_person=4)
    assert PrivacyTarget.from_json(target.as_json()) == target
    found = calibrate(run, target)
    assert account(found, **target.whose).epsilon(1e-5) == pytest.approx(2.0, rel=1e-5)
    assert account(found, notion="gdp").epsilon(1e-5) == pytest.approx(2.0, rel=1e-5)  # the run says whom it is about
    cut = calibrate(run.replace(max_batch_size=200), target)
    assert account(cut, notion="gdp").epsilon(1e-5) == pytest.approx(2.0, rel=1e-5)
    assert found.noise_std > calibrate(run, target_epsilon=2.0, delta=1e-5, notion="gdp").noise_std
    for changed, options, words in (
        (run.replace(sampling="shuffled"), {}, "not for epochs"),
        (run, {"composition": "clt"}, "needs the tight bound"),
        (run, {"susceptibility": "any"}, "is about single records"),
        (run.replace(dataset_size=3, batch_size=1), {}, "must be less than dataset_size"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            account(changed, rows_per_person=4, **options)


def test_targets_and_commands_say_whom_they_are_about():
    target = PrivacyTarget(target_mu=1.0, rows_per_person=5)
    assert str(target) == "mu = 1 for persons with up to 5 records"
    assert str(PrivacyTarget(target_epsilon=1.0, delta=1e-5)) == "epsilon of membership = 1 at delta = 1e-05"
    way = alternatives(RUN.replace(sampling="poisson", num_steps=100), PrivacyTarget(target_mu=0.3, rows_per_person=2))
    commands = [alternative_command(one, way) for one in way.open]
    assert commands and all("--rows-per-person 2" in command for command in commands if command)
