"""A small object storage of this machine: what S3 answers to anonymous readers (HEAD, GET by ranges, lists)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

NOWHERE = "http://127.0.0.1:9"  # the port of "discard", on which nobody listens


class Storage(ThreadingHTTPServer):
    """Buckets are the folders of `root`. `asked` : (key, first byte, bytes sent) of each GET; `left` : bytes before
    connections break; None: they do not. `ranges` : whether parts of files are sent."""

    daemon_threads = True
    asked: list[tuple[str, int, int]]
    left: int | None = None
    ranges: bool = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.asked = root, []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may go away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Storage
    ERROR: ClassVar = '<?xml version="1.0"?><Error><Code>{0}</Code><Message>{1}</Message></Error>'

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        bucket, _, key = where.path.strip("/").partition("/")
        if not (self.server.root / bucket).is_dir():
            self._say(404, self.ERROR.format("NoSuchBucket", "The specified bucket does not exist").encode())
        elif not key:
            self._say(200, self._list(bucket, parse_qs(where.query).get("prefix", [""])[0]))
        elif not (file := self.server.root / bucket / key).is_file():
            self._say(404, self.ERROR.format("NoSuchKey", "The specified key does not exist.").encode())
        else:
            self._send(key, file.read_bytes())

    def _send(self, key: str, content: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "") if self.server.ranges else "")
        first, last = (int(asked[1]), int(asked[2] or len(content) - 1)) if asked else (0, len(content) - 1)
        part = content[first : last + 1]
        if self.command == "GET":
            self.server.asked.append((key, first, len(part)))
            if self.server.left is not None:
                self.server.left -= len(part)
                if self.server.left < 0:
                    self.close_connection = True
                    return
        more = {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}"} if asked else {}
        self._say(206 if asked else 200, part, **more)

    def _list(self, bucket: str, prefix: str) -> bytes:
        root = self.server.root / bucket
        files = [file for file in root.rglob("*") if file.is_file()]
        keys = [(key, file.stat().st_size) for file in files if (key := str(file.relative_to(root))).startswith(prefix)]
        each = "".join(f"<Contents><Key>{key}</Key><Size>{size}</Size></Contents>" for key, size in keys)
        return (
            f'<?xml version="1.0"?><ListBucketResult><KeyCount>{len(keys)}</KeyCount>{each}</ListBucketResult>'.encode()
        )

    def _say(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "Accept-Ranges": "bytes", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@contextmanager
def serving(root: Path) -> Iterator[Storage]:
    """The storage while the block runs."""
    with Storage(root) as storage:
        thread = threading.Thread(target=storage.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield storage
        finally:
            storage.shutdown()
            thread.join()
