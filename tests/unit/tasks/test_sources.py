"""Data files: found, fetched, checked; and what is said when they are not to be had."""

from __future__ import annotations

import dataclasses
import io
import sys
import tarfile
from pathlib import Path

import pytest

from gmip.errors import DataUnavailable
from gmip.tasks.data_files import DataFile, checksum, only_member, read_files
from tests.unit.tasks.server import Server

CONTENT = b"1,2,3\n"
# Nothing listens on the discard port: the download fails at once.
FILE = DataFile(
    title="Toy set", path="toy/toy.csv", checksum=checksum(CONTENT, "sha256"), url="http://127.0.0.1:9/files/toy.csv"
)


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as stream:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            stream.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def served(server: Server, content: bytes = CONTENT, **changes: str) -> DataFile:
    server.files["toy.csv"] = content
    return dataclasses.replace(FILE, url=server.url("toy.csv"), **changes)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("md5", "d41d8cd98f00b204e9800998ecf8427e"),
        ("sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("git-blob", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
    ],
)
def test_checksums_of_nothing(kind: str, expected: str) -> None:
    assert checksum(b"", kind) == f"{kind}:{expected}"


def test_git_blob_as_git_gives_it() -> None:
    assert checksum(b"hello", "git-blob") == "git-blob:b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"  # git hash-object


def test_a_local_file_is_read_without_pooch(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    (data_folder / "toy").mkdir()
    (data_folder / "toy" / "toy.csv").write_bytes(CONTENT)
    assert read_files(FILE) == [CONTENT]


def test_a_wrong_local_file_is_not_used(data_folder: Path, server: Server) -> None:
    (data_folder / "toy").mkdir()
    (data_folder / "toy" / "toy.csv").write_bytes(b"other")
    with pytest.raises(DataUnavailable) as caught:
        read_files(served(server))
    place = data_folder / "toy" / "toy.csv"
    assert str(caught.value) == (
        f"{place} is not the published file of Toy set (its checksum is {checksum(b'other', 'sha256')}, not "
        f"{FILE.checksum}): download {server.url('toy.csv')} by hand and put it at {place}."
    )
    assert server.asked == []


@pytest.mark.parametrize("local", [True, False])
def test_a_missing_file_is_fetched_once(
    local: bool, server: Server, data_folder: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not local:
        monkeypatch.delenv("GMIP_DATA")
    file = served(server)
    assert read_files(file) == [CONTENT] and read_files(file) == [CONTENT]
    assert server.asked == ["toy.csv"]
    assert [path.name for path in (cache_folder / "downloads").iterdir()] == ["toy.csv"]
    assert list(data_folder.iterdir()) == []


def test_a_damaged_download_is_fetched_again(server: Server, data_folder: Path, cache_folder: Path) -> None:
    file = served(server)
    read_files(file)
    (cache_folder / "downloads" / "toy.csv").write_bytes(CONTENT[:-1])
    assert read_files(file) == [CONTENT]
    assert server.asked == ["toy.csv"] * 2


def test_a_server_with_another_file(server: Server, data_folder: Path, cache_folder: Path) -> None:
    with pytest.raises(
        DataUnavailable, match=r"toy\.csv serves another file than that of Toy set \(its checksum is sha256:"
    ):
        read_files(served(server, b"other"))
    assert not cache_folder.exists()


def test_a_server_without_the_file(server: Server, data_folder: Path) -> None:
    url = server.url("gone.csv")
    with pytest.raises(DataUnavailable, match=f"could not be fetched from {url} .HTTPError.: download"):
        read_files(dataclasses.replace(FILE, url=url))


def test_no_network(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    start = (
        f"Toy set is not on this machine and could not be fetched from {FILE.url} (ConnectionError): download "
        "it by hand and put it at "
    )
    with pytest.raises(DataUnavailable) as caught:
        read_files(FILE)
    assert str(caught.value) == f"{start}{data_folder / 'toy' / 'toy.csv'}."
    monkeypatch.delenv("GMIP_DATA")
    with pytest.raises(DataUnavailable) as caught:
        read_files(FILE)
    assert str(caught.value) == f"{start}toy/toy.csv in a folder of your choice and set GMIP_DATA to that folder."


def test_members_of_an_archive_that_is_fetched_once(server: Server, data_folder: Path, cache_folder: Path) -> None:
    members = {"toy/a.bin": b"aaa", "toy/b.bin": b"bb", "toy/c.bin": b"c", "../evil": b"!"}
    server.files["toy.tgz"] = archive(**members)
    files = [
        DataFile(
            title="Toy set",
            path=name,
            checksum=checksum(content, "md5"),
            url=server.url("toy.tgz"),
            archive_checksum=checksum(server.files["toy.tgz"], "sha256"),
        )
        for name, content in members.items()
        if name.startswith("toy")
    ]
    (data_folder / "toy").mkdir()
    (data_folder / "toy" / "b.bin").write_bytes(b"bb")
    assert read_files(*files) == [b"aaa", b"bb", b"c"]
    assert server.asked == ["toy.tgz"]
    assert sorted(path.name for path in data_folder.parent.rglob("*") if path.is_file()) == ["b.bin", "toy.tgz"]

    for wrong in (
        dataclasses.replace(files[0], checksum=checksum(b"x", "md5")),
        dataclasses.replace(files[0], path="d"),
    ):
        with pytest.raises(
            DataUnavailable, match=f"{wrong.path} in .*toy.tgz is not the published one.*: download http.* unpack it in"
        ):
            read_files(wrong)


def test_the_only_member() -> None:
    assert only_member(archive(rows=CONTENT)) == CONTENT
