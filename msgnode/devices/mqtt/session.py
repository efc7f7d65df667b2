"""A session whose frames come through the broker: opened when needed, paused, resumed.

Frames are carried as they come. While the session is not open, or its sender is paused, they wait
in order, and are acknowledged to the broker once they were carried.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgnode.core.errors import GatewayTimeout, NodeError, TooMany
from msgnode.core.faults import FAULTS
from msgnode.core.identity import BROKER_ISSUER, Identity
from msgnode.sessions.frame_connection import ConnectionOpener, FrameConnection
from msgnode.sessions.rules import CloseCode

from .delivery import Delivery
from .link import BrokerLink

REFUSED_SECONDS = 5.0
"""A session that is refused is not asked for again for so long."""
SOURCE = "mqtt"
"""The text in place of a network address of devices behind the broker."""
_RETRY_SECONDS = 0.5
_TRANSIENT = frozenset({429, 500, 503, 504})


class BrokerConnection(FrameConnection):
    """The connection of such a session."""

    handshake = "mqtt"
    link: BrokerLink


class Opener(Protocol):
    """Opens sessions of this worker, and is told of their end."""

    async def open(self, runtime_url: str, name: str, link: BrokerLink) -> BrokerConnection:
        """A connection with an open session. Raises NodeError."""
        ...

    def left(self, connection: BrokerConnection) -> None:
        """Detach the session of the lost connection, which is kept for the grace period."""
        ...


class BrokerSessions(ConnectionOpener):
    """Implements Opener, with the identity that the broker vouches for.

    One instance per worker and kind of limits.
    """

    async def open(self, runtime_url: str, name: str, link: BrokerLink) -> BrokerConnection:
        """Open a session for a client of the broker. Raises NodeError."""
        connection = self._made(BrokerConnection, link, SOURCE)
        subject = f"urn:device:{name}"
        connection.set_identity(Identity(BROKER_ISSUER, subject, username=subject), "")
        self._limits.add(connection, SOURCE)
        try:
            await connection.begin_session(runtime_url)
        except BaseException:
            self._uncount(connection, SOURCE)
            raise
        return connection

    def left(self, connection: BrokerConnection) -> None:
        """Count the connection of a client no longer."""
        self._uncount(connection, SOURCE)


class BrokerSession:
    """One runtime URL behind the broker.

    Args:
        runtime_url: the runtime URL of the session.
        name: its user name at the broker.
        opener: opens sessions.
        at_most: most waiting frames; further ones are refused.
        holds_back: whether frames of QoS 1 are exempt, because the broker keeps the rest.
        refuse: called with what is not carried, and why.
        on_open: called with each connection that was opened.
        on_frames: called when there is something to publish.
    """

    def __init__(
        self,
        runtime_url: str,
        name: str,
        opener: Opener,
        at_most: int,
        holds_back: bool,
        refuse: Callable[[Delivery, bytes, NodeError], None],
        on_open: Callable[[], Awaitable[None]],
        on_frames: Callable[[], None],
    ) -> None:
        self.runtime_url = runtime_url
        self.name = name
        self.connection: BrokerConnection | None = None
        self._opener = opener
        self._at_most = at_most
        self._holds_back = holds_back
        self._refuse = refuse
        self._on_open = on_open
        self._on_frames = on_frames
        self._waiting: deque[tuple[Delivery, bytes]] = deque()
        self._held: tuple[Delivery, bytes] | None = None  # by the connection, for a fact
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = False
        self._refusal: NodeError | None = None
        self._obstacle: NodeError | None = None  # to its being opened, which may pass
        self._refused_until = 0.0
        self._has_left = False

    @property
    def is_open(self) -> bool:
        """Whether it has a session of the node."""
        return self.connection is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of it that would be lost."""
        return self.connection is None and not self._waiting and self._task is None

    def want(self) -> None:
        """Open the session, if it is not."""
        if self.connection is None:
            self._is_wanted = True
            self._go_on()

    def want_no_more(self) -> None:
        """The session is not needed: its connection is lost."""
        self._is_wanted = False
        self.lose()

    def take(self, delivery: Delivery, frame: bytes) -> None:
        """Carry a frame, now or in its turn."""
        connection = self.connection
        is_free = not self._waiting and self._held is None
        if connection is not None and is_free and not connection.is_held_back:
            self._carry(connection, delivery, frame)
        elif self._refusal is not None and asyncio.get_running_loop().time() < self._refused_until:
            self._give_up(delivery, frame, self._refusal)
        elif not (self._holds_back and delivery.qos) and (
            len(self._waiting) >= self._at_most or delivery.client.is_filling
        ):
            self._give_up(delivery, frame, TooFast())
        else:
            self._waiting.append((delivery, frame))
            self._go_on()

    @property
    def waits_for_the_node(self) -> bool:
        """Whether others wait for the same: the database, another worker."""
        return self.connection is None or self.connection.flow.unknown_facts > 0

    def refuse_waiting(self) -> None:
        """Refuse the waiting frames, and for a second any that would have to wait."""
        self._refused(self._obstacle if self.connection is None else None, 1.0)
        if self._held is not None:
            held, self._held = self._held, None
            held[0].done()  # the connection carries it yet

    def say(self, frame: bytes) -> None:
        """Carry a frame of our own, where the session is open."""
        if self.connection is not None:
            self.connection.frame_received(frame)

    def lose(self) -> None:
        """Handle the lost connection; what may not have arrived waits for the next one."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        held, self._held = self._held, None
        if held is not None and connection.link.closed is None:
            held[0].done()  # the connection carries it yet
        elif held is not None:
            self._waiting.appendleft(held)
        session = connection.session
        frames = connection.link.give_back()
        if session is not None and frames and not session.has_ended:
            session.outbox.put_back(frames)
        self._opener.left(connection)
        connection.lost()
        if self._waiting:
            self._go_on()

    def leave(self) -> None:
        """Serve it no longer; frames that were not carried come again elsewhere."""
        self._has_left = True
        if self._task is not None:
            self._task.cancel()
        self._waiting.clear()
        self.lose()

    # --- steps ------------------------------------------------------------------------------------

    def _carry(self, connection: BrokerConnection, delivery: Delivery, frame: bytes) -> None:
        if delivery.expires_at and delivery.expires_at < time.monotonic():
            self._give_up(delivery, frame, GatewayTimeout("It expired before it could be sent."))
            return
        connection.frame_received(frame)
        if connection.has_frames:  # for a fact that is on its way: it was not carried yet
            self._held = (delivery, frame)
            self._go_on()
        else:
            delivery.done()

    def _go_on(self) -> None:
        if self._task is None and not self._has_left:
            self._task = asyncio.create_task(self._work())
            self._task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            FAULTS.note("MQTT session", error)
            while self._waiting:
                delivery, frame = self._waiting.popleft()
                self._give_up(delivery, frame, NodeError("The node failed at a frame."))
        elif self._waiting and not self._has_left:
            self._go_on()

    async def _work(self) -> None:
        """Until nothing waits."""
        while self._waiting or self._held or (self._is_wanted and self.connection is None):
            connection = self.connection
            if connection is None:
                if not await self._open():
                    return
                continue
            await connection.ready()
            if connection is not self.connection:
                continue
            if self._held is not None:
                held, self._held = self._held, None
                held[0].done()
            elif self._waiting:
                self._carry(connection, *self._waiting.popleft())

    async def _open(self) -> bool:
        """Open the session if necessary; if it is refused, so are the waiting frames."""
        link = BrokerLink()
        try:
            connection = await self._opener.open(self.runtime_url, self.name, link)
        except NodeError as error:
            self._obstacle = error
            if error.code == TooMany.code and not self._holds_back:
                self._refused(error, REFUSED_SECONDS)
                await asyncio.sleep(REFUSED_SECONDS)
                return True
            if error.code in _TRANSIENT:
                await asyncio.sleep(_RETRY_SECONDS)
                return True
            self._is_wanted = False
            self._refused(error, REFUSED_SECONDS)
            return False
        self._is_wanted, self._refusal, self._obstacle = False, None, None
        self.connection = connection
        link.on_closed = lambda: self._ended_by_the_node(connection)
        link.on_frames = self._on_frames
        if link.closed is not None:
            self._ended_by_the_node(connection)
        elif link.has_frames:
            self._on_frames()
        await self._on_open()
        return True

    def _refused(self, error: NodeError | None, seconds: float) -> None:
        self._refusal = error or TooFast()
        self._refused_until = asyncio.get_running_loop().time() + seconds
        while self._waiting:
            self._give_up(*self._waiting.popleft(), self._refusal)

    def _ended_by_the_node(self, connection: BrokerConnection) -> None:
        closed = connection.link.closed

        def lose() -> None:
            if self.connection is connection:
                self.lose()
                if closed is not None and closed.code == CloseCode.TOO_SLOW:
                    self.want()  # whoever only listens would not come back of his own accord

        asyncio.get_running_loop().call_soon(lose)

    def _give_up(self, delivery: Delivery, frame: bytes, error: NodeError) -> None:
        self._refuse(delivery, frame, error)
        delivery.done()


class TooFast(NodeError):
    """More frames of one sender wait than may."""

    code = 429
    title = "The device sends faster than it may."
