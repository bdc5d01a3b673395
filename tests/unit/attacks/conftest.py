from __future__ import annotations

import time

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors do not gain from threads, and lose much when another process wants the same cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def quiet_machine(monkeypatch):
    """Plans see processor time: on a busy machine a moment that was measured can look like seconds."""
    for clock in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, clock, time.process_time)
