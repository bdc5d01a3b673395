"""Rehearsal of what was published: checkpoints, or the steps and rounds of a recorded run."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from torch import nn

from gmip import _validate as check
from gmip.attacks.arrays import ranks_among
from gmip.attacks.attack import (
    FEWEST_DECOYS,
    Attack,
    AttackedRecords,
    RunTraits,
    StepAttack,
    chosen_steps,
    with_decoys,
)
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.publications import (
    ADAM,
    CheckpointedModel,
    Heard,
    Moment,
    Move,
    Publication,
    Published,
    RecordedGradient,
    Replay,
    Way,
    client_way,
    mean_gradient,
    set_flat,
    settle_norms,
    unheard,
)
from gmip.attacks.rehearsal import SHAPES, Array, ListScores, Rehearsed, Shape, error_model, list_scores, summed
from gmip.attacks.signals import released_model, run_model
from gmip.attacks.step_vectors import Projection
from gmip.attacks.work import Budget, Counted, Work, WorkPlan, check_time
from gmip.errors import InvalidArgument, UnsupportedModel, warn
from gmip.stats import ScoreSet
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import ModelRecord, Trace
from gmip.training.models import freeze_norms, has_norms, trainable_parameters
from gmip.vocabulary import RANDOM_SIZES

_SLOPES: Final = 200  # background records of which the change of the gradient is measured
_FEWEST: Final = 100  # background records to rehearse with
_ROOM: Final = 20  # dimensions that must be left beside the list
_DIMENSIONS: Final = 16_384  # of gradients; more are sketched
_PLAYED: Final = 100  # pseudo-members by whom the shape of the error is chosen
_FEWEST_REHEARSALS: Final = 8  # however little time there is
_REHEARSED: Final = 0.6  # at most, of the time for a publication: the rest is for the list
_SLACK: Final = 1.3  # times what gradients of the list take: its linear algebra
_OVERRUN: Final = 1.2  # times the budget: what is said
_AT_ONCE: Final = 2**27  # bytes of gradients that are sketched together, of the few records at least
_FEW: Final = 8
_RHO: Final = (0.25, 2.0)  # of the scale of the error, real to self-play: outside, the recipe is another


class _Told(NamedTuple):
    """What one publication tells: scores of the list, what self-play expects (AUC, and its error; nan: unknown), and
    rho, the scale of the error against that in self-play."""

    scores: Array
    forecast: float
    error: float
    rho: float


class _Part(NamedTuple):
    """A publication of an epoch, and the chance that a member is in it; `open` makes it when its turn comes."""

    open: Callable[[_Stage], Publication]
    epoch: int
    chance: float = 1.0


@dataclass(frozen=True)
class Rehearsal(Attack):
    """Decodes a list of candidates from two or more states of a model, by a training that the attacker rehearses.

    The way between two states is a sum of gradients of all records that were trained on in between. The attacker trains
    background records from the same state on, compares with their mean gradient, and so learns how the sum follows it
    and by what it misses it; then scores are leave-one-out log-likelihood ratios of a linear model, and those of
    several pairs of states add up (docs/rehearsal.md).

    Parameters
    ----------
    rehearsals : of each publication: pair of states, recorded step or round.
    publications : the most that are used, spread over the training.
    decoys : background records on the list, among which a candidate's rank is its p-value.
    device : where gradients of single records are computed.
    seed : of all that is drawn.

    Guarantees
    ----------
    No label of the run is used. p-values hold if candidates that were not in are distributed as the background is,
    however wrong the model of the error is: decoys are used for nothing else. A publication on which self-play is at
    chance is left out; where all are, or where the gradients have no more dimensions than the list has records, the
    attack refuses. How well it does is a forecast and no bound.
    """

    rehearsals: int = 24
    publications: int = 8
    decoys: int = 200
    device: str = "cpu"
    seed: int = 0

    name: ClassVar[str] = "rehearsal"

    def __post_init__(self) -> None:
        for name, least in (("rehearsals", 4), ("publications", 1), ("decoys", FEWEST_DECOYS)):
            if check.count(name, getattr(self, name)) < least:
                raise InvalidArgument(f"must be at least {least}", argument=name, value=getattr(self, name))
        check.seed(self.seed)

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Where all have several checkpoints."""
        return all(run.checkpoints for run in runs)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        model = released_model(task, target, device=self.device)
        if not isinstance(target, CheckpointedModel):
            raise InvalidArgument(
                f"has {self.name!r}, which needs the weights at two moments, and {target.path} has one",
                argument="attacks",
                remedy="leave it out, or pass gmip.Checkpoints, a folder with a checkpoint for each epoch",
            )
        if not all(way.known for way in target.ways):
            warn(
                f"some checkpoints lack the optimizer's state: attack {self.name!r} guesses it from background records "
                "and finds less than an attacker who has it."
            )
        size, between = target.header.dataset_size, zip(target.moments, target.moments[1:], target.ways, strict=False)
        stage = _Stage(self, task, model, size, who)
        return self._told(stage, [_Part(_move(*one), epoch) for epoch, one in enumerate(between)], progress)

    def _told(self, stage: _Stage, parts: Sequence[_Part], progress: Work) -> ScoreSet:
        """The scores of the candidates from these publications, or as many as there are to be used."""
        count = len(parts)
        places = np.unique(np.linspace(0, count - 1, min(self.publications, count)).round().astype(int)).tolist()
        middle = places[len(places) // 2]
        # In records: rehearsals, of which two plays of self-play take as long as six, and gradients.
        each = (self.rehearsals + 6) * stage.size + len(stage.shown) + len(stage.listed)
        counted, shape, longest = Counted(progress, len(places), each), SHAPES[0], 0.0
        stage.heard = counted.records
        found: list[tuple[_Part, _Told]] = []
        for place in [middle, *(one for one in places if one != middle)]:
            start = time.monotonic()
            if found and progress.budget.left() < longest:
                warn(f"attack {self.name!r} used {len(found)} of {len(places)} publications to stay within the budget.")
                break
            case = _Case(stage, parts[place].open(stage), progress.budget)
            if not found:
                shape = case.chosen()
            found.append((parts[place], case.told(shape)))
            counted.ready()
            longest = max(longest, time.monotonic() - start)
        seconds = progress.budget.seconds
        if (taken := seconds - progress.budget.left()) > _OVERRUN * seconds:
            warn(
                f"attack {self.name!r} took {taken:.0f} seconds of the {seconds:.0f} that it had: {_FEWEST_REHEARSALS} "
                "rehearsals of one publication and the gradients of the list are the least it needs."
            )
        return self._summed(found, shape, stage, cut_short=len(found) < len(places))

    def _summed(
        self, found: Sequence[tuple[_Part, _Told]], shape: Shape, stage: _Stage, *, cut_short: bool
    ) -> ScoreSet:
        used = [(part, told) for part, told in found if not told.forecast <= 0.5 + told.error]
        played = [told for _, told in found if np.isfinite(told.forecast)]
        forecast, error = float("nan"), 0.0
        if played:
            forecast = float(np.mean([told.forecast for told in played]))
            error = max(told.error for told in played) / np.sqrt(len(played))
        else:
            warn(
                f"self-play of attack {self.name!r} needs {_SLOPES + stage.size + FEWEST_DECOYS} background records "
                f"beside its decoys and has {len(stage.others)}: nobody knows how much was published. Pass more."
            )
        if not used or forecast <= 0.5 + 2.0 * error:
            raise UnsupportedModel(
                f"In self-play attack {self.name!r} is at chance (AUC {forecast:.3f}): what was published tells too "
                "little about this list",
                remedy="raise the budget"
                if cut_short
                else "keep more of the training, closer together and with the optimizer's state",
            )
        rhos = [told.rho for _, told in used if np.isfinite(told.rho)]
        if rhos and not _RHO[0] <= np.median(rhos) <= _RHO[1]:
            warn(
                "what was published does not fit the recipe or the list: what these do not explain is "
                f"{np.median(rhos):.2g} times what rehearsals leave. Check batch size, learning rate and optimizer of "
                "the task's recipe, its `publish`, and that all members are named; scores may miss a leak."
            )
        total = summed([(part.epoch, part.chance, told.scores) for part, told in used])
        scores, decoys = total[: len(stage.ids)], total[len(stage.ids) :]
        facts: dict[str, Any] = {
            "publications": len(used),
            "publications_at_chance": len(found) - len(used),
            "decoys": len(decoys),
            "response": shape.response,
        }
        facts |= {"self_play_auc": max(told.forecast for told in played)} if played else {}
        facts |= {"rho": float(np.median(rhos))} if rhos else {}
        return ScoreSet(
            ids=stage.ids,
            scores=scores,
            attack=self.name,
            p_values=ranks_among(scores, decoys),
            facts=facts,
            cut_short=cut_short,
        )


@dataclass(frozen=True)
class RehearsalSteps(StepAttack, Rehearsal):
    """Decodes a list of candidates from recorded steps or rounds that are not means of the records' own gradients.

    BatchNorm, dropout, reduced precision, local training of clients, and whatever the task's `publish` does: the
    attacker publishes pseudo-batches of background records himself, and learns from them how what was published follows
    the mean of the records' gradients in eval mode (docs/rehearsal.md). Parameters and guarantees are those of
    `Rehearsal`.
    """

    name: ClassVar[str] = "rehearsal-steps"
    rehearses: ClassVar[bool] = True

    @classmethod
    def runs_by_default(cls, runs: Sequence[RunTraits]) -> bool:
        """Where all published something else than means of gradients."""
        return all(run.rehearsable for run in runs)

    def _plan_steps(self, task: Task, trace: Trace, who: AttackedRecords, work: Work) -> WorkPlan | None:
        self._refuse(task, trace)
        _decoys(self, trace.header.num_params, who)
        return None

    def _refuse(self, task: Task, trace: Trace) -> None:
        """Raise where the record does not have what this attack needs."""
        header = trace.header
        if header.recorded_params < header.num_params:
            raise UnsupportedModel(
                f"{trace.path} has only some of the parameters, and attack {self.name!r} needs all of them",
                remedy="record all of them",
            )
        if header.clip_norm is not None and task.publish is None:
            raise UnsupportedModel(
                f"{trace.path} was clipped record by record, which attack {self.name!r} does not rehearse by itself",
                remedy="attack it by 'decode', or give the task a `publish` that clips",
            )
        if not len(trace):
            chosen_steps(trace, None)  # which says so

    def _score_steps(self, task: Task, trace: Trace, who: AttackedRecords, progress: Work) -> ScoreSet:
        self._refuse(task, trace)
        header = trace.header
        model = run_model(task, trace, device=self.device, mixing=True)
        PerExampleGradients.for_trace(model, task.loss, header)  # which refuses another model
        if header.mixes is None:
            freeze_norms(model)
        size = header.dataset_size if header.sampling == "full" else header.batch_size
        stage = _Stage(self, task, model, size, who, mixes=header.mixes is not None)
        return self._told(stage, list(_parts(task, trace, model)), progress)


def _move(start: Moment, end: Moment, way: Way) -> Callable[[_Stage], Publication]:
    def opened(stage: _Stage) -> Publication:
        replay = Replay(stage.task, stage.model, way)
        stand_in = None if way.known else stage.warmed(replay, start)
        return Move(replay, start, end, stage.size, stand_in=stand_in)

    return opened


def _parts(task: Task, trace: Trace, model: nn.Module) -> Iterator[_Part]:
    header = trace.header
    per_epoch = -(-header.dataset_size // header.batch_size) if header.sampling == "shuffled" else 1
    rounds, before = -1, None
    for place, info in enumerate(info for info in trace.infos if info.recorded):
        epoch = info.index // per_epoch
        if header.local is not None:  # replies of a round begin with the same weights
            now = np.asarray(trace[place].parameters)
            rounds += before is None or not np.array_equal(before, now)
            epoch, before = rounds, now
        size = header.batch_size if header.local is None and header.sampling in RANDOM_SIZES else info.batch_size
        if header.local is not None:
            size = header.local.used(size)

        def opened(stage: _Stage, place: int = place, size: int = size) -> Publication:
            step = trace[place]
            if header.local is None or task.publish is not None:
                return RecordedGradient(task, model, header, step, size)
            start = np.array(step.parameters, dtype=np.float64)
            end = start - header.local.learning_rate * np.array(step.gradient, dtype=np.float64)
            replay = Replay(task, model, client_way(header.local, size))
            return Move(replay, Moment(start), Moment(end), size, clients=header.local.clients)

        if size:
            yield _Part(opened, epoch, min(size / header.dataset_size, 1.0))


def _decoys(attack: Rehearsal, count: int, who: AttackedRecords) -> int:
    """How many background records join the list, of gradients with `count` entries; raises where there is no room."""
    room = min(count, _DIMENSIONS) - len(who.ids) - _ROOM
    decoys = min(attack.decoys, len(who.background) // 4, room)
    if room < FEWEST_DECOYS:
        raise UnsupportedModel(
            f"The gradients have {min(count, _DIMENSIONS)} dimensions, no more than a list of {len(who.ids)} "
            "candidates and decoys has records",
            remedy=f"ask about at most {max(min(count, _DIMENSIONS) - _ROOM - FEWEST_DECOYS, 0)} candidates",
        )
    if decoys < FEWEST_DECOYS or len(who.background) - decoys < _FEWEST:
        raise InvalidArgument(
            f"has {len(who.background)} records, and rehearsals need {_FEWEST + 2 * FEWEST_DECOYS} or more",
            argument="background",
            remedy="add records of the same distribution to the task's pool, or name fewer non-members",
        )
    return decoys


class _Stage:
    """What all publications share: the list with its decoys, and the background to rehearse with.

    Parameters
    ----------
    size : records in a publication, as a rule.
    mixes : whether BatchNorm was in train mode: per-record gradients take its statistics from background then.
    """

    def __init__(
        self, attack: Rehearsal, task: Task, model: nn.Module, size: int, who: AttackedRecords, *, mixes: bool = True
    ) -> None:
        self.attack, self.task, self.model, self.size, self.ids = attack, task, model, size, who.ids
        self._own, self._mixes = copy.deepcopy(model).eval(), mixes and has_norms(model)
        self._parameters = [p for _, p in trainable_parameters(self._own)]
        rng = self.rng = np.random.default_rng(attack.seed)
        count = sum(p.numel() for p in self._parameters)
        self._sketch = Projection(count, _DIMENSIONS, seed=attack.seed) if count > _DIMENSIONS else None
        decoys = _decoys(attack, count, who)
        _, self.listed, self.others = with_decoys(who, decoys, attack.seed)
        self._centre: tuple[Array, Array] | None = None
        self._rows: torch.Tensor | None = None
        self.heard: Heard = unheard
        first = rng.permutation(len(self.others))
        self.shown, self.free = self.others[first[:_SLOPES]], first[_SLOPES:]

    def warmed(self, replay: Replay, start: Moment) -> tuple[Moment, Moment]:
        """The optimizer's state at both ends, where it is not known: that after training on background."""
        fresh = Moment(start.weights)
        first = replay.train(fresh, self.drawn(self.size), self.rng)
        then = replay.train(first._replace(weights=start.weights), self.drawn(self.size), self.rng)
        if replay.way.kind not in ADAM and then.first is None:
            return fresh, fresh
        return first, then

    def drawn(self, size: int) -> Examples:
        """Pseudo-members; some twice where the background is smaller than the run."""
        count = len(self.others)
        return self.others[self.rng.choice(count, size, replace=count < size)]

    def vectors(self, at: Array, records: Examples) -> Array:
        """Gradients of single records in eval mode, shape (n, d)."""
        self._move_to(at)
        gradients = PerExampleGradients(self._own, self.task.loss, dtype=torch.float32).heard(self.heard)
        # In the same memory again and again: new pages cost more than the gradients of large models.
        size = max(_FEW, _AT_ONCE // (4 * gradients.num_params))
        if self._rows is None or len(self._rows) < min(size, len(records)):
            self._rows = torch.empty(min(size, len(records)), gradients.num_params, device=gradients.device)
        parts = (records[slice(first, first + size)] for first in range(0, len(records), size))
        return np.concatenate([self.short(gradients.rows(part, out=self._rows[: len(part)])) for part in parts])

    def record_seconds(self, at: Array) -> float:
        """How long the gradient of a record takes now."""
        self.vectors(at, self.shown[:_FEW])  # what is done once, and loads what is loaded late
        start, few = time.monotonic(), self.shown[: 4 * _FEW]
        self.vectors(at, few)
        return (time.monotonic() - start) / len(few)

    def mean(self, at: Array, records: Examples) -> Array:
        """The mean of the records' gradients in eval mode, shape (d,)."""
        self._move_to(at)
        return self.short_one(mean_gradient(self.task, self._own, records))

    def short(self, vectors: torch.Tensor) -> Array:
        """The vectors in as many dimensions as are used."""
        return np.asarray((vectors if self._sketch is None else self._sketch(vectors)).double().cpu().numpy())

    def short_one(self, vector: Array) -> Array:
        """One vector in as many dimensions."""
        return np.asarray(self.short(torch.from_numpy(vector)[None])[0])

    def centre(self, at: Array) -> Array:
        """The mean vector of background records; the last one is kept, as a recorded step is always at the same
        weights."""
        if self._centre is None or not np.array_equal(self._centre[0], at):
            self._centre = at, np.asarray(self.vectors(at, self.shown).mean(axis=0))
        return self._centre[1]

    def _move_to(self, at: Array) -> None:
        set_flat(self._parameters, at)
        if self._mixes:
            settle_norms(self._own, self.shown)


class _Case:
    """One publication and its rehearsals; what they tell of the list, and of pseudo-members.

    What the gradients of the list will cost is measured on those of background, before the rehearsals.
    """

    def __init__(self, stage: _Stage, publication: Publication, budget: Budget) -> None:
        self._stage, self._publication, size = stage, publication, publication.size
        self._budget, self._record = budget, stage.record_seconds(publication.seen.at) if budget.limited else 0.0
        self._last: tuple[Published, Array, Array] | None = None
        ahead = len(stage.listed) + 4 * size + (2 if publication.ends is not None else 1) * len(stage.shown)
        least = _SLACK * ahead * self._record
        if budget.limited:
            check_time(stage.attack.name, least + _FEWEST_REHEARSALS * size * self._record, budget)
        self._reserve = max((1.0 - _REHEARSED) * budget.left(), least)
        vectors: list[Array] = []
        means: list[Array] = []
        while len(vectors) < stage.attack.rehearsals and not (self._late and len(vectors) >= _FEWEST_REHEARSALS):
            records = stage.drawn(size)
            seen = publication.replayed(records, stage.rng, stage.heard)
            vectors.append(stage.short_one(seen.vector))
            means.append(stage.mean(seen.at, records))
        if len(vectors) < stage.attack.rehearsals:
            warn(f"{len(vectors)} of {stage.attack.rehearsals} rehearsals were all that there was time for.")
        self._rehearsed, self._slopes = Rehearsed(np.array(vectors), np.array(means)), None
        if publication.ends is not None:
            before, after = (stage.vectors(weights, stage.shown) for weights in publication.ends)
            self._slopes = (after - before) / np.sqrt(12.0 * size * len(stage.shown))

    @property
    def _late(self) -> bool:
        """Whether what is left of the time is for the list."""
        return self._budget.limited and self._budget.left() < self._reserve

    def chosen(self) -> Shape:
        """The shape of the error that tells most in self-play; the first where there is none."""
        plays = [self._play()]
        if plays[0] is None:
            return SHAPES[0]
        while len(plays) * self._publication.size < _PLAYED and not self._late:
            plays.append(self._play())
        return max(SHAPES, key=lambda shape: np.mean([self._scored(shape, *play)[0] for play in plays if play]))

    def told(self, shape: Shape) -> _Told:
        """What the publication tells of the list."""
        stage, seen, size = self._stage, self._publication.seen, self._publication.size
        found = self._list_scores(shape, seen, stage.vectors(seen.at, stage.listed), stage.centre(seen.at))
        # Late, the forecast is by pseudo-members who chose the shape among a few: so little that it may flatter.
        late = self._budget.limited and self._budget.left() < 3 * size * self._record
        play = self._last if late and self._last is not None else self._play()
        if play is None:
            return _Told(found.scores, float("nan"), float("nan"), float("nan"))
        forecast, scale = self._scored(shape, *play)
        return _Told(found.scores, forecast, 1.0 / np.sqrt(6.0 * size), found.scale / scale)

    def _play(self) -> tuple[Published, Array, Array] | None:
        """What pseudo-members published, the vectors of these and of others, as many if there are, and the mean of
        background; None: there are too few."""
        stage, size = self._stage, self._publication.size
        if len(stage.free) < size + FEWEST_DECOYS:
            return None
        rows = stage.rng.permutation(stage.free)[: 2 * size]
        seen = self._publication.replayed(stage.others[rows[:size]], stage.rng, stage.heard)
        self._last = seen, stage.vectors(seen.at, stage.others[rows]), stage.centre(seen.at)
        return self._last

    def _scored(self, shape: Shape, seen: Published, vectors: Array, centre: Array) -> tuple[float, float]:
        """(AUC, scale of the error) of self-play."""
        played, size = self._list_scores(shape, seen, vectors, centre), self._publication.size
        return float(auc(played.scores[:size], played.scores[size:])), played.scale

    def _list_scores(self, shape: Shape, seen: Published, vectors: Array, centre: Array) -> ListScores:
        self._stage.heard(0)
        model, size = error_model(self._rehearsed, self._slopes, shape), self._publication.size
        return list_scores(model, self._stage.short_one(seen.vector), vectors, centre, size)
