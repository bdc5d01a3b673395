"""The cache folder: written whole or not at all, damaged files are as good as none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gmip.errors import DataUnavailable
from gmip.tasks import cache

SHAPES = {"a": (2, 3), "b": (2,)}


def test_the_folder_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMIP_CACHE", str(tmp_path / "here"))
    assert cache.folder() == tmp_path / "here"
    monkeypatch.delenv("GMIP_CACHE")
    assert cache.folder().name == "gmip"


def test_keys_follow_every_part_and_their_order() -> None:
    assert cache.key("a", "b") == cache.key("a", "b")
    assert len({cache.key("a", "b"), cache.key("b", "a"), cache.key("ab"), cache.key("a")}) == 4


def test_tensors_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.safetensors"
    tensors = {"a": torch.arange(6.0).reshape(3, 2).T, "b": torch.tensor([1, 2])}
    cache.write_tensors(path, tensors)
    found = cache.read_tensors(path, SHAPES)
    assert found is not None
    assert torch.equal(found["a"], tensors["a"]) and torch.equal(found["b"], tensors["b"])
    assert cache.read_tensors(path, {"a": (-1, 3), "b": (-1,)}) is not None
    assert [place.name for place in path.parent.iterdir()] == ["x.safetensors"]


@pytest.mark.parametrize(
    "shapes", [{"a": (2, 3)}, {"a": (3, 2), "b": (2,)}, {"a": (6,), "b": (2,)}, {**SHAPES, "c": ()}]
)
def test_other_tensors_than_expected_are_none(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    path = tmp_path / "x.safetensors"
    cache.write_tensors(path, {"a": torch.zeros(2, 3), "b": torch.zeros(2)})
    assert cache.read_tensors(path, shapes) is None


@pytest.mark.parametrize("content", [b"", b"not safetensors", None])
def test_a_missing_or_damaged_file_is_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.safetensors"
    if content is None:
        cache.write_tensors(path, {"a": torch.zeros(2, 3), "b": torch.zeros(2)})
        content = path.read_bytes()[:-5]
    path.write_bytes(content)
    assert cache.read_tensors(path, SHAPES) is None
    assert cache.read_tensors(tmp_path / "nothing", SHAPES) is None


def test_an_interrupted_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    cache.write_bytes(path, b"old")

    def stop(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        cache.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataUnavailable, match=r"file cannot be written \(.*\): set GMIP_CACHE"):
        cache.write_bytes(tmp_path / "file" / "x", b"")
