"""`gmip account`: how exposed a training run is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

import gmip
from gmip import _numbers
from gmip.accounting.account import account as account_run
from gmip.accounting.account import mu_per_step
from gmip.accounting.claims import ADJACENCY, at_most, found
from gmip.accounting.tradeoff import TradeOff
from gmip.cli import parse, show
from gmip.cli.options import Delta, Option, Probability, from_settings
from gmip.cli.shared_settings import ACCOUNTING, Explained, RunSettings, WhoseSettings, as_understood, slow_because
from gmip.vocabulary import NoisySGD

__all__ = ["account"]


def _rates(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Rates by how they were typed."""
    return {text: parse.probability(option, text) for text in texts}


class AccountSettings(Explained, WhoseSettings, RunSettings):
    """Settings of `gmip account`."""

    fprs: Annotated[
        dict[str, float] | None,
        Option("RATE", ACCOUNTING, _rates, repeated=True),
        Field(description="False-alarm rate (FPR) from 0 to 1; repeat for several (default 0.001, 0.01 and 0.1)."),
    ] = None
    delta: Annotated[
        Delta | None,
        Option("D", ACCOUNTING),
        Field(description="Also compute epsilon at this delta, between 0 and 1."),
    ] = None
    risk: Annotated[
        Probability | None,
        Option("RATE", ACCOUNTING),
        Field(
            description="Also compute how often a secret of a member (an attribute, who it is) is guessed, given how "
            "often it is without that member, such as 0.1 for one of ten equally likely values."
        ),
    ] = None


@from_settings(AccountSettings)
def account(asked: AccountSettings) -> None:
    """Compute how exposed a training run is to membership inference.

    Example: gmip account --dataset-size 48000 --batch-size 400 --epochs 10
    --params 650 --sampling shuffled

    JSON keys: gmip (its version), run (every phase as understood), options
    of the accounting; kind ("bound" or "forecast"), for_whom, caveat and
    assumptions of the answer; mu_step (mu of one step, at the largest
    susceptibility given, the largest of all phases; null for a random
    record), mu (equivalent mu over the FPRs of mu_fpr_range), tpr_at_fpr
    (share of members found, by false-alarm rate as typed), tpr_error (how
    much of a TPR is rounding), advantage, auc, epsilon and delta; baseline
    (as asked with --risk) and risk (largest chance to guess the secret);
    gdp_mu (mu of Gaussian differential privacy, at every FPR; null without
    noise) and gdp (differential privacy of the same run, with its
    adjacency).
    """
    runs, record, known = asked.runs(), asked.susceptibility, asked.attacker_knows
    rates = asked.fprs or {text: float(text) for text in ("0.001", "0.01", "0.1")}
    with show.patience(slow_because(runs, record)):
        curve = account_run(runs, susceptibility=record, attacker_knows=known)
    mu_step = None
    if not isinstance(record, str):
        mu_step = max(mu_per_step(run, susceptibility=record, attacker_knows=known) for run in runs)
    gdp = _differential_privacy(runs)
    answer: dict[str, Any] = {
        "gmip": gmip.__version__,
        "run": as_understood(runs),
        "susceptibility": record if record is None or isinstance(record, str) else [record],
        "attacker_knows": known,
        "bound": "tight",
        "composition": "exact",
        "mu_step": mu_step,
        "mu": curve.equivalent_mu(),
        "tpr_at_fpr": {text: curve.tpr_at(rate) for text, rate in rates.items()},
        "advantage": curve.advantage(),
        "auc": curve.auc(),
        "epsilon": None if asked.delta is None else curve.epsilon(asked.delta),
        "delta": asked.delta,
        "baseline": asked.risk,
        "risk": None if asked.risk is None else curve.risk(asked.risk),
        "gdp_mu": None if gdp is None else gdp.gdp_mu,
        "gdp_equivalent_mu": None if gdp is None else gdp.equivalent_mu(),
        "gdp": None if gdp is None else _gdp_as_json(gdp, asked),
        **show.claim_as_json(curve),
    }
    if asked.as_json:
        show.print_json(answer)
        return
    text = next((text for text, rate in rates.items() if rate == 0.01), next(iter(rates)))
    rows = _rows(answer, curve, gdp, runs)
    show.print_answer(
        rows, found(curve, text), curve, explain=asked.explain, beside=None if asked.delta is None else gdp
    )


def _differential_privacy(runs: Sequence[NoisySGD]) -> TradeOff | None:
    """None where there is none: without noise, or if the phases are about different neighbours."""
    if any(run.noise_std == 0.0 for run in runs) or len({ADJACENCY[run.sampling] for run in runs}) > 1:
        return None
    return account_run(runs, notion="gdp")


def _gdp_as_json(curve: TradeOff, asked: AccountSettings) -> dict[str, Any]:
    return {
        "mu": curve.gdp_mu,
        "equivalent_mu": curve.equivalent_mu(),
        "epsilon": None if asked.delta is None else curve.epsilon(asked.delta),
        "delta": asked.delta,
        "risk": None if asked.risk is None else curve.risk(asked.risk),
        **show.claim_as_json(curve),
    }


def _rows(
    answer: dict[str, Any], curve: TradeOff, gdp: TradeOff | None, runs: Sequence[NoisySGD]
) -> list[tuple[str, str]]:
    most, delta, baseline = at_most(curve), answer["delta"], answer["baseline"]
    rows = [
        (f"members found at {_numbers.rate(text)} false alarms, {most}", _numbers.percent(tpr, "up"))
        for text, tpr in answer["tpr_at_fpr"].items()
    ]
    rows += [
        (f"advantage over guessing (TPR - FPR), {most}", _numbers.percent(answer["advantage"], "up")),
        (f"area under the attacker's ROC curve, {most}", _numbers.number(answer["auc"], "up")),
        ("mu of the run, FPRs from 1e-5 to 1 - 1e-5", _numbers.number(answer["mu"], "up")),
    ]
    if answer["mu_step"] is not None:
        rows.append(("mu of one step", _numbers.number(answer["mu_step"], "up")))
    if delta is not None:
        rows.append((f"epsilon at delta = {delta:g}, {most}", _numbers.number(answer["epsilon"], "up")))
    if baseline is not None:
        secret = f"a member's secret guessed, {_numbers.rate(baseline)} without the member"
        rows.append((f"{secret}, {most}", _numbers.percent(answer["risk"], "up")))
    if gdp is None:
        noisy = all(run.noise_std > 0.0 for run in runs)
        rows.append(("differential privacy", "none for phases of different kinds" if noisy else "none without noise"))
        return rows
    rows.append(
        (f"mu of differential privacy, at every FPR ({gdp.claim.adjacency})", _numbers.number(gdp.gdp_mu or 0.0, "up"))
    )
    if delta is not None:
        name = f"epsilon of differential privacy ({gdp.claim.adjacency}), {at_most(gdp)}"
        rows.append((name, _numbers.number(gdp.epsilon(delta), "up")))
    if baseline is not None:
        name = f"the secret guessed, by differential privacy ({gdp.claim.adjacency}), {at_most(gdp)}"
        rows.append((name, _numbers.percent(gdp.risk(baseline), "up")))
    return rows
