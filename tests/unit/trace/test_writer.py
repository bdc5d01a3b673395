"""TraceWriter: what it puts on disk, what it refuses, what it survives."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import xxhash
from safetensors.numpy import load_file

from gmip.errors import FileError, InvalidArgument, TraceError
from gmip.trace import ParameterSpec, Trace, TraceWriter, _shards
from gmip.trace import writer as writing
from tests.unit.trace.build import FINAL, MEMBERS, NON_MEMBERS, D, assert_steps, header, record, vectors, write_steps


def test_round_trip(tmp_path: Path) -> None:
    trace = record(tmp_path / "new" / "run", 7, clip_norm=2.0, fingerprints={"train": "ab"}, notes={"seed": 1})
    assert trace.complete
    assert trace.header == header(clip_norm=2.0, fingerprints={"train": "ab"})
    assert trace.header.notes == {"seed": 1}
    assert trace.path == tmp_path / "new" / "run"
    assert_steps(trace, 7)
    assert trace.members is not None and trace.non_members is not None
    assert trace.members.tolist() == MEMBERS.tolist() and trace.non_members.tolist() == NON_MEMBERS.tolist()
    final = trace.final_arrays()
    assert final is not None and final.keys() == FINAL.keys()
    for name, array in FINAL.items():
        assert final[name].dtype == array.dtype and final[name].shape == array.shape
        np.testing.assert_array_equal(final[name], array)
    trace.verify()


def test_float64(tmp_path: Path) -> None:
    trace = record(tmp_path, 4, dtype="float64")
    assert trace[0].gradient.dtype == np.float64
    assert_steps(trace, 4)


@pytest.mark.usefixtures("three_rows")
def test_every_third_across_shards(tmp_path: Path) -> None:
    trace = record(tmp_path, 20, every=3)
    assert len(trace) == 7 and trace.num_steps == 20
    assert_steps(trace, 20, every=3)
    assert len(list(tmp_path.glob("shard-*"))) == 3


def test_no_steps_no_membership_no_final_state(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        writer.row()  # begun, never committed
    trace = Trace.open(tmp_path)
    assert trace.complete and len(trace) == trace.num_steps == 0
    assert trace.members is None and trace.non_members is None and trace.final_arrays() is None
    assert trace.runs() == () and list(trace) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["steps.jsonl", "trace.json"]
    trace.verify()


def test_only_members(tmp_path: Path) -> None:
    TraceWriter.create(tmp_path, header(), members=[3, 1], non_members=[]).close()
    trace = Trace.open(tmp_path)
    assert trace.members is not None and trace.members.tolist() == [3, 1] and trace.members.dtype == np.int64
    assert trace.non_members is not None and trace.non_members.size == 0


@pytest.mark.usefixtures("three_rows")
def test_the_format_as_documented(tmp_path: Path) -> None:
    """Recomputes every checksum of docs/trace-format.md from the raw files, without the package's own reader."""
    record(tmp_path, 8, every=2)
    content = json.loads((tmp_path / "trace.json").read_text())
    assert (content["format"], content["version"], content["status"]) == ("gmip-trace", 3, "complete")
    checksum = content.pop("checksum")
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert checksum == hashlib.sha256(canonical.encode()).hexdigest()
    for name in ("membership.safetensors", "final.safetensors"):
        assert content["files"][name] == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
    assert load_file(tmp_path / "membership.safetensors")["members"].tolist() == MEMBERS.tolist()
    chain, recorded = content["id"], 0
    lines = (tmp_path / "steps.jsonl").read_text().splitlines()
    for index, line in enumerate(lines):
        fields = json.loads(line)
        body = line.removesuffix(f',"chain":"{fields["chain"]}"}}') + "}"
        chain = hashlib.sha256((chain + body).encode()).hexdigest()[:16]
        assert fields["chain"] == chain and fields["index"] == index
        if fields["recorded"]:
            assert (fields["shard"], fields["row"]) == divmod(recorded, content["rows_per_shard"])
            steps = load_file(tmp_path / f"shard-{fields['shard']:05d}.safetensors")["steps"]
            assert fields["xxh3"] == xxhash.xxh3_128_hexdigest(steps[fields["row"]].tobytes())
            np.testing.assert_array_equal(steps[fields["row"]], np.stack(vectors(index)))
            recorded += 1
    assert (recorded, content["num_steps"], content["chain"]) == (4, 8, chain)


@pytest.mark.usefixtures("three_rows")
def test_shards_are_safetensors_at_every_moment(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        for count in range(1, 6):
            write_steps(writer, 1)
            found = [load_file(path)["steps"] for path in sorted(tmp_path.glob("shard-*"))]
            assert all(steps.shape == (3, 2, D) for steps in found)  # room for rows to come
            np.testing.assert_array_equal(np.concatenate(found)[count - 1], np.stack(vectors(count - 1)))
    sizes = [load_file(path)["steps"].shape[0] for path in sorted(tmp_path.glob("shard-*"))]
    assert sizes == [3, 2]  # the last one cut to its rows
    for path in tmp_path.glob("shard-*"):
        with safetensors.safe_open(path, "numpy") as file:
            assert list(file.keys()) == ["steps"]
        assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % 64 == 0


def test_shards_hold_about_32_mib() -> None:
    for size, dtype, rows in (
        (5, "float32", 4096),
        (2**20, "float32", 4),
        (2**20, "float64", 2),
        (10**9, "float32", 1),
    ):
        big = header(parameters=(ParameterSpec("w", (size,)),), num_params=size, dtype=dtype)
        assert _shards.rows_per_shard(big) == rows


def test_what_is_read_can_go_on(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        write_steps(writer, 3)
        trace = Trace.open(tmp_path)
        assert not trace.complete
        assert_steps(trace, 3)
        write_steps(writer, 2)
        assert_steps(trace, 3)
        assert_steps(Trace.open(tmp_path), 5)


def test_divisor(tmp_path: Path) -> None:
    for sampling, expected in [("fixed", [7.0, 64.0]), ("poisson", [10.0, 64.0])]:
        with TraceWriter.create(tmp_path / sampling, header(sampling=sampling)) as writer:
            writer.commit(recorded=False, batch_size=7)
            writer.commit(recorded=False, batch_size=7, divisor=64)
        assert [info.divisor for info in Trace.open(tmp_path / sampling).infos] == expected


def test_an_empty_batch_is_for_poisson_only(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path / "a", header(sampling="poisson")) as writer:
        writer.commit(recorded=False, batch_size=0)
        writer.commit(recorded=False, batch_size=25)
    assert [info.batch_size for info in Trace.open(tmp_path / "a").infos] == [0, 25]
    with TraceWriter.create(tmp_path / "b", header()) as writer, pytest.raises(InvalidArgument, match="batch_size = 0"):
        writer.commit(recorded=False, batch_size=0)


@pytest.mark.parametrize(
    "bad",
    [
        {"batch_size": -1},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"batch_size": 3, "divisor": 0.0},
        {"batch_size": 3, "divisor": math.inf},
        {"batch_size": 3, "noise_std": -0.1},
        {"batch_size": 3, "noise_std": math.nan},
        {"batch_size": 3, "noise_std": math.inf},
        {"batch_size": 3, "clip_factor": 0.0},
        {"batch_size": 3, "clip_factor": 1.5},
        {"batch_size": 3, "clip_factor": "1"},
        {"batch_size": 3, "precision": "float32"},
        {"batch_size": 3, "ids": [0, -1]},
        {"batch_size": 3, "ids": [0.0]},
        {"batch_size": 3, "ids": [True]},
        {"batch_size": 3, "ids": [[1]]},
    ],
)
def test_a_refused_step_changes_nothing(tmp_path: Path, bad: dict[str, Any]) -> None:
    name = next(reversed(bad))
    with TraceWriter.create(tmp_path, header()) as writer:
        parameters, gradient = writer.row()
        parameters[:], gradient[:] = vectors(0)
        for method in (writer.commit, partial(writer.commit, recorded=False)):
            with pytest.raises(InvalidArgument, match=name):
                method(**bad)
        writer.commit(batch_size=10)
    assert_steps(Trace.open(tmp_path), 1)


@pytest.mark.parametrize(
    ("members", "non_members", "message"),
    [
        ([[1, 2]], None, r"members must be .* shape \(1, 2\)"),
        ([1.0, 2.0], None, "members must be"),
        ([[True, False]], None, "integers"),
        ([1, -2], None, "-2"),
        (np.array([2**63], dtype=np.uint64), None, str(2**63)),
        ([1, 3, 3], None, "3 more than once"),
        ([1, 2], [5, 5], "non_members holds the index 5"),
        ([1, 2], [3, 2], "share 1 indices, the first is 2"),
    ],
)
def test_refuses_membership(tmp_path: Path, members: Any, non_members: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        TraceWriter.create(tmp_path / "run", header(), members=members, non_members=non_members)
    assert not (tmp_path / "run").exists()


def test_refuses_what_is_no_header(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="header"):
        TraceWriter.create(tmp_path, {"batch_size": 3})


@pytest.mark.parametrize(
    "state", [{"w": [1.0]}, {3: np.zeros(2)}, [np.zeros(2)], {"w": np.array(["a"])}, {"w": np.array([None])}]
)
def test_a_refused_final_state_leaves_the_writer_open(tmp_path: Path, state: Any) -> None:
    writer = TraceWriter.create(tmp_path, header())
    write_steps(writer, 2)
    with pytest.raises(InvalidArgument, match="final_state"):
        writer.close(state)
    write_steps(writer, 1)
    writer.close({"w": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "none": np.zeros((0, 2)), "on": np.array(True)})
    trace = Trace.open(tmp_path)
    assert_steps(trace, 3)
    final = trace.final_arrays()
    assert final is not None and final["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert final["none"].shape == (0, 2) and final["on"].shape == () and bool(final["on"])


def test_refuses_a_folder_that_holds_a_trace(tmp_path: Path) -> None:
    record(tmp_path, 3)
    with pytest.raises(TraceError, match="choose another path, or resume"):
        TraceWriter.create(tmp_path, header())
    assert_steps(Trace.open(tmp_path), 3)
    (tmp_path / "steps.jsonl").unlink()
    with pytest.raises(TraceError, match="already holds a trace"):
        TraceWriter.create(tmp_path, header())
    assert not (tmp_path / "steps.jsonl").exists()  # damage is not mended by accident
    (tmp_path / "trace.json").unlink()
    with pytest.raises(TraceError, match="already holds a trace"):
        TraceWriter.create(tmp_path, header())


def test_refuses_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file cannot be written"):
        TraceWriter.create(tmp_path / "file", header())


def test_files_of_others_stay(tmp_path: Path) -> None:
    others = {"checkpoint.safetensors": b"x", "result.json": b"{", ".checkpoint.safetensors.tmp": b"y", "shard-1": b"z"}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    record(tmp_path, 3)
    writer = TraceWriter.resume(tmp_path, at_step=1)
    write_steps(writer, 1)
    writer.close()
    Trace.open(tmp_path).verify()
    assert {name: (tmp_path / name).read_bytes() for name in others} == others


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        write_steps(writer, 1)
        with pytest.raises(FileError, match="in use by another process"):
            TraceWriter.resume(tmp_path)
        write_steps(writer, 1)
    TraceWriter.resume(tmp_path).abandon()
    TraceWriter.resume(tmp_path).abandon()


def test_order_of_calls(tmp_path: Path) -> None:
    writer = TraceWriter.create(tmp_path, header())
    with pytest.raises(InvalidArgument, match="row"):
        writer.commit(batch_size=10)
    write_steps(writer, 1)
    with pytest.raises(InvalidArgument, match="row"):
        writer.commit(batch_size=10)
    writer.row()
    writer.commit(recorded=False, batch_size=10)
    with pytest.raises(InvalidArgument, match="row"):
        writer.commit(batch_size=10)
    writer.close()
    writer.close()
    writer.abandon()
    assert writer.num_steps == 2
    for late in (
        writer.row,
        writer.sync,
        lambda: writer.commit(recorded=False, batch_size=1),
        lambda: writer.commit(batch_size=1),
    ):
        with pytest.raises(TraceError, match="closed"):
            late()
    with pytest.raises(TraceError, match="too late"):
        writer.close(FINAL)
    assert Trace.open(tmp_path).num_steps == 2


def test_an_exception_leaves_an_open_trace(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), TraceWriter.create(tmp_path, header()) as writer:  # noqa: PT012
        write_steps(writer, 3)
        raise ZeroDivisionError
    trace = Trace.open(tmp_path)
    assert not trace.complete and trace.final_arrays() is None
    assert_steps(trace, 3)


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(params=[True, False], ids=["background", "at once"])
def background(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Rows are written by another thread, or at once."""
    monkeypatch.setattr(writing, "BACKGROUND_BYTES", 0 if request.param else 10**9)
    return bool(request.param)


@pytest.mark.usefixtures("three_rows")
def test_a_full_disk_is_an_error_and_no_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    """The step that did not fit is told by its commit, or by the call after it, and stored when there is room again."""
    with TraceWriter.create(tmp_path, header()) as writer:
        write_steps(writer, 3)
        writer.sync()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            calls = [
                lambda: write_steps(writer, 2),
                lambda: writer.commit(recorded=False, batch_size=1),
                writer.sync,
                writer.close,
            ]
            for call in calls if background else calls[:2]:
                with pytest.raises(
                    FileError, match=r"shard-00001\.safetensors cannot be written \(No space left|jsonl"
                ):
                    call()
        assert writer.num_steps == 3 + background
        found = Trace.open(tmp_path)  # another thread may have found room for the step meanwhile
        assert found.num_steps in (3, 3 + background)
        assert_steps(found, found.num_steps)
        write_steps(writer, 5 - background)
    assert_steps(Trace.open(tmp_path), 8)
    assert not list(tmp_path.glob(".*"))


def test_a_full_disk_in_an_exception_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    """The error under way is the one to tell; the trace holds what fitted."""
    with pytest.raises(ZeroDivisionError), TraceWriter.create(tmp_path, header()) as writer:  # noqa: PT012
        write_steps(writer, 2)
        if background:
            writer.sync()
            monkeypatch.setattr(os, "write", full)
            write_steps(writer, 1)
        raise ZeroDivisionError
    assert_steps(Trace.open(tmp_path), 2)


def test_half_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, background: bool) -> None:
    write = os.write
    with TraceWriter.create(tmp_path, header()) as writer:
        write_steps(writer, 2)
        writer.sync()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda file, data: write(file, data[:30] if data[:1] == b"{" else data))
            with pytest.raises(FileError, match=r"steps.jsonl cannot be written .the disk is full"):
                write_steps(writer, 2)
        found = Trace.open(tmp_path)  # another thread may have found room for the step meanwhile
        assert found.num_steps in (2, 3)
        assert_steps(found, found.num_steps)
        write_steps(writer, 4 - writer.num_steps)
    assert_steps(Trace.open(tmp_path), 4)


def test_interrupted_while_a_step_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the line was written, in a loop that ends its training so: the step is not part of the trace."""
    write = os.write

    def interrupt(file: int, data: bytes) -> int:
        written = write(file, data)
        if data[:1] == b"{":
            raise KeyboardInterrupt
        return written

    for again in (0, 2):
        path = tmp_path / str(again)
        with TraceWriter.create(path, header()) as writer:
            write_steps(writer, 2)
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    writer.commit(recorded=False, batch_size=10, ids=[1, 2, 3], clip_factor=0.5)
            write_steps(writer, again)
        Trace.open(path).verify()
        assert_steps(Trace.open(path), 2 + again)


def test_rows_are_written_while_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time: when a row is handed out, the one before is in the files; `sync` and `close` wait, too."""
    monkeypatch.setattr(writing, "BACKGROUND_BYTES", 0)
    gate, write = threading.Event(), os.write

    def slow(file: int, data: bytes) -> int:
        assert threading.current_thread() is not threading.main_thread()
        assert gate.wait(10.0)
        return write(file, data)

    with TraceWriter.create(tmp_path, header()) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", slow)
            write_steps(writer, 1)  # comes back at once
            assert writer.num_steps == 1
            assert Trace.open(tmp_path).num_steps == 0
            threading.Timer(0.05, gate.set).start()
            writer.row()
            assert_steps(Trace.open(tmp_path), 1)
        write_steps(writer, 1)
        writer.sync()
        assert_steps(Trace.open(tmp_path), 2)
        write_steps(writer, 1)
    assert_steps(Trace.open(tmp_path), 3)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gmip-trace")]


def test_a_forked_copy_writes_nothing(tmp_path: Path, background: bool) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        write_steps(writer, 2)
        child = os.fork()
        if child == 0:  # pragma: no cover, in a process that ends here
            status = 1
            try:
                with pytest.raises(TraceError, match="forked"):
                    write_steps(writer, 1)
                with pytest.raises(TraceError, match="forked"):
                    writer.close()
                writer.abandon()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(FileError, match="in use"):
            TraceWriter.resume(tmp_path)
        write_steps(writer, 1)
    assert_steps(Trace.open(tmp_path), 3)


def test_files_are_synced_every_few_seconds_or_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread; the journal says which steps are on disk, and an opened trace need not check these."""
    calls: list[int] = []
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with TraceWriter.create(tmp_path, header()) as writer:
        monkeypatch.setattr(os, "fsync", calls.append)
        write_steps(writer, 50)
        assert calls == []
        now[0] += 5.1
        write_steps(writer, 1)
        files: Any = writer._files
        files._syncing.result()
        assert len(calls) == 3  # shard, folder, journal
        write_steps(writer, 2)
        monkeypatch.setattr(writing, "SYNC_BYTES", 40 * 9)
        for _ in range(3):
            write_steps(writer, 20)
            if files._syncing is not None:
                files._syncing.result()
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    marks = {line["index"]: line["synced"] for line in lines if "synced" in line}
    assert marks[51] == 50 and all(50 <= mark <= index for index, mark in marks.items())
    assert len(marks) >= 2


def test_a_sync_that_fails_is_told_by_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with TraceWriter.create(tmp_path, header()) as writer:
        write_steps(writer, 1)
        now[0] += 5.1
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            write_steps(writer, 1)
            files: Any = writer._files
            files._syncing.exception()
        with pytest.raises(FileError, match=r"shard-00000.* cannot be written \(No space left"):
            writer.row()
        write_steps(writer, 1)
    lines = (tmp_path / "steps.jsonl").read_text()
    assert "synced" not in lines
    assert_steps(Trace.open(tmp_path), 3)


def test_a_new_shard_takes_no_room(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header()) as writer:
        write_steps(writer, 3)
        writer.sync()
        found = (tmp_path / "shard-00000.safetensors").stat()
        assert found.st_size > 150_000 and found.st_blocks * 512 < 20_000


def test_the_writer_keeps_nothing_per_step(tmp_path: Path) -> None:
    with TraceWriter.create(tmp_path, header(parameters=(ParameterSpec("w", (1,)),))) as writer:
        for _ in range(100):
            writer.row()
            writer.commit(batch_size=10)
        tracemalloc.start()
        try:
            for _ in range(2000):
                writer.row()
                writer.commit(batch_size=10)
            assert tracemalloc.get_traced_memory()[0] < 20_000
        finally:
            tracemalloc.stop()
