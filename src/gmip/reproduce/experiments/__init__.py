"""The experiments of the paper by name, one module each, and what such a module must have.

A new experiment is a new module here, its name in `_NAMES`, and its test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from gmip._validate import did_you_mean
from gmip.errors import InvalidArgument

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gmip.report.tables import Table

__all__ = ["Agreement", "Cell", "Claim", "Drawing", "Experiment", "Row", "experiment", "names", "rows_of"]

# In the order of the page; each is a module of this package, with _ for -.
_NAMES: Final = (
    "convergence",
    "audit",
    "audit-loglog",
    "utility",
    "tau-table",
    "assumptions",
    "ablations",
    "loss-attacks",
    "value",
)

Row = dict[str, Any]  # of a CSV: strings, booleans, finite numbers; None where there is none
Agreement = Literal["yes", "no", "differs"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One independent unit of work, of seconds to a minute, on one thread.

    Subclasses add plain fields (strings, numbers, tuples of them), the seed among them where there is chance: equal
    fields must give equal rows.

    Parameters
    ----------
    task : the built-in task whose data the cell needs. Where they are missing, the cell is left out, and said to be.
    """

    task: str | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper beside what was measured.

    Parameters
    ----------
    what : the claim in a few words.
    agrees : "differs" where both are right, or the paper's is corrected, and `words` say why.
    words : what a reader should know, as sentences.
    """

    what: str
    published: str
    measured: str
    agrees: Agreement
    words: str = ""


class Drawing(NamedTuple):
    """A figure; `name` is what its file has after the experiment's name ("" for the only one), `alt` tells it."""

    name: str
    figure: Figure
    alt: str


class Experiment(Protocol):
    """What a module of this package has.

    `cells` is quick and needs no data. `run` is called in worker processes with one cell. The others get the rows of
    all cells in the order of `cells`, without those whose data are missing: they must do with what is there.

    A module that shows the rows of another experiment in another way takes over its `cells`, `run` and `VERSION` and
    has the other's name as ROWS_OF: the cells are computed once for both.
    """

    NAME: str  # as in `gmip reproduce NAME`
    TITLE: str
    PAPER: str  # where in the paper
    CLAIM: str  # what the paper claims, in one or two sentences
    QUICK: str  # what --quick leaves out, as a sentence
    VERSION: int  # to be raised when the rows of the same cell change

    def cells(self, quick: bool) -> Sequence[Any]: ...
    def run(self, cell: Any) -> list[Row]: ...
    def drawings(self, rows: Sequence[Row]) -> list[Drawing]: ...
    def table(self, rows: Sequence[Row]) -> Table: ...
    def claims(self, rows: Sequence[Row]) -> list[Claim]: ...


def rows_of(experiment: Experiment) -> str:
    """The experiment whose rows these are: its own name, or ROWS_OF where it has one."""
    return str(getattr(experiment, "ROWS_OF", experiment.NAME))


def names() -> tuple[str, ...]:
    """All experiments."""
    return _NAMES


def experiment(name: str) -> Experiment:
    """The module of an experiment."""
    if name not in _NAMES:
        raise InvalidArgument(
            f"{name!r} is not an experiment{did_you_mean(name, [*_NAMES, 'all'])}",
            remedy=f"pass one of {', '.join(_NAMES)}, or all",
        )
    return cast(Experiment, import_module(f"{__name__}.{name.replace('-', '_')}"))
