"""The words of a plan."""

from __future__ import annotations

from gmip.attacks.work import WorkPlan
from gmip.auditing.sources.recorded import PlannedAttack
from gmip.report import sentences

GIB = 2**30
WORK = WorkPlan(
    piece="step",
    pieces=10,
    records=1_000,
    steps=13,
    each=2.0,
    alone=6.0,
    memory=GIB,
    memory_here=2 * GIB,
    once=1024,
    moved=2048,
)


def test_a_plan_for_workers_alone_and_for_a_cluster_that_was_not_asked():
    alone, two, cluster = (dict(sentences.plan_rows(WORK, count)) for count in (1, 2, None))
    assert (alone["time"], alone["memory"]) == ("about 26 s", "2.0 GiB") and "moved in all" not in alone
    assert (two["time with 2 workers"], two["memory of each worker"]) == ("about 16 s", "1.0 GiB")
    assert two["moved in all"] == "22 KiB"  # 2 x 1 KiB and 10 x 2 KiB
    assert cluster["time with n workers"] == "about 6 s + 2 s x 10 / n"


def test_what_is_not_known_is_named():
    planned = [PlannedAttack("a", "glir", WORK), PlannedAttack("a", "lira"), PlannedAttack("a", "x", None, "no steps")]
    said = " ".join(sentences.plan_notes(planned, 2))
    assert "x on a will not run: no steps" in said and "about 16 s" in said
    assert said.endswith("Not estimated: the check of the record, lira on a.")
