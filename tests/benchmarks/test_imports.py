"""Every script of benchmarks still fits the program: it is imported, as whoever runs it does first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The extra `bench` is not installed where tests run.
IMPORT_ALL = """
import importlib
from pathlib import Path
for path in sorted(Path("benchmarks").glob("*.py")):
    try:
        importlib.import_module(path.stem)
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] not in ("riskcal", "prv_accountant", "dp_accounting", "art", "sacroml"):
            raise
"""


def test_every_script_can_be_imported():
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
