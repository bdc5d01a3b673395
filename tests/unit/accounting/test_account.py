"""account: which curve comes out for which run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gmip.accounting.account import account, mu_per_step
from gmip.accounting.composition import clt_mu, stochastic_composition
from gmip.accounting.families import Gaussian
from gmip.accounting.gaussian_pair import ChiSquared
from gmip.accounting.step import _unknown_in_batch, corollary_mu
from gmip.errors import InvalidArgument
from gmip.vocabulary import NoisySGD

RATES = np.array([1.0e-6, 1.0e-4, 1.0e-2, 0.1, 0.5, 0.9, 0.99])
RUN = NoisySGD(dataset_size=1000, batch_size=100, num_steps=40, num_params=50, clip_norm=1.0, noise_std=0.02)
POISSON = RUN.replace(sampling="poisson")
SHUFFLED = RUN.replace(sampling="shuffled")
FULL = RUN.replace(batch_size=1000, sampling="full", num_steps=5, noise_std=0.005)
OPTIONS: list[dict[str, Any]] = [
    {"bound": bound, "composition": composition, "notion": notion}
    for bound in ("tight", "paper")
    for composition in ("exact", "clt")
    for notion in ("gmip", "gdp")
]


@pytest.mark.parametrize("run", [RUN, POISSON, FULL], ids=["fixed", "poisson", "full"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o.values()))
def test_two_halves_are_the_whole(run: NoisySGD, options: dict[str, Any]) -> None:
    first = run.num_steps // 3
    halves = [run.replace(num_steps=first), run.replace(num_steps=run.num_steps - first)]
    together, whole = account(halves, **options), account(run, **options)
    np.testing.assert_allclose(together(RATES), whole(RATES), rtol=0.0, atol=2.0e-5)
    np.testing.assert_array_equal(account([run], **options)(RATES), whole(RATES))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o.values()))
def test_more_steps_and_less_noise_hurt(options: dict[str, Any]) -> None:
    curve = account(RUN, **options)
    assert np.all(account(RUN.replace(num_steps=60), **options)(RATES) <= curve(RATES) + 1.0e-9)
    assert np.all(account(RUN.replace(noise_std=0.015), **options)(RATES) <= curve(RATES) + 1.0e-9)


@pytest.mark.parametrize("run", [RUN, POISSON, FULL], ids=["fixed", "poisson", "full"])
def test_one_susceptibility_in_an_array_is_a_number(run: NoisySGD) -> None:
    one, array = account(run, susceptibility=30.0), account(run, susceptibility=[30.0])
    np.testing.assert_array_equal(one(RATES), array(RATES))
    assert one.assumptions == array.assumptions
    np.testing.assert_array_equal(account(run, susceptibility=[30.0] * 7)(RATES), one(RATES))
    np.testing.assert_array_equal(account(run, susceptibility=50)(RATES), account(run)(RATES))


def test_more_susceptible_records_are_more_exposed() -> None:
    curves = [account(RUN, susceptibility=k)(RATES) for k in (5.0, 20.0, 80.0)]
    assert np.all(curves[0] >= curves[1]) and np.all(curves[1] >= curves[2])
    pooled = account(RUN, susceptibility=[5.0, 20.0, 80.0])
    assert np.all(pooled(RATES) >= curves[2] - 1.0e-9) and np.all(pooled(RATES) <= curves[0] + 1.0e-9)
    by_hand = stochastic_composition([account(RUN, susceptibility=k) for k in (5.0, 20.0, 80.0)])
    np.testing.assert_allclose(pooled(RATES), by_hand(RATES), rtol=0.0, atol=1.0e-12)


def test_differential_privacy_bounds_membership_privacy() -> None:
    # f-DP implies f-MIP: the membership curve is never lower, whatever the susceptibility.
    for run in (RUN, POISSON, FULL):
        dp = account(run, notion="gdp")
        for k in (1.0, 50.0, 1.0e7):
            assert np.all(account(run, susceptibility=k)(RATES) >= dp(RATES) - 1.0e-6)


def test_without_noise_there_is_no_differential_privacy() -> None:
    quiet = RUN.replace(noise_std=0.0)
    # whoever is in a batch is found: 1 - (1 - p)^T
    assert account(quiet, notion="gdp").tpr_at(0.0) == pytest.approx(1.0 - 0.9**40, abs=1.0e-9)
    assert account(quiet, notion="gdp", composition="clt").tpr_at(0.0) == 1.0
    assert account(FULL.replace(noise_std=0.0), notion="gdp").tpr_at(0.0) == 1.0
    assert account(quiet).advantage() < account(quiet, notion="gdp").advantage()


def test_one_full_batch_step_is_theorem_5_1() -> None:
    run = NoisySGD(dataset_size=500, batch_size=500, num_steps=1, num_params=650, sampling="full")
    np.testing.assert_allclose(
        account(run)(RATES), ChiSquared(dimension=650, susceptibility=650, batch_size=500)(RATES), rtol=1.0e-7
    )
    # about 1.14 by the corollary; five steps 2.54
    assert mu_per_step(run, bound="paper") == pytest.approx(math.sqrt(2 * 650 / 1001))
    five = account(run.replace(num_steps=5), bound="paper")
    assert isinstance(five, Gaussian) and five.mu == pytest.approx(2.548, abs=1.0e-3)


def test_paper_with_clt_is_the_papers_formula() -> None:
    n_eff = 100 + (0.02 * 100) ** 2
    mu_step = min(corollary_mu(num_params=50, susceptibility=50, effective_batch_size=n_eff), 2.0 / (100 * 0.02))
    curve = account(RUN, bound="paper", composition="clt")
    assert isinstance(curve, Gaussian)
    assert curve.mu == pytest.approx(clt_mu([(mu_step, 0.1, 40)]))
    assert mu_per_step(RUN, bound="paper") == pytest.approx(mu_step)


def test_differential_privacy_of_one_step() -> None:
    # replace-one: sensitivity 2C/n; add-or-remove-one: C/n
    assert mu_per_step(RUN, notion="gdp") == pytest.approx(2.0 / (100 * 0.02))
    assert mu_per_step(POISSON, notion="gdp") == pytest.approx(1.0 / (100 * 0.02))
    assert mu_per_step(RUN.replace(noise_std=0.0), notion="gdp") == math.inf
    assert account(FULL.replace(num_steps=1), notion="gdp").mu_at(0.1) == pytest.approx(2.0 / (1000 * 0.005))


def test_tight_is_never_above_the_noise_alone() -> None:
    for k in (0.5, 4.0, 50.0, 1.0e6):
        assert mu_per_step(RUN, susceptibility=k) <= mu_per_step(RUN, notion="gdp") * (1.0 + 1.0e-12)


def test_a_smaller_rank_helps() -> None:
    assert np.all(account(RUN.replace(rank=5))(RATES) >= account(RUN)(RATES) - 1.0e-9)


def test_the_differential_privacy_curve_is_symmetric() -> None:
    for run in (RUN, POISSON):
        curve = account(run, notion="gdp")
        np.testing.assert_allclose(curve(curve(RATES)), RATES, rtol=0.0, atol=1.0e-4)


def test_epsilon_of_a_schedule() -> None:
    # 12 steps each of a small run: an epsilon of 40 would come from rounding errors alone
    run = NoisySGD(dataset_size=60, batch_size=20, num_steps=12, num_params=10, clip_norm=1.0, noise_std=0.05)
    curve = account([run, run.replace(batch_size=30)], notion="gdp")
    assert curve.delta(curve.epsilon(0.01)) == pytest.approx(0.01, rel=1.0e-3)


def test_neighbours_are_never_mixed() -> None:
    with pytest.raises(InvalidArgument, match=r"'fixed' and 'poisson' batches.*replace-one, add-or-remove-one"):
        account([RUN, POISSON], notion="gdp")
    assert [account(r, notion="gdp").claim.adjacency for r in (RUN, POISSON, FULL)] == [
        "replace-one",
        "add-or-remove-one",
        "replace-one",
    ]


QUIET = NoisySGD(dataset_size=40, batch_size=10, num_steps=3, num_params=5, clip_norm=1.0)
NOISY = QUIET.with_noise_multiplier(4.0)


class TestClaims:
    def test_name_what_the_curve_rests_on(self) -> None:
        text = " ".join(account(RUN).assumptions)
        for words in ("sees every published mean gradient", "reused in every step", "not a bound", "fixed size"):
            assert words in text
        assert "central limit theorem for many small steps" in " ".join(account(RUN, composition="clt").assumptions)
        assert "Corollary 5.1" in " ".join(account(RUN, bound="paper").assumptions)
        assert "one record is replaced" in " ".join(account(RUN, notion="gdp").assumptions)
        assert "one record is added or removed" in " ".join(account(POISSON, notion="gdp").assumptions)
        assert "susceptibility at most 30" in " ".join(account(RUN, susceptibility=30).assumptions)
        assert "2 measured susceptibilities" in " ".join(account(RUN, susceptibility=[1.0, 2.0]).assumptions)

    @pytest.mark.parametrize(
        ("run", "options", "kind", "whom"),
        [
            (RUN, {}, "forecast", "a typical record"),
            (RUN, {"susceptibility": 30.0}, "bound", "a record of susceptibility at most 30"),
            (RUN, {"susceptibility": 30.0, "bound": "paper"}, "forecast", "at most 30"),
            (RUN, {"susceptibility": 30.0, "composition": "clt"}, "forecast", "at most 30"),
            (RUN, {"attacker_knows": 1.0}, "bound", "any record and an attacker who knows all other members"),
            (RUN, {"attacker_knows": 0.5}, "forecast", "knows 50% of the other members but not their batches"),
            (POISSON, {"attacker_knows": 1.0}, "bound", "any record and an attacker who knows all other members"),
            (RUN, {"notion": "gdp"}, "bound", "any record"),
            (RUN, {"notion": "gdp", "composition": "clt"}, "forecast", "any record"),
            (FULL, {"susceptibility": 30.0}, "bound", "at most 30"),
            ([RUN, FULL], {"susceptibility": 30.0}, "forecast", "at most 30"),
            (SHUFFLED, {"susceptibility": 30.0}, "forecast", "at most 30"),
            (SHUFFLED.replace(num_steps=10), {"susceptibility": 30.0}, "bound", "at most 30"),
            (SHUFFLED, {"notion": "gdp"}, "forecast", "any record"),
            # What is not proved: K against those of the others whom nobody gave away; exposure that follows from what
            # was published; records of one level where noise differs, or whose distance stays as their K does.
            (RUN, {"susceptibility": 30.0, "attacker_knows": 0.5}, "forecast", "at most 30"),
            (POISSON, {"susceptibility": 30.0, "attacker_knows": 0.5}, "bound", "at most 30"),
            (QUIET, {"susceptibility": "any"}, "forecast", "in a share of the steps"),
            (QUIET.replace(num_steps=1), {"susceptibility": "any"}, "bound", "a random record"),
            (NOISY.replace(num_steps=1), {"susceptibility": "any"}, "forecast", "a random record"),
            (NOISY.replace(num_steps=1), {"susceptibility": "any", "attacker_knows": 1.0}, "bound", "a random record"),
            (QUIET, {"susceptibility": "any-constant"}, "bound", "stays the same in all steps"),
            (NOISY, {"susceptibility": "any-constant"}, "forecast", "stays the same in all steps"),
            (NOISY, {"susceptibility": "any-constant", "attacker_knows": 1.0}, "bound", "equally far from the others"),
            (
                [NOISY, NOISY.with_noise_multiplier(9.0)],
                {"susceptibility": "any-constant", "attacker_knows": 1.0},
                "forecast",
                "equally far from the others",
            ),
            (NOISY.replace(sampling="poisson"), {"susceptibility": "any", "attacker_knows": 1.0}, "bound", "random"),
        ],
    )
    def test_bound_or_forecast_and_for_whom(self, run: Any, options: dict[str, Any], kind: str, whom: str) -> None:
        curve = account(run, **options)
        assert curve.kind == kind and whom in curve.for_whom

    def test_many_parameters_without_noise_can_be_decoded(self) -> None:
        quiet = RUN.replace(noise_std=0.0, num_params=1000)
        assert "could decode" in str(account(quiet).claim.caveat)
        assert "is not expected" in str(account(quiet.replace(num_params=2)).claim.caveat)


@pytest.mark.parametrize(
    ("run", "options", "match"),
    [
        ([], {}, "run"),
        (["x"], {}, "run"),
        (RUN, {"bound": "loose"}, "bound = 'loose'"),
        (RUN, {"composition": "rdp"}, "composition = 'rdp'"),
        (RUN, {"notion": "zcdp"}, "notion = 'zcdp'"),
        (RUN, {"susceptibility": 0.0}, "susceptibility"),
        (RUN, {"susceptibility": -1.0}, "susceptibility"),
        (RUN, {"susceptibility": []}, "susceptibility"),
        (RUN, {"susceptibility": [1.0, math.nan]}, "susceptibility"),
        (RUN, {"susceptibility": [[1.0, 2.0]]}, "susceptibility"),
        (RUN, {"susceptibility": "many"}, "susceptibility"),
    ],
)
def test_refusals(run: Any, options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        account(run, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"susceptibility": -1.0},
        {"bound": "loose"},
        {"notion": "zcdp"},
    ],
)
def test_mu_per_step_refuses_too(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        mu_per_step(RUN, **options)


def test_a_batch_of_one_with_hardly_any_noise() -> None:
    # The one record of a batch shows its gradient: found if it is drawn.
    run = NoisySGD(dataset_size=1000, batch_size=1, num_steps=10, num_params=1000, clip_norm=1.0, noise_std=1e-5)
    drawn = 1.0 - 0.999**10
    assert account(run).tpr_at(0.01) == pytest.approx(drawn + (1.0 - drawn) * 0.01, abs=1e-6)


def test_noise_that_a_float_can_hardly_hold() -> None:
    run = NoisySGD(dataset_size=100, batch_size=100, num_steps=2, num_params=3, clip_norm=1.0, noise_std=1e-250)
    for options in ({"attacker_knows": 1.0}, {"notion": "gdp"}):
        assert account(run, **options).tpr_at(1e-6) == 1.0


def test_a_little_noise_does_not_hurt() -> None:
    # In a few batches the attacker knows almost everybody: they must not decide which of two bounds is composed.
    run = NoisySGD(dataset_size=21_030, batch_size=12, num_steps=9, num_params=26, clip_norm=1.0)
    options: dict[str, Any] = {"susceptibility": 125.0, "attacker_knows": 0.3}
    quiet, noisy = account(run, **options), account(run.with_noise_multiplier(0.1), **options)
    assert np.all(noisy.tpr_at(RATES) <= quiet.tpr_at(RATES) + 1e-6)


def test_the_stated_error_is_the_curves_own() -> None:
    sentences = " ".join(account(RUN).assumptions)
    assert "`tpr_error`" in sentences and "1e-4" not in sentences


class TestFoundByTryingToBreakIt:
    def test_all_unknown_others_and_the_record_in_one_batch_is_certain(self) -> None:
        """A batch holds 9 unknown others; without the record a batch never holds 10 unknown ones."""
        from scipy.stats import hypergeom

        groups = _unknown_in_batch(900, 999, 9)
        certain = sum(p1 for p0, p1, _, _ in groups if p0 == 0.0)
        assert certain == pytest.approx(hypergeom.pmf(9, 999, 9, 899), rel=1.0e-9)
        assert sum(group[0] for group in groups) == pytest.approx(1.0)
        assert sum(group[1] for group in groups) == pytest.approx(1.0)
        run = NoisySGD(dataset_size=10, batch_size=7, num_steps=3, num_params=3)
        assert account(run, susceptibility=3.76, attacker_knows=0.5).tpr_at(0.01) >= 0.884  # simulated

    def test_shuffled_batches_that_leave_records_out_are_no_bound_for_chosen_data(self) -> None:
        """Others all equal to -x: .4 N(0) + .6 N(1) against .4 N(0) + .6 N(2) finds .0764 at 1%."""
        run = NoisySGD(
            dataset_size=100,
            batch_size=60,
            num_steps=1,
            num_params=5,
            clip_norm=1.0,
            sampling="shuffled",
            drop_last=True,
        ).with_noise_multiplier(1.0)
        assert account(run, notion="gdp").kind == "forecast"
        assert account(run.replace(num_steps=40), susceptibility=5.0).kind == "forecast"

    def test_nothing_is_left_to_cut(self) -> None:
        """A run in which everybody is found for certain, and whose batches are cut, once ended in a traceback."""
        sizes: dict[str, Any] = {"dataset_size": 20, "batch_size": 3, "num_steps": 14, "num_params": 1}
        bins = NoisySGD(**sizes, clip_norm=1.0, noise_std=0.003, sampling="balls-in-bins")
        curve = account([bins, bins.replace(sampling="poisson", max_batch_size=9)])
        assert curve.tpr_at(0.01) == 1.0

    def test_a_person_who_is_in_every_batch(self) -> None:
        """993 rows, each drawn with .862: no row in a batch is rarer than a double can say."""
        run = NoisySGD(dataset_size=1000, batch_size=862, num_steps=50, num_params=1, sampling="poisson")
        assert account(run, attacker_knows=1.0, rows_per_person=993).tpr_at(0.01) == 1.0

    def test_schedules_of_shuffled_epochs_are_forecasts(self) -> None:
        epoch = SHUFFLED.replace(num_steps=10)
        assert account(epoch, susceptibility=5.0).kind == "bound"
        assert account([epoch, epoch], susceptibility=5.0).kind == "forecast"
        assert account([epoch, RUN], susceptibility=5.0).kind == "forecast"

    def test_splitting_a_run_into_phases_changes_nothing_for_any_record(self) -> None:
        run = NoisySGD(dataset_size=100, batch_size=30, num_steps=2, num_params=5)
        whole = account(run, susceptibility="any")
        phases = account([run.replace(num_steps=1)] * 2, susceptibility="any")
        np.testing.assert_array_equal(whole(RATES), phases(RATES))
        two = account([run, run.replace(batch_size=20)], susceptibility="any")
        assert two.kind == "forecast" and two.tpr_error < 0.02  # shares of two phases are whole steps, too

    def test_any_record_is_not_found_for_certain_where_nobody_is(self) -> None:
        run = NoisySGD(dataset_size=1000, batch_size=100, num_steps=5, num_params=5)
        assert account(run, susceptibility="any").tpr_at(0.01) < account(run, attacker_knows=1.0).tpr_at(0.01) < 0.42


def test_the_mirror_image_of_a_curve_about_members_claims_nothing():
    full = NoisySGD(dataset_size=50, batch_size=50, num_steps=1, num_params=5, clip_norm=1.0, noise_std=1.0)
    some = full.replace(batch_size=5, num_steps=9)
    for run, options in (
        (full, {"attacker_knows": 1.0}),
        (full, {"susceptibility": 5.0}),
        (some, {"susceptibility": 5.0}),
    ):
        curve = account(run, **options)
        assert curve.kind == "bound"
        assert curve.inverse().kind == "forecast" and "nobody" in curve.inverse().for_whom
        assert curve.symmetrise().kind == "bound"
    both = account(some, notion="gdp")
    assert both.inverse().claim == both.claim
