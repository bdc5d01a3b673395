from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gmip.attacks.glir.selfplay import Prediction
from gmip.pipeline.scored import Scored, read_scored, write_scored
from gmip.stats import ScoreSet


def found(count: int = 50) -> Scored:
    rng = np.random.default_rng(0)
    games = rng.normal(size=(20, 600))
    inside = rng.random((20, 600)) < 0.5
    scores = ScoreSet(
        ids=np.arange(100, 100 + count),
        scores=rng.normal(size=count),
        attack="glir",
        p_values=rng.random(count),
        susceptibility=rng.random(count),
        calibration=(1.5, -0.25),
        info={"prediction": Prediction.of(games + inside, inside), "rank": 585, "spectrum": rng.random(3)},
    )
    return Scored.of(scores, 1.25, ["a warning"])


def test_round_trip(tmp_path: Path) -> None:
    path, written = tmp_path / "new" / "a.safetensors", found()
    write_scored(path, written)
    read = read_scored(path)
    assert read is not None
    for name in ("ids", "scores", "p_values", "susceptibility"):
        np.testing.assert_array_equal(getattr(read.scores, name), getattr(written.scores, name))
    assert read.scores.calibration == (1.5, -0.25)
    assert dict(read.scores.info) == {"rank": 585}
    assert (read.seconds, read.warnings, read.scores.attack) == (1.25, ("a warning",), "glir")
    assert read.prediction is not None and written.prediction is not None
    np.testing.assert_array_equal(read.prediction.tpr, written.prediction.tpr)
    assert read.prediction.auc == written.prediction.auc


def test_what_is_optional_stays_out(tmp_path: Path) -> None:
    bare = Scored.of(ScoreSet(ids=["x", "y"], scores=[0.0, 1.0], attack="loss"), 0.0, [])
    assert bare.prediction is None
    numbered = Scored.of(ScoreSet(ids=[3, 1], scores=[0.0, 1.0], attack="loss"), 0.0, [])
    write_scored(tmp_path / "a", numbered)
    read = read_scored(tmp_path / "a")
    assert read is not None
    assert read.scores.p_values is None and read.scores.susceptibility is None and read.scores.calibration is None


def test_a_prediction_is_thinned_from_zero_to_one() -> None:
    prediction = found().prediction
    assert prediction is not None
    assert prediction.fpr.size <= 2100
    assert (prediction.fpr[0], prediction.tpr[0], prediction.fpr[-1], prediction.tpr[-1]) == (0.0, 0.0, 1.0, 1.0)
    assert (np.diff(prediction.fpr) >= 0).all() and (np.diff(prediction.tpr) >= 0).all()


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
