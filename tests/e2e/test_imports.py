"""`import gmip` is light: what it loads, and how long it takes beyond NumPy and SciPy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gmip

HEAVY = ("torch", "safetensors", "scipy.stats", "dp_accounting", "typer", "rich", "plotly")


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)


def test_import_loads_nothing_heavy():
    loaded = run_python("-c", "import gmip, sys; print('\\n'.join(sys.modules))").stdout.split()
    assert not [name for name in HEAVY if name in loaded]


@pytest.mark.parametrize("module", ["gmip.cli", "gmip.__main__"])
def test_command_line_loads_no_framework(module):
    loaded = run_python("-c", f"import {module}, sys; print('\\n'.join(sys.modules))").stdout.split()
    assert not {"torch", "opacus", "sklearn", "plotly", "scipy.stats", "dp_accounting"} & set(loaded)


def test_only_noisy_training_loads_opacus():
    pytest.importorskip("torch", reason="training needs the extra gmip[train]")
    code = "import gmip.training, gmip.pipeline.run, gmip.attacks.registry, sys; print('opacus' in sys.modules)"
    assert run_python("-c", code).stdout.split() == ["False"]


def test_import_time_beyond_numpy_and_scipy():
    """Own time of every module that `import gmip` adds to numpy and scipy, the best of three runs."""

    def own_seconds() -> float:
        code = "import numpy, scipy.fft, scipy.linalg, scipy.optimize, scipy.special\nimport gmip"
        report = run_python("-X", "importtime", "-c", code).stderr
        total, ours = 0, False
        for line in report.splitlines():
            microseconds, _, name = line.removeprefix("import time:").split("|")
            if not microseconds.strip().isdigit():
                continue
            # Modules are listed once loaded, so all after gmip's first one were loaded by it.
            ours = ours or name.strip().startswith("gmip")
            if ours and not name.strip().startswith(("numpy", "scipy")):
                total += int(microseconds)
        assert ours
        return total / 1e6

    assert min(own_seconds() for _ in range(3)) < 0.5


def test_all_is_short_sorted_and_true():
    assert sorted(gmip.__all__) == gmip.__all__
    assert len(set(gmip.__all__)) == len(gmip.__all__) <= 21
    assert all(hasattr(gmip, name) for name in gmip.__all__)
    assert set(gmip.__all__) == {
        *("NoisySGD", "account", "calibrate", "mu_per_step", "TradeOff", "Gaussian", "EpsilonDelta", "PiecewiseLinear"),
        *("ChiSquared", "GaussianPair", "spectral_step", "stochastic_composition", "compose"),
        *("Trace", "record", "train", "audit"),
        *("GmipError", "InvalidArgument", "UnreachableTarget", "__version__"),
    }


def test_version_is_a_string():
    assert isinstance(gmip.__version__, str)
    assert gmip.__version__[0].isdigit()
