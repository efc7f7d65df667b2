"""One socket: receives frames in order, and sends frames. Independent of ASGI.

Its states are in the table SOCKET of rules.py; flow_control.py decides when its sender is paused.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from msgnode.bus.delivery import present
from msgnode.bus.ports import Listener
from msgnode.core import addresses
from msgnode.core.errors import NodeError
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity, Origin, Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending

from .flow_control import FlowControl, FlowLimits
from .manager import SessionManager
from .outbox import Link
from .rules import SOCKET, CloseCode, SocketEvent, SocketState, after
from .session import LiveSession
from .turn_queue import Turns

MAX_FAILURES = 10
"""Invalid identities in `open` and `re-open` after which a connection is ended."""

AT_ONCE = 128
"""Frames of a sender that are carried before others have their turn of the loop."""

_NUMBERS = itertools.count(1)
_READING = SocketState.READING
_HELD = SocketState.HELD
_LOST = SocketState.LOST


Carry = Callable[[bytes, "Connection", Message | None], None]
"""The pipeline's `carry`: a frame, its connection, and what was read in the frame, if it was."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Limits of one connection.

    Attributes:
        flow: the limits of its sender.
        handshake_timeout: seconds until the first session must be open.
        names_runtime: whether that session must have named its runtime by then.
        home: the node's domain; a runtime of another domain is a visitor. "": there are none.
    """

    flow: FlowLimits
    handshake_timeout: float
    names_runtime: bool = False
    home: str = ""


class Connection:
    """The bus's Caller for a socket. `carry` is the pipeline's."""

    handshake = "ws"

    def __init__(
        self,
        link: Link,
        remote_address: str,
        sessions: SessionManager,
        carry: Carry,
        settings: ConnectionSettings,
    ) -> None:
        self.number = next(_NUMBERS)  # unique in this process
        self.link = link
        self.state = _READING
        self.session: LiveSession | None = None
        self._lost_session: LiveSession | None = None  # which goes on without this socket
        self.last_runtime_url = ""
        self.traceparent = ""
        self.closed_with = 0
        self.refusal: NodeError | None = None  # why it has no session, if still to be told
        self.proof = ""  # digest of the token that proved its identity
        self.checked: dict[str, bool] = {}  # see liveness.before
        self.flow = FlowControl(settings.flow, remote_address, self._go_on)
        self._anonymous = Speaker("", "", remote_address=remote_address)
        self._sessions = sessions
        self._carry = carry
        self._settings = settings
        self._failures = 0
        self._waiting: deque[tuple[bytes, Message | None]] | None = None  # made when needed
        self._is_read = True
        self._is_waiting = False  # for the next turn of the loop
        self._turns = Turns(self._may_take_step, self._go_on)
        self._released: asyncio.Event | None = None  # made when needed
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(settings.handshake_timeout, self._no_session)

    # --- who is behind it -------------------------------------------------------------------------

    @property
    def speaker(self) -> Speaker:
        """The speaker of its session, else one with a network address only."""
        return self.session.speaker if self.session is not None else self._anonymous

    def speaker_in(self, session_id: str, runtime_url: str) -> Speaker:
        """The speaker of a session on this connection."""
        known, home = self.speaker, self._settings.home
        is_foreign = bool(home) and bool(addresses.foreign_domain(runtime_url, home))
        return Speaker(
            session_id,
            runtime_url,
            Origin.FOREIGN if is_foreign else known.origin,
            known.remote_address,
            known.identity,
            known.peer if known.peer == addresses.parse(runtime_url).home else "",
        )

    def set_peer(self, peer: str) -> None:
        """Note that this connection was proved to be of the node of a domain; "" for of no node."""
        self._anonymous = replace(self._anonymous, peer=peer)

    def lose_session(self) -> None:
        """Note that its session goes on without it; what is still answered goes there."""
        self._lost_session, self.session = self.session, None

    def identify(self, identity: Identity, proof: str) -> None:
        """Bind a proved identity to its session, or to the one that it will open."""
        if self.session is not None:
            self._sessions.identify(self.session, identity, proof)
        else:
            self.set_identity(identity, proof)

    def failed(self) -> None:
        """Count a session frame with an invalid identity; after MAX_FAILURES close the socket."""
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._loop.call_soon(self.end, CloseCode.NOT_IDENTIFIED, "no identity was good")

    def banned(self) -> None:
        """Close the socket of a banned client, which has been told."""
        self.end(CloseCode.REFUSED, "banned from this node")

    def set_identity(self, identity: Identity | None, proof: str) -> None:
        """Set the identity for the sessions of this connection."""
        self._anonymous = replace(self._anonymous, identity=identity)
        self.proof = proof

    # --- frames -----------------------------------------------------------------------------------

    def frame_received(self, frame: bytes, message: Message | None = None) -> None:
        """Process one frame; queue it while the sender is paused.

        Args:
            frame: the text of a message.
            message: what was read in it, if it was.
        """
        if self.state is _READING:
            self._carry_one(frame, message)
        elif self.state is _HELD:
            self._queue().append((frame, message))
            self._pause()

    async def ready(self) -> None:
        """Wait until the sender is not paused (for servers that are polled for frames)."""
        while self.state is _HELD:
            if self._released is None:
                self._released = asyncio.Event()
            self._released.clear()
            await self._released.wait()

    def put(self, frame: bytes) -> None:
        """Send a frame to the caller, through its session's outbox to keep order and bounds.

        The session may have another socket or worker by now, or none.
        """
        session = self.session or self._lost_session
        if session is not None and session.runtime_url:
            present(session).deliver(frame)
        elif not self._is_there:
            return
        elif self.link.is_paused:
            self.end(CloseCode.TOO_SLOW, "too slow")
        else:
            self.link.write(frame)

    def answer_pending(self, change: int) -> None:
        """Count a pending answer (+1), or one that was given (-1); too many pause the sender."""
        self.flow.answer_pending(change)

    def charge(self, messages: int, size: int) -> None:
        """Charge the sender's rates with the cost of a message beyond its own frame."""
        self.flow.charge(messages, size)

    def carry_on(self, rest: Iterator[None]) -> None:
        """Process the rest of a message in turns with those of other connections."""
        self._turns.add(rest)

    def wait_for(self, reader: Listener) -> None:
        """Pause the sender until a lagging reader has caught up."""
        self.flow.wait_for_reader(reader)

    def hold(self, frame: bytes, fact: Pending) -> None:
        """Put a frame back at the head of the queue, and pause until the fact is known."""
        self._queue().appendleft((frame, None))
        self.flow.wait_for_fact(fact)

    def wait_until(self, fact: Pending, then: Callable[[], None]) -> None:
        """Pause until the fact is known, then call `then`, unless the socket was closed."""
        if self._is_there:
            self._hold()
        self.flow.wait_for_fact(fact, lambda: then() if self.is_carrying else None)

    # --- its life ---------------------------------------------------------------------------------

    @property
    def is_carrying(self) -> bool:
        """Whether frames that were read are still carried, now or later."""
        return self.state in (_READING, _HELD, _LOST)

    def end(self, code: int, reason: str) -> None:
        """Close the socket; nothing more is carried."""
        self.closed_with = self.closed_with or code
        self._give_up(partial(self.link.close, code, reason))

    @property
    def has_frames(self) -> bool:
        """Whether frames are queued to be carried."""
        return bool(self._waiting)

    @property
    def is_held_back(self) -> bool:
        """Whether the sender is paused, so that the socket is not read."""
        return self.state is _HELD

    def drop(self) -> None:
        """Drop the socket without a closing handshake, because the peer is dead."""
        self._give_up(self.link.drop)

    def lost(self) -> None:
        """Handle the loss of the socket, whoever closed it.

        Frames that were read before, and queued while the sender was paused, are carried first:
        they were sent, and nobody would notice their loss.
        """
        self._step(SocketEvent.LOSE)
        if self.state is SocketState.CLOSED:
            self._closed()
        else:
            self._turns.go()
            self._carry_rest()

    def _give_up(self, hang_up: Callable[[], None]) -> None:
        if not self.is_carrying:
            return
        self._step(SocketEvent.CLOSE)
        if self.state is SocketState.CLOSED:  # it was lost before
            self._closed()
        else:
            self._stop()
            hang_up()

    def _step(self, event: SocketEvent) -> None:
        self.state = after(SOCKET, self.state, event)

    def _stop(self) -> None:
        self._waiting = None
        self._deadline.cancel()
        self.flow.stop()
        self._release()

    def _queue(self) -> deque[tuple[bytes, Message | None]]:
        if self._waiting is None:
            self._waiting = deque()
        return self._waiting

    def _release(self) -> None:
        """Go on where `ready` is waited for."""
        if self._released is not None:
            self._released.set()

    def _closed(self) -> None:
        self._stop()
        self._sessions.lost(self)
        if not self._turns.under_way:  # else the remaining steps still run
            self.flow.break_cycle()
            self._turns.break_cycle()

    def _carry_one(self, frame: bytes, message: Message | None = None) -> None:
        """Carry a frame; an unexpected error ends this connection only."""
        try:
            self._carry(frame, self, message)
            may_wait = self.flow.frame_read(len(frame)) or self._turns.under_way
            if may_wait and self.state is _READING:
                if self._turns.is_queued:  # usually shorter than it takes to pause reading
                    self._step(SocketEvent.HOLD)
                elif self._turns.under_way or self.flow.must_wait():
                    self._hold()
            if not self.flow.frames % AT_ONCE and self.state in (_READING, _LOST):
                self._wait_a_turn()
        except Exception as error:
            self._fail(error)

    def _wait_a_turn(self) -> None:
        """Let others have their turn of the loop: a read may hold ten thousand tiny frames."""
        if self.state is _READING:
            self._step(SocketEvent.HOLD)
        self._is_waiting = True
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_waiting = False
        self._go_on()

    def _fail(self, error: Exception) -> None:
        FAULTS.note("connection", error)
        self.end(CloseCode.GOING_AWAY, "the node failed at a frame")

    def _may_take_step(self) -> bool:
        """Whether the next step may run: a connected sender waits for readers and answers."""
        return not self._is_there or not self.flow.is_choked

    @property
    def _is_there(self) -> bool:
        return self.state is _READING or self.state is _HELD

    def _hold(self) -> None:
        self._step(SocketEvent.HOLD)
        self._pause()

    def _pause(self) -> None:
        if self._is_read:
            self._is_read = False
            self.link.pause_reading()

    def _go_on(self) -> None:
        """Resume with the queued frames, unless the sender must still, or again, be paused."""
        if self.state is _READING:
            return
        self._turns.go()
        if self.state is _LOST:
            self._carry_rest()
        elif self.state is _HELD and not self._turns.under_way:
            if self.flow.must_wait():
                self._pause()
                return
            self._step(SocketEvent.RELEASE)
            while self._waiting and self.state is _READING:
                self._carry_one(*self._waiting.popleft())
            if self.state is _READING:
                self._release()
                if not self._is_read:
                    self._is_read = True
                    self.link.resume_reading()

    def _carry_rest(self) -> None:
        """Carry the queued frames of a lost socket, as far as no fact is pending."""
        while (
            self.state is _LOST
            and not self._turns.under_way
            and not self.flow.unknown_facts
            and not self._is_waiting
        ):
            if not self._waiting:
                self._step(SocketEvent.CARRIED)
                self._closed()
                return
            self._carry_one(*self._waiting.popleft())

    def _no_session(self) -> None:
        is_named = self.session is not None and bool(self.session.runtime_url)
        if self.session is None or (self._settings.names_runtime and not is_named):
            self.end(CloseCode.NOT_IDENTIFIED, "no session was opened in time")
