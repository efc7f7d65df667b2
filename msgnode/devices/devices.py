"""The devices with a session at this worker, and the end of those not heard of for too long.

A device is identified by its session. Its events outlive its connection for as long as the session
is detached here, so that after a break it still gets what it has not confirmed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from msgnode.bus.ports import Listener
from msgnode.core.errors import NotIdentified
from msgnode.core.faults import FAULTS
from msgnode.sessions.budgets import QueueBudget
from msgnode.sessions.connection_limits import ConnectionLimits
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.session import LiveSession

from .events import EventBuffer
from .idempotency import IdempotencyKeys
from .link import DeviceConnection, DeviceLink

HIGH_WATER = 64 * 1024
"""Unsent bytes above which the session queues frames in its own outbox."""
LOOKS_EVERY = 2.0
"""Seconds between two checks for idle devices."""


@dataclass(eq=False, slots=True)
class Device:
    """One device with a session at this worker.

    `stop_reading` ends the downstream it has, if any; `reader` names the one that reads, or was
    the last to read; `calls` counts the requests under way.
    """

    session: LiveSession
    buffer: EventBuffer
    connection: DeviceConnection
    source: str
    keys: IdempotencyKeys
    order: asyncio.Lock = field(default_factory=asyncio.Lock)
    stop_reading: Callable[[], None] | None = None
    reader: str = ""
    calls: int = 0

    @property
    def link(self) -> DeviceLink:
        """What its frames are written to."""
        return self.connection.link

    @property
    def is_here(self) -> bool:
        """Whether its connection is the session's."""
        return self.link.closed is None and self.connection.session is self.session


class Devices:
    """One instance per worker.

    Args:
        sockets: the connections of the worker, of which each device with a session is one.
        budget: what may wait for the sessions of one source together.
        buffer_bytes: what may wait for one device.
        idle: seconds without a request or a downstream until a device has lost its connection.
    """

    def __init__(
        self,
        sockets: ConnectionLimits,
        budget: QueueBudget,
        buffer_bytes: int,
        idle: float,
    ) -> None:
        self.idle = idle
        self.is_closed = False
        self._sockets = sockets
        self._budget = budget
        self._buffer_bytes = buffer_bytes
        self._devices: dict[str, Device] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._devices)

    def of_session(self, session_id: str) -> Device | None:
        """The device of a session, if it was here."""
        return self._devices.get(session_id)

    def link(self, session: Listener | None = None) -> DeviceLink:
        """A link for a new connection, on what the device of this session has not confirmed."""
        known = self._devices.get(session.id) if session is not None else None
        if known is not None:
            return DeviceLink(known.buffer, HIGH_WATER)
        buffer = EventBuffer(self._buffer_bytes, self._budget)
        if isinstance(session, LiveSession) and (packed := session.history()):
            buffer.unpack(packed)
        return DeviceLink(buffer, HIGH_WATER)

    def enter(self, connection: DeviceConnection, source: str) -> Device:
        """A connection, which is counted, has a session: it is a device's from now on.

        Raises:
            NotIdentified: the session has ended meanwhile.
        """
        session = connection.session
        if session is None:
            raise NotIdentified("The session has ended.")
        known = self._devices.get(session.id)
        if known is not None and known.connection is not connection:
            self._end(known)
        keys = known.keys if known is not None else IdempotencyKeys(self._budget)
        device = Device(session, connection.link.buffer, connection, source, keys)
        if known is not None:
            device.reader = known.reader
        connection.link.on_closed = partial(self._closed, device)
        device.buffer.charge_to(session.outbox.holders)
        keys.charge_to(session.outbox.holders)
        self._devices[session.id] = device
        if self._timer is None:
            self._look_again()
        return device

    def close(self) -> None:
        """The worker stops, and takes no more requests."""
        self.is_closed = True

    def session_closed(self, session: Listener, reason: str) -> None:
        """Handle the end of a session: its device's connection ends too."""
        self.session_left(session.id)

    def session_left(self, session_id: str) -> None:
        """Handle a session that has ended or moved to another worker.

        Whoever ends it tells the connection why; the reason here is for the other cases.
        """
        device = self._devices.pop(session_id, None)
        if device is None:
            return
        device.keys.close()
        if device.stop_reading is None:  # or its reader takes what is there
            device.buffer.clear()
        close = partial(device.link.close, CloseCode.NORMAL, "the session has ended")
        asyncio.get_running_loop().call_soon(close)

    def read_no_more(self, device: Device) -> None:
        """Handle the end of a downstream; what it left of an ended session is discarded."""
        if self._devices.get(device.session.id) is not device and device.session.has_ended:
            device.buffer.clear()

    def _end(self, device: Device) -> None:
        """The connection of a device is over; its session decides what becomes of itself."""
        if device.link.closed is None and device.stop_reading is not None:
            device.stop_reading()
        if device.connection in self._sockets.connections:
            self._give_back(device)
            self._sockets.remove(device.connection, device.source)
            device.connection.lost()

    def _closed(self, device: Device) -> None:
        """The session's side has closed the connection: it is lost, as a socket would be."""
        self._give_back(device)
        asyncio.get_running_loop().call_soon(self._end, device)

    def _give_back(self, device: Device) -> None:
        """Return unsent frames to the session, wherever it continues."""
        session = device.session
        if session.socket is device.connection and not session.has_ended:
            session.outbox.put_back(device.buffer.give_back())
            session.history = device.buffer.pack

    def _look_again(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOKS_EVERY, self._look)

    def _look(self) -> None:
        """Detach devices that have been idle for `idle` seconds."""
        self._timer = None
        oldest = time.monotonic() - self.idle
        for device in tuple(self._devices.values()):
            is_silent = device.stop_reading is None and not device.calls
            if is_silent and device.connection.active_at < oldest:
                with FAULTS.kept_to("device"):
                    self._end(device)
        if self._devices:
            self._look_again()
