"""Seals: what was fixed before training holds, and a forged result is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gmip.accounting.account import account
from gmip.auditing.audit import audit
from gmip.auditing.curves import claimed_curve
from gmip.auditing.schema import AuditResult, Conclusion
from gmip.auditing.sources.table_sources import Scores
from gmip.cli import main
from gmip.errors import InvalidArgument
from gmip.report import write_report
from gmip.report.seal import OPENING, make_seal, read_seal, verified
from tests.unit.report import sample


@pytest.fixture(scope="module")
def audited() -> AuditResult:
    rng = np.random.default_rng(0)
    scores = {"members": rng.normal(2.0, 1.0, 60), "non_members": rng.normal(0.0, 1.0, 60)}
    return audit(Scores(scores["members"], scores["non_members"]))


@pytest.fixture
def folder(tmp_path: Path, audited: AuditResult) -> Path:
    """A report, the coins of its candidates, and the seal on them."""
    written = write_report(audited, tmp_path / "audit")
    rows = [line.split(",")[:2] for line in written.csv[0].read_text().splitlines()]
    (tmp_path / "coins.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    make_seal([tmp_path / "coins.csv"], tmp_path / "seal")
    return tmp_path


def verify(folder: Path) -> int:
    return main(["verify", str(folder / "audit"), "--seal", str(folder / "seal/seal.json"), "--files", str(folder)])


def forged(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the result, and its checksum with it, as somebody with gmip at hand can."""
    from gmip.report.write import _checksum, parsed_result

    path = folder / "audit" / "result.json"
    content = json.loads(path.read_text())
    content.pop("checksum")
    change(content["runs"][0])
    path.write_text(json.dumps(content | {"checksum": _checksum(content)}))
    parsed_result(path.read_bytes(), path)


def test_an_honest_result_is_not_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(folder) == 0
    said = capsys.readouterr().out
    assert "members and non-members are the sealed ones" in said and "follow from the scores" in said
    assert "only its publication" in said and "Not shown" in said and "NO " not in said


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run["attacks"][0]["auc"].update(value=0.5),
        lambda run: run["attacks"][0].update(mu_lower=0.0),
        lambda run: run["attacks"][0].update(members=59),
        lambda run: run.update(conclusion=Conclusion(kind="passes", why="below").model_dump()),
        lambda run: run.update(conclusion=Conclusion(kind="passes", why="below").model_dump(), answers=[]),
    ],
)
def test_a_forged_result_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], capsys: pytest.CaptureFixture[str]
) -> None:
    forged(folder, change)
    assert verify(folder) == 1
    assert capsys.readouterr().out.startswith("Refused")


def test_other_coins_or_another_opening_are_refused(folder: Path) -> None:
    coins, opening = folder / "coins.csv", folder / "seal" / OPENING
    kept = coins.read_text(), opening.read_text()
    coins.write_text(kept[0].replace("True", "False", 1))
    assert verify(folder) == 1
    make_seal([coins], folder / "later")  # the coins that somebody wishes to have had
    opening.write_text((folder / "later" / OPENING).read_text())
    assert verify(folder) == 1
    coins.write_text(kept[0])
    opening.write_text(kept[1])
    assert verify(folder) == 0


def test_members_that_were_not_sealed_are_refused(folder: Path) -> None:
    coins = folder / "coins.csv"
    coins.write_text(coins.read_text().replace("True", "False", 1))
    make_seal([coins], folder / "other")
    code = main(["verify", str(folder / "audit"), "--seal", str(folder / "other/seal.json"), "--files", str(folder)])
    assert code == 1


def test_the_account_is_repeated(tmp_path: Path) -> None:
    declared = sample.DECLARED.replace(noise_std=0.01)
    claim = claimed_curve("claimed", account([declared]), standing="approximation", fprs=(0.01,))
    (run,) = sample.consistent().runs
    make_seal([], tmp_path)
    seal = read_seal(tmp_path / "seal.json")

    def status(noise_std: float) -> list[str]:
        told = run.model_copy(update={"claims": (claim,), "declared": (declared.replace(noise_std=noise_std),)})
        found = verified(sample.result(told), tmp_path, *seal, tmp_path)
        return [one.status for one in found if one.check == "accounting"]

    assert status(0.01) == ["passed"]
    assert status(0.005) == ["failed"]  # the noise that was really declared does not give this claim


def test_the_hash_alone_does_not_tell_the_coins(tmp_path: Path) -> None:
    (tmp_path / "coins.csv").write_text("id,member\n0,1\n")
    first, second = (json.loads(make_seal([tmp_path / "coins.csv"], tmp_path / name)[0].read_text()) for name in "ab")
    assert first["commitment"] != second["commitment"]
    assert set(first) == {"format", "version", "created", "commitment"}


def test_a_seal_is_not_replaced(tmp_path: Path) -> None:
    make_seal([], tmp_path)
    with pytest.raises(InvalidArgument, match="there already"):
        make_seal([], tmp_path)


def test_what_is_no_seal_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "seal" / "seal.json").write_text("{}")
    assert verify(folder) == 2
    assert "is no Seal" in capsys.readouterr().err
