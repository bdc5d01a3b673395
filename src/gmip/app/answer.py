"""What the calculator answers: a sentence, whether the target is kept, the curves, and how to repeat it in a shell."""

from __future__ import annotations

import shlex
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gmip import _numbers
from gmip._html import tag
from gmip._svg import Axes, Series, chart, guessing, swatch
from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate
from gmip.accounting.claims import at_most, found, standing
from gmip.accounting.tradeoff import TradeOff
from gmip.app.form import BadField, Question
from gmip.errors import GmipError, UnreachableTarget
from gmip.vocabulary import NoisySGD

__all__ = ["LOWEST", "answer"]

LOWEST: Final = 1.0e-4  # where the logarithmic axes begin
_RATES: Final = np.concatenate([[0.0], np.geomspace(1.0e-6, 0.1, 90), np.linspace(0.1, 1.0, 91)[1:]])
_SAME: Final = 1.001  # a ratio below which two answers are one
_DELTA: Final = 1.0e-6
_EXTREME: Final = "These numbers are too extreme to compute with: type more moderate sizes, noise or rates."


def answer(question: Question) -> dict[str, Any]:
    """All that the page shows, as plain JSON; `BadField` where there is no answer.

    Guarantees
    ----------
    Curves are those of `gmip.account`, noise is that of `gmip.calibrate`, with their assumptions. Promises are rounded
    up, and a target counts as guaranteed only where the curve is a bound.
    """
    try:
        return _answer(question)
    except GmipError as error:
        raise BadField.of(error) from None
    except (OverflowError, MemoryError, FloatingPointError):
        raise BadField(None, _EXTREME) from None


def _answer(question: Question) -> dict[str, Any]:
    run, goal = question.run, {"target_tpr": (question.tpr, question.fpr)}
    if question.follow == "target":
        run = calibrate(run, **goal, **question.accounting)
    curve = account(run, **question.accounting)
    gdp = account(run, notion="gdp") if run.noise_std > 0.0 else None
    gdp_run = _with_noise_for_gdp(run, goal) if question.follow == "target" else None
    met = question.follow == "target" or curve.tpr_at(question.fpr) <= question.tpr
    series = _series(curve, gdp)
    return {
        "sentence": f"{found(curve, question.fpr)}, for {curve.for_whom}.",
        "badge": ("good" if curve.kind == "bound" else "open") if met else "bad",
        "target": _target_sentence(question, curve, met),
        "standing": " ".join(filter(None, (standing(curve), _no_more(question, run, curve), _beside(gdp)))),
        "assumptions": list(curve.assumptions),
        "rows": _rows(question, run, curve, gdp, gdp_run),
        "fields": {
            "noise_std": _numbers.number(run.noise_std, "up", 5),
            "num_steps": str(run.num_steps),
            "epochs": _numbers.number(run.epochs, "nearest", 6),
        },
        "chart": {kind: _chart(series, kind, question) for kind in ("log", "linear")},
        "legend": tag("ul", *(tag("li", swatch(one), one.name) for one in series), class_="legend"),
        "csv": _csv(curve, gdp),
        "command": _command(question, run),
        "python": _python(question, run),
    }


def _with_noise_for_gdp(run: NoisySGD, goal: dict[str, Any]) -> NoisySGD | None:
    try:
        return calibrate(run.replace(noise_std=0.0), **goal, notion="gdp")
    except UnreachableTarget:
        return None


def _beside(gdp: TradeOff | None) -> str | None:
    return None if gdp is None or gdp.claim.caveat is None else f"Differential privacy here: {gdp.claim.caveat}"


def _no_more(question: Question, run: NoisySGD, curve: TradeOff) -> str | None:
    """That knowing more helps the attacker no further, where the noise alone gives the answer."""
    if run.noise_std == 0.0 or question.attacker_knows == 1.0:
        return None
    try:
        most = account(run, susceptibility=question.record, attacker_knows=1.0).tpr_at(question.fpr)
    except GmipError:
        return None
    if most > curve.tpr_at(question.fpr) * _SAME:
        return None
    return "The noise alone gives this answer: what the attacker knows about the others changes nothing."


def _target_sentence(question: Question, curve: TradeOff, met: bool) -> str:
    goal = f"at most {_numbers.rate(question.tpr)} of the members at a {_numbers.rate(question.fpr)} false-alarm rate"
    if not met:
        return f"Target missed: {goal}."
    if curve.kind == "bound":
        return f"Target kept, by a bound: {goal}."
    return f"Target expected to be kept, but not guaranteed (a forecast, not a bound): {goal}."


def _rows(
    question: Question, run: NoisySGD, curve: TradeOff, gdp: TradeOff | None, gdp_run: NoisySGD | None
) -> list[tuple[str, str]]:
    most = at_most(curve)
    multiplier = run.noise_multiplier
    rows = [
        ("Noise on the mean gradient (std)", _numbers.number(run.noise_std, "up", 5)),
        ("Noise multiplier (Opacus)", "needs a clipping norm" if multiplier is None else _up(multiplier)),
        ("Advantage over guessing", f"{most} {_numbers.percent(curve.advantage(), 'up')}"),
        ("Area under the attacker's ROC curve", f"{most} {_up(curve.auc())}"),
        ("mu (false-alarm rates from 1e-5 to 1 - 1e-5)", _up(curve.equivalent_mu())),
    ]
    if gdp is None:
        return [*rows, ("Differential privacy", "none without noise")]
    at = f"Members found at {_numbers.rate(question.fpr)}, by differential privacy ({gdp.claim.adjacency})"
    rows.append((at, f"{at_most(gdp)} {_numbers.percent(gdp.tpr_at(question.fpr), 'up')}"))
    rows.append((f"Epsilon at delta = {_DELTA:g}", f"{at_most(gdp)} {_up(gdp.epsilon(_DELTA))}"))
    if question.follow == "target":
        needs = "cannot be reached" if gdp_run is None else _numbers.number(gdp_run.noise_std, "up", 5)
        rows.append((f"Noise that differential privacy needs for the target ({gdp.claim.adjacency})", needs))
    return rows


def _up(value: float) -> str:
    return _numbers.number(value, "up")


def _series(curve: TradeOff, gdp: TradeOff | None) -> list[Series]:
    forecast = curve.kind != "bound"
    name = f"Membership inference ({'forecast' if forecast else 'bound'})"
    series = [
        Series(name, "promise", "blue solid", _RATES, _tpr(curve), marker="circle", prominent=True, forecast=forecast)
    ]
    if gdp is not None:
        forecast = gdp.kind != "bound"
        name = f"Differential privacy of the same noise ({'forecast' if forecast else 'bound'})"
        series.append(Series(name, "promise", "vermillion dash", _RATES, _tpr(gdp), marker="square", forecast=forecast))
    return [*series, guessing()]


def _tpr(curve: TradeOff) -> NDArray[np.float64]:
    return np.maximum.accumulate(np.clip(1.0 - np.asarray(curve(_RATES), dtype=np.float64), 0.0, 1.0))


def _chart(series: list[Series], kind: str, question: Question) -> str:
    values = "; ".join(f"{one.name}: {one.text(one.at(question.fpr))}" for one in series[:-1])
    label = f"Chart: members found against false alarms. At {_numbers.rate(question.fpr)} false alarms: {values}."
    axes = Axes(LOWEST if kind == "log" else None)
    return chart(series, axes, label=label, target=(question.fpr, question.tpr))


def _csv(curve: TradeOff, gdp: TradeOff | None) -> str:
    columns = {"false_alarms": _RATES, "members_found": _tpr(curve)}
    if gdp is not None:
        columns["members_found_differential_privacy"] = _tpr(gdp)
    lines = [
        ",".join(columns),
        *(",".join(f"{value:.6g}" for value in row) for row in zip(*columns.values(), strict=True)),
    ]
    return "\n".join(lines) + "\n"


def _command(question: Question, run: NoisySGD) -> str:
    solve = question.follow == "target"
    words: list[str] = ["gmip", "calibrate" if solve else "account"]
    length = f"{run.epochs:.6g}" if question.keep == "epochs" else str(run.num_steps)
    given: dict[str, str | None] = {
        "--dataset-size": str(run.dataset_size),
        "--batch-size": str(run.batch_size),
        f"--{question.keep}": length,
        "--params": str(run.num_params),
        "--sampling": run.sampling,
        "--clip": None if run.clip_norm is None else f"{run.clip_norm:.12g}",
        "--noise-std": None if solve or run.noise_std == 0.0 else f"{run.noise_std:.12g}",
        "--target-tpr": f"{question.tpr:.12g}@{question.fpr:.12g}" if solve else None,
        "--fpr": None if solve else f"{question.fpr:.12g}",
        "--susceptibility": None if question.record is None else _plain(question.record),
        "--attacker-knows": f"{question.attacker_knows:.12g}" if question.attacker_knows else None,
    }
    return shlex.join([*words, *(part for name, value in given.items() if value is not None for part in (name, value))])


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def _python(question: Question, run: NoisySGD) -> str:
    solve = question.follow == "target"
    settings = {
        "dataset_size": f"{run.dataset_size:_}",
        "batch_size": f"{run.batch_size:_}",
        "num_steps": f"{run.num_steps:_}",
        "num_params": f"{run.num_params:_}",
        "sampling": repr(run.sampling),
        "clip_norm": repr(run.clip_norm),
        "noise_std": "0.0" if solve else repr(run.noise_std),
    }
    whom = {}
    if question.record is not None:
        whom["susceptibility"] = repr(question.record)
    if question.attacker_knows:
        whom["attacker_knows"] = repr(question.attacker_knows)
    more = "".join(f", {name}={value}" for name, value in whom.items())
    lines = ["import gmip", "", "run = gmip.NoisySGD("]
    lines += [f"    {name}={value}," for name, value in settings.items()]
    lines += [")"]
    if solve:
        lines += [f"run = gmip.calibrate(run, target_tpr=({question.tpr!r}, {question.fpr!r}){more})"]
    lines += [f"curve = gmip.account(run{more})", f"curve.tpr_at(fpr={question.fpr!r})"]
    return "\n".join(lines) + "\n"
