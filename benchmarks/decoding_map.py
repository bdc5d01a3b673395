"""Where decoding works: the map of docs/theory/attackers.md, docs/decoding-map.csv and docs/decoding-map.svg.

    python benchmarks/decoding_map.py [--out docs] [--panel PANEL ...]    # about 10 minutes of one core
    python benchmarks/decoding_map.py --redraw                            # the picture from the CSV

Simulated runs on Gaussian gradients of norm 1 that change from step to step, N members and as many others on the list.
A batch of n is decoded as far as the n candidates that the attack thinks most likely to be in it were in it, beyond
chance; and members are found at a 1% false-alarm rate. `numbers` is d / (2 n L) and `signal` 1 / (2 s^2 L), with
L = max(log(N/n), 1) and s the noise multiplier: what `gmip account` goes by. The panel "noise" also compares with the
guarantees: differential privacy, and `account(attacker_knows=q)`.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Row, one_blas_thread, table

from gmip import NoisySGD, account
from gmip.attacks.decode import decode, from_products, from_rows
from gmip.stats.scores import tpr_at_fpr
from reproduction.figures import panels, style, to_svg
from reproduction.results import read_csv, to_csv

FPRS = (0.01, 0.1, 0.5)
RATIOS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
NOISES = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 2.0, 4.0)
SHARES = (1.0, 0.95, 0.9, 0.75, 0.5, 0.25)
Cell = dict[str, Any]


def log_ratio(size: int, batch: int) -> float:
    return max(math.log(size / batch), 1.0)


def dims_for(ratio: float, size: int, batch: int) -> int:
    return max(2, round(ratio * 2.0 * batch * log_ratio(size, batch)))


def cells() -> list[Cell]:
    found: list[Cell] = []
    for size, batch, sampling in ((100, 100, "full"), (200, 100, "fixed"), (200, 20, "fixed"), (400, 10, "fixed")):
        found += [
            {"panel": "numbers", "size": size, "batch": batch, "sampling": sampling, "steps": 1, "ratio": ratio}
            for ratio in RATIOS
        ]
    for steps, sampling in (
        (1, "fixed"),
        (5, "fixed"),
        (20, "fixed"),
        (10, "poisson"),
        (10, "shuffled"),
    ):
        found += [
            {"panel": "steps", "size": 200, "batch": 20, "sampling": sampling, "steps": steps, "ratio": ratio}
            for ratio in RATIOS[1:8]
        ]
    for steps, ratio, sampling, share in (
        (1, 4.0, "fixed", 1.0),
        (10, 4.0, "fixed", 1.0),
        (10, 1.0, "poisson", 1.0),
        (10, 1.0, "shuffled", 1.0),
        (10, 1.0, "fixed", 0.5),
        (5, 1.0, "poisson", 0.5),
    ):
        kind = {"panel": "noise", "size": 200, "batch": 20, "sampling": sampling, "steps": steps, "ratio": ratio}
        found += [{**kind, "noise": noise, "share": share} for noise in NOISES]
    for share in (1.0, 0.5):
        kind = {"panel": "noise", "size": 100, "batch": 100, "sampling": "full", "steps": 1, "ratio": 1.0}
        found += [{**kind, "noise": noise, "share": share} for noise in NOISES]
    for size, batch, steps, sampling in ((100, 100, 1, "full"), (200, 20, 10, "fixed"), (200, 20, 10, "shuffled")):
        kind = {"panel": "coverage", "size": size, "batch": batch, "sampling": sampling, "steps": steps, "ratio": 2.0}
        found += [{**kind, "share": share} for share in SHARES]
    defaults = {"noise": 0.0, "share": 1.0}
    return [defaults | cell for cell in found]


def play(cell: Cell, seed: int) -> tuple[float, np.ndarray, np.ndarray, float]:
    """How far batches were decoded, log-odds of members and others, and the coverage that was taken."""
    size, batch, steps = cell["size"], cell["batch"], cell["steps"]
    dims, noise = dims_for(cell["ratio"], size, batch), cell["noise"]
    rng = np.random.default_rng([seed, round(1000 * cell["ratio"]), round(1000 * noise), steps, size, batch])
    listed, count = round(cell["share"] * size), 2 * size
    who = np.concatenate([rng.permutation(count)[:listed], np.arange(count, count + size - listed)])
    background = 0 if cell["share"] == 1.0 else 4 * dims + 300
    epochs: list[list[int]] = []
    sums, drawn = [], []
    unit = noise if noise > 0.0 else 1.0e-5
    order = who
    for step in range(steps):
        x = rng.normal(size=(count + size + background, dims))
        x /= np.linalg.norm(x, axis=1)[:, None] * unit
        if cell["sampling"] == "shuffled":
            if step % (size // batch) == 0:
                order = rng.permutation(who)
                epochs.append([])
            epochs[-1].append(step)
            chosen = order[(step % (size // batch)) * batch :][:batch]
        elif cell["sampling"] == "poisson":
            chosen = who[rng.random(size) < batch / size]
        else:
            chosen = rng.permutation(who)[:batch]
        total = x[chosen].sum(0) + (rng.normal(size=dims) if noise > 0.0 else 0.0)
        draw = {"full": "full", "poisson": "poisson"}.get(cell["sampling"], "fixed")
        kind: Any = {"share": batch / size, "draw": draw, "noisy": noise > 0.0}
        if dims > count and not background:
            everything = np.vstack([x[:count], total])
            sums.append(from_products(everything @ everything.T, count, dims=dims, **kind))
        else:
            sums.append(from_rows(x[:count], total, x[count + size :] if background else None, **kind))
        drawn.append(chosen[chosen < count])
    found = decode(sums, dataset_size=size, epochs=epochs or None, most_sweeps=25)
    right = []
    for chances, chosen in zip(found.batches, drawn, strict=True):
        if len(chosen):
            guessed = np.argsort(-chances, kind="stable")[: len(chosen)]
            by_chance = len(chosen) / count
            right.append((np.isin(guessed, chosen).mean() - by_chance) / (1.0 - by_chance))
    inside = np.isin(np.arange(count), who)
    return float(np.mean(right)), found.log_odds[inside], found.log_odds[~inside], found.coverage


def measure(cell: Cell, seeds: int) -> Row:
    games = [play(cell, seed) for seed in range(seeds)]
    dims, batch, size = dims_for(cell["ratio"], cell["size"], cell["batch"]), cell["batch"], cell["size"]
    ours, theirs = (np.concatenate([game[part] for game in games]) for part in (1, 2))
    reach = 2.0 * log_ratio(size, batch)
    row: Row = {
        **{key: cell[key] for key in ("panel", "size", "batch", "sampling", "steps", "noise", "share")},
        "dims": dims,
        "numbers": dims / (batch * reach),
        "signal": 1.0 / (cell["noise"] ** 2 * reach) if cell["noise"] else math.inf,
        "decoded": float(np.mean([game[0] for game in games])),
        "coverage": float(np.mean([game[3] for game in games])),
        "runs": seeds,
    }
    for fpr in FPRS:
        row[f"tpr_{fpr:g}"] = float(tpr_at_fpr(ours, theirs, fpr))
    if cell["noise"]:
        run = NoisySGD(
            dataset_size=size, batch_size=batch, num_steps=cell["steps"], num_params=dims, sampling=cell["sampling"],
            clip_norm=1.0,
        ).with_noise_multiplier(cell["noise"])  # fmt: skip
        listed, private = account(run, attacker_knows=cell["share"]), account(run, notion="gdp")
        worst = -math.inf
        for fpr in FPRS:
            claimed = min(float(listed.tpr_at(fpr)), float(private.tpr_at(fpr)))
            row[f"listed_{fpr:g}"] = float(listed.tpr_at(fpr))
            row[f"gdp_{fpr:g}"] = float(private.tpr_at(fpr))
            # Of the rate itself, and of the threshold, which moves it along the guaranteed curve.
            slope = (float(listed.tpr_at(min(1.0, 1.2 * fpr))) - float(listed.tpr_at(0.8 * fpr))) / (0.4 * fpr)
            error = math.sqrt(
                max(claimed * (1.0 - claimed), 1.0 / len(ours)) / len(ours) + slope**2 * fpr * (1.0 - fpr) / len(theirs)
            )
            worst = max(worst, (row[f"tpr_{fpr:g}"] - claimed) / error)
        row["excess"] = worst
    return row


def draw(rows: list[Row]) -> str:
    titles = {
        "numbers": ("One step, no noise", "numbers", "d / (2 n L)"),
        "steps": ("Several steps, no noise", "numbers", "d / (2 n L)"),
        "noise": ("Noise", "noise", "noise multiplier"),
        "coverage": ("Part of the members listed", "share", "share of the members listed"),
    }
    with style():
        figure, axes = panels(4, width=14.0, height=4.6)
        for ax, (panel, (title, along, label)) in zip(axes, titles.items(), strict=True):
            mine = [row for row in rows if row["panel"] == panel]
            for name in dict.fromkeys(_name(row) for row in mine):
                line = [row for row in mine if _name(row) == name]
                ax.plot([row[along] for row in line], [row["decoded"] for row in line], marker="o", ms=3, label=name)
            ax.set(title=title, xlabel=label, ylabel="decoded, beyond chance", ylim=(-0.05, 1.05))
            if along != "share":
                ax.set_xscale("log")
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=7)
        return to_svg(figure)


def _name(row: Row) -> str:
    steps = "1 step" if row["steps"] == 1 else f"{row['steps']} steps"
    words = [f"N = {row['size']}, n = {row['batch']}", row["sampling"], steps]
    if row["panel"] == "noise":
        words.append(f"d / (2 n L) = {row['numbers']:.2g}")
        if row["share"] < 1.0:
            words.append("half listed")
    return ", ".join(words)


def main() -> None:
    one_blas_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs")
    parser.add_argument("--panel", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--redraw", action="store_true")
    options = parser.parse_args()
    path = options.out / "decoding-map.csv"
    rows: list[Row] = read_csv(path.read_text()) if path.exists() else []
    if not options.redraw:
        wanted = [cell for cell in cells() if options.panel is None or cell["panel"] in options.panel]
        rows = [row for row in rows if options.panel is not None and row["panel"] not in options.panel]
        for cell in wanted:
            rows.append(measure(cell, options.seeds))
            print(rows[-1], file=sys.stderr, flush=True)
            path.write_text(to_csv(_filled(rows)))
    (options.out / "decoding-map.svg").write_text(draw(rows))
    columns = {"panel": "panel|s", "size": "N|d", "batch": "n|d", "sampling": "sampling|s", "steps": "steps|d"}
    columns |= {"noise": "noise|g", "share": "listed|g", "numbers": "numbers|.2f", "decoded": "decoded|.2f"}
    columns |= {"tpr_0.01": "TPR at 1%|.3f"}
    table("Where decoding works", columns, rows)
    beyond = [row["excess"] for row in rows if isinstance(row.get("excess"), (int, float))]
    if beyond:
        print(
            f"Noisy runs: largest excess over the guarantees {max(beyond):.2f} standard errors, of {len(beyond)} cells"
        )


def _filled(rows: list[Row]) -> list[Row]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return [{key: row.get(key, "") for key in keys} for row in rows]


if __name__ == "__main__":
    main()
