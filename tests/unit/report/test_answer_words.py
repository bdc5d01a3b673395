"""How the claim fared, what curves are called, and which run to ship."""

from __future__ import annotations

import pytest

from gmip.auditing.schema import Conclusion, ConclusionKind
from gmip.report import answer_words
from tests.unit.report import sample


def shipped(*pairs: tuple[float, ConclusionKind]) -> tuple[ConclusionKind, str]:
    (one,) = sample.consistent().runs
    runs = [
        one.model_copy(
            update={
                "name": f"run {i}",
                "facts": sample.facts(test_accuracy=accuracy),
                "conclusion": Conclusion(kind=kind, why="bound"),
            }
        )
        for i, (accuracy, kind) in enumerate(pairs)
    ]
    return answer_words.ship(sample.result(*runs))


def test_which_run_to_ship():
    kind, words = shipped((0.90, "fails"), (0.80, "guaranteed"), (0.85, "guaranteed"), (0.88, "passes"))
    assert kind == "guaranteed"
    assert words == (
        "Ship 'run 2': its target is guaranteed, with 85% test accuracy, the highest of the guaranteed runs."
    )
    kind, words = shipped((0.90, "fails"), (0.80, "probably-fails"), (0.7, "inconclusive"))
    assert kind == "fails" and words.startswith("Ship none of these runs")
    kind, words = shipped((0.90, "fails"), (0.80, "passes"))
    assert kind == "passes" and "'run 1' passes the attacks, which is no guarantee" in words


def test_both_claims_are_said_where_there_are_two():
    (run,) = sample.exposed().runs
    assert answer_words.both_claims(run) == (
        "Accountant at 1% false alarms: guarantee: at most 3.39% by noise and the randomness of the data (GMIP); "
        "guarantee: at most 8.44% by noise alone (differential privacy, for any data)."
    )
    claimed, gdp = run.claims[0], next(one for one in run.claims if one.key == "gdp")
    weak = gdp.model_copy(update={"tpr_at": {"0.01": 0.9999}, "adjacency": "zero-out-one"})
    words = answer_words.both_claims(run.model_copy(update={"claims": (claimed, weak)}))
    assert "no guarantee by noise alone (differential privacy, zero-out-one)" in words
    assert words.endswith("a larger change.")
    given = claimed.model_copy(update={"origin": "given"})
    for pair in ((claimed,), (given, gdp)):
        assert answer_words.both_claims(run.model_copy(update={"claims": pair})) == ""


def test_a_curve_has_one_name_by_its_type():
    claim = sample.consistent().runs[0].claims[0]
    assert answer_words.claim_word(claim) == "guarantee"
    assert answer_words.claim_word(claim.model_copy(update={"kind": "forecast"})) == "forecast"
    assert answer_words.claim_word(claim.model_copy(update={"origin": "given"})) == "claim"
    assert answer_words.curve_name(claim) == "Guarantee by the accountant (GMIP)"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (sample.exposed, "Claim refuted: GLiR finds 11% (guarantee: at most 3.39% at 1% false alarms)."),
        (sample.consistent, "Consistent with the claim: no attack found significantly more ("),
        (sample.inconclusive, "Claim not tested: 500 candidates of each kind are too few; about 2,100 are needed."),
    ],
)
def test_the_test_of_the_claim(make, said):
    assert answer_words.verdict_headline(make().runs[0]).startswith(said)
