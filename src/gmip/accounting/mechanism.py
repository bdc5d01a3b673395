"""What will run: sizes, noise and sampling of (noisy) SGD, apart from any analysis of it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from gmip import _validate as check
from gmip.accounting.convert import noise_multiplier_from_std, noise_std_from_multiplier
from gmip.errors import InvalidArgument

__all__ = ["SAMPLINGS", "NoisySGD", "SGDSettings", "Sampling", "poisson_sizes"]

Sampling = Literal["fixed", "poisson", "full", "shuffled"]
SAMPLINGS: tuple[Sampling, ...] = ("fixed", "poisson", "full", "shuffled")
# Sample rates are binary fractions (1/49 times 49 is not 1): what is that close to a whole number is one.
_HAIR: Final = 1.0 + 1.0e-12


def poisson_sizes(dataset_size: int, sample_rate: float, *, least_rate: float | None = None) -> tuple[int, int]:
    """Whole sizes (N', n') that are at most as private as N records, each drawn with probability q.

    One step depends on the rate p, to be rounded up, and on p (N - 1), the others expected beside a record, to be
    rounded down (Theorem 2 of docs/theory/one-step.md; where noise is in units of a record's part in the sum, the
    divisor of the mean plays no part). n' <= q N and N' <= n'/q do both: p' = n'/N' >= q, and p' (N' - 1) = n' - p' <=
    q N - q. Where q is known up to a least value, that one counts for n'.
    """
    batch = math.floor(dataset_size * (sample_rate if least_rate is None else least_rate) * _HAIR)
    if batch < 1:
        raise InvalidArgument(
            f"makes batches of less than one record at the recorded sample rate {sample_rate:.6g}",
            argument="dataset_size",
            value=dataset_size,
            remedy="check it",
        )
    return min(math.floor(batch / sample_rate * _HAIR), dataset_size), batch


@dataclass(frozen=True, kw_only=True)
class SGDSettings:
    """What the accountant and the one who trains must agree on: sizes, sampling, clipping and noise.

    `NoisySGD` adds what only the accountant asks for, `gmip.tasks.Recipe` what only training needs.
    """

    dataset_size: int
    batch_size: int
    num_steps: int
    sampling: Sampling = "fixed"
    clip_norm: float | None = None
    noise_std: float = 0.0

    def __post_init__(self) -> None:
        for name in ("dataset_size", "batch_size", "num_steps"):
            object.__setattr__(self, name, check.count(name, getattr(self, name)))
        if self.clip_norm is not None:
            object.__setattr__(self, "clip_norm", check.positive("clip_norm", self.clip_norm))
            if self.clip_norm / self.batch_size < 1.0e-300:
                raise InvalidArgument(
                    "is too small to compute with",
                    argument="clip_norm",
                    value=self.clip_norm,
                    remedy="pass a larger one",
                )
        object.__setattr__(self, "noise_std", check.non_negative("noise_std", self.noise_std))
        check.one_of("sampling", self.sampling, SAMPLINGS)
        check.batch_within(self.batch_size, self.dataset_size)
        if self.sampling == "full" and self.batch_size != self.dataset_size:
            raise InvalidArgument(
                f"needs `batch_size` = `dataset_size` = {self.dataset_size}, not {self.batch_size}",
                argument="sampling",
                value=self.sampling,
                remedy="set `batch_size` to it, or `sampling` to 'fixed' or 'poisson'",
            )
        if self.noise_std > 0.0 and self.clip_norm is None:
            raise InvalidArgument(
                "without `clip_norm` does not protect, because a gradient may be of any norm",
                argument="noise_std",
                value=self.noise_std,
                remedy="set `clip_norm`",
            )

    def replace(self, **changes: Any) -> Self:
        """The same settings with some fields changed."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class NoisySGD(SGDSettings):
    """A training run: `num_steps` steps, each of which publishes the mean gradient of a batch, clipped and noisy if
    asked.

    Parameters
    ----------
    dataset_size : N, training examples.
    batch_size : n, examples averaged in one step (under "poisson" the expected number, and the divisor).
    num_steps : T, optimizer steps.
    num_params : d, trainable parameters.
    clip_norm : C, bound on the norm of a per-example gradient; None when gradients are not clipped.
    noise_std : tau, standard deviation of the Gaussian noise added to every entry of the batch MEAN.
        (Opacus' noise_multiplier s gives tau = s C/n: see `with_noise_multiplier`.)
    sampling : how a batch is drawn: "fixed" size without replacement, anew for each step (the paper's); "poisson", each
        example on its own with probability n/N; "full", every example in every step (then batch_size = dataset_size);
        "shuffled", each example once in every epoch, in random order (DataLoader(shuffle=True)).
    drop_last : under "shuffled", whether an epoch leaves out its incomplete last batch. If it does not, the noise on
        the SUM of that batch is as large as on the others.
    rank : r, effective rank of the gradient covariance if it is known to be below num_params; it enters only the small
        variance term of the tight bound.
    """

    num_params: int
    rank: int | None = None
    drop_last: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_params", check.count("num_params", self.num_params))
        if self.rank is not None:
            object.__setattr__(self, "rank", check.count("rank", self.rank))
            if self.rank > self.num_params:
                raise InvalidArgument(
                    f"exceeds `num_params` = {self.num_params}", argument="rank", value=self.rank, remedy="lower it"
                )

    @property
    def epoch_batches(self) -> tuple[tuple[int, int], ...]:
        """The batches of a shuffled epoch as (size, number): full ones, and the incomplete last one if it is used."""
        full, rest = divmod(self.dataset_size, self.batch_size)
        return ((self.batch_size, full),) if rest == 0 or self.drop_last else ((self.batch_size, full), (rest, 1))

    @property
    def steps_per_epoch(self) -> int:
        """B, batches in one pass over the data (rounded up, unless `drop_last`)."""
        return sum(count for _, count in self.epoch_batches)

    @property
    def epochs(self) -> float:
        """Passes over the data: of shuffled epochs as they are, else of N/n steps each."""
        return self.num_steps / self._steps_of_an_epoch

    def with_epochs(self, epochs: float) -> NoisySGD:
        """The same run with as many steps as these passes over the data take, rounded up."""
        steps = check.positive("epochs", epochs) * self._steps_of_an_epoch * (1.0 - 1.0e-12)
        if steps > check.MAX_COUNT:
            raise InvalidArgument("is too many to count", argument="epochs", value=epochs, remedy="pass fewer")
        return self.replace(num_steps=max(1, math.ceil(steps)))

    @property
    def _steps_of_an_epoch(self) -> float:
        return self.steps_per_epoch if self.sampling == "shuffled" else self.dataset_size / self.batch_size

    @property
    def sample_rate(self) -> float:
        """p = n/N, the chance that an example is in a batch."""
        return self.batch_size / self.dataset_size

    @property
    def noise_multiplier(self) -> float | None:
        """Opacus' s: the noise on the SUM of clipped gradients has standard deviation s C; None without clipping."""
        if self.clip_norm is None:
            return None
        return noise_multiplier_from_std(self.noise_std, clip_norm=self.clip_norm, batch_size=self.batch_size)

    @property
    def effective_batch_size(self) -> float:
        """n_eff = n + tau^2 n^2/C^2 of the paper's Theorem 5.1: n itself when there is no noise."""
        if self.clip_norm is None or self.noise_std == 0.0:
            return float(self.batch_size)
        return self.batch_size + min(self.noise_std / (self.clip_norm / self.batch_size), 1.0e100) ** 2

    def with_noise_multiplier(self, noise_multiplier: float) -> NoisySGD:
        """The same run with noise given as Opacus gives it (noise on the sum, in units of clip_norm)."""
        if self.clip_norm is None:
            raise InvalidArgument(
                "needs `clip_norm`, which it multiplies", argument="noise_multiplier", remedy="set `clip_norm`"
            )
        std = noise_std_from_multiplier(noise_multiplier, clip_norm=self.clip_norm, batch_size=self.batch_size)
        return self.replace(noise_std=std)
