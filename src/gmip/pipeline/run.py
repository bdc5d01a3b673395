"""The audit: runs -> scores -> `AuditResult`."""

from __future__ import annotations

import datetime
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip.accounting.account import account
from gmip.accounting.mechanism import NoisySGD
from gmip.accounting.tradeoff import TradeOff
from gmip.attacks.base import NEEDS, Attack
from gmip.auditing import (
    THREAT_MODEL,
    AuditResult,
    advise,
    attack_outcome,
    claimed_curve,
    gate,
    joint_run,
    predicted,
    promise,
    verdict,
)
from gmip.auditing.schema import Exposed, Promise, Provenance, RunAudit, RunFacts
from gmip.errors import InvalidArgument
from gmip.pipeline.attack import default_attacks, make_attacks, run_attacks
from gmip.pipeline.config import AuditConfig, make_config
from gmip.pipeline.scored import Scored
from gmip.pipeline.targets import Stage, Target, Watch, audit_seed, make_targets
from gmip.stats.intervals import RunScores
from gmip.tasks import Task, load
from gmip.trace import Trace

__all__ = ["Audited", "audit", "run_audit"]

_MOST_EXPOSED = 20
_WORDS = {  # facts of attacks, for people
    "method": "Method: {}.",
    "background": "{} background records.",
    "cutoff": "Directions below {} of the largest variance are left out.",
    "ridge": "Ridge: {}.",
    "variance": "Variance of shadow models: {}.",
    "shadows": "{} shadow models.",
    "folder": "Shadow models are in {}.",
    "seed": "The seed is {}.",
    "tries": "{} seeds were tried.",
}
_SHOWN_VERSIONS = ("gmip", "torch", "opacus", "numpy", "scipy")


@dataclass(frozen=True, eq=False)
class Audited:
    """The result, and for each run all candidates with their scores, the most exposed first (for a CSV)."""

    result: AuditResult
    candidates: dict[str, list[dict[str, Any]]]


def audit(
    task: str | Task = "digits",
    *,
    runs: Sequence[str | os.PathLike[str] | Mapping[str, Any]] | None = None,
    attacks: Sequence[str | Mapping[str, Any]] | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> AuditResult:
    """Does this model leak who was in it? Attack runs and compare with what was promised.

    Parameters
    ----------
    task : a task, its name, or path/to/file.py:make_task.
    runs : folders of recorded runs, or mappings with the settings of a run to train (name, recipe, target_mu, ...);
        None trains the task's own recipe.
    attacks : names, or mappings with name and options; None: see `gmip init`.
    watch : called with the name of each stage, returns a function of (done, total).
    settings : the others of `gmip init`: candidates, repeats, seed, out, confidence, delta, fprs, claim_mu, target_tpr,
        fail_above_tpr, shadows, title. With `out`, work is kept there and an interrupted audit goes on when repeated;
        without it nothing is kept. No report is written: `gmip.report.write_report(result, folder)` does that.
    """
    given: dict[str, Any] = dict(settings)
    if runs is not None:
        given["runs"] = [os.fspath(run) if isinstance(run, os.PathLike) else run for run in runs]
    if attacks is not None:
        given["attacks"] = list(attacks)
    own = task if isinstance(task, Task) else None
    given["task"] = own.name if own is not None else task
    config = make_config(given)
    if "out" in given:
        return run_audit(config, task=own, watch=watch).result
    with tempfile.TemporaryDirectory(prefix="gmip-audit-") as folder:
        return run_audit(config.model_copy(update={"out": folder}), task=own, watch=watch).result


def run_audit(
    config: AuditConfig, *, task: Task | None = None, watch: Watch | None = None, command: str | None = None
) -> Audited:
    """The audit of a configuration; work in progress is in `config.out`/work, where a second call finds it."""
    watch = watch or _nobody
    task = load(config.task) if task is None else task
    work = Path(config.out) / "work"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(
            f"out = {config.out!r} cannot be made a folder ({error.strerror}): name another."
        ) from None
    asked = make_attacks(config, config.attacks)  # what is wrong with them is told before anything is trained
    seed = audit_seed(config, work)
    targets = make_targets(task, config, work / "runs", seed, watch)
    attacks = asked or make_attacks(config, default_attacks(targets, task))
    audits, candidates = [], {}
    for target in targets:
        scored = run_attacks(task, target, attacks, config, work / "scores", seed, watch)
        assembled = _assemble(task, target, attacks, scored, config, seed, watch(f"judging {target.name}"))
        audits.append(assembled[0])
        candidates[target.name] = assembled[1]
    result = AuditResult(
        title=config.title or f"Membership audit of {task.name}",
        created=datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat(),
        confidence=config.confidence,
        delta=config.delta,
        runs=tuple(audits),
        threat_model=THREAT_MODEL,
        provenance=Provenance(
            command=command or f"gmip.audit({config.task!r}, ...)",
            seed=seed,
            versions={name: version(name) for name in _SHOWN_VERSIONS},
            platform=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            fingerprints=task.fingerprints,
            config=config.model_dump(mode="json"),
        ),
    )
    return Audited(result, candidates)


def _nobody(words: str) -> Stage:
    return lambda done, total: None


def _assemble(
    task: Task,
    target: Target,
    attacks: Sequence[Attack],
    scored: Mapping[str, list[Scored]],
    config: AuditConfig,
    seed: int,
    stage: Stage,
) -> tuple[RunAudit, list[dict[str, Any]]]:
    runs = target.trace.runs()
    if not runs:
        raise InvalidArgument(f"{target.trace.path} has no steps: there is nothing to audit.")
    largest = max(runs, key=lambda run: run.num_steps)
    claimed = claimed_curve(runs, config.claim_mu)
    split = {name: [_split(target, i, one) for i, one in enumerate(found)] for name, found in scored.items()}
    outcomes = []
    for done, attack in enumerate(attacks):
        found = scored[attack.name]
        outcomes.append(
            attack_outcome(
                attack=attack.name,
                title=attack.title,
                needs=[words for need, words in NEEDS.items() if need in attack.needs],
                runs=split[attack.name],
                claimed=claimed,
                fprs=config.fprs,
                confidence=config.confidence,
                tests=len(attacks),
                delta=config.delta,
                seconds=sum(one.seconds for one in found),
                notes=_notes(found),
                seed=seed,
            )
        )
        stage(done + 1, len(attacks) + 1)
    outcomes.sort(key=lambda one: (-one.mu_lower, -one.auc.value, one.attack))
    judged = verdict(outcomes, claimed, fpr=config.target_tpr.fpr, confidence=config.confidence)
    promises = _promises(runs, claimed, scored.get("glir"), config)
    candidates = _candidates(target, scored[outcomes[0].attack][0])
    advice = advise(
        largest,
        judged,
        outcomes,
        tpr=config.target_tpr.tpr,
        fpr=config.target_tpr.fpr,
        schedule=len(runs) > 1,
    )
    limit = config.fail_above_tpr
    audited = RunAudit(
        name=target.name,
        path=str(target.trace.path) if target.recorded else None,
        task=task.name,
        facts=_facts(task, target, largest),
        promises=promises,
        attacks=tuple(outcomes),
        verdict=judged,
        advice=advice,
        exposed=tuple(
            Exposed(**{key: value for key, value in row.items() if key != "member"})
            for row in [row for row in candidates if row["member"]][:_MOST_EXPOSED]
        ),
        exposed_by=outcomes[0].attack,
        gate=None
        if limit is None
        else gate(list(split.items()), limit=limit.tpr, fpr=limit.fpr, confidence=config.confidence, seed=seed),
        warnings=_warnings(target, scored),
    )
    stage(len(attacks) + 1, len(attacks) + 1)
    return audited, candidates


def _split(target: Target, repeat: int, found: Scored) -> RunScores:
    inside = _inside(target.traces[repeat], found)
    return RunScores(found.scores.scores[inside], found.scores.scores[~inside])


def _inside(trace: Trace, found: Scored) -> NDArray[np.bool_]:
    assert trace.members is not None  # `make_targets` takes no others
    return np.isin(found.scores.ids, trace.members)


def _promises(
    runs: Sequence[NoisySGD], claimed: TradeOff, glir: Sequence[Scored] | None, config: AuditConfig
) -> tuple[Promise, ...]:
    """The claimed curve first; then what measured susceptibilities, noise alone and self-play say."""
    fprs = config.fprs
    said = config.claim_mu is not None
    words = f"Promised: mu = {config.claim_mu:g}" if said else "Promised by the accountant (GMIP, tight)"
    made = [promise("claimed", words, claimed, standing="approximation", fprs=fprs)]
    first = None if glir is None else glir[0]
    measured = None if first is None else first.scores.susceptibility
    if first is not None and measured is not None and measured.min() > 0.0:
        joint = first.scores.info.get("method") == "joint" and len(runs) == 1
        curve = account([joint_run(run) for run in runs] if joint else list(runs), susceptibility=measured)
        name = "Stochastic composition over measured susceptibilities"
        made.append(promise("susceptibility", name, curve, standing="approximation", fprs=fprs))
    if any(run.noise_std > 0.0 for run in runs):
        curve = account(list(runs), notion="gdp")
        made.append(promise("gdp", "Differential privacy (GDP): noise alone", curve, standing="proved", fprs=fprs))
    if first is not None and first.prediction is not None:
        expected = first.prediction
        made.append(predicted(expected.fpr, expected.tpr, expected.auc, fprs))
    return tuple(made)


def _candidates(target: Target, found: Scored) -> list[dict[str, Any]]:
    one = found.scores
    inside = _inside(target.trace, found)
    posterior = None if one.calibration is None else one.posterior(0.5)
    rows: list[dict[str, Any]] = []
    for i in np.argsort(-one.scores, kind="stable"):
        row: dict[str, Any] = {"id": one.ids[i].item(), "member": bool(inside[i]), "score": float(one.scores[i])}
        for name, values in (
            ("p_value", one.p_values),
            ("posterior", posterior),
            ("susceptibility", one.susceptibility),
        ):
            row[name] = None if values is None else float(values[i])
        rows.append(row)
    return rows


def _facts(task: Task, target: Target, run: NoisySGD) -> RunFacts:
    header = target.trace.header
    known = header.recipe
    rate = known.get("learning_rate")
    return RunFacts(
        dataset_size=header.dataset_size,
        batch_size=header.batch_size,
        num_steps=target.trace.num_steps,
        num_params=header.num_params,
        sampling=header.sampling,
        clip_norm=header.clip_norm,
        noise_std=run.noise_std,
        noise_multiplier=run.noise_multiplier if run.noise_std > 0.0 else None,
        optimizer=known.get("optimizer") if isinstance(known.get("optimizer"), str) else None,
        learning_rate=float(rate) if isinstance(rate, (int, float)) else None,
        **target.accuracies(task),
    )


def _notes(found: Sequence[Scored]) -> list[str]:
    """Plain facts of the first run and all warnings, each once."""
    info = found[0].scores.info
    facts = [
        _WORDS.get(name, f"{name.replace('_', ' ').capitalize()}: {{}}.").format(value)
        for name, value in info.items()
        if _is_short(value)
    ]
    return list(dict.fromkeys([*facts, *(words for one in found for words in one.warnings)]))


def _is_short(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool)) and len(str(value)) <= 80


def _warnings(target: Target, scored: Mapping[str, list[Scored]]) -> tuple[str, ...]:
    said = [words for found in scored.values() for one in found for words in one.warnings]
    if not target.trace.complete:
        said.append("The run was not finished when it was audited: its trace holds the first steps only.")
    if target.trace.header.recorded_params < target.trace.header.num_params:
        said.append("Only some of the parameters were recorded: an attacker who sees all of them may find more.")
    return tuple(dict.fromkeys(said))
