"""The command `python -m reproduction`: runs the experiments of the paper and compares the results."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

from gmip._progress import Progress, bars
from gmip.errors import GmipError, GmipWarning, InvalidArgument
from gmip.parallel import BACKENDS, Workers
from reproduction.computation import reproduce
from reproduction.experiment import Outcome, Study, Verdict
from reproduction.experiments import SETTINGS
from reproduction.results import redraw

__all__ = ["main"]

_INTERRUPTED = 130


def main(
    argv: Sequence[str] | None = None,
    *,
    settings: Mapping[str, Study] = SETTINGS,
    program: str = "python -m reproduction",
    out: str = "results",
) -> int:
    """Run experiments of a study and return the exit code: 0, 2 for a bad request, 130 after an interruption.

    settings : studies by the name of their setting, the usual one first.
    out : the folder of the results where --out is not given; other settings have a folder of their name in it.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        given = _parser(settings, program, out).parse_args(words)
        study, usual = settings[given.setting], next(iter(settings))
        given.out = given.out or (out if given.setting == usual else f"{out}/{given.setting}")
        with warnings.catch_warnings():
            warnings.simplefilter("always", GmipWarning)
            warnings.showwarning = _show_warning
            outcomes = _run(study, given, shlex.join([*program.split(), *words]))
    except GmipError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: run the command again to continue; finished work is kept.", file=sys.stderr)
        return _INTERRUPTED
    if given.json:
        print(json.dumps({one.experiment: _plain(one) for one in outcomes}, indent=2))
        return 0
    for one in outcomes:
        _print(one)
    print(f"Page: {Path(given.out) / 'index.html'}")
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser whose errors take one sentence."""

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(message[0].upper() + message[1:], remedy=f"see {self.prog} --help")


def _parser(settings: Mapping[str, Study], program: str, out: str) -> argparse.ArgumentParser:
    study = next(iter(settings.values()))
    names = "; ".join(f"--setting {key}: {', '.join(one.names)}" for key, one in settings.items())
    parser = _Parser(
        prog=program,
        allow_abbrev=False,
        description=f"{study.title}. Each experiment writes NAME.csv, NAME.svg and NAME.json into the folder; "
        "index.html and claims.md show all of them. Interrupted? Run the command again: it continues where it "
        "stopped. Where data are missing, their part is skipped, and the result says how to get them (GMIP_DATA "
        "names their folder).",
    )
    parser.add_argument("names", nargs="*", metavar="EXPERIMENT", help=f"{names}; default: all")
    parser.add_argument(
        "--setting",
        choices=tuple(settings),
        default=next(iter(settings)),
        help=f"{'; '.join(f'{key}: {one.about}' for key, one in settings.items())} (default {next(iter(settings))})",
    )
    parser.add_argument("--quick", action="store_true", help="use fewer settings and seeds; each result says which")
    parser.add_argument("--redraw", action="store_true", help="compute nothing: figures and claims from the CSV files")
    where = f"folder of the results (default {out}, of other settings {out}/SETTING)"
    parser.add_argument("--out", metavar="DIR", help=where)
    parser.add_argument("--workers", type=int, metavar="W", help="processes at once (default: one for each core)")
    parser.add_argument("--backend", metavar="BACKEND", help=f"one of {', '.join(BACKENDS)} (default: this machine)")
    parser.add_argument("--scheduler-address", metavar="ADDRESS", help="address of the cluster")
    parser.add_argument("--json", action="store_true", help="print claims as JSON")
    return parser


def _run(study: Study, given: argparse.Namespace, command: str) -> list[Outcome]:
    where = {name: getattr(given, name) for name in ("workers", "backend", "scheduler_address")}
    where = {name: value for name, value in where.items() if value is not None}
    if given.redraw:
        if given.quick or where:
            raise InvalidArgument(
                "--redraw computes nothing", remedy="leave out --quick, --workers, --backend and --scheduler-address"
            )
        return redraw(study, given.names, given.out)
    workers = Workers(**where)
    with bars(otherwise=_announce) as watch:
        return reproduce(
            study, given.names, given.out, quick=given.quick, workers=workers, watch=watch, command=command
        )


def _announce(stage: str, /) -> Progress:
    """Print the name of an experiment, and a line when its last cell is ready."""
    print(stage, file=sys.stderr, flush=True)

    def tell(done: int, total: int, /) -> None:
        if done == total:
            print(f"{stage}: {total} cells done", file=sys.stderr, flush=True)

    return tell


def _show_warning(message: Any, *rest: Any, **more: Any) -> None:
    print(f"Warning: {' '.join(str(message).split())}", file=sys.stderr)


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {
        "quick": outcome.quick,
        "claims": [dataclasses.asdict(claim) for claim in outcome.claims],
        "skipped": dict(outcome.skipped),
        "cells": outcome.cells,
        "seconds": outcome.seconds,
    }


def _print(outcome: Outcome) -> None:
    name = f"{outcome.experiment}{' (quick)' if outcome.quick else ''}"
    verdicts = [claim.verdict for claim in outcome.claims if not claim.ours]
    counted = ", ".join(f"{verdicts.count(each)} {each}" for each in get_args(Verdict))
    print(f"{name}: {f'claims of the paper: {counted}.' if verdicts else 'no claim of the paper was measured.'}")
    for claim in outcome.claims:
        print(f"  {claim.verdict:13}{'(ours) ' if claim.ours else ''}{claim.what}: {claim.measured}")
        if claim.verdict != "agrees" and claim.words:
            print(f"               {claim.words}")
    for task, reason in outcome.skipped.items():
        print(f"  {task} is skipped: {reason}")
    print()


if __name__ == "__main__":
    sys.exit(main())
