from __future__ import annotations

from reproduction.experiments import assumptions

ROWS = [row for cell in assumptions.cells(False) for row in assumptions.run(cell)]


def test_rows():
    found = {(row["attack"], row["assumption"]): (row["here"], row["published"]) for row in ROWS}
    assert found["lira", "shadows"] == (True, True)
    assert found["glir", "labels"] == (True, False)
    assert found["rmia", "shadows"] == (True, None) and found["lira", "code"] == (False, None)


def test_claims_and_table():
    claims = assumptions.claims(ROWS)
    assert [claim.verdict for claim in claims] == ["agrees", "agrees", "agrees", "agrees", "differs", "agrees"]
    assert "glir_scores" in claims[4].words
    table = assumptions.table(ROWS)
    assert table.columns[:6] == ("Assumption", "loss", "cfd", "lira", "cfd-lrt", "glir")
    labels = next(row for row in table.rows if row[0].text == "true labels of the candidates")
    assert (labels[5].text, labels[5].details) == ("yes", ("paper: no",))


def test_another_need_is_noticed():
    changed = [
        row | {"here": not row["here"]} if (row["attack"], row["assumption"]) == ("loss", "query") else row
        for row in ROWS
    ]
    assert assumptions.claims(changed)[0].verdict == "contradicted"
