from __future__ import annotations

from typing import Any

from gmip import Gaussian, NoisySGD, account
from gmip.auditing import advise, verdict
from gmip.stats.scores import GUESSED_SEED
from tests.unit.auditing.scored import CONFIDENCE, measured

RUN = NoisySGD(dataset_size=2000, batch_size=200, num_steps=50, num_params=650, clip_norm=1.0, noise_std=0.0)


def advice(run: NoisySGD, kind: str = "consistent", **changes: Any) -> list[str]:
    one = measured(0.5, 200, 1.0, **changes)
    judged = verdict([one], Gaussian(1.0), fpr=0.01, confidence=CONFIDENCE).model_copy(update={"kind": kind})
    return [said.text for said in advise(run, judged, [one], tpr=0.05, fpr=0.01, schedule=False)]


def test_advice_meets_its_target() -> None:
    (noise, *rest) = advice(RUN)
    value = float(noise.partition("noise_std = ")[2].split()[0])
    assert account(RUN.replace(noise_std=value * 1.001)).tpr_at(0.01) <= 0.05
    assert account(RUN.replace(noise_std=value * 0.98)).tpr_at(0.01) > 0.05
    assert all("batches of" in text for text in rest)


def test_advice_where_nothing_is_needed() -> None:
    assert advice(RUN.replace(noise_std=1.0)) == [
        "The run already promises at most 5% of the members at 1% false alarms: that needs no more noise."
    ]


def test_advice_without_clipping() -> None:
    run = NoisySGD(dataset_size=2000, batch_size=200, num_steps=50, num_params=650)
    assert any("Clip the gradient of each record" in text for text in advice(run))


def test_advice_about_exposure_and_seeds() -> None:
    assert any("Do not rely on the promise" in text for text in advice(RUN, "exposed"))
    assert any("seed can be guessed" in text for text in advice(RUN, facts={GUESSED_SEED: 7}))
