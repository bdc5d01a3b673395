"""`gmip tune`: the best recipe that keeps a privacy target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gmip import _numbers
from gmip.cli import cluster, options, parse, show
from gmip.cli.errors import BadRequest, needs_extra
from gmip.cli.stages import stages, warnings_in_one_line
from gmip.vocabulary import NOTIONS

__all__ = ["tune"]

SEARCH = "The search"
METRICS = ("accuracy", "balanced-accuracy", "loss")


def _search(name: str, metavar: str | None, help: str) -> Any:
    return options.option(name, metavar, SEARCH, help)


def tune(
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="A built-in task, or path/to/file.py:make_task (default digits)."),
    ] = None,
    target_mu: options.TargetMu = None,
    target_tpr: options.TargetTpr = None,
    target_advantage: options.TargetAdvantage = None,
    target_epsilon: options.TargetEpsilon = None,
    delta: options.DeltaOption = None,
    notion: options.NotionOption = None,
    susceptibility: options.Susceptibility = None,
    susceptibility_file: options.SusceptibilityFile = None,
    attacker_knows: options.AttackerKnows = None,
    budget: Annotated[
        str | None, _search("--budget", "TIME", "About how long the search takes, as in 90s or 10min (default 10min).")
    ] = None,
    trials: Annotated[
        str | None,
        _search(
            "--trials",
            "B",
            "About so many trainings instead of --budget, 24 at least; 30 or so more measure the result.",
        ),
    ] = None,
    metric: Annotated[
        str | None, _search("--metric", "|".join(METRICS), "What makes a model good (default accuracy).")
    ] = None,
    dataset_size: Annotated[
        str | None, _search("--dataset-size", "N", "Members of the run to come (default: the task's own).")
    ] = None,
    try_: Annotated[
        list[str] | None,
        _search(
            "--try",
            "NAME=VALUES",
            "What to search: clip_norm=0.1:3 and learning_rate=0.1:10 are ranges; batch_size=100,200, "
            "num_steps=50,100, optimizer=SGD,Adam and sampling=fixed,poisson choices. Repeat for several.",
        ),
    ] = None,
    split_seed: Annotated[
        str | None,
        _search(
            "--split-seed",
            "SEED",
            "Says who will be a member; the search trains on others (default: random, and kept in --out).",
        ),
    ] = None,
    seed: Annotated[str | None, _search("--seed", "SEED", "Seed of the search (default 0).")] = None,
    out: Annotated[
        str | None, _search("--out", "DIR", "Folder for the results and finished work (default tuned).")
    ] = None,
    workers: cluster.Workers = None,
    backend: cluster.BackendOption = None,
    scheduler_address: cluster.SchedulerAddress = None,
    json: options.Json = False,
) -> None:
    """Find the best recipe that keeps a privacy target.

    Searches clipping norm, batch size, steps, learning rate, optimizer and
    sampling. Every recipe gets the noise that keeps the target first, so all
    of them keep it. Trains and measures on records that will not be members.

    Example: gmip tune digits --target-tpr 0.05@0.01 --budget 2min

    Writes into --out: recipe.yaml (gmip train --recipe takes it), tuning.html
    (the price of stricter targets, as a picture), tuning.json, trials.csv.

    Interrupted? Run the command again: finished work is kept, and the result
    is the same.
    """
    if budget is not None and trials is not None:
        raise BadRequest("--budget and --trials set the same number", remedy="pass only one of them")
    target = options.read_target(
        target_mu,
        target_tpr,
        target_advantage,
        target_epsilon,
        delta,
        notion=parse.one_of("--notion", notion or "gmip", NOTIONS),
        susceptibility=options.read_susceptibility(susceptibility, susceptibility_file),
        attacker_knows=options.read_attacker(attacker_knows),
    )
    settings: dict[str, Any] = {
        "metric": parse.one_of("--metric", metric or "accuracy", METRICS),
        "budget": budget or "10min",
        "trials": None if trials is None else parse.count("--trials", trials),
        "split_seed": None if split_seed is None else parse.seed("--split-seed", split_seed),
        "seed": parse.seed("--seed", seed or "0"),
        "space": _space(try_ or []),
    }
    size = None if dataset_size is None else parse.count("--dataset-size", dataset_size)
    where = cluster.read_cluster(workers, backend, scheduler_address)
    folder = Path(out or "tuned")

    with warnings_in_one_line(), stages() as watch:
        with needs_extra("audit", "gmip tune"):
            from gmip import tasks, tuning
            from gmip.parallel import Workers
            from gmip.report import tuning_page
        chosen = tasks.load(task or "digits")
        recipe = chosen.recipe
        if size is not None:
            batch = size if recipe.sampling == "full" else min(recipe.batch_size, size)
            recipe = recipe.replace(dataset_size=size, batch_size=batch)
        try:
            result = tuning.tune(
                chosen,
                target,
                recipe=recipe,
                spec=task or "digits",
                workers=Workers(**where),
                folder=folder,
                watch=watch,
                **settings,
            )
        except KeyboardInterrupt:
            print("Interrupted: run the command again to continue; finished work is kept.", file=sys.stderr)
            raise
        written = tuning_page.write_tuning(result, folder)
    if json:
        show.print_json(result.summary())
        return
    answer, *more = tuning_page.tuning_sentences(result)
    promise = "at most" if result.kind == "bound" else "about"
    rows = [
        *((name.replace("_", " "), _plain(getattr(result.recipe, name))) for name in tuning_page.SETTINGS[:-1]),
        ("noise std on the mean gradient", _numbers.number(result.recipe.noise_std, "up", 5)),
        (f"promised, {promise}: {options.target_name(target)}", options.shown(target, result.exposure)),
        ("trials of the search", _numbers.count(len(result.tried))),
        ("trainings in all", _numbers.count(result.trainings)),
    ]
    leakage = result.leakage[:1].upper() + result.leakage[1:]
    notes = [*result.promise(), *more, leakage]
    show.print_people(rows, answer, notes)
    print(f"Keep {written} to yourself: its split_seed says who the members are.")
    print(f"Next: gmip train --recipe {written} --out runs/a    (the picture: {folder / tuning_page.PAGE})")


def _plain(value: Any) -> str:
    return _numbers.setting(value) if isinstance(value, float) else str(value)


def _space(texts: list[str]) -> dict[str, Any]:
    """name=low:high for ranges, name=a,b,c for choices; the library checks the names."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not values.strip():
            raise BadRequest(f"{text!r} is not NAME=VALUES", argument="--try", remedy="write it as batch_size=100,200")
        if name in ("clip_norm", "learning_rate"):
            low, _, high = values.partition(":")
            found[name] = tuple(parse.positive("--try", end.strip()) for end in (low, high or low))
        elif name in ("batch_size", "num_steps"):
            found[name] = tuple(parse.count("--try", value.strip()) for value in values.split(","))
        else:
            found[name] = tuple(value.strip() for value in values.split(","))
    return found
