"""Processes that compute answers, so that a long one can be stopped: a thread could not be."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, Final

__all__ = ["Busy", "Stopped", "Workers"]

_GRACE: Final = 0.6  # seconds that a computation nobody waits for may still take: starting anew costs more
_POLL: Final = 0.01


class Stopped(Exception):
    """Nobody waits for the answer any more, or it took too long."""


class Busy(Exception):
    """More questions wait than are worth keeping."""


def _work(pipe: Connection) -> None:
    """The life of a worker: a form in, an answer (or what is wrong with a field) out."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its workers
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()

    from gmip.app.answer import answer
    from gmip.app.question import BadField, Question

    pipe.send(None)  # ready
    with contextlib.suppress(EOFError, OSError):
        while True:
            form = pipe.recv()
            try:
                pipe.send({"answer": answer(Question.read(form))})
            except BadField as error:
                pipe.send({"field": error.field, "problem": error.sentence})


def _end_with_parent(parent: int) -> None:
    import time

    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


class _Worker:
    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = False

    async def ask(self, form: dict[str, Any], wanted: Callable[[], Awaitable[bool]], limit: float) -> Any:
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        if not self._ready:
            await self._arrival(wanted, end)
            self._pipe.recv()
            self._ready = True
        self._pipe.send(form)
        await self._arrival(wanted, end)
        return self._pipe.recv()

    async def _arrival(self, wanted: Callable[[], Awaitable[bool]], end: float) -> None:
        loop = asyncio.get_running_loop()
        while not self._pipe.poll():
            if not self._process.is_alive():
                raise EOFError
            if not await wanted():
                end = min(end, loop.time() + _GRACE)
                wanted = _nobody
            if loop.time() > end:
                raise Stopped
            await asyncio.sleep(_POLL)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


async def _nobody() -> bool:
    return True  # it was asked already: the grace counts from then


class Workers:
    """A few worker processes; each computes one answer at a time and is replaced when it had to be stopped."""

    def __init__(self, count: int = 2, *, most_waiting: int = 16, limit: float = 120.0) -> None:
        self._idle = [_Worker() for _ in range(count)]
        self._free = asyncio.Semaphore(count)
        self._waiting, self._most_waiting, self._limit = 0, most_waiting, limit
        self._all = set(self._idle)

    async def ask(self, form: dict[str, Any], wanted: Callable[[], Awaitable[bool]]) -> Any:
        """The answer to a form. `wanted` tells whether somebody still waits; if not, or too late: `Stopped`."""
        if self._waiting >= self._most_waiting:
            raise Busy
        self._waiting += 1
        try:
            async with self._worker(wanted) as worker:
                return await worker.ask(form, wanted, self._limit)
        finally:
            self._waiting -= 1

    @contextlib.asynccontextmanager
    async def _worker(self, wanted: Callable[[], Awaitable[bool]]) -> AsyncIterator[_Worker]:
        async with self._free:
            if not await wanted():
                raise Stopped
            worker = self._idle.pop()
            try:
                yield worker
            except BaseException:  # stopped in the middle: its next answer would be to the wrong question
                self._all.discard(worker)
                worker.stop()
                worker = _Worker()
                self._all.add(worker)
                raise
            finally:
                self._idle.append(worker)

    def close(self) -> None:
        """End all workers."""
        for worker in self._all:
            worker.stop()
        self._all.clear()
