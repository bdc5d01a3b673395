"""Attacks of an audit on one run, each stored the moment it is done: an interrupted audit does not repeat it."""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._progress import Progress, Watch
from gmip._random import Stream
from gmip._tables import SUFFIXES, read_columns
from gmip.accounting.individual import GradientNorms
from gmip.attacks import attack_table
from gmip.attacks.attack import NEEDS, Attack, Attacker, parties
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.shadow import Shadows, Signal, shadow_set
from gmip.attacks.shadow_attack import ShadowAttack
from gmip.attacks.signals import run_model
from gmip.attacks.work import Budget
from gmip.auditing.judge import AttackScores
from gmip.auditing.outcomes import Groups
from gmip.auditing.recorded import AttackFindings
from gmip.auditing.schema import LeftOut
from gmip.auditing.settings import AttackConfig, AuditConfig
from gmip.auditing.sources.recorded_runs import AuditedRun
from gmip.errors import GmipError, GmipWarning, InvalidArgument, UnsupportedModel
from gmip.stats import ExpectedRoc, ScoreSet
from gmip.store import Entry, Store
from gmip.tasks import Examples, Task
from gmip.trace import Trace, fingerprint

__all__ = [
    "RecordGroups",
    "check_attacks",
    "choose_candidates",
    "default_attacks",
    "make_attacks",
    "own_norms",
    "record_groups",
    "run_attacks",
    "scored_entry",
    "scored_of",
]

_LEAST_SECONDS: Final = 10.0  # for an attack, however late it is
_OPTIONAL: Final = ("p_values", "susceptibility")
_OF_TRAINING: Final = frozenset({"gradients", "code"})  # what nobody knows of a released model


def make_attacks(config: AuditConfig, wanted: Sequence[AttackConfig]) -> list[Attack]:
    """The attacks asked for, with their options."""
    made = []
    for one in wanted:
        options: dict[str, Any] = dict(one.options)
        if issubclass(attack_table.kind(one.name), ShadowAttack):
            options = {"shadows": Shadows(**config.shadows.model_dump())} | options
        if "device" in inspect.signature(attack_table.kind(one.name)).parameters:
            options = {"device": config.device} | options
        made.append(attack_table.make(one.name, **options))
    return made


def default_attacks(runs: Sequence[AuditedRun], attacker: Attacker) -> list[AttackConfig]:
    """The attacks that want to run on these runs when nobody names any, for an attacker who sees no more than this."""
    names = attack_table.default_names([run.traits() for run in runs])
    return [AttackConfig(name=name) for name in names if _can(attacker, attack_table.kind(name))]


def _can(attacker: Attacker, attack: type[Attack]) -> bool:
    order = get_args(Attacker)
    return order.index(attack.sees()) >= order.index(attacker)


def check_attacks(attacks: Sequence[Attack], runs: Sequence[AuditedRun], attacker: Attacker) -> None:
    """Raise for an attack that was asked for and needs what a run does not have, or what the attacker does not see."""
    beyond = next((attack for attack in attacks if not _can(attacker, type(attack))), None)
    if beyond is not None:
        raise InvalidArgument(
            f"has {beyond.name!r}, whose attacker sees {beyond.sees()}, more than `attacker` = {attacker!r} does",
            argument="attacks",
            remedy=f"leave it out, or pass `attacker` = {beyond.sees()!r}",
        )
    for run in runs:
        wrong = [error for attack in attacks if (error := _lacking(run, attack)) is not None]
        if wrong and len(wrong) == len(attacks):
            raise wrong[0]


def _lacking(run: AuditedRun, attack: Attack) -> InvalidArgument | None:
    """The error of an attack that needs what nobody knows of a released model."""
    lacking = [words for need, words in NEEDS.items() if need in attack.needs & _OF_TRAINING]
    if run.released is None or not lacking:
        return None
    return InvalidArgument(
        f"has {attack.name!r}, which needs {lacking[0]}, and of {run.released} the model alone is known",
        argument="attacks",
        remedy="leave it out, or record the training (gmip.record)",
    )


def choose_candidates(trace: Trace, most: int, seed: int) -> NDArray[np.int64]:
    """Ids in rising order: the members and non-members of the run, at most so many of each, drawn by the seed."""
    rng = Stream.CANDIDATES.rng(seed)
    chosen = []
    for part in (trace.members, trace.non_members):
        assert part is not None
        chosen.append(part if len(part) <= most else rng.choice(part, most, replace=False))
    return np.sort(np.concatenate(chosen).astype(np.int64))


def run_attacks(
    run: AuditedRun,
    attacks: Sequence[Attack],
    config: AuditConfig,
    folder: Path,
    seed: int,
    watch: Watch,
) -> tuple[list[AttackFindings], list[LeftOut]]:
    """What each attack found in each repetition, and the attacks that could not run; what `folder` already holds is not
    computed again. Raises the first error where no attack could run."""
    task = run.task
    found: dict[str, list[AttackScores]] = {attack.name: [] for attack in attacks}
    errors: dict[str, GmipError] = {
        attack.name: error for attack in attacks if (error := _lacking(run, attack)) is not None
    }
    for repeat, trace in enumerate(run.traces):
        attacks = [attack for attack in attacks if attack.name not in errors]
        ids = choose_candidates(trace, config.candidates, seed)
        about = {"trace": trace.fingerprint, "candidates": fingerprint(ids)}
        store = Store(folder, "scores", about)
        known = {attack.name: _unless_cut(store.get(_key(attack)), config.budget) for attack in attacks}
        budget = Budget(math.inf if config.budget is None else config.budget)
        which = run.name if len(run.traces) == 1 else f"{run.name}, {repeat + 1} of {len(run.traces)}"
        unknown = [attack for attack in attacks if known[attack.name] is None]
        training, failed = _train_shadows(task, trace, ids, unknown, which, watch, budget)
        errors |= failed
        order = sorted((a for a in attacks if a.name not in failed), key=lambda attack: attack.patient)
        for place, attack in enumerate(order):
            scored = known[attack.name]
            if scored is None:
                waiting = sum(known[other.name] is None for other in order[place:])
                share = max(budget.left() / waiting, _LEAST_SECONDS) if budget.limited else None
                parts = Store(folder, "parts", about | _key(attack))
                try:
                    scored = _run(task, trace, attack, ids, watch(f"{attack.name} on {which}"), share, parts)
                except (InvalidArgument, UnsupportedModel) as error:
                    errors[attack.name] = error
                    continue
                seconds = scored.seconds + training.get(attack.name, 0.0)
                scored = dataclasses.replace(scored, seconds=seconds, budget=config.budget)
                store.put(_key(attack), *scored_entry(scored))
                if not scored.scores.cut_short:
                    parts.clear()
            found[attack.name].append(scored)
    if len(errors) == len(found):
        raise next(iter(errors.values()))
    attacked = [_findings(attack, run.traces, found[attack.name]) for attack in attacks if attack.name not in errors]
    return attacked, [LeftOut.of(name, error) for name, error in errors.items()]


def _findings(attack: Attack, traces: Sequence[Trace], found: Sequence[AttackScores]) -> AttackFindings:
    """What an attack found in each of the traces, and what it needs, sees and knows for that."""
    holds_list = attack.holds_list
    return AttackFindings(
        name=attack.name,
        title=attack.title,
        needs=tuple(words for need, words in NEEDS.items() if need in attack.needs or (need == "list" and holds_list)),
        found=tuple(found),
        sees=attack.sees(),
        knows=_listed_share(traces, found) if holds_list else 0.0,
    )


def _listed_share(traces: Sequence[Trace], found: Sequence[AttackScores]) -> float:
    """The share of the members that is among the candidates; the largest, of repeated runs."""
    shares = []
    for trace, one in zip(traces, found, strict=True):
        assert trace.members is not None
        shares.append(min(1.0, float(np.isin(one.scores.ids, trace.members).sum()) / trace.header.dataset_size))
    return max(shares)


def _train_shadows(
    task: Task,
    trace: Trace,
    ids: NDArray[np.int64],
    attacks: Sequence[Attack],
    which: str,
    watch: Watch,
    budget: Budget,
) -> tuple[dict[str, float], dict[str, GmipError]]:
    """One training of the shadow models for all attacks that use the same ones; attack -> seconds that it took, or the
    error that it ended in.

    They get the share of the time that these attacks have: what is not trained by then may be by the attacks.
    """
    groups: dict[Shadows, list[ShadowAttack]] = {}
    for attack in attacks:
        if isinstance(attack, ShadowAttack):
            groups.setdefault(attack.shadows, []).append(attack)
    seconds: dict[str, float] = {}
    errors: dict[str, GmipError] = {}
    for settings, users in groups.items():
        start = time.perf_counter()
        unique: dict[str, Signal] = {signal.key: signal for user in users for signal in user.signals()}
        try:
            shadow_set(
                task,
                trace,
                ids,
                parties(task, trace, ids, None).background,
                list(unique.values()),
                settings,
                progress=watch(f"shadow models for {which}"),
                budget=Budget(budget.left() * len(users) / len(attacks)),
            )
        except (InvalidArgument, UnsupportedModel) as error:
            errors |= {user.name: error for user in users}
        seconds |= {user.name: time.perf_counter() - start for user in users}
    return seconds, errors


def _key(attack: Attack) -> dict[str, str]:
    return {"attack": attack.name, "options": repr(attack)}


def _unless_cut(entry: Entry | None, budget: float | None) -> AttackScores | None:
    """None for what was cut short under a smaller budget: it goes on from what it has."""
    scored = None if entry is None else scored_of(entry)
    if scored is None or not scored.scores.cut_short:
        return scored
    return scored if budget is not None and (scored.budget or 0.0) >= budget else None


def _run(
    task: Task,
    trace: Trace,
    attack: Attack,
    ids: NDArray[np.int64],
    progress: Progress,
    seconds: float | None,
    parts: Store,
) -> AttackScores:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GmipWarning)
        background = _background(task, trace, attack, ids)
        scores = attack.run(task, trace, ids, background, progress=progress, budget=seconds, parts=parts)
    said = []
    for warning in caught:
        if issubclass(warning.category, GmipWarning):
            said.append(" ".join(str(warning.message).split()))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if scores.prediction is not None:
        scores = dataclasses.replace(scores, prediction=scores.prediction.thinned())
    return AttackScores(scores=scores, seconds=time.perf_counter() - start, warnings=tuple(said))


def _background(task: Task, trace: Trace, attack: Attack, ids: NDArray[np.int64]) -> Examples | None:
    """For an attacker with a list that lacks members: records that show how those vary. Others know what they need."""
    assert trace.members is not None
    if "list" not in attack.needs or np.isin(trace.members, ids).all():
        return None
    return parties(task, trace, ids, None).background


def scored_entry(found: AttackScores) -> Entry:
    """What an attack found, for the store."""
    one = found.scores
    arrays: dict[str, NDArray[Any]] = {"ids": one.ids, "scores": one.scores}
    arrays |= {name: getattr(one, name) for name in _OPTIONAL if getattr(one, name) is not None}
    if one.prediction is not None:
        arrays |= {"fpr": one.prediction.fpr, "tpr": one.prediction.tpr}
    fields = {
        "attack": one.attack,
        "calibration": one.calibration,
        "susceptibility_of": one.susceptibility_of,
        "auc": None if one.prediction is None else one.prediction.auc,
        "cut_short": one.cut_short,
        "guessed_seed": one.guessed_seed,
        "facts": dict(one.facts),
        "seconds": found.seconds,
        "budget": found.budget,
        "warnings": found.warnings,
    }
    return Entry(arrays, fields)


def scored_of(entry: Entry) -> AttackScores:
    """What `scored_entry` was given."""
    arrays, fields = entry
    calibration, auc = fields["calibration"], fields["auc"]
    scores = ScoreSet(
        ids=arrays["ids"],
        scores=arrays["scores"],
        attack=fields["attack"],
        p_values=arrays.get("p_values"),
        susceptibility=arrays.get("susceptibility"),
        susceptibility_of=fields["susceptibility_of"],
        calibration=None if calibration is None else (calibration[0], calibration[1]),
        prediction=None if auc is None else ExpectedRoc(fpr=arrays["fpr"], tpr=arrays["tpr"], auc=auc),
        cut_short=fields["cut_short"],
        guessed_seed=fields["guessed_seed"],
        facts=fields["facts"],
    )
    said = tuple(fields["warnings"])
    return AttackScores(scores=scores, seconds=fields["seconds"], warnings=said, budget=fields["budget"])


# -- how large the gradients of single records were along a run -------------------------------------------------------


_ROUNDING = 1.0 + 1.0e-5  # single precision, on the safe side


def own_norms(
    task: Task, trace: Trace, ids: NDArray[np.int64], folder: Path, begin: Callable[[], Progress]
) -> GradientNorms | None:
    """Gradient norms of records of the pool, at the parameters of every step; None where the trace does not say: no
    noise, no clipping, or steps or parameters that were not recorded. What `folder` already holds is not computed
    again; `begin` is called if something has to be."""
    header, clip_norm = trace.header, trace.header.clip_norm
    noisy = trace.num_steps > 0 and all(info.noise_std > 0.0 for info in trace.infos)
    whole = len(trace) == trace.num_steps and header.recorded_params == header.num_params
    if not noisy or not whole or clip_norm is None:
        return None
    key = {"trace": trace.fingerprint, "candidates": fingerprint(ids)}
    found = Store(folder, "own-norms").compute(key, lambda: _norms(task, trace, ids, clip_norm, begin()))
    return GradientNorms(**found.arrays)


def _norms(task: Task, trace: Trace, ids: NDArray[np.int64], clip_norm: float, progress: Progress) -> Entry:
    gradients = PerExampleGradients.for_trace(run_model(task, trace), task.loss, trace.header, dtype=torch.float32)
    records = task.pool[ids]
    largest, squares = np.zeros(len(ids)), np.zeros(len(ids))
    for done, step in enumerate(trace):
        norms = np.empty(len(ids))
        for rows, pieces in gradients.at(np.array(step.parameters)).pieces(records):
            total = torch.stack([piece.squared_norms() for piece in pieces]).sum(0)
            norms[rows] = np.minimum(total.sqrt().cpu().numpy() * _ROUNDING, clip_norm)
        largest = np.maximum(largest, norms)
        squares += ((norms + clip_norm) / (step.info.divisor * step.info.noise_std)) ** 2
        progress(done + 1, len(trace))
    return Entry({"largest": largest, "replaced": np.sqrt(squares)})


# -- to which group a record belongs ----------------------------------------------------------------------------------


CLASS: Final = "class"
_MOST: Final = 1000
_UNKNOWN: Final = "(not known)"


@dataclass(frozen=True, eq=False)
class RecordGroups:
    """What the groups are, and of each record of the pool, shape (n,), the place of its group in `names`."""

    name: str
    codes: NDArray[np.intp]
    names: tuple[str, ...]

    def of(self, ids: NDArray[Any]) -> Groups:
        """The groups of the records with these ids; only those that they belong to."""
        found, codes = np.unique(self.codes[ids], return_inverse=True)
        return Groups(codes.astype(np.intp), tuple(self.names[code] for code in found.tolist()))


def record_groups(task: Task, wanted: str | None) -> RecordGroups | None:
    """By a name in `task.groups`, "class", or a file with columns id and group; None: the first of the task's groups,
    else its classes, else there are none."""
    if wanted is None:
        first = next(iter(task.groups), None)
        return _classes(task) if first is None else _coded(first, [str(cell) for cell in task.groups[first]])
    if wanted in task.groups:
        return _coded(wanted, [str(cell) for cell in task.groups[wanted]])
    if wanted == CLASS:
        found = _classes(task)
        if found is None:
            raise InvalidArgument(
                f"needs classes, and the targets of task {task.name!r} are none", argument="group_by", value=wanted
            )
        return found
    if Path(wanted).suffix.lower() in SUFFIXES:
        return _from_file(task, Path(wanted).expanduser())
    known = [*task.groups, CLASS]
    raise InvalidArgument(
        f"is not among the groups of task {task.name!r}{check.did_you_mean(wanted, known)}",
        argument="group_by",
        value=wanted,
        remedy=f"pass {' or '.join(map(repr, known))}, or a file with columns id and group",
    )


def _classes(task: Task) -> RecordGroups | None:
    """The class of each record, where the task has classes."""
    targets = task.pool.targets.detach().cpu().numpy()
    if targets.ndim != 1 or targets.dtype.kind not in "iub":
        return None
    names, codes = np.unique(targets, return_inverse=True)
    if not 2 <= names.size <= _MOST:
        return None
    return RecordGroups(CLASS, codes.astype(np.intp), tuple(map(str, names.tolist())))


def _coded(name: str, texts: Sequence[str]) -> RecordGroups:
    names, codes = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
    if names.size > _MOST:
        raise InvalidArgument(
            f"has {names.size:,} different groups under {name!r}",
            argument="groups",
            remedy=f"name at most {_MOST:,} groups, not records",
        )
    return RecordGroups(name, codes.astype(np.intp), tuple(text or "(empty)" for text in names.tolist()))


def _from_file(task: Task, path: Path) -> RecordGroups:
    table = read_columns(path)
    lower = {name.strip().lower(): name for name in table}
    if "id" not in lower or len(table) < 2:
        raise InvalidArgument(
            f"{path} needs columns id (row of the pool) and group; it has {check.listed(list(table)[:12])}",
            argument="group_by",
        )
    column = lower.get("group") or next(name for name in table if name != lower["id"])
    texts = [_UNKNOWN] * len(task.pool)
    for cell, text in zip(table[lower["id"]], table[column], strict=True):
        try:
            row = int(str(cell))
        except ValueError:
            row = -1
        if not 0 <= row < len(texts):
            raise InvalidArgument(
                f"{path} has the id {str(cell)[:40]!r}, and the pool has rows 0 to {len(texts) - 1}",
                argument="group_by",
                remedy="write rows of the task's pool",
            )
        texts[row] = str(text)
    return _coded(column, texts)
