"""Forwards requests about a session of another worker, which executes them.

The session stays where it is, whichever worker a request reaches. Limits and timeouts are those of
calls between workers (msgnode/workers/rpc.py).
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import msgspec

from msgnode.bus.ports import Listener
from msgnode.core.errors import GatewayTimeout, Unavailable
from msgnode.sessions.frame_connection import Refused

from .http import Exchange, Header

KIND = "device"
PATIENCE = 5.0
"""Seconds that another worker may take in addition to the request's own waiting time."""
_FORWARDED = (b"authorization", b"idempotency-key", b"last-event-id", b"traceparent")


class OtherWorkers(Protocol):
    """The workers of the node but this one."""

    def hears(self, session_id: str) -> bool:
        """Whether the worker of a session is up."""
        ...

    async def call(self, session_id: str, kind: str, text: bytes, seconds: float) -> bytes | None:
        """Call the worker of a session; None if it does not answer within so many seconds."""
        ...


class Request(msgspec.Struct, tag="request"):
    """A request as it came, without what only the worker it came to needs."""

    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    source: str
    body: bytes


class Read(msgspec.Struct, tag="read"):
    """A request of a stream at another worker for its next events.

    Attributes:
        token: the device's session token.
        reader: identifies the stream; the first request `begins` it, and ends any other.
        after: the position of the stream; at its beginning the event id the client gave.
        wait: seconds to wait for events.
    """

    token: str
    source: str
    reader: str
    begins: bool
    after: str
    wait: float


class Answer(msgspec.Struct, tag="answer"):
    """The response to a request."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Chunk(msgspec.Struct, tag="chunk"):
    """The text to write to a stream, and the position after it."""

    text: bytes
    position: str
    is_over: bool = False


class Refusal(msgspec.Struct, tag="refusal"):
    """A stream cannot go on. `is_elsewhere`: the session has left that worker."""

    code: int
    description: str
    is_elsewhere: bool = False


Asked = Request | Read
Told = Answer | Chunk | Refusal
_encode = msgspec.msgpack.Encoder().encode
_told = msgspec.msgpack.Decoder(Told)
read_question: msgspec.msgpack.Decoder[Asked] = msgspec.msgpack.Decoder(Asked)


def write_answer(told: Told) -> bytes:
    """Encode a response for the link."""
    return _encode(told)


async def request_of(exchange: Exchange, at_most: int) -> Request:
    """A request to forward. Raises NodeError for a body that is too long."""
    scope = exchange.scope
    body = await exchange.body(at_most)
    headers = [(name, value) for name, value in scope["headers"] if name in _FORWARDED]
    query = scope.get("query_string", b"")
    return Request(exchange.method, exchange.path, query, headers, exchange.source, body)


async def ask(
    workers: OtherWorkers, listener: Listener, asked: Asked, seconds: float
) -> Answer | Chunk | None:
    """Have the worker of a session answer; None if the session has left it.

    Raises:
        Refused: it refuses what was asked.
        GatewayTimeout: it did not answer, and may have done what was asked.
        Unavailable: it could not take the question.
    """
    text = await workers.call(listener.id, KIND, _encode(asked), seconds + PATIENCE)
    if text is None:
        raise GatewayTimeout("The worker of the node that has the session did not answer in time.")
    if not text:
        raise Unavailable("The worker of the node that has the session has too much to do.")
    told = _told.decode(text)
    if not isinstance(told, Refusal):
        return told
    if told.is_elsewhere:
        return None
    raise Refused(told.code, told.description)


class Collected:
    """An exchange that collects what is sent, to return it to another worker."""

    def __init__(self, asked: Request) -> None:
        self.status = 500
        self.headers: list[Header] = []
        self.body = b""
        self._parts = [asked.body]
        scope: dict[str, Any] = {
            "type": "http",
            "method": asked.method,
            "path": asked.path,
            "query_string": asked.query,
            "headers": asked.headers,
            "client": (asked.source, 0),
        }
        self.exchange = Exchange(scope, self._receive, self._send)

    @property
    def answer(self) -> Answer:
        """What the exchange was answered."""
        return Answer(self.status, self.headers, self.body)

    async def _receive(self) -> dict[str, Any]:
        if self._parts:
            return {"type": "http.request", "body": self._parts.pop(), "more_body": False}
        await asyncio.get_running_loop().create_future()  # who asked waits as long as it takes
        raise AssertionError

    async def _send(self, event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            self.status, self.headers = event["status"], list(event["headers"])
        else:
            self.body += event.get("body", b"")
