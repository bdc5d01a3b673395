"""Canaries of a recorded run on disk: their coins and scores, and what the run promised about them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from gmip import _io
from gmip.accounting.account import account
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import FileError, GmipError
from gmip.vocabulary import NoisySGD

if TYPE_CHECKING:
    from gmip.canaries.planted_directions import DirectionCanaries

__all__ = ["TABLE", "PlantedRun", "read_canaries", "write_canaries"]

TABLE: Final = "canaries.csv"
_ABOUT: Final = "canaries.json"
_FORMAT, _VERSION = "gmip-canaries", 1


class PlantedRun(NamedTuple):
    """Attributes
    ----------
    table : a file of scores, of which `gmip.audit_scores` and `gmip audit` know the columns.
    planted : how many canaries, about half of them in.
    run : what was trained.
    """

    table: Path
    planted: int
    run: NoisySGD

    @property
    def promise(self) -> TradeOff | None:
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
    }
    _io.write(folder / _ABOUT, json.dumps(about, indent=2) + "\n")
    return path


def read_canaries(folder: Path) -> PlantedRun:
    """What `write_canaries` wrote; nothing is unpickled."""
    path, about = folder / TABLE, folder / _ABOUT
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
        found = PlantedRun(path, int(known["count"]), NoisySGD(**known["run"]))
        told = known["table"]
    except (ValueError, TypeError, KeyError, GmipError) as error:
        raise FileError(f"{about} cannot be used ({error})", remedy="plant and train again") from error
    if told != digest:
        raise FileError(f"{path} was changed after training", remedy="plant and train again")
    return found
