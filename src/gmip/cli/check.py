"""`gmip check`: does the record of a run match what was declared about it?"""

from __future__ import annotations

from functools import cache, partial
from typing import Annotated, Final

import typer
from pydantic import Field

from gmip.cli import show
from gmip.cli.options import Option, from_settings
from gmip.cli.shared_settings import OutputSettings

_MARKS: Final = {"passed": "passed", "failed": "FAILED", "unchecked": "not checked"}


class CheckSettings(OutputSettings):
    """Settings of `gmip check`, as `gmip.check_run` takes them."""

    run: Annotated[str, Option("RUN", argument=True), Field(description="Folder of a recorded run.")]
    task: Annotated[str, Option("TASK"), Field(description="The run's task: built-in, or path/to/file.py:make_task.")]


@from_settings(CheckSettings)
def check(asked: CheckSettings) -> None:
    """Check that the record of a run matches the run that was declared.

    Recomputes some recorded gradients and checks scale, clipping, noise,
    batches, sizes and members. Says what it cannot check. An audit of a
    recorded run begins with the same check.
    In Python gmip.check_run also takes the number of steps and the device.

    Example: gmip check runs/a --task my_project.py:make_task

    JSON keys: passed, headline, outcomes (check, status, finding, sentence,
    value, expected, p_value, and the numbers and names of the sentence),
    beyond_reach (fault, up_to), least_noise, steps, level.

    Exit codes: 0; 1 if a check fails; 2 if the request is wrong.
    """
    from gmip.auditing.recompute import check_run
    from gmip.report import check_words

    with show.warnings_in_one_line(), show.stages() as watch:
        progress = cache(partial(watch, "checking the record"))  # begins with the first step: mistakes come before
        found = check_run(asked.task, asked.run, progress=lambda done, total: progress()(done, total))
    if asked.as_json:
        outcomes = [{**one.model_dump(mode="json"), "sentence": check_words.sentence(one)} for one in found.outcomes]
        answer = {"passed": found.passed, "headline": check_words.headline(found)}
        show.print_json({**answer, **found.model_dump(mode="json"), "outcomes": outcomes})
    else:
        rows = [(check_words.title(one), _MARKS[one.status]) for one in found.outcomes]
        order = {"failed": 0, "unchecked": 1, "passed": 2}
        first = sorted(found.outcomes, key=lambda one: order[one.status])
        hidden = check_words.beyond_reach(found)
        titles: dict[str, list[str]] = {}  # of those about which the same is to be said
        for one in first:
            titles.setdefault(check_words.sentence(one), []).append(check_words.title(one))
        said = [f"{', '.join(several)}: {words}" for words, several in titles.items()]
        show.print_people(rows, check_words.headline(found), said if hidden is None else [hidden, *said])
    if not found.passed:
        raise typer.Exit(1)
