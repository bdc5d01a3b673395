"""Requests that are wrong, from the outside: one sentence, exit code 2."""

from __future__ import annotations

import pytest

from tests.e2e.cli import RUN, TARGET, assert_one_sentence


def without(option: str) -> list[str]:
    i = RUN.index(option)
    return RUN[:i] + RUN[i + 2 :]


NOISE = ["--clip", "500", "--noise-multiplier", "1"]
BAD_REQUESTS: list[tuple[list[str], str]] = [
    # What typer finds.
    (["acount"], "acount is not a command of gmip, did you mean 'account': see gmip --help."),
    (["--nonsense"], "--nonsense is not an option of gmip:"),
    (["account", *RUN, "--nonsense", "1"], "--nonsense is not an option of gmip account"),
    (["account", *RUN, "--step", "1"], "--step is not an option of gmip account, did you mean --steps: see"),
    (["account", *RUN, "-x"], "-x is not an option of gmip account: see gmip account --help."),
    (["account", *RUN, "--fpr"], "--fpr needs a value"),
    (["account", *RUN, "--json=yes"], "--json takes no value"),
    (["account", *RUN, "17"], "17 is not expected here"),
    (["account", *RUN, "17\n\x1b[2Jx", "18"], "is not expected here"),
    # What is missing.
    (["compare", "a", "b"], "compare is not a command of gmip"),
    (["account", *RUN, "--rank", "3"], "--rank is not an option of gmip account"),
    (["train", "--attacker-knows", "1"], "not an option of gmip train, but --notion gdp is for an attacker who knows"),
    (["report"], "RESULT.json is missing: see gmip report --help."),
    (["account"], "--dataset-size, --batch-size, --steps and --params are missing: add them"),
    *((["account", *without(o)], f"{o} is missing: add it, as in {o} ") for o in RUN[::2]),
    (["calibrate", *without("--steps"), *TARGET], "--steps is missing"),
    # Numbers.
    *((["account", *RUN, "--steps", bad], f"--steps must be a whole number from 1 to 1e18, not {bad!r}") for bad in
      ("abc", "nan", "inf", "-5", "0", "1.5", "", "1e999999999", "1e-999999999", "0x10", "--json")),
    *((["account", *RUN, o, "abc"], f"{o} must be a whole number") for o in RUN[::2]),
    *((["account", *RUN, "--clip", bad], "--clip must be a finite number above 0") for bad in ("0", "-1", "nan")),
    *((["account", *RUN, *NOISE, "--noise-multiplier", bad], "--noise-multiplier must be a finite number, 0 or more")
      for bad in ("x", "-1", "nan", "inf")),
    (["account", *RUN, "--susceptibility", "0"], "--susceptibility must be any, any-constant or a finite"),
    (["account", *RUN, "--susceptibility", "everyone"], "--susceptibility must be any, any-constant or a finite"),
    *((["account", *RUN, "--attacker-knows", bad], "--attacker-knows must be a number from 0 to 1") for bad in
      ("x", "2", "-1", "nan")),
    *((["account", *RUN, "--delta", bad], "--delta must be a number between 0 and 1") for bad in ("0", "1", "x")),
    (["account", *without("--steps"), "--epochs", "0"], "--epochs must be a finite number above 0"),
    *((["account", *RUN, "--fpr", bad], "--fpr must be a number from 0 to 1") for bad in ("2", "-0.1", "nan", "1%")),
    (["account", *RUN, "--fpr", "0.01", "--fpr", "x"], "--fpr must be a number from 0 to 1, not 'x'"),
    # Words.
    (["account", *RUN, "--sampling", "shuffle"], "--sampling must be one of fixed, poisson, full"),
    (["calibrate", *RUN, *TARGET, "--notion", "dp"], "--notion must be one of gmip, gdp"),
    (["calibrate", *RUN, *TARGET, "--solve-for", "clip"], "--solve-for must be one of noise-std, batch-size, steps,"),
    # What does not go together.
    (["account", *RUN, "--noise-multiplier", "1"], "--noise-multiplier needs --clip"),
    (["account", *RUN, "--batch-size", "50000"], "--batch-size = 50000 exceeds --dataset-size = 48000"),
    (["account", *RUN, "--sampling", "full"], "--sampling = 'full' needs --batch-size = --dataset-size = 48000"),
    (["calibrate", *RUN], "No privacy target was given: add one, as in --target tpr=0.05@0.01"),
    (["calibrate", *RUN, *TARGET, "--target", "advantage=0.1"], "--target was given 2 times: pass it once"),
    (["account", *RUN, "--notion", "gdp", "--susceptibility", "1"], "--susceptibility does not apply to --notion gdp"),
    (["calibrate", *RUN, *TARGET, *NOISE], "--noise-multiplier is what gmip calibrate finds: leave it out"),
    (["calibrate", *RUN, *TARGET, "--notion", "gdp", "--susceptibility", "1"], "--susceptibility does not apply"),
    (["calibrate", *RUN, *TARGET, "--notion", "gdp", "--attacker-knows", "1"], "--attacker-knows does not apply"),
    (["account", *RUN, "--epochs", "3"], "--steps and --epochs set the same number: pass only one of them."),
    # Targets.
    (["calibrate", *RUN, "--target", "advantag=1"], "not 'advantag=1', did you mean 'advantage': pass one such as"),
    *((["calibrate", *RUN, "--target", bad], "--target must be mu=..., tpr=..., advantage=... or epsilon=..., not")
      for bad in ("", "mu", "0.05@0.01", "delta=1e-5", "=2")),
    *((["calibrate", *RUN, "--target", f"mu={bad}"], "mu of --target = ") for bad in ("0", "-1", "inf")),
    *((["calibrate", *RUN, "--target", f"mu={bad}"], "--target must be like mu=0.5, not ") for bad in
      ("x", "nan", "", "2@3")),
    *((["calibrate", *RUN, "--target", f"tpr={bad}"], "--target must be like tpr=0.05@0.01, not ") for bad in
      ("0.05", "0.05@", "@0.01", "a@b", "0.05@0.01@1", "nan@0.1", "0.05 0.01")),
    *((["calibrate", *RUN, "--target", f"tpr={bad}"], "pr of --target = ") for bad in ("5@0.01", "0.05@0")),
    *((["calibrate", *RUN, "--target", f"advantage={bad}"], "advantage of --target = ") for bad in ("0", "2", "-1")),
    (["calibrate", *RUN, "--target", "epsilon=3"], "--target must be like epsilon=3@1e-5, not 'epsilon=3'"),
    (["calibrate", *RUN, "--target", "epsilon=3@2"], "delta of --target = 2.0 must lie in (0, 1)"),
    (["calibrate", *RUN, "--target", "tpr=0.01@0.05"], "tpr of --target = 0.01 at a false-alarm rate of 0.05 cannot"),
    (["calibrate", *RUN, *TARGET], "--clip is missing: without noise"),
    (["calibrate", *RUN, *TARGET, "--solve-for", "batch-size"], "is met by no batch size"),
    (["calibrate", *RUN, "--target", "mu=0.001", "--solve-for", "steps"], "is already missed after one step"),
    # Conversions.
    (["convert"], "There is nothing to convert: pass one"),
    (["convert", "mu-dp=1"], "mu-dp cannot be converted alone: add batch-size and params, or delta"),
    (["convert", "mu-dp=1", "mu-mip=1"], "mu-dp and mu-mip cannot be combined"),
    (["convert", "mu-mip=1", "delta=1e-5"], "mu-mip and delta cannot be combined"),
    (["convert", "noise-std=1", "noise-multiplier=1", "clip=1", "batch-size=2"], "cannot be"),
    (["convert", "noise-std=1", "batch-size=2"], "add clip"),
    (["convert", "mu-dp=-1", "delta=0.1"], "mu-dp must be a finite number, 0 or more, not '-1'"),
    (["convert", "mu-dp=1", "delta=1.5"], "delta must be a number from 0 to 1"),
    (["convert", "mu-dp=1", "params=0", "batch-size=1"], "params must be a whole number"),
    (["convert", "noise-std=1", "clip=0", "batch-size=1"], "clip must be a finite number above 0"),
    (["convert", "epsilon=x", "delta=1e-5"], "epsilon must be a finite number"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "words"), BAD_REQUESTS, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else ""
)
def test_bad_request_is_one_sentence(run, argv, words):
    sentence = assert_one_sentence(run(*argv))
    assert words in sentence
    if len(argv) > 1 and "--json" not in argv and "--json=yes" not in argv and argv[-1] != "--fpr":
        assert assert_one_sentence(run(*argv, "--json")) == sentence
