"""Steps whose batches are not known: how large the noise is shown to be."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.auditing.sampled_check import SampledStep, judge_sampled
from gmip.auditing.schema import RunCheck
from gmip.report import check_words
from gmip.stats.flat import Flat


def step(entries: int, ratio: float) -> SampledStep:
    """Full of noise that is so many times as large as declared."""
    left = np.random.default_rng(0).normal(size=entries)
    left *= ratio * np.sqrt(entries) / np.linalg.norm(left)
    centre, none = np.eye(1, entries)[0] * 50.0, np.zeros(0)
    moments = {"along": 0.0, "largest": 0.0, "spread": 0.0, "spread_squares": 0.0, "peaks": 0.0}
    vectors = {"published": centre + left, "centre": centre, "mean": centre}
    known = {name: Flat.of(vector) for name, vector in vectors.items()}
    return SampledStep(index=0, noise_std=1.0, size=10, variances=none, left=none, **known, **moments)


@pytest.mark.parametrize(("entries", "ratio", "status"), [(686, 0.954, "unchecked"), (20_000, 0.995, "passed")])
def test_noise_is_as_declared_only_where_nine_tenths_of_it_are_shown(entries: int, ratio: float, status: str) -> None:
    outcomes, reach = judge_sampled([step(entries, ratio)], clip_norm=None, poisson=False)
    size = next(one for one in outcomes if one.check == "noise-size")
    assert size.status == status and size.value == pytest.approx(ratio)
    hidden = [one.up_to for one in reach if one.fault == "noise-size"]
    if status == "passed":
        assert hidden == [pytest.approx(1.0 - ratio + 2.72 / np.sqrt(2 * entries))]
    else:
        assert hidden == [] and RunCheck(outcomes=tuple(outcomes)).noise_unchecked
        assert "0.954 times as large as declared (± 0.027)" in check_words.sentence(size)
        assert "shows at least 0.88 of it" in check_words.sentence(size)


def test_the_most_alike_steps_are_found_a_block_at_a_time() -> None:
    from gmip.auditing.recompute import _most_alike

    rows = np.random.default_rng(0).normal(size=(700, 40)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[650], rows[300] = rows[20], -rows[310]
    assert sorted(_most_alike(rows)) == [(20, 650), (300, 310)]
    assert len(_most_alike(rows[:6])) == 2
