from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gmip.attacks import CFD, GLiR, Loss
from gmip.errors import InvalidArgument
from gmip.tasks.inputs import answer, one_table, rows_per_pass
from gmip.tasks.task import Examples, Task
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(11, 4), nn.Linear(4, 2)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.table(ids).mean(1))


class ByName(Plain):
    """The same from two inputs; the mask hides nothing."""

    def forward(self, ids: Tensor, mask: Tensor) -> Any:  # type: ignore[override]
        return SimpleNamespace(logits=self.head((self.table(ids) * mask[..., None]).mean(1)))


def make_task(*, by_name: bool) -> Task:
    rng = np.random.default_rng(0)
    ids, labels = torch.from_numpy(rng.integers(0, 11, (150, 5))), torch.from_numpy(rng.integers(0, 2, 150))
    records = Examples({"ids": ids, "mask": torch.ones(150, 5)} if by_name else ids, labels)
    return Task(
        name="tokens",
        make_model=ByName if by_name else Plain,
        pool=records[:130],
        test=records[130:],
        recipe=Recipe(dataset_size=40, batch_size=20, num_steps=4, learning_rate=1.0, clip_norm=0.5, noise_std=0.01),
    )


@pytest.mark.parametrize("changes", [{}, {"noise_std": 0.0, "clip_norm": None}], ids=["noisy", "plain"])
def test_a_run_with_inputs_by_name_is_trained_and_attacked_like_one_with_a_tensor(changes, tmp_path) -> None:
    runs = []
    for by_name in (False, True):
        task = make_task(by_name=by_name)
        out = tmp_path / str(by_name)
        result = train(task, task.recipe.replace(**changes), out=out, seed=0, max_physical_batch_size=7)
        trace = Trace.open(out)
        scores = [attack.run(task, trace).scores for attack in (GLiR(play=None), Loss())]
        runs.append((result.test_loss, trace[3].gradient, *scores))
    for plain, named in zip(*runs, strict=True):
        np.testing.assert_allclose(named, plain, rtol=1e-4, atol=1e-6)


def test_counterfactuals_need_one_tensor(tmp_path) -> None:
    task = make_task(by_name=True)
    train(task, out=tmp_path, seed=0)
    with pytest.raises(InvalidArgument, match=r"several inputs \(ids, mask\), and a counterfactual is a change of one"):
        CFD().run(task, Trace.open(tmp_path))


def test_answers() -> None:
    x = torch.zeros(2, 3)
    assert answer(lambda t: t, x) is x
    assert answer(lambda *, a: SimpleNamespace(logits=a), {"a": x}) is x
    assert answer(lambda t: (t, 1), x) == (x, 1)
    assert one_table(x, "why") is x


def test_sequences_of_tokens_are_few_at_a_time() -> None:
    assert rows_per_pass(torch.zeros(5, 3), 1024) == 1024
    assert rows_per_pass({"a": torch.zeros(5, 3), "b": torch.zeros(5, 3, dtype=torch.long)}, 1024) == 16
