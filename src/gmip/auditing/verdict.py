"""Promise against measurement, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from scipy.special import ndtri

from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.schema import AttackOutcome, Gate, Verdict
from gmip.stats import RunScores, candidates_needed, tpr_lower_bound

__all__ = ["THREAT_MODEL", "gate", "verdict"]

THREAT_MODEL: Final = (
    "The attacker sees every published mean gradient and the parameters at each step, as in federated learning; the "
    "table of attacks says what each of them needs of that.",
    "The attacker does not poison the data and cannot choose them.",
    "A candidate is drawn from the distribution of the data: nothing is said about a record made to be found.",
    "That batch means are Gaussian is a central-limit statement, and so are the promises that rest on it.",
    "f-membership-inference privacy is weaker than f-differential privacy: it averages over the data, and gives no "
    "guarantee for the worst data set.",
    "An audit measures the attacks that were tried. It can refute a promise, it cannot prove one.",
)

_HARDLY_A_PROMISE: Final = 3.0  # mu beyond which a claimed curve excludes next to nothing
_LEAST_EXCESS: Final = 0.5  # in mu: an audit should notice this much more than claimed, or twice the claim


def verdict(attacks: Sequence[AttackOutcome], claimed: TradeOff, *, fpr: float, confidence: float) -> Verdict:
    """Consistent, more exposed than claimed, or inconclusive.

    Exposed: some attack refutes the claimed curve at `confidence`, all attacks taken together. Inconclusive: none does,
    but the candidates are too few to notice, with a chance of 80%, a run whose mu exceeds the claimed one by 0.5 or by
    the claim itself, whichever is more; or the claim, beyond mu = 3, excludes so little that nothing can refute it.
    `fpr` is the false-alarm rate that sentences speak of.
    """
    promised = claimed.tpr_at(fpr)
    strongest = attacks[0]
    share = "all" if promised > 0.999 else _percent(promised, up=True)
    limit = f"{share} of the members at {_percent(fpr)} false alarms"
    found = [
        f"{one.title}: AUC {one.auc.value:.3f} ({one.auc.lower:.3f} to {one.auc.upper:.3f}), mu at least "
        f"{one.mu_lower:.2f}; p-value of the promise {one.claim_p_value:.2g}."
        for one in attacks
    ]
    refuted = [one for one in attacks if one.exceeds_claim]
    if refuted:
        worst = min(refuted, key=lambda one: (one.claim_p_value, -one.auc.value))
        rate = max(0.0, min(1.0, _tpr(worst, fpr)))
        return Verdict(
            kind="exposed",
            headline=(
                f"More exposed than claimed: {worst.title} tells members from others better than the promise allows. "
                f"It finds {_percent(rate)} of the members at {_percent(fpr)} false alarms (promised: at most "
                f"{_percent(promised, up=True)}), and its AUC is {worst.auc.value:.3f} (promised: at most "
                f"{claimed.auc():.3f})."
            ),
            reasons=(
                f"If the promise held, scores like these would turn up with a chance of {worst.claim_p_value:.2g}.",
                *found,
            ),
        )
    best = f"The strongest attack, {strongest.title}, finds {_percent(_tpr(strongest, fpr))}"
    mu = math.sqrt(2.0) * float(ndtri(min(max(claimed.auc(), 0.5), 1.0 - 1.0e-12)))
    if mu > _HARDLY_A_PROMISE:
        return Verdict(
            kind="inconclusive",
            headline=(
                f"Inconclusive: the promise excludes little (an attacker may find {limit}), so nothing can refute it. "
                f"{best}."
            ),
            reasons=("Judge by what was measured, or promise more: add noise, or use larger batches.", *found),
        )
    noticed = mu + max(mu, _LEAST_EXCESS)
    needed = candidates_needed(claimed=mu, actual=noticed, confidence=1.0 - (1.0 - confidence) / len(attacks))
    at_hand = min(strongest.members, strongest.non_members)
    if at_hand < needed:
        return Verdict(
            kind="inconclusive",
            headline=(
                f"Inconclusive: no attack found more than was promised (at most {limit}), but {at_hand} candidates of "
                f"each kind are too few to tell; about {needed} are needed."
            ),
            reasons=(
                f"An audit should notice, with a chance of 80%, a run with mu = {noticed:.2f} that was promised to "
                f"have {mu:.2f}. Attack more candidates, or repeat the run (repeats).",
                *found,
            ),
            candidates_needed=2 * needed,
        )
    return Verdict(
        kind="consistent",
        headline=f"Consistent with the promise of at most {limit}: no attack did better. {best}.",
        reasons=(
            f"Candidates suffice to notice, with a chance of 80%, a run with mu = {noticed:.2f} that was promised to "
            f"have {mu:.2f}.",
            *found,
        ),
    )


def gate(
    scores: Sequence[tuple[str, Sequence[RunScores]]], *, limit: float, fpr: float, confidence: float, seed: int
) -> Gate:
    """Whether no attack finds more than `limit` at `fpr`, beyond doubt: lower bounds share the error."""
    share = 1.0 - (1.0 - confidence) / len(scores)
    lower = [(tpr_lower_bound(runs, fpr, confidence=share, seed=seed), name) for name, runs in scores]
    worst, name = max(lower)
    return Gate(fpr=fpr, limit=limit, tpr_lower=worst, attack=name, passed=worst <= limit)


def _tpr(attack: AttackOutcome, fpr: float) -> float:
    """The measured TPR: the highest at no more false alarms (a whole number of them, so rates compare exactly)."""
    return max(t for f, t in zip(attack.roc.fpr, attack.roc.tpr, strict=True) if f <= fpr)


def _percent(share: float, *, up: bool = False) -> str:
    """Three significant digits; a limit is rounded up."""
    text = f"{100.0 * share:.3g}"
    if up and float(text) < 100.0 * share:
        text = f"{float(text) + 10.0 ** (math.floor(math.log10(100.0 * share)) - 2):.3g}"
    return f"{text}%"
