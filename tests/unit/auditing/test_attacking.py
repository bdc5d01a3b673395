from __future__ import annotations

from pathlib import Path

import numpy as np

from gmip.auditing.attack_runs import scored_entry, scored_of
from gmip.auditing.judge import AttackScores
from gmip.stats import ExpectedRoc, ScoreSet
from gmip.store import Store


def found(count: int = 50) -> AttackScores:
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
    return AttackScores(scores=scores, seconds=1.25, warnings=("a warning",))


def kept(folder: Path, scored: AttackScores) -> AttackScores:
    Store(folder, "scores").put("a", *scored_entry(scored))
    entry = Store(folder, "scores").get("a")
    assert entry is not None
    return scored_of(entry)


def test_round_trip(tmp_path: Path) -> None:
    written = found()
    read = kept(tmp_path, written)
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
    one = kept(tmp_path, AttackScores(scores=ScoreSet(ids=[3, 1], scores=[0.0, 1.0], attack="loss"))).scores
    assert one.p_values is None and one.susceptibility is None and one.calibration is None and one.prediction is None
