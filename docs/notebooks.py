"""Writes the tutorials that are notebooks as such, executed by Jupyter: examples/notebooks/*.ipynb.

    pip install nbclient ipykernel; python docs/notebooks.py

A test compares their cells with the tutorials', so edit the page and run this again.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "examples" / "notebooks"
_CELL = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHOWN = re.compile(r"^```text\n.*?^```\n", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """The tutorials whose Python is cells, not files."""
    found = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    return [page for page in found if _CELL.search(page.read_text(encoding="utf-8"))]


def cells(page: Path) -> list[tuple[str, str]]:
    """(kind, text) of the cells; what the page shows is left to the notebook's own outputs."""
    text = _SHOWN.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"\]\((?!https?:|#)([^)]+)\)", r"](../../docs/tutorials/\1)", text)
    parts = _CELL.split(text)
    kinds = ["markdown" if number % 2 == 0 else "code" for number in range(len(parts))]
    return [(kind, part.strip("\n")) for kind, part in zip(kinds, parts, strict=True) if part.strip()]


def notebook(page: Path) -> dict[str, Any]:
    """The notebook, not executed."""
    made: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells(page)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text}
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": made}


def main() -> None:
    import nbformat
    from nbclient import NotebookClient

    OUT.mkdir(exist_ok=True)
    for page in pages():
        if len(sys.argv) > 1 and page.stem not in sys.argv[1:]:
            continue
        read = nbformat.from_dict(notebook(page))
        nbformat.validate(read)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(read, timeout=300, resources={"metadata": {"path": folder}}).execute()
        for cell in read["cells"]:
            cell["metadata"] = {}
        (OUT / f"{page.stem}.ipynb").write_text(json.dumps(read, indent=1) + "\n", encoding="utf-8")
        print(f"{page.stem}: {sum(cell['cell_type'] == 'code' for cell in read['cells'])} cells")


if __name__ == "__main__":
    main()
