from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="reproduction needs the extra gmip[reproduce]")
pytest.importorskip("matplotlib", reason="reproduction needs the extra gmip[reproduce]")

from gmip.parallel import Workers
from reproduction.computation import reproduce
from tests.reproduction import toy


@pytest.fixture
def the_toy():
    """The toy, fresh."""
    toy.calls.clear()
    toy.troubles.clear()
    toy.tasks.clear()
    return toy


@pytest.fixture
def folder(the_toy, tmp_path):
    """The results of the toy."""
    reproduce(the_toy.STUDY, [], tmp_path, workers=Workers(workers=1), command="python -m toy <&>")
    return tmp_path
