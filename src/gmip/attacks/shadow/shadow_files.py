"""A shadow set on disk: a folder with a manifest and one file of signals for each model. No weights, no pickle."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from gmip._io import Lock, make_folder, read, read_if_there, remove_leftovers, safetensors_metadata, sha256, write
from gmip.attacks.shadow.shadow_models import Outputs, Parts
from gmip.errors import DataUnavailable, GmipWarning, InvalidArgument
from gmip.tasks import Examples
from gmip.trace import fingerprint

__all__ = ["FORMAT_VERSION", "ShadowFiles", "ShadowModel", "ShadowSet"]

FORMAT_VERSION: Final = 1
MANIFEST: Final = "shadows.json"
_LOCK: Final = ".lock"


class ShadowFiles:
    """The folder of one shadow set, named by a hash of its facts.

    Guarantees
    ----------
    Other facts, another folder; a folder whose manifest says otherwise is refused. A file is there whole or not at all,
    and one that is not what was written is noticed. Several processes may write: what one has stored of a model,
    another adds to.
    """

    def __init__(self, parent: Path, facts: Mapping[str, Any]) -> None:
        try:
            text = json.dumps(facts, indent=1, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"The recipe must be plain JSON, of strings, finite numbers, lists and mappings ({error})",
                remedy="convert it",
            ) from None
        self.name = sha256(text)[:32]
        self.path = parent / self.name
        make_folder(self.path)
        with self._lock() as lock:
            if lock.held:
                remove_leftovers(self.path, lambda name: True)
            if (self.path / MANIFEST).exists():
                self._check(json.loads(text))
            else:
                write(self.path / MANIFEST, text)

    def file(self, index: int) -> Path:
        """Where a model's signals are."""
        return self.path / f"model-{index:05}.safetensors"

    def stored(self, index: int) -> dict[str, bool]:
        """Keys of the signals that are stored of a model -> whether for the population too.

        None, with a warning, where the file is damaged.
        """
        try:
            return {key: parts.population is not None for key, parts in self._read(index)[1].items()}
        except FileNotFoundError:
            return {}
        except _Damaged as damage:
            warnings.warn(
                f"{self.file(index)} is damaged ({damage}): the model is trained again.", GmipWarning, stacklevel=3
            )
            return {}

    def read(self, index: int) -> tuple[NDArray[np.bool_], dict[str, Parts]]:
        """Who was in a model and its signals; a `DataUnavailable` that names the file if they are not there."""
        try:
            return self._read(index)
        except (FileNotFoundError, _Damaged) as error:
            why = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({error})"
            raise DataUnavailable(
                f"{self.file(index)} is {why}", remedy="train the shadow set again, which adds what is missing"
            ) from None

    def write(self, index: int, inside: NDArray[np.bool_], outputs: Outputs) -> None:
        """Store signals of a model beside those that are there already."""
        with self._lock():
            try:
                before = self._read(index)[1]
            except (FileNotFoundError, _Damaged):
                before = {}
            arrays: dict[str, NDArray[Any]] = {"inside": inside}
            for key, parts in {**before, **outputs}.items():
                arrays[f"{key}/candidates"] = parts.candidates
                if parts.population is not None:
                    arrays[f"{key}/population"] = parts.population
            metadata = {"set": self.name, "model": str(index), "sha256": _digest(arrays)}
            write(self.file(index), safetensors.numpy.save(arrays, metadata))

    def _read(self, index: int) -> tuple[NDArray[np.bool_], dict[str, Parts]]:
        path = self.file(index)
        content = read_if_there(path)
        if content is None:
            raise FileNotFoundError(path)
        try:
            metadata, arrays = safetensors_metadata(content), safetensors.numpy.load(content)
        except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
            raise _Damaged(" ".join(str(error).split())) from error
        if (metadata.get("set"), metadata.get("model")) != (self.name, str(index)):
            raise _Damaged("it is of another model or set")
        if metadata.get("sha256") != _digest(arrays):
            raise _Damaged("its checksum differs")
        inside = arrays.pop("inside").astype(np.bool_)
        keys = sorted({name.partition("/")[0] for name in arrays})
        return inside, {key: Parts(arrays[f"{key}/candidates"], arrays.get(f"{key}/population")) for key in keys}

    def _check(self, facts: Mapping[str, Any]) -> None:
        path = self.path / MANIFEST
        try:
            found = json.loads(read(path))
        except ValueError:
            found = None
        if found != facts:
            differs = [name for name in facts if not isinstance(found, dict) or found.get(name) != facts[name]]
            raise InvalidArgument(
                f"{path} does not describe the shadow set that its folder is named after ({', '.join(differs[:3])} "
                "differ)",
                remedy="remove the folder, or pass another",
            )

    def _lock(self) -> Lock:
        """Waits until no other process writes."""
        return Lock(self.path / _LOCK, wait=True)


@dataclass(frozen=True, eq=False)
class ShadowModel:
    """What is known of one shadow model: its number, the candidates it was trained on, shape (c,), and its signals."""

    index: int
    inside: NDArray[np.bool_]
    _signals: Mapping[str, Parts]

    def signal(self, key: str) -> Parts:
        """A signal for the candidates, (c, ...), and for the population, (z, ...) or None."""
        if key not in self._signals:
            raise InvalidArgument(f"Signal {key!r} is not in the shadow set", remedy="ask shadow_set for it")
        return self._signals[key]


class ShadowSet:
    """A trained shadow set. Iterating reads one model at a time, so that memory does not grow with their number.

    Attributes
    ----------
    path : its folder.
    candidates : ids, shape (c,).
    population : background records that no shadow model was trained on, z of them.
    """

    def __init__(
        self, store: ShadowFiles, count: int, candidates: NDArray[np.int64], population: Examples, keys: Sequence[str]
    ) -> None:
        self.path, self.candidates, self.population = store.path, candidates, population
        self._store, self._count, self._keys = store, count, tuple(keys)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ShadowModel]:
        for index in range(self._count):
            inside, signals = self._store.read(index)
            yield ShadowModel(index, inside, {key: signals[key] for key in self._keys})

    def __repr__(self) -> str:
        return f"ShadowSet({str(self.path)!r}, {self._count} models, {len(self.candidates)} candidates)"


class _Damaged(Exception):
    """A file is not what was written."""


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    names = sorted(arrays)
    return fingerprint(np.array(names), *(arrays[name] for name in names))
