"""What is known of a trained model: its weights and who was in; of a recorded one also the steps of its training."""

from __future__ import annotations

import dataclasses
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gmip import _io
from gmip.errors import GmipWarning, TraceMismatch
from gmip.trace.schema import Header

__all__ = ["ModelRecord", "ReleasedModel"]


class ModelRecord(ABC):
    """What attacks on a trained model read: `Trace` has the steps of its training, too, `ReleasedModel` nothing else.

    Attributes
    ----------
    path : where it is.
    header : sizes, the recipe and the data of its training, as far as they are known.
    members, non_members : indices into the data, shape (n,), or None if they were not given.
    """

    path: Path
    header: Header
    members: NDArray[np.int64] | None
    non_members: NDArray[np.int64] | None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A name for the contents (hex, 64 characters)."""

    @abstractmethod
    def final_state(self) -> dict[str, NDArray[Any]] | None:
        """The state of the trained model, name -> array; None if it is not known."""

    def check_data(self, fingerprints: Mapping[str, str]) -> None:
        """Raises `TraceMismatch` unless the run saw these data; warns if nobody wrote down what it saw.

        `fingerprints` are those of the data at hand: name of the part -> `gmip.trace.fingerprint` of its arrays. Parts
        that the header lacks (the test data of a task, say, where only the records were given) are not compared.
        """
        ours = self.header.fingerprints
        if not ours:
            warnings.warn(
                f"{self.path} carries no fingerprints: nobody checks that the run saw the data it is audited with.",
                GmipWarning,
                stacklevel=2,
            )
            return
        for name in ours:
            if name not in fingerprints:
                raise TraceMismatch(
                    f"{self.path} was recorded on data with a part {name!r} that is not given", remedy="load it"
                )
            if fingerprints[name] != ours[name]:
                raise TraceMismatch(
                    f"{self.path} was recorded on other data ({name!r} has fingerprint {fingerprints[name][:12]} and "
                    f"not {ours[name][:12]})",
                    remedy="audit with the data, split and seed of the run",
                )


class ReleasedModel(ModelRecord):
    """Weights of a model of which no step was recorded, and who was in.

    Parameters
    ----------
    path : of the weights.
    header : what the task says about the training.
    state : name -> array, of parameters and buffers.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        *,
        members: NDArray[np.int64],
        non_members: NDArray[np.int64],
        state: Mapping[str, NDArray[Any]],
    ) -> None:
        self.path = path
        self.header = header
        self.members = members
        self.non_members = non_members
        self._state = dict(state)

    def __repr__(self) -> str:
        return f"<ReleasedModel {self.path}: {self.header.num_params} parameters>"

    @property
    def fingerprint(self) -> str:
        """A name for the weights, the header and who was in (hex, 64 characters)."""
        weights = _io.sha256(b"".join(name.encode() + array.tobytes() for name, array in sorted(self._state.items())))
        who = [None if part is None else part.tolist() for part in (self.members, self.non_members)]
        return _io.sha256(json.dumps([weights, dataclasses.asdict(self.header), *who]))

    def final_state(self) -> dict[str, NDArray[Any]] | None:
        """The released weights, and the buffers beside them."""
        return dict(self._state)
