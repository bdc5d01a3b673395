"""One sentence for whatever is wrong with a request, in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

import typer

from gmip._validate import did_you_mean
from gmip.errors import GmipError, InvalidArgument


class BadRequest(InvalidArgument):
    """Found by the command line itself: arguments are options already."""


# Typer's own errors (unknown option, missing value, ...). Its releases differ in whether the class comes from click or
# from a copy inside typer, so it is found through a name that is public in all of them.
CommandLineError: Final[type[Exception]] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

# Names that differ in more than - for _.
_RENAMED: Final = {
    "as_json": "--json",
    "columns": "--column",
    "for_": "--for",
    "fprs": "--fpr",
    "runs": "--run",
    "num_steps": "--steps",
    "num_params": "--params",
    "clip_norm": "--clip",
    "space": "--try",
    "target_mu": "--target",
    "target_tpr": "--target",
    "target_advantage": "--target",
    "target_epsilon": "--target",
}


def option_name(name: str) -> str:
    """What an argument of the library is called on the command line."""
    return _RENAMED.get(name, "--" + name.replace("_", "-"))


def sentence(error: Exception, options: Collection[str] = ()) -> str:
    """What to print for an error: one line, one sentence. Arguments that are `options` are spelled as such."""

    def spell(name: str) -> str:
        option = option_name(name)
        return option if option in options else name

    text = error.sentence(spell) if isinstance(error, GmipError) else _usage(error)
    return " ".join(text.split())


def _usage(error: Any) -> str:
    """Typer's usage errors, recognised by class name and text because their classes are not public."""
    kind, message = type(error).__name__, str(error.message)
    context: Any = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "gmip"
    if kind == "NoSuchOption":
        said = f"{_shown(error.option_name)} is not an option of {command}{_meant(error, context)}"
    elif kind == "BadOptionUsage" and "not take" in message:
        said = f"{error.option_name} takes no value: write it alone;"
    elif kind == "BadOptionUsage":
        said = f"{error.option_name} needs a value: write it after the option;"
    elif kind in ("MissingParameter", "MissingArgument"):
        said = f"{error.param.metavar} is missing"
    elif message.startswith("No such command"):
        asked = (message.removeprefix("No such command ").split("'")[1:2] or [""])[0]
        said = f"{_shown(asked)} is not a command of gmip{did_you_mean(asked, context.command.list_commands(context))}"
    elif extra := re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message, re.DOTALL):
        said = f"{_shown(extra[1])} is not expected here: write each value after its option;"
    else:
        said = message.rstrip(".")
    see = f"see {command} --help" if context is not None else "see --help"
    return f"{said}{'' if said.endswith(';') else ':'} {see}."


def _meant(error: Any, context: Any) -> str:
    """What an unknown option may have been meant to be."""
    if error.option_name == "--attacker-knows" and any("--notion" in one.opts for one in context.command.params):
        return ", but --notion gdp is for an attacker who knows all other members"
    near = [name for name in error.possibilities or () if name.startswith("--")]
    return f", did you mean {near[0]}" if near else ""


def _shown(text: str) -> str:
    """What was typed, without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text)
