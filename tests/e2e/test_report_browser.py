"""The report in a real browser: drawn, readable, usable without a mouse, and silent on the network.

Pictures are taken where GMIP_SCREENSHOTS names a folder for them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gmip.auditing.schema import AuditResult
from gmip.report import write_report
from tests.unit.report import sample

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Locator, Page

pytestmark = pytest.mark.slow


def many_runs() -> AuditResult:
    """More than a page has room for, with long names."""
    runs = [
        run.model_copy(update={"name": f"{run.name} number {i} of them all"})
        for i in range(8)
        for run in sample.three_runs().runs
    ]
    return sample.three_runs().model_copy(update={"runs": tuple(runs)})


MAKERS: dict[str, Callable[[], AuditResult]] = {
    "exposed": sample.exposed,
    "consistent": sample.consistent,
    "tried": sample.tried,
    "inconclusive": sample.inconclusive,
    "three_runs": sample.three_runs,
    "many_runs": many_runs,
    "bare": sample.bare,
    "hostile": sample.hostile,
}
RESULTS = Path(__file__).parents[2] / "results"
LINEAR, LOG = "#run-1-figure-linear", "#run-1-figure-log"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    written = {name: write_report(make(), folder / name).html for name, make in MAKERS.items()}
    return written | {"experiments": _experiments(folder / "experiments")}


def _experiments(folder: Path) -> Path:
    """The page of the committed results."""
    pytest.importorskip("torch", reason="the experiments need the extra gmip[reproduce]")
    from reproduction.experiments import PAPER
    from reproduction.results import write_index

    shutil.copytree(RESULTS, folder, ignore=shutil.ignore_patterns("work"))
    return write_index(PAPER, folder)


@pytest.fixture(scope="module")
def shoot() -> Callable[..., None]:
    """Keeps a picture of a page in the folder that GMIP_SCREENSHOTS names."""
    folder = os.environ.get("GMIP_SCREENSHOTS")

    def take(page: Page, name: str, **options: Any) -> None:
        if folder:
            page.screenshot(path=Path(folder) / f"{name}.png", **options)

    return take


@pytest.fixture(scope="module")
def opened(browser: Browser, reports: dict[str, Path]) -> Open:
    """Opens a report. When it closes, the page must have said nothing, asked for nothing and shown no dialog.

    Who asks for nothing but a size gets the same tab, loaded anew: a new one takes longer than most tests.
    """
    tab = browser.new_page()

    @contextmanager
    def open_report(name: str = "exposed", width: int = 1200, height: int = 900, **options: Any) -> Iterator[Page]:
        page = browser.new_page(**options) if options else tab
        page.set_viewport_size({"width": width, "height": height})
        page.mouse.move(0, 0)
        said: list[str] = []
        asked: list[str] = []

        def note_dialog(dialog: Dialog) -> None:
            said.append(f"dialog {dialog.message}")
            dialog.dismiss()

        listeners: dict[Any, Callable[[Any], None]] = {
            "console": lambda message: said.append(message.text),
            "pageerror": lambda error: said.append(str(error)),
            "dialog": note_dialog,
            "request": lambda request: asked.append(request.url),
        }
        for event, listener in listeners.items():
            page.on(event, listener)
        address = reports[name].as_uri()
        try:
            page.goto(address)
            yield page
            page.goto("about:blank")  # what the page did last is heard of
        finally:
            for event, listener in listeners.items():
                page.remove_listener(event, listener)
            page.emulate_media(media="null", color_scheme="null")
            if page is not tab:
                page.close()
        assert said == []
        assert address in asked
        assert [url for url in asked if url not in (address, "data:,")] == []

    return open_report


def point_of(page: Page, chart: str, x: float, y: float) -> tuple[float, float]:
    """Where a place in a drawing is on the screen."""
    page.locator(chart).scroll_into_view_if_needed()
    return tuple(
        page.evaluate(
            "([id, x, y]) => { const p = new DOMPoint(x, y).matrixTransform("
            "document.querySelector(id).getScreenCTM()); return [p.x, p.y] }",
            [chart, x, y],
        )
    )


def place_of(page: Page, chart: str, series: int, rate: float) -> tuple[float, float]:
    """Where a curve is on the screen at a rate, from the page's own numbers."""
    x, y = page.evaluate(
        """([id, series, rate]) => {
            const figure = document.querySelector(id).closest("figure");
            const data = JSON.parse(document.getElementById(`${figure.id}-data`).textContent);
            const [left, top, width, height] = data.box, tpr = data.series[series].tpr[data.stops.indexOf(rate)];
            const unit = (v) => id.endsWith("log") ? 1 - Math.log10(v) / Math.log10(data.lowest) : v;
            return [left + unit(rate) * width, top + (1 - unit(tpr)) * height];
        }""",
        [chart, series, rate],
    )
    return point_of(page, chart, x, y)


# -- drawn ------------------------------------------------------------------------------------------------------------


def on_linear_axes(page: Page) -> None:
    page.click('#run-1-figure [data-axes="linear"]')


def test_the_switch_between_axes(opened):
    with opened() as page:
        assert page.locator(LOG).is_visible() and not page.locator(LINEAR).is_visible()
        page.focus('#run-1-figure .switch [data-axes="linear"]')
        page.keyboard.press("Enter")
        assert page.locator(LINEAR).is_visible() and not page.locator(LOG).is_visible()
        pressed = [b.get_attribute("aria-pressed") for b in page.locator("#run-1-figure .switch [data-axes]").all()]
        assert pressed == ["false", "true"]


@pytest.mark.parametrize("name", ["exposed", "three_runs"])
@pytest.mark.parametrize("scripts", [True, False])
def test_charts_are_drawn(opened, name, scripts):
    with opened(name, java_script_enabled=scripts) as page:
        for summary in page.locator(".whole > summary").all():  # of several runs each is folded
            summary.click()
        charts = page.locator("figure.roc svg.chart")
        assert charts.count() == (2 if name == "exposed" else 8)
        for i in range(charts.count()):
            if scripts and i % 2:  # the linear drawing waits behind its switch
                assert not charts.nth(i).is_visible()
                continue
            box = charts.nth(i).bounding_box()
            assert box["width"] > 400 and box["height"] > 300
        curve = page.locator(f"{LOG} .series .curve")
        assert curve.count() == 8
        for i in range(8):
            box = curve.nth(i).bounding_box()
            assert box["width"] > 100 and box["height"] > 100
        if scripts:
            on_linear_axes(page)
        assert page.locator(f"{LINEAR} .band").bounding_box()["height"] > 100
        assert page.locator("input[type=range]").first.is_visible() is scripts
        assert page.locator(".legend-title").first.is_visible()


@pytest.mark.parametrize("width", [1200, 800])
def test_legend_does_not_cover_data(opened, width):
    with opened(width=width) as page:
        charts, legend = (page.locator(f"#run-1-figure .{part}").bounding_box() for part in ("charts", "legend"))
        beside = legend["x"] >= charts["x"] + charts["width"]
        assert beside is (width == 1200) and (beside or legend["y"] >= charts["y"] + charts["height"])


def test_dots_lie_on_the_curves(opened):
    """The script places its dots from numbers, Python drew the paths: they must meet, in both drawings."""
    with opened() as page:
        for chart in (LOG, LINEAR):
            if chart == LINEAR:
                on_linear_axes(page)
            for rate in (0.002, 0.01, 0.1, 0.5):
                page.mouse.move(*place_of(page, chart, 0, rate))
                assert_dots_on_curves(page, chart)


def assert_dots_on_curves(page: Page, chart: str) -> None:
    off = page.locator(chart).evaluate(
        """(svg) => [...svg.querySelectorAll(".pointer circle")].map((dot) => {
            if (dot.getAttribute("visibility") !== "visible") return 0;
            const curve = svg.querySelector(`.series[data-series="${dot.dataset.series}"] .curve`);
            const [x, y] = ["cx", "cy"].map((name) => Number(dot.getAttribute(name)));
            let least = Infinity;
            for (let at = 0, all = curve.getTotalLength(); at <= all; at += 0.5) {
                const place = curve.getPointAtLength(at);
                least = Math.min(least, Math.hypot(place.x - x, place.y - y));
            }
            return least;
        })"""
    )
    assert len(off) == 8 and max(off) < 1.0


# -- zooming ----------------------------------------------------------------------------------------------------------


def ticks(page: Page, chart: str) -> list[str]:
    return page.locator(f"{chart} .ticks text").all_text_contents()


def paths(page: Page, chart: str) -> list[str | None]:
    return [one.get_attribute("d") for one in page.locator(f"{chart} .curve").all()]


def test_zoom_by_mouse_is_linked_and_has_ticks(opened, shoot):
    """One drag zooms all charts of the page; what is read out is still on the curves."""
    with opened("three_runs") as page:
        for summary in page.locator(".whole > summary").all():
            summary.click()
        before = paths(page, LOG), ticks(page, LOG)
        page.mouse.move(*point_of(page, LOG, 286, 20))
        page.mouse.down()
        page.mouse.move(*point_of(page, LOG, 390, 205), steps=4)
        assert page.locator(".selection").is_visible()
        page.mouse.up()
        assert page.locator(".selection").count() == 0
        assert page.locator("#run-2-figure .zoomed").inner_text() == page.locator("#run-1-figure .zoomed").inner_text()
        assert re.fullmatch(
            r"Shown: [\d.]+% to [\d.]+% false alarms, .*", page.locator("#run-1-figure .zoomed").inner_text()
        )
        assert paths(page, LOG) != before[0] and ticks(page, "#run-3-figure-log") != before[1]
        on_linear_axes(page)
        shown = [float(text.rstrip("%")) for text in ticks(page, LINEAR)]
        assert len(shown) >= 6 and max(shown) <= 100
        page.mouse.move(*point_of(page, LINEAR, 280, 200))
        assert_dots_on_curves(page, LINEAR)
        shoot(page, "zoomed")
        page.locator(LINEAR).dblclick()
        assert (paths(page, LOG), ticks(page, LOG)) == before
        assert page.locator("#run-1-figure .zoomed").inner_text() == ""


def test_zoom_by_keyboard(opened):
    with opened() as page:
        before = paths(page, LOG), ticks(page, LOG)
        closer, farther, everything = page.locator("#run-1-figure [data-zoom]").all()
        assert farther.is_disabled() and everything.is_disabled()
        closer.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("+")
        assert page.locator("#run-1-figure .zoomed").inner_text().startswith("Shown: 0.32% to 3.2% false alarms")
        assert ticks(page, LOG) == ["0.5%", "1%", "2%", "5%", "10%", "20%"]
        page.focus("#run-1-figure-rate")
        for _ in range(60):  # what is shown follows the slider
            page.keyboard.press("ArrowRight")
        assert "to 3.2%" not in page.locator("#run-1-figure .zoomed").inner_text()
        page.keyboard.press("-")
        everything.press("Enter")
        assert (paths(page, LOG), ticks(page, LOG)) == before and everything.is_disabled()


def test_a_drag_is_given_up(opened):
    with opened() as page:
        page.mouse.move(*point_of(page, LOG, 200, 100))
        page.mouse.down()
        page.mouse.move(*point_of(page, LOG, 300, 200), steps=3)
        page.keyboard.press("Escape")
        page.mouse.up()
        assert page.locator("#run-1-figure .zoomed").inner_text() == "" and page.locator(".selection").count() == 0


# -- pointing ---------------------------------------------------------------------------------------------------------


def test_tooltip_says_what_the_nearest_curve_says(opened, shoot):
    with opened() as page:
        tooltip = page.locator("#run-1-figure .tooltip")
        assert not tooltip.is_visible()
        page.mouse.move(*place_of(page, LOG, 0, 0.01))
        assert tooltip.is_visible()
        assert re.fullmatch(
            r"GLiR\nAn attacker who accepts 1% false alarms finds 11% of the members "
            r"\(95% interval [\d.]+% to [\d.]+%\)\.\n(?:.+: .*[\d.]+%\n?){7}",  # and all others
            tooltip.inner_text(),
        )
        shoot(page, "tooltip")
        page.mouse.move(*place_of(page, LOG, 3, 0.1))
        assert tooltip.inner_text().startswith(
            "Guarantee by the accountant (GMIP)\n"
            "An attacker who accepts 10% false alarms finds at most 21.8% of the members."
        )
        on_linear_axes(page)
        page.mouse.move(*place_of(page, LINEAR, 7, 0.5))
        assert tooltip.inner_text().startswith(
            "Guessing\nAn attacker who accepts 50% false alarms finds 50% of the members by guessing."
        )
        page.mouse.move(*place_of(page, LINEAR, 6, 0.3))
        assert re.search(r"accepts 30% false alarms is expected to find about [\d.]+% of", tooltip.inner_text())
        box, figure = tooltip.bounding_box(), page.locator("#run-1-figure").bounding_box()
        assert box["x"] >= figure["x"] and box["x"] + box["width"] <= figure["x"] + figure["width"]
        assert page.locator("#run-1-figure .legend-title").inner_text().startswith("Members found at a 30%")
        page.keyboard.press("Escape")
        assert not tooltip.is_visible()
        page.mouse.move(*place_of(page, LINEAR, 0, 0.1))
        page.mouse.move(2, 2)
        assert not tooltip.is_visible()
        assert "at a 1% false" in page.locator("#run-1-figure .legend-title").inner_text()


def test_a_click_keeps_the_rate(opened):
    with opened() as page:
        x, y = place_of(page, LOG, 0, 0.1)
        page.mouse.click(x, y)
        page.mouse.move(2, 2)
        assert "at a 10% false" in page.locator("#run-1-figure .legend-title").inner_text()
        values = page.locator("#run-1-figure .legend .value").all_inner_texts()
        assert values[0] == "37.6%" and values[3] == "at most 21.8%" and values[7] == "10%"
        assert page.locator("#run-1-figure-rate").input_value() == "96"


def test_legend_of_script_and_page_agree(opened, reports):
    written = re.findall(r'<span class="value"[^>]*>([^<]*)</span>', reports["exposed"].read_text(encoding="utf-8"))
    with opened() as page:
        assert page.locator(".legend .value").all_inner_texts() == written  # the script wrote them again


def test_touch(opened):
    with opened(width=400, has_touch=True) as page:
        page.touchscreen.tap(*place_of(page, LOG, 0, 0.1))
        assert "accepts 10% false alarms" in page.locator("#run-1-figure .tooltip").inner_text()
        box = page.locator("#run-1-figure .tooltip").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 400
        page.touchscreen.tap(*point_of(page, LOG, 5, -15))
        assert "at a 10% false" in page.locator("#run-1-figure .legend-title").inner_text()


# -- without a mouse --------------------------------------------------------------------------------------------------


def test_slider_by_keyboard(opened):
    with opened() as page:
        slider = page.locator("#run-1-figure-rate")
        slider.focus()
        title = page.locator("#run-1-figure .legend-title")
        for key, text in (("End", "100% false"), ("Home", "0.01% false"), ("ArrowRight", "0.011% false")):
            page.keyboard.press(key)
            assert f"at a {text}" in title.inner_text()
        page.keyboard.press("Home")
        assert slider.get_attribute("aria-valuetext") == "0.01%: GLiR not measured"
        for _ in range(12):
            page.keyboard.press("PageUp")
        assert re.fullmatch(r"[\d.]+%: GLiR [\d.]+%", slider.get_attribute("aria-valuetext"))


def focused(page: Page) -> str:
    return page.evaluate(
        """() => { const e = document.activeElement, s = getComputedStyle(e), b = e.getBoundingClientRect();
        const name = e.id || e.className || e.getAttribute("href") || "";
        return [e.tagName, name, s.outlineStyle, b.width > 0].join("|") }"""
    )


def test_everything_can_be_reached_by_keyboard(opened):
    with opened() as page:
        reached: list[str] = []
        for _ in range(120):
            page.keyboard.press("Tab")
            here = focused(page)
            if here.startswith("BODY"):
                break
            reached.append(here)
        assert reached[0].startswith("A|skip|")
        assert all(here.endswith("|true") and "|none|" not in here for here in reached)  # to be seen
        wanted = page.evaluate(
            "() => document.querySelectorAll('a[href], button, input, summary, [tabindex=\"0\"]').length"
            " - document.querySelectorAll("
            "'details:not([open]) [tabindex], :disabled').length"
        )
        assert len(reached) == wanted
        page.evaluate("document.activeElement.blur()")


def test_skip_link(opened):
    with opened() as page:
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "answer"


def test_legend_buttons_hide_and_show(opened):
    with opened() as page:
        button = page.locator("#run-1-figure .legend button").nth(1)
        curves = page.locator('#run-1-figure .series[data-series="1"]')
        button.focus()
        page.keyboard.press("Space")
        assert button.get_attribute("aria-pressed") == "false"
        assert [curves.nth(i).is_visible() for i in range(2)] == [False, False]
        page.mouse.move(*place_of(page, LOG, 1, 0.3))
        assert "LiRA" not in page.locator("#run-1-figure .tooltip").inner_text()
        button.press("Enter")
        assert button.get_attribute("aria-pressed") == "true" and curves.nth(0).is_visible()


def test_links_unfold_what_they_lead_to(opened):
    with opened("three_runs") as page:
        place = page.locator("#run-2-advice")
        assert not place.is_visible()
        page.evaluate("location.hash = '#run-2-advice'")
        place.wait_for()
        assert not page.locator("#run-1-advice").is_visible()


def test_copy(opened):
    with opened(permissions=["clipboard-read", "clipboard-write"]) as page:
        page.locator(".copy").first.click()
        status = page.locator(".copied").first
        status.filter(has_text=re.compile("Copied|Selected")).wait_for()
        if status.inner_text() == "Copied":
            assert page.evaluate("navigator.clipboard.readText()").startswith("gmip audit")
        else:
            assert page.evaluate("String(getSelection())").startswith("gmip audit")


def test_commands_do_not_wrap(opened):
    with opened("tried", width=400) as page:
        page.locator("#run-1-advice summary").click()
        code = page.locator("#run-1-advice code").first
        line, box = code.evaluate("(one) => [parseFloat(getComputedStyle(one).lineHeight), one.clientHeight]")
        assert box < 2 * line and code.evaluate("(one) => one.scrollWidth > one.clientWidth")
        code.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => document.querySelector('#run-1-advice code').scrollLeft > 0")


def test_numbers_unfold(opened):
    with opened() as page:
        summary = page.locator("#run-1-evidence summary")
        assert not page.locator("#run-1-evidence details table").is_visible()
        summary.focus()
        page.keyboard.press("Enter")
        assert page.locator("#run-1-evidence details table").is_visible()


# -- axe --------------------------------------------------------------------------------------------------------------


def violations(page: Page, context: str | None = None, **options: Any) -> list[tuple[str, str, str]]:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    found = axe.Axe().run(page, context=context, options={"resultTypes": ["violations"], **options}).response
    return [(v["id"], v["impact"], v["nodes"][0]["html"][:200]) for v in found["violations"]]


@pytest.mark.parametrize(
    ("name", "options"),
    [("tried", {"width": 400}), ("three_runs", {}), ("bare", {"color_scheme": "dark"}), ("hostile", {})],
)
def test_accessibility(opened, name, options):
    with opened(name, **options) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert violations(page, rules={"color-contrast": {"enabled": False}}) == []


def test_contrast(opened):
    with opened("tried") as page:
        page.locator("#run-1 .verdict").evaluate(
            """(one) => { for (const kind of ["good", "open", "plain"]) {
                const other = one.cloneNode(true);
                other.className = `verdict tone-${kind}`;
                one.after(other);
            } }"""
        )
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert violations(page, "#run-1", runOnly=["color-contrast"]) == []


# -- looks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "many_runs"])
def test_no_horizontal_scroll_on_a_phone(opened, shoot, name):
    with opened(name, width=320) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        page.set_viewport_size({"width": 400, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        if name == "exposed":
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = false")
            shoot(page, "phone", full_page=True)
            # Small, but not below ten pixels.
            size = page.evaluate(
                "(id) => { const svg = document.querySelector(id);"
                "return parseFloat(getComputedStyle(svg).fontSize) * svg.getScreenCTM().a }",
                LOG,
            )
            assert size >= 10


# Words of tables that are on two lines, other than those too long for any.
BROKEN = """() => [...document.querySelectorAll("th, td")].filter((one) => !one.closest(".long")).flatMap((cell) => {
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
    while (walk.nextNode()) {
        for (const word of walk.currentNode.data.matchAll(/[^\\s-]+/g)) {
            const range = document.createRange();
            range.setStart(walk.currentNode, word.index);
            range.setEnd(walk.currentNode, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(word[0]);
        }
    }
    return broken;
})"""


@pytest.mark.parametrize("width", [320, 400, 1200])
def test_no_word_of_a_table_breaks_and_badges_are_seen(opened, width):
    with opened("three_runs", width=width) as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.evaluate(BROKEN) == []
        boxes = [one.bounding_box() for one in page.locator("#overview .mark, #overview .numbers").all()]
        assert len(boxes) == 6 and all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)


def luminance(page: Page, where: Locator, what: str) -> float:
    """Relative luminance (WCAG) of a computed colour."""
    colour = where.evaluate("(one, what) => getComputedStyle(one)[what]", what)
    parts = [int(x) / 255 for x in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(opened, shoot, scheme):
    with opened(color_scheme=scheme) as page:
        ground = luminance(page, page.locator("body"), "backgroundColor")
        assert ground > 0.8 if scheme == "light" else ground < 0.02
        card = luminance(page, page.locator(".roc").first, "backgroundColor")
        curves = page.locator(f"{LOG} .series .curve")
        for i in range(curves.count()):  # WCAG 1.4.11: 3 to 1 for what has to be seen
            light, dark = sorted([luminance(page, curves.nth(i), "stroke"), card], reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3
        shoot(page, f"{scheme}", full_page=True)


def test_print(opened, shoot):
    with opened(color_scheme="dark") as page:
        page.emulate_media(media="print")
        assert luminance(page, page.locator("body"), "backgroundColor") == 1
        assert luminance(page, page.locator("body"), "color") < 0.05
        for hidden in ("nav", ".slider", ".copy", ".skip", "details"):
            assert not page.locator(hidden).first.is_visible()
        for shown in ("h1", ".headline", LOG, ".legend", "#run-1-tested-0-caption"):
            assert page.locator(shown).first.is_visible()
        page.set_viewport_size({"width": 688, "height": 1000})  # A4 without its margins
        assert page.evaluate("document.documentElement.scrollWidth") <= 688
        shoot(page, "print", full_page=True)
        assert 3 <= pages_of(page) <= 8


def pages_of(page: Page, paper: str = "A4") -> int:
    """How many sheets the printer would take."""
    return len(re.findall(rb"/Type\s*/Page\b", page.pdf(format=paper, prefer_css_page_size=True)))


@pytest.mark.parametrize("name", MAKERS)
def test_the_summary_is_one_page(browser, reports, shoot, name):
    page = browser.new_page(java_script_enabled=name in ("exposed", "three_runs"))  # axe is a script
    page.goto((reports[name].parent / "summary.html").as_uri())
    assert page.locator("h1").is_visible()
    assert [pages_of(page, paper) for paper in ("A4", "Letter")] == [1, 1]
    shoot(page, f"summary-{name}", full_page=True)
    if name in ("exposed", "three_runs"):
        assert page.locator(".forest").is_visible() and violations(page) == []
        page.set_viewport_size({"width": 400, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        shoot(page, f"summary-{name}-phone", full_page=True)
    page.close()


def test_page_of_the_experiments(opened, shoot):
    with opened("experiments") as page:
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert violations(page) == []  # dark is the same markup, and its contrast that of the reports
        for width in (1200, 400):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            sheets = page.locator(".sheet svg").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
            assert len(sheets) == len(list(RESULTS.glob("*.svg"))) and min(sheets) > 300
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = false")
        for width, scheme in ((400, "light"), (1200, "light"), (1200, "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            shoot(page, f"experiments-{width}-{scheme}", full_page=True)


def test_several_runs(opened, shoot):
    with opened("three_runs") as page:
        assert page.locator("#overview .forest").is_visible()
        page.mouse.move(*place_of(page, "#overview-figure-log", 0, 0.1))
        assert page.locator("#overview-figure .tooltip").inner_text().startswith("no noise: measured\n")
        assert page.locator("#run-1-figure .tooltip").is_hidden()
        shoot(page, "several")
