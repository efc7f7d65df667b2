"""Serves HTTP requests in a few threads that stay, each with its own connection to the database.

Django alone starts a thread for each request and ends it with the request: a connection that such a
thread keeps is lost, open, and many requests at once have as many threads and connections. Here a
request gets one of REQUEST_THREADS threads, and uses the connection of the one before it, which
Django checks first. So this process has at most that many connections for requests.

- A request that finds no free thread waits for at most PATIENCE seconds, then it is answered 503.
- Of those that wait, each source has one in turn, so that who asks much delays only itself. A
  source with MOST_WAITING requests that wait is answered 503 at once.
- A thread whose request was given up, because its client left, serves again once it is done with
  it, and with a new connection.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from django.db import connections

from msgnode.core.explanations import ERRORS
from msgnode.core.faults import FAULTS
from msgnode.core.rates import source_of

PATIENCE = 5.0
MOST_WAITING = 256
PART = "HTTP request without a thread"
"""What refused requests are counted under."""

Application = Callable[..., Awaitable[None]]


class RequestThreads:
    """An ASGI application that serves each HTTP request of Django in one of its threads.

    Args:
        application: Django.
        number: how many threads there are.
        patience: seconds that a request waits for one.
    """

    def __init__(self, application: Application, number: int, patience: float = PATIENCE) -> None:
        self._application = application
        self._number = number
        self._patience = patience
        self._free = [ThreadPoolExecutor(1, f"request-{at}") for at in range(number)]
        self._waiting: OrderedDict[str, deque[asyncio.Future[ThreadPoolExecutor]]] = OrderedDict()

    @property
    def is_serving(self) -> bool:
        """Whether a request is being served."""
        return len(self._free) < self._number

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve a request in a free thread, or answer 503."""
        client = scope.get("client") or ("",)
        try:
            thread = await self._thread(source_of(client[0]))
        except TimeoutError:
            FAULTS.note(PART)
            await _refuse(send)
            return
        try:
            async with ThreadSensitiveContext(executor=thread):
                await self._application(scope, receive, send)
        except BaseException:
            self._return_when_done(thread)
            raise
        self._return(thread)

    async def _thread(self, source: str) -> ThreadPoolExecutor:
        """A free thread.

        Raises:
            TimeoutError: there was none in time, or too many of this source wait for one.
        """
        if self._free:
            return self._free.pop()
        waiting = self._waiting.setdefault(source, deque())
        if len(waiting) >= MOST_WAITING:
            raise TimeoutError
        turn: asyncio.Future[ThreadPoolExecutor] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            async with asyncio.timeout(self._patience):
                return await turn
        except BaseException:
            if turn.cancelled():
                self._forget(source, turn)
            else:  # it came in the same turn of the loop
                self._return(turn.result())
            raise

    def _forget(self, source: str, turn: asyncio.Future[ThreadPoolExecutor]) -> None:
        waiting = self._waiting.get(source, deque())
        if turn in waiting:
            waiting.remove(turn)
        if not waiting:
            self._waiting.pop(source, None)

    def _return(self, thread: ThreadPoolExecutor) -> None:
        """Hand a thread to a request that waits, the next source's."""
        while self._waiting:
            source, waiting = self._waiting.popitem(last=False)
            turn = waiting.popleft()
            if waiting:
                self._waiting[source] = waiting  # behind the others
            if not turn.done():
                turn.set_result(thread)
                return
        self._free.append(thread)

    def _return_when_done(self, thread: ThreadPoolExecutor) -> None:
        """Return a thread that may still be busy with a request which was given up."""
        loop = asyncio.get_running_loop()

        def done(_: Future[None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._return, thread)

        thread.submit(connections.close_all).add_done_callback(done)


async def _refuse(send: Any) -> None:
    page = ERRORS[503]
    problem = {
        "type": f"/problems/errors/{page.name}",
        "title": page.explanation.title,
        "status": 503,
        "detail": "The node is busy with other HTTP requests (REQUEST_THREADS); try again later.",
    }
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", b"5"),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})
