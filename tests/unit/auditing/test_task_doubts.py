"""What in a task limits an audit, and is said: losses that mix records, softmax before cross-entropy, dropout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gmip
from gmip.auditing.judge import AttackEvidence, AttackScores, Evidence, JudgeSettings, Labels, judge
from gmip.errors import InvalidArgument
from gmip.report import sentences
from gmip.stats import ScoreSet

INPUTS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
RECORDS = gmip.Examples(INPUTS, (INPUTS[:, 0] > 0).long())


def cox(outputs: Tensor, targets: Tensor) -> Tensor:
    risk = outputs[:, 0]
    return torch.logcumsumexp(risk, 0) - risk


def task(*last: nn.Module, **settings: Any) -> gmip.Task:
    recipe = gmip.Recipe(dataset_size=30, batch_size=30, num_steps=1, sampling="full", learning_rate=0.1)
    return gmip.Task(
        name="t",
        make_model=lambda: nn.Sequential(nn.Linear(4, 2), *last),
        pool=RECORDS,
        test=RECORDS,
        recipe=recipe,
        **settings,
    )


def released(path: Path, of: gmip.Task) -> Any:
    torch.save(of.make_model().state_dict(), path)
    mask = np.arange(60) < 30
    return gmip.audit(gmip.Released(path, mask, ~mask, of), attacks=["loss"]).runs[0]


def test_a_loss_that_mixes_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"mixes records: .* as in a Cox model: .* gmip.Scores"):
        released(tmp_path / "w.pt", task(loss=cox))


def test_softmax_before_cross_entropy_is_noticed(tmp_path: Path) -> None:
    run = released(tmp_path / "w.pt", task(nn.Softmax(1)))
    assert run.attacks[0].members == 30  # who was in is a mask here
    assert "seems to end in softmax" in " ".join(sentences.cautions(run))
    assert "softmax" not in " ".join(sentences.cautions(released(tmp_path / "v.pt", task())))


class Picky(nn.Module):
    """Takes all records at once, not a few."""

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) < 30:
            raise ValueError("needs 30 records")
        return inputs


def test_a_model_that_could_not_be_tried_is_said(tmp_path: Path) -> None:
    said = " ".join(sentences.cautions(released(tmp_path / "w.pt", task(Picky()))))
    assert "could not be tried on a few records (ValueError: needs 30 records)" in said and "softmax" in said


@pytest.mark.filterwarnings("ignore::gmip.GmipWarning")
def test_the_report_says_that_dropout_hides_a_part(tmp_path: Path) -> None:
    """Nobody knows, as in a run of the Trainer, who was in which batch."""
    of = task(nn.Dropout(0.1))
    model = of.make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    who = {"members": range(30), "non_members": range(30, 50)}
    with gmip.record(
        model, optimizer, tmp_path / "a", dataset_size=30, batch_size=10, sampling="fixed", data=of, **who
    ):
        of.loss(model(INPUTS[:10]), RECORDS.targets[:10]).mean().backward()
        optimizer.step()
    run = gmip.audit(gmip.Recorded(tmp_path / "a", of), attacks=["loss"]).runs[0]
    assert "drops units at random while it trains (layer 1)" in " ".join(sentences.cautions(run))


def test_repeats_are_seen_where_attacks_scored_others(tmp_path: Path) -> None:
    """One attack scored all candidates, another one fewer: records repeated 10 times are judged once by both."""
    scores = np.repeat(np.random.default_rng(0).normal(size=40), 10)
    inside = np.arange(400) < 200

    def scored(name: str, size: int) -> AttackEvidence:
        chosen = np.r_[0:size, 200 : 200 + size]
        found = AttackScores(scores=ScoreSet(ids=chosen, scores=scores[chosen], attack=name))
        labels = (Labels(inside=inside[chosen]),)
        return AttackEvidence(name=name, title=name, needs=(), found=(found,), labels=labels)

    evidence = Evidence(name="a", source="scores", attacks=(scored("a", 200), scored("b", 150)))
    run = judge(evidence, JudgeSettings(), lambda done, total: None).run
    assert sorted(one.members for one in run.attacks) == [15, 20] and run.repeated == 360
