"""trace.json: the header of a trace, its state and the checksums of its small files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gmip.errors import InvalidArgument, TraceError
from gmip.trace._files import FINAL, MANIFEST, MEMBERSHIP, damaged, reading, replacing
from gmip.trace._shard import MAX_ROWS, rows_per_shard
from gmip.trace.schema import FORMAT_VERSION, Header, ParameterSpec

__all__ = ["Manifest", "read_manifest", "write_manifest"]

_FORMAT = "gmip-trace"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What trace.json holds. `num_steps` and `chain` (the journal's last) are None while the trace is open."""

    header: Header
    id: str
    gmip: str
    created: str
    rows_per_shard: int
    files: Mapping[str, str] = field(default_factory=dict)
    num_steps: int | None = None
    chain: str | None = None

    @classmethod
    def new(cls, header: Header, files: Mapping[str, str]) -> Manifest:
        return cls(
            header=header,
            id=secrets.token_hex(16),
            gmip=_gmip_version(),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            rows_per_shard=rows_per_shard(header.recorded_params, header.dtype),
            files=files,
        )

    @property
    def complete(self) -> bool:
        return self.num_steps is not None

    def completed(self, *, num_steps: int, chain: str, files: Mapping[str, str]) -> Manifest:
        return dataclasses.replace(self, num_steps=num_steps, chain=chain, files=files)

    def reopened(self) -> Manifest:
        files = {name: checksum for name, checksum in self.files.items() if name != FINAL}
        return dataclasses.replace(self, num_steps=None, chain=None, files=files)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    content: dict[str, Any] = {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "id": manifest.id,
        "gmip": manifest.gmip,
        "created": manifest.created,
        "status": "complete" if manifest.complete else "open",
        "rows_per_shard": manifest.rows_per_shard,
        "header": dataclasses.asdict(manifest.header),
        "files": dict(manifest.files),
    }
    if manifest.complete:
        content |= {"num_steps": manifest.num_steps, "chain": manifest.chain}
    # A round trip first: the checksum is that of what a reader will parse, with lists for tuples.
    content = json.loads(json.dumps(content))
    content["checksum"] = _checksum(content)
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="ascii")


def read_manifest(folder: Path) -> Manifest:
    """trace.json of a folder, checked from the outside in: a trace at all, this version, unaltered, of the right
    types."""
    path = folder / MANIFEST
    with reading(path):
        if not path.is_file():
            raise TraceError(f"{folder} holds no trace ({MANIFEST} is missing): check the path.")
        data = path.read_bytes()
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise damaged(path, "not JSON") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise TraceError(f"{path} does not describe a trace of gmip: check the path.")
    found = content.get("version")
    if type(found) is not int:
        raise damaged(path, f"version is {found!r}")
    if found > FORMAT_VERSION:
        raise TraceError(f"{path} has format version {found}, this gmip reads version {FORMAT_VERSION}: upgrade gmip.")
    if found < FORMAT_VERSION:
        raise TraceError(
            f"{path} has format version {found}, this gmip reads version {FORMAT_VERSION}: read it with the gmip "
            "that wrote it, or record the run again."
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
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def _parse(content: dict[str, Any]) -> Manifest:
    for key in ("format", "version"):
        del content[key]
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
    if status == "open" and not content.keys().isdisjoint({"num_steps", "chain"}):
        raise ValueError("an open trace with a last step")
    files = content["files"]
    known = isinstance(files, dict) and files.keys() <= {MEMBERSHIP, FINAL}
    if not known or not all(isinstance(checksum, str) for checksum in files.values()):
        raise TypeError(f"files = {files!r}")
    header = dict(content.pop("header"))
    header["parameters"] = tuple(ParameterSpec(**spec) for spec in header["parameters"])
    return Manifest(header=Header(**header), **content)
