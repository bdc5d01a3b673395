"""The server of the calculator: on this machine only, nothing outside its folder, no state that a request changes."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import tempfile
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import uvicorn
from anyio import BrokenWorkerProcess, CapacityLimiter, create_task_group, move_on_after, sleep, to_process
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gmip._html import theme
from gmip.app.audit_list import audits_page, find_audits, read_report
from gmip.app.calculator import answer_form, calculator_page
from gmip.app.dropped import MOST_BYTES, audit_file, drop_page
from gmip.errors import InvalidArgument
from gmip.report.html import script_digest

# -- answers, each computed in a process ------------------------------------------------------------------------------


_AT_ONCE: Final = 2
_MOST_WAITING: Final = 32  # questions
_LIMIT: Final = 120.0  # seconds of one computation
_GRACE: Final = 0.6  # seconds that a computation nobody waits for may still take: starting anew costs more
_POLL: Final = 0.05
_RETRY: Final = 2  # seconds after which to ask again


async def _computed(request: Request, at_once: CapacityLimiter, work: Callable[..., Any], *given: Any) -> Response:
    """What `work` returns, as JSON. Its process ends where nobody waits for it any more, or it takes too long."""
    if at_once.statistics().tasks_waiting >= _MOST_WAITING:
        refused = _problem(503, "Too many questions at once: try again in a moment.")
        refused.headers["Retry-After"] = str(_RETRY)
        return refused
    response = _problem(503, "The computation was stopped.")

    async def end_unless_wanted() -> None:
        while not await request.is_disconnected():
            await sleep(_POLL)
        await sleep(_GRACE)
        both.cancel_scope.cancel()

    async with create_task_group() as both:
        both.start_soon(end_unless_wanted)
        async with at_once:
            try:
                with move_on_after(_LIMIT):
                    found = await to_process.run_sync(work, *given, cancellable=True)
                    response = JSONResponse(found, status_code=422 if "field" in found else 200)
            except BrokenWorkerProcess:  # ended by the system, for want of memory
                response = _problem(503, "The computation ended without an answer: type more moderate numbers.")
        both.cancel_scope.cancel()
    return response


async def _start_processes() -> None:
    """Starts the processes, so that the first answer need not wait for them."""
    async with create_task_group() as starting:
        for _ in range(_AT_ONCE):
            starting.start_soon(to_process.run_sync, answer_form, {})


# -- the server of the calculator -------------------------------------------------------------------------------------


HOST: Final = "127.0.0.1"
PORT: Final = 8642
_NAMES: Final = (HOST, "localhost")  # by which a browser on this machine may ask
_MOST_BYTES: Final = 16_384
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": _POLICY,
}
_STATIC: Final = {"app.js": "text/javascript", "audit.js": "text/javascript", "app.css": "text/css"}


def _report_policy() -> str:
    """The policy for a page that anybody may have written: an origin of its own (what `gmip app` serves is out
    of its reach), no network, no forms, and no script but that of this gmip's reports."""
    return (
        "sandbox allow-scripts; default-src 'none'; connect-src 'none'; style-src 'unsafe-inline'; "
        f"script-src '{script_digest()}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class _OnlyHere:
    """Refuses whoever is not a browser on this machine that was given our address, before anything else happens.

    A page of somebody else's could make a browser ask us: then Host (DNS rebinding) or Origin is not ours.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = _refusal(scope)
        if refusal is not None:
            await PlainTextResponse(refusal, status_code=403)(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def _refusal(scope: Scope) -> str | None:
    headers = Headers(scope=scope)
    port = scope["server"][1] if scope.get("server") else None
    allowed = [f"{name}:{port}" for name in _NAMES]
    hosts = headers.getlist("host")
    if len(hosts) != 1 or hosts[0] not in allowed:
        return "This page answers only to its own address on this machine.\n"
    asked_by_others = any(site in ("cross-site", "same-site") for site in headers.getlist("sec-fetch-site"))
    followed = scope["method"] == "GET" and headers.getlist("sec-fetch-mode") == ["navigate"]  # a link to us
    if (asked_by_others and not followed) or set(headers.getlist("origin")) - {f"http://{host}" for host in allowed}:
        return "Another page asked for this one, which is not allowed.\n"
    return None


def make_app(folder: Path | None = None) -> ASGIApp:
    """The application: the calculator, and the audits below `folder` where one is given."""
    at_once = CapacityLimiter(_AT_ONCE)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with create_task_group() as beside:
            beside.start_soon(_start_processes)
            yield
            beside.cancel_scope.cancel()

    async def calculator(request: Request) -> Response:
        return HTMLResponse(calculator_page(audits=folder is not None))

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404)
        text = files("gmip.app").joinpath("static", name).read_text(encoding="utf-8")
        return Response((theme() + text) if name == "app.css" else text, media_type=_STATIC[name])

    async def answer(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _problem(415, "Ask with application/json.")
        form = await _form(request)
        return form if isinstance(form, Response) else await _computed(request, at_once, answer_form, form)

    async def drop(request: Request) -> Response:
        return HTMLResponse(drop_page(audits=folder is not None))

    async def audit(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/octet-stream":
            return _problem(415, "Send the file as application/octet-stream.")
        try:
            columns = json.loads(request.query_params.get("columns", "{}"))
        except (ValueError, RecursionError):
            columns = None
        if not isinstance(columns, dict) or not all(isinstance(one, str) for one in columns.values()):
            return _problem(400, "The columns are not an object of texts.")
        name = re.sub(r"[^\w.-]+", "-", request.query_params.get("name", "")).lstrip(".-")[-80:] or "scores.csv"
        with tempfile.TemporaryDirectory(prefix="gmip-app-") as place:  # removed whatever happens
            file = Path(place) / name
            refused = await _kept(request, file)
            if refused is not None:
                return refused
            target = request.query_params.get("target", "")
            return await _computed(request, at_once, audit_file, file, columns, target)

    def audits(request: Request) -> Response:
        return HTMLResponse(audits_page(find_audits(_folder(folder))))

    def report(request: Request) -> Response:
        text = read_report(_folder(folder), request.path_params["key"])
        if text is None:
            raise HTTPException(404)
        return HTMLResponse(text, headers={"Content-Security-Policy": _report_policy()})

    return _OnlyHere(
        Starlette(
            routes=[
                Route("/", calculator, methods=["GET"]),
                Route("/static/{name}", static, methods=["GET"]),
                Route("/answer", answer, methods=["POST"]),
                Route("/audit", drop, methods=["GET"]),
                Route("/audit", audit, methods=["POST"]),
                Route("/audits", audits, methods=["GET"]),
                Route("/audits/{key}", report, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _http_error, Exception: _our_fault},
            lifespan=lifespan,
        )
    )


def _folder(folder: Path | None) -> Path:
    if folder is None:
        raise HTTPException(404)
    return folder


async def _form(request: Request) -> dict[str, Any] | Response:
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                return _problem(413, "The question is too long.")
        form = json.loads(body)
    except (ValueError, RecursionError):
        return _problem(400, "The question is not JSON.")
    except ClientDisconnect:
        return _problem(400, "The question broke off.")
    if not isinstance(form, Mapping):
        return _problem(400, "The question must be an object of texts.")
    return dict(form)


async def _kept(request: Request, file: Path) -> Response | None:
    """Writes what was sent to a file; a response where it is too much, or breaks off."""
    size = 0
    try:
        with file.open("wb") as kept:
            async for chunk in request.stream():
                size += len(chunk)
                if size > MOST_BYTES:
                    return _problem(413, "The file is too large: use gmip audit in a terminal.")
                kept.write(chunk)
    except ClientDisconnect:
        return _problem(400, "The file broke off.")
    return None


def _problem(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"field": None, "problem": sentence}, status_code=status)


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    words = {404: "There is no such page here.", 405: "This page does not accept that method."}
    return PlainTextResponse(words.get(status, "That cannot be answered.") + "\n", status_code=status)


async def _our_fault(request: Request, error: Exception) -> Response:
    return PlainTextResponse("A fault of gmip: the terminal that runs `gmip app` says more.\n", status_code=500)


def serve(folder: Path | None, *, port: int | None, browser: bool, say: Callable[[str], None]) -> None:
    """Serve until interrupted. Without a `port` the usual one is taken, or another one if that is in use."""
    if folder is not None and not folder.is_dir():
        raise InvalidArgument("is not a folder", argument="folder", value=str(folder), remedy="pass one, or none")
    listening = _listen(port)
    address = f"http://{HOST}:{listening.getsockname()[1]}/"
    say(f"The calculator is at {address} (Ctrl-C ends it). Only this machine can reach it.")
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    config = uvicorn.Config(
        make_app(folder),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=_MOST_BYTES,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int | None) -> socket.socket:
    tries = [PORT, 0] if port is None else [port]
    for number in tries:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, number))
            listening.listen()  # who asks before the server is ready waits
        except (OSError, OverflowError) as error:
            listening.close()
            if number == tries[-1]:
                why = getattr(error, "strerror", None) or str(error)
                raise InvalidArgument(
                    f"cannot be used ({why})", argument="port", value=number, remedy="pass another one, or none"
                ) from None
        else:
            return listening
    raise AssertionError("the last of the tries raises")
