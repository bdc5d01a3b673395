"""The words of a plan: what an audit is going to do, before it does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gmip._numbers import byte_size, count, duration

if TYPE_CHECKING:
    from gmip.attacks.work import WorkPlan
    from gmip.auditing.plan import PlannedAttack


def title(one: PlannedAttack) -> str:
    """What a table is about."""
    return f"{one.attack} on {one.run}"


def rows(work: WorkPlan, workers: int | None) -> list[tuple[str, str]]:
    """Names and values of a table; `workers` is None where a cluster has to be asked how many it has."""
    found = [("records and steps", f"{count(work.records)} x {count(work.steps)}")]
    several = f"{count(workers)} workers" if workers is not None else "n workers"
    if not work.pieces:
        found.append(("pieces for workers", "none: all in one process"))
    else:
        kind = "steps" if work.piece == "step" else "strips of a step"
        found.append(("pieces for workers", f"{count(work.pieces)} {kind}, {duration(work.each)} each"))
    if workers == 1 or not work.pieces:
        found += [
            ("memory", byte_size(max(work.memory, work.memory_here))),
            ("time", f"about {duration(work.seconds(1))}"),
        ]
    else:
        time = duration(work.alone) + f" + {duration(work.each)} x {count(work.pieces)} / n"
        found += [
            ("memory of each worker", byte_size(work.memory)),
            ("memory of this process", byte_size(work.memory_here)),
            ("sent to each worker once", byte_size(work.once)),
            ("moved for each piece", byte_size(work.moved)),
            (f"time with {several}", f"about {time if workers is None else duration(work.seconds(workers))}"),
        ]
        if workers is not None:
            found.append(("moved in all", byte_size(work.bytes_moved(workers))))
    if work.left_out:
        found.append(("left out", work.left_out))
    return found


def notes(planned: Sequence[PlannedAttack], workers: int | None) -> list[str]:
    """What a reader has to know about all the tables."""
    known = [one.work for one in planned if one.work is not None]
    unknown = [title(one) for one in planned if one.work is None and one.error is None]
    said = [f"{title(one)} will not run: {one.error}" for one in planned if one.error is not None]
    if known and workers is not None:
        said.append(f"In all about {duration(sum(work.seconds(workers) for work in known))}.")
    said.append(
        "Times come from a piece measured on this machine; memory is beside the program itself (torch: about 0.4 GiB). "
        "Nothing was run."
    )
    rest = ["the check of the record", *unknown]
    said.append(f"Not estimated: {', '.join(rest)}.")
    return said
