"""The words of the accountant's answers: what an attacker finds, what that is worth, and a target and its measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from gmip._numbers import number, percent, rate
from gmip.accounting.tradeoff import TradeOff
from gmip.vocabulary import Kind, NoisySGD, PrivacyTarget, Rate

MU_OF_RUN: Final = "mu of the run, FPRs from 1e-5 to 1 - 1e-5"
NOISE: Final = "noise std on the mean gradient"
NO_PRIVACY: Final = ("differential privacy", "none without noise")  # a row of a table
_ADVANTAGE: Final = "advantage (TPR - FPR)"
_EPSILON_OF: Final = {"gmip": " of membership (of differential privacy: --notion gdp)", "gdp": ""}


def most(kind: Kind) -> str:
    """How a number of a bound, or of a forecast, begins."""
    return "at most" if kind == "bound" else "about"


def at_most(curve: TradeOff) -> str:
    """ "at most" where the curve is a bound."""
    return most(curve.kind)


def found(curve: TradeOff, fpr: str | float) -> str:
    """What an attacker finds at a false-alarm rate, as a clause."""
    share = percent(curve.tpr_at(float(fpr)), "up")
    finds = "finds at most" if curve.kind == "bound" else "is expected to find about"
    return f"At a {rate(fpr)} false-alarm rate, an attacker {finds} {share} of the members"


def members_found(fpr: str | float, kind: Kind | None = None) -> str:
    """The name of a share of the members, in tables."""
    return f"members found at {rate(fpr)} false alarms{'' if kind is None else f', {most(kind)}'}"


def standing(curve: TradeOff) -> str:
    """Bound or forecast, what "not a member" means, and the caveat that must not be left out."""
    kind = "A bound." if curve.kind == "bound" else "A forecast, not a bound."
    if curve.claim.not_a_member is not None:
        kind = f"{kind} Compared with: {curve.claim.not_a_member}."
    return kind if curve.claim.caveat is None else f"{kind} {curve.claim.caveat}"


def beside(gdp: TradeOff | None) -> list[str]:
    """The caveat of the differential privacy that stands beside an answer."""
    caveat = None if gdp is None else gdp.claim.caveat
    return [] if caveat is None else [f"Differential privacy here: {caveat}"]


def mu_and_epsilon(delta: float) -> str:
    """What a reader of a table with both has to know."""
    return (
        "mu and epsilon of differential privacy are different things: mu holds at every FPR, epsilon at delta = "
        f"{delta:g}. Do not convert one into the other."
    )


def proved_instead(run: NoisySGD, curve: TradeOff) -> list[str]:
    """Where noise on shuffled epochs gives a forecast: what gives a bound."""
    if run.sampling != "shuffled" or run.noise_std == 0.0 or curve.kind == "bound":
        return []
    knows = "" if curve.claim.adjacency is not None else ", with --attacker-knows 1"
    return [f"For a bound draw batches otherwise: --sampling balls-in-bins or poisson{knows}."]


# -- a privacy target --------------------------------------------------------------------------------------------------


def target_name(target: PrivacyTarget) -> str:
    """What is measured, in tables."""
    if target.rate is not None:
        return members_found(target.rate.fpr)
    if target.delta is not None:
        return f"epsilon{_EPSILON_OF[target.notion]} at delta = {target.delta:g}"
    return MU_OF_RUN if target.measure == "mu" else _ADVANTAGE


def target_shown(target: PrivacyTarget, value: float) -> str:
    """What was measured, rounded up."""
    return percent(min(value, 1.0), "up") if target.is_share else number(value, "up")


def exposure_words(target: PrivacyTarget, value: float) -> str:
    """What was measured, and where."""
    if target.rate is not None:
        return f"{target_shown(target, value)} of the members at {rate(target.rate.fpr)} false alarms"
    return f"{target.measure} {target_shown(target, value)}"


def reached(target: PrivacyTarget, value: float, kind: Kind) -> str:
    """What then holds: a guarantee, or a forecast."""
    return f"{'guaranteed' if kind == 'bound' else 'forecast'}: {most(kind)} {exposure_words(target, value)}"


def target_sentence(target: PrivacyTarget, curve: TradeOff) -> str:
    """What holds once it is met, in the words that the curve's kind allows; of differential privacy no mu without its
    range."""
    bound = curve.kind == "bound"
    if target.rate is not None:
        at, limit = f"at a {rate(target.rate.fpr)} false-alarm rate", rate(target.rate.tpr)
        if bound:
            return f"{at}, an attacker finds at most {limit} of the members"
        return f"{at}, an attacker is expected to find about {limit} of the members or fewer"
    at = "" if target.delta is None else f" at delta = {target.delta:g}"
    if target.measure == "advantage":
        what, limit = f"the attacker's {_ADVANTAGE}", rate(target.value)
    elif target.measure == "epsilon":
        what, limit = f"epsilon{_EPSILON_OF[target.notion]}", f"{target.value:g}"
    else:
        over = "" if curve.claim.adjacency is None else " over FPRs from 1e-5 to 1 - 1e-5"
        what, limit = f"the mu of the run{over}", f"{target.value}"
    return f"{what} is {'at most' if bound else 'expected to stay within'} {limit}{at}"


def goal_words(goal: Rate) -> str:
    return f"at most {rate(goal.tpr)} of the members at {rate(goal.fpr)} false alarms"


def goal_sentence(goal: Rate, kind: Kind, *, met: bool) -> str:
    """Whether a curve of this kind keeps the goal."""
    if not met:
        return f"Exceeds the target: {goal_words(goal)}."
    if kind == "bound":
        return f"Guaranteed: {goal_words(goal)}."
    return f"Probably within the target (forecast, not guaranteed): {goal_words(goal)}."


def clip_origin(quantile: float, records: int) -> str:
    """Where a clip norm of `gmip.tuning.auto_clip` is from: traces and people are told."""
    share = percent(quantile, "nearest")
    return f"the {share} quantile of the gradient norms of {records} records that are no members, before training"


# -- conversions -------------------------------------------------------------------------------------------------------


class Converted(NamedTuple):
    """What a conversion says: names and numbers, a sentence, and what it assumes."""

    rows: list[tuple[str, str]]
    sentence: str
    assumptions: tuple[str, ...]


_DIGITS: Final = 5  # conversions are exact: a few more than for a bound
_RESULTS: Final = {
    "mu_mip": "mu of membership-inference privacy",
    "mu_dp": "mu of differential privacy",
    "mu_dp_corollary": "by the formula of the paper's corollary alone",
    "mu": "mu of differential privacy, at most",
    "epsilon": "epsilon",
    "delta": "delta",
    "noise_std": "noise std on the batch mean",
    "noise_multiplier": "noise multiplier (Opacus)",
    "dong_sigma": "sigma (Dong et al.)",
    "mu_dp_replace_one": "mu of one step, replace-one",
    "mu_dp_add_remove": "mu of one step, add-or-remove-one",
}
_ONE_STEP: Final = (
    "For one step that every record takes part in; neighbouring data sets differ by replacing one record.",
    "For a typical record (susceptibility K = num_params), not the most exposed one.",
    "The trade-off curve of the step is treated as Gaussian.",
)
_SAME_NEIGHBOURS: Final = (
    "mu, epsilon and delta use the same definition of neighbouring data sets.",
    "mu holds at every false-positive rate; for the epsilon of a training run ask its own curve, which gives a smaller "
    "one: gmip account --delta.",
)


def converted(given: Mapping[str, float], values: Mapping[str, float]) -> Converted:
    """The words of `gmip convert`: what was given, and what follows."""
    # A mu that keeps an epsilon is a budget; all else is what is spent.
    budget: Literal["up", "down"] = "down" if "mu" in values else "up"
    shown = {name: number(value, budget, _DIGITS) for name, value in values.items()}
    known = {name: f"{value:g}" for name, value in given.items()}
    sentence, assumptions = _conversion(known | shown, next(iter(values)), values)
    return Converted([(_RESULTS[name], text) for name, text in shown.items()], sentence, assumptions)


def _conversion(x: Mapping[str, str], found: str, values: Mapping[str, float]) -> tuple[str, tuple[str, ...]]:
    """The sentence about the number that was asked for, and what it assumes. x : all numbers, as they are shown."""
    if found == "noise_std":
        said = (
            f"One step has mu {x['mu_dp_replace_one']} in differential privacy if neighbouring data sets replace one "
            f"record, {x['mu_dp_add_remove']} if they add or remove one."
        )
        alone = ("For one step that every record takes part in: sampling adds no privacy.",)
        return said if values["noise_std"] else "Without noise there is no differential privacy.", alone
    infinite = x[found] == "infinite"
    if found == "mu_mip":
        said = (
            f"A step with mu {x['mu_dp']} in differential privacy has mu {x['mu_mip']} in membership-inference privacy."
        )
        return said, _ONE_STEP
    if found == "mu_dp":
        said = (
            f"A step with mu {x['mu_mip']} in membership-inference privacy has mu {x['mu_dp']} in differential privacy."
        )
        none = f"No noise is needed for mu {x['mu_mip']}, and without noise there is no differential privacy."
        return none if infinite else said, _ONE_STEP
    pair = f"({x['epsilon']}, {x['delta']})-differentially private"
    if found == "mu":
        said = f"Every mechanism is {pair}." if infinite else f"A mechanism with mu {x['mu']} or less is {pair}."
    elif found == "epsilon" and infinite:
        said = f"There is no finite epsilon for mu {x['mu_dp']} at delta {x['delta']}."
    else:
        said = f"A mechanism with mu {x['mu_dp']} is {pair}."
    return said, _SAME_NEIGHBOURS
