"""Shadow models and whole audits on real clusters of this machine: the bits of local work, also when a worker is
killed or the scheduler is another one.

Each cluster is of processes of its own, on ports that the system chooses, and is ended with the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra gmip[train]")

from gmip.attacks.attack import parties
from gmip.attacks.gradients import PerExampleGradients
from gmip.attacks.shadow import Shadows, shadow_set
from gmip.attacks.step_vectors import StripWork, gram, strip_runner
from gmip.parallel import Workers
from gmip.tasks import load
from gmip.trace import Trace
from gmip.training import train
from tests.unit.attacks.shadow.helpers import Outputs, Troubled, bits, load_own_task, times
from tests.unit.attacks.test_strips import examples, model
from tests.unit.trace.storage import serving

pytestmark = pytest.mark.slow
COUNT = 6
ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join([str(ROOT), *map(str, sys.path)])


@pytest.fixture
def shadows(tmp_path):
    """Shadow models of a task of the user's own, whose file no worker can import."""
    task = load_own_task(tmp_path)
    train(task, seed=1, out=tmp_path / "run")
    trace = Trace.open(tmp_path / "run")
    who = parties(task, trace, None, None)

    def call(name: str, signal: Any, **settings: Any) -> list[Any]:
        given = Shadows(count=COUNT, folder=tmp_path / name, **settings)
        return bits(shadow_set(task, trace, who.ids, who.background, (signal,), given))

    return call


@contextlib.contextmanager
def started(log: Path, *argv: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, which is ended with all that it started."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *argv],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS, **environment},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(found: Callable[[], Any], process: subprocess.Popen[bytes], log: Path, seconds: float = 120.0) -> Any:
    begin = time.monotonic()
    while not (answer := found()):
        assert process.poll() is None and time.monotonic() - begin < seconds, log.read_text()
        time.sleep(0.1)
    return answer


def shared_products(workers: Workers) -> np.ndarray:
    """Inner products of gradients, which glir and decode have computed by workers."""
    gradients, sets = PerExampleGradients(model()), [examples(600, 1)]
    with strip_runner(StripWork(gradients, tuple(sets)), workers) as runner:
        assert runner is not None
        return gram(gradients, sets, runner=runner)


@pytest.mark.filterwarnings("ignore:Computed again")  # by us, or by Dask itself: it depends on the moment
def test_dask(tmp_path, shadows):
    distributed = pytest.importorskip("distributed", reason="the extra gmip[dask] is not installed")
    where, log = tmp_path / "scheduler.json", tmp_path / "scheduler.log"
    scheduler = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(where)]
    worker = ["--scheduler-file", str(where), "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(started(log, "distributed.cli.dask_scheduler", *scheduler))
        workers = [
            stack.enter_context(
                started(
                    tmp_path / f"worker-{number}.log",
                    "distributed.cli.dask_worker",
                    *worker,
                    "--local-directory",
                    str(tmp_path / "dask"),
                )
            )
            for number in range(2)
        ]
        expected = shadows("local", Outputs(), workers=1)
        until(where.exists, head, log)
        address = json.loads(where.read_text())["address"]
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
            assert shadows("dask", Outputs(), backend="dask", scheduler_address=address) == expected
            who_did = client.run(lambda: "gmip.parallel.worker" in sys.modules)
            assert list(who_did.values()) == [True, True]  # both workers took part
            assert client.run_on_scheduler(lambda: "torch" in sys.modules) is False
        here, there = (
            shared_products(where) for where in (Workers(workers=1), Workers(backend="dask", scheduler_address=address))
        )
        np.testing.assert_array_equal(here, there)
        troubled = Troubled(folder=str(tmp_path), after=3)
        assert shadows("killed", troubled, backend="dask", scheduler_address=address) == expected
        assert (tmp_path / "trouble-0").exists()
        assert sorted(process.poll() is None for process in workers) == [False, True]


# In a process of its own: clients of Dask share threads with whatever ran in this one before.
TLS_SCRIPT = """
import sys
import dask
import numpy as np
from gmip.errors import InvalidArgument
from gmip.parallel import Workers
from gmip.tasks import load
from tests.e2e.test_clusters import shared_products

address, certificate, key = sys.argv[1:]
there = Workers(backend="dask", scheduler_address=address)
try:
    shared_products(there)
except InvalidArgument as error:
    assert "does not answer as a Dask scheduler" in str(error)
    print("refused")
client = {"cert": certificate, "key": key}
with dask.config.set({"distributed.comm.tls.ca-file": certificate, "distributed.comm.tls.client": client}):
    np.testing.assert_array_equal(shared_products(there), shared_products(Workers(workers=1)))
print("equal")
"""


def test_dask_by_tls(tmp_path):
    """Who has no certificate of the cluster's own authority computes nothing there, and is told so."""
    pytest.importorskip("dask", reason="the extra gmip[dask] is not installed")
    openssl = shutil.which("openssl") or pytest.skip("openssl is not installed")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=gmip"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    files = ["--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key]
    where, log = tmp_path / "scheduler.json", tmp_path / "scheduler.log"
    scheduler = ["--host", "127.0.0.1", "--port", "0", "--protocol", "tls", "--no-dashboard", *files]
    worker = ["--scheduler-file", str(where), "--nthreads", "1", "--no-nanny", "--no-dashboard", *files]
    with contextlib.ExitStack() as stack:
        argv = ["distributed.cli.dask_scheduler", *scheduler, "--scheduler-file", str(where)]
        head = stack.enter_context(started(log, *argv))
        until(where.exists, head, log)
        address = json.loads(where.read_text())["address"]
        assert address.startswith("tls://127.0.0.1:")
        argv = ["distributed.cli.dask_worker", *worker, "--local-directory", str(tmp_path / "dask")]
        stack.enter_context(started(tmp_path / "worker.log", *argv))
        found = subprocess.run(
            [sys.executable, "-c", TLS_SCRIPT, address, certificate, key],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert found.returncode == 0 and found.stdout.split() == ["refused", "equal"], found.stderr


# Ray takes its settings from the environment when it is imported, and changes how a process handles signals.
RAY_SCRIPT = """
import sys
from pathlib import Path
from gmip.attacks.attack import parties
from gmip.attacks.shadow import Shadows, shadow_set
from gmip.trace import Trace
from tests.unit.attacks.shadow.helpers import Troubled, load_own_task

if __name__ == "__main__":
    folder, address = Path(sys.argv[1]), sys.argv[2]
    task, trace = load_own_task(folder), Trace.open(folder / "run")
    who = parties(task, trace, None, None)
    settings = Shadows(count=6, folder=folder / "ray", backend="ray", scheduler_address=address)
    shadow_set(task, trace, who.ids, who.background, (Troubled(folder=str(folder), after=3),), settings)
"""


@contextlib.contextmanager
def ray_cluster(folder: Path, **environment: str) -> Iterator[tuple[str, dict[str, str]]]:
    """A cluster of two workers: its address, and the environment of those who may use it."""
    # A token, so that nobody else can use the cluster.
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    log = folder / "ray.log"
    settings = ["--port=0", "--num-cpus=2", "--include-dashboard=false", "--object-store-memory=100000000"]
    with contextlib.ExitStack() as stack:
        # The paths of sockets must be short, so not in tmp_path.
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True))
        argv = ["ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={place}", *settings]
        head = stack.enter_context(started(log, *argv, **environment))
        yield until(lambda: re.search(r"--address='([^']+)'", log.read_text()), head, log)[1], environment


def test_ray(tmp_path, shadows):
    pytest.importorskip("ray", reason="the extra gmip[ray] is not installed")
    with ray_cluster(tmp_path) as (address, environment):
        expected = shadows("local", Outputs(), workers=1)
        client = subprocess.run(
            [sys.executable, "-c", RAY_SCRIPT, str(tmp_path), address],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS, **environment},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    assert client.returncode == 0, client.stderr
    assert (tmp_path / "trouble-0").exists()
    assert re.search(r"Computed again: shadow model \d: its worker died \(WorkerCrashedError\)", client.stderr)
    written = times(next((tmp_path / "ray").glob("shadow-set-*")))
    assert shadows("ray", Outputs(), workers=1) == expected
    assert times(next((tmp_path / "ray").glob("shadow-set-*"))) == written  # nothing was trained here


RAY_ALONE = """
import psutil
from gmip.parallel import Workers, pools
from tests.unit.parallel.works import Draws

if __name__ == "__main__":
    with pools.open_pool(Draws(), Workers(backend="ray"), 1) as pool:
        pool.submit(1).result()
        us = psutil.Process()
        for one in (us, *us.children(recursive=True)):
            for connection in one.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    print(connection.laddr.ip.removeprefix("::ffff:"))
"""


def test_ray_that_gmip_starts_is_for_this_machine_alone():
    pytest.importorskip("ray", reason="the extra gmip[ray] is not installed")
    pytest.importorskip("psutil", reason="pip install psutil")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", RAY_ALONE],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": PATHS, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"127.0.0.1"}


# -- whole audits -----------------------------------------------------------------------------------------------------


# A task whose loss and model tell, by files beside the run, what workers do: each piece of GLiR and decoding calls the
# loss, and each worker makes the model from the parcel. Where the file `kill` is, a worker ends itself in the middle.
AUDITED = """
import os, signal, time
from pathlib import Path
import torch
from torch import nn
from gmip import Recipe, Task
from gmip.tasks import Examples

FOLDER, WORKER = {folder!r}, "GMIP_TEST_WORKER"

def said(what):
    (Path(FOLDER) / f"{{what}}-{{os.getpid()}}-{{time.monotonic_ns()}}").touch()

def arrived():
    said("parcel")
    return Marked()

class Marked:
    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return arrived, ()

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 3))
        self.mark = Marked()

def loss(outputs, targets):
    if WORKER in os.environ:
        said("call")
        time.sleep(float(os.environ[WORKER]))
        if sum(1 for _ in Path(FOLDER).glob("call-*")) > 5 and (Path(FOLDER) / "kill").exists():
            (Path(FOLDER) / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    return nn.functional.cross_entropy(outputs, targets, reduction="none")

def make_task():
    draw = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    data = Examples(torch.randn(400, 24, generator=draw), torch.randint(0, 3, (400,), generator=draw))
    recipe = Recipe(dataset_size=40, batch_size=10, num_steps=12, learning_rate=0.1, sampling="shuffled")
    return Task(name="mine", make_model=Net, pool=data[:380], test=data[380:], recipe=recipe, loss=loss)
"""

# Pieces that last for milliseconds are shared, too.
CLI = """
import sys
from gmip.attacks import step_vectors
from gmip.cli import main
step_vectors._WORTH = 0.0
sys.exit(main())
"""


CALLS = 16  # of the loss, by the workers of one audit


class Audits:
    """`gmip audit` of one recorded run, in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.task, self.url = folder, folder / "audited.py", str(folder / "bucket" / "run")
        self.task.write_text(AUDITED.format(folder=str(folder)))
        train(load(f"{self.task}:make_task"), seed=1, out=self.url)

    def begin(self, out: str, workers: str, **environment: str) -> subprocess.Popen[str]:
        asked = ["audit", f"{self.task}:make_task", "--run", self.url, "--attacks", "glir,decode", "--seed", "1"]
        return subprocess.Popen(
            [sys.executable, "-c", CLI, *asked, "--budget", "none", "--workers", workers, "--out", self.folder / out],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATHS, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, out: str, workers: str, **environment: str) -> tuple[Any, str]:
        """What the attacks found, without the time they took; and what they noted."""
        with self.begin(out, workers, **environment) as process:
            said = process.communicate(timeout=900)[1]
        assert process.returncode == 0, said
        (run,) = json.loads((self.folder / out / "result.json").read_text())["runs"]
        attacks, notes = run["attacks"], " ".join(note for one in run["attacks"] for note in one["notes"])
        assert [one["attack"] for one in attacks] == ["glir", "decode"]
        return [{name: one[name] for name in one.keys() - {"seconds", "notes"}} for one in attacks], notes

    def told(self, what: str) -> list[int]:
        """The processes that said so, once for each time."""
        return [int(path.name.split("-")[1]) for path in self.folder.glob(f"{what}-*")]

    def forget(self) -> None:
        for what in ("call", "parcel"):
            for path in self.folder.glob(f"{what}-*"):
                path.unlink()


@contextlib.contextmanager
def dask_cluster(folder: Path, name: str, *, slow: float = 0.0) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers: its address, and the three processes."""
    where, log = folder / f"{name}.json", folder / f"{name}.log"
    quiet = ["--no-dashboard", "--scheduler-file", str(where)]
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *quiet]
    worker = ["distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *quiet]
    with contextlib.ExitStack() as stack:
        head = stack.enter_context(started(log, *scheduler))
        until(where.exists, head, log)
        ours = [head]
        for number in range(2):
            place = ["--local-directory", str(folder / f"{name}-{number}")]
            log = folder / f"{name}-{number}.log"
            ours.append(stack.enter_context(started(log, *worker, *place, GMIP_TEST_WORKER=str(slow))))
            until(lambda log=log: "Registered to" in log.read_text(), ours[-1], log)  # type: ignore[misc]
        yield json.loads(where.read_text())["address"].replace("tcp://", "dask://"), ours


def test_an_audit_on_dask_from_object_storage(tmp_path):
    """What two workers find is what one process finds, also when one of them dies; and each is told all once."""
    pytest.importorskip("distributed", reason="the extra gmip[dask] is not installed")
    audits = Audits(tmp_path)
    with serving(tmp_path) as storage, dask_cluster(tmp_path, "one") as (address, (_, *workers)):
        expected, _ = audits("local", "1")
        audits.url = f"{storage.url}/bucket/run"
        audits.forget()
        found, _ = audits("there", address)
        assert found == expected
        both = {worker.pid for worker in workers}
        assert set(audits.told("call")) == both and len(audits.told("call")) == CALLS  # both took part
        assert max(Counter(audits.told("parcel")).values()) <= 2  # one parcel for each attack, whatever the pieces
        rows = [key for key, _, sent in storage.asked if "shard" in key and sent > 128]
        assert len(rows) > 12 and len(rows) <= 3 * 12  # the audit each of twelve, the workers those of their jobs
        (tmp_path / "kill").touch()
        found, _ = audits("killed", address)
        assert found == expected
        assert sorted(worker.poll() is None for worker in workers) == [False, True]


def test_an_audit_goes_on_with_another_scheduler(tmp_path):
    """The first one is gone in the middle: one sentence; what was finished with it is not computed again."""
    pytest.importorskip("distributed", reason="the extra gmip[dask] is not installed")
    audits = Audits(tmp_path)
    expected, _ = audits("local", "1")
    with (
        dask_cluster(tmp_path, "first", slow=0.1) as (address, (scheduler, *_)),
        audits.begin("run", address) as process,
    ):
        until(lambda: len(audits.told("call")) > 12, scheduler, tmp_path / "first.log")
        scheduler.kill()
        said = process.communicate(timeout=900)[1]
    assert process.returncode == 2 and "finished work is kept" in " ".join(said.split()), said
    before = len(audits.told("call"))
    audits.forget()
    with dask_cluster(tmp_path, "second") as (address, _):
        found, _ = audits("run", address)
    assert found == expected
    assert before > 12 and len(audits.told("call")) < CALLS


def test_an_audit_on_ray(tmp_path):
    pytest.importorskip("ray", reason="the extra gmip[ray] is not installed")
    audits = Audits(tmp_path)
    expected, _ = audits("local", "1")
    (tmp_path / "kill").touch()
    with ray_cluster(tmp_path, GMIP_TEST_WORKER="0.0") as (address, environment):
        del environment["GMIP_TEST_WORKER"]
        found, _ = audits("ray", "ray://auto", RAY_ADDRESS=address, **environment)
    assert found == expected
    assert not (tmp_path / "kill").exists()  # a worker died
    assert len(set(audits.told("call"))) >= 2
