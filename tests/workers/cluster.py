"""Workers without a server: a routing table, rooms and a transport each, on any channel layer."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Any, ClassVar

from msgnode.bus.open_requests import OpenRequests
from msgnode.bus.ports import DeliveryResult, Listener, Response
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.table import RoutingTable
from msgnode.core.pending import Pending
from msgnode.core.rates import Rates
from msgnode.redis.directory import Kind
from msgnode.workers.announcements import Announcements, Watchers, as_up
from msgnode.workers.counter_sync import CounterSync
from msgnode.workers.handover import ArrivingFrames, Handover
from msgnode.workers.homes import Homes
from msgnode.workers.interest import Interest, InterestRenewal
from msgnode.workers.linked_worker import LinkedWorker
from msgnode.workers.own_names import HOLDS, LISTENS, OwnNames
from msgnode.workers.protocol import Backpressure
from msgnode.workers.remote_sessions import RemoteSession, RemoteSessions
from msgnode.workers.replication import SessionCopies, TableReplicator
from msgnode.workers.rpc import WorkerRpc
from msgnode.workers.transport import LinkTransport
from msgnode.workers.worker_process import WorkerId
from tests.fakes import AlarmCalls, FakeSession

PATIENCE = 1.0
MOST_FRAMES = 2_000
"""Sent while a session moves: however long that takes, a test does not fill a link."""


class SharedDirectory:
    """What workers of one process find in the directory, as redis/directory.py keeps it."""

    def __init__(self) -> None:
        self.sets: dict[tuple[Kind, str], set[str]] = {}

    async def join(self, names: Collection[str], member: str) -> dict[str, set[str]]:
        for name in names:
            self.claim(Kind.NAME, name, member)
        await asyncio.sleep(0)
        return {name: set(self.sets[Kind.NAME, name]) for name in names}

    def claim(self, kind: Kind, name: str, member: str) -> None:
        self.sets.setdefault((kind, name), set()).add(member)

    def release(self, kind: Kind, name: str, member: str) -> None:
        self.sets.get((kind, name), set()).discard(member)

    async def members(self, kind: Kind, names: Collection[str]) -> dict[str, set[str]]:
        await asyncio.sleep(0)
        return {name: set(found) for name in names if (found := self.sets.get((kind, name)))}

    async def are_filled(self, epochs: Collection[str]) -> bool:
        return True


class Fellow:
    """One worker: LocalSessions, MovingSessions and Failover over sessions that are fakes."""

    directories: ClassVar[dict[str, SharedDirectory]] = {}  # by the secret of the node
    packed: ClassVar[
        dict[str, tuple[OpenRequests, list[str], list[str]]]
    ] = {}  # goes along with a session

    def __init__(self, layer: Any, name: str, secret: str, link_bytes: int = 1024 * 1024) -> None:
        self.secret = secret
        self.alarms: list[str] = []
        self.cleared: list[str] = []
        self.strays: list[bytes] = []
        self.gaps: list[str] = []
        self.reasserted: list[str] = []
        self.sessions: dict[str, FakeSession] = {}
        self.table = RoutingTable()
        self.watchers = Watchers(self.table)
        self.guard = ResponseGuard(self.table, True, self.gaps.append)
        self.transport = LinkTransport(
            layer,
            WorkerId(name, str(uuid.uuid4()), "host", 1),
            secret,
            PATIENCE,
            link_bytes,
            self.watchers.snapshot,
            AlarmCalls(
                lambda kind, subject, text: self.alarms.append(kind),
                lambda kind, subject: self.cleared.append(kind),
            ),
        )
        directory = self.directory(secret)
        self.retired: set[str] = set()
        self.ended: set[str] = set()  # whose sessions are being taken over
        has_ended = self.retired.__contains__
        self.remotes = remotes = RemoteSessions(self.table)
        self.announcements = Announcements(self.watchers, self.transport)
        self.names = OwnNames(
            directory,
            self.table,
            self.transport,
            self.watchers,
            self.announcements,
            remotes,
            has_ended,
            self.ended.__contains__,
        )
        self.interest = Interest(directory, self.table, self.transport, self.names, remotes)
        self.names.begin(HOLDS, ())
        self.homes = Homes(
            directory, self.transport, self.names, self.interest, lambda: True, has_ended
        )
        self.renewal = InterestRenewal(
            self.interest, self.names, remotes, self.transport, self.homes.look_for
        )
        TableReplicator(
            self.table, self.transport, self.names, self.announcements, remotes.contested
        )
        self.copies = SessionCopies(
            self.transport, self, self.names, self.interest, self.renewal, remotes, self.make_remote
        )
        self.rates = Rates()
        self.counts = CounterSync(self.transport, {"test": self.rates})
        self.rpc = WorkerRpc(self.transport)
        self.moves = Handover(
            self.transport,
            remotes,
            self.announcements,
            self.watchers.leaving,
            self,
            self,
            1024 * 1024,
            self.table.return_paths,
        )
        self.copies.on_new_stream.append(self.moves.link_broke)
        self.frames = ArrivingFrames(self.table, self.transport, self, self.moves)

    def directory(self, secret: str) -> Any:
        return self.directories.setdefault(secret, SharedDirectory())

    # --- what a test does -------------------------------------------------------------------------

    async def start(self, *others: Fellow) -> Fellow:
        await self.transport.start()
        await self.transport.join({other.transport.me.epoch for other in others})
        return self

    async def settled(self) -> None:
        """Until every other worker has done what this one has said."""
        for barrier in (self.names.barrier, self.transport.barrier):
            if (done := barrier()) is not None:
                await asyncio.wait_for(done, 10)

    async def watch(self, *addresses: str) -> None:
        """As before a message to these addresses is routed."""
        unheard = [each for each in addresses if not self.homes.hears(each)]
        key = uuid.uuid4()
        try:
            self.homes.find(key, unheard)
        except Pending as fact:
            known = asyncio.Event()
            fact.when_known(known.set)
            await asyncio.wait_for(known.wait(), 10)
            self.homes.find(key, unheard)
        assert all(map(self.homes.hears, addresses))

    def says_something(self) -> None:
        """Say to all what changes nothing."""
        self.transport.tell(Backpressure("", False))

    def enter(self, runtime_url: str = "") -> FakeSession:
        session = FakeSession(runtime_url or f"runtime://localhost/{uuid.uuid4().hex}")
        session.id = uuid.uuid4().hex
        self.sessions[session.id] = session
        self.table.add_runtime(session)
        return session

    def end(self, session: FakeSession) -> None:
        del self.sessions[session.id]
        for owned, subscribed, learned in [self._holdings(session)]:
            for address in owned:
                self.table.release(address, session)
            for address in subscribed:
                self.table.unsubscribe(address, session)
            for address in learned:
                self.table.forget(address, session)
        self.table.remove_runtime(session)

    def seen(self) -> dict[str, Any]:
        """The routing table by the ids of sessions, comparable between workers."""
        table = self.table
        return {
            "owners": {address: session.id for address, session in table.owners.items()},
            "learned": {address: session.id for address, session in table.learned.items()},
            "subscribers": {
                address: {session.id for session in sessions}
                for address, sessions in table._subscribers.items()
            },
            "runtimes": {
                url: {session.id for session in sessions}
                for url, sessions in table.runtimes.items()
            },
        }

    # --- LocalSessions and HandoverHost -----------------------------------------------------------

    def holdings(self, session_id: str) -> tuple[list[str], list[str], list[str]]:
        return self._holdings(self.sessions[session_id])

    async def know(self, session: Listener) -> RemoteSession:
        """A session of another worker, as before something is sent to its runtime."""
        await self.watch(session.runtime_url)
        found = self.remotes.by_id[session.id]
        assert found in self.table.runtimes[session.runtime_url]
        return found

    def _holdings(self, session: FakeSession) -> tuple[list[str], list[str], list[str]]:
        table = self.table
        return (
            [address for address, owner in table.owners.items() if owner is session],
            [to for to, sessions in table._subscribers.items() if session in sessions],
            [address for address, maker in table.learned.items() if maker is session],
        )

    def withdraw(self, address: str, session: Listener) -> None:
        self.table.release(address, session)

    def is_moving(self, session_id: str) -> bool:
        return self.moves.is_moving(session_id)

    def reassert(self, session: Listener) -> None:
        self.reasserted.append(session.id)

    def give_up(self, session: Listener, worker: str, epoch: str) -> None:
        """There is no database here."""

    def missed(self, session_id: str) -> None:
        if session_id in self.sessions:
            self.gaps.append(session_id)

    def respond(self, session: Listener, frame: bytes, response: Response) -> DeliveryResult | None:
        return self.guard.respond(session, frame, response, 0.0)

    def has_asked(self, session: Any, response: Response) -> bool:
        return self.guard.has_asked(session, response, 0.0)

    def undeliverable(self, frame: bytes) -> None:
        self.strays.append(frame)

    def is_here(self, session_id: str) -> bool:
        return session_id in self.sessions

    async def quiet(self, session_id: str, seconds: float) -> None:
        """A session that is a fake has nothing under way."""

    def pack(self, session_id: str) -> bytes | None:
        session = self.sessions.get(session_id)
        if session is None:
            return None
        owned, subscribed, _ = self._holdings(session)
        self.packed[session_id] = session.requests, owned, subscribed
        return f"{session_id} {session.runtime_url}".encode()

    def has_gap(self, session_id: str) -> bool:
        return session_id in self.gaps

    def next_frame(self, session_id: str) -> bytes | None:
        session = self.sessions.get(session_id)
        frames = session.frames if session is not None else []
        return frames.pop(0) if frames else None

    def keep(self, session_id: str, other: LinkedWorker) -> None:
        self.gaps.append(session_id)
        other.out.put(as_up(self.sessions[session_id]))

    async def store_left(self, session_id: str, other: LinkedWorker, seconds: float) -> None:
        """There is no database here."""

    def make_remote(self, session_id: str, other: LinkedWorker) -> list[str]:
        remote = self.remotes.begin(session_id, other)
        told = self.announcements.handed_over(session_id)
        session = self.sessions.pop(session_id)
        owned, subscribed, _ = self._holdings(session)
        remote.runtime_url = session.runtime_url
        remote.owned, remote.subscribed = set(owned), set(subscribed)
        self.table.replace(session, remote, owned, subscribed)
        held = {session.runtime_url, *owned}
        self.renewal.handed_off(held, subscribed, remote.worker.epoch)
        return told

    def unpack(self, state: bytes, remote: RemoteSession | None) -> FakeSession:
        id_, _, runtime_url = state.decode().partition(" ")
        session = FakeSession(runtime_url)
        session.id = id_
        session.requests, owned, subscribed = self.packed[id_]
        if remote is None:
            self.table.add_runtime(session)
        else:
            self.table.replace(remote, session, remote.owned, remote.subscribed)
        for address in owned:
            self.table.allocate(address, session)
        for address in subscribed:
            self.table.subscribe(address, session)
        self.names.arrived(HOLDS, (session.runtime_url, *owned))
        self.names.arrived(LISTENS, subscribed)
        return session

    def welcome(self, session: Any) -> None:
        self.sessions[session.id] = session
        self.announcements.announce(session)

    def end_arrived(self, session_id: str) -> None:
        self.end(self.sessions[session_id])

    async def take_over(self, epochs: list[str], ids: list[str]) -> None:
        """There is no database here."""

    def has_died(self, other: LinkedWorker) -> bool:
        return False

    def left(self, other: LinkedWorker) -> None:
        self.transport.forget(other)
        self.copies.forget(other)


class LossyLayer:
    """A channel layer that loses what it is told to lose, as Redis does when it restarts."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.loses: Callable[[dict[str, Any]], bool] = lambda message: False
        self.refuses = False

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        if self.refuses:
            raise ConnectionError("refused")
        if not self.loses(message):
            await self._layer.send(channel, message)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        if self.refuses:
            raise ConnectionError("refused")
        if not self.loses(message):
            await self._layer.group_send(group, message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


Meet = Callable[..., Awaitable[list[Fellow]]]
