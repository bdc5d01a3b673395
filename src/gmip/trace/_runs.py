"""What a trace says to the accountant: the steps that were taken, as runs of `NoisySGD`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

from gmip.accounting.mechanism import NoisySGD
from gmip.errors import GmipWarning
from gmip.trace.schema import Header, StepInfo

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
    return tuple(
        NoisySGD(
            # A "full" loader that left records out leaves the same ones out: no amplification by sampling.
            dataset_size=n if header.sampling == "full" else header.dataset_size,
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
    if header.sampling == "poisson":
        return nominal, _noise_on_sum(header, info) / nominal
    return min(info.batch_size, nominal), _noise_on_sum(header, info) / info.batch_size


def _shuffled(header: Header, infos: Sequence[StepInfo]) -> NoisySGD:
    N, n, num_steps = header.dataset_size, header.batch_size, len(infos)
    run = NoisySGD.shuffled(
        dataset_size=N, batch_size=n, num_steps=num_steps, num_params=header.num_params, clip_norm=header.clip_norm
    )
    seen = min(info.batch_size for info in infos)
    smallest = min(run.batch_size, seen)
    epochs = run.num_steps
    if seen >= n:
        # No incomplete batch was seen: the epochs may leave the rest of the data out, and are shorter by one step.
        epochs = -(-num_steps // (N // n))
    # The attacker's easiest step has the fewest examples to hide among and the least noise on their sum.
    tau = min(_noise_on_sum(header, info) for info in infos) / smallest
    return run.replace(dataset_size=smallest, batch_size=smallest, num_steps=epochs, noise_std=tau)
