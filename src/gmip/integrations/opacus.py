"""An accountant for Opacus that knows membership-inference privacy beside epsilon.

Importing this module registers it: from then on `PrivacyEngine(accountant="gmip")` works as with any other name.
"""

from __future__ import annotations

from gmip._extras import needs

needs("gmip.integrations.opacus", "opacus", "torch")

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from opacus.accountants import IAccountant, PRVAccountant, RDPAccountant, register_accountant
from torch import nn

from gmip import _validate as check
from gmip.accounting.account import Composition, account
from gmip.accounting.convert import poisson_sizes
from gmip.accounting.families import Gaussian
from gmip.accounting.step import Bound
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument
from gmip.training.models import count_params
from gmip.vocabulary import Claim, NoisySGD, Notion, Sampling

_SAMPLINGS: tuple[Sampling, ...] = ("poisson", "fixed")  # what an Opacus run can be

# Sample rates are binary fractions (1/49 times 49 is not 1): what is that close to a whole number is one.
_HAIR = 1.0 + 1.0e-12
# PRV discretises privacy losses from -L to L. exp(L) must be a float, and a grid of this many cells fit into memory.
_PRV_MAX_LOSS = 500.0
_PRV_MAX_CELLS = 2.0**24
# Below this noise multiplier epsilon is beyond 100,000 (or q < delta) and Opacus' RDP series need not end.
_LEAST_NOISE = 1.0e-3
# More noise than this is counted as this: RDP's sums cancel beyond.
_MOST_NOISE = 1.0e6


class GmipAccountant(IAccountant):  # type: ignore[misc]
    """Records the steps of an Opacus run; answers with epsilon, and with the curve of membership-inference privacy.

    `get_epsilon` is differential privacy, the same number as from Opacus' "prv" accountant. `get_tradeoff` and `get_mu`
    are membership-inference privacy, a weaker notion: a mu from here is not a mu of Gaussian differential privacy, and
    no epsilon derived from such a curve is an epsilon of differential privacy. Publish them under their own name.

    Attributes
    ----------
    history : list of (noise_multiplier, sample_rate, num_steps), one entry for each stretch of equal steps, as Opacus'
        own accountants keep it. The history of another accountant may be assigned to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Record one optimizer step; Opacus' optimizer calls this by itself."""
        self._record(noise_multiplier, sample_rate, 1)

    def _record(self, noise_multiplier: Any, sample_rate: Any, num_steps: Any) -> None:
        noise = check.non_negative("noise_multiplier", noise_multiplier)
        rate = check.above_zero("sample_rate", sample_rate)
        steps = check.count("num_steps", num_steps)
        if self.history and self.history[-1][:2] == (noise, rate):
            steps += self.history.pop()[2]
        self.history.append((noise, rate, steps))

    def __len__(self) -> int:
        """Optimizer steps recorded so far."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows this accountant."""
        return "gmip"

    def load_state_dict(self, state_dict: Any) -> None:
        """Take over what `state_dict` returned; refuses the state of another mechanism (ValueError)."""
        loaded = GmipAccountant()
        super(GmipAccountant, loaded).load_state_dict(state_dict)
        entries, loaded.history = loaded.history, []  # a copy: steps to come do not change state_dict
        for entry in entries:
            loaded._record(*entry)
        self.history = loaded.history

    # -- differential privacy -------------------------------------------------------------------------------------

    def get_epsilon(
        self, delta: float, *, eps_error: float = 0.01, delta_error: float | None = None, **ignored: Any
    ) -> float:
        """Epsilon of (epsilon, delta)-differential privacy so far: add or remove one record, Poisson batches.

        Parameters
        ----------
        delta : between 0 and 1.
        eps_error, delta_error : accuracy asked of Opacus' PRV accountant; delta_error is delta/1000 if None.
        ignored : PrivacyEngine.make_private_with_epsilon hands the keywords of its optimizer to every accountant.

        Guarantees
        ----------
        An upper bound on the true epsilon as far as Opacus' accountants are: that of its PRV accountant over the same
        history, or, where PRV fails or its grid would be too large to trust (epsilon in the hundreds), that of its RDP
        accountant, which is larger. Infinite as soon as a step was recorded without noise or with a multiplier below
        0.001, 0 before the first step. Membership-inference privacy plays no part in it.
        """
        delta = check.inside("delta", delta)
        slack = delta / 1000.0 if delta_error is None else check.positive("delta_error", delta_error)
        eps_error = check.positive("eps_error", eps_error)
        if not self.history:
            return 0.0
        if any(noise < _LEAST_NOISE for noise, _, _ in self.history):
            return math.inf
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # RDP asks for other orders: here it sizes PRV's grid, or its bound holds at any order.
            warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
            if self._prv_is_sound(eps_error, slack):
                try:
                    prv = self._as(PRVAccountant)
                    epsilon = float(prv.get_epsilon(delta, eps_error=eps_error, delta_error=slack))
                except (ArithmeticError, MemoryError, RuntimeError, ValueError):
                    epsilon = math.nan
                if math.isfinite(epsilon):
                    return epsilon
            return float(self._as(RDPAccountant).get_epsilon(delta))

    def _prv_is_sound(self, eps_error: float, delta_error: float) -> bool:
        # Beyond these limits PRV overflows without an error: 703 for (0.01, 0.001, 1) at delta = 1e-5, where epsilon
        # is above 5000.
        loss = 3.0 + float(self._as(RDPAccountant).get_epsilon(delta_error / 4.0))
        cells = 2.0 * loss * math.sqrt(0.5 * len(self) * math.log(12.0 / delta_error)) / eps_error
        return loss <= _PRV_MAX_LOSS and cells <= _PRV_MAX_CELLS

    def _as(self, kind: Any) -> Any:
        """One of Opacus' accountants with the same history."""
        other = kind()
        other.history = [(min(noise, _MOST_NOISE), rate, steps) for noise, rate, steps in self.history]
        return other

    # -- membership-inference privacy -----------------------------------------------------------------------------

    def get_tradeoff(
        self,
        *,
        num_params: int | nn.Module,
        dataset_size: int | None = None,
        batch_size: int | None = None,
        susceptibility: float | ArrayLike | None = None,
        bound: Bound = "tight",
        composition: Composition = "exact",
        notion: Notion = "gmip",
        sampling: Sampling = "poisson",
        rank: int | None = None,
    ) -> TradeOff:
        """The trade-off curve that a membership attacker faces against the steps recorded so far.

        This is membership-inference privacy, not differential privacy, unless notion="gdp"; see `gmip.account`, which
        does the work, for the options not listed here. Noise and clipping need not be given: only their ratio matters,
        and that is the noise multiplier on record. Steps without noise are fine: the randomness of the data remains.

        Parameters
        ----------
        num_params : d, trainable parameters; or the model, wrapped or not, to count them.
        dataset_size : N, records in the training set: len(dataset).
        batch_size : under "poisson" the expected size of a batch, `optimizer.expected_batch_size`; not needed beside
            dataset_size. (The batch_size of the DataLoader is larger where it does not divide the data set.)
            Under "fixed" the size of every batch, needed as well as dataset_size.
        sampling : "poisson", as PrivacyEngine samples unless told otherwise; "fixed" for poisson_sampling=False and a
            sampler that draws every batch anew, without replacement: then sizes say what was drawn, and the recorded
            sample rate (1/len(data_loader), whatever that is) is not used. Shuffled epochs are neither.
        rank : effective rank of the gradient covariance, if it is known to be below num_params.

        Guarantees
        ----------
        They are those of `gmip.account` for the same run. Where the recorded rate makes batches of no whole size, sizes
        are rounded so that both the size of a batch and its rate err on the attacker's side. With no step recorded the
        curve is that of perfect privacy.
        """
        check.one_of("sampling", sampling, _SAMPLINGS)
        if isinstance(num_params, nn.Module):
            num_params = count_params(num_params)
        sizes = self._sizes(dataset_size, batch_size, sampling)
        if not self.history:
            curve: TradeOff = Gaussian(0.0)
            curve.claim = Claim(assumptions=("No step has been recorded: nothing has been published yet.",))
            return curve
        runs = [
            NoisySGD(
                dataset_size=total,
                batch_size=batch,
                num_steps=steps,
                num_params=num_params,
                clip_norm=1.0,  # only the ratio of noise to clipping matters
                sampling=sampling,
                rank=rank,
            ).with_noise_multiplier(noise)
            for (noise, _, steps), (total, batch) in zip(self.history, sizes, strict=True)
        ]
        curve = account(runs, susceptibility=susceptibility, bound=bound, composition=composition, notion=notion)
        rounding = tuple(self._rounding_sentences(dataset_size, sizes))
        curve.claim = dataclasses.replace(curve.claim, assumptions=curve.assumptions + rounding)
        return curve

    def get_mu(self, *, num_params: int | nn.Module, **options: Any) -> float:
        """mu of membership-inference privacy: the equivalent mu of `get_tradeoff`, which takes the same arguments.

        Not an epsilon, and unless notion="gdp" not the mu of Gaussian differential privacy either, which is larger.
        """
        return self.get_tradeoff(num_params=num_params, **options).equivalent_mu()

    def _sizes(self, dataset_size: Any, batch_size: Any, sampling: Sampling) -> list[tuple[int, int]]:
        """(dataset_size, batch_size) of each entry of the history."""
        total = None if dataset_size is None else check.count("dataset_size", dataset_size)
        batch = None if batch_size is None else check.count("batch_size", batch_size)
        if sampling == "fixed":
            if total is None or batch is None:
                raise InvalidArgument(
                    "needs both `dataset_size` and `batch_size`, because the sample rate that Opacus records is not "
                    "that of your sampler",
                    argument="sampling",
                    value=sampling,
                    remedy="pass them",
                )
            return [(total, batch)] * len(self.history)
        rates = {rate for _, rate, _ in self.history}
        if total is None:
            if batch is None:
                raise InvalidArgument(
                    "is missing, and Opacus records sample rates only, while membership-inference privacy depends on "
                    "how many records hide one another",
                    argument="dataset_size",
                    remedy="pass `dataset_size` = len(dataset)",
                )
            if len(rates) > 1:
                raise InvalidArgument(
                    "does not determine the size of the data set, because the recorded steps have "
                    f"{len(rates)} sample rates",
                    argument="batch_size",
                    value=batch,
                    remedy="pass `dataset_size` instead",
                )
            total = max((math.floor(batch / rate * _HAIR) for rate in rates), default=batch)
        elif batch is not None:
            for rate in rates:
                if abs(batch - rate * total) >= 1.0:
                    raise InvalidArgument(
                        f"and `dataset_size` = {total} contradict the recorded sample rate {rate:.6g}, which makes "
                        f"batches of {rate * total:.6g} on average",
                        argument="batch_size",
                        value=batch,
                        remedy="leave `batch_size` out",
                    )
        return [poisson_sizes(total, rate, least_rate=_least_rate(rate)) for _, rate, _ in self.history]

    def _rounding_sentences(self, dataset_size: int | None, sizes: list[tuple[int, int]]) -> list[str]:
        return [
            f"Batches of {batch} out of {total} records stand for a sample rate of {rate:.6g} among {dataset_size}, on "
            "the safe side."
            for rate, (total, batch) in {
                rate: size for (_, rate, _), size in zip(self.history, sizes, strict=True)
            }.items()
            if dataset_size is not None and total != dataset_size
        ]


def _least_rate(sample_rate: float) -> float:
    """The rate at which Opacus may in truth have sampled when it recorded this one.

    Its Poisson loader has int(1/q) batches, which for q = 1/93, 1/99, 1/105, ... is one less than it should be, and the
    engine then records 1/92 although each record is drawn with probability 1/93.
    """
    batches = round(1.0 / sample_rate)
    if sample_rate == 1.0 / batches and int(1.0 / (1.0 / (batches + 1))) == batches:
        return 1.0 / (batches + 1)
    return sample_rate


register_accountant("gmip", GmipAccountant, force=True)  # by force: a second import (reload) is no conflict
