from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.special import ndtr, ndtri

from gmip import NoisySGD, account
from gmip.accounting.alternatives import Alternative, Change, Ways, alternatives
from gmip.vocabulary import PrivacyTarget

DIGITS = NoisySGD(dataset_size=600, batch_size=100, num_steps=20, num_params=170, clip_norm=1.0, noise_std=0.01)
TPR, FPR = 0.05, 0.01


def way(ways: Ways, change: Change) -> Alternative:
    (found,) = (one for one in ways.open if one.change == change)
    return found


def tpr(run: NoisySGD, **options: Any) -> float:
    return account(run, **options).tpr_at(FPR)


@pytest.fixture(scope="module", params=["fixed", "poisson"])
def ways(request: pytest.FixtureRequest) -> Ways:
    return alternatives(DIGITS.replace(sampling=request.param), PrivacyTarget(target_tpr=(TPR, FPR)))


def test_every_way_reaches_the_target_and_changes_one_thing(ways: Ways) -> None:
    (run,) = ways.runs
    assert not ways.met and ways.now == tpr(run) > TPR and ways.closed == ()
    changed: dict[Change, set[str]] = {
        "noise": {"noise_std"},
        "noise-alone": {"noise_std"},
        "batch": {"batch_size", "num_steps"},
        "steps": {"num_steps"},
        "clip": {"clip_norm"},
        "parameters": {"num_params"},
        "data": {"dataset_size"},
    }
    assert [one.change for one in ways.open] == list(changed)
    for one in ways.open:
        (new,) = one.runs
        assert one.value == tpr(new, notion=one.notion) <= TPR
        assert {name for name in vars(new) if getattr(new, name) != getattr(run, name)} == changed[one.change]
        assert one.curve.kind == ("bound" if one.change == "noise-alone" else "forecast")


def test_no_way_goes_farther_than_needed(ways: Ways) -> None:
    (noise,), (alone,), (clip,) = (way(ways, change).runs for change in ("noise", "noise-alone", "clip"))
    assert tpr(noise.replace(noise_std=noise.noise_std * 0.999)) > TPR
    assert tpr(alone.replace(noise_std=alone.noise_std * 0.999), notion="gdp") > TPR
    assert clip.clip_norm is not None and tpr(clip.replace(clip_norm=clip.clip_norm * 1.001)) > TPR
    for change, field, less in (
        ("steps", "num_steps", 1),
        ("parameters", "num_params", 1),
        ("data", "dataset_size", -1),
    ):
        (new,) = way(ways, change).runs
        assert tpr(new.replace(**{field: getattr(new, field) + less})) > TPR


def test_the_batch_is_the_smallest_that_is_larger() -> None:
    """Every size that was passed over misses."""
    run = DIGITS.replace(dataset_size=120, batch_size=8, num_params=100, num_steps=10, noise_std=0.1)
    (new,) = way(alternatives(run, PrivacyTarget(target_tpr=(TPR, FPR))), "batch").runs
    assert run.batch_size < new.batch_size < 120 and new.num_steps == run.num_steps
    sizes = range(run.batch_size + 1, new.batch_size)
    assert min(tpr(run.replace(batch_size=size)) for size in sizes) > TPR


def test_a_batch_of_one_is_no_advice() -> None:
    """It would reach the target without noise, because hardly anybody is ever drawn."""
    run = DIGITS.replace(noise_std=0.0)
    assert tpr(run.replace(batch_size=1)) <= TPR
    (closed,) = (one for one in alternatives(run, PrivacyTarget(target_tpr=(TPR, FPR))).closed)
    assert closed.change == "batch"


def test_closed_forms_of_full_batches() -> None:
    """mu = 2 C sqrt(T)/(n tau), with nothing but a square root and the normal distribution."""
    run = NoisySGD(
        dataset_size=500, batch_size=500, num_steps=40, num_params=99, clip_norm=2.0, noise_std=0.02, sampling="full"
    )
    ways = alternatives(run, PrivacyTarget(target_tpr=(TPR, FPR), notion="gdp"))
    most = float(ndtri(TPR) - ndtri(FPR))
    now = 2 * 2.0 * math.sqrt(40) / (500 * 0.02)
    assert ways.now == pytest.approx(float(ndtr(now + ndtri(FPR))), rel=1e-6)
    assert way(ways, "noise").runs[0].noise_std == pytest.approx(0.02 * now / most, rel=2e-5)
    assert way(ways, "clip").runs[0].clip_norm == pytest.approx(2.0 * most / now, rel=2e-4)
    assert way(ways, "steps").runs[0].num_steps == math.floor(40 * (most / now) ** 2)
    assert way(ways, "data").runs[0].dataset_size == math.ceil(500 * now / most)
    assert {one.change for one in ways.open} == {"noise", "clip", "steps", "data"}
    assert {one.curve.kind for one in ways.open} == {"bound"}


def test_ways_that_lead_nowhere_say_why() -> None:
    run = DIGITS.replace(noise_std=0.0, clip_norm=None)
    ways = alternatives(run, PrivacyTarget(target_tpr=(0.0101, FPR)))
    why = {one.change: one.why for one in ways.closed}
    assert (why["noise"], why["steps"], why["batch"]) == ("no-clip-norm", "one-step", "batch")
    for one in ways.closed:
        assert one.why == "no-clip-norm" or (one.value is not None and one.value > 0.0101)
    (batch,) = (one for one in ways.closed if one.change == "batch")
    assert batch.size is not None and run.batch_size < batch.size <= run.dataset_size
    assert "clip" not in why and not {one.change for one in ways.open} & {"noise", "noise-alone", "clip", *why}


def test_a_met_target_needs_nothing_but_a_proof() -> None:
    run = DIGITS.replace(noise_std=0.024)
    ways = alternatives(run, PrivacyTarget(target_tpr=(TPR, FPR)))
    assert ways.met and [one.change for one in ways.open] == ["noise-alone"]
    assert alternatives(run.replace(noise_std=0.03), PrivacyTarget(target_tpr=(TPR, FPR))).open == ()
    proved = alternatives(run, PrivacyTarget(target_tpr=(0.07, FPR), attacker_knows=1.0))
    assert proved.met and proved.curve.kind == "bound" and proved.open == ()


def test_a_schedule_keeps_its_shape() -> None:
    runs = [DIGITS, DIGITS.replace(batch_size=50, num_steps=7, noise_std=0.02)]
    ways = alternatives(runs, PrivacyTarget(target_tpr=(TPR, FPR)))
    for one in ways.open:
        assert account(list(one.runs), notion=one.notion).tpr_at(FPR) <= TPR
    a, b = way(ways, "noise").runs
    assert a.noise_std / b.noise_std == pytest.approx(0.5, rel=1e-4)
    a, b = way(ways, "clip").runs
    assert a.clip_norm == b.clip_norm and (a.noise_std, b.noise_std) == (0.01, 0.02)
    assert [run.num_params for run in way(ways, "parameters").runs] == [way(ways, "parameters").runs[0].num_params] * 2


def test_other_targets_and_shuffled_epochs() -> None:
    run = DIGITS.replace(sampling="shuffled", num_steps=12, batch_size=200)
    ways = alternatives(run, PrivacyTarget(target_mu=0.5))
    assert not ways.met and {one.curve.kind for one in ways.open} == {"forecast"}  # nothing is proved of epochs
    for one in ways.open:
        assert account(list(one.runs)).equivalent_mu() == one.value <= 0.5


def test_no_time_is_said() -> None:
    ways = alternatives(DIGITS, PrivacyTarget(target_tpr=(TPR, FPR)), seconds=0.0)
    assert {one.change for one in ways.closed} >= {"batch", "steps", "parameters", "data"}
    assert {one.why for one in ways.closed} == {"too-slow"}
