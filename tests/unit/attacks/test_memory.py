from __future__ import annotations

import os

import pytest

from gmip._numbers import byte_size
from gmip.attacks import work
from gmip.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "size"),
    [("3 GiB", 3 * 2**30), ("500MB", 500_000_000), ("1.5 kib", 1536), ("17", 17), (" 2 B ", 2), (1e6, 10**6), (5, 5)],
)
def test_amounts_are_read(text, size):
    assert work.as_bytes("memory_limit", text) == size


@pytest.mark.parametrize("text", ["", "GiB", "3 XB", "-1 GiB", "3 GiB or so", 0, -5, float("nan"), float("inf")])
def test_other_amounts_are_refused(text):
    with pytest.raises(InvalidArgument, match="memory_limit"):
        work.as_bytes("memory_limit", text)


def test_half_of_what_is_free_by_default(monkeypatch):
    monkeypatch.setattr(work, "available_bytes", lambda: 1001)
    assert work.default_limit() == work.as_bytes("memory_limit", None) == 500


def test_available_is_within_what_the_machine_has():
    assert 0 < work.available_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_sources_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(work, "_CGROUP", tmp_path)
    monkeypatch.setattr(work, "_from_sysconf", lambda: None)
    assert work.available_bytes() == work._UNKNOWN
    (tmp_path / "meminfo").write_text("MemTotal:  100 kB\nMemFree: 5 kB\nMemAvailable:   50 kB\n")
    assert work.available_bytes() == 50 * 1024
    for name, text in [("max", "30000\n"), ("current", "12000\n"), ("stat", "anon 9\ninactive_file 2000\nx 1\n")]:
        (tmp_path / f"memory.{name}").write_text(text)
    assert work.available_bytes() == 20_000
    (tmp_path / "memory.max").write_text("max\n")
    assert work.available_bytes() == 50 * 1024


def test_rows_and_names():
    assert work.rows_that_fit(100, 1050, at_most=4096) == 10
    assert work.rows_that_fit(100, 10**9, at_most=4096) == 4096
    assert work.rows_that_fit(100, 1, at_most=4096) == 1
    assert [byte_size(n) for n in (12, 2048, 5.5 * 2**20, 3 * 2**30, 2**45)] == [
        "12 bytes",
        "2 KiB",
        "5.5 MiB",
        "3.0 GiB",
        "32768.0 GiB",
    ]
