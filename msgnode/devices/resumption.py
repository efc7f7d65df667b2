"""The sessions of devices: opened, kept, resumed and closed by requests instead of frames.

A session that has lost its connection is resumed by the next request, as by a socket's `re-open`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from msgnode.bus.ports import Listener, Proof
from msgnode.core.errors import NotIdentified
from msgnode.sessions.handshake import ConnectionParts
from msgnode.sessions.rules import CloseCode

from .devices import Device, Devices
from .link import DeviceConnection, DeviceLink
from .token import SessionKey

ENDED = "The session has ended: open a new one."


class DeviceSessions:
    """One instance per worker. `prove(token, source)` verifies a token or key."""

    def __init__(
        self,
        parts: ConnectionParts,
        prove: Callable[[str, str], Awaitable[Proof]],
        devices: Devices,
    ) -> None:
        self.devices = devices
        self._parts = parts
        self._prove = prove
        self._resuming: dict[str, asyncio.Task[Device]] = {}

    async def find(self, key: SessionKey) -> Listener:
        """The session that a token opens, at whichever worker. Raises NodeError."""
        listener = await self._parts.handshake.locator.locate(*key)
        if listener is None:
            raise NotIdentified(ENDED)
        return listener

    def is_source_banned(self, source: str) -> bool:
        """Whether requests from this network address are refused."""
        return self._parts.sessions.is_source_banned(source)

    async def open(self, runtime_url: str, proof: str, source: str) -> SessionKey:
        """Open a session. Raises NodeError."""
        found = await self._prove(proof, source) if proof else None
        connection = self._connect(source, self.devices.link())
        if found is not None:
            connection.identify(found.identity, found.digest)
        with self._counted(connection, source):
            answer = await connection.begin_session(runtime_url)
            self.devices.enter(connection, source)
        return SessionKey(connection.last_runtime_url, str(answer["runtimeToken"]))

    async def replace(self, key: SessionKey, source: str) -> SessionKey:
        """A fresh session in the place of one that has ended, as `re-open` gives it."""
        connection = self._connect(source, self.devices.link())
        with self._counted(connection, source):
            answer = await connection.begin_session(f"{key.runtime_url}/{key.token}", "re-open")
            self.devices.enter(connection, source)
        return SessionKey(connection.last_runtime_url, str(answer.get("runtimeToken", key.token)))

    async def device(self, listener: Listener, key: SessionKey, source: str) -> Device:
        """The device of a session, which is resumed here if necessary. Raises NodeError."""
        device = self.devices.of_session(listener.id)
        if device is not None and device.is_here:
            device.connection.active_at = time.monotonic()
            return device
        task = self._resuming.get(listener.id)
        if task is None:
            task = asyncio.create_task(self._resume(listener, key, source))
            self._resuming[listener.id] = task
            task.add_done_callback(lambda _: self._resuming.pop(listener.id, None))
        return await asyncio.shield(task)

    async def close(self, device: Device) -> None:
        """Close the session at the device's request."""
        session = device.connection.session
        if session is not None:
            await device.connection.session_frame("close", session.runtime_url)

    async def _resume(self, listener: Listener, key: SessionKey, source: str) -> Device:
        connection = self._connect(source, self.devices.link(listener))
        with self._counted(connection, source):
            answer = await connection.begin_session(f"{key.runtime_url}/{key.token}", "re-open")
            if answer.get("runtimeToken", key.token) != key.token:  # it ended meanwhile
                connection.end(CloseCode.NORMAL, "the session has ended")
                connection.lost()
                raise NotIdentified(ENDED)
            return self.devices.enter(connection, source)

    @contextmanager
    def _counted(self, connection: DeviceConnection, source: str) -> Iterator[None]:
        """Count a connection while its session begins, and afterwards unless that fails."""
        self._parts.sockets.add(connection, source)
        try:
            yield
        except BaseException:
            self._parts.sockets.remove(connection, source)
            raise

    def _connect(self, source: str, link: DeviceLink) -> DeviceConnection:
        self._parts.sockets.check(source)
        return self._parts.connection(DeviceConnection, link, source)
