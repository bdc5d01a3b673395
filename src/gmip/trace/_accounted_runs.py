"""What a trace says to the accountant: the steps that were taken, as runs of `NoisySGD`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

from gmip.accounting.convert import poisson_sizes
from gmip.errors import GmipWarning
from gmip.trace.schema import Header, StepInfo
from gmip.vocabulary import NoisySGD

__all__ = ["runs_of"]


def runs_of(header: Header, infos: Sequence[StepInfo]) -> tuple[NoisySGD, ...]:
    """One run for each kind of step, in the order of their first steps; see `Trace.runs`."""
    if not infos:
        return ()
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


def _noise_on_sum(header: Header, info: StepInfo) -> float:
    return 0.0 if header.clip_norm is None else info.noise_std * info.divisor


def _kind(header: Header, info: StepInfo) -> tuple[int, float]:
    """(n, tau) of a step."""
    nominal = header.batch_size
    if header.sample_rate is not None:
        _, nominal = poisson_sizes(header.dataset_size, header.sample_rate)
    if header.sampling == "poisson":
        return nominal, _noise_on_sum(header, info) / nominal
    return min(info.batch_size, nominal), _noise_on_sum(header, info) / info.batch_size


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
    if set(sizes) <= ({n, rest} if rest else {n}):
        return run
    # Batches of other sizes than planned: as if the attacker knew the order, and the record were in the smallest one.
    smallest = min(min(sizes), n)
    return run.replace(
        dataset_size=smallest,
        batch_size=smallest,
        num_steps=-(-len(infos) // run.steps_per_epoch),
        noise_std=run.noise_std * n / smallest,
        sampling="full",
        drop_last=False,
    )
