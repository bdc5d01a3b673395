"""`gmip tune` from the outside: killed and resumed, its recipe trained, mistakes in one sentence; `--clip auto`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs the extra gmip[train]")

from gmip.accounting.account import account
from gmip.cli import main
from gmip.tasks import load
from gmip.trace import Trace
from gmip.tuning.recipe_search import read_recipe_file

TASK = """
import torch
from torch import nn
from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe

def make_task():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(500, 8, generator=generator)
    data = Examples(inputs, (inputs[:, 0] > 0).long())
    return Task(
        name="small",
        make_model=lambda: nn.Linear(8, 2),
        pool=data[range(400)],
        test=data[range(400, 500)],
        recipe=Recipe(dataset_size=100, batch_size=50, num_steps=10, learning_rate=1.0, clip_norm=1.0),
    )
"""
SMALL = [
    "--target",
    "tpr=0.1@0.01",
    "--budget",
    "24trials",
    "--try",
    "num_steps=5,10",
    "--try",
    "batch_size=50",
    "--workers",
    "1",
]


@pytest.fixture(scope="module")
def task_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("task") / "small.py"
    path.write_text(TASK)
    return f"{path}:make_task"


@pytest.fixture(scope="module")
def tuned(task_file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "split_seed").write_text("0")
    assert main(["tune", task_file, *SMALL, "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_killed_and_resumed_it_comes_to_the_same_answer(task_file: str, tuned: Path, tmp_path: Path):
    (tmp_path / "split_seed").write_text("0")
    command = [sys.executable, "-m", "gmip", "tune", task_file, *SMALL, "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("trials-*/*.entry"))) < 8 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.read_bytes() for path in tmp_path.glob("trials-*/*.entry")}
    assert len(kept) >= 8 and not (tmp_path / "recipe.yaml").exists()
    assert main(["tune", task_file, *SMALL, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "recipe.yaml").read_bytes() == (tuned / "recipe.yaml").read_bytes()
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_the_recipe_can_be_trained_and_keeps_the_target(task_file: str, tuned: Path, tmp_path: Path):
    found = read_recipe_file(tuned / "recipe.yaml")
    assert account(found.recipe.run(18)).tpr_at(0.01) <= 0.1
    assert main(["train", str(tuned / "recipe.yaml"), "--out", str(tmp_path / "run")]) == 0
    trace = Trace.open(tmp_path / "run")
    header = trace.header
    assert header.recipe is not None
    assert (header.recipe.noise_std, header.provenance.split_seed) == (found.recipe.noise_std, 0)
    # Who was trained on in the search is not among the members.
    assert trace.members is not None
    assert trace.members.tolist() == load(task_file).split(100, 0).members.tolist()
    assert header.provenance.seed != 0


def test_the_answer_comes_first_and_as_json(task_file: str, tuned: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["tune", task_file, *SMALL, "--out", str(tuned), "--json"]) == 0  # all of it was kept
    answer = json.loads(capsys.readouterr().out)
    assert answer["exposure"] <= 0.1 and answer["recipe"]["dataset_size"] == 100
    assert answer["outsiders"] >= answer["trained_on"] > 0
    assert answer["not_a_member"] == "a run without it, with no record in its place"
    assert answer["trainings"] > answer["trials"] >= 24
    assert main(["tune", task_file, *SMALL, "--out", str(tuned)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    page = (tuned / "tuning.html").read_text()
    for words in ("forecast, not a bound", "--notion gdp", "no record in its place", "--try sampling=fixed"):
        assert words in said and words in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "tpr=0.01@0.01"], "guessing alone"),
        (["--target", "tpr=0.1@0.01", "--dataset-size", "390"], "has 10 records that will not be members"),
        ([], "No privacy target was given"),
        (["--target", "mu=1", "--try", "clip=3"], "did you mean 'clip_norm'"),
        (["--target", "mu=1", "--try", "clip_norm"], "is not NAME=VALUES"),
        (["--target", "mu=1", "--budget", "soon"], "--budget = 'soon' is not a length of time"),
        (["--target", "mu=1", "--budget", "12trials"], "= 12 are fewer than the 24"),
    ],
)
def test_mistakes_are_one_sentence(task_file: str, tmp_path: Path, capsys, arguments: list[str], words: str):
    assert main(["tune", task_file, *arguments, "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err and err.endswith(".\n")


def test_a_metric_that_is_nan_for_all_trials(task_file: str, tmp_path: Path, capsys):
    far = ["--try", "learning_rate=3e38", "--try", "clip_norm=9", "--try", "optimizer=SGD"]
    assert main(["tune", task_file, *SMALL, *far, "--out", str(tmp_path)]) == 2
    assert "metric is NaN or infinite for all 2 recipes" in capsys.readouterr().err.splitlines()[-1]


def test_clip_auto_says_what_it_is(task_file: str, tmp_path: Path, capsys):
    run = str(tmp_path / "run")
    options = [task_file, "--target", "tpr=0.1@0.01", "--clip", "auto", "--out", run]
    assert main(["train", *options]) == 0
    assert "clipping norm, from non-members" in capsys.readouterr().out
    header = Trace.open(run).header
    assert "quantile of the gradient norms of 100 records" in header.notes["origins"]["clip_norm"]
    assert header.recipe is not None and header.recipe.clip_norm is not None and 0.1 < header.recipe.clip_norm < 5.0
    assert main(["train", *options, "--resume"]) == 0  # the same members, and so the same norm
    assert main(["train", *options[:-1], str(tmp_path / "b"), "--dataset-size", "390"]) == 2
    assert "records that will not be members" in capsys.readouterr().err


def test_a_clip_norm_that_clips_nothing_is_told(task_file: str, tmp_path: Path, capsys):
    options = [task_file, "--target", "tpr=0.1@0.01", "--clip", "100", "--out", str(tmp_path / "run")]
    assert main(["train", *options]) == 0
    assert "times the median norm of a gradient" in capsys.readouterr().err


RECIPE = """task: "TASK"
split_seed: 5
target: GOAL
recipe: {dataset_size: 100, batch_size: 50, num_steps: 10, learning_rate: 1.0, clip_norm: 1.0, noise_std: 2.0}
"""


def recipe_file(place: Path, task: str, goal: str) -> str:
    path = place / "recipe.yaml"
    path.write_text(RECIPE.replace("TASK", task).replace("GOAL", goal))
    return str(path)


@pytest.mark.parametrize(
    ("goal", "whose"),
    [
        ("{target_tpr: [0.05, 0.01]}", {}),
        ("{target_mu: 0.5, notion: gdp}", {"notion": "gdp"}),
        ("{target_tpr: [0.05, 0.01], attacker_knows: 1.0}", {"attacker_knows": 1.0}),
    ],
)
def test_what_changes_the_accounting_of_a_recipe_changes_its_noise(
    task_file: str, tmp_path: Path, capsys, goal: str, whose: dict[str, Any]
):
    path = Path(recipe_file(tmp_path, task_file, goal))
    path.write_text(path.read_text().replace("num_steps: 10", "num_steps: 12").replace("std: 2.0", "std: 0.0"))
    path.write_text(path.read_text().replace("clip_norm: 1.0", "clip_norm: 0.5"))
    assert main(["train", str(path), "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    keeps = "Keeps" if whose else "Expected to keep"  # without them a forecast, of a typical record
    assert out.startswith(f"{keeps} the recipe's target: ") and ("by differential privacy" in out) == (
        "notion" in whose
    )
    header = Trace.open(tmp_path / "run").header
    assert header.recipe is not None and (header.provenance.split_seed, header.recipe.clip_norm) == (5, 0.5)
    curve = account(Trace.open(tmp_path / "run").runs(), **whose)
    tight = curve.equivalent_mu() / 0.5 if "notion" in whose else curve.tpr_at(0.01) / 0.05
    assert 0.99 < tight <= 1.0


def test_a_recipe_whose_noise_is_enough_keeps_it(task_file: str, tmp_path: Path):
    options = [recipe_file(tmp_path, task_file, "{target_mu: 0.5, notion: gdp}"), "--out", str(tmp_path / "a")]
    assert main(["train", *options]) == 0
    recipe = Trace.open(tmp_path / "a").header.recipe
    assert recipe is not None and recipe.noise_std == 2.0


def test_what_a_recipe_says_is_changed_in_its_file(task_file: str, tmp_path: Path, capsys):
    options = [recipe_file(tmp_path, task_file, "{target_mu: 0.5, notion: gdp}"), "--out", str(tmp_path / "a")]
    for more in (["--noise-multiplier", "0.05"], ["--target", "mu=1"], ["--steps", "12"], ["--clip", "auto"]):
        assert main(["train", *options, *more]) == 2
        assert f"{more[0]} is said in the recipe's file" in capsys.readouterr().err
    recipe_file(tmp_path, task_file, "{target: 0.5}")
    assert main(["train", *options]) == 2
    assert "target has 'target', which is not known" in capsys.readouterr().err


def test_clip_auto_is_the_unit_of_a_noise_multiplier(task_file: str, tmp_path: Path):
    options = [task_file, "--noise-multiplier", "1", "--batch-size", "50", "--clip", "auto"]
    assert main(["train", *options, "--out", str(tmp_path)]) == 0
    recipe = Trace.open(tmp_path).header.recipe
    assert recipe is not None and recipe.clip_norm is not None
    assert recipe.clip_norm != 1.0  # the task's own
    assert recipe.noise_std == pytest.approx(recipe.clip_norm / 50)


def test_who_will_be_a_member_is_secret_and_stays_the_same(task_file: str, tmp_path: Path, capsys):
    search = ["tune", task_file, *SMALL]
    seeds = []
    for place in ("a", "b", "b"):
        assert main([*search, "--out", str(tmp_path / place)]) == 0
        seeds.append(read_recipe_file(tmp_path / place / "recipe.yaml").split_seed)
        assert f"Keep {tmp_path / place / 'recipe.yaml'} to yourself" in capsys.readouterr().out
    assert seeds[0] != seeds[1] == seeds[2] and all(seed is not None and seed > 2**32 for seed in seeds)
    for name in ("recipe.yaml", "split_seed"):
        assert (tmp_path / "b" / name).stat().st_mode & 0o077 == 0
    for name in ("tuning.json", "tuning.html", "trials.csv"):
        assert str(seeds[1]) not in (tmp_path / "b" / name).read_text()


@pytest.mark.parametrize("clip", ["1", "auto"])
def test_a_model_that_is_fixed_can_be_clipped(tmp_path: Path, clip: str):
    path = tmp_path / "mixing.py"
    path.write_text(
        TASK.replace("nn.Linear(8, 2)", "nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.Linear(64, 2))")
    )
    options = [f"{path}:make_task", "--noise-multiplier", "5", "--clip", clip, "--out", str(tmp_path / "run")]
    assert main(["train", *options]) == 2
    assert main(["train", *options, "--fix-model"]) == 0


def test_a_recipe_file_that_is_none(tmp_path: Path, capsys):
    path = tmp_path / "recipe.yaml"
    for text, words in [
        ("task: digits\n", "has no 'recipe'"),
        ("task: digits\nrecipe: {dataset_size: 10}\n", "missing 2 required"),
        ("task: digits\nrecipe: {size: 10}\n", "'size' in its recipe, which is not known"),
        ("recipe: {dataset_size: 10, batch_size: 5, num_steps: 2, learning_rate: 1.0}\n", "names no 'task'"),
        ("task: digits\nrecipe: {dataset_size: 10, batch_size: 50, num_steps: 2, learning_rate: 1.0}\n", "exceeds"),
        ("tsk: digits\n", "did you mean 'task'"),
    ]:
        path.write_text(text)
        assert main(["train", str(path), "--out", str(tmp_path / "run")]) == 2
        err = capsys.readouterr().err
        assert words in err and err.count("\n") == 1, err
