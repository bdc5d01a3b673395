"""`gmip reproduce`: the paper's experiments again, what was published beside what is measured."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gmip._cli import options, show
from gmip._cli.cluster import BackendOption, SchedulerAddress, Workers, read_cluster
from gmip._cli.errors import BadRequest
from gmip._cli.stages import stages, warnings_in_one_line

if TYPE_CHECKING:
    from gmip.reproduce import Outcome

__all__ = ["reproduce"]


# As in gmip.reproduce.registry, which help should not have to import.
NAMES = ("convergence", "audit", "audit-loglog", "utility", "tau-table", "assumptions", "ablations", "loss-attacks")


def _option(name: str, metavar: str | None, help: str) -> Any:
    return typer.Option(name, metavar=metavar, show_default=False, help=help)


def reproduce(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, help=f"{', '.join(NAMES)}, or all (default).")
    ] = "all",
    out: Annotated[
        str, _option("--out", "DIR", "Folder of the results and the work in progress (default: results).")
    ] = "results",
    quick: Annotated[bool, _option("--quick", None, "Fewer settings and seeds; each result says which.")] = False,
    again: Annotated[
        bool, _option("--redraw", None, "Compute nothing: figures and claims anew from the CSV files in the folder.")
    ] = False,
    workers: Workers = None,
    backend: BackendOption = None,
    scheduler_address: SchedulerAddress = None,
    json: options.Json = False,
) -> None:
    """Run the paper's experiments: what was published beside what is measured.

    Example: GMIP_DATA=data gmip reproduce utility --out results --quick

    Each experiment writes NAME.csv, NAME.svg and NAME.json into the folder;
    index.html, and claims.md in Markdown, show all that are there. Interrupted?
    Repeat the command: cells that are finished are not computed again. Data
    sets that are missing are left out, with a sentence on how to get them.
    """
    given = read_cluster(workers, backend, scheduler_address)
    engine, settings = _framework()
    if again and (quick or given):
        raise BadRequest("--redraw computes nothing: leave out --quick, --workers, --backend and --scheduler-address.")
    with warnings_in_one_line():
        outcomes = engine.redraw([name], out) if again else _run(engine, settings(**given), name, out, quick, context)
    if json:
        show.print_json({one.experiment: _plain(one) for one in outcomes})
        return
    for one in outcomes:
        _print(one)
    print(f"Page: {Path(out) / 'index.html'}")


def _run(engine: Any, settings: Any, name: str, out: str, quick: bool, context: typer.Context) -> list[Outcome]:
    plan = engine.prepare([name], quick=quick)
    for task, reason in plan.missing.items():
        print(f"{task} is left out: {reason}", file=sys.stderr)
    with stages() as watch:
        try:
            found: list[Outcome] = engine.reproduce(
                plan, out, settings=settings, watch=watch, command=context.obj or ""
            )
        except KeyboardInterrupt:
            print("Interrupted: repeat the command to go on, nothing finished is lost.", file=sys.stderr)
            raise
    return found


def _framework() -> tuple[Any, Any]:
    try:
        import matplotlib  # noqa: F401, drawn with at the end: missed before hours of work

        from gmip import reproduce as engine
        from gmip.parallel import Workers as Settings
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"gmip reproduce needs {error.name}, which is not installed: pip install 'gmip[reproduce]'."
        ) from None
    return engine, Settings


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {
        "quick": outcome.quick,
        "claims": [dataclasses.asdict(claim) for claim in outcome.claims],
        "skipped": dict(outcome.skipped),
        "cells": outcome.cells,
        "seconds": outcome.seconds,
    }


def _print(outcome: Outcome) -> None:
    rows = [(claim.what, f"{claim.agrees}: {claim.measured}") for claim in outcome.claims]
    agreed = sum(claim.agrees == "yes" for claim in outcome.claims)
    quick = " (quick)" if outcome.quick else ""
    notes = [f"{claim.what}: {claim.words}" for claim in outcome.claims if claim.agrees != "yes" and claim.words]
    notes += [f"{task} is left out: {reason}" for task, reason in outcome.skipped.items()]
    told = f"{outcome.experiment}{quick}: {agreed} of {len(outcome.claims)} claims agree."
    show.print_people(rows, told if rows else f"{outcome.experiment}{quick}: nothing could be measured.", notes)
