"""Seals: what was fixed before training holds, and a forged result is refused."""

from __future__ import annotations

import json
import os
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
from gmip.report import minisign, write_report
from gmip.report.seal import OPENING, make_seal, read_seal, verified
from tests.unit.report import sample

LATER = "2100-01-01T00:00:00+00:00"


@pytest.fixture(scope="module")
def audited() -> AuditResult:
    rng = np.random.default_rng(0)
    scores = {"members": rng.normal(2.0, 1.0, 60), "non_members": rng.normal(0.0, 1.0, 60)}
    found = audit(Scores(scores["members"], scores["non_members"]))
    return found.model_copy(update={"created": LATER})  # the seals of the tests are made before it


@pytest.fixture
def folder(tmp_path: Path, audited: AuditResult) -> Path:
    """A report, the coins of its candidates, and the seal on them."""
    written = write_report(audited, tmp_path / "audit")
    rows = [line.split(",")[:2] for line in written.csv[0].read_text().splitlines()]
    (tmp_path / "coins.csv").write_text("\n".join(",".join(row) for row in rows) + "\n")
    make_seal([tmp_path / "coins.csv"], tmp_path / "seal")
    return tmp_path


def verify(folder: Path, *more: str, seal: str = "seal") -> int:
    path = str(folder / seal / "seal.json")
    return main(["verify", str(folder / "audit"), "--seal", path, "--files", str(folder), *more])


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


def sealed_at(folder: Path, created: str) -> None:
    path = folder / "seal" / "seal.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"created": created}))


@pytest.mark.parametrize(("created", "code"), [("2100-01-01T00:00:00Z", 0), ("2100-01-01T03:00:01+03:00", 1)])
def test_a_seal_younger_than_the_result_is_refused(
    folder: Path, created: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed_at(folder, created)
    assert verify(folder) == code
    said = capsys.readouterr().out
    assert said.startswith("Refused: by its own time the seal is too young") == bool(code)
    assert ("NO By the times in the files, the seal was made after the result" in said.replace("  ", " ")) == bool(code)


def test_a_seal_without_a_time_shows_no_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sealed_at(folder, "before, I promise")
    assert verify(folder) == 0
    said = capsys.readouterr().out
    assert said.startswith("Nothing contradicts the seal, but not everything") and "shows that the seal was" in said


def test_a_seal_younger_than_the_training_is_refused(tmp_path: Path) -> None:
    (run,) = sample.consistent().runs
    make_seal([], tmp_path)
    seal, opening = read_seal(tmp_path / "seal.json")
    (tmp_path / "run").mkdir()
    told = sample.result(run.model_copy(update={"path": str(tmp_path / "run"), "source": "recorded"}))
    told = told.model_copy(update={"created": LATER})

    def status(trace: str) -> list[tuple[str, str]]:
        (tmp_path / "run" / "trace.json").write_text(trace)
        found = verified(told, tmp_path, seal, opening, tmp_path)
        return [(one.status, one.subject) for one in found if one.check == "time"]

    assert status(json.dumps({"created": "2020-01-01T00:00:00+00:00"})) == [("failed", f"the training of {run.name}")]
    assert status(json.dumps({"created": LATER})) == [] == status("{}") == status("no JSON")


def test_a_seal_on_the_result_itself_is_younger_and_says_no_more(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_seal([folder / "audit" / "result.json"], folder / "after")
    path = folder / "after" / "seal.json"
    path.write_text(path.read_text().replace(json.loads(path.read_text())["created"], "2100-01-02T00:00:00Z"))
    check = ["verify", str(folder / "audit"), "--seal", str(path), "--files", str(folder / "audit")]
    assert main(check) == 0
    said = capsys.readouterr().out
    assert "Nothing here shows that the seal was made before the result." in said
    assert main([*check[:1], str(folder / "audit" / "result.json"), *check[2:]]) == 0


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


# -- with a key -------------------------------------------------------------------------------------------------------


@pytest.fixture
def signed(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[Path, str]:
    """The folder with a signed seal in `by`, and the public key."""
    pytest.importorskip("cryptography")
    key, coins = str(folder / "gmip.key"), str(folder / "coins.csv")
    assert main(["seal", coins, "--key", key, "--out", str(folder / "by")]) == 0
    public = minisign.secret_key(Path(key)).public
    assert public in capsys.readouterr().out
    return folder, public


def test_a_signed_seal_is_checked_against_the_key(signed: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder, public = signed
    assert verify(folder, "--key", public, seal="by") == 0
    assert f"signed by {public}" in capsys.readouterr().out
    assert verify(folder, seal="by") == 0  # nobody says by whom it must be
    assert "pass --key to check by whom" in capsys.readouterr().out


def test_a_forged_seal_is_refused(signed: tuple[Path, str]) -> None:
    """Somebody seals other coins later, with an opening that fits, and keeps the signature or leaves it out."""
    folder, public = signed
    make_seal([folder / "coins.csv"], folder / "later")
    for name in ("seal.json", OPENING):
        (folder / "by" / name).write_bytes((folder / "later" / name).read_bytes())
    assert verify(folder, seal="by") == 0
    assert verify(folder, "--key", public, seal="by") == 1
    assert verify(folder, "--key", public, seal="later") == 1


def test_a_seal_by_another_key_is_refused(signed: tuple[Path, str]) -> None:
    folder, public = signed
    make_seal([folder / "coins.csv"], folder / "other", minisign.fresh_key(folder / "other.key"))
    assert verify(folder, "--key", public, seal="other") == 1
    other = minisign.secret_key(folder / "other.key")
    renamed = minisign.SecretKey(minisign.secret_key(folder / "gmip.key").id, other.seed)  # with the id of the first
    text = minisign.signature((folder / "other/seal.json").read_bytes(), renamed, "seal.json")
    (folder / "other/seal.json.minisig").write_text(text)
    assert verify(folder, "--key", public, seal="other") == 1


def test_a_changed_result_is_refused_if_it_was_sealed(signed: tuple[Path, str]) -> None:
    """Even one that follows from its own scores: the auditor sealed what the audit wrote."""
    folder, public = signed
    written = sorted((folder / "audit").glob("*.json")) + sorted((folder / "audit").glob("*.csv"))
    code = main(["seal", *map(str, written), "--key", str(folder / "gmip.key"), "--out", str(folder / "after")])
    check = ["verify", str(folder / "audit"), "--seal", str(folder / "after/seal.json"), "--key", public]
    check += ["--files", str(folder / "audit")]
    assert (code, main(check)) == (0, 0)
    forged(folder, lambda run: run.update(name="another"))
    assert main(check) == 1


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_every_line_of_a_signature_but_the_first_counts(signed: tuple[Path, str], line: int) -> None:
    folder, public = signed
    path = folder / "by/seal.json.minisig"
    lines = path.read_text().splitlines()
    lines[line] = lines[line][:-6] + ("AAAA" if lines[line][-6:-2] != "AAAA" else "BBBB") + lines[line][-2:]
    path.write_text("\n".join(lines))
    assert verify(folder, "--key", public, seal="by") == (line > 0)


# Made by minisign 0.11 (-G -W, -S and -S -l) for this content.
CONTENT = b"gmip\n"
PUBLIC = "RWTIE9I1NLRNAF81J4ocXNuDcth/oGomF/1YeR4+Bn8SQnrbjFKcmqtk"
SECRET = """untrusted comment: minisign encrypted secret key
RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAyBPSNTS0TQCy+8idUl84iFe48sAHJxbAWImD3EIK667u\
Bhm4mS5ZRV81J4ocXNuDcth/oGomF/1YeR4+Bn8SQnrbjFKcmqtkAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
"""
HASHED = """untrusted comment: signature from minisign secret key
RUTIE9I1NLRNALqiWQdb1g6h5Pz2bkia+xK/0v/Fy+mX5SeEzKdHj74BsbHnxceIqvbfPsf8DYgC7l2cCfOiFH3B9Ehyiqk7Ggs=
trusted comment: timestamp:1795053160\tfile:f\thashed
WPdiADVvtAJmfwKnsEHVMrFstd5oiaVbuut9QynY0atEc/KhmIjef0Ip1/JbxXO2qpv83N8LZAMIQe0o8FYIAg==
"""
LEGACY = """untrusted comment: signature from minisign secret key
RWTIE9I1NLRNAHwlEYNWDmqWrnVYwGvuCIljnyb/GkscnkUdpc9EC/oWcxxQdfGLgdiAWiNZ0JEVRXHejFaAamNiTkjjYiKSLQ4=
trusted comment: timestamp:1795053160\tfile:f
vYuzUAf+5AiqRh078WyXetC4Z2N6N0cfchZoVTOpsmK/bNWfA2+u3J2nCtTaRKFLw5zj49zgmsD/UInfqHjmAw==
"""


@pytest.mark.parametrize("text", [HASHED, LEGACY])
def test_what_minisign_signed_is_accepted_and_nothing_else(text: str) -> None:
    pytest.importorskip("cryptography")
    assert minisign.signed(CONTENT, text, PUBLIC)
    assert not minisign.signed(CONTENT + b" ", text, PUBLIC)


def test_a_key_of_minisign_signs_as_minisign_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    path = tmp_path / "minisign.key"
    path.write_text(SECRET)
    path.chmod(0o600)
    (tmp_path / "minisign.pub").write_text(f"untrusted comment: a key\n{PUBLIC}\n")
    key = minisign.secret_key(path)
    assert key.public == PUBLIC == minisign.public_key(str(tmp_path / "minisign.pub")) == minisign.public_key(PUBLIC)
    monkeypatch.setattr("time.time", lambda: 1795053160.0)
    assert minisign.signature(CONTENT, key, "f").splitlines()[1:] == HASHED.splitlines()[1:]  # Ed25519 draws nothing
    assert "seed" not in repr(key)


def test_a_new_key_is_for_its_owner_and_other_files_are_none(
    signed: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = signed
    key, seal = folder / "gmip.key", ["seal", str(folder / "coins.csv"), "--out", str(folder / "again"), "--key"]
    if os.name != "nt":
        assert key.stat().st_mode & 0o777 == 0o600
        key.chmod(0o644)
        assert main([*seal, str(key)]) == 2
        key.chmod(0o600)
    for content, said in [
        ("", "no secret key"),
        (SECRET.replace("RWQAAEIy", "RWRTY0Iy"), "has a password"),
        (SECRET.replace("Bhm4", "Bhm5"), "is damaged"),
    ]:
        key.write_text(content)
        assert main([*seal, str(key)]) == 2
        assert said in capsys.readouterr().err
    assert verify(folder, "--key", "RWabc", seal="by") == 2
    assert "no public key" in capsys.readouterr().err


def test_without_the_package_a_key_is_refused_in_a_sentence(
    signed: tuple[Path, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, public = signed
    monkeypatch.setattr("gmip._extras.find_spec", lambda package: None)
    assert verify(folder, "--key", public, seal="by") == 2
    assert "pip install 'gmip[sign]'" in capsys.readouterr().err
    assert main(["seal", str(folder / "coins.csv"), "--key", str(folder / "new.key"), "--out", str(folder / "x")]) == 2
    assert not (folder / "new.key").exists()
