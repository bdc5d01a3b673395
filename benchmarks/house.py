"""How large the program is: lines, modules, options, public names and complexity, for each package.

    python benchmarks/house.py                    # this tree
    python benchmarks/house.py --base 1c2fa90     # beside the tree of another commit

Code lines are those that hold a token other than a comment or a docstring. Complexity is McCabe's: one more than the
number of branches of a function, nested functions counted with the one that holds them.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# As counted by the same rules on 2026-11-17, for scale: code lines, modules, median function, mean complexity, share
# of functions above 10.
PEERS: Final = {
    "dp_accounting": (3_304, 17, 22, 3.8, 0.045),
    "jax_privacy": (5_162, 30, 15, 2.7, 0.015),
    "diffrax": (9_821, 63, 8, 2.6, 0.039),
    "httpx": (5_556, 23, 9, 2.8, 0.018),
    "opacus": (5_540, 78, 15, 3.0, 0.037),
}
_BRANCHES: Final = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.comprehension,
    ast.match_case,
)


@dataclass
class Measured:
    """One package: its lines, and the length and complexity of each function."""

    lines: int = 0
    code: int = 0
    modules: int = 0
    lengths: list[int] = field(default_factory=list)
    complexities: list[tuple[int, str]] = field(default_factory=list)

    def row(self) -> str:
        above = sum(size > 10 for size, _ in self.complexities)
        share = above / max(len(self.complexities), 1)
        largest = max(self.complexities, default=(0, ""))
        median = statistics.median(self.lengths or [0])
        mean = statistics.mean([size for size, _ in self.complexities] or [0])
        return (
            f"{self.lines:>7,} {self.code:>7,} {self.modules:>4} {median:>6.0f} {mean:>6.1f} {share:>6.1%} "
            f"{largest[0]:>4} {largest[1]}"
        )


def code_lines(source: str, tree: ast.Module) -> int:
    """Lines with a token that is neither a comment nor part of a docstring."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    found: set[int] = set()
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - docstrings)


def complexity(function: ast.AST) -> int:
    branches = sum(isinstance(node, _BRANCHES) for node in ast.walk(function))
    choices = sum(len(node.values) - 1 for node in ast.walk(function) if isinstance(node, ast.BoolOp))
    return 1 + branches + choices


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods, not those within functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from functions(node)


def measured(root: Path) -> dict[str, Measured]:
    """Package of gmip -> what was counted; "" are the modules at the top."""
    found: dict[str, Measured] = defaultdict(Measured)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        package = found[parts[0] if len(parts) > 1 else ""]
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        package.modules += 1
        package.lines += source.count("\n")
        package.code += code_lines(source, tree)
        for function in functions(tree):
            package.lengths.append((function.end_lineno or function.lineno) - function.lineno + 1)
            package.complexities.append((complexity(function), f"{'/'.join(parts)}:{function.name}"))
    return found


def total(parts: dict[str, Measured]) -> Measured:
    whole = Measured()
    for one in parts.values():
        whole.lines += one.lines
        whole.code += one.code
        whole.modules += one.modules
        whole.lengths += one.lengths
        whole.complexities += one.complexities
    return whole


_COUNTS: Final = """
import gmip, typer
from gmip import cli
group = typer.main.get_command(cli.app)
commands = [group, *(group.get_command(None, name) for name in group.list_commands(None))]
found = [p.opts[0] for one in commands for p in one.params if p.opts[0].startswith("--") and p.opts[0] != "--help"]
print(f"options: {len(found)}, distinct {len(set(found))}; names in gmip.__all__: {len(gmip.__all__)}")
"""


def surface(root: Path) -> str:
    """Options of all commands and public names, counted in a process that imports that tree."""
    where = os.environ | {"PYTHONPATH": str(root.parent)}
    done = subprocess.run([sys.executable, "-c", _COUNTS], capture_output=True, text=True, env=where)
    return done.stdout.strip() or f"options and names could not be counted: {done.stderr.strip()[-200:]}"


def show(title: str, root: Path) -> None:
    parts = measured(root)
    names = ("lines", "code", "mod", "median", "mean", ">10", "most")
    widths = (7, 7, 4, 6, 6, 6, 4)
    print(f"\n{title}\n{'package':<16} " + " ".join(f"{n:>{w}}" for n, w in zip(names, widths, strict=True)))
    for name in sorted(parts):
        print(f"{name or '(top)':<16} {parts[name].row()}")
    print(f"{'all':<16} {total(parts).row()}")
    print(surface(root))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="also measure the tree of this commit")
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    if given.base:
        packed = subprocess.run(
            ["git", "-C", str(here), "archive", given.base, "src"], check=True, capture_output=True
        ).stdout
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(folder, filter="data")
            show(f"before ({given.base})", Path(folder) / "src" / "gmip")
    show("now", here / "src" / "gmip")
    print("\npeers (2026-11-17)")
    for name, (code, modules, median, mean, share) in PEERS.items():
        print(f"{name:<16} {'':>7} {code:>7,} {modules:>4} {median:>6} {mean:>6.1f} {share:>6.1%}")


if __name__ == "__main__":
    main()
