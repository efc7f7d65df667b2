"""A session in this worker's memory: its speaker, state, outbox and current socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgnode.bus.open_requests import DEFAULT_LIMITS, OpenRequests, RequestLimits
from msgnode.bus.ports import DeliveryResult, Listener, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.core import redaction
from msgnode.core.errors import TooMany
from msgnode.core.identity import Identity, Speaker

from .flow_control import FlowControl
from .outbox import Link, Outbox
from .rules import SESSION, CloseCode, Event, State, after, opens

MAX_INVITED = 256
"""Most invited peer stubs that are remembered for one session, the newest."""
READER_PATIENCE = 5.0
"""Seconds for which a lagging reader may pause its senders."""


class Socket(Protocol):
    """The connection a session has while it is open."""

    session: LiveSession | None
    last_runtime_url: str

    @property
    def handshake(self) -> str:
        """What kind of socket it is: "ws", "stub-connect", "device", "mqtt" or "peer"."""
        ...

    @property
    def link(self) -> Link:
        """The link that writes to it and closes it."""
        ...

    @property
    def flow(self) -> FlowControl:
        """The flow control of its sender."""
        ...

    @property
    def is_held_back(self) -> bool:
        """Whether the node has paused reading from it."""
        ...

    @property
    def closed_with(self) -> int:
        """The code with which the node has closed it; 0 if it has not."""
        ...

    def lose_session(self) -> None:
        """Note that its session goes on without it."""
        ...

    def set_identity(self, identity: Identity | None, proof: str) -> None:
        """Set or clear its proved identity."""
        ...

    def end(self, code: int, reason: str) -> None:
        """Close the socket; the session stays as it is."""
        ...

    def drop(self) -> None:
        """Drop the socket without a closing handshake."""
        ...


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of a session.

    Attributes:
        outbox_bytes: most bytes that wait for its socket.
        stores: whether frames wait while it has none.
        requests: of its open requests.
    """

    outbox_bytes: int
    stores: bool
    requests: RequestLimits = DEFAULT_LIMITS


class LiveSession:
    """The bus's Listener for a session of this worker.

    Only `step` changes `state`, as the table SESSION of rules.py allows.
    """

    is_here = True

    __slots__ = (
        "_slow_timer",
        "_was_restored",
        "bound_at",
        "ask",
        "ask_group",
        "deliver",
        "detached_at",
        "handshake",
        "has_asked",
        "has_said_who",
        "history",
        "id",
        "invited",
        "invites_many",
        "learned",
        "outbox",
        "proof",
        "request_limits",
        "opened_at",
        "orders",
        "requests",
        "resumptions",
        "runtime_url",
        "socket",
        "speaker",
        "state",
        "successor",
        "token",
        "_token_hash",
        "__weakref__",
        "withdrawn",
    )

    def __init__(
        self,
        speaker: Speaker,
        handshake: str,
        token_hash: str,
        limits: SessionLimits,
        state: State = State.PROVISIONAL,
        *,
        token: str = "",
        proof: str = "",
        was_restored: bool = False,
    ) -> None:
        self.id = speaker.session_id
        self.runtime_url = speaker.runtime_url
        self.token = token.encode()
        self.token_hash = token_hash
        self.handshake = handshake
        self.speaker = speaker
        self.has_said_who = False  # whether a message had an identity, without a login
        self.proof = proof  # digest of the token behind the speaker's identity
        self.state = state
        self.successor: Listener | None = None
        self.bound_at = 0.0
        self.opened_at = time.time()
        self.resumptions = 0
        self.socket: Socket | None = None
        self._slow_timer: asyncio.TimerHandle | None = None
        self.detached_at = time.monotonic()
        self.learned: dict[str, None] = {}
        self.withdrawn: frozenset[str] = frozenset()
        self.orders: tuple[int, ...] = ()  # done already, the newest: workers/orders.py
        self.invited: dict[str, bool] = {}  # stub of a peer -> whether invited with an identity
        self.invites_many: Callable[[LiveSession], None] = _nobody_is_told
        self.requests: OpenRequests | None = None
        self.ask: Callable[[str, bytes, str, float], None] = self._ask_first
        self.ask_group: Callable[[str, bytes, frozenset[str], float], None] = self._ask_first_group
        self.has_asked: Callable[[str, str, str, float], bool] = _has_asked_nothing
        self.request_limits = limits.requests
        self.history: Callable[[], bytes] = bytes  # state of its connection, to move with it
        self._was_restored = was_restored  # from the database, so without its open requests
        self.outbox = Outbox(limits.outbox_bytes, limits.stores, self._too_slow)
        self.deliver: Callable[[bytes], DeliveryResult] = self.outbox.put

    @property
    def token_hash(self) -> str:
        """The hash of the token; setting it has the token redacted everywhere."""
        return self._token_hash

    @token_hash.setter
    def token_hash(self, token_hash: str) -> None:
        self._token_hash = token_hash
        redaction.remember(token_hash, self)

    @property
    def is_connected(self) -> bool:
        """Whether it has a socket, even if its row is not stored yet."""
        state = self.state
        return state is State.OPEN or state is State.OPENING or state is State.RESUMING

    def is_named_by(self, sender: str, token: str) -> bool:
        """Whether the `from` of a `close` matches this session.

        It matches by runtime URL, by token, or if it is empty (stubs that lost their session URL).
        """
        return sender in ("", self.runtime_url) or opens(token, self.token_hash)

    @property
    def has_ended(self) -> bool:
        """Whether this worker no longer has it."""
        return self.state is State.MOVED or self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether it has ended for all workers."""
        return self.state is State.CLOSED or self.state is State.TERMINATED

    def remember(self, requests: OpenRequests) -> None:
        """Set its open requests."""
        self.requests = requests
        self.ask, self.ask_group = requests.add, requests.add_group
        self.has_asked = requests.was_asked

    def has_forgotten(self) -> bool:
        """Whether it was restored from the database, without its requests; True only once."""
        was_restored, self._was_restored = self._was_restored, False
        return was_restored

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        """Deliver as any frame: the return path matters between workers only."""
        return self.deliver(frame)

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        """Deliver as any frame: the bus has checked that it was asked for."""
        return self.deliver(frame)

    def deliver_traced(
        self, frame: bytes, beside: Response | ReturnPath | None, traceparent: str
    ) -> DeliveryResult:
        """Deliver as any frame: a local session needs no trace context."""
        return self.deliver(frame)

    def when_writable(self, callback: Callable[[], None]) -> None:
        """As Outbox.when_writable; a reader that lags for READER_PATIENCE seconds is closed."""
        self.outbox.when_writable(callback)
        if self._slow_timer is None:
            loop = asyncio.get_running_loop()
            self._slow_timer = loop.call_later(READER_PATIENCE, self._still_behind)
            self.outbox.when_writable(self._caught_up)

    def missed(self) -> None:
        """Handle a failed delivery: end the socket, and note a gap for the session."""
        self.outbox.has_gap = True
        self._too_slow()

    def step(self, event: Event) -> None:
        """Make a transition of the table SESSION.

        Raises:
            LocalProtocolError: the table has no such transition; nothing has changed.
        """
        self.state = after(SESSION, self.state, event)

    def has_invited(self, stub: str) -> None:
        """Remember an invited peer's stub, and whether the inviter had an identity.

        Stubs beyond MAX_INVITED are told to disconnect within a second (`hang_ups.py`).

        Raises:
            TooMany: there are already twice as many.
        """
        if self.invited.pop(stub, None) is None and len(self.invited) >= 2 * MAX_INVITED:
            raise TooMany("This session invites too many stubs at once to P2P connections.")
        self.invited[stub] = self.speaker.identity is not None
        if len(self.invited) > MAX_INVITED:
            self.invites_many(self)

    def attach(self, socket: Socket) -> None:
        """Attach a socket, and write the queued frames to it in order."""
        self.socket = socket
        self.outbox.attach(socket.link)

    def detach(self) -> None:
        """Detach the lost socket."""
        self.socket = None
        self.outbox.detach()
        self.detached_at = time.monotonic()

    def forget(self) -> None:
        """Take no more frames, and drop what only a live session needs."""
        self.deliver = _takes_nothing
        self.requests = None
        self.ask = self.ask_group = _asks_nobody
        self.has_asked = _has_asked_nothing
        self.outbox.overflow = _nobody_lags

    def _ask_first(self, sender: str, id_: bytes, asked: str, now: float) -> None:
        self.remember(OpenRequests(self.request_limits, now))
        self.ask(sender, id_, asked, now)

    def _ask_first_group(self, sender: str, id_: bytes, asked: frozenset[str], now: float) -> None:
        self.remember(OpenRequests(self.request_limits, now))
        self.ask_group(sender, id_, asked, now)

    def _caught_up(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None

    def _still_behind(self) -> None:
        self._slow_timer = None
        self.outbox.has_gap = True
        self._too_slow()

    def _too_slow(self) -> None:
        """End a socket that does not read, keep the session, and note the loss of frames."""
        self.outbox.clear()
        if self.socket is not None:
            self.socket.end(CloseCode.TOO_SLOW, "too slow: messages were lost")


def _nobody_is_told(session: LiveSession) -> None:
    """Of a session that no worker holds."""


def _asks_nobody(sender: str, id_: bytes, asked: str | frozenset[str], now: float) -> None:
    """The `ask` of a session that has ended."""


def _takes_nothing(frame: bytes) -> DeliveryResult:
    """The `deliver` of a session that has ended."""
    return DeliveryResult.DROPPED


def _nobody_lags() -> None:
    """The `overflow` of a session that has ended."""


def _has_asked_nothing(sender: str, id_: str, responder: str, now: float) -> bool:
    return False
