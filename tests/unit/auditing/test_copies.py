"""Copies of records: non-members that are members, and records that are repeated."""

from __future__ import annotations

import numpy as np
import pytest

import gmip
from gmip.auditing.schema import RunAudit
from gmip.report import answer_words, sentences
from gmip.stats.scores import shared_scores

INSIDE = np.arange(400) < 200


def judged(members: np.ndarray, others: np.ndarray, **settings: object) -> RunAudit:
    return gmip.audit(gmip.Scores(members, others), target=(0.05, 0.01), gate=True, **settings).runs[0]


def test_the_same_scores_on_both_sides_pass_no_gate() -> None:
    scores = np.random.default_rng(0).normal(size=300)
    run = judged(scores, scores)
    assert run.suspicion is not None and run.suspicion.kind == "copies" and run.suspicion.copied == 1.0
    assert run.gate is not None and run.gate.doubted and not run.gate.passed
    assert "some records seem to be both members and non-members" in answer_words.suspicion(run, run.suspicion)


def test_one_tenth_of_copies_is_seen_despite_rounding() -> None:
    rng = np.random.default_rng(1)
    ours = rng.normal(size=300) + 0.5
    theirs = np.r_[ours[:30] * (1.0 + 1.0e-9), rng.normal(size=270)]
    run = judged(ours, theirs)
    assert run.suspicion is not None and run.suspicion.copied == pytest.approx(0.1, abs=0.03)


def test_an_outlier_does_not_make_all_others_equal() -> None:
    scores = np.random.default_rng(4).normal(size=400)
    found = shared_scores(np.append(scores[:-1], 1.0e308)[None], INSIDE)
    assert found.repeated < 20 and not found.copies and not found.repeats


def predictions(rng: np.random.Generator, copies: int, apart: float, leak: float) -> gmip.Predictions:
    """400 members and 400 others, some of whom are members whose logits are this much apart."""
    labels, inside = rng.integers(0, 10, 800), np.arange(800) < 400
    logits = rng.normal(size=(800, 10))
    logits[np.arange(800), labels] += 2.0 + leak * inside
    logits[400 : 400 + copies] = logits[:copies] + rng.normal(scale=apart, size=(copies, 10))
    labels[400 : 400 + copies] = labels[:copies]
    return gmip.Predictions(inside, labels=labels, logits=logits)


@pytest.mark.parametrize(("copies", "apart"), [(400, 0.01), (80, 0.01), (80, 0.001)])
def test_near_copies_pass_no_gate(copies: int, apart: float) -> None:
    """They hide a leak of an AUC of .97, as a record does that was measured twice."""
    rng = np.random.default_rng(6)
    run = gmip.audit(predictions(rng, copies, apart, 3.0), target=(0.05, 0.01), gate=True).runs[0]
    assert run.suspicion is not None and run.suspicion.kind == "copies" and run.suspicion.blinding
    assert run.gate is not None and not run.gate.passed


@pytest.mark.parametrize("leak", [0.0, 1.0, 3.0])
def test_neighbours_by_chance_are_no_copies(leak: float) -> None:
    rng, inside = np.random.default_rng(7), np.arange(800) < 400
    for _ in range(100):
        scores = rng.normal(size=(3, 800)) + leak * inside
        assert not shared_scores(scores, inside).copies and not shared_scores(scores[:1], inside).copies


RNG = np.random.default_rng(5)
SOME = RNG.normal(size=200)


@pytest.mark.parametrize(
    ("members", "others"),
    [
        (SOME, np.repeat(SOME, 2)),
        (np.repeat(SOME, 2), SOME),
        (np.repeat(SOME, 2), np.repeat(SOME, 2)),
        (np.append(SOME, 1.0e8), SOME),
        (SOME, SOME + 1.0e-4 * RNG.normal(size=200)),
        (np.stack([SOME, RNG.normal(size=200)]), np.stack([SOME, RNG.normal(size=200)])),
    ],
    ids=[
        "twice outside",
        "twice inside",
        "twice in both",
        "an outlier",
        "not quite equal",
        "beside an attack that draws",
    ],
)
def test_copies_in_disguise_are_seen(members: np.ndarray, others: np.ndarray) -> None:
    parts = [np.atleast_2d(part) for part in (members, others)]
    scores = np.concatenate(parts, axis=1)
    assert shared_scores(scores, np.arange(scores.shape[1]) < parts[0].shape[1]).copies


def test_repeats_that_are_not_quite_equal_are_seen() -> None:
    scores = np.repeat(RNG.normal(size=40), 10) + 1.0e-5 * RNG.normal(size=400)
    found = shared_scores(scores[None], INSIDE)
    assert found.repeats and found.first.sum() <= 44


def test_repeated_records_are_judged_once() -> None:
    accused = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        run = judged(np.repeat(rng.normal(size=30), 20), np.repeat(rng.normal(size=30), 20))
        assert run.repeated >= 2 * 30 * 19 and min(run.attacks[0].members, run.attacks[0].non_members) >= 28
        accused += run.attacks[0].mu_lower > 0.0
    assert accused <= 4  # 5% of 20 is 1; 14 without
    assert any("Each distinct record was judged once" in said for said in sentences.cautions(run))


@pytest.mark.parametrize(
    "coarse",
    [
        lambda rng: np.round(rng.normal(size=400), 2),
        lambda rng: np.round(rng.normal(size=400) + 2.0 * INSIDE, 1),
        lambda rng: np.minimum(rng.normal(size=400) + INSIDE, 0.5),
        lambda rng: rng.integers(0, 2, 400).astype(float),
        lambda rng: rng.binomial(100, 0.5, 400) / 100 + 0.05 * INSIDE,
        lambda rng: np.round(rng.standard_cauchy(400) + 4.0 * INSIDE, 1),
        lambda rng: np.zeros(400),
    ],
    ids=["rounded", "rounded, leaking", "saturated", "one bit", "grid, leaking", "heavy tails", "all equal"],
)
def test_coarse_scores_are_no_copies(coarse) -> None:
    for seed in range(30):
        found = shared_scores(coarse(np.random.default_rng(seed))[None], INSIDE)
        assert not found.copies and not found.repeats


def test_a_weak_attack_opens_no_gate_that_a_turned_one_closes() -> None:
    rng = np.random.default_rng(2)
    weak = rng.normal(size=600) + 0.35 * (np.arange(600) < 300)
    turned = rng.normal(size=600) - 1.5 * (np.arange(600) < 300)
    both = [{"weak": weak[part], "turned": turned[part]} for part in (slice(300), slice(300, None))]
    run = gmip.audit(gmip.Scores(*both), target=(0.5, 0.01), gate=True).runs[0]
    assert max(one.mu_lower for one in run.attacks) > 0.0
    assert run.suspicion is not None and run.suspicion.kind == "turned"
    assert run.gate is not None and not run.gate.passed


def test_a_strong_attack_outweighs_one_that_is_turned_a_little() -> None:
    rng = np.random.default_rng(3)
    strong = rng.normal(size=600) + 1.5 * (np.arange(600) < 300)
    turned = rng.normal(size=600) - 0.4 * (np.arange(600) < 300)
    both = [{"strong": strong[part], "turned": turned[part]} for part in (slice(300), slice(300, None))]
    assert gmip.audit(gmip.Scores(*both)).runs[0].suspicion is None


def test_the_largest_scores_that_there_are_do_not_overflow() -> None:
    limit = np.finfo(np.float64).max
    scores = np.array([[-limit, 0.0, 1.0, limit]])
    found = shared_scores(scores, np.array([True, False, True, False]))
    assert not found.copies and not found.repeats
