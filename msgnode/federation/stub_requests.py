"""The HTTP requests of a sandboxed stub: sent by the node, to the peer's hosts only.

Transports that begin with polling, or know nothing else, need them. Rules
- They lead where sockets may (stub_sockets.py): hosts, networks, TLS and checked addresses. No
  redirect is followed, no cookie is kept, and the node does not say who it is.
- At most MAX_REQUESTS at a time, of `max_frame` bytes each way, in text, at limited rates. One that
  is not answered within REQUEST_SECONDS has failed.
- After a failure the next one waits for the peer's back-off, however fast the stub asks.
- While one is under way, or was answered lately, they count as an open connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgnode.core.back_off import BackOff
from msgnode.core.faults import FAULTS
from msgnode.core.token_bucket import TokenBucket
from msgnode.net.http import Answer, BadAnswer, HttpClient, NoAnswer, NotAllowed

from . import pipe
from .pipe import RequestWanted
from .session_watch import SessionWatch

MAX_REQUESTS = 4
REQUEST_SECONDS = 60.0
"""Longer than a poll of the field hangs (25 s)."""
OPEN_SECONDS = 5.0
"""For so long after an answer the next request may take to come."""
_NOT_PASSED = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "upgrade", "expect", "te",
     "cookie", "accept-encoding", "messaging-node", "user-agent"}
)  # fmt: skip


class StubRequests:
    """The requests of one sandbox.

    Args:
        max_size: most bytes of a request, and of an answer.
        per_second: most requests and bytes in a second.
        back_off: the peer's back-off.
        tell: sends a line to the sandbox.
        ready: waits until the node accepts more of the peer.
        watch: inspects what passes.
        http: the HTTP client.
    """

    def __init__(
        self,
        max_size: int,
        per_second: tuple[float, float],
        back_off: BackOff,
        tell: Callable[[bytes], None],
        ready: Callable[[], Awaitable[None]],
        watch: SessionWatch,
        http: HttpClient,
    ) -> None:
        self.last_error = ""
        self.bytes_in = self.bytes_out = 0
        self._back_off = back_off
        self._tell = tell
        self._ready = ready
        self._watch = watch
        self._http = http
        self._max_size = max_size
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._buckets = tuple(map(TokenBucket, per_second))
        self._next_at = 0.0
        self._hurried = asyncio.Event()
        self._was_answered = False
        self._answered_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the last one was answered, and another is under way or may still come."""
        return self._was_answered and (bool(self._tasks) or self._is_recent)

    @property
    def count(self) -> int:
        """Those under way; one if another may still come."""
        return len(self._tasks) or int(self.is_open)

    @property
    def _is_recent(self) -> bool:
        return asyncio.get_running_loop().time() - self._answered_at < OPEN_SECONDS

    def want(self, wanted: RequestWanted, url: str, fault: str) -> None:
        """Send a request for the stub; it is told the result.

        Args:
            wanted: the request.
            url: where it leads.
            fault: why it may not, "" if it may.
        """
        if wanted.http in self._tasks:
            return  # the number is in use, which only a forged line can cause
        if not fault and len(self._tasks) >= MAX_REQUESTS:
            fault = f"it has {MAX_REQUESTS} requests under way"
        if not fault and len(wanted.body) > self._max_size:
            fault = f"it is larger than {self._max_size} bytes"
        if fault:
            self.last_error = f"A request was refused: {fault}."
            self._tell(pipe.http_failed(wanted.http, fault))
            return
        self._tasks[wanted.http] = asyncio.create_task(self._kept(wanted, url))

    def hurry(self) -> None:
        """Let the next one start at once."""
        self._hurried.set()

    def abort(self, number: int) -> None:
        """Give one up for the stub."""
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()

    async def end(self) -> None:
        """Give up all."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.close()

    async def _kept(self, wanted: RequestWanted, url: str) -> None:
        error = ""
        try:
            answer = await self._sent(wanted, url)
            text = answer.body.decode()
        except UnicodeDecodeError:
            error = "it was answered with bytes, and only text passes"
        except (NotAllowed, NoAnswer, BadAnswer) as failure:
            error = str(failure)
        except Exception as failure:
            FAULTS.note("request of a stub", failure)
            error = "the node failed"
        if self._tasks.get(wanted.http) is asyncio.current_task():
            del self._tasks[wanted.http]
        if error:
            self._failed(error)
            self._tell(pipe.http_failed(wanted.http, error[:120]))
            return
        if answer.status >= 500:
            self._failed(f"the peer answered {answer.status}")
        else:
            self._succeeded(wanted.body, text)
        self._tell(pipe.http_answer(wanted.http, answer.status, answer.content_type, text))
        await self._slow_down(len(text))

    async def _sent(self, wanted: RequestWanted, url: str) -> Answer:
        if not self.is_open:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_at):
                    await self._hurried.wait()
            self._hurried.clear()
        await self._ready()
        body = wanted.body.encode(errors="replace") if wanted.method != "GET" else None
        headers = {k: v for k, v in wanted.headers.items() if k.lower() not in _NOT_PASSED}
        answer = await self._http.request(wanted.method, url, body, headers)
        if 300 <= answer.status < 400 and answer.status != 304:
            raise NotAllowed(f"it redirects ({answer.status}), and no redirect is followed")
        return answer

    def _succeeded(self, sent: str, received: str) -> None:
        if not self.is_open:
            self._back_off.succeeded()
            self._watch.opened()
        self._was_answered, self._answered_at = True, asyncio.get_running_loop().time()
        self.bytes_out += len(sent)
        self.bytes_in += len(received)
        for text, look in ((sent, self._watch.sent), (received, self._watch.received)):
            look(text)

    def _failed(self, error: str) -> None:
        was_open, self._was_answered = self._was_answered, False
        self.last_error = pipe.shown(error)
        self._next_at = asyncio.get_running_loop().time() + self._back_off.failed()
        if was_open:
            self._watch.lost(f"A request there failed: {error[:120]}.")

    async def _slow_down(self, size: int) -> None:
        """Keep the place of this request among MAX_REQUESTS until the rates allow another."""
        for bucket, cost in zip(self._buckets, (1, size), strict=True):
            bucket.left -= cost
            if bucket.left < 0:
                bucket.refill()
                if bucket.left < 0:
                    self._next_at = asyncio.get_running_loop().time() - bucket.left / bucket.rate
