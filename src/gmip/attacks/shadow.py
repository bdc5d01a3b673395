"""Shadow models: trained like the released model on records that are known, to learn what a member looks like.

A shadow set trains the models that are missing, and stores each the moment it is ready. LiRA and RMIA compare the
released model with them.
"""

from __future__ import annotations

import dataclasses
import os
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gmip import _validate as check
from gmip._progress import Progress, silent
from gmip._random import ShadowStream
from gmip.attacks.arrays import (
    LEAST_LOG,
    OFFLINE_SCALE,
    LogMean,
    Moments,
    Variance,
    finite_range,
    likelihood_ratios,
    log_probabilities,
    ranks_among,
    standardised,
    usual_log_p,
)
from gmip.attacks.attack import Attack, AttackedRecords
from gmip.attacks.signals import Augmentation, Confidence, released_model
from gmip.attacks.work import Budget, Work
from gmip.errors import DataUnavailable, InvalidArgument, warn
from gmip.parallel import Workers, compute, one_thread
from gmip.stats import ScoreSet
from gmip.stats.scores import Fact, auc
from gmip.store import Store
from gmip.tasks import Examples, Task
from gmip.tasks.data_files import cache_folder
from gmip.tasks.inputs import answer
from gmip.trace import ModelOptions, ModelRecord, fingerprint
from gmip.training.loop import fit, initial_model, recipe_of
from gmip.training.models import usable_device
from gmip.vocabulary import Recipe

# -- shadow models ----------------------------------------------------------------------------------------------------


_MOST: Final = 99_999


class Signal(Protocol):
    """What is computed with each trained shadow model, and all that is stored of it.

    It travels to the workers, so it must be small and picklable; equal keys must mean equal results.
    """

    @property
    def key(self) -> str:
        """A name with all that the result depends on (settings as a hash)."""

    @property
    def population(self) -> bool:
        """Whether it is wanted for the population records too, else for the candidates only."""

    def __call__(self, task: Task, model: nn.Module, examples: Examples) -> NDArray[np.floating[Any]]:
        """Shape (len(examples), ...). The model is in eval mode; `task` has its model and loss, but no records."""


@dataclass(frozen=True, kw_only=True)
class Shadows(Workers):
    """How shadow models are trained. Only `count` and `seed` change results; the others say where and by whom.

    Parameters
    ----------
    count : number of models; a larger one later trains only those that are missing. Even: each candidate is in half.
    seed : of who is in which model, of weights, batches and noise.
    folder : parent of the shadow sets; None: `shadows` in the cache (GMIP_CACHE).
    workers, backend, scheduler_address, retries : as in `gmip.parallel.Workers`; a job is a model.
    """

    count: int = 64
    seed: int = 0
    folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check.fields(self, count=check.count, seed=lambda _, seed: check.seed(seed))
        if self.count > _MOST:
            raise InvalidArgument(
                f"is more than {_MOST} shadow models", argument="count", value=self.count, remedy="pass fewer"
            )

    @property
    def parent(self) -> Path:
        """The folder that holds the shadow sets."""
        return cache_folder() / "shadows" if self.folder is None else Path(self.folder).expanduser()


class ModelSignal(NamedTuple):
    """A signal of one model."""

    candidates: NDArray[Any]  # (c, ...)
    population: NDArray[Any] | None  # (z, ...)


Outputs = Mapping[str, ModelSignal]
ShadowJob = tuple[int, frozenset[str]]


@dataclass(frozen=True, eq=False)
class ShadowTraining:
    """All that training any model of a set takes; a job is an index and the keys of the signals that are wanted.
    `filling` are the background records that the plan calls so."""

    task: Task
    recipe: Recipe
    options: ModelOptions
    plan: Membership
    candidates: Examples
    filling: Examples
    population: Examples
    signals: tuple[Signal, ...]

    @property
    def name(self) -> str:
        return f"Task {self.task.name!r}"

    def title(self, job: ShadowJob) -> str:
        return f"shadow model {job[0]}"

    def compute(self, job: ShadowJob) -> dict[str, ModelSignal]:
        index, keys = job
        plan = self.plan
        records = self.candidates[np.flatnonzero(plan.inside(index))].joined(self.filling[plan.fill(index)])
        model = fit(self.task, self.recipe, records, seed=plan.training_seed(index), options=self.options)
        found = {}
        for signal in self.signals:
            if signal.key in keys:
                with torch.random.fork_rng():  # a signal's result depends neither on other signals nor on the caller
                    torch.manual_seed(plan.signal_seed(index))
                    candidates = _computed(signal, self.task, model, self.candidates)
                    population = _computed(signal, self.task, model, self.population) if signal.population else None
                found[signal.key] = ModelSignal(candidates, population)
        return found


def _computed(signal: Signal, task: Task, model: torch.nn.Module, examples: Examples) -> NDArray[Any]:
    values = np.ascontiguousarray(signal(task, model.eval(), examples))
    if values.dtype.kind != "f" or values.ndim == 0 or len(values) != len(examples):
        raise InvalidArgument(
            f"Signal {signal.key!r} gave {values.dtype} of shape {values.shape} for {len(examples)} records",
            remedy="return floats with one row for each record",
        )
    return values


# -- the store ---------------------------------------------------------------------------------------------------------


def store_signals(store: Store, index: int, outputs: Outputs) -> None:
    """Keep signals of a model. Each is an entry of its own, and so is its part for the population: whoever adds one to
    a model leaves the others alone."""
    for key, parts in outputs.items():
        for part, values in parts._asdict().items():
            if values is not None:
                store.put(_key(index, key, part), {"values": values})


def stored(store: Store, index: int, signal: Signal) -> ModelSignal | None:
    """A signal of a model, or None where it has to be computed."""
    names = ("candidates", "population") if signal.population else ("candidates",)
    found = [store.get(_key(index, signal.key, name)) for name in names]
    arrays = [None if entry is None else entry.arrays["values"] for entry in found]
    if arrays[0] is None or arrays[-1] is None:
        return None
    return ModelSignal(arrays[0], arrays[1] if signal.population else None)


def _key(index: int, signal: str, part: str) -> dict[str, Any]:
    return {"model": index, "signal": signal, "records": part}


@dataclass(frozen=True, eq=False)
class ShadowModel:
    """What is known of one shadow model: its number, the candidates it was trained on, shape (c,), and its signals."""

    index: int
    inside: NDArray[np.bool_]
    _signals: Mapping[str, ModelSignal]

    def signal(self, key: str) -> ModelSignal:
        """A signal for the candidates, (c, ...), and for the population, (z, ...) or None."""
        if key not in self._signals:
            raise InvalidArgument(f"Signal {key!r} is not in the shadow set", remedy="ask shadow_set for it")
        return self._signals[key]


@dataclass(frozen=True, eq=False, repr=False)
class ShadowSet:
    """A trained shadow set. Iterating reads one model at a time, so that memory does not grow with their number.

    Attributes
    ----------
    count : models in it.
    candidates : ids, shape (c,).
    population : background records that no shadow model was trained on, z of them.
    """

    store: Store
    count: int
    plan: Membership
    candidates: NDArray[np.int64]
    population: Examples
    signals: tuple[Signal, ...]

    @property
    def path(self) -> Path:
        """Its folder."""
        assert self.store.folder is not None
        return self.store.folder

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[ShadowModel]:
        for index in range(self.count):
            signals = {}
            for signal in self.signals:
                found = stored(self.store, index, signal)
                if found is None:
                    raise DataUnavailable(
                        f"Shadow model {index} is not in {self.path}",
                        remedy="train the shadow set again, which adds what is missing",
                    )
                signals[signal.key] = found
            yield ShadowModel(index, self.plan.inside(index), signals)

    def __repr__(self) -> str:
        return f"ShadowSet({str(self.path)!r}, {self.count} models, {len(self.candidates)} candidates)"


# -- who is in which shadow model -------------------------------------------------------------------------------------


_MOST_POPULATION: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Membership of shadow models of `dataset_size` records, drawn from candidates and background.

    Models 2j and 2j + 1 are complementary: a random half of the candidates is in the first and the other half is in the
    second. Where half of the candidates is more than `dataset_size`, models come in larger groups, as many as there is
    room for, such that no candidate is in two models of a group. The rest of a model's records are background.

    Up to 1,000 background records, at most half of those that can be spared, are in no model: the population.
    """

    num_candidates: int
    num_background: int
    dataset_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.num_background < self._most_fill:
            raise InvalidArgument(
                f"A shadow model needs {self.dataset_size} records, as the run has: half of the {self.num_candidates} "
                f"candidates are {self.num_candidates // 2}, and `background` has only {self.num_background} of the "
                f"missing {self._most_fill}",
                remedy="pass more `background` or more `candidates`",
            )

    @cached_property
    def population(self) -> NDArray[np.int64]:
        """Background records that are in no model, sorted, shape (z,)."""
        return self._background[0]

    @cached_property
    def filling(self) -> NDArray[np.int64]:
        """Background records that may be in a model, sorted; none where candidates fill the models."""
        return self._background[1]

    def inside(self, index: int) -> NDArray[np.bool_]:
        """Which candidates are in the model, shape (c,)."""
        c, N = self.num_candidates, self.dataset_size
        mask = np.zeros(c, dtype=np.bool_)
        if c - c // 2 <= N:
            pair, second = divmod(index, 2)
            mask[ShadowStream.MEMBERS.rng(self.seed, pair).permutation(c)[: c // 2]] = True
            return ~mask if second else mask
        group, place = divmod(index, c // N)
        mask[ShadowStream.MEMBERS.rng(self.seed, group).permutation(c)[place * N : (place + 1) * N]] = True
        return mask

    def fill(self, index: int) -> NDArray[np.int64]:
        """Rows of `filling` that are in the model, sorted."""
        missing = self.dataset_size - int(self.inside(index).sum())
        return np.sort(ShadowStream.FILL.rng(self.seed, index).choice(len(self.filling), missing, replace=False))

    def training_seed(self, index: int) -> int:
        """The seed of initial weights, batches and noise."""
        return ShadowStream.TRAINING.torch_seed(self.seed, index)

    def signal_seed(self, index: int) -> int:
        """The seed of torch's generator while a signal is computed."""
        return ShadowStream.SIGNAL.torch_seed(self.seed, index)

    @property
    def _most_fill(self) -> int:
        return max(0, self.dataset_size - self.num_candidates // 2)

    @cached_property
    def _background(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = ShadowStream.POPULATION.rng(self.seed, 0).permutation(self.num_background)
        size = min(_MOST_POPULATION, (self.num_background - self._most_fill) // 2)
        rest = order[size:] if self._most_fill else order[:0]
        return np.sort(order[:size]), np.sort(rest)


# -- a shadow set -----------------------------------------------------------------------------------------------------


_FEWEST = 4  # models of a set for which there was little time
_PROBED = 8  # records on which the untrained model is evaluated, to know it again


def shadow_set(
    task: Task,
    target: ModelRecord,
    candidates: NDArray[np.int64],
    background: Examples,
    signals: Sequence[Signal],
    settings: Shadows,
    *,
    progress: Progress | None = None,
    budget: Budget | None = None,
) -> ShadowSet:
    """Shadow models of a run, trained by its own recipe, as far as they are not stored yet.

    Parameters
    ----------
    task, target : the run; data or a task other than the run's are refused.
    candidates : ids, rows of the task's pool, shape (c,). Each model is trained on a random half of them.
    background : further records of the same distribution. They fill models up; some are kept out of all (population).
    signals : what is computed with each model for candidates and population, and stored.
    settings : how many, where, and by whom.
    progress : called with (models that are done, models in all), at the start and after each.
    budget : no model is begun that would not be ready in time, so that the set may have fewer (four at least, and
        whole pairs); a later call trains the others.

    Guarantees
    ----------
    Model i follows from task, recipe, candidates, background, settings.seed and i. Who was in the run plays no part,
    nor do the backend, the number of workers, deaths of workers or interruptions: stored bits are the same on machines
    whose arithmetic is (same processor, same torch). Each model is stored the moment it is ready, and a later call
    trains only what is missing. Memory here does not grow with the number of models.

    Raises
    ------
    InvalidArgument : too little background, an unknown address, a folder that holds something else.
    TraceMismatch : the run is of another task, data or recipe.
    GmipError : a model could not be trained; errors of a kind of their own keep it, and the message names the model.
    """
    target.check_data(task.fingerprints)
    candidates = np.asarray(candidates, dtype=np.int64)
    wanted = _signals(signals)
    recipe = recipe_of(task, target)
    options = target.header.provenance.options
    options = dataclasses.replace(options, device=usable_device(options.device))
    plan = Membership(
        num_candidates=len(candidates),
        num_background=len(background),
        dataset_size=recipe.dataset_size,
        seed=settings.seed,
    )
    store = Store(settings.parent, "shadow-set", _facts(task, recipe, options, plan, candidates, background))
    population = background[plan.population]
    missing = {}
    for index in range(settings.count):
        keys = {key for key, one in wanted.items() if stored(store, index, one) is None}
        if keys:
            missing[index] = frozenset(keys)
    progress = progress or silent("shadow models")
    progress(settings.count - len(missing), settings.count)
    if missing:
        nothing = task.pool[[]]
        work = ShadowTraining(
            task=dataclasses.replace(task, pool=nothing, test=nothing, background=None, groups={}, record_names=None),
            recipe=recipe,
            options=options,
            plan=plan,
            candidates=task.pool[candidates],
            filling=background[plan.filling],
            population=population,
            signals=tuple(wanted.values()),
        )
        done, start = settings.count - len(missing), time.monotonic()
        jobs = sorted(missing.items())
        begun, needed = 0, sum(index < _FEWEST for index in missing)

        def take(job: ShadowJob, outputs: Outputs) -> None:
            nonlocal done
            store_signals(store, job[0], outputs)
            del missing[job[0]]
            done += 1
            progress(done, settings.count)

        def more() -> bool:
            nonlocal begun
            trained = len(jobs) - len(missing)
            pace = (time.monotonic() - start) / trained if trained else 0.0
            if budget is not None and begun >= needed and budget.left() < pace:
                return False
            begun += 1
            return True

        compute(work, jobs, settings, take, more=more)
    ready = min(missing, default=settings.count)
    count = ready - ready % 2 if missing else ready
    return ShadowSet(store, count, plan, candidates, population, tuple(wanted.values()))


def _signals(signals: Sequence[Signal]) -> dict[str, Signal]:
    found: dict[str, Signal] = {}
    for signal in signals:
        if found.setdefault(signal.key, signal).population != signal.population:
            raise InvalidArgument(
                f"Two signals have the key {signal.key!r} and differ in population", remedy="rename one"
            )
    if not found:
        raise InvalidArgument(
            "is empty, and nothing else is stored of a shadow model", argument="signals", remedy="name at least one"
        )
    return found


def _facts(
    task: Task,
    recipe: Recipe,
    options: ModelOptions,
    plan: Membership,
    candidates: NDArray[np.int64],
    background: Examples,
) -> dict[str, Any]:
    """All that the models of a set depend on, but for their number."""
    return {
        "torch": torch.__version__,
        "task": task.name,
        "model": _probe(task, options.fix, task.pool[candidates[:_PROBED]]),
        "data": task.fingerprints,
        "background": background.fingerprint,
        "recipe": dataclasses.asdict(recipe),
        "options": dataclasses.asdict(options),
        "candidates": fingerprint(candidates),
        "seed": plan.seed,
        "draws": fingerprint(plan.population, plan.inside(0)),  # NumPy may draw otherwise in another version
    }


def _probe(task: Task, fix: bool, examples: Examples) -> str:
    """A name for what the task's code makes: structure and weights of a model, and its losses on some records."""
    with one_thread(), torch.no_grad(), torch.random.fork_rng():
        model = initial_model(task, 0, fix=fix, checked=False).eval()
        torch.manual_seed(0)
        losses = task.loss(answer(model, examples.inputs), examples.targets)
        return fingerprint(np.array(repr(model)), *map(_bytes, [*model.state_dict().values(), losses]))


def _bytes(values: torch.Tensor) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return found


# -- attacks that compare the released model with shadow models -------------------------------------------------------


Array = NDArray[np.float64]


class ModelAnswers(NamedTuple):
    """What the released model and its shadow models say.

    Attributes
    ----------
    candidates, population : the released model's confidences, shapes (c, 1 + k) and (z, 1 + k) for k augmentations.
    shadows : the shadow models.
    """

    candidates: Array
    population: Array
    shadows: ShadowSet


def by_model(models: ShadowSet, key: str, population: int) -> Iterator[tuple[NDArray[Any], NDArray[np.bool_]]]:
    """(a signal of the candidates and of so many population records, who of them counts as in), for each model.

    A population record has the membership of a candidate: it is compared with as many models as a candidate is, since
    a mean over more of them would vary less.
    """
    for model in models:
        values, others = model.signal(key)
        inside = model.inside
        if population and others is not None:
            matched = inside[np.arange(population) % len(inside)]
            values, inside = np.concatenate([values, others]), np.concatenate([inside, matched])
        yield values, inside


@dataclass(frozen=True, kw_only=True)
class ShadowAttack(Attack):
    """What attacks with shadow models have in common.

    Parameters
    ----------
    shadows : how many shadow models; `Shadows` also says where they are trained.
    device : where the released model is evaluated.
    """

    shadows: Shadows | int = field(default_factory=Shadows)
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not isinstance(self.shadows, Shadows):
            count = check.count("shadows", self.shadows)
            object.__setattr__(self, "shadows", Shadows(count=count))

    @property
    def plan(self) -> Shadows:
        """How many shadow models, and where they are trained."""
        assert isinstance(self.shadows, Shadows)  # since it was made
        return self.shadows

    @abstractmethod
    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""

    def _model_answers(
        self, task: Task, target: ModelRecord, who: AttackedRecords, signal: Confidence, work: Work
    ) -> ModelAnswers:
        """The released model is evaluated first: what is wrong with it is said before anything is trained."""
        model = released_model(task, target, device=self.device)
        own = signal(task, model, who.candidates)
        models = self._models(task, target, who.ids, who.background, signal, work)
        return ModelAnswers(own, signal(task, model, models.population), models)

    def _models(
        self, task: Task, target: ModelRecord, ids: NDArray[np.int64], background: Examples, signal: Signal, work: Work
    ) -> ShadowSet:
        """The shadow models, or those that there was time for, with a warning."""
        models = shadow_set(
            task, target, ids, background, (signal,), self.plan, progress=work.progress, budget=work.budget
        )
        if len(models) < self.plan.count:
            warn(
                f"attack {self.name!r} had {work.budget.seconds:.0f} seconds and uses {len(models)} of "
                f"{self.plan.count} shadow models. Raise --budget for more; trained ones are kept."
            )
        return models

    def _scored(
        self,
        ids: NDArray[np.int64],
        scores: Array,
        p_values: Array | None,
        models: ShadowSet,
        facts: Mapping[str, Fact],
    ) -> ScoreSet:
        """The scores, with what every such attack tells about its shadow models."""
        return ScoreSet(
            ids=ids,
            scores=scores,
            attack=self.name,
            p_values=p_values,
            facts={**facts, "shadows": len(models), "folder": str(models.path)},
            cut_short=len(models) < self.plan.count,
        )

    def _check_counts(
        self, ids: NDArray[np.int64], inside: Array | None, outside: Array, *, needed: int, spread: bool
    ) -> None:
        """Raise unless each candidate, shape (c,), has so many models with it (None: does not matter) and without it;
        for a spread some candidate must have two."""
        for words, count in (("with", inside), ("without", outside)):
            if count is None:
                continue
            remedy = f"raise `count` of shadows, which is {self.plan.count}"
            if words == "with":
                remedy += ", or pass `online` = False"
            if count.min() < needed:
                raise InvalidArgument(
                    f"Candidate {ids[count.argmin()]} has {count.min():.0f} of {self.plan.count} shadow models {words} "
                    f"it, and {self.name} needs {needed} or more",
                    remedy=remedy,
                )
            if spread and count.max() < 2.0:
                raise InvalidArgument(
                    f"No candidate has two shadow models {words} it, so their variance is unknown", remedy=remedy
                )


# -- lira -------------------------------------------------------------------------------------------------------------


_VARIANCES: Final = get_args(Variance)
_VIEW_GAMES: Final = 6  # shadow models that are attacked, to choose views
_FEWEST_OTHERS: Final = 5  # shadow models, without which that tells nothing


@dataclass(frozen=True, kw_only=True)
class LiRA(ShadowAttack):
    """The likelihood-ratio attack on confidences (Carlini et al. 2022), the paper's "Loss LRT".

    Confidence is phi = log(p/(1 - p)), p the probability of the true label, which is nearly Gaussian over trainings.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained.
    online : True fits two distributions to each candidate, over the shadow models with it and without it; the score is
        the log-likelihood ratio. False uses only models without the candidate; the score is how many spreads the
        released model's phi lies above theirs, and there are p-values.
    variance : "pooled", one for all candidates; "per-example", each candidate's own; "auto" weighs a candidate's own by
        the number of its models less 1 and the pooled one by 4, so that few shadow models give nearly the pooled and
        many the candidate's own. Online, "auto" also compares predictive distributions (Student's t) instead of
        Gaussians, and lets candidates share what training on a record does to its confidence: see
        `gmip.attacks.arrays.likelihood_ratios`, and docs/evidence/attacks.md for what that gains with few models.
    augmentations : further views of each candidate, see `Confidence`. Online, the log-likelihood ratios of the views
        are averaged; offline, their phi. A model that was trained without them gives less away in them: some shadow
        models are attacked by the others, and where that finds less with all views than with the records as they are,
        these alone are used, with a GmipWarning.
    device : where the released model is evaluated.

    Guarantees
    ----------
    The likelihood ratio rests on phi being Gaussian over trainings, and on shadow models being trained as the released
    model was: an approximation. An offline p-value is the candidate's rank among background records that are in no
    model, compared with as many models: valid for candidates drawn as the background was, up to shadow models being
    unlike the released one in its records. Infinite confidences count as the largest finite ones seen in any model.
    """

    online: bool = True
    variance: Variance = "auto"
    augmentations: tuple[str | Augmentation, ...] = ()

    name: ClassVar[str] = "lira"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.fields(self, variance=_VARIANCES, augmentations=lambda _, given: Confidence(given).augmentations)

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (Confidence(self.augmentations),)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        signal = Confidence(self.augmentations)
        found = self._model_answers(task, target, who, signal, progress)
        models, c = found.shadows, len(found.candidates)
        ranked = 0 if self.online else len(found.population)  # records among which candidates are ranked
        released = np.concatenate([found.candidates, found.population[:ranked]])
        seen = chain([released], (values for values, _ in by_model(models, signal.key, ranked)))
        view = self._chosen_view(models, signal.key, _View(slice(None), *finite_range(seen), not self.online))
        phi = view(released)
        inside, outside = _moments(by_model(models, signal.key, ranked), phi.shape, view)
        self._check_counts(
            models.candidates,
            inside.count if self.online else None,
            outside.count[:c],
            needed=2 if self.variance == "per-example" else 1,
            spread=True,
        )
        scores = self._ratios(phi, inside, outside)
        facts: dict[str, Fact] = {"online": self.online, "variance": self.variance}
        if self.augmentations:
            facts["views"] = len(range(1 + len(self.augmentations))[view.which])
        p_values = ranks_among(scores[:c], scores[c:]) if ranked else None
        return self._scored(models.candidates, scores[:c], p_values, models, facts)

    def _ratios(self, phi: Array, inside: Moments, outside: Moments) -> Array:
        if self.online:
            return likelihood_ratios(phi, inside, outside, self.variance)
        return standardised(phi, outside, self.variance)

    def _chosen_view(self, models: ShadowSet, key: str, every: _View) -> _View:
        """All views of a record, or the first, the record as it is: whichever finds more of a shadow model's members by
        the other shadow models."""
        if not self.augmentations or len(models) <= _FEWEST_OTHERS:
            return every
        first = every._replace(which=slice(1))
        areas: list[tuple[_View, list[float]]] = [(every, []), (first, [])]
        for game, played in zip(range(_VIEW_GAMES), models, strict=False):
            for view, found in areas:
                phi = view(played.signal(key)[0])
                others = (one for other, one in enumerate(by_model(models, key, 0)) if other != game)
                inside, outside = _moments(others, phi.shape, view)
                tried = (outside.count > 1) & ((inside.count > 1) | (not self.online))
                if (tried & played.inside).any() and (tried & ~played.inside).any():
                    scores = self._ratios(phi, inside, outside)
                    found.append(float(auc(scores[tried & played.inside], scores[tried & ~played.inside])))
        with_them, without = (float(np.mean(found or [0.5])) for _, found in areas)
        if with_them >= without:
            return every
        warn(
            f"attack {self.name!r} leaves out its `augmentations`: between shadow models it has an AUC of "
            f"{with_them:.3f} with them and {without:.3f} without. Training seems not to have used them."
        )
        return first


class _View(NamedTuple):
    """Which views of a record count, within which range, and whether their mean does."""

    which: slice
    low: float
    high: float
    mean: bool

    def __call__(self, values: NDArray[Any]) -> Array:
        clipped = np.clip(values[:, self.which].astype(np.float64), self.low, self.high)
        return clipped.mean(axis=1, keepdims=True) if self.mean else clipped


def _moments(
    answers: Iterable[tuple[NDArray[Any], NDArray[np.bool_]]], shape: tuple[int, int], view: _View
) -> tuple[Moments, Moments]:
    """The moments of models with a record, and of those without it."""
    inside, outside = Moments(shape), Moments(shape)
    for values, rows in answers:
        phi = view(values)
        inside.add(phi, rows)
        outside.add(phi, ~rows)
    return inside, outside


# -- rmia -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RMIA(ShadowAttack):
    """The robust membership-inference attack (Zarifzadeh et al. 2024), which does with few shadow models.

    A record's ratio is p(x | released model) / p(x), p(x) the mean over shadow models. The paper's score is the share
    of population records z with ratio_x >= gamma ratio_z. That is a monotone function of ratio_x alone, whatever gamma,
    so the score here is log ratio_x: the same ROC without ties. The share is in the p-value, 1 + the number of z with
    ratio_z >= ratio_x, over 1 + the number of z; z are background records that no shadow model was trained on.

    Parameters
    ----------
    shadows : how many shadow models, and where they are trained. One shadow set serves LiRA too.
    online : True takes p(x) as the mean of models with x and models without; False of those without alone, where the
        others are guessed by `offline_scale`.
    offline_scale : a in p_in(x) = a p_out(x) + 1 - a, from 0 (models learn members by heart) to 1 (not at all). Online
        it is used for p-values only.
    device : where the released model is evaluated.

    Guarantees
    ----------
    Models without the record alone make its p-value, online too: no model has seen a population record, so only these
    ratios can be compared. Ratios of non-members and of the population are computed alike, each from as many models, so
    that the p-value of a candidate drawn as the background was is valid up to shadow models being unlike the released
    model in its records. Online, p-values therefore do not follow the order of the scores.
    """

    online: bool = True
    offline_scale: float = OFFLINE_SCALE

    name: ClassVar[str] = "rmia"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.fields(self, offline_scale=check.probability)

    def signals(self) -> tuple[Signal, ...]:
        """What it asks of each shadow model."""
        return (Confidence(),)

    def _score(self, task: Task, target: ModelRecord, who: AttackedRecords, progress: Work) -> ScoreSet:
        signal = Confidence()
        found = self._model_answers(task, target, who, signal, progress)
        c, z = len(found.candidates), len(found.population)
        inside, outside = LogMean(c + z), LogMean(c + z)
        for values, rows in by_model(found.shadows, signal.key, z):
            inside.add(_log_p(values), rows)
            outside.add(_log_p(values), ~rows)
        self._check_counts(
            found.shadows.candidates,
            inside.count[:c] if self.online else None,
            outside.count[:c],
            needed=1,
            spread=False,
        )
        released = _log_p(np.concatenate([found.candidates, found.population]))
        without = released - usual_log_p(None, outside, self.offline_scale)
        scores = released - usual_log_p(inside, outside) if self.online else without
        p_values = ranks_among(without[:c], without[c:]) if z else None
        facts: dict[str, Fact] = {"online": self.online, "population": z}
        return self._scored(found.shadows.candidates, scores[:c], p_values, found.shadows, facts)


def _log_p(phi: NDArray[Any]) -> Array:
    """log p of the records as they are, shape (c,)."""
    return np.maximum(log_probabilities(phi[:, 0]), LEAST_LOG)
