"""Runs database calls off the event loop: in a few threads with a queue, or in any thread.

Opening a connection costs several times what a search does, so a thread keeps its own between
calls; it closes it after a second without work, and after a database error. Each call begins in
autocommit mode.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from django.db import close_old_connections, connections

from msgnode.core.errors import TooMany

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Params = ParamSpec("Params")
_Call = tuple[asyncio.Future[Any], Callable[[], Any]]

_IDLE = 1.0
"""Seconds without a call after which a thread closes its connection."""


async def in_any_thread(
    call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs
) -> Result:
    """Run a call in a thread that other code uses, too, and leave no connection of the call there.

    For calls that are rare. One that was left would stay broken after a restart of the database,
    and keep SQLite's log from being removed when the process ends. One that other code has left
    broken is closed before.

    Returns:
        The result of the call.
    """

    def called() -> Result:
        close_old_connections()
        try:
            return call(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.to_thread(called)


class DatabaseThreads:
    """A group of threads, started at the first call.

    Args:
        name: the name of the threads.
        threads: how many calls run at a time; with one thread, they run in order.
        capacity: how many calls may run and wait.
        refusal: the text of the error when there is no room.
    """

    def __init__(self, name: str, threads: int, capacity: int, refusal: str) -> None:
        self._name = name
        self._number = threads
        self._capacity = capacity
        self._refusal = refusal
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._waiting = 0
        self._is_stopped = False

    async def run(self, call: Callable[[], Result]) -> Result:
        """Run a call in one of the threads.

        Returns:
            The result of the call.

        Raises:
            TooMany: there is no room.
            RuntimeError: the threads were stopped.
        """
        if self._waiting >= self._capacity:
            raise TooMany(self._refusal)
        if self._is_stopped:
            raise RuntimeError(f"The threads of {self._name} were stopped.")
        if not self._threads:
            self._start()
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting += 1
        try:
            self._queue.put((done, call))
            return await done
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        """End the threads; calls that have not begun are cancelled."""
        self._is_stopped = True
        while True:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is not None:
                _tell(job[0], asyncio.Future.cancel)
        for _ in self._threads:
            self._queue.put(None)
        self._threads = []

    def _start(self) -> None:
        for number in range(self._number):
            thread = threading.Thread(
                target=self._serve, name=f"{self._name}-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    # --- the threads ------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            done, call = job
            if not done.cancelled():
                try:
                    result = call()
                except BaseException as error:  # any error is passed on to the caller
                    _after_error()
                    _tell(done, asyncio.Future.set_exception, error)
                else:
                    _tell(done, asyncio.Future.set_result, result)
                    del result
            del job, done, call  # keep no references while waiting
        connections.close_all()

    def _next(self) -> _Call | None:
        try:
            return self._queue.get(timeout=_IDLE)
        except queue.Empty:
            connections.close_all()
            return self._queue.get()


def _tell(done: asyncio.Future[Any], how: Callable[..., Any], *outcome: Any) -> None:
    """Settle a future on its loop, unless it was cancelled."""

    def settle() -> None:
        if not done.done():
            how(done, *outcome)

    try:
        done.get_loop().call_soon_threadsafe(settle)
    except RuntimeError:  # the loop has ended, so nobody is waiting
        log.warning("A call of the database came too late to be answered.")


def _after_error() -> None:
    """Close a connection that had a database error or was left in a transaction."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred or connection.in_atomic_block:
            try:
                connection.close()
            except Exception:
                log.exception("A connection that had failed cannot be closed.")
