"""`gmip calibrate`: the noise (or batch size, or number of steps) that a privacy target needs."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from gmip import _numbers
from gmip.accounting.account import account as account_run
from gmip.accounting.alternatives import Ways
from gmip.accounting.alternatives import alternatives as find_alternatives
from gmip.accounting.calibrate import SolveFor
from gmip.accounting.calibrate import calibrate as calibrate_run
from gmip.accounting.tradeoff import TradeOff
from gmip.cli import show
from gmip.cli.errors import BadRequest
from gmip.cli.options import Option, from_settings
from gmip.cli.shared_settings import (
    TARGET,
    AnswerSettings,
    AskedRun,
    TargetSettings,
    as_understood,
    asked_as_json,
    slow_because,
)
from gmip.report.account_words import (
    NOISE,
    at_most,
    mu_and_epsilon,
    proved_instead,
    reached,
    target_name,
    target_sentence,
    target_shown,
)
from gmip.vocabulary import NoisySGD, PrivacyTarget

_WAYS_SECONDS: Final = 120.0  # for the ways beside noise: what takes longer is named, not computed
_SHOWN_DELTA: Final = 1.0e-6  # where differential privacy is shown and none was asked for
_SOLVABLE: Final[dict[str, SolveFor]] = {"noise-std": "noise_std", "batch-size": "batch_size", "steps": "num_steps"}


class CalibrateSettings(AnswerSettings, TargetSettings, AskedRun):
    """Settings of `gmip calibrate`."""

    solve_for: Annotated[
        Literal["noise-std", "batch-size", "steps", "all"],
        Option("noise-std|batch-size|steps|all", TARGET),
        Field(
            description="noise-std: the least noise; batch-size: the smallest batch; steps: the most steps. The last "
            "two keep the noise that you pass. all: the least noise, and every other single change that reaches the "
            "target: larger batches, fewer steps, fewer parameters, more data; with --noise-multiplier (the present "
            "one) also a smaller clipping norm."
        ),
    ] = "noise-std"

    @property
    def solved(self) -> SolveFor:
        """What is looked for."""
        return _SOLVABLE.get(self.solve_for, "noise_std")

    @model_validator(mode="after")
    def _can_be_solved(self) -> Self:
        if self.solve_for == "noise-std" and self.noise_multiplier is not None:
            raise BadRequest(
                "--noise-multiplier is what gmip calibrate finds",
                remedy="leave it out, or pass --solve-for batch-size, steps or all",
            )
        return self


@from_settings(CalibrateSettings)
def calibrate(asked: CalibrateSettings) -> None:
    """Find the least noise that meets a privacy target.

    Example: gmip calibrate --dataset-size 48000 --batch-size 400 --steps 1200
    --params 650 --clip 500 --target mu=0.4

    JSON keys: gmip (its version), run (as found), noise_std (on the batch
    MEAN), noise_multiplier (Opacus; null without --clip), batch_size,
    num_steps, target, achieved (the value that the run reaches), needed
    (whether the run needs noise; null with --solve-for batch-size or steps),
    mu (equivalent mu over the FPRs of mu_fpr_range), gdp_mu (with --notion
    gdp: the mu of Gaussian differential privacy, at every FPR), adjacency,
    epsilon and delta (where the target has a delta, or with --notion gdp, at
    1e-6), tpr_error, kind, for_whom, caveat, assumptions;
    alternatives (null but with --solve-for all; open: change, run, value, kind,
    for_whom, command; closed: change, why, size, value).
    """
    target = asked.wanted(susceptibility=asked.susceptibility, attacker_knows=asked.attacker_knows)
    run, ways = asked.run(), None
    with show.patience(slow_because(run, asked.susceptibility)):
        found = calibrate_run(run, target, solve_for=asked.solved)
        curve = account_run(found, **target.whose)
        if asked.solve_for == "all":
            ways = find_alternatives(run, target, seconds=_WAYS_SECONDS)
    if asked.as_json:
        show.print_json(_as_json(asked, target, found, curve, ways))
        return
    rows = _run_rows(found)
    measured = target_shown(target, curve.exposure(target))
    name = target_name(target)
    rows.append((f"{name}, {at_most(curve)}", measured))
    remarks = proved_instead(found, curve)
    if asked.notion == "gdp" and (more := _gdp_rows(curve, target)):
        rows += more
        remarks = [mu_and_epsilon(_SHOWN_DELTA), *remarks]
    answer = f"{_advice(found, asked.solved)}: {target_sentence(target, curve)}"
    show.print_answer(rows, answer, curve, explain=asked.explain, remarks=remarks)
    if ways is not None:
        _print_ways(ways)


def _as_json(
    asked: CalibrateSettings, target: PrivacyTarget, found: NoisySGD, curve: TradeOff, ways: Ways | None
) -> dict[str, Any]:
    delta = _SHOWN_DELTA if target.delta is None and asked.notion == "gdp" else target.delta
    return {
        **asked_as_json(found, asked),
        **{name: getattr(found, name) for name in ("noise_std", "noise_multiplier", "batch_size", "num_steps")},
        "target": show.target_as_json(target),
        "achieved": curve.exposure(target),
        "needed": found.noise_std > 0.0 if asked.solved == "noise_std" else None,
        "mu": curve.equivalent_mu(),
        "gdp_mu": curve.gdp_mu if asked.notion == "gdp" else None,
        "epsilon": None if delta is None else curve.epsilon(delta),
        "delta": delta,
        **show.claim_as_json(curve),
        "alternatives": None if ways is None else _ways_as_json(ways, asked),
    }


def _ways_as_json(ways: Ways, asked: CalibrateSettings) -> dict[str, Any]:
    from gmip.report.advice_words import alternative_command

    return {
        "open": [
            {
                "change": way.change,
                "run": as_understood(way.runs[0], asked),
                "value": way.value,
                "kind": way.curve.kind,
                "for_whom": way.curve.for_whom,
                "command": alternative_command(way, ways),
            }
            for way in ways.open
        ],
        "closed": [dataclasses.asdict(one) for one in ways.closed],
    }


def _print_ways(ways: Ways) -> None:
    """The ways beside the noise that was asked for, each alone."""
    from gmip.report.advice_words import NAMES, alternative_command, closed_sentence, setting_words

    others = [way for way in ways.open if way.change != "noise"]
    rows = [
        (
            f"{NAMES[way.change]}: {setting_words(way.change, way.runs, ways.runs)}",
            reached(ways.target, way.value, way.curve.kind),
        )
        for way in others
    ]
    closed = closed_sentence(ways.closed, ways.target)
    if not rows:
        print("No other way is needed." if ways.met else f"No other way leads there. {closed}")
        return
    notes = [closed] if closed else []
    notes.append("What each costs in accuracy is not measured here: gmip audit --try-advice measures it.")
    show.print_people(rows, "Other ways to the same target, each alone:", notes)
    for way in others:
        command = alternative_command(way, ways)
        if command is not None:
            print(f"# {NAMES[way.change]}\n{command}")  # a comment of the shell: all of it can be pasted


def _run_rows(run: NoisySGD) -> list[tuple[str, str]]:
    multiplier = run.noise_multiplier
    return [
        (NOISE, _numbers.noise(run.noise_std)),
        ("noise multiplier (Opacus)", "needs --clip" if multiplier is None else _numbers.noise(multiplier)),
        ("batch size", str(run.batch_size)),
        ("steps", str(run.num_steps)),
    ]


def _gdp_rows(curve: TradeOff, target: PrivacyTarget) -> list[tuple[str, str]]:
    """What differential privacy is said in: an equivalent mu is none."""
    adjacency = curve.claim.adjacency
    if target.measure == "epsilon":  # a mu for every FPR says nothing about what was asked at one delta
        return []
    epsilon = _numbers.number(curve.epsilon(_SHOWN_DELTA), "up")
    return [
        (f"mu at every FPR (GDP, {adjacency}), at most", _numbers.number(curve.gdp_mu or 0.0, "up")),
        (f"epsilon at delta = {_SHOWN_DELTA:g} ({adjacency}), {at_most(curve)}", epsilon),
    ]


def _advice(found: NoisySGD, solved: SolveFor) -> str:
    if solved == "batch_size":
        return f"Use batches of {found.batch_size} and {found.num_steps} steps"
    if solved == "num_steps":
        return f"Train for up to {found.num_steps} steps"
    if found.noise_std == 0.0 or found.noise_multiplier is None:
        return "No noise is needed"
    return (
        f"Add noise of std {_numbers.noise(found.noise_std)} to the mean gradient (noise multiplier "
        f"{_numbers.noise(found.noise_multiplier)})"
    )
