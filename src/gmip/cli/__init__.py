"""The command line.

Each command is one function in a module of this package; a new command is a new module and one name here. It is
imported when it is asked for: `gmip account` does not wait for what only an audit needs. Commands compute first and
print last, so that an error leaves standard output empty. Exit codes: 0, 1 (the gate of an audit failed, `gmip check`
found a fault, or `gmip verify` a contradiction, and nothing else), 2 (one sentence on standard error says what is wrong
with the request, or in the user's own code), 70 (a fault of gmip, with its traceback), 130 (interrupted, by Ctrl-C or
SIGTERM), 141 (the reader of the output left).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from gmip._extras import missing
from gmip._user_code import out_of_memory, said_by, where
from gmip.cli.errors import CommandLineError, sentence
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
    "Before training: how private will it be?": ("account", "calibrate", "convert", "app"),
    "Training": ("tune", "train"),
    "After training: does the model leak?": ("check", "audit", "report"),
    "More for audits": ("init", "attacks", "seal", "verify"),
}
_OUR_FAULT: Final = 70
_DEBUG: Final = "--debug"  # with every command: show tracebacks
_INTERRUPTED: Final = 130
_READER_LEFT: Final = 141
_PANELS: Final = {name: panel for panel, names in _COMMANDS.items() for name in names}
_MODULES: Final = {"app": "attacks", "verify": "seal"}  # where it is not the command's own name


class _Commands(TyperGroup):
    """Finds a command by its name, and only then imports it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_PANELS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _PANELS:
            return None
        if cmd_name not in self.commands:
            module = import_module(f"gmip.cli.{_MODULES.get(cmd_name, cmd_name)}")
            alone = typer.Typer(**_SETTINGS)
            alone.command(cmd_name, rich_help_panel=_PANELS[cmd_name])(getattr(module, cmd_name))
            self.commands[cmd_name] = _plain_help(get_command(alone))
        return self.commands[cmd_name]

    def get_help_option(self, ctx: Any) -> Any:
        return _no_type(super().get_help_option(ctx))


def _plain_help(command: Any) -> Any:
    """The command; its help calls neither --help a <bool> nor an argument a <str>."""
    for one in command.params:
        if one.param_type_name == "argument":
            one.display_type_rich = lambda ctx: None
    found = command.get_help_option
    command.get_help_option = lambda ctx: _no_type(found(ctx))
    return command


def _no_type(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option


app = typer.Typer(
    name="gmip",
    cls=_Commands,
    help="Membership-inference privacy: can an attacker tell whether a person's record was in the training data?",
    epilog="Where to start: [b]gmip audit digits[/b] trains and audits a small model; [b]gmip audit scores.csv[/b] "
    "audits your own scores; [b]gmip app[/b] does it in the browser. Every command has --help with an example.",
    **_SETTINGS,
)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", metavar="", help="Print the version and exit.")] = False,
    debug: Annotated[
        bool, typer.Option(_DEBUG, metavar="", help="With any command: show tracebacks of errors.")
    ] = False,
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
    debug = _DEBUG in args
    args = [arg for arg in args if arg != _DEBUG]
    _open_closed_streams()
    try:
        with _terminate_as_interrupt():
            code = _run(args, debug=debug)
    except KeyboardInterrupt:  # between a command and this line
        code = _INTERRUPTED
    return code


def _run(args: list[str], *, debug: bool) -> int:
    try:
        return _tried(args)
    except (GmipError, CommandLineError) as error:
        if debug:
            _say(traceback.format_exc())
        _say(sentence(error, _options_of(args)))
        return 2
    except Exception as error:
        no_memory = out_of_memory(error)
        if no_memory is not None:
            if debug:
                _say(traceback.format_exc())
            _say(no_memory)
            return 2
        place = where(error)
        if debug or place is None:
            _say(traceback.format_exc().rstrip("\n"))
        if place is None:
            return _OUR_FAULT
        _say(f"Your code raised {said_by(error)}: fix it there, or see all of it with {_DEBUG}.")
        return 2


def _tried(args: list[str]) -> int:
    """The exit code, but for errors of a request and of code, which are raised."""
    try:
        code = app(args=args, prog_name="gmip", standalone_mode=False, obj=shlex.join(["gmip", *args]))
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        raise error if where(error) is not None else missing(error, f"gmip {_command_of(args)}") from None
    except (GmipError, CommandLineError):
        raise
    except OverflowError as error:
        if where(error) is not None:
            raise
        _say("These numbers are too extreme to compute with: pass more moderate sizes, noise or rates.")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    # The reader of our output left, as `head` does: nothing more to say. (typer and rich make it a SystemExit.)
    except (BrokenPipeError, SystemExit):
        _drop_output()
        return _READER_LEFT
    except OSError as error:  # files have their own errors: this is standard output, on a full disk for instance
        if where(error) is not None:
            raise
        _drop_output()
        file = "Standard output" if error.filename is None else str(error.filename)
        _say(f"{file} cannot be used ({error.strerror or error}): make room, or write elsewhere.")
        return 2
    return code if isinstance(code, int) else 0


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM, which batch systems and `kill` send, does what Ctrl-C does: finished work is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if os.getpid() != own:  # a forked worker, whom its pool wants to end
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # where standard error cannot be written either, the exit code has to do
        print(text, file=sys.stderr, flush=True)


def _open_closed_streams() -> None:
    """Streams that were closed before we began (`>&-`) lead nowhere: Python has None for them, and the next file that
    is opened would get the number of one, and what is printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        try:
            os.fstat(number)
        except OSError:
            os.dup2(nowhere, number)
        setattr(sys, name, open(nowhere, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: PTH123, SIM115


def _drop_output() -> None:
    """What could not be written is not tried again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _options_of(args: Sequence[str]) -> set[str]:
    """The options of the command that was asked for."""
    commands: Any = get_command(app)
    asked = commands.get_command(None, _command_of(args))
    return set() if asked is None else {name for parameter in asked.params for name in parameter.opts}


def _command_of(args: Sequence[str]) -> str:
    return next((arg for arg in args if not arg.startswith("-")), "")
