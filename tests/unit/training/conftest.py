from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _alone(one_thread):
    """All of these on one thread."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace"
