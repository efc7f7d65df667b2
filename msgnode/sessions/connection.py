"""One socket: frames in, flow control, frames out. Knows nothing of ASGI.

A sender is held back, never buffered without bound: when it is over its rate, has as many
answers under way as it may have, sends to a reader that is behind, or says what needs a fact that
is on its way, its socket is not read until that is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from msgnode.bus.ports import Listener
from msgnode.core.errors import NodeError
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Identity, Speaker
from msgnode.core.pending import Pending
from msgnode.core.token_bucket import TokenBucket

from .budgets import AnswerBudget, source
from .manager import SessionManager
from .outbox import Link
from .rules import CloseCode
from .session import LiveSession
from .turn_line import LINE

MAX_DEBT = 20.0
"""Seconds a sender is held back for one message at most, whatever it cost; shorter than the time
in which a ping is to be answered."""
MAX_FAILURES = 10
"""Identities that are not good, in `open` and `re-open`, until a connection is ended."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Limits of one connection: rates a second, answers under way, seconds to the first session.
    `names_runtime`: whether that session must have named its runtime by then. `answers`: what the
    connections of one source may have under way together."""

    messages_per_second: float
    bytes_per_second: float
    max_pending: int
    handshake_timeout: float
    names_runtime: bool = False
    answers: AnswerBudget | None = None


class Connection:
    """Implements the bus's Caller. `carry` is the pipeline's door."""

    handshake = "ws"

    def __init__(
        self,
        link: Link,
        remote_address: str,
        sessions: SessionManager,
        carry: Callable[[bytes, Connection], None],
        settings: ConnectionSettings,
    ) -> None:
        self.link = link
        self.session: LiveSession | None = None
        self.last_runtime_url = ""
        self.refusal: NodeError | None = None  # why it was given no session, if that was not said
        self.proof = ""  # digest of the token that proved who is behind it
        self._stranger = Speaker("", "", remote_address=remote_address)
        self._sessions = sessions
        self._carry = carry
        self._settings = settings
        self._failures = 0
        self._pending = 0
        self._behind = 0  # readers that are waited for
        self._unknown = 0  # facts that are waited for
        self._source = source(remote_address)
        self._is_queued = False  # to be released when its source has fewer answers under way
        self._lost = False
        self._held = False
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._rest: deque[Iterator[None]] = deque()  # of a message that is under way
        self._goes_on = False
        self._waiting: deque[bytes] = deque()
        self._released = asyncio.Event()
        self._messages = TokenBucket(settings.messages_per_second)
        self._bytes = TokenBucket(settings.bytes_per_second)
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(settings.handshake_timeout, self._no_session)

    @property
    def speaker(self) -> Speaker:
        return self.session.speaker if self.session is not None else self._stranger

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

    def frame_received(self, frame: bytes) -> None:
        """Take one frame; while the sender is held back it waits its turn."""
        if self._held:
            self._waiting.append(frame)
        elif not self._ended:
            self._carry_one(frame)

    async def ready(self) -> None:
        """Wait until the sender is not held back (for servers that are asked for frames)."""
        while self._held and not self._ended:
            self._released.clear()
            await self._released.wait()

    def put(self, frame: bytes) -> None:
        """Send to the caller: through its session's outbox, so that order and bounds hold."""
        if self.session is not None and self.session.runtime_url:
            self.session.deliver(frame)
        elif self._ended:
            return
        elif self.link.is_paused:
            self.end(CloseCode.TOO_SLOW, "too slow")
        else:
            self.link.write(frame)

    def answer_pending(self, change: int) -> None:
        self._pending += change
        if self._settings.answers is not None:
            self._settings.answers.count(self._source, change)
        if self._held and change < 0 and self._pending <= self._settings.max_pending // 2:
            self._release()

    def charge(self, messages: int, size: int) -> None:
        limits = self._settings
        least = -MAX_DEBT * limits.messages_per_second
        self._messages.left = max(self._messages.left - messages, least)
        self._bytes.left = max(self._bytes.left - size, -MAX_DEBT * limits.bytes_per_second)

    def carry_on(self, rest: Iterator[None]) -> None:
        self._rest.append(rest)
        self._go_through()

    def wait_for(self, reader: Listener) -> None:
        self._behind += 1
        reader.when_writable(self._relieved)

    def hold(self, frame: bytes, fact: Pending) -> None:
        self._unknown += 1
        self._waiting.appendleft(frame)
        fact.when_known(self._known)

    def wait_until(self, fact: Pending, then: Callable[[], None]) -> None:
        """Read nothing until the fact is known, then do this first."""

        def known() -> None:
            self._unknown -= 1
            if not self._ended:
                then()
                self._loop.call_soon(self.lost if self._lost else self._release)

        self._unknown += 1
        self._held = True
        self.link.pause_reading()
        fact.when_known(known)

    def end(self, code: int, reason: str) -> None:
        """Close the socket from our side."""
        if not self._ended:
            self._stop()
            self.link.close(code, reason)

    def lost(self) -> None:
        """The socket is closed, whoever closed it. What was read before, and waited because the
        sender was held back, is carried first: it was sent, and nobody would know of its loss."""
        self._lost = True
        self._go_through()
        while self._waiting and not self._ended and not self._unknown and not self._rest:
            self._carry_one(self._waiting.popleft())
        if (self._unknown or self._rest) and not self._ended:
            return  # once the facts are known, and what is under way has been carried
        self._stop()
        self._sessions.lost(self)

    def _stop(self) -> None:
        self._ended = True
        self._waiting.clear()
        self._deadline.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._released.set()

    def _carry_one(self, frame: bytes) -> None:
        """What a frame raises is this connection's end, and nobody else's business."""
        try:
            self._take(frame)
        except Exception as error:
            FAULTS.note("connection", error)
            self.end(CloseCode.GOING_AWAY, "the node failed at a frame")

    def _take(self, frame: bytes) -> None:
        self._messages.left -= 1
        self._bytes.left -= len(frame)
        self._carry(frame, self)
        if self._must_wait() and not self._ended:
            self._held = True
            self.link.pause_reading()

    def _must_wait(self) -> bool:
        """Whether the sender is to be held back, and by what: a reader that is behind, a fact,
        answers under way, or its rate (then a timer goes on)."""
        if (
            self._rest
            or self._behind
            or self._unknown
            or self._pending >= self._settings.max_pending
        ):
            return True
        answers = self._settings.answers
        if answers is not None and answers.is_full(self._source):
            if not self._is_queued:
                self._is_queued = True
                answers.when_less(self._source, self._has_room)
            return True
        if self._messages.left >= 0 and self._bytes.left >= 0:
            return False
        self._refill()
        if self._messages.left >= 0 and self._bytes.left >= 0:
            return False
        if self._timer is None:
            self._timer = self._loop.call_later(self._wait(), self._refilled)
        return True

    def _go_through(self) -> None:
        """Take steps of the message under way for a turn of the loop, then give way to others. A
        sender that is still there waits for readers that are behind, and for answers."""
        if self._goes_on:
            return
        LINE.enter()
        while self._rest:
            is_there = not self._lost and not self._ended
            if is_there and (self._behind or self._pending >= self._settings.max_pending):
                return  # `_release` goes on
            if LINE.must_wait:
                self._goes_on = True
                LINE.wait(self._go_on)
                return
            try:
                next(self._rest[0])
            except StopIteration:
                self._rest.popleft()
            except Exception as error:
                FAULTS.note("message", error)
                self._rest.popleft()

    def _go_on(self) -> None:
        """The next turn of the message under way; then what has waited for its end."""
        self._goes_on = False
        self._go_through()
        if self._rest or self._ended:
            return
        if self._lost:
            self.lost()
        else:
            self._release()

    def _has_room(self) -> None:
        self._is_queued = False
        self._loop.call_soon(self._release)

    def _refilled(self) -> None:
        self._timer = None
        self._release()

    def _relieved(self) -> None:
        self._behind -= 1
        self._loop.call_soon(self._release)

    def _known(self) -> None:
        self._unknown -= 1
        if not self._ended:
            self._loop.call_soon(self.lost if self._lost else self._release)

    def _release(self) -> None:
        """Go on with what waited, unless there is still (or again) something to wait for."""
        if self._rest:
            self._go_through()
        if self._ended or not self._held or self._must_wait():
            return
        self._held = False
        while self._waiting and not self._held and not self._ended:
            self._carry_one(self._waiting.popleft())
        if not self._held:
            self._released.set()
            self.link.resume_reading()

    def _refill(self) -> None:
        self._messages.refill()
        self._bytes.refill()

    def _wait(self) -> float:
        """Seconds until the emptier bucket has refilled a tenth, so that work comes in portions."""
        return max(self._messages.seconds_until(0.1), self._bytes.seconds_until(0.1))

    def _no_session(self) -> None:
        is_named = self.session is not None and bool(self.session.runtime_url)
        if self.session is None or (self._settings.names_runtime and not is_named):
            self.end(CloseCode.NOT_IDENTIFIED, "no session was opened in time")
