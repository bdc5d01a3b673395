"""Table of tau: the noise that each level of mu takes, as published, recomputed, and by tighter accounting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gmip.accounting.account import account
from gmip.accounting.calibrate import calibrate
from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from reproduction import figures
from reproduction.experiment import Cell, Claim, Drawing, Experiment, Row, judged
from reproduction.paper import ACCOUNTINGS, NOISE, TARGET_MUS, UTILITY, UTILITY_SIZES, free_from

TITLE: Final = "Noise for a level of privacy"

_PUBLISHED: Final = {"gdp": "gdp", "gmip-paper": "gmip"}  # our accounting -> row of the paper's table


@dataclass(frozen=True, kw_only=True)
class Level(Cell):
    """One column of the table, for one data set. No data are needed: `setting` names its sizes only."""

    setting: str
    level: int


def cells(quick: bool) -> list[Level]:
    return [Level(setting=name, level=i) for name in UTILITY for i in range(len(TARGET_MUS))]


def run(cell: Level) -> list[Row]:
    mu, plan = TARGET_MUS[cell.level], UTILITY[cell.setting].run
    row: Row = {"setting": cell.setting, "mu": mu}
    for key, notion in _PUBLISHED.items():
        row[f"{key}_published"] = NOISE[cell.setting][notion][cell.level]
    for key, accounting in ACCOUNTINGS.items():
        row[key] = calibrate(plan, target_mu=mu, **accounting.keywords).noise_std
        if accounting.keywords.get("notion") != "gdp":
            row[f"{key}_no_noise_from"] = free_from(plan, key)
    row["gmip-tight-clt"] = calibrate(plan, target_mu=mu, composition="clt").noise_std
    # What the published noise is worth, exactly: the mu of a run that uses it.
    noisy = plan.replace(noise_std=NOISE[cell.setting]["gdp"][cell.level])
    row["mu_of_published_gdp"] = account(noisy, notion="gdp").equivalent_mu()
    return [row]


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    figure, panels = figures.panels(len(UTILITY), width=9.6, height=3.6)
    for axes, (name, setting) in zip(panels, UTILITY.items(), strict=True):
        mine = [row for row in rows if row["setting"] == name]
        mu = [row["mu"] for row in mine]
        for key, accounting in ACCOUNTINGS.items():
            axes.plot(*_line(mine, key), **accounting.plot_style, markersize=0, label=accounting.title)
            if key in _PUBLISHED:
                axes.plot(
                    mu,
                    [row[f"{key}_published"] for row in mine],
                    linestyle="none",
                    marker=accounting.plot_style["marker"],
                    color=accounting.plot_style["color"],
                    markerfacecolor="none",
                    clip_on=False,
                    label=f"{accounting.short}, published",
                )
        axes.set(xscale="log", xlabel="Level of privacy μ", title=setting.title, ylim=(0.0, None))
        axes.set_xticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"], minor=False)
        axes.minorticks_off()
    panels[0].set_ylabel("Noise τ on the batch mean")
    figure.legend(handles=panels[0].get_lines(), loc="outside lower center", ncols=3)
    alt = (
        "Noise against mu for three data sets: GDP takes the most, GMIP with the tight bound the least; see the table."
    )
    return [Drawing("", figure, f"{TITLE}. {alt}"), beside(rows)]


def beside(rows: Sequence[Row]) -> Drawing:
    """The published table above, the same levels by the paper's accounting below, on the same axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    grid = figure.subplots(2, len(UTILITY), sharex=True, sharey=True)
    for across, (name, setting) in enumerate(UTILITY.items()):
        mine = [row for row in rows if row["setting"] == name]
        for axes, suffix in zip(grid[:, across], ("_published", ""), strict=True):
            for key in _PUBLISHED:
                values = [row[f"{key}{suffix}"] for row in mine]
                short = ACCOUNTINGS[key].short.partition(" ")[0]
                axes.plot([row["mu"] for row in mine], values, **ACCOUNTINGS[key].plot_style, label=short)
            axes.set(xscale="log")
            axes.set_xticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"], minor=False)
            axes.minorticks_off()
        grid[0][across].set_title(setting.title)
        grid[1][across].set_xlabel("Level of privacy μ")
    for axes, title in zip(grid[:, 0], ("As published", "Computed here"), strict=True):
        axes.set_ylabel(f"{title}\nNoise τ on the batch mean")
    grid[0][0].set_ylim(bottom=0.0)  # of all panels, so not before they are drawn: it ends their scaling
    figure.legend(handles=grid[0][0].get_lines(), loc="outside lower center", ncols=2)
    return Drawing("beside", figure, f"{TITLE}: the paper's table above, ours below, on the same axes.")


def _line(rows: Sequence[Row], key: str) -> tuple[list[float], list[float]]:
    """Noise against mu, with the place from which there is none: a jump by the paper's accounting, a bend by ours."""
    mu, noise = [row["mu"] for row in rows], [row[key] for row in rows]
    start = rows[0].get(f"{key}_no_noise_from")
    if start is None:
        return mu, noise
    before = sum(value < start for value in mu)
    last = float(np.interp(np.log(start), np.log(mu), [row["gdp"] for row in rows])) if key == "gmip-paper" else 0.0
    return [*mu[:before], start, start, *mu[before:]], [*noise[:before], last, 0.0, *noise[before:]]


def table(rows: Sequence[Row]) -> Table:
    columns = ["Data set", "μ", "GDP, published", "GMIP, published"]
    columns += [accounting.short for accounting in ACCOUNTINGS.values()] + [
        "GMIP (tight, CLT)",
        "μ of the published GDP",
    ]
    keys = ["gdp_published", "gmip-paper_published", *ACCOUNTINGS, "gmip-tight-clt", "mu_of_published_gdp"]
    body = []
    for row in rows:
        head = [UTILITY[str(row["setting"])].title, f"{row['mu']:.2f}"]
        body.append(tuple(map(TableCell, [*head, *(f"{row[key]:.2f}" for key in keys)])))
    caption = (
        "τ, the standard deviation of the noise on the batch mean; the last column is the exact μ of GDP with the "
    )
    return Table(caption + "published τ", tuple(columns), tuple(body))


def claims(rows: Sequence[Row]) -> list[Claim]:
    found = [_recomputed(rows)]
    for name, setting in UTILITY.items():
        first = TARGET_MUS[NOISE[name]["gmip"].index(0.0)]
        row = next(row for row in rows if row["setting"] == name)
        paper, tight = (row[f"{key}_no_noise_from"] for key in ("gmip-paper", "gmip-tight"))
        level = min(mu for mu in TARGET_MUS if mu >= paper)
        found.append(
            Claim(
                what=f"{setting.title}: no noise needed from",
                published=f"μ = {first:.2f} (the first such level)",
                measured=f"μ = {paper:.3f} by the accounting of the paper (level {level:.2f}); {tight:.3f} by the "
                "tight bound and exact composition",
                verdict=judged(agrees=level == first, differs=_apart(level, first) == 1),
                words="" if level == first else f"Levels apart: {_apart(level, first)}.",
            )
        )
    return [*found, _never_more(rows), _saving(rows), _optimism(rows)]


def _apart(a: float, b: float) -> int:
    """How many levels lie between two of them."""
    return abs(TARGET_MUS.index(a) - TARGET_MUS.index(b))


def _recomputed(rows: Sequence[Row]) -> Claim:
    pairs = [(row[key], row[f"{key}_published"]) for row in rows for key in _PUBLISHED]
    same = sum(f"{ours:.2f}" == f"{theirs:.2f}" for ours, theirs in pairs)
    return Claim(
        what="The values of the table",
        published=f"{len(pairs)} values",
        measured=f"{same} of {len(pairs)} recomputed to both decimals",
        verdict=judged(agrees=same == len(pairs), differs=same >= 0.9 * len(pairs)),
        words="K = d and steps = N/n times epochs, with the formulas of the paper.",
    )


def _never_more(rows: Sequence[Row]) -> Claim:
    pairs = [("gmip-paper", "gdp"), ("gmip-tight", "gdp-exact"), ("gmip-tight", "gmip-paper")]
    kept = [sum(row[a] <= row[b] * (1.0 + 1.0e-5) for row in rows) for a, b in pairs]
    return Claim(
        what="GMIP never takes more noise than GDP",
        published="by construction (the smaller of the two)",
        measured=f"{kept[0]} of {len(rows)} levels by the accounting of the paper, {kept[1]} by exact accounting of "
        f"both; the tight bound takes no more than that of the paper at {kept[2]}",
        verdict=judged(agrees=kept[0] == len(rows), differs=kept[0] >= 0.9 * len(rows)),
    )


def _saving(rows: Sequence[Row]) -> Claim:
    partly = [row for row in rows if row["gmip-paper"] > 0.0]
    freed = sum(row["gmip-tight"] == 0.0 for row in partly)
    less = [1.0 - row["gmip-tight"] / row["gmip-paper"] for row in partly]
    return Claim(
        what="Where GMIP takes noise, it takes as much as GDP",
        published=f"at all {len(partly)} such levels of the table",
        measured=f"{100 * min(less):.0f}% to {100 * max(less):.0f}% less by the tight bound and exact composition; "
        f"none at {freed} of them",
        verdict=judged(agrees=max(map(abs, less)) < 0.02, differs=min(less) > -0.02),
        words="Noise and data randomness add up, where the paper takes the better of the two (docs/theory/one-step.md)."
        if min(less) > -0.02
        else "The paper's noise is not enough at some level.",
    )


def _optimism(rows: Sequence[Row]) -> Claim:
    excess = [(row["mu_of_published_gdp"] / row["mu"], row) for row in rows]
    broken = [ratio for ratio, _ in excess if ratio > 1.005]
    worst, row = max(excess, key=lambda pair: pair[0])
    where = f"{UTILITY[str(row['setting'])].title}, μ = {row['mu']:.2f}"
    return Claim(
        what="The published noise gives GDP at the level μ",
        published=f"all {len(rows)} levels, by a central limit theorem",
        measured=f"μ exceeded at {len(broken)} levels, by up to {100 * (worst - 1):.0f}% ({where}); more "
        f"noise than needed at {sum(ratio < 0.995 for ratio, _ in excess)}",
        verdict=judged(agrees=not broken, differs=worst <= 1.05),
        words="The central limit theorem is no bound: exact composition (the μ that holds at every FPR from 1e-5) "
        "shows where it is too optimistic, and where too strict."
        if broken
        else "",
    )


def probe() -> list[Row]:
    return run(Level(setting="cifar10", level=1))


EXPERIMENT: Final = Experiment(
    name="tau-table",
    title=TITLE,
    paper="Table of τ (appendix), settings of the utility experiment",
    claim=(
        "The noise τ that 20 levels of μ take on three data sets. GMIP never takes more than GDP, and from some μ on "
        "none at all."
    ),
    quick="nothing, this is the whole of it.",
    version=2,  # 2: data used again and again
    cells=cells,
    run=run,
    drawings=drawings,
    table=table,
    claims=claims,
    probe=probe,
    constants={"sizes": UTILITY_SIZES, "published": NOISE},
)
