from __future__ import annotations

from typing import Any

import pytest

from gmip.attacks.attack import parties
from gmip.attacks.shadow import Shadows, ShadowSet, shadow_set
from gmip.trace import Trace
from gmip.training import train
from tests.unit.attacks.shadow.helpers import Outputs, make_task


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Trace:
    """A recorded run of `make_task`."""
    path = tmp_path_factory.mktemp("shadow-run") / "run"
    train(make_task(), seed=1, out=path)
    return Trace.open(path)


@pytest.fixture
def shadows_of(tmp_path, run):
    """`shadow_set` of the run, in one process unless said otherwise."""

    def call(
        *signals: Any,
        task=None,
        trace=None,
        candidates=None,
        background=None,
        progress=None,
        budget=None,
        **settings: Any,
    ):
        task = make_task() if task is None else task
        trace = run if trace is None else trace
        who = parties(task, trace, candidates, background)
        settings = {"count": 4, "folder": tmp_path / "sets", "workers": 1} | settings
        found = shadow_set(
            task,
            trace,
            who.ids,
            who.background,
            signals or (Outputs(),),
            Shadows(**settings),
            progress=progress,
            budget=budget,
        )
        assert isinstance(found, ShadowSet)
        return found

    return call
