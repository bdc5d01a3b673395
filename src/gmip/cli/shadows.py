"""`gmip shadows`: train shadow models ahead of an audit."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from gmip.cli import cluster, options, parse, show
from gmip.cli.errors import BadRequest, listed, needs_extra
from gmip.cli.stages import stages, warnings_in_one_line

__all__ = ["shadows"]


def _option(name: str, metavar: str, help: str) -> Any:
    return typer.Option(name, metavar=metavar, show_default=False, help=help)


def shadows(
    task: Annotated[
        str | None,
        _option("--task", "TASK", "The task of the run: built-in, or path/to/file.py:make_task (default digits)."),
    ] = None,
    run: Annotated[str | None, _option("--run", "DIR", "Folder of the run, as gmip train wrote it (required).")] = None,
    attacks: Annotated[
        str | None, _option("--attacks", "A,B", "Attacks to train for (default: all that use shadow models).")
    ] = None,
    models: Annotated[str | None, _option("--models", "M", "Number of shadow models (default 64).")] = None,
    seed: Annotated[str | None, _option("--seed", "SEED", "Seed of members, weights and batches (default 0).")] = None,
    folder: Annotated[
        str | None,
        _option("--folder", "DIR", "Folder for sets of shadow models (default: shadows in the cache, GMIP_CACHE)."),
    ] = None,
    workers: cluster.Workers = None,
    backend: cluster.BackendOption = None,
    scheduler_address: cluster.SchedulerAddress = None,
    json: options.Json = False,
) -> None:
    """Train shadow models ahead of an audit.

    They follow the recipe of the run, each on a random half of the candidates.

    Example: gmip shadows --task digits --run runs/a --attacks lira,rmia

    Interrupted? Run the command again: it trains the models that are missing.
    A larger --models adds to the set. gmip audit uses the set if it attacks the
    same candidates (by default all, up to 2000 members and 2000 non-members)
    with the same seed and folder of shadow models.
    """
    if run is None:
        raise BadRequest("--run is missing", remedy="name the folder of a run, as in --run runs/a")
    settings: dict[str, Any] = {
        "count": parse.count("--models", models or "64"),
        "seed": parse.seed("--seed", seed or "0"),
        "folder": folder,
    } | cluster.read_cluster(workers, backend, scheduler_address)

    with warnings_in_one_line(), stages() as watch:
        with needs_extra("train", "gmip shadows"):
            from gmip import tasks
            from gmip.attacks import attack_table, shadow
            from gmip.attacks.attack import parties
            from gmip.trace import Trace
        names, signals = _signals(attack_table, attacks)
        chosen, trace = tasks.load(task or "digits"), Trace.open(run)
        who = parties(chosen, trace, None, None)
        plan = shadow.Shadows(**settings)
        try:
            found = shadow.shadow_set(
                chosen, trace, who.ids, who.background, signals, plan, progress=watch("shadow models")
            )
        except KeyboardInterrupt:
            print("Interrupted: run the command again to continue; finished work is kept.", file=sys.stderr)
            raise
    answer = {
        "folder": str(found.path),
        "attacks": names,
        "models": len(found),
        "candidates": len(found.candidates),
        "population": len(found.population),
        "signals": sorted(signal.key for signal in signals),
    }
    if json:
        show.print_json(answer)
        return
    show.print_people(
        [
            ("shadow models", str(len(found))),
            ("candidates", str(len(found.candidates))),
            ("records used by no model", str(len(found.population))),
        ],
        f"The shadow models for {listed(names)} are in {found.path}: protect it like the data.",
        ["Each model is trained with the recipe of the run, on a random half of the candidates and background."],
    )


def _signals(known: Any, asked: str | None) -> tuple[list[str], list[Any]]:
    """Names of attacks and what they want of each model, each signal once."""
    usable = [name for name in known.names() if "shadows" in known.kind(name).needs]
    names = usable if asked is None else [name.strip() for name in asked.split(",")]
    for name in names:
        if name not in usable:
            why = "uses no shadow models" if name in known.names() else "is not an attack"
            raise BadRequest(
                f"has {name!r}, which {why}", argument="--attacks", remedy=f"pass some of {', '.join(usable)}"
            )
    found = {signal.key: signal for name in names for signal in known.make(name).signals()}
    return names, list(found.values())
