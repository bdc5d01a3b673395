"""A trial of a search: its records, a clipping norm from their gradients, training, and how good the model is."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gmip import _numbers
from gmip import _validate as check
from gmip._progress import Watch, silent
from gmip._random import TuningStream
from gmip.attacks.gradients import PerExampleGradients, evaluating
from gmip.errors import Diverged, InvalidArgument, UnreachableTarget, warn
from gmip.parallel import JobRunner
from gmip.store import Store
from gmip.tasks.inputs import answer, rows_per_pass
from gmip.tasks.task import Examples, Task
from gmip.training.loop import fit, initial_model
from gmip.training.models import count_params, evaluate, has_classes
from gmip.tuning.search_space import calibrated, exposure
from gmip.vocabulary import PrivacyTarget, Recipe

# -- on which records a search trains and measures --------------------------------------------------------------------


_LEAST: Final = 40  # outsiders: fewer say nothing about a recipe
_VALIDATION: Final = 0.25  # share of the outsiders that are measured on, at least
_MOST_VALIDATION: Final = 5_000


@dataclass(frozen=True, eq=False)
class SearchRecords:
    """Records to train on, and others to measure the metric on."""

    train: Examples
    validation: Examples

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe for these records, which may be fewer than the members: noise on the MEAN and steps stay."""
        size = len(self.train)
        if size == recipe.dataset_size:
            return recipe
        return recipe.replace(dataset_size=size, batch_size=min(recipe.batch_size, size))


def outsider_fingerprints(task: Task, members: NDArray[np.int64]) -> dict[str, str]:
    """Fingerprints of the data that a search may look at: no member's record has any influence on them."""
    others = task.pool[np.setdiff1d(np.arange(len(task.pool)), members)]
    return {name: print_ for name, print_ in task.fingerprints.items() if name != "pool"} | {
        "others": others.fingerprint
    }


def search_records(
    task: Task, dataset_size: int, *, seed: int, split_seed: int = 0, members: NDArray[np.int64] | None = None
) -> SearchRecords:
    """Who is trained and measured on in a search: records of the pool that will not be members, and the background.

    Trials train on as many as there will be members, or fewer where there are not as many; at least a quarter is
    measured on.

    Parameters
    ----------
    dataset_size : members of the run to come.
    seed : of the trial: outsiders are divided anew for each, so that all of them are measured on in some.
    split_seed : of `task.split`: who will be a member.
    members : rows of the pool, where it is known who they are, whatever `split_seed` says.

    Raises
    ------
    InvalidArgument : there are almost no outsiders.
    """
    if members is None:
        split = task.split(dataset_size, split_seed)
        outside = np.concatenate([split.non_members, split.unused])
    else:
        outside = np.setdiff1d(np.arange(len(task.pool)), members)
    others = _shuffled(task, outside, dataset_size, seed)
    trained = min(dataset_size, len(others) - math.ceil(_VALIDATION * len(others)))
    return SearchRecords(others[:trained], others[trained : trained + _MOST_VALIDATION])


def records_on_members(task: Task, dataset_size: int, *, seed: int, split_seed: int) -> SearchRecords:
    """The members of the run to come to train on, and outsiders to measure on."""
    split = task.split(dataset_size, split_seed)
    others = _shuffled(task, np.concatenate([split.non_members, split.unused]), dataset_size, seed)
    return SearchRecords(task.pool[split.members], others[:_MOST_VALIDATION])


def _shuffled(task: Task, outside: NDArray[np.int64], dataset_size: int, seed: int) -> Examples:
    """These rows of the pool and the background, in an order of the seed's."""
    others = task.pool[outside]
    if task.background is not None:
        others = others.joined(task.background)
    if len(others) < _LEAST:
        raise InvalidArgument(
            f"Task {task.name} has {len(others)} records that will not be members at `dataset_size` = {dataset_size}, "
            f"and a search needs {_LEAST} to train and measure on",
            remedy="lower `dataset_size`, or give the task a `background` of records that no run trains on",
        )
    return others[TuningStream.RECORDS.rng(check.seed(seed)).permutation(len(others))]


# -- how good a model is ----------------------------------------------------------------------------------------------


Metric = str | Callable[[Task, nn.Module, Examples], float]
_ROWS: Final = 4096


def _accuracy(task: Task, model: nn.Module, examples: Examples) -> float:
    accuracy = evaluate(task, model, examples)[1]
    return math.nan if accuracy is None else accuracy


def _balanced_accuracy(task: Task, model: nn.Module, examples: Examples) -> float:
    """The mean over classes of the share that is recognised."""
    size = rows_per_pass(examples.inputs, _ROWS)
    with torch.no_grad():
        parts = [answer(model, examples[i : i + size].inputs).argmax(-1) for i in range(0, len(examples), size)]
    hits, targets = torch.cat(parts) == examples.targets, examples.targets
    return float(torch.stack([hits[targets == k].double().mean() for k in targets.unique()]).mean())


def _loss(task: Task, model: nn.Module, examples: Examples) -> float:
    return -evaluate(task, model, examples)[0]


METRICS: Final = {"accuracy": _accuracy, "balanced-accuracy": _balanced_accuracy, "loss": _loss}


def metric_name(metric: Metric) -> str:
    """Its name in tables and files."""
    if isinstance(metric, str):
        return check.one_of("metric", metric, tuple(METRICS))
    return getattr(metric, "__name__", type(metric).__name__)


def measure(metric: Metric, task: Task, model: nn.Module, examples: Examples) -> float:
    """The metric of a model in eval mode on these records; "loss" is its negative, so that more is better.

    metric : a name in `METRICS`, or a function of task, model and records.
    """
    name = metric_name(metric)
    if isinstance(metric, str):
        if metric != "loss" and not has_classes(examples.targets):
            raise InvalidArgument(
                "needs classes, and the targets of this task are not",
                argument="metric",
                value=metric,
                remedy="use 'loss'",
            )
        return METRICS[metric](task, model, examples)
    value = metric(task, model, examples)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"returned {type(value).__name__}, not a number", argument="metric", value=name, remedy="return a float"
        ) from None


# -- one training -----------------------------------------------------------------------------------------------------


def num_params_of(task: Task) -> int:
    """d, the trainable parameters of the task's model."""
    return count_params(initial_model(task, 0, checked=False))


def train_once(task: Task, recipe: Recipe, records: SearchRecords, *, seed: int, metric: Metric) -> float:
    """The metric of one model, trained on these records with the noise that the recipe has; NaN if it diverged."""
    try:
        model = fit(task, records.recipe(recipe), records.train, seed=seed)
    except Diverged:
        return math.nan
    return measure(metric, task, model, records.validation)


# -- the pieces of a search -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A piece: the least noise of a recipe."""

    recipe: Recipe
    target: PrivacyTarget


@dataclass(frozen=True, kw_only=True)
class Training:
    """A piece: train the recipe with the noise that it has. It ends half-way if the metric is below `least` then.

    tested : measure on the task's test records, too, which no choice depends on.
    """

    recipe: Recipe
    seed: int
    least: float = -math.inf
    tested: bool = False


Piece = Calibration | Training


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A calibration has noise_std (NaN: no noise keeps the target) and its exposure; a training has its metric
    (NaN: diverged), `test` if asked for, and whether it was ended half-way."""

    noise_std: float = math.nan
    exposure: float = math.nan
    metric: float = math.nan
    test: float = math.nan
    stopped: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialWork:
    """What all pieces share."""

    task: Task
    num_params: int
    metric: Metric
    split_seed: int

    @property
    def name(self) -> str:
        return f"Task {self.task.name!r}"

    def title(self, job: Piece) -> str:
        """A name for the piece, such as "the training of 40 steps"."""
        return f"the {type(job).__name__.lower()} of {job.recipe.num_steps} steps"

    def compute(self, job: Piece) -> Outcome:
        begun = time.perf_counter()
        found = self._calibrated(job) if isinstance(job, Calibration) else self._trained(job)
        return dataclasses.replace(found, seconds=time.perf_counter() - begun)

    def _calibrated(self, job: Calibration) -> Outcome:
        try:
            recipe = calibrated(job.recipe, self.num_params, job.target)
        except UnreachableTarget:
            return Outcome()
        return Outcome(noise_std=recipe.noise_std, exposure=exposure(recipe, self.num_params, job.target))

    def _trained(self, job: Training) -> Outcome:
        recipe, seed = job.recipe, job.seed
        records = search_records(self.task, recipe.dataset_size, seed=seed, split_seed=self.split_seed)
        early = math.inf

        def good_enough(model: nn.Module) -> bool:
            nonlocal early
            with evaluating(model):
                early = measure(self.metric, self.task, model, records.validation)
            return early >= job.least

        asked = good_enough if math.isfinite(job.least) else None
        try:
            model = fit(self.task, records.recipe(recipe), records.train, seed=seed, go_on=asked)
        except Diverged:
            return Outcome()
        if not early >= job.least:  # NaN, too: the model is half-trained
            return Outcome(metric=early, stopped=True)
        metric = measure(self.metric, self.task, model, records.validation)
        test = measure(self.metric, self.task, model, self.task.test) if job.tested else math.nan
        return Outcome(metric=metric, test=test)


class TrialRunner:
    """Computes pieces, and keeps each on disk the moment it is ready; a piece that is kept is not computed again.

    Parameters
    ----------
    runner : who computes.
    store : for outcomes; its facts are all that they depend on beside the piece itself.
    """

    def __init__(self, runner: JobRunner[Piece, Outcome], store: Store) -> None:
        self._runner, self._store = runner, store
        self._known: dict[str, Outcome] = {}  # by the text of a piece, which cannot be hashed

    @property
    def workers(self) -> int:
        return self._runner.size

    @property
    def spent(self) -> float:
        """Seconds of all pieces asked for so far, computed now or before: the same after an interruption."""
        return math.fsum(one.seconds for one in self._known.values())

    def outcomes(self, pieces: Sequence[Piece], stage: str, watch: Watch = silent) -> list[Outcome]:
        """One for each piece; equal pieces are computed once. `watch` hears of the stage if there is work to do."""
        unique = {repr(piece): piece for piece in pieces}
        missing = [piece for piece in unique.values() if not self._find(piece)]
        if not missing:
            return [self._known[repr(piece)] for piece in pieces]
        total, done, progress = len(unique), len(unique) - len(missing), watch(stage)
        progress(done, total)  # counts from the start, not from the first one that is done

        def take(piece: Piece, outcome: Outcome) -> None:
            nonlocal done
            done += 1
            self._known[repr(piece)] = outcome
            self._store.put(_key(piece), fields=dataclasses.asdict(outcome))
            progress(done, total)

        self._runner.compute(missing, take)
        return [self._known[repr(piece)] for piece in pieces]

    def _find(self, piece: Piece) -> bool:
        if repr(piece) not in self._known:
            found = self._store.get(_key(piece))
            if found is not None:
                self._known[repr(piece)] = Outcome(**found.fields)
        return repr(piece) in self._known


def _key(piece: Piece) -> dict[str, Any]:
    return {"kind": type(piece).__name__, "piece": dataclasses.asdict(piece)}


# -- how long gradients are -------------------------------------------------------------------------------------------


_MOST_RECORDS: Final = 1_000
_LOOSE: Final = 3.0  # times the median: beyond it, if also nothing is clipped, noise is wasted


@dataclass(frozen=True)
class AutoClip:
    """A clipping norm and where it is from: a quantile of the norms of so many gradients before training."""

    clip_norm: float
    quantile: float
    records: int


def gradient_norms(task: Task, dataset_size: int, *, split_seed: int = 0, fix: bool = False) -> NDArray[np.float64]:
    """Norms of the gradients of up to 1,000 outsiders at initial weights, shape (n,): see `search_records`.

    fix : replace layers that mix examples, as in `gmip.train`.

    Raises
    ------
    InvalidArgument : there are almost no records that will not be members.
    """
    records = search_records(task, dataset_size, seed=0, split_seed=split_seed)
    return _norms(task, records.train[: min(len(records.train), _MOST_RECORDS)], fix)


def _norms(task: Task, examples: Examples, fix: bool) -> NDArray[np.float64]:
    gradients = PerExampleGradients(initial_model(task, 0, fix=fix), task.loss)
    found = [
        torch.stack([piece.squared_norms() for piece in pieces]).sum(0).sqrt()
        for _, pieces in gradients.pieces(examples)
    ]
    norms: NDArray[np.float64] = torch.cat(found).cpu().numpy()
    return norms


def auto_clip(
    task: Task, dataset_size: int, *, split_seed: int = 0, quantile: float = 0.5, fix: bool = False
) -> AutoClip:
    """A clipping norm from records that are no members, so that it gives nothing away about those.

    Guarantees
    ----------
    No member of `task.split(dataset_size, split_seed)` has any influence on it.
    """
    share = check.above_zero("quantile", quantile)
    norms = gradient_norms(task, dataset_size, split_seed=split_seed, fix=fix)
    return AutoClip(float(f"{np.quantile(norms, share):.3g}"), share, norms.size)


def consider_clipping(task: Task, recipe: Recipe, *, fix: bool = False) -> None:
    """A GmipWarning if a recipe with noise clips almost no gradient: noise grows with C, and bias does not fall.

    Judged by records of the task's background, or else of its test: never by members.
    """
    if recipe.clip_norm is None or recipe.noise_std == 0.0:
        return
    others = task.test if task.background is None else task.background
    try:
        norms = _norms(task, others[: min(len(others), _MOST_RECORDS)], fix)
    except InvalidArgument:  # layers that do not run on one example alone: no reason not to train
        return
    times = recipe.clip_norm / float(np.median(norms))
    if times > _LOOSE and float(np.mean(norms > recipe.clip_norm)) < 0.01:
        warn(
            f"The clipping norm C = {recipe.clip_norm:g} is {_numbers.setting(float(f'{times:.2g}'))} times the "
            f"median norm of a gradient. Almost nothing is clipped, and noise grows with C: a smaller C needs less "
            f"noise."
        )
