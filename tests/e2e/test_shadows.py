"""Shadow sets in several processes: killed, interrupted and resumed, the bits are those of one process left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs the extra gmip[train]")

import torch

from gmip.attacks.attack import parties
from gmip.attacks.shadow import Shadows, ShadowSet, shadow_set
from gmip.errors import GmipWarning
from gmip.tasks import Task
from gmip.trace import Trace
from gmip.training import train
from tests.unit.attacks.shadow.helpers import Outputs, Slow, Troubled, bits, files, load_own_task, make_task, times

pytestmark = pytest.mark.filterwarnings("ignore:The model drops units:gmip.GmipWarning")  # dropout is part of the case
COUNT = 10
ROOT = Path(__file__).parents[2]

# Another process: run, parent of the sets, key, workers, seconds for each model.
SCRIPT = """
import sys
from gmip.attacks.attack import parties
from gmip.attacks.shadow import Shadows, shadow_set
from gmip.trace import Trace
from tests.unit.attacks.shadow.helpers import Slow, make_task

if __name__ == "__main__":
    task, trace, key = make_task(), Trace.open(sys.argv[1]), sys.argv[3]
    who = parties(task, trace, None, None)
    settings = Shadows(count=10, folder=sys.argv[2], workers=int(sys.argv[4]))
    shadow_set(task, trace, who.ids, who.background, (Slow(key, seconds=float(sys.argv[5])),), settings)
"""


def start(folder: Path, key: str, workers: int, seconds: float) -> subprocess.Popen[bytes]:
    arguments = [str(folder / "run"), str(folder / "sets"), key, str(workers), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    with (folder / "stderr").open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *arguments], cwd=ROOT, env=environment, stderr=stderr, start_new_session=True
        )


def shadows(task: Task, run: Path, folder: Path, signal: Any, **settings: Any) -> ShadowSet:
    trace = Trace.open(run)
    who = parties(task, trace, None, None)
    settings = {"count": COUNT, "folder": folder} | settings
    return shadow_set(task, trace, who.ids, who.background, (signal,), Shadows(**settings))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_killed_worker_of_a_task_of_the_users_own(tmp_path):
    """Two processes, one of them killed in the middle; they cannot import the task's file, nor the one beside it."""
    task = load_own_task(tmp_path)
    train(task, seed=1, out=tmp_path / "run")
    expected = bits(shadows(task, tmp_path / "run", tmp_path / "one", Outputs(), workers=1))
    with pytest.warns(GmipWarning, match=r"Computed again: shadow model \d: its worker died"):
        found = shadows(task, tmp_path / "run", tmp_path / "two", Troubled(folder=str(tmp_path), after=2), workers=2)
    assert (tmp_path / "trouble-0").exists()
    assert bits(found) == expected


def until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, f"waited {seconds} seconds for {what}"
        time.sleep(0.05)


def alive(session: int) -> list[int]:
    """Processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found


def whole(sets: Path) -> set[int]:
    """The models of which both entries are stored; the kill may come between the two of a model."""
    return {index for folder in sets.glob("shadow-set-*") for index, paths in files(folder).items() if len(paths) == 2}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
def test_interrupted_and_resumed(tmp_path, how):
    train(make_task(), seed=1, out=tmp_path / "run")
    expected = bits(shadows(make_task(), tmp_path / "run", tmp_path / "alone", Outputs(), workers=1))
    child = start(tmp_path, "outputs", 2, 0.3)
    try:
        until(lambda: len(whole(tmp_path / "sets")) >= 3 or child.poll() is not None, "three models")
        assert child.poll() is None, (tmp_path / "stderr").read_text()
        assert len(alive(child.pid)) >= 3  # the parent and its workers
        if how == "Ctrl-C":
            os.killpg(child.pid, signal.SIGINT)  # as a terminal does, to all of them
        else:
            child.kill()
        child.wait(60)
        until(lambda: not alive(child.pid), "the workers' end", 30.0)
    finally:
        for left in alive(child.pid):
            os.kill(left, signal.SIGKILL)
        child.wait()
    assert child.returncode == (-signal.SIGKILL if how == "kill -9" else -signal.SIGINT)
    if how == "Ctrl-C":  # one traceback, the parent's
        assert (tmp_path / "stderr").read_text().count("Traceback") == 1
    (folder,) = (tmp_path / "sets").glob("shadow-set-*")
    kept = {index: time for index, time in times(folder).items() if index in whole(tmp_path / "sets")}
    assert 3 <= len(kept) < COUNT
    again = shadows(make_task(), tmp_path / "run", tmp_path / "sets", Slow(seconds=0.0), workers=1)
    assert again.path == folder
    assert kept.items() <= times(folder).items()
    assert bits(again) == expected
    assert not list(folder.glob(".*"))


@pytest.mark.slow
def test_two_processes_build_one_set(tmp_path):
    """Each with a signal of its own: both are kept, of every model."""
    train(make_task(), seed=1, out=tmp_path / "run")
    run, sets = tmp_path / "run", tmp_path / "sets"
    child = start(tmp_path, "child", 1, 0.05)
    try:
        until(lambda: any(sets.glob("*/*.entry")) or child.poll() is not None, "the first model")
        shadows(make_task(), run, sets, Slow("parent", seconds=0.05), workers=1)
        assert child.wait(120) == 0, (tmp_path / "stderr").read_text()
    finally:
        child.kill()
        child.wait()
    (folder,) = sets.glob("shadow-set-*")
    before = times(folder)
    rows = [bits(shadows(make_task(), run, sets, Outputs(key=key), workers=1)) for key in ("child", "parent")]
    assert times(folder) == before
    assert rows[0] == rows[1] and len(rows[0]) == COUNT
