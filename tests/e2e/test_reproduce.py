"""`gmip reproduce` as a user runs it: real experiments, several processes, interruption, missing data, bad requests."""

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
from gmip.cli import main
from gmip.parallel import Workers
from gmip.reproduce import names, prepare, reproduce
from gmip.reproduce.experiments import utility
from gmip.reproduce.result_files import read_csv

ROOT = Path(__file__).parents[2]


def test_an_experiment_from_the_command_line(tmp_path, capsys):
    assert main(["reproduce", "assumptions", "--out", str(tmp_path), "--workers", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["assumptions"]
    assert [claim["agrees"] for claim in found["claims"]].count("yes") == 5
    assert found["cells"] == len(attack_table.names()) + 1  # and differences
    assert "assumptions" in err
    kept = json.loads((tmp_path / "assumptions.json").read_text())
    assert kept["command"] == f"gmip reproduce assumptions --out {tmp_path} --workers 1 --json"
    assert main(["reproduce", "assumptions", "--out", str(tmp_path), "--workers", "1"]) == 0
    assert "assumptions: 5 of 6 claims agree." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["convergance"], "'convergance' is not an experiment, did you mean 'convergence': pass one of convergence,"),
        (["all", "--redraw", "--quick"], "--redraw computes nothing: leave out --quick"),
        (["all", "--redraw"], "has no results to redraw: compute them first."),
        (["convergance", "--redraw"], "'convergance' is not an experiment"),
        (["all", "--workers", "0"], "--workers must be a whole number from 1 to 1e18, not '0'"),
        (["all", "--backend", "slurm"], "--backend = 'slurm' is not known: pass one of 'local', 'dask', 'ray'"),
        (["all", "--backend", "dask"], "--backend = 'dask' needs --scheduler-address: set it"),
        (
            ["all", "--scheduler-address", "tcp://a:1"],
            "--scheduler-address = 'tcp://a:1' is not used by --backend = 'local'",
        ),
        (["assumptions", "--out", "FILE"], "is a file: pass a folder for the results."),
        (["assumptions", "--out", "FILE/below"], "cannot be written"),
        (["assumptions", "convergence"], "is not expected here"),
    ],
)
def test_bad_requests_take_one_sentence(tmp_path, capsys, arguments, sentence):
    (tmp_path / "FILE").write_text("")
    arguments = [argument.replace("FILE", str(tmp_path / "FILE")) for argument in arguments]
    given = [] if "--out" in arguments else ["--out", str(tmp_path / "out")]
    assert main(["reproduce", *arguments, *given]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and sentence in err
    assert not (tmp_path / "out").exists()


def test_help_names_the_experiments(capsys):
    assert main(["reproduce", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert all(name in told for name in names())


def test_a_quick_run_does_not_replace_a_full_one(tmp_path, capsys):
    given = ["reproduce", "assumptions", "--out", str(tmp_path), "--workers", "1"]
    assert main(given) == 0
    assert main([*given, "--quick"]) == 2
    assert "is of a full run and would be replaced by a quick one" in capsys.readouterr().err


@pytest.mark.slow
def test_killed_and_resumed_with_several_workers_the_numbers_are_the_same(tmp_path):
    """Killed with half of the cells done; what was done is not touched again, and the CSV is that of one process."""
    alone = tmp_path / "alone"
    reproduce(["convergence"], alone, quick=True, settings=Workers(workers=1))
    together = tmp_path / "together"
    cells = together / "work" / "convergence"
    script = "from gmip.cli import main; import sys; sys.exit(main())"
    given = ["reproduce", "convergence", "--quick", "--workers", "2", "--out", str(together)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *map(str, sys.path)])}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", script, *given], env=environment, start_new_session=True)

    first = start()
    try:
        begin = time.monotonic()
        while len(list(cells.glob("*.json")) if cells.exists() else []) < 5:
            assert first.poll() is None and time.monotonic() - begin < 120
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    before = {path: path.stat().st_mtime_ns for path in cells.glob("*.json")}
    assert 5 <= len(before) < len(list((alone / "work" / "convergence").glob("*.json")))
    assert not (together / "convergence.csv").exists()
    assert start().wait(180) == 0
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    for name in ("convergence.csv", "convergence.svg"):
        assert (together / name).read_bytes() == (alone / name).read_bytes()


@pytest.fixture
def some_of_the_quick_run(cifar10, monkeypatch):
    """Of `all --quick`, the cells on real data that take seconds, and those on Purchase."""
    monkeypatch.setattr(utility, "_QUICK_LEVELS", (2,))
    monkeypatch.setattr(utility, "_QUICK_SEEDS", 1)
    plan = prepare(["utility", "audit", "audit-loglog", "loss-attacks"], quick=True)
    if missing := {"cifar10", "location"} & set(plan.missing):
        pytest.skip(plan.missing[missing.pop()])
    tasks = {"utility": "cifar10", "audit": "location", "audit-loglog": "location", "loss-attacks": "cifar10"}
    some = {
        name: tuple(
            cell
            for cell in cells
            if cell.task in (tasks[name], "purchase") and getattr(cell, "stage", "five steps") == "five steps"
        )
        for name, cells in plan.cells.items()
    }
    if "purchase" not in plan.missing:  # minutes of it
        some = {name: tuple(cell for cell in cells if cell.task != "purchase") for name, cells in some.items()}
    return dataclasses.replace(plan, cells=some)


@pytest.mark.slow
def test_real_data_and_none_in_place_of_purchase(tmp_path, some_of_the_quick_run):
    plan = some_of_the_quick_run
    outcomes = {one.experiment: one for one in reproduce(plan, tmp_path, settings=Workers(workers=1))}
    claims = [claim for outcome in outcomes.values() for claim in outcome.claims]
    assert len(claims) >= 10 and [claim.what for claim in claims if claim.agrees == "no"] == []
    rows = {name: read_csv((tmp_path / f"{name}.csv").read_text()) for name in ("utility", "audit", "loss-attacks")}
    assert {row["task"] for each in rows.values() for row in each} == {"cifar10", "location"}
    # At mu = 0.66 the accounting of the paper takes the noise of GDP and the tight one a fifth of it.
    accuracy = {row["accounting"]: row["test_accuracy"] for row in rows["utility"]}
    assert accuracy["gmip-tight"] > accuracy["gmip-paper"] + 0.1
    assert accuracy["gmip-paper"] == pytest.approx(accuracy["gdp"], abs=0.002)
    areas = {row["curve"]: row["auc"] for row in rows["loss-attacks"]}
    assert areas["glir"] > 0.8 and abs(areas["lira"] - 0.5) < 0.06 and abs(areas["loss"] - 0.5) < 0.06
    if "purchase" in plan.missing:
        assert all(
            set(one.skipped) == {"purchase"} and "by hand" in one.skipped["purchase"] for one in outcomes.values()
        )
        assert (tmp_path / "index.html").read_text().count("purchase is left out") == 4
