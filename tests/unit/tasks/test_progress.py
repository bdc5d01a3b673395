"""The progress bar: on standard error, and only on a terminal."""

from __future__ import annotations

import sys

import pytest

from gmip.tasks._progress import progress


@pytest.mark.parametrize("total", [10, None])
@pytest.mark.parametrize("terminal", [False, True])
def test_only_a_terminal_gets_a_bar(
    terminal: bool, total: int | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("counting", total) as advance:
        advance(4)
        advance(6)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("counting" in err) == terminal
