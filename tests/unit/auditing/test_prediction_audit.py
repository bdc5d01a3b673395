"""`gmip.Predictions`."""

from __future__ import annotations

import numpy as np
import pytest

import gmip
from gmip.errors import InvalidArgument
from gmip.stats.scores import auc


@pytest.fixture(scope="module")
def game() -> dict[str, np.ndarray]:
    """Logits of a model that knows its members by heart, and of 6 models like it; some records are harder."""
    rng = np.random.default_rng(0)
    size, models = 400, 6
    labels = rng.integers(0, 3, size)
    hard = rng.normal(scale=2.0, size=size)
    inside = np.array([rng.permutation(size) % 2 == 0 for _ in range(models + 1)])
    inside[2::2] = ~inside[1::2]
    logits = rng.normal(scale=0.3, size=(models + 1, size, 3))
    logits[:, np.arange(size), labels] += hard + 1.5 * inside
    return {"member": inside[0], "labels": labels, "logits": logits, "inside": inside[1:]}


def test_reference_models_help(game):
    result = gmip.audit(
        gmip.Predictions(
            game["member"],
            labels=game["labels"],
            logits=game["logits"][0],
            references=game["logits"][1:],
            references_members=game["inside"],
        ),
        claim=0.5,
    )
    (run,) = result.runs
    auc = {one.attack: one.auc.value for one in run.attacks}
    assert set(auc) == {"combined", "lira", "rmia", "loss", "margin", "entropy", "confidence"}
    assert auc["lira"] > 0.9 and auc["rmia"] > 0.8 and auc["loss"] < 0.75
    assert run.verdict.kind == "exposed" and run.name == "predictions" and run.grouped_by == "class"
    assert "shadow models" in run.attacks[0].needs
    assert result.threat_model == "predictions"


def test_forms_agree(game):
    member, labels, logits = game["member"], game["labels"], game["logits"][0]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = p[np.arange(len(p)), labels]
    table = {"member": member, "label": labels} | {f"p_{k}": p[:, k] for k in range(3)}
    given = [
        gmip.audit(gmip.Predictions(member, labels=labels, logits=logits, attacks=["loss"])),
        gmip.audit(gmip.Predictions(member, labels=labels, probabilities=p, attacks=["loss"])),
        gmip.audit(gmip.Predictions(member, losses=-np.log(own))),
        gmip.audit(gmip.Predictions(table, attacks=["loss"])),
        gmip.audit(gmip.Scores(own[member], own[~member])),
    ]
    assert len({round(one.runs[0].attacks[0].auc.value, 9) for one in given}) == 1
    assert len({one.runs[0].attacks[0].tpr_at["0.1"].value for one in given}) == 1


def test_a_model_that_tells_nothing_is_not_accused():
    rng = np.random.default_rng(5)
    for seed in range(6):
        losses = rng.gamma(1.0, 1.0, (5, 120))
        run = gmip.audit(
            gmip.Predictions(np.arange(120) % 2, losses=losses[0], references=losses[1:]), claim=0.0, seed=seed
        ).runs[0]
        assert run.verdict.kind != "exposed" and run.attacks[0].mu_lower == 0.0


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({}, "must be a table"),
        ({"labels": [0]}, "labels needs one of"),
        ({"labels": [0, 1, 0, 1], "probabilities": [0.5, 0.2, 0.1, 0.4]}, "of two classes np.column_stack"),
        ({"labels": ["b", "a", "b", "a"], "probabilities": np.full((4, 2), 0.5)}, "labels holds names, such as 'b'"),
        ({"losses": [1.0] * 4, "logits": [[1.0]] * 4}, "cannot go together"),
        ({"losses": [1.0] * 3}, r"losses has shape \(3,\)"),
        ({"losses": [1.0, 1.0, 1.0, np.nan]}, "not finite"),
        ({"logits": [[1.0, 0.0]] * 4, "labels": [0, 1, 2, 0]}, "labels has 2"),
        ({"losses": [1.0] * 4, "references": [[1.0] * 3]}, "references has shape"),
        ({"losses": [1.0] * 4, "references_members": [[1] * 4]}, "needs references"),
        ({"losses": [1.0] * 4, "references": [[1.0] * 4], "references_members": [[2] * 4]}, "1 and 0 only"),
        ({"losses": "x"}, "must be numbers"),
    ],
)
def test_refused(keywords, words):
    with pytest.raises(gmip.InvalidArgument, match=words):
        gmip.audit(gmip.Predictions([1, 1, 0, 0], **keywords))


def test_scores_go_elsewhere():
    with pytest.raises(gmip.InvalidArgument, match=r"gmip\.Scores"):
        gmip.audit(gmip.Predictions({"member": [1, 1, 0, 0], "score": [1, 2, 3, 4]}))


def answered(members: np.ndarray, labels: np.ndarray, queries: int, gain: float, seed: int) -> np.ndarray:
    """Classes that a model answers; it is right more often, by `gain`, about those it was trained on."""
    rng = np.random.default_rng(seed)
    right = rng.random((len(labels), queries)) < (0.6 + gain * members)[:, None]
    return np.where(right, labels[:, None], labels[:, None] + rng.integers(1, 4, right.shape))


def test_classes_alone():
    members, labels = np.arange(600) % 2 == 0, np.random.default_rng(0).integers(0, 4, 600)
    many = answered(members, labels, 10, 0.3, 1)
    one, several = (gmip.Predictions(members, labels=labels, classes=some) for some in (many[:, 0], many))
    areas = []
    for source in (one, several):
        (attack,) = source.evidence().attacks
        assert attack.name == "label-only"
        areas.append(auc(attack.first.scores[members], attack.first.scores[~members]))
    assert 0.6 < areas[0] < 0.7 and areas[1] > 0.9  # by (1 + .3)/2, and by ten such
    null = answered(members, labels, 10, 0.0, 2)
    (attack,) = gmip.Predictions(members, labels=labels, classes=null).evidence().attacks
    assert abs(auc(attack.first.scores[members], attack.first.scores[~members]) - 0.5) < 4.0 / np.sqrt(12 * 150)
    assert gmip.audit(several).runs[0].attacks[0].mu_lower > 1.0


def test_classes_of_reference_models():
    members, labels = np.arange(600) % 2 == 0, np.random.default_rng(0).integers(0, 4, 600)
    given = {"labels": labels, "classes": answered(members, labels, 5, 0.3, 1)}
    others = [answered(members & False, labels, 5, 0.0, seed) for seed in (3, 4)]
    found = gmip.Predictions(members, references=others, **given).evidence().attacks
    assert {"lira", "rmia", "base", "label-only"} == {one.name for one in found}
    assert all(auc(one.first.scores[members], one.first.scores[~members]) > 0.7 for one in found)
    with pytest.raises(InvalidArgument, match="Classes alone tell nothing without the true labels"):
        gmip.audit(gmip.Predictions(members, classes=given["classes"]))
    with pytest.raises(InvalidArgument, match="classes has shape"):
        gmip.audit(gmip.Predictions(members, labels=labels, classes=given["classes"][:10]))


def test_quantile_regression_knows_what_is_easy():
    """Half of the records are easy, as their features say; the loss alone takes these for members."""
    rng = np.random.default_rng(0)
    members, easy = np.arange(600) % 2 == 0, rng.random(600) < 0.5
    features = np.column_stack([easy + 0.1 * rng.normal(size=600), rng.normal(size=600)])
    areas = {}
    for gain in (1.0, 0.0):
        losses = np.exp(rng.normal(size=600) * 0.5 - 3.0 * easy - gain * members)
        for one in gmip.Predictions(members, losses=losses, features=features).evidence().attacks:
            areas[one.name, gain] = auc(one.first.scores[members], one.first.scores[~members])
    assert areas["quantile", 1.0] > areas["loss", 1.0] + 0.1
    assert abs(areas["quantile", 0.0] - 0.5) < 4.0 / np.sqrt(12 * 150)
    for wrong, words in [
        ({"features": features[:9]}, "features has shape"),
        ({"attacks": ["quantile"]}, "needs features"),
    ]:
        with pytest.raises(InvalidArgument, match=words):
            gmip.audit(gmip.Predictions(members, losses=losses, **wrong))
    with pytest.raises(InvalidArgument, match="features needs one of"):
        gmip.audit(gmip.Predictions({"member": members}, features=features))
