"""The states of a training, one after each epoch, in place of a trace of its steps."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike

from gmip._io import write
from gmip.errors import InvalidArgument
from gmip.trace import check_membership
from gmip.vocabulary import Sampling


def steps_per_epoch(loader: Any, dataset_size: int, batch_size: int, sampling: Sampling) -> int:
    """Steps after which each record was seen once."""
    if sampling == "full":
        return 1
    if sampling != "shuffled":
        raise InvalidArgument(
            f"needs epochs, and `sampling` = {sampling!r} has none",
            argument="every",
            value="epoch",
            remedy="pass a number of steps",
        )
    try:
        return max(len(loader), 1)
    except TypeError:
        return -(-dataset_size // batch_size)


def alone(**others: object) -> None:
    """Raise for options that do not go with the states of epochs."""
    for name, value in others.items():
        if value is not None:
            raise InvalidArgument("does not go with `every` = 'epoch'", argument=name, remedy="leave it out")


class EpochWriter:
    """Stands where `TraceWriter` does and writes what `gmip.Checkpoints` reads: epoch-0.pt before the first step, one
    more after each epoch and at the end, each with the weights and the optimizer's state; and who was in.

    Parameters
    ----------
    steps : of an epoch.
    state : the weights and the optimizer's state as they are now.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        steps: int,
        state: Callable[[], Mapping[str, Any]],
        *,
        members: ArrayLike | None,
        non_members: ArrayLike | None,
    ) -> None:
        self._path, self._steps, self._state, self._saved, self._taken = Path(path), steps, state, -1, 0
        if self._path.exists() and any(self._path.iterdir()):
            raise InvalidArgument("is not empty", argument="path", value=str(path), remedy="pass a new folder")
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, rows in check_membership(members, non_members).items():
            write(self._path / f"{name}.csv", "\n".join(["id", *map(str, rows.tolist())]) + "\n")

    def begin(self) -> None:
        """A step is about to be taken."""
        if self._taken % self._steps == 0:
            self._save()

    def commit(self, **facts: Any) -> None:
        """A step was taken; `facts` about it are not kept."""
        self._taken += 1

    def close(self, final: object, *, changed: object = None) -> None:
        """The training is over."""
        if self._taken:
            self._save()

    def sync(self) -> None:
        """Files are written whole, and at once."""

    def abandon(self) -> None:
        """What is written stays."""

    def _save(self) -> None:
        if self._saved == self._taken:
            return
        content = io.BytesIO()
        torch.save(dict(self._state()), content)
        write(self._path / f"epoch-{-(-self._taken // self._steps)}.pt", content.getvalue())
        self._saved = self._taken
