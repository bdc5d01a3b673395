"""The command line.

Each command is one function in `gmip._cli`; a new command is a new module there and one name here. Commands compute
first and print last, so that an error leaves standard output empty. Exit codes: 0, 2 (one sentence on standard error
says what is wrong with the request), 130 (interrupted).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Final

import typer

from gmip import __version__
from gmip._cli.account import account
from gmip._cli.attacks import attacks
from gmip._cli.audit import audit, init
from gmip._cli.calibrate import calibrate
from gmip._cli.convert import convert
from gmip._cli.errors import CommandLineError, sentence
from gmip._cli.report import compare, report
from gmip._cli.reproduce import reproduce
from gmip._cli.shadows import shadows
from gmip._cli.train import train
from gmip.errors import GmipError

__all__ = ["app", "main"]

app = typer.Typer(
    name="gmip",
    help="Membership-inference privacy: can an attacker tell whether a person's record was in the training data?",
    epilog="Try first: gmip audit --task digits. Every command has --help with an example.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# In the order in which they are used; the help lists them under these titles.
_COMMANDS: Final[dict[str, tuple[Callable[..., None], ...]]] = {
    "Before training: how private will it be?": (account, calibrate, convert),
    "Training": (train,),
    "After training: does the model leak?": (audit, report, compare),
    "More for audits": (init, attacks, shadows),
    "The paper": (reproduce,),
}
for _panel, _functions in _COMMANDS.items():
    for _function in _functions:
        app.command(_function.__name__, rich_help_panel=_panel)(_function)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"gmip {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")  # empty where typer prints the help itself


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (of `argv`, or of the process) and return its exit code."""
    try:
        args = list(sys.argv[1:] if argv is None else argv)
        code = app(args=args, prog_name="gmip", standalone_mode=False, obj=shlex.join(["gmip", *args]))
        sys.stdout.flush()
    except (GmipError, CommandLineError) as error:
        print(sentence(error), file=sys.stderr)
        return 2
    except (OverflowError, MemoryError):
        print(
            "These numbers are too extreme to compute with: pass more moderate sizes, noise or rates.", file=sys.stderr
        )
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:  # the reader of our output left, as `head` does: nothing more to say, at exit neither
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0
