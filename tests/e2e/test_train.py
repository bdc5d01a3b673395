"""`gmip train` from the outside: files, sentences, exit codes, resuming."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("torch", reason="training needs the extra gmip[train]")

import torch
from torch import nn

import gmip
from gmip.cli import main
from gmip.trace import Trace
from gmip.training import NoisyStepper

TASK = """
import torch
from torch import nn
from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe

def make_task(norm=False, scale=1.0):
    generator = torch.Generator().manual_seed(0)
    inputs = scale * torch.randn(300, 8, generator=generator)
    data = Examples(inputs, (inputs[:, 0] > 0).long())
    layers = [nn.Linear(8, 4), *([nn.BatchNorm1d(4)] if norm else []), nn.ReLU(), nn.Linear(4, 2)]
    return Task(
        name="small",
        make_model=lambda: nn.Sequential(*layers) if norm else nn.Linear(8, 2),
        pool=data[range(200)],
        test=data[range(200, 300)],
        recipe=Recipe(dataset_size=100, batch_size=20, num_steps=40, learning_rate=0.5, clip_norm=1.0),
    )

def mixing():
    return make_task(norm=True)

def wild():
    return make_task(scale=1e30)  # the second step overflows
"""


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(TASK)
    return f"{path}:make_task"


@pytest.fixture
def run(capsys):
    def call(*argv: str):
        capsys.readouterr()
        code = main(["train", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def result_of(run, *argv: str) -> dict:
    code, out, err = run(*argv, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_trains_records_and_says_so(run, task, tmp_path):
    out = tmp_path / "runs" / "a"
    result = result_of(run, task, "--out", str(out), "--target", "mu=1", "--seed", "3")
    assert json.loads((out / "result.json").read_text()) == result
    assert not (out / "checkpoint.safetensors").exists()
    assert result["test"]["accuracy"] > 0.7
    recipe = result["recipe"]
    planned = gmip.NoisySGD(
        dataset_size=100, batch_size=20, num_steps=40, num_params=18, clip_norm=1.0, noise_std=recipe["noise_std"]
    )
    least = gmip.calibrate(planned, target_mu=1.0)
    assert recipe["noise_std"] == least.noise_std > 0.0
    assert result["noise_multiplier"] == pytest.approx(least.noise_std * 20 / 1.0)
    assert result["privacy"]["gmip"]["mu"] == gmip.account(planned).equivalent_mu() == pytest.approx(1.0, rel=1e-5)
    gdp = gmip.account(planned, notion="gdp")
    assert (result["privacy"]["gdp"]["mu"], result["privacy"]["gdp"]["gdp_mu"]) == (gdp.equivalent_mu(), gdp.gdp_mu)
    assert [result["privacy"][notion]["kind"] for notion in ("gmip", "gdp")] == ["forecast", "bound"]
    assert [result["privacy"][notion]["adjacency"] for notion in ("gmip", "gdp")] == [None, "replace-one"]
    assert result["privacy"]["gmip"]["for_whom"].startswith("a typical record and an attacker")

    trace = Trace.open(out)
    trace.verify()
    assert trace.complete and len(trace) == 40
    assert trace.header.provenance.seed == result["seed"] == 3
    (taken,) = trace.runs()
    assert taken.noise_std == pytest.approx(planned.noise_std, rel=1e-12)
    assert taken.replace(noise_std=planned.noise_std) == planned
    assert len(trace.members) == 100 and not set(trace.members) & set(trace.non_members)
    state = trace.final_arrays() or {}
    assert {name: value.shape for name, value in state.items()} == {"weight": (2, 8), "bias": (2,)}


def test_people_read_a_table_and_a_sentence(run, task, tmp_path):
    code, out, err = run(task, "--out", str(tmp_path / "a"), "--noise-multiplier", "2")
    assert (code, err) == (0, "")
    for words in ("accuracy on test data", "members found at 1% false alarms, about", "protect it like the data"):
        assert words in " ".join(out.split())
    line = out.splitlines()[-2]
    assert "A forecast, not a bound. Compared with: " in line and "--explain" not in line
    assumed = json.loads((tmp_path / "a" / "result.json").read_text())["privacy"]["gmip"]["assumptions"]
    assert len(assumed) > 5


def test_a_target_of_differential_privacy_is_answered_by_its_bound(run, task, tmp_path):
    wanted = ["--target", "tpr=0.1@0.01", "--notion", "gdp"]
    code, out, err = run(task, "--out", str(tmp_path / "a"), *wanted)
    assert (code, err) == (0, "") and "finds at most 10% of the members" in out and "A bound.\n" in out
    assert "forecast" not in out and out.count("differential privacy") == 0 and "share 1" not in out


def test_recipe_options_reach_the_run(run, task, tmp_path):
    out = str(tmp_path / "a")
    options = ["--dataset-size", "90", "--batch-size", "20", "--epochs", "2", "--sampling", "poisson"]
    options += ["--optimizer", "adamw,weight_decay=0.5", "--learning-rate", "0.01"]
    options += ["--clip", "0.5", "--noise-multiplier", "2"]
    recipe = result_of(run, task, "--out", out, *options)["recipe"]
    assert recipe == {
        "dataset_size": 90,
        "batch_size": 20,
        "num_steps": 9,
        "learning_rate": 0.01,
        "optimizer": "adamw",
        "optimizer_options": {"weight_decay": 0.5},
        "sampling": "poisson",
        "max_batch_size": None,
        "clip_norm": 0.5,
        "noise_std": pytest.approx(2 * 0.5 / 20),
    }
    assert Trace.open(out).num_steps == 9


def test_epochs_by_balls_in_bins_are_accounted_and_pass_the_check(run, task, tmp_path):
    out = str(tmp_path / "a")
    options = ["--dataset-size", "90", "--batch-size", "20", "--epochs", "3", "--sampling", "balls-in-bins"]
    found = result_of(run, task, "--out", out, *options, "--clip", "0.5", "--noise-multiplier", "2")
    assert found["privacy"]["gdp"]["kind"] == "bound"
    trace = Trace.open(out)
    assert trace.num_steps == 15 and {info.divisor for info in trace.infos} == {20.0}
    sizes = np.array([info.batch_size for info in trace.infos])
    assert sizes.reshape(3, 5).sum(axis=1).tolist() == [90, 90, 90] and len(set(sizes.tolist())) > 2
    (again,) = trace.runs()
    assert again.sampling == "balls-in-bins" and again.noise_multiplier == pytest.approx(2.0)


def test_without_clipping_no_per_example_gradient_is_computed(run, task, tmp_path, monkeypatch):
    monkeypatch.setattr(NoisyStepper, "__init__", lambda *args, **kwargs: pytest.fail("Opacus was used"))
    result = result_of(run, task, "--out", str(tmp_path / "a"), "--clip", "none")
    assert result["recipe"]["clip_norm"] is None and result["privacy"]["gdp"] is None


def test_same_seed_same_run_and_another_seed_another(run, task, tmp_path):
    weights = []
    for name, seed in [("a", "1"), ("b", "1"), ("c", "2")]:
        result_of(run, task, "--out", str(tmp_path / name), "--noise-multiplier", "2", "--seed", seed)
        weights.append((Trace.open(tmp_path / name).final_arrays() or {})["weight"])
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_shuffled_epochs_are_accounted_as_such(run, task, tmp_path):
    out = str(tmp_path / "a")
    code, text, err = run(task, "--out", out, "--sampling", "shuffled", "--batch-size", "30", "--json")
    assert (code, err) == (0, "")
    plan = gmip.NoisySGD(
        dataset_size=100, batch_size=30, num_steps=40, num_params=18, clip_norm=1.0, sampling="shuffled"
    )
    assert json.loads(text)["privacy"]["gmip"]["mu"] == gmip.account(plan).equivalent_mu()
    assert Trace.open(out).runs() == (plan,)
    assert [info.batch_size for info in Trace.open(out).infos[:4]] == [30, 30, 30, 10]


def test_an_incomplete_batch_has_the_noise_that_is_accounted(run, task, tmp_path):
    out = str(tmp_path / "a")
    options = ["--sampling", "shuffled", "--batch-size", "30", "--epochs", "2", "--target", "mu=0.5"]
    recipe = result_of(run, task, "--out", out, *options)["recipe"]
    assert recipe["num_steps"] == 8
    (taken,) = Trace.open(out).runs()
    assert taken.noise_std == pytest.approx(recipe["noise_std"], rel=1e-9)
    found = gmip.account(taken).equivalent_mu()
    assert 0.5 * (1.0 - 1.0e-3) <= found <= 0.5  # what calibration allows for shuffled epochs


def test_resume_of_a_finished_run_repeats_its_result(run, task, tmp_path):
    options = [task, "--out", str(tmp_path / "a"), "--noise-multiplier", "2"]
    first = result_of(run, *options)
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert result_of(run, *options, "--resume") == first
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before


def test_resume_refuses_another_recipe_or_other_data(run, task, tmp_path):
    options = [task, "--out", str(tmp_path / "a"), "--resume"]
    result_of(run, *options, "--noise-multiplier", "2")
    code, out, err = run(*options, "--noise-multiplier", "4")
    assert (code, out) == (2, "") and "was begun with noise_std = 0.1, not 0.2" in err
    path = tmp_path / "own.py"
    path.write_text(TASK.replace("manual_seed(0)", "manual_seed(1)"))
    code, out, err = run(*options, "--noise-multiplier", "2")
    assert (code, out) == (2, "") and "other data" in err


def test_layers_that_mix_examples(run, task, tmp_path):
    mixing = task.replace("make_task", "mixing")
    code, out, err = run(mixing, "--out", str(tmp_path / "a"))
    assert (code, out) == (2, "")
    assert "Layer 1 (BatchNorm1d) mixes the examples of a batch" in err and "--fix-model" in err
    assert not (tmp_path / "a").exists()
    result_of(run, mixing, "--out", str(tmp_path / "a"), "--fix-model", "--noise-multiplier", "0.2")
    names = [spec.name for spec in Trace.open(tmp_path / "a").header.parameters]
    assert names == ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]  # 1 is a GroupNorm now


OUT = ["--out", "a"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--out is missing"),
        ([*OUT, "digit"], "did you mean 'digits'"),
        ([*OUT, "nowhere.py:make_task"], "names a file that is not there: check the path nowhere.py"),
        ([*OUT, "--target", "mu=1", "--noise-multiplier", "1"], "pass a target or a noise, not both"),
        ([*OUT, "--steps", "1", "--epochs", "1"], "pass only one of them"),
        ([*OUT, "--target", "mu=1", "--target", "tpr=0.1@0.01"], "--target was given 2 times"),
        ([*OUT, "--notion", "gdp"], "--notion applies to a privacy target, and there is none"),
        ([*OUT, "--target", "epsilon=3"], "--target must be like epsilon=3@1e-5"),
        ([*OUT, "--steps", "0"], "--steps must be a whole number"),
        ([*OUT, "--seed", "-1"], "--seed must be a whole number"),
        ([*OUT, "--sampling", "sorted"], "--sampling must be one of"),
        ([*OUT, "--optimizer", "SGD,momentum"], "--optimizer must be NAME,OPTION=VALUE"),
    ],
)
def test_bad_request(run, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*options)
    assert (code, out) == (2, "")
    assert words in err and len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--optimizer", "Magic"], "is not known"),
        (["--optimizer", "LBFGS"], "is not known"),
        (["--optimizer", "SGD,colour=1"], "refuses "),
        (["--dataset-size", "200"], "leaves no non-member among the 200 records"),
        (["--batch-size", "101"], "exceeds --dataset-size"),
        (["--clip", "none", "--noise-multiplier", "1"], "needs --clip"),
        (["--device", "toaster"], "--device = 'toaster' is not a device: pass cpu, cuda"),
        (["--clip", "none", "--target", "mu=0.01"], "--clip"),
    ],
)
def test_bad_recipe(run, task, options, words, tmp_path):
    out = tmp_path / "a"
    code, text, err = run(task, "--out", str(out), *options)
    assert (code, text) == (2, "")
    assert words in err and len(err.splitlines()) == 1
    assert not out.exists()


def test_divergence_and_folders_in_the_way(run, task, tmp_path):
    wild = [task.replace("make_task", "wild"), "--clip", "none"]
    code, out, err = run(*wild, "--out", str(tmp_path / "a"))
    assert (code, out) == (2, "") and re.search(r"The loss is (nan|inf) at step \d+: lower --learning-rate", err)
    result_of(run, task, "--out", str(tmp_path / "b"))
    code, out, err = run(task, "--out", str(tmp_path / "b"))
    assert (code, out) == (2, "") and str(tmp_path / "b") in err and "resume" in err
    (tmp_path / "c").write_text("a file")
    code, out, err = run(task, "--out", str(tmp_path / "c"))
    assert (code, out) == (2, "") and len(err.splitlines()) == 1


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(task, tmp_path):
    command = [
        sys.executable,
        "-m",
        "gmip",
        "train",
        task,
        "--out",
        str(tmp_path / "a"),
        "--steps",
        "1000000",
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "a" / "steps.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "Interrupted: run the command again with --resume to continue."
    assert Trace.open(tmp_path / "a").num_steps > 0


def test_own_loop_in_three_lines(tmp_path):
    """The README's example: any loop, recorded."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(64, 5), torch.randint(0, 2, (64,))
    model = nn.Linear(5, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gmip.record(model, optimizer, tmp_path / "run", dataset_size=64, batch_size=16, sampling="shuffled"):
        for rows in torch.randperm(64).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    trace = gmip.Trace.open(tmp_path / "run")
    assert len(trace) == 4 and trace.complete
