"""SIGKILL in the middle of writing leaves a trace that can be read and resumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gmip.trace import Trace, TraceWriter
from tests.unit.trace.build import assert_steps, write_steps

# One process that forks writers and kills each at a random moment: cheaper than a new interpreter for every kill.
SCRIPT = """
import os, random, signal, sys, time
from pathlib import Path
from gmip.trace import TraceWriter, _steps
from tests.unit.trace.build import D, header, write_steps

folder, rng = Path(sys.argv[1]), random.Random(7)
_steps.SHARD_BYTES = 50 * 2 * D * 4
for number in range(8):
    child = os.fork()
    if child == 0:
        writer = TraceWriter.create(folder / str(number), header())
        while True:
            write_steps(writer, 10, every=2)
    while not (folder / str(number) / "trace.json").exists():
        time.sleep(0.001)
    time.sleep(rng.uniform(0.0, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_killed_at_any_moment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=True, timeout=60, cwd=Path(__file__).parents[3])
    counts = []
    for number in range(8):
        trace = Trace.open(tmp_path / str(number))
        assert not trace.complete
        counts.append(trace.num_steps)
        assert_steps(trace, trace.num_steps, every=2)
        with TraceWriter.resume(tmp_path / str(number)) as writer:
            assert writer.num_steps == trace.num_steps
            write_steps(writer, 60, every=2)
        whole = Trace.open(tmp_path / str(number))
        whole.verify()
        assert whole.complete
        assert_steps(whole, trace.num_steps + 60, every=2)
        assert not list((tmp_path / str(number)).glob(".*"))
    assert max(counts) > 100  # some were well under way
