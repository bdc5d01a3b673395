"""`gmip convert`: between notions of privacy and between conventions for the noise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, Final

from pydantic import Field

from gmip._validate import listed
from gmip.accounting import convert as formulas
from gmip.cli import parse, show
from gmip.cli.errors import BadRequest, option_name
from gmip.cli.options import Option, from_settings
from gmip.cli.shared_settings import OutputSettings
from gmip.report.account_words import converted

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
    values = recipe(**given)
    said = converted(given, values)
    if asked.as_json:
        show.print_json({**given, **values, "assumptions": list(said.assumptions)})
    else:
        show.print_people(said.rows, said.sentence, said.assumptions)


def _noise(
    clip_norm: float, batch_size: int, noise_std: float | None = None, noise_multiplier: float | None = None
) -> dict[str, float]:
    """All conventions for the noise, and the mu of one step by it, from one of them."""
    if noise_std is None:
        assert noise_multiplier is not None
        noise_std = formulas.noise_std_from_multiplier(noise_multiplier, clip_norm=clip_norm, batch_size=batch_size)
    if noise_multiplier is None:
        noise_multiplier = formulas.noise_multiplier_from_std(noise_std, clip_norm=clip_norm, batch_size=batch_size)
    return {
        "noise_std": noise_std,
        "noise_multiplier": noise_multiplier,
        "dong_sigma": formulas.dong_sigma_from_noise_std(noise_std, clip_norm=clip_norm, batch_size=batch_size),
        "mu_dp_replace_one": formulas.gdp_mu_per_step(noise_multiplier, adjacency="replace-one"),
        "mu_dp_add_remove": formulas.gdp_mu_per_step(noise_multiplier, adjacency="add-remove"),
    }


# What is given -> what follows.
_RECIPES: Final[dict[frozenset[str], Callable[..., dict[str, float]]]] = {
    frozenset({"mu_dp", "num_params", "batch_size"}): lambda mu_dp, **sizes: {
        "mu_mip": formulas.gmip_mu_from_gdp_mu(mu_dp, **sizes)
    },
    frozenset({"mu_mip", "num_params", "batch_size"}): lambda mu_mip, **sizes: {
        "mu_dp": formulas.gdp_mu_from_gmip_mu(mu_mip, **sizes),
        "mu_dp_corollary": formulas.corollary_gdp_mu_from_gmip_mu(mu_mip, **sizes),
    },
    frozenset({"epsilon", "delta"}): lambda **given: {"mu": formulas.mu_from_epsilon_delta(**given)},
    frozenset({"mu_dp", "delta"}): lambda mu_dp, delta: {"epsilon": formulas.epsilon_from_mu(mu_dp, delta=delta)},
    frozenset({"mu_dp", "epsilon"}): lambda mu_dp, epsilon: {"delta": formulas.delta_from_mu(mu_dp, epsilon=epsilon)},
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
