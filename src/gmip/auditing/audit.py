"""The one verb: sources yield evidence, the judge judges it, and an `AuditResult` holds what was found."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gmip._extras import needs
from gmip._io import hold_folder, make_folder, read_if_there, write
from gmip._progress import Watch, silent
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.curves import given_curve
from gmip.auditing.judge import Evidence, JudgeSettings, judge
from gmip.auditing.schema import AuditProvenance, AuditResult, Candidates, RunAudit, automatic_title, numbered
from gmip.auditing.sources import Source, TaskSource
from gmip.errors import FileError, InvalidArgument

if TYPE_CHECKING:
    from gmip.auditing.settings import AuditConfig, RunConfig
    from gmip.tasks import Task

_TRIALS: Final = 4  # one of so many parts of the budget is for trying advice, on top of it
_VERSIONS: Final = ("gmip", "numpy", "scipy")
_TASK_VERSIONS: Final = ("gmip", "torch", "opacus", "numpy", "scipy")


def audit(
    source: str | Task | Source | Sequence[Source] = "digits",
    *,
    runs: Sequence[str | os.PathLike[str] | Mapping[str, Any]] | None = None,
    attacks: Sequence[str | Mapping[str, Any]] | None = None,
    claim: TradeOff | float | tuple[float, float] | str | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> AuditResult:
    """Does this leak who was in the training data, and more than was claimed?

    No report is written: `gmip.write_report(result, folder)` does.

    Parameters
    ----------
    source : `gmip.Scores`, `gmip.Predictions` or `gmip.Estimator`, or several of these, which need no task;
        `gmip.Recorded`, `gmip.Released` or `gmip.ToTrain`, or several of these; or a task, its name, or
        path/to/file.py:make_task, which is trained by its own recipe unless there are `runs`.
    runs : of a task: folders of recorded runs, or mappings with the settings of a run to train (name, recipe,
        target, ...), or with a released `model` (weights, a file or folder), its `members` and `non_members`.
    attacks : on runs of a task: names, or mappings with name and options; None: see `gmip init`.
    claim : what is said to hold: a `TradeOff`, a mu, (epsilon, delta), or text: mu=0.5, epsilon=3@1e-5. None: what the
        accountant says about a run; without a run no claim is tested, and what leaks is measured all the same.
    watch : called with the name of each stage, returns a function of (done, total).
    settings : for every source

        confidence, delta, fprs : of intervals and bounds; for epsilon; at which members found are reported.
        target : what is good enough: at most this TPR at this FPR, as "tpr=0.05@0.01", (0.05, 0.01) or a `gmip.Rate`.
        gate : whether a pipeline asks if it is kept: see `AuditResult.passed` and `raise_for_gate`.
        seed : of all that is drawn; by default 0, and for runs of a task a random one.
        title : of the report.

        and for runs of a task the others of `gmip init`: candidates, repeats, budget, out, group_by, attacker,
        try_advice, shadows, device. With `out`, work is kept there and an interrupted audit goes on
        when repeated; without it nothing is kept.

    Guarantees
    ----------
    For scores that are independent given the run and not made from the membership labels: the verdict "exposed" where
    the claim holds, a bound on mu above the truth, and a failed gate below its target have each a chance of at most
    1 - confidence, for all attacks together. Each attack gets its share of the error. Scores that say nothing are taken
    for scores of the wrong sign (`RunAudit.suspicion`; then no gate passes) with a fifth of that chance.
    """
    sources = _sources(source)
    if sources and not isinstance(sources[0], TaskSource):
        return _audit_arrays(sources, claim, watch, settings | {"runs": runs, "attacks": attacks})
    if runs is not None:
        if sources:
            raise InvalidArgument("are named by the sources already", argument="runs", remedy="leave it out")
        settings["runs"] = [os.fspath(run) if isinstance(run, os.PathLike) else run for run in runs]
    if attacks is not None:
        settings["attacks"] = list(attacks)
    of_task = [one for one in sources if isinstance(one, TaskSource)]
    return _audit_task(of_task[0].task if of_task else source, of_task, claim, watch, settings)


def _audit_arrays(
    sources: Sequence[Source], claim: Any, watch: Watch | None, settings: Mapping[str, Any]
) -> AuditResult:
    for name in ("runs", "attacks"):
        if settings[name] is not None:
            raise InvalidArgument("is for runs of a task", argument=name, remedy="leave it out")
    title = settings.get("title")
    if title is not None and not isinstance(title, str):
        raise InvalidArgument("must be text", argument="title", value=title)
    given = {name: value for name, value in settings.items() if name not in ("title", "runs", "attacks")}
    by = JudgeSettings.of(given | ({} if claim is None else {"claim": claim}))
    return audit_sources(sources, by, title=title, watch=watch or silent)


def _sources(given: Any) -> list[Source]:
    """The sources among what can be audited; none: it is a task."""
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    if not any(hasattr(one, "evidence") for one in several):
        return []
    first = isinstance(several[0], TaskSource)
    wrong = next((one for one in several if isinstance(one, TaskSource) != first or not hasattr(one, "evidence")), None)
    if wrong is not None:
        raise InvalidArgument(
            f"holds a {type(wrong).__name__} beside a {type(several[0]).__name__}",
            argument="source",
            remedy="audit it by itself: gmip report compares audits",
        )
    return several


def audit_sources(
    sources: Sequence[Source],
    settings: JudgeSettings,
    *,
    title: str | None = None,
    command: str = "gmip.audit(...)",
    watch: Watch = silent,
) -> AuditResult:
    """The audit of sources that need no task."""
    evidence = (one.evidence(settings.seed, watch) for one in sources)
    return _judged(evidence, settings, title=title, command=command, versions=_VERSIONS, watch=watch)


def _judged(
    evidence: Iterable[Evidence],
    settings: JudgeSettings,
    *,
    title: str | None,
    command: str,
    versions: Sequence[str],
    config: Mapping[str, object] | None = None,
    watch: Watch = silent,
    finish: Callable[[RunAudit], RunAudit] | None = None,
) -> AuditResult:
    """All evidence judged by the same settings; `finish` adds what takes the audit of a run to find."""
    runs: list[RunAudit] = []
    candidates: dict[str, Candidates] = {}
    prints: dict[str, Mapping[str, str]] = {}
    for found in evidence:
        name = numbered([*candidates, found.name])[-1]
        run, candidates[name] = judge(dataclasses.replace(found, name=name), settings, watch(f"judging {name}"))
        runs.append(run if finish is None else finish(run))
        prints[name] = found.fingerprints
    result = AuditResult(
        title=title or automatic_title(runs),
        created=datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat(),
        confidence=settings.confidence,
        delta=settings.delta,
        runs=tuple(runs),
        provenance=AuditProvenance(
            command=command.encode("utf-8", "replace").decode(),  # names of files can hold halves of surrogate pairs
            seed=settings.seed,
            versions={name: _version(name) for name in versions},
            platform=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            fingerprints=_together(prints),
            config=dict(config or {}),
        ),
    )
    return result.with_candidates(candidates)


def _together(prints: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The fingerprints of all runs, with the run's name where they differ."""
    first = next(iter(prints.values()), {})
    if all(one == first for one in prints.values()):
        return dict(first)
    return {f"{part} of {name}": digest for name, one in prints.items() for part, digest in one.items()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree
        return "unknown"


# -- runs of a task ---------------------------------------------------------------------------------------------------


def _audit_task(
    task: Any, sources: Sequence[TaskSource], claim: Any, watch: Watch | None, settings: Mapping[str, Any]
) -> AuditResult:
    needs("An audit of a task", "torch")
    from gmip.auditing.settings import make_config
    from gmip.tasks import Task

    own = task if isinstance(task, Task) else None
    config = make_config({**settings, "task": task if own is None else own.name})
    run = partial(run_audit, task=own, sources=sources, claim=claim, watch=watch)
    if "out" in settings:
        with hold_folder(config.out):
            return run(config)
    with tempfile.TemporaryDirectory(prefix="gmip-audit-") as folder:
        return run(config.model_copy(update={"out": folder}))


def run_audit(
    config: AuditConfig,
    *,
    task: Task | None = None,
    sources: Sequence[TaskSource] = (),
    claim: TradeOff | float | tuple[float, float] | str | None = None,
    watch: Watch | None = None,
    command: str | None = None,
) -> AuditResult:
    """The audit of a configuration; work in progress is in `config.out`/work, where a second call finds it.

    Parameters
    ----------
    task : instead of the one that the configuration names.
    sources : instead of the runs that the configuration names.
    claim : instead of the one that the configuration names.
    """
    from gmip.auditing.advice_trials import try_advice
    from gmip.auditing.attack_runs import AuditedRun, Workplace, evidence_of
    from gmip.training.models import usable_device

    watch = watch or silent
    work = Workplace(
        settings=config.model_copy(update={"device": usable_device(config.device)}),
        folder=_work_folder(config),
        seed=_seed(config, Path(config.out) / "work"),
        watch=watch,
    )
    sources = sources or sources_of(config, task)
    settings = config.judge_settings(work.seed)
    if claim is not None:
        settings = dataclasses.replace(settings, claim=given_curve(claim))
    opened: dict[str, AuditedRun] = {}

    def gathered() -> Iterator[Evidence]:
        for run, evidence in evidence_of(sources, work):
            opened[run.name] = run
            yield evidence

    def tried(audited: RunAudit) -> RunAudit:
        return try_advice(
            audited,
            opened[audited.name],
            folder=work.folder / "trials",
            seed=work.seed,
            seconds=None if config.budget is None else config.budget / _TRIALS,
            begin=partial(watch, f"trying the advice for {audited.name}"),
        )

    return _judged(
        gathered(),
        settings,
        title=config.title,
        command=_repeatable(command, config, work.seed),
        versions=_TASK_VERSIONS,
        config=config.model_dump(mode="json") | {"runs": [one.plain() for one in sources]},
        watch=watch,
        finish=tried if config.try_advice else None,
    )


def sources_of(config: AuditConfig, task: Task | None = None) -> list[TaskSource]:
    """The runs that a configuration names."""
    return [_source(run, config.task if task is None else task) for run in config.runs]


def _source(run: RunConfig, task: str | Task) -> TaskSource:
    """A run as audit.yaml names it."""
    from gmip.auditing.sources.checkpoints import Checkpoints, checkpoint_paths
    from gmip.auditing.sources.recorded import Recorded, ToTrain
    from gmip.auditing.sources.released import Released

    if run.path is not None:
        return Recorded(run.path, task, name=run.name)
    if run.model is not None:
        assert run.members is not None and run.non_members is not None  # as the settings check
        if len(checkpoint_paths(Path(run.model).expanduser())) > 1:
            return Checkpoints(run.model, run.members, run.non_members, task, name=run.name)
        return Released(run.model, run.members, run.non_members, task, name=run.name)
    return ToTrain(task, recipe=run.recipe, target=run.trained_to(), name=run.name)


def _work_folder(config: AuditConfig) -> Path:
    work = Path(config.out) / "work"
    try:
        make_folder(work)
    except FileError as error:
        why = getattr(error.__cause__, "strerror", None) or "it cannot be written"
        raise InvalidArgument(
            f"cannot be made a folder ({why})", argument="out", value=config.out, remedy="name another"
        ) from None
    return work


def _seed(config: AuditConfig, folder: Path) -> int:
    """The seed of the audit: the given one, that of an audit which this one resumes, or a fresh one."""
    if config.seed is not None:
        return config.seed
    path = folder / "seed"
    try:
        return int(read_if_there(path) or b"")
    except ValueError:
        drawn = secrets.randbits(63)
        write(path, f"{drawn}\n")
        return drawn


def _repeatable(command: str | None, config: AuditConfig, seed: int) -> str:
    """The command with the seed that was drawn, so that it gives the same numbers again."""
    if command is None:
        return f"gmip.audit({config.task!r}, seed={seed}, ...)"
    return command if config.seed is not None else f"{command} --seed {seed}"
