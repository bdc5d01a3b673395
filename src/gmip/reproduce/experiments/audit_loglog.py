"""The audit on logarithmic axes, where few are accused: the rows of `audit`, computed once for both."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gmip.report.tables import Cell as TableCell
from gmip.report.tables import Table
from gmip.reproduce.experiments import Claim, Drawing, Row, audit
from gmip.reproduce.experiments.audit import QUICK, VERSION, cells, run
from gmip.reproduce.paper_settings import AUDIT_SIZES
from gmip.reproduce.roc_curves import RATES, by_curve

__all__ = [
    "CLAIM",
    "NAME",
    "PAPER",
    "QUICK",
    "ROWS_OF",
    "TITLE",
    "VERSION",
    "cells",
    "claims",
    "drawings",
    "run",
    "table",
]

NAME = "audit-loglog"
ROWS_OF = "audit"
TITLE = "GLiR against the bounds, where few are accused"
PAPER = "Figure of the appendix, log-log"
CLAIM = "The bounds of Figure 2 also hold where the false-positive rate is low."

_LOW = tuple(rate for rate in RATES if rate <= 0.1)
_TOLD = (RATES[4], 0.01, 0.1)


def drawings(rows: Sequence[Row]) -> list[Drawing]:
    return [audit.drawing(rows, log=True)]


def table(rows: Sequence[Row]) -> Table:
    body = []
    for panel in audit.PANELS:
        for name in audit.present(rows, panel):
            bands = by_curve(rows, task=name, panel=panel)
            for curve, (title, _) in audit.CURVES.items():
                if curve in bands:
                    tprs = [bands[curve].at(rate) for rate in _TOLD]
                    told = ["none" if math.isnan(tpr) else f"{100 * tpr:.2f}%" for tpr in tprs]
                    body.append(tuple(map(TableCell, (audit.TITLES[name], panel, title, *told))))
    columns = ("Data set", "Part", "Curve", *(f"TPR at FPR {100 * rate:.3g}%" for rate in _TOLD))
    return Table("Members found; none is told below two false alarms", columns, tuple(body), frozenset({0, 1, 2}))


def claims(rows: Sequence[Row]) -> list[Claim]:
    found = [
        audit.holds(rows, name, [panel], rates=_LOW) for panel in audit.PANELS for name in audit.present(rows, panel)
    ]
    return found + [_covers(rows, name) for name in audit.present(rows, "one step")]


def _covers(rows: Sequence[Row], name: str) -> Claim:
    """Whether K = d, the mean of the susceptibilities, is enough for the records that there are."""
    bands = by_curve(rows, task=name, panel="one step")
    above = [rate for rate in _LOW if bands["records"].at(rate) > 1.02 * bands["K = d"].at(rate)]
    tprs = [f"{100 * bands[curve].at(_LOW[0]):.1f}%" for curve in ("records", "K = d")]
    return Claim(
        what=f"{audit.TITLES[name]}: the bound with K = d covers the records' own susceptibilities (one step)",
        published="K = d throughout" if name in AUDIT_SIZES else "not in the paper",
        measured=f"TPR at FPR {100 * _LOW[0]:g}%: {tprs[0]} over the measured susceptibilities, {tprs[1]} with K = d",
        agrees="differs" if above else "yes",
        words=f"Not at FPRs to {100 * max(above):.2g}%: K = d is the mean, and records with more of it are found more "
        "often. An account of a run can take measured susceptibilities."
        if above
        else "",
    )
