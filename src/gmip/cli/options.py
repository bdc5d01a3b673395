"""Options of a command, made from the fields of its settings; nothing is said twice.

A settings type is a pydantic model. A field can be typed if its annotation holds an `Option`, or `options` of the
settings has one under its name: its name makes that of the option, its type how the text is read (a field that has a
validator before its type reads it itself), its description and default the help. The other fields are for Python and
YAML.
All options reach a command as text and are read by `gmip.cli.parse`, so that every complaint is ours.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, Union, get_args, get_origin

import typer
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from gmip.cli import parse
from gmip.cli.errors import BadRequest, option_name
from gmip.errors import GmipError

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Delta = Annotated[float, Field(gt=0.0, lt=1.0)]


class Settings(BaseModel):
    """What a command was asked for; `typed` is the whole command."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)

    options: ClassVar[Mapping[str, Option]] = {}
    typed: str = ""


_NARROW: Final = 24  # characters of a column of the help


@dataclass(frozen=True)
class Option:
    """How a field is typed.

    metavar : what the help shows in place of a value.
    panel : the title in the help under which it stands.
    read : makes the value of the option's name and its text (of an option that may be repeated: of all its texts); None
        for types that say it themselves.
    argument : whether it is typed by its place, without a name.
    repeated : whether it may be repeated, where the type is no tuple.
    once : whether it is refused if it is typed twice, because somebody may mean both; of other options the last counts.
    help : in place of the description and the default, where more can be said in Python and YAML than typed.
    """

    metavar: str | None = None
    panel: str | None = None
    read: Callable[[str, Any], Any] | None = None
    argument: bool = False
    repeated: bool = False
    once: bool = False
    help: str | None = None


S = TypeVar("S", bound=Settings)


def from_settings(settings: type[S]) -> Callable[[Callable[[S], None]], Callable[..., None]]:
    """Makes a command for typer of a function that takes its settings."""

    def decorate(command: Callable[[S], None]) -> Callable[..., None]:
        parameters = [
            _parameter(name, settings.model_fields[name], option) for name, option in _typed(settings).items()
        ]

        def run(context: typer.Context, **given: Any) -> None:
            command(_made(settings, {**_read(settings, given), "typed": context.obj or ""}))

        run.__doc__, run.__name__ = command.__doc__, command.__name__
        known = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context), *parameters]
        run.__signature__ = inspect.Signature(known)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in known}
        return run

    return decorate


def names_of(settings: type[Settings]) -> dict[str, str]:
    """Field -> its option, of those that have one."""
    return {name: option_name(name) for name, option in _typed(settings).items() if not option.argument}


def _field(option: Option, field: FieldInfo, label: str, text: Any) -> Any:
    """The value of a field from what was typed; complaints are about `label`."""
    if option.read is not None:
        return option.read(label, text)
    if _reads_itself(field):
        return text
    kind, bounds = _plain(field.annotation, field.metadata)
    if _repeated(kind):
        inner, bounds = _plain(get_args(kind)[0], [])
        return tuple(_value(inner, bounds, label, one) for one in text)
    return _value(kind, bounds, label, text)


def _typed(settings: type[Settings]) -> dict[str, Option]:
    found = {
        name: next((one for one in field.metadata if isinstance(one, Option)), settings.options.get(name))
        for name, field in settings.model_fields.items()
    }
    return {name: option for name, option in found.items() if option is not None}


def _parameter(name: str, field: FieldInfo, option: Option) -> inspect.Parameter:
    kind, _ = _plain(field.annotation, [])
    flag = kind is bool
    words: dict[str, Any] = {
        "help": option.help or _help(field),
        "rich_help_panel": option.panel,
        "show_default": False,
    }
    words["metavar"] = "" if flag else _unbroken(option.metavar)
    default: Any = False if flag else None
    if option.argument:
        info, default = typer.Argument(**words), inspect.Parameter.empty if field.is_required() else None
    else:
        info = typer.Option(option_name(name), **words)
    several = option.repeated or option.once or (_repeated(kind) and not _reads_itself(field))
    text: Any = bool if flag else list[str] if several else str
    kept: Any = text if flag or field.is_required() else text | None
    annotation = Annotated[kept, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _unbroken(metavar: str | None) -> str | None:
    """Choices that the help can break between words."""
    return metavar if metavar is None or len(metavar) < _NARROW else metavar.replace("|", " | ")


def _reads_itself(field: FieldInfo) -> bool:
    return any(isinstance(one, BeforeValidator) for one in field.metadata)


def _help(field: FieldInfo) -> str:
    """The description, and the default where there is one to say."""
    said, default = field.description or "", field.default
    if field.is_required() or field.default_factory or default in (None, False, (), ""):
        return said
    shown = ", ".join(map(str, default)) if isinstance(default, tuple) else f"{default}"
    return f"{said} Default: {shown}." if ". " in said else f"{said.removesuffix('.')} (default {shown})."


def _read(settings: type[Settings], given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed; what was not has no entry."""
    found: dict[str, Any] = {}
    options = _typed(settings)
    for name, text in given.items():
        if text and options[name].once:
            if len(text) > 1:
                raise BadRequest(f"{option_name(name)} was given {len(text)} times", remedy="pass it once")
            text = text[0]
        if isinstance(text, bool):
            found |= {name: True} if text else {}
        elif text is not None and text != []:
            found[name] = _field(options[name], settings.model_fields[name], option_name(name), text)
    return found


def _made(settings: type[S], values: Mapping[str, Any]) -> S:
    try:
        return settings.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        own = first.get("ctx", {}).get("error")
        if isinstance(own, GmipError) and not first["loc"]:  # what does not go together
            raise own from None
        if first["type"] == "missing":
            name = str(first["loc"][0])
            raise BadRequest(
                f"{_typed(settings)[name].metavar} is missing", remedy=f"add {option_name(name)}"
            ) from None
        from gmip.auditing.settings import refusal

        raise refusal(error) from None


# -- how a type is read ------------------------------------------------------------------------------------------------


def _plain(annotation: Any, metadata: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A type without None and without remarks, and the remarks."""
    found = list(metadata)
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            for one in more:
                found += one.metadata if isinstance(one, FieldInfo) else [one]
        elif get_origin(annotation) in (Union, types.UnionType):
            annotation = next(one for one in get_args(annotation) if one is not types.NoneType)
        else:
            return annotation, found


def _repeated(kind: Any) -> bool:
    return get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis


def _value(kind: Any, bounds: Sequence[Any], option: str, text: str) -> Any:
    if get_origin(kind) is Literal:
        return parse.one_of(option, text, get_args(kind))
    if kind is int:
        return parse.seed(option, text) if Ge(0) in bounds else parse.count(option, text)
    if kind is float:
        if Lt(1.0) in bounds:
            return parse.delta(option, text)
        if Le(1.0) in bounds:
            return parse.probability(option, text)
        return parse.positive(option, text) if Gt(0.0) in bounds else parse.non_negative(option, text)
    return text
