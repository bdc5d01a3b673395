"""Train a task by a recipe, record the trace, and be able to go on after an interruption.

A checkpoint is the state of a run between two steps, in one safetensors file that is replaced atomically. It is as
private as the trace: the state of the noise's generator undoes the noise.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import safetensors.torch
import torch
import xxhash
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _io
from gmip import _validate as check
from gmip._numbers import percent
from gmip._progress import Progress
from gmip._random import Stream
from gmip.accounting.account import account
from gmip.accounting.tradeoff import DEFAULT_FPR_RANGE, TradeOff
from gmip.errors import Diverged, InvalidArgument, TraceError, TraceMismatch
from gmip.tasks.catalog import load
from gmip.tasks.inputs import placed, rows_of
from gmip.tasks.task import Examples, Split, Task
from gmip.trace import ModelOptions, ModelRecord, Provenance, Trace
from gmip.training.models import (
    check_model,
    count_params,
    evaluate,
    fix_model,
    has_classes,
    load_state,
    plain_name,
    trainable_parameters,
    unwrapped,
    usable_device,
)
from gmip.training.recorder import Recorder
from gmip.training.samplers import make_sampler
from gmip.training.steppers import GRAD_SAMPLE_MODES, PlainStepper, Stepper, noise_generator
from gmip.vocabulary import Recipe

# -- what a finished run was ------------------------------------------------------------------------------------------


RESULT: Final = "result.json"
_FPRS: Final = (0.001, 0.01, 0.1)


@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model (in eval mode), who was in, and how well it does.

    Accuracies are None where targets are not classes.
    """

    task: Task
    model: nn.Module
    recipe: Recipe
    seed: int
    split: Split
    num_params: int
    train_loss: float
    train_accuracy: float | None
    test_loss: float
    test_accuracy: float | None

    def __repr__(self) -> str:
        accuracy = "" if self.test_accuracy is None else f", test accuracy {percent(self.test_accuracy, 'nearest')}"
        return f"<TrainResult of {self.task.name}: {self.recipe.num_steps} steps{accuracy}>"

    def summary(self) -> dict[str, Any]:
        """Plain JSON: the recipe, how well the model does, and what a membership attacker finds."""
        run = self.recipe.run(self.num_params)
        gdp = account(run, notion="gdp") if run.noise_std > 0.0 else None
        return {
            "format": "gmip-result",
            "version": 1,
            "task": self.task.name,
            "recipe": dataclasses.asdict(self.recipe),
            "seed": self.seed,
            "num_params": self.num_params,
            "noise_multiplier": run.noise_multiplier,
            "train": {"size": len(self.split.members), "loss": self.train_loss, "accuracy": self.train_accuracy},
            "test": {"size": len(self.task.test), "loss": self.test_loss, "accuracy": self.test_accuracy},
            "privacy": {"gmip": _exposure(account(run)), "gdp": None if gdp is None else _exposure(gdp)},
            "data": self.task.fingerprints,
            "versions": {"gmip": version("gmip"), "torch": torch.__version__, "threads": torch.get_num_threads()},
        }


def write_result(folder: Path, result: TrainResult) -> Path:
    """Write the summary beside the trace, atomically."""
    path = folder / RESULT
    _io.write(path, json.dumps(result.summary(), indent=2) + "\n")
    return path


def recipe_of(task: Task, target: ModelRecord) -> Recipe:
    """How a model was trained: as it was written down, else the task's recipe, if its trace agrees.

    A loop of the user's own records sizes, sampling, clipping and noise. The task's recipe must say the same of these;
    optimizer and learning rate cannot be compared.
    """
    trained = target.header.provenance.task
    if trained not in (None, task.name):
        raise TraceMismatch(
            f"{target.path} is a run of task {trained!r}, not of {task.name!r}", remedy="pass the run's own task"
        )
    if target.header.recipe is not None:
        return target.header.recipe
    recipe = task.recipe
    seen: dict[str, Any] = {
        "dataset_size": target.header.dataset_size,
        "batch_size": target.header.batch_size,
        "sampling": target.header.sampling,
        "max_batch_size": target.header.max_batch_size,
        "clip_norm": target.header.clip_norm,
    }
    if isinstance(target, Trace):
        seen["num_steps"] = target.num_steps
        if target.infos:
            seen["noise_std"] = max(info.noise_std for info in target.infos)
    for name, value in seen.items():
        ours = getattr(recipe, name)
        near = isinstance(value, float) and isinstance(ours, float) and math.isclose(value, ours, rel_tol=1.0e-6)
        if value != ours and not near:
            raise TraceMismatch(
                f"{target.path} was trained with `{name}` = {value!r}, and the recipe of task {task.name!r} says "
                f"{ours!r}",
                remedy="give the task the recipe of the run",
            )
    return recipe


def _exposure(curve: TradeOff) -> dict[str, Any]:
    return {
        "kind": curve.kind,
        "for_whom": curve.for_whom,
        "caveat": curve.claim.caveat,
        "adjacency": curve.claim.adjacency,
        "mu": curve.equivalent_mu(),
        "mu_fpr_range": list(DEFAULT_FPR_RANGE),
        "gdp_mu": curve.gdp_mu if curve.claim.adjacency is not None else None,
        "tpr_at_fpr": {str(fpr): curve.tpr_at(fpr) for fpr in _FPRS},
        "advantage": curve.advantage(),
        "assumptions": list(curve.assumptions),
    }


# -- the state of a run between two steps -----------------------------------------------------------------------------


_FORMAT: Final = "gmip-checkpoint-2"  # one of another format is not used: the run starts again
_NO_CHECKSUM: Final = "?" * 32  # stands in the file while the checksum is computed
_CPU_STATE, _NOISE_STATE = "random.torch", "random.noise"


def save_checkpoint(path: Path, stepper: Stepper, *, step: int) -> None:
    """Write all that step `step` (not yet taken) depends on."""
    tensors = {f"model.{plain_name(name)}": value for name, value in stepper.model.state_dict().items()}
    plain: dict[str, Any] = {}
    for index, state in stepper.optimizer.state_dict()["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
            else:
                plain[f"{index}.{key}"] = value
    tensors[_CPU_STATE] = torch.get_rng_state()
    if stepper.generator is not None:
        tensors[_NOISE_STATE] = stepper.generator.get_state()
    metadata = {"format": _FORMAT, "step": str(step), "optimizer": json.dumps(plain), "xxh3": _NO_CHECKSUM}
    places: set[int] = set()
    apart = {}
    for name, value in tensors.items():
        there = value.detach().cpu().contiguous()
        apart[name] = there.clone() if there.data_ptr() in places else there  # a weight that two layers share
        places.add(there.data_ptr())
    content = safetensors.torch.save(apart, metadata=metadata)
    checksum = xxhash.xxh3_128_hexdigest(content)
    _io.remove_leftovers(path.parent, path.name.__eq__)
    _io.write(path, content.replace(_NO_CHECKSUM.encode(), checksum.encode(), 1))


def load_checkpoint(path: Path, stepper: Stepper, *, at_most: int) -> int:
    """Put the state back, global random state of torch included; returns the step to take next.

    That is step 0, and nothing is changed, where there is no checkpoint or it is of a step beyond `at_most`.
    """
    content = _io.read_if_there(path)
    if content is None:
        return 0
    try:
        metadata = _io.safetensors_metadata(content)
        if metadata["format"] != _FORMAT:
            return 0
        checksum = metadata["xxh3"]
        if xxhash.xxh3_128_hexdigest(content.replace(checksum.encode(), _NO_CHECKSUM.encode(), 1)) != checksum:
            raise ValueError("its checksum does not fit its contents")
        if int(metadata["step"]) > at_most:
            return 0
        tensors = safetensors.torch.load(content)
        state: dict[int, dict[str, Any]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".", 2)
                state.setdefault(int(index), {})[key] = tensor
        for name, value in json.loads(metadata["optimizer"]).items():
            index, key = name.split(".", 1)
            state.setdefault(int(index), {})[key] = value
        load_state(stepper.model, {n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")})
        groups = stepper.optimizer.state_dict()["param_groups"]
        stepper.optimizer.load_state_dict({"state": state, "param_groups": groups})
        torch.set_rng_state(tensors[_CPU_STATE])
        if stepper.generator is not None:
            stepper.generator.set_state(tensors[_NOISE_STATE])
        return int(metadata["step"])
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TraceError(
            f"{path} is damaged or of another run ({error})", remedy="remove it to start the run again"
        ) from error


# -- train a task by a recipe -----------------------------------------------------------------------------------------


CHECKPOINT: Final = "checkpoint.safetensors"
_PROGRESS_SECONDS: Final = 0.1
_AS_IT_IS: Final = ModelOptions()


def _silent(*told: object) -> None:
    """Nobody listens."""


class Canaries(Protocol):
    """What takes part in the steps of an optimizer, while it is attached."""

    def attached(
        self, model: nn.Module, optimizer: Optimizer, *, sample_rate: float
    ) -> contextlib.AbstractContextManager[None]: ...


@dataclass(frozen=True)
class BatchScores:
    """How the model did on a batch, before the step on it. None: the batch was empty, or targets are not classes."""

    loss: float | None
    accuracy: float | None


def train(
    task: str | Task = "digits",
    recipe: Recipe | None = None,
    *,
    seed: int | None = None,
    split_seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    every: int = 1,
    fix: bool = False,
    grad_sample_mode: str = "auto",
    max_physical_batch_size: int | None = None,
    device: str = "cpu",
    progress: Progress = _silent,
    on_batch: Callable[[BatchScores], None] = _silent,
    checkpoint_seconds: float = 5.0,
    canaries: Canaries | None = None,
    origins: Mapping[str, str] | None = None,
) -> TrainResult:
    """Train `task` by `recipe` (default: the task's own).

    Parameters
    ----------
    task : a task, its name, or path/to/file.py:make_task.
    seed : of members, batches, initial weights and noise; None: a random one. Who knows it can subtract the noise.
    split_seed : of the members, if not the same: `gmip.tune` says it, which trained on all others.
    out : folder to record the trace in, with result.json beside it; None records nothing.
    resume : go on with the run in `out` if there is one, from its last checkpoint; otherwise start it.
    every : store every k-th step of the trace.
    fix : replace layers that mix examples (`fix_model`) instead of refusing them.
    grad_sample_mode, max_physical_batch_size : see `NoisyStepper`.
    device : "cpu", "cuda" or "mps"; where there is none the CPU is used, with a warning.
    progress : called with (steps taken, steps in all) every tenth of a second or so, and after the last step.
    on_batch : called just before `progress` with how the model did on the last batch.
    checkpoint_seconds : time between checkpoints: the most that a resumed run repeats.
    canaries : take part in every step, such as `gmip.canaries.DirectionCanaries`; the run cannot be resumed.
    origins : where settings of the recipe are from, in words, to be kept with the trace: name -> words.

    Guarantees
    ----------
    On one machine and one number of threads, a run that was interrupted anywhere (kill -9 included) and resumed gives,
    bit for bit, the model and the trace of one that was not.
    """
    task = load(task) if isinstance(task, str) else task
    recipe = task.recipe if recipe is None else recipe
    device = usable_device(device)
    folder = None if out is None else Path(out)
    if canaries is not None:
        _check_canaries(recipe, resume)
    recorded = _recorded_trace(folder) if resume else None
    seed = _seed(recorded, seed)
    split = task.split(recipe.dataset_size, seed if split_seed is None else check.seed(split_seed))
    members = task.pool[split.members]
    check.one_of("grad_sample_mode", grad_sample_mode, ("auto", *GRAD_SAMPLE_MODES))
    options = ModelOptions(
        fix=fix, grad_sample_mode=grad_sample_mode, max_physical_batch_size=max_physical_batch_size, device=device
    )
    provenance = Provenance(task=task.name, seed=seed, split_seed=split_seed, options=options)
    every = check.count("every", every)
    with _quiet_opacus(), torch.random.fork_rng():
        stepper = _begin(task, recipe, seed, options)
        start = 0
        if recorded is not None and folder is not None:
            _check_same_run(recorded, task, recipe, provenance, every)
            start = _restore(recorded, folder / CHECKPOINT, stepper)
        if start < recipe.num_steps:
            recorder = None
            if folder is not None:
                resume_at = None if recorded is None else start
                recorder = _recorder(stepper, folder, task, recipe, split, provenance, every, origins, resume_at)
            planted = _planted(canaries, stepper, recipe)
            with recorder or contextlib.nullcontext(), planted:  # the trace holds what the members sent
                saved = time.monotonic()
                for taken, scores in _steps(members, recipe, seed, stepper, device, start, recorder, split.members):
                    if scores is not None:
                        on_batch(scores)
                        progress(taken, recipe.num_steps)
                    due = taken < recipe.num_steps and time.monotonic() - saved >= checkpoint_seconds
                    if due and folder is not None and recorder is not None:
                        recorder.sync()  # a checkpoint must not outlive the steps before it
                        save_checkpoint(folder / CHECKPOINT, stepper, step=taken)
                        saved = time.monotonic()
        model = stepper.release().eval()
    train_loss, train_accuracy = evaluate(task, model, members)
    test_loss, test_accuracy = evaluate(task, model, task.test)
    result = TrainResult(
        task=task,
        model=model,
        recipe=recipe,
        seed=seed,
        split=split,
        num_params=count_params(model),
        train_loss=train_loss,
        train_accuracy=train_accuracy,
        test_loss=test_loss,
        test_accuracy=test_accuracy,
    )
    if folder is not None:
        write_result(folder, result)
        (folder / CHECKPOINT).unlink(missing_ok=True)
    return result


def _recorder(
    stepper: Stepper,
    folder: Path,
    task: Task,
    recipe: Recipe,
    split: Split,
    provenance: Provenance,
    every: int,
    origins: Mapping[str, str] | None,
    resume_at: int | None,
) -> Recorder:
    return Recorder(
        stepper.model,
        stepper.optimizer,
        folder,
        dataset_size=recipe.dataset_size,
        batch_size=recipe.batch_size,
        sampling=recipe.sampling,
        max_batch_size=recipe.max_batch_size,
        every=every,
        members=split.members,
        non_members=split.non_members,
        data=task,
        recipe=recipe,
        provenance=provenance,
        notes=None if origins is None else {"origins": dict(origins)},
        resume_at=resume_at,
        on_nan="record",  # the loss is looked at by `_batch_scores`, in the words of who trains
    )


def _check_canaries(recipe: Recipe, resume: bool) -> None:
    if resume:
        raise InvalidArgument("cannot go on with a run that has canaries", argument="resume", remedy="start it anew")
    if recipe.clip_norm is None:
        raise InvalidArgument(
            "need a run with a clip norm, which is their length", argument="canaries", remedy="set `clip_norm`"
        )


def _planted(canaries: Canaries | None, stepper: Stepper, recipe: Recipe) -> contextlib.AbstractContextManager[None]:
    if canaries is None:
        return contextlib.nullcontext()
    return canaries.attached(
        stepper.model, stepper.optimizer, sample_rate=min(1.0, recipe.batch_size / recipe.dataset_size)
    )


def fit(
    task: Task,
    recipe: Recipe,
    members: Examples,
    *,
    seed: int,
    options: ModelOptions = _AS_IT_IS,
    go_on: Callable[[nn.Module], bool] | None = None,
) -> nn.Module:
    """The model that `train` would give on these members, in eval mode; nothing is recorded.

    `go_on` : asked once, after half of the steps, with the model as it is then: training ends there if it says no.
    """
    if len(members) != recipe.dataset_size:
        raise InvalidArgument(
            f"are {len(members)} records and `dataset_size` of the recipe is {recipe.dataset_size}",
            argument="members",
            remedy="pass as many",
        )
    options = dataclasses.replace(options, device=usable_device(options.device))
    seed = check.seed(seed)
    with _quiet_opacus(), torch.random.fork_rng():
        # Nobody asks for gradients of its records, so BatchNorm may mix them; clipping cannot.
        stepper = _begin(task, recipe, seed, options, checked=recipe.clip_norm is not None)
        for taken, _ in _steps(members, recipe, seed, stepper, options.device):
            if go_on is not None and taken == recipe.num_steps // 2 and not go_on(unwrapped(stepper.model)):
                break
        return stepper.release().eval()


def initial_model(task: Task, seed: int, *, fix: bool = False, checked: bool = True) -> nn.Module:
    """The untrained model of that seed, in train mode; torch's global random state is left as it was.

    `checked` : layers that mix examples are refused, because no record has a gradient of its own.
    """
    with torch.random.fork_rng():
        torch.manual_seed(Stream.WEIGHTS.torch_seed(seed))
        model = task.make_model()
        model = (fix_model(model) if fix else model).train()
    if checked:
        check_model(model)
    return model


def make_optimizer(recipe: Recipe, model: nn.Module) -> Optimizer:
    """The torch optimizer that the recipe names."""
    kinds: dict[str, Any] = {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, Optimizer) and name not in ("Optimizer", "LBFGS", "SparseAdam")
    }
    if recipe.optimizer.lower() not in kinds:
        names = sorted(kind.__name__ for kind in kinds.values())
        raise InvalidArgument(
            f"is not known{check.did_you_mean(recipe.optimizer, names)}",
            argument="optimizer",
            value=recipe.optimizer,
            remedy=f"pass one of {', '.join(names)}",
        )
    parameters = [p for _, p in trainable_parameters(model)]
    try:
        made: Optimizer = kinds[recipe.optimizer.lower()](parameters, lr=recipe.rate, **recipe.optimizer_options)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"refuses `optimizer_options` = {dict(recipe.optimizer_options)} ({error})",
            argument="optimizer",
            value=recipe.optimizer,
            remedy="pass options that it has",
        ) from error
    return made


def _begin(task: Task, recipe: Recipe, seed: int, options: ModelOptions, *, checked: bool = True) -> Stepper:
    """Model and optimizer before the first step; torch's global generator is left at the start of dropout's stream."""
    model = initial_model(task, seed, fix=options.fix, checked=checked).to(options.device)
    torch.manual_seed(Stream.DROPOUT.torch_seed(seed))
    optimizer, part = make_optimizer(recipe, model), options.max_physical_batch_size
    if recipe.clip_norm is None:
        return PlainStepper(model, optimizer, task.loss, max_physical_batch_size=part)
    from gmip.training.noisy_stepper import NoisyStepper

    return NoisyStepper(
        model,
        optimizer,
        task.loss,
        clip_norm=recipe.clip_norm,
        noise_std=recipe.noise_std,
        generator=noise_generator(seed, options.device),
        batch_size=recipe.batch_size,
        grad_sample_mode=options.grad_sample_mode,
        max_physical_batch_size=part,
    )


def _steps(
    members: Examples,
    recipe: Recipe,
    seed: int,
    stepper: Stepper,
    device: str,
    start: int = 0,
    recorder: Recorder | None = None,
    rows: NDArray[np.int64] | None = None,
) -> Iterator[tuple[int, BatchScores | None]]:
    """Takes one step after the other; yields how many were taken, and every tenth of a second and at the end how the
    model did on the last batch. A recorder is told which `rows` of the data the members of a batch are."""
    inputs, targets = placed(members.inputs, device), members.targets.to(device)
    sizes = {"dataset_size": recipe.dataset_size, "batch_size": recipe.batch_size, "num_steps": recipe.num_steps}
    sampler = make_sampler(recipe.sampling, **sizes, seed=seed, max_batch_size=recipe.max_batch_size)
    looked = 0.0
    for taken in range(start + 1, recipe.num_steps + 1):
        ids = sampler[taken - 1]
        here = torch.from_numpy(ids).to(device)
        labels = targets[here]
        if recorder is not None and rows is not None:
            recorder.batch(ids=rows[ids])
        seen = stepper.step(rows_of(inputs, here), labels, divisor=sampler.divisor(ids))
        if taken == recipe.num_steps or time.monotonic() - looked > _PROGRESS_SECONDS:
            yield taken, _batch_scores(taken, taken == recipe.num_steps, seen, labels)
            looked = time.monotonic()
        else:
            yield taken, None


def _recorded_trace(folder: Path | None) -> Trace | None:
    if folder is None:
        raise InvalidArgument("needs `out`, the folder of the run to go on with", argument="resume", remedy="set `out`")
    return Trace.open(folder) if (folder / "trace.json").exists() else None


def _seed(recorded: Trace | None, seed: int | None) -> int:
    if seed is None:
        known = None if recorded is None else recorded.header.provenance.seed
        return secrets.randbits(63) if known is None else known
    return check.seed(seed)


def _check_same_run(recorded: Trace, task: Task, recipe: Recipe, provenance: Provenance, every: int) -> None:
    recorded.check_data(task.fingerprints)
    header = recorded.header
    theirs = _settings(header.recipe, header.provenance, header.every)
    for name, value in _settings(recipe, provenance, every).items():
        if theirs.get(name) != value:
            raise TraceMismatch(
                f"{recorded.path} was begun with `{name}` = {theirs.get(name)!r}, not {value!r}",
                remedy="resume with the same settings, or choose another folder",
            )


def _settings(recipe: Recipe | None, provenance: Provenance, every: int) -> dict[str, Any]:
    """All that the run depends on, by the names of `train`'s arguments."""
    known: dict[str, Any] = {} if recipe is None else dataclasses.asdict(recipe)
    known |= {"task": provenance.task, "seed": provenance.seed, "split_seed": provenance.split_seed, "every": every}
    return known | dataclasses.asdict(provenance.options)


def _restore(recorded: Trace, checkpoint: Path, stepper: Stepper) -> int:
    """Put the model where the run was left; returns the step to take next."""
    final = recorded.final_arrays() if recorded.complete else None
    if final is not None:
        load_state(stepper.model, {name: torch.from_numpy(np.array(value)) for name, value in final.items()})
        return recorded.num_steps
    # A checkpoint beyond the trace means that a power cut took the trace's end: then the run starts again.
    return load_checkpoint(checkpoint, stepper, at_most=recorded.num_steps)


def _batch_scores(step: int, last: bool, seen: tuple[Tensor, Tensor] | None, targets: Tensor) -> BatchScores:
    if seen is None:
        return BatchScores(None, None)
    outputs, losses = seen
    loss = float(losses.mean())
    # An infinite loss may pass, a NaN stays: so a run ends the same way whenever it is looked at.
    if math.isnan(loss) or (last and math.isinf(loss)):
        raise Diverged(f"The loss is {loss} at step {step}", remedy="lower `learning_rate`, or `noise_std`")
    accuracy = float((outputs.argmax(-1) == targets).float().mean()) if has_classes(targets) else None
    return BatchScores(loss, accuracy)


@contextlib.contextmanager
def _quiet_opacus() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook is firing")  # torch, of any model trained with Opacus
        yield
