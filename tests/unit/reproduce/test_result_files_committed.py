"""The results that are committed: whole, small, and what the code makes of their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gmip.reproduce import experiment, names
from gmip.reproduce.result_files import csv_file, read_csv, read_outcome

RESULTS = Path(__file__).parents[3] / "results"


def test_they_are_small():
    assert sum(path.stat().st_size for path in RESULTS.iterdir() if path.suffix in (".csv", ".json", ".md")) < 800_000


@pytest.mark.parametrize("name", names())
def test_claims_follow_from_the_numbers(name):
    """Whoever changes a rule or the words of a claim runs `gmip reproduce --redraw`."""
    outcome = read_outcome(RESULTS, name)
    assert outcome is not None and not outcome.quick and outcome.command.startswith("gmip reproduce ")
    rows = read_csv(csv_file(RESULTS, experiment(name)).read_text(encoding="utf-8"))
    assert tuple(experiment(name).claims(rows)) == outcome.claims
    told = (RESULTS / "claims.md").read_text(encoding="utf-8")
    assert outcome.claims and all((RESULTS / figure).is_file() and f"({figure})" in told for figure in outcome.figures)


def test_no_claim_is_contradicted():
    """Where the paper and the measurement differ, the claim says why; a plain no would be a finding to look into."""
    outcomes = [read_outcome(RESULTS, name) for name in names()]
    found = {claim.what: claim for outcome in outcomes if outcome is not None for claim in outcome.claims}
    assert [what for what, claim in found.items() if claim.agrees == "no"] == []
    assert all(claim.words for claim in found.values() if claim.agrees == "differs")
