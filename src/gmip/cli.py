"""The command line.

Each command is one function in `gmip._cli`; a new command is a new module there and one name here. It is imported when
it is asked for: `gmip account` does not wait for what only an audit needs. Commands compute first and print last, so
that an error leaves standard output empty. Exit codes: 0, 2 (one sentence on standard error says what is wrong with the
request), 130 (interrupted).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from gmip._cli.errors import CommandLineError, sentence
from gmip.errors import GmipError

__all__ = ["app", "main"]

_SETTINGS: Final[dict[str, Any]] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
# In the order in which they are used; the help lists them under these titles.
_COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "Before training: how private will it be?": ("account", "calibrate", "convert"),
    "Training": ("train",),
    "After training: does the model leak?": ("audit", "report", "compare"),
    "More for audits": ("init", "attacks", "shadows"),
    "The paper": ("reproduce",),
}
_PANELS: Final = {name: panel for panel, names in _COMMANDS.items() for name in names}
_MODULES: Final = {"compare": "report", "init": "audit"}  # where it is not the command's own name


class _Commands(TyperGroup):
    """Finds a command by its name, and only then imports it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_PANELS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _PANELS:
            return None
        if cmd_name not in self.commands:
            module = import_module(f"gmip._cli.{_MODULES.get(cmd_name, cmd_name)}")
            alone = typer.Typer(**_SETTINGS)
            alone.command(cmd_name, rich_help_panel=_PANELS[cmd_name])(getattr(module, cmd_name))
            self.commands[cmd_name] = get_command(alone)
        return self.commands[cmd_name]


app = typer.Typer(
    name="gmip",
    cls=_Commands,
    help="Membership-inference privacy: can an attacker tell whether a person's record was in the training data?",
    epilog="Try first: gmip audit --task digits. Every command has --help with an example.",
    **_SETTINGS,
)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from gmip import __version__

        print(f"gmip {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")  # empty where typer prints the help itself


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command (of `argv`, or of the process) and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        code = app(args=args, prog_name="gmip", standalone_mode=False, obj=shlex.join(["gmip", *args]))
        sys.stdout.flush()
    except (GmipError, CommandLineError) as error:
        print(sentence(error, _options_of(args)), file=sys.stderr)
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


def _options_of(args: Sequence[str]) -> set[str]:
    """The options of the command that was asked for."""
    commands: Any = get_command(app)
    asked = commands.get_command(None, next((arg for arg in args if not arg.startswith("-")), ""))
    return set() if asked is None else {name for parameter in asked.params for name in parameter.opts}
