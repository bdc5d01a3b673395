"""The paper's table of noise levels, all 120 values to both decimals."""

import json
from pathlib import Path

import numpy as np
import pytest

from gmip import NoisySGD, calibrate

GOLDEN = json.loads((Path(__file__).parent / "tau_table.json").read_text())


@pytest.mark.parametrize("name", GOLDEN["runs"])
@pytest.mark.parametrize("notion", ["gmip", "gdp"])
def test_reproduces_the_published_noise(name: str, notion: str) -> None:
    run = NoisySGD(**GOLDEN["runs"][name])
    published = GOLDEN["noise_std"][name][notion]
    targets = np.geomspace(0.4, 50.0, len(published))
    ours = [
        calibrate(run, target_mu=float(mu), bound="paper", composition="clt", notion=notion).noise_std for mu in targets
    ]
    assert [f"{tau:.2f}" for tau in ours] == [f"{tau:.2f}" for tau in published]
