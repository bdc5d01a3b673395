"""Traces that are read where they lie: memory, a web server, and S3 where s3fs is installed."""

from __future__ import annotations

import importlib.util
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fsspec", reason="pip install fsspec, which comes with PyTorch")
pytest.importorskip("aiohttp", reason="fsspec needs it for http://")

import fsspec

from gmip._extras import MissingExtra
from gmip.errors import FileError, InvalidArgument, TraceError
from gmip.trace import Trace, TraceWriter
from gmip.trace._remote import RemotePath, as_path
from tests.unit.trace.build import FINAL, MEMBERS, D, assert_steps, header, record, vectors, write_steps
from tests.unit.trace.storage import NOWHERE, Storage, serving

STEPS = 7
pytestmark = [
    pytest.mark.usefixtures("three_rows"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # sessions of fsspec
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    with serving(tmp_path) as one:
        monkeypatch.setitem(fsspec.config.conf, "s3", {"anon": True, "endpoint_url": one.url})
        yield one


@pytest.fixture(params=["file", "memory", "http", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, storage: Storage) -> Any:
    """Where the folder `bucket`/run of this machine is found."""

    def url() -> str:
        if request.param == "memory":
            fsspec.filesystem("memory").put(str(tmp_path / "bucket"), f"/{tmp_path.name}", recursive=True)
            return f"memory://{tmp_path.name}/run"
        if request.param == "s3" and importlib.util.find_spec("s3fs") is None:
            pytest.skip("s3fs is not installed: its botocore wants another python-dateutil than constraints.txt has")
        return {"file": f"file://{tmp_path}/bucket", "http": f"{storage.url}/bucket", "s3": "s3://bucket"}[
            request.param
        ] + "/run"

    yield url
    forget()


def forget() -> None:
    """What fsspec keeps in memory."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def test_a_trace_elsewhere_is_that_of_this_machine(tmp_path: Path, place: Any) -> None:
    here = record(tmp_path / "bucket" / "run", STEPS, every=2)
    url = place()
    there = Trace.open(url)
    assert_steps(there, STEPS, every=2)
    there.verify()
    assert there.fingerprint == here.fingerprint and there.path.name == "run" and "run" in there._repr_html_()
    np.testing.assert_array_equal(there.members, MEMBERS)
    final = there.final_arrays()
    assert final is not None and final.keys() == FINAL.keys()
    assert str(there.path) == (str(here.path) if url.startswith("file") else url)
    with pytest.raises(ValueError, match="read-only"):
        there[0].gradient[0] = 1.0


def test_an_open_trace_and_the_ids_of_its_batches(tmp_path: Path, place: Any, storage: Storage) -> None:
    """An open one has room for rows to come, and rows that are checked at once."""
    writer = TraceWriter.create(tmp_path / "bucket" / "run", header(), members=MEMBERS)
    for index in range(4):
        writer.row()[:] = vectors(index)
        writer.commit(batch_size=2, ids=[index, index + 1])
    writer.abandon()
    there = Trace.open(place())
    assert not there.complete and len(there) == 4
    storage.asked.clear()
    assert [ids.tolist() for i in range(4) if (ids := there.batch_ids(i)) is not None] == [[i, i + 1] for i in range(4)]
    assert len(storage.asked) <= 1  # the ids of all batches at once
    np.testing.assert_array_equal(there[3].parameters, vectors(3)[0])


@pytest.mark.parametrize("name", ["trace.json", "steps.jsonl", "shard-00001.safetensors", "final.safetensors"])
def test_broken_bytes(tmp_path: Path, place: Any, name: str) -> None:
    folder = tmp_path / "bucket" / "run"
    record(folder, STEPS)
    data = bytearray((folder / name).read_bytes())
    for bad in (data[:-1] + bytes([data[-1] ^ 1]), data[:-1], data + b"0"):
        (folder / name).write_bytes(bad)
        with pytest.raises(TraceError, match=rf"{re.escape(name)} (is damaged|does not describe)") as caught:
            Trace.open(place()).verify()
        assert "\n" not in str(caught.value)


def test_only_what_is_asked_for_is_read_and_once(tmp_path: Path, storage: Storage) -> None:
    record(tmp_path / "bucket" / "run", STEPS)
    trace = Trace.open(f"{storage.url}/bucket/run")
    assert not [key for key, _, _ in storage.asked if "shard" in key]  # opening reads no rows
    steps = list(trace)
    storage.asked.clear()
    for _ in range(2):
        np.testing.assert_array_equal(steps[4].parameters, vectors(4)[0])
        np.testing.assert_array_equal(steps[4].gradient, vectors(4)[1])
    rows = [(key, first, sent) for key, first, sent in storage.asked if sent != 128]
    assert rows == [("run/shard-00001.safetensors", 128 + 2 * D * 4, 2 * D * 4)] and len(storage.asked) == 2


def test_a_step_travels_as_its_place_where_others_find_it(tmp_path: Path, storage: Storage) -> None:
    folder = tmp_path / "bucket" / "run"
    here = record(folder, STEPS)
    fsspec.filesystem("memory").put(str(folder), "/travel", recursive=True)
    storage.asked.clear()
    for url, bytes_moved in ((f"{storage.url}/bucket/run", True), ("memory://travel", False), (str(folder), False)):
        trace = Trace.open(url)
        storage.asked.clear()
        content = pickle.dumps(list(trace))
        assert not storage.asked and all((vectors(i)[0].tobytes() in content) is not bytes_moved for i in range(STEPS))
        for step, mine in zip(pickle.loads(content), here, strict=True):
            assert step.info == mine.info
            np.testing.assert_array_equal(step.parameters, mine.parameters)
            np.testing.assert_array_equal(step.gradient, mine.gradient)
        assert bool(storage.asked) is bytes_moved
    step = pickle.loads(pickle.dumps(Trace.open(f"{storage.url}/bucket/run")[2]))
    shard = folder / "shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(TraceError, match="row 2 is not what was written"):
        _ = step.gradient


def test_a_list_of_all_steps_holds_no_file_open(tmp_path: Path) -> None:
    """A map of each of 40 shards would be a descriptor for each."""
    record(tmp_path, 120)
    open_files = Path("/proc/self/fd")
    if not open_files.exists():
        pytest.skip("this system does not list open files")
    trace = Trace.open(tmp_path)
    before = len(list(open_files.iterdir()))
    steps = [step for step in trace if step.gradient.size]
    assert len(steps) == 120 and len(list(open_files.iterdir())) <= before + 2


def test_nothing_is_there(tmp_path: Path, place: Any) -> None:
    record(tmp_path / "bucket" / "run", 1)
    url = place()
    for wrong in (url.replace("run", "walk"), url.replace("bucket", "bin").replace(tmp_path.name, "bin")):
        with pytest.raises(TraceError, match=r"holds no trace \(trace.json is missing\): check the path"):
            Trace.open(wrong)
    (tmp_path / "bucket" / "run" / "steps.jsonl").unlink()
    forget()
    with pytest.raises(TraceError, match=r"steps.jsonl is missing"):
        Trace.open(place())


def test_the_connection_is_lost(tmp_path: Path, storage: Storage) -> None:
    record(tmp_path / "bucket" / "run", STEPS)
    trace = Trace.open(f"{storage.url}/bucket/run")
    _ = trace[0].gradient
    storage.left = 0
    with pytest.raises(FileError, match=r"shard-00001.safetensors cannot be read \(.+\): check the address, the conn"):
        _ = trace[3].gradient
    with pytest.raises(FileError, match=r"trace.json cannot be read \(.+\): check"):
        Trace.open(f"{NOWHERE}/bucket/run")
    storage.left = None
    np.testing.assert_array_equal(trace[3].gradient, vectors(3)[1])  # and found again


def test_a_server_without_range_requests(tmp_path: Path, storage: Storage) -> None:
    record(tmp_path / "bucket" / "run", STEPS)
    storage.ranges = False
    with pytest.raises(FileError, match=r"shard-00000.safetensors cannot be read in parts: .* not answer range req"):
        _ = Trace.open(f"{storage.url}/bucket/run")[0].gradient


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothing://bucket/run", "cannot be read .*not known.*nothing"),
        ("gs://bucket/run", r"cannot be read \(.*gcsfs"),
        ("https://user:secret@example.org/run", "holds a password, and reports show addresses"),
    ],
)
def test_addresses_that_cannot_be_read(url: str, message: str) -> None:
    with pytest.raises((FileError, InvalidArgument), match=message) as caught:
        Trace.open(url)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_s3_without_s3fs() -> None:
    with pytest.raises(MissingExtra, match=r"^s3://bucket/run needs s3fs, .*: pip install 'gmip\[s3\]'\.$"):
        Trace.open("s3://bucket/run")


def test_runs_are_recorded_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for write in (lambda: TraceWriter.create("s3://bucket/run", header()), lambda: TraceWriter.resume("s3://b/run")):
        with pytest.raises(InvalidArgument, match=r"recorded on this machine, not to s3://b.*copy it there"):
            write()
    assert not list(tmp_path.iterdir())
    write_steps(writer := TraceWriter.create(f"file://{tmp_path}/run", header()), 2)
    writer.close()
    assert len(Trace.open(tmp_path / "run")) == 2


def test_what_is_an_address() -> None:
    for text in ("s3://bucket/run", "memory://run", "simplecache::s3://bucket/run"):
        assert isinstance(as_path(text), RemotePath) and str(as_path(text) / "a") == f"{text}/a"
    for path in ("runs/a", "C:/runs", r"C:\runs", "/a:b/c", "file:///a"):
        assert isinstance(as_path(path), Path)
