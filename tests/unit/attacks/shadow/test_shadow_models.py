from __future__ import annotations

from pathlib import Path

import pytest

from gmip.attacks.shadow import Shadows
from gmip.errors import InvalidArgument


def test_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("GMIP_CACHE", str(tmp_path))
    settings = Shadows()
    assert (settings.count, settings.seed, settings.backend, settings.retries) == (64, 0, "local", 3)
    assert settings.parent == tmp_path / "shadows"
    assert Shadows(folder="~/s").parent == Path.home() / "s"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"count": 0}, "count = 0 must be a whole number of at least 1"),
        ({"count": 2.5}, "count = 2.5"),
        ({"count": 1e12}, "is more than 99999 shadow models: pass fewer"),
        ({"seed": -1}, "seed = -1 must be a whole number from 0"),
        ({"workers": 0}, "workers = 0"),
        ({"backend": "spark"}, "backend = 'spark' is not known: pass one of 'local', 'dask', 'ray'"),
        ({"backend": "dask"}, "needs scheduler_address"),
        ({"scheduler_address": "tcp://a:1"}, "is not used by backend = 'local'"),
        ({"retries": -1}, "retries = -1"),
    ],
)
def test_bad_settings(given, complaint):
    with pytest.raises(InvalidArgument) as caught:
        Shadows(**given)
    assert complaint in str(caught.value)


def test_whole_floats_become_numbers():
    assert isinstance(Shadows(count=1e2).count, int)
    assert Shadows(retries=0).retries == 0
    assert Shadows(backend="ray").scheduler_address is None
