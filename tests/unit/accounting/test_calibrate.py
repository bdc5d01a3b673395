from collections.abc import Callable
from typing import Any

import pytest

from gmip import Gaussian, InvalidArgument, NoisySGD, TradeOff, UnreachableTarget, account, calibrate

RUN = NoisySGD(dataset_size=48_000, batch_size=400, num_steps=1_200, num_params=650, clip_norm=500.0)


@pytest.mark.parametrize("notion", ["gmip", "gdp"])
def test_least_noise_for_each_target(notion: str) -> None:
    targets: list[tuple[dict[str, Any], float, Callable[[TradeOff], float]]] = [
        ({"target_mu": 0.4}, 0.4, lambda c: c.equivalent_mu()),
        ({"target_tpr": (0.02, 0.01)}, 0.02, lambda c: c.tpr_at(0.01)),
        ({"target_advantage": 0.1}, 0.1, lambda c: c.advantage()),
    ]
    for target, wanted, measure in targets:
        run = calibrate(RUN, **target, notion=notion)
        achieved = measure(account(run, notion=notion))
        assert wanted * (1 - 1e-6) <= achieved <= wanted
        assert run.noise_std > 0.0


def test_no_noise_where_none_is_needed() -> None:
    assert calibrate(RUN, target_mu=0.86).noise_std == 0.0
    assert calibrate(RUN.replace(clip_norm=None), target_mu=0.86).noise_std == 0.0
    assert calibrate(RUN.replace(noise_std=3.0), target_mu=0.86).noise_std == 0.0  # the run's own noise is ignored


def test_tight_needs_less_noise_than_the_paper_and_the_paper_no_more_than_gdp() -> None:
    for mu in (0.4, 0.52, 0.66):
        tight = calibrate(RUN, target_mu=mu).noise_std
        paper = calibrate(RUN, target_mu=mu, bound="paper").noise_std
        gdp = calibrate(RUN, target_mu=mu, notion="gdp").noise_std
        assert tight < paper <= gdp * (1 + 1e-5)


def test_measured_susceptibilities() -> None:
    measured = [400.0, 650.0, 1300.0]
    run = calibrate(RUN, target_mu=0.5, susceptibility=measured)
    assert account(run, susceptibility=measured).equivalent_mu() == pytest.approx(0.5, rel=1.1e-6)
    assert run.noise_std > calibrate(RUN, target_mu=0.5, susceptibility=400.0).noise_std


def test_most_steps() -> None:
    run = calibrate(RUN, target_mu=0.4, solve_for="num_steps")
    assert account(run).equivalent_mu() <= 0.4 < account(run.replace(num_steps=run.num_steps + 1)).equivalent_mu()
    with pytest.raises(UnreachableTarget, match="already missed after one step"):
        calibrate(RUN, target_mu=1e-4, solve_for="num_steps")


def test_most_steps_stops_at_a_billion() -> None:
    run = NoisySGD(dataset_size=10**9, batch_size=1, num_steps=1, num_params=1, clip_norm=1.0, noise_std=1e6)
    assert calibrate(run, target_mu=1.0, solve_for="num_steps").num_steps == 10**9


@pytest.mark.parametrize("hold", ["steps", "epochs"])
def test_smallest_batch(hold: str) -> None:
    run = calibrate(RUN, target_mu=0.8, solve_for="batch_size", hold=hold)
    assert account(run).equivalent_mu() <= 0.8
    smaller = run.replace(batch_size=run.batch_size - 1)
    if hold == "epochs":
        assert run.num_steps * run.batch_size == pytest.approx(RUN.num_steps * RUN.batch_size, rel=0.01)
        smaller = smaller.replace(num_steps=-(-RUN.num_steps * RUN.batch_size // smaller.batch_size))
    else:
        assert run.num_steps == RUN.num_steps
    assert account(smaller).equivalent_mu() > 0.8


def test_batch_size_out_of_reach_says_the_best() -> None:
    with pytest.raises(UnreachableTarget, match=r"met by no batch size \(the best, \d+, gives 0\.6"):
        calibrate(RUN, target_mu=0.4, solve_for="batch_size")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, InvalidArgument, "pass one of target_mu"),
        ({"target_mu": 0.5, "target_advantage": 0.1}, InvalidArgument, "2 privacy targets"),
        ({"target_mu": 0.0}, InvalidArgument, "target_mu = 0.0"),
        ({"target_mu": float("nan")}, InvalidArgument, "target_mu is NaN"),
        ({"target_mu": -1}, InvalidArgument, "target_mu = -1"),
        ({"target_tpr": 0.5}, InvalidArgument, "target_tpr must be TPR@FPR"),
        ({"target_tpr": (0.05, 0.0)}, InvalidArgument, "target_tpr must be TPR@FPR"),
        ({"target_tpr": (1.5, 0.01)}, InvalidArgument, "target_tpr must be TPR@FPR"),
        ({"target_tpr": (0.01, 0.05)}, UnreachableTarget, "guessing alone"),
        ({"target_advantage": 0.0}, InvalidArgument, "target_advantage"),
        ({"target_advantage": 2.0}, InvalidArgument, "target_advantage"),
        ({"target_mu": 0.4, "notion": "dp"}, InvalidArgument, "notion = 'dp'"),
        ({"target_mu": 0.4, "bound": "loose"}, InvalidArgument, "bound = 'loose'"),
        ({"target_mu": 0.4, "composition": "magic"}, InvalidArgument, "composition = 'magic'"),
        ({"target_mu": 0.4, "solve_for": "clip_norm"}, InvalidArgument, "solve_for = 'clip_norm'"),
        ({"target_mu": 0.4, "hold": "time"}, InvalidArgument, "hold = 'time'"),
        ({"target_mu": 0.4, "susceptibility": -1.0}, InvalidArgument, "susceptibility"),
    ],
)
def test_bad_input(options: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        calibrate(RUN, **options)


def test_a_schedule_is_scaled_as_a_whole() -> None:
    quiet = calibrate([RUN, RUN.replace(num_steps=300, batch_size=800)], target_mu=0.4)
    assert account(quiet).equivalent_mu() == pytest.approx(0.4, rel=2.0e-6)
    assert quiet[0].noise_multiplier == pytest.approx(quiet[1].noise_multiplier)
    given = [RUN.replace(noise_std=1.0), RUN.replace(noise_std=3.0, num_steps=300)]
    scaled = calibrate(given, target_mu=0.4)
    assert scaled[1].noise_std == pytest.approx(3.0 * scaled[0].noise_std)
    assert account(scaled).equivalent_mu() <= 0.4
    with pytest.raises(UnreachableTarget, match="phases without noise"):
        calibrate([RUN, RUN.replace(noise_std=1.0)], target_mu=0.4)
    with pytest.raises(InvalidArgument, match="solve_for = 'num_steps'"):
        calibrate(given, target_mu=0.4, solve_for="num_steps")
    with pytest.raises(InvalidArgument, match="run must be a NoisySGD"):
        calibrate(5, target_mu=0.4)  # type: ignore[call-overload]


@pytest.mark.parametrize("notion", ["gmip", "gdp"])
def test_epsilon(notion: str) -> None:
    found = calibrate(RUN, target_epsilon=3.0, delta=1.0e-6, notion=notion)
    assert account(found, notion=notion).epsilon(1.0e-6) == pytest.approx(3.0, rel=2.0e-6)
    assert account(found, notion=notion).epsilon(1.0e-6) <= 3.0
    with pytest.raises(InvalidArgument, match="delta is missing"):
        calibrate(RUN, target_epsilon=3.0)
    with pytest.raises(InvalidArgument, match="delta belongs to target_epsilon"):
        calibrate(RUN, target_mu=3.0, delta=1.0e-6)


def test_mu_over_a_range_is_no_gdp_parameter() -> None:
    """What was once printed as mu-GDP: epsilon 1.956 by the formula of GDP where the curve has 2.703."""
    run = NoisySGD(dataset_size=10**6, batch_size=100, num_steps=10**4, num_params=10, clip_norm=1.0)
    curve = account(calibrate(run, target_mu=0.4, notion="gdp"), notion="gdp")
    assert curve.equivalent_mu() == pytest.approx(0.4, rel=1.0e-5)
    assert curve.epsilon(1.0e-7) > 2.6 > Gaussian(0.4).epsilon(1.0e-7)
    assert curve.gdp_mu is not None and curve.epsilon(1.0e-7) <= Gaussian(curve.gdp_mu).epsilon(1.0e-7)


def test_every_curve_knows_its_grid_error() -> None:
    full = RUN.replace(batch_size=48_000, sampling="full", num_steps=2, noise_std=0.01)
    assert account(full).tpr_error == account(RUN, composition="clt").tpr_error == 0.0
    assert 0.0 < account(RUN).tpr_error < 1e-4
    assert 0.0 < account(RUN.replace(sampling="poisson", noise_std=1.0), notion="gdp").tpr_error < 1e-4


def test_noise_needs_clipping() -> None:
    with pytest.raises(InvalidArgument, match=r"clip_norm is missing: .* add it"):
        calibrate(RUN.replace(clip_norm=None), target_mu=0.4)
    with pytest.raises(InvalidArgument, match="sampling = 'full'"):
        calibrate(
            NoisySGD(dataset_size=10, batch_size=10, num_steps=1, num_params=1, sampling="full"),
            target_mu=0.4,
            solve_for="batch_size",
        )
