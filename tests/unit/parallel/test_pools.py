"""Settings, and the pools of this machine."""

from __future__ import annotations

import pytest

from gmip.errors import InvalidArgument
from gmip.parallel import BACKENDS, Workers, pools
from gmip.parallel.worker import attempt
from tests.unit.parallel.works import Draws


def test_one_job_needs_no_processes():
    with pools.open_pool(Draws(), Workers(workers=8), 1) as pool:
        assert pool.slots == 1
        assert pool.submit(3).result() == attempt(Draws(), 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"backend": "dsk"}, "backend = 'dsk' is not known, did you mean 'dask': pass one of 'local', 'dask', 'ray'"),
        ({"backend": "dask"}, "backend = 'dask' needs scheduler_address: set it"),
        (
            {"scheduler_address": "a:1"},
            "scheduler_address = 'a:1' is not used by backend = 'local': set backend",
        ),
        ({"workers": 0}, "workers = 0 must be"),
        ({"retries": -1}, "retries = -1 must be"),
    ],
)
def test_settings_that_do_not_go_together(settings, words):
    with pytest.raises(InvalidArgument) as caught:
        Workers(**settings)
    assert str(caught.value).startswith(words)


def test_a_new_backend_is_a_line_in_the_table(monkeypatch):
    class Borrowed(pools._Here):
        def __init__(self, parcel, settings):
            super().__init__(Draws())

    monkeypatch.setitem(pools.POOLS, "borrowed", pools._Kind(__name__, "Borrowed", "possible"))
    monkeypatch.setattr(pools, "BACKENDS", (*BACKENDS, "borrowed"))
    monkeypatch.setitem(globals(), "Borrowed", Borrowed)
    with pools.open_pool(Draws(), Workers(backend="borrowed"), 5) as pool:
        assert type(pool) is Borrowed and pool.submit(3).result() == attempt(Draws(), 3)
