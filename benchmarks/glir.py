"""GLiR beside the textbook way: speed and memory, as ratios measured in one run; how both grow; large models.

    python benchmarks/glir.py [--quick] [--json] [--folder /var/tmp] [textbook] [growth] [large] [projection]

Times are CPU seconds with BLAS and torch kept to one thread unless the environment says otherwise; memory is read from
/proc in a fresh process (Linux only). benchmarks/README.md tells how to read the tables.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _harness import BLAS_THREADS, Row, one_blas_thread, race, report, reset_peak, resident, table
from numpy.typing import NDArray
from scipy.stats import ncx2, norm, spearmanr

from gmip.attacks.glir import Play, View, glir_scores
from gmip.stats.covariance import GaussianModel
from gmip.stats.scores import auc, tpr_at_fpr

Array = NDArray[np.float64]

METHODS = ("paper", "likelihood-ratio")
PROBLEMS = [(1026, 10_000, 1_580), (2580, 10_000, 3_940)]  # parameters, background, candidates: half of them members
SMALL, LARGE = (784, 1024, 256, 10), (784, 2800, 2800, 10)  # layers of about 1e6 and 1e7 parameters
MEMBERS, BACKGROUND = 200, 1_000
LIMIT = "3 GiB"


# -- measuring --------------------------------------------------------------------------------------------------------


def measured(work: Callable[[], Any], rounds: int = 1, budget: float = 1.0) -> Row:
    """CPU seconds (the median), bytes at the worst moment over those held before, and in all.

    No further round is begun once `budget` seconds are used up.
    """
    gc.collect()
    before, times = reset_peak(), list[float]()
    while len(times) < rounds and sum(times) < budget:
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return {"seconds": median(times), "bytes": resident("VmHWM") - before, "peak": resident("VmHWM")}


def in_child(job: Callable[..., Row], **arguments: Any) -> Row:
    """What the function answers in a fresh process, in which no freed memory lies about."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__"])
    with context.Pool(1) as pool:
        return pool.apply(job, kwds=arguments)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """b of value = a * size^b, by least squares of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


# -- 1. the textbook way ----------------------------------------------------------------------------------------------


def synthetic(dims: int, background: int, candidates: int, seed: int = 0) -> View:
    """A full-batch step on gradients with variances over three decades and unequal lengths; the first half is in."""
    rng = np.random.default_rng(seed)
    scale = np.logspace(0.0, -1.5, dims)

    def some(count: int) -> Array:
        return np.asarray(rng.standard_normal((count, dims)) * scale * rng.lognormal(0.0, 0.2, (count, 1)))

    theirs, ours = some(background), some(candidates)
    n = candidates // 2
    return View(mean=ours[:n].mean(axis=0), candidates=ours, background=theirs, batch_size=n)


def textbook(view: View, method: str) -> Array:
    """The formulas as they are printed: a dense covariance, its inverse, one candidate after the other.

    "paper": -log F(n (m - theta)' S^-1 (m - theta)), F non-central chi-squared with d degrees of freedom and
    non-centrality n (theta - mu)' S^-1 (theta - mu). "likelihood-ratio": log N(m; mu + (theta - mu)/n, (n-1)/n^2 S) -
    log N(m; mu, S/n).
    """
    assert view.background is not None
    m, n, mu = view.mean, view.batch_size, view.background.mean(axis=0)
    inverse = np.linalg.inv(np.cov(view.background, rowvar=False))
    out = 0.5 * n * (m - mu) @ inverse @ (m - mu) + 0.5 * mu.size * math.log(n / (n - 1))
    scores = []
    for theta in view.candidates:
        if method == "paper":
            u, nc = n * (m - theta) @ inverse @ (m - theta), n * (theta - mu) @ inverse @ (theta - mu)
            scores.append(-ncx2.logcdf(u, mu.size, nc))
        else:
            left = m - mu - (theta - mu) / n
            scores.append(out - 0.5 * n * n / (n - 1) * left @ inverse @ left)
    return np.array(scores)


def published(view: View) -> Array:
    """What the authors' public code does for one step (github.com/tleemann/gaussian_mip), faults included, in its
    precision: `cholesky_inverse` is given the covariance in place of its Cholesky factor, the factor is n - 1, and log
    CDFs end at -200. Higher = member here, lower there."""
    import torch

    assert view.background is not None
    background, candidates, m = (torch.from_numpy(x).float() for x in (view.background, view.candidates, view.mean))
    mean = background.mean(0)
    centred = background - mean
    inverse = torch.cholesky_inverse(centred.T @ centred / len(centred))
    away, apart = m - candidates, candidates - mean
    seen = (view.batch_size - 1) * ((away @ inverse) * away).sum(1)
    centre = view.batch_size * ((apart @ inverse) * apart).sum(1)
    pairs = zip(seen.tolist(), centre.tolist(), strict=True)
    return np.array([-max(ncx2.logcdf(u, m.numel(), nc), -200.0) for u, nc in pairs])


def power(scores: Array, members: int) -> tuple[float, float]:
    """AUC and TPR at 1% FPR; the members come first."""
    return auc(scores[:members], scores[members:]), float(tpr_at_fpr(scores[:members], scores[members:], 0.01))


def singular(view: View) -> View:
    """The same with a first column that is minus the sum of the others, as in a softmax head: no inverse exists."""
    assert view.background is not None
    theirs, candidates = view.background.copy(), view.candidates.copy()
    for rows in (theirs, candidates):
        rows[:, 0] = -rows[:, 1:].sum(axis=1)
    mean = candidates[: view.batch_size].mean(axis=0)
    return View(mean=mean, candidates=candidates, background=theirs, batch_size=view.batch_size)


def ours(view: View, method: str) -> Array:
    return glir_scores([view], method=method, play=None).scores


def ours_given(view: View, method: str) -> Array:
    """With the textbook's covariance taken as known: no correction for its estimation, which the textbook lacks."""
    assert view.background is not None
    model = GaussianModel.known(view.background.mean(axis=0), np.cov(view.background, rowvar=False))
    return glir_scores([view], method=method, models=[model], play=None).scores


WAYS: dict[str, Callable[[View, str], Array]] = {"textbook": textbook, "gmip": ours}


def memory_of(way: str, method: str, sizes: Sequence[int]) -> Row:
    dims, background, candidates = sizes
    view = synthetic(dims, background, candidates)
    if way == "textbook":  # its loop holds nothing: a few candidates show its peak
        view = View(mean=view.mean, candidates=view.candidates[:20], background=view.background, batch_size=20)
    return measured(partial(WAYS[way], view, method))


def against_textbook(quick: bool, folder: Path) -> list[Row]:
    rows = []
    for sizes in PROBLEMS[: 1 if quick else None]:
        view = synthetic(*sizes)
        contestants: dict[str, Callable[[], Any]] = {
            f"{way} {method}": partial(WAYS[way], view, method) for way in WAYS for method in METHODS
        }
        contestants["published"] = partial(published, view)
        contestants["covariance"] = partial(np.cov, view.background, rowvar=False)
        dependent = singular(view)
        for method in METHODS:
            contestants[f"singular {method}"] = partial(ours, dependent, method)
            contestants[f"self-play {method}"] = partial(glir_scores, [view], method=method)
        times, scores = race(contestants, rounds=2 if quick else 5, budget=8.0)
        for method in METHODS:
            by_book, by_us = scores[f"textbook {method}"], scores[f"gmip {method}"]
            given = ours_given(view, method)
            peak = {way: in_child(memory_of, way=way, method=method, sizes=sizes)["bytes"] for way in WAYS}
            mine = times[f"gmip {method}"]
            finite = np.isfinite(by_book)
            rows.append(
                {
                    "dims": sizes[0],
                    "background": sizes[1],
                    "candidates": sizes[2],
                    "method": method,
                    "gmip_seconds": mine,
                    "textbook_seconds": times[f"textbook {method}"],
                    "times_faster": times["textbook paper"] / mine,
                    "times_faster_same": times[f"textbook {method}"] / mine,
                    "times_faster_singular": times["textbook paper"] / times[f"singular {method}"],
                    "times_faster_play": times["textbook paper"] / times[f"self-play {method}"],
                    "times_faster_covariance": times["textbook paper"] / times["covariance"],
                    "rank_correlation": float(spearmanr(by_book, by_us)[0]),
                    "difference": float(np.max(np.abs(by_book - given)[finite] / np.maximum(1.0, by_book[finite]))),
                    "published_seconds": times["published"],
                    "times_faster_published": times["published"] / mine,
                    "times_faster_published_play": times["published"] / times[f"self-play {method}"],
                    "power": power(by_us, view.batch_size),
                    "power_play": power(scores[f"self-play {method}"].scores, view.batch_size),
                    "power_textbook": power(by_book, view.batch_size),
                    "power_published": power(scores["published"], view.batch_size),
                    "scipy_infinite": int(np.count_nonzero(~finite)),
                    "gmip_bytes": peak["gmip"],
                    "textbook_bytes": peak["textbook"],
                    "memory_ratio": peak["textbook"] / peak["gmip"],
                }
            )
    return rows


# -- 2. growth --------------------------------------------------------------------------------------------------------

# What grows; sizes, from which it grows; method; self-play. In the third there are more dimensions than samples.
GROWTH: list[tuple[str, dict[str, int], str, bool]] = [
    ("dims", {"dims": 256, "background": 4096, "candidates": 1024}, "likelihood-ratio", False),
    ("dims", {"dims": 256, "background": 4096, "candidates": 1024}, "likelihood-ratio", True),
    ("dims", {"dims": 2048, "background": 512, "candidates": 256}, "likelihood-ratio", False),
    ("background", {"dims": 512, "background": 2048, "candidates": 1024}, "likelihood-ratio", False),
    ("background", {"dims": 512, "background": 2048, "candidates": 1024}, "likelihood-ratio", True),
    ("candidates", {"dims": 512, "background": 2048, "candidates": 1024}, "likelihood-ratio", False),
    ("steps", {"dims": 512, "background": 2048, "candidates": 1024, "steps": 1}, "likelihood-ratio", False),
    ("steps", {"dims": 512, "background": 2048, "candidates": 1024, "steps": 1}, "likelihood-ratio", True),
    ("steps", {"dims": 256, "background": 4096, "candidates": 1024, "steps": 1}, "joint", False),
]


def growth_of(
    *, dims: int, background: int, candidates: int, steps: int = 1, method: str = "likelihood-ratio", play: bool = False
) -> Row:
    views = [synthetic(dims, background, candidates, seed) for seed in range(steps)]
    return measured(partial(glir_scores, views, method=method, play=Play() if play else None), rounds=3)


def growth(quick: bool, folder: Path) -> list[Row]:
    rows = []
    factors = (1, 2, 4) if quick else (1, 2, 4, 8)
    for what, sizes, method, play in GROWTH:
        grown = [{**sizes, what: sizes[what] * factor} for factor in factors]
        found = [in_child(growth_of, **now, method=method, play=play) for now in grown]
        seconds, peaks = [row["seconds"] for row in found], [row["bytes"] for row in found]
        fixed = ", ".join(f"{name} {size:,}" for name, size in sizes.items() if name != what)
        rows.append(
            {
                "what": what,
                "from": sizes[what],
                "to": sizes[what] * factors[-1],
                "fixed": fixed,
                "method": method + (", self-play" if play else ""),
                "seconds": seconds,
                "bytes": peaks,
                "seconds_last": seconds[-1],
                "bytes_last": peaks[-1],
                "time_exponent": exponent(factors, seconds),
                "memory_exponent": exponent(factors, peaks),
            }
        )
    return rows


# -- 3. and 4. recorded runs of large models --------------------------------------------------------------------------


def large_task(widths: Sequence[int], steps: int) -> Any:
    """An MLP for ten classes of random records, 200 members, 200 non-members and 1,000 others; full batches, Adam."""
    import torch
    from torch import nn

    from gmip.tasks import Examples, Task
    from gmip.vocabulary import Recipe

    def model() -> nn.Module:
        layers: list[nn.Module] = []
        for inner, outer in pairwise(widths):
            layers += [nn.Linear(inner, outer), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    generator = torch.Generator().manual_seed(1)
    centres = 0.15 * torch.randn(widths[-1], widths[0], generator=generator)

    def some(count: int) -> Examples:
        targets = torch.randint(0, widths[-1], (count,), generator=generator)
        noise = 0.5 * torch.logspace(0.0, -1.0, widths[0]) * torch.randn(count, widths[0], generator=generator)
        return Examples(centres[targets] + noise, targets)

    recipe = Recipe(
        dataset_size=MEMBERS,
        batch_size=MEMBERS,
        num_steps=steps,
        learning_rate=1.0e-3,
        optimizer="Adam",
        sampling="full",
    )
    return Task(name="mlp", make_model=model, pool=some(2 * MEMBERS + BACKGROUND), test=some(100), recipe=recipe)


def recorded(*, widths: Sequence[int], steps: int, folder: str) -> Row:
    """Train and record; answers how many parameters there are."""
    from gmip.training import train

    return {"params": train(large_task(widths, steps), seed=0, out=folder).num_params}


def attacked(*, widths: Sequence[int], steps: int, folder: str, projection: int | None = None) -> Row:
    """GLiR with self-play on the recorded run."""
    import torch

    from gmip.attacks import GLiR
    from gmip.stats.scores import auc
    from gmip.trace import Trace

    torch.ones(8, 8, dtype=torch.float64) @ torch.ones(8, 8, dtype=torch.float64)  # loads what torch loads late
    task, trace, found = large_task(widths, steps), Trace.open(folder), []
    used = measured(lambda: found.append(GLiR(memory_limit=LIMIT, projection=projection).run(task, trace)))
    scores = found[0]
    assert trace.members is not None
    inside = np.isin(scores.ids, trace.members)
    return {
        **used,
        "scores": scores.scores.tolist(),
        "auc": auc(scores.scores[inside], scores.scores[~inside]),
        "predicted": scores.prediction.auc,
        "rank": scores.facts["rank"],
    }


def large_model(quick: bool, folder: Path) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="gmip-bench-", dir=folder) as out:
        run = {"widths": LARGE, "steps": 3, "folder": str(Path(out) / "trace")}
        params = in_child(recorded, **run)["params"]
        found = in_child(attacked, **run)
    return [
        {
            "params": params,
            "steps": 3,
            "background": BACKGROUND,
            "candidates": 2 * MEMBERS,
            "gradients_bytes": 8 * 3 * params * (BACKGROUND + 2 * MEMBERS),
            "limit": 3 * 2**30,
            "share": found["peak"] / (3 * 2**30),
            **{key: found[key] for key in ("peak", "seconds", "auc", "predicted")},
        }
    ]


def projection(quick: bool, folder: Path) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="gmip-bench-", dir=folder) as out:
        run = {"widths": SMALL, "steps": 1, "folder": str(Path(out) / "trace")}
        params = in_child(recorded, **run)["params"]
        exact = in_child(attacked, **run)
        rows = []
        for dims in (2048,) if quick else (512, 2048, 8192):
            found = in_child(attacked, **run, projection=dims)
            rows.append(
                {
                    "params": params,
                    "dims": dims,
                    "rank_correlation": float(spearmanr(exact["scores"], found["scores"])[0]),
                    "auc": found["auc"],
                    "predicted": found["predicted"],
                    "exact_auc": exact["auc"],
                    "most_auc": float(norm.cdf(math.sqrt(dims / MEMBERS / 2.0))),
                    "time_ratio": found["seconds"] / exact["seconds"],
                    "memory_ratio": found["bytes"] / exact["bytes"],
                    "bytes": found["bytes"],
                    "exact_bytes": exact["bytes"],
                }
            )
    return rows


# -- showing ----------------------------------------------------------------------------------------------------------


def show_textbook(results: Row) -> None:
    table(
        "1. One step against the textbook's paper score, SciPy's ncx2 in a loop (aim: 10 times faster)",
        {
            "dims": "d|d",
            "background": "background|,d",
            "candidates": "candidates|,d",
            "method": "gmip's method|s",
            "gmip_seconds": "gmip s|.2f",
            "times_faster": "times faster|.1f",
            "times_faster_covariance": "np.cov alone|.1f",
            "times_faster_singular": "if singular|.1f",
            "times_faster_play": "with self-play|.1f",
            "times_faster_same": "than its own textbook|.1f",
            "rank_correlation": "rank correlation|.6f",
            "difference": "largest difference|.0e",
            "scipy_infinite": "SciPy infinite|d",
            "gmip_bytes": "gmip bytes|,d",
            "textbook_bytes": "textbook bytes|,d",
            "memory_ratio": "times less|.2f",
        },
        results["against_textbook"],
    )
    table(
        "Beside the authors' published code and the textbook, on the same arrays: AUC, and TPR at 1%",
        {
            "dims": "d|d",
            "method": "gmip's method|s",
            "published_seconds": "published s|.2f",
            "times_faster_published": "times faster|.1f",
            "times_faster_published_play": "with self-play|.1f",
            "power": "gmip|s",
            "power_play": "with self-play|s",
            "power_textbook": "its textbook|s",
            "power_published": "published|s",
        },
        [
            {key: "{:.3f}, {:.1%}".format(*value) if key.startswith("power") else value for key, value in row.items()}
            for row in results["against_textbook"]
        ],
    )


def show_growth(results: Row) -> None:
    table(
        "2. Growth of time and of memory beyond the gradients: exponents of what grows",
        {
            "what": "grows|s",
            "from": "from|,d",
            "to": "to|,d",
            "fixed": "fixed|s",
            "method": "method|s",
            "time_exponent": "time|.2f",
            "memory_exponent": "memory|.2f",
            "seconds_last": "s at the end|.2f",
            "bytes_last": "bytes at the end|,d",
        },
        results["growth"],
    )


def show_large(results: Row) -> None:
    table(
        f"3. A large model, whole attack with self-play, memory_limit = {LIMIT!r}",
        {
            "params": "parameters|,d",
            "steps": "steps|d",
            "background": "background|,d",
            "candidates": "candidates|,d",
            "gradients_bytes": "all gradients|,d",
            "peak": "peak of the process|,d",
            "share": "of the limit|.2f",
            "seconds": "s|.1f",
            "auc": "AUC|.3f",
            "predicted": "predicted|.3f",
        },
        results["large_model"],
    )


def show_projection(results: Row) -> None:
    table(
        "4. Random projection against all parameters (Gram route), one step",
        {
            "params": "parameters|,d",
            "dims": "projected to|d",
            "rank_correlation": "rank correlation|.3f",
            "auc": "AUC|.3f",
            "predicted": "predicted|.3f",
            "exact_auc": "AUC with all|.3f",
            "most_auc": "most that k allows|.3f",
            "time_ratio": "time ratio|.1f",
            "memory_ratio": "memory ratio|.1f",
        },
        results["projection"],
    )


PARTS = {
    "textbook": (against_textbook, show_textbook),
    "growth": (growth, show_growth),
    "large": (large_model, show_large),
    "projection": (projection, show_projection),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="GLiR beside the textbook way, as ratios.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default all)")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer problems")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where traces of 250 MB go")
    options = parser.parse_args(arguments)
    if not set(options.parts) <= set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}")
    if not sys.platform.startswith("linux"):
        sys.exit("This benchmark reads memory from /proc: run it on Linux.")
    chosen = [PARTS[name] for name in options.parts or PARTS]

    def show(results: Row) -> None:
        for _, show_part in chosen:
            show_part(results)

    report(
        [partial(part, options.quick, options.folder) for part, _ in chosen],
        show,
        packages=("numpy", "scipy", "torch"),
        setting={"threads": os.environ.get(BLAS_THREADS[0]), "cores": os.cpu_count()},
        as_json=options.json,
    )


if __name__ == "__main__":
    one_blas_thread()
    main()
