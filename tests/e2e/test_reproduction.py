"""`python -m reproduction` as a user runs it: real experiments, processes, interruption, missing data, bad requests."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="reproduction needs the extra gmip[reproduce]")
pytest.importorskip("matplotlib", reason="reproduction needs the extra gmip[reproduce]")

from gmip.attacks import attack_table
from gmip.errors import DataUnavailable
from gmip.parallel import Workers
from reproduction.__main__ import main
from reproduction.computation import reproduce
from reproduction.experiment import Experiment, Study
from reproduction.experiments import PAPER, utility
from reproduction.paper import load_task
from reproduction.results import read_csv

ROOT = Path(__file__).parents[2]


def test_an_experiment_from_the_command_line(tmp_path, capsys):
    assert main(["assumptions", "--out", str(tmp_path), "--workers", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["assumptions"]
    assert [claim["verdict"] for claim in found["claims"]].count("agrees") == 5
    assert found["cells"] == len(attack_table.names()) + 1  # and differences
    assert "assumptions" in err
    kept = json.loads((tmp_path / "assumptions.json").read_text())
    assert kept["command"] == f"python -m reproduction assumptions --out {tmp_path} --workers 1 --json"
    assert main(["assumptions", "--out", str(tmp_path), "--workers", "1"]) == 0
    assert "assumptions: claims of the paper: 5 agrees, 1 differs, 0 contradicted." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["convergance"], "'convergance' is not an experiment, did you mean 'convergence': pass one of convergence,"),
        (["--redraw", "--quick"], "--redraw computes nothing: leave out --quick"),
        (["--redraw"], "has no results to redraw: compute them first."),
        (["convergance", "--redraw"], "'convergance' is not an experiment"),
        (["--workers", "0"], "workers = 0 must be"),
        (["--workers", "two"], "--workers: invalid int value: 'two': see python -m reproduction --help."),
        (["--slow"], "Unrecognized arguments: --slow: see python -m reproduction --help."),
        (["--backend", "slurm"], "backend = 'slurm' is not known: pass one of 'local', 'dask', 'ray'"),
        (["--backend", "dask"], "backend = 'dask' needs"),
        (["--scheduler-address", "tcp://a:1"], "scheduler_address = 'tcp://a:1' is not used by"),
        (["assumptions", "--out", "FILE"], "is a file: pass a folder for the results."),
        (["assumptions", "--out", "FILE/below"], "cannot be written"),
    ],
)
def test_bad_requests_take_one_sentence(tmp_path, capsys, arguments, sentence):
    (tmp_path / "FILE").write_text("")
    arguments = [argument.replace("FILE", str(tmp_path / "FILE")) for argument in arguments]
    given = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
    assert main([*arguments, *given]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and sentence in err
    assert not (tmp_path / "out").exists()


def test_help_names_the_experiments(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split()).replace("- ", "-")  # argparse breaks lines at hyphens
    assert left.value.code == 0 and all(name in told for name in PAPER.names)


def test_a_quick_run_does_not_replace_a_full_one(tmp_path, capsys):
    given = ["assumptions", "--out", str(tmp_path), "--workers", "1"]
    assert main(given) == 0
    assert main([*given, "--quick"]) == 2
    assert "is of a full run and would be replaced by a quick one" in capsys.readouterr().err


@pytest.mark.slow
def test_killed_and_resumed_with_several_workers_the_numbers_are_the_same(tmp_path):
    """Killed with half of the cells done; what was done is not touched again, and the CSV is that of one process."""
    alone = tmp_path / "alone"
    reproduce(PAPER, ["convergence"], alone, quick=True, workers=Workers(workers=1))
    together = tmp_path / "together"
    given = ["convergence", "--quick", "--workers", "2", "--out", str(together)]
    cells = "work/convergence-*/*.entry"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *map(str, sys.path)])}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "reproduction", *given], cwd=ROOT, env=environment, start_new_session=True
        )

    first = start()
    try:
        begin = time.monotonic()
        while len(list(together.glob(cells))) < 5:
            assert first.poll() is None and time.monotonic() - begin < 120
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    before = {path: path.stat().st_mtime_ns for path in together.glob(cells)}
    assert 5 <= len(before) < len(list(alone.glob(cells)))
    assert not (together / "convergence.csv").exists()
    assert start().wait(180) == 0
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    for name in ("convergence.csv", "convergence.svg"):
        assert (together / name).read_bytes() == (alone / name).read_bytes()


@pytest.fixture
def some_of_the_quick_run(whole_cifar10, monkeypatch):
    """The cells of --quick on real data that take seconds, and those on Purchase if it is missing."""
    monkeypatch.setattr(utility, "_QUICK_LEVELS", (2,))
    monkeypatch.setattr(utility, "_QUICK_SEEDS", 1)
    missing = {}
    for name in ("cifar10", "location", "purchase"):
        try:
            load_task(name)
        except DataUnavailable as error:
            missing[name] = str(error)
    if needed := {"cifar10", "location"} & set(missing):
        pytest.skip(missing[needed.pop()])
    tasks = {"utility": "cifar10", "audit": "location", "audit-loglog": "location", "loss-attacks": "cifar10"}

    def some(experiment: Experiment) -> Experiment:
        wanted = (tasks[experiment.name], *({"purchase"} & set(missing)))  # Purchase itself takes minutes
        cells = [
            cell
            for cell in experiment.cells(True)
            if cell.task in wanted and getattr(cell, "stage", "five steps") == "five steps"
        ]
        return dataclasses.replace(experiment, cells=lambda quick: cells)

    return Study("Some", "", tuple(map(some, PAPER.select(list(tasks))))), "purchase" in missing


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:purchase is skipped")
def test_real_data_and_none_in_place_of_purchase(tmp_path, some_of_the_quick_run):
    study, without_purchase = some_of_the_quick_run
    outcomes = {one.experiment: one for one in reproduce(study, [], tmp_path, quick=True, workers=Workers(workers=1))}
    claims = [claim for outcome in outcomes.values() for claim in outcome.claims]
    assert len(claims) >= 10 and {claim.verdict for claim in claims} <= {"agrees", "differs", "contradicted"}
    rows = {name: read_csv((tmp_path / f"{name}.csv").read_text()) for name in ("utility", "audit", "loss-attacks")}
    assert {row["task"] for each in rows.values() for row in each} == {"cifar10", "location"}
    # At mu = 0.66 the accounting of the paper takes the noise of GDP and the tight one a fifth of it.
    accuracy = {row["accounting"]: row["test_accuracy"] for row in rows["utility"]}
    assert accuracy["gmip-tight"] > accuracy["gmip-paper"] + 0.1
    assert accuracy["gmip-paper"] == pytest.approx(accuracy["gdp"], abs=0.002)
    areas = {row["curve"]: row["auc"] for row in rows["loss-attacks"]}
    assert areas["glir-paper"] > 0.7 and abs(areas["lira"] - 0.5) < 0.06 and abs(areas["loss"] - 0.5) < 0.06
    if without_purchase:
        assert all(
            set(one.skipped) == {"purchase"} and "by hand" in one.skipped["purchase"] for one in outcomes.values()
        )
        assert (tmp_path / "index.html").read_text().count("purchase is left out") == 4
