"""Dask and Ray clusters as pools of workers.

joblib's backends for them are not used: that for Dask waits for ever when the scheduler gives a job up
(KilledWorker), that for Ray cannot hand out results one by one. The futures of Dask and Ray themselves do both.
"""

from __future__ import annotations

import os
import pickle
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any, ClassVar, Final

from gmip.errors import GmipError, InvalidArgument
from gmip.parallel.pools import Pool, Workers
from gmip.parallel.worker import PickledWork, attempt_packed, versions

_PATIENCE: Final = 60.0  # seconds to wait for a cluster, or for a worker of it
_RAY_CLUSTERS: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_ADDRESS: Final = re.compile(r"(?:(?P<scheme>\w+)://)?\[?(?P<host>[^/]+?)\]?:(?P<port>\d+)")


class DaskPool(Pool):
    """An existing Dask cluster."""

    def __init__(self, parcel: PickledWork, settings: Workers) -> None:
        distributed = _extra("dask", "distributed")
        self.deaths = (distributed.KilledWorker, distributed.comm.CommClosedError, CancelledError)
        self._parcel, self._workers, self._address = parcel, settings.workers, settings.scheduler_address
        self._without_worker: float | None = None
        self._data: Any = None
        _check_address(str(self._address), "tcp://127.0.0.1:8786", "dask scheduler")
        try:
            self._client = distributed.Client(self._address, set_as_default=False, timeout=_PATIENCE / 6)
        except (OSError, TypeError, ValueError) as error:  # TypeError: tls without a certificate
            raise InvalidArgument(
                f"does not answer as a Dask scheduler ({_reason(error)})",
                argument="scheduler_address",
                value=self._address,
                remedy="fix the address",
            ) from error
        try:
            # Not wait_for_workers: a cluster that grows when there is work must see some.
            self._client.submit(int, pure=False).result(timeout=_PATIENCE)
        except TimeoutError:
            self.close()
            raise self._nobody() from None
        self._executor, self._call = self._client.get_executor(pure=False), _call()

    @property
    def slots(self) -> int:
        return self._workers or max(1, sum(self._threads().values()))

    def submit(self, job: Any) -> Future[Any]:
        with self._talking():
            if self._data is None:
                self._data = self._client.scatter(self._parcel.content, broadcast=True, hash=False, timeout=_PATIENCE)
            future: Future[Any] = self._executor.submit(
                self._call, self._parcel.digest, versions(), self._data, pickle.dumps(job)
            )
            return future

    def recover(self) -> None:
        self._data = None  # the worker may have had the only copy

    def check(self) -> None:
        if self._threads():
            self._without_worker = None
        elif self._without_worker is None:
            self._without_worker = time.monotonic()
        elif time.monotonic() - self._without_worker > _PATIENCE:
            raise self._nobody()

    def close(self) -> None:
        self._client.close()

    def _threads(self) -> dict[str, int]:
        with self._talking():
            return dict(self._client.nthreads())

    @contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, CancelledError) as error:
            raise GmipError(
                f"The Dask cluster at {self._address} does not answer any more ({_reason(error)})",
                remedy="start it and run again; finished work is kept",
            ) from error

    def _nobody(self) -> GmipError:
        return GmipError(
            f"The Dask scheduler at {self._address} has had no worker for {_PATIENCE:.0f} seconds",
            remedy=f"start workers with `dask worker {self._address} --nthreads 1` and run again; "
            "finished work is kept",
        )


class RayPool(Pool):
    """A Ray cluster: the one that this process uses already, the one at the address, the one that runs on this
    machine (or RAY_ADDRESS), or a new one, which only this machine can reach."""

    _QUIET: ClassVar = {"logging_level": "ERROR", "log_to_driver": False, "configure_logging": False}

    def __init__(self, parcel: PickledWork, settings: Workers) -> None:
        ray = self._ray = _extra("ray", "ray")
        self.deaths = (ray.exceptions.RayError,)
        self._digest, self._workers, self._ours = parcel.digest, settings.workers, not ray.is_initialized()
        if self._ours:
            self._connect(settings.scheduler_address)
        self._data = ray.put(parcel.content)
        # A death is ours to count, so Ray does not repeat what it lost.
        self._remote = ray.remote(num_cpus=1, max_retries=0)(attempt_packed)

    @property
    def slots(self) -> int:
        return self._workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, job: Any) -> Future[Any]:
        future: Future[Any] = self._remote.remote(self._digest, versions(), self._data, job).future()
        return future

    def close(self) -> None:
        self._data = None
        if self._ours:
            self._ray.shutdown()

    def _connect(self, address: str | None) -> None:
        if address is not None:
            _check_address(address, "127.0.0.1:6379", "ray start --head")
        try:
            # What `init` itself would connect to, without an address; not "auto", which joins anybody's cluster.
            services = import_module("ray._private.services")
            found = address or services.canonicalize_bootstrap_address(None)
            with nullcontext() if found else _loopback_only():
                self._ray.init(address=found or "local", **self._QUIET)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InvalidArgument(
                f"cannot be used as a Ray cluster ({_reason(error)})",
                argument="scheduler_address",
                value=address,
                remedy="start one with `ray start --head`, or fix the address",
            ) from error


@contextmanager
def _loopback_only() -> Iterator[None]:
    """A cluster that Ray starts meanwhile listens on 127.0.0.1, as is its habit on macOS and Windows; on Linux it would
    listen on every interface, and not take 127.0.0.1 for an address of its node."""
    constants: Any = import_module("ray._private.ray_constants")
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False  # of this process, read when imported
    previous = os.environ.get(_RAY_CLUSTERS)
    os.environ[_RAY_CLUSTERS] = "0"  # of the processes that Ray starts
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        if previous is None:
            del os.environ[_RAY_CLUSTERS]
        else:
            os.environ[_RAY_CLUSTERS] = previous


def _call() -> Any:
    """`attempt_packed` of a pickled job, as a local function, which is pickled by value: a Dask scheduler unpickles
    what it hands on, and should need neither gmip nor the seconds that importing torch takes."""

    def call(digest: str, sender: Any, content: bytes, job: bytes) -> Any:
        from gmip.parallel.worker import attempt_packed

        return attempt_packed(digest, sender, content, pickle.loads(job))

    return call


def _check_address(address: str, example: str, start: str) -> None:
    """Somebody must listen there: Dask and Ray take minutes to find out that nobody does."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise InvalidArgument(
            "is not an address", argument="scheduler_address", value=address, remedy=f"pass one such as {example}"
        )
    if found["scheme"] in (None, "tcp", "tls", "ray"):
        try:
            socket.create_connection((found["host"], int(found["port"])), timeout=_PATIENCE / 6).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise InvalidArgument(
                f"does not answer ({error})",
                argument="scheduler_address",
                value=address,
                remedy=f"start a cluster with `{start}`, or fix the address",
            ) from error


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


def _extra(backend: str, module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"needs {error.name}, which is not installed",
            argument="backend",
            value=backend,
            remedy=f"pip install 'gmip[{backend}]'",
        ) from None
