"""A version of a connector's script in its sandbox: the calls to it, what it asks of the node.

Rules
- Each call is answered once: with a value, a refusal, or Ended if the sandbox ends before. An
  answer to a number that nobody waits for (any more) is dropped and counted.
- Requests and WebSockets go only to the origins of the version, to public addresses or those that
  an origin names (net/http); no redirect is followed, no cookie is kept. There are MAX_REQUESTS and
  MAX_SOCKETS at a time.
- A secret is put into the headers of a request to its own origin, here. The script has a
  placeholder, which is refused anywhere else.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from msgnode.core.back_off import BackOff
from msgnode.core.errors import (
    BadMessage,
    Conflict,
    Forbidden,
    GatewayTimeout,
    Gone,
    NodeError,
    NotFound,
    NotIdentified,
    TooMany,
    Unavailable,
)
from msgnode.core.faults import FAULTS
from msgnode.federation.sockets import SocketLimits, StubSockets
from msgnode.federation.states import SessionWatch
from msgnode.net.http import BadAnswer, HttpClient, NoAnswer, NotAllowed, Resolve
from msgnode.sandbox import pipe
from msgnode.sandbox.pipe import (
    Answered,
    Happened,
    KeptWanted,
    Loaded,
    LoadFailed,
    News,
    Refused,
    RequestAborted,
    RequestWanted,
    Said,
    SocketClose,
    SocketSend,
    SocketWanted,
)
from msgnode.sandbox.process import SandboxLimits, SandboxProcess

from .store import Version, networks_of, origin_of

LOAD_SECONDS = 5.0
MAX_REQUESTS, MAX_SOCKETS = 10, 20
REQUEST_SECONDS = 10.0
MAX_REQUEST, MAX_ANSWER = 1024 * 1024, 8 * 1024 * 1024
MAX_KEEPING, MAX_HAPPENING = 16, 200
"""Reads and changes of what it keeps at a time; what happens in its network and is not answered."""
REFUSALS: dict[int, type[NodeError]] = {
    each.code: each
    for each in (
        *(BadMessage, NotIdentified, Forbidden, NotFound, Conflict, Gone, TooMany),
        *(Unavailable, GatewayTimeout),
    )
}
"""With which a script may refuse, by their codes."""
_PLACEHOLDER = re.compile(r"\{\{secret:([^{}]*)\}\}")
_NOT_PASSED = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "upgrade", "expect", "te",
     "cookie", "accept-encoding", "user-agent", "keep-alive", "proxy-authorization", "trailer"}
)  # fmt: skip


class Ended(Exception):
    """The sandbox has ended before it answered; the text says why."""


class ScriptFailed(Exception):
    """The script has thrown, or said nothing that counts; the text is for the operator."""


class World(Protocol):
    """What a script reaches beyond its sandbox."""

    async def request(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str, bytes]:
        """Send a request that is allowed; its status, content type and body.

        Raises: NotAllowed, NoAnswer, BadAnswer.
        """
        ...

    def keep(self, wanted: KeptWanted) -> Awaitable[Any]:
        """Read or change what the connector keeps. Raises NodeError."""
        ...

    def hear(self, said: Happened) -> Awaitable[Any]:
        """Take what has happened in the network; what becomes of it. Raises NodeError."""
        ...

    def tell(self, entries: list[tuple[str, str]]) -> None:
        """Take news of entries."""
        ...


class Outside:
    """The World of a script that runs.

    Args:
        version: its version.
        keep: reads or changes what it keeps.
        hear: takes what has happened in its network.
        tell: takes news of entries.
        resolve: finds the addresses of a host; that of the system, if it is left out.
    """

    def __init__(
        self,
        version: Version,
        keep: Callable[[KeptWanted], Awaitable[Any]],
        hear: Callable[[Happened], Awaitable[Any]],
        tell: Callable[[list[tuple[str, str]]], None],
        resolve: Resolve | None = None,
    ) -> None:
        self._clients = {
            origin: HttpClient(
                networks_of(origin), REQUEST_SECONDS, MAX_ANSWER, resolve, MAX_REQUESTS
            )
            for origin in version.origins
        }
        self.keep = keep
        self.hear = hear
        self.tell = tell

    async def request(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, str, bytes]:
        """Send it over HTTP."""
        answer = await self._clients[origin_of(url)].request(method, url, body, headers)
        return answer.status, answer.content_type, answer.body

    async def close(self) -> None:
        """End its connections."""
        for client in self._clients.values():
            await client.close()


class Script:
    """A version that runs, or is to.

    Args:
        port: the port that it has to handle.
        version: what runs.
        world: what it reaches.
        limits: of its sandbox.
    """

    def __init__(self, port: str, version: Version, world: World, limits: SandboxLimits) -> None:
        self.version = version
        self.methods: frozenset[str] = frozenset()
        self.sandbox = SandboxProcess(limits, self._said)
        self.dropped = self.refused = 0
        """Answers that nobody waited for; requests that were not allowed."""
        self.refusals: list[str] = []
        shown = version.revealed
        self._hidden = [value for name, value in version.values.items() if name not in shown]
        self._port = port
        self._world = world
        self._loaded = asyncio.Event()
        self.is_idle = asyncio.Event()
        """Whether no call is unanswered."""
        self.is_idle.set()
        self._calls: dict[int, asyncio.Future[Answered]] = {}
        self._numbers = itertools.count(1)
        self._tasks: dict[int, asyncio.Task[None]] = {}  # requests, by the script's number
        self._keeping: set[asyncio.Task[None]] = set()
        self._happening: set[asyncio.Task[None]] = set()
        self._sockets: dict[int, StubSockets] = {}  # by the script's number, each of its own
        self._back_off = BackOff(0.25, 30.0)

    async def start(self) -> asyncio.Future[str]:
        """Start its sandbox, and load it; return a future of the sandbox's end.

        Raises:
            OSError: the sandbox does not start.
            ScriptFailed: it cannot be loaded; the sandbox has ended.
        """
        await self.sandbox.start()
        version = self.version
        self.sandbox.send(
            pipe.load_connector(version.source, version.configuration, version.revealed)
        )
        ended = asyncio.ensure_future(self._end())
        loading = asyncio.ensure_future(self._loaded.wait())
        first = asyncio.FIRST_COMPLETED
        try:
            await asyncio.wait({ended, loading}, timeout=LOAD_SECONDS, return_when=first)
        except asyncio.CancelledError:
            self.kill("it is not needed")
            raise
        finally:
            loading.cancel()
        if not self._loaded.is_set():
            self.kill(f"it was not loaded within {LOAD_SECONDS:g} s")
            raise ScriptFailed(await ended)
        return ended

    async def call(self, method: str, argument: Any, context: dict[str, Any]) -> bytes:
        """Call a method; return the JSON of its value.

        Raises:
            Ended: the sandbox has ended.
            NodeError: the script refuses it.
            ScriptFailed: the script has failed at it.
        """
        if not self.sandbox.is_running:
            raise Ended(self.sandbox.reason)
        number = next(self._numbers)
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        self.is_idle.clear()
        try:
            self.sandbox.send(pipe.call(number, method, argument, context))
            return bytes((await answer).value)
        except asyncio.CancelledError:
            self.sandbox.send(pipe.cancel(number))
            raise
        finally:
            self._calls.pop(number, None)
            if not self._calls:
                self.is_idle.set()

    def kill(self, why: str) -> None:
        """End its sandbox."""
        self.sandbox.kill(why)

    async def _end(self) -> str:
        why = await self.sandbox.ended()
        for answer in tuple(self._calls.values()):
            if not answer.done():
                answer.set_exception(Ended(why))
        tasks = [*self._tasks.values(), *self._keeping, *self._happening]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sockets in list(self._sockets.values()):
            await sockets.end()
        if isinstance(self._world, Outside):
            await self._world.close()
        return why

    # --- what it says -----------------------------------------------------------------------------

    def _said(self, said: Said) -> None:
        match said:
            case Answered(n=number):
                self._answer(number, said, None)
            case Refused(n=number, code=code, desc=text) if code in REFUSALS:
                self._answer(number, None, REFUSALS[code](pipe.shown(text)))
            case Refused(n=number, desc=text):
                self._answer(number, None, ScriptFailed(pipe.shown(text)))
            case RequestWanted():
                self._want(said)
            case RequestAborted(http=number):
                if (task := self._tasks.pop(number, None)) is not None:
                    task.cancel()
            case News(entries=entries):
                self._world.tell(entries)
            case Loaded():
                self._load(said)
            case LoadFailed(error=error):
                self.kill(f"it cannot be loaded: {pipe.shown(error)}")
            case _:
                self._asked(said)

    def _asked(self, said: Said) -> None:
        """Do, or tell somebody, what it asks for; none of it is of a call."""
        match said:
            case KeptWanted(n=number) if len(self._keeping) < MAX_KEEPING:
                _beside(self._keeping, self._told(number, self._world.keep(said)))
            case Happened(n=number) if len(self._happening) < MAX_HAPPENING:
                _beside(self._happening, self._told(number, self._world.hear(said)))
            case KeptWanted(n=number) | Happened(n=number):
                self.sandbox.send(pipe.kept(number, error="Too much at a time."))
            case SocketWanted():
                self._connect(said)
            case SocketSend(ws=number) if number in self._sockets:
                self._sockets[number].send(said)
            case SocketClose(ws=number) if number in self._sockets:
                self._sockets[number].close(said)

    def _load(self, said: Loaded) -> None:
        if said.handles != self._port:
            self.kill(f"it handles {pipe.shown(said.handles)}, not {self._port}")
            return
        self.methods = frozenset(said.methods)
        self._loaded.set()

    def _answer(self, number: int, said: Answered | None, error: Exception | None) -> None:
        answer = self._calls.pop(number, None)
        if answer is None or answer.done():
            self.dropped += 1
        elif error is not None:
            answer.set_exception(error)
        elif said is not None:
            answer.set_result(said)

    # --- what it asks of the node -----------------------------------------------------------------

    async def _told(self, number: int, answer: Awaitable[Any]) -> None:
        """Tell the script the answer to what it has asked."""
        value, error = None, ""
        try:
            value = await answer
        except NodeError as refusal:
            error = refusal.description
        except Exception as fault:
            FAULTS.note("what a connector has asked", fault)
            error = "The node failed."
        self.sandbox.send(pipe.kept(number, value, error))

    def _connect(self, wanted: SocketWanted) -> None:
        """Open a WebSocket, to an origin of its own."""
        origin = origin_of(re.sub("^ws", "http", wanted.url))
        fault = ""
        if origin not in self.version.origins:
            fault = f"{origin or 'that'} is none of its origins"
        elif len(self._sockets) >= MAX_SOCKETS:
            fault = f"it has {MAX_SOCKETS} WebSockets"
        elif not isinstance(self._world, Outside):
            fault = "nothing is reached in a trial"
        if wanted.ws in self._sockets:
            return  # the number is in use, which only a forged line can cause
        if fault:
            self._note_refused(f"WebSocket {wanted.url}", fault)
            self.sandbox.send(pipe.socket_closed(wanted.ws, 1006, fault[:120]))
            return
        host = urlsplit(wanted.url).hostname or ""
        limits = SocketLimits(frozenset({host}), networks_of(origin))
        changed = partial(self._socket_changed, wanted.ws)
        sockets = self._sockets[wanted.ws] = StubSockets(
            limits, self._back_off, self.sandbox.send, _always_ready, SessionWatch(),
            on_change=changed,
        )  # fmt: skip
        sockets.want(wanted)
        changed()

    def _socket_changed(self, number: int) -> None:
        """Forget a WebSocket that has ended, or was refused."""
        if number in self._sockets and not self._sockets[number].count:
            _beside(self._keeping, self._sockets.pop(number).end())

    def _want(self, wanted: RequestWanted) -> None:
        if wanted.http in self._tasks:
            return  # the number is in use, which only a forged line can cause
        headers, fault = self._headers(wanted)
        if not fault and len(self._tasks) >= MAX_REQUESTS:
            fault = f"it has {MAX_REQUESTS} requests under way"
        if not fault and len(wanted.body) > MAX_REQUEST:
            fault = f"it is larger than {MAX_REQUEST} bytes"
        if fault:
            self._refuse(wanted, fault)
            return
        self._tasks[wanted.http] = asyncio.create_task(self._request(wanted, headers))

    def _refuse(self, wanted: RequestWanted, fault: str) -> None:
        self._note_refused(f"{wanted.method} {wanted.url}", fault)
        self.sandbox.send(pipe.http_failed(wanted.http, fault[:120]))

    def _note_refused(self, where: str, fault: str) -> None:
        self.refused += 1
        shown = pipe.shown(f"{_PLACEHOLDER.sub('(secret)', where)}: {fault}")
        self.refusals = [*self.refusals[-19:], shown]

    def _headers(self, wanted: RequestWanted) -> tuple[dict[str, str], str]:
        """The headers of a request, with the values of secrets; and why it may not be sent."""
        origin = origin_of(wanted.url)
        version = self.version
        if origin not in version.origins:
            return {}, f"{origin or 'that'} is none of its origins"
        if _PLACEHOLDER.search(wanted.url) or _PLACEHOLDER.search(wanted.body):
            return {}, "a secret may stand in a header only"
        headers = {k: v for k, v in wanted.headers.items() if k.lower() not in _NOT_PASSED}
        for name, text in headers.items():
            for secret in _PLACEHOLDER.findall(text):
                if version.secrets.get(secret) != origin or secret not in version.values:
                    return {}, f"the secret {secret[:64]} is not for {origin}"
                value = version.values[secret]
                headers[name] = headers[name].replace(f"{{{{secret:{secret}}}}}", value)
        return headers, ""

    async def _request(self, wanted: RequestWanted, headers: dict[str, str]) -> None:
        body = None if wanted.method == "GET" else wanted.body.encode(errors="replace")
        error, status, kind, text = "", 0, "", ""
        try:
            status, kind, content = await self._world.request(
                wanted.method, wanted.url, body, headers
            )
            text = content.decode()
            for value in self._hidden:  # the other side may have sent it back
                text = text.replace(value, "(secret)")
            if 300 <= status < 400 and status != 304:
                error = f"it redirects ({status}), and no redirect is followed"
        except UnicodeDecodeError:
            error = "it was answered with bytes, and only text passes"
        except NotAllowed as refusal:
            self._refuse(wanted, str(refusal))
            return
        except (NoAnswer, BadAnswer) as failure:
            error = str(failure)
        except Exception as failure:
            FAULTS.note("request of a connector", failure)
            error = "the node failed"
        finally:
            if self._tasks.get(wanted.http) is asyncio.current_task():
                del self._tasks[wanted.http]
        told = (
            pipe.http_failed(wanted.http, error[:120])
            if error
            else pipe.http_answer(wanted.http, status, kind, text)
        )
        self.sandbox.send(told)


def _beside(tasks: set[asyncio.Task[None]], job: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(job)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _always_ready() -> None:
    """What comes by a socket is taken at its own rates; what the script makes of it has limits."""


def decoded(value: bytes, type_: Any) -> Any:
    """A result of a script, as the type that its port asks for.

    Raises:
        ScriptFailed: it is none.
    """
    try:
        return msgspec.json.decode(value, type=type_)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise ScriptFailed(f"its result is of the wrong type: {error}"[:300]) from None
