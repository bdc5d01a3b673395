"""What to do about a run: the least noise, or the batch, for a target; what weakens the audit itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gmip._numbers import number
from gmip.accounting.account import account, coarse_epochs
from gmip.accounting.alternatives import Alternative, Ways, alternatives
from gmip.auditing.schema import Advice, AttackerAnswer, AttackOutcome, NoiseCurve, Verdict, Way
from gmip.vocabulary import NoisySGD, PrivacyTarget, Rate, weakest

_SECONDS: Final = 20.0  # for all ways to the target: shuffled epochs of long runs are left out one by one
_NOISE: Final = (0.25, 0.5, 0.71, 1.0, 1.4, 2.0, 4.0)  # of the noise that the goal needs


def advise(
    runs: Sequence[NoisySGD],
    verdict: Verdict,
    attacks: Sequence[AttackOutcome],
    *,
    goal: Rate,
    trained: bool = False,
    answer: AttackerAnswer | None = None,
) -> tuple[Advice, ...]:
    """Advice in the order of what matters.

    Parameters
    ----------
    runs : what ran, phase after phase; empty: how the model was trained is not known.
    goal : what is good enough.
    trained : whether `gmip train` did it, so that `gmip tune` can search for a better recipe.
    answer : about the strongest attacker that was tried, whose target the ways are to reach; None: about one who holds
        no list of members.
    """
    said: list[Advice] = []
    if verdict.kind == "exposed":
        said.append(Advice(kind="claim-refuted"))
    if any(one.guessed_seed is not None for one in attacks):
        said.append(Advice(kind="seed-guessed"))
    if not runs:
        if any(one.mu_lower > 0.0 for one in attacks):  # an attacker with a list comes last, and counts, too
            said.append(Advice(kind="find-less"))
        if verdict.kind == "measured":
            said.append(Advice(kind="say-claim"))
    elif answer is not None and answer.target == "guaranteed":
        said.append(Advice(kind="guaranteed-already"))
    else:
        said += _towards(runs, goal, trained, answer)
    if verdict.kind == "inconclusive" and verdict.candidates_needed is not None:
        said.append(Advice(kind="more-candidates", candidates=verdict.candidates_needed))
    return tuple(said)


def _towards(runs: Sequence[NoisySGD], goal: Rate, trained: bool, answer: AttackerAnswer | None) -> list[Advice]:
    """The ways to the goal, by the accountant: those that prove it first."""
    target = PrivacyTarget(target_tpr=goal, attacker_knows=0.0 if answer is None else answer.knows)
    ways = alternatives(runs, target, seconds=_SECONDS)
    found = sorted(ways.open, key=lambda way: way.curve.kind != "bound")
    said = _met(ways, answer) if ways.met else []
    if found and not any(one.kind == "bound-already" for one in said):
        said.append(Advice(kind="to-guarantee" if found[0].curve.kind == "bound" else "only-forecasts"))
    said += [_way(one) for one in found]
    if any(one.change == "noise" for one in ways.closed) and any(run.clip_norm is None for run in runs):
        said.append(Advice(kind="clip-first"))
    if ways.closed:
        said.append(Advice(kind="closed-ways", closed=ways.closed))
    if trained and not ways.met:
        said.append(Advice(kind="tune"))
    return said


def _met(ways: Ways, answer: AttackerAnswer | None) -> list[Advice]:
    """Where the run keeps the goal as it is."""
    if ways.curve.kind == "bound" or (answer is not None and answer.why == "imprecise"):  # if it is as declared
        return [Advice(kind="bound-already")]
    return [Advice(kind="forecast-already", tpr=ways.now, for_whom=ways.curve.for_whom)]


def _way(one: Alternative) -> Advice:
    curve = one.curve
    way = Way(change=one.change, runs=one.runs, tpr=one.value, kind=curve.kind, for_whom=curve.for_whom)
    return Advice(kind="way", way=way)


def noise_curve(runs: Sequence[NoisySGD], *, fpr: float, needed: float | None = None) -> NoiseCurve | None:
    """The accountant's TPR at `fpr` by the noise of the run; None without runs.

    `needed` : noise_std of the (first phase of the) run that reaches the goal, where it is known: the levels are
    centred on it; else on the run's own noise, or on a noise multiplier of 1.

    Guarantees
    ----------
    Each number is that of `account`, on grids that err on the attacker's side (shuffled epochs: on coarse ones).
    """
    if not runs:
        return None
    levels = _levels(runs[0], needed)
    with coarse_epochs():  # which only shuffled epochs take notice of
        curves = [account(_changed(runs, level)) for level in levels]
    return NoiseCurve(
        noise_std=levels,
        tpr=tuple(min(1.0, max(0.0, float(curve.tpr_at(fpr)))) for curve in curves),
        own=levels.index(runs[0].noise_std),
        kind=weakest(curve.claim.kind for curve in curves),
        for_whom=curves[0].for_whom,
    )


def _levels(run: NoisySGD, needed: float | None) -> tuple[float, ...]:
    if run.clip_norm is None:
        return (0.0,)
    centre = needed or run.noise_std or run.clip_norm / run.batch_size
    rounded = {float(number(centre * factor, "up", 3)) for factor in _NOISE if factor != 1.0}
    own = run.noise_std
    apart = {level for level in rounded if abs(level - own) > 0.1 * own}  # hardly another noise
    return tuple(sorted({0.0, own, centre, *apart}))


def _changed(runs: Sequence[NoisySGD], level: float) -> list[NoisySGD]:
    first = runs[0]
    if len(runs) == 1:
        return [first.replace(noise_std=level)]
    if level == first.noise_std:
        return list(runs)

    def scaled(run: NoisySGD) -> float:
        if first.noise_std > 0.0:
            return run.noise_std * (level / first.noise_std)
        multiplier = first.replace(noise_std=level).noise_multiplier  # where no phase had noise, the same in each
        return level if run.clip_norm is None or multiplier is None else run.with_noise_multiplier(multiplier).noise_std

    return [run.replace(noise_std=scaled(run)) for run in runs]
