"""Which steps are stored: never more than the budget, all of the first ones, and the same ones when a run goes on."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gmip.errors import GmipWarning, InvalidArgument
from gmip.trace import Trace
from gmip.training import record
from gmip.training.recorder import StoredSteps
from tests.unit.training.recording import N, batches_of, make_model, n, plain_loop, sgd

ROW = 2 * 4 * (5 * 4 + 4 + 4 * 3 + 3)  # bytes of a step of the model in these tests


@pytest.mark.filterwarnings("ignore:budget:gmip.GmipWarning")
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 100, 1000])
def test_the_budget_is_kept_and_used(rows: int, every: int) -> None:
    stored = StoredSteps(every=every, budget=rows * 100 + 99, row_bytes=100)
    steps = [step for step in range(20_000) if stored.admits(step)]
    assert len(steps) == rows  # all of it, if the run is long
    dense = (rows + 1) // 2
    assert steps[:dense] == list(range(0, dense * every, every))
    assert all(step % every == 0 for step in steps)
    gaps = [b - a for a, b in pairwise(steps)]
    assert gaps == sorted(gaps)  # ever fewer


def test_no_budget() -> None:
    stored = StoredSteps(every=3, budget=None, row_bytes=100)
    assert [step for step in range(10) if stored.admits(step)] == [0, 3, 6, 9]
    assert stored.notes == {}


@pytest.mark.parametrize(
    ("budget", "message"), [("99 B", "no room for one step, which takes 100 bytes"), ("2 GBB", "amount"), (0, "budget")]
)
def test_refuses(budget: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        StoredSteps(every=1, budget=budget, row_bytes=100)
    assert caught.value.argument == "budget"


def test_a_run_with_a_budget(tmp_path: Path) -> None:
    """Eight rows of room: 0 to 3, then 4 and 6, then 8, then 12; also if it was interrupted. It is said, and stored."""
    model = make_model()
    optimizer = sgd(model)
    common: dict[str, Any] = {"dataset_size": N, "batch_size": n, "sampling": "fixed", "budget": 8 * ROW}
    with pytest.raises(ZeroDivisionError), record(model, optimizer, tmp_path, **common):  # noqa: PT012
        plain_loop(model, optimizer, batches_of(*[n] * 4))
        raise ZeroDivisionError
    with (
        pytest.warns(
            GmipWarning,
            match=r"room for 8 steps.*\(all up to step 4, one of 2 up to step 8, .*none after step 20\)",
        ) as told,
        record(model, optimizer, tmp_path, resume_at=4, **common),
    ):
        plain_loop(model, optimizer, batches_of(*[n] * 26))
    assert len(told) == 1
    trace = Trace.open(tmp_path)
    assert trace.num_steps == 30
    assert trace.recorded.tolist() == [0, 1, 2, 3, 4, 6, 8, 12]
    assert trace.header.budget == 8 * ROW
    assert trace.header.notes["stored_steps"] == (
        "all up to step 4, one of 2 up to step 8, one of 4 up to step 12, and so on, none after step 20"
    )
    assert sum(path.stat().st_size for path in tmp_path.glob("shard-*")) <= 8 * ROW + 128
