from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch", reason="reproduction needs the extra gmip[reproduce]")
pytest.importorskip("matplotlib", reason="reproduction needs the extra gmip[reproduce]")

from gmip.reproduce import registry
from tests.unit.reproduce import toy


@pytest.fixture
def the_toy(monkeypatch):
    """The toy as a known experiment, fresh."""
    monkeypatch.setattr(registry, "_NAMES", (*registry._NAMES, "toy"))
    monkeypatch.setitem(sys.modules, "gmip.reproduce.experiments.toy", toy)
    monkeypatch.setattr(toy, "VERSION", 1)
    toy.calls.clear()
    toy.troubles.clear()
    toy.tasks.clear()
    return toy
