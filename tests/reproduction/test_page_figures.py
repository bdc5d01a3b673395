"""The page's figures on accuracy are those of the committed results."""

from __future__ import annotations

from pathlib import Path

from benchmarks.value.claims import short_table
from reproduction.experiments import utility
from reproduction.results import read_csv

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs/reproduction.md").read_text(encoding="utf-8").split())
SHOWN = (
    ("digits", 250),
    ("digits", 500),
    ("breast-cancer", 250),
    ("breast-cancer", 400),
    ("location", 1_000),
    ("cifar10", 1_000),
    ("cifar10", 48_000),
    ("adult", 1_000),
    ("adult", 43_000),
)


def rows(path):
    return read_csv((ROOT / path).read_text(encoding="utf-8"))


def test_the_table_of_value():
    assert " ".join(short_table(rows("benchmarks/value/results/value.csv"), SHOWN).split()) in PAGE


def test_the_sentence_on_utility():
    found = rows("results/utility.csv")
    setting = utility._gains(found, "cifar10", "gmip-tight", "gdp-exact")[1].mean(axis=1).max()
    tuned = utility.left_when_tuned(found, "cifar10")[1].mean(axis=1).max()
    assert f"up to {100 * setting:.0f} points higher under membership-inference privacy" in PAGE
    assert f"With the best clipping norm and learning rate for each, {100 * tuned:.1f} points at most are left" in PAGE
