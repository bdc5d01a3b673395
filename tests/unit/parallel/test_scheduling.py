from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("torch", reason="parallel work needs the extra gmip[train]")

import torch

from gmip.errors import GmipError, GmipWarning, UnreachableTarget
from gmip.parallel import Workers, compute
from gmip.parallel import pools as scheduling
from gmip.parallel.pools import Pool
from gmip.parallel.worker import attempt
from tests.unit.parallel.works import Draws

ALONE = Workers(workers=1)


def results(work: Draws, settings: Workers = ALONE, jobs: int = 4) -> dict[int, float]:
    found: dict[int, float] = {}
    compute(work, list(range(jobs)), settings, found.__setitem__)
    return found


def failing(error: Exception, *, times: int = 99, job: int = 2) -> Draws:
    """Work one of whose jobs fails so many times."""
    begun: Counter[int] = Counter()

    def before(given: int) -> None:
        begun[given] += 1
        if given == job and begun[given] <= times:
            raise error

    return Draws(before)


def test_results_are_those_of_the_jobs_in_their_order():
    found = results(Draws())
    assert list(found) == [0, 1, 2, 3]
    assert found == {job: float(torch.rand(1000, generator=torch.Generator().manual_seed(job)).sum()) for job in found}


def test_no_job_is_begun_once_there_is_no_more():
    found: dict[int, float] = {}
    compute(Draws(), list(range(6)), ALONE, found.__setitem__, more=lambda: len(found) < 2)
    assert list(found) == [0, 1]


def test_no_jobs_are_no_trouble():
    assert results(Draws(), jobs=0) == {}


@pytest.mark.slow
def test_processes_give_the_same_and_are_gone_afterwards():
    import multiprocessing

    assert results(Draws(), Workers(workers=2)) == results(Draws())
    gc.collect()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("error", [OSError(28, "No space left"), RuntimeError("can't allocate memory"), MemoryError()])
def test_passing_trouble_is_retried(error):
    with pytest.warns(GmipWarning, match=r"Computed again: draw 2: ") as caught:
        found = results(failing(error, times=3))
    assert len(caught) == 3 and found == results(Draws())


def test_lasting_trouble_ends_in_a_sentence():
    found: dict[int, float] = {}
    with (
        pytest.warns(GmipWarning, match="Computed again"),
        pytest.raises(GmipError, match=r"^Draw 2 could not be computed in 2 attempts \(.*No space.*: fix this.*kept"),
    ):
        compute(failing(OSError(28, "No space left")), [0, 1, 2, 3], Workers(workers=1, retries=1), found.__setitem__)
    assert list(found) == [0, 1]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ValueError("nothing\nhere"), GmipError, "Draw 2 cannot be computed: ValueError: nothing here."),
        (RuntimeError("shapes"), GmipError, "Draw 2 cannot be computed: RuntimeError: shapes."),
        (UnreachableTarget("Take more."), UnreachableTarget, "Draw 2 cannot be computed: Take more."),
    ],
)
def test_errors_that_would_recur_are_raised_at_once(error, kind, words):
    with pytest.raises(kind) as caught:
        results(failing(error, times=1))
    assert str(caught.value) == words
    assert "in before" in caught.value.__notes__[0]  # where it happened, for who looks closer


# -- workers that die --------------------------------------------------------------------------------------------------


class Cluster(Pool):
    """Two workers that compute in this process, unless there is an error for a job's next attempt."""

    deaths = (BrokenExecutor,)
    slots = 2

    def __init__(self, work: Draws, errors: dict[int, list[BaseException]]) -> None:
        self._work, self._errors = work, errors
        self.log: list[int | str] = []

    def submit(self, job: int) -> Future[Any]:
        future: Future[Any] = Future()
        self.log.append(job)
        if self._errors.get(job):
            future.set_exception(self._errors[job].pop(0))
        else:
            future.set_result(attempt(self._work, job))
        return future

    def recover(self) -> None:
        self.log.append("recover")

    def close(self) -> None:
        self.log.append("close")


def deaths(number: int) -> list[BaseException]:
    return [BrokenExecutor("gone") for _ in range(number)]


@pytest.fixture
def cluster(monkeypatch):
    made: list[Cluster] = []

    def plan(errors: dict[int, list[BaseException]]) -> list[Cluster]:
        @contextmanager
        def opened(work: Draws, settings: Any, jobs: int) -> Iterator[Pool]:
            made.append(Cluster(work, errors))
            try:
                yield made[-1]
            finally:
                made[-1].close()

        monkeypatch.setattr(scheduling, "open_pool", opened)
        return made

    return plan


def test_job_of_a_dead_worker_is_computed_again(cluster):
    expected = results(Draws())
    made = cluster({0: deaths(1), 1: deaths(1), 3: deaths(2)})
    with pytest.warns(GmipWarning, match="Computed again") as caught:
        assert results(Draws(), Workers(retries=2)) == expected
    assert "draw 0: its worker died (BrokenExecutor); draw 1: its worker" in str(caught[0].message)
    log = made[0].log
    assert [log.count(job) for job in range(4)] == [2, 2, 1, 3]
    assert "recover" in log and log[-1] == "close"


def test_worker_that_always_dies_ends_in_a_sentence(cluster):
    made = cluster({1: deaths(9)})
    with (
        pytest.warns(GmipWarning, match=r"draw 1: its worker died"),
        pytest.raises(GmipError, match=r"^Draw 1 could not be computed in 3 attempts.*its worker died.*more memory"),
    ):
        results(Draws(), Workers(retries=2))
    assert made[0].log[-1] == "close"


def test_error_does_not_cost_what_others_have_finished(cluster):
    made = cluster({0: [ValueError("a bug")]})
    found: dict[int, float] = {}
    with pytest.raises(GmipError, match=r"could not begin draw 0 \(ValueError: a bug\): install the same gmip there"):
        compute(Draws(), [0, 1, 2], ALONE, found.__setitem__)
    assert made[0].log == [0, 1, "close"] and list(found) == [1]


def test_worker_without_gmip_is_named(cluster):
    trouble = RuntimeError("Error during deserialization")
    trouble.__cause__ = ModuleNotFoundError("No module named 'gmip'")
    made = cluster({0: [trouble]})
    with pytest.raises(GmipError, match=r"could not begin draw 0 \(ModuleNotFoundError: No module named 'gmip'"):
        results(Draws())
    assert made[0].log.count(0) == 1


def test_quiet_time_is_checked(cluster, monkeypatch):
    """A cluster without workers says nothing: the pool is asked now and then whether there is hope."""
    made = cluster({})

    def check(self: Cluster) -> None:
        raise GmipError("Nobody is there.")

    monkeypatch.setattr(Cluster, "submit", lambda self, job: Future())
    monkeypatch.setattr(Cluster, "check", check)
    monkeypatch.setattr(scheduling, "_CHECK_SECONDS", 0.01)
    with pytest.raises(GmipError, match="Nobody is there"):
        results(Draws())
    assert made[0].log == ["close"]


def test_interruption_stops_the_workers(cluster):
    made = cluster({})

    def stop(job: int, result: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute(Draws(), [0, 1, 2], ALONE, stop)
    assert made[0].log[-1] == "close"
