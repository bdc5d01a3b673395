"""`gmip train --canaries` and `gmip audit canaries.csv` from the outside: a sound run, one without noise, mistakes."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="training needs the extra gmip[train]")

from gmip.training import noisy_stepper
from tests.e2e.cli import assert_one_sentence

# 300 canaries and 75 controls for 650 parameters; mu is about 1.7 for a record that is added.
TRAIN = ["train", "--seed", "1", "digits", "--dataset-size", "400", "--batch-size", "100", "--steps", "60"]
NOISY = [*TRAIN, "--clip", "1", "--noise-multiplier", "1.5", "--canaries", "300"]


@pytest.fixture(autouse=True)
def coins(monkeypatch):
    """A sound run is accused with a chance of 5%: the same coins each time."""
    monkeypatch.setattr("gmip.canaries.coins.secrets.randbits", lambda bits: 7)


@pytest.fixture
def sound(run, tmp_path):
    found = run(*NOISY, "--sampling", "poisson", "--out", str(tmp_path / "a"))
    assert found.code == 0, found.err
    assert f"gmip audit {tmp_path / 'a' / 'canaries.csv'}" in found.out
    return tmp_path / "a" / "canaries.csv"


def test_a_sound_run_keeps_its_claim(run, tmp_path, sound):
    found = run("audit", str(sound), "--out", str(tmp_path / "audit"), "--json")
    assert found.code == 0, found.err
    result = json.loads(found.out)
    assert result["title"] == "Audit of 300 canaries"
    found_run = result["runs"][0]
    assert found_run["verdict"]["kind"] != "exposed"
    first = found_run["claims"][0]
    assert (first["origin"], first["adjacency"]) == ("given", "add-or-remove-one")
    assert 0.2 < found_run["attacks"][0]["mu_lower"] < 3.0  # canaries find much of what there is
    page = (tmp_path / "audit" / "report.html").read_text(encoding="utf-8")
    assert "one record is added or removed" in page
    gate = run("audit", str(sound), "--out", str(tmp_path / "gate"), "--gate", "--target", "tpr=0.101@0.1")
    assert gate.code == 1 and "canaries: Failed: at 10% false alarms at least" in gate.err


def test_noise_that_is_missing_is_found(run, tmp_path, monkeypatch):
    """The run says that it adds noise, and adds a quarter of it."""
    whole = noisy_stepper.NoisyStepper.__init__
    monkeypatch.setattr(
        noisy_stepper.NoisyStepper,
        "__init__",
        lambda *args, noise_std, **rest: whole(*args, noise_std=noise_std / 4.0, **rest),
    )
    done = run(*NOISY, "--sampling", "poisson", "--out", str(tmp_path / "b"))
    assert done.code == 0, done.err
    found = run("audit", str(tmp_path / "b" / "canaries.csv"), "--out", str(tmp_path / "audit"), "--json")
    assert json.loads(found.out)["runs"][0]["verdict"]["kind"] == "exposed"


def test_mistakes_are_one_sentence(run, tmp_path, sound):
    for request in (
        [*TRAIN, "--clip", "none", "--canaries", "300", "--out", str(tmp_path / "c")],
        [*NOISY, "--resume", "--out", str(tmp_path / "c")],
        [*TRAIN, "--clip", "1", "--canaries", "5", "--out", str(tmp_path / "c")],
        [*TRAIN, "--clip", "1", "--canaries", "3000", "--out", str(tmp_path / "c")],
        ["audit", str(tmp_path / "nowhere" / "canaries.csv")],
        ["audit", str(sound), "--attacker", "weights"],
    ):
        assert_one_sentence(run(*request))
