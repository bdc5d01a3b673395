"""What a federation publishes in each round, as a trace: the global model before it, and how far the round moved it.

`gmip.integrations.flower` hands Flower's rounds to this; nothing here needs Flower.
"""

from __future__ import annotations

from gmip._extras import needs

needs("gmip.integrations.federated", "torch")

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from gmip import _validate as check
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.tasks.task import Examples, Task
from gmip.trace import Header, LocalTraining, ParameterSpec, TraceWriter
from gmip.training.models import check_model, mixing_layer, trainable_parameters
from gmip.training.recorder import fingerprints
from gmip.vocabulary import Sampling

Unit = Literal["examples", "clients"]
Arrays = Mapping[str, NDArray[Any]]

_SAME: Final = 1.0e-5  # of the largest entry: what averaging in float32 may differ by


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one client sent back.

    Parameters
    ----------
    arrays : its model, by name.
    weight : how much it counts in the average: for the unit "examples" how many it trained on.
    client : its row in the data, if clients are the unit and it is known.
    """

    arrays: Arrays
    weight: float
    client: int | None = None


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """What a strategy does for differential privacy of its clients.

    Parameters
    ----------
    norm : bound on the norm of a client's update.
    noise_std : of the noise on every entry of the average.
    by_clients : whether clients clip before they reply; else the server does it after.
    """

    norm: float
    noise_std: float
    by_clients: bool


class RoundRecorder:
    """Writes a trace with one step for each round: `begin` with the model that is sent out, `end` with the new one.

    The recorded vector is (old - new)/learning_rate. If every client takes one step of SGD at that rate on the mean
    loss of its batch (FedSGD), it is the mean gradient, of examples or of clients. If clients train on (FedAvg), it is
    the mean of their updates in the same units: say `local_steps`, and audits rehearse the local training.

    Parameters
    ----------
    model : the global model; it is asked for names and shapes only.
    path : folder of the trace.
    unit : what a record is. "examples": replies are weighted by their numbers of examples. "clients": membership is
        that of a client, ids are rows in a list of clients, and all replies must weigh the same.
    dataset_size, batch_size : N and n, in units: examples, or clients, in the federation and in a round.
    learning_rate : of the clients. 1.0 records the updates themselves.
    local_steps, local_batch_size : steps of SGD that a client takes before it replies, in batches of that size (None:
        all its examples). Clients that train otherwise: the task's `publish` says how.
    clients : how many reply in a round, where examples are the unit and clients take several steps.
    per_client : each reply is a step of the trace, as a server sees it that is not kept from it by secure aggregation;
        else their average is.
    sampling : how a round's units are drawn, as in `gmip.NoisySGD`: "fixed" for clients drawn anew for each round;
        "full" if all take part, and for examples of clients that do not (no amplification is counted then).
    clipping : of the strategy, if it is one for differential privacy: then the unit is "clients".
    members, non_members, data, notes : as in `gmip.record`.
    """

    def __init__(
        self,
        model: nn.Module,
        path: str | os.PathLike[str],
        *,
        unit: Unit,
        dataset_size: int,
        batch_size: int,
        learning_rate: float = 1.0,
        local_steps: int = 1,
        local_batch_size: int | None = None,
        clients: int | None = None,
        per_client: bool = False,
        sampling: Sampling = "fixed",
        clipping: Clipping | None = None,
        members: ArrayLike | None = None,
        non_members: ArrayLike | None = None,
        data: Task | Examples | None = None,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        self._unit = check.one_of("unit", unit, get_args(Unit))
        self._rate = check.positive("learning_rate", learning_rate)
        check.instance("per_client", per_client, bool)
        self._per_client = per_client
        local = None
        if check.count("local_steps", local_steps) > 1 or local_batch_size is not None or per_client:
            number = 1 if per_client else batch_size if unit == "clients" else clients
            if number is None:
                raise InvalidArgument(
                    "is not known, and several clients train on before their updates are averaged",
                    argument="clients",
                    remedy="say how many reply in a round, or pass `per_client` = True to record each reply",
                )
            local = LocalTraining(
                steps=local_steps, learning_rate=self._rate, batch_size=local_batch_size, clients=number
            )
        if clipping is not None:
            check_model(model)
            if per_client:
                raise InvalidArgument(
                    "does not go with a strategy that adds noise to the average", argument="per_client", value=True
                )
        if clipping is not None and unit != "clients":
            raise InvalidArgument(
                "does not go with a strategy that clips the updates of clients, which protects clients",
                argument="unit",
                value=unit,
                remedy="pass 'clients'",
            )
        self._clipping = clipping
        self._shapes = {name: tuple(p.shape) for name, p in trainable_parameters(model)}
        self._old: Arrays | None = None
        self._rounds = 0
        self._last: dict[str, NDArray[Any]] = {}
        header = Header(
            parameters=tuple(ParameterSpec(name, shape) for name, shape in self._shapes.items()),
            num_params=sum(int(np.prod(shape)) for shape in self._shapes.values()),
            dataset_size=dataset_size,
            batch_size=batch_size,
            sampling=sampling,
            clip_norm=None if clipping is None else clipping.norm / self._rate,
            fingerprints=fingerprints(data),
            mixes=mixing_layer(model),
            local=local,
            notes={
                "unit": unit,
                "learning_rate": self._rate,
                "vector": "(model sent out - model after the round)/learning_rate",
                **(notes or {}),
            },
        )
        self._writer = TraceWriter.create(path, header, members=members, non_members=non_members)

    @property
    def num_rounds(self) -> int:
        """Rounds recorded so far."""
        return self._rounds

    def begin(self, arrays: Arrays) -> None:
        """The model that is sent to the clients, by name."""
        self._check(arrays, "The model that is sent out")
        self._old = {name: np.array(value) for name, value in arrays.items()}

    def end(self, arrays: Arrays | None, replies: Sequence[Reply]) -> None:
        """The model that the server made of the replies; None if it made none, and then there is no step."""
        old, self._old = self._old, None
        if arrays is None:
            return
        if old is None or not replies:
            raise InvalidArgument("end needs a begun round with a reply", remedy="call begin first")
        self._check(arrays, "The model of the server")
        self._size(replies)
        self._check_average(old, arrays, replies)
        for new, whose in [(one.arrays, [one]) for one in replies] if self._per_client else [(arrays, list(replies))]:
            self._commit(old, new, whose)
        self._rounds += 1
        self._last = {name: np.array(value) for name, value in arrays.items()}

    def _commit(self, old: Arrays, new: Arrays, replies: Sequence[Reply]) -> None:
        size = self._size(replies)
        before, vector = self._writer.row()
        at = 0
        for name, shape in self._shapes.items():
            part = slice(at, at + int(np.prod(shape)))
            before[part] = old[name].reshape(-1)
            vector[part] = (old[name].astype(np.float64) - new[name]).reshape(-1) / self._rate
            at = part.stop
        ids = [reply.client for reply in replies if reply.client is not None]
        self._writer.commit(
            batch_size=size,
            divisor=float(size),
            noise_std=0.0 if self._clipping is None else self._clipping.noise_std / self._rate,
            ids=ids if len(ids) == len(replies) else None,
        )

    def close(self) -> None:
        """Complete the trace, with the model after the last round."""
        self._writer.close(self._last or None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._writer.abandon()

    def _check(self, arrays: Arrays, what: str) -> None:
        for name, shape in self._shapes.items():
            if name not in arrays or tuple(arrays[name].shape) != shape:
                found = "lacks it" if name not in arrays else f"has it in shape {tuple(arrays[name].shape)}"
                raise InvalidArgument(
                    f"{what} {found}: parameter {name} of `model`, of shape {shape}",
                    remedy="pass the model of the federation, and send arrays by the names of its state_dict()",
                )

    def _size(self, replies: Sequence[Reply]) -> int:
        weights = [reply.weight for reply in replies]
        if self._unit == "clients":
            if max(weights) > (1.0 + 1.0e-9) * min(weights):
                raise UnsupportedModel(
                    f"Clients weigh {min(weights):g} to {max(weights):g} in the average, so that some count more than "
                    "others, which no accounting here covers",
                    remedy="let every client report the same weight (num-examples = 1)",
                )
            return len(replies)
        if any(weight != round(weight) or weight < 1 for weight in weights):
            raise InvalidArgument(
                f"A client reports {next(w for w in weights if w != round(w) or w < 1)} as its number of examples",
                remedy="report how many examples it trained on",
            )
        return int(sum(weights))

    def _check_average(self, old: Arrays, new: Arrays, replies: Sequence[Reply]) -> None:
        """Refuse a server that does something else than average, as far as it can be seen."""
        if self._clipping is not None:
            if self._clipping.by_clients:
                for reply in replies:
                    self._check_clipped(old, reply)
            return  # noise hides the rest
        total = sum(reply.weight for reply in replies)
        for name in self._shapes:
            mean = sum(np.asarray(reply.arrays[name], dtype=np.float64) * (reply.weight / total) for reply in replies)
            if np.abs(new[name] - mean).max(initial=0.0) > _SAME * max(1.0e-30, np.abs(mean).max(initial=0.0)):
                raise UnsupportedModel(
                    f"The server's new {name} is not the weighted mean of its clients', so the round is not a step "
                    "along their mean update",
                    remedy="record a strategy that averages, such as FedAvg or FedProx, without a server optimizer",
                )

    def _check_clipped(self, old: Arrays, reply: Reply) -> None:
        assert self._clipping is not None
        squares = (float(np.sum((reply.arrays[name].astype(np.float64) - old[name]) ** 2)) for name in self._shapes)
        norm = float(np.sqrt(sum(squares)))
        if norm > self._clipping.norm * (1.0 + 1.0e-3) + 1.0e-6:
            raise UnsupportedModel(
                f"A client's update has norm {norm:.6g}, above the clip norm {self._clipping.norm:g}, so it was not "
                "clipped and the guaranteed privacy does not hold",
                remedy="add Flower's fixedclipping_mod to the clients, or clip on the server",
            )
