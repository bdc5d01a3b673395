"""The types: an experiment, the cells that it computes, its claims and its outcome, and a study of several."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gmip._validate import did_you_mean
from gmip.errors import InvalidArgument
from gmip.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Cell", "CellResult", "Claim", "Drawing", "Experiment", "Outcome", "Row", "Study", "Verdict", "judged"]

Row = dict[str, Any]  # of a CSV: strings, booleans, finite numbers; None where there is no value
Verdict = Literal["agrees", "differs", "contradicted"]


def judged(*, agrees: bool, differs: bool) -> Verdict:
    """The verdict of a rule: neither of the two means that the measurement contradicts the claim."""
    return "agrees" if agrees else "differs" if differs else "contradicted"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One independent unit of work, of seconds to a minute, on one thread.

    Subclasses add plain fields (strings, numbers, tuples of them), the seed among them where there is chance: equal
    fields must give equal rows.

    Parameters
    ----------
    task : the built-in task whose data the cell needs. Where they are missing, the cell is skipped, and the result
        says so.
    """

    task: str | None = None


class CellResult(NamedTuple):
    """The rows of a cell, how long they took and on which machine."""

    rows: list[Row]
    seconds: float
    machine: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper beside what was measured.

    Parameters
    ----------
    what : the claim in a few words.
    published : what the paper says; of a claim of ours, what was expected.
    verdict : "differs" where the claim holds in part, for another reason, or cannot be told from chance, and `words`
        say which; "contradicted" where the measurement says no.
    words : what a reader should know, as sentences.
    ours : whether the claim is ours, not the paper's: it is shown apart and not counted.
    """

    what: str
    published: str
    measured: str
    verdict: Verdict
    words: str = ""
    ours: bool = False


class Drawing(NamedTuple):
    """A figure; its file has `name` after the experiment's name ("" for the only one), and `alt` describes it."""

    name: str
    figure: Figure
    alt: str


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is computed, how it is shown, and how it is compared with the paper.

    Parameters
    ----------
    name : as in `python -m reproduction NAME`.
    paper : where in the paper.
    claim : what the paper claims, in one or two sentences.
    quick : what --quick leaves out, as a sentence.
    version : to be raised when the rows of the same cell change.
    cells : quick -> the cells; it takes no time and needs no data.
    run : the rows of one cell; a function of a module, because worker processes import it.
    drawings, table, claims : of the rows of all cells in their order, without those whose data are missing.
    probe : rows of a small computation on bundled or simulated data, in seconds, by the functions that `run` uses.
        They are stored with each cell and with the result. Cells of other code are computed again, and a test computes
        the probe again: a result that other code made is noticed, whatever else has changed.
    constants : numbers that decide the rows, are in no cell, and that the probe does not show (sizes, rates); as JSON.
    shows : the name of the experiment whose cells (with the same `cells`, `run` and `version`) are shown here in
        another way: they are computed once for both. None: its own.
    """

    name: str
    title: str
    paper: str
    claim: str
    quick: str
    version: int
    cells: Callable[[bool], Sequence[Any]]
    run: Callable[[Any], list[Row]]
    drawings: Callable[[Sequence[Row]], list[Drawing]]
    table: Callable[[Sequence[Row]], Table]
    claims: Callable[[Sequence[Row]], list[Claim]]
    probe: Callable[[], list[Row]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    shows: str | None = None

    @property
    def source(self) -> str:
        """The name of the experiment whose rows these are."""
        return self.shows or self.name

    def decided_by(self) -> str:
        """A hash of the version, the constants and all cells of a full run: what decides the rows besides the code."""
        cells = [[type(cell).__name__, dataclasses.asdict(cell)] for cell in self.cells(False)]
        facts = json.dumps([self.version, cells, dict(self.constants)], sort_keys=True)
        return hashlib.sha256(facts.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out of an experiment.

    Parameters
    ----------
    skipped : task -> how to get its data.
    seconds : CPU time of all cells, one thread each.
    figures : file name -> its description.
    decided_by, probe : `Experiment.decided_by()` and the rows of `Experiment.probe()` when the rows were computed.
    """

    experiment: str
    quick: bool
    claims: tuple[Claim, ...]
    skipped: Mapping[str, str]
    table: Table
    figures: Mapping[str, str]
    cells: int
    seconds: float
    machines: tuple[str, ...]
    versions: Mapping[str, str]
    command: str
    created: str
    decided_by: str
    probe: tuple[Row, ...]


@dataclass(frozen=True)
class Study:
    """Experiments whose results share a folder and a page, in the order of the page.

    Parameters
    ----------
    title : of the page.
    about : a line above it.
    """

    title: str
    about: str
    experiments: tuple[Experiment, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all experiments."""
        return tuple(experiment.name for experiment in self.experiments)

    def select(self, names: Sequence[str]) -> tuple[Experiment, ...]:
        """The experiments with these names, each once; all of them where no name is given."""
        known = {experiment.name: experiment for experiment in self.experiments}
        for name in names:
            if name not in known:
                raise InvalidArgument(
                    f"{name!r} is not an experiment{did_you_mean(name, list(known))}",
                    remedy=f"pass one of {', '.join(known)}",
                )
        return tuple(known[name] for name in dict.fromkeys(names or known))
