"""Scores from predictions, against formulas written out for one record at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gmip.attacks.arrays import Answers, Moments, ReferenceAnswers, likelihood_ratios, read_answers
from gmip.auditing.prediction_table import signals
from gmip.errors import InvalidArgument
from gmip.stats.scores import auc


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(scale=2.0, size=(40, 4)), rng.integers(0, 4, 40)


def softmax(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def found(model: Answers, references=(), attacks=None) -> dict[str, np.ndarray]:
    return {one.name: one.scores for one in signals(model, references, attacks)[0]}


def test_scores_of_one_model(drawn):
    logits, labels = drawn
    p = softmax(logits)
    for answers in (read_answers("logits", logits, labels), read_answers("probabilities", p, labels)):
        scores = found(answers)
        assert set(scores) == {"loss", "margin", "entropy", "confidence"}
        for i, y in enumerate(labels):
            others = [p[i, j] for j in range(4) if j != y]
            assert scores["loss"][i] == pytest.approx(math.log(p[i, y] / sum(others)))
            assert scores["margin"][i] == pytest.approx(math.log(p[i, y] / max(others)))
            mentr = -(1 - p[i, y]) * math.log(p[i, y]) - sum(q * math.log(1 - q) for q in others)
            assert scores["entropy"][i] == pytest.approx(-mentr)
            assert scores["confidence"][i] == pytest.approx(math.log(p[i].max() / (1 - p[i].max())))


def test_without_labels(drawn):
    scores = found(read_answers("logits", drawn[0], None))
    p = softmax(drawn[0])
    np.testing.assert_allclose(scores["entropy"], (p * np.log(p)).sum(axis=1))
    assert set(scores) == {"entropy", "confidence"}


def test_what_two_classes_leave(drawn):
    assert set(found(read_answers("logits", drawn[0][:, :2], drawn[1] % 2))) == {"loss", "confidence"}


def test_losses_and_probabilities_of_the_label_agree(drawn):
    logits, labels = drawn
    p = softmax(logits)[np.arange(40), labels]
    want = found(read_answers("logits", logits, labels))["loss"]
    np.testing.assert_allclose(found(read_answers("losses", -np.log(p), None))["loss"], want)
    np.testing.assert_allclose(found(read_answers("label probabilities", p, None))["loss"], want)
    densities = read_answers("losses", np.array([-3.0, 2.0]), None)
    np.testing.assert_array_equal(found(densities)["loss"], [3.0, -2.0])


def test_certain_models_have_finite_scores():
    p = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0 - 1e-17, 1e-20, 0.0]])
    answers = read_answers("probabilities", p, np.array([0, 0, 0]))
    for name, scores in found(answers, [ReferenceAnswers(answers), ReferenceAnswers(answers)]).items():
        assert np.isfinite(scores).all(), name
    assert found(answers)["loss"][0] > found(answers)["loss"][2] > found(answers)["loss"][1]


def test_lira_on_shares_of_votes():
    """Forests answer 0 and 1 often, where log(p/(1 - p)) is infinite. The optimum knows the chance of each vote."""
    rng = np.random.default_rng(0)
    size, votes, models = 1500, 30, 16
    out = rng.uniform(0.6, 0.99, size)
    chance = np.stack([out, out + 0.5 * (1.0 - out)])  # of a vote for the true label, without and with the record
    inside = np.array([rng.permutation(size) % 2 == 0 for _ in range(1 + models)])
    shares = np.array([rng.binomial(votes, chance[who.astype(int), np.arange(size)]) / votes for who in inside])
    assert np.mean(shares == 1.0) > 0.1
    answers = [read_answers("probabilities", np.column_stack([1.0 - p, p]), np.ones(size, dtype=int)) for p in shares]
    lira = found(answers[0], [ReferenceAnswers(a, who) for a, who in zip(answers[1:], inside[1:], strict=True)])["lira"]
    with np.errstate(divide="ignore"):
        best = votes * (
            shares[0] * np.log(chance[1] / chance[0]) + (1 - shares[0]) * np.log((1 - chance[1]) / (1 - chance[0]))
        )
    areas = [auc(scores[inside[0]], scores[~inside[0]]) for scores in (lira, best)]
    assert areas[1] - 0.03 < areas[0] < areas[1] + 0.01


def references(rng: np.random.Generator, size: int, models: int) -> tuple[np.ndarray, np.ndarray]:
    inside = np.array([rng.permutation(size) % 2 == i % 2 for i in range(models)])
    inside[1::2] = ~inside[::2]
    return rng.gamma(1.0, 1.0, (models, size)), inside


def phi_of(loss: np.ndarray) -> np.ndarray:
    return np.log(np.exp(-loss) / (1.0 - np.exp(-loss)))


@pytest.mark.parametrize("online", [True, False])
def test_lira_and_rmia_record_by_record(online):
    rng = np.random.default_rng(1)
    losses, inside = references(rng, 12, 6)
    own = rng.gamma(1.0, 1.0, 12)
    models = [
        ReferenceAnswers(read_answers("losses", row, None), was if online else None)
        for row, was in zip(losses, inside, strict=True)
    ]
    scores = found(read_answers("losses", own, None), models)
    assert set(scores) == {"combined" if online else "base", "lira", "rmia", "loss"}
    parts = {}
    for side in (True, False):
        chosen = inside == side if online else np.full_like(inside, not side)
        values = [phi_of(losses[:, i][chosen[:, i]]) for i in range(12)]
        if not len(values[0]):
            continue
        scatter = np.array([((v - v.mean()) ** 2).sum() for v in values])
        counts = np.array([len(v) for v in values])
        pooled = scatter.sum() / (counts - 1).sum()
        spread = (scatter + 4.0 * pooled) / (counts - 1 + 4.0) * (1 + 1 / counts)
        parts[side] = np.array([v.mean() for v in values]), spread
    if online:
        groups = Moments((12, 1)), Moments((12, 1))
        for row, was in zip(losses, inside, strict=True):
            for group, rows in zip(groups, (was, ~was), strict=True):
                group.add(phi_of(row)[:, None], rows)
        want = likelihood_ratios(phi_of(own)[:, None], groups[0], groups[1])
    else:
        want = (phi_of(own) - parts[False][0]) / np.sqrt(parts[False][1])
    np.testing.assert_allclose(scores["lira"], want)
    p = np.exp(-losses)
    if online:
        usual = [0.5 * (p[inside[:, i], i].mean() + p[~inside[:, i], i].mean()) for i in range(12)]
    else:
        usual = [0.5 * ((1 + 0.3) * p[:, i].mean() + 1 - 0.3) for i in range(12)]
    np.testing.assert_allclose(scores["rmia"], np.log(np.exp(-own) / np.array(usual)))


def test_one_reference_is_enough_for_rmia_alone():
    rng = np.random.default_rng(2)
    loss = read_answers("losses", rng.gamma(1.0, 1.0, 9), None)
    assert set(found(loss, [ReferenceAnswers(loss)])) == {"rmia", "base", "loss"}


def test_what_cannot_be_used(drawn):
    logits, labels = drawn
    with pytest.raises(InvalidArgument, match="sum to"):
        read_answers("probabilities", np.full((3, 2), 0.2), None)
    with pytest.raises(InvalidArgument, match="probability -1"):
        read_answers("probabilities", np.array([[2.0, -1.0]])[:, ::-1], None)
    model = read_answers("logits", logits, labels)
    found, left_out = signals(model, attacks=["lira", "loss"])
    assert [one.name for one in found] == ["loss"] and [one.attack for one in left_out] == ["lira"]
    with pytest.raises(InvalidArgument, match="'lira', and the predictions do not allow it"):
        signals(model, attacks=["lira"])
    with pytest.raises(InvalidArgument, match="attacks"):
        signals(model, attacks=["lir"])
    with pytest.raises(InvalidArgument, match="every reference model"):
        signals(model, [ReferenceAnswers(model, np.ones(40, dtype=bool))])
    with pytest.raises(InvalidArgument, match="true labels"):
        signals(read_answers("logits", logits, None), [ReferenceAnswers(model)])


def simulated(
    seed: int, models: int, shift: float, records: int = 1200
) -> tuple[Answers, list[ReferenceAnswers], np.ndarray]:
    """A model and references, each record in exactly half of these; being in moves a record's confidence by its own
    shift."""
    rng = np.random.default_rng(seed)
    level, moves = rng.normal(1.0, 2.0, records), shift * rng.exponential(1.0, records)
    half = [rng.permutation(records) < records // 2 for _ in range(models // 2 + 1)]
    inside = [half[0], *(side for one in half[1:] for side in (one, ~one))]
    answers = []
    for one in inside:
        phi = level + moves * one + rng.normal(0.0, 1.0, records)
        answers.append(read_answers("logits", np.stack([phi, np.zeros(records)], axis=1), np.zeros(records, np.intp)))
    return answers[0], [ReferenceAnswers(*pair) for pair in zip(answers[1:], inside[1:], strict=True)], inside[0]


def softened(p: np.ndarray) -> np.ndarray:
    """log p of the first of two classes at temperature 2."""
    return np.log(np.sqrt(p) / (np.sqrt(p) + np.sqrt(1 - p)))


def test_base_is_written_out():
    """Online the mean is of all references; offline it counts as much as the references tell about the model."""
    model, _, _ = simulated(0, 2, 4.0, records=60)
    _, references, _ = simulated(0, 2, 0.0, records=60)
    own, one, two = (np.exp(answers.log_p) for answers in (model, *(each.answers for each in references)))
    usual = np.log((np.exp(softened(one)) + np.exp(softened(two))) / 2)
    np.testing.assert_allclose(found(model, references)["base"], softened(own) - usual)
    outside = [ReferenceAnswers(each.answers) for each in references]
    weight = (np.cov(own, one)[0, 1] + np.cov(own, two)[0, 1]) / 2 / np.cov(one, two)[0, 1]
    assert 0.1 < weight < 1.0
    np.testing.assert_allclose(found(model, outside)["base"], softened(own) - weight * usual)
    told = read_answers("label probabilities", own, None)  # nothing but the probability of the label: two classes
    others = [ReferenceAnswers(read_answers("label probabilities", each, None)) for each in (one, two)]
    np.testing.assert_allclose(found(told, others)["base"], softened(own) - weight * usual)
    alone = found(told, others[:1])["base"]  # one reference cannot tell how alike references are
    np.testing.assert_allclose(alone, softened(own) - np.cov(own, one)[0, 1] / one.var(ddof=1) * softened(one))


@pytest.mark.parametrize("models", [4, 6, 16])
def test_the_combination_is_at_least_as_strong(models):
    """Every record is in half of the models: how many are left would tell who was in the missing one, and a
    combination that learns this finds nobody (AUC .5)."""
    model, references, inside = simulated(1, models, 1.0)
    areas = {name: auc(one[inside], one[~inside]) for name, one in found(model, references).items()}
    # With few models it does without LiRA's variances, though here LiRA's law is the true one.
    assert areas["combined"] >= max(areas["lira"], areas["rmia"]) - (0.01 if models > 6 else 0.025) > 0.6


@pytest.mark.parametrize(
    ("models", "offline", "attack"), [(4, False, "combined"), (8, False, "combined"), (2, True, "base")]
)
def test_nobody_is_found_where_nothing_leaks(models, offline, attack):
    """The attacked model was not trained on any of the records, and the references leak as before."""
    areas, high = [], []
    for seed in range(20):
        _, references, inside = simulated(seed, models, 1.0)
        model, _, _ = simulated(seed, models, 0.0)
        scores = found(model, [one._replace(inside=None) if offline else one for one in references])[attack]
        areas.append(auc(scores[inside], scores[~inside]))
        high.append((scores[inside] > np.quantile(scores[~inside], 0.9)).mean())
    for values, usual in ((areas, 0.5), (high, 0.1)):
        assert abs(np.mean(values) - usual) < 3 * np.std(values) / np.sqrt(20)


def test_too_few_models_are_not_combined():
    model, references, _ = simulated(0, 2, 1.0)
    assert set(found(model, references)) == {"base", "rmia", "loss", "confidence"}
