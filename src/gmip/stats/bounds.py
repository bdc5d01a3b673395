"""Lower confidence bounds on what an attack reached: mu, epsilon, the TPR at a false-positive rate.

Every bound depends on the order of the scores only. What is proved, under which assumption, and what was checked by
simulation, is in docs/theory/audit-bounds.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from gmip import _validate as check
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument
from gmip.stats._families import EpsilonFamily, Family, GaussianFamily, largest_rejected
from gmip.stats._one_run import one_run_bound
from gmip.stats._pooled_scores import Pooled, RunScores, checked_seed, pool
from gmip.stats._power import candidates_needed
from gmip.stats._rank_tests import SUM_SHARE, Level, RankSum, level_at, rank_sum
from gmip.stats._rates import tpr_lower, tpr_spread
from gmip.stats._threshold import threshold_bound

__all__ = [
    "METHODS",
    "EpsilonBound",
    "MuBound",
    "candidates_needed",
    "claim_p_value",
    "epsilon_lower_bound",
    "mu_lower_bound",
    "tpr_lower_bound",
]

Runs = RunScores | Sequence[RunScores] | Pooled
# From all scores, a family of curves, the error and a seed: a lower bound on the parameter, and a sentence on what it
# rests on.
Bound = Callable[[Pooled, Family, float, int], tuple[float, str]]

# False-positive rates at which "levels" looks: those that reports quote.
_RATES = (0.001, 0.01, 0.1)


@dataclass(frozen=True, kw_only=True)
class MuBound:
    """With probability `confidence`, no mu below this bounds the attack: some point of its curve is below g_mu.

    evidence : the observation that the bound rests on, as a sentence.
    """

    mu: float
    method: str
    confidence: float
    evidence: str


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """With probability `confidence`, the attack refutes (e, delta) for every e below `epsilon`."""

    epsilon: float
    delta: float
    method: str
    confidence: float
    evidence: str


def mu_lower_bound(
    runs: Runs, *, confidence: float = 0.95, method: str = "auto", same_scale: bool = True, seed: int = 0
) -> MuBound:
    """Lower confidence bound on the mu of the attack that gave these scores, at least 0.

    Parameters
    ----------
    runs : the scores of one run or of several independent ones; `gmip.stats.pool` of them, for several bounds at less
        cost.
    method : "gaussian-sum": how many pairs of a member and a non-member are in the right order (Mann-Whitney), against
        what mu allows. The tightest when the scores are about Gaussian.
        "levels": how many members score above the 0.1%, 1% and 10% highest non-members. The tightest when few records
        leak much.
        "auto": the better of these two, the error split between them.
        "threshold": a threshold chosen on one half of the candidates, Clopper-Pearson bounds on the other.
        "one-run": right answers among guesses about the 5% highest and 5% lowest scores (arXiv 2410.22235).
    same_scale : whether scores of different runs can be compared. If not, the sum counts pairs within a run only, and
        elsewhere a score stands for its place among the non-members of its run. If so, membership must not go along
        with the run: runs that score high as a whole and hold more members look like leakage.
    seed : breaks ties, and draws the halves of "threshold" and the subset of "one-run".

    Guarantees
    ----------
    P(bound > mu) <= 1 - confidence whenever the trade-off function of the scores is at least g_mu and the scores are
    independent given the run: exactly for "levels" and "threshold", and for "gaussian-sum" up to the normal
    approximation of a sum over all candidates (tested down to 3 + 3 candidates). The members of one run share what it
    published; for the mean of Gaussian records this dependence makes the bounds safer. "one-run" is proved for
    dependent scores too, but for differential privacy, not f-MIP, and membership by fair coins. With runs on different
    scales only the sum is proved; the others were simulated.
    With fewer than 5 runs the statement is about the runs at hand. From 5 on, "gaussian-sum" and "levels" measure how
    much runs differ, and the statement is about the procedure that made them.
    """
    value, evidence = _bound(runs, GaussianFamily(), confidence, method, same_scale=same_scale, seed=seed)
    return MuBound(mu=value, method=method, confidence=float(confidence), evidence=evidence)


def epsilon_lower_bound(
    runs: Runs,
    *,
    delta: float,
    confidence: float = 0.95,
    method: str = "auto",
    same_scale: bool = True,
    seed: int = 0,
) -> EpsilonBound:
    """Lower confidence bound on the epsilon that goes with `delta`, at least 0; arguments as in `mu_lower_bound`.

    No shape is assumed: the bound says that (epsilon, delta) is refuted, which needs more candidates than refuting a
    Gaussian curve. "auto" is "levels" here: a sum over all pairs says little about epsilon. For the epsilon of a curve
    that is known to be Gaussian, convert the bound on mu with `gmip.accounting.convert.epsilon_from_mu`.

    Guarantees
    ----------
    As for `mu_lower_bound`, with the (epsilon, delta) trade-off function for g_mu.
    """
    family = EpsilonFamily(check.probability("delta", delta, open_high=True))
    used = "levels" if method == "auto" else method
    value, evidence = _bound(runs, family, confidence, used, same_scale=same_scale, seed=seed)
    return EpsilonBound(
        epsilon=value, delta=family.delta, method=method, confidence=float(confidence), evidence=evidence
    )


def tpr_lower_bound(
    runs: Runs, fpr: float, *, confidence: float = 0.95, same_scale: bool = True, seed: int = 0
) -> float:
    """Lower confidence bound on the TPR that an attacker with these scores reaches at the false-positive rate `fpr`.

    Guarantees
    ----------
    Exact for scores that are independent given the run: the threshold is a non-member's score, and that its true
    false-positive rate is not known enters the bound. The attacker may toss coins between thresholds (the ROC curve's
    hull). From 5 runs on, never above a t-interval over runs.
    """
    fpr = check.probability("fpr", fpr, open_low=True, open_high=True)
    error = _error(confidence)
    seed = checked_seed(seed)
    scores = pool(runs, same_scale=same_scale).comparable(seed).untied(seed)
    return tpr_lower(scores, fpr, error, float(tpr_spread(scores, np.array([fpr]))[0]))


def claim_p_value(runs: Runs, curve: TradeOff, *, same_scale: bool = True, seed: int = 0) -> float:
    """A p-value of the claim that the attack's trade-off function is at least `curve`: small refutes the claim.

    The tests of `mu_lower_bound(method="auto")`, at the same guarantees, with `curve` in the place of g_mu: for
    composed or measured curves, which have no single mu.
    """
    if not isinstance(curve, TradeOff):
        raise InvalidArgument(f"must be a TradeOff, not {type(curve).__name__}", argument="curve")
    tests = _rank_tests(pool(runs, same_scale=same_scale), "auto", checked_seed(seed))
    return min(1.0, min(test.p_value(curve.fnr_at) / share for test, share in tests))


def _error(confidence: float) -> float:
    return 1.0 - check.probability("confidence", confidence, open_low=True, open_high=True)


def _bound(
    runs: Runs, family: Family, confidence: float, method: str, *, same_scale: bool, seed: int
) -> tuple[float, str]:
    check.one_of("method", method, METHODS)
    alpha, seed = _error(confidence), checked_seed(seed)
    return _BOUNDS[method](pool(runs, same_scale=same_scale), family, alpha, seed)


def _rank_bound(method: str, scores: Pooled, family: Family, alpha: float, seed: int) -> tuple[float, str]:
    best, evidence = 0.0, ""
    for test, share in _rank_tests(scores, method, seed):

        def p_value(parameter: float, test: RankSum | Level = test) -> float:
            return test.p_value(lambda rates: family.fnr(parameter, rates))

        value = largest_rejected(p_value, alpha * share, start=best)
        if value > best or not evidence:
            best, evidence = value, _describe(test)
    return best, evidence


def _rank_tests(scores: Pooled, method: str, seed: int) -> list[tuple[RankSum | Level, float]]:
    """The tests of a method, each with its share of the error."""
    sum_share = {"auto": SUM_SHARE, "gaussian-sum": 1.0, "levels": 0.0}[method]
    tests: list[tuple[RankSum | Level, float]] = []
    if sum_share > 0.0:
        tests.append((rank_sum(scores), sum_share))
    if sum_share < 1.0:
        untied = scores.comparable(seed).untied(seed)
        size = untied.non_members.size
        ranks = sorted({max(1, round(rate * (size + 1))) for rate in _RATES})
        tests += [(level_at(untied, rank), (1.0 - sum_share) / len(ranks)) for rank in ranks]
    return tests


def _describe(test: RankSum | Level) -> str:
    if isinstance(test, RankSum):
        return f"AUC {1.0 - test.losses:.4g} of {test.members} members against {test.non_members} non-members"
    return f"{test.above} of {test.members} members score above number {test.rank} of {test.non_members} non-members"


# A new bound is a line here: audits compute it, and reports list it.
_BOUNDS: Final[dict[str, Bound]] = {
    **{method: partial(_rank_bound, method) for method in ("auto", "gaussian-sum", "levels")},
    "threshold": threshold_bound,
    "one-run": one_run_bound,
}
METHODS: Final = tuple(_BOUNDS)
