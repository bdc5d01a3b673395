"""What a trace says to the accountant: the steps that were taken, as runs of `NoisySGD`."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Final

from gmip.accounting.convert import poisson_sizes
from gmip.errors import GmipWarning, TraceMismatch
from gmip.trace.schema import Header, StepInfo
from gmip.vocabulary import NoisySGD

__all__ = ["runs_of"]

_DEVIATIONS: Final = 9.0  # which the sizes of Poisson batches exceed together once in 1e18 runs


def runs_of(header: Header, infos: Sequence[StepInfo]) -> tuple[NoisySGD, ...]:
    """One run for each kind of step, in the order of their first steps; see `Trace.runs`."""
    if not infos:
        return ()
    _check_sizes(header, infos)
    if header.clip_norm is None and any(info.noise_std > 0.0 for info in infos):
        warnings.warn(
            "noise was added to gradients without clip_norm: noise protects only gradients of bounded norm, so the "
            "runs leave it out.",
            GmipWarning,
            stacklevel=3,
        )
    if header.sampling == "shuffled":
        return (_shuffled(header, infos),)
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


def _shuffled(header: Header, infos: Sequence[StepInfo]) -> NoisySGD:
    """Shuffled epochs as they were planned; on the safe side where the steps differ from the plan."""
    n = header.batch_size
    sizes = [info.batch_size for info in infos]
    rest = header.dataset_size % n
    run = NoisySGD(
        dataset_size=header.dataset_size,
        batch_size=n,
        num_steps=len(infos),
        num_params=header.num_params,
        clip_norm=header.clip_norm,
        # The attacker's easiest step has the least noise on its sum.
        noise_std=min(_noise_on_sum(header, info) for info in infos) / n,
        sampling="shuffled",
        drop_last=rest > 0 and min(sizes) >= n and len(infos) >= header.dataset_size // n + 1,
    )
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
