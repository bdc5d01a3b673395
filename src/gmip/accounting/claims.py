"""What the answers of `account` claim: bound or forecast, for which record and attacker, on which assumptions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from gmip.accounting.tradeoff import DEFAULT_FPR_RANGE
from gmip.errors import InvalidArgument
from gmip.vocabulary import RANDOM_SIZES, Adjacency, Claim, Kind, NoisySGD, Sampling

# -- whether somebody who holds a list of candidates can decode who was in which batch --------------------------------


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
    bounded = " An answer for somebody who knows all other members (share 1) covers that attacker." if noisy else ""
    decoding = {
        "likely": "Such an attacker could decode who is in which batch.",
        "unclear": "Such an attacker may decode part of who is in which batch.",
        "unlikely": "The list helps, but decoding who is in which batch is not expected (measured for one attack on "
        "simulated gradients, not proved).",
    }[found]
    return f"Not covered: an attacker with a list of candidates that contains the members. {decoding}{bounded}"


# -- what the answers of account claim --------------------------------------------------------------------------------


ADJACENCY: Final[dict[Sampling, Adjacency]] = {
    "fixed": "replace-one",
    "full": "replace-one",
    "poisson": "add-or-remove-one",
    "shuffled": "zero-out-one",
    "balls-in-bins": "add-or-remove-one",
}
_NEIGHBOURS: Final[dict[Adjacency, str]] = {
    "replace-one": "one record is replaced by another",
    "add-or-remove-one": "one record is added or removed",
    "zero-out-one": "the gradient of one record is replaced by zero",
}
_SAMPLING: Final[dict[Sampling, str]] = {
    "fixed": "Each step draws a batch of fixed size without replacement, independently of the other steps.",
    "poisson": "Each step draws every record on its own with the same probability and divides by the expected batch "
    "size.",
    "full": "Every record takes part in every step.",
    "shuffled": "Each epoch visits every record once, in a new random order.",
    "balls-in-bins": "In each epoch every record picks a random batch on its own; sums are divided by a "
    "constant, and the number of batches is fixed beforehand.",
}
# What "not a member" means. Sums move twice as far when a record takes another's place as when it comes on top: answers
# for Poisson batches and for the others are about different questions.
_GAME: Final[dict[Sampling, str]] = {
    "fixed": "another of the records in its place in the batch",
    "poisson": "a run without it, with no record in its place",
    "full": "another record of the same distribution in its place",
    "shuffled": "another record of the same distribution in its place",
    "balls-in-bins": "a run without it, with no record in its place",
}
_ALONE: Final = "a run on the other records alone"


def gdp_claim(runs: Sequence[NoisySGD], composition: str, asked: Adjacency | None = None) -> Claim:
    """What the curve of `notion="gdp"` claims; neighbours must be of one kind."""
    kinds = dict.fromkeys(asked or ADJACENCY[r.sampling] for r in runs)
    if len(kinds) > 1:
        raise InvalidArgument(
            "mixes "
            + " and ".join(repr(r) for r in dict.fromkeys(r.sampling for r in runs))
            + " batches, whose differential privacy is about different neighbours ("
            + ", ".join(kinds)
            + ")",
            argument="run",
            remedy="account for phases of one kind at a time",
        )
    adjacency = next(iter(kinds))
    shuffled = adjacency == "zero-out-one" and any(r.batch_size < r.dataset_size for r in runs)
    allocated = ", if every record picks its batch on its own," if shuffled else ""
    samplings = [_effective(run) for run in runs]
    sentences = [
        f"Differential privacy for data sets in which {_NEIGHBOURS[adjacency]}: it holds{allocated} for any data and "
        "any attacker who sees every published mean gradient.",
        *_limits(samplings, 1.0),
        *_shaped(runs, noise_only=True),
        *_common(runs, composition),
    ]
    kind: Kind = "forecast" if composition == "clt" or _cut_epochs(runs) else "bound"
    caveat = None
    if shuffled:
        kind = "forecast"
        caveat = (
            "Proved only for epochs in which every record picks its batch on its own (balls in bins), so not for a "
            "DataLoader, with which chosen data can leak more (docs/theory/shuffled.md). It compares with the record's "
            "gradient set to zero, which moves a sum half as far as another record in its place: a membership answer "
            "for shuffled epochs (gmip) is about that larger change, and can need more noise than this one."
        )
    whom = (
        "any record and any attacker, if the others were not chosen to harm it"
        if shuffled
        else f"any record, whatever the others are, and any attacker{_untold(samplings)}"
    )
    return Claim(kind, whom, tuple(sentences), caveat, adjacency)


def gmip_claim(runs: Sequence[NoisySGD], susceptibility: Any, known: float, bound: str, composition: str) -> Claim:
    """What the curve of `notion="gmip"` claims."""
    samplings = list(dict.fromkeys(_effective(r) for r in runs))
    mixed = "full" in samplings and len(runs) > 1
    epochs = _several_epochs(runs)
    noise_only = known == 1.0
    record, about = _record(susceptibility, runs, noise_only)
    typical = susceptibility is None and not noise_only
    approximate = bound == "paper" or composition == "clt"
    unproved = _unproved(runs, samplings, known) or _unproved_spread(susceptibility, runs, known)
    forecast = typical or approximate or unproved
    games = {_GAME[s] for s in samplings}
    game = games.pop() if len(games) == 1 else _ALONE  # which noise alone covers in all of them
    sentences = [
        "Threat model: the attacker sees every published mean gradient and cannot poison the data.",
        f"Compared with: {game}.",
        *about,
        *_limits(samplings, known),
    ]
    if bound == "paper":
        sentences.append(
            "One step follows the paper's Corollary 5.1, a Gaussian approximation for many parameters, and faces fresh "
            "data at every step."
        )
    elif not noise_only:
        sentences += _reuse(samplings, mixed, epochs)
    sentences += _shaped(runs, noise_only)
    sentences.append("Membership-inference privacy is weaker than differential privacy, which also covers chosen data.")
    return Claim(
        "forecast" if forecast else "bound",
        f"{record} and {_attacker(known, samplings)}",
        tuple(sentences + _common(runs, composition)),
        _caveat(runs, noise_only),
        not_a_member=game,
    )


def _unproved(runs: Sequence[NoisySGD], samplings: Sequence[Sampling], known: float) -> bool:
    """Whether a sampling, or what the attacker knows, is covered by no proof."""
    mixed = "full" in samplings and len(runs) > 1 and known < 1.0
    by_order = known > 0.0 and "shuffled" in samplings
    # Some of the unknown others are given away to save time, and K is not against those who are left (attackers.md);
    # nor does shaped noise have the covariance of those whom the attacker does not know.
    shaped = any(r.shaped_noise > 0.0 for r in runs)
    subset = 0.0 < known < 1.0 and ("fixed" in samplings or shaped)
    return _several_epochs(runs) or mixed or by_order or subset or _cut_epochs(runs)


def _caveat(runs: Sequence[NoisySGD], noise_only: bool) -> str | None:
    if not noise_only:
        return list_caveat(runs)
    if any(r.sampling == "balls-in-bins" and r.noise_std == 0.0 for r in runs):
        return (
            "Balls in bins is accounted by noise alone: without noise nothing is guaranteed. What other records hide "
            "without noise is forecast for shuffled epochs."
        )
    return None


def person_claim(runs: Sequence[NoisySGD], rows: int, notion: str, susceptibility: float | None, known: float) -> Claim:
    """What the curve for a person with several records claims."""
    person = f"a person with at most {rows} records"
    samplings = [_effective(run) for run in runs]
    fixed = "fixed" in samplings
    sentences = [
        f"The unit is {person}, who is left out with all of them otherwise. Each record is clipped on its own; N and n "
        "are public.",
        *(["Fixed batches: others are drawn in the place of the person's records."] if fixed else []),
        *_common(runs, "exact"),
    ]
    if notion == "gdp":
        whom = f"any {person[2:]} and any attacker{_untold(samplings)}"
        sentences += _limits(samplings, 1.0)
        return Claim("bound", whom, tuple(sentences), None, "add-or-remove-one")
    if known == 1.0:
        whom = f"any {person[2:]} and {_attacker(known, samplings)}"
        sentences += _limits(samplings, known)
        return Claim("bound", whom, tuple(sentences), not_a_member="a run without the person's records")
    forecast = susceptibility is None or (known > 0.0 and any(r.shaped_noise > 0.0 for r in runs))
    record = "typical records" if susceptibility is None else f"records of susceptibility at most {susceptibility:g}"
    return Claim(
        "forecast" if forecast else "bound",
        f"{person}, all {record}, and {_attacker(known, [])}",
        (*sentences, *_limits([], known), *_shaped(runs, noise_only=False)),
        list_caveat(runs),
        not_a_member="a run without the person's records",
    )


def with_cut_batches(claim: Claim, chance: float) -> Claim:
    """The same where batches that were drawn too large are cut, which happens with this chance at most."""
    cut = (
        "Batches that were drawn larger than max_batch_size are cut to it: the chance that any batch of the run is, "
        f"{chance:.2g}, is added to both kinds of error."
    )
    return dataclasses.replace(claim, assumptions=(*claim.assumptions, cut))


def _cut_epochs(runs: Sequence[NoisySGD]) -> bool:
    """A phase of balls in bins ends within an epoch, with which the next may go on: an epoch is accounted whole."""
    return any(r.sampling == "balls-in-bins" and r.num_steps % r.steps_per_epoch for r in runs[:-1])


def _several_epochs(runs: Sequence[NoisySGD]) -> bool:
    """Shuffled batches go on for more than one epoch, or a schedule does not say whether a phase goes on with one."""
    shuffled = [r for r in runs if r.sampling == "shuffled" and r.batch_size < r.dataset_size]
    return any(r.num_steps > r.steps_per_epoch for r in shuffled) or (bool(shuffled) and len(runs) > 1)


def _unproved_spread(susceptibility: Any, runs: Sequence[NoisySGD], known: float) -> bool:
    """The sentence that nobody has proved that the worst spread over the records is found."""
    if not isinstance(susceptibility, str):
        return False
    # One ray stands for all records, and for batches of different composition (docs/theory/random-record.md).
    one_ray = known < 1.0 and any(r.noise_std > 0.0 and (known > 0.0 or r.sampling != "poisson") for r in runs)
    if known == 1.0 and all(r.sampling == "poisson" for r in runs):
        return False  # noise alone, for any record
    if _at_once(runs):
        return one_ray
    # How exposed a record is in a step follows from what was published before, which no proof here covers.
    by_history = susceptibility == "any"
    # A record of one level in a phase has another where noise, clipping or sampling differ.
    some_phases = len(runs) > 1 and any(r.noise_std > 0.0 for r in runs)
    # By noise alone it has to be equally far from all others, which a constant susceptibility does not say.
    by_distance = known < 1.0 and any(r.noise_std > 0.0 and _effective(r) in ("fixed", "shuffled") for r in runs)
    return one_ray or by_history or some_phases or by_distance


def _at_once(runs: Sequence[NoisySGD]) -> bool:
    """One step, or full batches, of whose stacked gradients only the sum counts."""
    return sum(r.num_steps for r in runs) == 1 or all(_effective(r) == "full" for r in runs)


def _limits(samplings: Sequence[Sampling], known: float) -> list[str]:
    """Sentences on the attacker who is not covered and on the central limit theorem."""
    sentences = []
    if known > 0.0 and ("fixed" in samplings or "shuffled" in samplings):
        sentences.append(
            "Not covered: an attacker who knows which batches the others are in. With batches of a fixed size counting "
            "shows who is missing, and no noise prevents that."
        )
    if known != 1.0:
        sentences.append(
            "Sums of gradients that the attacker does not know are assumed Gaussian (central limit theorem): an "
            "approximation for small batches, heavy tails, and gradients that take few values (quantised or sparse)."
        )
    return sentences


def _effective(run: NoisySGD) -> Sampling:
    """A batch of all records is a full batch, unless each record is drawn on its own."""
    return "full" if run.batch_size == run.dataset_size and run.sampling not in RANDOM_SIZES else run.sampling


def _record(susceptibility: Any, runs: Sequence[NoisySGD], noise_only: bool) -> tuple[str, list[str]]:
    """The record that a curve is about, and a sentence or two on it."""
    if isinstance(susceptibility, str):
        if noise_only:
            about = [
                "The record is one of the members at random, whatever their gradients are like: the clipped gradients "
                "of two of them differ by sqrt(2) clip_norm in the mean square; the worst spread is taken."
            ]
        else:
            about = [
                "The record is one of the members at random, whatever their gradients are like: susceptibilities have "
                "the mean num_params (or rank), clipped gradients lie within clip_norm on average; the worst spread of "
                "both is taken."
            ]
            if any(r.noise_std > 0.0 for r in runs):
                about.append(
                    "With noise, the variance that a record takes away in its own direction is that of a record of "
                    "average proportions: a term of order 1/batch_size in one direction."
                )
        if _at_once(runs):
            return "a random record", about
        if susceptibility == "any-constant" and noise_only:
            return "a random record that is equally far from the others in all steps", about
        if susceptibility == "any-constant":
            return "a random record whose susceptibility stays the same in all steps", about
        return "a random record (equally exposed in a share of the steps)", [
            *about,
            "Over time the worst case is sought among records that are equally exposed in some of the steps and not at "
            "all in the others. That no other pattern is worse is not proved, nor is one covered that follows from "
            "what was published before.",
        ]
    if noise_only:
        return "any record", ["Noise alone protects: the susceptibility plays no part."]
    if susceptibility is None:
        size = " and ".join(dict.fromkeys(f"{r.num_params:,}" for r in runs))
        return "a typical record", [
            f"Susceptibility K = num_params = {size} is that of a typical record, not a bound: pass a number, measured "
            "values or 'any' to cover the exposed ones."
        ]
    values = np.ravel(np.asarray(susceptibility, dtype=np.float64))
    stacked = all(_effective(r) == "full" for r in runs) and sum(r.num_steps for r in runs) > 1
    meaning = " on average over the steps" if stacked else " at every step"
    if values.size == 1:
        return f"a record of susceptibility at most {values[0]:g}", [
            f"The curve bounds records of susceptibility at most {values[0]:g}{meaning}."
        ]
    return f"a random one of {values.size:,} records of measured susceptibility", [
        f"Stochastic composition over {values.size} measured susceptibilities (mean {values.mean():.4g}, largest "
        f"{values.max():.4g}): the curve of a random record, not of the most exposed one."
    ]


def _attacker(known: float, samplings: Sequence[Sampling]) -> str:
    if known == 0.0:
        return "an attacker who knows the distribution of the data but no members"
    share = "all" if known == 1.0 else f"{100.0 * known:g}% of the"
    # Batches of a known size give away who is missing; each record of a Poisson batch is drawn on its own.
    untold = " but not their batches" if "fixed" in samplings or "shuffled" in samplings else ""
    return f"an attacker who knows {share} other members{untold}"


def _untold(samplings: Sequence[Sampling]) -> str:
    """What even an attacker who knows everything else must not be told."""
    return " who is not told the batches" if "fixed" in samplings else ""


def _reuse(samplings: Sequence[Sampling], mixed: bool, epochs: bool) -> list[str]:
    if mixed:
        return [
            "Full batches hide a record among others that are unknown and the same in all phases: the composition of "
            "several phases is a forecast."
        ]
    sentences = []
    if "fixed" in samplings or "poisson" in samplings:
        sentences.append(
            "The records are reused in every step; only the draw of the batches is random. Susceptibilities are "
            "against the covariance of the other records' gradients."
        )
    if "full" in samplings:
        sentences.append(
            "The gradients of all steps are taken together: the susceptibility that counts is that of the stacked "
            "gradients, divided by the number of steps."
        )
    if epochs:
        sentences.append(
            "Batches of one epoch hold different records, so the answer is exact for one; later epochs use the same "
            "records again, and their composition is a forecast that was on the safe side in every simulation. In a "
            "schedule each phase begins a new epoch."
        )
    return sentences


def _shaped(runs: Sequence[NoisySGD], noise_only: bool) -> list[str]:
    if all(r.shaped_noise == 0.0 for r in runs):
        return []
    if noise_only:
        return ["Noise shaped like the gradients is not counted: it bounds no single gradient."]
    return [
        "Shaped noise has at least shaped_noise^2 times the covariance of the gradients, in every direction, is drawn "
        "anew at every step, and its shape does not depend on the record."
    ]


def _common(runs: Sequence[NoisySGD], composition: str) -> list[str]:
    sentences = [_SAMPLING[s] for s in dict.fromkeys(r.sampling for r in runs)]
    if composition == "clt":
        sentences.append(
            "Steps are composed by a central limit theorem for many small steps: an approximation that can be "
            "optimistic."
        )
    else:
        sentences.append(
            "Steps are composed exactly, on a grid that errs on the attacker's side (by at most `tpr_error` in TPR)."
        )
    low, high = DEFAULT_FPR_RANGE
    sentences.append(
        "The equivalent mu is the smallest whose Gaussian curve holds at every false-positive rate from "
        f"{low:g} to 1 - {1 - high:.0e}; it says nothing beyond that range."
    )
    return sentences
