"""`gmip calibrate`: the noise (or batch size, or number of steps) that a privacy target needs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from gmip import _numbers
from gmip._cli import options, parse, show
from gmip._cli.errors import BadRequest
from gmip.accounting.account import NOTIONS
from gmip.accounting.account import account as account_run
from gmip.accounting.calibrate import SolveFor
from gmip.accounting.calibrate import calibrate as calibrate_run
from gmip.accounting.mechanism import NoisySGD

__all__ = ["calibrate"]

HOLDS: tuple[Literal["steps", "epochs"], ...] = ("steps", "epochs")
SOLVABLE: dict[str, SolveFor] = {"noise-std": "noise_std", "batch-size": "batch_size", "steps": "num_steps"}


def calibrate(
    dataset_size: options.DatasetSize = None,
    batch_size: options.BatchSize = None,
    steps: options.Steps = None,
    params: options.Params = None,
    sampling: options.SamplingOption = None,
    rank: options.Rank = None,
    clip: options.Clip = None,
    noise_std: options.NoiseStd = None,
    noise_multiplier: options.NoiseMultiplier = None,
    target_mu: options.TargetMu = None,
    target_tpr: options.TargetTpr = None,
    target_advantage: options.TargetAdvantage = None,
    notion: options.NotionOption = None,
    susceptibility: options.Susceptibility = None,
    susceptibility_file: options.SusceptibilityFile = None,
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
    explain: options.Explain = False,
    json: options.Json = False,
) -> None:
    """Find the least noise that meets a privacy target.

    Example: gmip calibrate --dataset-size 48000 --batch-size 400 --steps 1200
    --params 650 --clip 500 --target-mu 0.4

    JSON keys: noise_std (on the batch MEAN), noise_multiplier (Opacus; null
    without --clip), batch_size, num_steps, target, achieved (the value that
    the run reaches), needed (whether the run needs noise; null with
    --solve-for batch-size or steps), assumptions.
    """
    target = options.read_target(target_mu, target_tpr, target_advantage)
    solve_for = solve_for or "noise-std"
    solved = SOLVABLE[parse.one_of("--solve-for", solve_for, tuple(SOLVABLE))]
    kind = parse.one_of("--notion", notion or "gmip", NOTIONS)
    for option, value in {"--noise-std": noise_std, "--noise-multiplier": noise_multiplier}.items():
        if solved == "noise_std" and value is not None:
            raise BadRequest(
                f"{option} is what gmip calibrate finds", remedy="leave it out, or pass --solve-for batch-size or steps"
            )
    if hold is not None and solved != "batch_size":
        raise BadRequest(f"--hold does not apply to --solve-for {solve_for}", remedy="leave it out")
    if kind == "gdp":
        idle = {
            "--susceptibility": susceptibility,
            "--susceptibility-file": susceptibility_file,
            "--bound": bound,
            "--rank": rank,
        }
        for option, value in idle.items():
            if value is not None:
                raise BadRequest(f"{option} does not apply to --notion gdp", remedy="leave it out")
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
    accounting: dict[str, Any] = {
        "notion": kind,
        "susceptibility": options.read_susceptibility(susceptibility, susceptibility_file),
        "bound": options.read_bound(bound),
        "composition": options.read_composition(composition),
    }
    held = parse.one_of("--hold", hold or "steps", HOLDS)

    found = calibrate_run(run, **target.keywords, **accounting, solve_for=solved, hold=held)
    curve = account_run(found, **accounting)
    achieved = target.measure(curve)
    if json:
        show.print_json(
            {
                "noise_std": found.noise_std,
                "noise_multiplier": found.noise_multiplier,
                "batch_size": found.batch_size,
                "num_steps": found.num_steps,
                "target": target.answer,
                "achieved": achieved,
                "needed": found.noise_std > 0.0 if solved == "noise_std" else None,
                "assumptions": list(curve.assumptions),
            }
        )
        return
    multiplier = found.noise_multiplier
    rows = [
        ("noise std on the mean gradient", _numbers.number(found.noise_std, "up", 5)),
        ("noise multiplier (Opacus)", "needs --clip" if multiplier is None else _numbers.number(multiplier, "up", 5)),
        ("batch size", str(found.batch_size)),
        ("steps", str(found.num_steps)),
        (f"{target.name}, at most", target.shown(achieved)),
    ]
    show.print_answer(rows, f"{_advice(found, solved)}: {target.words}.", curve, explain=explain)


def _advice(found: NoisySGD, solved: SolveFor) -> str:
    if solved == "batch_size":
        return f"Use batches of {found.batch_size} and {found.num_steps} steps"
    if solved == "num_steps":
        return f"Train for at most {found.num_steps} steps"
    if found.noise_std == 0.0 or found.noise_multiplier is None:
        return "No noise is needed"
    return (
        f"Add noise of std {_numbers.number(found.noise_std, 'up', 5)} to the mean gradient (noise multiplier "
        f"{_numbers.number(found.noise_multiplier, 'up', 5)})"
    )
