"""Which curves are drawn together, and how results show themselves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from gmip._html import readable
from gmip._numbers import percent
from gmip.auditing.schema import AttackerAnswer, Band, Curve
from gmip.report import card
from gmip.report.figures import overview_figure, run_figure
from tests.unit.report import sample
from tests.unit.report.page import Page


def test_claims_have_their_exact_values():
    run = sample.consistent().runs[0]
    exact = run.claims[0].model_copy(
        update={"curve": Curve(fpr=(0.0, 1.0), tpr=(0.0, 1.0)), "tpr_at": {"0.003": 0.1, "0.01": 0.25}}
    )
    figure = run_figure(run.model_copy(update={"claims": (exact,)}), "f")
    claimed = figure.series[3]
    assert claimed.at(0.003) == 0.1 and claimed.at(0.01) == 0.25
    assert claimed.fpr.tolist() == [0.0, 0.003, 0.01, 1.0] and claimed.tpr.tolist() == [0.0, 0.1, 0.25, 1.0]


def test_no_two_attacks_look_alike():
    run = sample.consistent().runs[0]
    many = tuple(run.attacks[0].model_copy(update={"attack": f"a{i}", "title": f"A{i}"}) for i in range(12))
    figure = run_figure(run.model_copy(update={"attacks": many}), "f")
    assert len({(one.look, one.marker) for one in figure.series[:12]}) == 12


def test_the_overview_draws_the_claim_that_the_target_rests_on():
    """Where a bound by noise alone keeps it, that bound: one claim, one number, one word."""
    result = sample.consistent()
    run = result.runs[0]
    alone = sample.claimed_curve("gdp", 0.6)
    claims = (sample.claimed_curve("claimed", 0.5, "approximation"), alone)
    answer = AttackerAnswer(
        sees="gradients", leak="none-seen", target="guaranteed", why="bound", claimed=alone.tpr_at["0.01"]
    )
    run = run.model_copy(update={"claims": claims, "answers": (answer,)})
    result = result.model_copy(update={"runs": (run, run)})
    drawn = overview_figure(result, "f").series[1]
    assert drawn.at(0.01) == alone.tpr_at["0.01"] and not drawn.forecast
    assert card.rows(run)[0].beside == f"guarantee {percent(alone.tpr_at['0.01'], 'up')}"


def test_claims_follow_their_curve():
    run = sample.consistent().runs[0]
    figure = run_figure(run, "f")
    claimed = figure.series[len(run.attacks)]
    for rate in np.logspace(-4, 0, 60):
        true = ndtr(ndtri(rate) + (run.claims[0].mu or 0.0))
        found = claimed.at(float(rate))
        assert found is not None and true <= found <= 1.01 * true  # never below: it is a bound


@pytest.mark.parametrize(
    ("others", "smallest", "lowest"),
    [
        (500, 1e-5, 1e-4),  # a claim goes one power of ten further
        (500, 1e-3, 1e-3),
        (50, 0.5, 1e-3),  # at least down to 0.1%
        (2_000, 1e-3, 1e-4),  # one false alarm is 5e-4
        (10_000, 1e-9, 1e-5),
        (10_000_000, 1e-9, 1e-5),  # where the accountant ends
        (1_000, 1e-3, 1e-3),
    ],
)
def test_where_axes_begin(others, smallest, lowest):
    run = sample.consistent().runs[0]
    attack = run.attacks[0].model_copy(update={"non_members": others})
    claim = run.claims[0].model_copy(update={"curve": sample.gaussian_curve(1.0, smallest)})
    figure = run_figure(run.model_copy(update={"attacks": (attack,), "claims": (claim,)}), "f")
    assert figure.lowest == lowest


def test_nothing_known():
    figure = run_figure(sample.bare().runs[0], "f")
    assert [s.name for s in figure.series] == ["Guessing"] and (figure.lowest, figure.rate) == (1e-3, 0.01)
    assert figure.series[0].at(0.123) == pytest.approx(0.123)


def test_only_the_strongest_has_a_band():
    run = sample.consistent().runs[0]
    bands = [s.band for s in run_figure(run, "f").series]
    assert bands[0] is not None and all(band is None for band in bands[1:])
    at = run.attacks[0].tpr_at["0.01"]
    assert [0.01, at.lower, at.upper] in bands[0].T.tolist()  # the interval of the tables
    empty = run.attacks[0].model_copy(update={"band": Band(fpr=(), lower=(), upper=())})
    assert run_figure(run.model_copy(update={"attacks": (empty,)}), "f").series[0].band is None


def test_no_two_curves_look_the_same():
    run = sample.consistent().runs[0]
    attacks = tuple(run.attacks[0].model_copy(update={"title": str(i)}) for i in range(5))
    series = run_figure(run.model_copy(update={"attacks": attacks}), "f").series
    assert len({s.look for s in series}) == len(series) == 10
    assert len({(s.look.split()[1], s.marker) for s in series}) == len(series)  # without the colours too
    overview = overview_figure(sample.three_runs(), "f")
    assert len({s.look for s in overview.series}) == len(overview.series) == 7
    assert [s.name for s in overview.series[:2]] == ["no noise: measured", "no noise: guarantee"]


# -- in a notebook ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sample.exposed, sample.three_runs, sample.bare, sample.hostile])
def test_a_result_in_a_notebook(make):
    result = make()
    source = result._repr_html_()
    page = Page(source)
    assert page.all("strong")[0][1] == readable(result.title)
    said = page.all("pre")[0][1]
    assert all(card.look(run).title.lower() in said.lower() for run in result.runs)
    assert len(page.all("svg", role="img")) == 1
    # Self-contained, and nothing but markup of ours.
    assert {name for name, _ in page.elements} <= {
        *("div", "strong", "pre", "svg", "g", "path", "rect", "text"),
    }
    assert not [key for _, attributes in page.elements for key in attributes if key.startswith("on") or key == "href"]
    assert not [attributes["id"] for _, attributes in page.elements if "id" in attributes]


def test_a_notebook_names_no_record_and_no_folder():
    result = sample.exposed()
    source = result._repr_html_() + repr(result) + repr(result.runs[0])
    for record in result.runs[0].exposed:
        assert str(record.id) not in Page(result._repr_html_()).texts[0]
    assert result.runs[0].path and result.runs[0].path not in source


def test_short_names():
    result = sample.three_runs()
    assert (
        repr(result)
        == str(result)
        == (
            "<AuditResult 'CIFAR-10 classifier: three ways to train it': 'no noise' exposed, 'GMIP noise' consistent, "
            "'GDP noise' consistent>"
        )
    )
    assert repr(result.runs[0]).startswith("<RunAudit 'no noise': exposed, ")
    assert repr(Curve(fpr=(0.0, 1.0), tpr=(0.0, 1.0))) == "<Curve of 2 points>"
    assert repr(Band(fpr=(), lower=(), upper=())) == "<Band of 0 points>"


def test_a_forecast_is_drawn_as_one() -> None:
    found = sample.consistent().runs[0]
    for kind, words in (("bound", "at most "), ("forecast", "about ")):
        claimed = found.claims[0].model_copy(update={"kind": kind})
        drawn = run_figure(found.model_copy(update={"claims": (claimed,)}), "")
        assert [one.prefix for one in drawn.series if one.role == "claim"] == [words]
