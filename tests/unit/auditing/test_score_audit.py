from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gmip
from gmip.auditing.schema import RunFacts
from gmip.errors import InvalidArgument
from gmip.report import to_html, to_markdown
from gmip.report.answer_words import verdict_headline
from gmip.report.sentences import cautions
from tests.unit.report.page import Page

RNG = np.random.default_rng(0)
INS, OUTS = RNG.normal(1.0, 1.0, 300), RNG.normal(0.0, 1.0, 300)


def only(*given: Any, columns: Any = None, **options: Any) -> Any:
    (run,) = gmip.audit(gmip.Scores(*given, columns=columns), **options).runs
    return run


@pytest.mark.parametrize(
    ("claim", "kind"),
    [
        (0.2, "exposed"),
        (1.2, "consistent"),
        ((0.1, 1e-5), "exposed"),
        (gmip.Gaussian(0.2), "exposed"),
        (gmip.NoisySGD, None),
        ((1.0,), None),
        (-1.0, None),
    ],
)
def test_claims(claim: Any, kind: str | None) -> None:
    if kind is None:
        with pytest.raises(InvalidArgument, match="claim"):
            only(INS, OUTS, claim=claim)
        return
    run = only(INS, OUTS, claim=claim)
    assert run.verdict.kind == kind and run.claims[0].standing == "given"
    assert 0.6 < run.attacks[0].mu_lower < 1.1 and run.facts == RunFacts()


def test_without_a_claim_no_claim_is_tested_and_a_leak_is_measured() -> None:
    result = gmip.audit(gmip.Scores(INS, OUTS))
    (run,) = result.runs
    assert (run.verdict.kind, run.claims, run.attacks[0].claim_p_value) == ("measured", (), None)
    assert verdict_headline(run) == "No claim was tested."
    page = Page(to_html(result))
    assert page.all("p", class_="verdict-title")[0][1] == "Fails the target"
    assert "at most" not in to_markdown(result) and "Claim:" not in to_markdown(result)
    assert "p-value" not in to_markdown(result) and "gradient" not in to_markdown(result)
    nothing = only(OUTS, RNG.normal(size=300))
    assert nothing.conclusion.kind == "passes" and nothing.answers[0].leak == "none-seen"


def test_tables_and_arrays_agree() -> None:
    table = {"member": [1] * 300 + [0] * 300, "loss": np.concatenate([INS, OUTS])}
    from_table = only(table, columns={"score": "loss"}, claim=0.5)
    from_arrays = only({"loss": INS}, {"loss": OUTS}, claim=0.5)
    assert from_table.attacks == from_arrays.attacks and from_table.attacks[0].attack == "loss"

    class Frame:
        columns = tuple(table)

        def __getitem__(self, name: str) -> Any:
            return table[name]

    assert only(Frame(), columns={"score": "loss"}, claim=0.5).attacks == from_arrays.attacks


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ((INS,), {}, "must be a table if there are no non_members"),
        ((INS, OUTS), {"columns": {"id": "x"}}, "columns are for tables"),
        ((INS, [1.0]), {}, "non_members hold 1 scores"),
        ((INS, [1.0, np.nan]), {}, "NaN"),
        (({"a": INS}, {"b": OUTS}), {}, "the same attacks"),
        (({"a": INS, "b": INS[1:]}, {"a": OUTS, "b": OUTS}), {}, "as many scores by each attack"),
        ((INS, OUTS), {"confidence": 0.2}, "at least 0.5"),
        ((INS, OUTS), {"target": "5%"}, "target must be mu=..., tpr=..."),
        ((INS, OUTS), {"fprs": ()}, "fprs is empty"),
        ((INS, OUTS), {"fprs": 0.1}, "fprs = 0.1 must be a list of rates"),
        ((INS, OUTS), {"title": 5}, "title = 5 must be text"),
    ],
)
def test_what_is_refused(given: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        only(*given, **options)


def test_the_bounds_of_several_attacks_share_the_error() -> None:
    alone = only(INS, OUTS).attacks[0]
    others = {f"noise {i}": RNG.normal(size=300) for i in range(4)}
    many = only({"a": INS} | others, {"a": OUTS} | others).attacks[0]
    assert many.attack == "a" and many.mu_lower < alone.mu_lower - 0.02
    assert (many.auc, many.tpr_at) == (alone.auc, alone.tpr_at)


def test_scores_the_wrong_way_round_get_a_warning() -> None:
    assert "negate them" in cautions(only(OUTS, INS))[0]
    assert cautions(only(INS, OUTS)) == ()


def test_runs_that_score_high_as_a_whole_are_no_leak() -> None:
    """Where runs differ in their share of members, scores are compared within runs only."""
    member = np.repeat([1, 0, 1, 0], [180, 20, 20, 180])
    run = np.repeat(["a", "b"], 200)
    score = np.random.default_rng(3).normal(size=400) + 5.0 * (run == "a")
    found = only({"member": member, "score": score, "run": run}, claim=0.0)
    assert found.verdict.kind != "exposed" and found.attacks[0].repeats == 2
    assert abs(found.attacks[0].auc.value - 0.5) < 0.15
    assert only({"member": member, "score": score}, claim=0.0).verdict.kind == "exposed"


def test_one_verb_for_several_sources() -> None:
    both = gmip.audit([gmip.Scores(INS, OUTS), gmip.Scores(OUTS, INS)], claim=1.0, title="Both ways")
    alone = gmip.audit(gmip.Scores(INS, OUTS), claim=1.0)
    assert both.title == "Both ways" and [run.name for run in both.runs] == ["scores", "scores (2)"]
    assert both.runs[0] == alone.runs[0]
    with pytest.raises(gmip.InvalidArgument, match="did you mean 'confidence'"):
        gmip.audit(gmip.Scores(INS, OUTS), confidense=0.9)
    with pytest.raises(gmip.InvalidArgument, match="attacks is for runs of a task"):
        gmip.audit(gmip.Scores(INS, OUTS), attacks=["loss"])


def test_a_gate_does_not_pass_what_probably_fails() -> None:
    """The lower limit is below 5%, more was measured, and the leak is beyond chance."""
    rng = np.random.default_rng(2)
    source = gmip.Scores(rng.normal(1.3, 1.0, 100), rng.normal(0.0, 1.0, 100))
    result = gmip.audit(source, gate=True)
    run = result.runs[0]
    assert run.conclusion.kind == "probably-fails" and run.gate is not None
    assert run.gate.tpr_lower < run.gate.limit and run.gate.probable and result.passed is False
    with pytest.raises(gmip.GateFailed, match="Failed, since the run probably fails the target"):
        result.raise_for_gate()


def test_a_gate_in_python() -> None:
    source = gmip.Scores(INS, OUTS)
    assert gmip.audit(source).passed is None
    with pytest.raises(InvalidArgument, match="The audit had no gate: audit with gate = True"):
        gmip.audit(source).raise_for_gate()
    passes = gmip.audit(source, target="tpr=0.9@0.01", gate=True)
    assert passes.passed is True
    passes.raise_for_gate()
    fails = gmip.audit([source, source], target=(0.01, 0.1), gate=True)
    assert fails.passed is False
    with pytest.raises(gmip.GateFailed, match=r"^scores: Failed: at 10% .* the target is 1%; scores") as error:
        fails.raise_for_gate()
    assert str(error.value).endswith("the target is 1%.")
    turned = gmip.audit(gmip.Scores(OUTS, INS), target="tpr=0.9@0.01", gate=True)
    with pytest.raises(gmip.GateFailed, match="Cannot tell, so it does not pass"):
        turned.raise_for_gate()


def test_scores_of_very_different_size_fill_more_than_one_bar() -> None:
    """Scores of decode reach 1e12 for members: on even bars all non-members were one of them."""
    rng = np.random.default_rng(1)
    drawn = only(np.exp(rng.normal(25.0, 2.0, 200)), rng.normal(-20.0, 3.0, 200)).histogram
    assert sum(drawn.members) == sum(drawn.non_members) == 200
    assert min(sum(n > 0 for n in side) for side in (drawn.members, drawn.non_members)) >= 3
    even = only(INS, OUTS).histogram
    assert np.allclose(np.diff(even.edges), even.edges[1] - even.edges[0])
