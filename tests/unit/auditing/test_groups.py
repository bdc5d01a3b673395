from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

import gmip
from gmip.auditing.judge import AttackEvidence, AttackScores, Groups, JudgeSettings, Labels, group_outcomes
from gmip.report import card, read_result, sentences, to_html, to_markdown, write_report
from gmip.stats import ScoreSet

RNG = np.random.default_rng(3)
SIZE = 200
MEMBER = np.tile([True, False], SIZE * 3 // 2)
CODES = np.repeat([0, 1, 2], SIZE)
SCORES = RNG.normal(size=SIZE * 3) + 1.5 * (MEMBER & (CODES == 1)) + 4.0 * (CODES == 2)
NAMES = ("calm", "leaky", "high")


def found_in(scores, member, groups: Groups, tests: int = 1):
    attack = AttackEvidence(
        name="attack",
        title="Attack",
        needs=(),
        found=(AttackScores(scores=ScoreSet(ids=np.arange(scores.size), scores=scores, attack="attack")),),
        labels=(Labels(inside=member, groups=groups),),
    )
    return group_outcomes(attack, JudgeSettings(), fprs=(0.1,), tests=tests)


def outcomes(tests: int = 1, names: tuple[str, ...] = NAMES):
    return found_in(SCORES, MEMBER, Groups(CODES, names), tests)


def test_each_group_is_judged_by_itself() -> None:
    """The third scores high, members and non-members alike: that exposes nobody."""
    found = {one.group: one for one in outcomes()}
    assert outcomes()[0].group == "leaky" and (found["leaky"].members, found["leaky"].non_members) == (100, 100)
    assert found["leaky"].mu_lower is not None and found["leaky"].mu_lower > 0.7
    assert found["calm"].mu_lower == found["high"].mu_lower == 0.0
    assert found["high"].auc is not None and abs(found["high"].auc.value - 0.5) < 0.15


def test_what_is_found_within_groups_is_not_hidden_by_offsets(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    member, site = np.tile([True, False], 2000), np.repeat(np.arange(10), 400)
    score = rng.normal(size=4000) + 1.5 * member + 30.0 * site
    table = {"member": member, "score": score, "group": [f"site {i}" for i in site]}
    result = gmip.audit(gmip.Scores(table), gate=True)
    (run,) = result.runs
    assert run.answers[0].target == "missed" and run.answers[0].why == "group" and run.answers[0].leak == "leak"
    assert run.gate is not None and not run.gate.passed and run.gate.within_group and run.gate.tpr_lower > 0.05
    assert run.conclusion.kind == "fails" and card.headline(run).startswith("In the group 'site")
    assert "of the members of the group 'site" in sentences.gate(run, run.gate)
    calm = gmip.audit(gmip.Scores(table | {"score": rng.normal(size=4000) + 30.0 * site}), gate=True)
    assert calm.runs[0].gate is not None and calm.runs[0].gate.passed and calm.runs[0].answers[0].why != "group"


def test_intervals_grow_with_the_number_of_groups_and_attacks() -> None:
    alone = found_in(SCORES[CODES == 1], MEMBER[CODES == 1], Groups(CODES[CODES == 1] - 1, ("leaky",)))[0]
    widths = [one.tpr_at["0.1"].upper - one.tpr_at["0.1"].lower for one in (alone, outcomes()[0], outcomes(5)[0])]
    assert widths[0] < widths[1] < widths[2]


def test_few_of_a_group_are_counted_and_not_measured() -> None:
    codes = np.where(np.arange(CODES.size) == 0, 3, CODES)
    *_, last = found_in(SCORES, MEMBER, Groups(codes, (*NAMES, "rare")))
    assert (last.group, last.members, last.non_members, last.auc, last.mu_lower) == ("rare", 1, 0, None, None)


def test_groups_in_json_csv_and_report(tmp_path: Path) -> None:
    site = np.array(["=calm", "leaky", "<b>"])[CODES]
    result = gmip.audit(gmip.Scores({"member": MEMBER, "score": SCORES, "site": site}, columns={"group": "site"}))
    written = write_report(result, tmp_path)
    assert read_result(written.json) == result and result.runs[0].grouped_by == "site"
    with (tmp_path / "groups-scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["group"] == "leaky" and {"'=calm", "<b>"} == {row["group"] for row in rows[1:]}
    assert float(rows[0]["tpr_at_0.1_lower"]) == result.runs[0].groups[0].tpr_at["0.1"].lower
    assert "Leak detected in 1 of 3 groups" in to_markdown(result)
    assert "of each site" in to_html(result) and "<b>" not in to_html(result)
    assert {one.group for one in result.runs[0].exposed} <= set(site)
