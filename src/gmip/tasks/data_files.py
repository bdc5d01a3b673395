"""Files of data sets: found in the folder that GMIP_DATA names, else downloaded, and always checked by checksum.

Downloads, and what is computed from them, are kept between runs in the folder that GMIP_CACHE names.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gmip import _io
from gmip._progress import Progress, bars
from gmip.errors import DataUnavailable, FileError
from gmip.store import Store

# -- what is kept between runs ----------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """GMIP_CACHE where it is set, else the operating system's folder for caches. Not created here."""
    if named := os.environ.get("GMIP_CACHE"):
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("gmip"))


def cache_store(kind: str, facts: Mapping[str, Any], version: str) -> Store:
    """The store for what a task computes from its files; `version` is that of the task's code."""
    return Store(cache_folder(), kind, facts, version=version, shared=True)


def write_cached(path: Path, content: bytes) -> None:
    """Write the file whole or not at all: readers never see a part of it, even if the writer is interrupted."""
    try:
        _io.make_folder(path.parent, shared=True)
        _io.write(path, content, shared=True)
    except FileError as error:
        raise DataUnavailable(error.problem, remedy="set GMIP_CACHE to a folder that can be written") from error


# -- files of data sets -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A published file.

    Parameters
    ----------
    title : the data set, as messages call it.
    path : the file's place under GMIP_DATA, with forward slashes.
    checksum : "sha256:...", "md5:..." or "git-blob:..." (the SHA-1 that git gives the file) of the file.
    url : where the file is published, or the tar archive that holds it as member `path`.
    archive_checksum : of that archive; None where `url` serves the file itself.
    """

    title: str
    path: str
    checksum: str
    url: str
    archive_checksum: str | None = None


def checksum(content: bytes, kind: str) -> str:
    """`kind:hex` of the content, kind one of hashlib's names or "git-blob"."""
    if kind == "git-blob":
        # Git names a file's contents by the SHA-1 over this header and them; it guards against damage, not malice.
        digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    else:
        digest = hashlib.new(kind, usedforsecurity=False)
    digest.update(content)
    return f"{kind}:{digest.hexdigest()}"


def read_files(*files: DataFile) -> list[bytes]:
    """Contents of the files, in order. A file that GMIP_DATA lacks is downloaded, an archive of several only once.

    Raises
    ------
    DataUnavailable : no file here and none to be had, or one with the wrong checksum.
    """
    downloads: dict[str, bytes] = {}
    contents = []
    for file in files:
        place = _local(file)
        if place is not None and place.is_file():
            content = place.read_bytes()
            if problem := _problem(content, file.checksum):
                raise DataUnavailable(
                    f"{place} is not the published file of {file.title} ({problem})", remedy=_remedy(file)
                )
        else:
            if file.url not in downloads:
                downloads[file.url] = _fetch(file)
            content = downloads[file.url]
            if file.archive_checksum is not None:
                content = _member(content, file)
        contents.append(content)
    return contents


def only_member(content: bytes) -> bytes:
    """The one regular file in a tar archive, which is read in memory: no path of the archive is ever written to."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        (member,) = (member for member in archive.getmembers() if member.isfile())
        stream = archive.extractfile(member)
        assert stream is not None
        return stream.read()


def _member(content: bytes, file: DataFile) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        try:
            stream = archive.extractfile(file.path)
        except KeyError:
            stream = None
        member = stream.read() if stream is not None else b""
    if problem := _problem(member, file.checksum):
        raise DataUnavailable(f"{file.path} in {file.url} is not the published one ({problem})", remedy=_remedy(file))
    return member


def _local(file: DataFile) -> Path | None:
    named = os.environ.get("GMIP_DATA")
    return Path(named).expanduser() / file.path if named else None


def _problem(content: bytes, expected: str) -> str | None:
    found = checksum(content, expected.partition(":")[0])
    return None if found == expected else f"its checksum is {found}, not {expected}"


def _remedy(file: DataFile, what: str | None = None) -> str:
    what = what or file.url
    named = os.environ.get("GMIP_DATA")
    choice = "a folder of your choice and set GMIP_DATA to that folder"
    if file.archive_checksum is not None:
        return f"download {what} by hand and unpack it in {named or choice}"
    return f"download {what} by hand and put it at {_local(file) if named else f'{file.path} in {choice}'}"


def _fetch(file: DataFile) -> bytes:
    """What `url` serves, from the cache if it is there; into the cache if not, once its checksum agrees."""
    expected = file.archive_checksum or file.checksum
    place = cache_folder() / "downloads" / PurePosixPath(file.url).name
    if place.is_file():
        content = place.read_bytes()
        if _problem(content, expected) is None:
            return content
    try:
        content = _download(file)
    except OSError as error:  # so are all errors of requests
        raise DataUnavailable(
            f"{file.title} is not on this machine and could not be fetched from {file.url} ({type(error).__name__})",
            remedy=_remedy(file, "it"),
        ) from error
    if problem := _problem(content, expected):
        raise DataUnavailable(
            f"{file.url} serves another file than that of {file.title} ({problem})", remedy=_remedy(file)
        )
    write_cached(place, content)
    return content


class _WatchedBar:
    """What pooch takes for a progress bar: passes on how many bytes of the download are here."""

    total = 0

    def __init__(self, progress: Progress) -> None:
        self._progress, self._done = progress, 0

    def update(self, size: int) -> None:
        self._done += size
        self._progress(self._done, max(self.total, self._done))  # a server may not say the total

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        pass


def _download(file: DataFile) -> bytes:
    import pooch

    stream = io.BytesIO()
    with bars() as watch:
        bar = _WatchedBar(watch(f"{file.title}: download"))
        pooch.HTTPDownloader(progressbar=bar, chunk_size=2**20)(file.url, stream, None)
    return stream.getvalue()
