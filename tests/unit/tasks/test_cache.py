"""The cache folder, and files that are downloaded to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gmip.errors import DataUnavailable
from gmip.tasks.data_files import cache_folder, write_cached


def test_the_folder_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMIP_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("GMIP_CACHE")
    assert cache_folder().name == "gmip"


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    write_cached(path, b"old")

    def stop(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_cached(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataUnavailable, match=r"file cannot be written \(.*\): set GMIP_CACHE"):
        write_cached(tmp_path / "file" / "x", b"")
