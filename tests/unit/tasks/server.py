"""What the fixture `server` yields."""

from __future__ import annotations

__all__ = ["Server"]


class Server:
    """Serves `files` (path -> contents) on this machine and keeps the paths that were asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.address = ""

    def url(self, path: str) -> str:
        return f"{self.address}/{path}"
