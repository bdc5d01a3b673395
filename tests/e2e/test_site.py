"""The documentation site: it builds without a warning, its search works, and no request leaves it."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: dead links, pages nobody links to and undocumented names are errors."""
    pytest.importorskip("mkdocs", reason="needs gmip[docs]")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_every_public_name_and_command_has_an_entry(site: Path) -> None:
    import gmip
    from gmip.cli import _PANELS

    api = (site / "reference" / "api.html").read_text()
    assert [name for name in gmip.__all__ if name != "__version__" and f">{name}<" not in api.replace("\n", "")] == []
    commands = (site / "reference" / "commands.html").read_text()
    assert [name for name in _PANELS if f'id="gmip-{name}"' not in commands] == []


def test_formulas_are_set_and_code_is_not(site: Path) -> None:
    page = (site / "theory" / "one-step.html").read_text(encoding="utf-8")
    assert "&mu;<sub>data</sub><sup>2</sup> = K/n" in page and "<code>tight_step</code>" in page
    assert "mu_data" not in re.search(r"<article.*?</article>", page, re.DOTALL)[0]  # type: ignore[index]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_search_finds_and_no_request_leaves(address: str, browser: Any) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{address}/index.html")
    box = page.locator("input.md-search__input")
    box.click()
    box.press_sequentially("shuffled")
    page.wait_for_selector(".md-search-result__item", state="attached")
    assert page.locator(".md-search-result__item").count() > 3
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_every_page_is_reached_from_the_first(site: Path) -> None:
    found, waiting = {site / "index.html"}, [site / "index.html"]
    while waiting:
        here = waiting.pop()
        for link in re.findall(r'href="?([^"#>\s]+\.html)', here.read_text(encoding="utf-8")):
            target = (here.parent / link).resolve()
            if "://" not in link and target.is_file() and target not in found:
                found.add(target)
                waiting.append(target)
    assert {path for path in site.rglob("*.html") if path.name != "404.html"} - found == set()
    assert len(found) > 60


TEN = ["index", "tutorials/index", "tutorials/pytorch", "concepts", "glossary", "compare", "report", "reference/api"]
TEN += ["reference/commands", "theory/index"]


@pytest.mark.parametrize("width", [1200, 380], ids=["desk", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ten_pages_are_accessible(address: str, browser: Any, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    wrong: list[tuple[str, str, list[str]]] = []
    for name in TEN if (width, scheme) == (1200, "light") else TEN[:4]:
        page.goto(f"{address}/{name}.html")
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            wrong.append((name, "wider than the window", []))
        if broken := page.evaluate("[...document.images].filter(one => !one.naturalWidth).map(one => one.src)"):
            wrong.append((name, "pictures that are not shown", broken))
        # Entries of the reference are alike.
        page.evaluate("[...document.querySelectorAll('.doc-object')].slice(25).forEach(one => one.remove())")
        found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        wrong += [(name, one["id"], [node["html"][:150] for node in one["nodes"][:3]]) for one in found]
    assert wrong == []
