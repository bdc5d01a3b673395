"""The run check: compute the members' gradients at recorded steps again, and judge the record by them."""

from __future__ import annotations

import dataclasses
import itertools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gmip import _validate as check
from gmip._progress import Progress, silent
from gmip._random import Stream
from gmip.attacks.gradients import PerExampleGradients, precision_for
from gmip.attacks.signals import losses, run_model
from gmip.attacks.step_vectors import gram
from gmip.auditing.noise_check import (
    LEVEL,
    SHARE,
    WIDER,
    Clippings,
    Layer,
    Look,
    MemberProducts,
    RecomputedStep,
    failed,
    gradient_checks,
    limits,
    look,
    passed,
    unchecked,
)
from gmip.auditing.run_check import judge, small_faults
from gmip.auditing.sampled_check import SampledStep, judge_sampled
from gmip.auditing.schema import BeyondReach, CheckFinding, CheckOutcome, RunCheck
from gmip.errors import GmipWarning, InvalidArgument
from gmip.stats import auc
from gmip.stats.flat import BLOCK, Flat
from gmip.stats.record_tests import contradiction, most_often, normal_p_value
from gmip.tasks import Task, load
from gmip.trace import Step, StepInfo, Trace
from gmip.training.loop import initial_model
from gmip.training.models import dropouts
from gmip.training.recorder import numpy_of
from gmip.vocabulary import RANDOM_SIZES

# -- whether the recorded steps are all of the training ---------------------------------------------------------------


_MOST_RECORDS: Final = 5000  # on each side, whose loss before the first step is looked at
_STEP_ROUNDING: Final = 1.0e-6  # of the parameters, and
_STEP_SPAN: Final = 1.0e-4  # of their change: what a step along the gradient may leave


def continuity(task: Task, trace: Trace, *, device: str = "cpu") -> CheckOutcome:
    """Did anything but the recorded steps train the model?

    The recorder looks after each step and before the next one. Where it could not see a step end, because the loop
    changes the parameters itself, they must be those before, times a factor, less a multiple of the recorded gradient.
    A model that was trained before the recording began may tell members from non-members before the first step.
    """
    moved = [info.index for info in trace.infos if info.outside]
    ended = trace.changed_at_end or ()
    if moved or ended:
        return failed(
            "continuity",
            "changed-outside",
            at_steps=tuple(moved),
            layers=tuple(ended),
            value=float(len(moved) + bool(ended)),
            expected=0.0,
        )
    if len(trace) == 0:
        return unchecked("continuity", "no-steps")
    unseen = sum(info.outside is None for info in trace.infos)
    if unseen == 0 and (trace.changed_at_end is not None or not trace.complete):
        return _started(task, trace, device, "as-declared")
    if all(_follows(step, after) for step, after in _steps_without_an_end(trace)):
        return _started(task, trace, device, "follows-gradients")
    return unchecked("continuity", "not-plain-descent")


def _started(task: Task, trace: Trace, device: str, finding: CheckFinding) -> CheckOutcome:
    """The outcome where the steps are all of the training since the recording began, by the loss before the first."""
    found = _told_apart(task, trace, device)
    if found is None:
        return passed("continuity", finding)
    value, p = found
    if value > 0.5 and p < SHARE:
        return unchecked("continuity", "distinct-before", auc=value)
    return passed("continuity", finding, auc=value)


def _told_apart(task: Task, trace: Trace, device: str) -> tuple[float, float] | None:
    """(AUC of the loss at the parameters before the first step, p-value); None where it cannot be computed.

    A loss counts once on each side: repeated records, and a model that says the same about all, tell nothing."""
    ids, header = (trace.members, trace.non_members), trace.header
    if trace.recorded[0] != 0 or header.recorded_params < header.num_params:
        return None
    if any(side is None or side.size < 2 or int(side.max()) >= len(task.pool) for side in ids):
        return None
    model = run_model(task, trace, device=device, mixing=True).eval()
    for name, weights in trace.named(trace[0].parameters).items():
        model.get_parameter(name).data.copy_(torch.from_numpy(np.array(weights)))
    rng, found = Stream.CANDIDATES.rng(0), []
    for side in ids:
        assert side is not None
        some = side if side.size <= _MOST_RECORDS else rng.choice(side, _MOST_RECORDS, replace=False)
        found.append(np.unique(-losses(task, model, task.pool[some])))
    ins, outs = found
    value = auc(ins, outs)
    error = np.sqrt((ins.size + outs.size + 1) / (12.0 * ins.size * outs.size))
    return value, normal_p_value(float((value - 0.5) / error))


def _steps_without_an_end(trace: Trace) -> Iterator[tuple[Step, NDArray[Any] | None]]:
    """Steps whose end the recorder did not see, and the parameters after them; None where the trace has none."""
    for place, step in enumerate(trace):
        following = step.info.index + 1
        if following < trace.num_steps:
            if trace.infos[following].outside is None:
                yield step, trace[place + 1].parameters if trace.infos[following].recorded else None
        elif trace.complete and trace.changed_at_end is None:
            yield step, _final(trace)


def _descends(trace: Trace) -> bool:
    """Whether every step was recorded and followed from its gradient by gradient descent."""
    ends = [*(step.parameters for step in itertools.islice(trace, 1, None)), _final(trace)]
    return len(trace) == trace.num_steps and all(map(_follows, trace, ends))


def _final(trace: Trace) -> NDArray[Any] | None:
    """The trained parameters, in the order of the trace; None where it has them not all."""
    final = trace.final_arrays() or {}
    names = [spec.name for spec in trace.header.parameters]
    return np.concatenate([np.ravel(final[name]) for name in names]) if all(map(final.__contains__, names)) else None


def _follows(step: Step, after: NDArray[Any] | None) -> bool:
    """Whether the parameters after a step are a w - b g, for the parameters w before it and its gradient g."""
    if after is None:
        return False
    before, gradient = Flat.of(step.parameters), Flat.of(step.gradient)
    change = Flat.of(after) - before
    terms, lengths = (gradient, before), [max(one.norm, 1.0e-300) for one in (gradient, before)]
    triangle: NDArray[Any] = np.zeros((0, 3))  # of the columns (terms, change), block by block
    for place in change.blocks():
        columns = [one.part(place) / length for one, length in zip(terms, lengths, strict=True)]
        rows = np.vstack([triangle, np.stack([*columns, change.part(place)], axis=1)])
        triangle = np.asarray(np.linalg.qr(rows, mode="r"))
    left = triangle[:, 2] - triangle[:, :2] @ np.linalg.lstsq(triangle[:, :2], triangle[:, 2], rcond=None)[0]
    return bool(np.linalg.norm(left) <= _STEP_ROUNDING * before.norm + _STEP_SPAN * change.norm)


# -- the run check ----------------------------------------------------------------------------------------------------


Ids = NDArray[np.int64]
STEPS: Final = 12
_FLOOR: Final = 1.0e-6  # of the largest summed norms among the checked steps
_MOST_ENTRIES: Final = 100_000_000  # of recorded gradients that are compared with each other
_BLOCK: Final = 256  # steps of which the products are computed together
_ALIKE: Final = 2  # pairs of steps, and
_ODD: Final = 2  # steps, that are looked at because of what they look like
_ROUNDING: Final = 2.0e-5  # of the summed norms: some hundred roundings of float32
_COMPARED: Final = 300  # members whose gradients are compared with the noise
_WHOLE: Final = 600  # members up to whom all inner products of their gradients are computed
_MOST_MEMBERS: Final = 5000  # whose mean stands for that of all, where batches are not known
_WAYS: Final = 3 + len(WIDER)  # to clip: as declared, not at all, wider, layer by layer
_HELD: Final = 4  # 1/4 of the memory is for the mean gradients of steps
_MOST_WORK: Final = 2.0e10  # members times parameters times steps
_MORE_WORK: Final = 1.0e9  # of steps that are looked at because the first ones are not precise enough
_RANDOM_FACTOR: Final = 10.0  # a scale that no dropout explains, and
_REDUCED_FACTOR: Final = 1.5  # one that no reduced precision does
_REPEATED: Final = 0.5  # cosine of noise that neither explains


def check_run(
    task: str | Task,
    run: str | os.PathLike[str] | Trace,
    *,
    steps: int | None = None,
    device: str = "cpu",
    memory_limit: float | str | None = None,
    progress: Progress | None = None,
) -> RunCheck:
    """Does the record of a run match what was declared about it?

    The members' mean gradient is computed again at a few recorded steps, clipped as declared, and compared with the
    record: scale, clipping, who was in, and what is left against the declared noise.

    Parameters
    ----------
    task : a task, its name, or path/to/file.py:make_task: the model, the loss and the data of the run.
    run : folder of a recorded run, or its trace.
    steps : at most so many recorded steps are computed again. None: 12, fewer where the model and the data are large,
        and more where noise hides how large the gradients, the clip norm and the noise are.
    device, memory_limit : of the computation.

    Guarantees
    ----------
    A sound run fails with a probability of at most 1% for all checks together, where batches are known: the tests are
    exact for normal noise, up to the approximations of `gmip.stats.record_tests`. What cannot be checked is "unchecked"
    and says why. A record that passes is not proved sound: docs/evidence/check.md has a table of faults that are found
    and of those that cannot be.
    """
    task = load(task) if isinstance(task, str) else task
    trace = run if isinstance(run, Trace) else Trace.open(run)
    steps = None if steps is None else check.count("steps", steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)  # that there is no fingerprint is said below
        trace.check_data(task.fingerprints)
    if trace.members is not None and trace.members.size and int(trace.members.max()) >= len(task.pool):
        raise InvalidArgument(
            f"{trace.path} names member {int(trace.members.max())}, but the pool of task {task.name!r} has rows 0 to "
            f"{len(task.pool) - 1}",
            remedy="pass the run's own task",
        )
    outcomes = [_sizes(task, trace), _batches(trace), continuity(task, trace, device=device)]
    found = _recomputed(task, trace, steps, device, memory_limit, progress or silent("checking the record"))
    # The noise of a run of one step has no other step to be compared with.
    outcomes += [one for one in found.outcomes if trace.num_steps > 1 or one.check != "noise-steps"]
    reach = list(found.beyond_reach)
    if 0 < len(found.steps) < trace.num_steps:
        reach.append(BeyondReach(fault="steps", up_to=1.0 - len(found.steps) / trace.num_steps))
    reach += _unseen(task, trace, batches=outcomes[1], continuity=outcomes[2])
    return RunCheck(
        outcomes=tuple(outcomes),
        beyond_reach=() if any(one.status == "failed" for one in outcomes) else tuple(reach),
        least_noise=found.least_noise,
        steps=found.steps,
        level=LEVEL,
    )


def _unseen(task: Task, trace: Trace, *, batches: CheckOutcome, continuity: CheckOutcome) -> Iterator[BeyondReach]:
    """Faults of sampling and of training outside the record that these two outcomes leave open."""
    if batches.finding == "as-declared":
        if trace.header.sampling in ("fixed", "poisson"):
            sizes = _batch_sizes(trace)
            yield BeyondReach(
                fault="drawn-often", up_to=most_often(sizes, trace.header.dataset_size, SHARE) / len(sizes)
            )
        yield BeyondReach(fault="drawn-together")
    if _divisor_follows_size(trace):
        yield BeyondReach(fault="divisor")
    if trace.header.optimizer is not None and continuity.finding == "as-declared" and not _descends(trace):
        yield BeyondReach(fault="optimizer")
    if continuity.status == "passed" and _starts_elsewhere(task, trace):
        yield BeyondReach(fault="before")
    if _buffers_differ(task, trace):
        yield BeyondReach(fault="buffers")


# -- what needs no gradients ------------------------------------------------------------------------------------------


def _sizes(task: Task, trace: Trace) -> CheckOutcome:
    header, members = trace.header, trace.members
    if members is None:
        return unchecked("sizes", "no-members")
    sizes = {"value": float(members.size), "expected": float(header.dataset_size)}
    if members.size > header.dataset_size:
        return failed("sizes", "too-many-members", **sizes)
    if members.size < header.dataset_size:
        return unchecked("sizes", "members-left-out", **sizes)
    finding: CheckFinding = "as-declared" if header.fingerprints else "data-unknown"
    return passed("sizes", finding, records=_copies(task, members), **sizes)


def _divisor_follows_size(trace: Trace) -> bool:
    """Whether Poisson batches are divided by int(N * rate), as Opacus does with a rate of one over its loader's length:
    a constant that says how many records there are."""
    header, rate = trace.header, trace.header.sample_rate
    if header.sampling != "poisson" or rate is None:
        return False
    follows = float(int(header.dataset_size * rate + 1.0e-9))
    return all(info.divisor == follows for info in trace.infos)


def _starts_elsewhere(task: Task, trace: Trace) -> bool:
    """Whether a noisy run of somebody else's loop began with other parameters than those that `make_model` gives: they
    may have been drawn, or trained."""
    if trace.header.provenance.task is not None or not any(info.noise_std > 0.0 for info in trace.infos):
        return False
    if len(trace) == 0 or trace.recorded[0] != 0:
        return True
    fresh = initial_model(task, 0, checked=False)
    start = trace.named(trace[0].parameters).items()
    return any(not np.array_equal(fresh.get_parameter(name).detach().cpu().numpy(), values) for name, values in start)


def _buffers_differ(task: Task, trace: Trace) -> bool:
    """Whether the trained model has buffers, or parameters that no step trains, other than those that `make_model`
    gives."""
    final, recorded = trace.final_arrays() or {}, {spec.name for spec in trace.header.parameters}
    fresh = initial_model(task, 0, fix=trace.header.provenance.options.fix, checked=False)
    if trace.header.recorded_params < trace.header.num_params:  # nor are those that steps train
        recorded |= {name for name, _ in fresh.named_parameters()}
    return any(
        name in final and name not in recorded and not np.array_equal(final[name], numpy_of(kept))
        for name, kept in itertools.chain(fresh.named_buffers(), fresh.named_parameters())
    )


def _copies(task: Task, members: Ids) -> int:
    """Members whose record is that of another one, bit for bit."""
    inputs = task.pool.inputs
    if not isinstance(inputs, torch.Tensor):
        return 0
    rows = inputs[torch.from_numpy(members.copy())].detach().cpu().reshape(members.size, -1).contiguous().numpy()
    return members.size - len({row.tobytes() for row in rows})


def _batch_sizes(trace: Trace) -> Ids:
    return np.array([info.batch_size for info in trace.infos], dtype=np.int64)


def _batches(trace: Trace) -> CheckOutcome:
    header = trace.header
    if header.local is not None and any(info.batch_size < header.batch_size for info in trace.infos):
        return unchecked("batches", "local-training")  # replies of single clients
    drawn = [trace.batch_ids(info.index) for info in trace.infos]
    known = [ids for ids in drawn if ids is not None]
    if trace.members is not None and known:
        everyone = np.unique(np.concatenate(known))
        strangers = np.setdiff1d(everyone, trace.members)
        if strangers.size and trace.members.size == header.dataset_size:
            return failed("batches", "strangers", value=float(strangers.size), expected=0.0)
    found = contradiction(
        sampling=header.sampling,
        dataset_size=header.dataset_size,
        batch_size=header.batch_size,
        sizes=_batch_sizes(trace),
        batches=known if len(known) == len(drawn) else None,
        share=SHARE,
        sample_rate=header.sample_rate,
        max_batch_size=header.max_batch_size,
    )
    if found is not None:
        return failed(
            "batches",
            found.fault,
            value=found.value,
            error=found.spread,
            expected=found.expected,
            p_value=found.p_value,
        )
    if header.sampling == "full":
        return passed("batches", "every-record", steps=len(drawn))
    if len(known) == len(drawn):
        return passed("batches", steps=len(drawn))
    return unchecked("batches", "no-ids")


# -- what does --------------------------------------------------------------------------------------------------------


class _Found(NamedTuple):
    outcomes: list[CheckOutcome]
    steps: tuple[int, ...] = ()
    beyond_reach: Sequence[BeyondReach] = ()
    least_noise: float = 1.0


def _recomputed(
    task: Task, trace: Trace, most: int | None, device: str, memory_limit: float | str | None, progress: Progress
) -> _Found:
    header, members = trace.header, trace.members
    if len(trace) == 0:
        return _Found(_unchecked_all(trace, "no-steps"))
    if members is None or not members.size:
        return _Found(_unchecked_all(trace, "no-members"))
    if header.recorded_params < header.num_params:
        return _Found(_unchecked_all(trace, "some-parameters"))
    if header.mixes is not None or header.local is not None:
        return _Found(_unchecked_all(trace, "not-a-mean" if header.local is None else "local-training"))
    model = run_model(task, trace, device=device)
    unclipped = dataclasses.replace(header, clip_norm=None)
    dtype = precision_for(header.num_params)
    plain, clipped = (
        PerExampleGradients.for_trace(model, task.loss, one, memory_limit=memory_limit, dtype=dtype)
        for one in (unclipped, header)
    )
    gradients = _MemberGradients(task, trace, members, plain, clipped, tuple(dropouts(model)), progress)
    most_held = plain.memory_limit // _HELD // (dtype.itemsize * header.num_params)  # of their mean gradients
    chosen = _chosen(trace, min(STEPS if most is None else most, max(2, most_held)))
    ready = [(step, ids) for step in chosen if (ids := gradients.batch(step)) is not None and ids.size]
    return gradients.with_batches(ready, most is None) if ready else gradients.without_batches(chosen)


@dataclass(frozen=True, eq=False)
class _MemberGradients:
    """The members' gradients at the recorded parameters, as the loss gives them and clipped as declared. `drops` :
    layers that drop units at random."""

    task: Task
    trace: Trace
    members: Ids
    plain: PerExampleGradients
    clipped: PerExampleGradients
    drops: tuple[str, ...]
    progress: Progress
    _last: list[Any] = field(default_factory=lambda: [None, None])  # a step, and how it might have been clipped

    @cached_property
    def layers(self) -> list[Layer]:
        found, start = [], 0
        for spec in self.trace.header.parameters:
            found.append(Layer(name=spec.name, place=slice(start, start + spec.size), shape=spec.shape))
            start += spec.size
        return [layer for layer in found if layer.place.stop > layer.place.start]

    def batch(self, step: Step) -> Ids | None:
        """Who was in the batch of a step; None: not known."""
        ids, header, members = self.trace.batch_ids(step.info.index), self.trace.header, self.members
        if ids is not None:
            return ids
        whole = header.sampling == "full" and members.size == header.dataset_size
        return members if whole and step.info.batch_size == members.size else None

    def without_batches(self, chosen: Sequence[Step]) -> _Found:
        """What steps say whose batches are not known."""
        header, some = self.trace.header, []
        if self.members.size < header.dataset_size:
            return _Found(_unchecked_all(self.trace, "members-left-out-no-ids"))
        for done, step in enumerate(chosen):
            some.append(self.sampled(step))
            self.progress(done + 1, len(chosen))
        found, reach = judge_sampled(some, clip_norm=header.clip_norm, poisson=header.sampling in RANDOM_SIZES)
        infos, pairs = [step.info for step in chosen], [(one.published, one.centre) for one in some]
        kept = _allow_for_randomness(found, pairs, self.drops, infos)
        return _Found(kept, tuple(info.index for info in infos), reach)

    def with_batches(self, ready: Sequence[tuple[Step, Ids]], further: bool) -> _Found:
        """What steps say whose batches are known. `further` : whether more are looked at where noise hides faults."""
        layers, clip_norm, again = self.layers, self.trace.header.clip_norm, []
        for done, (step, ids) in enumerate(ready):
            again.append(self.recomputed(step, ids))
            self.progress(done + 1, len(ready))
        # Rounding follows the activations, not gradients that have become tiny near an optimum.
        floor = _FLOOR * max(one.contribution for one in again)
        again = [dataclasses.replace(one, tolerance=max(one.tolerance, floor)) for one in again]
        more = self.further_looks(again) if further and not self.drops else []
        outcomes = judge(again, layers=layers, clip_norm=clip_norm, compared=len(self.trace), more=more)
        infos, pairs = [step.info for step, _ in ready], [(one.published, one.expected) for one in again]
        outcomes = _allow_for_randomness(outcomes, pairs, self.drops, infos)
        hidden = small_faults(again, outcomes, layers=layers, clip_norm=clip_norm, more=more)
        used = tuple(sorted([*(info.index for info in infos), *(one.index for one in more)]))
        return _Found(outcomes, used, hidden.faults, hidden.least_noise)

    def further_looks(self, again: Sequence[RecomputedStep]) -> list[Look]:
        """Looks at more steps, twice as many each time, until the limits of scale, clipping and noise are precise.

        How precise they are is known from the gradients alone, so that a run is still judged once.
        """
        trace, clip_norm = self.trace, self.trace.header.clip_norm
        looks = [look(step, self.layers, clip_norm) for step in again if step.noise_std > 0.0]
        if not looks:
            return []
        seen = {step.index for step in again}
        order = Stream.CANDIDATES.rng(0).permutation(len(trace)).tolist()
        rest = [place for place in order if int(trace.recorded[place]) not in seen]
        most = int(_MORE_WORK / max(trace.header.batch_size * trace.header.recorded_params, 1))
        rest, first = rest[:most], len(looks)
        while rest and not limits(looks, clip_norm=clip_norm, expected=True).precise:
            now, rest = rest[: len(looks)], rest[len(looks) :]
            for place in now:
                step = trace[place]
                ids = self.batch(step)
                if step.info.noise_std > 0.0 and ids is not None and ids.size:
                    looks.append(look(self.recomputed(step, ids, compare=False), self.layers, clip_norm))
            self.progress(len(looks), len(looks) + len(rest))
        return looks[first:]

    def recomputed(self, step: Step, ids: Ids, *, compare: bool = True) -> RecomputedStep:
        """`compare` : some members' gradients with what is left, too."""
        info, limit = step.info, self.trace.header.clip_norm
        sums, total, largest = self._sums(step, ids, 1 if limit is None else _WAYS)
        published, mean, otherwise = _published(step), Flat.of(sums[0]), None
        if limit is not None:
            others = partial(np.asarray, sums[1:])
            if len(mean) > BLOCK:  # they are computed again for who asks
                mean, others = Flat.of(sums[0].copy()), partial(self._again, step, ids)
            otherwise = partial(_clippings, len(mean), others)
            del others
        del sums
        among = None
        if compare and info.noise_std > 0.0:
            some = ids[Stream.CANDIDATES.rng(0).permutation(ids.size)[:_COMPARED]]
            products = gram(self.clipped.at(step.parameters), self.task.pool[some], [published - mean, mean])
            products /= info.noise_std**2
            centring = np.eye(some.size) - 1.0 / some.size
            among = MemberProducts(
                ids=some,
                inner=centring @ products[:-2, :-2] @ centring,
                against=centring @ products[:-2, -2],
                toward=centring @ products[:-2, -1],
                batch_size=info.batch_size,
            )
        contribution = total / info.divisor
        rounding = _ROUNDING if info.precision is None else 2.0 * torch.finfo(getattr(torch, info.precision)).eps
        rounding += 1.0e-6 / limit if limit is not None else 0.0  # Opacus clips to C/(norm + 1e-6)
        return RecomputedStep(
            index=info.index,
            published=published,
            expected=mean,
            otherwise=otherwise,
            noise_std=info.noise_std,
            size=info.batch_size,
            divisor=info.divisor,
            contribution=contribution,
            largest=largest / info.divisor,
            tolerance=max(rounding * contribution + 1.0e-6 * published.norm, 1.0e-30),
            products=among,
        )

    def _again(self, step: Step, ids: Ids) -> NDArray[Any]:
        """The batch's mean gradient, clipped in other ways; those of the last step that was asked for are held."""
        if self._last[0] is not step:
            self._last[:] = [None, None]
            self._last[:] = [step, self._sums(step, ids, _WAYS)[0][1:]]
        return np.asarray(self._last[1])

    def _sums(self, step: Step, ids: Ids, ways: int) -> tuple[NDArray[Any], float, float]:
        """(the batch's mean gradient, clipped as declared, not at all, to wider norms, and layer by layer: the first so
        many `ways` of these; sum and largest of the norms of the records' parts, as declared), by what makes the
        gradients: none of a record is held."""
        here, limit, info = self.plain.at(step.parameters), self.trace.header.clip_norm, step.info
        sums = torch.zeros(ways, self.plain.num_params, dtype=self.plain.dtype)
        total, largest = 0.0, 0.0
        for _, pieces in here.pieces(self.task.pool[ids]):
            parts = [part for piece in pieces for part in piece.apart()]
            squares = torch.stack([part.squared_norms() for part in parts]).clamp(min=0.0)
            norms = squares.sum(0).sqrt()
            factor = torch.ones_like(norms) if limit is None else (limit / norms).clamp(max=1.0)
            total += float((factor * norms).sum())
            largest = max(largest, float((factor * norms).max()))
            factors = [factor]
            if limit is not None:
                factors += [torch.ones_like(norms), *((times * limit / norms).clamp(max=1.0) for times in WIDER)]
            for part, square in zip(parts, squares, strict=True):
                own = [] if limit is None else [(limit / square.sqrt()).clamp(max=1.0)]
                part.add_to(sums, torch.stack([*factors, *own])[:ways])
            del pieces, parts, part  # before the next ones are made
        return sums.div_(info.divisor).numpy(), total, largest

    def _moments(self, here: PerExampleGradients, ids: Ids) -> tuple[Flat, float, float]:
        """(mean of the gradients, sum of their norms squared, and to the fourth power)."""
        sums, squares, fourth = torch.zeros(1, here.num_params, dtype=here.dtype), 0.0, 0.0
        for _, pieces in here.pieces(self.task.pool[ids]):
            lengths = torch.stack([piece.squared_norms() for piece in pieces]).sum(0)
            squares += float(lengths.sum())
            fourth += float(lengths.square().sum())
            for part in (part for piece in pieces for part in piece.apart()):
                part.add_to(sums, torch.ones_like(lengths)[None])
            del pieces, part
        return Flat.of(sums[0].div_(ids.size).numpy()), squares, fourth

    def sampled(self, step: Step) -> SampledStep:
        """Where batches are not known: moments of the members' gradients at a step, for a batch of its size."""
        trace, header, members, info = self.trace, self.trace.header, self.members, step.info
        rng = Stream.CANDIDATES.rng(info.index)  # errors of a part of the members differ from step to step
        total = members.size
        some = members if total <= _MOST_MEMBERS else rng.choice(members, _MOST_MEMBERS, replace=False)
        here = self.clipped.at(step.parameters)
        (mean, squares, fourth), published = self._moments(here, some), _published(step)
        # A Poisson batch of known size is a subset of that size; where sizes are not known either, it scatters more.
        sizes = {one.batch_size for one in trace.infos}
        loose = header.sampling in RANDOM_SIZES and sizes == {header.batch_size} and len(trace) > 1
        drawn, divisor, length = float(info.batch_size), float(info.divisor), mean @ mean
        rate = min(drawn / total, 1.0)
        centre = mean * (drawn / divisor)
        share = drawn / divisor**2 * (1.0 - rate) * (1.0 if loose or total == 1 else total / (total - 1.0))
        if some.size < total:
            share += (drawn / divisor) ** 2 / some.size
        few = some if some.size <= _WHOLE else some[rng.permutation(some.size)[:_COMPARED]]
        products = gram(here, self.task.pool[few], [mean, published - centre])
        inner, toward, against = products[:-2, :-2], products[:-2, -2], products[:-2, -1]
        if not loose:
            centring = np.eye(few.size) - 1.0 / few.size
            inner, toward, against = centring @ inner @ centring, toward - toward.mean(), against - against.mean()
        spread = share * (squares / some.size - (0.0 if loose else length))
        whole = few.size == total
        # A variance that few members tell may be larger: four of its standard errors.
        along = (
            share
            * float(np.mean(toward**2))
            / max(length, 1.0e-300)
            * (1.0 if whole else 1.0 + 4.0 * (2.0 / few.size) ** 0.5)
        )
        tau2 = info.noise_std**2
        excess = max(rate * (1.0 - rate) * (1.0 - 6.0 * rate * (1.0 - rate)), 0.0) / divisor**4
        variances, left, peaks = np.zeros(0), np.zeros(0), 0.0
        if tau2 > 0.0 and whole:
            spectrum, axes = np.linalg.eigh(inner)
            keep = spectrum > 1.0e-9 * max(float(spectrum[-1]), 1.0e-300)
            spectrum, axes = spectrum[keep], axes[:, keep]
            variances, left = share * spectrum / total, (axes.T @ against) / np.sqrt(spectrum)
            weighed = (axes**2 * spectrum) @ (tau2 / (variances + tau2) ** 2)
            peaks = excess * float(weighed @ weighed)
        elif tau2 > 0.0:
            each = spread / len(mean) + tau2
            peaks = (tau2 / each**2) ** 2 * excess * total * fourth / some.size
            if some.size < total:  # the spread is an estimate, too
                peaks += (share * tau2 / each**2) ** 2 * fourth / some.size**2
        return SampledStep(
            index=info.index,
            published=published,
            centre=centre,
            mean=mean,
            along=along,
            largest=float(np.abs(toward).max()) / max(length, 1.0e-300) ** 0.5 / divisor,
            spread=spread,
            spread_squares=share**2 * float(np.sum(inner**2)) / few.size**2,
            variances=variances,
            left=left,
            peaks=peaks,
            noise_std=info.noise_std,
            size=info.batch_size,
        )


def _clippings(size: int, rows: Callable[[], NDArray[Any]]) -> Clippings:
    def row(place: int) -> Flat:
        return Flat.later(size, lambda: rows()[place])

    first, *wider, last = map(row, range(_WAYS - 1))
    return Clippings(first, last, tuple(wider))


def _unchecked_all(trace: Trace, why: CheckFinding) -> list[CheckOutcome]:
    keys = gradient_checks(trace.header.clip_norm)
    if any(info.noise_std > 0.0 for info in trace.infos):
        keys = (*keys, "noise-size", "noise-layers", "noise-rows", "noise-steps")
    return [unchecked(key, why) for key in keys]


def _allow_for_randomness(
    outcomes: list[CheckOutcome],
    pairs: Sequence[tuple[Flat, Flat]],
    drops: Sequence[str],
    steps: Sequence[StepInfo],
) -> list[CheckOutcome]:
    """What a sound run could show, too, if its gradients cannot be computed again to rounding. `pairs` : published
    gradients and the expected ones."""
    if all(one.status != "failed" for one in outcomes):
        return outcomes
    reduced = next((info.precision for info in steps if info.precision is not None), None)
    if drops:
        most, why = _RANDOM_FACTOR, unchecked("scale", "random-model", layers=tuple(drops[:1]))
    elif reduced is not None:
        most, why = _REDUCED_FACTOR, unchecked("scale", "reduced-precision", precision=reduced)
    else:
        return outcomes
    kept = [
        one
        if (one.check, one.status) == ("noise-steps", "failed") and abs(one.value or 0.0) >= _REPEATED
        else why.model_copy(update={"check": one.check})
        for one in outcomes
    ]
    length = sum(expected @ expected for _, expected in pairs)
    factor = sum(published @ expected for published, expected in pairs) / max(length, 1.0e-300)
    if not 1.0 / most <= factor <= most:
        gross = failed("scale", "scale-factor", layers=why.layers, precision=why.precision, value=factor, expected=1.0)
        kept = [gross if one.check == "scale" else one for one in kept]
    return kept


def _chosen(trace: Trace, most: int) -> list[Step]:
    """Steps next to each other, an epoch apart, and spread over the run: repeated noise repeats at such distances."""
    header, recorded = trace.header, trace.recorded
    work = header.batch_size * header.recorded_params
    most = min(len(trace), max(2, min(most, int(_MOST_WORK / max(work, 1)))))
    epoch = -(-header.dataset_size // header.batch_size)
    place = {int(index): position for position, index in enumerate(recorded)}
    first = int(recorded[0])
    wanted = [0, 1, place.get(first + epoch, 0), len(trace) - 1, 2, place.get(first + epoch + 1, 0)]
    wanted += np.linspace(0, len(trace) - 1, most).astype(int).tolist()
    odd = _odd_steps(trace)[: most // 2] if len(trace) > most else []
    positions = [p for p in dict.fromkeys([*odd, *wanted]) if p < len(trace)][:most]
    return [trace[position] for position in sorted(positions)]


def _odd_steps(trace: Trace) -> list[int]:
    """Steps whose gradients look most alike, as repeated noise makes them, and those of the oddest norms.

    What changes slowly is taken away by second differences; steps next to each other share terms of these.
    """
    stride = -(-len(trace) * trace.header.recorded_params // _MOST_ENTRIES)
    places = np.arange(0, len(trace), max(1, stride))
    if places.size < 8:
        return []
    rows = np.stack([np.asarray(trace[int(place)].gradient, dtype=np.float32) for place in places])
    norms = np.linalg.norm(rows, axis=1)
    odd = np.argsort(-np.abs(np.log(np.maximum(norms, 1.0e-30) / max(float(np.median(norms)), 1.0e-30))))[:_ODD]
    changes = rows[1:-1] - 0.5 * (rows[:-2] + rows[2:])
    changes /= np.maximum(np.linalg.norm(changes, axis=1, keepdims=True), 1.0e-30)
    chosen = [*(place + 1 for pair in _most_alike(changes) for place in pair), *odd.tolist()]
    return [int(places[place]) for place in dict.fromkeys(chosen)]


def _most_alike(rows: NDArray[np.float32]) -> list[tuple[int, int]]:
    """The pairs of rows, three apart at least, with the largest products; a block of products at a time."""
    found: list[tuple[float, int, int]] = []
    for start in range(0, len(rows), _BLOCK):
        alike = np.triu(np.abs(rows[start : start + _BLOCK] @ rows[start:].T), 3)
        for flat in np.argpartition(alike, -_ALIKE, axis=None)[-_ALIKE:].tolist():
            i, j = divmod(flat, alike.shape[1])
            found.append((-float(alike[i, j]), start + i, start + j))
    return [(i, j) for _, i, j in sorted(found)[:_ALIKE]]


def _published(step: Step) -> Flat:
    return Flat.of(step.gradient) / (step.info.clip_factor or 1.0)
