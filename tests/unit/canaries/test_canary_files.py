"""Canaries on disk: what is written is read, and what was changed or is not there is one sentence."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

pytest.importorskip("torch", reason="canaries need the extra gmip[train]")

import torch

import gmip
from gmip.auditing import read_scores
from gmip.canaries import DirectionCanaries
from gmip.canaries.coins import TABLE, read_canaries, write_canaries
from gmip.errors import FileError, GmipWarning
from gmip.report.markdown import to_markdown
from tests.unit.canaries.test_planted_directions import noise_run

RUN = gmip.NoisySGD(
    dataset_size=1000,
    batch_size=100,
    num_steps=20,
    num_params=20_000,
    clip_norm=2.0,
    noise_std=0.1,
    sampling="shuffled",
)


@pytest.fixture
def planted(tmp_path):
    canaries = DirectionCanaries(50, seed=3)
    noise_run(canaries, noise=4.0, steps=20, rate=0.1)
    write_canaries(tmp_path, canaries, RUN)
    return canaries


def test_all_is_read_again(tmp_path, planted):
    found = read_canaries(tmp_path)
    assert found.planted == 50 and found.run == RUN
    table = read_scores(found.table)
    np.testing.assert_array_equal(table.member, planted.inside)
    np.testing.assert_array_equal(table.scores["canaries"], planted.scores)


def test_the_claim_is_about_a_record_that_is_added_or_removed(tmp_path, planted):
    """Canaries are drawn anew in each step, whatever the sampling of the run."""
    found = read_canaries(tmp_path).claim
    assert found is not None and found.claim.adjacency == "add-or-remove-one" and found.kind == "bound"
    expected = gmip.account(RUN.replace(sampling="poisson"), notion="gdp")
    assert found.tpr_at(0.01) == pytest.approx(expected.tpr_at(0.01))
    write_canaries(tmp_path, planted, RUN.replace(noise_std=0.0))
    assert read_canaries(tmp_path).claim is None


def test_what_is_refused(tmp_path, planted):
    with pytest.raises(FileError, match=r"holds no canaries: plant some: gmip train --canaries"):
        read_canaries(tmp_path / "nowhere")
    about = tmp_path / "canaries.json"
    known = json.loads(about.read_text())
    for change in ({"version": 2}, {"run": {"dataset_size": -1}}, {"count": None}):
        about.write_text(json.dumps(known | change))
        with pytest.raises(FileError, match="cannot be used"):
            read_canaries(tmp_path)
    about.write_text("{")
    with pytest.raises(FileError, match="cannot be used"):
        read_canaries(tmp_path)
    about.write_text(json.dumps(known))
    table = tmp_path / TABLE
    table.write_text(table.read_text().replace(",0,", ",1,", 1))
    with pytest.raises(FileError, match="was changed after training"):
        read_canaries(tmp_path)


@pytest.mark.parametrize(("noise", "sound"), [(2.0, True), (1.9, False)])
def test_an_audit_knows_what_the_test_of_the_noise_saw(tmp_path, noise, sound):
    """5% less noise than declared is more than 50 scores can tell; the audit must not call it consistent."""
    canaries = DirectionCanaries(50, seed=3)
    torch.manual_seed(0)
    model = torch.nn.Linear(20_000, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GmipWarning)
        with canaries.attached(model, optimizer, sample_rate=0.1, clip_norm=1.0, batch_size=1, noise_multiplier=2.0):
            for _ in range(80):
                model.weight.grad = noise * torch.randn(1, 20_000)
                optimizer.step()
    claimed = RUN.replace(num_steps=80, clip_norm=1.0, noise_std=2.0 / RUN.batch_size)
    write_canaries(tmp_path, canaries, claimed)
    found = read_canaries(tmp_path)
    result = gmip.audit(found.checked(gmip.Scores(found.table)), claim=found.claim)
    (one,) = result.runs
    assert one.check is not None and one.check.passed is sound
    assert one.check.outcomes[0].value == pytest.approx(noise / 2.0, abs=0.02)
    assert sound or one.verdict.kind not in ("consistent", "exposed")  # the scores alone refute nothing
    said = to_markdown(result)
    assert ("The record does not match the declared run. The noise is 0.9" in said) is not sound
    assert canaries.audit(claim=1.0).runs[0].check == one.check
