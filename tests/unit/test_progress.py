"""The bars: on standard error, and only on a terminal."""

from __future__ import annotations

import sys

import pytest

from gmip._progress import bars


@pytest.mark.parametrize("terminal", [False, True])
def test_only_a_terminal_gets_bars(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    told: list[str] = []

    def otherwise(stage: str, /):
        told.append(stage)
        return lambda done, total: told.append(f"{done}/{total}")

    with bars(otherwise) as watch:
        progress = watch("counting")
        progress(4, 10)
        progress(10, 10)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("counting" in err and "10/10" in err) == terminal
    assert told == ([] if terminal else ["counting", "4/10", "10/10"])
