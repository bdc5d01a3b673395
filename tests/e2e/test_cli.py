"""The command line from the outside: what it prints, where, and with which exit code."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gmip
from gmip import _numbers
from gmip.accounting.account import mu_per_step
from gmip.accounting.convert import gdp_mu_from_gmip_mu, gmip_mu_from_gdp_mu
from gmip.cli import main
from tests.e2e.cli import CLIPPED, PAPER, RUN, TARGET, shell

GAME = "Compared with: another of the records in its place in the batch."
HEADLINE = (
    "At a 1% false-alarm rate, an attacker is expected to find about 4.39% of the members, for a typical record and an "
    "attacker who knows the distribution of the data but no members."
)

# -- the process -------------------------------------------------------------------------------------------------------


def test_account_as_a_process():
    done = shell("account", *RUN)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == HEADLINE
    assert f"A forecast, not a bound. {GAME} Not covered: an attacker with a list" in done.stdout
    assert "--explain lists what it assumes." in done.stdout


def test_json_as_a_process():
    done = shell("account", *RUN, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["tpr_at_fpr"]["0.01"] == pytest.approx(0.043828, abs=2e-5)


def test_error_as_a_process():
    done = shell("account", *RUN, "--clip", "abc", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "--clip must be a finite number above 0, not 'abc': pass one such as 0.5.\n"


def test_output_without_unicode_and_without_a_terminal():
    done = shell("account", *RUN, env={**os.environ, "PYTHONIOENCODING": "ascii", "TERM": "dumb"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


def test_a_reader_who_leaves_is_no_error():
    script = f"import os, sys; os.dup2({{}}, 1); from gmip.cli import main; sys.exit(main({['account', *RUN]!r}))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", script.format(writing)],
        pass_fds=[writing],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
def test_a_full_disk_is_no_leak():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gmip", "account", *RUN], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "Standard output cannot be used (No space left on device): make room, or write elsewhere.\n"


def test_sigterm_is_handled_as_before_once_a_command_is_done(run):
    before = signal.getsignal(signal.SIGTERM)
    assert run("account", *RUN).code == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_account_loads_no_framework():
    script = f"import sys; from gmip.cli import main; main({['account', *RUN]!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("moment", ["gmip.cli.account.account_run", "gmip.cli.shared_settings.RunSettings.run"])
def test_interrupt_is_quiet(run, monkeypatch, moment):
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupt)
    assert run("account", *RUN) == (130, "", "")


@pytest.mark.parametrize("closed", ["stdout", "stderr", "both"])
@pytest.mark.parametrize(("args", "code"), [(["account", *RUN], 0), (["account", "--batch-size", "0"], 2)])
def test_closed_streams_are_no_fault(closed, args, code):
    numbers = {"stdout": [1], "stderr": [2], "both": [1, 2]}[closed]
    script = "import os, sys; [os.close(int(n)) for n in sys.argv[1].split()]; os.execv(sys.executable, sys.argv[2:])"
    done = subprocess.run(
        [sys.executable, "-c", script, " ".join(map(str, numbers)), sys.executable, "-m", "gmip", *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code and "Traceback" not in done.stderr
    assert done.stdout == "" or (closed == "stderr" and code == 0)


def test_a_reader_of_errors_who_leaves_is_no_fault():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "gmip", "account", "--batch-size", "0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=writing, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate 7.28 TiB for an array"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_too_little_memory_is_said(run, monkeypatch, error):
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("gmip.cli.account.account_run", fail)
    outcome = run("account", *RUN)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert outcome.err.startswith("There is not enough memory for this")


def test_numbers_beyond_reach_are_one_sentence(run, monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise OverflowError("boom")

    monkeypatch.setattr("gmip.cli.account.account_run", fail)
    outcome = run("account", *RUN)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("These numbers are too extreme to compute with: ")


def test_a_bug_is_not_hidden(run, monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("gmip.cli.account.account_run", fail)
    outcome = run("account", *RUN)
    assert outcome.code == 70  # 1 would look like a failed gate
    assert "Traceback" in outcome.err and outcome.err.endswith("RuntimeError: a bug\n")


# -- help and version --------------------------------------------------------------------------------------------------


def test_version(run):
    assert run("--version") == (0, f"gmip {gmip.__version__}\n", "")


def test_without_a_command_the_help(run):
    outcome = run()
    assert (outcome.code, outcome.err) == (0, "")
    names = re.findall(r"│ (\w+) +[A-Z]", outcome.out)
    assert names[:7] == ["account", "calibrate", "convert", "app", "tune", "train", "check"]
    assert "how private will it be?" in outcome.out
    assert "Where to start: gmip audit digits" in outcome.out
    assert len(outcome.out.splitlines()) <= 40


@pytest.mark.parametrize("command", ["account", "train", "audit", "app"])
def test_the_help_shows_no_type_of_a_flag_and_an_example(run, command: str) -> None:
    said = run(command, "--help").out
    assert "<bool>" not in said and "Example" in said


RUN_OPTIONS = (
    "--dataset-size --batch-size --steps --epochs --params --sampling --clip --noise-multiplier --susceptibility "
    "--attacker-knows --rows-per-person --notion --explain --json "
)
OPTIONS = {
    "account": RUN_OPTIONS + "--fpr --delta",
    "calibrate": RUN_OPTIONS + "--target --solve-for",
}


@pytest.mark.parametrize("command", list(OPTIONS))
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_every_option_and_the_convention(run, command, flag):
    outcome = run(command, flag)
    assert (outcome.code, outcome.err) == (0, "")
    for option in OPTIONS[command].split():
        assert re.search(rf"│ {option} .*\w\w ", outcome.out), option
    assert "batch MEAN" in outcome.out
    assert '"Infinity"' in outcome.out


# -- account -----------------------------------------------------------------------------------------------------------


def claimed(curve: gmip.TradeOff) -> dict[str, object]:
    return {
        "kind": curve.kind,
        "for_whom": curve.for_whom,
        "caveat": curve.claim.caveat,
        "adjacency": curve.claim.adjacency,
        "not_a_member": curve.claim.not_a_member,
        "mu_fpr_range": [1e-5, 1.0 - 1e-5],
        "tpr_error": curve.tpr_error,
        "assumptions": list(curve.assumptions),
    }


def understood(run: gmip.NoisySGD) -> dict[str, object]:
    return dataclasses.asdict(run) | {
        "noise_multiplier": run.noise_multiplier,
        "sample_rate": run.sample_rate,
        "steps_per_epoch": run.steps_per_epoch,
        "epochs": pytest.approx(run.num_steps * run.batch_size / run.dataset_size),
    }


def test_account_json(answer):
    got = answer("account", *RUN)
    curve = gmip.account(PAPER)
    assert got == {
        "gmip": gmip.__version__,
        "run": understood(PAPER),
        "notion": "gmip",
        "susceptibility": None,
        "attacker_knows": 0.0,
        "rows_per_person": 1,
        "bound": "tight",
        "composition": "exact",
        "mu_step": mu_per_step(PAPER),
        "mu": curve.equivalent_mu(),
        "tpr_at_fpr": {"0.001": curve.tpr_at(0.001), "0.01": curve.tpr_at(0.01), "0.1": curve.tpr_at(0.1)},
        "advantage": curve.advantage(),
        "auc": curve.auc(),
        "epsilon": None,
        "delta": None,
        "gdp_mu": None,
        "gdp_equivalent_mu": None,
        "gdp": None,
        **claimed(curve),
    }
    assert got["kind"] == "forecast"


@pytest.mark.parametrize("sampling", ["fixed", "poisson", "shuffled"])
def test_account_says_epsilon_and_its_neighbours(answer, run, sampling):
    noise = ["--clip", "500", "--noise-multiplier", "2", "--sampling", sampling, "--delta", "1e-6"]
    got, out = answer("account", *RUN, *noise), run("account", *RUN, *noise).out
    described = CLIPPED.replace(noise_std=2.5, sampling=sampling)
    curve, gdp = gmip.account(described), gmip.account(described, notion="gdp")
    assert (got["epsilon"], got["delta"]) == (curve.epsilon(1e-6), 1e-6)
    assert got["gdp"] == {
        "mu": gdp.gdp_mu,
        "equivalent_mu": gdp.equivalent_mu(),
        "epsilon": gdp.epsilon(1e-6),
        "delta": 1e-6,
        **claimed(gdp),
    }
    assert (got["gdp_mu"], got["gdp_equivalent_mu"]) == (gdp.gdp_mu, gdp.equivalent_mu())
    assert got["gdp_mu"] > got["gdp_equivalent_mu"]
    most = "at most" if gdp.kind == "bound" else "about"
    assert f"epsilon of differential privacy ({gdp.claim.adjacency}), {most}" in out
    assert f"mu of differential privacy, at every FPR ({gdp.claim.adjacency})" in out
    assert (gdp.claim.caveat is None) or gdp.claim.caveat in out
    assert (gdp.claim.caveat is None) == (sampling != "shuffled")


def test_shuffled_epochs(answer):
    got = answer("account", *without_steps, "--sampling", "shuffled", "--epochs", "10")
    assert got["run"]["num_steps"] == 1200
    assert got["tpr_at_fpr"]["0.01"] == pytest.approx(0.042, abs=5e-4)  # THEORY 13
    odd = ["--dataset-size", "1050", "--batch-size", "100", "--params", "5", "--sampling", "shuffled", "--epochs", "3"]
    assert answer("account", *odd)["run"]["num_steps"] == 33


without_steps = [*RUN[:4], *RUN[6:]]


@pytest.mark.parametrize(("epochs", "steps"), [("10", 1200), ("0.5", 60), ("1e-9", 1), ("1.001", 121)])
def test_epochs_are_steps_rounded_up(answer, epochs, steps):
    got = answer("account", *without_steps, "--epochs", epochs)
    assert got["run"]["num_steps"] == steps


def test_a_bound_says_at_most_and_for_whom(run, answer):
    known = ["--clip", "500", "--noise-multiplier", "1.6", "--susceptibility", "any-constant", "--attacker-knows", "1"]
    lines = run("account", *RUN, *known).out.splitlines()
    assert re.fullmatch(
        r"At a 1% false-alarm rate, an attacker finds at most [\d.]+% of the members, for a random record.*and an "
        r"attacker who knows all other members but not their batches\.",
        lines[0],
    )
    assert sum("at most" in line for line in lines) == 6
    assert not any("about" in line for line in lines)
    assert lines[-1] == f"A bound. {GAME} --explain lists what it assumes."
    got = answer("account", *RUN, *known)
    curve = gmip.account(CLIPPED.replace(noise_std=2.0), susceptibility="any-constant", attacker_knows=1.0)
    assert (got["mu"], got["mu_step"], got["kind"]) == (curve.equivalent_mu(), None, "bound")
    assert (got["susceptibility"], got["attacker_knows"]) == ("any-constant", 1.0)


def test_a_forecast_never_says_at_most(run):
    assert "at most" not in run("account", *RUN, "--sampling", "shuffled").out


def test_the_caveat_is_always_shown(run):
    out = " ".join(run("account", *RUN, "--params", "100000").out.split())
    assert "Such an attacker could decode who is in which" in out


# -- account, option by option -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "changed", "how"),
    [
        (["--susceptibility", "900"], {}, {"susceptibility": 900.0}),
        (["--clip", "500"], {"clip_norm": 500.0}, {}),
        (["--clip", "500", "--noise-multiplier", "1"], {"clip_norm": 500.0, "noise_std": 1.25}, {}),
        (["--sampling", "fixed", "--noise-multiplier", "0"], {}, {}),
        (["--sampling", "poisson"], {"sampling": "poisson"}, {}),
        (["--sampling", "shuffled"], {"sampling": "shuffled"}, {}),
        (["--attacker-knows", "0.5"], {}, {"attacker_knows": 0.5}),
        (["--sampling", "poisson", "--rows-per-person", "3"], {"sampling": "poisson"}, {"rows_per_person": 3}),
        (["--sampling", "full", "--batch-size", "48000", "--steps", "7"], None, {}),
    ],
)
def test_account_takes_every_option(answer, options, changed, how):
    got = answer("account", *RUN, *options)
    described = PAPER.replace(**changed) if changed is not None else None
    described = described or PAPER.replace(sampling="full", batch_size=48_000, num_steps=7)
    curve = gmip.account(described, **how)
    assert got["mu"] == curve.equivalent_mu()
    assert got["assumptions"] == list(curve.assumptions)
    assert got["mu_step"] == (None if "rows_per_person" in how else mu_per_step(described, **how))


def test_gdp_mu_beside_noise(answer):
    got = answer("account", *RUN, "--clip", "500", "--noise-multiplier", "2")
    noisy = CLIPPED.replace(noise_std=2.5)
    gdp = gmip.account(noisy, notion="gdp")
    assert got["gdp_equivalent_mu"] == gdp.equivalent_mu() > got["mu"]
    assert got["gdp_mu"] == pytest.approx(math.sqrt(1200) * 2 * 500 / (400 * 2.5))  # of all steps, no sampling


def test_account_by_differential_privacy(answer, run):
    argv = ["account", *RUN, "--clip", "500", "--noise-multiplier", "2", "--notion", "gdp", "--delta", "1e-6"]
    got, out, gdp = answer(*argv), run(*argv).out, gmip.account(CLIPPED.replace(noise_std=2.5), notion="gdp")
    assert (got["notion"], got["mu"], got["epsilon"]) == ("gdp", gdp.equivalent_mu(), gdp.epsilon(1e-6))
    assert (got["mu_step"], got["gdp_mu"], got["for_whom"]) == (None, gdp.gdp_mu, gdp.for_whom)
    assert "mu holds at every FPR, epsilon at delta = 1e-06. Do not convert one into the other." in out
    assert out.count("epsilon of differential privacy, at delta = 1e-06, at most") == 1


def test_rates_are_keyed_as_typed(answer):
    got = answer("account", *RUN, "--fpr", "1e-3", "--fpr", "0.0010", "--fpr", "0", "--fpr", "1")["tpr_at_fpr"]
    assert list(got) == ["1e-3", "0.0010", "0", "1"]
    assert got["1e-3"] == got["0.0010"]
    assert got["1"] == 1.0


@pytest.mark.parametrize("size", ["48000", "48_000", "4.8e4", "48000.0"])
def test_counts_may_be_written_in_several_ways(answer, size):
    assert answer("account", *RUN, "--dataset-size", size) == answer("account", *RUN)


def test_infinity_is_a_string(answer, run):
    alone = ["--dataset-size", "1", "--batch-size", "1", "--steps", "1", "--params", "3"]
    got = answer("account", *alone)
    assert got["mu_step"] == "Infinity"
    assert float(got["mu"]) == math.inf
    assert "infinite" in run("account", *alone).out


def test_account_sentence_speaks_of_the_rate_asked_for(run):
    out = run("account", *RUN, "--fpr", "1e-3").out
    bound = _numbers.percent(gmip.account(PAPER).tpr_at(0.001), "up")
    assert f"At a 0.1% false-alarm rate, an attacker is expected to find about {bound} of the members, for " in out
    assert "is expected to find about 4.39% of the members" in run("account", *RUN, "--fpr", "0.2", "--fpr", "1e-2").out


NOISY = ["--clip", "500", "--noise-multiplier", "1.6"]


@pytest.mark.parametrize("argv", [["account", *RUN, *NOISY], ["calibrate", *RUN, "--target", "mu=0.8"]])
def test_what_the_answer_assumes_is_one_line_and_a_list_on_request(run, answer, argv):
    assumed = answer(*argv)["assumptions"]
    assert len(assumed) > 5
    short, long = run(*argv).out, run(*argv, "--explain").out
    assert [sentence for sentence in assumed if f"- {sentence}" in " ".join(long.split())] == assumed
    assert [sentence for sentence in assumed if sentence in " ".join(short.split())] == [GAME]
    last = short.splitlines()[-1]
    assert last.startswith(f"A forecast, not a bound. {GAME} Not covered: an attacker with a list of candidates")
    assert last.endswith("--explain lists what it assumes.")
    assert short.removesuffix(f"{last}\n") in long
    assert answer(*argv, "--explain") == answer(*argv)


def test_the_answer_comes_first(run):
    lines = run("account", *RUN).out.splitlines()
    assert lines[0] == HEADLINE
    assert lines[1].startswith("┌")


def test_account_prints_no_bound_rounded_down(run, answer):
    noise = ["--clip", "500", "--noise-multiplier", "1.36"]
    got, out = answer("account", *RUN, *noise), run("account", *RUN, *noise).out
    cells = dict(re.findall(r"│ (.+?) +│ +(\S+) │", out))
    assert len(cells) == 8
    for name, key in {
        "mu of the run, FPRs from 1e-5 to 1 - 1e-5": "mu",
        "mu of one step": "mu_step",
        "mu of differential privacy, at every FPR (replace-one)": "gdp_mu",
    }.items():
        assert got[key] <= float(cells[name]) < 1.011 * got[key]
    for rate, key in {"0.1%": "0.001", "1%": "0.01", "10%": "0.1"}.items():
        shown = float(cells[f"members found at {rate} false alarms, about"].rstrip("%")) / 100
        assert got["tpr_at_fpr"][key] <= shown < 1.011 * got["tpr_at_fpr"][key]


# -- calibrate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "keywords", "target", "measure"),
    [
        (["--target", "mu=0.4"], {"target_mu": 0.4}, {"mu": 0.4}, lambda c: c.equivalent_mu()),
        (
            ["--target", "tpr=0.025@0.01"],
            {"target_tpr": (0.025, 0.01)},
            {"tpr": 0.025, "fpr": 0.01},
            lambda c: c.tpr_at(0.01),
        ),
        (["--target", "advantage=0.1"], {"target_advantage": 0.1}, {"advantage": 0.1}, lambda c: c.advantage()),
        (
            ["--target", "epsilon=3@1e-6"],
            {"target_epsilon": 3.0, "delta": 1e-6},
            {"epsilon": 3.0, "delta": 1e-6},
            lambda c: c.epsilon(1e-6),
        ),
    ],
)
@pytest.mark.parametrize("notion", ["gmip", "gdp"])
def test_calibrate_json(answer, options, keywords, target, measure, notion):
    got = answer("calibrate", *RUN, "--clip", "500", *options, "--notion", notion)
    found = gmip.calibrate(CLIPPED, **keywords, notion=notion)
    curve = gmip.account(found, notion=notion)
    delta = target.get("delta", 1e-6 if notion == "gdp" else None)  # with gdp the table shows an epsilon, too
    assert got == {
        "gmip": gmip.__version__,
        "run": understood(found),
        "notion": notion,
        "susceptibility": None,
        "attacker_knows": 0.0,
        "rows_per_person": 1,
        "bound": "tight",
        "composition": "exact",
        "noise_std": found.noise_std,
        "noise_multiplier": found.noise_multiplier,
        "batch_size": 400,
        "num_steps": 1200,
        "target": target,
        "achieved": measure(curve),
        "needed": True,
        "mu": curve.equivalent_mu(),
        "gdp_mu": curve.gdp_mu if notion == "gdp" else None,
        "epsilon": None if delta is None else curve.epsilon(delta),
        "delta": delta,
        **claimed(curve),
        "alternatives": None,
    }
    assert got["achieved"] <= next(iter(target.values()))


@pytest.mark.parametrize(
    ("options", "how"),
    [
        (["--susceptibility", "400"], {"susceptibility": 400.0}),
        (["--attacker-knows", "1", "--rows-per-person", "2"], {"attacker_knows": 1.0, "rows_per_person": 2}),
    ],
)
def test_calibrate_takes_the_accounting_options(answer, options, how):
    got = answer("calibrate", *RUN, "--clip", "500", *TARGET, *options)
    assert got["noise_std"] == gmip.calibrate(CLIPPED, target_mu=0.4, **how).noise_std


def test_calibrate_shuffled_epochs(answer):
    got = answer("calibrate", *RUN, "--clip", "500", *TARGET, "--sampling", "shuffled")
    assert got["noise_std"] == gmip.calibrate(CLIPPED.replace(sampling="shuffled"), target_mu=0.4).noise_std


def test_calibrate_names_the_other_ways(answer, run):
    argv = [
        "calibrate",
        *RUN,
        "--clip",
        "500",
        "--noise-multiplier",
        "0.24",
        "--target",
        "tpr=0.04@0.01",
        "--solve-for",
        "all",
    ]
    got = answer(*argv)
    assert got["noise_std"] == gmip.calibrate(CLIPPED, target_tpr=(0.04, 0.01)).noise_std
    found = {one["change"]: one for one in got["alternatives"]["open"]}
    assert list(found) == ["noise", "noise-alone", "batch", "steps", "clip", "parameters", "data"]
    assert got["alternatives"]["closed"] == []
    for one in found.values():
        names = [field.name for field in dataclasses.fields(gmip.NoisySGD)]
        settings = one["run"]
        changed = gmip.NoisySGD(**{name: settings[name] for name in names})
        notion = "gdp" if one["change"] == "noise-alone" else "gmip"
        assert gmip.account(changed, notion=notion).tpr_at(0.01) == one["value"] <= 0.04
    out = run(*argv).out
    assert "Other ways to the same target, each alone:" in out and "--try-advice" in out
    lines = out.splitlines()
    assert all(one["command"] in lines for change, one in found.items() if change != "noise")
    assert answer("calibrate", *RUN, "--clip", "500", *TARGET)["alternatives"] is None


def test_an_equivalent_mu_is_not_called_gdp(run, answer):
    argv = ["calibrate", *RUN, "--clip", "500", *TARGET, "--notion", "gdp"]
    out, got = " ".join(run(*argv).out.split()), answer(*argv)
    assert "the mu of the run over FPRs from 1e-5 to 1 - 1e-5 is at most 0.4, for any record" in out
    assert "mu at every FPR (GDP, replace-one), at most" in out
    assert "epsilon at delta = 1e-06 (replace-one), at most" in out
    assert got["gdp_mu"] > 10 * got["mu"]
    asked = run("calibrate", *RUN, "--clip", "500", "--target", "epsilon=3@1e-5", "--notion", "gdp").out
    assert "epsilon at delta = 1e-05" in asked and "mu at every FPR" not in asked  # another question than was asked
    assert "it holds at every FPR" in " ".join(run("convert", "--help").out.split()).replace("which", "it")
    assert "gmip account --delta" in run("convert", "mu-dp=0.4", "delta=1e-7").out


@pytest.mark.parametrize("clip", [[], ["--clip", "500"]])
def test_no_noise_is_needed(answer, run, clip):
    got = answer("calibrate", *RUN, *clip, "--target", "mu=0.8")
    assert (got["noise_std"], got["needed"]) == (0.0, False)
    assert got["noise_multiplier"] == (0.0 if clip else None)
    assert (
        "No noise is needed: the mu of the run is expected to stay within 0.8, for a typical record and "
        in run("calibrate", *RUN, *clip, "--target", "mu=0.8").out
    )


@pytest.mark.parametrize(
    "noise", [[], ["--clip", "500", "--noise-multiplier", "0.8"], ["--clip", "500", "--noise-multiplier", "2"]]
)
def test_solve_for_steps(answer, run, noise):
    argv = ["calibrate", *RUN, *noise, *TARGET, "--solve-for", "steps"]
    got = answer(*argv)
    described = CLIPPED.replace(noise_std=got["noise_std"])
    assert got["noise_std"] == {0: 0.0, 4: 1.0 if "0.8" in noise else 2.5}[len(noise)]
    assert got["num_steps"] == gmip.calibrate(described, target_mu=0.4, solve_for="num_steps").num_steps
    assert got["needed"] is None
    assert (
        f"Train for up to {got['num_steps']} steps: the mu of the run is expected to stay within 0.4, for "
        in run(*argv).out
    )


def test_solve_for_batch_size(answer, run):
    options = ["--target", "mu=0.8", "--solve-for", "batch-size"]
    got = answer("calibrate", *RUN, *options)
    found = gmip.calibrate(PAPER, target_mu=0.8, solve_for="batch_size")
    assert (got["batch_size"], got["num_steps"]) == (found.batch_size, found.num_steps)
    assert found.num_steps == 1200
    out = run("calibrate", *RUN, *options).out
    assert f"Use batches of {found.batch_size} and {found.num_steps} steps: the mu of the run is expected" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "mu=0.41"], "the mu of the run is expected to stay within 0.41, for a typical record"),
        (
            ["--target", "tpr=0.03@1e-2"],
            "at a 1% false-alarm rate, an attacker is expected to find about 3% of the members or fewer, for ",
        ),
        (["--target", "advantage=0.1"], "the attacker's advantage (TPR - FPR) is expected to stay within 10%, for "),
    ],
)
def test_calibrate_sentence_and_noise_that_is_never_too_small(answer, run, options, words):
    got = answer("calibrate", *RUN, "--clip", "500", *options)
    out = run("calibrate", *RUN, "--clip", "500", *options).out
    pattern = r"Add noise of std (\S+) to the mean gradient \(noise multiplier (\S+)\): " + re.escape(words)
    std, multiplier = map(float, re.search(pattern, out).groups())  # type: ignore[union-attr]
    assert got["noise_std"] <= std < 1.0002 * got["noise_std"]
    assert got["noise_multiplier"] <= multiplier < 1.0002 * got["noise_multiplier"]
    # Who trains with what was printed keeps the target.
    kept = answer("account", *RUN, "--clip", "500", "--noise-multiplier", str(multiplier), "--fpr", "0.01")
    measured = {"mu": kept["mu"], "tpr": kept["tpr_at_fpr"]["0.01"], "advantage": kept["advantage"]}
    name = next(iter(got["target"]))
    assert measured[name] <= got["target"][name]


# -- convert -----------------------------------------------------------------------------------------------------------


def test_convert_between_dp_and_mip(answer):
    sizes = {"num_params": 650, "batch_size": 500}
    got = answer("convert", "mu-dp=5", "params=650", "batch-size=500")
    mip = gmip_mu_from_gdp_mu(5.0, **sizes)
    assert got == {"mu_dp": 5.0, **sizes, "mu_mip": mip, "assumptions": got["assumptions"]}
    assert all(sentence.endswith(".") for sentence in got["assumptions"])
    back = answer("convert", f"mu-mip={mip!r}", "params=650", "batch-size=500")
    assert back["mu_dp"] == gdp_mu_from_gmip_mu(mip, **sizes) == pytest.approx(5.0)
    assert answer("convert", "mu-mip=2", "params=650", "batch-size=500")["mu_dp"] == "Infinity"


def test_convert_between_mu_and_epsilon_delta(answer):
    epsilon = answer("convert", "mu-dp=1", "delta=1e-5")["epsilon"]
    assert answer("convert", "mu-dp=1", f"epsilon={epsilon!r}")["delta"] == pytest.approx(1e-5)
    assert answer("convert", f"epsilon={epsilon!r}", "delta=1e-5")["mu"] == pytest.approx(1.0)
    assert answer("convert", "mu-dp=1", "delta=0")["epsilon"] == "Infinity"


@pytest.mark.parametrize("given", ["noise-std=2.5", "noise-multiplier=2"])
def test_convert_noise(answer, given):
    got = answer("convert", given, "clip=500", "batch-size=400")
    got.pop("assumptions")
    assert got == pytest.approx(
        {
            "noise_std": 2.5,
            "noise_multiplier": 2.0,
            "dong_sigma": 1.0,
            "mu_dp_replace_one": 1.0,
            "mu_dp_add_remove": 0.5,
            "clip_norm": 500.0,
            "batch_size": 400,
        }
    )
    name, value = given.split("=")
    assert got[name.replace("-", "_")] == float(value)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("mu-dp=5 params=650 batch-size=500", "A step with mu 5 in differential privacy has mu 1.13"),
        ("mu-mip=0.8 params=650 batch-size=500", "in membership-inference privacy has mu "),
        ("mu-mip=2 params=650 batch-size=500", "No noise is needed for mu 2, and without noise"),
        ("epsilon=1 delta=1e-5", "A mechanism with mu 0.26805 or less is (1, 1e-05)-differentially private."),
        ("epsilon=1 delta=1", "Every mechanism is (1, 1)-differentially private."),
        ("mu-dp=1 delta=1e-5", "mu 1 is (4.37"),
        ("mu-dp=1 delta=0", "There is no finite epsilon for mu 1 at delta 0."),
        ("mu-dp=1 epsilon=1", "mu 1 is (1, 0.12694)-differentially private."),
        ("noise-std=1.3 clip=650 batch-size=500", "One step has mu 2 in differential privacy"),
        ("noise-std=0 clip=650 batch-size=500", "Without noise there is no differential privacy."),
    ],
)
def test_convert_sentences(run, argv, words):
    outcome = run("convert", *argv.split())
    assert (outcome.code, outcome.err) == (0, "")
    assert words in outcome.out


def test_parameters_are_not_asked_for_where_noise_alone_counts(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"--dataset-size": 1000, "--batch-size": 100, "--epochs": 3, "--noise-multiplier": 1, "--clip": 1}
    noisy = ["account", "--json", *(str(part) for pair in sizes.items() for part in pair)]
    assert main([*noisy, "--notion", "gdp"]) == 0
    without = json.loads(capsys.readouterr().out)
    assert main([*noisy, "--notion", "gdp", "--params", "650"]) == 0
    given = json.loads(capsys.readouterr().out)
    assert without["run"].pop("num_params") is None and given["run"].pop("num_params") == 650
    assert without == given
    assert main(noisy) == 2 and "--params is missing" in capsys.readouterr().err
