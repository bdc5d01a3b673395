from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import pytest
import torch

from gmip.errors import InvalidArgument
from gmip.parallel import Workers, backends, clusters, worker
from gmip.parallel.parcel import _found_again, pack, versions
from gmip.parallel.worker import Failure, attempt, attempt_packed
from tests.unit.attacks.shadow.helpers import load_own_task
from tests.unit.parallel.works import Draws

# -- this process ------------------------------------------------------------------------------------------------------


def test_one_job_needs_no_processes():
    with backends.open_pool(Draws(), Workers(workers=8), 1) as pool:
        assert pool.slots == 1
        assert pool.submit(3).result() == attempt(Draws(), 3)


# -- what travels ------------------------------------------------------------------------------------------------------


def test_parcel_is_opened_once_and_gives_the_same(monkeypatch):
    parcel = pack(Draws())
    opened = []
    loads = pickle.loads

    def counting(content: bytes) -> Any:
        opened.append(content)
        return loads(content)

    monkeypatch.setattr(pickle, "loads", counting)
    for job in range(2):
        assert attempt_packed(parcel.digest, versions(), parcel.content, job) == attempt(Draws(), job)
    assert len(opened) == 1
    assert worker._opened.keys() == {parcel.digest}
    assert pack(Draws()).digest == parcel.digest


def test_worker_of_another_version_is_refused():
    parcel = pack(Draws())
    failure = attempt_packed(parcel.digest, versions() | {"torch": "1.13"}, parcel.content, 0)
    assert isinstance(failure, Failure) and not failure.transient
    assert failure.text.endswith("and torch 1.13: install the same there.") and torch.__version__ in failure.text


def test_parcel_that_cannot_be_opened_is_a_failure():
    failure = attempt_packed("nonsense", versions(), b"cnot_a_module\nthing\n.", 0)
    assert isinstance(failure, Failure) and failure.text.startswith("ModuleNotFoundError: No module named")
    assert not failure.transient


def test_what_cannot_travel_is_named():
    with pytest.raises(
        InvalidArgument, match=r"^Work 'draws' cannot be sent to other processes \(TypeError.*workers = 1"
    ):
        pack(Draws(cargo=threading.Lock()))


def test_only_the_users_own_modules_are_sent_along(tmp_path):
    load_own_task(tmp_path)
    sent = {name for name in sys.modules if "." not in name and not _found_again(name)}
    assert "gmip_test_neighbour" in sent and any(name.startswith("gmip_task_") for name in sent)
    assert not sent & {"os", "torch", "numpy", "gmip", "sklearn", "pytest", "cloudpickle", "tests", "__main__"}


def test_registry_of_modules_by_value_is_left_as_it_was(tmp_path):
    task = load_own_task(tmp_path)
    before = set(cloudpickle.list_registry_pickle_by_value())
    content = pack(Draws(cargo=task)).content
    assert set(cloudpickle.list_registry_pickle_by_value()) == before
    assert b"super().forward" not in content and b"WEIGHT" in content  # code, not source; its globals too


def test_threads_of_one_process_take_turns():
    """Jobs seed torch's global generator: a Dask worker with several threads must not mix two of them."""
    work = Draws(lambda job: time.sleep(0.001))
    expected = [attempt(work, job) for job in range(30)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda job: attempt(work, job), range(30))) == expected


def test_orphan_ends(monkeypatch):
    ended: list[int] = []
    parents = iter([7, 7, 1])
    monkeypatch.setattr(worker, "_PARENT_SECONDS", 0.0)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", ended.append)
    worker._end_with_parent(7)
    assert ended == [1]


# -- clusters that are not there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_missing_package_is_one_sentence(monkeypatch, backend, module):
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(clusters, "import_module", missing)
    settings = Workers(backend=backend, scheduler_address="tcp://127.0.0.1:1")
    with (
        pytest.raises(InvalidArgument, match=rf"needs {module}, .* pip install 'gmip\[{backend}\]'"),
        backends.open_pool(Draws(), settings, 2),
    ):
        pass


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_nobody_at_the_address(backend):
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[backend])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address, complaint in (
        (f"127.0.0.1:{port}", "does not answer"),
        (f"tcp://127.0.0.1:{port}", "does not answer"),
        ("no-such-host.invalid:1", "does not answer"),
        ("127.0.0.1", "is not an address"),
        ("a:b", "is not an address"),
    ):
        with (
            pytest.raises(InvalidArgument, match=rf"scheduler_address = '{address}' {complaint}"),
            backends.open_pool(Draws(), Workers(backend=backend, scheduler_address=address), 2),
        ):
            pass
