"""The look of figures, and their SVG: vectors, the same bytes for the same numbers, safe to put into a page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from gmip._html import Html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BLACK", "BLUE", "GREEN", "GREY", "ORANGE", "PURPLE", "VERMILLION", "inline", "panels", "style", "to_svg"]

# Okabe and Ito's colours, distinct for all kinds of colour vision.
BLUE, VERMILLION, GREEN, ORANGE, PURPLE, BLACK, GREY = (
    *("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#000000", "#767676"),
)
_STYLE: Final[dict[str, Any]] = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "svg.fonttype": "path",  # looks the same wherever it is opened
    "svg.hashsalt": "gmip",
}
_SIZES: Final = re.compile(r' (?:d|x|y)="[^"]*"', re.DOTALL)
_LONG: Final = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE: Final = re.compile(r'href="#([^"]*)"|url\(#([^)]*)\)')
_ATTRIBUTE: Final = re.compile(r' style="([^"]*)"')


@contextmanager
def style() -> Iterator[None]:
    """Settings under which figures are drawn and saved; matplotlib's own are as before afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams
        parameters.update(_STYLE)
        yield


def panels(count: int, *, width: float = 7.2, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """A figure of that size in inches with panels in a row; no window, no global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def to_svg(figure: Figure) -> str:
    """The figure as an SVG file, without what does not show."""
    content = io.StringIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", content.getvalue(), flags=re.DOTALL)
    text = re.sub(r"\s*\n\s*", "\n", text)
    text = _SIZES.sub(lambda found: _LONG.sub(_short, found[0]), text)
    # Letters are drawn by reference: short names, and none for what is not referred to, halve the file.
    names = dict.fromkeys(name for pair in _REFERENCE.findall(text) for name in pair if name)
    short = {name: f"i{number}" for number, name in enumerate(names)}
    text = _REFERENCE.sub(lambda found: f'href="#{short[found[1]]}"' if found[1] else f"url(#{short[found[2]]})", text)
    return re.sub(r' id="([^"]*)"', lambda found: f' id="{short[found[1]]}"' if found[1] in short else "", text)


def _short(number: re.Match[str]) -> str:
    """A hundredth of a point is enough."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def inline(svg: str, identifier: str, alt: str) -> Html:
    """An SVG file of `to_svg` as part of a page.

    Names get a prefix, for several figures of a page have the same ones; styles become attributes, for the page forbids
    styles but its own.
    """
    body = re.sub(r"<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{identifier}-", body)
    body = _ATTRIBUTE.sub(lambda found: _attributes(found[1]), body)
    start = body.index(">")
    box = re.search(r'viewBox="[^"]*"', body[:start])
    label = alt.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0] if box else ""} '
        f'role="img" aria-label="{label}" stroke-linejoin="round" stroke-linecap="butt"'
    )
    return Html(opening + body[start:].rstrip())


def _attributes(declarations: str) -> str:
    pairs = (part.split(":", 1) for part in declarations.split(";") if ":" in part)
    return "".join(f' {name.strip()}="{value.strip()}"' for name, value in pairs)
