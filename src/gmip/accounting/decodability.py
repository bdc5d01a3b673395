"""Whether somebody who holds a list of candidates can decode who was in which batch (docs/theory/attackers.md).

Measured, not proved: `benchmarks/decoding_map.py`, one attack on simulated gradients. The numbers here are set so that
the sentences hold for every run that was measured (tests/unit/accounting/test_decodability.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

from gmip.vocabulary import NoisySGD

__all__ = ["Outlook", "list_caveat", "outlook"]

Outlook = Literal["likely", "unclear", "unlikely"]

_LIKELY: Final = 0.5  # of the numbers and of the signal that tell one batch from all others: part was decoded, or all
_UNLIKELY: Final = 0.1  # of them, all steps that a member takes part in together: they were not
_WORST: Final[dict[Outlook, int]] = {"unlikely": 0, "unclear": 1, "likely": 2}


def outlook(run: NoisySGD) -> Outlook:
    """What was measured on runs like this one.

    About 2 n log(N/n) numbers tell a batch of n from all others, and a record stands out by 1/s^2, s the noise
    multiplier, where 2 log(N/n) tell it: both, relative to what is needed, and the larger of the steps that a member
    takes part in and 1.
    """
    reach = 2.0 * max(math.log(run.dataset_size / run.batch_size), 1.0)
    numbers = run.num_params / (run.batch_size * reach)
    signal = math.inf
    if run.noise_std > 0.0 and run.clip_norm is not None:
        signal = min(run.clip_norm / (run.noise_std * run.batch_size), 1.0e100) ** 2 / reach
    least = min(numbers, signal)
    if least >= _LIKELY:
        return "likely"
    often = max(1.0, run.num_steps * run.batch_size / run.dataset_size)
    return "unlikely" if least * often < _UNLIKELY else "unclear"


def list_caveat(runs: Sequence[NoisySGD]) -> str:
    """The sentence on an attacker who holds a list of candidates, for answers that are not about one: of the phase in
    which they learn most."""
    found = max((outlook(run) for run in runs), key=_WORST.__getitem__)
    noisy = all(run.noise_std > 0.0 for run in runs)
    bounded = " The answer for an attacker who knows all other members covers them, too." if noisy else ""
    if found == "likely":
        how = "could decode who is in which batch"
    elif found == "unclear":
        how = "may be able to decode who is in which batch, in part"
    else:
        return (
            "An attacker who holds a list of candidates that contains the members is not expected to decode who is in "
            "which batch (measured for one attack on simulated gradients, not proved), but the list helps them: this "
            f"answer is about an attacker without it.{bounded}"
        )
    return (
        f"An attacker who holds a list of candidates that contains the members {how}; this answer is not about that "
        f"attacker.{bounded}"
    )
