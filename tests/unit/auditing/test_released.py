"""Records of a released model in two files: the same columns, and no record in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gmip import Recipe, Task
from gmip.auditing.schema import SharedRecords
from gmip.auditing.sources.released import Released, released_model_of
from gmip.errors import InvalidArgument
from gmip.tasks import Examples


def run(tmp_path: Path, members: str, others: str, header: str = "a,b,label,group") -> Any:
    (tmp_path / "in.csv").write_text(f"a,b,label,group\n{members}")
    (tmp_path / "out.csv").write_text(f"{header}\n{others}")
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "w.pt")
    pool = Examples(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
    task = Task(
        name="t",
        make_model=lambda: nn.Linear(2, 2),
        loss=nn.functional.cross_entropy,
        pool=pool,
        test=pool,
        recipe=Recipe(dataset_size=2, batch_size=2, num_steps=1, learning_rate=0.1),
    )
    return released_model_of(task, Released(tmp_path / "w.pt", tmp_path / "in.csv", tmp_path / "out.csv", task))


def lines(start: int, stop: int) -> str:
    return "".join(f"{i},{-i},{i % 2},g{i}\n" for i in range(start, stop))


@pytest.mark.parametrize(("start", "words"), [(0, "20 of 20 members"), (15, "5 of 20 members and 5 of 20 non-members")])
def test_the_same_records_in_both_files(tmp_path: Path, start: int, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        run(tmp_path, lines(0, 20), lines(start, start + 20))


def test_a_few_records_in_both_files_are_left_out(tmp_path: Path) -> None:
    task, model, said = run(tmp_path, lines(0, 20), lines(19, 40))
    assert said == SharedRecords(members=1, of_members=20, non_members=1, of_non_members=21)
    assert len(task.pool) == 39 and model.members.tolist() == list(range(19))
    assert task.pool.inputs[:, 0].tolist() == [i for i in range(40) if i != 19]
    assert list(task.groups["group"]) == [f"g{i}" for i in range(40) if i != 19]
    assert run(tmp_path, lines(0, 20), lines(20, 40))[2] is None


def test_columns_in_another_order(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="their columns in different orders"):
        run(tmp_path, lines(0, 20), lines(20, 40), "b,a,label,group")
    with pytest.raises(InvalidArgument, match="other columns"):
        run(tmp_path, lines(0, 20), lines(20, 40), "a,c,label,group")
