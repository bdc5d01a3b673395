"""`gmip audit`: does this model leak who was in its training data?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gmip import _numbers
from gmip._io import hold_folder, read_yaml, writing
from gmip.cli import cluster, options, parse
from gmip.cli.audit_printout import print_audit
from gmip.cli.errors import BadRequest, needs_extra
from gmip.cli.stages import stages, warnings_in_one_line

if TYPE_CHECKING:
    from gmip.auditing.schema import AuditResult, Gate
    from gmip.canaries.coins import PlantedRun
    from gmip.report import Written
from gmip.vocabulary import NOTIONS, Rate

__all__ = ["audit"]

WHAT, HOW, SHADOWS, OUTPUT = "What to audit", "How to audit", "Shadow models (for attacks that need them)", "Output"
YAML = (".yaml", ".yml")
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")  # `gmip._tables.SUFFIXES`, without importing it
ROLES = ("member", "score", "label", "probability", "logit", "loss", "id", "group", "run")


def audit(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK|AUDIT.YAML|TABLE",
            show_default=False,
            help="A task, a settings file, or a file of scores or predictions (.csv, .jsonl, .parquet).",
        ),
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
    model: Annotated[
        str | None,
        options.option(
            "--model", "FILE|DIR", WHAT, "Weights of a released model (.safetensors, .pt, a folder of save_pretrained)."
        ),
    ] = None,
    members: Annotated[
        str | None,
        options.option(
            "--members",
            "FILE",
            WHAT,
            "Its training records: a table of rows of the task's pool or of records, or rows such as 0:250.",
        ),
    ] = None,
    non_members: Annotated[
        str | None, options.option("--non-members", "FILE", WHAT, "Records that were not in, in the same form.")
    ] = None,
    canaries: Annotated[
        str | None,
        options.option("--canaries", "DIR", WHAT, "A run of gmip train --canaries: does it keep its promise to them?"),
    ] = None,
    group_by: Annotated[
        str | None,
        options.option(
            "--group-by", "NAME|FILE", HOW, "Who is exposed: by class, by one of the task's groups, or by a file."
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
    budget: Annotated[
        str | None,
        options.option(
            "--budget",
            "TIME",
            HOW,
            "Time for the attacks on a run, such as 5min; the report says what was left out (default 10min; none).",
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
    claim_epsilon: Annotated[
        str | None,
        options.option(
            "--claim-epsilon",
            "EPS@DELTA",
            HOW,
            "The differential privacy that was promised, instead (EPS alone: at --delta if given, else at delta 0).",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        options.option(
            "--column",
            "ROLE=NAME",
            WHAT,
            "Column of a file of scores or predictions; ROLE is member, score, label, probability, logit, loss, id, "
            "group or run; repeat for several.",
        ),
    ] = None,
    target_tpr: Annotated[
        str | None,
        options.option(
            "--target-tpr",
            "TPR@FPR",
            HOW,
            "What is good enough: at most this share of the members at this false-alarm rate (default 0.05@0.01).",
        ),
    ] = None,
    attacker: Annotated[
        str | None,
        options.option(
            "--attacker",
            "gradients|weights|predictions",
            HOW,
            "Who is out there: somebody who sees every gradient (federated learning; default), the released weights, "
            "or predictions only. Who sees less is answered for, too.",
        ),
    ] = None,
    try_advice: Annotated[
        bool,
        options.option(
            "--try-advice",
            None,
            HOW,
            "Train each way to the target a few times, on records that are not members, to measure its accuracy. Takes "
            "up to a quarter of --budget, on top of it.",
        ),
    ] = False,
    shadows: Annotated[
        str | None, options.option("--shadows", "M", SHADOWS, "Number of shadow models (default 64).")
    ] = None,
    workers: cluster.Workers = None,
    backend: cluster.BackendOption = None,
    scheduler_address: cluster.SchedulerAddress = None,
    device: Annotated[
        str | None, options.option("--device", "NAME", HOW, "Where to compute: cpu, cuda or mps (default cpu).")
    ] = None,
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
    share: Annotated[
        bool,
        options.option(
            "--share", None, OUTPUT, "Also write report-to-share.html, which names no record, file or seed."
        ),
    ] = False,
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
              gmip audit my_project.py:make_task --model weights.safetensors
                  --members members.csv --non-members others.csv
              gmip audit scores.csv --claim-mu 1
              gmip audit predictions.csv --attacks loss,lira
              gmip audit --canaries runs/a

    A file of scores has a column member (1 or 0) and one or more columns of
    scores (higher: more likely a member), of any attack in any framework. A
    file of predictions has member, label, and p_CLASS or logit_CLASS for each
    class, or loss; and of reference models the same as ref_NAME_....

    Interrupted? Run the command again: it continues where it stopped.

    The folder names the most exposed members and holds the trained models:
    protect it like the data. Exit codes: 0; 1 if --fail-above-tpr fails; 2 if
    the request is wrong.
    """
    _remove_former(junit)
    if claim_epsilon is not None and delta is not None and "@" not in claim_epsilon:
        claim_epsilon = f"{claim_epsilon}@{delta}"
    planted = None if canaries is None else _planted(canaries, source)
    if planted is not None:
        source = str(planted.table)
        title = title or f"Audit of {planted.planted} canaries"
    if source is not None and Path(source).suffix.lower() in TABLES:
        refused = {
            "--task": task,
            "--run": run,
            "--model": model,
            "--members": members,
            "--non-members": non_members,
            "--group-by": group_by,
            "--target-mu": target_mu,
            "--target-advantage": target_advantage,
            "--notion": notion,
            "--candidates": candidates,
            "--repeats": repeats,
            "--budget": budget,
            "--attacker": attacker,
            "--try-advice": try_advice or None,
            "--shadows": shadows,
            "--device": device,
            "--workers": workers,
            "--backend": backend,
            "--scheduler-address": scheduler_address,
        }
        for option, value in refused.items():
            if value is not None:
                remedy = "name the column: --column group=NAME" if option == "--group-by" else "leave it out"
                raise BadRequest("does not apply to a file of scores or predictions", argument=option, remedy=remedy)
        claim: Any = _claim(claim_mu, claim_epsilon)
        standards = {
            "claim": planted.promise if planted is not None and claim is None else claim,
            "confidence": confidence and parse.probability("--confidence", confidence),
            "delta": delta and parse.probability("--delta", delta),
            "fail_above_tpr": fail_above_tpr and Rate.parse("--fail-above-tpr", fail_above_tpr),
            "target_tpr": target_tpr and Rate.parse("--target-tpr", target_tpr),
            "seed": None if seed is None else parse.seed("--seed", seed),
        }
        _audit_table(
            Path(source),
            _columns(column or []),
            _names(attacks),
            {name: value for name, value in standards.items() if value is not None},
            Path(out or "audit"),
            title=title,
            command=context.obj,
            share=share,
            junit=junit,
            json=json,
        )
        return
    if column is not None:
        raise BadRequest("applies to a file of scores or predictions", argument="--column", remedy="leave it out")
    _claim(claim_mu, claim_epsilon)
    given: dict[str, Any] = {
        "task": task,
        "attacks": _names(attacks),
        "candidates": candidates and parse.count("--candidates", candidates),
        "repeats": repeats and parse.count("--repeats", repeats),
        "budget": budget,
        "seed": None if seed is None else parse.seed("--seed", seed),
        "confidence": confidence and parse.probability("--confidence", confidence),
        "delta": delta and parse.probability("--delta", delta),
        "claim_mu": claim_mu and parse.positive("--claim-mu", claim_mu),
        "claim_epsilon": claim_epsilon,
        "target_tpr": target_tpr and Rate.parse("--target-tpr", target_tpr),
        "attacker": attacker,
        "try_advice": try_advice or None,
        "fail_above_tpr": fail_above_tpr and Rate.parse("--fail-above-tpr", fail_above_tpr),
        "device": device,
        "out": out,
        "title": title,
        "group_by": group_by,
        "runs": _released(model, members, non_members, run) or _runs(run, target_mu, target_advantage, notion),
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
    auditing, report = _framework()
    settings = {} if path is None else read_yaml(path)
    if trained:
        shared = settings.get("shadows", {})
        given["shadows"] = (dict(shared) if isinstance(shared, dict) else {}) | trained
    config = auditing.make_config(settings | given, path)
    with hold_folder(config.out):
        with warnings_in_one_line(), stages() as watch:
            try:
                result = auditing.run_audit(config, watch=watch, command=context.obj)
            except KeyboardInterrupt:
                print("Interrupted: run the command again to continue; finished work is kept.", file=sys.stderr)
                raise
        written = report.write_report(result, config.out, candidates=result.candidates, share=share)
    _finish(result, written, junit=junit, json=json)


def _remove_former(junit: str | None) -> None:
    """A verdict of an earlier audit is not to stand where this one ends early."""
    if junit is None or not Path(junit).is_file():
        return
    with writing(Path(junit)):
        if b"gmip.audit" in Path(junit).read_bytes():
            Path(junit).unlink()


def _planted(folder: str, source: str | None) -> PlantedRun:
    from gmip.canaries.coins import read_canaries

    if source is not None:
        raise BadRequest(f"{source!r} and --canaries {folder} both name what to audit", remedy="pass one of them")
    return read_canaries(Path(folder))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _audit_table(
    path: Path,
    columns: dict[str, list[str]],
    attacks: list[str] | None,
    standards: dict[str, Any],
    out: Path,
    *,
    title: str | None,
    command: str,
    share: bool,
    junit: str | None,
    json: bool,
) -> None:
    """The audit of a file of scores or predictions: no framework is loaded, nothing is written before it is read."""
    with needs_extra("audit", "gmip audit"):
        from gmip import report
        from gmip.auditing import score_audit
        from gmip.auditing.score_table import read_scores
    table = read_scores(path, columns, attacks)
    with hold_folder(out), stages() as watch:
        by = score_audit.Standards(**standards)
        result = score_audit.audit_score_table(table, by, path=path, title=title, command=command, watch=watch)
        written = report.write_report(result, out, candidates=result.candidates, share=share)
    _finish(result, written, junit=junit, json=json)


def _finish(result: AuditResult, written: Written, *, junit: str | None, json: bool) -> None:
    """Say what was found; exit code 1 if it is more than the gate lets through."""
    from gmip.report import write_junit
    from gmip.report.sentences import blind_gate

    if junit is not None:
        write_junit(result, Path(junit))
    if json:
        print(written.json.read_text(encoding="utf-8"), end="")
    else:
        print_audit(result, written)
    sys.stdout.flush()  # a full disk is not to look like a failed gate
    for one in result.runs:
        if one.gate is not None and one.gate.blind:
            print(f"{one.name}: the gate passed only because {blind_gate(one, one.gate)}.", file=sys.stderr)
    failed = [f"{one.name}: {_gate(one.gate)}" for one in result.runs if one.gate and not one.gate.passed]
    for line in failed:
        print(line, file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _gate(gate: Gate) -> str:
    if gate.doubted:
        return "the gate cannot tell: what the attacks found is no evidence, for the reason above. It does not pass."
    members = "the members of one group" if gate.within_group else "the members"
    return (
        f"{gate.attack} finds at least {_numbers.percent(gate.tpr_lower, 'down')} of {members} at "
        f"{_numbers.rate(gate.fpr)} false alarms, more than the limit of {_numbers.rate(gate.limit)}."
    )


def _framework() -> tuple[Any, Any]:
    with needs_extra("audit", "gmip audit"):
        from gmip import auditing, report
    return auditing, report


def _claim(mu: str | None, epsilon: str | None) -> float | tuple[float, float] | None:
    if mu is not None and epsilon is not None:
        raise BadRequest("--claim-mu and --claim-epsilon are both given", remedy="pass only one of them")
    if epsilon is not None:
        return parse.epsilon_at_delta("--claim-epsilon", epsilon)
    return None if mu is None else parse.non_negative("--claim-mu", mu)


def _columns(given: list[str]) -> dict[str, list[str]]:
    """ROLE=NAME, for scores also several."""
    found: dict[str, list[str]] = {}
    for text in given:
        role, equals, name = text.partition("=")
        if not (equals and name):
            raise BadRequest(
                f"must be ROLE=NAME, not {text!r}", argument="--column", remedy="pass one such as score=loss"
            )
        found.setdefault(parse.one_of("--column", role, ROLES), []).append(name)
    return found


def _released(
    model: str | None, members: str | None, non_members: str | None, run: list[str] | None
) -> list[dict[str, Any]] | None:
    """The one run that is a released model."""
    given = {"--model": model, "--members": members, "--non-members": non_members}
    if not any(value is not None for value in given.values()):
        return None
    lacking = next((option for option, value in given.items() if value is None), None)
    if lacking is not None:
        raise BadRequest(
            f"An audit of a released model needs {lacking}", remedy="pass --model, --members and --non-members together"
        )
    if run:
        raise BadRequest("--run and --model are both given", remedy="audit one after the other, and gmip compare them")
    return [{"model": model, "members": members, "non_members": non_members}]


def _runs(
    given: list[str] | None, mu: str | None, advantage: str | None, notion: str | None
) -> list[dict[str, Any]] | None:
    """Recorded runs as NAME=DIR or DIR, or the one run to train."""
    target: dict[str, Any] = {}
    if mu is not None or advantage is not None:
        wanted = parse.one_of("--notion", notion or "gmip", NOTIONS)
        target = options.read_target(mu, None, advantage, notion=wanted).as_json()
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
