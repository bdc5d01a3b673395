from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gmip.auditing import Scored
from gmip.pipeline.attacking import read_scored, write_scored
from gmip.stats import ExpectedRoc, ScoreSet


def found(count: int = 50) -> Scored:
    rng = np.random.default_rng(0)
    scores = ScoreSet(
        ids=np.arange(100, 100 + count),
        scores=rng.normal(size=count),
        attack="glir",
        p_values=rng.random(count),
        susceptibility=rng.random(count),
        susceptibility_of="run",
        calibration=(1.5, -0.25),
        prediction=ExpectedRoc(fpr=np.linspace(0.0, 1.0, 30), tpr=np.linspace(0.0, 1.0, 30) ** 0.5, auc=0.75),
        facts={"rank": 585, "method": "joint", "online": False},
    )
    return Scored(scores=scores, seconds=1.25, warnings=("a warning",))


def test_round_trip(tmp_path: Path) -> None:
    path, written = tmp_path / "new" / "a.safetensors", found()
    write_scored(path, written)
    read = read_scored(path)
    assert read is not None
    for name in ("ids", "scores", "p_values", "susceptibility"):
        np.testing.assert_array_equal(getattr(read.scores, name), getattr(written.scores, name))
    assert (read.scores.calibration, read.scores.susceptibility_of) == ((1.5, -0.25), "run")
    assert dict(read.scores.facts) == {"rank": 585, "method": "joint", "online": False}
    assert (read.seconds, read.warnings, read.scores.attack) == (1.25, ("a warning",), "glir")
    ours, theirs = read.scores.prediction, written.scores.prediction
    assert ours is not None and theirs is not None
    np.testing.assert_array_equal(ours.tpr, theirs.tpr)
    assert ours.auc == theirs.auc


def test_what_is_optional_stays_out(tmp_path: Path) -> None:
    write_scored(tmp_path / "a", Scored(scores=ScoreSet(ids=[3, 1], scores=[0.0, 1.0], attack="loss")))
    read = read_scored(tmp_path / "a")
    assert read is not None
    one = read.scores
    assert one.p_values is None and one.susceptibility is None and one.calibration is None and one.prediction is None


def test_files_of_an_older_version_are_computed_again(tmp_path: Path) -> None:
    write_scored(tmp_path / "a", found())
    content = (tmp_path / "a").read_bytes()
    assert b"gmip-scores-2" in content
    (tmp_path / "a").write_bytes(content.replace(b"gmip-scores-2", b"gmip-scores-1"))
    assert read_scored(tmp_path / "a") is None


@pytest.mark.parametrize("cut", [0, 1, 7, 100, 400, -1])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.safetensors"
    write_scored(path, found())
    content = bytearray(path.read_bytes())
    path.write_bytes(bytes(content[:cut]))
    assert read_scored(path) is None
    content[-20] ^= 1
    path.write_bytes(bytes(content))
    assert read_scored(path) is None
    assert read_scored(tmp_path / "nowhere") is None
