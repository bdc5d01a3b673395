from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

from gmip.attacks.shadow import Shadows, backends, clusters, worker
from gmip.attacks.shadow.parcel import _found_again, pack, versions
from gmip.attacks.shadow.plan import Plan
from gmip.attacks.shadow.worker import Failure, Work, attempt, attempt_packed
from gmip.errors import InvalidArgument
from tests.unit.attacks.shadow.helpers import RECIPE, Outputs, Random, load_own_task, make_task

KEYS = frozenset({"outputs", "random"})


@pytest.fixture
def work() -> Work:
    task = make_task()
    plan = Plan(num_candidates=60, num_background=50, dataset_size=40, seed=3)
    return Work(
        task=make_task(pool=task.pool[[]]),
        recipe=RECIPE,
        options={},
        plan=plan,
        candidates=task.pool[range(60)],
        filling=task.pool[range(60, 110)][plan.filling],
        population=task.pool[range(60, 110)][plan.population],
        signals=(Outputs(), Random()),
    )


def same(left: Any, right: Any) -> bool:
    return all(np.array_equal(a, b) for key in KEYS for a, b in zip(left[key], right[key], strict=True))


# -- this process ------------------------------------------------------------------------------------------------------


def test_one_model_needs_no_processes(work):
    with backends.open_pool(work, Shadows(workers=8), 1) as pool:
        assert pool.slots == 1
        assert same(pool.submit(0, KEYS).result(), attempt(work, 0, KEYS))


# -- what travels ------------------------------------------------------------------------------------------------------


def test_parcel_is_opened_once_and_gives_the_same(work, monkeypatch):
    parcel = pack(work)
    direct = attempt(work, 2, KEYS)
    opened = []
    loads = pickle.loads

    def counting(content: bytes) -> Any:
        opened.append(content)
        return loads(content)

    monkeypatch.setattr(pickle, "loads", counting)
    for _ in range(2):
        assert same(attempt_packed(parcel.digest, versions(), parcel.content, 2, KEYS), direct)
    assert len(opened) == 1
    assert worker._opened.keys() == {parcel.digest}
    other = pack(work)
    assert other.digest == parcel.digest


def test_only_what_is_asked_for_is_computed(work):
    assert attempt(work, 0, frozenset({"random"})).keys() == {"random"}  # type: ignore[union-attr]


def test_worker_of_another_version_is_refused(work):
    parcel = pack(work)
    failure = attempt_packed(parcel.digest, versions() | {"torch": "1.13"}, parcel.content, 0, KEYS)
    assert isinstance(failure, Failure) and not failure.transient
    assert failure.text.endswith("and torch 1.13: install the same there.") and torch.__version__ in failure.text


def test_parcel_that_cannot_be_opened_is_a_failure():
    failure = attempt_packed("nonsense", versions(), b"cnot_a_module\nthing\n.", 0, KEYS)
    assert isinstance(failure, Failure) and failure.text.startswith("ModuleNotFoundError: No module named")
    assert not failure.transient


def test_what_cannot_travel_is_named(work):
    lock = threading.Lock()
    stuck = make_task(make_model=lambda: lock)
    with pytest.raises(
        InvalidArgument, match=r"Task 'small' cannot be sent to other processes \(TypeError.*workers = 1"
    ):
        pack(Work(**(vars(work) | {"task": stuck})))


def test_only_the_users_own_modules_are_sent_along(tmp_path):
    load_own_task(tmp_path)
    sent = {name for name in sys.modules if "." not in name and not _found_again(name)}
    assert "gmip_test_neighbour" in sent and any(name.startswith("gmip_task_") for name in sent)
    assert not sent & {"os", "torch", "numpy", "gmip", "sklearn", "pytest", "cloudpickle", "tests", "__main__"}


def test_registry_of_modules_by_value_is_left_as_it_was(work, tmp_path):
    task = load_own_task(tmp_path)
    before = set(cloudpickle.list_registry_pickle_by_value())
    content = pack(Work(**(vars(work) | {"task": task}))).content
    assert set(cloudpickle.list_registry_pickle_by_value()) == before
    assert b"super().forward" not in content and b"WEIGHT" in content  # code, not source; its globals too


def test_threads_of_one_process_take_turns(work):
    """Training seeds torch's global generator: a Dask worker with several threads must not mix two models."""
    expected = [attempt(work, index, KEYS) for index in range(6)]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda index: attempt(work, index, KEYS), range(6)))
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


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
def test_missing_package_is_one_sentence(work, monkeypatch, backend, module):
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(clusters, "import_module", missing)
    settings = Shadows(backend=backend, scheduler_address="tcp://127.0.0.1:1")
    with (
        pytest.raises(InvalidArgument, match=rf"needs {module}, .* pip install 'gmip\[{backend}\]'"),
        backends.open_pool(work, settings, 2),
    ):
        pass


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_nobody_at_the_address(work, backend):
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
            backends.open_pool(work, Shadows(backend=backend, scheduler_address=address), 2),
        ):
            pass
