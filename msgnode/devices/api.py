"""The API `/device/v1`: sessions, messages and downstream over HTTP, as an ASGI application.

A device authenticates a request by its session token. The worker that has the session executes the
request; any other worker forwards it there.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgnode.core.errors import (
    BadMessage,
    Forbidden,
    InternalFault,
    NodeError,
    NotFound,
    NotIdentified,
    TooMany,
    Unavailable,
)
from msgnode.sessions import credentials

from . import calls, downstream, session_router, token
from .devices import Device
from .events import EventId, read_id
from .forwarding import OtherWorkers
from .http import ROOT, BodyBudget, Disconnected, Exchange, NotAllowed, Receive, Send, encode
from .idempotency import Answer
from .outlets import WEBHOOK_SECONDS, Outlets
from .resumption import DeviceSessions
from .session_router import SessionRouter, key_of
from .token import SessionKey

log = logging.getLogger(__name__)

MAX_WAIT = 25.0
"""Seconds that a request may wait for a response, or a poll for news."""
MAX_CALLS = 8
"""Most concurrent requests of one device, not counting its downstream."""
RESOURCES = f"{ROOT}/resources/"
VERBS = {"GET": "read", "PUT": "create", "PATCH": "update", "DELETE": "delete"}
CORS_SECONDS = b"600"


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """`origins`: the pages that may call. Sizes are in bytes, times in seconds."""

    origins: Collection[str]
    max_body: int
    grace: float


class DeviceApi:
    """One instance per worker.

    `workers` are the others; `outlets` are those besides streams and
    polls.
    """

    def __init__(
        self,
        sessions: DeviceSessions,
        settings: DeviceSettings,
        workers: OtherWorkers,
        outlets: Outlets,
    ) -> None:
        self._sessions = sessions
        self._devices = sessions.devices
        self._settings = settings
        self._bodies = BodyBudget()
        self._outlets = outlets
        self._router = SessionRouter(sessions, workers, settings.max_body, self)
        self.answer = self._router.answer

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; a failure ends only this one."""
        exchange = Exchange(scope, receive, send, self._bodies)
        try:
            try:
                self._admit(exchange)
                await self._handle(exchange)
            except NodeError as error:
                await exchange.refuse(error)
            except (Disconnected, asyncio.CancelledError):
                raise
            except Exception:
                log.exception("A request of a device failed.")
                await exchange.refuse(InternalFault())
        except Disconnected:
            return
        finally:
            exchange.done()

    def _admit(self, exchange: Exchange) -> None:
        """Whether this page, from this address, may ask anything at all."""
        origin = exchange.header(b"origin")
        if origin:
            if not credentials.origin_fits(exchange.scope, self._settings.origins):
                raise Forbidden("Pages of this origin may not call this node.")
            exchange.headers += [
                (b"access-control-allow-origin", origin.encode("latin1")),
                (b"access-control-expose-headers", b"retry-after"),
                (b"vary", b"origin"),
            ]
        if self._sessions.is_source_banned(exchange.source):
            raise Forbidden("Your address is banned from this node.")
        if self._devices.is_closed:
            exchange.headers.append((b"connection", b"close"))
            raise Unavailable("The node restarts: reconnect.")

    async def _handle(self, exchange: Exchange) -> None:
        path, method = exchange.path.rstrip("/"), exchange.method
        if method == "OPTIONS":
            await self._preflight(exchange)
        elif path == f"{ROOT}/sessions":
            _allow(method, "POST")
            await self._open(exchange)
        elif path == f"{ROOT}/sessions/current":
            _allow(method, "PUT", "DELETE")
            await (self._keep_or_replace(exchange) if method == "PUT" else self._end(exchange))
        elif path == f"{ROOT}/messages":
            _allow(method, "POST")
            await self._router.route(exchange, _wait_of(exchange), self._post)
        elif path == f"{ROOT}/events":
            _allow(method, "GET")
            await self._stream(exchange)
        elif path == f"{ROOT}/poll":
            _allow(method, "GET")
            await self._router.route(exchange, _wait_of(exchange), self._poll)
        elif path == f"{ROOT}/webhook":
            _allow(method, "GET", "PUT", "DELETE")
            await self._router.route(exchange, WEBHOOK_SECONDS, self._outlets.webhook)
        elif path == f"{ROOT}/push":
            _allow(method, "PUT", "DELETE")
            await self._router.route(exchange, 0.0, self._outlets.push)
        elif path == f"{ROOT}/push/key":
            _allow(method, "GET")
            await self._outlets.push_key(exchange)
        elif exchange.path.startswith(RESOURCES) and len(exchange.path) > len(RESOURCES):
            _allow(method, *VERBS)
            await self._router.route(exchange, _wait_of(exchange), self._resource)
        else:
            raise NotFound(f"There is nothing at {exchange.path}: see the API's description.")

    async def _preflight(self, exchange: Exchange) -> None:
        headers = [
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (
                b"access-control-allow-headers",
                b"authorization, content-type, idempotency-key, last-event-id, traceparent",
            ),
            (b"access-control-max-age", CORS_SECONDS),
        ]
        await exchange.answer(204, more=headers)

    # --- sessions ---------------------------------------------------------------------------------

    async def _open(self, exchange: Exchange) -> None:
        body = await exchange.json(self._settings.max_body)
        runtime_url = body.get("runtimeURL") if isinstance(body, dict) else None
        if not isinstance(runtime_url, str) or not runtime_url:
            raise BadMessage("`runtimeURL` must name the runtime of the device.")
        key = await self._sessions.open(runtime_url, exchange.bearer(), exchange.source)
        await exchange.answer(201, encode(self._described(key)))

    async def _keep_or_replace(self, exchange: Exchange) -> None:
        try:
            await self._router.route(exchange, 0.0, self._keep)
        except NotIdentified:
            await self._replace(exchange, key_of(exchange))

    async def _end(self, exchange: Exchange) -> None:
        await self._router.route(exchange, 0.0, self._close)

    async def _keep(self, exchange: Exchange, device: Device) -> None:
        """Keep the session, or get it back."""
        device.connection.active_at = time.monotonic()
        described = self._described(key_of(exchange))
        await exchange.answer(200, encode({**described, "resumed": True}))

    async def _replace(self, exchange: Exchange, key: SessionKey) -> None:
        """A session that has ended is replaced by a fresh one of the same runtime URL."""
        fresh = await self._sessions.replace(key, exchange.source)
        await exchange.answer(200, encode({**self._described(fresh), "resumed": False}))

    async def _close(self, exchange: Exchange, device: Device) -> None:
        await self._sessions.close(device)
        await exchange.answer(204)

    def _described(self, key: SessionKey) -> dict[str, Any]:
        return {
            "runtimeURL": key.runtime_url,
            "token": token.write(key),
            "idle": self._devices.idle,
            "grace": self._settings.grace,
            "links": {
                name: f"{ROOT}/{name}" for name in ("messages", "events", "poll", "webhook", "push")
            },
        }

    # --- messages ---------------------------------------------------------------------------------

    async def _post(self, exchange: Exchange, device: Device) -> None:
        seconds = _wait_of(exchange)
        body = await exchange.body(self._settings.max_body)
        responses = exchange.query.get("responses", "")
        if responses not in ("", "events"):
            raise BadMessage("`responses` is `events`, or not there.")
        expects = not responses
        name = exchange.header(b"idempotency-key")
        while name and (earlier := device.keys.begin(name, body)) is not None:
            with _under_way(device):
                await asyncio.wait([earlier])
            if not earlier.cancelled():  # or the earlier one was not carried, and this one is
                await _give(exchange, earlier.result())
                return
        try:
            answer = await self._call(device, body, seconds, expects)
        except BaseException:
            if name:
                device.keys.failed(name)
            raise
        if name:
            device.keys.done(name, answer)
        await _give(exchange, answer)

    async def _resource(self, exchange: Exchange, device: Device) -> None:
        """Create, read, update or delete what an address names, by a message to it."""
        seconds = _wait_of(exchange)
        value = await exchange.json(self._settings.max_body)
        address = exchange.path[len(RESOURCES) :]
        body: dict[str, Any] = {"resource": exchange.query.get("resource", address)}
        if value is not None:
            body["value"] = value
        message = {
            "id": uuid.uuid4().hex,
            "type": VERBS[exchange.method],
            "from": exchange.query.get("from", device.session.runtime_url),
            "to": address,
            "body": body,
        }
        await _give(exchange, await self._call(device, encode(message), seconds), only_body=True)

    async def _call(
        self, device: Device, body: bytes, seconds: float, expects: bool = True
    ) -> Answer:
        with _under_way(device):
            return await calls.post(device, body, seconds, expects)

    # --- downstream -------------------------------------------------------------------------------

    async def _stream(self, exchange: Exchange) -> None:
        after = _event_id(exchange.header(b"last-event-id"))
        reader = await self._router.reader(exchange)
        if reader.is_elsewhere:
            await session_router.stream(exchange, after, reader)
            return
        device = await self._router.device(exchange)
        try:
            await downstream.stream(exchange, device, after)
        finally:
            self._devices.read_no_more(device)

    async def _poll(self, exchange: Exchange, device: Device) -> None:
        seconds = _wait_of(exchange)
        at_most = int(exchange.number("max", downstream.AT_MOST, downstream.AT_MOST)) or 1
        after = _event_id(exchange.query.get("after", ""))
        try:
            await downstream.poll(exchange, device, after, seconds, at_most)
        finally:
            self._devices.read_no_more(device)


@contextmanager
def _under_way(device: Device) -> Iterator[None]:
    """One request of a device more, for as long as the block lasts. Raises TooMany."""
    if device.calls >= MAX_CALLS:
        raise TooMany(f"A device may have {MAX_CALLS} requests under way.")
    device.calls += 1
    try:
        yield
    finally:
        device.calls -= 1
        device.connection.active_at = time.monotonic()


async def _give(exchange: Exchange, answer: Answer, only_body: bool = False) -> None:
    body = answer.body
    if answer.is_problem:
        await exchange.answer(answer.status, body, b"application/problem+json")
        return
    if only_body and answer.status == 200:
        body = calls.body_of(body)
    await exchange.answer(answer.status, body)


def _wait_of(exchange: Exchange) -> float:
    """How long a request may wait. Raises BadMessage."""
    default = 0.0
    if exchange.path.rstrip("/") == f"{ROOT}/poll":
        default = MAX_WAIT
    elif exchange.path.startswith(RESOURCES):
        default = MAX_WAIT / 2
    return exchange.number("wait", default, MAX_WAIT)


def _event_id(text: str) -> EventId | None:
    if not text:
        return None
    found = read_id(text)
    if found is None:
        raise BadMessage("The id of an event is <epoch>-<number>, as it was received.")
    return found


def _allow(method: str, *allowed: str) -> None:
    if method not in allowed:
        raise NotAllowed(f"Only {', '.join(allowed)} can be asked here.")
