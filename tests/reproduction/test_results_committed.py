"""The results that are committed: whole, small, and what the code makes of their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.value.experiment import STUDY
from reproduction.experiments import PAPER
from reproduction.results import csv_file, read_csv, read_outcome

ROOT = Path(__file__).parents[2]
FOLDERS = {"results": PAPER, "benchmarks/value/results": STUDY}
EXPERIMENTS = [(ROOT / folder, experiment) for folder, study in FOLDERS.items() for experiment in study.experiments]


def test_they_are_small():
    """The page, which whoever runs an experiment has there, is not committed."""
    there = [path for folder in FOLDERS for path in (ROOT / folder).glob("*.*")]
    sizes = [path.stat().st_size for path in there if path.suffix not in (".svg", ".html")]
    assert sum(sizes) < 800_000


@pytest.mark.parametrize(("folder", "experiment"), EXPERIMENTS, ids=[one.name for _, one in EXPERIMENTS])
def test_claims_follow_from_the_numbers(folder, experiment):
    """Whoever changes a rule or the words of a claim runs `python -m reproduction --redraw`."""
    outcome = read_outcome(folder, experiment.name)
    assert outcome is not None and not outcome.quick and outcome.command
    rows = read_csv(csv_file(folder, experiment).read_text(encoding="utf-8"))
    assert tuple(experiment.claims(rows)) == outcome.claims
    told = (folder / "claims.md").read_text(encoding="utf-8")
    assert outcome.claims and all((folder / figure).is_file() and f"({figure})" in told for figure in outcome.figures)


def test_no_claim_is_contradicted():
    """Where the paper and the measurement differ, the claim says why; a plain no would be a finding to look into."""
    outcomes = [read_outcome(folder, experiment.name) for folder, experiment in EXPERIMENTS]
    found = {claim.what: claim for outcome in outcomes if outcome is not None for claim in outcome.claims}
    assert [what for what, claim in found.items() if claim.agrees == "no"] == []
    assert all(claim.words for claim in found.values() if claim.agrees == "differs")
