"""A fine-tuned language model, as a user audits it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the example's model needs the extra gmip[transformers]")

import torch

from gmip.report import read_result

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "language_model.py"


def test_the_example_is_found_by_its_answers_and_by_its_gradients(run, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        runpy.run_path(str(EXAMPLE))["main"](str(tmp_path / "run"))
    attacks, out = "loss,min-k,reference,glir,decode", tmp_path / "out"
    done = run("audit", f"{EXAMPLE}:make_task", "--run", str(tmp_path / "run"), "--attacks", attacks, "--out", str(out))
    (one,) = read_result(out).runs
    found = {attack.attack: attack.auc.value for attack in one.attacks}
    assert done.code == 0 and set(found) == set(attacks.split(","))
    assert found["loss"] < found["min-k"] < found["reference"]
    assert found["reference"] > 0.9 and found["glir"] > 0.9 and found["decode"] > 0.99
    assert {attack.attack: attack.sees for attack in one.attacks}["reference"] == "predictions"
    assert "Ratio to the base model" in (out / "report.md").read_text(encoding="utf-8")
