"""What every attack finds, and that it finds nothing where there is nothing: the tables of the docs, by one command.

    GMIP_DATA=... python benchmarks/attacks.py [PART ...] [--setting TEXT] [--attack NAME ...] [--seeds 3] [--docs]
    python benchmarks/attacks.py --show [--docs]

Parts: `gains` (gradients beside attacks on the trained model, their cost, and how many shadow models these need),
`lists` (decoding, and candidates as background), `released` (weights alone), `texts` (language models). Every attack
also plays null runs, in which nobody it is asked about was in the run. Every attack on a run is a row of
benchmarks/attacks.csv (--keep) the moment it is done, and is not repeated while the row is there: a run that was
killed goes on, and to measure something again its rows are deleted. Trained models are kept in --folder, which may be
removed.

Tables are means over seeds, with standard errors, in Markdown; --docs writes them into the docs, between the comments
that name them. CPU seconds are of one process and one thread. Data that are not on this machine are left out, with a
sentence on standard error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean
from types import ModuleType

import _gains
import _lists
import _released
import _texts
import torch
from _games import Book, Page, decimal, error, markdown
from _harness import Row, one_blas_thread, written
from threadpoolctl import threadpool_limits

from gmip.errors import DataUnavailable

PARTS: dict[str, ModuleType] = {part.NAME: part for part in (_gains, _lists, _released, _texts)}
HERE = Path(__file__).parent
DOCS = ("docs/evidence/attacks.md", "benchmarks/README.md")
LEVELS = {"p5": 0.05, "p1": 0.01}


def small_p_values(rows: list[Row], key: str) -> list[float]:
    """Shares of small p-values in independent draws of candidates. Null runs of a setting of `gains` share theirs, and
    the records that p-values are ranks among: they count once."""
    draws: dict[object, list[float]] = {}
    for row in rows:
        if key in row:
            draw = row["setting"] if row["part"] == _gains.NAME else (row["setting"], row["seed"])
            draws.setdefault(draw, []).append(row[key])
    return [mean(shares) for shares in draws.values()]


def nulls(book: Book) -> str:
    """Every attack on runs that hold none of its candidates."""
    heads = ["attack", "null runs", "AUC", "p ≤ 5%", "p ≤ 1%"]
    lines, largest = [], dict.fromkeys(("auc", *LEVELS), 0.0)
    for name in dict.fromkeys(row["attack"] for row in book.found(null=True)):
        rows = book.found(null=True, attack=name)
        areas = [row["auc"] for row in rows]
        line = [name, str(len(rows)), decimal(mean(areas))]
        largest["auc"] = max(largest["auc"], error(areas))
        for key in LEVELS:
            shares = [100.0 * share for share in small_p_values(rows, key)]
            line.append(f"{mean(shares):.2f}%" if shares else "")
            largest[key] = max(largest[key], error(shares))
        lines.append(line)
    said = f"{decimal(largest['auc'])} of an AUC, and {largest['p5']:.2f} and {largest['p1']:.2f} points"
    return f"{markdown(heads, lines)}\nStandard errors: at most {said}.\n"


def tables(book: Book) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, part in PARTS.items():
        if book.found(part=name):
            found |= part.tables(book)
    return found | ({"nulls": nulls(book)} if book.found(null=True) else {})


def main() -> None:
    one_blas_thread()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default all)")
    parser.add_argument("--setting", action="append", help="settings whose names contain this (default all)")
    parser.add_argument("--attack", action="append", help="rows of these names alone")
    parser.add_argument("--seeds", type=int, help="so many at most (default: 5, null runs of `gains` and `texts` 10)")
    parser.add_argument("--keep", type=Path, default=HERE / "attacks.csv")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/gmip-attacks"))
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--docs", action="store_true", help="write the tables into the docs")
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"{name!r} is no part: choose among {', '.join(PARTS)}")
    torch.set_num_threads(1)
    book = Book(options.keep, options.attack)
    for name in [] if options.show else options.parts or PARTS:
        part = PARTS[name]
        for setting in part.SETTINGS:
            if options.setting and not any(text in setting for text in options.setting):
                continue
            try:
                with threadpool_limits(1):
                    for null, seeds in ((False, part.SEEDS), (True, part.NULL_SEEDS)):
                        for seed in seeds[: options.seeds]:
                            part.play(Page(book, name, setting, seed, null), options.folder)
            except DataUnavailable as missing:
                print(missing, file=sys.stderr)
    found = tables(book)
    for name, text in found.items():
        print(f"\n{name}\n\n{text}")
    for path in DOCS if options.docs else ():
        page = HERE.parent / path
        page.write_text(written(page.read_text(encoding="utf-8"), "attacks.py", found), encoding="utf-8")


if __name__ == "__main__":
    main()
