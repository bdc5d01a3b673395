"""What can be passed on names no record, no file and no seed."""

from __future__ import annotations

from pathlib import Path

from gmip.report import write_report
from gmip.report.share import shareable
from tests.unit.report import sample


def test_nothing_private_is_left(tmp_path: Path):
    result = sample.exposed()
    run = result.runs[0]
    attack = run.attacks[0].model_copy(
        update={"facts": {"folder": "/home/me/shadows", "guessed_seed": 4242, "rank": 3}, "notes": ("see /home/me",)}
    )
    result = result.model_copy(update={"runs": (run.model_copy(update={"attacks": (attack, *run.attacks[1:])}),)})
    written = write_report(result, tmp_path, share=True)
    assert written.shared is not None
    page = written.shared.read_text(encoding="utf-8")
    card = written.markdown.read_text(encoding="utf-8")
    for private in ("4711", "runs/", "--seed", "sha256:", "/home/me", "4242", "Most exposed records"):
        assert private not in page.replace("sha256-", ""), private
        assert private not in card, private
    full = written.html.read_text(encoding="utf-8")
    assert "do not pass it on" in full and "4711" in full
    assert "can be passed on" in page and "11%" in page


def test_the_numbers_stay():
    result = sample.three_runs()
    shared = shareable(result)
    assert [run.verdict for run in shared.runs] == [run.verdict for run in result.runs]
    assert [run.attacks[0].auc for run in shared.runs] == [run.attacks[0].auc for run in result.runs]
