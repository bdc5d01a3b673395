"""What a search found, as files: the recipe for `gmip train`, one self-contained page, JSON and a table of trials."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import yaml

from gmip._html import Html, tag
from gmip._io import make_folder, write
from gmip._numbers import count, duration, noise, number, setting
from gmip.report.account_words import exposure_words, target_name, target_shown
from gmip.report.figures import Box, limits, scatter, tick
from gmip.report.html import asset, bullets, page, table_html
from gmip.report.tables import Table, table_of
from gmip.vocabulary import RANDOM_SIZES

if TYPE_CHECKING:
    from gmip.tuning import FrontierPoint, TuneResult

RECIPE, PAGE, RESULT, TRIALS = "recipe.yaml", "tuning.html", "tuning.json", "trials.csv"
MODEL: Final = "model.safetensors"
_BOX: Final = Box(640, 340, left=84, right=40, top=18, bottom=58)
SETTINGS: Final = ("batch_size", "num_steps", "sampling", "optimizer", "learning_rate", "clip_norm", "noise_std")
_SHOWN_TRIALS: Final = 20


def write_tuning(result: TuneResult, folder: str | PathLike[str]) -> Path:
    """Writes recipe.yaml, tuning.html, tuning.json and trials.csv into the folder; returns where the recipe is.

    A search on members leaves tuning.json and model.safetensors, whose place is returned: there is nothing else that
    may be known, and training its recipe once more would be one more run.
    """
    place = Path(folder)
    make_folder(place)
    if result.model is not None:
        from safetensors.torch import save

        write(place / RESULT, json.dumps(result.summary(), indent=2, allow_nan=False) + "\n")
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in result.model.state_dict().items()}
        write(place / MODEL, save(weights))
        return place / MODEL
    write(place / PAGE, tuning_html(result))
    write(place / RESULT, json.dumps(result.summary(), indent=2, allow_nan=False) + "\n")
    write(place / TRIALS, _csv(result))
    write(place / RECIPE, recipe_yaml(result))
    return place / RECIPE


def exposure_notes(result: TuneResult) -> list[str]:
    """What the exposure is worth, in sentences: bound or forecast, for whom, and what it is about."""
    bound = result.claim.kind == "bound"
    said = [f"The exposure is a {'proved bound' if bound else 'forecast, not a bound'}, for {result.claim.for_whom}."]
    if isinstance(result.target.susceptibility, tuple):
        said.append(
            "Susceptibilities were measured in other runs and change with clipping norm and weights: measure them "
            "again in the run to come."
        )
    if result.target.notion == "gmip" and result.target.attacker_knows < 1.0:
        said.append("A bound for any record needs more noise: --notion gdp (in Python also attacker_knows=1).")
    if result.claim.adjacency is not None:
        said.append(f"Neighbours: {result.claim.adjacency}.")
    if result.claim.not_a_member is not None:
        said.append(f"Compared with: {result.claim.not_a_member}.")
        if (result.own_sampling in RANDOM_SIZES) != (result.recipe.sampling in RANDOM_SIZES):
            said.append(
                f"The {result.own_sampling} batches of the task's own recipe define the game differently, and "
                f"the two numbers cannot be compared: --try sampling={result.own_sampling} keeps to them."
            )
    return said if result.claim.caveat is None else [*said, result.claim.caveat]


def tuning_sentences(result: TuneResult) -> list[str]:
    """The answer, then what it is worth."""
    reached = f"{result.metric} {result.shown(result.quality.mean)}{_error(result, result.quality.error)}"
    said = [f"The best recipe found for {result.target} reaches {reached} on test records."]
    if result.own is not None:
        gain = result.shown(result.own.quality.mean)
        said.append(f"The task's own recipe, with the noise that the same target needs, reaches {gain}.")
    free = next((point for point in result.frontier if point.name == "no noise"), None)
    if free is not None:
        said.append(f"Without noise it would be {result.shown(free.quality.mean)}.")
    elif result.recipe.noise_std == 0.0:
        said.append("No noise is needed: the randomness of the data keeps the target.")
    stricter = result.stricter()
    if stricter is not None:
        said.append(
            f"At a stricter target ({exposure_words(result.target, stricter.exposure)}) it would be "
            f"{result.shown(stricter.quality.mean)}."
        )
    return said


def _error(result: TuneResult, error: float) -> str:
    if math.isnan(error):
        return ""
    share = result.metric.endswith("accuracy")
    return f" ± {100 * error:.1f} points" if share else f" ± {number(error, 'up')}"


def leakage(result: TuneResult) -> str:
    """What the search gives away about members."""
    if result.model is not None:
        return (
            f"The search trained on the members, {result.target.best_of:g} times on average. The target covers this "
            "model, its recipe and its metric together: publish nothing else of the search, neither the number of runs "
            "nor the time they took, and do not train again."
        )
    fewer = "" if result.trained_on == result.recipe.dataset_size else f", {count(result.trained_on)} at a time"
    return (
        f"The search trained on {count(result.outsiders)} records that will not be members{fewer}, and so gives "
        "nothing away about members."
    )


def recipe_yaml(result: TuneResult) -> str:
    """The file that `gmip train` takes."""
    reached = f"{result.metric} {result.shown(result.quality.mean)}"
    lines = [
        f"# Found by gmip tune (gmip {version('gmip')}): {reached} on test",
        f"# records, {result.target}. Train with: gmip train FILE --out runs/tuned",
        f"# {leakage(result)}",
        "# Who will be a member follows from the split_seed and the task's data: keep this file to yourself.",
    ]
    settings = {
        "task": result.task_spec,
        "split_seed": result.split_seed,
        "target": result.target.as_json(),
        "recipe": asdict(result.recipe),
    }
    return "\n".join([*lines, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)])


def tuning_html(result: TuneResult) -> str:
    """The page. No script, no network; every string is escaped."""
    if result.trainings is None or result.seconds is None:
        raise ValueError("A search on members has no page")
    answer, *more = tuning_sentences(result)
    facts = [
        *exposure_notes(result),
        leakage(result),
        f"Each model was trained on {count(result.trained_on)} records; the run to come has "
        f"{count(result.recipe.dataset_size)} members."
        + ("" if result.trained_on >= result.recipe.dataset_size else " With more records it should do better."),
        f"{count(result.trainings)} trainings; {count(len(result.tried))} are trials of the "
        f"search and the others measure what it found; {duration(result.seconds)} of computing for the "
        f"search; {sum(one.outcome.stopped for one in result.tried)} of them ended early.",
    ]
    frontier = table_of(
        "The best recipe at other targets, with more or less noise",
        ("Target", "Exposure", f"{result.metric.capitalize()} on test records", "Noise std on the mean"),
        [
            (
                point.name,
                exposure_words(result.target, point.exposure),
                result.shown(point.quality.mean) + _error(result, point.quality.error),
                noise(point.recipe.noise_std),
            )
            for point in result.frontier
        ],
        texts=(1,),
    )
    settings = [(name.replace("_", " "), _plain(name, value)) for name, value in asdict(result.recipe).items()]
    recipe = table_of("As in recipe.yaml", ("Setting", "Value"), settings)
    return page(
        f"Tuning of {result.task}",
        tag("header", tag("p", "gmip tune", class_="kicker"), tag("h1", f"Tuning of {result.task}")),
        tag(
            "main",
            tag("section", tag("h2", answer, id="answer-title"), *(tag("p", line) for line in more), bullets(facts)),
            tag("section", tag("h2", "The price of privacy", id="frontier-title"), frontier_chart(result)),
            tag("section", table_html(frontier, "frontier", "table")),
            tag("section", tag("h2", "The recipe", id="recipe-title"), table_html(recipe, "recipe", "table")),
            tag("section", tag("h2", "What was tried", id="tried-title"), table_html(_tried(result), "tried", "table")),
            tag("div", tag("code", f"gmip train {RECIPE} --out runs/tuned"), class_="command"),
        ),
        tag("footer", tag("p", f"Written by gmip tune. All trials: {TRIALS}. The recipe: {RECIPE}.")),
        style=asset("style.css"),
    )


def frontier_chart(result: TuneResult) -> Html:
    """The metric against the exposure: one dot for each point of the frontier, a ring for the task's own recipe."""
    points = [point for point in result.frontier if math.isfinite(point.exposure)]
    others = [] if result.own is None else [result.own]
    sign = -1.0 if result.metric == "loss" else 1.0  # higher is better
    values = [sign * point.quality.mean for point in (*points, *others)]
    low, high = limits(values, share=result.metric.endswith("accuracy"))
    exposures = [max(point.exposure, 1.0e-9) for point in (*points, *others)]
    first, last = math.log(min(exposures) / 1.3), math.log(max(exposures) * 1.3)

    def place(point: FrontierPoint) -> tuple[float, float]:
        x = _BOX.x((math.log(max(point.exposure, 1.0e-9)) - first) / (last - first))
        return round(x, 1), round(height(sign * point.quality.mean), 1)

    def height(value: float) -> float:
        return _BOX.y((value - low) / (high - low))

    places = [place(point) for point in points]
    dots = "; ".join(
        f"{point.name}: {exposure_words(result.target, point.exposure)}, {result.shown(point.quality.mean)}"
        for point in points
    )
    line = "M" + "L".join(f"{x} {y}" for x, y in places)
    return scatter(
        _BOX,
        *(
            tick(_BOX.left - 7, height(value) + 4, "end", result.shown(sign * value))
            for value in np.linspace(low, high, 4).tolist()
        ),
        *(
            tick(x, _BOX.y(0.0) + 20, "middle", target_shown(result.target, point.exposure))
            for (x, _), point in zip(places, points, strict=True)
        ),
        tag(
            "g",
            tag("path", d=line, class_="curve", fill="none", stroke_width=2),
            *(_dot(point.name, where, own=False) for point, where in zip(points, places, strict=True)),
            class_="look-blue",
        ),
        *(tag("g", _dot(one.name, place(one), own=True), class_="look-vermillion") for one in others),
        across=f"Exposure ({target_name(result.target)})",
        up=f"{result.metric.capitalize()} on test records",
        label=f"{result.metric.capitalize()} against exposure. {dots}.",
        note="Up and to the left is better. The large dot is the target.",
    )


def _dot(name: str, where: tuple[float, float], *, own: bool) -> Html:
    """A dot for a point of the frontier, a ring with its name for the task's own recipe."""
    x, y = where
    if not own:
        return tag("circle", tag("title", name), cx=x, cy=y, r=7 if name == "the target" else 4.5, class_="dot")
    ring = tag("circle", cx=x, cy=y, r=6, class_="curve", fill="none")
    return tag("g", ring, tick(x + 10, y + 4, "start", name))


def _tried(result: TuneResult) -> Table:
    """Recipes by the mean of their trials on validation records, best first."""
    groups: dict[str, list[Any]] = {}
    for one in result.tried:
        groups.setdefault(repr(one.recipe), []).append(one)
    ranked = sorted(groups.values(), key=lambda several: -_mean(several))
    rows = [
        (
            result.shown(_mean(several)) if math.isfinite(_mean(several)) else "no finite number",
            str(len(several)),
            *(_plain(name, getattr(several[0].recipe, name)) for name in SETTINGS),
        )
        for several in ranked[:_SHOWN_TRIALS]
    ]
    caption = f"The best {len(rows)} of {len(ranked)} recipes, by the mean {result.metric} of their trials"
    columns = (result.metric.capitalize(), "Trials", *(name.replace("_", " ") for name in SETTINGS))
    return table_of(caption, columns, rows, texts=(4, 5))


def _mean(several: Sequence[Any]) -> float:
    values = [one.outcome.metric for one in several if math.isfinite(one.outcome.metric)]
    return float(np.mean(values)) if values else -math.inf


def _plain(name: str, value: Any) -> str:
    """Noise is rounded up: who copies it keeps the target."""
    if name == "noise_std":
        return noise(value)
    return setting(value) if isinstance(value, float) else str(value)


def _csv(result: TuneResult) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["seed", "metric", "ended_early", "exposure", "seconds", *SETTINGS])
    for one in result.tried:
        facts = (one.seed, one.outcome.metric, one.outcome.stopped, one.exposure, f"{one.outcome.seconds:.3f}")
        writer.writerow([*facts, *(getattr(one.recipe, name) for name in SETTINGS)])
    return text.getvalue()
