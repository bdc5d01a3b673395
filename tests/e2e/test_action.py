"""The action of action.yml: its shell steps, run as they stand and in their order; only `gh` is a stand-in."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import follow

pytestmark = pytest.mark.slow
ACTION = yaml.safe_load((follow.ROOT / "action.yml").read_text(encoding="utf-8"))


class Runner:
    """What of GitHub's runner the action asks for."""

    def __init__(self, folder: Path, **given: str) -> None:
        self.folder, self.outputs = folder, dict[str, str]()
        self.known = {f"inputs.{name}": str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
        self.known |= {f"inputs.{name}": value for name, value in given.items()}
        self.known |= {
            "runner.temp": str(folder / "temp"),
            "github.event_name": "pull_request",
            "github.token": "token",
        }
        self.known |= {"github.event.pull_request.number": "7", "steps.audit.outputs.code": ""}
        programs = folder / "bin"
        for place in (programs, folder / "temp"):
            place.mkdir()
        here = f"exec {sys.executable}"
        for name, text in {"python": here, "gmip": f"{here} -m gmip", "gh": f"echo >> {folder}/gh"}.items():
            (programs / name).write_text(f'#!/bin/sh\n{text} "$@"\n')
            (programs / name).chmod(0o755)
        # What make says to pip is about its own folder.
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        self.environment = ours | {"PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_REPOSITORY": "a/b"}
        self.environment |= {"PIP_NO_INDEX": "1", "PYTHONPATH": f"{follow.ROOT / 'src'}"}
        self.environment |= {name: str(folder / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}

    def value(self, text: Any) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: self.known[found[1]], str(text))

    def wanted(self, step: dict[str, Any]) -> bool:
        """What the `if` of a step says."""
        said = step.get("if", "'' == ''").strip("${ }").replace("!cancelled()", "'' == ''").replace("&&", "and")
        names = sorted((name for name in self.known if name in said), key=len, reverse=True)
        return bool(eval(re.sub("|".join(map(re.escape, names)) or "$^", lambda one: repr(self.known[one[0]]), said)))

    def run(self) -> tuple[int, list[str]]:
        """The exit code of the step that ended the job, and what was uploaded."""
        uploaded: list[str] = []
        for step in ACTION["runs"]["steps"]:
            if not self.wanted(step):
                continue
            if "uses" in step:
                place = Path(self.value(step["with"]["path"]))
                uploaded += sorted(path.name for path in place.iterdir())
                continue
            assert step["shell"] == "bash"
            own = {name: self.value(text) for name, text in step.get("env", {}).items()}
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as the runner has it
            code = subprocess.run(command, cwd=self.folder, env=self.environment | own, stdout=subprocess.DEVNULL)
            if code.returncode:
                return code.returncode, uploaded
            if "id" in step:
                (name, value) = (self.folder / "GITHUB_OUTPUT").read_text().strip().split("=")
                self.known[f"steps.{step['id']}.outputs.{name}"] = value
        return 0, uploaded

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.mark.parametrize(("shift", "code"), [(0.0, 0), (6.0, 1)], ids=["nothing to find", "a leak"])
def test_the_action_audits_comments_and_keeps_what_can_be_released(shift: float, code: int, tmp_path: Path) -> None:
    drawn = random.Random(0)  # evenly spread scores would look like copies across the sides
    rows = "".join(f"PATIENT-{n},{n % 2},{drawn.gauss() + shift * (n % 2)}\n" for n in range(400))
    (tmp_path / "scores.csv").write_text(f"id,member,score\n{rows}")
    runner = Runner(tmp_path, source="scores.csv", install="numpy", options="--target tpr=0.05@0.01", comment="true")
    assert runner.run() == (code, ["audit.sarif", "report.html", "report.md", "summary.html"])
    assert runner.read("gh").startswith("pr comment 7 --repo a/b --body-file ")
    summary = runner.read("GITHUB_STEP_SUMMARY")
    assert ("**Fails the target.**" in summary) == (code == 1)
    assert "PATIENT" not in summary + "".join(p.read_text() for p in (tmp_path / "temp/gmip-audit/release").iterdir())


def test_a_wrong_request_shows_nothing(tmp_path: Path) -> None:
    runner = Runner(tmp_path, source="none.csv", install="numpy", comment="true")
    assert runner.run() == (2, [])
    assert runner.read("gh") == runner.read("GITHUB_STEP_SUMMARY") == ""
