"""`gmip check`: does the record of a run match what was declared about it?"""

from __future__ import annotations

from typing import Annotated

import typer

from gmip.cli import options, parse, show
from gmip.cli.errors import needs_extra
from gmip.cli.stages import stages, warnings_in_one_line

__all__ = ["check"]

_MARKS = {"passed": "passed", "failed": "FAILED", "unchecked": "not checked"}


def check(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a recorded run.")],
    task: Annotated[
        str,
        typer.Option("--task", metavar="TASK", help="The run's task: built-in, or path/to/file.py:make_task."),
    ],
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="K", show_default=False, help="Compute at most K steps again (default 12)."),
    ] = None,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="Where to compute.")] = "cpu",
    json: options.Json = False,
) -> None:
    """Compute recorded gradients again and compare: is the record what the declared run would have left?

    Checks scale, clipping, noise, batches, sizes and members. What cannot be
    checked is said. An audit of a recorded run begins with the same check.

    Example: gmip check runs/a --task my_project.py:make_task

    JSON keys: passed, headline, outcomes (check, status, finding, sentence,
    value, expected, p_value, and the numbers and names of the sentence),
    beyond_reach (fault, up_to), steps, level.

    Exit codes: 0; 1 if a check fails; 2 if the request is wrong.
    """
    most = None if steps is None else parse.count("--steps", steps)
    with needs_extra("audit", "gmip check"):
        from gmip.auditing.recompute import check_run
        from gmip.report import check_words
    with warnings_in_one_line(), stages() as watch:
        more = {} if most is None else {"steps": most}
        found = check_run(task, run, device=device, progress=watch("checking the record"), **more)
    if json:
        told = [{**one.model_dump(mode="json"), "sentence": check_words.sentence(one)} for one in found.outcomes]
        answer = {"passed": found.passed, "headline": check_words.headline(found)}
        show.print_json({**answer, **found.model_dump(mode="json"), "outcomes": told})
    else:
        rows = [(check_words.title(one), _MARKS[one.status]) for one in found.outcomes]
        order = {"failed": 0, "unchecked": 1, "passed": 2}
        first = sorted(found.outcomes, key=lambda one: order[one.status])
        hidden = check_words.beyond_reach(found)
        said = [f"{check_words.title(one)}: {check_words.sentence(one)}" for one in first]
        show.print_people(rows, check_words.headline(found), said if hidden is None else [hidden, *said])
    if not found.passed:
        raise typer.Exit(1)
