"""The strip that answers "what if": noise and batch size against exposure, computed during the audit."""

from __future__ import annotations

from gmip._html import Html, embedded_json, join, tag
from gmip._numbers import count, percent, rate, setting
from gmip.auditing.advice_schema import WhatIf
from gmip.auditing.schema import AuditResult, RunAudit
from gmip.report.page import scroll
from gmip.vocabulary import Rate

__all__ = ["what_if_part"]


def what_if_part(result: AuditResult, run: RunAudit, key: str) -> list[Html | None]:
    """A table that shows all, and two sliders that read it out."""
    grid = run.what_if
    if grid is None or (len(grid.noise_std), len(grid.batch_size)) == (1, 1):
        return []
    goal = run.goal
    most, kind = ("at most", "a bound") if grid.kind == "bound" else ("about", "a forecast, not a bound")
    about = (
        f"Members found at {rate(goal.fpr)} false alarms with other noise or batches, as many steps and all else as it "
        f"is: {most} what the table says ({kind}, for {grid.for_whom}). {_colour(grid)} the target, "
        f"{rate(goal.tpr)}; the framed cell is this run."
    )
    row, column = grid.own
    return [
        tag("p", about, *(f" {one}" for one in _limits(grid, run))),
        tag(
            "div",
            _slider(f"{key}-what-if-noise", "Noise (std on the batch mean)", len(grid.noise_std), row, "noise"),
            _slider(f"{key}-what-if-batch", "Batch size", len(grid.batch_size), column, "batch"),
            tag("p", _sentence(grid, goal, row, column), class_="what-if-answer", role="status"),
            _table(grid, goal, key),
            embedded_json(f"{key}-what-if-data", _data(grid, goal)),
            id=f"{key}-what-if-strip",
            class_="what-if",
        ),
    ]


def _limits(grid: WhatIf, run: RunAudit) -> list[str]:
    said = []
    if any(one.clip_norm is None for one in run.declared):
        said.append("Noise needs clipped gradients, and these are not: only the batch size changes.")
    if len(run.declared) > 1:
        said.append("Phases keep their batch sizes; their noise changes in proportion.")
    if grid.left_out:
        sizes = "size was" if grid.left_out == 1 else "sizes were"
        said.append(f"{grid.left_out} batch {sizes} left out: too slow to compute.")
    return said


def _colour(grid: WhatIf) -> str:
    """Green is for what is proved."""
    return "Green keeps" if grid.kind == "bound" else "Blue is expected to keep"


def _slider(identifier: str, label: str, stops: int, value: int, axis: str) -> Html | None:
    if stops == 1:
        return None
    return tag(
        "div",
        tag("label", label, for_=identifier),
        tag("input", type="range", id=identifier, min=0, max=stops - 1, value=value, data_axis=axis),
        class_="slider needs-script",
    )


def _table(grid: WhatIf, goal: Rate, key: str) -> Html:
    caption = tag("caption", tag("span", "What the accountant would say"), id=f"{key}-what-if-caption")
    head = tag(
        "tr", tag("th", "Noise / batch size", scope="col"), *(_heading(count(n), "col") for n in grid.batch_size)
    )
    rows = [
        tag("tr", _heading(setting(tau), "row"), *(_cell(grid, goal, i, j) for j in range(len(grid.batch_size))))
        for i, tau in enumerate(grid.noise_std)
    ]
    whole = tag("table", caption, tag("thead", head), tag("tbody", *rows))
    return scroll(whole, f"{key}-what-if-title {key}-what-if-caption")


def _heading(text: str, scope: str) -> Html:
    return tag("th", text, scope=scope, class_="number" if scope == "col" else None)


def _cell(grid: WhatIf, goal: Rate, i: int, j: int) -> Html:
    """Its colour, a line where the target lies between it and its neighbour, and a frame around the run itself."""
    kept = _kept(grid, goal, i, j)
    inside = "kept" if grid.kind == "bound" else "expected"
    classes = ["number", inside if kept else "near" if grid.tpr[i][j] <= 2.0 * goal.tpr else "missed"]
    if i and _kept(grid, goal, i - 1, j) != kept:
        classes.append("line-above")
    if j and _kept(grid, goal, i, j - 1) != kept:
        classes.append("line-left")
    own = (i, j) == grid.own
    mark = tag("span", "\u2713", aria_hidden="true") if kept else None
    said = [text for text, holds in ((f"{_verb(grid, kept)} the target", kept), ("this run", own)) if holds]
    heard = tag("span", f" ({', '.join(said)})", class_="only-heard") if said else None
    shown = join(percent(grid.tpr[i][j], "up"), mark, heard)
    return tag("td", shown, class_=" ".join([*classes, *(["own"] if own else [])]))


def _kept(grid: WhatIf, goal: Rate, i: int, j: int) -> bool:
    return grid.tpr[i][j] <= goal.tpr


def _verb(grid: WhatIf, kept: bool) -> str:
    if grid.kind == "bound":
        return "keeps" if kept else "does not keep"
    return "is expected to keep" if kept else "is expected to miss"


def _sentence(grid: WhatIf, goal: Rate, i: int, j: int) -> str:
    noise = f"noise of std {setting(grid.noise_std[i])}" if grid.noise_std[i] else "no noise"
    most = "at most" if grid.kind == "bound" else "about"
    kept = _verb(grid, _kept(grid, goal, i, j))
    this = " This is the run as it is." if (i, j) == grid.own else ""
    return (
        f"With {noise} and batches of {count(grid.batch_size[j])}: {most} {percent(grid.tpr[i][j], 'up')} at "
        f"{rate(goal.fpr)} false alarms, which {kept} the target of {rate(goal.tpr)}.{this}"
    )


def _data(grid: WhatIf, goal: Rate) -> dict[str, object]:
    """What the script looks up: the words of each cell, and of each stop of the sliders."""
    columns = range(len(grid.batch_size))
    return {
        "noise": [setting(tau) for tau in grid.noise_std],
        "batch": [count(n) for n in grid.batch_size],
        "sentences": [[_sentence(grid, goal, i, j) for j in columns] for i in range(len(grid.noise_std))],
        "own": list(grid.own),
    }
