"""Rehearsal of what was published between two states of a model: checkpoints, or the steps of a recorded run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import nn

from gmip import _validate as check
from gmip.attacks.arrays import ranks_among
from gmip.attacks.attack import Attack, AttackedRecords, RunTraits
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.publications import ADAM, CheckpointedModel, Moment, Published, Replay, Way
from gmip.attacks.rehearsal import Array, Rehearsed, error_model, list_scores
from gmip.attacks.signals import released_model
from gmip.attacks.work import Work
from gmip.errors import InvalidArgument, UnsupportedModel, warn
from gmip.stats import ScoreSet
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import ModelRecord

_SLOPES: Final = 200  # background records of which the change of the gradient is measured
_FEWEST_DECOYS: Final = 20
_FEWEST: Final = 100  # background records to rehearse with
_ROOM: Final = 20  # dimensions that must be left beside the list
_DIMENSIONS: Final = 16_384  # of gradients; more are sketched
_RHO: Final = (0.25, 2.0)  # of the scale of the error, real to self-play: outside, the recipe is another


class _Pair(NamedTuple):
    """Scores of the list from one pair of moments, what self-play expects (AUC; nan: unknown), and rho."""

    scores: Array
    forecast: float
    rho: float


@dataclass(frozen=True)
class Rehearsal(Attack):
    """Decodes a list of candidates from two or more states of a model, by a training that the attacker rehearses.

    The way between two states is a sum of gradients of all records that were trained on in between. The attacker trains
    background records from the same state on, compares with their mean gradient, and so learns by what the sum misses
    it; then scores are leave-one-out log-likelihood ratios of a linear model, and those of several pairs of states add
    up (docs/checkpoints.md).

    Parameters
    ----------
    rehearsals : of each pair.
    pairs : the most pairs of states that are used, spread over the training.
    decoys : background records on the list, among which a candidate's rank is its p-value.
    device : where gradients of single records are computed.
    seed : of all that is drawn.

    Guarantees
    ----------
    No label of the run is used. p-values hold if candidates that were not in are distributed as the background is,
    however wrong the model of the error is: decoys are used for nothing else. A pair on which self-play is at chance is
    left out; where all are, or where the gradients have no more dimensions than the list has records, the attack
    refuses. How well it does is a forecast and no bound.
    """

    rehearsals: int = 24
    pairs: int = 8
    decoys: int = 200
    device: str = "cpu"
    seed: int = 0

    name: ClassVar[str] = "rehearsal"

    def __post_init__(self) -> None:
        for name, least in (("rehearsals", 4), ("pairs", 1), ("decoys", _FEWEST_DECOYS)):
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
        stage = _Stage(self, task, model, target.header.dataset_size, who)
        count = len(target.ways)
        chosen = np.unique(np.linspace(0, count - 1, min(self.pairs, count)).round().astype(int)).tolist()
        found: list[_Pair] = []
        for done, number in enumerate(chosen):
            found.append(stage.pair(target.moments[number], target.moments[number + 1], target.ways[number]))
            progress(done + 1, len(chosen))
            if progress.budget.left() < 0.0 and done + 1 < len(chosen):
                warn(
                    f"attack {self.name!r} used {done + 1} of {len(chosen)} pairs of checkpoints to stay within "
                    f"the budget."
                )
                break
        return self._summed(found, stage, who.ids, cut_short=len(found) < len(chosen))

    def _summed(self, found: list[_Pair], stage: _Stage, ids: NDArray[np.int64], *, cut_short: bool) -> ScoreSet:
        chance = 0.5 + 2.0 / np.sqrt(6.0 * stage.played)  # two errors of the AUC of that many, and as many others
        used = [one for one in found if not one.forecast <= chance]
        if not used:
            best = max(one.forecast for one in found)
            raise UnsupportedModel(
                f"In self-play the attack on checkpoints is at chance (AUC {best:.3f}): too much happens between two "
                "of them for this list",
                remedy="keep checkpoints that are closer to each other, with the optimizer's state",
            )
        rhos = [one.rho for one in used if np.isfinite(one.rho)]
        if rhos and not _RHO[0] <= np.median(rhos) <= _RHO[1]:
            warn(
                "the checkpoints do not fit the recipe or the list: what these do not explain is "
                f"{np.median(rhos):.2g} times what rehearsals leave. Check batch size, learning rate and optimizer of "
                "the task's recipe, and that all members are named; scores may miss a leak."
            )
        total = np.sum([one.scores for one in used], axis=0)
        scores, decoys = total[: len(ids)], total[len(ids) :]
        known = [one.forecast for one in used if np.isfinite(one.forecast)]
        facts: dict[str, Any] = {"pairs": len(used), "pairs_at_chance": len(found) - len(used), "decoys": len(decoys)}
        facts |= {"self_play_auc": max(known)} if known else {}
        facts |= {"rho": float(np.median(rhos))} if rhos else {}
        p_values = ranks_among(scores, decoys)
        return ScoreSet(ids=ids, scores=scores, attack=self.name, p_values=p_values, facts=facts, cut_short=cut_short)


class _Stage:
    """What all pairs share: the list with its decoys, and the background to rehearse with."""

    def __init__(self, attack: Rehearsal, task: Task, model: nn.Module, members: int, who: AttackedRecords) -> None:
        self._attack, self._task, self._model, self._members = attack, task, model, members
        self._gradients = PerExampleGradients(self._model, task.loss, dtype=torch.float32)
        rng = self._rng = np.random.default_rng(attack.seed)
        size, self._sketch = self._gradients.num_params, None
        if size > _DIMENSIONS:  # a random sign and place for each parameter: inner products are kept, on average
            places = (np.arange(size), rng.integers(0, _DIMENSIONS, size))
            self._sketch = csr_matrix((rng.choice([-1.0, 1.0], size), places), shape=(size, _DIMENSIONS))
        room = min(size, _DIMENSIONS) - len(who.ids) - _ROOM
        decoys = min(attack.decoys, len(who.background) // 4, room)
        if room < _FEWEST_DECOYS:
            raise UnsupportedModel(
                f"The gradients have {min(size, _DIMENSIONS)} dimensions, no more than a list of {len(who.ids)} "
                "candidates and decoys has records",
                remedy=f"ask about at most {max(min(size, _DIMENSIONS) - _ROOM - _FEWEST_DECOYS, 0)} candidates",
            )
        if decoys < _FEWEST_DECOYS or len(who.background) - decoys < _FEWEST:
            raise InvalidArgument(
                f"has {len(who.background)} records, and rehearsals need {_FEWEST + 2 * _FEWEST_DECOYS} or more",
                argument="background",
                remedy="add records of the same distribution to the task's pool, or name fewer non-members",
            )
        order = rng.permutation(len(who.background))
        self._list = who.candidates.joined(who.background[order[:decoys]])
        self._others = who.background[order[decoys:]]
        self._slope_rows = rng.permutation(len(self._others))[:_SLOPES]
        #: Pseudo-members of self-play.
        self.played = min(self._members, (len(self._others) - len(self._slope_rows)) // 2)

    def pair(self, start: Moment, end: Moment, way: Way) -> _Pair:
        """What one pair of moments tells."""
        replay = Replay(self._task, self._model, way)
        begin, stand_in = start, None
        if not way.known:
            stand_in = self._warmed(replay, start)
            begin = start._replace(first=stand_in[0].first, second=stand_in[0].second, step=stand_in[0].step)
        real = way.published(start, end, stand_in)
        vectors, means = [], []
        for _ in range(self._attack.rehearsals):
            rows = self._drawn()
            seen, mean = self._rehearsed(replay, begin, rows, stand_in)
            vectors.append(seen.vector)
            means.append(mean)
        shown = self._others[self._slope_rows]
        slopes = self._vectors(end.weights, shown) - self._vectors(start.weights, shown)
        rehearsed = Rehearsed(self._short(np.array(vectors)), self._short(np.array(means)))
        model = error_model(rehearsed, slopes / np.sqrt(12.0 * self._members * len(slopes)), response="scalar")
        centre = self._vectors(real.at, shown).mean(axis=0)
        found = list_scores(
            model, self._short(real.vector[None])[0], self._vectors(real.at, self._list), centre, self._members
        )
        if self.played < self._members:
            return _Pair(found.scores, float("nan"), float("nan"))
        free = self._rng.permutation(np.setdiff1d(np.arange(len(self._others)), self._slope_rows))
        inside, outside = free[: self.played], free[self.played : 2 * self.played]
        seen, _ = self._rehearsed(replay, begin, inside, stand_in)
        both = self._vectors(seen.at, self._others[np.concatenate([inside, outside])])
        centre = self._vectors(seen.at, shown).mean(axis=0)
        played = list_scores(model, self._short(seen.vector[None])[0], both, centre, self._members)
        forecast = auc(played.scores[: self.played], played.scores[self.played :])
        return _Pair(found.scores, float(forecast), found.scale / played.scale)

    def _rehearsed(
        self, replay: Replay, begin: Moment, rows: NDArray[np.int64], stand_in: tuple[Moment, Moment] | None
    ) -> tuple[Published, Array]:
        records = self._others[rows]
        seen = replay.way.published(begin, replay.train(begin, records, self._rng), stand_in)
        return seen, replay.mean_gradient(seen.at, records)

    def _warmed(self, replay: Replay, start: Moment) -> tuple[Moment, Moment]:
        """The optimizer's state at both ends, where it is not known: that after training on background."""
        fresh = Moment(start.weights)
        first = replay.train(fresh, self._others[self._drawn()], self._rng)
        then = replay.train(first._replace(weights=start.weights), self._others[self._drawn()], self._rng)
        if replay.way.kind not in ADAM and then.first is None:
            return fresh, fresh
        return first, then

    def _drawn(self) -> NDArray[np.int64]:
        """Pseudo-members; some twice where the background is smaller than the run."""
        count = len(self._others)
        return self._rng.choice(count, self._members, replace=count < self._members)

    def _vectors(self, at: Array, records: Examples) -> Array:
        gradients = self._gradients.at(at)
        return np.concatenate([self._short(chunk.double().cpu().numpy()) for chunk in gradients.chunks(records)])

    def _short(self, vectors: Array) -> Array:
        return vectors if self._sketch is None else np.asarray(vectors @ self._sketch)
