"""A trace is its owner's alone, and made of regular files only."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from gmip.errors import FileError
from gmip.trace import Trace, TraceWriter
from tests.unit.trace.build import FINAL, MEMBERS, header, write_steps

FILES = (
    "batches.bin",
    "final.safetensors",
    "membership.safetensors",
    "shard-00000.safetensors",
    "shard-00001.safetensors",
    "steps.jsonl",
    "trace.json",
)


@pytest.fixture
def path(tmp_path: Path, three_rows: None) -> Path:
    before = os.umask(0)
    try:
        with TraceWriter.create(tmp_path / "runs" / "a", header(), members=MEMBERS) as writer:
            write_steps(writer, 5)
            writer.commit(recorded=False, batch_size=2, ids=[1, 2])
            writer.close(FINAL)
    finally:
        os.umask(before)
    return tmp_path / "runs" / "a"


def test_folders_and_files_are_private(path: Path) -> None:
    assert sorted(file.name for file in path.iterdir()) == list(FILES)
    for file in path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    for folder in (path, path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_of_the_user_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    TraceWriter.create(tmp_path, header()).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", FILES)
def test_links_and_pipes_are_refused(path: Path, name: str, kind: str) -> None:
    file, outside = path / name, path.parent / "outside"
    shutil.move(file, outside)
    if kind == "link":
        file.symlink_to(outside)
    else:
        os.mkfifo(file)
    why = "it is a symbolic link" if kind == "link" else "it is a pipe"
    if (name, kind) == ("trace.json", "pipe"):
        why = "holds no trace"
    for opening in (lambda: Trace.open(path).verify(), lambda: TraceWriter.resume(path, at_step=0)):
        with pytest.raises(FileError, match=why) as caught:
            opening()
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
        if name in FILES[:5]:  # a run that starts again has no use for these
            break
