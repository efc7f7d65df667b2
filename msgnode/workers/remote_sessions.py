"""The sessions of other workers in this routing table, as the bus sees them, and their names.

Which of them are there is decided by the announcements of their workers (replication.py) and by the
names that are watched here (interest.py). Two workers may give one address to two sessions before
they hear of each other. `ContestedAddresses` decides whose it is in the meantime:
- The database's unique commit decides an allocated address: what another worker announces as held,
  a session here no longer holds. Of two announced by others the later one counts, and once it
  releases the address the other.
- A learned address belongs to the session with the smallest id.
So all tables become equal, whatever the order of the announcements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from msgnode.bus.ports import DeliveryResult, Layer, Listener, Response
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.table import RoutingTable
from msgnode.core import redaction
from msgnode.core.faults import FAULTS
from msgnode.core.identity import Speaker

from .linked_worker import LinkedWorker
from .protocol import AnyFrame, CheckSocket, RequestFrame


class RemoteSession:
    """The bus's Listener for a session of another worker: frames go over the link to that worker.

    `owned`, `subscribed` and `learned` are its addresses in this routing table.
    """

    is_here = False
    token = b""

    __slots__ = (
        "_on_resume",
        "bound_at",
        "id",
        "is_behind",
        "is_connected",
        "learned",
        "owned",
        "worker",
        "runtime_url",
        "speaker",
        "subscribed",
        "successor",
        "_token_hash",
        "__weakref__",
    )

    def __init__(self, id_: str, other: LinkedWorker) -> None:
        self.id = id_
        self.worker = other
        self.runtime_url = ""
        self.token_hash = ""
        self.bound_at = 0.0
        self.is_connected = False
        self.is_behind = False
        self.successor: Listener | None = None
        self.speaker = Speaker(id_, "")
        self.owned: set[str] = set()
        self.subscribed: set[str] = set()
        self.learned: set[str] = set()
        self._on_resume: list[Callable[[], None]] = []

    @property
    def token_hash(self) -> str:
        """The hash of the token; setting it has the token redacted everywhere."""
        return self._token_hash

    @token_hash.setter
    def token_hash(self, token_hash: str) -> None:
        self._token_hash = token_hash
        redaction.remember(token_hash, self)

    def deliver(self, frame: bytes) -> DeliveryResult:
        """Send a frame over the link; if there is no room, the session is told of a gap."""
        other = self.worker
        return self._taken(other.is_up and other.out.put_frame(self.id, frame))

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        """Send a request with the return path of its answer."""
        other = self.worker
        return self._taken(other.is_up and other.out.put_beside(self.id, frame, path))

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        """Send a response; the session's worker knows whether it was asked for."""
        other = self.worker
        return self._taken(other.is_up and other.out.put_beside(self.id, frame, response))

    def deliver_traced(
        self, frame: bytes, beside: Response | ReturnPath | None, traceparent: str
    ) -> DeliveryResult:
        """Send a traced frame, with its trace context in the header."""
        other = self.worker
        return self._taken(
            other.is_up and other.out.put_beside(self.id, frame, beside, traceparent)
        )

    def forward(self, message: AnyFrame) -> None:
        """Forward a frame from another worker, because the session has moved on."""
        path = path_of(message) if isinstance(message, RequestFrame) else None
        if message.trace:
            self.deliver_traced(message.frame, path, message.trace)
        elif path is not None:
            self.deliver_request(message.frame, path)
        else:
            self.deliver(message.frame)

    def has_asked(self, sender: str, id_: str, responder: str, now: float) -> bool:
        """Always False: only the worker of the session knows that."""
        return False

    def has_forgotten(self) -> bool:
        """Always False: only the worker of the session knows that."""
        return False

    def _taken(self, is_taken: bool) -> DeliveryResult:
        other = self.worker
        if not is_taken:
            other.lost.add(self.id)
            return DeliveryResult.DROPPED
        if not self.is_connected:
            return DeliveryResult.QUEUED
        if self.is_behind or other.out.is_behind:
            return DeliveryResult.BEHIND
        return DeliveryResult.WRITTEN

    def missed(self) -> None:
        """Signal a gap to the session over its link."""
        self.worker.lost.add(self.id)

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call back once the reader, or the link, has caught up.

        The session's worker ends a reader that takes too long.
        """
        if self.is_behind:
            self._on_resume.append(callback)
        elif self.worker.is_up and self.worker.out.is_behind:
            self.worker.out.when_writable(callback)
        else:
            callback()

    def resume(self) -> None:
        """Release everybody who waits for this reader."""
        self.is_behind = False
        callbacks, self._on_resume = self._on_resume, []
        for callback in callbacks:
            with FAULTS.kept_to("sender"):
                callback()


def path_of(message: RequestFrame) -> ReturnPath:
    """The return path of a request from another worker."""
    return ReturnPath(message.sender, message.id_key, message.asker, message.runtime_url)


def ask_worker(session: Listener) -> None:
    """Have a session's worker check its socket, and report the result."""
    if isinstance(session, RemoteSession) and session.worker.is_up:
        session.worker.out.put(CheckSocket(session.id))


class RemoteSessions:
    """One instance per worker.

    Attributes:
        by_id: all of them.
        contested: decides if two of them hold an address for a moment.
        on_entered: called with a session that is new or whose speaker has changed.
        on_left: called with a session that has left the table.
    """

    def __init__(self, table: RoutingTable) -> None:
        self.by_id: dict[str, RemoteSession] = {}
        self.contested = ContestedAddresses(table)
        self.on_entered: list[Callable[[Listener], None]] = []
        self.on_left: list[Callable[[Listener], None]] = []
        self._table = table

    def begin(self, session_id: str, other: LinkedWorker) -> RemoteSession:
        """Add a session of another worker."""
        session = self.by_id[session_id] = RemoteSession(session_id, other)
        return session

    def of(self, other: LinkedWorker) -> list[RemoteSession]:
        """The sessions of a worker."""
        return [each for each in self.by_id.values() if each.worker is other]

    def at(self, name: str) -> Iterator[RemoteSession]:
        """The sessions of other workers at a name."""
        table = self._table
        there: dict[Listener | None, None] = dict.fromkeys(table.subscribers(name))
        there.update(dict.fromkeys(table.runtimes.get(name, ())))
        there[table.owners.get(name)] = there[table.learned.get(name)] = None
        there.update(dict.fromkeys(self.contested.at(name)))
        for each in there:
            if isinstance(each, RemoteSession):
                yield each

    def enter(self, session: RemoteSession) -> None:
        """Add a session, or note its change."""
        if is_probe(session):
            self._table.add_probe(session)
            return
        self._table.add_runtime(session)
        for each in self.on_entered:
            each(session)

    def put_at(self, session: RemoteSession, layer: Layer, name: str) -> Listener | None:
        """Add a session at a name in a layer of the table.

        Returns:
            The session of this worker that has lost its ownership of the address by that, if any.
        """
        if layer is Layer.OWNED:
            return self.contested.own(session, name)
        if layer is Layer.LEARNED:
            self.contested.learn(session, name)
        else:
            session.subscribed.add(name)
            self._table.subscribe(name, session)
        return None

    def take_from(self, session: RemoteSession, layer: Layer, name: str) -> None:
        """Remove a session from a name in a layer of the table."""
        if layer is Layer.OWNED:
            self.contested.disown(session, name)
        elif layer is Layer.LEARNED:
            self.contested.unlearn(session, name)
        else:
            session.subscribed.discard(name)
            self._table.unsubscribe(name, session)

    def remove(self, session: RemoteSession) -> None:
        """Remove a session, with all it holds."""
        self.by_id.pop(session.id, None)
        for address in tuple(session.owned):
            self.contested.disown(session, address)
        for address in session.subscribed:
            self._table.unsubscribe(address, session)
        self.forget_learned(session)
        self._table.remove_probe(session)
        self._table.remove_runtime(session)
        for each in self.on_left:
            each(session)
        session.resume()

    def forget_learned(self, session: RemoteSession) -> None:
        """Remove what a session has learned, which ends with its worker."""
        for address in tuple(session.learned):
            self.contested.unlearn(session, address)

    def resume(self, other: LinkedWorker) -> None:
        """Release those who wait for readers of a worker that is down."""
        for session in self.of(other):
            session.resume()


def is_probe(session: Listener) -> bool:
    """Whether it is a worker's probe: no runtime has an address of the node."""
    return session.runtime_url.startswith("domain://")


class Remote(Listener, Protocol):
    """A session of another worker, with what it holds in the table."""

    owned: set[str]
    learned: set[str]


class ContestedAddresses:
    """Decides whose an address is while sessions of two workers hold it; one per worker."""

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._owners: dict[str, dict[str, Listener]] = {}  # all holders of an address with several
        self._learners: dict[str, dict[str, Listener]] = {}

    def at(self, address: str) -> Iterator[Listener]:
        """The sessions that hold an address besides its owner, or have spoken as it."""
        yield from self._owners.get(address, {}).values()
        yield from self._learners.get(address, {}).values()

    def own(self, session: Remote, address: str) -> Listener | None:
        """Add an address held by a session of another worker.

        Returns:
            The session of this worker that has lost the address by that, if any.
        """
        session.owned.add(address)
        before = self._table.owners.get(address)
        self._table.allocate(address, session)
        if before is None or before is session:
            return None
        if before.is_here:
            return before
        rivals = self._owners.setdefault(address, {before.id: before})
        rivals[session.id] = session
        return None

    def disown(self, session: Remote, address: str) -> None:
        """Remove an address of a session of another worker."""
        session.owned.discard(address)
        self._table.release(address, session)
        rivals = self._owners.get(address)
        if rivals is not None:
            rivals.pop(session.id, None)
            self.fall_back(address)
            if len(rivals) < 2:
                del self._owners[address]

    def fall_back(self, address: str) -> None:
        """Give a released address to another holder, if there is one."""
        for session in self._owners.get(address, {}).values():
            if address not in self._table.owners:
                self._table.allocate(address, session)

    def learn(self, session: Remote, address: str) -> None:
        """Note that a session of another worker has spoken as an address."""
        session.learned.add(address)
        before = self._table.learned.get(address)
        if before is None or before is session:
            self._table.learned[address] = session
        else:
            self.contest(address, before, session)

    def unlearn(self, session: Remote, address: str) -> None:
        """Note that a session of another worker no longer speaks as an address."""
        session.learned.discard(address)
        if self._table.learned.get(address) is session:
            del self._table.learned[address]
        self.give_in(address, session)

    def contest(self, address: str, one: Listener, other: Listener) -> None:
        """Decide between two sessions that have spoken as one address."""
        rivals = self._learners.setdefault(address, {})
        rivals.update({one.id: one, other.id: other})
        self._table.learned[address] = rivals[min(rivals)]

    def give_in(self, address: str, session: Listener) -> None:
        """Remove an address from a session, because another session has it."""
        rivals = self._learners.get(address)
        if rivals is None:
            return
        rivals.pop(session.id, None)
        if rivals:
            self._table.learned[address] = rivals[min(rivals)]
        if len(rivals) < 2:
            del self._learners[address]
