"""Conversions between noise conventions, between Gaussian DP and Gaussian MIP, from mu to (epsilon, delta), and from a
sample rate to whole sizes.

Three conventions for the same noise, each with its own argument name, so that none is mixed up:

    noise_std         tau    standard deviation of the noise on the batch MEAN
    noise_multiplier  s      Opacus: the noise on the batch SUM has standard deviation s * C, so tau = s * C / n
    dong_sigma        sigma  Dong et al.: the sensitivity 2 C / n of replace-one times sigma, so tau = 2 * C * sigma / n

with C the `clip_norm` and n the `batch_size`. All functions here take and return plain floats.

"Dong et al." is Dong, Roth and Su, "Gaussian Differential Privacy", JRSS B 84 (2022). The formulas are those
of docs/theory/conversions.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.special import erfcx, erfinv, log_ndtr, ndtr, ndtri

from gmip._validate import count, non_negative, number, one_of, positive, probability
from gmip.errors import InvalidArgument

_SENSITIVITY_IN_CLIP_NORMS: Final = {"replace-one": 2.0, "add-remove": 1.0}
# Sample rates are binary fractions (1/49 times 49 is not 1): what is that close to a whole number is one.
_HAIR: Final = 1.0 + 1.0e-12


# Noise conventions


def noise_std_from_multiplier(noise_multiplier: float, *, clip_norm: float, batch_size: int) -> float:
    """Noise on the batch mean (tau) for Opacus' noise multiplier s: tau = s C / n.

    Takes `noise_multiplier` (noise on the batch SUM in units of `clip_norm`), returns `noise_std` (noise on the batch
    MEAN). A unit conversion: no adjacency is involved.

    Guarantees
    ----------
    Exact up to rounding; the inverse of `noise_multiplier_from_std`.
    """
    s = non_negative("noise_multiplier", noise_multiplier)
    return s * (positive("clip_norm", clip_norm) / count("batch_size", batch_size))


def noise_multiplier_from_std(noise_std: float, *, clip_norm: float, batch_size: int) -> float:
    """Opacus' noise multiplier s for noise on the batch mean (tau): s = tau n / C.

    Takes `noise_std` (noise on the batch MEAN), returns `noise_multiplier` (noise on the batch SUM in units of
    `clip_norm`). A unit conversion: no adjacency is involved.

    Guarantees
    ----------
    Exact up to rounding; the inverse of `noise_std_from_multiplier`.
    """
    tau = non_negative("noise_std", noise_std)
    return tau / (positive("clip_norm", clip_norm) / count("batch_size", batch_size))


def dong_sigma_from_noise_std(noise_std: float, *, clip_norm: float, batch_size: int) -> float:
    """The sigma of Dong et al. for noise on the batch mean (tau): sigma = n tau / (2 C).

    Takes `noise_std` (noise on the batch MEAN), returns `dong_sigma` (noise in units of the sensitivity 2 C / n of the
    batch mean under replace-one).

    Guarantees
    ----------
    Exact up to rounding. One step with this noise is 1/dong_sigma-GDP under replace-one.
    """
    tau = non_negative("noise_std", noise_std)
    return tau / (2.0 * positive("clip_norm", clip_norm) / count("batch_size", batch_size))


# Gaussian DP and Gaussian MIP


def gdp_mu_per_step(noise_multiplier: float, *, adjacency: str) -> float:
    """GDP parameter of one full-batch step: 2 / s under "replace-one", 1 / s under "add-remove".

    Takes `noise_multiplier` (Opacus: noise on the batch SUM in units of `clip_norm`). Replacing one example moves the
    sum of clipped gradients by at most 2 C, adding or removing one by at most C. Dong et al., Theorem 1
    (the Gaussian mechanism is sensitivity/std-GDP).

    Guarantees
    ----------
    Differential privacy of one step, for the worst-case data set, with no gain from subsampling. A multiplier of 0 is
    no privacy: infinity. The two adjacencies are different guarantees, not two bounds on one quantity.
    """
    s = non_negative("noise_multiplier", noise_multiplier)
    sensitivity = _SENSITIVITY_IN_CLIP_NORMS[one_of("adjacency", adjacency, tuple(_SENSITIVITY_IN_CLIP_NORMS))]
    return sensitivity / s if s > 0.0 else math.inf


def gmip_mu_from_gdp_mu(gdp_mu: float, *, num_params: int, batch_size: int) -> float:
    """GMIP parameter of one step that is `gdp_mu`-GDP under replace-one (infinity: no noise).

    mu_MIP = min( sqrt(d / (n + 4/mu_DP^2 + 1/2)), mu_DP ), the paper's conversion corollary with 4 C^2 in place of 4
    corrected (docs/theory/errata.md, 5).

    Guarantees
    ----------
    One full-batch step of noisy SGD whose noise alone gives `gdp_mu` under replace-one, an example of susceptibility
    K = d, and the Gaussian approximation of the one-step curve. The second term of the minimum, mu_DP, needs none of
    this: f-DP implies f-MIP. K = d is a typical example, not a worst case (docs/theory/conversions.md, "From
    differential privacy to membership-inference privacy").
    """
    mu_dp = _extended_non_negative("gdp_mu", gdp_mu)
    d, n = count("num_params", num_params), count("batch_size", batch_size)
    if mu_dp == 0.0:
        return 0.0
    # sqrt(d / (n + 1/2 + (2/mu)^2)) without squaring mu, which could overflow.
    return min(math.sqrt(d) / math.hypot(math.sqrt(n + 0.5), 2.0 / mu_dp), mu_dp)


def gdp_mu_from_gmip_mu(gmip_mu: float, *, num_params: int, batch_size: int) -> float:
    """GDP parameter, under replace-one, of one step known to be `gmip_mu`-GMIP by `gmip_mu_from_gdp_mu`.

    mu_DP = max( 2 / sqrt(d/mu_MIP^2 - n - 1/2), mu_MIP ) if mu_MIP < sqrt(2d/(2n+1)), else infinity. The first term is
    the inverse of the first term of `gmip_mu_from_gdp_mu`. The maximum makes this the inverse of the minimum there:
    where that is mu_DP itself (d > 4 and mu_MIP^2 < (d-4)/(n+1/2)), the first term alone would claim more DP than the
    step has.

    Guarantees
    ----------
    The largest `gdp_mu` with gmip_mu_from_gdp_mu(gdp_mu) <= gmip_mu, up to rounding; same assumptions: one full-batch
    step, susceptibility K = d, the Gaussian approximation. Infinity says that the data's own randomness reaches
    `gmip_mu` without any noise, hence without any differential privacy.
    """
    return max(corollary_gdp_mu_from_gmip_mu(gmip_mu, num_params=num_params, batch_size=batch_size), gmip_mu)


def corollary_gdp_mu_from_gmip_mu(gmip_mu: float, *, num_params: int, batch_size: int) -> float:
    """The paper's corollary as it stands, corrected: 2 / sqrt(d/mu_MIP^2 - n - 1/2), infinity where no noise is needed.

    The mu_DP (replace-one) of the noise at which the bound from n_eff alone reaches `gmip_mu`.

    Guarantees
    ----------
    Enough noise for `gmip_mu` in the paper's approximation. Not the differential privacy of a step that is known to be
    `gmip_mu`-GMIP: for that see `gdp_mu_from_gmip_mu`.
    """
    mu_mip = _extended_non_negative("gmip_mu", gmip_mu)
    d, n = count("num_params", num_params), count("batch_size", batch_size)
    if mu_mip == 0.0:
        return 0.0
    wanted, had = math.sqrt(d) / mu_mip, math.sqrt(n + 0.5)
    if wanted <= had:
        return math.inf
    return 2.0 / (math.sqrt(wanted - had) * math.sqrt(wanted + had))


# mu-GDP and (epsilon, delta)


def delta_from_mu(mu: float, *, epsilon: float) -> float:
    """Smallest delta for which a mu-GDP mechanism is (epsilon, delta)-DP.

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2): Dong et al., Corollary 1. Takes no
    noise: `mu` carries its adjacency with it and delta holds for the same one. For a mu-GMIP curve it is the same dual
    of the trade-off curve, with "member or not" for "neighbouring data sets".

    Guarantees
    ----------
    Relative error below 1e-12 plus the conditioning of the formula, 1e-16 (epsilon/mu) (1 + |epsilon/mu - mu/2|), for
    mu from 1e-300 to 1e3; 0.0 where delta is below the smallest float. Neither an upper nor a lower bound on rounding.
    """
    mu = _extended_non_negative("mu", mu)
    epsilon = _extended_non_negative("epsilon", epsilon)
    if mu == 0.0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    return math.exp(_log_delta(mu, epsilon))


def epsilon_from_mu(mu: float, *, delta: float) -> float:
    """Smallest epsilon for which a mu-GDP mechanism is (epsilon, delta)-DP; 0.0 when delta >= delta(0).

    Inverts `delta_from_mu` (Dong et al., Corollary 1). Takes no noise: epsilon holds for the adjacency of `mu`.

    Guarantees
    ----------
    Found by bisection down to neighbouring floats between bounds that are proven, not guessed; the upper one is
    returned, so delta_from_mu(mu, epsilon=answer) <= delta up to the error stated there. Infinity when delta = 0 and
    mu > 0, or delta < 1 and mu is infinite or so large that epsilon overflows.
    """
    mu = _extended_non_negative("mu", mu)
    delta = probability("delta", delta)
    if mu == 0.0 or delta == 1.0:
        return 0.0
    if mu == math.inf or delta == 0.0:
        return math.inf
    log_delta = math.log(delta)
    if _log_delta(mu, 0.0) <= log_delta:
        return 0.0
    # delta(epsilon) < Phi(mu/2 - epsilon/mu), which is at most delta here; a hair more covers the rounding of ndtri.
    upper = mu * (0.5 * mu - float(ndtri(delta)) + 1e-9)
    if upper == math.inf:
        return math.inf
    return _bisect(lambda epsilon: _log_delta(mu, epsilon) > log_delta, 0.0, upper)[1]


def mu_from_epsilon_delta(*, epsilon: float, delta: float) -> float:
    """Largest mu for which every mu-GDP mechanism is (epsilon, delta)-DP.

    Inverts `delta_from_mu` (Dong et al., Corollary 1): the budget to calibrate noise to. It does not turn an
    (epsilon, delta)-DP guarantee into a GDP one: that does not hold. Takes no noise, keeps the adjacency.

    Guarantees
    ----------
    Found by bisection down to neighbouring floats; the lower one is returned, so delta_from_mu(answer, epsilon=epsilon)
    <= delta up to the error stated there. 0.0 when delta = 0 and epsilon is finite; infinity when delta = 1 or epsilon
    is infinite.
    """
    epsilon = _extended_non_negative("epsilon", epsilon)
    delta = probability("delta", delta)
    if epsilon == math.inf or delta == 1.0:
        return math.inf
    if delta == 0.0:
        return 0.0
    log_delta = math.log(delta)
    # delta(epsilon) <= delta(0) = erf(mu / (2 sqrt 2)); a hair less covers the rounding of erfinv.
    lower = 2.0 * math.sqrt(2.0) * float(erfinv(delta)) * (1.0 - 1e-9)
    upper = 2.0 * lower
    while _log_delta(upper, epsilon) <= log_delta:
        lower, upper = upper, 2.0 * upper
    return _bisect(lambda mu: _log_delta(mu, epsilon) <= log_delta, lower, upper)[0]


_LOG_SQRT_2PI: Final = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI: Final = math.sqrt(0.5 * math.pi)
# Gauss-Legendre on [0, 1]: exact to rounding for the entire function below on an interval no longer than _SMALL_MU.
_SYMMETRIC_NODES, _SYMMETRIC_WEIGHTS = np.polynomial.legendre.leggauss(16)
_NODES: Final = 0.5 * (_SYMMETRIC_NODES + 1.0)
_WEIGHTS: Final = 0.5 * _SYMMETRIC_WEIGHTS
_SMALL_MU: Final = 0.5


def _log_delta(mu: float, epsilon: float) -> float:
    """log delta(epsilon) for finite mu > 0 and epsilon >= 0; -inf where delta is below 1e-349, far below any float.

    With x = epsilon/mu - mu/2 and R the Mills ratio Phi(-x)/phi(x), e^epsilon phi(x + mu) = phi(x), hence
    delta = phi(x) [R(x) - R(x + mu)]: no large factor is left. For small mu the bracket cancels, so there
    R(x) - R(x + mu) is taken as the integral over [x, x + mu] of -R'(t) = 1 - t R(t), which is positive.
    """
    x = epsilon / mu - 0.5 * mu
    if x > 40.0:  # delta < Phi(-x)
        return -math.inf
    log_density = -0.5 * x * x - _LOG_SQRT_2PI
    if mu <= _SMALL_MU:
        t = x + mu * _NODES
        slope = 1.0 - t * (_SQRT_HALF_PI * erfcx(t * math.sqrt(0.5)))
        return log_density + math.log(mu) + math.log(float(_WEIGHTS @ slope))
    if x < 0.0:  # R(x) may overflow; Phi(-x) is between 1/2 and 1
        return float(log_ndtr(-x)) + math.log1p(-math.exp(log_density) * _mills_ratio(x + mu) / float(ndtr(-x)))
    return log_density + math.log(_mills_ratio(x) - _mills_ratio(x + mu))


def _mills_ratio(x: float) -> float:
    """Phi(-x) / phi(x)."""
    return _SQRT_HALF_PI * float(erfcx(x * math.sqrt(0.5)))


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The neighbouring floats between which `holds`, true at `low` and false at `high`, changes."""
    while True:
        # Halve the exponents first where the bracket spans orders of magnitude.
        middle = math.sqrt(low) * math.sqrt(high) if 0.0 < 2.0 * low < high else low + 0.5 * (high - low)
        if not low < middle < high:
            return low, high
        if holds(middle):
            low = middle
        else:
            high = middle


def _extended_non_negative(name: str, value: float) -> float:
    """0 or more, infinity included."""
    return math.inf if number(name, value) == math.inf else non_negative(name, value)


# Sizes of a run


def poisson_sizes(dataset_size: int, sample_rate: float, *, least_rate: float | None = None) -> tuple[int, int]:
    """Whole sizes (N', n') that are at most as private as N records, each drawn with probability q.

    One step depends on the rate p, to be rounded up, and on p (N - 1), the others expected beside a record, to be
    rounded down (Theorem 2 of docs/theory/one-step.md; where noise is in units of a record's part in the sum, the
    divisor of the mean plays no part). n' <= q N and N' <= n'/q do both: p' = n'/N' >= q, and p' (N' - 1) = n' - p' <=
    q N - q. Where q is known up to a least value, that one counts for n'.
    """
    batch = math.floor(dataset_size * (sample_rate if least_rate is None else least_rate) * _HAIR)
    if batch < 1:
        raise InvalidArgument(
            f"makes batches of less than one record at the recorded sample rate {sample_rate:.6g}",
            argument="dataset_size",
            value=dataset_size,
            remedy="check it",
        )
    return min(math.floor(batch / sample_rate * _HAIR), dataset_size), batch
