"""What a network of another protocol is to this node: the port that each kind implements. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol
from unicodedata import normalize

from msgnode.core import addresses
from msgnode.core.errors import NodeError
from msgnode.core.identity import Identity
from msgnode.core.messages import Message

Answered = Callable[[int, dict[str, Any]], None]
"""Is called with the code and the body of an answer: those below 200 are provisional."""


POSING_ALARM = "legacy-posing"

CONTACT, LENT, CALL, MEDIA = "contact", "lent", "call", "media"
"""What a network has this node keep: who watches a user of ours, addresses that are lent, calls,
and what the ids of its calls at rtpengine begin with."""


class Lost(Exception):
    """The connection to the network has ended; the text says why."""


class Conflicted(Lost):
    """Another has the place of this node there: for a while, the worker that had it before."""


class NotAdmitted(Lost):
    """The network does not admit this node, until an operator has changed something."""


class TooLarge(NodeError):
    """The network takes no message of this size."""

    code: ClassVar[int] = 413
    title: ClassVar[str] = "Too large"


class NotSupported(NodeError):
    """The network has nothing like it."""

    code: ClassVar[int] = 501
    title: ClassVar[str] = "Not supported"


class Answer(NodeError):
    """What the other side has answered, with its code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code  # type: ignore[misc]  # the server's


def shown(text: str) -> str:
    """What another party has written, in one line, for a person, a page or a log."""
    return "".join(each if each.isprintable() else " " for each in text[:200]).strip(" :")


def named_address(start: str, name: str) -> str:
    """The address of a name below `scheme://domain/`, in canonical form; "" if it can have none.

    >>> named_address("sip://a.example/", "a b"), named_address("sip://a.example/", "")
    ('sip://a.example/a%20b', '')
    """
    address = start + addresses.segment(normalize("NFC", name))
    return address if name and not addresses.fault(address) else ""


@dataclass(frozen=True, slots=True)
class LegacySettings:
    """What an operator has said of a network.

    Attributes:
        domain: of its users.
        host, port: of its server.
        component: the gateway's domain there.
        secret: that the server knows.
        wants_receipts: whether messages ask for a receipt.
        pool: how many addresses are lent to those who are not logged in.
        per_minute: messages of one foreign user a minute.
        transport: of SIP: tcp, tls, ws or wss.
        media: of SIP: where rtpengine is told of calls, as host:port; "" for none.
    """

    domain: str
    host: str
    port: int
    component: str
    secret: str = field(default="", repr=False)
    wants_receipts: bool = False
    pool: int = 0
    per_minute: int = 20
    transport: str = "tcp"
    media: str = ""


class Here(Protocol):
    """This node, as a network sees it."""

    own: str

    def identity_of(self, address: str) -> Identity | None:
        """The verified identity at an address of this node."""
        ...

    def runtime_of(self, address: str) -> str:
        """The runtime that has an address of this node, "" if none has."""
        ...

    def when_known(self, addresses: Collection[str], then: Callable[[], None]) -> None:
        """Call `then` once it is known here which sessions have these, at whatever worker."""
        ...

    def if_gone(self, runtime: str, then: Callable[[], None]) -> None:
        """Call `then` once it is certain that a runtime has no session at any worker."""
        ...

    def is_stored(self, message: Message) -> bool:
        """Whether a message is kept here until it is answered, so that it is sent again anyway."""
        ...

    def live(self) -> None:
        """Note that the network has admitted this node."""
        ...

    async def ready(self) -> None:
        """Note that what has come was taken, and wait until this node takes more of the network."""
        ...

    def wake(self) -> None:
        """Note that the network takes more again, or has a time limit that it had not."""
        ...

    def answer(self, message: Message, body: dict[str, Any]) -> None:
        """Answer a message that was sent there, in place of who is there."""
        ...

    def ask(self, type_: str, sender: str, to: str, body: dict[str, Any], said: Answered) -> None:
        """Carry a request of somebody there; `said` is called once with a final answer.

        Args:
            type_: of the message.
            sender: an address of the network; "" if the gateway itself asks.
            to: an address of this node.
            body: its body.
            said: called with each answer; with 504 if none comes in time.
        """
        ...

    def tell(self, sender: str, to: str, body: dict[str, Any]) -> None:
        """Carry an update of somebody there, which is not answered."""
        ...

    def granted(self, message: Message, body: dict[str, Any]) -> None:
        """Say what has become of a subscription that this node wanted there."""
        ...

    def refused(self, why: str) -> None:
        """Count something of the network that is not carried."""
        ...

    def keep(self, kind: str, here: str, there: str, is_kept: bool = True) -> None:
        """Have something known to the worker that serves the network next, or no longer."""
        ...

    def raise_alarm(self, kind: str, text: str) -> None:
        """Raise an alarm about the network."""
        ...


class LegacyNetwork(Protocol):
    """A network of another protocol, with one connection at a time."""

    @property
    def restores(self) -> Mapping[str, Callable[[str, str], None]]:
        """What takes what was kept before it connects, by kind: an address here and there."""
        ...

    async def serve(self) -> None:
        """Connect, and serve until the connection ends. Raises Lost."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether a message may be sent now: the network is live, and below the window."""
        ...

    def send(self, message: Message) -> None:
        """Convert a message and put it on the wire. Raises NodeError if that cannot be."""
        ...

    def subscribe(self, message: Message) -> None:
        """Take a request to the subscription manager of the network's domain. Raises NodeError."""
        ...

    @property
    def due(self) -> float:
        """When `tick` has something to do next, of a monotonic clock; read after each event."""
        ...

    def tick(self) -> None:
        """Look at what has a time limit, connected or not."""
        ...

    def abort(self) -> None:
        """End the connection at once; `serve` raises."""
        ...
