"""What a trace says about a run: the header, one line per optimizer step, and fingerprints of the data.

`ModelRecord` is what is known of any trained model: its weights and who was in.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _io
from gmip import _validate as check
from gmip._extras import needs
from gmip.errors import InvalidArgument, TraceMismatch, warn
from gmip.trace._remote import AnyPath
from gmip.vocabulary import SAMPLINGS, Recipe, Sampling

FORMAT_VERSION = 3

Dtype = Literal["float32", "float64"]
PRECISIONS: Final = ("float16", "bfloat16")


@dataclass(frozen=True)
class ParameterSpec:
    """One recorded parameter: its name in the model and its shape, () for a scalar."""

    name: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"must be a non-empty string, not {name!r}", argument="name of a parameter")
        if not name.isprintable():
            raise InvalidArgument(f"must be printable, not {name!a}", argument="name of a parameter")
        given: object = self.shape
        if not isinstance(given, (tuple, list)):
            raise InvalidArgument(
                f"must be a tuple of whole numbers, not {given!r}", argument=f"shape of parameter {name!r}"
            )
        object.__setattr__(self, "shape", tuple(n and check.count(f"shape of parameter {name!r}", n) for n in given))

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How a model is made and computed where the recipe does not say: see `gmip.train`."""

    fix: bool = False
    grad_sample_mode: str = "auto"
    max_physical_batch_size: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        check.fields(self, fix=bool, grad_sample_mode=str, device=str, max_physical_batch_size=check.count)


def _seed(name: str, value: object) -> int:
    return check.seed(value, name)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Which training of gmip a run is: what repeats it, beside the recipe. A loop of somebody else's has none of it.

    Parameters
    ----------
    task : name of the task whose model was trained, on records of its pool.
    seed : of members, batches, initial weights and noise; who knows it can subtract the noise.
    split_seed : of the members, if it is not `seed`.
    options : of the model that was trained.
    """

    task: str | None = None
    seed: int | None = None
    split_seed: int | None = None
    options: ModelOptions = field(default_factory=ModelOptions)

    def __post_init__(self) -> None:
        check.fields(self, task=str, seed=_seed, split_seed=_seed, options=ModelOptions)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """What clients do in a round of a federation before they reply.

    Parameters
    ----------
    steps : of SGD, of each client.
    learning_rate : of these steps.
    batch_size : of a client's steps; None: all its records.
    clients : whose updates are averaged in one recorded step.
    """

    steps: int
    learning_rate: float
    batch_size: int | None = None
    clients: int = 1

    def __post_init__(self) -> None:
        check.fields(self, steps=check.count, clients=check.count, batch_size=check.count, learning_rate=check.positive)

    def used(self, size: int) -> int:
        """How many of the clients' `size` records together their steps reach: fewer where a pass is not completed."""
        return size if self.batch_size is None else min(size, self.steps * self.batch_size * self.clients)


@dataclass(frozen=True, kw_only=True)
class Header:
    """What holds for the whole run.

    Parameters
    ----------
    parameters : the recorded parameters, in the order in which they make up the flat vectors.
    num_params : all trainable parameters of the model; more than the recorded ones if only some are recorded.
    dataset_size, batch_size : nominal sizes; under "poisson" batch_size is the expected number.
    sampling : how batches were drawn, as in `gmip.NoisySGD`.
    sample_rate : under "poisson", the chance of a record to be in a batch where it is not batch_size/dataset_size:
        Opacus' is one over the number of batches in an epoch.
    max_batch_size : under "poisson", the most examples that a batch was allowed to hold; None: no limit.
    clip_norm : bound on the norm of a per-example gradient; None when gradients were not clipped.
    dtype : of the recorded vectors.
    fingerprints : SHA-256 of each part of the data (see `gmip.trace.fingerprint`), by the name of the part.
    recipe : how the model was trained, optimizer and learning rate included; None: nobody said. Tuples in the options
        of the optimizer come back as lists.
    provenance : of a run of `gmip.train`.
    every, budget : which steps are stored: see `gmip.record`.
    base_weights : fingerprint of the weights that the run took over and did not train, under adapters; else None.
    mixes : a layer that mixed the records of a batch (BatchNorm), so that no record has a gradient of its own; or None.
    local : how clients train before they reply, where a step is a round of a federation; None: a step is a gradient.
    optimizer : the class of one whose step is not torch's own, or has hooks: it may go by other gradients.
    notes : plain JSON for people, by name. Nothing reads it, and a run that is resumed keeps those of its beginning.
    """

    parameters: tuple[ParameterSpec, ...]
    num_params: int
    dataset_size: int
    batch_size: int
    sampling: Sampling = "fixed"
    sample_rate: float | None = None
    max_batch_size: int | None = None
    clip_norm: float | None = None
    dtype: Dtype = "float32"
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    recipe: Recipe | None = None
    provenance: Provenance = field(default_factory=Provenance)
    every: int = 1
    budget: int | None = None
    base_weights: str | None = None
    mixes: str | None = None
    local: LocalTraining | None = None
    optimizer: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check.fields(
            self,
            parameters=_parameters,
            **dict.fromkeys(("num_params", "dataset_size", "batch_size", "every", "budget"), check.count),
            sampling=SAMPLINGS,
            dtype=get_args(Dtype),
            clip_norm=check.positive,
            sample_rate=check.above_zero,
            max_batch_size=check.count,
            fingerprints=_fingerprints,
            provenance=Provenance,
            base_weights=str,
            mixes=str,
            optimizer=str,
            local=LocalTraining,
            notes=_plain_json,
        )
        if self.recorded_params == 0:
            raise InvalidArgument(
                "has no entries, all are empty", argument="parameters", remedy="record at least one that has some"
            )
        if self.num_params < self.recorded_params:
            raise InvalidArgument(
                f"is below the {self.recorded_params} entries of `parameters`",
                argument="num_params",
                value=self.num_params,
                remedy="count every trainable parameter of the model",
            )
        check.batch_within(self.batch_size, self.dataset_size)
        if self.sample_rate is not None and (
            self.sampling != "poisson" or abs(self.sample_rate * self.dataset_size - self.batch_size) > 1.0
        ):
            raise InvalidArgument(
                f"does not go with `sampling` = {self.sampling!r} and batches of {self.batch_size} out of "
                f"{self.dataset_size}",
                argument="sample_rate",
                value=self.sample_rate,
                remedy="leave it out",
            )
        if self.max_batch_size is not None:
            check.largest_batch(self.max_batch_size, self.batch_size, self.sampling)
            if self.sample_rate is not None:
                raise InvalidArgument("goes with no `sample_rate`", argument="max_batch_size", remedy="leave that out")
        check.fields(self, recipe=self._checked_recipe)

    def _checked_recipe(self, name: str, given: object) -> Recipe:
        if not isinstance(given, Recipe):
            raise InvalidArgument(
                f"must be a gmip.Recipe, not {type(given).__name__}",
                argument=name,
                remedy="pass what else is worth remembering as `notes`",
            )
        for size in ("dataset_size", "batch_size", "sampling", "max_batch_size"):
            if getattr(given, size) != getattr(self, size):
                raise InvalidArgument(
                    f"says `{size}` = {getattr(given, size)!r}, and the run has {getattr(self, size)!r}",
                    argument=name,
                    remedy="pass the recipe of the run",
                )
        return given.replace(optimizer_options=_plain_json("optimizer_options", given.optimizer_options))

    @property
    def accountable(self) -> bool:
        """Whether accounting is about such steps: means of what each record, or each clipped client, adds."""
        return self.mixes is None and (self.local is None or self.clip_norm is not None)

    @property
    def recorded_params(self) -> int:
        """Length d of the flat vectors."""
        return sum(spec.size for spec in self.parameters)

    @property
    def row_bytes(self) -> int:
        """What the two vectors of a step take."""
        return 2 * self.recorded_params * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, kw_only=True, slots=True)
class StepInfo:
    """One optimizer step, without its vectors.

    Parameters
    ----------
    index : 0 for the first step of the run.
    batch_size : examples that were averaged.
    divisor : what the sum of the per-example gradients was divided by: batch_size, or the expected one under "poisson".
    noise_std : standard deviation of the noise on every entry of the mean gradient, before a clip of the whole.
    recorded : False for a step that was counted but whose vectors were not stored.
    clip_factor : s, in (0, 1], where the mean gradient m was clipped as a whole and s m was recorded; 1 if it was left
        as it is, None if nobody knows.
    precision : "float16" or "bfloat16" where the model computed in it, as under autocast; None for float32 and float64.
    outside : whether something that is not a step of the trace changed the parameters since the step before, or, of
        the first one, trained them before the recording began as far as that is seen; None if nobody looked.
    """

    index: int
    batch_size: int
    divisor: float
    noise_std: float
    recorded: bool
    clip_factor: float | None = None
    precision: str | None = None
    outside: bool | None = None


def fingerprint(*arrays: ArrayLike) -> str:
    """SHA-256 over dtype, shape and contents of the arrays, in order (hex, 64 characters)."""
    digest = hashlib.sha256()
    for array in arrays:
        array = np.asarray(array, order="C")
        if array.dtype.hasobject:
            raise InvalidArgument(
                f"must hold numbers or text of fixed length, not {array.dtype}",
                argument="arrays",
                remedy="convert them",
            )
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _parameters(name: str, given: object) -> tuple[ParameterSpec, ...]:
    if not isinstance(given, (tuple, list)) or not given or not all(isinstance(p, ParameterSpec) for p in given):
        raise InvalidArgument("must be a non-empty tuple of ParameterSpec", argument=name)
    names = [spec.name for spec in given]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InvalidArgument(
            f"names {twice[0]!r} more than once", argument=name, remedy="give each parameter its own name"
        )
    return tuple(given)


def _fingerprints(name: str, given: object) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(s, str) for item in given.items() for s in item):
        raise InvalidArgument(f"must map names to strings, not be {given!r}", argument=name)
    return dict(given)


def _plain_json(name: str, given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidArgument(f"must be a mapping with strings as keys, not {type(given).__name__}", argument=name)
    try:
        text = json.dumps(dict(given), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"must be plain JSON, of strings, finite numbers, lists and mappings ({error})",
            argument=name,
            remedy="convert what is not",
        ) from None
    plain: dict[str, Any] = json.loads(text)
    return plain


# -- what is known of a trained model ---------------------------------------------------------------------------------


class ModelRecord(ABC):
    """What attacks on a trained model read: `Trace` has the steps of its training, too, `ReleasedModel` nothing else.

    Attributes
    ----------
    path : where it is.
    header : sizes, the recipe and the data of its training, as far as they are known.
    members, non_members : indices into the data, shape (n,), or None if they were not given.
    """

    path: AnyPath
    header: Header
    members: NDArray[np.int64] | None
    non_members: NDArray[np.int64] | None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A name for the contents (hex, 64 characters)."""

    @abstractmethod
    def final_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The state of the trained model, name -> array; None if it is not known."""

    def final_state(self) -> dict[str, Any] | None:
        """The state of the trained model as tensors, for `model.load_state_dict`; None if it is not known.

        Base weights under adapters are not part of it: load it with strict=False.
        """
        arrays = self.final_arrays()
        if arrays is None:
            return None
        needs("final_state", "torch")
        torch = importlib.import_module("torch")  # traces are read without it
        return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}

    def check_data(self, fingerprints: Mapping[str, str]) -> None:
        """Raises `TraceMismatch` unless the run saw these data; warns if nobody wrote down what it saw.

        `fingerprints` are those of the data at hand: name of the part -> `gmip.trace.fingerprint` of its arrays. Parts
        that the header lacks (the test data of a task, say, where only the records were given) are not compared.
        """
        ours = self.header.fingerprints
        if not ours:
            warn(f"{self.path} has no fingerprints, so gmip cannot check that the run used the data of this audit.")
            return
        for name in ours:
            if name not in fingerprints:
                raise TraceMismatch(
                    f"{self.path} was recorded on data with a part {name!r} that is not given", remedy="load it"
                )
            if fingerprints[name] != ours[name]:
                raise TraceMismatch(
                    f"{self.path} was recorded on other data ({name!r} has fingerprint {fingerprints[name][:12]} and "
                    f"not {ours[name][:12]})",
                    remedy="audit with the data, split and seed of the run",
                )


class ReleasedModel(ModelRecord):
    """Weights of a model of which no step was recorded, and who was in.

    Parameters
    ----------
    path : of the weights.
    header : what the task says about the training.
    state : name -> array, of parameters and buffers.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        *,
        members: NDArray[np.int64],
        non_members: NDArray[np.int64],
        state: Mapping[str, NDArray[Any]],
    ) -> None:
        self.path = path
        self.header = header
        self.members = members
        self.non_members = non_members
        self._state = dict(state)

    def __repr__(self) -> str:
        return f"<ReleasedModel {self.path}: {self.header.num_params} parameters>"

    @property
    def fingerprint(self) -> str:
        """A name for the weights, the header and who was in (hex, 64 characters)."""
        weights = _io.sha256(b"".join(name.encode() + array.tobytes() for name, array in sorted(self._state.items())))
        who = [None if part is None else part.tolist() for part in (self.members, self.non_members)]
        return _io.sha256(json.dumps([weights, dataclasses.asdict(self.header), *who]))

    def final_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The released weights, and the buffers beside them."""
        return dict(self._state)
