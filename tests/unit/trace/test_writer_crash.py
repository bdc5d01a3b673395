"""SIGKILL in the middle of writing leaves a trace that can be read and resumed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gmip.trace import Trace, TraceWriter
from tests.unit.trace.build import assert_steps, write_steps

KILLS = 24

# One process that forks writers and kills each at a random moment: cheaper than a new interpreter for every kill. In
# turn they write at once, in the background, and large rows in the background and around the cache of files. A writer
# counts its commits in shared memory, which outlives it.
SCRIPT = """
import mmap, os, random, signal, sys, time
from pathlib import Path
from gmip.trace import ParameterSpec, TraceWriter, _shards
from gmip.trace import writer as writing
from tests.unit.trace.build import D, header, write_steps

folder, kills, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(7)
_shards.SHARD_BYTES = 50 * 2 * D * 4
for number in range(kills):
    committed = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        writing.SYNC_SECONDS = 0.01
        if number % 3 < 2:
            writing.BACKGROUND_BYTES = 0 if number % 3 else 10**9
            writer = TraceWriter.create(folder / str(number), header())
        else:
            _shards.SHARD_BYTES = 2**20
            large = {"parameters": (ParameterSpec("w", (33_001,)),), "num_params": 33_001}
            writer = TraceWriter.create(folder / str(number), header(**large))
        while True:
            if number % 3 < 2:
                write_steps(writer, 1, every=2)
            else:
                for vector in writer.row():
                    vector[:] = writer.num_steps
                writer.commit(batch_size=1)
            committed[:] = writer.num_steps.to_bytes(8, "little")
    while not (folder / str(number) / "trace.json").exists():
        time.sleep(0.001)
    time.sleep(rng.uniform(0.0, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(int.from_bytes(committed[:], "little"))
"""


def test_killed_at_any_moment(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), str(KILLS)]
    killed = subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE)
    committed = [int(line) for line in killed.stdout.split()]
    for number in range(KILLS):
        trace = Trace.open(tmp_path / str(number))
        assert not trace.complete
        # Of the steps whose commit had come back at most the last is lost; one more may be there, unseen by the count.
        assert committed[number] - 1 <= trace.num_steps <= committed[number] + 1
        if number % 3 == 0:  # written at once
            assert trace.num_steps >= committed[number]
        if number % 3 == 2:
            assert all((step.parameters == i).all() and (step.gradient == i).all() for i, step in enumerate(trace))
            TraceWriter.resume(tmp_path / str(number)).close()
            Trace.open(tmp_path / str(number)).verify()
            continue
        assert_steps(trace, trace.num_steps, every=2)
        with TraceWriter.resume(tmp_path / str(number)) as writer:
            assert writer.num_steps == trace.num_steps
            write_steps(writer, 60, every=2)
        whole = Trace.open(tmp_path / str(number))
        whole.verify()
        assert whole.complete
        assert_steps(whole, trace.num_steps + 60, every=2)
        assert not list((tmp_path / str(number)).glob(".*"))
    assert len(committed) == KILLS and sum(count > 5 for count in committed) > KILLS // 2  # most were well under way
