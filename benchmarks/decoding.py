"""What decoding costs: CPU time and memory for growing numbers of candidates and parameters.

    python benchmarks/decoding.py [SIZE ...]

`decode` on one published full-batch gradient and `optimum-decode` on the released weights of the same kind of model at
an optimum, every second candidate a member, memory_limit = 3 GiB; each in a process of its own, of which the peak of
the resident memory is told. Linux. SIZE: candidates x inputs, such as 10000x120. What decoding finds on real runs:
benchmarks/attacks.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import torch
from _harness import Row, one_blas_thread, resident, table
from torch import nn

from gmip.attacks import Attack, Decode, OptimumDecode
from gmip.errors import GmipWarning
from gmip.stats.scores import auc
from gmip.tasks import Examples, Task
from gmip.trace import Trace
from gmip.training import train
from gmip.vocabulary import Recipe

LIMIT = "3 GiB"
ATTACKS: dict[str, Attack] = {
    "decode": Decode(memory_limit=LIMIT, steps=(0,)),
    "optimum-decode": OptimumDecode(memory_limit=LIMIT),
}
SIZES = ("2500x120", "5000x120", "10000x120", "2500x1920")


def wide(inputs: int, members: int) -> Task:
    """100 (inputs + 1) parameters, 20,000 Gaussian records; a dozen steps, each to where the last gradient cancels the
    penalty, are an optimum up to rounding."""
    generator = torch.Generator().manual_seed(0)
    data = Examples(torch.randn(20_100, inputs, generator=generator), torch.arange(20_100) % 100)
    steps = Recipe(dataset_size=members, batch_size=members, num_steps=12, learning_rate=1.0, sampling="full")
    return Task(
        name="wide",
        make_model=lambda: nn.Linear(inputs, 100),
        pool=data[range(20_000)],
        test=data[range(20_000, 20_100)],
        recipe=steps.replace(clip_norm=None, optimizer="SGD", optimizer_options={"weight_decay": 1.0}),
    )


def one_size(name: str, candidates: int, inputs: int) -> Row:
    task = wide(inputs, candidates // 2)
    with tempfile.TemporaryDirectory() as folder:
        train(task, seed=0, out=folder)
        trace = Trace.open(folder)
        before, start = resident("VmHWM"), time.process_time()
        with warnings.catch_warnings(action="ignore", category=GmipWarning):
            found = ATTACKS[name].run(task, trace)
        seconds = time.process_time() - start
        inside = np.isin(found.ids, trace.members)
        return {
            "attack": name,
            "candidates": len(found.ids),
            "parameters": 100 * (inputs + 1),
            "seconds": seconds,
            "before": before / 2**30,
            "peak": resident("VmHWM") / 2**30,
            "auc": auc(found.scores[inside], found.scores[~inside]),
            "decided": float(found.facts["decoded"]),
        }


def main() -> None:
    one_blas_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", metavar="SIZE", help=f"default: {' '.join(SIZES)}")
    parser.add_argument("--attack", choices=list(ATTACKS), help="this one alone")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one:
        name, candidates, inputs = options.one
        print(json.dumps(one_size(name, int(candidates), int(inputs))))
        return
    rows: list[Row] = []
    for size in options.sizes or SIZES:
        for name in [options.attack] if options.attack else ATTACKS:
            script = [sys.executable, __file__, "--one", name, *size.split("x")]
            rows.append(json.loads(subprocess.run(script, check=True, capture_output=True, text=True).stdout))
            print(rows[-1], file=sys.stderr, flush=True)
    columns = {"attack": "attack|s", "candidates": "candidates|,d", "parameters": "parameters|,d"}
    columns |= {"seconds": "CPU s|.1f", "before": "GiB before|.2f", "peak": "peak GiB|.2f", "auc": "AUC|.3f"}
    columns["decided"] = "decided|.1%"
    table("Every second candidate a member", columns, rows)


if __name__ == "__main__":
    main()
