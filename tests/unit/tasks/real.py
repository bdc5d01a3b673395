"""Real data in tests: there where GMIP_DATA names them, else the test is skipped and says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gmip.tasks.data_files import DataFile

# As the session was started: the fixtures change the environment.
DATA = os.environ.get("GMIP_DATA")
CACHE = os.environ.get("GMIP_CACHE")

__all__ = ["CACHE", "DATA", "need"]


def need(monkeypatch: pytest.MonkeyPatch, *files: DataFile) -> None:
    """Set GMIP_DATA to the real folder, or skip where it does not hold the files."""
    if DATA is None:
        pytest.skip("GMIP_DATA is not set: no real data on this machine")
    missing = [file.path for file in files if not (Path(DATA) / file.path).is_file()]
    if missing:
        pytest.skip(f"GMIP_DATA = {DATA} lacks {', '.join(missing)}")
    monkeypatch.setenv("GMIP_DATA", DATA)
