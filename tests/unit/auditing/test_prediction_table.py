"""Which columns are predictions, and what they mean."""

from __future__ import annotations

import numpy as np
import pytest

from gmip.auditing.prediction_table import table_from_columns
from gmip.errors import InvalidArgument

MEMBER = [1, 1, 0, 0]


def scores(cells, given=None, attacks=None) -> dict[str, np.ndarray]:
    return dict(table_from_columns({"member": MEMBER, **cells}, given, attacks).scores)


def test_scores_stay_scores():
    assert set(scores({"score": [1, 2, 3, 4], "loss": [1, 2, 3, 4]})) == {"score"}
    assert set(scores({"loss_score": [1, 2, 3, 4], "label": [0, 1, 0, 1]})) == {"loss"}


def test_losses():
    np.testing.assert_array_equal(np.argsort(scores({"Loss": [4.0, 3.0, 2.0, 1.0]})["loss"]), [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("names", "labels", "given"),
    [
        (("p_0", "p_1", "p_2"), [0, 1, 2, 0], None),
        (("prob_a", "prob_b", "prob_c"), ["a", "b", "c", "a"], None),
        (("P_a", "P_b", "P_c"), [0.0, 1.0, 2.0, 0.0], None),
        (("p_0", "p_1", "p_2"), ["0.0", "1.0", "2.0", "0.0"], None),
        (("x", "y", "z"), [0, 1, 2, 0], {"probability": ["x", "y", "z"], "label": "label"}),
        (("x", "y", "z"), ["x", "y", "z", "x"], {"probability": ["x", "y", "z"], "label": "label"}),
        (("p_5", "p_7", "p_9"), [5, 7, 9, 5], None),
    ],
)
def test_classes(names, labels, given):
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5], [0.1, 0.2, 0.7]])
    found = table_from_columns(
        {"member": MEMBER, "label": labels} | {name: p[:, i] for i, name in enumerate(names)}, given
    )
    own = p[np.arange(4), [0, 1, 2, 0]]
    np.testing.assert_allclose(found.scores["loss"], np.log(own / (1 - own)))
    assert found.grouped_by == "class" and found.groups is not None and len(found.groups.names) == 3
    assert found.about["loss"].title.startswith("Loss")


def test_reference_models_and_who_was_in():
    cells: dict[str, list] = {"loss": [0.1, 0.2, 0.3, 0.4]}
    for name, who in (("a", ["True", "False", "True", "False"]), ("b", [False, True, False, True])):
        cells[f"ref_{name}_loss"] = [0.5, 0.6, 0.7, 0.8]
        cells[f"ref_{name}_in"] = who
    assert table_from_columns({"member": MEMBER, **cells}).about["rmia"].facts == {
        "online": True,
        "reference_models": 2,
    }
    del cells["ref_a_in"], cells["ref_b_in"]
    found = table_from_columns({"member": MEMBER, **cells}, attacks=["rmia", "loss"])
    assert found.about["rmia"].facts["online"] is False and set(found.scores) == {"rmia", "loss"}


@pytest.mark.parametrize(
    ("cells", "given", "words"),
    [
        ({"p_0": [1, 1, 1, 1], "p_1": [0, 0, 0, 0], "label": [0, 1, 2, 0]}, None, "the label '2', which is none of"),
        ({"p_0": [1, 1, 1, 2], "p_1": [0, 0, 0, 0], "label": [0, 1, 1, 0]}, None, "Record 4 has the probability 2"),
        ({"loss": [1, 1, 1, "x"]}, None, "The predictions have 'x' in column 'loss' of record 4"),
        ({"loss": [1, 1, 1, 1], "ref_a_in": [1, 1, 0, 0]}, None, "Reference model 'a' has no columns"),
        ({"loss": [1] * 4, "ref_a_loss": [1] * 4, "ref_a_in": [2, 1, 0, 0]}, None, "does not say whether"),
        ({"other": [1, 1, 1, 1]}, None, "no column 'score'.*probability:CLASS=NAME and columns label=NAME"),
        ({"other": [1, 1, 1, 1]}, {"label": "other"}, "no columns of losses, probabilities or logits"),
        ({"loss": [1, 1, 1, 1], "b": [1] * 4}, {"loss": ["loss", "b"]}, "several columns for 'loss'"),
    ],
)
def test_refused(cells, given, words):
    with pytest.raises(InvalidArgument, match=words):
        table_from_columns({"member": MEMBER, **cells}, given)
