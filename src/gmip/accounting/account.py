"""How exposed a training run is: `account` turns a run into the trade-off curve that any attacker faces."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip.accounting.composition import Composed, Maximum, clt_mu, compose
from gmip.accounting.families import Gaussian
from gmip.accounting.mechanism import NoisySGD
from gmip.accounting.step import Bound, gdp_mu_step, paper_mu_step, tight_step
from gmip.accounting.stochastic import group_susceptibilities
from gmip.accounting.tradeoff import DEFAULT_FPR_RANGE, TradeOff
from gmip.errors import InvalidArgument

__all__ = ["BOUNDS", "COMPOSITIONS", "NOTIONS", "Composition", "Notion", "account", "mu_per_step"]

Composition = Literal["exact", "clt"]
Notion = Literal["gmip", "gdp"]
BOUNDS: tuple[Bound, ...] = ("tight", "paper")
COMPOSITIONS: tuple[Composition, ...] = ("exact", "clt")
NOTIONS: tuple[Notion, ...] = ("gmip", "gdp")


def account(
    run: NoisySGD | Sequence[NoisySGD],
    *,
    susceptibility: float | ArrayLike | None = None,
    bound: Bound = "tight",
    composition: Composition = "exact",
    notion: Notion = "gmip",
) -> TradeOff:
    """The trade-off curve that any membership attacker faces against a training run.

    Parameters
    ----------
    run : what will run; a sequence of runs is a schedule, one after the other on the same data.
    susceptibility : K, the Mahalanobis norm (theta - mean)' Sigma^-1 (theta - mean) of a record's gradient. None takes
        num_params, the value of a typical record. An array of shape (n,) of measured values gives the stochastic
        composition over them; for a bound on every record pass the largest.
    bound : one step by "tight" (noise and data randomness added up, THEORY 7) or as in the "paper".
    composition : "exact" (loss distributions, pessimistic) or "clt" (the paper's Lemma 5.1).
    notion : "gmip", or "gdp" for differential privacy of the same run (replace-one neighbours for "fixed" and "full"
        sampling, add-or-remove-one for "poisson"); data randomness and susceptibility play no part in it.

    Returns
    -------
    A `TradeOff`; its `assumptions` say what the answer rests on.

    Guarantees
    ----------
    With bound="tight" and composition="exact" no attacker of the threat model does better than the curve against a
    record of susceptibility at most K, if batch means are Gaussian and each step faces fresh data. composition="clt" is
    a limit for many small steps and may be optimistic; bound="paper" approximates the chi-squared curve by a Gaussian.
    """
    given: object = run
    runs = [run] if isinstance(run, NoisySGD) else list(run) if isinstance(given, Sequence) else []
    if not runs or not all(isinstance(r, NoisySGD) for r in runs):
        raise InvalidArgument("run must be a NoisySGD or a non-empty sequence of them.")
    check.one_of("bound", bound, BOUNDS)
    check.one_of("composition", composition, COMPOSITIONS)
    check.one_of("notion", notion, NOTIONS)
    runs = [_without_order(r) if r.sampling == "shuffled" else r for r in runs]
    if notion == "gdp":
        curve = _gdp(runs, composition)
        curve.assumptions = tuple(_gdp_sentences(runs, composition))
        return curve
    if susceptibility is None:
        values, weights = np.array([math.nan]), np.ones(1)  # each run's own num_params
    else:
        values, weights = group_susceptibilities(check.susceptibilities(susceptibility))
    if values.size == 1:
        curve = _gmip(runs, values[0], bound, composition)
    else:
        curve = Composed(
            [
                (float(w), _gmip(runs, float(k), bound, composition)._parts())
                for k, w in zip(values, weights, strict=True)
            ]
        )
    curve.assumptions = tuple(_gmip_sentences(runs, susceptibility, bound, composition))
    return curve


def _without_order(run: NoisySGD) -> NoisySGD:
    """Shuffled epochs, on the safe side: to one who knows the order an epoch is one step on the record's batch."""
    sizes = dataclasses.asdict(run)
    del sizes["sampling"]
    return NoisySGD.shuffled(**sizes)


def mu_per_step(
    run: NoisySGD, *, susceptibility: float | None = None, bound: Bound = "tight", notion: Notion = "gmip"
) -> float:
    """The mu of one step for a record that takes part in it: mu_step of the paper, sqrt(2 KL) of the tight step,
    mu_DP."""
    check.one_of("bound", bound, BOUNDS)
    check.one_of("notion", notion, NOTIONS)
    if notion == "gdp":
        return gdp_mu_step(run)
    return _mu_step(
        run, run.num_params if susceptibility is None else check.positive("susceptibility", susceptibility), bound
    )


def _mu_step(run: NoisySGD, susceptibility: float, bound: Bound) -> float:
    if bound == "paper":
        return paper_mu_step(run, susceptibility)
    return min(math.sqrt(tight_step(run, susceptibility).divergence), gdp_mu_step(run))


def _gmip(runs: Sequence[NoisySGD], susceptibility: float, bound: Bound, composition: Composition) -> TradeOff:
    ks = [float(r.num_params) if math.isnan(susceptibility) else susceptibility for r in runs]
    if composition == "clt":
        mus = [_mu_step(r, k, bound) for r, k in zip(runs, ks, strict=True)]
        return Gaussian(clt_mu([(mu, r.sample_rate, r.num_steps) for r, mu in zip(runs, mus, strict=True)]))
    if bound == "paper":
        return _exact(runs, [Gaussian(paper_mu_step(r, k)) for r, k in zip(runs, ks, strict=True)])
    tight = [tight_step(r, k) for r, k in zip(runs, ks, strict=True)]
    if all(isinstance(step, Gaussian) for step in tight):  # Poisson batches: mu <= mu_DP already
        return _exact(runs, tight)
    # Differential privacy bounds membership inference too; it wins where data randomness is negligible. Both are
    # composed only where they are close, so that the better of the two is smooth in the run.
    noise = [Gaussian(gdp_mu_step(r)) for r in runs]
    ours, theirs = (
        sum(r.num_steps * step.divergence for r, step in zip(runs, steps, strict=True)) for steps in (tight, noise)
    )
    if ours < 0.8 * theirs:
        return _exact(runs, tight)
    if ours > 1.25 * theirs:
        return _exact(runs, noise)
    return Maximum([_exact(runs, tight), _exact(runs, noise)])


def _exact(runs: Sequence[NoisySGD], steps: Sequence[TradeOff]) -> TradeOff:
    return compose([(step.subsample(r.sample_rate), r.num_steps) for r, step in zip(runs, steps, strict=True)])


def _gdp(runs: Sequence[NoisySGD], composition: Composition) -> TradeOff:
    mus = [gdp_mu_step(r) for r in runs]  # infinite without noise: then only the sampling hides a record
    if composition == "clt":
        return Gaussian(clt_mu([(mu, r.sample_rate, r.num_steps) for r, mu in zip(runs, mus, strict=True)]))
    steps = []
    for r, mu in zip(runs, mus, strict=True):
        step = Gaussian(mu).subsample(r.sample_rate)
        steps.append((step if r.sampling == "poisson" else step.symmetrise(), r.num_steps))
    curve = compose(steps)
    # Under Poisson sampling "add" and "remove" are two one-sided tests; the composed one and its mirror cover both.
    return curve.symmetrise() if any(r.sampling == "poisson" for r in runs) else curve


# -- what it rests on -------------------------------------------------------------------------------------------------


_SAMPLING = {
    "fixed": "Each step draws a batch of fixed size without replacement, anew and independently of the other steps; "
    "shuffled epochs are not covered.",
    "poisson": "Each step draws every record on its own with the same probability and divides by the expected batch "
    "size.",
    "full": "Every record takes part in every step.",
}


def _common_sentences(runs: Sequence[NoisySGD], composition: Composition) -> list[str]:
    sentences = [_SAMPLING[s] for s in dict.fromkeys(r.sampling for r in runs)]
    if composition == "clt":
        sentences.append(
            "Steps are composed by a central limit theorem for many small steps: an approximation that can be "
            "optimistic."
        )
    else:
        sentences.append(
            "Steps are composed exactly, on a grid that errs on the attacker's side (TPR by less than 1e-4)."
        )
    low, high = DEFAULT_FPR_RANGE
    sentences.append(
        "The equivalent mu is the smallest whose Gaussian curve holds at every false-positive rate from "
        f"{low:g} to 1 - {1 - high:.0e}."
    )
    return sentences


def _gmip_sentences(
    runs: Sequence[NoisySGD], susceptibility: float | ArrayLike | None, bound: Bound, composition: Composition
) -> list[str]:
    sentences = [
        "Threat model: the attacker sees every published mean gradient, cannot poison the data, and asks about a "
        "record drawn from the data distribution.",
        "Batch means are taken to be Gaussian (central limit theorem): an approximation for small batches and heavy "
        "tails.",
    ]
    if susceptibility is None:
        sentences.append(
            "Susceptibility K = num_params is that of a typical record, not a bound: measure K to cover the exposed "
            "ones."
        )
    elif np.size(np.asarray(susceptibility)) == 1:
        sentences.append(f"The curve bounds records of susceptibility at most {float(np.ravel(susceptibility)[0]):g}.")
    else:
        values: NDArray[np.float64] = np.asarray(susceptibility, dtype=np.float64)
        sentences.append(
            f"Stochastic composition over {values.size} measured susceptibilities (mean {values.mean():.4g}, largest "
            f"{values.max():.4g}): the curve of a random record, not of the most exposed one."
        )
    if sum(r.num_steps for r in runs) > 1:
        sentences.append(
            "Each step is taken to face fresh data; a run reuses its records, so the composed curve is a forecast and "
            "a single record can exceed it. Only added noise composes without this assumption."
        )
    if bound == "paper":
        sentences.append("One step follows the paper's Corollary 5.1, a Gaussian approximation for many parameters.")
    sentences.append("Membership-inference privacy is weaker than differential privacy, which also covers chosen data.")
    return sentences + _common_sentences(runs, composition)


def _gdp_sentences(runs: Sequence[NoisySGD], composition: Composition) -> list[str]:
    neighbours = {"poisson": "add or remove one record", "fixed": "replace one record", "full": "replace one record"}
    kinds = dict.fromkeys(neighbours[r.sampling] for r in runs)
    return [
        f"Differential privacy for neighbours that {' or '.join(kinds)}: it holds for any data and any attacker who "
        "sees every published mean gradient.",
        *_common_sentences(runs, composition),
    ]
