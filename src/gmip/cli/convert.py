"""`gmip convert`: between notions of privacy and between conventions for the noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from gmip import _numbers
from gmip.accounting import convert as formulas
from gmip.cli import show
from gmip.cli.errors import BadRequest, listed, option_name
from gmip.cli.options import Count, NonNegative, Option, Probability, Settings, from_settings, names_of
from gmip.cli.shared_settings import NOISE, RUN, ClipSettings, NoiseSettings, Printed

__all__ = ["convert"]

PRIVACY: Final = "Privacy"
DIGITS: Final = 5  # conversions are exact: a few more than for a bound


class _Answer(NamedTuple):
    values: dict[str, float]
    rows: list[tuple[str, str]]
    sentence: str
    assumptions: tuple[str, ...] = ()


class _Privacy(Settings):
    mu_dp: Annotated[
        NonNegative | None,
        Option("MU", PRIVACY),
        Field(
            description="mu of Gaussian differential privacy, which holds at every FPR (the gdp_mu of an answer, not "
            "its mu); with --params, of one step."
        ),
    ] = None
    mu_mip: Annotated[
        NonNegative | None,
        Option("MU", PRIVACY),
        Field(description="mu of Gaussian membership-inference privacy, of one step."),
    ] = None
    epsilon: Annotated[
        NonNegative | None, Option("E", PRIVACY), Field(description="epsilon of (epsilon, delta)-DP.")
    ] = None
    delta: Annotated[
        Probability | None, Option("D", PRIVACY), Field(description="delta of (epsilon, delta)-DP, from 0 to 1.")
    ] = None
    noise_std: Annotated[
        NonNegative | None,
        Option("STD", NOISE),
        Field(description="Standard deviation of the noise on the batch MEAN."),
    ] = None
    num_params: Annotated[Count | None, Option("d", RUN), Field(description="Trainable parameters.")] = None
    batch_size: Annotated[Count | None, Option("n", RUN), Field(description="Examples averaged in one step.")] = None


class ConvertSettings(Printed, NoiseSettings, ClipSettings, _Privacy):
    """Settings of `gmip convert`."""


@from_settings(ConvertSettings)
def convert(asked: ConvertSettings) -> None:
    """Convert between mu, (epsilon, delta) and noise conventions.

    Example: gmip convert --mu-dp 1 --delta 1e-5

    Pass one of these combinations:

    mu of one step: --mu-dp or --mu-mip, with --params and --batch-size.

    Differential privacy: two of --mu-dp, --epsilon and --delta.

    Noise: --noise-std or --noise-multiplier, with --clip and --batch-size.

    JSON keys: the inputs (--params is num_params, --clip is clip_norm), the
    results (some of mu_mip, mu_dp, mu_dp_corollary, mu, epsilon, delta,
    noise_std, noise_multiplier, dong_sigma, mu_dp_replace_one,
    mu_dp_add_remove), and assumptions.
    """
    numbers = {name: value for name, value in asked if name in names_of(ConvertSettings) and name != "as_json"}
    given = {name: value for name, value in numbers.items() if value is not None}
    recipe = _RECIPES.get(frozenset(given))
    if recipe is None:
        raise _no_recipe(given)
    answer = recipe(given)
    if asked.as_json:
        show.print_json({**given, **answer.values, "assumptions": list(answer.assumptions)})
    else:
        show.print_people(answer.rows, answer.sentence, answer.assumptions)


_ONE_STEP = (
    "For one step that every record takes part in; neighbouring data sets differ by replacing one record.",
    "For a typical record (susceptibility K = num_params), not the most exposed one.",
    "The trade-off curve of the step is treated as Gaussian.",
)
_SAME_NEIGHBOURS = (
    "mu, epsilon and delta use the same definition of neighbouring data sets.",
    "mu holds at every false-positive rate; for the epsilon of a training run ask its own curve, which gives a smaller "
    "one: gmip account --delta.",
)


def _mip_from_dp(x: Mapping[str, Any]) -> _Answer:
    mu = formulas.gmip_mu_from_gdp_mu(x["mu_dp"], num_params=x["num_params"], batch_size=x["batch_size"])
    shown = _numbers.number(mu, "up", DIGITS)
    text = f"A step with mu {x['mu_dp']:g} in differential privacy has mu {shown} in membership-inference privacy."
    return _Answer({"mu_mip": mu}, [("mu of membership-inference privacy", shown)], text, _ONE_STEP)


def _dp_from_mip(x: Mapping[str, Any]) -> _Answer:
    mu = formulas.gdp_mu_from_gmip_mu(x["mu_mip"], num_params=x["num_params"], batch_size=x["batch_size"])
    shown = _numbers.number(mu, "up", DIGITS)
    text = f"A step with mu {x['mu_mip']:g} in membership-inference privacy has mu {shown} in differential privacy."
    if shown == "infinite":
        text = f"No noise is needed for mu {x['mu_mip']:g}, and without noise there is no differential privacy."
    alone = formulas.corollary_gdp_mu_from_gmip_mu(x["mu_mip"], num_params=x["num_params"], batch_size=x["batch_size"])
    rows = [
        ("mu of differential privacy", shown),
        ("by the formula of the paper's corollary alone", _numbers.number(alone, "up", DIGITS)),
    ]
    return _Answer({"mu_dp": mu, "mu_dp_corollary": alone}, rows, text, _ONE_STEP)


def _mu_from_epsilon(x: Mapping[str, Any]) -> _Answer:
    mu = formulas.mu_from_epsilon_delta(epsilon=x["epsilon"], delta=x["delta"])
    shown = _numbers.number(mu, "down", DIGITS)  # a budget
    text = f"A mechanism with mu {shown} or less is ({x['epsilon']:g}, {x['delta']:g})-differentially private."
    if shown == "infinite":
        text = f"Every mechanism is ({x['epsilon']:g}, {x['delta']:g})-differentially private."
    return _Answer({"mu": mu}, [("mu of differential privacy, at most", shown)], text, _SAME_NEIGHBOURS)


def _epsilon_from_mu(x: Mapping[str, Any]) -> _Answer:
    epsilon = formulas.epsilon_from_mu(x["mu_dp"], delta=x["delta"])
    shown = _numbers.number(epsilon, "up", DIGITS)
    text = f"A mechanism with mu {x['mu_dp']:g} is ({shown}, {x['delta']:g})-differentially private."
    if shown == "infinite":
        text = f"There is no finite epsilon for mu {x['mu_dp']:g} at delta {x['delta']:g}."
    return _Answer({"epsilon": epsilon}, [("epsilon", shown)], text, _SAME_NEIGHBOURS)


def _delta_from_mu(x: Mapping[str, Any]) -> _Answer:
    delta = formulas.delta_from_mu(x["mu_dp"], epsilon=x["epsilon"])
    shown = _numbers.number(delta, "up", DIGITS)
    text = f"A mechanism with mu {x['mu_dp']:g} is ({x['epsilon']:g}, {shown})-differentially private."
    return _Answer({"delta": delta}, [("delta", shown)], text, _SAME_NEIGHBOURS)


def _noise(x: Mapping[str, Any]) -> _Answer:
    sizes = {"clip_norm": x["clip_norm"], "batch_size": x["batch_size"]}
    if "noise_multiplier" in x:
        std = formulas.noise_std_from_multiplier(x["noise_multiplier"], **sizes)
    else:
        std = x["noise_std"]
    multiplier = x.get("noise_multiplier")
    if multiplier is None:
        multiplier = formulas.noise_multiplier_from_std(std, **sizes)
    sigma = formulas.dong_sigma_from_noise_std(std, **sizes)
    replace = formulas.gdp_mu_per_step(multiplier, adjacency="replace-one")
    add = formulas.gdp_mu_per_step(multiplier, adjacency="add-remove")
    values = {
        "noise_std": std,
        "noise_multiplier": multiplier,
        "dong_sigma": sigma,
        "mu_dp_replace_one": replace,
        "mu_dp_add_remove": add,
    }
    rows = [
        ("noise std on the batch mean", _numbers.number(std, "up", DIGITS)),
        ("noise multiplier (Opacus)", _numbers.number(multiplier, "up", DIGITS)),
        ("sigma (Dong et al.)", _numbers.number(sigma, "up", DIGITS)),
        ("mu of one step, replace-one", _numbers.number(replace, "up", DIGITS)),
        ("mu of one step, add-or-remove-one", _numbers.number(add, "up", DIGITS)),
    ]
    text = (
        f"One step has mu {_numbers.number(replace, 'up', DIGITS)} in differential privacy if neighbouring data "
        f"sets replace one record, {_numbers.number(add, 'up', DIGITS)} if they add or remove one."
    )
    if std == 0.0:
        text = "Without noise there is no differential privacy."
    return _Answer(values, rows, text, ("For one step that every record takes part in: sampling adds no privacy.",))


_RECIPES: dict[frozenset[str], Callable[[Mapping[str, Any]], _Answer]] = {
    frozenset({"mu_dp", "num_params", "batch_size"}): _mip_from_dp,
    frozenset({"mu_mip", "num_params", "batch_size"}): _dp_from_mip,
    frozenset({"epsilon", "delta"}): _mu_from_epsilon,
    frozenset({"mu_dp", "delta"}): _epsilon_from_mu,
    frozenset({"mu_dp", "epsilon"}): _delta_from_mu,
    frozenset({"noise_std", "clip_norm", "batch_size"}): _noise,
    frozenset({"noise_multiplier", "clip_norm", "batch_size"}): _noise,
}


def _no_recipe(given: Collection[str]) -> BadRequest:
    remedy = "pass one of the combinations that gmip convert --help lists"
    if not given:
        return BadRequest("There is nothing to convert", remedy=remedy)
    said = listed([option_name(name) for name in given])
    missing = [
        listed(sorted(option_name(name) for name in recipe - set(given))) for recipe in _RECIPES if set(given) <= recipe
    ]
    if missing:
        return BadRequest(f"{said} cannot be converted alone", remedy=f"add {', or '.join(missing)}")
    return BadRequest(f"{said} cannot be combined", remedy=remedy)
