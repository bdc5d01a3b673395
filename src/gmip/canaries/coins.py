"""What all canaries have in common: each is in by a fair coin of its own, and the audit compares those in and out."""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _io
from gmip import _validate as check
from gmip._progress import Watch, silent
from gmip._random import CanaryStream
from gmip.accounting.account import account
from gmip.accounting.tradeoff import TradeOff
from gmip.auditing.audit import audit_sources
from gmip.auditing.judge import Evidence, JudgeSettings
from gmip.auditing.schema import AuditResult, RunCheck
from gmip.auditing.sources import Source
from gmip.auditing.sources.table_sources import Scores
from gmip.errors import FileError, GmipError, InvalidArgument
from gmip.vocabulary import NoisySGD

if TYPE_CHECKING:
    from gmip.canaries.planted import DirectionCanaries

_FEWEST: Final = 10


@dataclass(frozen=True, eq=False)
class CheckedScores:
    """A source of scores of canaries, with what else they tell about the run; None: nothing."""

    scores: Source
    check: RunCheck | None

    def evidence(self, seed: int = 0, watch: Watch = silent) -> Evidence:
        return dataclasses.replace(self.scores.evidence(seed, watch), check=self.check)


class Coins:
    """`count` canaries, each in with probability 1/2.

    Parameters
    ----------
    seed : of the coins, and of all that is random about the canaries; None: a random one. Who knows it knows who is in:
        a run under test must not.

    Attributes
    ----------
    inside : array of shape (count,), which are in.
    """

    def __init__(self, count: int, seed: int | None) -> None:
        self.count = check.count("count", count)
        if self.count < _FEWEST:
            raise InvalidArgument(
                "are too few for an audit", argument="count", value=count, remedy=f"plant at least {_FEWEST}"
            )
        self.seed = secrets.randbits(63) if seed is None else check.seed(seed)
        self.inside: NDArray[np.bool_] = CanaryStream.COINS.rng(self.seed).random(self.count) < 0.5
        self.inside.flags.writeable = False

    def _audited(
        self, scores: ArrayLike, title: str | None, settings: Mapping[str, Any], noise_check: RunCheck | None = None
    ) -> AuditResult:
        """The audit of one score for each canary (higher = in): see `gmip.Scores`.

        Guarantees
        ----------
        They are those of `gmip.Scores`. Coins are fair and independent, so method "one-run" among the bounds holds for
        any dependence between the scores, if the run is differentially private as claimed; the others take the scores
        to be independent given the run.
        """
        values = check.vector("scores", scores, length=self.count)
        both = Scores({"canaries": values[self.inside]}, {"canaries": values[~self.inside]})
        by = JudgeSettings.of({"fprs": (0.01, 0.1), **settings})
        return audit_sources([CheckedScores(both, noise_check)], by, title=title or f"Audit of {self.count} canaries")


# -- canaries of a recorded run on disk -------------------------------------------------------------------------------


TABLE: Final = "canaries.csv"
ABOUT: Final = "canaries.json"
_FORMAT, _VERSION = "gmip-canaries", 1


class PlantedRun(NamedTuple):
    """Attributes
    ----------
    table : a file of scores, of which `gmip.Scores` and `gmip audit` know the columns.
    planted : how many canaries, about half of them in.
    run : what was trained.
    check : whether its noise was as large as declared; None: not known, or no noise.
    """

    table: Path
    planted: int
    run: NoisySGD
    check: RunCheck | None = None

    def checked(self, scores: Source) -> CheckedScores:
        """The scores with the check."""
        return CheckedScores(scores, self.check)

    @property
    def claim(self) -> TradeOff | None:
        """The differential privacy of the run if one record is added or removed, which is what a canary is; None
        without noise.

        Guarantees
        ----------
        A bound, for canaries that are drawn anew in each step with the chance batch_size/dataset_size, as
        `DirectionCanaries` are whatever the sampling of the run.
        """
        return account(self.run.replace(sampling="poisson"), notion="gdp") if self.run.noise_std > 0.0 else None


def write_canaries(folder: Path, canaries: DirectionCanaries, run: NoisySGD) -> Path:
    """Who was in, and the scores, beside a trace: protect them like the data until the audit is done."""
    rows = zip(canaries.inside.tolist(), canaries.scores.tolist(), strict=True)
    lines = [f"{number},{int(inside)},{score!r}" for number, (inside, score) in enumerate(rows, start=1)]
    path = folder / TABLE
    _io.write(path, "\n".join(["id,member,score_canaries", *lines]) + "\n")
    about = {
        "format": _FORMAT,
        "version": _VERSION,
        "count": canaries.count,
        "seed": canaries.seed,
        "run": dataclasses.asdict(run),
        "table": _io.sha256_of_file(path),
        "check": None if (noise_check := canaries.noise.check) is None else noise_check.model_dump(mode="json"),
    }
    _io.write(folder / ABOUT, json.dumps(about, indent=2) + "\n")
    return path


def read_canaries(folder: Path) -> PlantedRun:
    """What `write_canaries` wrote; nothing is unpickled."""
    path, about = folder / TABLE, folder / ABOUT
    if not about.is_file():
        raise FileError(
            f"{folder} holds no canaries", remedy="plant some: gmip train --canaries 1000 ... --out " + str(folder)
        )
    with _io.reading(about):
        text = about.read_text(encoding="utf-8")
    with _io.reading(path):
        digest = _io.sha256_of_file(path)
    try:
        known = json.loads(text)
        if (known["format"], known["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"it is {known['format']!r} of version {known['version']!r}")
        noise_check = None if known["check"] is None else RunCheck.model_validate(known["check"])
        found = PlantedRun(path, int(known["count"]), NoisySGD(**known["run"]), noise_check)
        stored = known["table"]
    except (ValueError, TypeError, KeyError, GmipError) as error:
        raise FileError(f"{about} cannot be used ({error})", remedy="plant and train again") from error
    if stored != digest:
        raise FileError(f"{path} was changed after training", remedy="plant and train again")
    return found
