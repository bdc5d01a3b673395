"""Clusters that are not there; those that are there: tests/e2e/test_clusters.py."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from gmip.errors import InvalidArgument
from gmip.parallel import Workers, clusters, pools
from tests.unit.parallel.works import Draws


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_missing_package_is_one_sentence(monkeypatch, backend, module):
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(clusters, "import_module", missing)
    settings = Workers(backend=backend, scheduler_address="tcp://127.0.0.1:1")
    with (
        pytest.raises(InvalidArgument, match=rf"needs {module}, .* pip install 'gmip\[{backend}\]'"),
        pools.open_pool(Draws(), settings, 2),
    ):
        pass


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_nobody_at_the_address(backend):
    pytest.importorskip({"dask": "distributed", "ray": "ray"}[backend])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address, complaint in (
        (f"127.0.0.1:{port}", "does not answer"),
        (f"tcp://127.0.0.1:{port}", "does not answer"),
        ("no-such-host.invalid:1", "does not answer"),
        ("127.0.0.1", "is not an address"),
        ("a:b", "is not an address"),
    ):
        with (
            pytest.raises(InvalidArgument, match=rf"scheduler_address = '{address}' {complaint}"),
            pools.open_pool(Draws(), Workers(backend=backend, scheduler_address=address), 2),
        ):
            pass
