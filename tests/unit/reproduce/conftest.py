from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch", reason="reproduction needs the extra gmip[reproduce]")
pytest.importorskip("matplotlib", reason="reproduction needs the extra gmip[reproduce]")

from gmip.parallel import Workers
from gmip.reproduce import experiments, reproduce
from tests.unit.reproduce import toy


@pytest.fixture
def the_toy(monkeypatch):
    """The toy as a known experiment, fresh."""
    monkeypatch.setattr(experiments, "_NAMES", (*experiments._NAMES, "toy"))
    monkeypatch.setitem(sys.modules, "gmip.reproduce.experiments.toy", toy)
    monkeypatch.setattr(toy, "VERSION", 1)
    toy.calls.clear()
    toy.troubles.clear()
    toy.tasks.clear()
    return toy


@pytest.fixture
def folder(the_toy, tmp_path):
    """The results of the toy."""
    reproduce(["toy"], tmp_path, settings=Workers(workers=1), command="gmip reproduce toy <&>")
    return tmp_path
