"""Record a trace of any training loop: what an attacker who sees every step would see.

with gmip.record(model, optimizer, "runs/a", loader=loader):
    ...  # the training loop as it is
"""

from __future__ import annotations

import math
import os
import warnings
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _validate as check
from gmip._numbers import byte_size, count
from gmip.errors import GmipWarning, InvalidArgument, TraceError, TraceMismatch, UnsupportedModel, warn
from gmip.tasks.task import Examples, Task
from gmip.trace import Header, ModelRecord, ParameterSpec, Provenance, Trace, TraceWriter, fingerprint
from gmip.training.batch_log import BatchLog, declared
from gmip.training.epoch_states import EpochWriter, alone, steps_per_epoch
from gmip.training.models import (
    bare_optimizer,
    check_model,
    dropouts,
    has_norms,
    mixing_layer,
    trainable_parameters,
    unwrapped,
)
from gmip.training.ranks import Ranks, uneven_shares
from gmip.training.watches import ClipWatch, ParameterWatch, PrecisionWatch, QuietHook, has_stepped
from gmip.vocabulary import RANDOM_SIZES, Recipe, Sampling

# -- the vectors of a recorded step -----------------------------------------------------------------------------------


def check_kinds(model: object, path: object, parameters: object, data: object) -> None:
    """Raise for what is of another kind than `gmip.record` takes."""
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"must be a torch.nn.Module, not {type(model).__name__}", argument="model")
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\0" in str(path):
        raise InvalidArgument("must name a folder", argument="path", value=path, remedy="pass one such as 'runs/a'")
    listed = [parameters] if isinstance(parameters, str) else parameters
    odd = isinstance(listed, (list, tuple, set)) and not all(isinstance(name, str) for name in listed)
    if odd or (listed is not None and not isinstance(listed, Iterable)):
        raise InvalidArgument("must be names of parameters", argument="parameters", value=parameters)
    pair = isinstance(data, tuple) and len(data) == 2
    if data is not None and not pair and not isinstance(data, (Task, Examples)):
        raise InvalidArgument(
            f"must be a Task, Examples or (inputs, targets), not {type(data).__name__}", argument="data"
        )
    if isinstance(data, tuple) and len(data[0]) != len(data[1]):
        raise InvalidArgument(
            f"has {len(data[0])} inputs and {len(data[1])} targets", argument="data", remedy="pass one of each a record"
        )


def is_finite(vector: Tensor) -> bool:
    """Whether no entry is NaN or infinite."""
    # A product is quick and spoilt by any NaN or infinity; a large one may overflow by itself.
    return math.isfinite(torch.dot(vector, vector)) or bool(vector.isfinite().all())


def published(model: nn.Module, optimizer: Optimizer | None) -> dict[str, nn.Parameter]:
    """Trainable parameters that this optimizer changes; without one, all."""
    if optimizer is None:
        return dict(trainable_parameters(model))
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    found = {name: p for name, p in trainable_parameters(model) if id(p) in held}
    if not found:
        raise InvalidArgument(
            "holds no trainable parameter of `model`",
            argument="optimizer",
            remedy="make it from model.parameters(), after any wrapping",
        )
    return found


def chosen(trained: dict[str, nn.Parameter], names: Iterable[str] | None) -> dict[str, nn.Parameter]:
    """The parameters of these names, or with names that begin with one of them; None: all."""
    if names is None:
        return trained
    kept: set[str] = set()
    for wanted in [names] if isinstance(names, str) else names:
        found = {name for name in trained if name == wanted or name.startswith(wanted + ".")}
        if not found:
            modules = {name.rpartition(".")[0] for name in trained}
            raise InvalidArgument(
                f"has {wanted!r}, which is not a trainable parameter"
                f"{check.did_you_mean(wanted, [*trained, *sorted(modules)])}",
                argument="parameters",
                remedy="pass names of model.named_parameters(), or of modules",
            )
        kept |= found
    if not kept:
        raise InvalidArgument(
            "is empty", argument="parameters", remedy="name at least one, or leave it out to record all"
        )
    return {name: p for name, p in trained.items() if name in kept}


def fingerprints(data: Task | Examples | tuple[Any, ...] | None) -> dict[str, str]:
    """The fingerprint of each part of the data, by its name."""
    if data is None:
        return {}
    if isinstance(data, Task):
        return data.fingerprints
    if isinstance(data, Examples):
        return {"pool": data.fingerprint}
    return {"pool": fingerprint(*(numpy_of(a) if isinstance(a, Tensor) else a for a in data))}


_PLAIN: Final = (Tensor, nn.Parameter)  # which nobody has sharded


def places(row: NDArray[Any], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Where in a row of a trace each tensor goes: one after the other."""
    if sum(t.numel() for t in tensors) != row.size:
        raise UnsupportedModel(
            "Parameters have changed their shapes since the recording began",
            remedy="keep them while they are recorded, or record each phase on its own",
        )
    parts = torch.from_numpy(row).split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def fill(parts: list[Tensor], tensors: Iterable[Tensor]) -> None:
    """Copy the tensors to their `places`, in whatever dtype and on whatever device they are."""
    with torch.no_grad():  # cheaper than to detach each of them, in every step of a training loop
        given = [
            t if type(t) in _PLAIN and not t.is_sparse else Ranks.whole(t.to_dense() if t.is_sparse else t)
            for t in tensors
        ]
        for part, t in zip(parts, given, strict=True):
            if part.shape != t.shape or t.is_complex():  # a copy would repeat numbers, or drop imaginary parts
                raise UnsupportedModel(
                    f"A parameter of shape {tuple(part.shape)} is recorded, and one of shape {tuple(t.shape)} and "
                    f"{t.dtype} was found",
                    remedy="keep the shapes of parameters while they are recorded; pass real ones (torch.view_as_real)",
                )
        torch._foreach_copy_(parts, given)


def numpy_of(tensor: Tensor) -> NDArray[Any]:
    """A tensor from anywhere as an array."""
    tensor = tensor.detach().cpu()
    return np.asarray((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy())


# -- weights that a run takes over and does not train -----------------------------------------------------------------

# Those of a base model under adapters (peft) are public and large: a trace holds a fingerprint of them, and the task's
# `make_model` brings them.


def base_fingerprint(model: nn.Module) -> str | None:
    """What a trace remembers of the base weights; None for a model without adapters."""
    base = _base(model)
    return fingerprint(*(numpy_of(p) for _, p in sorted(base.items()))) if base else None


def released_state(model: nn.Module) -> dict[str, Tensor]:
    """The model's state, but for the base weights under adapters."""
    base = _base(model)
    state: dict[str, Any] = unwrapped(model).state_dict()
    return {name: t for name, t in state.items() if isinstance(t, Tensor) and name not in base}


def with_base_weights(model: nn.Module, state: Mapping[str, Tensor], target: ModelRecord) -> dict[str, Tensor]:
    """The state of a trained model, completed by the base weights of the model; a TraceMismatch if the run had others.

    Without a trained model (`state` is empty) it is only the base weights that are compared.
    """
    known = target.header.base_weights
    if known is None:
        return dict(state)
    if base_fingerprint(model) != known:
        raise TraceMismatch(
            f"{target.path} was trained on other base weights than those of the model that the task makes",
            remedy="let make_model load the weights that the run began with, or fix the seed of those that it draws",
        )
    return {**_base(model), **state}


def _base(model: nn.Module) -> dict[str, Tensor]:
    inner = unwrapped(model)
    if not hasattr(inner, "peft_config"):
        return {}
    return {name: p.detach() for name, p in inner.named_parameters(remove_duplicate=False) if not p.requires_grad}


# -- which steps of a run are stored ----------------------------------------------------------------------------------


_SHOWN: Final = 3  # phases that a sentence lists


class _Phase(NamedTuple):
    """Steps from `start` on, one of `stride` of them, until before `end`."""

    start: int
    stride: int
    end: int


class StoredSteps:
    """Says of each step in turn whether its vectors are stored, and warns once when the budget leaves steps out.

    How long a run will be is not known when it starts, and what was written stays. So half of the budget goes to the
    first steps, all of them: early gradients tell most about who was in. Half of the rest goes to one of 2 steps after
    that, half of what then remains to one of 4, and so on. However long the run is, the budget is kept.

    Parameters
    ----------
    every : only each k-th step is considered.
    budget : bytes for the vectors, as a number or as "2 GB"; None for as many as there are.
    row_bytes : what a step takes.
    """

    def __init__(self, *, every: int, budget: float | str | None, row_bytes: int) -> None:
        self._every, self._announced = every, False
        self._phases: list[_Phase] = []
        self.budget = None if budget is None else check.byte_count("budget", budget)
        if self.budget is None:
            return
        left = self._room = self.budget // row_bytes
        if left < 1:
            raise InvalidArgument(
                f"has no room for one step, which takes {byte_size(row_bytes)}",
                argument="budget",
                value=budget,
                remedy="raise it, or record some of the `parameters`",
            )
        start, stride = 0, every
        while left:
            rows = (left + 1) // 2
            self._phases.append(_Phase(start, stride, start + rows * stride))
            start, stride, left = start + rows * stride, 2 * stride, left - rows

    def admits(self, step: int) -> bool:
        if self.budget is None:
            return step % self._every == 0
        phase = self._phases[bisect_right(self._phases, step, key=lambda phase: phase.start) - 1]
        if phase.start and not self._announced:
            self._announced = True
            warn(
                f"budget = {byte_size(self.budget)} has room for {count(self._room)} steps, so that from now on only "
                f"some are stored ({self._described()}). All are counted; attacks see those that are stored."
            )
        return step < phase.end and (step - phase.start) % phase.stride == 0

    @property
    def notes(self) -> dict[str, str]:
        """Which steps are stored, in words for the notes of the trace."""
        return {} if self.budget is None else {"stored_steps": self._described()}

    def _described(self) -> str:
        shown = [
            f"{'all' if phase.stride == 1 else f'one of {count(phase.stride)}'} up to step {count(phase.end)}"
            for phase in self._phases[:_SHOWN]
        ]
        more = ", and so on" if len(self._phases) > _SHOWN else ""
        return f"{', '.join(shown)}{more}, none after step {count(self._phases[-1].end)}"


# -- record a trace of any training loop ------------------------------------------------------------------------------


_REDUCTIONS: Final = ("mean", "sum", "global_mean")
_ON_NAN: Final = ("stop", "skip", "record")
_NOT_COVERED: Final = (
    "no guarantee covers that. Record all of its training, and put constraints on the "
    "weights into a step hook of the optimizer before the recording begins."
)


class Recorder:
    """Write, at each step of `optimizer` in the `with` block, the parameters before it and the mean gradient used.

    `num_steps` tells how many optimizer steps it has seen. `gmip.record` is this class.

    Works with a plain loop, gradient accumulation, mixed precision with a GradScaler, step(closure), DDP and FSDP2, and
    Opacus' optimizer, whose clip norm and noise are read from it. What is recorded is the gradient that the optimizer
    is handed: whatever the loop does to it before is in it. A clip of the whole gradient by
    `torch.nn.utils.clip_grad_norm_` is seen, and its factor recorded. Where several ranks train together all of them
    make one, rank 0 writes, and sizes are those of all ranks together.

    Parameters
    ----------
    optimizer : of torch, of Opacus, or as accelerate and Lightning wrap it. None for a loop that changes the parameters
        without one: it calls recorder.step() before each change.
    path : folder of the trace; made, and refused if it already holds one.
    dataset_size, batch_size, sampling : what will be accounted: see `gmip.NoisySGD`; "shuffled" for epochs in random
        order. Nothing is assumed: say them, or pass the loader. Examples are counted as they pass through the model; a
        batch that turns out smaller is recorded, and accounted, as what it is. A loop that contradicts them is told so
        when it ends.
    max_batch_size : to which "poisson" batches that are drawn larger are cut; None: that of the loader, if it has one.
    loader : the DataLoader of the loop (or a sampler of gmip), which says all three: shuffle=True, batch samplers of
        gmip, Opacus' loaders. If it loads a Subset of `data`, or the `members` in their order, who is in each batch is
        stored, too.
    clip_norm, noise_std : of a hand-written loop that clips the gradient of each example to that norm and adds noise of
        that standard deviation to every entry of the batch mean. `gmip check` tests both. Opacus' optimizer says them
        itself.
    max_grad_norm : of a loop that clips the whole gradient of a batch by hand, to this norm. Not needed for
        `clip_grad_norm_`, which is seen.
    on_nan : what to do about a gradient with NaN or infinite entries: "stop" with an error, "skip" the step (count it
        only), or "record" it as it is.
    loss_reduction : "mean" if the loss is the mean over the batch (over the accumulated ones, each divided by their
        number), "sum" if it is the sum; the trace holds the mean in both cases. Under "poisson" that is the sum divided
        by `batch_size`, the expected number: a loss that is a "mean" must be divided by it, too. Opacus' optimizer
        knows its own reduction. On several ranks (DDP, FSDP2) "mean" and "sum" are those of a rank's own examples;
        "global_mean" says that the loop divides by the examples of all of them, so that shares may differ.
    every : store every k-th step only (the others are still counted). "epoch" stores no step: after each epoch the
        weights and the optimizer's state, for `gmip.Checkpoints`, a small part of the disk.
    budget : bytes for what is stored, such as "2 GB". Half of it goes to the first steps, the rest to ever fewer later
        ones, so that it is kept however long the run is; a warning tells when steps begin to be left out.
    parameters : store these only: names or leading parts of names, such as "head" for head.weight and head.bias.
    members, non_members : ids (rows of `data`) of who is in the training set, and of who is known not to be.
    data : the Task, the Examples or the (inputs, targets) that ids refer to; only a fingerprint of it is stored.
    recipe : how the loop trains, with its optimizer and learning rate, for attacks that train such models or reckon
        with them; None: they go by the recipe of the task, if that fits.
    notes : anything plain (numbers, strings, lists, dicts) that people should find with the run; nothing reads it.
    provenance : of a run of `gmip.train`.
    resume_at : continue the trace at `path` from this step on; later steps in it are dropped.

    Guarantees
    ----------
    Without clipping the recorded vector is the mean of the per-example gradients to float32 precision, with it the mean
    of the clipped ones plus the noise. The folder names the members: it is as sensitive as the data.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        path: str | os.PathLike[str],
        *,
        dataset_size: int | None = None,
        batch_size: int | None = None,
        sampling: Sampling | None = None,
        max_batch_size: int | None = None,
        loader: Any = None,
        clip_norm: float | None = None,
        noise_std: float | None = None,
        max_grad_norm: float | None = None,
        on_nan: Literal["stop", "skip", "record"] = "stop",
        loss_reduction: Literal["mean", "sum", "global_mean"] = "mean",
        every: int | Literal["epoch"] = 1,
        budget: float | str | None = None,
        parameters: Iterable[str] | None = None,
        members: ArrayLike | None = None,
        non_members: ArrayLike | None = None,
        data: Task | Examples | tuple[Any, ...] | None = None,
        recipe: Recipe | None = None,
        provenance: Provenance | None = None,
        notes: Mapping[str, Any] | None = None,
        resume_at: int | None = None,
    ) -> None:
        check_kinds(model, path, parameters, data)
        drawing = declared(loader, dataset_size, batch_size, sampling, max_batch_size)
        dataset_size, batch_size, sampling = drawing.dataset_size, drawing.batch_size, drawing.sampling
        clip_norm = None if clip_norm is None else check.positive("clip_norm", clip_norm)
        noise_std = None if noise_std is None else check.non_negative("noise_std", noise_std)
        self._max_grad_norm = None if max_grad_norm is None else check.positive("max_grad_norm", max_grad_norm)
        self._on_nan = check.one_of("on_nan", on_nan, _ON_NAN)
        self._reduction = check.one_of("loss_reduction", loss_reduction, _REDUCTIONS)
        self._epoch: int | None = None
        if every == "epoch":
            alone(budget=budget, parameters=parameters, resume_at=resume_at)
            self._epoch, every = steps_per_epoch(loader, dataset_size, batch_size, sampling), 1
        every = check.count("every", every)
        self._has_norms = has_norms(model)
        self._model, self._path = model, path
        self._ranks = Ranks(model)
        self._private, self._optimizer = _taken_apart(optimizer, clip_norm=clip_norm, noise_std=noise_std)
        guarded = self._private is not None or clip_norm is not None or bool(noise_std)
        _refuse_strangers(model, self._optimizer if guarded else None)
        mixes = _mixing(model, guarded=guarded)
        self._noise_std, self._nominal, self._sampling = noise_std or 0.0, batch_size, sampling
        self._members, self._non_members, self._resume_at = members, non_members, resume_at
        trained = published(model, self._optimizer)
        stored = chosen(trained, parameters)
        self._parameters = list(stored.values())
        header = Header(
            parameters=tuple(ParameterSpec(name, tuple(p.shape)) for name, p in stored.items()),
            num_params=sum(p.numel() for p in trained.values()),
            dataset_size=dataset_size,
            batch_size=batch_size,
            sampling=sampling,
            sample_rate=drawing.sample_rate,
            max_batch_size=drawing.max_batch_size,
            clip_norm=clip_norm if self._private is None else float(self._private.max_grad_norm),
            dtype="float64" if any(p.dtype == torch.float64 for p in self._parameters) else "float32",
            fingerprints=fingerprints(data),
            recipe=recipe,
            provenance=provenance or Provenance(),
            every=every,
            base_weights=base_fingerprint(model),
            mixes=mixes,
            optimizer=_foreign_step(self._optimizer),
            notes=notes or {},
        )
        self._stored = StoredSteps(every=every, budget=budget, row_bytes=header.row_bytes)
        self._header = replace(header, budget=self._stored.budget, notes={**header.notes, **self._stored.notes})
        self._log = BatchLog(
            self._header, members=members, non_members=non_members, data=data, loader=loader, whole=resume_at is None
        )
        self._clips, self._precision = ClipWatch(self._parameters), PrecisionWatch(model)
        self._watch = self._watch_of(trained)
        self._seen: int | None = None
        self._declared_size: int | None = None
        self._times = 1.0
        self._warned: set[str] = set()
        self._hooks: list[Any] = []
        self._num_steps = resume_at or 0
        self._writer: TraceWriter | EpochWriter | None = None  # None on ranks other than the first
        self._row: NDArray[Any] | None = None  # of the writer, which is being filled
        self._places: list[Tensor] = []
        self._gradient = torch.empty(0)
        self._published: list[tuple[int, int]] = []  # the gradients of a step, as they were when it was recorded
        self._told: list[int] | None = None  # parameters and gradients when the loop called step()
        self._alone = True  # whether nothing can come between what is recorded and the step
        self._captured: dict[str, Any] | None = None  # facts of a step whose row is filled
        self._captures = 0
        self._stores = True  # whether the step under way is recorded, or only counted
        self._closure: Any = None  # that was passed to the step under way, as `_watched` has it
        self._asked = resume_at is not None  # whether a step was seen or announced, recorded or not
        self._inside = False  # of a step: subclasses that call super().step() come to the hooks twice

    def _watch_of(self, trained: dict[str, nn.Parameter]) -> ParameterWatch:
        guarded = self._private is not None or self._noise_std > 0.0  # a bound is for no other run
        watched = guarded and self._ranks.writes and self._header.optimizer is None
        return ParameterWatch(self._model, trained if self._ranks.writes else {}, self._optimizer if watched else None)

    @property
    def num_steps(self) -> int:
        """Optimizer steps recorded or counted so far."""
        return self._num_steps

    def batch(self, size: int | None = None, *, ids: ArrayLike | None = None, times: float = 1.0) -> None:
        """Say how many examples the coming step averages, where counting the model's inputs would get it wrong; or who
        they are.

        `ids`, of shape (n,), are rows of the data, as `members` are. They are stored, so that `gmip check` can compute
        the step again. `times` : the gradient will be so many times their mean (2 if the mean losses of two batches
        were added up and not divided by 2); the trace holds the mean. Where several ranks train together, each speaks
        of its own examples.
        """
        self._asked = True
        self._times = check.positive("times", times)
        if ids is not None:
            number = self._log.tell(ids)
            if size is not None and size != number:
                raise InvalidArgument(f"is not the number of `ids`, {number}", argument="size", value=size)
            size = number
        elif size is None:
            raise InvalidArgument("batch() needs `size` or `ids`", remedy="pass one of them")
        if size == 0 and self._sampling in RANDOM_SIZES:
            self._declared_size = 0
        else:
            self._declared_size = check.count("size", size)

    def step(self) -> None:
        """Record the step that is about to be taken, with the gradients as they are now.

        For loops that change parameters without an optimizer of torch, or with one that does not tell its hooks; a
        step that the hooks see as well is recorded once.
        """
        self._captured, self._closure, self._asked = None, None, True
        self._capture(self._optimizer)
        self._commit()
        self._inside, self._alone = True, True
        self._told = None if self._optimizer is None else self._watch.now()

    def sync(self) -> None:
        """Have all steps so far on the disk, not only with the operating system."""
        if self._writer is not None:
            self._writer.sync()

    def __enter__(self) -> Recorder:
        if self._header.optimizer is None and _hooks_of(self._optimizer, "post"):
            self._header = replace(self._header, optimizer=f"{type(self._optimizer).__name__} with step hooks")
        changed = has_stepped(self._optimizer) if self._resume_at is None else self._goes_on_elsewhere()
        self._writer = self._ranks.start(self._open)
        self._watch.start(changed=changed)
        self._hooks = [self._model.register_forward_pre_hook(QuietHook(self._count), with_kwargs=True)]
        if self._optimizer is not None:
            self._hooks.append(self._optimizer.register_step_pre_hook(self._before_step))
            self._hooks.append(self._optimizer.register_step_post_hook(self._after_step))
        for watch in (self._clips, self._precision, self._log):
            watch.start()
        return self

    def _goes_on_elsewhere(self) -> bool:
        """Whether the trace to be resumed tells that the model was changed since; False where it does not tell."""
        if not self._ranks.writes or self._ranks.size > 1:
            return False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GmipWarning)
                trace = Trace.open(self._path)
        except TraceError:  # `_open` says what is wrong with it, if it matters
            return False
        step = self._resume_at or 0
        if trace.header != self._header or step > trace.num_steps:
            return False
        now = np.empty(self._header.recorded_params, dtype=self._header.dtype)
        fill(places(now, self._parameters), self._parameters)
        place = int(np.searchsorted(trace.recorded, step))
        if place < len(trace) and trace.recorded[place] == step:
            return not np.array_equal(now, trace[place].parameters, equal_nan=True)
        if step < trace.num_steps or (final := trace.final_arrays()) is None:
            return False
        same = all(
            np.array_equal(part, final.get(name, part), equal_nan=True) for name, part in trace.named(now).items()
        )
        return bool(trace.changed_at_end) or not same

    def _open(self) -> TraceWriter | EpochWriter:
        who = {"members": self._members, "non_members": self._non_members}
        if self._epoch is not None:
            return EpochWriter(self._path, self._epoch, self._state, **who)
        if self._resume_at is None:
            return TraceWriter.create(self._path, self._header, **who)
        return TraceWriter.resume(self._path, at_step=self._resume_at, header=self._header, **who)

    def _state(self) -> dict[str, Any]:
        state = {name: Ranks.whole(t) for name, t in released_state(self._model).items()}
        return {"state_dict": state} | ({} if self._optimizer is None else {"optimizer": self._optimizer.state_dict()})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        for watch in (self._clips, self._precision, self._log):
            watch.stop()
        if kind is not None:
            if self._writer is not None:
                self._writer.abandon()
            return
        final = {name: numpy_of(Ranks.whole(t)) for name, t in released_state(self._model).items()}
        if self._writer is not None:
            changed = self._watch.changed_at_end()
            self._writer.close(final, changed=changed)
            if changed:
                warn(f"Something that is not a recorded step changed {_listed(changed)}: {_NOT_COVERED}")
            if (said := self._log.contradiction()) is not None:
                warn(said)
            if not self._asked:
                raise TraceError(
                    f"{self._path} has no steps, because none was taken while it was recorded",
                    remedy="train in the `with` block, with the optimizer that was passed; without one of torch, call "
                    "recorder.step()",
                )

    def _count(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():  # evaluation in between runs under no_grad and is not part of a batch
            self._inside = False  # also after a step that failed
            if self._has_norms and self._header.mixes is None:  # the loop may have put them in train mode meanwhile
                check_model(self._model)
            size = next((len(a) for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.ndim), None)
            if size is not None:
                self._seen = (self._seen or 0) + size

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._asked = True
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer itself
        if self._inside or (closure is not None and closure is self._closure):
            self._alone = self._alone and (self._told is None or self._told == self._watch.now())
            self._told = None
            return None
        self._captured = self._closure = self._told = None
        self._alone = self._is_last()
        if closure is None:
            self._capture(optimizer)
            self._commit()
            self._inside = True
            return None
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UnsupportedModel(
                "LBFGS computes several gradients in one step(closure), and a step of a trace has one",
                remedy="train with another optimizer, such as SGD or Adam",
            )
        self._closure = self._watched(optimizer, closure)
        if len(args) > 1:
            return (args[0], self._closure, *args[2:]), kwargs
        return args, {**kwargs, "closure": self._closure}

    def _watched(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure, after which the gradient of the step is there to be captured."""

        def watched() -> Any:
            if self._captured is not None:
                raise UnsupportedModel(
                    f"{type(optimizer).__name__} calls its closure more than once in a step, so its step is not that "
                    "of one gradient",
                    remedy="train with an optimizer that takes one gradient, such as SGD or Adam",
                )
            loss = closure()
            self._capture(optimizer)
            return loss

        return watched

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._closure is not None and self._captured is None:
            raise UnsupportedModel(
                f"{type(optimizer).__name__} did not call the closure that was passed to step(), so the gradient of "
                "that step was not seen",
                remedy="call the closure first and step() without it",
            )
        self._closure, self._inside = None, False
        self._commit()
        # Gradients that a later hook or the optimizer itself has exchanged since: what the step did is not known, and
        # the run check asks whether the parameters follow from what was recorded. (Torch's own may reuse their memory.)
        reuses = type(optimizer).__module__.startswith("torch.optim") and optimizer.defaults.get("nesterov")
        same = reuses or getattr(optimizer, "grad_scale", None) is not None or self._published == self._identities()
        self._watch.stepped(alone=self._alone and same)
        hooks, own = _hooks_of(self._optimizer, "pre"), self._hooks[1].id
        if own in hooks and not self._is_last():  # from the next step on, what later hooks do is in what is recorded
            hooks.move_to_end(own)

    def _is_last(self) -> bool:
        """Whether only recorders come between this one and the step. Hooks that the loop has registered meanwhile may
        change parameters and gradients after they were recorded."""
        for hook in reversed(_hooks_of(self._optimizer, "pre").values()):
            if getattr(hook, "__func__", None) is not Recorder._before_step:
                return False
            if hook.__self__ is self:
                return True
        return False

    def _identities(self) -> list[tuple[int, int]]:
        """Which gradients there are, and how often each was changed in place."""
        return [(id(p.grad), p.grad._version) for p in self._parameters if p.grad is not None]

    def _capture(self, optimizer: Optimizer | None) -> None:
        """Fill the row of the step that `optimizer` is about to take; `_commit` makes it part of the trace."""
        if self._captures == 0 and (dropped := dropouts(self._model)):
            self._warn_once(
                "dropout",
                f"The model drops units at random while it trains (layer {dropped[0]}): what is recorded is the "
                "gradient of the thinned model, audits compute that of the whole one, and GLiR finds less than is "
                "there. Train without dropout to be sure; attack 'rehearsal-steps' reckons with it.",
            )
        self._captures += 1
        if isinstance(self._writer, EpochWriter):
            self._writer.begin()
        self._watch.stepping()
        times, self._times = self._times, 1.0
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        self._published = self._identities()
        own = self._declared_size if self._declared_size is not None else self._seen
        size = self._batch_size(gradients)
        ids = self._ranks.joined(self._log.take(own))
        if ids is not None and ids.size != size:  # more than `batch_size`: nobody knows which of them
            ids = None
        factor = self._clip_factor()
        self._captured = {}
        # A GradScaler leaves it to a fused optimizer to undo the scale, and to skip the step.
        loss_scale, overflow = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        if overflow is not None and float(overflow) > 0.0:
            return
        divisor, scale, noise_std = self._convention(size)
        scale /= times
        if loss_scale is not None:
            scale /= float(loss_scale)
        self._captured = {"batch_size": size, "divisor": divisor, "noise_std": noise_std}
        self._captured |= {"ids": ids, "clip_factor": factor, "precision": self._precision.take()}
        self._captured["outside"] = self._watch.take()
        if self._captured["outside"]:
            self._warn_once(
                "outside",
                f"Something that is not a recorded step changed the parameters before step {self._num_steps}: "
                f"{_NOT_COVERED}",
            )
        if self._watch.state_changed:
            self._warn_once(
                "state",
                f"Something that is not a recorded step changed the state of the optimizer before step "
                f"{self._num_steps}: nothing is guaranteed from here on, unless the steps are plain gradient descent.",
            )
        self._log.add(size, ids)
        self._stores = self._epoch is None and self._stored.admits(self._num_steps)
        if self._stores and not self._fill_row(gradients, scale, factor):
            self._refuse_nan()

    def _fill_row(self, gradients: Sequence[Tensor], scale: float, factor: float | None) -> bool:
        """Whether the row of the step was filled with what an audit can use; a rank that does not write says it too."""
        if not isinstance(self._writer, TraceWriter):
            whole = [Ranks.whole(tensor) for tensor in (*self._parameters, *gradients)]  # the first rank asks, too
            return self._on_nan == "record" or all(bool(t.isfinite().all()) for t in whole[len(gradients) :])
        row = self._writer.row()
        if row is not self._row:  # that of a small model stays where it is
            self._row, self._gradient = row, torch.from_numpy(row[1])
            self._places = places(row.reshape(-1), (*self._parameters, *self._parameters))
        fill(self._places, (*self._parameters, *gradients))
        if scale != 1.0:
            row[1] *= scale
        if self._on_nan != "record" and not is_finite(self._gradient):
            return False
        if self._max_grad_norm is not None and factor is None and self._captured is not None:
            # Below the norm nothing was clipped; at the norm the factor is anybody's guess.
            norm = float(np.linalg.norm(row[1])) / scale
            self._captured["clip_factor"] = 1.0 if norm < self._max_grad_norm * (1.0 - 1.0e-4) else None
        return True

    def _refuse_nan(self) -> None:
        if self._on_nan == "stop":
            raise InvalidArgument(
                f"The gradient of step {self._num_steps} is not finite, and no audit can use it",
                remedy="lower the learning rate, or pass `on_nan` = 'skip' to count such steps only",
            )
        self._stores = False
        self._warn_once(
            "nan", f"The gradient of step {self._num_steps} is not finite: the step is counted, not recorded."
        )

    def _clip_factor(self) -> float | None:
        if self._clips.partial:
            self._warn_once(
                "partial",
                "clip_grad_norm_ clips a part of the recorded parameters: no one factor describes that, and attacks "
                "that compare gradients will find less than there is.",
            )
        factor = self._clips.take()
        if factor is not None and self._header.clip_norm is not None and self._private is None:
            self._warn_once(
                "averaged",
                f"clip_norm = {self._header.clip_norm:g} was declared for the gradient of each example, and the loop "
                "calls clip_grad_norm_, which clips the mean of a batch and does not limit single examples.",
            )
        return factor

    def _commit(self) -> None:
        facts, self._captured = self._captured, None
        if not facts:  # a step that the optimizer skips
            return
        if self._writer is not None:
            self._writer.commit(**facts, recorded=self._stores)
        self._num_steps += 1

    def _batch_size(self, gradients: Sequence[Tensor]) -> int:
        said = self._declared_size is not None
        own, self._declared_size, self._seen = self._declared_size if said else self._seen, None, None
        sizes = self._ranks.sizes(own, gradients)
        shares = [share for share in sizes if share is not None]
        if len(shares) < len(sizes):
            return self._nominal
        size = sum(shares)
        alone = self._sampling in RANDOM_SIZES  # each record is drawn on its own
        if len(set(shares)) > 1 and self._reduction == "mean" and self._private is None and not alone:
            raise uneven_shares(shares)
        if size == 0 and not alone:
            raise InvalidArgument(
                f"A step saw no example, which `sampling` = {self._sampling!r} does not do",
                remedy="pass `sampling` = 'poisson' if each record is drawn on its own, or call recorder.batch(size)",
            )
        if size > self._nominal and not alone and not said:
            self._warn_once(
                "size",
                f"A step saw {size} examples where batch_size = {self._nominal} was given: it is recorded as "
                f"{self._nominal}; correct batch_size, or call recorder.batch(size) where the model runs more than "
                "once on a batch or a GradScaler skips a step.",
            )
            return self._nominal
        return size

    def _warn_once(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warn(text)  # the line that calls optimizer.step()

    def _convention(self, size: int) -> tuple[float, float, float]:
        """(divisor of the recorded mean, factor that turns .grad into it, std of its noise)."""
        private, divisor = self._private, float(self._nominal if self._sampling in RANDOM_SIZES else size)
        if private is None:  # DDP and FSDP divide the sum over the ranks by their number
            return divisor, self._ranks.size / divisor if self._reduction == "sum" else 1.0, self._noise_std
        if float(private.max_grad_norm) != self._header.clip_norm:
            raise UnsupportedModel(
                f"The clip norm changed from {self._header.clip_norm} to {float(private.max_grad_norm)}, and a trace "
                "has one clip norm",
                remedy="record each phase on its own, or clip at a fixed norm",
            )
        summed = private.loss_reduction == "sum"
        if not summed:
            # expected_batch_size is that of one rank; Opacus' distributed optimizers then average over the ranks.
            ranks = getattr(private, "world_size", 1)
            divisor = float(private.expected_batch_size * private.accumulated_iterations * ranks)
            if divisor == 0.0:
                raise UnsupportedModel(
                    f"{type(private).__name__} does not say by what it divides",
                    remedy="clip the whole gradient (clipping='flat')",
                )
            if self._sampling in RANDOM_SIZES and divisor != self._nominal and self._header.sample_rate is None:
                self._warn_once(
                    "divisor",
                    f"Opacus divides by {divisor:g}, the number of examples that it expects in a batch, where "
                    f"batch_size = {self._nominal} was given, which is what will be accounted: give what Opacus has.",
                )
        multiplier = getattr(private, "_adjusted_noise_multiplier", private.noise_multiplier)
        return divisor, 1.0 / divisor if summed else 1.0, float(multiplier * private.max_grad_norm) / divisor


def _mixing(model: nn.Module, *, guarded: bool) -> str | None:
    """A layer that mixes records, with a warning; refused where a run is `guarded` by clipping or noise."""
    if guarded:
        check_model(model)
    found = mixing_layer(model)
    if found is not None:
        warn(
            f"Layer {found} mixes the records of a batch, so no record has a gradient of its own: nothing is "
            "guaranteed or forecast about this run. Audits attack it by rehearsal."
        )
    return found


def _refuse_strangers(model: nn.Module, optimizer: Optimizer | None) -> None:
    """Raise where the optimizer of a run with clipping or noise trains parameters that are not the model's, such as
    those of a loss: nobody would look at their gradients."""
    own = {id(p) for p in model.parameters()}
    held = [p for group in ([] if optimizer is None else optimizer.param_groups) for p in group["params"]]
    if strangers := sum(id(p) not in own for p in held):
        raise InvalidArgument(
            f"holds {strangers} of {len(held)} parameters that are not those of `model`, so that nothing would tell "
            "whether they are trained with clipping and noise",
            argument="optimizer",
            remedy="pass a model that holds all of them, as the task makes it",
        )


def _taken_apart(optimizer: Optimizer | None, **given: float | None) -> tuple[Any, Optimizer | None]:
    """Opacus' optimizer, if it is one, and the one that takes the step: by then the gradients are clipped, noisy and
    divided. What Opacus says must not be `given` beside it."""
    wrapper: Any = None if optimizer is None else bare_optimizer(optimizer)
    if not hasattr(wrapper, "original_optimizer"):
        return None, wrapper
    for name, value in given.items():
        if value is not None:
            raise InvalidArgument("is what Opacus' optimizer says", argument=name, value=value, remedy="leave it out")
    return wrapper, wrapper.original_optimizer


def _foreign_step(optimizer: Optimizer | None) -> str | None:
    """The class of an optimizer whose step is not torch's own."""
    step = None if optimizer is None else type(optimizer).step
    return None if step is None or step.__module__.startswith("torch.") else type(optimizer).__name__


def _hooks_of(optimizer: Optimizer | None, kind: Literal["pre", "post"]) -> OrderedDict[int, Any]:
    """The hooks of its step, in their order; torch has no other way to ask for them."""
    return getattr(optimizer, f"_optimizer_step_{kind}_hooks", None) or OrderedDict()


record = Recorder  # as loops call it: `with gmip.record(...)`


def _listed(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
