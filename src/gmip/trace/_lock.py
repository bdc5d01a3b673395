"""The journal's file as its one writer holds it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from gmip.errors import TraceError
from gmip.trace._files import reading, unwritable, writing

__all__ = ["LockedJournal"]

# Some network file systems do not lock; better no lock than no trace.
_CANNOT_LOCK = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


class LockedJournal:
    """A file that is only appended to, locked against other writers."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0) | (os.O_CREAT if create else 0)
        with writing(path) if create else reading(path):
            self._file = open(os.open(path, flags, 0o666), "ab", buffering=0)  # noqa: PTH123, SIM115
        try:
            self._lock()
            self.size = os.fstat(self._file.fileno()).st_size
        except BaseException:
            self._file.close()
            raise

    def append(self, line: bytes) -> None:
        """One write. If the disk takes only a part of the line, that part is taken back."""
        try:
            written = self._file.write(line)
        except OSError as error:
            raise unwritable(self._path, error.strerror) from error
        if written != len(line):
            self.truncate(self.size)
            raise unwritable(self._path, "the disk is full")
        self.size += len(line)

    def truncate(self, size: int) -> None:
        with writing(self._path):
            os.ftruncate(self._file.fileno(), size)
            os.fsync(self._file.fileno())
        self.size = size

    def sync(self) -> None:
        with writing(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        # Said outright: a forked child, such as a data loader's worker, may hold a copy of the descriptor, and with it
        # the lock.
        with contextlib.suppress(OSError):
            fcntl.flock(self._file.fileno(), fcntl.LOCK_UN)
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TraceError(
                f"{self._path} is being written by another process: wait for it to end, or choose another path."
            ) from None
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise unwritable(self._path, error.strerror) from error
