"""`make demo`: its story on an audit whose numbers are known, and the report that it writes."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gmip._io import read_yaml
from gmip.auditing.settings import make_config
from gmip.report import read_result
from gmip.tasks import load
from gmip.vocabulary import Rate
from tests.unit.report import sample

EXAMPLES = Path(__file__).parents[2] / "examples"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_story_names_everyone_and_the_run_to_ship():
    result = sample.three_runs()
    runs = tuple(run.model_copy(update={"goal": Rate(0.05, 0.01)}) for run in result.runs)
    told = "\n".join(module("demo").story(result.model_copy(update={"runs": runs})))
    assert "Without noise: 87.3% of the test digits are read" in told
    assert "Fails the target. Found at 1% false alarms, by an attacker\n   - with gradients: 13.6% (" in told
    assert "Ship 'GMIP noise'" in told and "needs no noise for this target" in told


def test_its_settings_are_seeded_and_its_task_loads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(EXAMPLES.parent)
    config = make_config(read_yaml("examples/demo.yaml"), "examples/demo.yaml")
    assert config.seed is not None and config.runs[0].name == "no noise"
    assert Path(config.out) == module("demo").OUT
    task = load(config.task)
    assert len(task.pool) == 2 * task.recipe.dataset_size  # as many others: 1% is six of them
    assert sum(p.numel() for p in task.make_model().parameters()) == 170


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the demo writes: a few seconds."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert module("demo").main() == 0
    return folder / module("demo").OUT


@pytest.mark.slow
def test_its_report_is_short(report: Path, browser: Any):
    page = browser.new_page()
    page.goto((report / "report.html").as_uri())
    assert 300 < len(page.inner_text("body").split()) <= 2_500
    page.close()


@pytest.mark.slow
def test_its_model_leaks_and_one_is_to_be_shipped(report: Path):
    """Without noise it must fail: decoding once chose how many members are listed before it had settled."""
    runs = read_result(report).runs
    assert [run.conclusion.kind for run in runs] == ["fails", "passes", "guaranteed"]


@pytest.mark.slow
def test_what_is_passed_on_names_no_record_path_or_seed(report: Path):
    """The demo's records have names of their own: the report shows them, what is to be shared does not."""
    whole = (report / "report.html").read_text(encoding="utf-8")
    assert "digit-" in whole and "Seed" in whole
    assert "digit-" in (report / "exposed-no-noise.csv").read_text(encoding="utf-8").splitlines()[1]
    for name in ("report-to-share.html", "report.md", "summary.html"):
        text = (report / name).read_text(encoding="utf-8")
        found = [word for word in ("digit-", str(report.parent), "runs/", "examples/", "demo.yaml") if word in text]
        assert found == [], name
        assert "--seed" not in text and ">Seed<" not in text and "| Seed" not in text


@pytest.mark.slow
def test_its_summary_is_one_page(report: Path, browser: Any):
    page = browser.new_page()
    page.goto(f"{report.as_uri()}/summary.html")
    for paper in ("A4", "Letter"):
        assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format=paper))) == 1
    page.close()
