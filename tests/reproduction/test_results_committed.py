"""The results that are committed: whole, small, and what the code makes of their numbers."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import pytest

from benchmarks.value.experiment import STUDY
from benchmarks.value.search import FPR, TUNED
from gmip import NoisySGD, _numbers, account
from reproduction.experiments import PAPER, SETTINGS
from reproduction.results import csv_file, read_csv, read_outcome, to_csv

ROOT = Path(__file__).parents[2]
STANDING_IN = dataclasses.replace(SETTINGS["stand-in"], experiments=SETTINGS["stand-in"].select(["utility-stand-in"]))
FOLDERS = {"results": PAPER, "results/released": SETTINGS["released"], "benchmarks/value/results": STUDY}
FOLDERS["results/stand-in"] = STANDING_IN
EXPERIMENTS = [(ROOT / folder, experiment) for folder, study in FOLDERS.items() for experiment in study.experiments]


def test_they_are_small():
    """The page, which whoever runs an experiment has there, is not committed."""
    for folder in FOLDERS:
        sizes = [path.stat().st_size for path in (ROOT / folder).glob("*.*") if path.suffix not in (".svg", ".html")]
        assert 0 < sum(sizes) < 800_000, folder


@pytest.mark.parametrize(("folder", "experiment"), EXPERIMENTS, ids=[one.name for _, one in EXPERIMENTS])
def test_claims_follow_from_the_numbers(folder, experiment):
    """Whoever changes a rule or the words of a claim runs `python -m reproduction --redraw`."""
    outcome = read_outcome(folder, experiment.name)
    assert outcome is not None and not outcome.quick and outcome.command
    rows = read_csv(csv_file(folder, experiment).read_text(encoding="utf-8"))
    assert tuple(experiment.claims(rows)) == outcome.claims
    told = (folder / "claims.md").read_text(encoding="utf-8")
    assert outcome.claims and all((folder / figure).is_file() and f"({figure})" in told for figure in outcome.figures)


@pytest.mark.parametrize(("folder", "experiment"), EXPERIMENTS, ids=[one.name for _, one in EXPERIMENTS])
def test_they_are_no_older_than_the_code(folder, experiment):
    """Cells and version by their hash; what the code does, by a small computation that is repeated here. A hash of the
    source would fail at every rename. Whoever fails this runs the experiment again and commits what it writes."""
    outcome = read_outcome(folder, experiment.name)
    assert outcome is not None and outcome.decided_by == experiment.decided_by()
    again = _probed(experiment.probe)
    assert len(again) == len(outcome.probe)
    for before, now in zip(outcome.probe, again, strict=True):
        assert [key for key in now if not _same(before[key], now[key])] == []


@cache  # of figures of the same rows
def _probed(probe):
    return read_csv(to_csv(probe()))


def _same(before, now):
    """Equal, or numbers that another machine may have rounded otherwise."""
    numbers = all(isinstance(value, (int, float)) for value in (before, now))
    return now == pytest.approx(before, rel=2e-3, abs=2e-3) if numbers else now == before


def test_the_noise_of_value_is_what_the_accountant_asks():
    """The probe of `value` does not have all arms: this has each, where it takes fewest steps and most."""
    rows = read_csv((ROOT / "benchmarks/value/results/value.csv").read_text(encoding="utf-8"))
    claimed = {arm: tuned.keywords for arm, tuned in TUNED.items()} | {"none": {}, "gdp-same": {"notion": "gdp"}}
    claimed |= {"any": {"susceptibility": "any"}, "any-fixed": {"susceptibility": "any"}}
    for arm, keywords in claimed.items():
        mine = sorted((row for row in rows if row["arm"] == arm), key=lambda row: row["num_steps"])
        for row in (mine[0], mine[-1]):
            sizes = {name: row[name] for name in ("dataset_size", "batch_size", "num_steps", "num_params", "sampling")}
            run = NoisySGD(clip_norm=1.0, noise_std=row["noise_multiplier"] / row["batch_size"], **sizes)
            assert float(account(run, **keywords).tpr_at(FPR)) == pytest.approx(row["exposure"], rel=1e-3)


def test_whatever_is_not_agreed_says_why():
    outcomes = [read_outcome(folder, experiment.name) for folder, experiment in EXPERIMENTS]
    claims = [claim for outcome in outcomes if outcome is not None for claim in outcome.claims]
    assert all(claim.words for claim in claims if claim.verdict != "agrees")


def test_the_page_has_their_cells_and_times():
    page = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    for folder, experiment in EXPERIMENTS:
        outcome = read_outcome(folder, experiment.name)
        assert outcome is not None
        if experiment.shows is None:
            assert f"| `{experiment.name}` | {outcome.cells} | {_numbers.duration(outcome.seconds)} |" in page
