"""One socket: frames in, in order, and frames out. Knows nothing of ASGI.

Its life is the table SOCKET of rules.py; when its sender is held back, flow_control.py says.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from msgnode.bus.ports import Listener
from msgnode.core import addresses
from msgnode.core.errors import NodeError
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity, Origin, Speaker
from msgnode.core.pending import Pending

from .flow_control import FlowControl, FlowLimits
from .manager import SessionManager
from .outbox import Link
from .rules import SOCKET, CloseCode, SocketEvent, SocketState, after
from .session import LiveSession
from .turns import Turns

MAX_FAILURES = 10
"""Identities that are not good, in `open` and `re-open`, until a connection is ended."""

_NUMBERS = itertools.count(1)
_READING = SocketState.READING
_HELD = SocketState.HELD
_LOST = SocketState.LOST


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Limits of one connection.

    Attributes:
        flow: what its sender may have under way.
        handshake_timeout: seconds to the first session.
        names_runtime: whether that session must have named its runtime by then.
        home: the node's domain; a runtime of another one is a visitor. "": nobody is.
    """

    flow: FlowLimits
    handshake_timeout: float
    names_runtime: bool = False
    home: str = ""


class Connection:
    """Implements the bus's Caller. `carry` is the pipeline's."""

    handshake = "ws"

    def __init__(
        self,
        link: Link,
        remote_address: str,
        sessions: SessionManager,
        carry: Callable[[bytes, Connection], None],
        settings: ConnectionSettings,
    ) -> None:
        self.number = next(_NUMBERS)  # of no other connection of this process
        self.link = link
        self.state = _READING
        self.session: LiveSession | None = None
        self.last_runtime_url = ""
        self.traceparent = ""
        self.closed_with = 0
        self.refusal: NodeError | None = None  # why it was given no session, if that was not said
        self.proof = ""  # digest of the token that proved who is behind it
        self.checked: dict[str, bool] = {}  # see liveness.Newcomer
        self.flow = FlowControl(settings.flow, remote_address, self._go_on)
        self._stranger = Speaker("", "", remote_address=remote_address)
        self._sessions = sessions
        self._carry = carry
        self._settings = settings
        self._failures = 0
        self._waiting: deque[bytes] = deque()
        self._is_read = True
        self._turns = Turns(self._may_take_step, self._go_on)
        self._released = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(settings.handshake_timeout, self._no_session)

    # --- who is behind it -------------------------------------------------------------------------

    @property
    def speaker(self) -> Speaker:
        """That of its session, or a stranger with a network address."""
        return self.session.speaker if self.session is not None else self._stranger

    def speaker_in(self, session_id: str, runtime_url: str) -> Speaker:
        """Who is behind this connection, as the speaker of a session."""
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

    def comes_from(self, peer: str) -> None:
        """It was proved that the node of this domain is behind it; "" for nobody's."""
        self._stranger = replace(self._stranger, peer=peer)

    def identify(self, identity: Identity, proof: str) -> None:
        """Who is behind this connection was proved: bind its session, or the one to come."""
        if self.session is not None:
            self._sessions.identify(self.session, identity, proof)
        else:
            self.set_identity(identity, proof)

    def failed(self) -> None:
        """A session frame had a bad identity; after MAX_FAILURES the connection is closed."""
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self._loop.call_soon(self.end, CloseCode.NOT_IDENTIFIED, "no identity was good")

    def banned(self) -> None:
        """Who is behind this connection is kept out, and has been told so."""
        self.end(CloseCode.REFUSED, "banned from this node")

    def set_identity(self, identity: Identity | None, proof: str) -> None:
        """Set the identity for the sessions of this connection."""
        self._stranger = replace(self._stranger, identity=identity)
        self.proof = proof

    # --- frames -----------------------------------------------------------------------------------

    def frame_received(self, frame: bytes) -> None:
        """Take one frame; while the sender is held back it waits its turn."""
        if self.state is _READING:
            self._carry_one(frame)
        elif self.state is _HELD:
            self._waiting.append(frame)
            self._pause()

    async def ready(self) -> None:
        """Wait until the sender is not held back (for servers that are asked for frames)."""
        while self.state is _HELD:
            self._released.clear()
            await self._released.wait()

    def put(self, frame: bytes) -> None:
        """Send to the caller: through its session's outbox, so that order and bounds hold."""
        if self.session is not None and self.session.runtime_url:
            self.session.deliver(frame)
        elif not self._is_there:
            return
        elif self.link.is_paused:
            self.end(CloseCode.TOO_SLOW, "too slow")
        else:
            self.link.write(frame)

    def answer_pending(self, change: int) -> None:
        """Count answers that are under way (+1) or given (-1); too many hold the sender back."""
        self.flow.answer_pending(change)

    def charge(self, messages: int, size: int) -> None:
        """Count against the sender's rates what one frame costs beyond itself."""
        self.flow.charge(messages, size)

    def carry_on(self, rest: Iterator[None]) -> None:
        """Do the rest of a message in turns, with the rest of other messages."""
        self._turns.add(rest)

    def wait_for(self, reader: Listener) -> None:
        """Hold the sender back until a reader that is behind has caught up."""
        self.flow.wait_for_reader(reader)

    def hold(self, frame: bytes, fact: Pending) -> None:
        """Put a frame back in front of those that wait, until the fact is known."""
        self._waiting.appendleft(frame)
        self.flow.wait_for_fact(fact)

    def wait_until(self, fact: Pending, then: Callable[[], None]) -> None:
        """Read nothing until the fact is known, then do this first, unless the socket is closed."""
        if self._is_there:
            self._hold()
        self.flow.wait_for_fact(fact, lambda: then() if self.is_carrying else None)

    # --- its life ---------------------------------------------------------------------------------

    @property
    def is_carrying(self) -> bool:
        """Whether what was read is carried, now or later."""
        return self.state in (_READING, _HELD, _LOST)

    def end(self, code: int, reason: str) -> None:
        """Close the socket from our side; nothing more is carried."""
        self.closed_with = self.closed_with or code
        self._give_up(partial(self.link.close, code, reason))

    @property
    def has_frames(self) -> bool:
        """Whether frames that were taken wait to be carried."""
        return bool(self._waiting)

    @property
    def is_held_back(self) -> bool:
        """Whether the socket is not read at the moment."""
        return self.state is _HELD

    def drop(self) -> None:
        """Give the socket up without a word: nobody answers."""
        self._give_up(self.link.drop)

    def lost(self) -> None:
        """The socket is gone, whoever closed it.

        What was read before, and waited because the sender was held back, is carried first: it was
        sent, and nobody would know of its loss.
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
        if self.state is SocketState.CLOSED:  # it was gone already
            self._closed()
        else:
            self._stop()
            hang_up()

    def _step(self, event: SocketEvent) -> None:
        self.state = after(SOCKET, self.state, event)

    def _stop(self) -> None:
        self._waiting.clear()
        self._deadline.cancel()
        self.flow.stop()
        self._released.set()

    def _closed(self) -> None:
        self._stop()
        self._sessions.lost(self)
        if not self._turns.under_way:  # or what is left of them still goes on
            self.flow.let_go()
            self._turns.let_go()

    def _carry_one(self, frame: bytes) -> None:
        """What a frame raises is this connection's end, and nobody else's business."""
        try:
            self._carry(frame, self)
            may_wait = self.flow.frame_read(len(frame)) or self._turns.under_way
            if may_wait and self.state is _READING:
                if self._turns.is_in_line:  # mostly for less time than it takes to stop reading
                    self._step(SocketEvent.HOLD)
                elif self._turns.under_way or self.flow.must_wait():
                    self._hold()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        FAULTS.note("connection", error)
        self.end(CloseCode.GOING_AWAY, "the node failed at a frame")

    def _may_take_step(self) -> bool:
        """A sender that is still there waits for readers that are behind, and for answers."""
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
        """Go on with what waited, unless there is still (or again) something to wait for."""
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
                self._carry_one(self._waiting.popleft())
            if self.state is _READING:
                self._released.set()
                if not self._is_read:
                    self._is_read = True
                    self.link.resume_reading()

    def _carry_rest(self) -> None:
        """Carry what a socket that is gone has left, as far as the facts are known."""
        while self.state is _LOST and not self._turns.under_way and not self.flow.unknown_facts:
            if not self._waiting:
                self._step(SocketEvent.CARRIED)
                self._closed()
                return
            self._carry_one(self._waiting.popleft())

    def _no_session(self) -> None:
        is_named = self.session is not None and bool(self.session.runtime_url)
        if self.session is None or (self._settings.names_runtime and not is_named):
            self.end(CloseCode.NOT_IDENTIFIED, "no session was opened in time")
