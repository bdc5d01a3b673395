"""Names of the files of a trace, and how they are read and replaced."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gmip.errors import GmipError, TraceError

__all__ = [
    "FINAL",
    "JOURNAL",
    "MANIFEST",
    "MEMBERSHIP",
    "damaged",
    "reading",
    "remove_temporaries",
    "replacing",
    "sha256_of_file",
    "sync_folder",
    "unwritable",
    "writing",
]

MANIFEST = "trace.json"
JOURNAL = "steps.jsonl"
MEMBERSHIP = "membership.safetensors"
FINAL = "final.safetensors"
_TEMPORARY = re.compile(r"\.(trace\.json|(membership|final|shard-\d{5,})\.safetensors)\.tmp")


def damaged(path: Path, what: str) -> TraceError:
    """The error for a file that is not what was written."""
    return TraceError(f"{path} is damaged ({what}): restore the folder from a copy, or record the run again.")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what the operating system says about a file into one sentence that names it."""
    try:
        yield
    except GmipError:
        raise
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise TraceError(f"{path} is missing: restore the folder from a copy, or record the run again.") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read ({error.strerror}): check the disk and its permissions.") from error


def unwritable(path: Path, why: str | None) -> TraceError:
    """The error for a file that the operating system does not take."""
    return TraceError(f"{path} cannot be written ({why}): make room or mend the permissions, or choose another path.")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """`reading` for a file that is to be written."""
    try:
        yield
    except GmipError:
        raise
    except OSError as error:
        raise unwritable(path, error.strerror) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder; it takes the place of `path`, on disk, if the block succeeds."""
    temporary = path.with_name(f".{path.name}.tmp")
    with writing(path):
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def remove_temporaries(folder: Path) -> None:
    """Removes what a process that died in `replacing` left behind, of the files of a trace."""
    with writing(folder):
        for path in list(folder.iterdir()):
            if _TEMPORARY.fullmatch(path.name):
                path.unlink()


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of_file(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
