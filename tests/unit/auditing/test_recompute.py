"""The run check: planted faults are found and named, sound runs are not accused, what cannot be checked is said.

The whole table of docs/evidence/check.md, and 200 sound runs: benchmarks/check.py; with GMIP_SOUND_RUNS=40 the latter
run here.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import gmip
from gmip.attacks import gradients
from gmip.auditing import check_run, recompute
from gmip.auditing.schema import BeyondReach, RunCheck
from gmip.errors import InvalidArgument, TraceMismatch
from gmip.report.check_words import headline, sentence
from gmip.stats import flat
from gmip.tasks import Task
from gmip.trace import Trace
from tests.unit.auditing.faulty_runs import FAULTS, SETTINGS, Fault, Setting, make_task, record_run

NOISY, PLAIN = SETTINGS["full, noise"], SETTINGS["mini-batches"]
POISSON = Setting(sampling="poisson", batch_size=30, noise_std=0.005)
UNKNOWN = Setting(sampling="fixed", batch_size=30, ids=False)
QUIET = Setting(noise_std=0.002)
BLIND = SETTINGS["mini-batches, noise, ids not recorded"]


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task()


def checked(task: Task, folder: Path, setting: Setting, fault: Fault, seed: int = 100) -> RunCheck:
    record_run(task, folder, setting, fault, seed=seed)
    return check_run(task, folder)


def outcome(check: RunCheck, key: str):
    return next(one for one in check.outcomes if one.check == key)


@pytest.mark.parametrize(
    ("fault", "setting", "by", "finding"),
    [
        ("reused noise", NOISY, "noise-steps", "noise-repeats"),
        ("re-seeded noise", SETTINGS["mini-batches, noise"], "noise-steps", "noise-repeats"),
        ("noise off by n", NOISY, "noise-size", "noise-divided-twice"),
        ("noise on the first layer only", NOISY, "noise-layers", "noise-layers-differ"),
        ("noise on the last layer only", NOISY, "noise-layers", "noise-layers-differ"),
        ("zero noise", NOISY, "noise-size", "no-noise"),
        ("clipping after averaging", NOISY, "clipping", "unclipped-or-mean"),
        ("no clipping", NOISY, "clipping", "unclipped-or-mean"),
        ("sum for mean", PLAIN, "scale", "sum-not-mean"),
        ("sum for mean", BLIND, "scale", "workers-summed"),
        ("wrong world size", PLAIN, "scale", "workers-divided"),
        ("clip_grad_norm_", PLAIN, "whole-clip", "whole-clip"),
        ("clip_grad_norm_", NOISY, "whole-clip", "whole-clip"),
        ("batches always the first n", SETTINGS["mini-batches, noise"], "batches", "batches-overlap"),
        ("duplicates", PLAIN, "batches", "twice-in-a-batch"),
        ("half of the member labels wrong", PLAIN, "members", "members-differ"),
        ("half of the member labels wrong", NOISY, "members", "others-left"),
        ("wrong dataset_size", SETTINGS["mini-batches, noise"], "batches", "batches-overlap"),
        ("wrong dataset_size", NOISY, "batches", "not-all-records"),
        ("trained on by another optimizer", NOISY, "continuity", "changed-outside"),
        ("trained on by another optimizer", BLIND, "continuity", "changed-outside"),
        ("reused noise", BLIND, "noise-steps", "noise-repeats"),
        ("zero noise", BLIND, "noise-size", "noise-size"),
        ("noise 24% too small", BLIND, "noise-size", "noise-size"),
        ("noise cut off at 3 standard deviations", NOISY, "noise-size", "noise-not-normal"),
        ("noise drawn again beyond 3 standard deviations", NOISY, "noise-size", "noise-not-normal"),
        ("clipping of each layer", NOISY, "clipping", "clipped-by-layer"),
        ("clipping at 1.1 C", QUIET, "clipping", "clipped-wider"),
        ("batches divided by their own size", POISSON, "scale", "own-size"),
        ("batches twice as large", SETTINGS["mini-batches, noise"], "batches", "batch-too-large"),
        ("batches twice as large", UNKNOWN, "batches", "batch-too-large"),
        ("vmap, size not told", SETTINGS["mini-batches, noise"], "batches", "batches-too-small"),
        ("1 of 30 members replaced", PLAIN, "members", "members-differ"),
        ("10% wrong labels", PLAIN, "members", "members-differ"),
        ("10% wrong labels", NOISY, "members", "others-left"),
        ("augmentation", PLAIN, "members", "members-differ"),
    ],
)
def test_faults_are_found_and_named(
    task: Task, tmp_path: Path, fault: str, setting: Setting, by: str, finding: str
) -> None:
    found = checked(task, tmp_path / "run", setting, FAULTS[fault])
    assert found.failed and (found.failed[0].check, found.failed[0].finding) == (by, finding)
    assert sentence(found.failed[0]) in headline(found)


@pytest.mark.parametrize("name", list(SETTINGS))
def test_sound_runs_are_not_accused(task: Task, tmp_path: Path, name: str) -> None:
    """Each fails with a chance of 1% at most: three times in a row would be one in a million."""
    runs = int(os.environ.get("GMIP_SOUND_RUNS", "3"))
    accused = sum(not checked(task, tmp_path / str(i), SETTINGS[name], Fault(), 500 + i).passed for i in range(runs))
    assert accused <= max(1, 0.05 * runs)


def test_what_cannot_be_checked_is_said(task: Task, tmp_path: Path) -> None:
    found = checked(task, tmp_path / "run", BLIND, Fault())
    assert found.passed
    for key in ("batches", "clipping", "members", "noise-layers"):
        assert (outcome(found, key).status, outcome(found, key).finding) == ("unchecked", "no-ids")
    assert "could not be made" in headline(found)


def test_noise_that_hides_who_was_in_is_said(task: Task, tmp_path: Path) -> None:
    found = checked(
        task, tmp_path / "run", dataclasses.replace(NOISY, noise_std=1.0), FAULTS["half of the member labels wrong"]
    )
    assert found.passed
    assert {one.check for one in found.unchecked} >= {"scale", "clipping", "members"}
    assert outcome(found, "members").finding == "hidden-by-noise"


@pytest.mark.parametrize(
    ("fault", "setting", "named"),
    [
        ("clipping at 1.1 C", NOISY, "clip-norm"),
        ("augmentation", NOISY, "inputs"),
        ("a member that counts five times", dataclasses.replace(NOISY, noise_std=0.2), "counted"),
        ("batches divided by their own size", BLIND, "own-size"),
    ],
)
def test_faults_beyond_reach_are_named(task: Task, tmp_path: Path, fault: str, setting: Setting, named: str) -> None:
    found = checked(task, tmp_path / "run", setting, FAULTS[fault])
    assert found.passed and named in {one.fault for one in found.beyond_reach}


@pytest.mark.parametrize("fault", ["1 of 30 members replaced", "10% wrong labels", "augmentation", "clipping at 1.1 C"])
def test_without_ids_what_members_and_clipping_would_show_is_not_checked(
    task: Task, tmp_path: Path, fault: str
) -> None:
    found = checked(task, tmp_path / "run", UNKNOWN, FAULTS[fault])
    assert found.passed and {"clipping", "batches"} <= {one.check for one in found.bound_unchecked}
    assert outcome(found, "members").status == "unchecked"


def test_how_small_a_fault_is_not_seen(task: Task, tmp_path: Path) -> None:
    """Exact records have no limits; with noise each fault is found, or the limits have room for it."""
    exact = checked(task, tmp_path / "exact", SETTINGS["full"], Fault())
    assert exact.beyond_reach == () and exact.least_noise == 1.0
    sound = checked(task, tmp_path / "sound", NOISY, Fault())
    hidden = {
        "noise-size",
        "noise-layer",
        "noise-step",
        "noise-entry",
        "noise-seed",
        "noise-dependence",
        "scale",
        "clip-norm",
        "records",
        "inputs",
        "counted",
        "before",
    }
    assert {one.fault for one in sound.beyond_reach} == hidden
    limits = {one.fault: one.up_to for one in sound.beyond_reach if one.up_to is not None}
    assert "inputs" not in limits and 0.0 < limits["noise-size"] < 0.03
    assert 0.85 < sound.least_noise < 1.0
    for i, (share, fault) in enumerate(
        [
            (0.98, Fault(noise=0.98)),
            (1 / 1.05, Fault(scale=1.05)),
            (1 / 1.2, Fault(scale=1.2)),
            (1 / 1.1, Fault(clip_times=1.1)),
            (0.5, Fault(clip="layers")),
        ]
    ):
        found = checked(task, tmp_path / str(i), NOISY, fault)
        assert found.failed or found.least_noise <= share, fault


def test_more_steps_where_noise_hides_faults(task: Task, tmp_path: Path) -> None:
    """The first steps are enough where noise is small; otherwise all are looked at, and clipping is seen."""
    many = dataclasses.replace(SETTINGS["mini-batches, noise"], num_steps=40)
    loud = checked(task, tmp_path / "loud", dataclasses.replace(many, noise_std=0.05), Fault())
    assert loud.passed and len(loud.steps) == 40 and outcome(loud, "clipping").status == "passed"
    assert {one.fault for one in loud.beyond_reach} >= {"scale", "clip-norm"} and loud.least_noise > 0.85
    quiet = checked(task, tmp_path / "quiet", dataclasses.replace(many, noise_std=0.002), Fault())
    assert len(quiet.steps) == 12 and quiet.least_noise > 0.97


def test_steps_that_were_not_computed_again_are_said(task: Task, tmp_path: Path) -> None:
    record_run(task, tmp_path / "run", SETTINGS["full"], seed=100)
    found = check_run(task, tmp_path / "run", steps=3)
    assert found.beyond_reach == (BeyondReach(fault="steps", up_to=0.75),)


@pytest.mark.parametrize(("rate", "divisor", "named"), [(1 / 7, 17.0, True), (1 / 7, 18.0, False), (None, 17.0, False)])
def test_a_divisor_that_follows_the_number_of_records_is_named(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rate: float | None, divisor: float, named: bool
) -> None:
    """Opacus divides by int(N/len(loader)): whoever does not know N learns it from the scale of the gradients."""
    record_run(task, tmp_path / "run", dataclasses.replace(BLIND, num_steps=1), seed=100)
    trace = Trace.open(tmp_path / "run")
    header = dataclasses.replace(trace.header, batch_size=17, sample_rate=rate)
    infos = [dataclasses.replace(info, divisor=divisor) for info in trace.infos]
    monkeypatch.setattr(trace, "header", header)
    monkeypatch.setattr(trace, "infos", infos)
    found = check_run(task, trace).beyond_reach
    assert (BeyondReach(fault="divisor") in found) == named


def test_one_step_has_no_other_to_be_compared_with(task: Task, tmp_path: Path) -> None:
    found = checked(task, tmp_path / "run", dataclasses.replace(NOISY, num_steps=1), Fault())
    assert found.passed and "noise-steps" not in {one.check for one in found.outcomes}


def record(task: Task, folder: Path, model: nn.Module, **options) -> None:
    """Three plain steps on rows 0 to 59."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"dataset_size": 60, "batch_size": 60, "sampling": "full", "members": np.arange(60), "data": task}
    with gmip.record(model, optimizer, folder, **{**given, "non_members": np.arange(60, 120), **options}):
        for _ in range(3):
            optimizer.zero_grad()
            task.loss(model(task.pool.inputs[:60]), task.pool.targets[:60]).mean().backward()
            optimizer.step()


def test_members_and_parameters_that_were_not_recorded(task: Task, tmp_path: Path) -> None:
    record(task, tmp_path / "nobody", task.make_model(), members=None)
    found = check_run(task, tmp_path / "nobody")
    assert found.passed and outcome(found, "scale").finding == "no-members"
    record(task, tmp_path / "part", task.make_model(), parameters=["2"])
    found = check_run(task, tmp_path / "part")
    assert outcome(found, "members").finding == "some-parameters"
    record(task, tmp_path / "few", task.make_model(), members=np.arange(30))
    found = check_run(task, tmp_path / "few")
    assert outcome(found, "sizes").status == outcome(found, "scale").status == "unchecked"


@pytest.mark.parametrize("kept", [False, True])
def test_buffers_that_hold_members_are_named(task: Task, tmp_path: Path, kept: bool) -> None:
    class Keeps(nn.Linear):
        def __init__(self) -> None:
            super().__init__(64, 10)
            self.register_buffer("seen", torch.zeros(60, 64))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if kept and len(inputs) == 60:
                self.get_buffer("seen").copy_(inputs.detach())
            return super().forward(inputs)

    keeping = dataclasses.replace(task, make_model=Keeps)
    record(keeping, tmp_path / "run", keeping.make_model())
    assert (BeyondReach(fault="buffers") in check_run(keeping, tmp_path / "run").beyond_reach) == kept


@pytest.mark.parametrize("thawed", [False, True])
def test_frozen_layers_that_are_trained_after_all_are_named(task: Task, tmp_path: Path, thawed: bool) -> None:
    """They are frozen when the recording begins and when it ends."""

    def make_model() -> nn.Sequential:
        torch.manual_seed(0)
        kept = nn.Linear(10, 10, bias=False).requires_grad_(False)
        return nn.Sequential(nn.Linear(64, 10), kept)

    half, rows = dataclasses.replace(task, make_model=make_model), np.arange(60)
    model = make_model()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with gmip.training.record(
        model, optimizer, tmp_path / "run", dataset_size=60, batch_size=60, members=rows, data=half
    ):
        for _ in range(2):
            optimizer.zero_grad()
            half.loss(model(half.pool[rows].inputs), half.pool[rows].targets).mean().backward()
            optimizer.step()
        if thawed:
            model.get_parameter("1.weight").data[0, 0] += 1.0e-6
    assert (BeyondReach(fault="buffers") in check_run(half, tmp_path / "run").beyond_reach) == thawed


@pytest.mark.filterwarnings("ignore:The model drops units at random")
def test_dropout_is_said_and_a_sum_seen_all_the_same(task: Task, tmp_path: Path) -> None:
    def dropping() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 10))

    random = dataclasses.replace(task, make_model=dropping)
    torch.manual_seed(0)
    record(random, tmp_path / "sound", random.make_model())
    found = check_run(random, tmp_path / "sound")
    assert found.passed and outcome(found, "members").finding == "random-model"
    summed = dataclasses.replace(random, loss=lambda outputs, targets: 60 * task.loss(outputs, targets))
    record(summed, tmp_path / "sum", random.make_model())
    found = check_run(random, tmp_path / "sum")
    assert outcome(found, "scale").status == "failed" and outcome(found, "scale").value == pytest.approx(59.2, abs=0.05)


@pytest.mark.parametrize("times", [1.0, 2.0])
def test_reduced_precision_is_no_fault_but_a_factor_is(task: Task, tmp_path: Path, times: float) -> None:
    model = task.make_model()
    forward = model.forward

    def cast(inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return forward(inputs).float()

    model.forward = cast
    scaled = dataclasses.replace(task, loss=lambda outputs, targets: times * task.loss(outputs, targets))
    record(scaled, tmp_path / "run", model)
    assert {info.precision for info in Trace.open(tmp_path / "run").infos} == {"bfloat16"}
    found = check_run(task, tmp_path / "run")
    assert found.passed == (times == 1.0)
    assert outcome(found, "scale").status == ("passed" if times == 1.0 else "failed")


def test_frozen_parts_are_those_of_the_run(task: Task, tmp_path: Path) -> None:
    """A random body that is not trained: the trace's last state has it, a fresh model of the task does not."""

    def frozen() -> nn.Module:
        model = task.make_model()
        model[0].requires_grad_(False)  # type: ignore[index]
        return model

    half = dataclasses.replace(task, make_model=frozen)
    torch.manual_seed(77)
    record(half, tmp_path / "run", half.make_model())
    assert check_run(half, tmp_path / "run").passed


def test_another_model_of_the_same_shape_does_not_match(task: Task, tmp_path: Path) -> None:
    def relu() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

    record(task, tmp_path / "run", task.make_model())
    found = check_run(dataclasses.replace(task, make_model=relu), tmp_path / "run")
    assert [one.check for one in found.failed] == ["members"]


def test_other_data_and_bad_requests(task: Task, tmp_path: Path) -> None:
    record(task, tmp_path / "run", task.make_model())
    other = dataclasses.replace(task, pool=task.pool[np.arange(1, 700)])
    with pytest.raises(TraceMismatch, match="other data"):
        check_run(other, tmp_path / "run")
    with pytest.raises(InvalidArgument, match="steps"):
        check_run(task, tmp_path / "run", steps=0)


def test_steps_that_are_skipped_and_clips_that_are_recorded(task: Task, tmp_path: Path) -> None:
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sizes = {"dataset_size": 60, "batch_size": 60, "sampling": "full", "members": np.arange(60), "data": task}
    with gmip.record(model, optimizer, tmp_path / "run", **sizes, every=2):
        for _ in range(5):
            optimizer.zero_grad()
            task.loss(model(task.pool.inputs[:60]), task.pool.targets[:60]).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
    found = check_run(task, tmp_path / "run")
    assert found.passed and found.steps == (0, 2, 4)


def run_of_many(task: Task, folder: Path, noise, steps: int = 80, **options) -> RunCheck:
    """A hand-written noisy loop of full batches; `noise(step, shape)` is what it adds."""
    members = np.arange(40)
    torch.manual_seed(0)
    model = task.make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    options = {"noise_std": 0.1, "clip_norm": 1.0} | options
    sizes = {"dataset_size": 40, "batch_size": 40, "sampling": "full", "members": members, "data": task}
    rows = torch.from_numpy(members)
    with gmip.record(model, optimizer, folder, **sizes, **options) as recorder:
        for step in range(steps):
            optimizer.zero_grad()
            total = [torch.zeros_like(p) for p in model.parameters()]
            for row in rows:
                loss = task.loss(model(task.pool.inputs[row : row + 1]), task.pool.targets[row : row + 1]).sum()
                own = torch.autograd.grad(loss, list(model.parameters()))
                length = torch.sqrt(sum((g**2).sum() for g in own))
                for sum_, g in zip(total, own, strict=True):
                    sum_ += g * min(1.0, 1.0 / float(length))
            recorder.batch(40)
            for parameter, sum_, z in zip(model.parameters(), total, noise(step, total), strict=True):
                parameter.grad = sum_ / 40 + z
            optimizer.step()
    return check_run(task, folder)


def seeded(seed: int, like: list[torch.Tensor]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [0.1 * torch.randn(one.shape, generator=generator) for one in like]


def test_noise_that_repeats_after_many_steps_is_found(task: Task, tmp_path: Path) -> None:
    sound = run_of_many(task, tmp_path / "sound", lambda step, like: seeded(step, like))
    assert sound.passed and not sound.noise_unchecked
    assert outcome(sound, "noise-steps").of_steps == 80
    again = run_of_many(task, tmp_path / "again", lambda step, like: seeded(step % 37, like))
    assert outcome(again, "noise-steps").status == "failed"


def test_noise_that_cannot_be_checked_is_said(task: Task, tmp_path: Path) -> None:
    none = [torch.zeros(1)]
    found = run_of_many(task, tmp_path / "a", lambda step, like: none * len(like), steps=2, parameters=["0.weight"])
    assert found.passed and found.noise_unchecked


def test_steps_of_an_odd_size_are_looked_at(task: Task, tmp_path: Path) -> None:
    silent = {41, 42, 43}
    found = run_of_many(task, tmp_path / "a", lambda step, like: [z * (step not in silent) for z in seeded(step, like)])
    assert not found.passed and set(found.steps) & silent


@pytest.mark.parametrize("fault", ["", "noise off by n", "no clipping"])
def test_large_models_in_single_precision_have_the_same_findings(
    task: Task, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_run(task, tmp_path, NOISY, FAULTS[fault] if fault else Fault(), seed=100)
    double = check_run(task, tmp_path)
    monkeypatch.setattr(gradients, "_LARGE", 0)
    monkeypatch.setattr(flat, "BLOCK", 100)  # and block by block
    monkeypatch.setattr(recompute, "BLOCK", 100)
    single = check_run(task, tmp_path)
    found, expected = ([(one.check, one.finding) for one in run.outcomes] for run in (single, double))
    assert found == expected
    np.testing.assert_allclose(single.least_noise, double.least_noise, rtol=1e-4)
