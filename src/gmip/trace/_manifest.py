"""The small files of a trace: trace.json, and the two that it vouches for, of who was a member and the final state."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gmip import _io
from gmip.errors import FileError, InvalidArgument, TraceError
from gmip.trace._remote import RESTORE, AnyPath, RemotePath
from gmip.trace.schema import FORMAT_VERSION, Header, LocalTraining, ModelOptions, ParameterSpec, Provenance
from gmip.vocabulary import Recipe

MANIFEST: Final = "trace.json"
MEMBERSHIP: Final = "membership.safetensors"
FINAL: Final = "final.safetensors"
MAX_ROWS: Final = 4096  # of a shard

_FORMAT: Final = "gmip-trace"
# Not files of a trace.
_CHECKPOINT: Final = re.compile(
    r"(?!shard-|final\.|membership\.|checkpoint\.).*\.(pt|pth|ckpt|safetensors)|checkpoint-\d+"
)
Members = NDArray[np.int64]


def damaged(path: AnyPath, what: str) -> TraceError:
    """The error for a file that is not what was written."""
    return TraceError(f"{path} is damaged ({what})", remedy=RESTORE)


@contextmanager
def reading(path: AnyPath) -> Iterator[BinaryIO]:
    """A file that a trace must have."""
    if isinstance(path, RemotePath):
        yield path.open()
        return
    try:
        with _io.reading(path), open(_io.open_file(path, os.O_RDONLY), "rb") as file:  # noqa: PTH123, of a descriptor
            yield file
    except FileError as error:
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
            raise TraceError(f"{path} is missing", remedy=RESTORE) from None
        raise


# -- trace.json -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What trace.json holds. `num_steps` and `chain` (the journal's last) are None while the trace is open; so is
    `changed`, parameters that changed otherwise than by steps, which is also None if nobody looked."""

    header: Header
    id: str
    gmip: str
    created: str
    rows_per_shard: int
    files: Mapping[str, str] = field(default_factory=dict)
    num_steps: int | None = None
    chain: str | None = None
    changed: tuple[str, ...] | None = None

    @classmethod
    def new(cls, header: Header, files: Mapping[str, str], *, rows_per_shard: int) -> Manifest:
        return cls(
            header=header,
            id=secrets.token_hex(16),
            gmip=_gmip_version(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            rows_per_shard=rows_per_shard,
            files=files,
        )

    @property
    def complete(self) -> bool:
        return self.num_steps is not None

    @property
    def checksum(self) -> str:
        """SHA-256 of all that trace.json says."""
        return _checksum(self._content())

    def reopened(self) -> Manifest:
        """The trace goes on: without what its end added."""
        files = {name: checksum for name, checksum in self.files.items() if name != FINAL}
        return dataclasses.replace(self, num_steps=None, chain=None, changed=None, files=files)

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "format": _FORMAT,
            "version": FORMAT_VERSION,
            "id": self.id,
            "gmip": self.gmip,
            "created": self.created,
            "status": "complete" if self.complete else "open",
            "rows_per_shard": self.rows_per_shard,
            "header": dataclasses.asdict(self.header),
            "files": dict(self.files),
        }
        if self.complete:
            content |= {"num_steps": self.num_steps, "chain": self.chain}
        if self.changed is not None:
            content["changed"] = list(self.changed)
        return content


def write_manifest(folder: Path, manifest: Manifest) -> None:
    # A round trip first: the checksum is that of what a reader will parse, with lists for tuples.
    content = json.loads(json.dumps(manifest._content()))
    content["checksum"] = _checksum(content)
    _io.write(folder / MANIFEST, json.dumps(content, indent=1))


def read_manifest(folder: AnyPath) -> Manifest:
    """trace.json of a folder, checked from the outside in: a trace at all, this version, unaltered, of the right
    types."""
    path = folder / MANIFEST
    if not path.is_file():
        remedy = "check the path"
        if isinstance(folder, Path) and any(_CHECKPOINT.fullmatch(one.name) for one in folder.glob("*")):
            remedy = f"pass checkpoints as --model {folder}/ (gmip.Checkpoints)"
        raise TraceError(f"{folder} holds no trace ({MANIFEST} is missing)", remedy=remedy)
    with reading(path) as file:
        data = file.read()
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise damaged(path, "not JSON") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise TraceError(f"{path} does not describe a trace of gmip", remedy="check the path")
    found = content.get("version")
    if type(found) is not int:
        raise damaged(path, f"version is {found!r}")
    if found != FORMAT_VERSION:
        older = "read it with the gmip that wrote it, or record the run again"
        raise TraceError(
            f"{path} has format version {found}, this gmip reads version {FORMAT_VERSION}",
            remedy="upgrade gmip" if found > FORMAT_VERSION else older,
        )
    checksum = content.pop("checksum", None)
    try:
        if checksum != _checksum(content):
            raise damaged(path, "its checksum does not fit its contents")
        return _parse(content)
    except (InvalidArgument, TypeError, KeyError, ValueError, RecursionError) as error:
        raise damaged(path, f"a field is missing or of the wrong type, {error}") from None


def _gmip_version() -> str:
    # Not gmip.__version__: the package's top imports the layers above this one.
    try:
        return version("gmip")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+source"


def _checksum(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return _io.sha256(canonical)


def _parse(content: dict[str, Any]) -> Manifest:
    del content["format"], content["version"]
    status = content.pop("status")
    if status not in ("open", "complete"):
        raise ValueError(f"status = {status!r}")
    for key in ("id", "gmip", "created", *(("chain",) if status == "complete" else ())):
        if not isinstance(content[key], str):
            raise TypeError(f"{key} = {content[key]!r}")
    if type(content["rows_per_shard"]) is not int or not 1 <= content["rows_per_shard"] <= MAX_ROWS:
        raise ValueError(f"rows_per_shard = {content['rows_per_shard']!r}")
    if status == "complete" and (type(content["num_steps"]) is not int or content["num_steps"] < 0):
        raise ValueError(f"num_steps = {content['num_steps']!r}")
    if status == "open" and not content.keys().isdisjoint({"num_steps", "chain", "changed"}):
        raise ValueError("an open trace with a last step")
    if "changed" in content:
        changed = content["changed"]
        if not isinstance(changed, list) or not all(map(_is_name, changed)):
            raise TypeError(f"changed = {changed!a}")
        content["changed"] = tuple(changed)
    files = content["files"]
    known = isinstance(files, dict) and files.keys() <= {MEMBERSHIP, FINAL}
    if not known or not all(isinstance(checksum, str) for checksum in files.values()):
        raise TypeError(f"files = {files!r}")
    return Manifest(header=_header(dict(content.pop("header"))), **content)


def _is_name(given: object) -> bool:
    return isinstance(given, str) and given.isprintable()


def _parameter(name: str, shape: Any) -> ParameterSpec:
    if not isinstance(shape, list) or not all(type(n) is int for n in shape):
        raise TypeError(f"shape = {shape!r}")
    return ParameterSpec(name, tuple(shape))


def _header(fields: dict[str, Any]) -> Header:
    parameters = tuple(_parameter(**spec) for spec in fields.pop("parameters"))
    recipe, provenance = fields.pop("recipe"), dict(fields.pop("provenance"))
    options, local = ModelOptions(**provenance.pop("options")), fields.pop("local", None)
    return Header(
        parameters=parameters,
        local=None if local is None else LocalTraining(**local),
        recipe=None if recipe is None else Recipe(**recipe),
        provenance=Provenance(options=options, **provenance),
        **fields,
    )


# -- members and final state ----------------------------------------------------------------------------------------


def check_membership(members: ArrayLike | None, non_members: ArrayLike | None) -> dict[str, Members]:
    """The given lists, or masks of the data, as int64 arrays of shape (n,): indices into the data, none twice, none
    both in and out."""
    given = {"members": members, "non_members": non_members}
    found = {name: _unique_indices(name, value) for name, value in given.items() if value is not None}
    if len(found) == 2:
        both = np.intersect1d(found["members"], found["non_members"])
        if both.size:
            raise InvalidArgument(
                f"`members` and `non_members` share {both.size} indices, the first is {both[0]}",
                remedy="list each record once, as in or as out",
            )
    return found


_INT64: Final = np.dtype(np.int64)
_LARGEST: Final = 2**63 - 1  # an int64 holds it


def check_indices(name: str, value: ArrayLike) -> Members:
    """Rows of the data, as an int64 array of shape (n,): `value` itself, where it is one."""
    array = np.asarray(value)
    if array.dtype == _INT64 and array.ndim == 1 and array.size and array.min() >= 0:
        return array  # quickly: this runs in every step of a training loop
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidArgument(
            f"must be a one-dimensional array of integers (indices), not {array.dtype} of shape {array.shape}",
            argument=name,
        )
    if array.size and (array.min() < 0 or (array.dtype.kind == "u" and array.max() > _LARGEST)):
        raise InvalidArgument(
            f"holds the index {min(array.min(), 0) or array.max()}", argument=name, remedy="pass indices from 0 up"
        )
    return array.astype(np.int64, copy=False)


def _unique_indices(name: str, value: ArrayLike) -> Members:
    mask = np.asarray(value)
    result = check_indices(name, np.flatnonzero(mask) if mask.ndim == 1 and mask.dtype == np.bool_ else mask).copy()
    unique, counts = np.unique(result, return_counts=True)
    if unique.size < result.size:
        raise InvalidArgument(
            f"holds the index {unique[counts > 1][0]} more than once", argument=name, remedy="list each record once"
        )
    return result


def write_membership(folder: Path, arrays: Mapping[str, Members]) -> dict[str, str]:
    """Writes the file, if there is something to say; returns its checksum by its name."""
    return _write(folder / MEMBERSHIP, arrays) if arrays else {}


def write_final(folder: Path, state: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Writes the final state; returns the checksum by the name of the file."""
    given: object = state
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"must map names to NumPy arrays, not be {type(given).__name__}", argument="final_state")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise InvalidArgument(
                f"must be a NumPy array under a string, not {type(value).__name__}", argument=f"final_state[{name!r}]"
            )
    return _write(folder / FINAL, {name: np.array(value, order="C", copy=None) for name, value in state.items()})


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    try:
        content = save(dict(arrays))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InvalidArgument(
            f"holds an array that safetensors cannot store ({error})", argument="final_state"
        ) from None
    _io.write(path, content)
    return {path.name: _io.sha256(content)}


def read_membership(folder: AnyPath, files: Mapping[str, str]) -> dict[str, Members]:
    """The arrays of the file, read-only; none if the trace has no such file."""
    if MEMBERSHIP not in files:
        return {}
    path = folder / MEMBERSHIP
    arrays = _read(path, files)
    try:
        found = check_membership(arrays.pop("members", None), arrays.pop("non_members", None))
    except InvalidArgument as error:
        raise damaged(path, str(error)) from None
    if arrays:
        raise damaged(path, f"unknown tensor {next(iter(arrays))!r}")
    for array in found.values():
        array.flags.writeable = False
    return found


def read_final(folder: AnyPath, files: Mapping[str, str]) -> dict[str, NDArray[Any]] | None:
    """The final state; None if the trace has none."""
    return _read(folder / FINAL, files) if FINAL in files else None


def _read(path: AnyPath, files: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    with reading(path) as file:
        content = file.read()
    if _io.sha256(content) != files[path.name]:
        raise damaged(path, "its checksum is not the one in trace.json")
    try:
        return load(content)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise damaged(path, f"not a safetensors file, {error}") from None
