"""The calculator: a page on this machine with the real accountant behind it, and the audits of a folder."""

from __future__ import annotations

from gmip.app.server import make_app, serve

__all__ = ["make_app", "serve"]
