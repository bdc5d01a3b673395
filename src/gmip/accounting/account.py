"""How exposed a training run is: `account` turns a run into the trade-off curve that a membership attacker faces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import bdtrc

from gmip import _validate as check
from gmip.accounting._epoch import coarse_epochs as coarse_epochs
from gmip.accounting._epoch import epoch_atoms, replaced_epoch
from gmip.accounting._loss import Atoms
from gmip.accounting.claims import ADJACENCY, gdp_claim, gmip_claim, with_cut_batches
from gmip.accounting.composition import Composed, Maximum, clt_mu, compose, group_susceptibilities
from gmip.accounting.families import Discrete, Gaussian, PiecewiseLinear
from gmip.accounting.persons import account_for_persons, mixture_atoms, most_rows
from gmip.accounting.random_record import StepTest, random_record
from gmip.accounting.step import (
    Bound,
    gdp_mu_step,
    noise_mu_step,
    noise_step,
    paper_mu_step,
    tight_step,
    unknown_others,
)
from gmip.accounting.tradeoff import TradeOff
from gmip.errors import InvalidArgument
from gmip.vocabulary import ADJACENCIES, ANY, NOTIONS, RANDOM_SIZES, Adjacency, NoisySGD, Notion, Susceptibility

Composition = Literal["exact", "clt"]
BOUNDS: tuple[Bound, ...] = ("tight", "paper")
COMPOSITIONS: tuple[Composition, ...] = ("exact", "clt")


def account(
    run: NoisySGD | Sequence[NoisySGD],
    *,
    susceptibility: Susceptibility = None,
    attacker_knows: float = 0.0,
    bound: Bound = "tight",
    composition: Composition = "exact",
    notion: Notion = "gmip",
    adjacency: Adjacency | None = None,
    rows_per_person: int | None = None,
) -> TradeOff:
    """The trade-off curve that a membership attacker faces against a training run.

    Parameters
    ----------
    run : what will run; a sequence of runs is a schedule, one after the other on the same data.
    susceptibility : whom the curve is about. K is the Mahalanobis norm (theta - mean)' Sigma^-1 (theta - mean) of a
        record's gradient. None takes num_params, the value of a typical record: a forecast. A number bounds every
        record of susceptibility at most that. An array of shape (n,) of measured values is about a random
        one of these records. "any" is about a random record, whatever the records are like (K has the mean
        num_params, no matter how it is spread), "any-constant" about one whose K stays the same from step to step.
    attacker_knows : q, the share of the other members whose records the attacker holds (not who is in which batch;
        where that could be decoded, the answer gives it away and leaves the rest, or counts on noise alone). 0 is the
        paper's attacker, who knows the distribution of the data; with 1 only noise protects.
    bound : one step by "tight" (noise and data randomness added up, data used again and again) or as in the "paper".
    composition : "exact" (loss distributions, pessimistic) or "clt" (the paper's Lemma 5.1).
    notion : "gmip", or "gdp" for differential privacy of the same run (its claim names the neighbours): data
        randomness, susceptibility and the attacker's knowledge play no part in it.
    adjacency : for "gdp", how neighbouring data sets differ. None: by one record more or less ("add-or-remove-one") for
        Poisson batches and balls in bins, which can be asked for "replace-one", too; as the claim says for others.
    rows_per_person : the most records that one person has, if persons are to be protected and not single records: a
        person comes and goes with all of them (docs/theory/persons.md). None: what the run says, 1 unless it does.
        `dataset_size` and `batch_size` count records, not persons; where persons are drawn and clipped as a whole they
        count persons, and rows_per_person stays 1.

    Returns
    -------
    A `TradeOff`: its `kind` says whether it is a bound or a forecast, `for_whom` about which record and attacker it
    speaks, `assumptions` what it rests on.

    Guarantees
    ----------
    A curve of kind "bound" is a lower bound on the false-negative rate of every attacker of `for_whom`. With
    bound="tight" and composition="exact" and fixed or Poisson batches that needs Gaussian sums of unknown gradients,
    but no fresh data: docs/theory/reuse.md. Full batches: of the stacked gradients of all steps. Shuffled epochs: a
    bound for one epoch, a forecast for more (docs/theory/shuffled.md). Balls in bins: by noise alone, for any record
    and attacker. composition="clt" and bound="paper" approximate.
    """
    runs = as_runs(run, rows_per_person)
    rows = most_rows(runs)
    if any(r.max_batch_size is not None for r in runs):
        whole = account(
            [r.replace(max_batch_size=None) for r in runs],
            susceptibility=susceptibility,
            attacker_knows=attacker_knows,
            bound=bound,
            composition=composition,
            notion=notion,
            adjacency=adjacency,
        )
        return _with_cut_batches(whole, runs, rows)
    check.one_of("bound", bound, BOUNDS)
    check.one_of("composition", composition, COMPOSITIONS)
    check.one_of("notion", notion, NOTIONS)
    known = check.probability("attacker_knows", attacker_knows)
    if composition == "clt" and any(r.in_epochs for r in runs):
        raise InvalidArgument(
            "covers steps that are drawn independently, not epochs",
            argument="composition",
            value="clt",
            remedy="use 'exact', or say `sampling` = 'fixed' for the paper's approximation",
        )
    _computed(adjacency, runs, notion, rows, composition)
    if rows > 1:
        _exactly("rows_per_person", rows, bound, composition)
        return account_for_persons(runs, rows, notion, susceptibility, known)
    if notion == "gdp":
        claim = gdp_claim(runs, composition, adjacency)
        replaced = claim.adjacency == "replace-one"
        curve = _gdp(runs, composition, replaced=replaced)
        curve.claim, curve.gdp_mu = claim, _order_known(runs, replaced=replaced)
        return curve
    if any(r.sampling == "balls-in-bins" for r in runs):
        susceptibility, known, bound = None, 1.0, "tight"  # by noise alone, for any record and attacker
    if isinstance(susceptibility, str):
        record = check.one_of("susceptibility", susceptibility, ANY)
        _exactly("susceptibility", record, bound, composition)
        runs = _joined(runs)
        if any(r.batch_size < r.dataset_size and unknown_others(r, known) == 0 for r in runs):
            known = 1.0  # so few others that none is unknown
        curve = _of_a_random_record(runs, known, constant=record == "any-constant")
    elif susceptibility is None:
        curve = _gmip(runs, None, known, bound, composition)
    else:
        values, weights = group_susceptibilities(check.susceptibilities(susceptibility))
        curves = [_gmip(runs, float(k), known, bound, composition) for k in values]
        if len(curves) == 1:
            curve = curves[0]
        else:
            curve = Composed([(float(w), c._parts()) for w, c in zip(weights, curves, strict=True)])
    curve.claim = gmip_claim(runs, susceptibility, known, bound, composition)
    return curve


def _with_cut_batches(whole: TradeOff, runs: Sequence[NoisySGD], rows: int) -> TradeOff:
    """The curve of runs that cut large batches, which differ from runs that do not by the chance that one is large.

    Neighbours have up to `rows` records more than declared, each drawn with the declared probability.
    """
    chance = 0.0
    for run in runs:
        if run.max_batch_size is not None and run.max_batch_size < run.dataset_size + rows:
            chance += run.num_steps * float(bdtrc(run.max_batch_size, run.dataset_size + rows, run.sample_rate))
    chance = min(chance * (1.0 + 1.0e-6), 1.0)
    curve = PiecewiseLinear.near(whole, chance)
    curve.claim = with_cut_batches(whole.claim, chance)
    if whole._added is not None:
        curve._added = PiecewiseLinear.near(whole._added, chance)
    return curve


def _exactly(argument: str, value: object, bound: Bound, composition: Composition) -> None:
    """Refuses what only the tight bound and exact composition answer."""
    if bound == "paper" or composition == "clt":
        raise InvalidArgument(
            "needs the tight bound and exact composition",
            argument=argument,
            value=value,
            remedy="leave `bound` and `composition` at their defaults",
        )


def _computed(
    adjacency: Adjacency | None, runs: Sequence[NoisySGD], notion: Notion, rows: int, composition: Composition
) -> None:
    """Refuses neighbours of which nothing is computed."""
    if adjacency is None:
        return
    check.one_of("adjacency", adjacency, ADJACENCIES)
    if notion != "gdp":
        raise InvalidArgument(
            "is for `notion` = 'gdp'", argument="adjacency", value=adjacency, remedy="leave it out, or ask for that"
        )
    for run in runs:
        own = ADJACENCY[run.sampling]
        if adjacency != own and (run.sampling not in RANDOM_SIZES or adjacency != "replace-one"):
            raise InvalidArgument(
                f"is not computed for {run.sampling!r} batches, whose neighbours are {own!r}",
                argument="adjacency",
                value=adjacency,
                remedy="leave it out",
            )
        if adjacency != own and (rows > 1 or composition == "clt"):
            raise InvalidArgument(
                f"is not computed for {'persons with several records' if rows > 1 else 'composition = clt'}",
                argument="adjacency",
                value=adjacency,
                remedy="leave it out",
            )


def _of_a_random_record(runs: Sequence[NoisySGD], known: float, *, constant: bool) -> TradeOff:
    curves = [
        random_record(runs, share, constant=constant, parts=_in_a_share)
        for share in dict.fromkeys([known, 1.0])  # who knows less finds no more
    ]
    if all(r.noise_std > 0.0 for r in runs):  # nor does anybody find more than noise alone allows
        curves.append(_exact(runs, noise_step))
    return Maximum(curves)


def mu_per_step(
    run: NoisySGD,
    *,
    susceptibility: float | None = None,
    attacker_knows: float = 0.0,
    bound: Bound = "tight",
    notion: Notion = "gmip",
) -> float:
    """The mu of one step for a record that takes part in it: mu_step of the paper, sqrt(2 KL) of the tight step,
    mu_DP."""
    check.one_of("bound", bound, BOUNDS)
    check.one_of("notion", notion, NOTIONS)
    known = check.probability("attacker_knows", attacker_knows)
    if notion == "gdp":
        return gdp_mu_step(run)
    k = run.num_params if susceptibility is None else check.positive("susceptibility", susceptibility)
    return _mu_step(run, k, known, bound)


def as_runs(run: NoisySGD | Sequence[NoisySGD], rows_per_person: int | None = None) -> list[NoisySGD]:
    """A run or a schedule, as a list; with that many rows of a person, if given."""
    given: object = run
    runs = [run] if isinstance(run, NoisySGD) else list(run) if isinstance(given, Sequence) else []
    if not runs or not all(isinstance(r, NoisySGD) for r in runs):
        remedy = "pass trace.runs()" if hasattr(given, "runs") else None
        raise InvalidArgument("must be a NoisySGD or a non-empty sequence of them", argument="run", remedy=remedy)
    return runs if rows_per_person is None else [r.replace(rows_per_person=rows_per_person) for r in runs]


def _joined(runs: Sequence[NoisySGD]) -> list[NoisySGD]:
    """Phases that differ in their number of steps alone as one; not of shuffled epochs, which a phase begins anew."""
    steps: dict[NoisySGD, int] = {}
    for run in runs:
        steps[run.replace(num_steps=1)] = steps.get(run.replace(num_steps=1), 0) + run.num_steps
    if any(run.sampling == "shuffled" for run in runs):
        return list(runs)
    return [run.replace(num_steps=total) for run, total in steps.items()]


def _mu_step(run: NoisySGD, susceptibility: float, known: float, bound: Bound) -> float:
    if bound == "paper":
        return paper_mu_step(run, susceptibility, known)
    return min(math.sqrt(tight_step(run, susceptibility, known).divergence), noise_mu_step(run))


def _gmip(
    runs: Sequence[NoisySGD], susceptibility: float | None, known: float, bound: Bound, composition: Composition
) -> TradeOff:
    def own(run: NoisySGD) -> float:
        return float(run.num_params) if susceptibility is None else susceptibility

    if composition == "clt":
        return Gaussian(clt_mu([(_mu_step(r, own(r), known, bound), r.sample_rate, r.num_steps) for r in runs]))
    if bound == "paper":
        return _exact(runs, lambda r: Gaussian(paper_mu_step(r, own(r), known)))

    def tight(run: NoisySGD) -> TradeOff:
        return tight_step(run, own(run), known)

    if known == 1.0 or all(r.sampling == "poisson" for r in runs):  # mu <= mu_DP already
        return _exact(runs, tight)
    # Noise alone hides a record, too (docs/theory/reuse.md, "Noise alone"); it wins where data randomness is small.
    # Both are composed only where they are close, so that the better of the two is smooth in the run; and where the
    # attacker may know almost everybody in a few of the batches, of which the divergence makes too much.
    ours, theirs = (sum(r.num_steps * test(r).divergence for r in runs) for test in (tight, noise_step))
    if ours < 0.5 * theirs:
        return _exact(runs, tight)
    if ours > 1.25 * theirs and known == 0.0:
        return _exact(runs, noise_step)
    return Maximum([_exact(runs, tight), _exact(runs, noise_step)])


def _exact(runs: Sequence[NoisySGD], test: StepTest) -> TradeOff:
    """All steps together, given the test of one in which the record takes part."""
    return compose([part for run in runs for part in _in_a_share(run, test, test, 1.0)])


def _in_a_share(run: NoisySGD, test: StepTest, rest: StepTest, share: float) -> list[tuple[TradeOff, int]]:
    """The steps (or epochs) of a run as independent tests of "not a member" against "member", with `test` in a share of
    the batches of every epoch (rounded up, the incomplete one included), `rest` in the others; steps that are drawn
    anew, and epochs of one batch, all have `test`."""
    if not run.in_epochs or run.steps_per_epoch == 1:
        return [(test(run).subsample(run.sample_rate), run.num_steps)]
    epochs, left = divmod(run.num_steps, run.steps_per_epoch)
    (_, full), *incomplete = run.epoch_batches
    weight = run.sample_rate

    def epoch(count: int) -> list[tuple[Atoms, float, int]]:
        taken = max(math.ceil(share * count - 1.0e-9), 1)
        kinds = [(test(run)._atoms(), weight, taken)]
        return kinds if taken == count else [*kinds, (rest(run)._atoms(), weight, count - taken)]

    parts: list[tuple[TradeOff, int]] = []
    if epochs:
        last = [(test(_smaller(run, n))._atoms(), n / run.dataset_size, count) for n, count in incomplete]
        parts.append((Discrete(epoch_atoms([*epoch(full), *last])), epochs))
    if left:  # the run ends within an epoch
        parts.append((Discrete(epoch_atoms(epoch(left))), 1))
    return parts


def _smaller(run: NoisySGD, batch_size: int) -> NoisySGD:
    """The same run with an incomplete batch, the noise on the sum of gradients being the same."""
    times = run.batch_size / batch_size
    return run.replace(batch_size=batch_size, noise_std=run.noise_std * times, shaped_noise=run.shaped_noise * times)


def _gdp(runs: Sequence[NoisySGD], composition: Composition, *, replaced: bool) -> TradeOff:
    if composition == "clt":  # infinite without noise: then only the sampling hides a record
        return Gaussian(clt_mu([(gdp_mu_step(r), r.sample_rate, r.num_steps) for r in runs]))
    if replaced:
        return compose([part for run in runs for part in _replaced(run)])
    # "Add" and "remove" are two one-sided tests; the composed one and its mirror image cover both.
    one = _exact(runs, lambda run: Gaussian(gdp_mu_step(run)))
    both = one.symmetrise()
    both._added = one
    return both


def _replaced(run: NoisySGD) -> list[tuple[TradeOff, int]]:
    """The steps (or epochs) of a run as independent tests of one record against another in its place."""
    if run.sampling not in RANDOM_SIZES or run.sample_rate == 1.0:
        return [(Gaussian(gdp_mu_step(run, replaced=True)).subsample(run.sample_rate).symmetrise(), run.num_steps)]
    shift, bins = gdp_mu_step(run), run.steps_per_epoch
    if run.sampling == "poisson":
        chances = np.array([1.0 - run.sample_rate, run.sample_rate])
        return [(Discrete(mixture_atoms(chances, np.array([0.0, shift]), replaced=True)), run.num_steps)]
    epochs, left = divmod(run.num_steps, bins)
    parts: list[tuple[TradeOff, int]] = [(Discrete(replaced_epoch(shift, bins, bins)), epochs)] if epochs else []
    return [*parts, (Discrete(replaced_epoch(shift, bins, left)), 1)] if left else parts


def _order_known(runs: Sequence[NoisySGD], *, replaced: bool) -> float:
    """The mu of differential privacy against an attacker who knows in which batches the record is."""
    tests = [(Gaussian(gdp_mu_step(run, replaced=replaced)), participations(run)) for run in runs]
    return math.sqrt(sum(times * one.divergence for one, times in tests))


def participations(run: NoisySGD) -> int:
    """The number of steps of a run that a record can take part in."""
    return math.ceil(run.num_steps / run.steps_per_epoch) if run.in_epochs else run.num_steps
