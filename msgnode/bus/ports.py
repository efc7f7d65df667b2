"""The interfaces of the bus: what it requires of other packages, and what components implement.

Listener   what a message can be delivered to: a session
Caller     where a frame came from and where its answer goes: a connection
Component  an addressed part of the node; a connector is one whose answer comes from outside
Authorizer  whether a caller may send this message; Authenticator: who sends it
Enforcer   the policy enforcement point; Recorder: the traffic record; Alarms: the node's
ServingLease  until when the worker may serve, and by which clock
"""

from __future__ import annotations

import time
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
    """The result of delivering one frame to one listener."""

    WRITTEN = "written"
    BEHIND = "taken, but the listener is behind with its reading"
    QUEUED = "queued: the listener has no socket at the moment"
    DROPPED = "no room"


class Response(NamedTuple):
    """A response being delivered: recipient, request id, and the id of the responding session."""

    to: str
    id: str
    responder: str


class Listener(Protocol):
    """A session as the bus sees it; `is_here` is False for one of another worker.

    `token` is b"" if unknown; `bound_at` (epoch seconds) orders the sessions of a runtime URL. Once
    the session has changed its worker, `successor` is the object that stands for it in this one.
    """

    successor: Listener | None

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
        """Deliver one frame. Never blocks."""
        ...

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        """Deliver a request, with the return path of its answer to one of several sessions."""
        ...

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        """Deliver a response. A session of another worker is also told which request it answers."""
        ...

    def deliver_traced(
        self, frame: bytes, beside: Response | ReturnPath | None, traceparent: str
    ) -> DeliveryResult:
        """Deliver a traced frame; its trace context goes along to another worker."""
        ...

    def has_asked(self, sender: str, id_: str, responder: str, now: float) -> bool:
        """Whether the session has asked the responder, as this sender, the request of this id.

        False for sessions of other workers.
        """
        ...

    def has_forgotten(self) -> bool:
        """Whether the session may have lost its open requests. True at the first call only."""
        ...

    def missed(self) -> None:
        """Note that a frame was lost: the listener is told of a gap when it reconnects."""
        ...

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once the listener has caught up, or has lost its socket."""
        ...


class Requester(Listener, Protocol):
    """A session of this worker, which keeps its open requests and the P2P stubs it has invited."""

    def ask(self, sender: str, id_: bytes, asked: str, now: float) -> None:
        """Note the request `id_` (as written) from `sender` to the session with the id `asked`."""
        ...

    def ask_group(self, sender: str, id_: bytes, asked: frozenset[str], now: float) -> None:
        """Note a request to all listeners of an address."""
        ...

    def has_invited(self, stub: str) -> None: ...


class Layer(Enum):
    """What a session may hold in the routing table besides its runtime URL."""

    OWNED = "owned"
    SUBSCRIBED = "subscribed"
    LEARNED = "learned"


class TableObserver(Protocol):
    """Notified of changes in the routing table that concern sessions of this worker."""

    def entered(self, session: Listener) -> None:
        """Called when a session is added, or something about it has changed."""
        ...

    def left(self, session: Listener) -> None:
        """Called when a session has ended."""
        ...

    def changed(
        self,
        layer: Layer,
        address: str,
        session: Listener,
        holds: bool,
        before: Listener | None = None,
    ) -> None:
        """Called when a session gains or loses an address; `before` is its previous holder."""
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
        """Whether its frames are still carried: also after a disconnect, not after its end."""
        ...

    def put(self, frame: bytes) -> None:
        """Send one frame to the caller itself."""
        ...

    def charge(self, messages: int, size: int) -> None:
        """Count the cost of a message beyond its own frame: additional messages and bytes."""
        ...

    def carry_on(self, rest: Iterator[None]) -> None:
        """Process the rest of a message in steps, others in between; its next message waits."""
        ...

    def wait_for(self, reader: Listener) -> None:
        """Pause the caller until this reader has caught up (a reader that never does is ended)."""
        ...

    def hold(self, frame: bytes, fact: Pending) -> None:
        """Pause the caller until the fact is known, then carry this frame first."""
        ...

    def answer_pending(self, change: int) -> None:
        """Count pending answers: +1 when one begins, -1 when it is given."""
        ...


@dataclass(slots=True)
class ComponentInfo:
    """The state of a component, connector or stub, as the console shows it."""

    name: str
    kind: str
    address: str
    state: str = "live"
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    answered: int = 0
    failed: int = 0
    last_error: str = ""


class Component(ABC):
    """An addressed part of the node. To add one: subclass it and list it in node/parts.py.

    Attributes:
        addresses: answered exactly (one trailing slash is ignored).
        answers_below: whether addresses below them are answered too.
        tells_workers: whether its answers wait until every worker knows what they confirm.
        cancels: whether a future it returns is cancelled at the time limit.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "component"
    answers_below: ClassVar[bool] = False
    tells_workers: ClassVar[bool] = False
    cancels: ClassVar[bool] = False

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.info = ComponentInfo(self.name, self.kind, addresses[0])

    def update_info(self) -> ComponentInfo:
        """Its current state, for the console."""
        return self.info

    def cost(self, message: Message) -> int:
        """What answering costs, as a number of messages besides this one; its sender is charged.

        Raises:
            NodeError: the message is refused.
        """
        return 0

    @abstractmethod
    def answer(self, message: Message, caller: Listener) -> Body | Awaitable[Body]:
        """Answer a message.

        Everything before the return runs in the order of the caller's messages.

        Args:
            message: the request; `message.recipients` has one address.
            caller: the requesting session.

        Returns:
            The body of the answer, or an awaitable of it where the answer takes time.

        Raises:
            NodeError: the request is refused, and nothing has changed.
        """

    def addresses_of(self, message: Message) -> Iterable[str]:
        """The addresses a message is about, where the answer depends on who holds them."""
        return ()

    def revoke(self, message: Message, body: Body, caller: Listener) -> None:  # noqa: B027
        """Undo a late result that the caller, already told 504, could not find by asking again."""


class Authorizer(Protocol):
    """Admits a message: the first check, by the session layer.

    Both methods raise NodeError to refuse the message, and Pending if a fact must be fetched first.
    """

    def authenticate(self, message: Message, caller: Any) -> None:
        """Adopt the identity that a session frame carries, if any, as the caller's."""
        ...

    def authorize(self, message: Message, caller: Any) -> tuple[Requester, Speaker]:
        """Return the sending session, and the speaker of this message."""
        ...


class Proof(Protocol):
    """A verified identity and the digest of the token that proved it."""

    @property
    def identity(self) -> Identity: ...
    @property
    def digest(self) -> str: ...


class Authenticator(Protocol):
    """Verifies who speaks. Both methods raise NodeError and Pending as Authorizer does."""

    def authenticate(self, message: Message, speaker: Speaker) -> Proof | None:
        """The identity that a session frame carries, None if it carries none."""
        ...

    def speaker_of(self, message: Message, session: Listener) -> Speaker:
        """The session's speaker, with the identity that this message carries."""
        ...


class SessionHandler(Protocol):
    """The component `mn:/session`, which acts on the connection as well as on its session."""

    @property
    def info(self) -> ComponentInfo: ...

    def handle(self, message: Message, caller: Any) -> None:
        """Open, resume or close the caller's session, and answer after the commit, if any.

        Raises:
            NodeError: the frame is refused.
        """
        ...


class Enforcer(Protocol):
    """The policy enforcement point.

    Synchronous. Inbound, a fact that must be fetched first raises Pending; a fact that could not be
    fetched makes the decision fail.

    `is_idle`: no policy is in force, so work that only policies need can be skipped.
    """

    @property
    def is_idle(self) -> bool: ...

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        """Decide on a message: inbound, or outbound to one recipient."""
        ...


class Recorder(Protocol):
    """The traffic record: one row per recipient of each message. Never blocks, never raises."""

    def note(self, record: TrafficRecord) -> None:
        """Take a row."""
        ...


MessageObserver = Callable[[TrafficRecord, bytes], None]
"""Called with each record and the body as it came, while messages are watched. Never blocks."""

CLOSED_BY_RUNTIME = "closed by the runtime"
"""The reason of an end that the runtime requested with `close` or `disconnect`."""
SessionEnd = Callable[[Listener, str], None]
"""`session_closed(session, reason)`: after CLOSED; idempotent; starts no thread, task or query."""


class Alarms(Protocol):
    """The alarms of the node, by kind and subject. Called on the event loop; never block."""

    def raise_alarm(self, kind: str, subject: str, text: str, /) -> None: ...
    def clear_alarm(self, kind: str, subject: str, /) -> None: ...


class NoPolicies:
    """The enforcer of a node without policies."""

    is_idle = True

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        """No policy applies to any message."""
        return NOT_APPLICABLE


LEASE_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that keeps running while the process is stopped or the machine sleeps."""
LEAST_LEASE = 3.0
"""The shortest lease, in seconds: in a third of it the database has to renew it, even if a commit
takes long, and a worker that was asked for an address has to answer within it."""


class ServingLease(Protocol):
    """The lease of a worker.

    until  time of LEASE_CLOCK until which the worker may serve without calling `check`; in the past
           once the lease is lost
    """

    until: float

    def check(self) -> None:
        """Raise Pending while it is not certain that the lease is held."""
        ...


class _Always:
    """The lease of a node with one worker, which is always held."""

    until = float("inf")

    def check(self) -> None:
        """Do nothing."""


ALWAYS: ServingLease = _Always()
