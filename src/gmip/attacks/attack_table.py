"""Attacks by name, and what each of them needs: the paper's table of assumptions, read off the classes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from gmip import _validate as check
from gmip.attacks import ATTACKS, VARIANTS
from gmip.attacks.attack import NEEDS, Attack, Need, RunTraits
from gmip.errors import InvalidArgument

__all__ = ["NOTE", "Assumption", "default_names", "kind", "make", "markdown", "names", "table", "titles"]

_ALL: Final = ATTACKS | VARIANTS
_OF_A_MODEL: Final[frozenset[Need]] = frozenset({"query", "weights", "loss", "population", "labels"})
_ANALYTICAL: Final = "error rates known in closed form"

NOTE: Final = (
    "glir computes gradients of the candidates itself, for which it takes the loss and the labels; the paper hands "
    "them to the attacker, and gmip.attacks.glir.glir_scores on such arrays needs neither."
)


class Assumption(NamedTuple):
    """A row of the table: what is assumed, and of which attack (name -> whether)."""

    what: str
    attacks: dict[str, bool]


def names() -> tuple[str, ...]:
    """The attacks of the table, as `make` takes them; it also knows the variants glir-no-noise and glir-no-clip."""
    return tuple(ATTACKS)


def default_names(runs: Sequence[RunTraits]) -> tuple[str, ...]:
    """The attacks that an audit of these runs uses when nobody names any.

    Of a model without its training, all that need nothing else: no gradients, no shadow models, no explanations.
    """
    if all(run.published for run in runs):
        return tuple(name for name in _ALL if kind(name).runs_by_default(runs))
    return tuple(name for name in _ALL if kind(name).needs <= _OF_A_MODEL)


def kind(name: str) -> type[Attack]:
    """The class of an attack."""
    module, attribute = _ALL[check.one_of("attack", name, tuple(_ALL))]
    found: type[Attack] = getattr(import_module(module), attribute)
    return found


def make(name: str, **options: Any) -> Attack:
    """An attack by its name; options are the keywords of its class."""
    made = kind(name)
    known = list(inspect.signature(made).parameters)
    for option in options:
        if option not in known:
            raise InvalidArgument(
                f"{option!r} is not an option of attack {name!r}{check.did_you_mean(option, known)}",
                remedy=f"pass some of {', '.join(known)}",
            )
    return made(**options)


def titles() -> dict[str, str]:
    """Name -> what an attack is called in tables, with its source."""
    return {name: kind(name).title for name in _ALL}


def table() -> tuple[Assumption, ...]:
    """What each attack needs, in the order of the paper's table, and whether its error rates are known."""
    kinds = {name: kind(name) for name in names()}
    rows = [Assumption(what, {name: need in one.needs for name, one in kinds.items()}) for need, what in NEEDS.items()]
    return (*rows, Assumption(_ANALYTICAL, {name: one.analytical for name, one in kinds.items()}))


def markdown() -> str:
    """The table and its note, as in docs/attacks.md."""
    lines = [["", *names()], ["---", *(":-:" for _ in names())]]
    lines += [[row.what, *("yes" if row.attacks[name] else "" for name in names())] for row in table()]
    return "\n".join(["| " + " | ".join(cells) + " |" for cells in lines] + ["", NOTE]) + "\n"
