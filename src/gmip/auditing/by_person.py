"""Persons with several rows: one score for each, so that whoever is counted is counted once."""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip.auditing.judge import Groups
from gmip.auditing.schema import Persons
from gmip.auditing.score_table import ScoreTable, plain_ids
from gmip.errors import InvalidArgument
from gmip.stats import auc

_FROM: Final = (1, 2, 5, 10)  # rows of a person, at which the next group begins
_NAMES: Final = ("1 row", "2 to 4 rows", "5 to 9 rows", "10 rows or more")
GROUPED_BY: Final = "rows of a person"
_HUGE: Final = 1.0e290  # sums of these may overflow
_CLEAR: Final = 3.0  # standard errors by which numbers of rows differ between members and others


class ByPerson(NamedTuple):
    """A table with one candidate for each person, and what became of the rows; None: each row is a person."""

    table: ScoreTable
    persons: Persons | None


def by_person(table: ScoreTable) -> ByPerson:
    """One score for each person: the sum, over the person's rows, of the score above what is usual in its run.

    Log-likelihood ratios of independent rows add up. What is usual is the median of the persons' own medians, which
    does not depend on who was in and in which nobody counts more than others: it keeps scores that have another zero
    from ranking persons by their number of rows. A person's rows may depend on each other in any way: what is judged is
    one number for each person. Persons with rows on both sides are neither members nor non-members, and are left out;
    where somebody is a member in one run and not in another, each run is judged by itself. Without other
    groups, persons are grouped by their number of rows.
    """
    persons = table.persons
    if persons is None:
        return ByPerson(table, None)
    runs = np.zeros(len(table), dtype=np.intp) if table.runs is None else table.runs.codes
    in_run = np.unique(runs * len(persons.names) + persons.codes, return_inverse=True)[1]
    joined = table.runs is None or _stay(table.member, persons, in_run)
    key = persons.codes if joined else in_run
    _, first, place, rows = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    if rows.max() == 1:
        return ByPerson(dataclasses.replace(table, persons=None), None)
    members = np.bincount(place, weights=table.member)
    whole = (members == 0) | (members == rows)
    member = members[whole] > 0
    for inside, kind in ((member, "members"), (~member, "non-members")):
        if np.count_nonzero(inside) < 2:
            raise InvalidArgument(
                f"{np.count_nonzero(inside)} persons are {kind} with all their rows, and {np.count_nonzero(~whole)} "
                "have rows among members and among non-members",
                remedy="pass at least 2 persons with all rows in the training data, and 2 with none",
            )
    first = first[whole]
    groups, grouped_by = _of_persons(table.groups, place, whole, first), table.grouped_by
    if groups is None:
        codes = np.searchsorted(_FROM, rows[whole], side="right") - 1
        groups, grouped_by = Groups(codes.astype(np.intp), _NAMES).used(), GROUPED_BY
    made = dataclasses.replace(
        table,
        member=member,
        scores={attack: _summed(scores, place, in_run, runs)[whole] for attack, scores in table.scores.items()},
        ids=plain_ids(persons.of(first)),
        groups=groups,
        grouped_by=grouped_by,
        runs=None if joined or table.runs is None else Groups(table.runs.codes[first], table.runs.names),
        labels=None,
        persons=None,
    )
    return ByPerson(
        made,
        Persons(
            rows=len(table),
            persons=int(rows.size),
            most_rows=int(rows.max()),
            on_both_sides=int(np.count_nonzero(~whole)),
            uneven=_uneven(rows[whole], member),
        ),
    )


def _summed(
    scores: NDArray[np.float64], place: NDArray[np.intp], in_run: NDArray[np.intp], runs: NDArray[np.intp]
) -> NDArray[np.float64]:
    if np.abs(scores).max() > _HUGE:  # only the order counts, and powers of two are exact
        scores = scores * 2.0 ** -np.ceil(np.log2(4.0 * scores.size))
    return np.asarray(np.bincount(place, weights=scores - _usual(scores, in_run, runs)))


def _usual(scores: NDArray[np.float64], in_run: NDArray[np.intp], runs: NDArray[np.intp]) -> NDArray[np.float64]:
    """For each row, the median over the persons of its run of their own medians."""
    order = np.lexsort((scores, in_run))
    _, begin, rows = np.unique(in_run[order], return_index=True, return_counts=True)
    ordered = scores[order]
    own = (ordered[begin + (rows - 1) // 2] + ordered[begin + rows // 2]) / 2.0
    run = runs[order][begin]
    return np.array([np.median(own[run == one]) for one in range(int(runs.max()) + 1)])[runs]


def _stay(member: NDArray[np.bool_], persons: Groups, in_run: NDArray[np.intp]) -> bool:
    """Whether persons are in several runs, each on the same side in all of them: runs are then no new evidence."""
    ins, rows = np.bincount(persons.codes, weights=member), np.bincount(persons.codes)
    return bool(in_run.max() + 1 > np.count_nonzero(rows) and np.all((ins == 0) | (ins == rows)))


def _of_persons(
    groups: Groups | None, place: NDArray[np.intp], whole: NDArray[np.bool_], first: NDArray[np.intp]
) -> Groups | None:
    """The group of each person: that of all rows, else "several"."""
    if groups is None:
        return None
    low = np.full(whole.size, len(groups.names), dtype=np.intp)
    high = np.zeros(whole.size, dtype=np.intp)
    np.minimum.at(low, place, groups.codes)
    np.maximum.at(high, place, groups.codes)
    codes = np.where(low == high, low, len(groups.names))[whole]
    return Groups(codes.astype(np.intp), (*groups.names, "several groups")).used()


def _uneven(rows: NDArray[np.intp], member: NDArray[np.bool_]) -> bool:
    """Whether members have more rows than others, or fewer, beyond chance: rows alone can then look like a leak."""
    ins, outs = rows[member].astype(np.float64), rows[~member].astype(np.float64)
    deviation = np.sqrt((rows.size + 1) / (12.0 * ins.size * outs.size))
    return abs(auc(ins, outs) - 0.5) > _CLEAR * float(deviation)
