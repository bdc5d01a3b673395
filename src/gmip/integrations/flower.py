"""Flower: record what a federation publishes, and account for its differential-privacy strategies client by client.

with GmipStrategy(FedAvg(), model, "runs/a", unit="clients", dataset_size=400, batch_size=40) as strategy:
    strategy.start(grid, initial_arrays, num_rounds=20)

The model that a server sends out is seen by every client. Without secure aggregation the server sees each client's own
reply as well, against which nothing here protects.
"""

from __future__ import annotations

from gmip._extras import needs

needs("gmip.integrations.flower", "flwr", "torch")

import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import parameters_to_ndarrays
from flwr.server import strategy as fit
from flwr.serverapp import Grid
from flwr.serverapp import strategy as train
from numpy.typing import NDArray
from torch import nn

from gmip import _validate as check
from gmip.errors import InvalidArgument, UnsupportedModel
from gmip.integrations.federated import Clipping, Reply, RoundRecorder
from gmip.training.models import count_params
from gmip.vocabulary import NoisySGD, Sampling

# Each in two makes: flwr.serverapp.strategy, and the older flwr.server.strategy of configure_fit and aggregate_fit.
_BY_SERVER: tuple[Any, ...] = tuple(make.DifferentialPrivacyServerSideFixedClipping for make in (train, fit))
_BY_CLIENTS: tuple[Any, ...] = tuple(make.DifferentialPrivacyClientSideFixedClipping for make in (train, fit))
_FIXED: tuple[Any, ...] = (*_BY_SERVER, *_BY_CLIENTS)
_ADAPTIVE: tuple[Any, ...] = (
    *(make.DifferentialPrivacyServerSideAdaptiveClipping for make in (train, fit)),
    *(make.DifferentialPrivacyClientSideAdaptiveClipping for make in (train, fit)),
)
_FORMER = (fit.DPFedAvgFixed, fit.DPFedAvgAdaptive)


def clients_run(
    strategy: train.Strategy | fit.Strategy,
    *,
    num_clients: int,
    num_rounds: int,
    num_params: int | nn.Module,
    sampling: Sampling = "fixed",
) -> NoisySGD:
    """What a fixed-clipping strategy does to its clients, for `gmip.account`: a record of this run is a client.

    Parameters
    ----------
    strategy : DifferentialPrivacyServerSideFixedClipping or DifferentialPrivacyClientSideFixedClipping; clip norm,
        noise multiplier and clients in a round are read from it.
    num_clients : N, all clients of the federation.
    num_rounds : T.
    num_params : d, trainable parameters; or the model, to count them.
    sampling : "fixed", as Flower draws the clients of a round; "full" if all of them take part in every round.

    Guarantees
    ----------
    They are those of `gmip.account`, for the membership of a client with all its data, if every sampled client replies
    and all weigh the same (num-examples = 1). Flower adds noise for equal weights, so that a client that weighs more is
    protected less; `GmipStrategy` refuses such rounds, and counts those with fewer replies as what they are.
    """
    clipping = _clipping(strategy)
    if clipping is None:
        raise InvalidArgument(
            f"is {type(strategy).__name__}, which neither clips nor adds noise",
            argument="strategy",
            remedy="pass a DifferentialPrivacy...FixedClipping",
        )
    return NoisySGD(
        dataset_size=check.count("num_clients", num_clients),
        batch_size=strategy.num_sampled_clients,
        num_steps=check.count("num_rounds", num_rounds),
        num_params=count_params(num_params) if isinstance(num_params, nn.Module) else num_params,
        clip_norm=clipping.norm,
        noise_std=clipping.noise_std,
        sampling=sampling,
    )


def _inside(name: str) -> Any:
    """A method that the strategy inside answers."""

    def method(self: _Recording, *given: Any, **named: Any) -> Any:
        return getattr(self._strategy, name)(*given, **named)

    return method


class _Recording:
    """What strategies of both makes share: the one inside, and the recorder of its rounds."""

    _average: Any  # the strategy whose average is recorded, and its method that averages
    _aggregate: str

    def __init__(
        self,
        strategy: train.Strategy | fit.Strategy,
        model: nn.Module,
        path: str | os.PathLike[str],
        *,
        client_id: str | None = None,
        notes: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        if isinstance(strategy, fit.Strategy) and not isinstance(self, fit.Strategy):
            raise InvalidArgument(
                "is one of flwr.server.strategy", argument="strategy", remedy="wrap it in GmipFitStrategy"
            )
        clipping = _clipping(strategy)
        self._averaging = _averaging(strategy, self._average, self._aggregate)
        self._strategy, self._client_id, self._names = strategy, client_id, list(model.state_dict())
        notes = {"framework": "flower", "strategy": type(strategy).__name__, **(notes or {})}
        self._rounds = RoundRecorder(model, path, clipping=clipping, notes=notes, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rounds.__exit__(kind, error, trace)

    def _reply(self, arrays: dict[str, NDArray[Any]], weight: Any, metrics: Mapping[str, Any]) -> Reply:
        client = None if self._client_id is None else int(_said(self._client_id, metrics))
        return Reply(arrays=arrays, weight=float(weight), client=client)

    configure_evaluate = _inside("configure_evaluate")
    aggregate_evaluate = _inside("aggregate_evaluate")


class GmipStrategy(_Recording, train.Strategy):  # type: ignore[misc]
    """A strategy that does what the one inside does, and records every round; see `RoundRecorder` for the `settings`.

    Parameters
    ----------
    strategy : one that averages (FedAvg, FedProx), or a fixed-clipping DifferentialPrivacy strategy around one.
    client_id : for the unit "clients": the key of a reply's metrics under which a client says which row of `data` it
        is; then the trace holds who was in each round.
    """

    _average, _aggregate = train.FedAvg, "aggregate_train"

    summary = _inside("summary")

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure the next round of training, and remember the model that it starts from."""
        self._rounds.begin(_named(arrays))
        messages: Iterable[Message] = self._strategy.configure_train(server_round, arrays, config, grid)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate, and record what comes of it."""
        received = list(replies)
        sent = [self._replied(message) for message in received if not message.has_error()]  # before they are clipped
        arrays, metrics = self._strategy.aggregate_train(server_round, received)
        self._rounds.end(None if arrays is None else _named(arrays), sent)
        return arrays, metrics

    def _replied(self, message: Message) -> Reply:
        metrics: dict[str, Any] = {}
        for record in message.content.metric_records.values():
            metrics |= dict(record)
        arrays = {name: a for record in message.content.array_records.values() for name, a in _named(record).items()}
        return self._reply(arrays, _said(self._averaging.weighted_by_key, metrics), metrics)


class GmipFitStrategy(_Recording, fit.Strategy):  # type: ignore[misc]
    """`GmipStrategy` for strategies of flwr.server.strategy, with configure_fit and aggregate_fit; the same arguments.

    Clients send arrays in the order of the model's state_dict(); `num_examples` is the weight, and `client_id` a key of
    the metrics of a FitRes.
    """

    _average, _aggregate = fit.FedAvg, "aggregate_fit"

    initialize_parameters = _inside("initialize_parameters")
    evaluate = _inside("evaluate")

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Configure the next round of training, and remember the model that it starts from."""
        self._rounds.begin(self._arrays(parameters))
        return self._strategy.configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round: int, results: list[Any], failures: list[Any]) -> Any:
        """Aggregate, and record what comes of it."""
        sent = [self._reply(self._arrays(one.parameters), one.num_examples, one.metrics) for _, one in results]
        parameters, metrics = self._strategy.aggregate_fit(server_round, results, failures)
        self._rounds.end(None if parameters is None else self._arrays(parameters), sent)
        return parameters, metrics

    def _arrays(self, parameters: Any) -> dict[str, NDArray[Any]]:
        arrays = parameters_to_ndarrays(parameters)
        if len(arrays) != len(self._names):
            raise InvalidArgument(
                f"{len(arrays)} arrays were sent, where the state_dict() of `model` has {len(self._names)}",
                remedy="send all of them, in its order",
            )
        return dict(zip(self._names, arrays, strict=True))


def _said(key: str, metrics: Mapping[str, Any]) -> Any:
    """What a client reports under this key."""
    if key not in metrics:
        raise InvalidArgument(
            f"A client's reply has no {key!r} among its metrics ({', '.join(metrics) or 'none'})",
            remedy="let every client report it",
        )
    return metrics[key]


def _named(arrays: ArrayRecord) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(array.numpy()) for name, array in arrays.items()}


def _averaging(strategy: Any, kind: Any, method: str) -> Any:
    """The strategy itself, or the one inside that averages."""
    inner = strategy.strategy if isinstance(strategy, _FIXED) else strategy
    if not isinstance(inner, kind) or getattr(type(inner), method) is not getattr(kind, method):
        raise UnsupportedModel(
            f"{type(inner).__name__} does more than average its clients' models, so a round is not a step along their "
            "mean update",
            remedy="record FedAvg, FedProx, or a DifferentialPrivacy...FixedClipping around one of them",
        )
    return inner


def _clipping(strategy: Any) -> Clipping | None:
    if isinstance(strategy, (*_ADAPTIVE, *_FORMER)):
        why = "computes its clip norm from a noisy count of clipped clients, which no accounting here covers"
        if isinstance(strategy, _FORMER):
            why = "is Flower's former strategy for differential privacy, which is not accounted for here"
        raise UnsupportedModel(
            f"{type(strategy).__name__} {why}", remedy="use a DifferentialPrivacy...FixedClipping around FedAvg"
        )
    if not isinstance(strategy, _FIXED):
        return None
    return Clipping(
        norm=float(strategy.clipping_norm),
        noise_std=float(strategy.noise_multiplier * strategy.clipping_norm / strategy.num_sampled_clients),
        by_clients=isinstance(strategy, _BY_CLIENTS),
    )
