"""Table of assumptions: what each attack needs, read off the classes, beside the paper's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gmip.attacks import attack_table
from gmip.attacks.attack_table import NEEDS
from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from reproduction import figures
from reproduction.experiment import Cell, Claim, Drawing, Experiment, Row, judged
from reproduction.paper import ASSUMPTIONS

TITLE: Final = "What each attack needs"
_ALSO = "differences"  # a variant of glir with needs of its own
_PAPER = ("query", "gradients", "recourse", "loss", "population", "labels", "shadows", "analytical")  # the paper's rows


@dataclass(frozen=True, kw_only=True)
class Column(Cell):
    """One attack."""

    attack: str


def cells(quick: bool) -> list[Column]:
    return [Column(attack=name) for name in (*attack_table.names(), _ALSO)]


def run(cell: Column) -> list[Row]:
    """One row for each assumption; `published` is empty for attacks and assumptions that the paper does not have."""
    theirs, kind = ASSUMPTIONS.get(cell.attack), attack_table.kind(cell.attack)
    here = dict(zip([*NEEDS, "analytical"], attack_table.table(), strict=True))
    return [
        {
            "attack": cell.attack,
            "title": kind.title,
            "assumption": key,
            "words": row.what,
            "here": kind.analytical if key == "analytical" else key in kind.needs,
            "published": None if theirs is None or key not in _PAPER else key in theirs,
        }
        for key, row in here.items()
    ]


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    attacks, kinds = _axes(rows)
    figure, (axes,) = figures.panels(1, width=9.4, height=5.2)
    for row in rows:
        x, y = attacks.index(str(row["attack"])), kinds.index(str(row["words"]))
        if row["here"]:
            axes.plot(x, y, marker="o", markersize=8, color=figures.BLUE)
        if row["published"]:
            axes.plot(x, y, marker="o", markersize=13, markerfacecolor="none", color=figures.VERMILLION)
    here = axes.plot([], [], "o", markersize=8, color=figures.BLUE, label="needed here")[0]
    paper = axes.plot(
        [], [], "o", markersize=12, markerfacecolor="none", color=figures.VERMILLION, label="needed in the paper"
    )[0]
    known = [name for name in attacks if name in ASSUMPTIONS]
    axes.axvline(len(known) - 0.5, color=figures.GREY, linewidth=0.9, linestyle=(0, (3, 3)))
    axes.set_xticks(range(len(attacks)), attacks, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(kinds)), [kind[0].upper() + kind[1:] for kind in kinds])
    axes.set(
        xlim=(-0.6, len(attacks) - 0.4),
        ylim=(len(kinds) - 0.4, -0.6),
        xlabel="Attack (right of the line: not in the paper)",
    )
    axes.tick_params(length=0)
    figure.legend(handles=[here, paper], loc="outside lower center", ncols=2)
    needed = [
        f"{name}: {', '.join(str(row['words']) for row in rows if row['attack'] == name and row['here'])}"
        for name in attacks
    ]
    return [Drawing("", figure, f"{TITLE}. {'; '.join(needed)}.")]


def _axes(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Attacks, those of the paper first in its order; assumptions in words."""
    present = list(dict.fromkeys(str(row["attack"]) for row in rows))
    order = [name for name in ASSUMPTIONS if name in present]
    return order + [name for name in present if name not in order], list(
        dict.fromkeys(str(row["words"]) for row in rows)
    )


def table(rows: Sequence[Row]) -> Table:
    attacks, kinds = _axes(rows)
    cell = {(row["words"], row["attack"]): row for row in rows}

    def shown(kind: str, name: str) -> TableCell:
        row = cell[kind, name]
        text = "yes" if row["here"] else "no"
        if row["published"] is None or row["published"] == row["here"]:
            return TableCell(text)
        return TableCell(text, ("paper: yes" if row["published"] else "paper: no",))

    body = tuple((TableCell(kind), *(shown(kind, name) for name in attacks)) for kind in kinds)
    caption = f"What each attack needs; {attack_table.NOTE}"
    return Table(caption, ("Assumption", *attacks), body, frozenset(range(len(attacks) + 1)))


def claims(rows: Sequence[Row]) -> list[Claim]:
    found = []
    for name in (name for name in ASSUMPTIONS if any(row["attack"] == name for row in rows)):
        mine = [row for row in rows if row["attack"] == name and row["published"] is not None]
        here, paper = ({row["assumption"] for row in mine if row[column]} for column in ("here", "published"))
        more = paper < here  # needed here in addition
        found.append(
            Claim(
                what=f"{mine[0]['title']} needs",
                published=_listed(mine, "published"),
                measured=_listed(mine, "here"),
                verdict=judged(agrees=here == paper, differs=more),
                words="" if not more else f"Here {attack_table.NOTE}" if name == "glir" else "More is needed here.",
            )
        )
    analytical = [str(row["attack"]) for row in rows if row["assumption"] == "analytical" and row["here"]]
    found.append(
        Claim(
            what="Error rates in closed form",
            published="the gradient attack alone",
            measured=", ".join(analytical) or "none",
            verdict=judged(agrees=analytical == ["glir"], differs="glir" in analytical),
            words="Others have them, too." if "glir" in analytical and len(analytical) > 1 else "",
        )
    )
    return found


def _listed(rows: Sequence[Row], column: str) -> str:
    return "; ".join(str(row["words"]) for row in rows if row[column] and row["assumption"] != "analytical")


def probe() -> list[Row]:
    return [row for cell in cells(True) for row in run(cell)]


EXPERIMENT: Final = Experiment(
    name="assumptions",
    title=TITLE,
    paper="Table of assumptions (appendix)",
    claim=(
        "The gradient attack needs neither shadow models nor labels nor the loss function, and is the only one whose "
        "error rates are known in closed form."
    ),
    quick="nothing, this is the whole of it.",
    version=2,
    cells=cells,
    run=run,
    drawings=drawings,
    table=table,
    claims=claims,
    probe=probe,
)
