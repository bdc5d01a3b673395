"""Scores on disk: what an attack found about a run, kept so that an interrupted audit need not attack again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gmip._io import make_folder, sha256, write
from gmip.stats import ScoreSet
from gmip.trace import Trace

__all__ = ["Predicted", "Scored", "read_scored", "scored_key", "write_scored"]

_FORMAT: Final = "gmip-scores-1"
_OPTIONAL: Final = ("p_values", "susceptibility")
_POINTS: Final = 2000


@dataclass(frozen=True)
class Predicted:
    """The ROC that self-play expects: rates of shape (k,)."""

    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]
    auc: float


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What an audit keeps of an attack on one run."""

    scores: ScoreSet  # info: plain facts only
    prediction: Predicted | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = field(default_factory=tuple)

    @classmethod
    def of(cls, found: ScoreSet, seconds: float, warnings: Sequence[str]) -> Scored:
        """Keeps the plain facts of the attack's `info`, and the curve of its prediction."""
        prediction, expected = None, found.info.get("prediction")
        if expected is not None:
            roc = expected.roc
            keep = _thinned(roc.fpr)
            prediction = Predicted(roc.fpr[keep], roc.tpr[keep], float(expected.auc))
        facts = {name: value for name, value in found.info.items() if _is_plain(value)}
        plain = dataclasses.replace(found, info=facts)
        return cls(scores=plain, prediction=prediction, seconds=seconds, warnings=tuple(warnings))


def scored_key(trace: Trace, candidates: NDArray[np.int64], attack: Any, version: str) -> str:
    """A name for all that scores depend on: the run, the candidates, the attack with its options, the software."""
    asked = sha256(np.ascontiguousarray(candidates, dtype="<i8").tobytes())
    return sha256("\n".join([trace.fingerprint, asked, f"{attack.name} {attack!r}", version]))[:24]


def write_scored(path: Path, found: Scored) -> None:
    """Write the file whole or not at all."""
    one = found.scores
    arrays: dict[str, NDArray[Any]] = {"ids": np.ascontiguousarray(one.ids), "scores": np.ascontiguousarray(one.scores)}
    arrays |= {name: np.ascontiguousarray(getattr(one, name)) for name in _OPTIONAL if getattr(one, name) is not None}
    if found.prediction is not None:
        arrays |= {"fpr": found.prediction.fpr.copy(), "tpr": found.prediction.tpr.copy()}
    facts = {
        "attack": one.attack,
        "calibration": one.calibration,
        "info": dict(one.info),
        "auc": None if found.prediction is None else found.prediction.auc,
        "seconds": found.seconds,
        "warnings": found.warnings,
    }
    make_folder(path.parent)
    digest = _digest(arrays)
    write(path, save(arrays, metadata={"format": _FORMAT, "facts": json.dumps(facts), "sha256": digest}))


def read_scored(path: Path) -> Scored | None:
    """What was written; None for a file that is missing or damaged, which means that the attack runs again."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata: Mapping[str, str] = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if metadata.get("format") != _FORMAT or metadata.get("sha256") != _digest(arrays):
            return None
        facts = json.loads(metadata["facts"])
        calibration = facts["calibration"]
        scores = ScoreSet(
            ids=arrays["ids"],
            scores=arrays["scores"],
            attack=facts["attack"],
            p_values=arrays.get("p_values"),
            susceptibility=arrays.get("susceptibility"),
            calibration=None if calibration is None else (calibration[0], calibration[1]),
            info=facts["info"],
        )
        prediction = None if facts["auc"] is None else Predicted(arrays["fpr"], arrays["tpr"], facts["auc"])
        return Scored(scores=scores, prediction=prediction, seconds=facts["seconds"], warnings=tuple(facts["warnings"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return None


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    return sha256(b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays)))


def _thinned(fpr: NDArray[np.float64]) -> NDArray[np.intp]:
    """Positions of at most so many points of a curve, even on a linear and on a logarithmic scale."""
    if fpr.size <= _POINTS:
        return np.arange(fpr.size)
    positive = fpr[fpr > 0.0]
    wanted = np.concatenate([np.linspace(0.0, 1.0, _POINTS // 2), np.geomspace(positive.min(), 1.0, _POINTS // 2)])
    return np.unique(np.append(np.searchsorted(fpr, wanted, side="right") - 1, [0, fpr.size - 1]))


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
