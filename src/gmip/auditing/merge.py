"""Two audits as one, to be read side by side."""

from __future__ import annotations

from gmip.auditing.schema import AuditResult
from gmip.errors import InvalidArgument

__all__ = ["merged"]


def merged(first: AuditResult, second: AuditResult) -> AuditResult:
    """The runs of both; a name that both have gets a number. Confidence and delta must agree, or nothing compares."""
    for name in ("confidence", "delta"):
        ours, theirs = getattr(first, name), getattr(second, name)
        if ours != theirs:
            raise InvalidArgument(f"the audits differ in {name}, {ours:g} and {theirs:g}: audit again with the same.")
    taken = [run.name for run in first.runs]
    added = []
    for run in second.runs:
        name, count = run.name, 1
        while name in taken:
            count += 1
            name = f"{run.name} ({count})"
        taken.append(name)
        added.append(run.model_copy(update={"name": name}))
    provenance = first.provenance.model_copy(
        update={
            "command": f"{first.provenance.command}; {second.provenance.command}",
            "fingerprints": first.provenance.fingerprints | second.provenance.fingerprints,
            "config": {},
        }
    )
    title = first.title if first.title == second.title else f"{first.title} and {second.title}"
    return first.model_copy(update={"title": title, "runs": (*first.runs, *added), "provenance": provenance})
