"""The evidence of runs of a task: each is opened, checked and attacked.

What an attack found is stored the moment it is done: an interrupted audit does not repeat it.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gmip import _validate as check
from gmip._progress import Progress, Watch, silent
from gmip._random import Stream
from gmip._tables import SUFFIXES, read_columns
from gmip.accounting.individual import GradientNorms
from gmip.attacks import attack_table
from gmip.attacks.attack import Attack, RunTraits, StepAttack, parties
from gmip.attacks.attack_table import NEEDS, Attacker
from gmip.attacks.decode_attack import Decode
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.publications import CheckpointedModel
from gmip.attacks.shadow import ShadowAttack, Shadows, Signal, shadow_set
from gmip.attacks.signals import is_cross_entropy, released_model, run_model
from gmip.attacks.work import Budget
from gmip.auditing.curves import OwnNorms
from gmip.auditing.judge import AttackEvidence, AttackScores, Evidence, Groups, Labels
from gmip.auditing.recompute import check_run
from gmip.auditing.schema import (
    ModelLimit,
    OmittedAttack,
    RunFacts,
    SharedRecords,
    SourceKind,
    TrainingCommand,
    numbered,
)
from gmip.auditing.settings import AttackConfig, AttackSettings
from gmip.auditing.sources import TaskSource
from gmip.errors import GmipError, GmipWarning, InvalidArgument, UnsupportedModel, warn
from gmip.parallel import Workers
from gmip.stats import ExpectedRoc, ScoreSet
from gmip.store import Entry, Store
from gmip.tasks import Examples, Task, load
from gmip.tasks.inputs import answer
from gmip.trace import ModelRecord, Trace, fingerprint
from gmip.training import evaluate
from gmip.training.loop import initial_model
from gmip.training.models import dropouts, has_classes

_LEAST_SECONDS: Final = 1.0  # for an attack, however late it is
_JUDGING: Final = 0.2  # of the budget, and at most so many seconds: for what comes after the attacks
_MOST_JUDGING: Final = 10.0
_ATTACKING: Final = 0.5  # of the budget, that attacks have, however long the run check took
# What is stored of an attack: fields of `ScoreSet`, and of `AttackScores` beside them.
_ARRAYS: Final = ("ids", "scores", "p_values", "susceptibility")
_PLAIN: Final = ("attack", "calibration", "susceptibility_of", "cut_short", "guessed_seed")
_BESIDE: Final = ("seconds", "budget", "warnings")


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """How runs of a task are audited, and where.

    Attributes
    ----------
    settings : of the attacks.
    folder : of work in progress, where an interrupted audit finds it again.
    seed : of runs that are trained, and of candidates.
    """

    settings: AttackSettings
    folder: Path
    seed: int
    watch: Watch = silent


@dataclass(frozen=True, eq=False)
class AuditedRun:
    """One run of an audit, and further runs of the same recipe with other seeds.

    Attributes
    ----------
    source : "recorded", "trained" for this audit, or "released".
    targets : what is known of the run itself, then of each repetition of it.
    path : where the run is from; None: it was trained here.
    task_source : the task as the command line names it; None: it has no name there.
    in_both_files : records that were left out.
    """

    name: str
    task: Task
    source: SourceKind
    targets: tuple[ModelRecord, ...]
    path: str | None = None
    task_source: str | None = None
    in_both_files: SharedRecords | None = None

    @property
    def target(self) -> ModelRecord:
        """What is known of the run itself."""
        return self.targets[0]

    @property
    def trace(self) -> Trace | None:
        """The run itself, step by step; None: no step was recorded."""
        return self.target if isinstance(self.target, Trace) else None

    def traits(self) -> RunTraits:
        """What attacks may know to decide whether they run unasked."""
        trace = self.trace
        return RunTraits(
            noisy=trace is not None and any(info.noise_std > 0.0 for info in trace.infos),
            recorded=self.source != "trained",
            seeded=trace is not None and trace.header.provenance.task == self.task.name,
            published=trace is not None,
            checkpoints=isinstance(self.target, CheckpointedModel),
            rehearsable=trace is not None and self._rehearsable(trace),
        )

    def _rehearsable(self, trace: Trace) -> bool:
        header, publishes = trace.header, self.task.publish is not None
        if header.recorded_params < header.num_params or (header.clip_norm is not None and not publishes):
            return False
        thinned = bool(dropouts(initial_model(self.task, 0, checked=False)))
        return publishes or thinned or header.mixes is not None or header.local is not None

    def accuracies(self) -> dict[str, Any]:
        """Fields of `RunFacts`: the accuracies of the trained model; empty where there is none."""
        if self.target.final_arrays() is None:
            return {}
        model = released_model(self.task, self.target)
        parts = {"train_accuracy": self.task.pool[self.target.members], "test_accuracy": self.task.test}
        found = {name: evaluate(self.task, model, part)[1] if len(part) else None for name, part in parts.items()}
        targets = parts["train_accuracy"].targets
        chance = 1.0 / len(targets.unique()) if has_classes(targets) else None
        return {**found, "chance_accuracy": chance, "test_records": len(self.task.test)}


def evidence_of(sources: Sequence[TaskSource], work: Workplace) -> Iterator[tuple[AuditedRun, Evidence]]:
    """Each run and what is known about it: all are opened or trained first, and attacked by the same attacks."""
    runs, attacks = opened_runs(sources, work)
    for run in runs:
        yield run, run_evidence(run, attacks, work)


def opened_runs(sources: Sequence[TaskSource], work: Workplace) -> tuple[list[AuditedRun], list[Attack]]:
    """The runs, opened or trained, and the attacks on them."""
    settings = work.settings
    asked = make_attacks(settings, settings.attacks)  # what is wrong with them is said before anything is trained
    tasks = {one.task: load(one.task) for one in sources if isinstance(one.task, str)}
    names = numbered([one.called() for one in sources])
    runs = []
    for number, (name, one) in enumerate(zip(names, sources, strict=True)):
        task = tasks[one.task] if isinstance(one.task, str) else one.task
        runs.append(one.opened(task, name, number, work))
    check_attacks(asked, runs, settings.attacker)
    return runs, asked or make_attacks(settings, default_attacks(runs, settings.attacker))


def run_evidence(run: AuditedRun, attacks: Sequence[Attack], work: Workplace) -> Evidence:
    """All that is known about one run: what its record says, and what attacks find."""
    settings, trace, watch = work.settings, run.trace, work.watch
    groups = record_groups(run.task, settings.group_by)
    start, checked, limits = time.monotonic(), None, _limits(run)
    if trace is not None:
        checked = check_run(
            run.task, trace, device=settings.device, progress=watch(f"checking the record of {run.name}")
        )
    norms = None
    if trace is not None:
        try:
            ids = choose_candidates(trace, settings.candidates, work.seed)
            found = own_norms(
                run.task, trace, ids, work.folder / "scores", lambda: watch(f"own gradients in {run.name}")
            )
            norms = None if found is None else OwnNorms(ids, found)
        except (InvalidArgument, UnsupportedModel) as error:  # of gradients, which the attacks may have done without
            limits.append(ModelLimit(kind="own-gradients", problem=str(error)))
    spent = time.monotonic() - start
    left = attack_seconds(settings.budget, spent)
    if settings.budget is not None and spent + left > settings.budget:
        warn(
            f"The run check took {spent:.0f} of the {settings.budget:.0f} seconds of the budget. The attacks get "
            f"{left:.0f} all the same, so the audit takes longer than its budget."
        )
    attacked, left_out = run_attacks(run, attacks, groups, work, spent=spent)
    runs = () if trace is None or not trace.header.accountable else trace.runs()
    return Evidence(
        name=run.name,
        source=run.source,
        task=run.task.name,
        path=run.path,
        facts=run_facts(run.target, run.accuracies()),
        attacks=tuple(attacked),
        runs=tuple(runs),
        grouped_by=None if groups is None else groups.name,
        check=checked,
        norms=norms,
        trained_by=_training_command(run),
        name_of=None if run.task.record_names is None else run.task.names_of,
        left_out=tuple(left_out),
        in_both_files=run.in_both_files,
        limits=tuple(limits),
        fingerprints=run.task.fingerprints,
    )


_FEW: Final = 8  # records on which a loss is tried


def _limits(run: AuditedRun) -> list[ModelLimit]:
    """What in the model limits what attacks find. Raises for a loss that is not one of each record."""
    task, part = run.task, run.task.pool[:_FEW]
    model = initial_model(task, 0, checked=False)
    dropped = dropouts(model) if run.trace is not None else []
    found = [ModelLimit(kind="dropout", layer=dropped[0])] if dropped else []
    try:
        with torch.no_grad():
            outputs = answer(model.eval(), part.inputs)
            losses = task.loss(outputs, part.targets)
            alone = [task.loss(outputs[i : i + 1], part.targets[i : i + 1]).reshape(-1) for i in (0, len(part) - 1)]
        probabilities = is_cross_entropy(task, outputs, part.targets) and bool((outputs >= 0.0).all())
    except Exception as error:  # of the user's code, whose attacks may do without
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return [ModelLimit(kind="untried", problem=what), *found]
    if losses.shape == (len(part),) and not _close(torch.cat(alone), losses[[0, -1]]):
        raise InvalidArgument(
            f"The loss of task {task.name!r} mixes records: the loss of a record depends on the others, as in a Cox "
            f"model",
            remedy="return a loss of each record alone; or audit what the model answers, with gmip.Scores",
        )
    if probabilities and _close(total := outputs.sum(1), torch.ones_like(total)):
        found.append(ModelLimit(kind="softmax"))
    return found


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1.0e-3, atol=1.0e-4, equal_nan=True)


def _training_command(run: AuditedRun) -> TrainingCommand | None:
    """None for a tuned recipe, too: the command could not draw the same members."""
    header = run.target.header
    known, recipe = header.provenance, header.recipe
    if run.trace is None or run.task_source is None or recipe is None:
        return None
    if known.task != run.task.name or known.split_seed is not None:
        return None
    return TrainingCommand(task=run.task_source, recipe=recipe, fix=known.options.fix)


def run_facts(target: ModelRecord, accuracies: Mapping[str, Any]) -> RunFacts:
    """What ran, as far as it was recorded; `accuracies` are those of `AuditedRun.accuracies`."""
    header, recipe = target.header, target.header.recipe
    if not isinstance(target, Trace):  # what the header says beyond this is the task's recipe, not what was run
        return RunFacts(num_params=header.num_params).model_copy(update=dict(accuracies))
    longest = max(target.runs(), key=lambda run: run.num_steps) if header.accountable else None
    return RunFacts(
        dataset_size=header.dataset_size,
        batch_size=header.batch_size,
        num_steps=target.num_steps,
        num_params=header.num_params,
        sampling=header.sampling,
        clip_norm=header.clip_norm,
        noise_std=0.0 if longest is None else longest.noise_std,
        noise_multiplier=longest.noise_multiplier if longest is not None and longest.noise_std > 0.0 else None,
        optimizer=None if recipe is None else recipe.optimizer,
        learning_rate=None if recipe is None else recipe.learning_rate,
        complete=target.complete,
        recorded_params=header.recorded_params if header.recorded_params < header.num_params else None,
        clients=None if header.local is None else header.local.clients,
        **accuracies,
    )


# -- which attacks ----------------------------------------------------------------------------------------------------


def make_attacks(settings: AttackSettings, wanted: Sequence[AttackConfig]) -> list[Attack]:
    """The attacks asked for, with their options."""
    made = []
    for one in wanted:
        options: dict[str, Any] = dict(one.options)
        if issubclass(attack_table.kind(one.name), ShadowAttack):
            options = {"shadows": Shadows(**settings.shadows.model_dump())} | options
        if "device" in inspect.signature(attack_table.kind(one.name)).parameters:
            options = {"device": settings.device} | options
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
        wrong = [error for attack in attacks if (error := lacking_steps(run, attack)) is not None]
        if wrong and len(wrong) == len(attacks):
            raise wrong[0]


def lacking_steps(run: AuditedRun, attack: Attack) -> InvalidArgument | None:
    """The error of an attack that needs steps where none are known."""
    return attack.lacking(run.target) if isinstance(attack, StepAttack) and run.trace is None else None


# -- attacks on one run -----------------------------------------------------------------------------------------------


def choose_candidates(target: ModelRecord, most: int, seed: int) -> NDArray[np.int64]:
    """Ids in rising order: the members and non-members of the run, at most so many of each, drawn by the seed."""
    rng = Stream.CANDIDATES.rng(seed)
    chosen = []
    for part in (target.members, target.non_members):
        assert part is not None
        chosen.append(part if len(part) <= most else rng.choice(part, most, replace=False))
    return np.sort(np.concatenate(chosen).astype(np.int64))


def attack_seconds(budget: float | None, spent: float = 0.0) -> float:
    """What a budget leaves to the attacks after so many seconds, with room for judging: half of it at least; infinity
    without one."""
    if budget is None:
        return math.inf
    return max(budget - spent - min(_JUDGING * budget, _MOST_JUDGING), _ATTACKING * budget)


def run_attacks(
    run: AuditedRun, attacks: Sequence[Attack], groups: RecordGroups | None, work: Workplace, *, spent: float = 0.0
) -> tuple[list[AttackEvidence], list[OmittedAttack]]:
    """What each attack found in each repetition, and the attacks that could not run; what `work.folder` already holds
    is not computed again. Raises the first error where no attack could run.

    spent : seconds of the budget that were used up before, by the run check and norms of gradients.
    """
    task, settings, folder, watch = run.task, work.settings, work.folder / "scores", work.watch
    workers = settings.shadows.asked_workers()
    found: dict[str, list[AttackScores]] = {attack.name: [] for attack in attacks}
    errors: dict[str, GmipError] = {
        attack.name: error for attack in attacks if (error := lacking_steps(run, attack)) is not None
    }
    for repeat, target in enumerate(run.targets):
        attacks = [attack for attack in attacks if attack.name not in errors]
        ids = choose_candidates(target, settings.candidates, work.seed)
        about = {"trace": target.fingerprint, "candidates": fingerprint(ids)}
        store = Store(folder, "scores", about)
        known = {attack.name: _unless_cut(store.get(_key(attack)), settings.budget) for attack in attacks}
        unknown = [attack for attack in attacks if known[attack.name] is None]
        budget = Budget(attack_seconds(settings.budget, spent if repeat == 0 else 0.0))
        which = run.name if len(run.targets) == 1 else f"{run.name}, {repeat + 1} of {len(run.targets)}"
        training, failed = _train_shadows(task, target, ids, unknown, which, watch, budget)
        errors |= failed
        order = sorted((a for a in attacks if a.name not in failed), key=lambda attack: attack.patient)
        for place, attack in enumerate(order):
            scored = known[attack.name]
            if scored is None:
                waiting = sum(known[other.name] is None for other in order[place:])
                left = max(budget.left(), _LEAST_SECONDS)
                share = Budget(max(left / waiting, _LEAST_SECONDS), left) if budget.limited else None
                parts = Store(folder, "parts", about | _key(attack))
                try:
                    scored = _run(task, target, attack, ids, watch(f"{attack.name} on {which}"), share, parts, workers)
                except (InvalidArgument, UnsupportedModel) as error:
                    errors[attack.name] = error
                    continue
                seconds = scored.seconds + training.get(attack.name, 0.0)
                scored = dataclasses.replace(scored, seconds=seconds, budget=settings.budget)
                store.put(_key(attack), *scored_entry(scored))
                if not scored.scores.cut_short:
                    parts.clear()
            found[attack.name].append(scored)
    if len(errors) == len(found):
        raise next(iter(errors.values()))
    attacked = [
        _attack_evidence(attack, run, groups, found[attack.name]) for attack in attacks if attack.name not in errors
    ]
    return attacked, [OmittedAttack.of(name, error) for name, error in errors.items()]


def _attack_evidence(
    attack: Attack, run: AuditedRun, groups: RecordGroups | None, found: Sequence[AttackScores]
) -> AttackEvidence:
    """What an attack found in each repetition of a run, what it needs, sees and knows for that, and the truth."""
    holds_list = attack.holds_list
    labels = tuple(
        Labels(
            inside=np.isin(one.scores.ids, _members(target)),
            groups=None if groups is None else groups.of(one.scores.ids),
        )
        for target, one in zip(run.targets, found, strict=True)
    )
    return AttackEvidence(
        name=attack.name,
        title=attack.title,
        needs=tuple(words for need, words in NEEDS.items() if need in attack.needs or (need == "list" and holds_list)),
        found=tuple(found),
        labels=labels,
        sees=attack.sees(),
        # The share of the members that is among the candidates; the largest, of repeated runs.
        knows=max(
            min(1.0, float(known.inside.sum()) / target.header.dataset_size)
            for target, known in zip(run.targets, labels, strict=True)
        )
        if holds_list
        else 0.0,
    )


def _members(target: ModelRecord) -> NDArray[np.int64]:
    if target.members is None:
        raise InvalidArgument(f"{target.path} does not name its members, which an audit needs")
    return target.members


def _train_shadows(
    task: Task,
    target: ModelRecord,
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
            groups.setdefault(attack.plan, []).append(attack)
    seconds: dict[str, float] = {}
    errors: dict[str, GmipError] = {}
    for settings, users in groups.items():
        start = time.perf_counter()
        unique: dict[str, Signal] = {signal.key: signal for user in users for signal in user.signals()}
        try:
            shadow_set(
                task,
                target,
                ids,
                parties(task, target, ids, None).background,
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
    target: ModelRecord,
    attack: Attack,
    ids: NDArray[np.int64],
    progress: Progress,
    budget: Budget | None,
    parts: Store,
    workers: Workers | None,
) -> AttackScores:
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GmipWarning)
        background = attack_background(task, target, attack, ids)
        scores = attack.run(
            task, target, ids, background, progress=progress, budget=budget, parts=parts, workers=workers
        )
    said = []
    for warning in caught:
        if issubclass(warning.category, GmipWarning):
            said.append(" ".join(str(warning.message).split()))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if scores.prediction is not None:
        scores = dataclasses.replace(scores, prediction=scores.prediction.thinned())
    return AttackScores(scores=scores, seconds=time.perf_counter() - start, warnings=tuple(said))


def attack_background(task: Task, target: ModelRecord, attack: Attack, ids: NDArray[np.int64]) -> Examples | None:
    """The records that an attacker with a list gets beside it: where it lacks members, all that show how those vary;
    where it has them all, no more than can be decoys on it. Other attacks know what they need."""
    assert target.members is not None
    everybody = bool(np.isin(target.members, ids).all())
    if "list" not in attack.needs or (everybody and not isinstance(attack, Decode)):
        return None
    found = parties(task, target, ids, None).background
    if not everybody or not isinstance(attack, Decode):
        return found
    few = np.random.default_rng(0).permutation(len(found))[: min(attack.decoys, len(ids))]
    return found[np.sort(few)]


def scored_entry(found: AttackScores) -> Entry:
    """What an attack found, for the store."""
    one, expected = found.scores, found.scores.prediction
    arrays = {name: array for name in _ARRAYS if (array := getattr(one, name)) is not None}
    fields: dict[str, Any] = {name: getattr(one, name) for name in _PLAIN} | {"facts": dict(one.facts)}
    if expected is not None:
        arrays |= {"fpr": expected.fpr, "tpr": expected.tpr}
        fields["auc"] = expected.auc
    return Entry(arrays, {"scores": fields, **{name: getattr(found, name) for name in _BESIDE}})


def scored_of(entry: Entry) -> AttackScores:
    """What `scored_entry` was given."""
    fields = dict(entry.fields)
    one: dict[str, Any] = {**entry.arrays, **fields.pop("scores")}
    if "auc" in one:
        one["prediction"] = ExpectedRoc(**{name: one.pop(name) for name in ("fpr", "tpr", "auc")})
    return AttackScores(scores=ScoreSet(**one), **fields | {"warnings": tuple(fields["warnings"])})


# -- how large the gradients of single records were along a run -------------------------------------------------------


_ROUNDING = 1.0 + 1.0e-5  # single precision, on the safe side


def own_norms(
    task: Task, trace: Trace, ids: NDArray[np.int64], folder: Path, begin: Callable[[], Progress]
) -> GradientNorms | None:
    """Gradient norms of records of the pool, at the parameters of every step; None where the trace does not say: no
    noise, no clipping, or steps or parameters that were not recorded. What `folder` already holds is not computed
    again; `begin` is called if something has to be."""
    header, clip_norm = trace.header, trace.header.clip_norm
    noisy = all(info.noise_std > 0.0 for info in trace.infos)
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


class RecordGroups(NamedTuple):
    """What the groups are, and the group of each record of the pool."""

    name: str
    groups: Groups

    def of(self, ids: NDArray[Any]) -> Groups:
        """The groups of the records with these ids; only those that they belong to."""
        return Groups(self.groups.codes[ids], self.groups.names).used()


def record_groups(task: Task, wanted: str | None) -> RecordGroups | None:
    """The groups by a name in `task.groups`, "class", or a file with columns id and group; None: the first of the
    task's groups, else its classes, else there are none."""
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
    return RecordGroups(CLASS, Groups(codes.astype(np.intp), tuple(map(str, names.tolist()))))


def _coded(name: str, texts: Sequence[str]) -> RecordGroups:
    names, codes = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
    if names.size > _MOST:
        raise InvalidArgument(
            f"has {names.size:,} different groups under {name!r}",
            argument="groups",
            remedy=f"name at most {_MOST:,} groups, not records",
        )
    return RecordGroups(name, Groups(codes.astype(np.intp), tuple(text or "(empty)" for text in names.tolist())))


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
