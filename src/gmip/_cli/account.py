"""`gmip account`: how exposed a training run is."""

from __future__ import annotations

from typing import Annotated, Any

from gmip import _numbers
from gmip._cli import options, parse, show
from gmip.accounting.account import account as account_run
from gmip.accounting.account import mu_per_step

__all__ = ["account"]

DEFAULT_FPRS = ("0.001", "0.01", "0.1")


def account(
    dataset_size: options.DatasetSize = None,
    batch_size: options.BatchSize = None,
    steps: options.Steps = None,
    params: options.Params = None,
    sampling: options.SamplingOption = None,
    rank: options.Rank = None,
    clip: options.Clip = None,
    noise_std: options.NoiseStd = None,
    noise_multiplier: options.NoiseMultiplier = None,
    susceptibility: options.Susceptibility = None,
    susceptibility_file: options.SusceptibilityFile = None,
    bound: options.BoundOption = None,
    composition: options.CompositionOption = None,
    fpr: Annotated[
        list[str] | None,
        options.option(
            "--fpr",
            "RATE",
            options.ACCOUNTING,
            "False-alarm rate (FPR) from 0 to 1; repeat for several (default 0.001, 0.01 and 0.1).",
        ),
    ] = None,
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Compute how exposed a training run is to membership inference.

    Example: gmip account --dataset-size 48000 --batch-size 400 --steps 1200 --params 650

    JSON keys: mu_step (mu of one step, at the largest susceptibility given),
    mu (equivalent mu of the run), tpr_at_fpr (share of members found, by
    false-alarm rate as typed), advantage, auc, gdp_mu (mu of differential
    privacy of the same run; null without noise), assumptions.
    """
    run = options.build_run(
        dataset_size=dataset_size,
        batch_size=batch_size,
        steps=steps,
        params=params,
        sampling=sampling,
        rank=rank,
        clip=clip,
        noise_std=noise_std,
        noise_multiplier=noise_multiplier,
    )
    one_step, many_steps = options.read_bound(bound), options.read_composition(composition)
    rates = {text: parse.probability("--fpr", text) for text in fpr or DEFAULT_FPRS}
    measured = options.read_susceptibility(susceptibility, susceptibility_file)

    curve = account_run(run, susceptibility=measured, bound=one_step, composition=many_steps)
    gdp_mu = None
    if run.noise_std > 0.0:
        gdp_mu = account_run(run, notion="gdp", composition=many_steps).equivalent_mu()
    largest = None if measured is None else float(measured.max())
    answer: dict[str, Any] = {
        "mu_step": mu_per_step(run, susceptibility=largest, bound=one_step),
        "mu": curve.equivalent_mu(),
        "tpr_at_fpr": {text: curve.tpr_at(rate) for text, rate in rates.items()},
        "advantage": curve.advantage(),
        "auc": curve.auc(),
        "gdp_mu": gdp_mu,
        "assumptions": list(curve.assumptions),
    }
    if json:
        show.print_json(answer)
        return
    rows = [
        (f"members found at {_numbers.rate(text)} false alarms, at most", _numbers.percent(tpr, "up"))
        for text, tpr in answer["tpr_at_fpr"].items()
    ]
    rows += [
        ("advantage over guessing (TPR - FPR), at most", _numbers.percent(answer["advantage"], "up")),
        ("area under the attacker's ROC curve, at most", _numbers.number(answer["auc"], "up")),
        ("mu of the run", _numbers.number(answer["mu"], "up")),
        ("mu of one step", _numbers.number(answer["mu_step"], "up")),
        ("mu of differential privacy", "none without noise" if gdp_mu is None else _numbers.number(gdp_mu, "up")),
    ]
    text = next((text for text, rate in rates.items() if rate == 0.01), next(iter(rates)))
    show.print_answer(
        rows,
        f"At a {_numbers.rate(text)} false-alarm rate, an attacker finds at most "
        f"{_numbers.percent(answer['tpr_at_fpr'][text], 'up')} of the members.",
        curve,
        explain=explain,
    )
