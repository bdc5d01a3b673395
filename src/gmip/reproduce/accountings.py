"""The ways of accounting that experiments compare, with one name and one look each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from gmip.accounting.account import account
from gmip.accounting.mechanism import NoisySGD
from gmip.reproduce import look

__all__ = ["ACCOUNTINGS", "Accounting", "free_from"]


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """keywords : of `calibrate` and `account`; look : of matplotlib's plot."""

    title: str
    short: str
    keywords: Mapping[str, Any]
    look: Mapping[str, Any]


ACCOUNTINGS: Final = {
    "gdp": Accounting(
        title="GDP, as in the paper (CLT)",
        short="GDP (CLT)",
        keywords={"notion": "gdp", "composition": "clt"},
        look={"color": look.VERMILLION, "marker": "s", "linestyle": "solid"},
    ),
    "gdp-exact": Accounting(
        title="GDP, exact composition",
        short="GDP (exact)",
        keywords={"notion": "gdp", "composition": "exact"},
        look={"color": look.ORANGE, "marker": "D", "linestyle": (0, (1.2, 1.2))},
    ),
    "gmip-paper": Accounting(
        title="GMIP, as in the paper (CLT)",
        short="GMIP (paper)",
        keywords={"bound": "paper", "composition": "clt"},
        look={"color": look.BLUE, "marker": "o", "linestyle": (0, (5, 2))},
    ),
    "gmip-tight": Accounting(
        title="GMIP, tight bound, exact composition",
        short="GMIP (tight, exact)",
        keywords={"bound": "tight", "composition": "exact"},
        look={"color": look.GREEN, "marker": "^", "linestyle": (0, (6, 2, 1, 2))},
    ),
}


@lru_cache(maxsize=64)
def free_from(run: NoisySGD, accounting: str) -> float:
    """The mu from which the run needs no noise; infinity where it always does."""
    return account(run.replace(noise_std=0.0), **ACCOUNTINGS[accounting].keywords).equivalent_mu()
