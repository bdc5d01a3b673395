"""`gmip calibrate`: the noise (or batch size, or number of steps) that a privacy target needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import gmip
from gmip import _numbers
from gmip.accounting.account import account as account_run
from gmip.accounting.alternative_words import NAMES, calculator_command, closed_sentence, reached, setting_words
from gmip.accounting.alternatives import Ways
from gmip.accounting.alternatives import alternatives as find_alternatives
from gmip.accounting.calibrate import SolveFor
from gmip.accounting.calibrate import calibrate as calibrate_run
from gmip.accounting.claims import at_most
from gmip.accounting.tradeoff import TradeOff
from gmip.cli import options, parse, show
from gmip.cli.errors import BadRequest
from gmip.cli.schedule import as_understood, build_runs, slow_because
from gmip.cli.stages import patience
from gmip.vocabulary import NOTIONS, NoisySGD, PrivacyTarget

__all__ = ["calibrate"]

HOLDS: tuple[Literal["steps", "epochs"], ...] = ("steps", "epochs")
_WAYS_SECONDS = 120.0  # for the ways beside noise: what takes longer is named, not computed
SHOWN_DELTA = 1.0e-6  # where differential privacy is shown and none was asked for
SOLVABLE: dict[str, SolveFor] = {"noise-std": "noise_std", "batch-size": "batch_size", "steps": "num_steps"}


def calibrate(
    dataset_size: options.DatasetSize = None,
    batch_size: options.BatchSize = None,
    steps: options.Steps = None,
    epochs: options.Epochs = None,
    params: options.Params = None,
    sampling: options.SamplingOption = None,
    drop_last: options.DropLast = False,
    rank: options.Rank = None,
    phase: options.PhaseOption = None,
    clip: options.Clip = None,
    noise_std: options.NoiseStd = None,
    noise_multiplier: options.NoiseMultiplier = None,
    target_mu: options.TargetMu = None,
    target_tpr: options.TargetTpr = None,
    target_advantage: options.TargetAdvantage = None,
    target_epsilon: options.TargetEpsilon = None,
    delta: options.DeltaOption = None,
    notion: options.NotionOption = None,
    susceptibility: options.Susceptibility = None,
    susceptibility_file: options.SusceptibilityFile = None,
    attacker_knows: options.AttackerKnows = None,
    bound: options.BoundOption = None,
    composition: options.CompositionOption = None,
    solve_for: Annotated[
        str | None,
        options.option(
            "--solve-for",
            "noise-std|batch-size|steps",
            options.TARGET,
            "noise-std (default): the least noise; batch-size: the smallest batch; steps: the most steps. The last two "
            "keep the noise that you pass (its std on the batch MEAN).",
        ),
    ] = None,
    hold: Annotated[
        str | None,
        options.option(
            "--hold",
            "steps|epochs",
            options.TARGET,
            "With --solve-for batch-size: keep the number of steps (default) or of epochs.",
        ),
    ] = None,
    alternatives: Annotated[
        bool,
        options.option(
            "--alternatives",
            None,
            options.TARGET,
            "Also find the other ways to the target: larger batches, fewer steps, fewer parameters, more data; with "
            "--noise-std (what there is now) a smaller clipping norm, too.",
        ),
    ] = False,
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Find the least noise that meets a privacy target.

    Example: gmip calibrate --dataset-size 48000 --batch-size 400 --steps 1200
    --params 650 --clip 500 --target-mu 0.4

    A schedule (several --phase) keeps its shape: the noise of all phases is
    scaled by one factor, or all get one noise multiplier if none is given.

    JSON keys: gmip (its version), run (every phase as found), noise_std (on
    the batch MEAN), noise_multiplier (Opacus; null without --clip),
    batch_size, num_steps (null for a schedule whose phases differ), target,
    achieved (the value that the run reaches), needed (whether the run needs
    noise; null with --solve-for batch-size or steps), mu (equivalent mu over
    the FPRs of mu_fpr_range), gdp_mu (with --notion gdp: the mu of Gaussian
    differential privacy, at every FPR), adjacency, epsilon and delta (where
    a delta is given), tpr_error, kind, for_whom, caveat, assumptions;
    alternatives (null without --alternatives; open: change, run, value, kind,
    for_whom, command; closed: change, why).
    """
    solve_for = solve_for or "noise-std"
    solved = SOLVABLE[parse.one_of("--solve-for", solve_for, tuple(SOLVABLE))]
    kind = parse.one_of("--notion", notion or "gmip", NOTIONS)
    for option, value in {"--noise-std": noise_std, "--noise-multiplier": noise_multiplier}.items():
        if solved == "noise_std" and value is not None and not phase and not alternatives:
            raise BadRequest(
                f"{option} is what gmip calibrate finds", remedy="leave it out, or pass --solve-for batch-size or steps"
            )
    if phase and solved != "noise_std":
        raise BadRequest(f"--solve-for {solve_for} is for a single run, not for a schedule", remedy="leave out --phase")
    if alternatives and solved != "noise_std":
        raise BadRequest(
            f"--alternatives does not apply to --solve-for {solve_for}, which is one of them", remedy="leave one out"
        )
    if hold is not None and solved != "batch_size":
        raise BadRequest(f"--hold does not apply to --solve-for {solve_for}", remedy="leave it out")
    if kind == "gdp":
        idle = {
            "--susceptibility": susceptibility,
            "--susceptibility-file": susceptibility_file,
            "--attacker-knows": attacker_knows,
            "--bound": bound,
            "--rank": rank,
        }
        for option, value in idle.items():
            if value is not None:
                raise BadRequest(f"{option} does not apply to --notion gdp", remedy="leave it out")
    record = options.read_susceptibility(susceptibility, susceptibility_file)
    target = options.read_target(
        target_mu,
        target_tpr,
        target_advantage,
        target_epsilon,
        delta,
        notion=kind,
        susceptibility=record,
        attacker_knows=options.read_attacker(attacker_knows),
    )
    runs = build_runs(
        dataset_size=dataset_size,
        batch_size=batch_size,
        steps=steps,
        epochs=epochs,
        params=params,
        sampling=sampling,
        drop_last=drop_last,
        rank=rank,
        clip=clip,
        noise_std=noise_std,
        noise_multiplier=noise_multiplier,
        phase=phase,
    )
    how: dict[str, Any] = {
        "bound": options.read_bound(bound),
        "composition": options.read_composition(composition),
    }
    held = parse.one_of("--hold", hold or "steps", HOLDS)

    ways = None
    with patience(slow_because(runs, record)):
        if phase:
            found = calibrate_run(runs, target, **how)
        else:
            found = [calibrate_run(runs[0], target, **how, solve_for=solved, hold=held)]
        curve = account_run(found, **target.whose, **how)
        if alternatives:
            ways = find_alternatives(runs, target, seconds=_WAYS_SECONDS, **how)
    achieved = curve.exposure(target)
    small = target.delta
    if json:
        listed = record if record is None or isinstance(record, str) else [float(k) for k in record]
        show.print_json(
            {
                "gmip": gmip.__version__,
                "run": as_understood(found),
                "notion": kind,
                "susceptibility": listed,
                "attacker_knows": target.attacker_knows,
                **how,
                **{name: _common(found, name) for name in ("noise_std", "noise_multiplier", "batch_size", "num_steps")},
                "target": options.target_as_json(target),
                "achieved": achieved,
                "needed": any(run.noise_std > 0.0 for run in found) if solved == "noise_std" else None,
                "mu": curve.equivalent_mu(),
                "gdp_mu": curve.gdp_mu if kind == "gdp" else None,
                "epsilon": None if small is None else curve.epsilon(small),
                "delta": small,
                **show.claim_as_json(curve),
                "alternatives": None if ways is None else _ways_as_json(ways),
            }
        )
        return
    rows = [row for number, run in enumerate(found, start=1) for row in _run_rows(run, number if phase else None)]
    rows.append((f"{options.target_name(target)}, {at_most(curve)}", options.shown(target, achieved)))
    if kind == "gdp":
        rows += _gdp_rows(curve, target)
    show.print_answer(
        rows, f"{_advice(found, solved)}: {options.target_sentence(target, curve)}", curve, explain=explain
    )
    if ways is not None:
        _print_ways(ways)


def _ways_as_json(ways: Ways) -> dict[str, Any]:
    return {
        "open": [
            {
                "change": way.change,
                "run": as_understood(way.runs),
                "value": way.value,
                "kind": way.curve.kind,
                "for_whom": way.curve.for_whom,
                "command": calculator_command(way, ways),
            }
            for way in ways.open
        ],
        "closed": [{"change": one.change, "why": one.why} for one in ways.closed],
    }


def _print_ways(ways: Ways) -> None:
    """The ways beside the noise that was asked for, each alone."""
    others = [way for way in ways.open if way.change != "noise"]
    rows = [(f"{NAMES[way.change]}: {setting_words(way, ways.runs)}", reached(way, ways.target)) for way in others]
    if not rows:
        print("No other way is needed." if ways.met else f"No other way leads there. {closed_sentence(ways.closed)}")
        return
    notes = [closed_sentence(ways.closed)] if ways.closed else []
    notes.append("What each costs in accuracy is not measured here: gmip audit --try-advice measures it.")
    show.print_people(rows, "Other ways to the same target, each alone:", notes)
    for way in others:
        command = calculator_command(way, ways)
        if command is not None:
            print(f"# {NAMES[way.change]}\n{command}")  # a comment of the shell: all of it can be pasted


def _common(runs: Sequence[NoisySGD], name: str) -> Any:
    """The value that all phases share, or None."""
    values = {getattr(run, name) for run in runs}
    return values.pop() if len(values) == 1 else None


def _run_rows(run: NoisySGD, number: int | None) -> list[tuple[str, str]]:
    phase = "" if number is None else f"phase {number}: "
    multiplier = run.noise_multiplier
    return [
        (f"{phase}noise std on the mean gradient", _numbers.number(run.noise_std, "up", 5)),
        (
            f"{phase}noise multiplier (Opacus)",
            "needs --clip" if multiplier is None else _numbers.number(multiplier, "up", 5),
        ),
        (f"{phase}batch size", str(run.batch_size)),
        (f"{phase}steps", str(run.num_steps)),
    ]


def _gdp_rows(curve: TradeOff, target: PrivacyTarget) -> list[tuple[str, str]]:
    """What differential privacy is said in: an equivalent mu is none."""
    adjacency = curve.claim.adjacency
    rows = [(f"mu at every FPR (GDP, {adjacency}), at most", _numbers.number(curve.gdp_mu or 0.0, "up"))]
    if target.measure != "epsilon":
        epsilon = _numbers.number(curve.epsilon(SHOWN_DELTA), "up")
        rows.append((f"epsilon at delta = {SHOWN_DELTA:g} ({adjacency}), {at_most(curve)}", epsilon))
    return rows


def _advice(runs: Sequence[NoisySGD], solved: SolveFor) -> str:
    if len(runs) > 1:
        if all(run.noise_std == 0.0 for run in runs):
            return "No noise is needed"
        return "Add the noise below to the mean gradients of each phase"
    found = runs[0]
    if solved == "batch_size":
        return f"Use batches of {found.batch_size} and {found.num_steps} steps"
    if solved == "num_steps":
        return f"Train for up to {found.num_steps} steps"
    if found.noise_std == 0.0 or found.noise_multiplier is None:
        return "No noise is needed"
    return (
        f"Add noise of std {_numbers.number(found.noise_std, 'up', 5)} to the mean gradient (noise multiplier "
        f"{_numbers.number(found.noise_multiplier, 'up', 5)})"
    )
