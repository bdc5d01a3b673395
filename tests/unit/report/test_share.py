"""What can be passed on names no record, no file and no seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import gmip
from gmip.auditing import merged
from gmip.auditing.schema import GroupOutcome, automatic_title
from gmip.report import read_result, write_report
from gmip.report.share import shareable
from tests.unit.report import sample


def test_nothing_private_is_left(tmp_path: Path):
    result = sample.exposed()
    run = result.runs[0]
    attack = run.attacks[0].model_copy(
        update={"facts": {"folder": "/home/me/shadows", "rank": 3}, "guessed_seed": 4242, "notes": ("see /home/me",)}
    )
    result = result.model_copy(update={"runs": (run.model_copy(update={"attacks": (attack, *run.attacks[1:])}),)})
    written = write_report(result, tmp_path)
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


def test_names_of_files_are_not_shared(tmp_path: Path):
    rng = np.random.default_rng(0)
    (tmp_path / "StMary_HIV_cohort.csv").write_text(
        "\n".join(["member,score", *(f"{i % 2},{rng.normal(i % 2)}" for i in range(200))])
    )
    result = gmip.audit(gmip.Scores(tmp_path / "StMary_HIV_cohort.csv"))
    written = write_report(result, tmp_path / "out")
    assert "StMary" in written.html.read_text(encoding="utf-8")
    for path in (written.shared, written.summary, written.markdown):
        assert "StMary" not in path.read_text(encoding="utf-8"), path
    assert shareable(result).title == "Membership audit" and shareable(result).runs[0].name == "the run"
    given = gmip.audit(gmip.Scores(tmp_path / "StMary_HIV_cohort.csv"), title="Ward 3")
    assert shareable(given).title == "Ward 3"
    both = shareable(merged(result, result))
    assert both.title == "Membership audit" and [run.name for run in both.runs] == ["run 1", "run 2"]
    assert shareable(merged(result, given)).title == "Ward 3"
    run = result.runs[0].model_copy(update={"task": "StMary_HIV_cohort.task"})  # begins like the name of the run
    of_task = result.model_copy(update={"runs": (run,), "title": automatic_title([run])})
    assert shareable(of_task).title == of_task.title == "Membership audit of StMary_HIV_cohort.task"


def test_candidates_come_with_the_result_of_an_audit(tmp_path: Path):
    """From Python as from the command line; result.json has none of them, and is otherwise the same."""
    result = gmip.audit(gmip.Scores([3.0, 2.0, 1.0, 0.5], [1.5, 0.0, -1.0, -2.0]))
    written = write_report(result.model_copy(update={"title": "mine"}), tmp_path)
    assert [path.name for path in written.csv] == ["exposed-scores.csv"]
    assert len((tmp_path / "exposed-scores.csv").read_text().splitlines()) == 9
    read = read_result(tmp_path)
    assert read == result.model_copy(update={"title": "mine"}) and not read.candidates
    assert write_report(read, tmp_path / "again").csv == ()


def test_a_warning_stays_without_its_path():
    result = sample.exposed()
    words = "The scores of /home/me/x.csv tie, see 'C:\\My Data\\y.csv': nothing can be told."
    run = result.runs[0].model_copy(update={"warnings": (words,)})
    (shared,) = shareable(result.model_copy(update={"runs": (run,)})).runs
    assert shared.warnings == ("The scores of (a path) tie, see (a path): nothing can be told.",)


def test_small_groups_are_not_named(tmp_path: Path):
    large = GroupOutcome(group="north", members=40, non_members=60, mu_lower=0.0)
    small = [GroupOutcome(group=f"John {i}", members=5, non_members=4 + i) for i in range(3)]
    result = sample.exposed()
    run = result.runs[0].model_copy(update={"groups": (large, *small), "grouped_by": "site"})
    result = result.model_copy(update={"runs": (run,)})
    (shared,) = shareable(result).runs
    assert [(one.group, one.members, one.non_members, one.folded) for one in shared.groups] == [
        ("north", 40, 60, 0),
        ("smaller groups", 15, 15, 3),
    ]
    written = write_report(result, tmp_path)
    for file in (written.shared, written.markdown, written.summary):
        assert "John" not in file.read_text(encoding="utf-8")
    page = written.shared.read_text(encoding="utf-8")
    assert "0 of 4 groups" in page and "are not named here: 3." in page
    assert "John 1" in written.html.read_text(encoding="utf-8")
