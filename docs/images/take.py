"""Takes README's picture of the demo's report: make demo, then .venv/bin/python docs/images/take.py"""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

REPORT = Path("runs/demo/report.html")

with sync_playwright() as driver:
    browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1200, "height": 1150}, device_scale_factor=1)
    page.goto(REPORT.resolve().as_uri())
    page.screenshot(path=Path(__file__).with_name("report.png"))
    browser.close()
