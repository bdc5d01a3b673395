from __future__ import annotations

import time

import pytest

from gmip.cli import show
from gmip.cli.shared_settings import slow_because
from gmip.vocabulary import NoisySGD


def test_quick_work_is_silent_and_slow_work_gives_its_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with show.patience("It takes long"):
        pass
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(show, "_SOON", 0.05)
    with show.patience("It takes long"):
        time.sleep(0.3)
    assert capsys.readouterr() == ("", "It takes long (0 s so far).\n")


def test_what_fails_is_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), show.patience("It takes long"):
        _ = 1 // 0
    assert capsys.readouterr() == ("", "")


def test_the_reason_names_what_is_slow() -> None:
    run = NoisySGD(dataset_size=10, batch_size=5, num_steps=1, num_params=1)
    assert slow_because(run, None) == "Still computing"
    both = slow_because(run.replace(sampling="shuffled"), "any")
    assert both == "Still computing: epochs and the worst spread of a random record can take minutes"
