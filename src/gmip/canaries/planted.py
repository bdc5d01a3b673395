"""Canaries that are gradients, each adding a vector of the clip norm to its batches; and canaries that are records."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2
from torch import Tensor, nn
from torch.optim import Optimizer

from gmip import _validate as check
from gmip._random import CanaryStream, Stream
from gmip.attacks.signals import answers
from gmip.auditing.schema import AuditResult, CheckOutcome, RunCheck
from gmip.canaries.coins import Coins
from gmip.errors import InvalidArgument, UnsupportedModel, warn
from gmip.stats import ScoreSet
from gmip.stats.scores import finite
from gmip.tasks import Examples, Split, Task, cross_entropy
from gmip.training.models import bare_optimizer, has_classes, trainable_parameters

_CONTROLS: Final = 0.25  # directions, for each canary, that are never planted: they show how much the others vary
_FEWEST_CONTROLS: Final = 25


class DirectionCanaries(Coins):
    """`count` records whose clipped gradients are random directions, planted into any training loop.

        canaries = DirectionCanaries(500)
        with canaries.attached(model, optimizer, sample_rate=64 / 50_000):
            ...  # the training loop as it is
        canaries.audit(claim=(8.0, 1e-5))

    In each step the entries of the gradient are dealt out to the canaries, at random but as evenly as it goes, with
    random signs that are new in each step: directions of norm 1 that are orthogonal to each other, so canaries do not
    hide each other, and what real records add is noise that does not repeat. A canary that is in the batch adds
    clip_norm times its direction to the sum of clipped gradients. What the optimizer is then handed is projected on
    all directions, and the score of a canary is the log-likelihood ratio of "in, and drawn with `sample_rate`".

    Parameters
    ----------
    count : canaries; about half will be in. The model must have more parameters than 1.25 times as many.
    seed : of coins, batches and directions; None: a random one.

    Attributes
    ----------
    noise : tests in every step whether the noise is as large as declared; a `GmipWarning` says when it is not.

    Guarantees
    ----------
    Each canary is a record of norm `clip_norm` in every batch that it is in, as differential privacy allows: a run that
    keeps (epsilon, delta), or a trade-off function, under adding one record keeps it for the canaries' scores. They
    test the noise that was really added and the accounting of it. They do not pass through the loop's own clipping or
    sampling: for these plant records (`RecordCanaries`). Scores are functions of what the optimizer was handed.
    """

    def __init__(self, count: int = 1000, *, seed: int | None = None) -> None:
        super().__init__(count, seed)
        self._controls = max(_FEWEST_CONTROLS, round(_CONTROLS * self.count))
        self._scores = np.zeros(self.count)
        self._steps = 0
        self.noise = NoiseTest()

    def __repr__(self) -> str:
        return f"<DirectionCanaries: {self.count}, {self._steps} steps seen>"

    @contextlib.contextmanager
    def attached(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        sample_rate: float,
        clip_norm: float | None = None,
        batch_size: int | None = None,
        noise_multiplier: float | None = None,
    ) -> Iterator[None]:
        """The canaries take part in every step of the optimizer in the block.

        A recorder that is entered before it records the gradients without the canaries, one that is entered inside it
        with them.

        Parameters
        ----------
        sample_rate : p, the chance that a record is in a batch: batch_size/dataset_size; 1 for full batches.
        clip_norm, batch_size : C, and what the sum of clipped gradients is divided by; read from Opacus' optimizer.
        noise_multiplier : the declared standard deviation of the noise on the sum, in units of C; None: what Opacus'
            optimizer says in each step, and without Opacus the noise is not tested.
        """
        rate = check.above_zero("sample_rate", sample_rate)
        wrapper: Any = bare_optimizer(optimizer)
        private = wrapper if hasattr(wrapper, "original_optimizer") else None
        inner: Optimizer = wrapper if private is None else wrapper.original_optimizer
        held = {id(p) for group in inner.param_groups for p in group["params"]}
        parameters = [p for _, p in trainable_parameters(model) if id(p) in held]
        norm = _given("clip_norm", clip_norm, None if private is None else float(private.max_grad_norm))
        if private is None:
            _given("batch_size", batch_size, None)
        said = None if noise_multiplier is None else check.positive("noise_multiplier", noise_multiplier)
        garden = _Garden(parameters, self.count, self._controls, self.seed)

        def before_step(_: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if (args[1] if len(args) > 1 else kwargs.get("closure")) is not None:
                raise UnsupportedModel(
                    "Canaries cannot be planted into step(closure)", remedy="call the closure first, then step()"
                )
            divisor = float(batch_size or 1) if private is None else _divisor(private)
            rng = CanaryStream.BATCHES.rng(self.seed, self._steps)
            drawn = self.inside & (rng.random(self.count) < rate)
            seen = garden.plant(self._steps, drawn, norm / divisor)
            self._scores += _evidence(seen[: self.count], seen[self.count :], rate)
            self._steps += 1
            declared = float(getattr(private, "noise_multiplier", 0.0)) if said is None else said
            seen[: self.count] -= drawn
            if declared > 0.0 and self.noise.add(seen, declared):
                warn(
                    f"The noise is smaller than the declared multiplier {declared:.4g}, as step {self._steps} shows: "
                    f"the guarantee does not hold. A sound run is accused with a chance of at most "
                    f"{self.noise.error:.0%}"
                )

        handle = inner.register_step_pre_hook(before_step)
        try:
            yield
        finally:
            handle.remove()

    @property
    def scores(self) -> NDArray[np.float64]:
        """The log-likelihood ratio of each canary, shape (count,), over the steps so far."""
        if self._steps == 0:
            raise InvalidArgument(
                "The canaries have seen no step", remedy="train inside `with canaries.attached(model, optimizer, ...)`"
            )
        return self._scores.copy()

    def audit(self, *, title: str | None = None, **settings: Any) -> AuditResult:
        """Whether the run keeps its guarantee against these canaries: `claim` = (epsilon, delta), a mu or a `TradeOff`;
        `delta`, `confidence` and `fprs` are those of `gmip.audit`. Where noise was declared, its size is checked."""
        return self._audited(self.scores, title, settings, self.noise.check)


class _Garden:
    """Who has which entries of the gradient."""

    def __init__(self, parameters: Sequence[Tensor], count: int, controls: int, seed: int) -> None:
        self._parameters = parameters
        self._size, self._beds = sum(p.numel() for p in parameters), count + controls
        if self._beds > self._size:
            raise InvalidArgument(
                f"needs {self._beds} directions, and the model has {self._size} trainable parameters",
                argument="count",
                value=count,
                remedy=f"plant at most {int(self._size / (1.0 + _CONTROLS))}",
            )
        self._count, self._seed = count, seed
        order = CanaryStream.DIRECTIONS.rng(seed).permutation(self._size)
        bed = np.empty(self._size, dtype=np.int64)
        bed[order] = np.arange(self._size) % self._beds
        self._bed = torch.from_numpy(bed).to(parameters[0].device)
        self._root = torch.bincount(self._bed, minlength=self._beds).double().sqrt()

    def plant(self, step: int, drawn: NDArray[np.bool_], length: float) -> NDArray[np.float64]:
        """Add `length` times their directions for those drawn; return the projections of what is there then on all
        directions, in units of `length`, shape (count + controls,)."""
        device = self._bed.device
        generator = torch.Generator().manual_seed(CanaryStream.SIGNS.torch_seed(self._seed, step))
        signs = torch.randint(0, 2, (self._size,), generator=generator, dtype=torch.int8).to(device) * 2 - 1
        weights = torch.zeros(self._beds, dtype=torch.float64, device=device)
        weights[: self._count] = torch.from_numpy(drawn).to(device) * length
        weights /= self._root
        seen = torch.zeros(self._beds, dtype=torch.float64, device=device)
        first = 0
        for p in self._parameters:
            rows = slice(first, first + p.numel())
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad += (signs[rows] * weights[self._bed[rows]]).view_as(p).to(p.grad.dtype)
            seen.scatter_add_(0, self._bed[rows], signs[rows] * p.grad.detach().reshape(-1).double())
            first = rows.stop
        found: NDArray[np.float64] = (seen / self._root / length).cpu().numpy()
        return found


def _evidence(seen: NDArray[np.float64], controls: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """log of (1 - p) + p N(x; 1, v)/N(x; 0, v), with the variance that directions have which nobody planted."""
    variance = max(float(np.mean(controls**2)), np.finfo(np.float64).tiny)
    ratio = np.clip((seen - 0.5) / variance, -1.0e6, 1.0e6)  # without noise it has no bound
    return ratio if rate == 1.0 else np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)


def _divisor(private: Any) -> float:
    """By what Opacus' optimizer divides the sum of clipped gradients."""
    if private.loss_reduction == "sum":
        return 1.0
    ranks = getattr(private, "world_size", 1)  # Opacus' distributed optimizers divide by it as well
    return float(private.expected_batch_size * private.accumulated_iterations * ranks)


def _given(name: str, value: float | None, known: float | None) -> float:
    if value is not None:
        return check.positive(name, value)
    if known is None:
        raise InvalidArgument(
            "is not known: the optimizer is not Opacus'",
            argument=name,
            remedy="pass what the loop clips and divides by",
        )
    return known


# -- canaries that are records ----------------------------------------------------------------------------------------


class RecordCanaries(Coins):
    """Records of yours with a wrong label each, about half of which are to be trained on.

        canaries = RecordCanaries(spare_records)
        train_on = canaries.training_set(my_records)
        ...  # train on train_on, with any loop
        canaries.audit(model, claim=(8.0, 1e-5))

    Parameters
    ----------
    records : with classes as targets; not otherwise in the training data.
    num_classes : how many classes there are; None: as many as the records have.
    seed : of coins and labels; None: a random one.

    Attributes
    ----------
    records : the canaries, all of them, with their wrong labels.

    Guarantees
    ----------
    Coins and labels are independent of everything else, so a run that keeps a bound under adding one record keeps it
    for the canaries' scores. A model that learned none of them by heart tells nothing: the bound is then 0, which is no
    evidence for the bound.
    """

    def __init__(self, records: Examples, *, num_classes: int | None = None, seed: int | None = None) -> None:
        super().__init__(len(records), seed)
        if not has_classes(records.targets):
            raise InvalidArgument("need classes as targets, to be given wrong ones", argument="records")
        known = int(records.targets.max()) + 1
        self.num_classes = known if num_classes is None else check.count("num_classes", num_classes)
        if self.num_classes < max(2, known):
            raise InvalidArgument(
                f"is below the {max(2, known)} classes that are needed", argument="num_classes", value=num_classes
            )
        other = CanaryStream.LABELS.rng(self.seed).integers(1, self.num_classes, self.count)
        wrong = (records.targets + torch.from_numpy(other).to(records.targets)) % self.num_classes
        self.records = Examples(records.inputs, wrong)

    def __repr__(self) -> str:
        return f"<RecordCanaries: {self.count}, {int(self.inside.sum())} in>"

    def training_set(self, members: Examples) -> Examples:
        """The members, and then the canaries that are in."""
        return members.joined(self.records[np.flatnonzero(self.inside)])

    def planted(self, task: Task) -> Task:
        """The task with the canaries at the end of its pool, for `gmip.train`: in every run of it the canaries that are
        in are members, and those that are not are the non-members.

        `dataset_size` of its recipe counts the canaries that are in. Attack their rows, `canaries.ids(task)`: other
        members differ from them in more than membership.
        """
        inside = int(self.inside.sum())
        recipe = task.recipe.replace(dataset_size=task.recipe.dataset_size + inside)
        parts = {field.name: getattr(task, field.name) for field in fields(Task)}
        parts |= {"name": f"{task.name} with canaries", "pool": task.pool.joined(self.records), "recipe": recipe}
        parts |= {"groups": {}, "record_names": None}  # they are about the records of the task
        return _PlantedTask(**parts, canaries=self.inside)

    def ids(self, task: Task) -> NDArray[np.int64]:
        """Rows of the canaries in the pool of a planted task."""
        if not isinstance(task, _PlantedTask) or len(task.canaries) != self.count:
            raise InvalidArgument("is not planted with these canaries", argument="task", remedy="pass planted(task)")
        return np.arange(len(task.pool) - self.count, len(task.pool))

    def scores(self, model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy) -> NDArray[np.float64]:
        """Minus the loss of each canary under the trained model, shape (count,): those that are in have been fitted."""
        with torch.no_grad():
            found = [loss(said, targets).double().cpu().numpy() for _, said, targets in answers(model, self.records)]
        return finite(-np.concatenate(found))

    def audit(
        self,
        scores: ArrayLike | ScoreSet | nn.Module,
        *,
        loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
        title: str | None = None,
        **settings: Any,
    ) -> AuditResult:
        """Whether the run keeps its guarantee against these canaries.

        Parameters
        ----------
        scores : of shape (count,), higher = in; or an attack's ScoreSet about the rows `ids(planted task)`; or the
            trained model itself, for minus its loss.
        loss : of the model, one number for each record.
        settings : `claim` = (epsilon, delta), a mu or a `TradeOff`; `delta`, `confidence`, `fprs` as of `gmip.audit`.
        """
        if isinstance(scores, nn.Module):
            scores = self.scores(scores, loss)
        elif isinstance(scores, ScoreSet):
            scores = self._of(scores)
        return self._audited(scores, title, settings)

    def _of(self, found: ScoreSet) -> NDArray[np.float64]:
        order = np.argsort(found.ids)
        ids = found.ids[order]
        if len(ids) != self.count or not np.array_equal(ids, ids[0] + np.arange(self.count)):
            raise InvalidArgument(
                f"are of {len(ids)} records and not of the {self.count} canaries",
                argument="scores",
                remedy="run the attack on the candidates `ids(task)`",
            )
        return found.scores[order]


@dataclass(frozen=True, kw_only=True, eq=False)
class _PlantedTask(Task):
    """A task whose last records are canaries; `canaries` tells which of them are in."""

    canaries: NDArray[np.bool_]

    def split(self, dataset_size: int, seed: int) -> Split:
        rows = np.arange(len(self.pool))
        own, planted = rows[: -len(self.canaries)], rows[-len(self.canaries) :]
        members = dataset_size - int(self.canaries.sum())
        if not 0 < members <= len(own):
            raise InvalidArgument(
                f"counts {int(self.canaries.sum())} canaries, and the pool has {len(own)} other records",
                argument="dataset_size",
                value=dataset_size,
                remedy="pass the canaries that are in and at least one other record",
            )
        order = Stream.MEMBERS.rng(seed).permutation(own)
        return Split(
            np.sort(np.concatenate([order[:members], planted[self.canaries]])),
            planted[~self.canaries],
            np.sort(order[members:]),
        )


# -- is the noise as large as declared ---------------------------------------------------------------------------------


_SHARES: Final = np.array([0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99])  # of the declared noise that are bet on
_AUDITED: Final = 0.01  # the error of the test in audits


class NoiseTest:
    """Bets that the noise is smaller than declared, step by step.

    In a direction that was drawn independently of the run, a published sum is what the records add plus Gaussian noise.
    The bet on the share r pays N(x; 0, r^2)/N(x; 0, 1), x in units of the declared standard deviation. The capital,
    which begins at 1, is the mean over all r.

    Attributes
    ----------
    steps : steps seen.
    refuted_at : the step, from 1, at which the capital reached 1/error for the first time; None: it never did.

    Guarantees
    ----------
    If every step adds fresh Gaussian noise of the declared standard deviation or more, the capital is a non-negative
    supermartingale, whatever the records add: a bet pays most, on average, where they add nothing (Anderson 1955). So
    it ever reaches 1/error with a chance of at most `error` (Ville), whenever one looks and whenever one stops. The
    size of the noise is all that is tested, not that it is new in each step (`gmip check` does).
    """

    def __init__(self, error: float = 0.05) -> None:
        self.error = check.above_zero("error", error)
        self.steps = 0
        self.refuted_at: int | None = None
        self._count, self._squares, self._most = 0, 0.0, 0.0

    def add(self, seen: NDArray[np.float64], declared: float) -> bool:
        """One step: projections of the published sum, shape (k,), and the declared standard deviation of its noise in
        the same unit. Returns whether this step is the one that refutes."""
        self.steps += 1
        self._count += len(seen)
        self._squares += float(np.sum((seen / declared) ** 2))
        self._most = max(self._most, self.log_capital)
        if self.refuted_at is None and self._most >= -math.log(self.error):
            self.refuted_at = self.steps
            return True
        return False

    @property
    def log_capital(self) -> float:
        """The logarithm of what the bets have made of 1; evidence against the declared noise."""
        logs = -self._count * np.log(_SHARES) - 0.5 * self._squares * (_SHARES**-2.0 - 1.0)
        return float(np.logaddexp.reduce(logs) - math.log(len(_SHARES)))

    @property
    def p_value(self) -> float:
        """An upper end of the chance of so much capital, at any step so far, with the declared noise."""
        return min(1.0, math.exp(-self._most))

    @property
    def check(self) -> RunCheck | None:
        """The test as audits take it, at an error of 1% as other checks of a run; None: no noise was declared. The size
        that it tells is that of noise and records together."""
        if not self._count:
            return None
        small = self.p_value <= _AUDITED
        found = CheckOutcome(
            check="noise-size",
            status="failed" if small else "passed",
            finding="noise-size" if small else "as-declared",
            value=math.sqrt(self._squares / self._count),
            expected=1.0,
            p_value=self.p_value,
            steps=self.steps,
        )
        return RunCheck(outcomes=(found,), level=_AUDITED)

    def share_upper(self, confidence: float = 0.95) -> float:
        """The noise is at most this share of the declared, at this confidence, for one look at a number of steps that
        was fixed beforehand.

        Guarantees
        ----------
        For Gaussian noise: what the records add can only make the sum of squares, and with it this bound, larger.
        """
        error = 1.0 - check.inside("confidence", confidence)
        if not self._count:
            return math.inf
        return math.sqrt(self._squares / float(chi2.ppf(error, self._count)))
