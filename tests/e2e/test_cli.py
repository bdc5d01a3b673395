"""The command line from the outside: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import gmip
from gmip._cli import show
from gmip.accounting.convert import gdp_mu_from_gmip_mu, gmip_mu_from_gdp_mu
from gmip.cli import main

RUN = ["--dataset-size", "48000", "--batch-size", "400", "--steps", "1200", "--params", "650"]
PAPER = gmip.NoisySGD(dataset_size=48_000, batch_size=400, num_steps=1_200, num_params=650)
CLIPPED = PAPER.replace(clip_norm=500.0)
TARGET = ["--target-mu", "0.4"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys, monkeypatch):
    """`gmip` in this process: fast."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*argv: str) -> Outcome:
        capsys.readouterr()
        code = main(argv)
        out, err = capsys.readouterr()
        return Outcome(code, re.sub(r"\x1b\[[0-9;]*m", "", out), err)  # typer colours its help on some CI machines

    return call


@pytest.fixture
def answer(run):
    """The JSON answer of a command that must succeed."""

    def call(*argv: str) -> dict[str, Any]:
        outcome = run(*argv, "--json")
        assert (outcome.code, outcome.err) == (0, "")

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        result = json.loads(outcome.out, parse_constant=refuse)
        assert isinstance(result, dict)
        return result

    return call


def shell(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "gmip", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


# -- the process -------------------------------------------------------------------------------------------------------


def test_account_as_a_process():
    done = shell("account", *RUN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "An attacker who accepts 1% false alarms finds at most 4.34% of the members." in done.stdout
    assert "Threat model" in done.stdout


def test_json_as_a_process():
    done = shell("account", *RUN, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["tpr_at_fpr"]["0.01"] == pytest.approx(0.04335518, abs=2e-6)


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
    assert (done.returncode, done.stderr) == (1, "")


def test_account_loads_no_framework():
    script = f"import sys; from gmip.cli import main; main({['account', *RUN]!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("moment", ["gmip._cli.account.account_run", "gmip._cli.options.build_run"])
def test_interrupt_is_quiet(run, monkeypatch, moment):
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupt)
    assert run("account", *RUN) == (130, "", "")


@pytest.mark.parametrize("error", [OverflowError("boom"), MemoryError()])
def test_numbers_beyond_reach_are_one_sentence(run, monkeypatch, error):
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("gmip._cli.account.account_run", fail)
    outcome = run("account", *RUN)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("The request is beyond what can be computed: ")


def test_a_bug_is_not_hidden(run, monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("gmip._cli.account.account_run", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        run("account", *RUN)


# -- help and version --------------------------------------------------------------------------------------------------


def test_version(run):
    assert run("--version") == (0, f"gmip {gmip.__version__}\n", "")


def test_without_a_command_the_help(run):
    outcome = run()
    assert (outcome.code, outcome.err) == (0, "")
    assert all(command in outcome.out for command in ("account", "calibrate", "convert"))


RUN_OPTIONS = (
    "--dataset-size --batch-size --steps --params --sampling --rank --clip --noise-std --noise-multiplier "
    "--susceptibility --susceptibility-file --bound --composition --json "
)
OPTIONS = {
    "account": RUN_OPTIONS + "--fpr",
    "calibrate": RUN_OPTIONS + "--target-mu --target-tpr --target-advantage --notion --solve-for --hold",
    "convert": "--mu-dp --mu-mip --epsilon --delta --params --batch-size --clip --noise-std --noise-multiplier "
    "--dong-sigma --json",
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


def test_account_json(answer):
    got = answer("account", *RUN)
    curve = gmip.account(PAPER)
    assert got == {
        "mu_step": gmip.mu_per_step(PAPER),
        "mu": curve.equivalent_mu(),
        "tpr_at_fpr": {"0.001": curve.tpr_at(0.001), "0.01": curve.tpr_at(0.01), "0.1": curve.tpr_at(0.1)},
        "advantage": curve.advantage(),
        "auc": curve.auc(),
        "gdp_mu": None,
        "assumptions": list(curve.assumptions),
    }


@pytest.mark.parametrize(
    ("options", "changed", "how"),
    [
        (["--susceptibility", "900"], {}, {"susceptibility": 900.0}),
        (["--rank", "60"], {"rank": 60}, {}),
        (["--clip", "500"], {"clip_norm": 500.0}, {}),
        (["--clip", "500", "--noise-std", "1.25"], {"clip_norm": 500.0, "noise_std": 1.25}, {}),
        (["--clip", "500", "--noise-multiplier", "1"], {"clip_norm": 500.0, "noise_std": 1.25}, {}),
        (["--bound", "paper"], {}, {"bound": "paper"}),
        (["--bound", "tight", "--composition", "exact", "--sampling", "fixed", "--noise-std", "0"], {}, {}),
        (["--composition", "clt"], {}, {"composition": "clt"}),
        (["--sampling", "poisson"], {"sampling": "poisson"}, {}),
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
    how.pop("composition", None)
    assert got["mu_step"] == gmip.mu_per_step(described, **how)


@pytest.mark.parametrize("composition", ["exact", "clt"])
def test_gdp_mu_beside_noise(answer, composition):
    got = answer("account", *RUN, "--clip", "500", "--noise-std", "2.5", "--composition", composition)
    noisy = CLIPPED.replace(noise_std=2.5)
    assert got["gdp_mu"] == gmip.account(noisy, notion="gdp", composition=composition).equivalent_mu()
    assert got["mu"] < got["gdp_mu"]


def test_rates_are_keyed_as_typed(answer):
    got = answer("account", *RUN, "--fpr", "1e-3", "--fpr", "0.0010", "--fpr", "0", "--fpr", "1")["tpr_at_fpr"]
    assert list(got) == ["1e-3", "0.0010", "0", "1"]
    assert got["1e-3"] == got["0.0010"]
    assert got["1"] == 1.0


@pytest.mark.parametrize("size", ["48000", "48_000", "4.8e4", "48000.0"])
def test_counts_may_be_written_in_several_ways(answer, size):
    assert answer("account", *RUN, "--dataset-size", size, "--composition", "clt") == answer(
        "account", *RUN, "--composition", "clt"
    )


def test_infinity_is_a_string(answer, run):
    alone = ["--dataset-size", "1", "--batch-size", "1", "--steps", "1", "--params", "3"]
    got = answer("account", *alone)
    assert got["mu_step"] == "Infinity"
    assert float(got["mu"]) == math.inf
    assert "infinite" in run("account", *alone).out


def test_account_sentence_speaks_of_the_rate_asked_for(run):
    out = run("account", *RUN, "--fpr", "1e-3").out
    bound = show.percent(gmip.account(PAPER).tpr_at(0.001))
    assert f"An attacker who accepts 0.1% false alarms finds at most {bound} of the members." in out
    assert "finds at most 4.34% of the members" in run("account", *RUN, "--fpr", "0.2", "--fpr", "1e-2").out


def test_account_prints_every_assumption(run):
    out = " ".join(run("account", *RUN).out.split())
    for sentence in gmip.account(PAPER).assumptions:
        assert f"- {sentence}" in out


def test_account_prints_no_bound_rounded_down(run, answer):
    noise = ["--clip", "500", "--noise-std", "1.7"]
    got, out = answer("account", *RUN, *noise), run("account", *RUN, *noise).out
    cells = dict(re.findall(r"│ (.+?) +│ +(\S+) │", out))
    assert len(cells) == 8
    for name, key in {
        "mu of the run": "mu",
        "mu of one step": "mu_step",
        "mu of differential privacy": "gdp_mu",
    }.items():
        assert got[key] <= float(cells[name]) < 1.011 * got[key]
    for rate, key in {"0.1%": "0.001", "1%": "0.01", "10%": "0.1"}.items():
        shown = float(cells[f"members found at {rate} false alarms, at most"].rstrip("%")) / 100
        assert got["tpr_at_fpr"][key] <= shown < 1.011 * got["tpr_at_fpr"][key]


# -- susceptibility files ----------------------------------------------------------------------------------------------

VALUES = [300.0, 650.0, 650.0, 1200.5]


@pytest.mark.parametrize(
    "content",
    ["300\n650\n650\n1200.5\n", "susceptibility\r\n300\r\n650\r\n\r\n650\r\n1.2005e3", "\ufeff 300 \n650\n650\n1200.5"],
)
def test_text_file_gives_the_stochastic_composition(answer, tmp_path, content):
    path = tmp_path / "k.csv"
    path.write_text(content, encoding="utf-8", newline="")
    got = answer("account", *RUN, "--susceptibility-file", str(path))
    assert got["mu"] == gmip.account(PAPER, susceptibility=VALUES).equivalent_mu()
    assert got["mu_step"] == gmip.mu_per_step(PAPER, susceptibility=1200.5)
    assert any("4 measured susceptibilities" in sentence for sentence in got["assumptions"])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_npy_file(answer, tmp_path, dtype, shape):
    path = tmp_path / "k.npy"
    np.save(path, np.array([300, 650, 900], dtype=dtype).reshape(shape))
    got = answer("account", *RUN, "--susceptibility-file", str(path))
    assert got["mu"] == gmip.account(PAPER, susceptibility=[300.0, 650.0, 900.0]).equivalent_mu()


def test_one_number_in_a_file_is_one_susceptibility(answer, tmp_path):
    path = tmp_path / "k.txt"
    path.write_text("900")
    assert answer("account", *RUN, "--susceptibility-file", str(path)) == answer(
        "account", *RUN, "--susceptibility", "900"
    )


def npy_of(array: Any) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


class Bomb:
    """Unpickling it is a test failure."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


BAD_FILES = {
    "empty": (b"", "holds no numbers"),
    "blank": (b"\n \n", "holds no numbers"),
    "header only": (b"susceptibility\n", "holds no numbers"),
    "nan": (b"1\nnan\n", "'nan' in line 2"),
    "nan first": (b"nan\n1\n", "'nan' in line 1"),
    "infinite": (b"1\ninf\n", "'inf' in line 2"),
    "negative": (b"1\n-2\n", "'-2' in line 2"),
    "zero": (b"0\n1\n", "'0' in line 1"),
    "word": (b"k\n1\nmany\n", "'many' in line 3"),
    "two columns": (b"1,2\n3,4\n", "'1,2' in line 1"),
    "garbage": (bytes(range(256)), "neither text nor .npy"),
    "zeros": (bytes(100), "neither text nor .npy"),
    "gzip": (b"\x1f\x8b\x08\x00" + bytes(20), "neither text nor .npy"),
    "pickled npy": (npy_of(np.array([Bomb()], dtype=object)), "not a .npy file of plain numbers"),
    "cut npy": (npy_of(np.arange(1.0, 50.0))[:200], "not a .npy file of plain numbers"),
    "npy header only": (b"\x93NUMPY\x01\x00v\x00{'descr'", "not a .npy file of plain numbers"),
    "huge npy": (
        npy_of(np.ones(10)).replace(b"(10,), }      ", b"(99999999999,)}"),
        "not a .npy file of plain numbers",
    ),
    "matrix npy": (npy_of(np.ones((2, 2))), "not a .npy file of plain numbers"),
    "complex npy": (npy_of(np.ones(2, dtype=complex)), "not a .npy file of plain numbers"),
    "text npy": (npy_of(np.array(["a"])), "not a .npy file of plain numbers"),
    "nan npy": (npy_of(np.array([1.0, np.nan])), "nan in entry 1"),
    "empty npy": (npy_of(np.ones(0)), "holds no numbers"),
}


@pytest.mark.parametrize("name", list(BAD_FILES))
def test_bad_file_is_one_sentence(run, tmp_path, name):
    content, complaint = BAD_FILES[name]
    path = tmp_path / "batch_size.npy"
    path.write_bytes(content)
    sentence = assert_one_sentence(run("account", *RUN, "--susceptibility-file", str(path), "--json"))
    assert sentence.startswith(f"--susceptibility-file '{path}' ")  # the path as it is, though it holds a keyword
    assert complaint in sentence


def test_unreadable_file_is_one_sentence(run, tmp_path):
    for path in (tmp_path / "none.txt", tmp_path, "nul\0byte"):
        sentence = assert_one_sentence(run("account", *RUN, "--susceptibility-file", str(path)))
        assert sentence.startswith("--susceptibility-file ")
        assert "cannot be read" in sentence


# -- calibrate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "keywords", "target", "measure"),
    [
        (["--target-mu", "0.4"], {"target_mu": 0.4}, {"mu": 0.4}, lambda c: c.equivalent_mu()),
        (
            ["--target-tpr", "0.025@0.01"],
            {"target_tpr": (0.025, 0.01)},
            {"tpr": 0.025, "fpr": 0.01},
            lambda c: c.tpr_at(0.01),
        ),
        (["--target-advantage", "0.1"], {"target_advantage": 0.1}, {"advantage": 0.1}, lambda c: c.advantage()),
    ],
)
@pytest.mark.parametrize("notion", ["gmip", "gdp"])
def test_calibrate_json(answer, options, keywords, target, measure, notion):
    got = answer("calibrate", *RUN, "--clip", "500", *options, "--notion", notion)
    found = gmip.calibrate(CLIPPED, **keywords, notion=notion)
    curve = gmip.account(found, notion=notion)
    assert got == {
        "noise_std": found.noise_std,
        "noise_multiplier": found.noise_multiplier,
        "batch_size": 400,
        "num_steps": 1200,
        "target": target,
        "achieved": measure(curve),
        "needed": True,
        "assumptions": list(curve.assumptions),
    }
    assert got["achieved"] <= next(iter(target.values()))


@pytest.mark.parametrize(
    ("options", "how"),
    [
        (["--susceptibility", "400"], {"susceptibility": 400.0}),
        (["--bound", "paper", "--composition", "clt"], {"bound": "paper", "composition": "clt"}),
    ],
)
def test_calibrate_takes_the_accounting_options(answer, options, how):
    got = answer("calibrate", *RUN, "--clip", "500", *TARGET, *options)
    assert got["noise_std"] == gmip.calibrate(CLIPPED, target_mu=0.4, **how).noise_std


def test_calibrate_from_a_file(answer, tmp_path):
    path = tmp_path / "k.txt"
    path.write_text("300\n650\n")
    got = answer("calibrate", *RUN, "--clip", "500", *TARGET, "--susceptibility-file", str(path))
    assert got["noise_std"] == gmip.calibrate(CLIPPED, target_mu=0.4, susceptibility=[300.0, 650.0]).noise_std


@pytest.mark.parametrize("clip", [[], ["--clip", "500"]])
def test_no_noise_is_needed(answer, run, clip):
    got = answer("calibrate", *RUN, *clip, "--target-mu", "0.8")
    assert (got["noise_std"], got["needed"]) == (0.0, False)
    assert got["noise_multiplier"] == (0.0 if clip else None)
    assert "No noise is needed: mu stays at or below 0.8." in run("calibrate", *RUN, *clip, "--target-mu", "0.8").out


@pytest.mark.parametrize(
    "noise", [[], ["--clip", "500", "--noise-std", "1"], ["--clip", "500", "--noise-multiplier", "2"]]
)
def test_solve_for_steps(answer, run, noise):
    argv = ["calibrate", *RUN, *noise, *TARGET, "--solve-for", "steps", "--composition", "clt"]
    got = answer(*argv)
    described = CLIPPED.replace(noise_std=got["noise_std"])
    assert got["noise_std"] == {0: 0.0, 4: 1.0 if "1" in noise else 2.5}[len(noise)]
    assert (
        got["num_steps"] == gmip.calibrate(described, target_mu=0.4, solve_for="num_steps", composition="clt").num_steps
    )
    assert got["needed"] is None
    assert f"Take at most {got['num_steps']} steps: mu stays at or below 0.4." in run(*argv).out


@pytest.mark.parametrize("hold", ["steps", "epochs", None])
def test_solve_for_batch_size(answer, run, hold):
    options = ["--target-mu", "0.8", "--solve-for", "batch-size", "--composition", "clt"]
    options += ["--hold", hold] if hold else []
    got = answer("calibrate", *RUN, *options)
    found = gmip.calibrate(PAPER, target_mu=0.8, solve_for="batch_size", composition="clt", hold=hold or "steps")
    assert (got["batch_size"], got["num_steps"]) == (found.batch_size, found.num_steps)
    assert (found.num_steps == 1200) == (hold != "epochs")
    out = run("calibrate", *RUN, *options).out
    assert f"Take batches of {found.batch_size} in {found.num_steps} steps: mu stays at or below 0.8." in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target-mu", "0.41"], "mu stays at or below 0.41."),
        (["--target-tpr", "0.03@1e-2"], "an attacker who accepts 1% false alarms finds at most 3% of the members."),
        (["--target-advantage", "0.1"], "the attacker's advantage (TPR - FPR) stays at or below 10%."),
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
    for noise in (["--noise-std", str(std)], ["--noise-multiplier", str(multiplier)]):
        kept = answer("account", *RUN, "--clip", "500", *noise, "--fpr", "0.01")
        measured = {"mu": kept["mu"], "tpr": kept["tpr_at_fpr"]["0.01"], "advantage": kept["advantage"]}
        name = next(iter(got["target"]))
        assert measured[name] <= got["target"][name]


# -- convert -----------------------------------------------------------------------------------------------------------


def test_convert_between_dp_and_mip(answer):
    sizes = {"num_params": 650, "batch_size": 500}
    got = answer("convert", "--mu-dp", "5", "--params", "650", "--batch-size", "500")
    mip = gmip_mu_from_gdp_mu(5.0, **sizes)
    assert got == {"mu_dp": 5.0, **sizes, "mu_mip": mip, "assumptions": got["assumptions"]}
    assert all(sentence.endswith(".") for sentence in got["assumptions"])
    back = answer("convert", "--mu-mip", repr(mip), "--params", "650", "--batch-size", "500")
    assert back["mu_dp"] == gdp_mu_from_gmip_mu(mip, **sizes) == pytest.approx(5.0)
    assert answer("convert", "--mu-mip", "2", "--params", "650", "--batch-size", "500")["mu_dp"] == "Infinity"


def test_convert_between_mu_and_epsilon_delta(answer):
    epsilon = answer("convert", "--mu-dp", "1", "--delta", "1e-5")["epsilon"]
    assert answer("convert", "--mu-dp", "1", "--epsilon", repr(epsilon))["delta"] == pytest.approx(1e-5)
    assert answer("convert", "--epsilon", repr(epsilon), "--delta", "1e-5")["mu"] == pytest.approx(1.0)
    assert answer("convert", "--mu-dp", "1", "--delta", "0")["epsilon"] == "Infinity"


@pytest.mark.parametrize("given", [["--noise-std", "2.5"], ["--noise-multiplier", "2"], ["--dong-sigma", "1"]])
def test_convert_noise(answer, given):
    got = answer("convert", *given, "--clip", "500", "--batch-size", "400")
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
    assert got[given[0].removeprefix("--").replace("-", "_")] == float(given[1])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--mu-dp 5 --params 650 --batch-size 500", "A step of mu 5 in differential privacy has mu 1.13"),
        ("--mu-mip 0.8 --params 650 --batch-size 500", "in membership-inference privacy has mu "),
        ("--mu-mip 2 --params 650 --batch-size 500", "Data randomness alone reaches mu 2, without noise"),
        ("--epsilon 1 --delta 1e-5", "A mechanism of mu 0.26805 or less is (1, 1e-05)-differentially private."),
        ("--epsilon 1 --delta 1", "Any mu is (1, 1)-differentially private: this promises nothing."),
        ("--mu-dp 1 --delta 1e-5", "mu 1 is (4.37"),
        ("--mu-dp 1 --delta 0", "mu 1 reaches no finite epsilon at delta 0."),
        ("--mu-dp 1 --epsilon 1", "mu 1 is (1, 0.12694)-differentially private."),
        ("--noise-std 1.3 --clip 650 --batch-size 500", "One step has mu 2.0000 in differential privacy"),
        ("--noise-std 0 --clip 650 --batch-size 500", "Without noise there is no differential privacy."),
    ],
)
def test_convert_sentences(run, argv, words):
    outcome = run("convert", *argv.split())
    assert (outcome.code, outcome.err) == (0, "")
    assert words in outcome.out


# -- rounding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.0, "0", "0"),
        (1.3, "1.30", "1.30"),
        (0.69641, "0.697", "0.696"),
        (9.991, "10.0", "9.99"),
        (1234.5, "1240", "1230"),
        (1.2345e-9, "1.24e-9", "1.23e-9"),
        (5.4321e12, "5.44e12", "5.43e12"),
        (math.inf, "infinite", "infinite"),
    ],
)
def test_rounding_is_directed(value, up, down):
    assert (show.round_up(value), show.round_down(value)) == (up, down)


def test_rounding_never_crosses_the_value():
    rng = np.random.default_rng(0)
    for value in (10.0 ** rng.uniform(-15, 15, size=2000)).tolist():
        assert value <= float(show.round_up(value)) <= value * 1.0101
        assert value * 0.9899 <= float(show.round_down(value)) <= value


def test_percentages():
    assert [show.percent(x) for x in (0.04335518, 0.0071711, 0.999999, 1.0, 0.05, 1e-12, 0.0)] == (
        ["4.34%", "0.718%", "100%", "100%", "5.00%", "1e-10%", "0%"]
    )
    assert [show.percent_exact(x) for x in ("0.01", "1e-3", "0.125", "1", "0", 0.05)] == [
        "1%",
        "0.1%",
        "12.5%",
        "100%",
        "0%",
        "5%",
    ]


def test_no_number_is_no_answer():
    with pytest.raises(OverflowError):
        show.print_json({"mu": math.nan})
    with pytest.raises(OverflowError):
        show.round_up(math.nan)


# -- errors ------------------------------------------------------------------------------------------------------------


KEYWORDS = re.compile(r"\b(dataset|batch)_size|num_(steps|params)|clip_norm|noise_(std|multiplier)|target_")


def assert_one_sentence(outcome: Outcome) -> str:
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.count("\n") == 1
    sentence = outcome.err.removesuffix("\n")
    assert sentence.endswith(".")
    assert not re.search(r"[.?!] [A-Z]", sentence), "more than one sentence"
    assert "Traceback" not in sentence
    assert not KEYWORDS.search(re.sub(r"'[^']*'", "", sentence)), "Python's name for an option"
    return sentence


def without(option: str) -> list[str]:
    i = RUN.index(option)
    return RUN[:i] + RUN[i + 2 :]


NOISE = ["--clip", "500", "--noise-std", "1"]
BAD_REQUESTS: list[tuple[list[str], str]] = [
    # What typer finds.
    (["acount"], "acount is not a command of gmip, did you mean account: pass account, calibrate, convert, train"),
    (["--nonsense"], "--nonsense is not an option of gmip:"),
    (["account", *RUN, "--nonsense", "1"], "--nonsense is not an option of gmip account:"),
    (["account", *RUN, "--step", "1"], "the nearest is --steps;"),
    (["account", *RUN, "-x"], "-x is not an option of gmip account:"),
    (["account", *RUN, "--fpr"], "--fpr needs a value"),
    (["account", *RUN, "--json=yes"], "--json takes no value"),
    (["account", *RUN, "17"], "17 follows no option"),
    (["account", *RUN, "17\n\x1b[2Jx", "18"], "follows no option"),
    # What is missing.
    (["account"], "--dataset-size, --batch-size, --steps and --params are missing: add them"),
    *((["account", *without(o)], f"{o} is missing: add it, as in {o} ") for o in RUN[::2]),
    (["calibrate", *without("--steps"), *TARGET], "--steps is missing"),
    # Numbers.
    *((["account", *RUN, "--steps", bad], f"--steps must be a whole number from 1 to 1e18, not {bad!r}") for bad in
      ("abc", "nan", "inf", "-5", "0", "1.5", "", "1e999999999", "1e-999999999", "0x10", "--json")),
    *((["account", *RUN, o, "abc"], f"{o} must be a whole number") for o in RUN[::2]),
    (["account", *RUN, "--rank", "0"], "--rank must be a whole number"),
    (["account", *RUN, "--rank", "651"], "--rank = 651 exceeds --params = 650"),
    *((["account", *RUN, "--clip", bad], "--clip must be a finite number above 0") for bad in ("0", "-1", "nan")),
    *((["account", *RUN, "--clip", "1", "--noise-std", bad], "--noise-std must be a finite number, 0 or more")
      for bad in ("x", "-1", "nan", "inf")),
    (["account", *RUN, "--clip", "1", "--noise-multiplier", "-1"], "--noise-multiplier must be a finite number"),
    (["account", *RUN, "--susceptibility", "0"], "--susceptibility must be a finite number above 0"),
    *((["account", *RUN, "--fpr", bad], "--fpr must be a number from 0 to 1") for bad in ("2", "-0.1", "nan", "1%")),
    (["account", *RUN, "--fpr", "0.01", "--fpr", "x"], "--fpr must be a number from 0 to 1, not 'x'"),
    # Words.
    (["account", *RUN, "--bound", "loose"], "--bound must be one of tight, paper, not 'loose'"),
    (["account", *RUN, "--composition", "rdp"], "--composition must be one of exact, clt"),
    (["account", *RUN, "--sampling", "shuffle"], "--sampling must be one of fixed, poisson, full"),
    (["calibrate", *RUN, *TARGET, "--notion", "dp"], "--notion must be one of gmip, gdp"),
    (["calibrate", *RUN, *TARGET, "--solve-for", "clip"], "--solve-for must be one of noise-std, batch-size, steps"),
    (["calibrate", *RUN, *TARGET, "--solve-for", "batch-size", "--hold", "x"], "--hold must be one of steps, epochs"),
    # What does not go together.
    (["account", *RUN, *NOISE, "--noise-multiplier", "1"], "--noise-std and --noise-multiplier are two names"),
    (["account", *RUN, "--noise-std", "1"], "--noise-std = 1.0 without --clip"),
    (["account", *RUN, "--noise-multiplier", "1"], "--noise-multiplier needs --clip"),
    (["account", *RUN, "--batch-size", "50000"], "--batch-size = 50000 exceeds --dataset-size = 48000"),
    (["account", *RUN, "--sampling", "full"], "--sampling = 'full' needs --batch-size = --dataset-size = 48000"),
    (["account", *RUN, "--susceptibility", "1", "--susceptibility-file", "f"], "--susceptibility and --susc"),
    (["calibrate", *RUN], "no target was given: pass exactly one of --target-mu, --target-tpr and --target-advantage"),
    (["calibrate", *RUN, *TARGET, "--target-advantage", "0.1"], "2 targets were given"),
    (["calibrate", *RUN, *TARGET, "--target-tpr", "0.1@0.01", "--target-advantage", "0.1"], "3 targets were given"),
    (["calibrate", *RUN, *TARGET, *NOISE], "--noise-std is what is solved for"),
    (["calibrate", *RUN, *TARGET, "--clip", "1", "--noise-multiplier", "1"], "--noise-multiplier is what is"),
    (["calibrate", *RUN, *TARGET, "--hold", "epochs"], "--hold has no meaning with --solve-for noise-std"),
    (["calibrate", *RUN, *TARGET, "--notion", "gdp", "--susceptibility", "1"], "--susceptibility plays no part"),
    (["calibrate", *RUN, *TARGET, "--notion", "gdp", "--susceptibility-file", "f"], "--susceptibility-file plays"),
    (["calibrate", *RUN, *TARGET, "--notion", "gdp", "--bound", "paper"], "--bound plays no part"),
    (["calibrate", *RUN, *TARGET, "--notion", "gdp", "--rank", "3"], "--rank plays no part"),
    # Targets.
    *((["calibrate", *RUN, "--target-mu", bad], "--target-mu must be a finite number above 0") for bad in
      ("0", "-1", "nan", "x")),
    *((["calibrate", *RUN, "--target-tpr", bad], "--target-tpr must be TPR@FPR") for bad in
      ("0.05", "0.05@", "@0.01", "a@b", "0.05@0.01@1", "5@0.01", "0.05@0", "nan@0.1", "0.05 0.01")),
    *((["calibrate", *RUN, "--target-advantage", bad], "--target-advantage") for bad in ("0", "2", "-1", "x", "nan")),
    (["calibrate", *RUN, "--target-tpr", "0.01@0.05"], "--target-tpr = 0.01 at a false-positive rate of 0.05 cannot"),
    (["calibrate", *RUN, *TARGET], "--clip is not set and"),
    (["calibrate", *RUN, *TARGET, "--solve-for", "batch-size", "--composition", "clt"], "is met by no batch size"),
    (["calibrate", *RUN, "--target-mu", "0.001", "--solve-for", "steps"], "is already missed after one step"),
    # Conversions.
    (["convert"], "nothing to convert was given"),
    (["convert", "--mu-dp", "1"], "--mu-dp cannot be converted alone: add --batch-size and --params, or --delta"),
    (["convert", "--mu-dp", "1", "--mu-mip", "1"], "--mu-dp and --mu-mip do not go together"),
    (["convert", "--mu-mip", "1", "--delta", "1e-5"], "--mu-mip and --delta do not go together"),
    (["convert", "--noise-std", "1", "--noise-multiplier", "1", "--clip", "1", "--batch-size", "2"], "do not go"),
    (["convert", "--noise-std", "1", "--batch-size", "2"], "add --clip"),
    (["convert", "--mu-dp", "-1", "--delta", "0.1"], "--mu-dp must be a finite number, 0 or more, not '-1'"),
    (["convert", "--mu-dp", "1", "--delta", "1.5"], "--delta must be a number from 0 to 1"),
    (["convert", "--mu-dp", "1", "--params", "0", "--batch-size", "1"], "--params must be a whole number"),
    (["convert", "--dong-sigma", "1", "--clip", "0", "--batch-size", "1"], "--clip must be a finite number above 0"),
    (["convert", "--epsilon", "x", "--delta", "1e-5"], "--epsilon must be a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "words"), BAD_REQUESTS, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else ""
)
def test_bad_request_is_one_sentence(run, argv, words):
    sentence = assert_one_sentence(run(*argv))
    assert words in sentence
    if len(argv) > 1 and "--json" not in argv and "--json=yes" not in argv and argv[-1] != "--fpr":
        assert assert_one_sentence(run(*argv, "--json")) == sentence


def test_keywords_inside_a_sentence_of_the_library_become_options():
    from gmip._cli.errors import sentence

    said = sentence(
        gmip.InvalidArgument("rank = 3 exceeds num_params = 2: the rank of a bound is no bound;\n lower it.")
    )
    assert said == "--rank = 3 exceeds --params = 2: the rank of a bound is no bound; lower it."
