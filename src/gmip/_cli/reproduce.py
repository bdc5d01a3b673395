"""`gmip reproduce`: the paper's experiments, run again and compared with what was published."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gmip._cli import options, show
from gmip._cli.cluster import BackendOption, SchedulerAddress, Workers, read_cluster
from gmip._cli.errors import BadRequest, needs_extra
from gmip._cli.stages import stages, warnings_in_one_line
from gmip.reproduce.experiments import names

if TYPE_CHECKING:
    from gmip.reproduce import Outcome

__all__ = ["reproduce"]


def _option(name: str, metavar: str | None, help: str) -> Any:
    return typer.Option(name, metavar=metavar, show_default=False, help=help)


def reproduce(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, help=f"{', '.join(names())}, or all (default).")
    ] = "all",
    out: Annotated[
        str, _option("--out", "DIR", "Folder for the results and for unfinished work (default results).")
    ] = "results",
    quick: Annotated[bool, _option("--quick", None, "Use fewer settings and seeds; each result says which.")] = False,
    again: Annotated[
        bool, _option("--redraw", None, "Compute nothing; redraw figures and recheck claims from the CSV files.")
    ] = False,
    workers: Workers = None,
    backend: BackendOption = None,
    scheduler_address: SchedulerAddress = None,
    json: options.Json = False,
) -> None:
    """Run the paper's experiments and compare the results.

    Example: GMIP_DATA=data gmip reproduce utility --out results --quick

    Each experiment writes NAME.csv, NAME.svg and NAME.json into the folder;
    index.html and claims.md show all experiments in the folder. Interrupted?
    Run the command again: it continues where it stopped. Missing data sets are
    skipped, with a sentence on how to get them.
    """
    given = read_cluster(workers, backend, scheduler_address)
    _check_extras()
    from gmip.reproduce import redraw

    if again and (quick or given):
        raise BadRequest(
            "--redraw computes nothing", remedy="leave out --quick, --workers, --backend and --scheduler-address"
        )
    with warnings_in_one_line():
        outcomes = redraw([name], out) if again else _run(given, name, out, quick, context.obj or "")
    if json:
        show.print_json({one.experiment: _plain(one) for one in outcomes})
        return
    for one in outcomes:
        _print(one)
    print(f"Page: {Path(out) / 'index.html'}")


def _run(given: dict[str, Any], name: str, out: str, quick: bool, command: str) -> list[Outcome]:
    from gmip import reproduce as experiments
    from gmip.parallel import Workers as Settings

    plan = experiments.prepare([name], quick=quick)
    for task, reason in plan.missing.items():
        print(f"{task} is skipped: {reason}", file=sys.stderr)
    with stages() as watch:
        try:
            return experiments.reproduce(plan, out, settings=Settings(**given), watch=watch, command=command)
        except KeyboardInterrupt:
            print("Interrupted: run the command again to continue; finished work is kept.", file=sys.stderr)
            raise


def _check_extras() -> None:
    """Before hours of work: what draws its results is installed."""
    with needs_extra("reproduce", "gmip reproduce"):
        import matplotlib  # noqa: F401

        import gmip.reproduce.reproduction  # noqa: F401


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
    notes += [f"{task} is skipped: {reason}" for task, reason in outcome.skipped.items()]
    told = f"{outcome.experiment}{quick}: {agreed} of {len(outcome.claims)} claims agree."
    show.print_people(rows, told if rows else f"{outcome.experiment}{quick}: nothing could be measured.", notes)
