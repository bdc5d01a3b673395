"""steps.jsonl: one line per optimizer step, each chained to the one before it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gmip.errors import TraceError
from gmip.trace._files import damaged, reading
from gmip.trace._manifest import Manifest
from gmip.trace.schema import StepInfo

__all__ = ["Journal", "next_line", "read_journal"]

_MAX_LINE = 4096
_TAIL = re.compile(rb',"chain":"([0-9a-f]{16})"}\n')
_TAIL_LENGTH = len(',"chain":"0123456789abcdef"}\n')
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass
class Journal:
    """The steps read: what they say, the SHA-256 of each recorded row, and where the file stands after them."""

    chain: str
    size: int = 0
    infos: list[StepInfo] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)


def _link(chain: str, body: bytes) -> str:
    return hashlib.sha256(chain.encode("ascii") + body).hexdigest()[:16]


def next_line(
    chain: str,
    *,
    index: int,
    batch_size: int,
    divisor: float,
    noise_std: float,
    row: tuple[int, int, str] | None,
) -> tuple[bytes, str]:
    """The line of a step and its chain value. `row` is (shard, row, SHA-256) of a recorded step."""
    # Text put together by hand costs a third of json.dumps, and each of these values is its own JSON.
    text = f'{{"index":{index},"batch_size":{batch_size},"divisor":{divisor!r},"noise_std":{noise_std!r}'
    if row is None:
        text += ',"recorded":false'
    else:
        text += f',"recorded":true,"shard":{row[0]},"row":{row[1]},"sha256":"{row[2]}"'
    body = text.encode("ascii")
    chain = _link(chain, body + b"}")
    return body + b',"chain":"%s"}\n' % chain.encode("ascii"), chain


def read_journal(path: Path, manifest: Manifest, *, limit: int | None = None) -> Journal:
    """The first `limit` steps, or all.

    A last line that was cut short is left out while the trace is open. Whatever else does not follow from the line
    before it is damage.
    """
    journal = Journal(chain=manifest.id)
    smallest = 0 if manifest.header.sampling == "poisson" else 1
    with reading(path), path.open("rb") as file:
        while limit is None or len(journal.infos) < limit:
            line = file.readline(_MAX_LINE)
            if not line.endswith(b"\n"):
                # What follows the last line end is the step in flight when the writer died, or the zeros that some file
                # systems put there after a power cut.
                if line and (manifest.complete or b"\n" in file.read()):
                    raise _damaged_line(path, journal, "is cut short")
                break
            tail = _TAIL.fullmatch(line, len(line) - _TAIL_LENGTH) if len(line) > _TAIL_LENGTH else None
            body = line[:-_TAIL_LENGTH] + b"}"
            if tail is None or tail[1].decode("ascii") != _link(journal.chain, body):
                raise _damaged_line(path, journal, "does not follow from the one before it")
            try:
                _parse(json.loads(body), journal, smallest, manifest.rows_per_shard)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise _damaged_line(path, journal, f"does not describe a step, {error}") from None
            journal.chain = tail[1].decode("ascii")
            journal.size += len(line)
        else:
            return journal
    if manifest.complete and (len(journal.infos), journal.chain) != (manifest.num_steps, manifest.chain):
        raise damaged(path, f"it ends after {len(journal.infos)} steps, not after {manifest.num_steps} as it should")
    return journal


def _damaged_line(path: Path, journal: Journal, what: str) -> TraceError:
    number = len(journal.infos)
    return TraceError(
        f"{path} is damaged (line {number + 1} {what}): restore the folder from a copy, or resume the run at step "
        f"{number} or before."
    )


def _parse(fields: Any, journal: Journal, smallest: int, rows: int) -> None:
    """Adds a step to the journal; TypeError, ValueError or KeyError if the fields are not those of the next step."""
    if not isinstance(fields, dict):
        raise TypeError("it is not a JSON object")
    recorded = fields["recorded"]
    position = divmod(len(journal.digests), rows) if recorded is True else (None, None)
    batch_size, divisor, noise_std = fields["batch_size"], fields["divisor"], fields["noise_std"]
    _expect("recorded", recorded, type(recorded) is bool)
    _expect("index", fields["index"], fields["index"] == len(journal.infos))
    _expect("batch_size", batch_size, type(batch_size) is int and batch_size >= smallest)
    _expect("divisor", divisor, type(divisor) is float and 0.0 < divisor < math.inf)
    _expect("noise_std", noise_std, type(noise_std) is float and 0.0 <= noise_std < math.inf)
    _expect("shard and row", fields, (fields.get("shard"), fields.get("row")) == position)
    if recorded:
        digest = fields["sha256"]
        _expect("sha256", digest, isinstance(digest, str) and _SHA256.fullmatch(digest) is not None)
        journal.digests.append(bytes.fromhex(digest))
    journal.infos.append(
        StepInfo(
            index=len(journal.infos),
            batch_size=batch_size,
            divisor=divisor,
            noise_std=noise_std,
            recorded=recorded,
        )
    )


def _expect(name: str, value: object, sound: bool) -> None:
    if not sound:
        raise ValueError(f"{name} = {value!r}")
