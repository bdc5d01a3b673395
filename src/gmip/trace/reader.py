"""The reading side of a trace: which of its steps can be trusted, the steps, and what they say to the accountant."""

from __future__ import annotations

import bisect
import math
import operator
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gmip import _io
from gmip._html import card
from gmip._numbers import count, setting
from gmip.accounting.convert import poisson_sizes
from gmip.errors import InvalidArgument, TraceError, TraceMismatch, warn
from gmip.trace._journal import BATCHES, JOURNAL, Journal, check_size, read_batch, read_journal
from gmip.trace._manifest import Manifest, read_final, read_manifest, read_membership
from gmip.trace._remote import AnyPath, RemotePath, as_path
from gmip.trace._shards import Layout, Rows, StoredRow
from gmip.trace.schema import Header, ModelRecord, StepInfo
from gmip.vocabulary import NoisySGD

# -- the steps of a trace as they are found on disk -------------------------------------------------------------------


def load_journal(folder: AnyPath, manifest: Manifest, *, limit: int | None = None, resuming: bool = False) -> Journal:
    """The journal (its first `limit` steps), the layout of every file that it names checked.

    In a trace that is open or to be resumed, rows and ids are checked too, but for the steps of which the journal says
    that they were on disk. A power cut may have left any other unwritten: steps of an open trace from the first bad one
    on are left out, with a warning.
    """
    journal = read_journal(folder / JOURNAL, manifest, limit=limit)
    done = manifest.complete and not resuming
    if done:
        check_size(folder, journal.end.num_ids)
    bad = [found for check in (_bad_row, _bad_batch) if (found := check(folder, manifest, journal, done)) is not None]
    if not bad:
        return journal
    step, error = min(bad, key=lambda found: found[0])
    if manifest.complete or step < journal.end.synced:
        raise error
    warn(
        f"{error.problem}, perhaps by a power cut: the trace is read up to step {step}, and the "
        f"{journal.end.num_steps - step} steps from there on are left out."
    )
    return read_journal(folder / JOURNAL, manifest, limit=step)


def _bad_row(folder: AnyPath, manifest: Manifest, journal: Journal, done: bool) -> tuple[int, TraceError] | None:
    """The first step whose row is not what was written, and what is wrong.

    Of a trace that is elsewhere, shards whose rows need not be read are not looked at either."""
    layout, recorded = Layout.of(manifest.header, manifest.rows_per_shard), journal.recorded
    rows = Rows(folder, layout, journal.digests, complete=done)
    unsynced = len(recorded) if done else bisect.bisect_left(recorded, journal.end.synced)
    for first in range(0, len(recorded), layout.rows):
        position = first
        try:
            if isinstance(folder, Path):
                rows.check(first // layout.rows)
            for position in range(max(first, unsynced), min(first + layout.rows, len(recorded))):
                rows.read(position)
        except TraceError as error:
            return recorded[position], error
    return None


def _bad_batch(folder: AnyPath, manifest: Manifest, journal: Journal, done: bool) -> tuple[int, TraceError] | None:
    """`_bad_row` for the ids."""
    for step, batch in journal.batches.items():
        if step >= journal.end.synced and not done:
            try:
                read_batch(folder, batch)
            except TraceError as error:
                return step, error
    return None


# -- the reading side of a trace --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Step:
    """One recorded step: the parameters before it and the mean gradient it used, read-only, each of shape (d,)."""

    info: StepInfo
    parameters: NDArray[Any]
    gradient: NDArray[Any]

    def __repr__(self) -> str:
        return f"<Step {self.info.index}: {self.parameters.size} parameters>"


class _StoredStep(Step):
    """A step that is read when it is asked for its vectors, so that whoever has all steps of a run in a list has none
    in memory and no file open."""

    _row: StoredRow

    def __init__(self, info: StepInfo, row: StoredRow) -> None:
        object.__setattr__(self, "info", info)
        object.__setattr__(self, "_row", row)

    def __reduce__(self) -> tuple[Any, ...]:
        return _StoredStep, (self.info, self._row)

    @property
    def parameters(self) -> NDArray[Any]:
        parameters: NDArray[Any] = self._row.read()[0]
        return parameters

    @property
    def gradient(self) -> NDArray[Any]:
        gradient: NDArray[Any] = self._row.read()[1]
        return gradient


class Trace(ModelRecord):
    """A trace on disk: the recorded steps as a sequence of `Step`, read from memory-mapped files when asked for.

    A trace names the members and holds the seed that undoes the noise: the folder is as sensitive as the
    data. Keep it where the data are kept.

    Attributes
    ----------
    path, header : the folder, and what holds for the whole run.
    complete : False for a run that was interrupted, or is still going on: the trace holds its first steps.
    infos : one `StepInfo` for each optimizer step, recorded or not.
    recorded : indices of the recorded steps, shape (len(trace),).
    members, non_members : indices into the data, shape (n,), or None if they were not given.
    changed_at_end : parameters that are not what the steps made of them when the run ended; None if nobody looked.

    Guarantees
    ----------
    What is returned is what was written, up to checksums: opening checks the small files and the layout of the large
    ones, and each row is checked when first read. A damaged file is a `TraceError` that names it. In an open trace a
    last journal line that was cut short is left out; if a row or the ids of a step are not what was written (a power
    cut), that step and all after it are left out with a `GmipWarning`. The checksums tell accidents, not forgery: who
    can write the folder can write them too.
    """

    def __init__(
        self, path: AnyPath, manifest: Manifest, journal: Journal, membership: Mapping[str, NDArray[np.int64]]
    ) -> None:
        """Only `open` calls this."""
        self.path = path
        self.header: Header = manifest.header
        self.complete: bool = manifest.complete
        self.infos: tuple[StepInfo, ...] = tuple(journal.infos)
        self.recorded: NDArray[np.int64] = np.array([i.index for i in self.infos if i.recorded], dtype=np.int64)
        self.recorded.flags.writeable = False
        self.changed_at_end: tuple[str, ...] | None = manifest.changed
        self.members = membership.get("members")
        self.non_members = membership.get("non_members")
        self._manifest = manifest
        self._chain = journal.end.chain
        self._digests = journal.digests
        self._batches = journal.batches
        layout = Layout.of(manifest.header, manifest.rows_per_shard)
        self._ids: BinaryIO | None = None  # of a trace elsewhere
        self._rows = Rows(path, layout, journal.digests, complete=manifest.complete)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The trace in the folder `path`, or at an address that fsspec reads, such as s3://bucket/run."""
        folder = as_path(path)
        manifest = read_manifest(folder)
        membership = read_membership(folder, manifest.files)
        return cls(folder, manifest, load_journal(folder, manifest), membership)

    def __repr__(self) -> str:
        state = "complete" if self.complete else "open"
        return f"<Trace {self.path}: {self.num_steps} steps, {len(self)} recorded, {state}>"

    def _repr_html_(self) -> str:
        """Notebooks show what was recorded, and of how many; nobody is named."""
        header = self.header
        rows = [
            ("steps", f"{count(self.num_steps)}, {count(len(self))} recorded"),
            ("state", "complete" if self.complete else "open: interrupted or still running"),
            ("training records", count(header.dataset_size)),
            ("batch size and sampling", f"{count(header.batch_size)}, {header.sampling}"),
            ("parameters", f"{count(header.num_params)}, {count(header.recorded_params)} recorded"),
            ("clip norm", "none" if header.clip_norm is None else setting(header.clip_norm)),
        ]
        return card(f"Trace {self.path.name}", rows)

    @property
    def num_steps(self) -> int:
        """Optimizer steps, recorded or not."""
        return len(self.infos)

    @property
    def fingerprint(self) -> str:
        """A name for the contents (hex, 64 characters): SHA-256 over the checksums of all files and rows.

        For an open trace it is that of the steps read; it becomes another one when there are more.
        """
        rows = _io.sha256(b"".join(self._digests))
        return _io.sha256(f"{self._manifest.checksum} {self.num_steps} {self._chain} {rows}")

    def __len__(self) -> int:
        return len(self._digests)

    def __getitem__(self, index: SupportsIndex) -> Step:
        """The recorded step number `index`, counted from the end if negative."""
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range for a trace with {len(self)} recorded steps")
        position %= len(self)
        return _StoredStep(self.infos[self.recorded[position]], self._rows.stored(position))

    def __iter__(self) -> Iterator[Step]:
        for position in range(len(self)):
            yield self[position]

    def batch_ids(self, step: SupportsIndex) -> NDArray[np.int64] | None:
        """Rows of the data that were in the batch of optimizer step `step` (recorded or not), shape (n,); read-only.

        None if the trace does not say. A record that was drawn twice is there twice.
        """
        index = operator.index(step)
        if not 0 <= index < self.num_steps:
            raise IndexError(f"step {index} is out of range for a trace with {self.num_steps} steps")
        batch = self._batches.get(index)
        if batch is None:
            return None
        if self._ids is None and isinstance(self.path, RemotePath):
            self._ids = (self.path / BATCHES).open()  # what is read ahead serves the steps after this one
        return read_batch(self.path, batch, self._ids)

    def final_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The final state of the model as it was given to `TraceWriter.close`, or None."""
        return read_final(self.path, self._manifest.files)

    def named(self, vector: ArrayLike) -> dict[str, NDArray[Any]]:
        """A flat vector of shape (d,) as parameter name -> array of the parameter's shape (views where possible)."""
        flat = np.asarray(vector)
        if flat.shape != (self.header.recorded_params,):
            raise InvalidArgument(
                f"has shape {flat.shape}",
                argument="vector",
                remedy=f"pass one of shape ({self.header.recorded_params},), such as the gradient of a step",
            )
        result, start = {}, 0
        for spec in self.header.parameters:
            result[spec.name] = flat[start : start + spec.size].reshape(spec.shape)
            start += spec.size
        return result

    def verify(self) -> None:
        """Reads every file again and checks every checksum; raises a `TraceError` that names the first bad file."""
        fresh = Trace.open(self.path)
        for position in range(len(fresh)):
            fresh._rows.read(position)
        for index in range(fresh.num_steps):
            fresh.batch_ids(index)
        fresh.final_arrays()

    def runs(self) -> tuple[NoisySGD, ...]:
        """The steps that were taken, for `gmip.account`: one `NoisySGD` for each kind of step, none for no steps.

        Guarantees
        ----------
        Never more private than the run, if batches were drawn as `header.sampling` says. Under "fixed" and "full" a
        step counts with the examples it saw: the last, incomplete batch of an epoch is a run of its own, and so are
        batches larger than the nominal size. Under "poisson" the nominal number counts. Under "shuffled" the least
        noise on the sum of any step counts in all, and where batches are of other sizes than an epoch of the nominal
        one has, the order counts as known: an epoch is one step on the smallest batch. Under "balls-in-bins" the
        nominal number counts, and the least noise. Noise on gradients that were not clipped is left out, with a
        `GmipWarning`. Sizes that cannot be right are a `TraceMismatch`: batches larger than the data set, Poisson
        batches that are larger together than chance can make them, and bins of an epoch that hold more than the data
        set.
        """
        return runs_of(self.header, self.infos)


# -- what a trace says to the accountant ------------------------------------------------------------------------------


_DEVIATIONS: Final = 9.0  # which the sizes of Poisson batches exceed together once in 1e18 runs


def runs_of(header: Header, infos: Sequence[StepInfo]) -> tuple[NoisySGD, ...]:
    """One run for each kind of step, in the order of their first steps; see `Trace.runs`."""
    if not infos:
        return ()
    _check_sizes(header, infos)
    if header.clip_norm is None and any(info.noise_std > 0.0 for info in infos):
        warn(
            "noise was added to gradients without clip_norm: noise protects only gradients of bounded norm, so the "
            "runs leave it out."
        )
    if header.sampling == "shuffled":
        return (_shuffled(header, infos),)
    if header.sampling == "balls-in-bins":
        return (_planned(header, infos),)
    groups = Counter(_kind(header, info) for info in infos)
    total = header.dataset_size
    if header.sample_rate is not None:
        total, _ = poisson_sizes(total, header.sample_rate)
    return tuple(
        NoisySGD(
            # A "full" loader that left records out leaves the same ones out: no amplification by sampling.
            dataset_size=n if header.sampling == "full" else total,
            batch_size=n,
            num_steps=num_steps,
            num_params=header.num_params,
            clip_norm=header.clip_norm,
            noise_std=tau,
            sampling=header.sampling,
            max_batch_size=header.max_batch_size,
        )
        for (n, tau), num_steps in groups.items()
    )


def _check_sizes(header: Header, infos: Sequence[StepInfo]) -> None:
    """Refuses batches that no run with this header has: an answer for it would say too little."""
    total = header.dataset_size
    largest = max(infos, key=lambda info: info.batch_size)
    if largest.batch_size > total:
        raise TraceMismatch(
            f"Step {largest.index} averaged {largest.batch_size} examples, and the data set has {total}",
            remedy="record the run again with the right `dataset_size`",
        )
    if header.max_batch_size is not None and largest.batch_size > header.max_batch_size:
        raise TraceMismatch(
            f"Step {largest.index} averaged {largest.batch_size} examples, and `max_batch_size` is "
            f"{header.max_batch_size}",
            remedy="record the run again with the right one",
        )
    if header.sampling == "balls-in-bins":
        bins = -(-total // header.batch_size)
        sizes = np.array([info.batch_size for info in infos])
        most = int(np.add.reduceat(sizes, np.arange(0, sizes.size, bins)).max())
        if most > total:
            raise TraceMismatch(
                f"The {bins} bins of an epoch held {most} examples, and the data set has {total}",
                remedy="record the run again with the right `batch_size` and `dataset_size`",
            )
    if header.sampling != "poisson":
        return
    rate = header.batch_size / total if header.sample_rate is None else header.sample_rate
    seen, expected = sum(info.batch_size for info in infos), rate * total * len(infos)
    if seen > expected + _DEVIATIONS * (math.sqrt(expected * (1.0 - rate)) + _DEVIATIONS):
        raise TraceMismatch(
            f"Batches held {seen / len(infos):.4g} examples on average, and Poisson batches of this trace hold "
            f"{rate * total:.4g}",
            remedy="record the run again with the right `batch_size` or `sample_rate`",
        )


def _noise_on_sum(header: Header, info: StepInfo) -> float:
    return 0.0 if header.clip_norm is None else info.noise_std * info.divisor


def _kind(header: Header, info: StepInfo) -> tuple[int, float]:
    """(n, tau) of a step."""
    n = info.batch_size
    if header.sampling == "poisson":
        n = header.batch_size
        if header.sample_rate is not None:
            _, n = poisson_sizes(header.dataset_size, header.sample_rate)
    return n, _noise_on_sum(header, info) / n


def _planned(header: Header, infos: Sequence[StepInfo]) -> NoisySGD:
    """Epochs as they were planned."""
    return NoisySGD(
        dataset_size=header.dataset_size,
        batch_size=header.batch_size,
        num_steps=len(infos),
        num_params=header.num_params,
        clip_norm=header.clip_norm,
        # The attacker's easiest step has the least noise on its sum.
        noise_std=min(_noise_on_sum(header, info) for info in infos) / header.batch_size,
        sampling=header.sampling,
    )


def _shuffled(header: Header, infos: Sequence[StepInfo]) -> NoisySGD:
    """Shuffled epochs as they were planned; on the safe side where the steps differ from the plan."""
    n = header.batch_size
    sizes = [info.batch_size for info in infos]
    rest = header.dataset_size % n
    dropped = rest > 0 and min(sizes) >= n and len(infos) >= header.dataset_size // n + 1
    run = _planned(header, infos).replace(drop_last=dropped)
    short = sum(size == rest for size in sizes)
    if set(sizes) <= {n, rest} and short <= -(-len(infos) // run.steps_per_epoch):
        return run
    # Batches of other sizes than planned: as if the attacker knew the order, and the record were in the smallest one.
    smallest, largest = min(min(sizes), n), max(max(sizes), n)
    return run.replace(
        dataset_size=smallest,
        batch_size=smallest,
        num_steps=-(-len(infos) // (header.dataset_size // largest)),  # no epoch takes fewer steps than it has batches
        noise_std=run.noise_std * n / smallest,
        sampling="full",
        drop_last=False,
    )
