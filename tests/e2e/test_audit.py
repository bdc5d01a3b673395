"""`gmip audit`, `init`, `report` as a user meets them."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gmip._io import hold_folder
from gmip.attacks.attack import Attack
from gmip.cli import main
from gmip.errors import FileError
from gmip.report import card, read_result
from gmip.trace import Trace

ROOT = Path(__file__).parents[2]
QUICK = ["--attacks", "loss", "--seed", "1"]


def gmip(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "a"
    assert gmip("train", "digits", "--steps", 2, "--seed", 3, "--out", folder) == 0
    return folder


@pytest.fixture
def audited(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert gmip("audit", "digits", "--run", run, "--out", tmp_path / "audit", *QUICK) == 0
    capsys.readouterr()
    return tmp_path / "audit"


# -- what is written and said -----------------------------------------------------------------------------------------


def test_an_audit_writes_a_report_and_says_where(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "audit"
    assert gmip("audit", "digits", "--run", f"deployed={run}", "--out", out, *QUICK) == 0
    said = capsys.readouterr()
    assert f"Report: {out / 'report.html'}" in said.out
    assert "loss on deployed" in said.err
    names = {path.name for path in out.iterdir()}
    assert names == {
        "report.html",
        "report-to-share.html",
        "report.md",
        "summary.html",
        "result.json",
        "exposed-deployed.csv",
        "groups-deployed.csv",
        "work",
        ".lock",
    }
    result = read_result(out)
    assert card.headline(result.runs[0]) in said.out.replace("\n", " ")
    assert "--seed" in result.provenance.command  # repeated, it gives the same numbers
    assert result.provenance.command.startswith(f"gmip audit digits --run deployed={run} --out {out}")
    with (out / "exposed-deployed.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    members = set(map(str, Trace.open(run).members.tolist()))  # type: ignore[union-attr]
    assert len(rows) >= 120
    assert all((row["id"] in members) == (row["member"].lower() == "true") for row in rows)


def test_json(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gmip("audit", "--run", run, "--out", tmp_path / "a", "--json", *QUICK) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "a" / "result.json").read_text())
    assert (printed["format"], printed["version"]) == ("gmip-audit", 1)


def test_who_is_out_there(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["audit", "--run", run, "--out", tmp_path / "a", "--attacker", "predictions", "--seed", "1"]
    assert gmip(*arguments, "--target", "tpr=0.3@0.1") == 0
    result = read_result(tmp_path / "a")
    (audited,) = result.runs
    assert [one.attack for one in audited.attacks] == ["loss"]
    assert [one.sees for one in audited.answers] == ["predictions"]
    assert (audited.goal.tpr, audited.goal.fpr) == (0.3, 0.1)
    assert (tmp_path / "a" / "report-to-share.html").exists()
    capsys.readouterr()
    assert gmip(*arguments, "--attacks", "glir") == 2
    assert "--attacks has 'glir', whose attacker sees gradients, more than" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("attack", "target", "code", "why"),
    [  # seed 3 is guessed at once: every member is found
        ("seed", "tpr=0.21@0.2", 1, "at least"),
        ("seed", "tpr=0.999@0.5", 1, "probably"),  # 100% found, and at least 98%
        ("loss", "tpr=0.999@0.5", 0, ""),
    ],
)
def test_the_gate(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], attack: str, target: str, code: int, why: str
) -> None:
    asked = ["--attacks", attack, "--seed", "1", "--target", target]
    arguments = ["audit", "--run", run, "--out", tmp_path / "a", "--gate", *asked]
    assert gmip(*arguments, "--junit", tmp_path / "j.xml") == code
    said = capsys.readouterr()
    assert ("Failed" in said.err) == (code == 1) and why in said.err
    assert ("gate" in (tmp_path / "j.xml").read_text()) and (tmp_path / "a" / "report.html").exists()


def test_a_plan_says_what_the_audit_would_do_and_does_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Attack, "run", lambda *_, **__: pytest.fail("an attack ran"))
    asked = ["audit", "--run", run, "--out", tmp_path / "planned", "--plan"]
    assert gmip(*asked, "--workers", "2", "--attacks", "glir,decode,lira") == 0
    said = capsys.readouterr().out
    assert all(words in said for words in ("glir on", "decode on", "In all about", "lira on"))
    assert gmip(*asked, "--json", "--attacks", "glir,lira", "--budget", "10min") == 0
    found = json.loads(capsys.readouterr().out)
    glir, lira = found["attacks"]
    assert found["workers"] == 1 and lira["work"] is None and glir["error"] is None
    work, trace = glir["work"], Trace.open(run)
    assert work["steps"] == len(trace) and work["seconds"] == pytest.approx(
        work["alone"] + work["pieces"] * work["each"]
    )
    assert work["memory_here"] > 0 and work["bytes_moved"] == 0
    assert gmip(*asked, "--workers", "dask://127.0.0.1:1") == 0  # nobody is asked
    assert not (tmp_path / "planned").exists()


def test_a_plan_of_what_would_be_trained_first_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gmip("audit", "digits", "--plan") == 2
    assert "recorded runs" in capsys.readouterr().err
    (tmp_path / "scores.csv").write_text("member,score\n1,2\n0,1\n")
    assert gmip("audit", "scores.csv", "--plan") == 2
    assert "--plan does not apply" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["scores.csv"]


def test_settings_from_a_file_with_changes(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gmip("init") == 0
    assert "gmip audit audit.yaml" in capsys.readouterr().out
    assert gmip("init") == 2
    assert "already exists" in capsys.readouterr().err
    Path("other.yaml").write_text(
        f"task: digits\nruns: ['{run}']\nattacks: [loss]\nout: here\ncandidates: 50\nseed: 4\nshadows: {{count: 8}}\n"
    )
    assert gmip("audit", "other.yaml", "--workers", "ray://auto") == 0
    result = read_result("here")
    assert result.provenance.seed == 4
    shadows = result.provenance.config["shadows"]
    assert (shadows["count"], shadows["backend"]) == (8, "ray")  # type: ignore[index]


def test_report_again(audited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (audited / "report.html").read_bytes()
    (audited / "report.html").unlink()
    assert gmip("report", audited / "result.json") == 0
    assert (audited / "report.html").read_bytes() == before
    assert gmip("report", audited, "--out", tmp_path / "b") == 0
    assert (tmp_path / "b" / "report.html").read_bytes() == before


def test_compare(audited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gmip("report", audited, audited / "result.json", "--out", tmp_path / "both") == 0
    said = capsys.readouterr().out
    assert "a (2): " in said and "accuracy " in said
    assert [one.name for one in read_result(tmp_path / "both").runs] == ["a", "a (2)"]
    assert gmip("report", audited, "--for", "dpia,release") == 2
    assert "--for takes one at a time: run the command once for each." in capsys.readouterr().err
    assert gmip("report", audited, audited, "--out", audited) == 2  # it would replace one of them
    assert "name another folder" in capsys.readouterr().err


# -- a project of one's own -------------------------------------------------------------------------------------------


def test_the_example_project_is_audited_by_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = ROOT / "examples" / "my_project.py"
    subprocess.run([sys.executable, project, tmp_path / "mine"], check=True, capture_output=True, env=_environment())
    assert gmip("audit", f"{project}:make_task", "--run", tmp_path / "mine", "--out", tmp_path / "audit") == 0
    (one,) = read_result(tmp_path / "audit").runs
    assert one.task == "my-project"
    assert {attack.attack for attack in one.attacks} == {"glir", "decode", "loss"}
    assert one.attacks[0].attack == "glir" and one.attacks[0].auc.value > 0.55


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digist"], "'digist' is not known, did you mean 'digits'"),
        (["no.yaml"], "no.yaml does not exist: gmip init"),
        (["--run", "nowhere"], "nowhere"),
        (["--attacks", "gilr"], "did you mean 'glir'"),
        (["--attacks", "loss,loss"], "names 'loss' twice"),
        (["--target", "tpr=0.05"], "--target must be like tpr=0.05@0.01"),
        (["--target", "mu=1"], "--target must be like tpr=0.05@0.01 for an audit"),
        (["--target", "tpr=0.01@0.05"], "guessing alone finds 0.05"),
        (["--claim", "mu=-1"], "--claim must be like mu=0.5 or epsilon=3@1e-5"),
        (["--device", "tpu"], "--device is not a device"),
        (["--budget", "soon"], "--budget should be a length of time"),
        (["--attacker", "everybody"], "attacker"),
        (["--workers", "spark://a"], "--workers must be a number of processes, dask://HOST:PORT"),
        (["--seed", "-1"], "--seed must be"),
        (["--target", "tpr=0.05@0.01", "--target=tpr=1@0.5"], "--target was given 2 times: pass it once"),
        (["--out", "/dev/null/x"], "cannot be made a folder"),
        (["one", "two"], "two"),
    ],
)
def test_bad_requests(
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gmip("audit", *arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err
    assert said.err.count("\n") == 1
    assert list(tmp_path.rglob("report*")) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"format": "gmip-audit", "version": 2}', b"\x00\xff"])
@pytest.mark.parametrize("count", [1, 2])
def test_bad_results(content: bytes, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    assert gmip("report", *([path] * count)) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


# -- interruption -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_and_repeated(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kill -9 while GLiR is at work: no report, and the second call does not attack the loss again."""
    arguments = ["audit", "--run", str(run), "--out", str(tmp_path / "a"), "--attacks", "loss,glir", "--seed", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "gmip", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=_environment(),
    ) as p:
        assert p.stderr is not None
        for line in p.stderr:
            if line.startswith("glir on"):
                break
        time.sleep(0.2)
        p.send_signal(signal.SIGKILL)
    assert not (tmp_path / "a" / "report.html").exists()
    capsys.readouterr()
    assert gmip(*arguments) == 0
    said = capsys.readouterr().err
    assert "glir on" in said and "loss on" not in said
    assert (tmp_path / "a" / "report.html").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sigterm_behaves_as_ctrl_c(run: Path, tmp_path: Path, number: int) -> None:
    """Finished work is kept, one sentence says so; meanwhile the folder is held against other audits."""
    arguments = ["audit", "--run", str(run), "--out", str(tmp_path / "a"), "--attacks", "loss,glir", "--seed", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "gmip", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
    ) as p:
        assert p.stderr is not None and p.stdout is not None
        next(line for line in p.stderr if line.startswith("glir on"))
        if number == signal.SIGTERM:
            with pytest.raises(FileError, match=rf"is in use by process {p.pid} on "):
                hold_folder(tmp_path / "a")
        p.send_signal(number)
        said = p.stderr.read()
        assert p.stdout.read() == ""
    assert p.returncode == 130
    assert said == "Interrupted: run the command again to continue; finished work is kept.\n"
    assert list((tmp_path / "a" / "work" / "scores").glob("scores-*/*.entry"))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
