"""Scores of any attack as a table: which column says what, what its cells mean, and one score for each person."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gmip import _validate as check
from gmip.auditing.judge import Groups
from gmip.auditing.schema import OmittedAttack, Persons, RunFacts, Sees, UnusedColumn
from gmip.errors import InvalidArgument
from gmip.stats import auc
from gmip.stats.scores import Fact

Given = Mapping[str, str | Sequence[str]] | None  # role -> column, or several
ROLES: Final = ("member", "score", "id", "person", "group", "run")
_USUAL: Final = {
    "member": ("member", "is_member", "membership", "split"),
    "person": tuple(
        who + end
        for who in ("person", "patient", "subject", "participant", "user", "customer", "client")
        for end in (("", "_id", "id") if who in ("person", "patient") else ("_id", "id"))
    ),
    "id": ("id", "record", "record_id"),
    "group": ("group",),
    "run": ("run",),
    "label": ("label", "target", "y", "class"),
}
_SEVERAL: Final = ("score", "probability", "logit")  # roles that may have several columns
GIVEN: Final = "score"  # what an attack is called whose scores have no name
_NAMED: Final = ("member", "probability", "logit")  # roles that may say of which value or class, as member:train
_PREDICTED: Final = re.compile(r"pred|predicted|prediction|y_?pred|y_?hat|yhat|risk|risk_score|forecast", re.IGNORECASE)
_LIKE_ID: Final = re.compile(  # in the names of columns
    r".*(?:[_ .-]|^)(?:p?id|no|nr|mrn|uuid|key)|.*(?:number|nummer|[a-z]id)"
    r"|.*(?:patient|person|subject|participant|user|customer|client).*",
    re.IGNORECASE,
)
_NO_NAME: Final = ("", "na", "nan", "n/a", "none", "null", "-")  # of a person
_FEWEST_IDS: Final = 10  # different ids, at most 100 rows of each, that look like those of persons
_LONGEST: Final = 200  # characters of a name
MOST_NAMES: Final = 1000  # groups, and runs
_MOST_CLASSES: Final = 100_000
_WORDS: Final = {
    **dict.fromkeys(("1", "1.0", "true", "t", "yes", "y", "member", "in", "train", "training", "ja", "oui"), True),
    **dict.fromkeys(("0", "0.0", "false", "f", "no", "n", "non-member", "non_member", "nonmember", "out"), False),
    **dict.fromkeys(("test", "testing", "holdout", "hold-out", "nein", "non"), False),
}


@dataclass(frozen=True)
class Columns:
    """Names of columns; `scores` has attack -> column, and of predictions every column of numbers -> itself.

    `flags` : those among them that say 1 or 0. `what` : the table holds "scores" or "predictions". `in_means` : what
    the column of members says of members, where that was given. `unused` : a column that looks like ids.
    """

    member: str
    scores: Mapping[str, str]
    id: str | None = None
    group: str | None = None
    run: str | None = None
    label: str | None = None
    flags: tuple[str, ...] = ()
    what: str = "scores"
    person: str | None = None
    in_means: str | None = None
    unused: str | None = None

    def all(self) -> list[str]:
        """Every column that is read."""
        return [name for name in (self.member, *self.scores.values(), self.id, *self.coded) if name is not None]

    @property
    def coded(self) -> tuple[str, ...]:
        """Columns of names that repeat."""
        several = (self.group, self.run, self.label, self.person, self.unused)
        return tuple(dict.fromkeys(name for name in several if name is not None))


class AttackInfo(NamedTuple):
    """What an attack is called, what its attacker must have, and what it says about itself."""

    title: str
    needs: tuple[str, ...]
    facts: Mapping[str, Fact]
    sees: Sees = "predictions"
    knows: float = 0.0  # the share of the members on a list that its attacker holds


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoreTable:
    """Scores of c candidates by one attack or more.

    Attributes
    ----------
    member : array of shape (c,), who was in the training data.
    scores : attack -> array of shape (c,), higher = member.
    ids : array of shape (c,), numbers or names; each once in a run.
    groups, grouped_by : the group of each candidate, and what the groups are.
    runs : the run of each candidate; None: one run.
    labels : the true class of each candidate, of predictions.
    persons : whose row each candidate is; None: each is a person of its own.
    unused : a column that was not used, and might have been meant to be.
    about : attack -> what is known about it, of attacks that were computed here.
    left_out : attacks that were asked for and could not run.
    facts : what predictions tell of the model.
    """

    member: NDArray[np.bool_]
    scores: Mapping[str, NDArray[np.float64]]
    ids: NDArray[Any]
    groups: Groups | None = None
    grouped_by: str | None = None
    runs: Groups | None = None
    labels: Groups | None = None
    persons: Groups | None = None
    unused: UnusedColumn | None = None
    about: Mapping[str, AttackInfo] = field(default_factory=dict)
    left_out: tuple[OmittedAttack, ...] = ()
    facts: RunFacts = field(default_factory=RunFacts)

    def __len__(self) -> int:
        return int(self.member.size)


def find_columns(names: Sequence[str], given: Given = None) -> Columns:
    """Which column of scores is what: as `given` (role -> column, "score" also several), else by their usual names."""
    asked = asked_columns(names, given, "scores", ROLES)
    found = usual_columns(names, asked, "scores")
    scores = {name: name for name in asked["score"]} if asked.get("score") else _usual_scores(names)
    if not scores:
        _check_answers(names)
        raise InvalidArgument(
            "The table has no column 'score', scores of an attack (higher: more likely a member), and none of a "
            f"model's answers (p_CLASS, logit_CLASS, loss); the columns are {_listed(names)}",
            remedy="rename one, or name scores with `columns` score=NAME, a model's answers with `columns` "
            "probability:CLASS=NAME and `columns` label=NAME",
        )
    return with_roles(Columns(str(found["member"]), scores), found, names, given)


def _check_answers(names: Sequence[str]) -> None:
    """Says what is lacking beside an answer that is one value or class."""
    answer = next((name for name in names if _PREDICTED.fullmatch(name.strip())), None)
    if answer is not None:
        raise InvalidArgument(
            f"Column {answer!r} holds the model's answers, but an audit needs how well they fit each record",
            remedy=f"for values, write a column loss, such as ({answer} - label)**2; for classes, one p_CLASS for "
            f"each, or if it is the probability of one class, name that: `columns` probability:CLASS={answer}",
        )


def with_roles(columns: Columns, found: Mapping[str, str | None], names: Sequence[str], given: Given) -> Columns:
    """The columns with those of the roles that every table has."""
    known = dataclasses.replace(
        columns,
        id=found["id"],
        person=found["person"],
        group=found["group"],
        run=found["run"],
        in_means=next((key.partition(":")[2] for key in given or {} if key.startswith("member:")), None),
    )
    used = known.all()
    free = (name for name in names if name not in used and _LIKE_ID.fullmatch(name.strip()))
    return known if known.person else dataclasses.replace(known, unused=next(free, None))


def asked_columns(names: Sequence[str], given: Given, what: str, roles: Sequence[str]) -> dict[str, list[str]]:
    """`given` as role -> columns, after a check that they are there."""
    repeated = next((name for name in names if list(names).count(name) > 1), None)
    if repeated is not None:
        raise InvalidArgument(f"The {what} have two columns {repeated!r}", remedy="rename one of them")
    asked: dict[str, list[str]] = {}
    for key, wanted in (given or {}).items():
        role, _, value = key.partition(":")
        check.one_of("columns", role, roles)
        if value and role not in _NAMED:
            raise InvalidArgument(
                f"has {key!r}", argument="columns", remedy=f"only {check.listed(_NAMED)} may name a value"
            )
        asked.setdefault(role, []).extend([wanted] if isinstance(wanted, str) else wanted)
    for role, columns in asked.items():
        unknown = next((name for name in columns if name not in names), None)
        if unknown is not None:
            raise InvalidArgument(
                f"The {what} have no column {unknown!r}{check.did_you_mean(unknown, names)}",
                remedy=f"the columns are {_listed(names)}",
            )
        if role not in _SEVERAL and len(columns) > 1:
            raise InvalidArgument(
                f"has several columns for {role!r}",
                argument="columns",
                remedy=f"only {check.listed(_SEVERAL)} may have several",
            )
    return asked


def usual_columns(names: Sequence[str], asked: Mapping[str, Sequence[str]], what: str) -> dict[str, str | None]:
    """Role -> column, of roles with one column: as asked, else by their usual names. One of members there must be."""
    lower = {name.strip().lower(): name for name in names}
    found = {role: next((lower[name] for name in usual if name in lower), None) for role, usual in _USUAL.items()}
    found |= {role: columns[0] for role, columns in asked.items() if role not in _SEVERAL and columns}
    if found["member"] is None:
        raise InvalidArgument(
            f"The {what} have no column 'member', who was in the training data (1 or 0); the columns are "
            f"{_listed(names)}",
            remedy="rename one, or name it with `columns` member=NAME",
        )
    return found


def _usual_scores(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        word = name.strip().lower()
        if word in ("score", "scores"):
            found[GIVEN] = name
        elif word.startswith("score_") or word.endswith("_score"):
            found[name.strip()[6:] if word.startswith("score_") else name.strip()[:-6]] = name
    return {attack or column: column for attack, column in found.items()}


def _listed(names: Iterable[str]) -> str:
    some = [repr(name[:40]) for name in names]
    return check.listed(some[:12] if len(some) <= 12 else [*some[:12], f"{len(some) - 12} more"]) if some else "none"


@dataclass
class TableBuilder:
    """Reads the cells of a table, some records at a time.

    Cells are text, numbers, booleans or None; what cannot be read is said with the number of its record, from 1.
    """

    columns: Columns
    _count: int = 0
    _member: list[NDArray[np.bool_]] = field(default_factory=list)
    _scores: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)
    _ids: list[NDArray[Any]] = field(default_factory=list)
    _names: dict[str, dict[str, int]] = field(default_factory=dict)
    _codes: dict[str, list[NDArray[np.intp]]] = field(default_factory=dict)

    def add(self, cells: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
        """Column -> its cells, of the next records."""
        columns = self.columns
        sizes = {name: len(cells[name]) for name in columns.all()}
        if len(set(sizes.values())) > 1:
            (one, first), (other, second) = next(iter(sizes.items())), min(sizes.items(), key=lambda item: item[1])
            raise InvalidArgument(
                f"The {self.columns.what} have {first} cells in column {one!r} and {second} in {other!r}",
                remedy="fill all columns",
            )
        self._member.append(self._members(cells[columns.member]))
        for attack, name in columns.scores.items():
            flag = name in columns.flags
            read = self._flags(name, cells[name]).astype(np.float64) if flag else self._floats(name, cells[name])
            self._scores.setdefault(attack, []).append(read)
        if columns.id is not None:
            self._ids.append(plain_ids(self._texts(columns.id, cells[columns.id])))
        for coded in columns.coded:
            self._codes.setdefault(coded, []).append(self._coded(coded, cells[coded]))
        self._count += sizes[columns.member]

    def table(self) -> ScoreTable:
        """All that was added."""
        if self._count == 0:
            raise InvalidArgument(
                f"The {self.columns.what} have no records", remedy="pass at least 2 members and 2 non-members"
            )
        member = np.concatenate(self._member)
        for inside, kind in ((member, "members"), (~member, "non-members")):
            if np.count_nonzero(inside) < 2:
                raise InvalidArgument(
                    f"The {self.columns.what} have {np.count_nonzero(inside)} {kind} among {self._count} records",
                    remedy="pass at least 2 members and 2 non-members",
                )
        columns = self.columns
        runs, persons = self._groups(columns.run), self._persons()
        ids = np.arange(1, self._count + 1) if columns.id is None else _joined_ids(self._ids)
        if persons is None or columns.id != columns.person:
            _check_runs(runs, member, ids, columns)
        return ScoreTable(
            member=member,
            scores={attack: np.concatenate(parts) for attack, parts in self._scores.items()},
            ids=ids,
            groups=self._groups(columns.group),
            grouped_by=columns.group,
            runs=runs,
            labels=self._groups(columns.label),
            persons=persons,
            unused=self._unused(),
        )

    def _persons(self) -> Groups | None:
        """Whose rows they are; None where each row is of another person."""
        persons = self._groups(self.columns.person)
        if persons is None:
            return None
        column = str(self.columns.person)
        if "" in self._names[column]:
            row = int(np.argmax(persons.codes == self._names[column][""]))
            raise InvalidArgument(
                f"The {self.columns.what} have no person in column {column!r} of record {row + 1}",
                remedy="name a person in each record",
            )
        return None if np.unique(persons.codes).size == self._count else persons

    def _unused(self) -> UnusedColumn | None:
        column = self.columns.unused
        if column is None:
            return None
        different = len(self._names[column])
        if not (_FEWEST_IDS <= different < self._count <= 100 * different):
            return None
        return UnusedColumn(name=column, values=different, rows=self._count)

    def _groups(self, name: str | None) -> Groups | None:
        if name is None:
            return None
        return Groups(np.concatenate(self._codes[name]), tuple(text or "(empty)" for text in self._names[name]))

    def _refused(self, name: str, row: int, cell: object, problem: str, remedy: str) -> InvalidArgument:
        shown = repr(cell.item() if isinstance(cell, np.generic) else cell)[:60]
        return InvalidArgument(
            f"The {self.columns.what} have {shown} in column {name!r} of record {self._count + row + 1}, {problem}",
            remedy=remedy,
        )

    def _members(self, cells: Sequence[Any] | NDArray[Any]) -> NDArray[np.bool_]:
        """Who was in: as the column says it in known words, or where it says what was named."""
        name, wanted = self.columns.member, self.columns.in_means
        if wanted is None:
            return self._flags(name, cells)
        texts = [text.strip() for text in self._texts(name, cells)]
        for row, text in enumerate(texts):
            if not text or (text != wanted.strip() and text.lower() == wanted.strip().lower()):
                problem = f"which may or may not be the {wanted!r} of members"
                raise self._refused(name, row, cells[row], problem, "write it in one way, and in each record")
        return np.array([text == wanted.strip() for text in texts], dtype=np.bool_)

    def _flags(self, name: str, cells: Sequence[Any] | NDArray[Any]) -> NDArray[np.bool_]:
        if isinstance(cells, np.ndarray) and cells.dtype == np.bool_:
            return cells
        try:
            found = list(map(_WORDS.get, cells))  # text as most write it
        except TypeError:  # a cell that has no hash
            found = [None]
        if None in found:
            found = [_WORDS.get(str(cell).strip().lower()) for cell in cells]
        if None in found:
            row = found.index(None)
            problem = "which does not say whether it is a member"
            remedy = "write 1 for members and 0 for others"
            if name == self.columns.member:
                remedy += f", or say what it says of members: `columns` member:VALUE={name}"
            raise self._refused(name, row, cells[row], problem, remedy)
        return np.array(found, dtype=np.bool_)

    def _floats(self, name: str, cells: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
        try:
            if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub":
                found = cells.astype(np.float64)
            else:
                if isinstance(cells, np.ndarray) and cells.dtype.kind == "c":
                    raise TypeError  # NumPy would drop half of each
                found = np.fromiter(map(float, _with_points(cells)), np.float64, len(cells))
        except (TypeError, ValueError, OverflowError):
            row = next(i for i, cell in enumerate(cells) if not _is_number(cell))
            raise self._refused(
                name,
                row,
                cells[row],
                "which is not a number",
                "write a number in each record, such as 0.25",
            ) from None
        wrong = ~np.isfinite(found)
        if wrong.any():
            row = int(wrong.argmax())
            remedy = "leave out records without one" if np.isnan(found[row]) else "write a finite number"
            raise self._refused(name, row, cells[row], "which is not finite", remedy)
        return found

    def _texts(self, name: str, cells: Sequence[Any] | NDArray[Any]) -> list[str]:
        texts = [cell if type(cell) is str else "" if cell is None or cell != cell else str(cell) for cell in cells]
        if texts and max(map(len, texts)) > _LONGEST:
            row = next(i for i, text in enumerate(texts) if len(text) > _LONGEST)
            problem = f"which is longer than {_LONGEST} characters"
            raise self._refused(name, row, cells[row], problem, "write a short name")
        if not "".join(texts).isascii():  # JSON can hold halves of surrogate pairs, which no file can
            texts = [text.encode("utf-8", "replace").decode() for text in texts]
        return texts

    def _coded(self, name: str, cells: Sequence[Any] | NDArray[Any]) -> NDArray[np.intp]:
        book = self._names.setdefault(name, {})
        texts = self._texts(name, cells)
        if name == self.columns.person:  # 1, "1 " and 1.0 are one person
            texts = [re.sub(r"(?<=\d)\.0+$", "", text.strip()) for text in texts]
            texts = ["" if text.lower() in _NO_NAME else text for text in texts]
        codes = np.fromiter((book.setdefault(text, len(book)) for text in texts), np.intp, len(texts))
        limit = _MOST_CLASSES if name == self.columns.label else MOST_NAMES
        if len(book) > limit and name not in (self.columns.person, self.columns.unused):
            raise InvalidArgument(
                f"The {self.columns.what} have more than {limit:,} different names in column {name!r}",
                remedy="name a column of groups, runs or classes, not of records",
            )
        return codes


_COMMA: Final = re.compile(r"\s*[-+]?\d+,\d+(?:[eE][-+]?\d+)?\s*")
_THOUSANDS: Final = re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:,\d{3})+\s*")


def _with_points(cells: Sequence[Any] | NDArray[Any]) -> Sequence[Any] | NDArray[Any]:
    """Decimal commas as points, where no cell has a point and the commas cannot separate thousands."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    commas = [text for text in texts if "," in text]
    if not commas or any("." in text for text in texts):
        return cells
    if not all(map(_COMMA.fullmatch, commas)) or all(map(_THOUSANDS.fullmatch, commas)):
        return cells
    return [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]


def _is_number(cell: Any) -> bool:
    if isinstance(cell, (complex, np.complexfloating)):
        return False
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def plain_ids(texts: Sequence[str]) -> NDArray[Any]:
    """Ids become whole numbers where all are written like one."""
    try:
        numbers = list(map(int, texts))
        if list(map(str, numbers)) == list(texts):
            return np.array(numbers, dtype=np.int64)
    except (ValueError, OverflowError):
        pass
    return np.array(texts, dtype=np.str_)


def _joined_ids(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Names, unless all are numbers."""
    numbers = all(part.dtype.kind == "i" for part in parts)
    return np.concatenate(parts if numbers else [part.astype(np.str_) for part in parts])


def _check_runs(runs: Groups | None, member: NDArray[np.bool_], ids: NDArray[Any], columns: Columns) -> None:
    """In each run there are members and others, and each record once."""
    parts: list[tuple[str, Any]] = [("", slice(None))]
    if runs is not None:
        parts = [(f" of run {name!r}", runs.codes == code) for code, name in enumerate(runs.names)]
    for of, here in parts:
        if np.unique(member[here]).size == 1:
            raise InvalidArgument(
                f"The {columns.what}{of} are all of {'members' if member[here].any() else 'non-members'}",
                remedy="pass both in each run, or leave out the column of runs",
            )
        repeated = ids[here].size - np.unique(ids[here]).size
        if repeated:
            raise InvalidArgument(
                f"The {columns.what}{of} have {repeated:,} repeated entries in column {columns.id!r}",
                remedy="name each record once; or, if they are one person's, name the column as the person: `columns` "
                f"person={columns.id}" + ("" if of else "; or add a column 'run'"),
            )


def one_dimensional(name: str, values: Any) -> NDArray[Any]:
    """A column as an array."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.empty(())
    if array.ndim != 1:
        raise InvalidArgument(f"Column {name!r} must have one dimension, not shape {array.shape}")
    return array


# -- persons with several rows -----------------------------------------------------------------------------------------


_FROM: Final = (1, 2, 5, 10)  # rows of a person, at which the next group begins
_NAMES: Final = ("1 row", "2 to 4 rows", "5 to 9 rows", "10 rows or more")
GROUPED_BY: Final = "rows of a person"
_HUGE: Final = 1.0e290  # sums of these may overflow
_CLEAR: Final = 3.0  # standard errors by which numbers of rows differ between members and others


def by_person(table: ScoreTable) -> tuple[ScoreTable, Persons | None]:
    """One score for each person: the sum, over the person's rows, of the score above what is usual in its run; and what
    became of the rows, None where each is of another person.

    Log-likelihood ratios of independent rows add up. What is usual is the median of the persons' own medians, which
    does not depend on who was in and in which nobody counts more than others: it keeps scores that have another zero
    from ranking persons by their number of rows. A person's rows may depend on each other in any way: what is judged is
    one number for each person. Persons with rows on both sides are neither members nor non-members, and are left out;
    where somebody is a member in one run and not in another, each run is judged by itself. Without other
    groups, persons are grouped by their number of rows.
    """
    persons = table.persons
    if persons is None:
        return table, None
    runs = np.zeros(len(table), dtype=np.intp) if table.runs is None else table.runs.codes
    in_run = np.unique(runs * len(persons.names) + persons.codes, return_inverse=True)[1]
    joined = table.runs is None or _stay(table.member, persons, in_run)
    key = persons.codes if joined else in_run
    _, first, place, rows = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    if rows.max() == 1:
        return dataclasses.replace(table, persons=None), None
    members = np.bincount(place, weights=table.member)
    whole = (members == 0) | (members == rows)
    member = members[whole] > 0
    _check_persons(member, int(np.count_nonzero(~whole)))
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
    return made, Persons(
        rows=len(table),
        persons=int(rows.size),
        most_rows=int(rows.max()),
        on_both_sides=int(np.count_nonzero(~whole)),
        uneven=_uneven(rows[whole], member),
    )


def _check_persons(member: NDArray[np.bool_], on_both_sides: int) -> None:
    for inside, kind in ((member, "members"), (~member, "non-members")):
        if np.count_nonzero(inside) < 2:
            raise InvalidArgument(
                f"{np.count_nonzero(inside)} persons are {kind} with all their rows, and {on_both_sides} have rows "
                "among members and among non-members",
                remedy="pass at least 2 persons with all rows in the training data, and 2 with none",
            )


def _summed(
    scores: NDArray[np.float64], place: NDArray[np.intp], in_run: NDArray[np.intp], runs: NDArray[np.intp]
) -> NDArray[np.float64]:
    if np.abs(scores).max() > _HUGE:  # only the order counts, and powers of two are exact
        scores = scores * 2.0 ** -np.ceil(np.log2(4.0 * scores.size))
    return np.asarray(np.bincount(place, weights=scores - _usual(scores, in_run, runs)))


def _usual(scores: NDArray[np.float64], in_run: NDArray[np.intp], runs: NDArray[np.intp]) -> NDArray[np.float64]:
    """The median, for each row, over the persons of its run of their own medians."""
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
