"""What the benchmarks share: taking turns, memory from /proc, one BLAS thread, running parts and printing tables."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["BLAS_THREADS", "Row", "one_blas_thread", "race", "report", "reset_peak", "resident", "table", "written"]

sys.path.append(str(Path(__file__).parents[1]))  # `python benchmarks/NAME.py` may import `reproduction`
Row = dict[str, Any]
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def one_blas_thread() -> None:
    """Start this script again with BLAS on one thread, unless the environment says how many: BLAS reads it once."""
    if BLAS_THREADS[0] not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **dict.fromkeys(BLAS_THREADS, "1")})


def race(contestants: Mapping[str, Callable[[], Any]], rounds: int, budget: float) -> tuple[dict[str, float], Row]:
    """Median CPU seconds of each, taking turns, and its answer; who has used up `budget` seconds sits out."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    answers: Row = {}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            if sum(times[name]) < budget:
                start = time.process_time()
                answers[name] = contestant()
                times[name].append(time.process_time() - start)
    return {name: median(values) for name, values in times.items()}, answers


def resident(name: str) -> int:
    """A field of /proc/self/status in bytes: VmRSS is what is in memory now, VmHWM the most there has been."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def reset_peak() -> int:
    """Set VmHWM back to VmRSS, which is returned."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident("VmRSS")


def written(text: str, script: str, found: Mapping[str, str]) -> str:
    """A page with the tables between its comments `<!-- SCRIPT: NAME -->` and `<!-- end -->`, those that it has."""
    for name, table in found.items():
        begin, end = f"<!-- {script}: {name} -->\n", "<!-- end -->"
        if begin in text:
            head, rest = text.split(begin, 1)
            text = head + begin + table + end + rest.split(end, 1)[1]
    return text


def report(
    parts: Iterable[Callable[[], list[Row]]],
    show: Callable[[Row], None],
    *,
    packages: Iterable[str],
    setting: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Run the parts and print their rows, as tables or as one JSON object with the part's name as key.

    packages : those whose versions are told beside Python's and `setting`.
    """
    start = time.perf_counter()
    versions = {name: version(name) for name in packages}
    results: Row = {"setting": {"python": platform.python_version(), **versions, **setting}}
    for part in parts:
        function = getattr(part, "func", part)
        results[function.__name__] = part()
    results["seconds"] = time.perf_counter() - start
    if as_json:
        print(json.dumps(results))
        return
    print(", ".join(f"{key} {value}" for key, value in results["setting"].items()))
    show(results)
    print(f"\n{results['seconds']:.0f} seconds")


def table(title: str, columns: dict[str, str], rows: Sequence[Row]) -> None:
    """columns : key -> heading|format"""
    print(f"\n{title}")
    heads = [heading.split("|")[0] for heading in columns.values()]
    cells = [[format(row[key], heading.split("|")[1]) for key, heading in columns.items()] for row in rows]
    widths = [max(len(line[i]) for line in [heads, *cells]) for i in range(len(heads))]
    for line in [heads, ["-" * width for width in widths], *cells]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
