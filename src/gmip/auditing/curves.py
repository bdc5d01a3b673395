"""The curves that attacks are compared with: guarantees, forecasts, what somebody claims, what an attack expects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._curves import corners, thin_steps
from gmip._numbers import rate_key
from gmip.accounting.account import account
from gmip.accounting.claims import ADJACENCY
from gmip.accounting.families import EpsilonDelta, Gaussian
from gmip.accounting.individual import GradientNorms, mu_by_noise, mu_by_susceptibility
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.schema import ClaimedCurve, Curve, GivenClaim, IndividualMus, Origin, OwnBy, Standing
from gmip.errors import InvalidArgument
from gmip.stats import ExpectedRoc, ScoreSet
from gmip.vocabulary import Claim, Kind, NoisySGD, as_claim

Array = NDArray[np.float64]
GRID: Final[Array] = np.unique(
    np.concatenate([[0.0], np.geomspace(1.0e-6, 0.1, 51), np.linspace(0.1, 1.0, 46)])
)  # FPRs: a logarithmic part for the left, an even one for the rest
_GIVEN_CLAIM: Final = Claim("bound", "the attacker whom the claim is about")  # of a curve that somebody names
_MOST_POINTS: Final = 1500
_NO_LIMIT: Final = 0.999  # a TPR beyond which a curve excludes nothing
# Where an ROC of more points stays exact.
_KEPT_RATES: Final[Array] = np.concatenate(
    [np.linspace(0.0, 1.0, _MOST_POINTS // 2), np.geomspace(1.0e-6, 1.0, _MOST_POINTS // 2)]
)


def all_claims(
    runs: Sequence[NoisySGD],
    claimed: TradeOff,
    scores: Sequence[ScoreSet],
    *,
    given: bool = False,
    fprs: Sequence[float],
    listed: TradeOff | None = None,
    knows: float = 0.0,
    only_listed: bool = False,
) -> tuple[ClaimedCurve, ...]:
    """The claimed curve first; then what measured susceptibilities, noise alone and the attacks' expectation say.

    `given` : somebody said what is claimed; else the accountant did.
    `listed` : the curve for an attacker who holds a list with a share `knows` of the members, if one was tried. It
    comes first if `only_listed` were tried, because then the verdict is about it.
    `scores` : of one run, by each attack; the first that measured susceptibilities of the run, and the first that
    expects something of itself, are taken.
    """
    made = [
        given_claim(claimed, fprs) if given else claimed_curve("claimed", claimed, standing="approximation", fprs=fprs)
    ]
    if (measured := _measured(runs, scores)) is not None:
        curve = account(measured.runs, susceptibility=measured.values)
        made.append(claimed_curve("susceptibility", curve, standing="approximation", fprs=fprs))
    if listed is not None:
        to_list = _to_list(listed, knows, "given" if given and listed is claimed else "accountant", fprs)
        made.insert(0 if only_listed else len(made), to_list)
    if any(run.noise_std > 0.0 for run in runs) and len({ADJACENCY[run.sampling] for run in runs}) == 1:
        curve = account(list(runs), notion="gdp")
        made.append(
            claimed_curve("gdp", curve, standing="proved" if curve.kind == "bound" else "approximation", fprs=fprs)
        )
    expected = next((one.prediction for one in scores if one.prediction is not None), None)
    if expected is not None:
        made.append(predicted(expected, fprs))
    return tuple(made)


class _Measured(NamedTuple):
    """Susceptibilities of the records with these ids that an attack measured, and the runs that they are about."""

    runs: list[NoisySGD]
    ids: NDArray[np.int64]
    values: Array


def _measured(runs: Sequence[NoisySGD], scores: Sequence[ScoreSet]) -> _Measured | None:
    """None where none were measured, or none that can be accounted for."""
    found = next((one for one in scores if one.susceptibility_of is not None), None)
    if not runs or found is None or found.susceptibility is None or found.susceptibility.min() <= 0.0:
        return None
    stacked = found.susceptibility_of == "run" and len(runs) == 1
    return _Measured([stacked_run(run) if stacked else run for run in runs], found.ids, found.susceptibility)


def _to_list(listed: TradeOff, knows: float, origin: Origin, fprs: Sequence[float]) -> ClaimedCurve:
    proved = listed.kind == "bound" and knows == 1.0  # by noise alone: no sum is taken to be Gaussian
    standing: Standing = "proved" if proved and origin == "accountant" else "approximation"
    return claimed_curve("list", listed, origin=origin, standing=standing, fprs=fprs, knows=knows)


def given_curve(claim: Any) -> TradeOff | None:
    """What somebody claims: a curve, a mu, (epsilon, delta), or either as text, see `as_claim`; None: nothing."""
    claim = as_claim(claim)
    if claim is None or isinstance(claim, TradeOff):
        return claim
    if isinstance(claim, (tuple, list)):
        if len(claim) != 2:
            raise InvalidArgument("must be (epsilon, delta)", argument="claim", value=claim)
        curve: TradeOff = EpsilonDelta(*claim)
    else:
        curve = Gaussian(check.non_negative("claim", claim))
    curve.claim = _GIVEN_CLAIM
    return curve


def excludes_nothing(tpr: float) -> bool:
    """Whether a claimed TPR is so high that it excludes nothing."""
    return tpr > _NO_LIMIT


def given_claim(claim: TradeOff, fprs: Sequence[float]) -> ClaimedCurve:
    """What somebody who asked for an audit claims."""
    return claimed_curve("claimed", claim, origin="given", standing="given", fprs=fprs)


def listed_curve(runs: Sequence[NoisySGD], knows: float, claim: TradeOff | None = None) -> TradeOff | None:
    """What the accountant says of an attacker whose list has a share `knows` of the members; None: nothing is known.

    A `claim` of differential privacy is about attackers who know everybody else, so it is about this one, too.
    One in terms of mu is about an attacker who holds no list: there the accountant's word on the run counts.
    """
    if isinstance(claim, EpsilonDelta):
        return claim
    return account(list(runs), attacker_knows=knows) if runs else None


def stacked_run(run: NoisySGD) -> NoisySGD:
    """Several full-batch steps as one step on stacked gradients: T d entries, of a norm of at most sqrt(T) C.

    With the susceptibilities of stacked gradients this is the tighter composition of docs/theory/glir.md, "Several
    steps": the steps share their data, so they are not T independent looks at it.
    """
    clip = None if run.clip_norm is None else run.clip_norm * math.sqrt(run.num_steps)
    return run.replace(num_params=run.num_params * run.num_steps, num_steps=1, clip_norm=clip)


def claimed_curve(
    key: str,
    curve: TradeOff,
    *,
    origin: Origin = "accountant",
    standing: str,
    fprs: Sequence[float],
    knows: float | None = None,
) -> ClaimedCurve:
    """A trade-off as points."""
    mu = curve.equivalent_mu()
    return ClaimedCurve.model_validate(
        {
            "key": key,
            "origin": origin,
            "given": _numbers_of(curve) if origin == "given" else None,
            "knows": knows,
            "standing": standing,
            "curve": _points(GRID, curve.tpr_at(GRID)),
            "mu": _finite(mu),
            "auc": min(1.0, curve.auc()),
            "tpr_at": {rate_key(fpr): _share(curve.tpr_at(fpr)) for fpr in fprs},
            "assumptions": tuple(curve.assumptions),
            "kind": curve.kind,
            "for_whom": curve.for_whom,
            "caveat": curve.claim.caveat,
            "adjacency": curve.claim.adjacency,
        }
    )


def _numbers_of(claim: TradeOff) -> GivenClaim:
    if isinstance(claim, Gaussian):
        return GivenClaim(mu=claim.mu)
    if isinstance(claim, EpsilonDelta):
        return GivenClaim(epsilon=claim.epsilon_value, delta=claim.delta_value)
    return GivenClaim()


def predicted(expected: ExpectedRoc, fprs: Sequence[float]) -> ClaimedCurve:
    """The ROC that an attack expects of itself."""
    return ClaimedCurve(
        key="prediction",
        origin="attack",
        standing="measured",
        curve=roc_points(expected.fpr, expected.tpr),
        mu=None,
        auc=_share(expected.auc),
        tpr_at={rate_key(rate): _share(float(expected.tpr_at(rate))) for rate in fprs},
        kind="forecast",
        assumptions=("Simulated with background records: members are assumed to come from the same distribution.",),
    )


def roc_points(fpr: Array, tpr: Array) -> Curve:
    """An ROC of the result: all its points, or as many as a report can use."""
    if fpr.size > _MOST_POINTS:
        xs, ys = thin_steps(*corners(fpr, tpr), _KEPT_RATES)
        fpr, tpr = np.append(0.0, xs), np.append(0.0, ys)
    return _points(fpr, tpr)


def _points(fpr: Array, tpr: Array) -> Curve:
    return Curve(
        fpr=tuple(float(x) for x in fpr), tpr=tuple(float(y) for y in np.clip(np.asarray(tpr, dtype=float), 0.0, 1.0))
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _share(value: float) -> float:
    return min(1.0, max(0.0, float(value)))


# -- what each record's own gradients give away ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OwnNorms:
    """Gradient norms of the records with these ids, shape (c,)."""

    ids: NDArray[np.int64]
    norms: GradientNorms


@dataclass(frozen=True, eq=False)
class OwnMu:
    """The mu of each record by its own gradients, shape (c,), sorted by ids; inf where there is none.

    `kind` : that of noise alone is the accountant's; "forecast" where measured susceptibilities enter. `by` : measured
    susceptibilities ("data"), noise alone ("noise"), or whichever is less ("either").
    """

    ids: NDArray[np.int64]
    mu: Array
    kind: Kind
    by: OwnBy

    def of(self, ids: NDArray[np.int64]) -> Array:
        """The mus of records among them."""
        return np.asarray(self.mu[np.searchsorted(self.ids, ids)])


def own_mus(runs: Sequence[NoisySGD], scores: Sequence[ScoreSet], norms: OwnNorms | None) -> OwnMu | None:
    """The mus by measured susceptibilities, and by the norms of gradients and the noise; where both are known, the
    less.

    Both hold against an attacker who knows nobody else: noise hides a record from everybody. Not so for shuffled
    epochs, in which noise alone is about gradients that are left out, not about another record: there susceptibilities
    come first.
    """
    by_data = _by_data(runs, scores)
    by_noise = _by_noise(runs, norms)
    if by_data is None or by_noise is None:
        return by_data or by_noise
    if runs[0].sampling == "shuffled" or not np.array_equal(by_data.ids, by_noise.ids):
        return by_data
    return OwnMu(by_data.ids, np.minimum(by_data.mu, by_noise.mu), "forecast", "either")


def _by_data(runs: Sequence[NoisySGD], scores: Sequence[ScoreSet]) -> OwnMu | None:
    measured = _measured(runs, scores)
    if measured is None:
        return None
    order = np.argsort(measured.ids)
    mu = mu_by_susceptibility(measured.runs, measured.values[order]).values
    return OwnMu(measured.ids[order], mu, "forecast", "data")


def _by_noise(runs: Sequence[NoisySGD], norms: OwnNorms | None) -> OwnMu | None:
    mu = None if norms is None else mu_by_noise(runs, norms.norms)
    if norms is None or mu is None:
        return None
    order = np.argsort(norms.ids)
    return OwnMu(norms.ids[order], mu.values[order], mu.kind, "noise")


def summarised(own: OwnMu, members: NDArray[np.int64], claims: Sequence[ClaimedCurve]) -> IndividualMus:
    """The mus of the members among the candidates are compared with what the accountant says for the same attacker: the
    claim, or, if they are by noise alone, that of noise alone. A bound is not compared with a forecast."""
    key = "gdp" if own.by == "noise" else "claimed"
    claim = next((one for one in claims if one.key == key), None)
    claimed = None if claim is None or (own.kind == "bound" and not claim.is_bound) else claim.mu
    mu = own.of(members)
    largest = float(mu.max(initial=0.0))
    median = float(np.median(mu)) if mu.size else 0.0
    return IndividualMus.model_validate(
        {
            "members": mu.size,
            "claimed_mu": claimed,
            "beyond": None if claimed is None or not mu.size else float((mu > claimed).mean()),
            "median_mu": _finite(median),
            "largest_mu": _finite(largest),
            "kind": own.kind,
            "by": own.by,
        }
    )
