"""The WebSockets and HTTP requests of a sandboxed stub: made by the node, to the peer's hosts only.

Rules
- A stub of the field strips the scheme from its configuration and puts another before it: where the
  configuration names a place over TLS, the stub connects to it over TLS, whatever it says.
- A socket may lead only to a host of the peer, over TLS except to networks the operator has named,
  and only to public addresses or those networks: the resolved address is checked, and the
  connection goes to exactly that address.
- At most MAX_SOCKETS at a time. Each attempt after a failure or a loss in the same sandbox waits
  for the peer's back-off, however fast the stub asks; of waiting ones only the newest counts.
- Only text passes, of at most `max_frame` bytes, at limited rates: above them the socket is not
  read. If the stub closes a socket, or is refused one, it gets `close`.
- A peer that does not read is given some time, then its socket is ended.
- What the stub wrote to a socket that was meanwhile lost is counted.
- A silent peer must answer a ping, else it is gone. The answer comes after everything the peer has
  sent before, so it is late if that is read late. Therefore everything that comes counts as an
  answer, and while nothing is read nothing is concluded.

HTTP requests, which transports that begin with polling need, lead where sockets may. Rules
- No redirect is followed, no cookie is kept, and the node does not say who it is.
- At most MAX_REQUESTS at a time, of `max_frame` bytes each way, in text, at limited rates. One that
  is not answered within REQUEST_SECONDS has failed.
- After a failure the next one waits for the peer's back-off, however fast the stub asks.
- While one is under way, or was answered lately, they count as an open connection.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec
import websockets
from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from msgnode.core.back_off import BackOff
from msgnode.core.faults import FAULTS
from msgnode.core.token_bucket import TokenBucket
from msgnode.models.federation import RATE
from msgnode.net.http import (
    Answer,
    BadAnswer,
    HttpClient,
    Network,
    NoAnswer,
    NotAllowed,
    Resolve,
)
from msgnode.net.web_socket import CLOSE_SECONDS, CONNECT_SECONDS, open_socket
from msgnode.sandbox import pipe
from msgnode.sandbox.pipe import RequestWanted, SocketClose, SocketSend, SocketWanted

from .states import SessionWatch

_SOCKETS, _REQUESTS = ("wss", "ws"), ("https", "http")
MAX_SOCKETS = 2
REFUSED, LOST = 1006, 1006
"""The code with which browsers tell a script that a connection failed or was lost."""
HEARTBEAT_SECONDS = 5.0
SILENCE_SECONDS = 20.0
"""Seconds without a frame or an answer to a ping after which a peer counts as gone."""
UNREAD_SECONDS = 30.0
"""Seconds for which a peer may read nothing while something is sent; then its socket is ended."""
BYTES_PER_SECOND = 20_000_000.0
"""Of one peer, in both directions of its sandbox: it cannot keep a worker busy alone."""
_UNSENT = 1024 * 1024
"""Most unsent bytes; above, the stub can tell by `bufferedAmount`."""
_UNSENT_LIMIT = 8 * 1024 * 1024
_OVERHEAD = 256
"""Bytes of memory per text besides its content, which dominate for short ones."""
_UNREAD = "the peer does not read"


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """The limits of one peer's sockets. `headers` are sent by the node when it connects.

    `tls_places`: places (host and port) that the configuration of its stub names with TLS.
    """

    hosts: frozenset[str]
    networks: Sequence[Network] = ()
    max_frame: int = 1024 * 1024
    messages_per_second: float = RATE
    bytes_per_second: float = BYTES_PER_SECOND
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    tls_places: frozenset[str] = frozenset()


class StubSockets:
    """The sockets of one sandbox.

    Args:
        limits: where they may lead, and how much may pass.
        back_off: the peer's back-off.
        tell: sends a line to the sandbox.
        ready: waits until the node accepts more of the peer.
        watch: inspects the frames.
        ssl_context, resolve: for `wss`, and for the addresses of a host; the system's by default.
        on_change: called when one begins, opens, ends, or can take more.
    """

    def __init__(
        self,
        limits: SocketLimits,
        back_off: BackOff,
        tell: Callable[[bytes], None],
        ready: Callable[[], Awaitable[None]],
        watch: SessionWatch,
        ssl_context: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.refused = 0
        self.attempts = 0
        self._last_error = ""
        http = HttpClient(limits.networks, REQUEST_SECONDS, limits.max_frame, resolve)
        rates = (limits.messages_per_second, limits.bytes_per_second)
        self.requests = StubRequests(
            limits.max_frame, rates, back_off, tell, ready, watch, http, on_change
        )
        self.bytes_in = self.bytes_out = 0
        self.lost = 0  # texts that were written to a lost socket
        self._limits = limits
        self._back_off = back_off
        self._tell = tell
        self._ready = ready
        self._watch = watch
        self._ssl = ssl_context
        self._resolve = resolve
        self._on_change = on_change
        self._open: dict[int, ClientConnection] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._waiting = 0  # the socket that waits for the back-off
        self._sends: dict[int, asyncio.Queue[str]] = {}
        self._unsent: dict[int, int] = {}
        self._next_at, self._hurried = 0.0, asyncio.Event()
        self._is_ending = False
        self._messages = TokenBucket(limits.messages_per_second)
        self._bytes = TokenBucket(limits.bytes_per_second)

    @property
    def count(self) -> int:
        """The number of sockets and requests, including those being opened."""
        return len(self._tasks) + self.requests.count

    @property
    def due(self) -> float:
        """When `count` and `is_open` change if nothing happens."""
        return self.requests.due

    @property
    def last_error(self) -> str:
        """What happened last to a socket, else to a request."""
        return self._last_error or self.requests.last_error

    @last_error.setter
    def last_error(self, error: str) -> None:
        self._last_error = error

    @property
    def is_open(self) -> bool:
        """Whether there is an open one, or requests are answered."""
        return self.requests.is_open or any(
            link.state is State.OPEN for link in self._open.values()
        )

    @property
    def is_full(self) -> bool:
        """Whether the peer does not read what it is sent."""
        return any(size > _UNSENT for size in self._unsent.values())

    def want(self, wanted: SocketWanted) -> None:
        """Open a socket for the stub; it is told the result."""
        number = wanted.ws
        wanted = msgspec.structs.replace(wanted, url=self._with_tls(wanted.url))
        fault = socket_fault(wanted.url, self._limits.hosts, self._limits.networks, _SOCKETS)
        if number in self._tasks:
            return  # the number is in use, which only a forged line can cause
        if not fault and self._waiting in self._tasks:
            self._drop(self._waiting, "another was asked for")
        if not fault and len(self._tasks) >= MAX_SOCKETS:
            fault = f"it has {MAX_SOCKETS} already"
        if fault:
            self.refused += 1
            self.last_error = f"A WebSocket was refused: {fault}."
            self._tell(pipe.socket_closed(number, REFUSED, fault))
            return
        self._tasks[number] = asyncio.create_task(self._kept(number, wanted))
        self._on_change()

    def request(self, wanted: RequestWanted) -> None:
        """Send an HTTP request for the stub; it is told the result."""
        url = self._with_tls(wanted.url)
        fault = socket_fault(url, self._limits.hosts, self._limits.networks, _REQUESTS)
        self.refused += bool(fault)
        self.requests.want(wanted, url, fault)

    def _with_tls(self, url: str) -> str:
        """The URL, with TLS where the configuration names its place so."""
        scheme, mark, rest = url.partition("://")
        is_named = rest.split("/")[0].lower() in self._limits.tls_places
        return f"{scheme}s{mark}{rest}" if scheme in ("ws", "http") and is_named else url

    def hurry(self) -> None:
        """Let the next attempt start at once."""
        self._hurried.set()
        self.requests.hurry()

    def send(self, said: SocketSend) -> None:
        """Send text of the stub."""
        queue = self._sends.get(said.ws)
        if queue is None:
            self.lost += 1
            return
        unsent = self._unsent[said.ws] = self._unsent[said.ws] + len(said.data)
        if unsent + _OVERHEAD * queue.qsize() > _UNSENT_LIMIT:
            self._drop(said.ws, _UNREAD)
            return
        self._watch.sent(said.data)
        queue.put_nowait(said.data)
        if unsent > _UNSENT:
            self._tell(pipe.socket_buffered(said.ws, unsent))

    def close(self, said: SocketClose) -> None:
        """Close a socket for the stub."""
        self._drop(said.ws, "", said.code if said.code in range(3000, 5000) else 1000)

    async def end(self) -> None:
        """Close all; none counts as lost, because the stub has ended with them."""
        self._is_ending = True
        await self.requests.end()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def closed(self) -> None:
        """Wait until the stub has closed all."""
        while tasks := list(self._tasks.values()):
            await asyncio.wait(tasks)

    def _drop(self, number: int, why: str, code: int = 1006) -> None:
        task = self._tasks.get(number)
        if task is not None:
            self.last_error = why or self.last_error
            task.cancel()
            if number not in self._open:
                self._tasks.pop(number, None)
                self._tell(pipe.socket_closed(number, code, why))
                self._on_change()

    # --- one socket -------------------------------------------------------------------------------

    async def _kept(self, number: int, wanted: SocketWanted) -> None:
        code, reason = LOST, ""
        try:
            code, reason = await self._serve(number, wanted)
        except asyncio.CancelledError:
            reason = self.last_error
            if number not in self._open:
                raise
        except (NotAllowed, OSError, TimeoutError, ssl.SSLError) as error:
            reason = str(error) or type(error).__name__
        except websockets.exceptions.WebSocketException as error:
            reason = str(error)
        except Exception as error:
            FAULTS.note("socket of a stub", error)
            reason = "the node failed"
        was_open = self._open.pop(number, None) is not None
        unsent = self._sends.pop(number, None)
        self.lost += unsent.qsize() if unsent is not None else 0
        self._unsent.pop(number, None)
        self._tasks.pop(number, None)
        if reason or was_open:
            self.last_error = reason[: pipe.SHOWN] or "its socket was lost"
        self._tell(pipe.socket_closed(number, code, reason[:120]))
        if was_open and not self._is_ending:
            self._watch.lost(f"A connection there was lost: {reason[:120] or code}.")
        if not self._is_ending:
            self._on_change()

    async def _serve(self, number: int, wanted: SocketWanted) -> tuple[int, str]:
        """Connect, and pass text both ways until the socket is closed; its code and reason."""
        loop = asyncio.get_running_loop()
        self._waiting = number
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._next_at):
                await self._hurried.wait()
        self._hurried.clear()
        self._waiting = 0
        self.attempts += 1
        self._next_at = loop.time() + self._back_off.failed()  # if it fails, or is lost soon
        async with asyncio.timeout(CONNECT_SECONDS):
            link = await self._connect(wanted)
        try:
            self._open[number] = link
            self._unsent[number] = 0
            self._sends[number] = asyncio.Queue()
            self._back_off.succeeded()
            self._watch.opened()
            self._tell(pipe.socket_open(number, link.subprotocol or ""))
            self._on_change()
            heart = Heart()
            both = (self._send(number, link), self._beat(number, link, heart))
            jobs = [asyncio.create_task(each) for each in both]
            try:
                await self._receive(number, link, heart)
            finally:
                for job in jobs:
                    job.cancel()
        finally:
            await _end(link)
        return link.close_code or LOST, link.close_reason or ""

    async def _connect(self, wanted: SocketWanted) -> ClientConnection:
        limits = self._limits
        try:
            return await open_socket(
                wanted.url,
                limits.networks,
                self._resolve,
                self._ssl,
                subprotocols=[websockets.Subprotocol(each) for each in wanted.protocols] or None,
                max_size=limits.max_frame,
                max_queue=16,
                additional_headers=list(limits.headers),
            )
        except ConnectionRefusedError:
            if not self.is_open:
                self._watch.refused()
            raise

    async def _beat(self, number: int, link: ClientConnection, heart: Heart) -> None:
        with suppress(websockets.exceptions.ConnectionClosed):
            await heart.beat(link)
            self._drop(number, "the peer has not answered")

    async def _receive(self, number: int, link: ClientConnection, heart: Heart) -> None:
        with suppress(websockets.exceptions.ConnectionClosed):
            while True:
                heart.is_held = True
                await self._ready()
                heart.is_held = False
                text = await link.recv()
                heart.heard()
                if not isinstance(text, str):
                    self.last_error = "The peer sent a binary frame."
                    await _end(link, 1003, "text only")
                    return
                self.bytes_in += len(text)
                self._watch.received(text)
                self._tell(pipe.socket_message(number, text))
                if owed := max(self._messages.pay(1), self._bytes.pay(len(text))):
                    await asyncio.sleep(owed)

    async def _send(self, number: int, link: ClientConnection) -> None:
        queue = self._sends[number]
        with suppress(websockets.exceptions.ConnectionClosed):
            while True:
                text = await queue.get()
                try:
                    async with asyncio.timeout(UNREAD_SECONDS):
                        await link.send(text)
                except TimeoutError:
                    self._drop(number, _UNREAD)
                    return
                self.bytes_out += len(text)
                was_behind = self._unsent[number] > _UNSENT
                self._unsent[number] -= len(text)
                if was_behind and self._unsent[number] <= _UNSENT:
                    self._tell(pipe.socket_buffered(number, self._unsent[number]))
                    self._on_change()


async def _end(link: ClientConnection, code: int = 1000, reason: str = "") -> None:
    """Close a connection, at once if the peer does not take its part in that."""
    try:
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await link.close(code, reason)
    finally:
        if link.state is not State.CLOSED:
            link.transport.abort()


class Heart:
    """The heartbeat of one socket. `is_held`: reading it is paused."""

    def __init__(self) -> None:
        self.is_held = False
        self._has_heard = False

    def heard(self) -> None:
        """Note that the peer has sent something."""
        self._has_heard = True

    async def beat(self, link: ClientConnection) -> None:
        """Return when the peer has been silent for too long. Raises ConnectionClosed."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if self._is_alive():
                continue
            silent = 0.0
            pong: asyncio.Future[float] | None = None
            while silent < SILENCE_SECONDS:
                if pong is None and not link.transport.get_write_buffer_size():
                    pong = asyncio.ensure_future(await link.ping())
                step = min(HEARTBEAT_SECONDS / 5, SILENCE_SECONDS - silent)
                if pong is None:
                    await asyncio.sleep(step)
                else:
                    await asyncio.wait({pong}, timeout=step)
                if self._is_alive() or (pong is not None and pong.done()):
                    break
                silent += step
            else:
                return

    def _is_alive(self) -> bool:
        has_heard, self._has_heard = self._has_heard, False
        return has_heard or self.is_held


def tls_places(configuration: dict[str, Any]) -> frozenset[str]:
    """The places that a configuration names with TLS.

    >>> tls_places({"url": "https://b.example:9090/x", "messagingnode": "ws://b.example"})
    frozenset({'b.example:9090'})
    """
    named = (str(configuration.get(key, "")) for key in ("url", "messagingnode"))
    parts = (each.partition("://") for each in named)
    return frozenset(
        rest.split("/")[0].lower() for scheme, _, rest in parts if scheme in ("wss", "https")
    )


def socket_fault(
    url: str,
    hosts: frozenset[str],
    networks: Sequence[Network],
    schemes: Sequence[str] = (*_SOCKETS, *_REQUESTS),
) -> str:
    """Why a stub may not connect there, "" if it may. `schemes`: with which, TLS first.

    >>> socket_fault("wss://evil.example/ws", frozenset({"b.example"}), ())
    'evil.example is no host of the peer'
    """
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme not in (schemes if networks else schemes[::2]):
        return f"it must begin with {schemes[0]}://"
    if parts.username is not None or parts.password is not None:
        return "it must not name a user"
    if not any(host == each or host.endswith(f".{each}") for each in hosts):
        return f"{host or 'nothing'} is no host of the peer"
    return ""


# --- HTTP requests --------------------------------------------------------------------------------
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
        on_change: called when one begins or ends.
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
        on_change: Callable[[], None],
    ) -> None:
        self.last_error = ""
        self.bytes_in = self.bytes_out = 0
        self._back_off = back_off
        self._tell = tell
        self._ready = ready
        self._watch = watch
        self._http = http
        self._on_change = on_change
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
    def due(self) -> float:
        """When it is no longer recent that the last one was answered."""
        return self._answered_at + OPEN_SECONDS if self._is_recent else math.inf

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
        self._on_change()

    def hurry(self) -> None:
        """Let the next one start at once."""
        self._hurried.set()

    def abort(self, number: int) -> None:
        """Give one up for the stub."""
        if (task := self._tasks.pop(number, None)) is not None:
            task.cancel()
            self._on_change()

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
            self._on_change()
            return
        if answer.status >= 500:
            self._failed(f"the peer answered {answer.status}")
        else:
            self._succeeded(wanted.body, text)
        self._tell(pipe.http_answer(wanted.http, answer.status, answer.content_type, text))
        self._on_change()
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
        owed = max(map(TokenBucket.pay, self._buckets, (1, size)))
        if owed:
            self._next_at = asyncio.get_running_loop().time() + owed
