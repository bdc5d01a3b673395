"""What travels to a worker, and what it does there."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import pytest
import torch

from gmip.errors import InvalidArgument
from gmip.parallel import one_thread, worker
from gmip.parallel.worker import Failure, _found_again, attempt, attempt_packed, pack, versions
from tests.unit.attacks.shadow.helpers import load_own_task
from tests.unit.parallel.works import Draws


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
    assert (
        failure.text.endswith("and torch 1.13; install the same there.")
        and f"torch {versions()['torch']}" in failure.text
    )


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


def test_names_of_arguments_can_still_be_spelled_after_the_journey():
    def refuse(job: int) -> None:
        raise InvalidArgument("exceeds `dataset_size` = 3", argument="batch_size", value=5)

    failure = attempt(Draws(refuse), 0)
    assert failure.kind is InvalidArgument and failure.text == "`batch_size` = 5 exceeds `dataset_size` = 3."


# -- one thread -------------------------------------------------------------------------------------------------------


def test_torch_is_on_one_thread_and_back_again():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


LATE = """
import os, sys
from gmip.parallel import one_thread
assert "torch" not in sys.modules
with one_thread():
    import torch
    assert torch.get_num_threads() == 1, torch.get_num_threads()
assert os.environ.get("OMP_NUM_THREADS") == "2" and "MKL_NUM_THREADS" not in os.environ
"""


def test_torch_that_the_work_loads_is_on_one_thread_too():
    names = {name: value for name, value in os.environ.items() if name != "MKL_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", LATE], check=True, timeout=120, env=names | {"OMP_NUM_THREADS": "2"})


WITHOUT = """
import sys
sys.modules["torch"] = None
from gmip.parallel import Workers, compute

class Squares:
    name = "Squares"
    def title(self, job): return f"square {job}"
    def compute(self, job): return job * job

found = {}
compute(Squares(), [1, 2, 3], Workers(workers=1), found.__setitem__)
assert found == {1: 1, 2: 4, 3: 9}
"""


def test_work_that_needs_no_torch_is_computed_without_it():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, timeout=120)
