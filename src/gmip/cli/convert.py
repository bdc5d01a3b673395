"""`gmip convert`: between notions of privacy and between conventions for the noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from gmip import _numbers
from gmip._validate import listed
from gmip.accounting import convert as formulas
from gmip.cli import parse, show
from gmip.cli.errors import BadRequest, option_name
from gmip.cli.options import Option, from_settings
from gmip.cli.shared_settings import OutputSettings

DIGITS: Final = 5  # conversions are exact: a few more than for a bound


class _Answer(NamedTuple):
    values: dict[str, float]
    rows: list[tuple[str, str]]
    sentence: str
    assumptions: tuple[str, ...] = ()


_READERS: Final[dict[str, Callable[[str, str], float]]] = {
    "mu_dp": parse.non_negative,
    "mu_mip": parse.non_negative,
    "epsilon": parse.non_negative,
    "delta": parse.probability,
    "noise_std": parse.non_negative,
    "noise_multiplier": parse.non_negative,
    "clip_norm": parse.positive,
    "num_params": parse.count,
    "batch_size": parse.count,
}


_NAMES: Final = {option_name(name).removeprefix("--"): name for name in _READERS}  # as typed: as options of others


def _given(option: str, texts: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        key = _NAMES[parse.one_of("NAME", name, tuple(_NAMES))]
        if not equals or key in found:
            raise BadRequest(f"{text!r} is not NAME=VALUE, each name once", remedy="write mu-dp=1 delta=1e-5")
        found[key] = _READERS[key](name, value)
    return found


class ConvertSettings(OutputSettings):
    """Settings of `gmip convert`."""

    numbers: Annotated[
        dict[str, Any],
        Option("NAME=VALUE", None, _given, argument=True, repeated=True),
        Field(description="Numbers to convert: one of the combinations above.", default_factory=dict),
    ]


@from_settings(ConvertSettings)
def convert(asked: ConvertSettings) -> None:
    """Convert between mu, (epsilon, delta) and noise conventions.

    Example: gmip convert mu-dp=1 delta=1e-5

    Pass one of these combinations:

    mu of one step: mu-dp or mu-mip, with params and batch-size.

    Differential privacy: two of mu-dp, epsilon and delta.

    Noise: noise-std or noise-multiplier, with clip and batch-size.

    mu-dp is of Gaussian differential privacy, which holds at every FPR (the
    gdp_mu of an answer, not its mu); mu-mip of Gaussian membership-inference
    privacy; noise-std is on the batch MEAN.

    JSON keys: the inputs (params is num_params, clip is clip_norm), the
    results (some of mu_mip, mu_dp, mu_dp_corollary, mu, epsilon, delta,
    noise_std, noise_multiplier, dong_sigma, mu_dp_replace_one,
    mu_dp_add_remove), and assumptions.
    """
    given = asked.numbers
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
    typed = {name: text for text, name in _NAMES.items()}
    said = listed([typed[name] for name in given])
    missing = [listed(sorted(typed[one] for one in recipe - set(given))) for recipe in _RECIPES if set(given) <= recipe]
    if missing:
        return BadRequest(f"{said} cannot be converted alone", remedy=f"add {', or '.join(missing)}")
    return BadRequest(f"{said} cannot be combined", remedy=remedy)
