"""One HTTP exchange over ASGI: reading a request within its limits, answering in JSON.

Refusals are problem details (RFC 9457): `title` says what the code means, `detail` what is wrong;
`body` is the body of the same refusal as a message, `message` the response it came as, if it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from msgnode.core import messages
from msgnode.core.errors import BadMessage, NodeError, NotFound, TooMany, Unavailable
from msgnode.core.explanations import ERRORS
from msgnode.sessions.budgets import source

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

ROOT = "/device/v1"
"""The path below which the API of devices is."""
RETRY_AFTER = b"10"
"""Seconds until a client that was refused for lack of room should try again."""
_JSON = b"application/json"
_PROBLEM = b"application/problem+json"
encode = msgspec.json.Encoder().encode


class TooLarge(NodeError):
    """The request's body is longer than a frame may be."""

    code = 413
    title = "Too large"


class Unprocessable(NodeError):
    """The request contradicts an earlier one."""

    code = 422
    title = "Contradicts an earlier request"


class NotAllowed(NodeError):
    """The path does not know this method."""

    code = 405
    title = "Method not allowed"


class Disconnected(Exception):
    """The client has gone before it was answered."""


BYTES_PER_SOURCE, BYTES_IN_ALL = 16 * 1024 * 1024, 128 * 1024 * 1024


class BodyBudget:
    """Limits the bytes of request bodies in memory at a worker, per source address and in total."""

    def __init__(self) -> None:
        self.bytes = 0
        self._of: Counter[str] = Counter()

    def take(self, address: str, size: int) -> None:
        """Count more bytes. Raises TooMany or Unavailable, and counts nothing, without room."""
        holder = source(address)
        if self._of[holder] + size > BYTES_PER_SOURCE:
            raise TooMany("Your address has reached its limit of bytes in concurrent requests.")
        if self.bytes + size > BYTES_IN_ALL:
            raise Unavailable("The node has reached its limit of bytes in concurrent requests.")
        self._of[holder] += size
        self.bytes += size

    def give(self, address: str, size: int) -> None:
        """Release bytes that are no longer in memory."""
        holder = source(address)
        self.bytes -= size
        self._of[holder] -= size
        if not self._of[holder]:
            del self._of[holder]


class Exchange:
    """One request and its answer.

    `headers` are sent with every answer. Its body counts in the budget until it is `done`.
    """

    def __init__(
        self,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
        bodies: BodyBudget | None = None,
    ) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.source: str = (scope.get("client") or [""])[0]
        self.headers: list[Header] = [(b"cache-control", b"no-store")]
        self.receive = receive
        self.is_answered = False
        self._bodies = bodies
        self._held = 0
        self._send = send
        query = scope.get("query_string", b"").decode("latin1")
        self.query = dict(parse_qsl(query, keep_blank_values=True))

    async def send(self, event: dict[str, Any]) -> None:
        """Send a part of the answer."""
        self.is_answered = True
        await self._send(event)

    def header(self, name: bytes) -> str:
        """A header of the request, "" if it is not there."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value.decode("latin1"))
        return ""

    def bearer(self) -> str:
        """The token of the header `Authorization`, "" for none."""
        scheme, _, token = self.header(b"authorization").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    def number(self, name: str, default: float, most: float) -> float:
        """A number from 0 to `most` of the query. Raises BadMessage."""
        text = self.query.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
            raise BadMessage(f"`{name}` must be a whole number from 0 to {most:g}.")
        return float(text)

    async def body(self, at_most: int) -> bytes:
        """The request's body. Raises TooLarge and Disconnected."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                raise Disconnected
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if self._bodies is not None and parts[-1]:
                self._bodies.take(self.source, len(parts[-1]))
                self._held += len(parts[-1])
            if size > at_most:
                raise TooLarge(f"A request may have {at_most} bytes.")
            if not event.get("more_body", False):
                return b"".join(parts)

    def done(self) -> None:
        """Release everything of the request."""
        if self._bodies is not None and self._held:
            self._bodies.give(self.source, self._held)
            self._held = 0

    async def json(self, at_most: int) -> Any:
        """The body read as JSON; None for an empty one. Raises BadMessage."""
        text = await self.body(at_most)
        try:
            return msgspec.json.decode(text) if text.strip() else None
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadMessage(f"The body is no JSON that can be read: {error}") from None

    async def gone(self) -> None:
        """Wait until the client has gone."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def answer(
        self, status: int, body: bytes = b"", kind: bytes = _JSON, more: Iterable[Header] = ()
    ) -> None:
        """Answer the request."""
        headers = [*self.headers, *more]
        if body:
            headers.append((b"content-type", kind))
        headers.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, error: NodeError, more: Iterable[Header] = ()) -> None:
        """Answer with the problem, unless something else is answered already."""
        if self.is_answered:
            return
        headers = list(more)
        if isinstance(error, TooMany | Unavailable):
            headers.append((b"retry-after", RETRY_AFTER))
        await self.answer(error.code, problem(error.code, error), _PROBLEM, headers)


def problem(status: int, error: NodeError, response: bytes | None = None) -> bytes:
    """The problem details of a refusal, which may have come as a response."""
    try:
        title = HTTPStatus(status).phrase
    except ValueError:
        title = error.title
    known = ERRORS.get(status)
    details: dict[str, Any] = {
        "type": f"/problems/errors/{known.name}" if known is not None else "about:blank",
        "title": title,
        "status": status,
        "detail": error.description,
        "body": messages.error_body(error),
    }
    if response is not None:
        details["message"] = msgspec.Raw(response)
    return encode(details)


async def switched_off(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """The application of a node that takes no devices over HTTP."""
    error = NotFound("Devices over HTTP are switched off at this node (DEVICE_HTTP).")
    await Exchange(scope, receive, send).refuse(error)
