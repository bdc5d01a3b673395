"""What will run: sizes, noise and sampling of (noisy) SGD, and how a model is trained; no analysis of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from gmip import _validate as check
from gmip.errors import InvalidArgument

Sampling = Literal["fixed", "poisson", "full", "shuffled", "balls-in-bins"]
SamplingFault = Literal[  # how batches can contradict the declared sampling
    "batch-too-large",
    "batches-too-small",
    "not-all-records",
    "epochs-not-drawn-anew",
    "epoch-length",
    "poisson-sizes",
    "twice-in-a-batch",
    "drawn-too-often",
    "too-many-records",
    "batches-overlap",
    "records-seen",
    "back-too-early",
    "not-reshuffled",
    "ids-in-order",
    "drawn-together",
    "always-together",
]
SAMPLINGS: tuple[Sampling, ...] = ("fixed", "poisson", "full", "shuffled", "balls-in-bins")
#: Each record is drawn on its own: sizes of batches vary, one may be empty, and the divisor is the declared batch size.
RANDOM_SIZES: tuple[Sampling, ...] = ("poisson", "balls-in-bins")


@dataclass(frozen=True, kw_only=True)
class SGDSettings:
    """What the accountant and the one who trains must agree on: sizes, sampling, clipping and noise.

    `NoisySGD` adds what only the accountant asks for, `Recipe` what only training needs.
    """

    dataset_size: int
    batch_size: int
    num_steps: int
    sampling: Sampling = "fixed"
    clip_norm: float | None = None
    noise_std: float = 0.0
    max_batch_size: int | None = None

    def __new__(cls, *given: Any, **named: Any) -> Self:
        if "epochs" in named:
            raise InvalidArgument(
                "is not a setting here",
                argument="epochs",
                remedy="pass `num_steps`, which is epochs * `dataset_size` / `batch_size`, rounded up",
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check.fields(
            self,
            **dict.fromkeys(("dataset_size", "batch_size", "num_steps", "max_batch_size"), check.count),
            clip_norm=check.positive,
            noise_std=check.non_negative,
            sampling=SAMPLINGS,
        )
        if self.clip_norm is not None and self.clip_norm / self.batch_size < 1.0e-300:
            raise InvalidArgument(
                "is too small to compute with", argument="clip_norm", value=self.clip_norm, remedy="pass a larger one"
            )
        check.batch_within(self.batch_size, self.dataset_size)
        if self.sampling == "full" and self.batch_size != self.dataset_size:
            raise InvalidArgument(
                f"needs `batch_size` = `dataset_size` = {self.dataset_size}, not {self.batch_size}",
                argument="sampling",
                value=self.sampling,
                remedy="set `batch_size` to it, or `sampling` to 'fixed' or 'poisson'",
            )
        if self.max_batch_size is not None:
            check.largest_batch(self.max_batch_size, self.batch_size, self.sampling)
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

    @property
    def noise_multiplier(self) -> float | None:
        """Opacus' s: the noise on the SUM of clipped gradients has standard deviation s C; None without clipping."""
        return None if self.clip_norm is None else self.noise_std / (self.clip_norm / self.batch_size)

    def with_noise_multiplier(self, noise_multiplier: float) -> Self:
        """The same settings with noise given as Opacus gives it (noise on the sum, in units of clip_norm)."""
        if self.clip_norm is None:
            raise InvalidArgument(
                "needs `clip_norm`, which it multiplies", argument="noise_multiplier", remedy="set `clip_norm`"
            )
        multiplier = check.non_negative("noise_multiplier", noise_multiplier)
        return self.replace(noise_std=multiplier * (self.clip_norm / self.batch_size))


@dataclass(frozen=True, kw_only=True)
class NoisySGD(SGDSettings):
    """A training run: `num_steps` steps, each of which publishes the mean gradient of a batch, clipped and noisy if
    asked. N and n are taken as public: a divisor or a rate that follows N is no secret of a record.

    Parameters
    ----------
    dataset_size : N, training examples.
    batch_size : n, examples averaged in one step (under "poisson" the expected number, and the divisor; under
        "balls-in-bins" the divisor).
    num_steps : T, optimizer steps.
    num_params : d, trainable parameters.
    clip_norm : C, bound on the norm of a per-example gradient; None when gradients are not clipped.
    noise_std : tau, standard deviation of the Gaussian noise added to every entry of the batch MEAN.
        (Opacus' noise_multiplier s gives tau = s C/n: see `with_noise_multiplier`.)
    sampling : how a batch is drawn: "fixed" size without replacement, anew for each step (the paper's); "poisson", each
        example on its own with probability n/N; "full", every example in every step (then batch_size = dataset_size);
        "shuffled", each example once in every epoch, in random order (DataLoader(shuffle=True)); "balls-in-bins", each
        example once in every epoch, in one of its ceil(N/n) batches, which it picks on its own.
    max_batch_size : under "poisson", the most examples that a batch holds: of one that was drawn larger, a random part
        is left out. None: no limit.
    drop_last : under "shuffled", whether an epoch leaves out its incomplete last batch. If it does not, the noise on
        the SUM of that batch is as large as on the others.
    rank : r, effective rank of the gradient covariance if it is known to be below num_params; it enters only the small
        variance term of the tight bound.
    rows_per_person : the most examples that one person has, where persons are to be protected and not single examples.
        `dataset_size` and `batch_size` count examples, those of the person included.
    shaped_noise : t, besides `noise_std`: independent Gaussian noise on the batch MEAN whose covariance is at least t^2
        times that of the per-example gradients, in every direction (the paper's appendix). Its shape must not depend on
        the record, as one from public records does not. It needs no clipping, and gives no differential privacy.
        `gmip train` does not add it.
    """

    num_params: int
    rank: int | None = None
    drop_last: bool = False
    rows_per_person: int = 1
    shaped_noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = dict.fromkeys(("num_params", "rows_per_person", "rank"), check.count)
        check.fields(self, shaped_noise=check.non_negative, **counts)
        if self.rank is not None and self.rank > self.num_params:
            raise InvalidArgument(
                f"exceeds `num_params` = {self.num_params}", argument="rank", value=self.rank, remedy="lower it"
            )

    @property
    def epoch_batches(self) -> tuple[tuple[int, int], ...]:
        """The batches of a shuffled epoch as (size, number): full ones, and the incomplete last one if it is used; all
        bins alike where each example picks one."""
        if self.sampling == "balls-in-bins":
            return ((self.batch_size, -(-self.dataset_size // self.batch_size)),)
        full, rest = divmod(self.dataset_size, self.batch_size)
        return ((self.batch_size, full),) if rest == 0 or self.drop_last else ((self.batch_size, full), (rest, 1))

    @property
    def steps_per_epoch(self) -> int:
        """B, batches in one pass over the data (rounded up, unless `drop_last`)."""
        return sum(count for _, count in self.epoch_batches)

    @property
    def epochs(self) -> float:
        """Passes over the data: of epochs as they are, else of N/n steps each."""
        return self.num_steps / self._steps_of_an_epoch

    def with_epochs(self, epochs: float) -> NoisySGD:
        """The same run with as many steps as these passes over the data take, rounded up."""
        steps = check.positive("epochs", epochs) * self._steps_of_an_epoch * (1.0 - 1.0e-12)
        if steps > check.MAX_COUNT:
            raise InvalidArgument("is too many to count", argument="epochs", value=epochs, remedy="pass fewer")
        return self.replace(num_steps=max(1, math.ceil(steps)))

    @property
    def _steps_of_an_epoch(self) -> float:
        return self.steps_per_epoch if self.in_epochs else self.dataset_size / self.batch_size

    @property
    def in_epochs(self) -> bool:
        """Whether an example is in one batch of every epoch."""
        return self.sampling in ("shuffled", "balls-in-bins")

    @property
    def sample_rate(self) -> float:
        """p, the chance that an example is in a batch: n/N, and one over the number of bins where it picks one."""
        if self.sampling == "balls-in-bins":
            return 1.0 / self.steps_per_epoch
        return self.batch_size / self.dataset_size

    @property
    def effective_batch_size(self) -> float:
        """n_eff = n + tau^2 n^2/C^2 + t^2 n^2 of the paper's Theorem 5.1: n itself when there is no noise."""
        size = self.batch_size + min(self.batch_size * self.shaped_noise, 1.0e100) ** 2
        if self.clip_norm is None or self.noise_std == 0.0:
            return size
        return size + min(self.noise_std / (self.clip_norm / self.batch_size), 1.0e100) ** 2


@dataclass(frozen=True, kw_only=True)
class Recipe(SGDSettings):
    """How a model is trained.

    Parameters
    ----------
    dataset_size : N, members, drawn from the task's pool.
    batch_size : n, examples averaged in one step ("poisson" and "balls-in-bins": the divisor; "full": whatever is
        given, it becomes N).
    num_steps : T, optimizer steps.
    learning_rate : of the optimizer; None: nobody says, which is enough to audit a run that was recorded, not to train.
    optimizer : name of a class of torch.optim ("SGD", "Adam", ...); its other arguments in `optimizer_options`.
    sampling : "fixed" size without replacement, anew for each step (the paper's); "poisson"; "full"; "shuffled" epochs;
        epochs by "balls-in-bins": see `NoisySGD`.
    clip_norm : C, bound on the norm of a per-example gradient; None: not clipped.
    noise_std : tau, standard deviation of the noise on every entry of the batch MEAN.
    max_batch_size : under "poisson", the most examples that a batch holds; None: no limit.
    """

    learning_rate: float | None = None
    optimizer: str = "SGD"
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sampling == "full":
            object.__setattr__(self, "batch_size", self.dataset_size)
        super().__post_init__()
        check.fields(self, learning_rate=check.positive, optimizer_options=lambda _, given: dict(given))

    @property
    def rate(self) -> float:
        """The learning rate; an InvalidArgument where nobody said it."""
        if self.learning_rate is None:
            raise InvalidArgument("The recipe has no learning rate", remedy="pass Recipe(learning_rate=...) to train")
        return self.learning_rate

    def run(self, num_params: int) -> NoisySGD:
        """What the accountant is asked about, for a model with that many trainable parameters."""
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(SGDSettings)}
        return NoisySGD(**shared, num_params=num_params)
