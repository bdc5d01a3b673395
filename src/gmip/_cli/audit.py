"""`gmip audit`: does this model leak who was in its training data?"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gmip import _numbers
from gmip._cli import cluster, options, parse, show
from gmip._cli.errors import BadRequest, needs_extra
from gmip._cli.stages import stages, warnings_in_one_line

if TYPE_CHECKING:
    from gmip.auditing.schema import AuditResult, Gate

__all__ = ["audit", "init"]

WHAT, HOW, SHADOWS, OUTPUT = "What to audit", "How to audit", "Shadow models (for attacks that need them)", "Output"
YAML = (".yaml", ".yml")


def audit(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(metavar="TASK|AUDIT.YAML", show_default=False, help="A task, or a settings file."),
    ] = None,
    task: Annotated[
        str | None,
        options.option("--task", "TASK", WHAT, "A built-in task, or path/to/file.py:make_task (default digits)."),
    ] = None,
    run: Annotated[
        list[str] | None,
        options.option(
            "--run",
            "[NAME=]DIR",
            WHAT,
            "A recorded run; repeat for several. Without it, gmip trains one by the task's recipe.",
        ),
    ] = None,
    attacks: Annotated[
        str | None,
        options.option("--attacks", "A,B,...", WHAT, "Attacks; gmip attacks lists them (default: see gmip init)."),
    ] = None,
    target_mu: options.TargetMu = None,
    target_advantage: options.TargetAdvantage = None,
    notion: options.NotionOption = None,
    candidates: Annotated[
        str | None,
        options.option("--candidates", "M", HOW, "Attack at most M members and M non-members (default 2000)."),
    ] = None,
    repeats: Annotated[
        str | None,
        options.option(
            "--repeats",
            "R",
            HOW,
            "Train the recipe R times with different seeds (default 1). From 5 on, intervals include the "
            "variation between runs.",
        ),
    ] = None,
    seed: Annotated[str | None, options.option("--seed", "SEED", HOW, "Seed of the audit (default: random).")] = None,
    confidence: Annotated[
        str | None, options.option("--confidence", "P", HOW, "Confidence of intervals and verdict (default 0.95).")
    ] = None,
    delta: Annotated[
        str | None, options.option("--delta", "DELTA", HOW, "delta of the lower bounds on epsilon (default 1e-5).")
    ] = None,
    claim_mu: Annotated[
        str | None,
        options.option(
            "--claim-mu", "MU", HOW, "The mu that was promised (default: what gmip account says about the run)."
        ),
    ] = None,
    advise_tpr: Annotated[
        str | None,
        options.option(
            "--advise-tpr", "TPR@FPR", HOW, "Privacy target of the advice in the report (default 0.05@0.01)."
        ),
    ] = None,
    shadows: Annotated[
        str | None, options.option("--shadows", "M", SHADOWS, "Number of shadow models (default 64).")
    ] = None,
    workers: cluster.Workers = None,
    backend: cluster.BackendOption = None,
    scheduler_address: cluster.SchedulerAddress = None,
    out: Annotated[
        str | None,
        options.option("--out", "DIR", OUTPUT, "Folder for the report and for unfinished work (default audit)."),
    ] = None,
    title: Annotated[str | None, options.option("--title", "TEXT", OUTPUT, "Title of the report.")] = None,
    fail_above_tpr: Annotated[
        str | None,
        options.option(
            "--fail-above-tpr",
            "TPR@FPR",
            OUTPUT,
            "Exit with code 1 if an attack finds more than this, with confidence.",
        ),
    ] = None,
    junit: Annotated[
        str | None, options.option("--junit", "FILE", OUTPUT, "Also write the verdict as JUnit XML.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Attack a trained model and write a report of what leaks.

    The report compares what the attacks find with what was promised.

    Examples: gmip audit --task digits
              gmip audit my_project.py:make_task --run runs/a --attacks glir,loss,lira
              gmip audit audit.yaml --fail-above-tpr 0.05@0.01

    Interrupted? Run the command again: it continues where it stopped.

    The folder names the most exposed members and holds the trained models:
    protect it like the data. Exit codes: 0; 1 if --fail-above-tpr fails; 2 if
    the request is wrong.
    """
    given: dict[str, Any] = {
        "task": task,
        "attacks": None if attacks is None else [name.strip() for name in attacks.split(",") if name.strip()],
        "candidates": candidates and parse.count("--candidates", candidates),
        "repeats": repeats and parse.count("--repeats", repeats),
        "seed": None if seed is None else parse.seed("--seed", seed),
        "confidence": confidence and parse.probability("--confidence", confidence),
        "delta": delta and parse.probability("--delta", delta),
        "claim_mu": claim_mu and parse.positive("--claim-mu", claim_mu),
        "target_tpr": advise_tpr and _limit("--advise-tpr", advise_tpr),
        "fail_above_tpr": fail_above_tpr and _limit("--fail-above-tpr", fail_above_tpr),
        "out": out,
        "title": title,
        "runs": _runs(run, target_mu, target_advantage, notion),
    }
    given = {name: value for name, value in given.items() if value is not None}
    trained = cluster.read_cluster(workers, backend, scheduler_address)
    if shadows is not None:
        trained["count"] = parse.count("--shadows", shadows)
    path = source if source is not None and source.lower().endswith(YAML) else None
    if source is not None and path is None:
        if task is not None:
            raise BadRequest(f"{source!r} and --task {task} both name a task", remedy="pass only one of them")
        given["task"] = source
    pipeline, report = _framework()
    settings = {} if path is None else pipeline.read_yaml(path)
    if trained:
        shared = settings.get("shadows", {})
        given["shadows"] = (dict(shared) if isinstance(shared, dict) else {}) | trained
    config = pipeline.make_config(settings | given, path)
    with warnings_in_one_line(), stages() as watch:
        try:
            audited = pipeline.run_audit(config, watch=watch, command=context.obj)
        except KeyboardInterrupt:
            print("Interrupted: run the command again to continue; finished work is kept.", file=sys.stderr)
            raise
    written = report.write_report(audited.result, config.out, candidates=audited.candidates)
    if junit is not None:
        report.write_junit(audited.result, Path(junit))
    if json:
        print(audited.result.model_dump_json(indent=2))
    else:
        _print(audited.result, str(written.html))
    failed = [f"{one.name}: {_gate(one.gate)}" for one in audited.result.runs if one.gate and not one.gate.passed]
    for line in failed:
        print(line, file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _gate(gate: Gate) -> str:
    return (
        f"{gate.attack} finds at least {_numbers.percent(gate.tpr_lower, 'down')} of the members at "
        f"{_numbers.rate(gate.fpr)} false alarms, more than the limit of {_numbers.rate(gate.limit)}."
    )


def init(
    path: Annotated[str, typer.Argument(metavar="FILE", help="The file to write.")] = "audit.yaml",
) -> None:
    """Write a settings file for gmip audit, with explanations."""
    from gmip.pipeline.config import TEMPLATE

    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError:
        raise BadRequest(f"{path} already exists", remedy="remove it, or pass another file name") from None
    except OSError as error:
        raise BadRequest(f"{path} cannot be written ({error.strerror})", remedy="pass another file name") from None
    print(f"Wrote {path}. Next: gmip audit {shlex.quote(path)}")


def _framework() -> tuple[Any, Any]:
    with needs_extra("audit", "gmip audit"):
        from gmip import pipeline, report
    return pipeline, report


def _limit(option: str, text: str) -> dict[str, float]:
    tpr, fpr = parse.tpr_at_fpr(option, text)
    return {"tpr": tpr, "fpr": fpr}


def _runs(
    given: list[str] | None, mu: str | None, advantage: str | None, notion: str | None
) -> list[dict[str, Any]] | None:
    """Recorded runs as NAME=DIR or DIR, or the one run to train."""
    target: dict[str, Any] = {}
    if mu is not None or advantage is not None:
        target = dict(options.read_target(mu, None, advantage).keywords)
        if notion is not None:
            target["notion"] = parse.one_of("--notion", notion, ("gmip", "gdp"))
    elif notion is not None:
        raise BadRequest(
            "--notion applies to a privacy target, and there is none", remedy="add --target-mu or --target-advantage"
        )
    if not given:
        return [target] if target else None
    if target:
        raise BadRequest(
            "--run names a run that is already trained, so it cannot be trained to a target",
            remedy="leave out the target",
        )
    runs = []
    for text in given:
        name, equals, path = text.partition("=")
        runs.append({"name": name, "path": path} if equals and name else {"path": path or text})
    return runs


def _print(result: AuditResult, where: str) -> None:
    from gmip.report.sentences import cautions

    for one in result.runs:
        rows = [("run", one.name), ("verdict", one.verdict.kind)]
        rows += [
            (f"members found at {_numbers.rate(key)} false alarms, promised at most", _numbers.percent(most, "up"))
            for key, most in one.promises[0].tpr_at.items()
        ]
        for attack in one.attacks:
            found = ", ".join(
                f"{_numbers.percent(share.value, 'nearest')} at {_numbers.rate(key)}"
                for key, share in attack.tpr_at.items()
            )
            rows.append((f"{attack.attack}: AUC {_numbers.number(attack.auc.value, 'nearest')}, members found", found))
        whose = f"{one.name}: " if len(result.runs) > 1 else ""
        show.print_people(rows, f"{whose}{one.verdict.headline}", cautions(one))
    print(f"Report: {where}")
