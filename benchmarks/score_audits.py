"""Audits of scores at scale: do they accuse noise, do bounds hold for the strongest of five attacks, and how long do
two million scores take?

    python benchmarks/score_audits.py nulls 1000      # files of noise: ties, constants, heavy tails, 10 against 1,000
    python benchmarks/score_audits.py five 1000       # five attacks on one run, mu = 0 and 0.5
    python benchmarks/score_audits.py five 250 750    # the last 250 of them
    python benchmarks/score_audits.py million         # 1e6 + 1e6 scores in a CSV, against reading it alone

The last one prints ratios, because absolute times mean little on a shared machine, and peak memory.
"""

from __future__ import annotations

import contextlib
import csv
import io
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.stats import norm

import gmip
from gmip.cli import main as command_line
from gmip.report import read_result


def noise(rng: np.random.Generator, kind: str) -> tuple[np.ndarray, np.ndarray]:
    draws = {
        "ties": lambda n: rng.integers(0, 4, n).astype(float),
        "constant": lambda n: np.ones(n),
        "heavy tails": lambda n: rng.standard_cauchy(n),
    }
    draw = draws.get(kind, lambda n: rng.normal(size=n))
    ins, outs = (10, 1000) if kind == "10 against 1,000" else (100, 100)
    return draw(ins), draw(outs)


def nulls(count: int, first: int = 0) -> None:
    """Through files and the command line, as users do; claims of mu = 0, which noise keeps."""
    kinds = ("normal", "ties", "constant", "heavy tails", "10 against 1,000")
    accused, gates = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
    tried = dict.fromkeys(kinds, 0)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "scores.csv", Path(folder) / "out"
        for i in range(first, first + count):
            kind = kinds[i % len(kinds)]
            ins, outs = noise(np.random.default_rng([i, 11]), kind)
            rows = [*((1, x) for x in ins.tolist()), *((0, x) for x in outs.tolist())]
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([("member", "score"), *rows])
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                limit = ["--claim", "epsilon=0@0", "--gate", "--target", "tpr=0.0101@0.01"]
                code = command_line(["audit", str(path), "--out", str(out), "--seed", str(i), *limit])
            assert code in (0, 1)
            run = read_result(out).runs[0]
            tried[kind] += 1
            accused[kind] += run.verdict.kind == "exposed" or run.attacks[0].mu_lower > 0.0
            gates[kind] += code
    for kind in kinds:
        print(f"{kind:18} {tried[kind]:5} files, accused {accused[kind]:3}, failed gates {gates[kind]:3}")
    print(f"{'all':18} {count:5} files, accused {sum(accused.values())} ({sum(accused.values()) / count:.1%})", end="")
    print(f", failed gates {sum(gates.values())} ({sum(gates.values()) / count:.1%})")


def five(count: int, first: int = 0) -> None:
    """The largest bound of five attacks against the truth, the verdict on a claim that holds, and its gate."""
    for mu in (0.0, 0.5):
        tpr = float(norm.sf(norm.isf(0.01) - mu))
        over = epsilons = exposed = gates = probable = 0
        curve = gmip.Gaussian(mu)
        epsilon = curve.epsilon(1.0e-5) if mu else 0.0
        for i in range(first, first + count):
            rng = np.random.default_rng([i, 7])
            ins, outs = ({f"a{k}": rng.normal(shift, 1.0, 80) for k in range(5)} for shift in (mu, 0.0))
            run = gmip.audit(gmip.Scores(ins, outs), claim=mu, target=(tpr, 0.01), gate=True, seed=i).runs[0]
            over += max(one.mu_lower for one in run.attacks) > mu
            epsilons += max(one.epsilon_lower for one in run.attacks) > epsilon
            exposed += run.verdict.kind == "exposed"
            gates += run.gate is not None and run.gate.tpr_lower > run.gate.limit
            probable += run.gate is not None and run.gate.probable
        print(
            f"mu = {mu}: of {count} audits with five attacks, mu bound too high {over} ({over / count:.1%}), epsilon "
            f"bound {epsilons} ({epsilons / count:.1%}), accused {exposed} ({exposed / count:.1%}), failed gates "
            f"{gates} beyond chance ({gates / count:.1%}) and {probable} at the limit that probably fail"
        )


def million() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.csv"
        rng = np.random.default_rng(0)
        scores = np.concatenate([rng.normal(0.5, 1.0, 1_000_000), rng.normal(0.0, 1.0, 1_000_000)])
        with path.open("w", newline="") as file:
            file.write("id,member,score\n")
            file.writelines(f"{i},{int(i < 1_000_000)},{score!r}\n" for i, score in enumerate(scores.tolist()))
        start = time.process_time()
        with path.open(newline="") as file:
            total = sum(float(row[2]) for row in csv.reader(file) if row[2] != "score")
        textbook = time.process_time() - start
        assert np.isfinite(total)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall = time.perf_counter()
        command = [sys.executable, "-m", "gmip", "audit", str(path), "--claim", "mu=1", "--out", f"{folder}/out"]
        subprocess.run(command, check=True, capture_output=True)
        wall = time.perf_counter() - wall
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        print(f"csv module alone: {textbook:.1f} CPU s; gmip audit: {seconds:.1f} CPU s, {wall:.1f} s of wall")
        print(f"ratio to reading the file: {seconds / textbook:.1f}; peak memory {used.ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["million"]
    if what == "million":
        million()
    else:
        {"nulls": nulls, "five": five}[what](*(int(number) for number in rest or ["1000"]))
