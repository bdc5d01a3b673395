"""The command line as tests call it, and what they expect of its mistakes."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any, NamedTuple

import gmip

RUN = ["--dataset-size", "48000", "--batch-size", "400", "--steps", "1200", "--params", "650"]
PAPER = gmip.NoisySGD(dataset_size=48_000, batch_size=400, num_steps=1_200, num_params=650)
CLIPPED = PAPER.replace(clip_norm=500.0)
TARGET = ["--target", "mu=0.4"]


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def shell(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "gmip", *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


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
