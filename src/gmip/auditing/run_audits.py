"""The audit: runs -> scores -> `AuditResult`."""

from __future__ import annotations

import datetime
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gmip._io import hold_folder, make_folder
from gmip._progress import Watch, silent
from gmip.auditing.advice_trials import try_advice
from gmip.auditing.attack_runs import (
    check_attacks,
    choose_candidates,
    default_attacks,
    make_attacks,
    own_norms,
    record_groups,
    run_attacks,
)
from gmip.auditing.curves import OwnNorms, given_curve
from gmip.auditing.judge import Criteria, judge
from gmip.auditing.recompute import check_run
from gmip.auditing.recorded import recorded_evidence
from gmip.auditing.schema import AuditResult, Provenance
from gmip.auditing.settings import AuditConfig, make_config
from gmip.auditing.sources.recorded_runs import AuditedRun, audit_seed, make_runs
from gmip.errors import FileError, InvalidArgument, UnsupportedModel
from gmip.tasks import Task, load
from gmip.training.models import usable_device

__all__ = ["audit_task", "run_audit"]

_TRIALS: Final = 4  # one of so many parts of the budget is for trying advice, on top of it
_SHOWN_VERSIONS: Final = ("gmip", "torch", "opacus", "numpy", "scipy")


def audit_task(
    task: str | Task = "digits",
    *,
    runs: Sequence[str | os.PathLike[str] | Mapping[str, Any]] | None = None,
    attacks: Sequence[str | Mapping[str, Any]] | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> AuditResult:
    """`gmip.audit` of runs of a task."""
    given: dict[str, Any] = dict(settings)
    if runs is not None:
        given["runs"] = [os.fspath(run) if isinstance(run, os.PathLike) else run for run in runs]
    if attacks is not None:
        given["attacks"] = list(attacks)
    own = task if isinstance(task, Task) else None
    given["task"] = own.name if own is not None else task
    config = make_config(given)
    if "out" in given:
        with hold_folder(config.out):
            return run_audit(config, task=own, watch=watch)
    with tempfile.TemporaryDirectory(prefix="gmip-audit-") as folder:
        return run_audit(config.model_copy(update={"out": folder}), task=own, watch=watch)


def run_audit(
    config: AuditConfig, *, task: Task | None = None, watch: Watch | None = None, command: str | None = None
) -> AuditResult:
    """The audit of a configuration; work in progress is in `config.out`/work, where a second call finds it."""
    watch = watch or silent
    source = config.task if task is None else None  # a task that was made elsewhere has no name for a command
    task = load(config.task) if task is None else task
    work = Path(config.out) / "work"
    try:
        make_folder(work)
    except FileError as error:
        why = getattr(error.__cause__, "strerror", None) or "it cannot be written"
        raise InvalidArgument(
            f"cannot be made a folder ({why})", argument="out", value=config.out, remedy="name another"
        ) from None
    config = config.model_copy(update={"device": usable_device(config.device)})
    asked = make_attacks(config, config.attacks)  # what is wrong with them is said before anything is trained
    seed = audit_seed(config, work)
    runs = make_runs(task, config, work / "runs", seed, watch)
    check_attacks(asked, runs, config.attacker)
    attacks = asked or make_attacks(config, default_attacks(runs, config.attacker))
    audits, candidates = [], {}
    for run in runs:
        groups = record_groups(run.task, config.group_by)
        checked = None
        if run.trace.num_steps:  # of a released model nothing is recorded
            checked = check_run(
                run.task, run.trace, device=config.device, progress=watch(f"checking the record of {run.name}")
            )
        scores, left_out = run_attacks(run, attacks, config, work / "scores", seed, watch)
        said = list(run.warnings)
        try:
            norms = _norms(run, config, work / "scores", seed, watch)
        except (InvalidArgument, UnsupportedModel) as error:  # of gradients, which the attacks may have done without
            norms = None
            said.append(f"Own mus by noise alone are not known: {error}")
        evidence = recorded_evidence(
            name=run.name,
            source="released" if run.released is not None else "recorded" if run.recorded else "trained",
            task=run.task.name,
            path=run.path,
            traces=run.traces,
            attacks=scores,
            accuracies=run.accuracies(),
            claim=given_curve(config.claim),
            group_of=None if groups is None else groups.of,
            grouped_by=None if groups is None else groups.name,
            name_of=None if run.task.record_names is None else run.task.names_of,
            left_out=left_out,
            warnings=said,
            norms=norms,
            check=checked,
            task_source=source,
        )
        audited, candidates[run.name] = judge(evidence, _criteria(config, seed), watch(f"judging {run.name}"))
        if config.try_advice:
            audited = try_advice(
                audited,
                run,
                folder=work / "trials",
                seed=seed,
                seconds=None if config.budget is None else config.budget / _TRIALS,
                begin=partial(watch, f"trying the advice for {run.name}"),
            )
        audits.append(audited)
    result = AuditResult(
        title=config.title or f"Membership audit of {task.name}",
        created=datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat(),
        confidence=config.confidence,
        delta=config.delta,
        runs=tuple(audits),
        provenance=Provenance(
            command=_repeatable(command, config, seed),
            seed=seed,
            versions={name: version(name) for name in _SHOWN_VERSIONS},
            platform=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            fingerprints=runs[0].task.fingerprints,
            config=config.model_dump(mode="json"),
        ),
    )
    return result.with_candidates(candidates)


def _repeatable(command: str | None, config: AuditConfig, seed: int) -> str:
    """The command with the seed that was drawn, so that it gives the same numbers again."""
    if command is None:
        return f"gmip.audit({config.task!r}, seed={seed}, ...)"
    return command if config.seed is not None else f"{command} --seed {seed}"


def _norms(run: AuditedRun, config: AuditConfig, folder: Path, seed: int, watch: Watch) -> OwnNorms | None:
    ids = choose_candidates(run.trace, config.candidates, seed)
    found = own_norms(run.task, run.trace, ids, folder, lambda: watch(f"own gradients in {run.name}"))
    return None if found is None else OwnNorms(ids, found)


def _criteria(config: AuditConfig, seed: int) -> Criteria:
    return Criteria(
        confidence=config.confidence,
        delta=config.delta,
        fprs=config.fprs,
        goal=config.target_tpr,
        limit=config.fail_above_tpr,
        seed=seed,
    )
