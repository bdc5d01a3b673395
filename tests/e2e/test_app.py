"""The calculator as it runs: hostile requests, and a real browser on a desk and on a phone."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gmip.app.calculator import PRESETS
from gmip.report import write_report
from tests.unit.report import sample

pytestmark = pytest.mark.slow
CIFAR = PRESETS["cifar10"]
SLOW = CIFAR | {"record": "any"}  # takes many seconds


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "gmip", "app", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(re.findall(r":(\d+)/", process.stdout.readline())[0]), process
        finally:
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30) == ("", "")  # it had nothing to say


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audits")
    write_report(sample.three_runs(), folder / "three")
    (folder.parent / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with running(folder) as (port, process):
        yield port
        assert process.poll() is None


def request(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, given)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask(port: int, form: Any, **headers: str) -> tuple[int, Any]:
    status, body = request(
        port, "POST", "/answer", json.dumps(form).encode(), **{"Content_Type": "application/json"} | headers
    )
    return status, json.loads(body) if body.startswith(b"{") else body


def test_an_answer(port: int):
    status, told = ask(port, CIFAR)
    assert status == 200 and "4.39%" in told["answer"]["sentence"]


def test_a_mistake_is_at_its_field(port: int):
    status, told = ask(port, CIFAR | {"batch_size": "0"})
    assert status == 422 and told["field"] == "batch_size" and told["problem"].startswith("Batch size = 0 must")


HOSTS = [
    "",
    "evil.example",
    "127.0.0.1",
    "127.0.0.1:1",
    "localhost.evil.example",
    "[::1]",
    "0.0.0.0",
    "127.0.0.1:80:80",
]
PATHS = [
    *(
        "/../secret.txt",
        "/audits/../../secret.txt",
        "/static/../answer.py",
        "/static/..%2f..%2fcli.py",
        "/audits/%2e%2e",
    ),
    *(
        "/audits/three",
        "/audits/three/report.html",
        "/static/app.py",
        "/static/",
        "//etc/passwd",
        "/etc/passwd",
        "/%00",
    ),
    *("/audits/" + "a" * 5000, "/?" + "x=1&" * 1000, "/audits/..\\..\\secret.txt", "/answer", "/.git/config"),
]
VALUES = [
    "nan",
    "inf",
    "-inf",
    "1e308",
    "-1",
    "0",
    "1e-324",
    "",
    " ",
    "x" * 39,
    "\u0000",
    "1;rm",
    "{{7*7}}",
    "<b>",
    "9" * 39,
]
FIELDS = [
    "dataset_size",
    "batch_size",
    "epochs",
    "num_params",
    "clip_norm",
    "noise_std",
    "record",
    "attacker_knows",
    "fpr",
]
BODIES: list[bytes] = [
    *(b"", b"[]", b"null", b"1", b'"x"', b"{", b"\xff\xfe", b"[" * 5000, b'{"a":' * 3000, b"x" * 40_000),
    *(b'{"dataset_size": [1]}', b'{"dataset_size": 1e999}', b'{"__class__": "x"}'),
]


def test_hostile_requests(port: int, folder: Path):
    """More than 200: never a traceback, nothing of another folder, and the server still answers."""
    sent = 0
    answers: list[tuple[Any, int, bytes]] = []

    def note(what: Any, status: int, body: bytes) -> None:
        nonlocal sent
        sent += 1
        answers.append((what, status, body))

    for host in HOSTS:
        for path in ("/", "/audits", "/answer"):
            note((host, path), *request(port, "GET", path, Host=host))
            assert answers[-1][1] in (400, 403)
    for path in PATHS:
        for method in ("GET", "POST", "DELETE"):
            note((method, path), *request(port, method, path))
    for origin in ("http://evil.example", "null", "https://127.0.0.1"):
        status, body = ask(port, CIFAR, Origin=origin)
        note(origin, status, str(body).encode())
        assert status == 403
    for body in BODIES:
        note(body[:20], *request(port, "POST", "/answer", body, Content_Type="application/json"))
        assert 400 <= answers[-1][1] < 500
    for field in FIELDS:
        for value in VALUES:
            status, told = ask(port, CIFAR | {field: value})
            note((field, value), status, json.dumps(told).encode())
            assert status in (200, 422), (field, value, told)
    assert sent >= 200
    for what, status, body in answers:
        assert status != 500, what
        for leak in (b"Traceback", b"secret", b"root:", str(folder).encode()):
            assert leak not in body, what
    assert ask(port, CIFAR)[0] == 200


def test_nobody_waits_and_the_computation_ends(port: int):
    """Two long questions that nobody waits for would otherwise hold both workers for many seconds."""
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/answer", json.dumps(SLOW).encode(), {"Content-Type": "application/json"})
        time.sleep(0.2)
        assert connection.sock is not None
        connection.sock.close()
    status, told = ask(port, CIFAR)
    assert status == 200 and "answer" in told


def test_a_crowd_is_answered_or_told_when_to_ask_again(port: int):
    """Pages are served whatever is being computed; a question is answered, or refused in a sentence."""

    def one(number: int) -> tuple[int, str | None, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            path = ("/static/app.js", "/answer")[number % 2]
            method, body = ("GET", None) if number % 2 == 0 else ("POST", json.dumps(CIFAR).encode())
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.headers["Retry-After"], response.read()
        finally:
            connection.close()

    with ThreadPoolExecutor(120) as crowd:
        told = list(crowd.map(one, range(120)))
    assert {status for status, _, _ in told[0::2]} == {200}
    assert {status for status, _, _ in told[1::2]} <= {200, 503}
    refused = [(again, json.loads(body)["problem"]) for status, again, body in told if status == 503]
    assert set(refused) <= {("2", "Too many questions at once: try again in a moment.")}
    assert len(refused) <= 60 - 32


def test_a_port_in_use_is_one_sentence(port: int, folder: Path):
    command = [sys.executable, "-m", "gmip", "app", str(folder), "--port", str(port), "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"--port = {port} cannot be used") and done.stderr.count("\n") == 1


@contextlib.contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    page = browser.new_page(**options)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address)
    try:
        yield page
    finally:
        page.close()
    assert [text for text in said if "422" not in text] == []  # a refused value is an answer, too


def sentence(page: Any, words: str) -> None:
    page.wait_for_function("words => document.getElementById('sentence').textContent.includes(words)", arg=words)


def test_the_page_by_slider_drag_key_and_address(browser: Any, port: int):
    with opened(browser, f"http://127.0.0.1:{port}/", viewport={"width": 1280, "height": 1000}) as page:
        sentence(page, "about 4.39% of the members")
        # A mistake is said at its field, and mended by a slider.
        page.fill("#batch_size", "0")
        page.wait_for_selector("#batch_size-problem:not([hidden])")
        assert page.get_attribute("#batch_size", "aria-invalid") == "true"
        # What is still drawn answers another question: it fades, and its numbers are gone.
        assert not page.locator("#rows").is_visible() and not page.locator("#command").is_visible()
        assert float(page.locator("#drawing").evaluate("one => getComputedStyle(one).opacity")) < 0.2
        page.focus("#batch_size-slider")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#batch_size-problem", state="hidden")
        page.wait_for_selector("#rows")
        page.fill("#batch_size", "400")
        sentence(page, "about 4.39% of the members")
        # Steps follow the epochs that are kept.
        page.fill("#batch_size", "800")
        page.wait_for_function("() => document.getElementById('num_steps').value === '600'")
        page.fill("#batch_size", "400")
        sentence(page, "about 4.39% of the members")
        # The ring is dragged down: the noise follows.
        box = page.locator("#handle").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x, y + 20, steps=3)
        page.mouse.up()
        page.wait_for_function("() => Number(document.getElementById('noise_std').value) > 0")
        assert float(page.input_value("#tpr")) < 0.05
        # By keyboard alone, too.
        page.focus("#handle")
        before = float(page.input_value("#tpr"))
        page.keyboard.press("ArrowUp")
        assert float(page.input_value("#tpr")) > before
        sentence(page, f"{round(100 * float(page.input_value('#tpr')), 3):g}%")
        address, noise = page.url, page.input_value("#noise_std")
    with opened(browser, address) as page:  # all of it is in the address
        sentence(page, "% of the members")
        assert page.input_value("#noise_std") == noise
        with page.expect_download() as download:
            page.click('[data-save="png"]')
        assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
        with page.expect_download() as download:
            page.click('[data-save="csv"]')
        assert Path(download.value.path()).read_text().startswith("false_alarms,members_found")


def test_a_long_answer_can_be_cancelled(browser: Any, port: int):
    click = "const b = document.getElementById('cancel'); if (b.offsetParent) { b.click(); clearInterval(timer); }"
    with opened(browser, f"http://127.0.0.1:{port}/") as page:
        sentence(page, "about 4.39% of the members")
        page.evaluate(f"() => {{ const timer = setInterval(() => {{ {click} }}, 10); }}")  # a slow test comes too late
        page.select_option("#record", "any")
        page.wait_for_selector("#problem:not([hidden])")
        assert "Cancelled" in page.text_content("#problem")
        page.select_option("#record", "typical")
        sentence(page, "about 4.39% of the members")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_both_pages_are_accessible_and_fit(browser: Any, port: int, scheme: str, width: int):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")

    size = {"width": width, "height": 900}
    for path in ("/", "/audits"):
        with opened(browser, f"http://127.0.0.1:{port}{path}", viewport=size, color_scheme=scheme) as page:
            if path == "/":
                sentence(page, "of the members")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            found = axe.Axe().run(page)
            assert found.response["violations"] == []


def test_the_second_page_opens_a_report(browser: Any, port: int):
    with opened(browser, f"http://127.0.0.1:{port}/audits") as page:
        page.click("h2 a >> nth=0")
        page.wait_for_selector(".verdict")
        assert "/audits/" in page.url


def test_a_planted_report_is_shut_in(browser: Any, tmp_path: Path):
    """Its script does not run; even one that did could not read the other pages; our own report works."""
    ours = tmp_path / "ours"
    write_report(sample.three_runs(), ours)
    write_report(sample.three_runs(), tmp_path / "planted")
    evil = (
        "<script>document.title = 'ran'; fetch('/audits').then(r => r.text()).then(t => location = '/?x=' + t)</script>"
    )
    (tmp_path / "planted" / "report.html").write_text(f"<!doctype html><title>still</title><p id=here>{evil}")
    with running(tmp_path) as (port, _):
        base = f"http://127.0.0.1:{port}/audits"
        page = browser.new_page()
        page.goto(base)
        addresses = dict(
            zip([one.split(",")[0] for one in page.locator("h2 small").all_text_contents()], hrefs(page), strict=True)
        )
        page.goto(f"http://127.0.0.1:{port}{addresses['planted']}")
        page.wait_for_timeout(300)
        assert page.title() == "still" and page.url.endswith(addresses["planted"])
        assert page.evaluate("self.origin") == "null"
        assert page.evaluate("fetch('/audits').then(() => 'read', () => 'refused')") == "refused"
        page.goto(f"http://127.0.0.1:{port}{addresses['ours']}")
        page.wait_for_selector(".copy", state="attached")
        assert page.locator(".needs-script").first.is_visible()
        page.close()


def hrefs(page: Any) -> list[str]:
    return [link.get_attribute("href") for link in page.locator("h2 a").all()]


# -- a file that is dropped on the page -------------------------------------------------------------------------------


def test_a_dropped_file_is_audited_and_its_columns_are_chosen(browser: Any, port: int, tmp_path: Path):
    """The card, the report to download, and what is wrong with a file in one sentence; no other machine is asked."""
    lines = [f"{i},{(i % 2) * 2 + (i * 7919 % 101) / 40},{'tr' if i % 2 else 'te'}" for i in range(600)]
    (tmp_path / "odd.csv").write_text("\n".join(["who,value,part", *lines]) + "\n")
    with opened(browser, f"http://127.0.0.1:{port}/audit") as page:
        page.set_input_files("#file", tmp_path / "odd.csv")
        page.wait_for_selector("#problem:not([hidden])")
        assert "choose it under Columns" in page.inner_text("#problem")
        page.fill("#member-value", "tr")
        page.select_option("#role-score", "value")
        page.select_option("#role-member", "part")
        page.wait_for_selector("#card .verdict")
        assert page.inner_text("#card .verdict-title") == "Fails the target" and page.locator("#problem").is_hidden()
        with page.expect_download() as saved:
            page.click("#download")
        assert saved.value.suggested_filename == "odd-report.html"
        assert "Fails the target" in Path(saved.value.path()).read_text(encoding="utf-8")


def test_back_undoes_a_change_and_no_error_stays(browser: Any, port: int):
    with opened(browser, f"http://127.0.0.1:{port}/") as page:
        page.wait_for_selector("#sentence:not(:empty)")
        page.select_option("#preset", "digits")
        page.wait_for_selector("#sentence:not(:empty)")
        assert page.input_value("#dataset_size") == "250"
        page.fill("#attacker_knows", "0.5")
        assert page.locator(".problem:visible").count() == 0
        page.locator("#dataset_size").focus()
        page.go_back()
        assert page.input_value("#attacker_knows") == "0"
        page.go_back()
        assert page.input_value("#dataset_size") == "48000"
