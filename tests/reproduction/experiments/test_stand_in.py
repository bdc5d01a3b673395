"""The stand-in for Purchase-100: of its shape, in its format, and named a stand-in wherever it shows."""

from __future__ import annotations

import numpy as np
from matplotlib.text import Text

from gmip.tasks import builtin
from gmip.tasks.data_files import DataFile, only_member
from gmip.training import count_params
from reproduction import figures, generated
from reproduction.experiments import PAPER, SETTINGS, audit, stand_in
from reproduction.paper import AUDIT_SIZES, UTILITY
from tests.reproduction.experiments import test_audit as for_audit

FILE = DataFile(title="Generated", path="purchase/small.tgz", checksum="generated:small", url="")


def test_the_shape_is_that_of_the_published_file():
    sizes = generated.class_sizes()
    assert len(sizes) == 100 and sizes.sum() == 197_324 and list(sizes) == sorted(sizes, reverse=True)
    pool = sizes[:20].sum() - 10_000
    assert pool > UTILITY["purchase"].run.dataset_size and pool > 4 * AUDIT_SIZES["purchase"][1]


def test_the_loader_reads_the_format():
    sizes = np.arange(45, 20, -1)
    content = generated.archive(sizes, 40)
    labels, bits = builtin.labelled_bits(only_member(content))
    assert bits.shape == (sizes.sum(), 40) and 0.05 < bits.mean() < 0.4
    assert np.array_equal(np.bincount(labels)[1:], sizes)
    assert content == generated.archive(sizes, 40) != generated.archive(sizes, 40, seed=1)


def test_the_task_is_that_of_purchase(monkeypatch, tmp_path):
    monkeypatch.setenv("GMIP_CACHE", str(tmp_path))
    sizes = np.arange(65, 40, -1)
    monkeypatch.setattr(generated, "class_sizes", lambda: sizes)
    monkeypatch.setattr(generated, "COLUMNS", 40)
    monkeypatch.setattr(generated, "_TEST_ROWS", 200)
    task = generated.stand_in()
    assert task.name == "purchase" and len(task.test) == 200 and len(task.pool) == sizes[:20].sum() - 200
    assert count_params(task.make_model()) == AUDIT_SIZES["purchase"][0]


def test_its_cells_are_those_that_purchase_has_in_the_usual_setting():
    """The attacks have those of a quick run: one seed takes ten minutes."""
    for mine in SETTINGS["stand-in"].experiments:
        usual = PAPER.select([mine.name.removesuffix("-stand-in")])[0]
        for quick in (False, True):
            asked = [cell for cell in usual.cells(quick or usual.name != "utility") if cell.task == "purchase"]
            assert len(mine.cells(quick)) == len(asked) > 0
            assert {cell.task for cell in mine.cells(quick)} == {generated.STAND_IN}


def test_everything_says_that_it_is_a_stand_in():
    experiment = stand_in.STANDING_IN.select(["audit-stand-in"])[0]
    rows = for_audit.made_up({**for_audit.ONE, **for_audit.FIVE}, seeds=2, n=100)
    rows = [row | {"task": "purchase"} for row in rows]
    claims = experiment.claims(rows)
    assert claims and all(claim.ours and "Purchase" not in claim.what + claim.measured for claim in claims)
    table = experiment.table(rows)
    assert "Stand-in" in table.caption and {row[0].text for row in table.rows} == {"Stand-in"}
    with figures.style():
        drawings = experiment.drawings(rows)
        for drawing in drawings:
            assert drawing.figure.get_suptitle() == drawing.alt.partition(". ")[0]
            texts = [text.get_text() for text in drawing.figure.findobj(Text) if "Purchase" in text.get_text()]
            assert texts == [drawing.figure.get_suptitle()]  # "not Purchase-100"
    assert all("not Purchase-100" in one.alt for one in drawings)
    assert "stand-in" in experiment.title and "no data of the paper" in experiment.paper


def test_rows_say_that_they_are_generated():
    cell = audit.Simulated(sizes_of="location", runs=1, seed=0)
    assert {row["data"] for row in stand_in._run(audit.run, cell)} == {"generated"}
