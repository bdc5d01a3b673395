"""`gmip convert`: between notions of privacy and between conventions for the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from gmip import _numbers
from gmip.accounting import convert as formulas
from gmip.cli import options, parse, show
from gmip.cli.errors import BadRequest, listed

__all__ = ["convert"]

PRIVACY = "Privacy"
DIGITS = 5  # conversions are exact: a few more than for a bound


class _Answer(NamedTuple):
    values: dict[str, float]
    rows: list[tuple[str, str]]
    sentence: str
    assumptions: tuple[str, ...] = ()


def convert(
    mu_dp: Annotated[
        str | None,
        options.option(
            "--mu-dp",
            "MU",
            PRIVACY,
            "mu of Gaussian differential privacy, which holds at every FPR (the gdp_mu of an answer, not its mu); with "
            "--params, of one step.",
        ),
    ] = None,
    mu_mip: Annotated[
        str | None,
        options.option("--mu-mip", "MU", PRIVACY, "mu of Gaussian membership-inference privacy, of one step."),
    ] = None,
    epsilon: Annotated[str | None, options.option("--epsilon", "E", PRIVACY, "epsilon of (epsilon, delta)-DP.")] = None,
    delta: Annotated[
        str | None, options.option("--delta", "D", PRIVACY, "delta of (epsilon, delta)-DP, from 0 to 1.")
    ] = None,
    params: Annotated[
        str | None,
        options.option("--params", "d", options.RUN, "Trainable parameters."),
    ] = None,
    batch_size: Annotated[
        str | None,
        options.option("--batch-size", "n", options.RUN, "Examples averaged in one step."),
    ] = None,
    clip: options.Clip = None,
    noise_std: options.NoiseStd = None,
    noise_multiplier: options.NoiseMultiplier = None,
    dong_sigma: Annotated[
        str | None,
        options.option(
            "--dong-sigma",
            "SIGMA",
            options.NOISE,
            "The same noise in the convention of Dong et al.: in units of the most that replacing one record moves the "
            "mean. SIGMA = STD n / (2 C).",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Convert between mu, (epsilon, delta) and noise conventions.

    Example: gmip convert --mu-dp 1 --delta 1e-5

    Pass one of these combinations:

    mu of one step: --mu-dp or --mu-mip, with --params and --batch-size.

    Differential privacy: two of --mu-dp, --epsilon and --delta.

    Noise: --noise-std, --noise-multiplier or --dong-sigma, with --clip and --batch-size.

    JSON keys: the inputs (--params is num_params, --clip is clip_norm), the
    results (some of mu_mip, mu_dp, mu_dp_corollary, mu, epsilon, delta,
    noise_std, noise_multiplier, dong_sigma, mu_dp_replace_one,
    mu_dp_add_remove), and assumptions.
    """
    typed = {
        "--mu-dp": mu_dp,
        "--mu-mip": mu_mip,
        "--epsilon": epsilon,
        "--delta": delta,
        "--params": params,
        "--batch-size": batch_size,
        "--clip": clip,
        "--noise-std": noise_std,
        "--noise-multiplier": noise_multiplier,
        "--dong-sigma": dong_sigma,
    }
    given = {option: text for option, text in typed.items() if text is not None}
    recipe = _RECIPES.get(frozenset(given))
    if recipe is None:
        raise _no_recipe(given)
    numbers: dict[str, Any] = {
        option: _READ.get(option, parse.non_negative)(option, text) for option, text in given.items()
    }
    answer = recipe(numbers)
    if json:
        inputs = {_KEYS.get(o, o.removeprefix("--").replace("-", "_")): value for o, value in numbers.items()}
        show.print_json({**inputs, **answer.values, "assumptions": list(answer.assumptions)})
    else:
        show.print_people(answer.rows, answer.sentence, answer.assumptions)


_KEYS = {"--params": "num_params", "--clip": "clip_norm"}
_READ: dict[str, Callable[[str, str], float]] = {
    "--params": parse.count,
    "--batch-size": parse.count,
    "--clip": parse.positive,
    "--delta": parse.probability,
}
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
    mu = formulas.gmip_mu_from_gdp_mu(x["--mu-dp"], num_params=x["--params"], batch_size=x["--batch-size"])
    shown = _numbers.number(mu, "up", DIGITS)
    text = f"A step with mu {x['--mu-dp']:g} in differential privacy has mu {shown} in membership-inference privacy."
    return _Answer({"mu_mip": mu}, [("mu of membership-inference privacy", shown)], text, _ONE_STEP)


def _dp_from_mip(x: Mapping[str, Any]) -> _Answer:
    mu = formulas.gdp_mu_from_gmip_mu(x["--mu-mip"], num_params=x["--params"], batch_size=x["--batch-size"])
    shown = _numbers.number(mu, "up", DIGITS)
    text = f"A step with mu {x['--mu-mip']:g} in membership-inference privacy has mu {shown} in differential privacy."
    if shown == "infinite":
        text = f"No noise is needed for mu {x['--mu-mip']:g}, and without noise there is no differential privacy."
    alone = formulas.corollary_gdp_mu_from_gmip_mu(
        x["--mu-mip"], num_params=x["--params"], batch_size=x["--batch-size"]
    )
    rows = [
        ("mu of differential privacy", shown),
        ("by the formula of the paper's corollary alone", _numbers.number(alone, "up", DIGITS)),
    ]
    return _Answer({"mu_dp": mu, "mu_dp_corollary": alone}, rows, text, _ONE_STEP)


def _mu_from_epsilon(x: Mapping[str, Any]) -> _Answer:
    mu = formulas.mu_from_epsilon_delta(epsilon=x["--epsilon"], delta=x["--delta"])
    shown = _numbers.number(mu, "down", DIGITS)  # a budget
    text = f"A mechanism with mu {shown} or less is ({x['--epsilon']:g}, {x['--delta']:g})-differentially private."
    if shown == "infinite":
        text = f"Every mechanism is ({x['--epsilon']:g}, {x['--delta']:g})-differentially private."
    return _Answer({"mu": mu}, [("mu of differential privacy, at most", shown)], text, _SAME_NEIGHBOURS)


def _epsilon_from_mu(x: Mapping[str, Any]) -> _Answer:
    epsilon = formulas.epsilon_from_mu(x["--mu-dp"], delta=x["--delta"])
    shown = _numbers.number(epsilon, "up", DIGITS)
    text = f"A mechanism with mu {x['--mu-dp']:g} is ({shown}, {x['--delta']:g})-differentially private."
    if shown == "infinite":
        text = f"There is no finite epsilon for mu {x['--mu-dp']:g} at delta {x['--delta']:g}."
    return _Answer({"epsilon": epsilon}, [("epsilon", shown)], text, _SAME_NEIGHBOURS)


def _delta_from_mu(x: Mapping[str, Any]) -> _Answer:
    delta = formulas.delta_from_mu(x["--mu-dp"], epsilon=x["--epsilon"])
    shown = _numbers.number(delta, "up", DIGITS)
    text = f"A mechanism with mu {x['--mu-dp']:g} is ({x['--epsilon']:g}, {shown})-differentially private."
    return _Answer({"delta": delta}, [("delta", shown)], text, _SAME_NEIGHBOURS)


def _noise(x: Mapping[str, Any]) -> _Answer:
    sizes = {"clip_norm": x["--clip"], "batch_size": x["--batch-size"]}
    if "--noise-multiplier" in x:
        std = formulas.noise_std_from_multiplier(x["--noise-multiplier"], **sizes)
    elif "--dong-sigma" in x:
        std = formulas.noise_std_from_dong_sigma(x["--dong-sigma"], **sizes)
    else:
        std = x["--noise-std"]
    multiplier = x.get("--noise-multiplier")
    if multiplier is None:
        multiplier = formulas.noise_multiplier_from_std(std, **sizes)
    sigma = x.get("--dong-sigma")
    if sigma is None:
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
    frozenset({"--mu-dp", "--params", "--batch-size"}): _mip_from_dp,
    frozenset({"--mu-mip", "--params", "--batch-size"}): _dp_from_mip,
    frozenset({"--epsilon", "--delta"}): _mu_from_epsilon,
    frozenset({"--mu-dp", "--delta"}): _epsilon_from_mu,
    frozenset({"--mu-dp", "--epsilon"}): _delta_from_mu,
    frozenset({"--noise-std", "--clip", "--batch-size"}): _noise,
    frozenset({"--noise-multiplier", "--clip", "--batch-size"}): _noise,
    frozenset({"--dong-sigma", "--clip", "--batch-size"}): _noise,
}


def _no_recipe(given: Mapping[str, str]) -> BadRequest:
    remedy = "pass one of the combinations that gmip convert --help lists"
    if not given:
        return BadRequest("There is nothing to convert", remedy=remedy)
    missing = [listed(sorted(recipe - given.keys())) for recipe in _RECIPES if given.keys() <= recipe]
    if missing:
        return BadRequest(f"{listed(given)} cannot be converted alone", remedy=f"add {', or '.join(missing)}")
    return BadRequest(f"{listed(given)} cannot be combined", remedy=remedy)
