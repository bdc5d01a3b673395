"""Settings for the whole test suite.

Property tests draw fresh examples on a developer's machine and the same ones every time in CI (where `CI` is set), so
that a red build can be repeated. Long tests carry `@pytest.mark.slow`; they run by default and are left out with
`-m "not slow"`.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No deadline: the machines are shared, and a slow example is no wrong one.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="module")
def one_thread():
    """torch on one thread: sums in one order, and no more threads than the two workers of a build have cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
