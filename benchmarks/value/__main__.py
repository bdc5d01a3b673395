"""The command `python -m benchmarks.value`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.value.experiment import STUDY
from reproduction.__main__ import main

if __name__ == "__main__":
    folder = Path(__file__).parent / "results"
    sys.exit(main(settings={"value": STUDY}, program="python -m benchmarks.value", out=str(folder)))
