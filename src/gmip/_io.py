"""Files: written whole or not at all, locked between processes, hashed. One place for all packages.

Folders and files are made for their owner alone (0700 and 0600) unless they are `shared`: most of them name members.
Folders that are there already stay as they are. Only regular files are opened, and no link is followed. What the
operating system refuses becomes one `FileError` that names the file and says what to do.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import platform
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

from filelock import lock_descriptor, unlock_descriptor

from gmip.errors import FileError, GmipError, InvalidArgument

_LEFTOVER: Final = re.compile(r"\.(?P<name>.+?)(\.[0-9a-f]{16,32})?\.tmp")
_SIGNATURE: Final = re.compile(r"process \d+ on [\w.-]+")
_MAX_SIGNATURE: Final = 300
_SPECIAL: Final = "it is a pipe, a socket or a device"
_MAX_NAME: Final = 50  # characters of a name that its temporary name repeats: at most 200 of the 255 bytes allowed
# Some network file systems do not lock; better no lock than no work.
_CANNOT_LOCK: Final = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


# -- errors ---------------------------------------------------------------------------------------------------------


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what the operating system says about a file into one `FileError` that names it."""
    try:
        yield
    except GmipError:
        raise
    except OSError as error:
        foreign = error.errno in (errno.ELOOP, errno.ENXIO)
        remedy = "put the file itself in its place" if foreign else "check the path and its permissions"
        raise FileError(f"{path} cannot be read ({_why(error)})", remedy=remedy) from error


class writing:  # a class, since it is entered three times in every step of a training loop  # noqa: N801
    """`reading` for a file or folder that is to be written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, GmipError):
            raise unwritable(self._path, _why(error)) from error


def unwritable(path: Path, why: str) -> FileError:
    """The error for a file that cannot be written."""
    return FileError(
        f"{path} cannot be written ({why})", remedy="make room or fix the permissions, or choose another path"
    )


def _why(error: OSError) -> str:
    known = {errno.ELOOP: "it is a symbolic link", errno.ENXIO: _SPECIAL}
    return known.get(error.errno or 0) or error.strerror or str(error)


# -- reading --------------------------------------------------------------------------------------------------------


def read(path: Path) -> bytes:
    """What a regular file holds; see `open_file`."""
    with reading(path), open(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read()


def read_if_there(path: Path) -> bytes | None:
    """`read`, and None for a file that is missing."""
    try:
        return read(path)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def safetensors_metadata(content: bytes) -> dict[str, str]:
    """What a safetensors file says beside its tensors; ValueError if it is none."""
    start = 8 + int.from_bytes(content[:8], "little")
    found = json.loads(content[8:start]) if start <= len(content) else None
    metadata = found.get("__metadata__", {}) if isinstance(found, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("it has no header of safetensors")
    return metadata


# -- writing --------------------------------------------------------------------------------------------------------


def make_folder(path: Path, *, shared: bool = False) -> None:
    """The folder, and those above it, if they are not there: for their owner alone (0700), unless `shared`."""
    with writing(path):
        if not shared:
            for folder in reversed([path, *path.parents]):
                folder.mkdir(mode=0o700, exist_ok=True)
        else:
            path.mkdir(parents=True, exist_ok=True)


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of exactly this file, and of a regular one.

    A symbolic link is refused (ELOOP) and not followed, a pipe, socket or device is refused (ENXIO) and not waited for.
    """
    careful = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    descriptor = os.open(path, flags | careful, mode)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.ENXIO, _SPECIAL)


@contextmanager
def replacing(path: Path, *, shared: bool = False) -> Iterator[BinaryIO]:
    """A new file to write to; it takes the place of `path` if the block succeeds, and is removed if not.

    Parameters
    ----------
    shared : the umask decides who can read the file; else its owner alone (mode 0600).

    Guarantees
    ----------
    Readers see the old file or the new one, whole, also after a power cut. Each call writes to a file of its own in the
    same folder, under a name that nobody else uses, created by this call: writers at the same time do not disturb each
    other, and the last one to finish wins. Where `path` is a symbolic link the link is replaced by the file; what it
    points to is neither written nor removed. A process that is killed leaves a file .NAME.*.tmp (`remove_leftovers`).
    """
    if not path.name or "\0" in str(path):
        raise FileError(f"{str(path)!r} is not the name of a file", remedy="choose another path")
    temporary = path.with_name(f".{path.name[:_MAX_NAME]}.{secrets.token_hex(8)}.tmp")
    with writing(path):
        descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if shared else 0o600)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123, of a descriptor
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def write(path: Path, content: str | bytes, *, shared: bool = False) -> None:
    """Puts the content (text as UTF-8) in place of the file; see `replacing`."""
    with replacing(path, shared=shared) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_at(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    """Puts all of the content at a place of an open file; `OSError` if the disk does not take it."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def remove_leftovers(folder: Path, belongs: Callable[[str], object]) -> None:
    """Removes what writers that were killed left behind of the files whose names `belongs` accepts.

    For those who know that nobody else writes these files now.
    """
    with writing(folder):
        for path in list(folder.iterdir()):
            leftover = _LEFTOVER.fullmatch(path.name)
            if leftover and belongs(leftover["name"]):
                path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    if os.name == "nt":  # does not open folders, and keeps their names in a journal
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- locks ----------------------------------------------------------------------------------------------------------


class Lock:
    """Excludes other processes, and other locks of this one, from what the file `path` stands for.

    The operating system holds the lock (flock, or LockFileEx on Windows) and lets it go when the process ends, however
    it ends: that the file is there means nothing. The file is created if need be, and never removed; only a
    `signed` lock writes to it. On Windows nobody else can read its first byte meanwhile.

    Parameters
    ----------
    wait : until the lock is free; else a `FileError` if it is not.
    signed : write into the file which process holds the lock, so that the `FileError` of another can say it.
    shared : the umask decides who can take the lock; else its file's owner alone.

    Attributes
    ----------
    held : False where the file system cannot lock, as some network ones: then nobody is excluded.
    """

    def __init__(self, path: Path, *, wait: bool, signed: bool = False, shared: bool = False) -> None:
        with writing(path):
            mode = 0o666 if shared else 0o600
            self._descriptor: int | None = open_file(path, os.O_RDWR | os.O_CREAT, mode)
            try:
                self.held = self._take(self._descriptor, wait)
                holder = self._read(self._descriptor) if signed and self.held is None else None
                if signed and self.held is not None:
                    self._sign(self._descriptor)
            except BaseException:
                self._close()
                raise
        if self.held is None:
            self._close()
            who = "another process" if holder is None else holder
            raise FileError(f"{path} is in use by {who}", remedy="wait for it to end, or choose another path")

    @staticmethod
    def _take(descriptor: int, wait: bool) -> bool | None:
        try:
            return lock_descriptor(descriptor, blocking=wait) or None
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise
            return False

    @staticmethod
    def _sign(descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {platform.node() or 'this machine'}\n".encode())

    @staticmethod
    def _read(descriptor: int) -> str | None:
        try:
            signature = os.read(descriptor, _MAX_SIGNATURE).decode("utf-8", "replace").strip()
        except OSError:  # Windows keeps locked bytes from others
            return None
        return signature if _SIGNATURE.fullmatch(signature) else None

    def release(self) -> None:
        """Lets others have it. Releasing again does nothing."""
        if self._descriptor is not None:
            # Said outright: a forked child, such as a data loader's worker, may hold a copy of the descriptor, and with
            # it the lock.
            with contextlib.suppress(OSError):
                unlock_descriptor(self._descriptor)
            self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


# -- settings --------------------------------------------------------------------------------------------------------


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The settings in a YAML file, unchecked."""
    import yaml

    file = Path(path)
    try:
        given = _load_yaml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidArgument(f"{file} does not exist", remedy="gmip init writes one") from None
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read ({error.strerror})", remedy="check the path") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = " ".join(str(error).split())[:200]
        raise InvalidArgument(f"{file} is not YAML ({where})", remedy="fix it, or start again with gmip init") from None
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidArgument(
            f"{file} must hold settings such as 'task: digits', one on each line", remedy="see gmip init"
        )
    return dict(given)


def _load_yaml(text: str) -> Any:
    """What YAML says, plain values only; `yaml.YAMLError` where it is none, or has a key twice.

    PyYAML alone takes the last of two."""
    import yaml

    class Once(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            for key in (key for key, _ in pairs if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise yaml.YAMLError(f"{key.value!r:.60} is there twice, again on line {key.start_mark.line + 1}")
                seen.add(key.value)
            found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return found

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep=deep)
            except (ValueError, LookupError, AttributeError, ArithmeticError):  # PyYAML does not check what a tag holds
                kind, line = node.tag.rsplit(":", 1)[-1], node.start_mark.line + 1
                raise yaml.YAMLError(f"{node.value!r:.60} on line {line} is no {kind}") from None

    return yaml.load(text, Loader=Once)


# -- hashes ---------------------------------------------------------------------------------------------------------


def sha256(content: str | bytes) -> str:
    """64 hex digits, of text in UTF-8."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def sha256_of_file(path: Path) -> str:
    """64 hex digits."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hold_folder(folder: str | os.PathLike[str]) -> Lock:
    """A lock on a folder, which is made if need be: a second process is refused, with the id of the first."""
    path = Path(folder)
    try:
        make_folder(path)
    except FileError as error:
        why = getattr(error.__cause__, "strerror", None) or "it cannot be written"
        raise InvalidArgument(
            f"cannot be made a folder ({why})", argument="out", value=str(folder), remedy="name another"
        ) from None
    return Lock(path / ".lock", wait=False, signed=True)


# -- mapped files -----------------------------------------------------------------------------------------------------


def give_back(array: Any) -> None:
    """Lets the system forget what was read of the mapped file in which a read-only array lies: it is read again when it
    is asked for. Of any other array: nothing."""
    owner = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if isinstance(owner, mmap.mmap) and not array.flags.writeable and hasattr(owner, "madvise"):
        owner.madvise(mmap.MADV_DONTNEED)
