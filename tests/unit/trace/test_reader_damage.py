"""Damage: whatever happens to a byte of a trace, it is reported by the name of the file and never read as data."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from gmip.errors import GmipWarning, TraceError
from gmip.trace import Trace, TraceWriter
from tests.unit.trace.build import MEMBERS, assert_steps, header, record, vectors, write_steps

STEPS = 5
FILES = [
    "trace.json",
    "steps.jsonl",
    "shard-00000.safetensors",
    "shard-00001.safetensors",
    "membership.safetensors",
    "final.safetensors",
]


@pytest.fixture
def complete(tmp_path: Path, three_rows: None) -> Path:
    record(tmp_path, STEPS, notes={"name": "é", "lr": 0.1})
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(FILES)
    return tmp_path


@pytest.fixture
def interrupted(tmp_path: Path, three_rows: None) -> Path:
    writer = TraceWriter.create(tmp_path, header(), members=MEMBERS)
    write_steps(writer, STEPS)
    writer.abandon()
    return tmp_path


def damage_of(path: Path) -> str:
    """What opening and verifying says, which must be an error."""
    with pytest.raises(TraceError) as caught:
        Trace.open(path).verify()
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    return message


# -- a complete trace -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_any_truncation(complete: Path, name: str) -> None:
    data = (complete / name).read_bytes()
    ends = [match.end() for match in re.finditer(b"\n", data)] if name == "steps.jsonl" else []
    for length in {0, 1, 7, 8, 100, 128, 129, len(data) // 2, len(data) - 1, *ends} - {len(data)}:
        if length < len(data):
            (complete / name).write_bytes(data[:length])
            assert name in damage_of(complete)
    (complete / name).write_bytes(data)
    Trace.open(complete).verify()


@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit(complete: Path, name: str) -> None:
    """One bit of each byte of the small files, of every fifth byte of the larger two."""
    data = (complete / name).read_bytes()
    for position in range(0, len(data), 5 if len(data) > 500 else 1):
        altered = bytearray(data)
        altered[position] ^= 1 << (position % 8)
        (complete / name).write_bytes(altered)
        assert name in damage_of(complete), position


@pytest.mark.parametrize("name", FILES)
def test_bytes_added(complete: Path, name: str) -> None:
    with (complete / name).open("ab") as file:
        file.write(b"x")
    assert name in damage_of(complete)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("folder", [False, True])
def test_missing(complete: Path, name: str, folder: bool) -> None:
    (complete / name).unlink()
    if folder:
        (complete / name).mkdir()
    message = damage_of(complete)
    assert name in message and "missing" in message


def test_only_the_bad_row_is_refused(complete: Path) -> None:
    path = complete / "shard-00001.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    trace = Trace.open(complete)
    for index in range(STEPS - 1):
        np.testing.assert_array_equal(trace[index].gradient, vectors(index)[1])
    for _ in range(2):
        with pytest.raises(TraceError, match=r"shard-00001.safetensors is damaged \(row 1"):
            _ = trace[-1].gradient
    with pytest.raises(TraceError, match="shard-00001"):
        TraceWriter.resume(complete)


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: lines[:2] + lines[3:],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: lines[:3] + lines[2:],
        lambda lines: lines[1:],
        lambda lines: lines[:-1],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [*lines[:2], b"\n", *lines[2:]],
        lambda lines: [*lines[:2], b"not JSON\n", *lines[2:]],
        lambda lines: [*lines[:2], b"x" * 100_000 + b"\n", *lines[2:]],
        lambda lines: [],
    ],
)
def test_lines_lost_moved_or_added(complete: Path, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    path = complete / "steps.jsonl"
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))
    assert "steps.jsonl" in damage_of(complete)


def test_parts_of_another_trace(complete: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    record(other, STEPS, notes={"name": "é", "lr": 0.2}, final=False)
    for name in ("steps.jsonl", "trace.json"):
        data = (complete / name).read_bytes()
        shutil.copy(other / name, complete / name)
        assert "steps.jsonl" in damage_of(complete)
        (complete / name).write_bytes(data)
    shutil.copy(complete / "shard-00000.safetensors", complete / "shard-00001.safetensors")
    assert "shard-00001.safetensors" in damage_of(complete)


def test_a_shard_of_other_shape(complete: Path) -> None:
    """A sound safetensors file, and even as large as the right one, but not the tensor that the header names."""
    for steps in (np.zeros((3, 2, 5), np.float64), np.zeros((2, 3, 5), np.float32), np.zeros((3, 2, 5), np.int32)):
        save_file({"steps": steps}, complete / "shard-00000.safetensors")
        assert "shard-00000.safetensors" in damage_of(complete)


# -- trace.json with a sound checksum ---------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes trace.json and mends its checksum, as a forger or another tool would."""
    content = json.loads((path / "trace.json").read_text())
    del content["checksum"]
    change(content)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["checksum"] = hashlib.sha256(canonical.encode()).hexdigest()
    (path / "trace.json").write_text(json.dumps(content))


def test_another_layout_of_the_same_json_is_fine(complete: Path) -> None:
    rewrite(complete, lambda content: None)
    Trace.open(complete).verify()


@pytest.mark.parametrize(
    ("version", "message"),
    [(99, "version 99.*upgrade gmip"), (1, "version 1.*gmip that wrote it"), ("1", "damaged"), (None, "damaged")],
)
def test_other_versions(complete: Path, version: Any, message: str) -> None:
    rewrite(complete, lambda content: content.update(version=version))
    assert re.search(message, damage_of(complete))
    with pytest.raises(TraceError, match=r"trace\.json"):
        TraceWriter.resume(complete)


@pytest.mark.parametrize("text", ["", "null", "[]", '{"format": "other"}', "{}", "[" * 100_000, "\udce9", "1" * 5000])
def test_foreign_files(complete: Path, text: str) -> None:
    (complete / "trace.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert "trace.json" in damage_of(complete)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("header"),
        lambda content: content.update(header=[1]),
        lambda content: content["header"].pop("parameters"),
        lambda content: content["header"].update(parameters=3),
        lambda content: content["header"].update(parameters=[{"name": "w"}]),
        lambda content: content["header"].update(parameters=[{"name": "w", "shape": [10**30]}]),
        lambda content: content["header"].update(parameters=[{"name": "w", "shape": [5.0]}]),
        lambda content: content["header"].update(parameters=[{"name": "w", "shape": [5, True]}]),
        lambda content: content["header"]["parameters"][0].update(name="w\0/.."),
        lambda content: content["header"]["parameters"][0].update(name="\ud800"),
        lambda content: content.update(changed=["\ud800"]),
        lambda content: content["header"].update(batch_size="10"),
        lambda content: content["header"].update(unknown=1),
        lambda content: content["header"].update(recipe=[1]),
        lambda content: content["header"].update(recipe={"learning_rate": 0.1}),
        lambda content: content["header"].update(provenance={"seed": 1}),
        lambda content: content["header"]["provenance"].update(seed="3"),
        lambda content: content["header"]["provenance"]["options"].update(fix="yes"),
        lambda content: content["header"]["provenance"]["options"].update(unknown=1),
        lambda content: content["header"].update(notes=[1]),
        lambda content: content.update(status="done"),
        lambda content: content.update(status="open"),
        lambda content: content.update(rows_per_shard=0),
        lambda content: content.update(rows_per_shard=10**30),
        lambda content: content.update(rows_per_shard=3.0),
        lambda content: content.update(num_steps="5"),
        lambda content: content.update(num_steps=-1),
        lambda content: content.pop("num_steps"),
        lambda content: content.update(chain=None),
        lambda content: content.update(id=7),
        lambda content: content.update(files=["final.safetensors"]),
        lambda content: content.update(files={"../../etc/passwd": "00"}),
        lambda content: content.update(files={"final.safetensors": None}),
        lambda content: content.update(extra=1),
        lambda content: content.pop("created"),
    ],
)
def test_wrong_fields(complete: Path, change: Callable[[dict[str, Any]], object]) -> None:
    rewrite(complete, change)
    assert "trace.json is damaged" in damage_of(complete)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda content: content.update(num_steps=4), "steps.jsonl"),
        (lambda content: content.update(chain="0" * 16), "steps.jsonl"),
        (lambda content: content.update(id="other"), "steps.jsonl"),
        (lambda content: content.update(rows_per_shard=4), "steps.jsonl"),
        (lambda content: content["header"].update(dtype="float64"), "shard-00000.safetensors"),
        (lambda content: content["header"]["parameters"].pop(), "shard-00000.safetensors"),
        (lambda content: content["header"].update(num_params=10**15), None),
        (lambda content: content["files"].pop("final.safetensors"), None),
    ],
)
def test_a_header_that_does_not_fit_the_files(
    complete: Path, change: Callable[[dict[str, Any]], object], name: str | None
) -> None:
    rewrite(complete, change)
    if name is None:
        Trace.open(complete).verify()
    else:
        assert name in damage_of(complete)


def test_huge_claims_cost_nothing(complete: Path) -> None:
    spec = {"name": "w", "shape": [10**14]}
    rewrite(complete, lambda content: content["header"].update(parameters=[spec], num_params=10**14))
    assert "shard-00000.safetensors" in damage_of(complete)


@pytest.mark.parametrize(
    "arrays",
    [
        {"members": np.array([1.0])},
        {"members": np.array([-1])},
        {"members": np.array([[1]])},
        {"members": np.array([2, 2])},
        {"members": np.array([2]), "non_members": np.array([2])},
        {"members": np.array([2]), "others": np.array([3])},
    ],
)
def test_a_forged_membership(complete: Path, arrays: dict[str, np.ndarray]) -> None:
    path = complete / "membership.safetensors"
    save_file(arrays, path)
    rewrite(complete, lambda c: c["files"].update({path.name: hashlib.sha256(path.read_bytes()).hexdigest()}))
    assert "membership.safetensors is damaged" in damage_of(complete)


@pytest.mark.parametrize("name", ["membership.safetensors", "final.safetensors"])
@pytest.mark.parametrize("data", [b"", b"\xff" * 100, (2**62).to_bytes(8, "little") + b"{}"])
def test_forged_safetensors(complete: Path, name: str, data: bytes) -> None:
    (complete / name).write_bytes(data)
    rewrite(complete, lambda content: content["files"].update({name: hashlib.sha256(data).hexdigest()}))
    assert f"{name} is damaged" in damage_of(complete)


FIELDS = {"index": 0, "batch_size": 10, "divisor": 10.0, "noise_std": 0.0, "recorded": False}


@pytest.mark.parametrize(
    "change",
    [
        {"index": 1},
        {"index": "0"},
        {"batch_size": 0},
        {"batch_size": 10.0},
        {"batch_size": True},
        {"divisor": 0.0},
        {"divisor": 10},
        {"noise_std": -1.0},
        {"noise_std": None},
        {"recorded": 1},
        {"recorded": True},
        {"recorded": True, "shard": 0, "row": 0, "sha256": "zz"},
        {"recorded": True, "shard": 0, "row": 0, "sha256": "0" * 32},
        {"recorded": True, "shard": 0, "row": 0, "xxh3": "0" * 64},
        {"recorded": True, "shard": 0, "row": 1, "xxh3": "0" * 32},
        {"recorded": True, "shard": 7, "row": 0, "xxh3": "0" * 32},
        {"shard": 0, "row": 0},
        {"clip_factor": 0.0},
        {"clip_factor": 2.0},
        {"clip_factor": 1},
        {"precision": "float32"},
        {"ids": 3},
        {"ids": -1, "ids_xxh3": "0" * 32},
        {"ids": True, "ids_xxh3": "0" * 32},
        {"ids": 0, "ids_xxh3": "zz"},
        {"synced": 1},
        {"synced": -1},
        {"synced": False},
    ],
)
def test_a_forged_line(tmp_path: Path, change: dict[str, Any]) -> None:
    TraceWriter.create(tmp_path, header()).abandon()
    seed = json.loads((tmp_path / "trace.json").read_text())["id"]

    def forge(fields: object) -> None:
        body = json.dumps(fields, separators=(",", ":"))
        chain = hashlib.sha256((seed + body).encode()).hexdigest()[:16]
        (tmp_path / "steps.jsonl").write_text(f'{body[:-1]},"chain":"{chain}"}}\n')

    forge(FIELDS)
    assert Trace.open(tmp_path).num_steps == 1
    forge(FIELDS | change)
    assert "steps.jsonl is damaged (line 1 does not describe a step" in damage_of(tmp_path)
    forge({name: value for name, value in FIELDS.items() if name != next(iter(change))})
    if next(iter(change)) in FIELDS:
        assert "steps.jsonl is damaged (line 1 does not describe a step" in damage_of(tmp_path)


# -- no trace at all --------------------------------------------------------------------------------------------------


def test_no_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "none", tmp_path / "file"):
        for opening in (Trace.open, TraceWriter.resume):
            with pytest.raises(TraceError, match=re.escape(str(path)) + " holds no trace"):
                opening(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
    for name, remedy in {
        "shard-00000.safetensors": "check the path",
        "epoch_2.pt": "pass checkpoints as --model",
    }.items():
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(TraceError, match=remedy):
            Trace.open(tmp_path)


# -- a trace that was interrupted -------------------------------------------------------------------------------------


def read_prefix(path: Path) -> tuple[int, str]:
    """Opens an interrupted trace: all that it gives must be the run's first steps. Their number, and what was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            trace = Trace.open(path)
            for step in trace:
                np.testing.assert_array_equal(step.parameters, vectors(step.info.index)[0])
                np.testing.assert_array_equal(step.gradient, vectors(step.info.index)[1])
        except TraceError as error:
            return -1, str(error)
    assert all(isinstance(w.message, GmipWarning) for w in caught)
    return trace.num_steps, " ".join(str(w.message) for w in caught)


def test_a_torn_last_line_is_left_out(interrupted: Path) -> None:
    path = interrupted / "steps.jsonl"
    data = path.read_bytes()
    last = data.rindex(b"\n", 0, -1) + 1
    for length in range(last, len(data)):
        path.write_bytes(data[:length])
        assert_steps(Trace.open(interrupted), STEPS - 1)
    for tail in (b"\0" * 10, b"\0" * 10_000):
        path.write_bytes(data + tail)
        assert_steps(Trace.open(interrupted), STEPS)
    with TraceWriter.resume(interrupted) as writer:
        assert writer.num_steps == STEPS
        write_steps(writer, 2)
    assert_steps(Trace.open(interrupted), STEPS + 2)


def test_a_tear_elsewhere_is_damage(interrupted: Path) -> None:
    path = interrupted / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for torn in (lines[1][:40], lines[1][:40] + b"\n", b"\0" * 5000):
        path.write_bytes(b"".join([lines[0], torn, *lines[2:]]))
        assert re.search(r"steps.jsonl is damaged \(line 2.*resume the run at step 1 or before", damage_of(interrupted))
        with pytest.raises(TraceError, match=r"steps\.jsonl"):
            TraceWriter.resume(interrupted)
    with TraceWriter.resume(interrupted, at_step=1) as writer:  # as the message says
        write_steps(writer, STEPS - 1)
    assert_steps(Trace.open(interrupted), STEPS)


@pytest.mark.parametrize("name", ["trace.json", "steps.jsonl", "shard-00000.safetensors", "shard-00001.safetensors"])
def test_any_flipped_bit_of_an_interrupted_trace(interrupted: Path, name: str) -> None:
    data = (interrupted / name).read_bytes()
    for position in (*range(0, len(data), 5 if len(data) > 500 else 1), len(data) - 2, len(data) - 1):
        altered = bytearray(data)
        altered[position] ^= 1 << (position % 8)
        (interrupted / name).write_bytes(altered)
        count, said = read_prefix(interrupted)
        torn = name == "steps.jsonl" and position == len(data) - 1
        room = name == "shard-00001.safetensors" and position >= len(data) - 2 * 5 * 4  # its third row is not in use
        assert name in said or (torn and count == STEPS - 1) or (room and count == STEPS), position


@pytest.mark.parametrize(
    ("name", "kept"), [("trace.json", -1), ("shard-00000.safetensors", 0), ("shard-00001.safetensors", 3)]
)
def test_any_truncation_of_an_interrupted_trace(interrupted: Path, name: str, kept: int) -> None:
    data = (interrupted / name).read_bytes()
    for length in (0, 5, 100, 128, 130, len(data) - 1):
        (interrupted / name).write_bytes(data[:length])
        count, said = read_prefix(interrupted)
        assert count == kept and name in said
    (interrupted / name).unlink()
    assert read_prefix(interrupted)[0] == kept


def test_rows_that_a_power_cut_left_unwritten(interrupted: Path) -> None:
    path = interrupted / "shard-00001.safetensors"
    data = path.read_bytes()
    for row, kept in [(1, 4), (0, 3)]:
        start = 128 + row * 40
        path.write_bytes(data[:start] + bytes(40) + data[start + 40 :])
        with pytest.warns(
            GmipWarning, match=rf"shard-00001.safetensors .* up to step {kept}, and the {5 - kept} steps"
        ):
            trace = Trace.open(interrupted)
        assert_steps(trace, kept)
    with pytest.warns(GmipWarning, match="shard-00001"):
        writer = TraceWriter.resume(interrupted)
    with writer:
        assert writer.num_steps == 3
        write_steps(writer, 4)
    assert_steps(Trace.open(interrupted), 7)


def test_what_was_on_disk_is_not_lost_to_a_power_cut(tmp_path: Path) -> None:
    """Damage to a step that was synced is damage; only later ones may be left out."""
    writer = TraceWriter.create(tmp_path, header())
    write_steps(writer, 2)
    writer.sync()
    write_steps(writer, 2)
    writer.abandon()
    path = tmp_path / "shard-00000.safetensors"
    data = path.read_bytes()
    for row, count in [(0, -1), (1, -1), (2, 2), (3, 3)]:
        altered = bytearray(data)
        altered[128 + row * 40] ^= 1
        path.write_bytes(altered)
        found, said = read_prefix(tmp_path)
        assert found == count and f"row {row} is not what was written" in said
    path.write_bytes(data[:-1])
    assert "bytes are not those of" in damage_of(tmp_path)


def test_resume_before_the_unwritten_rows(interrupted: Path) -> None:
    path = interrupted / "shard-00001.safetensors"
    path.write_bytes(path.read_bytes()[:168] + bytes(80))
    with TraceWriter.resume(interrupted, at_step=4) as writer:
        write_steps(writer, 1)
    assert_steps(Trace.open(interrupted), 5)


def test_a_writer_that_died_while_closing(interrupted: Path) -> None:
    """The last shard is cut to size and the final state written, but the trace is not yet marked complete."""
    opened = (interrupted / "trace.json").read_bytes()
    writer = TraceWriter.resume(interrupted)
    writer.close({"w": np.zeros(2)})
    (interrupted / "trace.json").write_bytes(opened)
    (interrupted / ".shard-00001.safetensors.tmp").write_bytes(b"left behind")
    trace = Trace.open(interrupted)
    assert not trace.complete and trace.final_arrays() is None
    assert_steps(trace, STEPS)
    with TraceWriter.resume(interrupted) as writer:
        write_steps(writer, 1)
    trace = Trace.open(interrupted)
    assert_steps(trace, STEPS + 1)
    assert trace.final_arrays() is None
    assert not list(interrupted.glob(".*")) and not (interrupted / "final.safetensors").exists()
