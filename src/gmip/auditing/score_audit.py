"""The audit of scores: any attack, by anybody, in any framework; without a trace and without the model."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _validate as check
from gmip._io import sha256, sha256_of_file
from gmip._progress import Watch, silent
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.curves import given_curve
from gmip.auditing.judge import AttackEvidence, AttackScores, Criteria, Evidence, Labels, judge
from gmip.auditing.outcomes import Groups
from gmip.auditing.schema import AuditResult, Provenance, RunFacts
from gmip.auditing.schema import Source as Kind
from gmip.auditing.score_table import GIVEN, AttackInfo, ScoreTable, read_scores, table_from_columns
from gmip.errors import InvalidArgument
from gmip.stats import ScoreSet
from gmip.vocabulary import Rate, RateLike

__all__ = [
    "Claim",
    "Scores",
    "Source",
    "Standards",
    "TableFile",
    "audit_scores",
    "audit_sources",
    "read_table",
    "table_evidence",
]

Claim = TradeOff | float | tuple[float, float]
_VERSIONS: Final = ("gmip", "numpy", "scipy")
_NEEDS: Final = ("what the scores were computed from",)
_EVEN: Final = 0.05  # by how much shares of members may differ between runs whose scores are compared


def audit_scores(
    members: ArrayLike | Mapping[str, ArrayLike] | str | os.PathLike[str] | Any,
    non_members: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    claim: Claim | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    confidence: float = 0.95,
    delta: float = 1.0e-5,
    fprs: Sequence[float] = (0.001, 0.01, 0.1),
    target_tpr: RateLike = (0.05, 0.01),
    fail_above_tpr: RateLike | None = None,
    seed: int = 0,
    title: str | None = None,
) -> AuditResult:
    """Do these scores reveal who was in the training data, and more than was claimed?

    Parameters
    ----------
    members, non_members : array-like of shape (n,) and (m,), scores of an attack (higher = member); or mappings of the
        names of attacks to such arrays. Without `non_members`, a table as the first argument: a file (CSV, JSON lines,
        Parquet), a data frame, or a mapping of names to columns.
    claim : what is said to hold: a `TradeOff`, a mu, or (epsilon, delta). None: no claim is tested; what leaks is
        measured all the same.
    columns : of a table: which column is "member" (1 or 0), "score" (one or several), "id", "group", "run". By default
        columns of these names, and as scores also score_NAME and NAME_score.
    confidence, delta, fprs : of intervals and bounds; for epsilon; at which members found are reported.
    target_tpr : what is good enough: at most this TPR at this FPR, as "0.05@0.01", (0.05, 0.01) or a `gmip.Rate`.
    fail_above_tpr : a limit for pipelines, such as "0.05@0.01": see `result.runs[0].gate`.
    seed : breaks ties, and draws what the bounds draw.

    Guarantees
    ----------
    For scores that are independent given the run and not made from the membership labels: the verdict "exposed" where
    the claim holds, a bound on mu above the truth, and a failed gate below its limit have each a chance of at most
    1 - confidence, for all attacks together. Each attack gets its share of the error. Scores that say nothing are taken
    for scores of the wrong sign (`RunAudit.suspicion`; then no gate passes) with a fifth of that chance.
    """
    standards = Standards(
        claim=claim,
        confidence=confidence,
        delta=delta,
        fprs=fprs,
        target_tpr=target_tpr,
        fail_above_tpr=fail_above_tpr,
        seed=seed,
    )
    source = Scores(members, non_members, columns=columns)
    return audit_sources([source], standards, title=title, command="gmip.audit_scores(...)")


class Source(Protocol):
    """What can be audited without training anything first."""

    def evidence(self, standards: Standards, watch: Watch) -> Evidence:
        """All that is known about it; whoever judges it adds a claim."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of attacks; see `gmip.audit_scores` for what they may be."""

    members: Any
    non_members: Any = None
    _: KW_ONLY
    columns: Mapping[str, str | Sequence[str]] | None = None

    def evidence(self, standards: Standards, watch: Watch = silent) -> Evidence:
        """The scores, and who was in."""
        if self.non_members is None:
            table, path = read_table(self.members, self.columns)
            return table_evidence(table, path=path)
        if self.columns is not None:
            raise InvalidArgument("are for tables", argument="columns", remedy="leave them out")
        return table_evidence(_from_arrays(self.members, self.non_members))


@dataclass(frozen=True, kw_only=True)
class Standards:
    """By what scores are judged: keywords that the audits of scores, predictions and estimators share, unchecked."""

    claim: Claim | None = None
    confidence: float = 0.95
    delta: float = 1.0e-5
    fprs: Sequence[float] = (0.001, 0.01, 0.1)
    target_tpr: RateLike = (0.05, 0.01)
    fail_above_tpr: RateLike | None = None
    seed: int = 0

    def criteria(self) -> Criteria:
        """Checked."""
        if not self.fprs:
            raise InvalidArgument("is empty", argument="fprs", remedy="pass one rate or more")
        return Criteria(
            confidence=_confidence(self.confidence),
            delta=check.probability("delta", self.delta, open_low=True, open_high=True),
            fprs=tuple(check.probability("fprs", fpr, open_low=True, open_high=True) for fpr in self.fprs),
            goal=Rate.parse("target_tpr", self.target_tpr),
            limit=None if self.fail_above_tpr is None else Rate.parse("fail_above_tpr", self.fail_above_tpr),
            seed=check.seed(self.seed),
        )


def table_evidence(
    table: ScoreTable,
    *,
    path: Path | None = None,
    name: str = "scores",
    facts: RunFacts | None = None,
    source: Kind | None = None,
) -> Evidence:
    """The evidence in a table, from the file `path` if any, else called `name`; `facts` about the model, if known."""
    rows = _runs(table)
    return Evidence(
        name=name if path is None else _text(path.stem),
        source=source or ("predictions" if table.about else "scores"),
        path=None if path is None else _text(str(path)),
        attacks=_attacks(table, rows),
        facts=facts or RunFacts(),
        grouped_by=table.grouped_by,
        same_scale=_comparable(table, rows),
        left_out=table.left_out,
        fingerprint=_fingerprint(table) if path is None else sha256_of_file(path),
    )


def audit_sources(
    sources: Sequence[Source], standards: Standards, *, title: str | None, command: str, watch: Watch = silent
) -> AuditResult:
    """The audit of one source or more, each judged by the same standards."""
    curve, criteria = given_curve(standards.claim), standards.criteria()
    runs, candidates, fingerprints = [], {}, {}
    for source in sources:
        evidence = dataclasses.replace(source.evidence(standards, watch), claim=curve)
        name, count = evidence.name, 1
        while name in candidates:
            count += 1
            name = f"{evidence.name} ({count})"
        evidence = dataclasses.replace(evidence, name=name)
        run, candidates[name] = judge(evidence, criteria, watch(f"judging {name}"))
        fingerprints["scores" if len(sources) == 1 else name] = evidence.fingerprint
        runs.append(run)
    result = AuditResult(
        title=title or f"Membership audit of {', '.join(candidates)}",
        created=datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat(),
        confidence=criteria.confidence,
        delta=criteria.delta,
        runs=tuple(runs),
        provenance=Provenance(
            command=_text(command),
            seed=criteria.seed,
            versions=_versions(),
            platform=f"Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            fingerprints=fingerprints,
        ),
    )
    return result.with_candidates(candidates)


@dataclass(frozen=True, eq=False)
class TableFile:
    """A file of scores or predictions that was read already."""

    table: ScoreTable
    path: Path

    def evidence(self, standards: Standards, watch: Watch = silent) -> Evidence:
        """What the table holds."""
        return table_evidence(self.table, path=self.path)


# -- what is given ----------------------------------------------------------------------------------------------------


def read_table(
    given: Any, columns: Mapping[str, str | Sequence[str]] | None, attacks: Sequence[str] | None = None
) -> tuple[ScoreTable, Path | None]:
    """A table of scores or predictions from a file, a mapping or a data frame, and the path of the file."""
    if isinstance(given, (str, os.PathLike)):
        path = Path(given)
        return read_scores(path, columns, attacks), path
    if isinstance(given, Mapping):
        return table_from_columns(given, columns, attacks), None
    if hasattr(given, "columns") and hasattr(given, "__getitem__"):  # a data frame
        return table_from_columns({str(name): given[name] for name in given.columns}, columns, attacks), None
    raise InvalidArgument(
        f"must be a table if there are no `non_members`, not {type(given).__name__}",
        argument="members",
        remedy="pass the scores of both, a file, a data frame or a mapping of columns",
    )


def _from_arrays(members: Any, non_members: Any) -> ScoreTable:
    ins = members if isinstance(members, Mapping) else {GIVEN: members}
    outs = non_members if isinstance(non_members, Mapping) else {GIVEN: non_members}
    if not ins or set(ins) != set(outs):
        raise InvalidArgument("`members` and `non_members` must hold scores of the same attacks")
    scores = {}
    for attack in ins:
        parts = [check.vector("members", ins[attack]), check.vector("non_members", outs[attack])]
        for name, part in zip(("members", "non_members"), parts, strict=True):
            if part.size < 2:
                raise InvalidArgument(f"hold {part.size} scores", argument=name, remedy="pass at least 2 for an audit")
        scores[str(attack)] = np.concatenate(parts)
        inside = np.arange(scores[str(attack)].size) < parts[0].size
        if inside.size != next(iter(scores.values())).size or inside.sum() != len(next(iter(ins.values()))):
            raise InvalidArgument("`members` and `non_members` must have as many scores by each attack")
    return ScoreTable(member=inside, scores=scores, ids=np.arange(1, inside.size + 1))


def _confidence(value: float) -> float:
    confidence = check.probability("confidence", value, open_high=True)
    if confidence < 0.5:
        raise InvalidArgument("must be at least 0.5", argument="confidence", value=value)
    return confidence


# -- what is made of it -----------------------------------------------------------------------------------------------


def _runs(table: ScoreTable) -> list[NDArray[np.intp] | slice]:
    """The rows of each run."""
    if table.runs is None:
        return [slice(None)]
    return [np.flatnonzero(table.runs.codes == code) for code in range(len(table.runs.names))]


def _attacks(table: ScoreTable, rows: Sequence[NDArray[np.intp] | slice]) -> tuple[AttackEvidence, ...]:
    labels = tuple(_labels(table, chosen) for chosen in rows)
    made = []
    for attack, scores in table.scores.items():
        about = table.about.get(attack, AttackInfo(attack, _NEEDS, {}, sees="scores"))
        sets = [
            ScoreSet(ids=table.ids[chosen], scores=scores[chosen], attack=attack, facts=about.facts) for chosen in rows
        ]
        made.append(
            AttackEvidence(
                name=_text(attack),
                title=_text(about.title),
                needs=about.needs,
                found=tuple(AttackScores(scores=one) for one in sets),
                labels=labels,
                sees=about.sees,
                knows=about.knows,
            )
        )
    return tuple(made)


def _labels(table: ScoreTable, rows: NDArray[np.intp] | slice) -> Labels:
    groups = table.groups
    return Labels(
        inside=table.member[rows], groups=None if groups is None else Groups(groups.codes[rows], groups.names)
    )


def _comparable(table: ScoreTable, rows: Sequence[NDArray[np.intp] | slice]) -> bool:
    """Whether scores of different runs are compared. Where runs differ in their share of members that could look like
    a leak, because a run can score high as a whole."""
    shares = [float(table.member[chosen].mean()) for chosen in rows]
    return max(shares) - min(shares) <= _EVEN * max(shares)


def _text(text: str) -> str:
    """Without halves of surrogate pairs, which names of files can hold and no file."""
    return text.encode("utf-8", "replace").decode()


def _fingerprint(table: ScoreTable) -> str:
    parts = [table.member.tobytes(), *(name.encode() + scores.tobytes() for name, scores in table.scores.items())]
    return sha256(b"".join(parts))


def _versions() -> dict[str, str]:
    found = {}
    for name in _VERSIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a source tree
            found[name] = "unknown"
    return found
