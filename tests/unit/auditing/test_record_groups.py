"""Groups of records: by the task, by class, by a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gmip.auditing.attack_runs import record_groups
from gmip.errors import InvalidArgument
from gmip.tasks import Examples, Task
from gmip.vocabulary import Recipe

RECORDS = Examples(torch.zeros(6, 2), torch.tensor([0, 1, 2, 0, 1, 2]))
TASK = Task(
    name="mine",
    make_model=lambda: nn.Linear(2, 3),
    pool=RECORDS,
    test=RECORDS,
    recipe=Recipe(dataset_size=2, batch_size=2, num_steps=1, learning_rate=1.0),
)
WITH_SITES = dataclasses.replace(TASK, groups={"site": ["x", "y", "x", "y", "x", "y"], "sex": list("ffmmfm")})


def names(task: Task, wanted: str | None, ids: list[int]) -> tuple[str | None, list[str]]:
    found = record_groups(task, wanted)
    if found is None:
        return None, []
    return found.name, found.of(np.array(ids)).of(np.arange(len(ids)))


def test_by_task_and_class() -> None:
    assert names(TASK, None, [5, 0]) == ("class", ["2", "0"])
    assert names(WITH_SITES, None, [1, 2]) == ("site", ["y", "x"])
    assert names(WITH_SITES, "sex", [0, 5]) == ("sex", ["f", "m"])
    assert names(WITH_SITES, "class", [4]) == ("class", ["1"])
    regression = dataclasses.replace(TASK, pool=Examples(torch.zeros(6, 2), torch.zeros(6)))
    assert record_groups(regression, None) is None


def test_only_groups_of_the_candidates_are_counted() -> None:
    found = record_groups(TASK, None)
    assert found is not None and found.of(np.array([0, 3])).names == ("0",)


def test_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("id,site\n0,a\n2,b\n")
    assert names(TASK, str(tmp_path / "g.csv"), [0, 1, 2]) == ("site", ["a", "(not known)", "b"])
    for text, words in (("id\n1\n", "needs columns id"), ("id,g\n9,a\n", "has the id '9'"), ("id,g\nx,a\n", "id 'x'")):
        (tmp_path / "g.csv").write_text(text)
        with pytest.raises(InvalidArgument, match=words):
            record_groups(TASK, str(tmp_path / "g.csv"))


def test_refused() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'site': pass 'site' or 'sex' or 'class', or a file"):
        record_groups(WITH_SITES, "sit")
    with pytest.raises(InvalidArgument, match="has 2 entries under 'a', and the pool has 6 records"):
        dataclasses.replace(TASK, groups={"a": [1, 2]})
    with pytest.raises(InvalidArgument, match="must map names"):
        dataclasses.replace(TASK, groups=[1, 2])
    with pytest.raises(InvalidArgument, match="needs classes"):
        record_groups(dataclasses.replace(TASK, pool=Examples(torch.zeros(6, 2), torch.zeros(6))), "class")
