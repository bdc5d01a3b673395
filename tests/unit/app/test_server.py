"""What the server sends beside a page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from gmip.app.audit_list import find_audits
from gmip.app.server import make_app
from gmip.report import write_report
from tests.unit.report import sample


def get(folder: Path, path: str) -> tuple[int, dict[str, str], str]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:1")],
        "server": ("127.0.0.1", 1),
        "scheme": "http",
        "root_path": "",
    }
    asyncio.run(make_app(folder)(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(part.get("body", b"") for part in sent[1:]).decode()


def policy(headers: dict[str, str]) -> dict[str, list[str]]:
    parts = (part.split() for part in headers["content-security-policy"].split(";"))
    return {name: values for name, *values in parts}


def test_a_report_has_an_origin_of_its_own_and_no_network(tmp_path: Path):
    write_report(sample.three_runs(), tmp_path)
    (tmp_path / "report.html").write_text("<script>fetch('/audits')</script>")  # somebody planted it
    status, headers, _ = get(tmp_path, f"/audits/{find_audits(tmp_path)[0].key}")
    found = policy(headers)
    assert status == 200 and headers["x-content-type-options"] == "nosniff"
    assert "allow-same-origin" not in found["sandbox"]
    for closed in ("default-src", "connect-src", "form-action", "base-uri", "frame-ancestors"):
        assert found[closed] == ["'none'"]
    assert all(source.startswith("'sha256-") for source in found["script-src"])


def test_the_script_of_our_own_report_may_run(tmp_path: Path):
    write_report(sample.three_runs(), tmp_path)
    _, headers, text = get(tmp_path, f"/audits/{find_audits(tmp_path)[0].key}")
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy(headers)["script-src"] == [f"'sha256-{digest}'"]
    assert "allow-scripts" in policy(headers)["sandbox"]
