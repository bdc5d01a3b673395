from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri, owens_t
from scipy.stats import beta, binom, hypergeom

from gmip.accounting.families import EpsilonDelta, Gaussian
from gmip.errors import InvalidArgument, UnreachableTarget
from gmip.stats._rank_tests import (
    EpsilonFamily,
    GaussianFamily,
    chord,
    crossing_probability,
    expected_losses,
    largest_rejected,
    level_at,
    one_run_design,
    threshold_bound,
    tpr_upper,
)
from gmip.stats.bounds import (
    METHODS,
    Guesses,
    _refuted,
    candidates_needed,
    claim_p_value,
    epsilon_lower_bound,
    guess,
    mu_lower_bound,
    refuted_parameter,
    tpr_lower_bound,
)
from gmip.stats.scores import RunScores, pool


def gaussian_run(mu, members, non_members, seed=0):
    rng = np.random.default_rng(seed)
    return RunScores(rng.normal(mu, 1.0, members), rng.normal(0.0, 1.0, non_members))


def gaussian(mu):
    return lambda rates: GaussianFamily().fnr(mu, rates)


# -- the pieces, against independent computations -------------------------------------------------------------------


@pytest.mark.parametrize("parameter", [0.0, 0.3, 1.0, 4.0])
def test_families_are_the_accountants_curves(parameter):
    rates = np.array([1e-4, 0.01, 0.2, 0.5, 0.9])
    pairs = (
        (GaussianFamily(), Gaussian(parameter)),
        (EpsilonFamily(1e-2), EpsilonDelta(parameter, 1e-2)),
    )
    for family, curve in pairs:
        np.testing.assert_allclose(family.fnr(parameter, rates), curve(rates), atol=1e-12)
        reached = family.fnr(parameter, rates)
        inside = reached > 0.0
        np.testing.assert_allclose(family.parameter(rates[inside], reached[inside]), parameter, atol=1e-9)


@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0, 4.0])
def test_moments_of_the_rank_sum_in_closed_form(mu):
    """P(two members lose to one non-member) for Gaussian scores is a bivariate normal probability (Owen 1956)."""
    n1, n0, h = 7, 11, -mu / math.sqrt(2.0)
    theta = ndtr(h)
    shared = theta - 2.0 * owens_t(h, 1.0 / math.sqrt(3.0)) - theta**2
    mean, variance = expected_losses(gaussian(mu), one_run_design(n1, n0))
    assert mean == pytest.approx(theta, rel=1e-9)
    expected = (theta * (1 - theta) + (n1 + n0 - 2) * shared) / (n1 * n0)
    assert variance == pytest.approx(expected, rel=1e-7)
    if mu == 0.0:
        assert variance == pytest.approx((n1 + n0 + 1) / (12 * n1 * n0), rel=1e-9)


@pytest.mark.parametrize(("n1", "n0", "rank", "above"), [(20, 20, 2, 5), (500, 30, 1, 40), (30, 500, 50, 6)])
def test_order_statistics_under_the_null_are_hypergeometric(n1, n0, rank, above):
    """c members above the j-th non-member: c of the c + j - 1 highest are members, or more."""
    expected = hypergeom.sf(above - 1, n1 + n0, n1, above + rank - 1)
    assert crossing_probability(above, n1, rank, n0, gaussian(0.0)) == pytest.approx(expected, rel=1e-6)


def test_order_statistics_under_mu_by_quadrature():
    fpr = np.linspace(0.0, 1.0, 200_001)[1:-1]
    expected = np.mean(beta.pdf(fpr, 3, 98) * binom.sf(24, 60, ndtr(ndtri(fpr) + 1.5)))
    assert crossing_probability(25, 60, 3, 100, gaussian(1.5)) == pytest.approx(expected, rel=1e-4)


def test_level_counts_members_above_an_order_statistic():
    run = RunScores([5.0, 3.5, 2.5, -1.0], [4.0, 3.0, 2.0, 1.0, 0.0])
    assert [level_at(pool(run).untied(0), rank).above for rank in (1, 2, 3, 5)] == [1, 2, 3, 3]


def test_largest_rejected():
    assert largest_rejected(lambda x: x / 100.0, 0.05) == pytest.approx(5.0, abs=1e-7)
    assert largest_rejected(lambda x: 0.06 + x, 0.05) == 0.0
    assert largest_rejected(lambda x: x / 100.0, 0.05, start=7.0) == 7.0


def test_one_run_recursion_as_the_paper_writes_it():
    """arXiv 2410.22235, in scalars, with f_bar^-1(r) = Phi(Phi^-1(r) - mu)."""

    def refuted(correct, made, m, mu, tau):
        r, h = tau * correct / m, tau * (made - correct) / m
        for i in range(correct, 0, -1):
            grown = max(h, ndtr(ndtri(min(r, 1.0)) - mu))
            r, h = r + (i - 1) / (made - i + 1) * (grown - h), grown
        return r + h > made / m

    grid = np.linspace(0.0, 3.0, 31)
    for correct, made, m in ((40, 50, 400), (60, 100, 100), (9, 10, 1000)):
        got = _refuted(Guesses(correct, made, m), GaussianFamily(), grid, 0.05)
        assert got.tolist() == [refuted(correct, made, m, mu, 0.05) for mu in grid]
        bound = refuted_parameter(Guesses(correct, made, m), GaussianFamily(), 0.05)
        assert refuted(correct, made, m, bound, 0.05) or bound == 0.0
        assert not refuted(correct, made, m, bound + 1e-3, 0.05)


@pytest.mark.parametrize("mu", [0.0, 0.5, 1.5])
def test_one_run_never_refutes_independent_guesses_that_mu_allows(mu):
    """Randomised response on the balanced threshold: right with probability Phi(mu/2), independently."""
    m = 200
    for correct in range(100, 201, 5):
        if binom.sf(correct - 1, m, ndtr(mu / 2)) > 0.05:
            assert not _refuted(Guesses(correct, m, m), GaussianFamily(), np.array([mu]), 0.05)[0]


@pytest.mark.parametrize("half", [2, 3, 4, 10])
@pytest.mark.parametrize("alpha", [0.01, 0.03, 0.1])
def test_one_run_counts_fixed_halves_as_no_more_than_coins(half, alpha):
    """With every candidate guessed on noise, half of the right answers are hypergeometric: enumerate them."""
    for top in range(half + 1):
        scores = np.arange(2 * half)
        member = np.isin(scores, np.concatenate([scores[half : half + top], scores[: half - top]]))
        guesses = guess(pool(RunScores(scores[member], scores[~member])).untied(0), np.random.default_rng(0))
        assert guesses.made == guesses.candidates == 2 * half
        if hypergeom.sf(top - 1, 2 * half, half, half) > alpha:
            assert refuted_parameter(guesses, GaussianFamily(), alpha) == 0.0


def test_the_threshold_is_judged_on_the_other_half():
    """Five of 11 candidates choose and 6 judge; all of them are told apart."""
    found = threshold_bound(pool(RunScores(np.ones(11), np.zeros(11))), GaussianFamily(), 0.1, 0)
    assert found == pytest.approx(2.0 * ndtri(0.05 ** (1 / 6)))  # of either rate


def test_places_in_runs_of_the_same_share_of_members():
    runs = [gaussian_run(0.0, 10, 400, seed=1), gaussian_run(0.0, 200, 20, seed=2)]
    pooled = pool(runs, same_scale=False).comparable(0)
    assert pooled.same_scale and pooled.num_runs == 2
    counts = [np.bincount(group) for group in (pooled.member_run, pooled.non_member_run)]
    np.testing.assert_allclose(counts[0] / counts[1], 0.5, rtol=0.05)
    assert min(pooled.members.min(), pooled.non_members.min()) > 0.0
    assert max(pooled.members.max(), pooled.non_members.max()) < 1.0
    # Non-members fill the places 1, 2, ... of their run once each.
    last = np.sort(pooled.non_members[pooled.non_member_run == 1]) * counts[1][1]
    assert np.floor(last).tolist() == list(range(counts[1][1]))


def test_chord_and_upper_bound_of_the_tpr():
    rates = np.array([0.001, 0.01, 0.02, 0.5])
    np.testing.assert_allclose(1.0 - chord(0.1, 0.01)(rates), [0.1, 0.1, 0.2, 1.0])
    scores = pool(gaussian_run(1.0, 1000, 1000)).untied(0)
    assert 0.0924 < tpr_upper(scores, 0.01, 0.025) < tpr_upper(scores, 0.01, 0.001) < 0.25
    assert tpr_upper(pool(gaussian_run(1.0, 1000, 5)).untied(0), 0.5, 1e-6) == 1.0


# -- the bounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "low"), [("auto", 0.9), ("gaussian-sum", 0.9), ("levels", 0.8), ("threshold", 0.6), ("one-run", 0.55)]
)
def test_bounds_on_mu_of_gaussian_scores(method, low):
    bound = mu_lower_bound(gaussian_run(1.0, 2000, 2000), method=method)
    assert low < bound < 1.0
    stricter = mu_lower_bound(gaussian_run(1.0, 2000, 2000), method=method, confidence=0.999)
    assert 0.0 < stricter < bound


@pytest.mark.parametrize("method", METHODS)
def test_only_the_order_of_the_scores_counts(method):
    run = gaussian_run(1.0, 150, 200)
    moved = RunScores(np.exp(run.members), np.exp(run.non_members))
    assert mu_lower_bound(run, method=method) == mu_lower_bound(moved, method=method)
    tied = RunScores(np.round(run.members), np.round(run.non_members))
    moved = RunScores(np.exp(tied.members), np.exp(tied.non_members))
    assert mu_lower_bound(tied, method=method) == mu_lower_bound(moved, method=method)
    assert tpr_lower_bound(tied, 0.1) == tpr_lower_bound(moved, 0.1)


def test_the_p_value_at_the_bound_is_the_error():
    run = gaussian_run(1.0, 300, 300)
    bound = mu_lower_bound(run, confidence=0.9)
    assert claim_p_value(run, Gaussian(bound)) == pytest.approx(0.1, rel=1e-4)
    assert claim_p_value(run, Gaussian(bound + 0.1)) > 0.1 > claim_p_value(run, Gaussian(bound - 0.1))


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_falls_with_delta(method):
    """The scores are 2-Gaussian; their epsilon at these deltas is the most that an honest bound can say."""
    run = gaussian_run(2.0, 1000, 1000)
    low, high = (epsilon_lower_bound(run, delta=delta, method=method) for delta in (1e-3, 0.0))
    assert 0.0 < low < high and low < Gaussian(2.0).epsilon(1e-3)


def test_claims_that_have_no_mu():
    run = gaussian_run(1.0, 2000, 2000)
    weak, strong = Gaussian(2.0).subsample(0.2), Gaussian(2.0).subsample(0.9)
    assert claim_p_value(run, weak) < 1e-6
    assert claim_p_value(run, strong) == 1.0
    assert claim_p_value(run, EpsilonDelta(0.5, 1e-5)) < 1e-6 < 0.5 < claim_p_value(run, EpsilonDelta(6.0, 0.01))


def test_epsilon_bound_is_shape_free():
    """Randomised response: members answer 1 with probability 0.9, others with 0.1. epsilon is log 9, at delta = 0."""
    members, others = np.repeat([1.0, 0.0], [1800, 200]), np.repeat([1.0, 0.0], [200, 1800])
    bound = epsilon_lower_bound(RunScores(members, others), delta=0.0)
    assert 0.8 * math.log(9.0) < bound < math.log(9.0)
    split = epsilon_lower_bound(RunScores(members, others), delta=0.0, method="threshold")
    assert 0.8 * math.log(9.0) < split < math.log(9.0)
    assert epsilon_lower_bound(RunScores(members, others), delta=0.85) == 0.0


def test_few_records_that_leak_much():
    rng = np.random.default_rng(0)
    members = rng.normal(0.0, 1.0, 2000)
    members[:100] += 6.0
    run = RunScores(members, rng.normal(0.0, 1.0, 2000))
    assert mu_lower_bound(run, method="gaussian-sum") < 0.2
    best = mu_lower_bound(run)
    assert best > 0.9


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sizes", [(2, 2), (20, 20), (2, 500), (500, 2), (20, 3000)])
def test_few_or_uneven_candidates(method, sizes):
    bound = mu_lower_bound(gaussian_run(1.0, *sizes), method=method)
    assert 0.0 <= bound < 1.0


@pytest.mark.parametrize("method", METHODS)
def test_perfect_constant_and_reversed_scores(method):
    perfect = mu_lower_bound(RunScores(np.ones(200), np.zeros(200)), method=method)
    assert (0.5 if method == "one-run" else 1.5) < perfect < 7.0
    assert mu_lower_bound(RunScores(np.zeros(200), np.zeros(200)), method=method) == 0.0
    assert mu_lower_bound(RunScores(np.zeros(200), np.ones(200)), method=method) == 0.0


def test_more_runs_say_more_and_runs_that_differ_say_less():
    runs = [gaussian_run(1.0, 200, 200, seed=k) for k in range(8)]
    one, all_runs = mu_lower_bound(runs[0]), mu_lower_bound(runs)
    assert one < all_runs < 1.0
    rng = np.random.default_rng(1)
    uneven = [gaussian_run(shift, 200, 200, seed=k) for k, shift in enumerate(rng.normal(1.0, 0.8, 8))]
    merged = RunScores(np.concatenate([r.members for r in uneven]), np.concatenate([r.non_members for r in uneven]))
    assert mu_lower_bound(uneven) < mu_lower_bound(merged) - 0.2
    assert tpr_lower_bound(uneven, 0.1) < tpr_lower_bound(merged, 0.1) - 0.03


def test_a_single_run_and_a_list_of_it_are_the_same():
    run = gaussian_run(1.0, 100, 100)
    assert mu_lower_bound(run) == mu_lower_bound([run]) == mu_lower_bound(pool([run], same_scale=False))


@pytest.mark.parametrize("method", METHODS)
def test_runs_on_their_own_scales(method):
    """Pooled as they are, a run that scores high as a whole and holds more members looks like leakage."""
    rng = np.random.default_rng(2)
    low = RunScores(rng.normal(0.0, 1.0, 100), rng.normal(0.0, 1.0, 900))
    high = RunScores(rng.normal(9.0, 1.0, 900), rng.normal(9.0, 1.0, 100))
    assert mu_lower_bound([low, high], method=method) > 0.5
    assert mu_lower_bound(pool([low, high], same_scale=False), method=method) == 0.0
    runs = [gaussian_run(1.0, 300, 300, seed=k) for k in range(4)]
    moved = [RunScores(np.exp(k * r.members), np.exp(k * r.non_members)) for k, r in enumerate(runs, start=1)]
    apart = mu_lower_bound(pool(moved, same_scale=False), method=method)
    assert apart == mu_lower_bound(pool(runs, same_scale=False), method=method)
    assert 0.0 < apart < 1.0


def test_tpr_lower_bound():
    run = gaussian_run(2.0, 3000, 3000)
    truth = float(ndtr(ndtri(0.01) + 2.0))
    bound = tpr_lower_bound(run, 0.01)
    assert 0.6 * truth < bound < truth
    assert tpr_lower_bound(run, 0.01, confidence=0.999) < bound
    assert tpr_lower_bound(run, 0.1) > bound
    # Coins between two thresholds: 80% of members and 10% of non-members score 1, so 8% are found at 1%.
    coins = RunScores(np.repeat([1.0, 0.0], [1600, 400]), np.repeat([1.0, 0.0], [200, 1800]))
    assert 0.03 < tpr_lower_bound(coins, 0.01) < 0.08
    assert tpr_lower_bound(gaussian_run(0.0, 20, 20), 0.001) < 0.01


# -- how many candidates --------------------------------------------------------------------------------------------


def test_candidates_needed_for_mu():
    """Against mu = 0 the statistic is normal with variance about 1/(6n): 1.75 + 0.84 deviations must fit."""
    by_hand = ((1.7507 + 0.8416) / (ndtr(0.3 / math.sqrt(2.0)) - 0.5)) ** 2 / 6.0
    assert candidates_needed(claimed=0.0, actual=0.3) == pytest.approx(by_hand, rel=0.03)
    assert candidates_needed(claimed=1.0, actual=1.5) < candidates_needed(claimed=1.0, actual=1.1)
    assert candidates_needed(claimed=1.0, actual=1.1, power=0.95) > candidates_needed(claimed=1.0, actual=1.1)
    assert candidates_needed(claimed=0.0, actual=5.0) <= 6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: mu_lower_bound(run, confidence=0.0), "confidence = 0.0"),
        (lambda run: mu_lower_bound(run, confidence=math.nan), "confidence is NaN"),
        (lambda run: mu_lower_bound(run, method="best"), "method = 'best'"),
        (lambda run: mu_lower_bound(run, seed=0.5), "seed = 0.5"),
        (lambda run: mu_lower_bound([]), "runs is empty"),
        (lambda run: mu_lower_bound(run.members), "runs must be RunScores"),
        (lambda run: mu_lower_bound(RunScores([1.0], [0.0])), "at least 2"),
        (lambda run: epsilon_lower_bound(run, delta=1.0), "delta = 1.0"),
        (lambda run: tpr_lower_bound(run, 0.0), "fpr = 0.0"),
        (lambda run: tpr_lower_bound(run, 0.01, confidence=1.5), "confidence = 1.5"),
        (lambda run: claim_p_value(run, 1.0), "curve must be a TradeOff"),
        (lambda run: candidates_needed(claimed=1.0, actual=1.0), "actual = 1.0 must exceed"),
        (lambda run: candidates_needed(claimed=0.1, actual=0.5, power=1.0), "power = 1.0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InvalidArgument, match=words) as raised:
        call(gaussian_run(0.0, 10, 10))
    assert "\n" not in str(raised.value)


def test_a_claim_too_close_to_the_truth():
    with pytest.raises(UnreachableTarget, match="too close"):
        candidates_needed(claimed=1.0, actual=1.00001)
