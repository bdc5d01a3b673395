"""Persons with several rows: judged once each, by all their rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gmip
from gmip.auditing import read_scores
from gmip.auditing.schema import RunAudit, UnusedColumn
from gmip.errors import InvalidArgument
from gmip.report import sentences


def rows(seed: int, leak: float = 0.0, persons: int = 80) -> dict[str, np.ndarray]:
    """1 to 20 rows of each person, whose scores have a correlation of .8; `leak` moves those of members."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 21, persons)
    person = np.repeat(np.arange(persons), sizes)
    member = np.arange(persons) < persons // 2
    own = rng.normal(size=persons) + leak * member
    return {
        "member": member[person],
        "score": 2.0 * own[person] + rng.normal(size=person.size) + 5.0,
        "person": person,
    }


def judged(table: dict[str, np.ndarray], **settings: object) -> RunAudit:
    return gmip.audit(gmip.Scores(table), claim=0.0, target=(0.01, 0.01), gate=True, **settings).runs[0]


def test_rows_of_one_person_accuse_nobody() -> None:
    """Taken for persons of their own, they accuse many of these."""
    runs = [judged(rows(seed)) for seed in range(20)]
    apart = [judged({name: column for name, column in rows(seed).items() if name != "person"}) for seed in range(20)]
    exposed = [
        sum(one.verdict.kind == "exposed" or one.attacks[0].mu_lower > 0.0 for one in found) for found in (runs, apart)
    ]
    assert exposed[0] <= 3 < 6 <= exposed[1]
    assert sum(run.gate is not None and not run.gate.passed for run in runs) <= 3
    assert runs[0].attacks[0].members == 40 and runs[0].persons is not None and runs[0].persons.persons == 80


def test_a_leak_is_found_and_those_with_many_rows_are_more_exposed() -> None:
    rng = np.random.default_rng(0)
    sizes = np.tile([1, 20], 200)
    person = np.repeat(np.arange(400), sizes)
    member = person % 4 < 2
    scores = rng.normal(size=person.size) + 0.5 * member
    run = judged({"member": member, "score": scores, "patient_id": person})
    assert run.verdict.kind == "exposed" and run.grouped_by == "rows of a person"
    many, one = run.groups
    assert (many.group, one.group) == ("10 rows or more", "1 row")
    assert many.auc is not None and one.auc is not None and many.auc.value > 0.9 > 0.75 > one.auc.value
    assert "4,200 rows belong to 400 persons (at most 20 each)" in " ".join(sentences.cautions(run))


def test_a_person_with_most_of_the_rows_and_runs_with_another_zero_hide_no_leak() -> None:
    table = rows(1, leak=2.0)
    alone = judged(table).attacks[0].auc.value
    many = {"member": np.zeros(9_000, dtype=bool), "score": np.full(9_000, 30.0), "person": np.full(9_000, 80)}
    crowded = {name: np.concatenate([table[name], many[name]]) for name in table}
    second = {**table, "score": table["score"] + 30.0 * (table["person"] % 2), "run": table["person"] % 2}
    assert min(judged(crowded).attacks[0].auc.value, judged(second).attacks[0].auc.value) > alone - 0.05 > 0.8


@pytest.mark.parametrize("most", [1, 2])
def test_persons_who_stay_in_several_runs_are_counted_once(most: int) -> None:
    """Five trainings with the same members are not five times as many persons."""
    accused = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        person = np.tile(np.repeat(np.arange(60), most), 5)
        score = rng.normal(size=60)[person] + 0.3 * rng.normal(size=person.size)
        run = np.repeat(np.arange(5), 60 * most)
        found = judged({"member": person < 30, "score": score, "person": person, "run": run})
        assert found.persons is not None and found.persons.persons == 60
        accused += found.verdict.kind == "exposed"
    assert accused <= 3


def test_ways_to_write_a_person() -> None:
    table = rows(0)
    names = table["person"].astype(object)
    names[::2] = [f" {name}.0 " for name in names[::2]]
    assert judged({**table, "person": names}).attacks[0].auc == judged(table).attacks[0].auc
    names[3] = "NA"
    with pytest.raises(InvalidArgument, match="no person in column 'person' of record 4"):
        judged({**table, "person": names})


@pytest.mark.parametrize("column", ["CASE_ID", "Pat_ID", "Patienten-ID", "Patient_Nr", "Fallnummer", "subject", "PID"])
def test_an_unused_column_of_persons_is_named(column: str) -> None:
    table = rows(0)
    table[column] = table.pop("person")
    said = gmip.audit(gmip.Scores(table))
    unused = said.runs[0].unused_column
    assert unused is not None and unused.name == column


@pytest.mark.parametrize("other", ["Train", " ", ""])
def test_what_may_or_may_not_be_a_member_is_refused(other: str) -> None:
    table = {"split": ["train", "test"] * 20 + [other], "score": np.arange(41.0)}
    with pytest.raises(InvalidArgument, match="which may or may not be the 'train' of members"):
        gmip.audit(gmip.Scores(table, columns={"member:train": "split"}))


def test_one_row_each_is_the_audit_of_records() -> None:
    rng = np.random.default_rng(3)
    table = {"member": np.arange(100) < 50, "score": rng.normal(size=100)}
    alone = judged(table | {"person": np.arange(100)})
    assert alone.persons is None and alone.attacks == judged(table).attacks


def test_persons_on_both_sides_are_left_out() -> None:
    table = rows(0)
    table["member"][0] = not table["member"][0]
    assert np.count_nonzero(table["person"] == 0) > 1
    run = judged(table)
    assert run.persons is not None and run.persons.on_both_sides == 1
    assert run.attacks[0].members + run.attacks[0].non_members == 79
    table["member"] = np.arange(table["member"].size) % 2 == 0
    table["person"] = np.arange(table["member"].size) // 4
    with pytest.raises(InvalidArgument, match="rows among members and among non-members: pass at least 2 persons"):
        judged(table)


def test_other_numbers_of_rows_are_said() -> None:
    person = np.repeat(np.arange(80), np.where(np.arange(80) < 40, 9, 2))
    scores = np.random.default_rng(0).normal(size=person.size)
    run = judged({"member": person < 40, "score": scores, "person": person})
    assert "differ in their number of rows" in " ".join(sentences.cautions(run))


def test_groups_and_ids_are_those_of_persons() -> None:
    table = rows(1)
    sex = np.where(table["person"] % 2, "f", "m")
    sex[0] = "f"
    names = np.array([f"P{i}" for i in table["person"]])
    result = gmip.audit(gmip.Scores(table | {"group": sex, "person": names}))
    assert {one.group for one in result.runs[0].groups} == {"f", "m", "several groups"}
    assert {one.id for one in result.runs[0].exposed} <= set(names)


def test_persons_whose_membership_differs_between_runs_are_judged_in_each() -> None:
    one, two = rows(1), rows(2)
    two["member"] = ~two["member"]
    both = {name: np.concatenate([one[name], two[name]]) for name in one}
    run = judged(both | {"run": np.repeat(["a", "b"], [one["member"].size, two["member"].size])})
    assert run.attacks[0].repeats == 2 and run.attacks[0].members == 80


@pytest.mark.parametrize("name", ["patient_id", "PatientID", "User_ID"])
def test_the_usual_names_of_persons(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"member,score,{name}\n" + "".join(f"{i % 2},{i},p{i % 8}\n" for i in range(40)))
    table = read_scores(path)
    assert table.persons is not None and table.unused is None


def test_a_column_that_looks_like_persons_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("member,score,case_id\n" + "".join(f"{i % 2},{i},p{i % 12}\n" for i in range(48)))
    run = gmip.audit(gmip.Scores(path)).runs[0]
    assert run.unused_column == UnusedColumn(name="case_id", values=12, rows=48)
    assert "(--column person=case_id)" in " ".join(sentences.cautions(run))
    assert read_scores(path, {"person": "case_id"}).unused is None


def test_repeated_ids_ask_for_the_person() -> None:
    table = {"member": [1, 1, 0, 0], "score": [1.0, 2.0, 3.0, 4.0], "id": ["a", "a", "b", "c"]}
    with pytest.raises(InvalidArgument, match="name the column as the person: columns person=id"):
        gmip.audit(gmip.Scores(table))
    table["person"] = ["a", "", "b", "c"]
    with pytest.raises(InvalidArgument, match="no person in column 'person' of record 2"):
        gmip.audit(gmip.Scores(table, columns={"id": "score"}))


def test_predictions_of_persons() -> None:
    rng = np.random.default_rng(0)
    member = np.arange(120) < 60
    chances = np.clip(rng.uniform(0.3, 0.7, 120) + 0.2 * member, 0.0, 1.0)
    run = gmip.audit(
        gmip.Predictions(
            member,
            labels=np.zeros(120, dtype=int),
            probabilities=np.column_stack([chances, 1.0 - chances]),
            persons=np.arange(120) // 3,
        )
    ).runs[0]
    assert run.persons is not None and run.persons.persons == 40 and run.attacks[0].members == 20


def test_estimators_are_fitted_to_persons() -> None:
    pytest.importorskip("sklearn")
    from sklearn.neighbors import KNeighborsClassifier

    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(30), rng.integers(1, 5, 30))
    centre = rng.normal(size=(30, 3))
    X = centre[person] + 0.1 * rng.normal(size=(person.size, 3))
    y = rng.integers(0, 2, 30)[person]
    source = gmip.Estimator(KNeighborsClassifier(1), X, y, shadows=2, persons=person)
    run = gmip.audit(source).runs[0]
    assert run.persons is not None and run.persons.on_both_sides == 0 and run.attacks[0].members == 15
    with pytest.raises(InvalidArgument, match="persons has 3 entries"):
        gmip.audit(gmip.Estimator(KNeighborsClassifier(1), X, y, persons=[1, 2, 3]))
