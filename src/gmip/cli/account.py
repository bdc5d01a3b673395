"""`gmip account`: how exposed a training run is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from gmip import _numbers
from gmip.accounting.account import account as account_run
from gmip.accounting.account import mu_per_step
from gmip.accounting.tradeoff import TradeOff
from gmip.cli import parse, show
from gmip.cli.errors import BadRequest, option_name
from gmip.cli.options import Delta, Option, from_settings
from gmip.cli.shared_settings import ACCOUNTING, AnswerSettings, AskedRun, asked_as_json, slow_because
from gmip.report.account_words import (
    MU_OF_RUN,
    NO_PRIVACY,
    at_most,
    beside,
    found,
    members_found,
    mu_and_epsilon,
    proved_instead,
)


def _rates(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Rates by how they were typed."""
    return {text: parse.probability(option, text) for text in texts}


_RATES: Final = {"0.001": 0.001, "0.01": 0.01, "0.1": 0.1}


class AccountSettings(AnswerSettings, AskedRun):
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

    @model_validator(mode="after")
    def _applies(self) -> Self:
        for name in ("susceptibility", "attacker_knows"):
            if self.notion == "gdp" and name in self.model_fields_set:
                raise BadRequest("does not apply to --notion gdp", argument=option_name(name), remedy="leave it out")
        return self


@from_settings(AccountSettings)
def account(asked: AccountSettings) -> None:
    """Compute how exposed a training run is to membership inference.

    Example: gmip account --dataset-size 48000 --batch-size 400 --epochs 10
    --params 650 --sampling shuffled

    JSON keys: gmip (its version), run (as understood), options of the
    accounting; kind ("bound" or "forecast"), for_whom, caveat, assumptions; mu_step (mu of one step, at the largest
    susceptibility given; null for a random record or --notion gdp), mu
    (equivalent mu over the FPRs of mu_fpr_range), tpr_at_fpr (share of
    members found, by false-alarm rate as typed), tpr_error (how much of a
    TPR is rounding), advantage, auc, epsilon and delta; gdp_mu (mu
    of Gaussian differential privacy, at every FPR; null without noise) and
    gdp (differential privacy of the same run, with its adjacency).
    """
    run, record, known, most = asked.run(), asked.susceptibility, asked.attacker_knows, asked.rows_per_person
    rates = asked.fprs or _RATES
    with show.patience(slow_because(run, record)):
        curve = account_run(run, susceptibility=record, attacker_knows=known, notion=asked.notion)
    mu_step, gdp = None, curve if asked.notion == "gdp" else None
    if asked.notion == "gmip":
        if not isinstance(record, str) and most == 1:
            mu_step = mu_per_step(run, susceptibility=record, attacker_knows=known)
        gdp = account_run(run, notion="gdp") if run.noise_std > 0.0 else None
    answer: dict[str, Any] = {
        **asked_as_json(run, asked),
        "mu_step": mu_step,
        "mu": curve.equivalent_mu(),
        "tpr_at_fpr": {text: curve.tpr_at(rate) for text, rate in rates.items()},
        "advantage": curve.advantage(),
        "auc": curve.auc(),
        "epsilon": _epsilon(curve, asked.delta),
        "delta": asked.delta,
        **_gdp_as_json(gdp, asked.delta),
        **show.claim_as_json(curve),
    }
    if asked.as_json:
        show.print_json(answer)
        return
    text = next((text for text, rate in rates.items() if rate == 0.01), next(iter(rates)))
    rows, remarks = _rows(answer, curve, gdp), [*_remarks(curve, gdp, asked.delta), *proved_instead(run, curve)]
    show.print_answer(rows, found(curve, text), curve, explain=asked.explain, remarks=remarks)


def _epsilon(curve: TradeOff, delta: float | None) -> float | None:
    return None if delta is None else curve.epsilon(delta)


def _gdp_as_json(curve: TradeOff | None, delta: float | None) -> dict[str, Any]:
    """The differential privacy of the same run; None: it has none."""
    if curve is None:
        return {"gdp_mu": None, "gdp_equivalent_mu": None, "gdp": None}
    mus = {"mu": curve.gdp_mu, "equivalent_mu": curve.equivalent_mu()}
    more = {"epsilon": _epsilon(curve, delta), "delta": delta, **show.claim_as_json(curve)}
    return {"gdp_mu": mus["mu"], "gdp_equivalent_mu": mus["equivalent_mu"], "gdp": mus | more}


def _remarks(curve: TradeOff, gdp: TradeOff | None, delta: float | None) -> list[str]:
    """What a reader of the table has to know about the mu and the epsilon of differential privacy in it."""
    if gdp is None or delta is None:
        return ["--delta 1e-5 adds epsilon."] if gdp is curve else []
    return [*(beside(gdp) if gdp is not curve else []), mu_and_epsilon(delta)]


def _rows(answer: dict[str, Any], curve: TradeOff, gdp: TradeOff | None) -> list[tuple[str, str]]:
    most, delta = at_most(curve), answer["delta"]
    rows = [
        (members_found(text, curve.kind), _numbers.percent(tpr, "up")) for text, tpr in answer["tpr_at_fpr"].items()
    ]
    rows += [
        (f"advantage over guessing (TPR - FPR), {most}", _numbers.percent(answer["advantage"], "up")),
        (f"area under the attacker's ROC curve, {most}", _numbers.number(answer["auc"], "up")),
        (MU_OF_RUN, _numbers.number(answer["mu"], "up")),
    ]
    if answer["mu_step"] is not None:
        rows.append(("mu of one step", _numbers.number(answer["mu_step"], "up")))
    if delta is not None:
        what = "differential privacy" if gdp is curve else "membership inference, no differential privacy"
        rows.append((f"epsilon of {what}, at delta = {delta:g}, {most}", _numbers.number(answer["epsilon"], "up")))
    if gdp is None:
        return [*rows, NO_PRIVACY]
    rows.append(
        (f"mu of differential privacy, at every FPR ({gdp.claim.adjacency})", _numbers.number(gdp.gdp_mu or 0.0, "up"))
    )
    if delta is not None and gdp is not curve:
        name = f"epsilon of differential privacy ({gdp.claim.adjacency}), {at_most(gdp)}"
        rows.append((name, _numbers.number(gdp.epsilon(delta), "up")))
    return rows
