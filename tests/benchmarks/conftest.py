from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the benchmark of value needs the extra gmip[reproduce]")
pytest.importorskip("matplotlib", reason="the benchmark of value needs the extra gmip[reproduce]")
