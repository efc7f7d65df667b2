"""`/device/v1`: sessions, messages and their downstream over HTTP, as an ASGI application.

A device says by its session token whose request it is. A session that lost its connection, or is
with another worker, goes on here with the next request, as a socket would `re-open` it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from msgnode.bus.pipeline import Pipeline
from msgnode.bus.ports import Listener, Proof
from msgnode.core.errors import (
    BadMessage,
    Forbidden,
    InternalFault,
    NodeError,
    NotFound,
    NotIdentified,
    TooMany,
)
from msgnode.sessions import credentials
from msgnode.sessions.connection import ConnectionSettings
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.handshake import SessionHandshake
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import CloseCode

from . import calls, downstream, token
from .connection import DeviceConnection
from .devices import Device, Devices
from .events import EventId, read_id
from .http import Disconnected, Exchange, NotAllowed, Receive, Send, encode
from .idempotency import Answer
from .link import DeviceLink
from .token import SessionKey

log = logging.getLogger(__name__)

ROOT = "/device/v1"
MAX_WAIT = 25.0
"""Seconds that a request may wait for a response, or a poll for news."""
MAX_CALLS = 8
"""Requests of one device that may be under way, its downstream apart."""
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
    """One instance per worker."""

    def __init__(
        self,
        pipeline: Pipeline,
        sessions: SessionManager,
        door: SessionHandshake,
        sockets: ConnectionLimits,
        connection_settings: ConnectionSettings,
        prove: Callable[[str], Awaitable[Proof]],
        devices: Devices,
        settings: DeviceSettings,
    ) -> None:
        self._pipeline = pipeline
        self._sessions = sessions
        self._door = door
        self._sockets = sockets
        self._connection_settings = connection_settings
        self._prove = prove
        self._devices = devices
        self._settings = settings
        self._resuming: dict[str, asyncio.Task[Device]] = {}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
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

    async def _handle(self, exchange: Exchange) -> None:
        path, method = exchange.path.rstrip("/"), exchange.method
        if method == "OPTIONS":
            await self._preflight(exchange)
        elif path == f"{ROOT}/sessions":
            _allow(method, "POST")
            await self._open(exchange)
        elif path == f"{ROOT}/sessions/current":
            _allow(method, "PUT", "DELETE")
            await (self._keep(exchange) if method == "PUT" else self._close(exchange))
        elif path == f"{ROOT}/messages":
            _allow(method, "POST")
            await self._post(exchange)
        elif path == f"{ROOT}/events":
            _allow(method, "GET")
            await self._stream(exchange)
        elif path == f"{ROOT}/poll":
            _allow(method, "GET")
            await self._poll(exchange)
        elif exchange.path.startswith(RESOURCES) and len(exchange.path) > len(RESOURCES):
            _allow(method, *VERBS)
            await self._resource(exchange)
        else:
            raise NotFound(f"There is nothing at {exchange.path}: see the API's description.")

    async def _preflight(self, exchange: Exchange) -> None:
        headers = [
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (
                b"access-control-allow-headers",
                b"authorization, content-type, idempotency-key, last-event-id",
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
        proof = exchange.bearer()
        found = await self._prove(proof) if proof else None
        connection = self._connect(exchange.source, self._devices.link())
        if found is not None:
            connection.identify(found.identity, found.digest)
        answer = await self._session_frame(connection, "open", runtime_url)
        _, key = self._enter(connection, exchange.source, str(answer["runtimeToken"]))
        await exchange.answer(201, encode(self._described(key)))

    async def _keep(self, exchange: Exchange) -> None:
        """Keep the session, or get it back. One that has ended is replaced by a fresh one of the
        same runtime URL, as `re-open` does."""
        key = _key(exchange)
        listener = self._door.find(*key)
        if listener is not None:
            device = await self._device_of(listener, key, exchange.source)
            device.connection.active_at = time.monotonic()
            await exchange.answer(200, encode({**self._described(key), "resumed": True}))
            return
        connection = self._connect(exchange.source, self._devices.link())
        answer = await self._session_frame(connection, "re-open", f"{key.runtime_url}/{key.token}")
        fresh = str(answer.get("runtimeToken", key.token))
        _, key = self._enter(connection, exchange.source, fresh)
        await exchange.answer(200, encode({**self._described(key), "resumed": False}))

    async def _close(self, exchange: Exchange) -> None:
        device = await self._device(exchange)
        session = device.connection.session
        if session is not None:
            await device.connection.session_frame("close", session.runtime_url)
        self._devices.leave(device)
        await exchange.answer(204)

    def _connect(self, source: str, link: DeviceLink) -> DeviceConnection:
        self._sockets.check(source)
        return DeviceConnection(
            link, source, self._sessions, self._pipeline.carry, self._connection_settings
        )

    async def _session_frame(
        self, connection: DeviceConnection, type_: str, sender: str
    ) -> dict[str, Any]:
        """Open or resume by a frame; a connection that gets no session is closed."""
        try:
            return await connection.session_frame(type_, sender)
        except BaseException:
            connection.end(CloseCode.NORMAL, "no session")
            connection.lost()
            raise

    def _enter(
        self, connection: DeviceConnection, source: str, given: str
    ) -> tuple[Device, SessionKey]:
        try:
            device = self._devices.enter(connection, source)
        except NotIdentified:
            connection.lost()
            raise
        return device, SessionKey(connection.last_runtime_url, given)

    def _described(self, key: SessionKey) -> dict[str, Any]:
        return {
            "runtimeURL": key.runtime_url,
            "token": token.write(key),
            "idle": self._devices.idle,
            "grace": self._settings.grace,
            "links": {name: f"{ROOT}/{name}" for name in ("messages", "events", "poll")},
        }

    async def _device(self, exchange: Exchange) -> Device:
        """The device whose request this is. Raises NotIdentified for a token that opens nothing."""
        key = _key(exchange)
        listener = self._door.find(*key)
        if listener is None:
            raise NotIdentified("The session has ended: open a new one.")
        return await self._device_of(listener, key, exchange.source)

    async def _device_of(self, listener: Listener, key: SessionKey, source: str) -> Device:
        device = self._devices.of_session(listener.id)
        if device is not None and device.is_here:
            return device
        task = self._resuming.get(listener.id)
        if task is None:
            task = asyncio.create_task(self._resume(device, key, source))
            self._resuming[listener.id] = task
            task.add_done_callback(lambda _: self._resuming.pop(listener.id, None))
        return await asyncio.shield(task)

    async def _resume(self, device: Device | None, key: SessionKey, source: str) -> Device:
        link = self._devices.link(device.buffer if device is not None else None)
        link.buffer.has_gap = link.buffer.has_gap or device is None
        connection = self._connect(source, link)
        answer = await self._session_frame(connection, "re-open", f"{key.runtime_url}/{key.token}")
        if answer.get("runtimeToken", key.token) != key.token:  # it ended meanwhile
            connection.end(CloseCode.NORMAL, "the session has ended")
            connection.lost()
            raise NotIdentified("The session has ended: open a new one.")
        return self._enter(connection, source, key.token)[0]

    # --- messages ---------------------------------------------------------------------------------

    async def _post(self, exchange: Exchange) -> None:
        seconds = exchange.number("wait", 0, MAX_WAIT)
        device = await self._device(exchange)
        body = await exchange.body(self._settings.max_body)
        name = exchange.header(b"idempotency-key")
        earlier = device.keys.begin(name, body) if name else None
        if earlier is not None:
            await _give(exchange, await asyncio.shield(earlier))
            return
        try:
            answer = await self._call(device, body, seconds)
        except BaseException:
            if name:
                device.keys.failed(name)
            raise
        if name:
            device.keys.done(name, answer)
        await _give(exchange, answer)

    async def _resource(self, exchange: Exchange) -> None:
        """Create, read, update or delete what an address names, by a message to it."""
        seconds = exchange.number("wait", MAX_WAIT / 2, MAX_WAIT)
        device = await self._device(exchange)
        value = await exchange.json(self._settings.max_body)
        session = device.connection.session
        if session is None:
            raise NotIdentified("The session has ended.")
        address = unquote(exchange.path[len(RESOURCES) :])
        body: dict[str, Any] = {"resource": exchange.query.get("resource", address)}
        if value is not None:
            body["value"] = value
        message = {
            "id": uuid.uuid4().hex,
            "type": VERBS[exchange.method],
            "from": exchange.query.get("from", session.runtime_url),
            "to": address,
            "body": body,
        }
        await _give(exchange, await self._call(device, encode(message), seconds), only_body=True)

    async def _call(self, device: Device, body: bytes, seconds: float) -> Answer:
        if device.calls >= MAX_CALLS:
            raise TooMany(f"A device may have {MAX_CALLS} requests under way.")
        device.calls += 1
        try:
            return await calls.post(device, body, seconds)
        finally:
            device.calls -= 1
            device.connection.active_at = time.monotonic()

    # --- downstream -------------------------------------------------------------------------------

    async def _stream(self, exchange: Exchange) -> None:
        after = _event_id(exchange.header(b"last-event-id"))
        device = await self._device(exchange)
        await downstream.stream(exchange, device, after)

    async def _poll(self, exchange: Exchange) -> None:
        seconds = exchange.number("wait", MAX_WAIT, MAX_WAIT)
        at_most = int(exchange.number("max", downstream.AT_MOST, downstream.AT_MOST)) or 1
        after = _event_id(exchange.query.get("after", ""))
        device = await self._device(exchange)
        await downstream.poll(exchange, device, after, seconds, at_most)


async def _give(exchange: Exchange, answer: Answer, only_body: bool = False) -> None:
    body = answer.body
    if answer.is_problem:
        await exchange.answer(answer.status, body, b"application/problem+json")
        return
    if only_body and answer.status == 200:
        body = calls.body_of(body)
    await exchange.answer(answer.status, body)


def _key(exchange: Exchange) -> SessionKey:
    key = token.read(exchange.bearer())
    if key is None:
        raise NotIdentified("The header Authorization must bring a device's session token.")
    return key


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
