"""Files elsewhere than on this machine's disks: whatever fsspec reads (s3://, gs://, http://, memory://, ...).

Only what is needed is read, by ranges of bytes, and no more than was asked for before.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gmip._extras import missing
from gmip.errors import FileError, GmipError, InvalidArgument, TraceError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_URL: Final = re.compile(r"[A-Za-z][\w+.-]+(://|::)")
_NOT_THERE: Final = re.compile(r"\b404\b|NoSuch")
_CHUNK: Final = 2**20  # bytes that are read at once of a file that is read from its beginning
RESTORE: Final = "restore the folder from a copy, or record the run again"


@dataclass(frozen=True)
class RemotePath(os.PathLike[str]):
    """A folder or file, as `pathlib` has them: `/`, `name` and `is_file`. It is opened anew wherever it is unpickled,
    with the access that is set up there."""

    url: str
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if urlsplit(self.url.rpartition("::")[2]).password is not None:
            raise InvalidArgument(
                "An address of a trace holds a password, and reports show addresses",
                remedy="leave it out, and set up access as fsspec and the storage say (see docs/trace-format.md)",
            )

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.url, (*self.parts, name))

    def __str__(self) -> str:
        return "/".join((self.url.rstrip("/"), *self.parts))

    def __fspath__(self) -> str:
        return str(self)

    @property
    def name(self) -> str:
        """The last part."""
        return str(self).rpartition("/")[2]

    @property
    def everywhere(self) -> bool:
        """Whether another process finds the same there."""
        return "memory" not in self._opened()[0].protocol

    def is_file(self) -> bool:
        """Whether there is such a file; `FileError` if that cannot be found out."""
        try:
            self.size()
        except TraceError:
            return False
        return True

    def size(self) -> int:
        """Bytes of the file."""
        with self._speaking():
            system, path = self._opened()
            about = system.info(path)
            if about.get("type", "file") != "file":
                raise FileNotFoundError(path)
            if type(about.get("size")) is not int:
                raise OSError("the storage does not say how large it is")
            return int(about["size"])

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to `stop`, which the file must have."""
        with self._speaking():
            system, path = self._opened()
            content: bytes = system.cat_file(path, start=start, end=stop) if stop > start else b""
            if len(content) > stop - start:
                raise FileError(
                    f"{self} cannot be read in parts: the server does not answer range requests",
                    remedy="serve the folder by one that does, or copy it to this machine",
                )
            if len(content) != stop - start:
                raise OSError(f"{len(content)} bytes came, and not the {stop - start} that were asked for")
            return content

    def open(self) -> io.BufferedReader:
        """The file, to be read from its beginning, or in the order in which it was written."""
        return io.BufferedReader(_RemoteFile(self), _CHUNK)

    def _opened(self) -> tuple[Any, str]:
        """The file system of fsspec, and the path within it."""
        from fsspec.core import url_to_fs

        system, base = url_to_fs(self.url)
        return system, "/".join((base.rstrip("/"), *self.parts))

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except GmipError:
            raise
        except Exception as error:  # each storage has errors of its own, which share no class
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            if isinstance(error, FileNotFoundError) and (cause is error or _NOT_THERE.search(str(cause))):
                raise TraceError(f"{self} is missing", remedy=RESTORE) from error
            if isinstance(cause, ModuleNotFoundError):
                lacking, cause = missing(cause, self.url), error  # fsspec says what to install for others
                if isinstance(lacking, GmipError):
                    raise lacking from error
            why = next(iter(str(cause).splitlines()), "").strip(" .") or type(cause).__name__
            raise FileError(
                f"{self} cannot be read ({why})", remedy="check the address, the connection, and that you may read it"
            ) from error


class _RemoteFile(io.RawIOBase):
    """A file whose bytes are asked for when they are read."""

    def __init__(self, path: RemotePath) -> None:
        self._path, self._size, self._place = path, path.size(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        return self._place

    def readall(self) -> bytes:
        content = self._path.read(self._place, max(self._place, self._size))
        self._place += len(content)
        return content

    def readinto(self, buffer: WriteableBuffer) -> int:
        memory = memoryview(buffer).cast("B")
        content = self._path.read(self._place, max(self._place, min(self._place + len(memory), self._size)))
        memory[: len(content)] = content
        self._place += len(content)
        return len(content)


AnyPath = Path | RemotePath


def as_path(given: str | os.PathLike[str]) -> AnyPath:
    """A folder on this machine (file:// is one, too), or one that fsspec reads."""
    if isinstance(given, RemotePath):
        return given
    text = os.fspath(given)
    if not isinstance(given, str) or _URL.match(text) is None:
        return Path(text)
    return Path(text.removeprefix("file://")) if text.startswith("file://") else RemotePath(text)


def as_folder(given: str | os.PathLike[str]) -> Path:
    """A folder that can be written to."""
    path = as_path(given)
    if isinstance(path, RemotePath):
        raise InvalidArgument(
            f"A run is recorded on this machine, not to {path}", remedy="record into a folder, and copy it there"
        )
    return path
