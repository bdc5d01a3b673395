"""Figure 1: the one-step curve of Theorem 5.1 approaches the Gaussian one of Corollary 5.1 as d and n grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from scipy.special import ndtr

from gmip import _numbers
from gmip.accounting.families import Gaussian
from gmip.accounting.gaussian_pair import ChiSquared
from gmip.accounting.step import corollary_mu
from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from reproduction import figures
from reproduction.experiment import Cell, Claim, Drawing, Experiment, Row, judged
from reproduction.paper import AUDIT_SIZES, UTILITY

TITLE: Final = "Convergence of the one-step curve"

_SHOWN: Final = (2, 5, 20, 100)  # d = n of the curves
_RATIOS: Final = (0.1, 1.0, 10.0)  # d/n
_BATCHES: Final = (2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
_LOW: Final = 1.0e-5  # the false-positive rate at which the relative error is told
_RATES: Final = ndtr(np.linspace(-8.0, 8.0, 1601))
_CURVE_RATES: Final = np.concatenate([np.geomspace(1.0e-5, 0.05, 38)[:-1], np.linspace(0.05, 1.0, 39)])


@dataclass(frozen=True, kw_only=True)
class Size(Cell):
    """A step of n examples and d parameters; `part` is where in the figure it goes."""

    part: str
    num_params: int
    batch_size: int


def cells(quick: bool) -> list[Size]:
    """Curves, a sweep over n at three ratios d/n, and the sizes of the paper's experiments."""
    found = [Size(part="curve", num_params=n, batch_size=n) for n in _SHOWN]
    for ratio in _RATIOS:
        for n in _BATCHES[::3] if quick else _BATCHES:
            if (d := round(ratio * n)) >= 1:
                found.append(Size(part=_ratio(ratio), num_params=d, batch_size=n))
    found += [Size(part="audit", num_params=d, batch_size=n) for d, n in AUDIT_SIZES.values()]
    found += [
        Size(part="utility", num_params=one.run.num_params, batch_size=one.run.batch_size) for one in UTILITY.values()
    ]
    return found


def _ratio(ratio: float) -> str:
    return "d = n" if ratio == 1.0 else f"d = {ratio:g} n"


def run(cell: Size) -> list[Row]:
    """The FPR of the largest gap, with both curves there; of curves to be shown, all points."""
    d, n = cell.num_params, cell.batch_size
    mu = corollary_mu(num_params=d, susceptibility=d, effective_batch_size=n)
    theorem, corollary = ChiSquared(dimension=d, susceptibility=d, batch_size=n), Gaussian(mu)
    gaps = theorem.tpr_at(_RATES) - corollary.tpr_at(_RATES)
    rates = _CURVE_RATES if cell.part == "curve" else [float(_RATES[int(np.argmax(np.abs(gaps)))])]
    common: Row = {
        "part": cell.part,
        "num_params": d,
        "batch_size": n,
        "mu_step": mu,
        "largest_gap": float(np.max(np.abs(gaps))),
        "tpr_ratio_at_1e-5": theorem.tpr_at(_LOW) / corollary.tpr_at(_LOW),
    }
    return [
        common
        | {"fpr": float(a), "tpr_theorem_5_1": theorem.tpr_at(float(a)), "tpr_gaussian": corollary.tpr_at(float(a))}
        for a in rates
    ]


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    figure, (linear, log, gap) = figures.panels(3, width=9.6, height=3.7)
    shades = [figures.ORANGE, figures.VERMILLION, figures.PURPLE, figures.BLUE]
    dashes: list[Any] = [(0, (1, 1.2)), (0, (5, 2)), (0, (6, 2, 1, 2)), "solid"]
    for n, colour, dash in zip(_SHOWN, shades, dashes, strict=True):
        fpr, tpr = _columns(rows, "curve", n)
        linear.plot(fpr, 1.0 - tpr, color=colour, linestyle=dash, label=f"Theorem 5.1, d = n = {n}")
        log.plot(fpr, tpr, color=colour, linestyle=dash)
    rates = np.concatenate([[0.0], _CURVE_RATES])
    limit = Gaussian(1.0)
    linear.plot(
        rates, limit.fnr_at(rates), color=figures.BLACK, linewidth=3.2, alpha=0.28, label="Gaussian limit, μ = 1"
    )
    log.plot(rates[1:], limit.tpr_at(rates[1:]), color=figures.BLACK, linewidth=3.2, alpha=0.28)
    linear.plot([0, 1], [1, 0], color=figures.GREY, linewidth=0.9, label="Guessing")
    log.plot(_CURVE_RATES, _CURVE_RATES, color=figures.GREY, linewidth=0.9)
    linear.set(xlabel="False-positive rate", ylabel="False-negative rate", title="(a) Trade-off curves")
    linear.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    log.set(xlabel="False-positive rate", ylabel="True-positive rate", title="(b) The same, where few are accused")
    log.set(xscale="log", yscale="log", xlim=(1e-5, 1), ylim=(1e-6, 1.2))
    log.minorticks_off()
    _gap_panel(gap, rows)
    lines = [*linear.get_lines(), *gap.get_lines()]
    figure.legend(
        handles=[line for line in lines if not str(line.get_label()).startswith("_")],
        loc="outside lower center",
        ncols=4,
    )
    return [Drawing("", figure, f"{TITLE}: {_words(rows)}")]


def _gap_panel(axes: Any, rows: Sequence[Row]) -> None:
    for ratio, colour, marker in zip(_RATIOS, (figures.GREEN, figures.BLACK, figures.ORANGE), "os^", strict=True):
        points = [row for row in rows if row["part"] == _ratio(ratio)]
        axes.plot(
            [row["batch_size"] for row in points],
            [row["largest_gap"] for row in points],
            color=colour,
            marker=marker,
            markersize=3.5,
            linewidth=1.0,
            label=f"(c) {_ratio(ratio)}",
        )
    papers = [row for row in rows if row["part"] in ("audit", "utility")]
    axes.plot(
        [row["batch_size"] for row in papers],
        [row["largest_gap"] for row in papers],
        color=figures.VERMILLION,
        marker="*",
        markersize=8,
        linestyle="none",
        label="(c) sizes of the paper",
    )
    axes.set(xscale="log", yscale="log", xlabel="Batch size n", ylabel="Largest gap in TPR")
    axes.set_title("(c) Theorem against Gaussian")
    axes.minorticks_off()


def _columns(rows: Sequence[Row], part: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    points = [(row["fpr"], row["tpr_theorem_5_1"]) for row in rows if row["part"] == part and row["batch_size"] == n]
    array = np.array([(0.0, 0.0), *points], dtype=np.float64)
    return array[:, 0], array[:, 1]


def _sweep(rows: Sequence[Row], ratio: float) -> tuple[list[int], list[float]]:
    points = [row for row in rows if row["part"] == _ratio(ratio)]
    return [row["batch_size"] for row in points], [row["largest_gap"] for row in points]


def _order(rows: Sequence[Row]) -> float:
    """The exponent with which the gap falls along d = n, over n from 100."""
    sizes, gaps = (np.log(values) for values in _sweep(rows, 1.0))
    large = sizes >= np.log(99.0)
    return float(np.polyfit(sizes[large], gaps[large], 1)[0])


def _of_each(rows: Sequence[Row]) -> tuple[list[float], list[float]] | None:
    """Gaps for d = 10, 100, 1,000 at n = 100, and for these n at d = 100; None where the sweep leaves some out."""
    gaps = {(row["num_params"], row["batch_size"]): row["largest_gap"] for row in rows}
    places = [[(d, 100) for d in (10, 100, 1_000)], [(100, n) for n in (10, 100, 1_000)]]
    if any(place not in gaps for places_ in places for place in places_):
        return None
    by_d, by_n = ([gaps[place] for place in each] for each in places)
    return by_d, by_n


def _words(rows: Sequence[Row]) -> str:
    sizes, gaps = _sweep(rows, 1.0)
    return (
        f"along d = n the largest gap in TPR falls from {gaps[0]:.2g} at n = {sizes[0]} to {gaps[-1]:.2g} at "
        f"n = {_numbers.count(sizes[-1])}."
    )


def table(rows: Sequence[Row]) -> Table:
    body = []
    for row in rows:
        if row["part"] == "curve":
            continue
        numbers = [f"{row[key]:.3g}" for key in ("mu_step", "largest_gap", "fpr", "tpr_ratio_at_1e-5")]
        sizes = [_numbers.count(row[key]) for key in ("num_params", "batch_size")]
        body.append(tuple(map(TableCell, (str(row["part"]), *sizes, *numbers))))
    columns = ("Part", "d", "n", "μ of the step", "Largest gap in TPR", "at FPR", "TPR ratio at FPR 1e-5")
    caption = "Theorem 5.1 against Corollary 5.1; the ratio is TPR of the theorem to TPR of the corollary"
    return Table(caption, columns, tuple(body))


def claims(rows: Sequence[Row]) -> list[Claim]:
    order, found = _order(rows), []
    gaps = _sweep(rows, 1.0)[1]
    shrinks = all(a > b for a, b in pairwise(gaps))
    found.append(
        Claim(
            what="The curve approaches the Gaussian one as d and n grow",
            published="a figure, no number",
            measured=f"{_words(rows)[0].upper()}{_words(rows)[1:-1]}, like n^{order:.2f}",
            verdict=judged(agrees=shrinks and order < -0.9, differs=gaps[-1] < 0.5 * gaps[0]),
            words="" if shrinks and order < -0.9 else "Not at every step, or more slowly than 1/n.",
        )
    )
    both = _of_each(rows)
    if both is not None:
        by_d, by_n = both
        closer = [values[0] > values[1] > values[2] for values in both]
        found.append(
            Claim(
                what="Both d and n bring it closer",
                published="d and n are named together",
                measured=f"at n = 100 the gap is {', '.join(f'{g:.2g}' for g in by_d)} for d = 10, 100, 1,000; at d = "
                f"100 it is {', '.join(f'{g:.2g}' for g in by_n)} for n = 10, 100, 1,000",
                verdict=judged(agrees=all(closer), differs=any(closer)),
                words=""
                if all(closer)
                else "It is n that closes the gap. At a fixed n, more parameters mean a larger μ and a larger gap."
                if closer[1]
                else "It is not n that closes the gap.",
            )
        )
    used = [row for row in rows if row["part"] in ("audit", "utility")]
    worst = max(row["largest_gap"] for row in used)
    low = [row["tpr_ratio_at_1e-5"] for row in used]
    found.append(
        Claim(
            what="At the sizes of the paper the Gaussian is good enough",
            published="used throughout",
            measured=f"off by at most {worst:.1e} in TPR; at FPR 1e-5 TPR of the theorem is {min(low):.3f} to "
            f"{max(low):.3f} of the Gaussian one",
            verdict=judged(agrees=worst < 1.0e-3, differs=worst < 1.0e-2),
            words="The accountant here uses Theorem 5.1 itself.",
        )
    )
    return found


def probe() -> list[Row]:
    return run(Size(part="audit", num_params=650, batch_size=500))


EXPERIMENT: Final = Experiment(
    name="convergence",
    title=TITLE,
    paper="Figure 1",
    claim=(
        "The larger the number of parameters d and the batch size n, the more the trade-off curve of Theorem 5.1 (K = "
        "d, no noise) approaches the Gaussian one of Corollary 5.1."
    ),
    quick="fewer batch sizes in the third panel.",
    version=1,
    cells=cells,
    run=run,
    drawings=drawings,
    table=table,
    claims=claims,
    probe=probe,
)
