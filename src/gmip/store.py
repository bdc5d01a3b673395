"""One store for finished work: shadow models, parts and scores of attacks, trials, caches.

An entry has arrays and plain fields. Its key, with the kind, version and facts of its store, says all that it depends
on: other facts, another folder; another key, another file. So an entry never goes stale, and equal keys mean equal
entries, whoever writes them.

A file has three lines of text, then the arrays' bytes one after the other:

    gmip-store-1 CHECKSUM                          BLAKE2b over all that follows, 32 hex digits
    {"facts":...,"key":...,"kind":...,"version":...}
    {"arrays":[[name, dtype, shape], ...],"fields":{...}}

It is no .npz because the checksum must cover everything and be tested before anything is parsed. Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip._io import Lock, make_folder, read_if_there, remove_leftovers, replacing, sha256, writing
from gmip.errors import InvalidArgument, warn

_FORMAT: Final = "gmip-store-1"
_SUFFIX: Final = ".entry"
_LOCK: Final = ".store.lock"
_PLAIN: Final = "biufcSU"  # kinds of dtypes: bool, numbers, text


class Entry(NamedTuple):
    """What a key stands for."""

    arrays: Mapping[str, NDArray[Any]] = {}
    fields: Mapping[str, Any] = {}


class Store:
    """Entries on disk, in a folder `KIND-HASH` of `parent`.

    Parameters
    ----------
    parent : None keeps nothing: `get` finds nothing, `put` does nothing.
    kind : what the entries are, as "shadow-set"; part of the folder's name.
    facts : plain JSON; what all entries depend on beside their keys.
    version : of the code that computes them; gmip's, if the code has none of its own.
    shared : the umask decides who can read the files; else their owner alone.

    Guarantees
    ----------
    A file is there whole or not at all, also after kill -9, a power cut or on a full disk (a `FileError`). A file that
    is not what was written is noticed, named in a warning and treated as missing. Any number of processes may read and
    write; of two that write one key, the later one wins.
    """

    def __init__(
        self,
        parent: Path | None,
        kind: str,
        facts: Mapping[str, Any] | None = None,
        *,
        version: str | None = None,
        shared: bool = False,
    ) -> None:
        self._common = {"kind": kind, "version": version or version_of("gmip"), "facts": dict(facts or {})}
        name = f"{kind}-{sha256(_canonical(self._common))[:24]}"
        self.folder = None if parent is None else parent / name
        self._shared = shared
        self._swept = False

    def get(self, key: object) -> Entry | None:
        """The entry under a key (plain JSON); None, with a warning if its file is damaged, where there is none."""
        if self.folder is None:
            return None
        path, identity = self._place(self.folder, key)
        content = read_if_there(path)
        if content is None:
            return None
        try:
            return _decoded(content, identity)
        except (ValueError, TypeError, KeyError) as error:
            warn(f"{path} is damaged ({error}): it is computed again.")
            return None

    def put(
        self, key: object, arrays: Mapping[str, NDArray[Any]] | None = None, fields: Mapping[str, Any] | None = None
    ) -> None:
        """Keep an entry, in place of the one that has the key.

        Raises
        ------
        InvalidArgument : a key or field that is not plain JSON (NaN and infinities may be), an array of objects.
        FileError : the disk does not take it.
        """
        if self.folder is None:
            return
        path, identity = self._place(self.folder, key)
        pieces = _encoded(identity, arrays or {}, fields or {})
        with self._locked(self.folder) as lock:
            make_folder(self.folder, shared=self._shared)
            if lock.held and not self._swept:
                remove_leftovers(self.folder, lambda name: True)
                self._swept = True
            with replacing(path, shared=self._shared) as file:
                file.write(f"{_FORMAT} {_checksum(pieces)}\n".encode())
                for piece in pieces:
                    file.write(piece)

    def compute(self, key: object, make: Callable[[], Entry]) -> Entry:
        """The entry under a key, made and kept if there is none."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, *found)
        return found

    def clear(self) -> None:
        """Forget all entries."""
        if self.folder is None or not self.folder.is_dir():
            return
        with self._locked(self.folder), writing(self.folder):
            remove_leftovers(self.folder, lambda name: True)
            for path in list(self.folder.glob(f"*{_SUFFIX}")):
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody put something else there
                self.folder.rmdir()

    def _place(self, folder: Path, key: object) -> tuple[Path, str]:
        return folder / f"{sha256(_canonical(key))[:24]}{_SUFFIX}", _canonical(self._common | {"key": key})

    def _locked(self, folder: Path) -> Lock:
        """Excludes other writers. The lock is beside the folder, which `clear` removes."""
        make_folder(folder.parent, shared=self._shared)
        return Lock(folder.parent / _LOCK, wait=True, shared=self._shared)


def _canonical(value: object) -> str:
    """One text, in one line, for equal values."""
    return _json(value, sort_keys=True)


def _json(value: object, *, sort_keys: bool = False) -> str:
    try:
        return json.dumps(value, sort_keys=sort_keys, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"What is stored must be plain JSON, of strings, numbers, lists and mappings ({error})", remedy="convert it"
        ) from None


def _encoded(identity: str, arrays: Mapping[str, NDArray[Any]], fields: Mapping[str, Any]) -> list[Any]:
    """All of a file but its first line, in pieces that hashes and files take."""
    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in whole.items():
        if array.dtype.kind not in _PLAIN:
            raise InvalidArgument(f"Array {name!r} of {array.dtype} cannot be stored", remedy="store numbers or text")
    about = {"arrays": [[name, array.dtype.str, array.shape] for name, array in whole.items()], "fields": dict(fields)}
    return [f"{identity}\n{_json(about)}\n".encode(), *(array.data for array in whole.values())]


def _decoded(content: bytes, identity: str) -> Entry:
    """ValueError (KeyError, TypeError) if it is not what was written."""
    first = content.find(b"\n")
    if content[:first] != f"{_FORMAT} {_checksum([memoryview(content)[first + 1 :]])}".encode():
        raise ValueError("its checksum differs")
    second = content.index(b"\n", first + 1)
    place = content.index(b"\n", second + 1) + 1
    if content[first + 1 : second] != identity.encode():
        raise ValueError("it is another entry")
    about, arrays = json.loads(content[second:place]), {}
    for name, dtype, shape in about["arrays"]:
        if np.dtype(dtype).kind not in _PLAIN:
            raise ValueError(f"it has an array of {dtype}")
        arrays[name] = np.ndarray(shape, dtype, content, place).copy()
        place += arrays[name].nbytes
    return Entry(arrays, about["fields"])


def _checksum(pieces: Iterable[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


NOWHERE: Final = Store(None, "nothing", version="0")
