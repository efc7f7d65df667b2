"""What the bus needs of the packages around it, as Protocols, and what it offers to components.

Listener   somebody a message can be handed to: a session
Caller     where a frame came from and where answers to it go: a connection
Component  an addressed part of the node; a connector is one whose answer comes from outside
Authorizer  whether a caller may send this message; Authenticator: who sends it
Enforcer   the policy enforcement point; Recorder: the traffic record
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol

from msgnode.core.decision import NOT_APPLICABLE, Decision, Direction
from msgnode.core.identity import Identity, Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.record import TrafficRecord

from .return_paths import ReturnPath

Body = dict[str, Any]
"""The body of an answer: `code`, and `value` or `desc` and `description`."""


class DeliveryResult(Enum):
    """What became of one frame at one listener."""

    WRITTEN = "written"
    BEHIND = "taken, but the listener is behind with its reading"
    QUEUED = "queued: the listener has no socket at the moment"
    DROPPED = "no room"


class Response(NamedTuple):
    """A response on its way: to whom, of which request, and the id of the session that gives it."""

    to: str
    id: str
    responder: str


class Listener(Protocol):
    """A session as the bus sees it. `token` is its session token while known, else b"".

    `is_here` is False for a session of another worker; `bound_at` orders the sessions of one
    runtime URL, in seconds since the epoch.
    """

    @property
    def id(self) -> str: ...
    @property
    def is_here(self) -> bool: ...
    @property
    def bound_at(self) -> float: ...
    @property
    def runtime_url(self) -> str: ...
    @property
    def speaker(self) -> Speaker: ...
    @property
    def token(self) -> bytes: ...
    @property
    def token_hash(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...

    def deliver(self, frame: bytes) -> DeliveryResult:
        """Hand over one frame. Never waits."""
        ...

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        """Hand over a request whose answer must find one of several sessions, with the path."""
        ...

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        """Hand over a response. A session of another worker passes on what it answers, too."""
        ...

    def deliver_traced(
        self, frame: bytes, beside: Response | ReturnPath | None, traceparent: str
    ) -> DeliveryResult:
        """Hand over a frame that is traced; to another worker its trace context goes along."""
        ...

    def has_asked(self, sender: str, id_: str, responder: str, now: float) -> bool:
        """Whether the session has asked the responder, as this sender, the request of this id.

        False for sessions of other workers.
        """
        ...

    def has_forgotten(self) -> bool:
        """Whether the session may have asked what it does not know any more; asked once."""
        ...

    def missed(self) -> None:
        """A frame could not be handed over: the listener is told of a gap when it is back."""
        ...

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once the listener is no longer behind, or has no socket any more."""
        ...


class Requester(Listener, Protocol):
    """A session of this worker: it asks, and remembers P2P stubs of peers that it has invited."""

    def ask(self, sender: str, id_: bytes, asked: str, now: float) -> None:
        """Remember which session it asked the request `id_` (as written) as `sender`."""
        ...

    def ask_group(self, sender: str, id_: bytes, asked: frozenset[str], now: float) -> None:
        """The same for all listeners of an address."""
        ...

    def has_invited(self, stub: str) -> None: ...


class Layer(Enum):
    """What a session may hold in the routing table besides its runtime URL."""

    OWNED = "owned"
    SUBSCRIBED = "subscribed"
    LEARNED = "learned"


class TableObserver(Protocol):
    """Hears of what this worker changes in the routing table for sessions of its own."""

    def entered(self, session: Listener) -> None:
        """A session is there, or something about it has changed."""
        ...

    def left(self, session: Listener) -> None:
        """A session has ended."""
        ...

    def changed(
        self,
        layer: Layer,
        address: str,
        session: Listener,
        holds: bool,
        before: Listener | None = None,
    ) -> None:
        """A session holds an address now, or no longer; `before` had it until now."""
        ...


class Caller(Protocol):
    """A connection that sends frames. `session` is None until it has one."""

    traceparent: str  # came with the frame in a header of the sender's protocol, else ""

    @property
    def session(self) -> Listener | None: ...
    @property
    def speaker(self) -> Speaker: ...
    @property
    def is_carrying(self) -> bool:
        """Whether what it has sent is carried, though it may be gone; not after it was ended."""
        ...

    def put(self, frame: bytes) -> None:
        """Send one frame to the caller itself."""
        ...

    def charge(self, messages: int, size: int) -> None:
        """Count what a message costs beyond its own frame: further messages and bytes."""
        ...

    def carry_on(self, rest: Iterator[None]) -> None:
        """Go through the rest of a message step by step, giving way to others in between.

        Nothing else of the caller is carried before its end.
        """
        ...

    def wait_for(self, reader: Listener) -> None:
        """Send no more until this reader has caught up (it is ended if that takes too long)."""
        ...

    def hold(self, frame: bytes, fact: Pending) -> None:
        """Send no more until the fact is known, then this frame first."""
        ...

    def answer_pending(self, change: int) -> None:
        """Count answers under way (+1 when one begins, -1 when it is given)."""
        ...


@dataclass(slots=True)
class ComponentInfo:
    """What the node knows of one of its components, connectors or stubs, for the operator."""

    name: str
    kind: str
    address: str
    state: str = "live"
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    answered: int = 0
    failed: int = 0
    last_error: str = ""


class Component(ABC):
    """An addressed part of the node. Subclass it, name it in node/parts.py: that is all it takes.

    `addresses` are answered exactly (one trailing slash is ignored), with `answers_below` also what
    is below them. With `tells_workers` an answer may say what all workers have to know before it is
    given: who holds an address, who is logged in. `cancels`: futures end with their time.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "component"
    answers_below: ClassVar[bool] = False
    tells_workers: ClassVar[bool] = False
    cancels: ClassVar[bool] = False

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.card = ComponentInfo(self.name, self.kind, addresses[0])

    def update_card(self) -> ComponentInfo:
        """Its line in the console, as it is now."""
        return self.card

    @abstractmethod
    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        """Answer a message.

        What runs before the return is in order with the caller's other messages.

        Args:
            message: the request; `message.recipients` has one address.
            caller: the session that asks.

        Returns:
            The body of the answer, or something to wait for where the answer needs time.

        Raises:
            NodeError: the request is refused, and nothing has changed.
        """

    def addresses_of(self, message: Message) -> Iterable[str]:
        """Addresses that a message is about, where the answer depends on who holds them."""
        return ()

    def revoke(self, message: Message, body: Body, caller: Listener) -> None:  # noqa: B027
        """Take back what the caller, who was told 504, would not find by asking again."""


class Authorizer(Protocol):
    """Sessions' say on a message before anything else happens to it.

    Both raise NodeError for a message that is refused, and Pending for a fact on its way.
    """

    def authenticate(self, message: Message, caller: Any) -> None:
        """A session frame: take the identity it brings, if any, for the caller's."""
        ...

    def authorize(self, message: Message, caller: Any) -> tuple[Requester, Speaker]:
        """The session that speaks, and who is behind this message."""
        ...


class Proof(Protocol):
    """A verified identity, and the digest of the token that proved it."""

    @property
    def identity(self) -> Identity: ...
    @property
    def digest(self) -> str: ...


class Authenticator(Protocol):
    """Identity's say on who speaks. Both raise NodeError and Pending as Authorizer does."""

    def authenticate(self, message: Message, speaker: Speaker) -> Proof | None:
        """The identity that a session frame brings, None if it brings none."""
        ...

    def speaker_of(self, message: Message, session: Listener) -> Speaker:
        """The session's speaker, with the identity the message is said under."""
        ...


class SessionHandler(Protocol):
    """The component `mn:/session`: it acts on the connection, not only on its session."""

    @property
    def card(self) -> ComponentInfo: ...

    def handle(self, message: Message, caller: Any) -> None:
        """Open, resume or close the caller's session, and answer, after the commit if there is one.

        Raises:
            NodeError: the frame is refused.
        """
        ...


class Enforcer(Protocol):
    """The policy enforcement point.

    Synchronous: on the way in, a fact that must be fetched first raises Pending; one that could not
    be had lets the decision fail.

    `is_idle` says that no policy is in force, so that what only policies need can be left undone.
    """

    @property
    def is_idle(self) -> bool: ...

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        """Decide over a message on its way in, or on its way to one recipient."""
        ...


class Recorder(Protocol):
    """Takes one row for each recipient of each message; never waits and never raises."""

    def note(self, record: TrafficRecord) -> None:
        """Take a row."""
        ...


MessageObserver = Callable[[TrafficRecord, bytes], None]
"""Follows messages while somebody looks on: each record, with the body as it came. Never waits."""

CLOSED_BY_RUNTIME = "closed by the runtime"
"""The reason of an end that the runtime asked for, with `close` or `disconnect`."""
SessionEnd = Callable[[Listener, str], None]
"""`session_closed(session, reason)`: after CLOSED; idempotent; starts no thread, task or query."""


class NoPolicies:
    """The enforcer of a node without policies."""

    is_idle = True

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        """No policy applies to any message."""
        return NOT_APPLICABLE
