"""What the README shows is what gmip does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PYTHON = [block for language, block in BLOCKS if language == "python"]
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for language, block in BLOCKS
    for line in block.splitlines()
    if not language and line.startswith("gmip ")
]


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_accounting_example_runs():
    lines = PYTHON[0].splitlines()
    found: dict[str, object] = {}
    exec("\n".join(lines), found)  # the block as a reader would paste it
    (tpr,) = [line for line in lines if line.startswith("curve.tpr_at(fpr=0.01)")]
    assert f"{eval(tpr, found):.4f}" in tpr


@pytest.mark.parametrize("argv", [c for c in COMMANDS if c[0] in ("account", "calibrate", "convert")], ids=" ".join)
def test_the_commands_run(run, argv):
    outcome = run(*argv)
    assert (outcome.code, outcome.err) == (0, "")
    if argv[0] == "account":
        (quoted,) = re.findall(r'"(At a 1% [^"]+)"', README)
        assert outcome.out.splitlines()[0] == quoted


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_every_command_and_option_exists(run, argv):
    text = run(argv[0], "--help").out
    assert argv[0] in text
    assert [word for word in argv if word.startswith("--") and f"{word} " not in text] == []
