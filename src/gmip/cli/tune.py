"""`gmip tune`: the best recipe that keeps a privacy target."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from gmip import _numbers
from gmip.cli import parse, show
from gmip.cli.errors import BadRequest
from gmip.cli.options import Count, Option, from_settings
from gmip.cli.shared_settings import OutputSettings, TargetSettings, WorkerSettings
from gmip.report.account_words import NOISE, most, target_name, target_shown

if TYPE_CHECKING:
    from gmip.tuning import TuneResult
    from gmip.vocabulary import PrivacyTarget

SEARCH: Final = "The search"


def _space(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """name=low:high for ranges, name=a,b,c for choices; the library checks the names."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not values.strip():
            raise BadRequest(f"{text!r} is not NAME=VALUES", argument=option, remedy="write it as batch_size=100,200")
        if name in ("clip_norm", "learning_rate"):
            low, _, high = values.partition(":")
            found[name] = tuple(parse.positive(option, end.strip()) for end in (low, high or low))
        elif name in ("batch_size", "num_steps"):
            found[name] = tuple(parse.count(option, value.strip()) for value in values.split(","))
        else:
            found[name] = tuple(value.strip() for value in values.split(","))
    return found


def _effort(option: str, text: str) -> dict[str, Any]:
    """A time, or a number of trials, as `gmip.tune` takes them."""
    number = text.strip().removesuffix("trials")
    return {"budget": text} if number == text.strip() else {"trials": parse.count(option, number.strip())}


class TuneSettings(OutputSettings, WorkerSettings, TargetSettings):
    """Settings of `gmip tune`, as `gmip.tune` takes them."""

    task: Annotated[
        str, Option("TASK", argument=True), Field(description="A built-in task, or path/to/file.py:make_task.")
    ] = "digits"
    budget: Annotated[
        dict[str, Any] | None,
        Option("TIME|Ntrials", SEARCH, _effort),
        Field(
            description="About how long the search takes, as in 90s or 10min (default 10min), or how many trainings, "
            "as in 60trials: 24 at least; 30 or so more measure the result."
        ),
    ] = None
    dataset_size: Annotated[
        Count | None,
        Option("N", SEARCH),
        Field(description="Members of the run to come (default: the task's own)."),
    ] = None
    space: Annotated[
        dict[str, Any] | None,
        Option("NAME=VALUES", SEARCH, _space, repeated=True),
        Field(
            description="What to search: clip_norm=0.1:3 and learning_rate=0.1:10 are ranges; batch_size=100,200, "
            "num_steps=50,100, optimizer=SGD,Adam and sampling=fixed,poisson choices. Repeat for several."
        ),
    ] = None
    out: Annotated[str, Option("DIR", SEARCH), Field(description="Folder for the results and finished work.")] = "tuned"


@from_settings(TuneSettings)
def tune(asked: TuneSettings) -> None:
    """Find the best recipe that keeps a privacy target.

    Searches clipping norm, batch size, steps, learning rate, optimizer and
    sampling. Every recipe gets the noise that keeps the target first, so all
    of them keep it. Trains and measures on records that will not be members.

    Example: gmip tune digits --target tpr=0.05@0.01 --budget 2min

    Writes into --out: recipe.yaml (gmip train takes it), tuning.html
    (the price of stricter targets, as a picture), tuning.json, trials.csv.

    Interrupted? Run the command again: finished work is kept, and the result
    is the same. In Python gmip.tune also takes another metric than accuracy
    (balanced-accuracy or loss), and searches on the members themselves where
    there are no other records.
    """
    target, folder = asked.wanted(), Path(asked.out)
    with show.warnings_in_one_line(), show.stages() as watch:
        from gmip import tasks, tuning
        from gmip.parallel import Workers
        from gmip.report import tuning_page

        workers = Workers(**asked.workers)
        chosen = tasks.load(asked.task)
        recipe, size = chosen.recipe, asked.dataset_size
        if size is not None:
            batch = size if recipe.sampling == "full" else min(recipe.batch_size, size)
            recipe = recipe.replace(dataset_size=size, batch_size=batch)
        try:
            result = tuning.tune(
                chosen,
                target,
                recipe=recipe,
                spec=asked.task,
                workers=workers,
                folder=folder,
                watch=watch,
                space=asked.space or {},
                **(asked.budget or {}),
            )
        except KeyboardInterrupt:
            print("Interrupted: run the command again to continue; finished work is kept.", file=sys.stderr)
            raise
        written = tuning_page.write_tuning(result, folder)
    if asked.as_json:
        show.print_json(result.summary())
        return
    _print(result, target, written, folder / tuning_page.PAGE)


def _print(result: TuneResult, target: PrivacyTarget, written: Path, page: Path) -> None:
    from gmip.report import tuning_page

    answer, *more = tuning_page.tuning_sentences(result)
    claim = f"{'guaranteed' if result.claim.kind == 'bound' else 'forecast'}, {most(result.claim.kind)}"
    rows = [
        *((name.replace("_", " "), _plain(getattr(result.recipe, name))) for name in tuning_page.SETTINGS[:-1]),
        (NOISE, _numbers.noise(result.recipe.noise_std)),
        (f"{claim}: {target_name(target)}", target_shown(target, result.exposure)),
    ]
    if result.trainings is not None:
        rows.append(("trials of the search", _numbers.count(len(result.tried))))
        rows.append(("trainings in all", _numbers.count(result.trainings)))
    show.print_people(rows, answer, [*tuning_page.exposure_notes(result), *more, tuning_page.leakage(result)])
    print(f"Keep {written} to yourself: its split_seed says who the members are.")
    print(f"Next: gmip train {written} --out runs/tuned    (the picture: {page})")


def _plain(value: Any) -> str:
    return _numbers.setting(value) if isinstance(value, float) else str(value)
