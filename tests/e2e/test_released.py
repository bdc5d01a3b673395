"""A released model without a trace, as a user audits it."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gmip import InvalidArgument, audit
from gmip.report import read_result
from gmip.report.answer_words import curve_name
from gmip.tasks import load
from tests.e2e.cli import assert_one_sentence

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TASK = f"{ROOT / 'examples' / 'released_model.py'}:make_task"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn", reason="the example's records are scikit-learn's")
    folder = tmp_path_factory.mktemp("released")
    command = [sys.executable, ROOT / "examples" / "released_model.py", folder]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
    return folder


def options(folder: Path, **other: str) -> list[str]:
    given = {"model": folder / "weights.safetensors", "members": folder / "members.csv"}
    given |= {"non-members": folder / "others.csv"} | other
    return [text for name, value in given.items() for text in (f"--{name}", str(value))]


def test_the_example_ends_in_the_same_report(run, released: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "few.yaml").write_text(f"task: {TASK}\ncandidates: 60\n", encoding="utf-8")
    done = run("audit", str(tmp_path / "few.yaml"), *options(released), "--out", str(out), "--gate")
    assert done.code == (0 if read_result(out).passed else 1), done
    (one,) = read_result(out).runs
    attacks = {attack.attack: attack.auc.value for attack in one.attacks}
    assert attacks["loss"] > 0.58 and "glir" not in attacks and "lira" not in attacks
    assert one.verdict.kind == "measured" and one.claims == () and one.facts.num_steps is None
    assert one.facts.train_accuracy == 1.0 and 0.8 < (one.facts.test_accuracy or 0) < 1.0
    assert one.grouped_by == "writing" and {group.group for group in one.groups} == {"thick", "thin"}
    assert one.path == str(released / "weights.safetensors") and one.attacks[0].members == 60
    assert {"report.html", "report.md", "groups-weights.csv", "exposed-weights.csv"} <= {f.name for f in out.iterdir()}
    page = (out / "report.md").read_text(encoding="utf-8")
    assert "Batch size" not in page and "neither list are assumed to be non-members" in page


def test_claims_shadow_models_and_other_files(run, released: Path, tmp_path: Path) -> None:
    """A claim that does not hold; BatchNorm in shadow models; torch's own file; records instead of ids."""
    torch.save(load_file(released / "weights.safetensors"), tmp_path / "w.pt")
    pool = load(TASK).pool
    inputs = pool.inputs
    assert isinstance(inputs, torch.Tensor)
    for name in ("members", "others"):
        ids = [int(line) for line in (released / f"{name}.csv").read_text().split()[1:]]
        with (tmp_path / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow([*(f"x{k}" for k in range(64)), "label", "group"])
            for i in ids:
                table.writerow([*inputs[i].tolist(), int(pool.targets[i]), "ab"[i % 2]])
    out = tmp_path / "out"
    settings = options(tmp_path, model=str(tmp_path / "w.pt"))
    done = run("audit", TASK, *settings, "--attacks", "loss", "--claim", "epsilon=0.01@1e-5", "--out", str(out))
    (one,) = read_result(out).runs
    assert done.code == 0 and one.verdict.kind == "exposed"
    assert curve_name(one.claims[0]) == "Claim: epsilon = 0.01 at delta = 1e-05"
    assert one.grouped_by == "group" and [group.group for group in one.groups] in (["a", "b"], ["b", "a"])
    by_records = one.attacks[0].auc.value
    who = {"members": str(released / "members.csv"), "non_members": str(released / "others.csv")}
    result = audit(
        TASK,
        runs=[{"model": str(tmp_path / "w.pt"), **who}],
        attacks=["loss", "lira"],
        shadows={"count": 4, "folder": str(tmp_path / "shadows"), "workers": 1},
    )
    found = {attack.attack: attack.auc.value for attack in result.runs[0].attacks}
    assert found["loss"] == by_records and 0.5 < found["lira"] < 0.8


def test_what_is_refused(run, released: Path, tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        return assert_one_sentence(run("audit", TASK, *arguments, "--out", str(tmp_path / "out")))

    assert "--attacks has 'glir', which needs the training steps" in refused(*options(released), "--attacks", "glir")
    assert "needs --members" in refused("--model", "w.pt")
    assert "--run and --model are both given" in refused(*options(released), "--run", "x")
    who = {"members": str(released / "members.csv"), "non_members": str(released / "others.csv")}
    one = {"model": str(released / "weights.safetensors"), **who}
    for name, value, words in (("group_by", "writin", "is not among the groups"), ("repeats", 3, "trained again")):
        with pytest.raises(InvalidArgument, match=words):
            audit(TASK, runs=[one], attacks=["loss"], **{name: value})
    same = options(released, **{"non-members": str(released / "members.csv")})
    assert "both name record" in refused(*same)
    (tmp_path / "far.csv").write_text("id\n1\n99999\n")
    assert "has 99999, but the pool" in refused(*options(released, members=str(tmp_path / "far.csv")))
    torch.save({"other": torch.zeros(1)}, tmp_path / "w.pt")
    assert "of another model than the task makes" in refused(*options(released, model=str(tmp_path / "w.pt")))
