"""Cluster membership and failover: joins the rooms to the transport, takes over dead workers.

Rules
- A worker is registered in the database before it has a session; it takes the sessions of epochs
  that are not registered, and only then joins the others.
- A worker has died if its process has ended on this machine, or if its lease ended some time ago
  and was not renewed for as long as we have watched it, while ours was. Its epoch is retired; then
  all that are left take its sessions, each row by one of them. The sessions come back with a gap,
  because their queues are lost.
- At the end, what sessions are left are given to the others, queues and all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection

from msgnode import models
from msgnode.allocation.component import AllocationComponent
from msgnode.allocation.store import AllocationStore
from msgnode.bus.open_requests import DEFAULT_LIMITS, RequestLimits
from msgnode.bus.ports import DeliveryResult, Listener, Response
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS
from msgnode.core.rates import Rates
from msgnode.identity.service import IdentityService
from msgnode.redis.directory import Directory
from msgnode.redis.faults import Refused
from msgnode.sessions.liveness import LivenessChecks
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.serialization import SessionState, session_of, state_of
from msgnode.sessions.session import LiveSession
from msgnode.sessions.store import SessionStore
from msgnode.subscriptions.component import SubscriptionComponent
from msgnode.subscriptions.store import SubscriptionStore
from msgnode.workers import membership_store
from msgnode.workers.counter_sync import CounterSync
from msgnode.workers.directory_entries import DirectoryEntries
from msgnode.workers.handover import Handover
from msgnode.workers.homes import Homes
from msgnode.workers.identity_lookup import IdentityLookup
from msgnode.workers.interest import Interest
from msgnode.workers.lease import Lease, margin_of, now
from msgnode.workers.own_names import HOLDS, LISTENS, OwnNames
from msgnode.workers.peer import Peer
from msgnode.workers.protocol import (
    CheckSocket,
    CounterReport,
    Goodbye,
    NamesRequest,
    NamesResponse,
    RpcRequest,
    RpcResponse,
    SocketChecked,
)
from msgnode.workers.remote import RemoteSession
from msgnode.workers.replication import TableReplicator
from msgnode.workers.rpc import PeerRpc
from msgnode.workers.transport import PeerTransport
from msgnode.workers.worker_process import has_ended

log = logging.getLogger(__name__)

_LAYER_PATIENCE = 3.0  # seconds until a layer that is out of reach is named
_LOOK_INTERVAL = 2.0  # seconds between two looks at the leases of the others


class SessionTransfer(msgspec.Struct):
    """A session and what it holds: addresses with their allocation keys, subscribed addresses."""

    session: SessionState
    owned: dict[str, str]
    subscribed: list[str]


@dataclass(frozen=True, slots=True)
class ClusterLimits:
    """timeout  seconds of a lease, and until a worker without a heartbeat is down
    outbox_bytes, stores  of sessions"""

    timeout: float
    outbox_bytes: int
    stores: bool
    requests: RequestLimits = DEFAULT_LIMITS


class Cluster:
    """One instance per worker of a node that has several. Implements LocalSessions and
    HandoverHost."""

    def __init__(
        self,
        transport: PeerTransport,
        limits: ClusterLimits,
        table: RoutingTable,
        sessions: SessionManager,
        allocation: AllocationComponent,
        subscriptions: SubscriptionComponent,
        store: SessionStore,
        raise_alarm: Callable[[str, str, str], None],
        bounce: Callable[[bytes], None],
        identities: IdentityService,
        counters: Mapping[str, Rates],
        guard: ResponseGuard,
        liveness: LivenessChecks,
        lease: Lease,
        directory: Directory,
    ) -> None:
        self.me = transport.me
        self.lease = lease
        self.state = membership_store.STARTING
        self.transport = transport
        self.names = OwnNames(
            directory, table, transport, self._is_retired, lambda epoch: epoch in self._dead
        )
        self.replicator = TableReplicator(table, self.transport, self, self.names)
        self.moves = Handover(
            self.transport, self.replicator, self, limits.timeout, limits.outbox_bytes
        )
        self.counts = CounterSync(self.transport, counters)
        self.rpc = PeerRpc(self.transport)
        lookup = IdentityLookup(self.transport, self.rpc, identities.logged_in.find)
        identities.connector.find_elsewhere = lookup.find
        self.interest = Interest(directory, table, self.transport, self.names)
        self.interest.copies = self.replicator
        self.replicator.interest = self.interest
        self.entries = DirectoryEntries(directory, self.transport, self, self.names, self.interest)
        self.homes = Homes(
            directory,
            self.transport,
            self.names,
            self.interest,
            self.knows_all,
            self._is_retired,
        )
        self.entries.on_back = self.homes.forget_unknown
        self._limits = limits
        self._table = table
        self._sessions = sessions
        self._allocation = allocation
        self._subscriptions = subscriptions
        self._store = store
        self._raise_alarm = raise_alarm
        self._bounce = bounce
        self._identities = identities
        self._guard = guard
        self._liveness = liveness
        self._expected: set[str] = set()
        self._unseen: dict[str, tuple[Any, float]] = {}  # epoch -> the end of its lease, since when
        self._failed = 0  # renewals of our own
        self._registered: set[str] = set()  # epochs of others, by the database
        self._ready: set[str] = set()  # those of them that take sessions
        self._dead: set[str] = set()
        self._jobs: list[asyncio.Task[None]] = []
        self._takeovers: set[asyncio.Task[None]] = set()

    # --- start and stop ---------------------------------------------------------------------------

    def register(self) -> list[models.Session]:
        """Enter the register; the sessions that are ours by it. Blocks: for the start."""
        sent = now()
        others = membership_store.register(self.me, self.lease.seconds)
        self.lease.begin(sent)
        for worker in others:
            if has_ended(self.me, worker.host, worker.pid):
                membership_store.retire(worker.epoch)
            elif not membership_store.retire_expired(worker.epoch, margin_of(self.lease.seconds)):
                self._expected.add(worker.epoch)
        self._registered = set(self._expected)
        self.transport.may_serve = lambda: self.lease.is_held
        taken = self._store.take_over(None)
        return [row for rows in taken for row in rows]

    async def join(self) -> None:
        """Meet the others and learn what they have. Raises RedisFault if the layer stays out of
        reach, or will not do."""
        self.rpc.loop = asyncio.get_running_loop()
        limit = monotonic() + min(self._limits.timeout, _LAYER_PATIENCE)
        while True:
            try:
                await self.entries.start()
                await self.transport.start()
                break
            except Exception as error:
                if isinstance(error, Refused) or monotonic() > limit:
                    raise
                log.info("The channel layer is not there yet: %s", error)
                await asyncio.sleep(0.2)
        self._jobs = [
            asyncio.create_task(job)
            for job in (self._watch(), self.counts.run(), self.entries.run())
        ]
        await self.transport.join(self._expected)
        if self.transport.refused:  # what they left nobody has taken
            await self._take_over(None, [])
        self.state = membership_store.READY

    def close(self) -> None:
        """Take no more sessions."""
        self.state = membership_store.DRAINING
        self.transport.close()

    async def leave(self, seconds: float) -> None:
        """Give away the sessions that are left; at most so long."""
        await self.moves.give_all(list(self._sessions.sessions), seconds)

    async def stop(self) -> None:
        """The end: of this worker nothing is heard any more."""
        jobs = [*self._jobs, *self._takeovers]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        self.counts.tell()
        self.transport.tell(Goodbye())
        await self.transport.stop()
        await self.homes.stop()
        await self.entries.stop()
        await asyncio.to_thread(_closing, membership_store.retire, self.me.epoch)

    async def fence(self) -> set[str]:
        """The lease is lost: hear and say nothing more; the sessions of other workers that miss
        something of what was said."""
        for job in (*self._jobs, *self._takeovers):
            job.cancel()
        await self.homes.stop()
        await self.entries.stop()
        return await self.transport.silence()

    @property
    def meets_others(self) -> bool:
        """Whether the ways to the other workers are there: the layer and the directory."""
        return self.transport.hears_itself and self.entries.is_filled

    def knows_all(self) -> bool:
        """Whether all that take sessions can be heard, so that who is not known is nobody."""
        return self.meets_others and self.transport.knows(self._ready)

    def _is_retired(self, epoch: str) -> bool:
        """Whether a worker has ended and what it had was taken; one that comes is known as a peer
        before it takes sessions."""
        heard_of = self.transport.peers.keys() | {self.me.epoch}
        return epoch not in heard_of | self._registered | self._dead

    # --- LocalSessions: what replication asks of this worker's sessions ---------------------------

    @property
    def sessions(self) -> dict[str, LiveSession]:
        return self._sessions.sessions

    def holdings(self, session_id: str) -> tuple[list[str], list[str], list[str]]:
        session = self.sessions[session_id]
        return (
            list(self._allocation.holdings(session_id)),
            self._subscriptions.holdings(session_id),
            list(session.learned),
        )

    def withdraw(self, address: str, session: Listener) -> None:
        self._allocation.drop(address, session)

    def remote_entered(self, session: Listener) -> None:
        self._identities.remote_entered(session)

    def remote_left(self, session: Listener) -> None:
        self._identities.remote_left(session)

    def missed(self, session_id: str) -> None:
        self._sessions.missed(session_id)

    def undeliverable(self, frame: bytes) -> None:
        self._bounce(frame)

    def respond(self, session: Listener, frame: bytes, response: Response) -> DeliveryResult | None:
        return self._guard.respond(session, frame, response, perf_counter())

    def has_asked(self, session: Any, response: Response) -> bool:
        return self._guard.has_asked(session, response, perf_counter())

    def said(
        self,
        peer: Peer,
        message: CounterReport | RpcRequest | RpcResponse | NamesRequest | NamesResponse,
    ) -> None:
        if isinstance(message, CounterReport):
            self.counts.heard(peer, message)
        elif isinstance(message, NamesRequest | NamesResponse):
            self.homes.heard(peer, message)
        else:
            self.rpc.heard(peer, message)

    def ask_worker(self, session: Listener) -> None:
        """Have the worker of a session ask the session's socket."""
        remote = self.replicator.remotes.get(session.id)
        if remote is not None and remote.peer.is_up:
            remote.peer.out.put(CheckSocket(session.id))

    def check_socket(self, peer: Peer, session_id: str) -> None:
        def tell(outcome: bool | None) -> None:
            if peer.is_up:
                peer.out.put(SocketChecked(session_id, outcome))

        session = self.sessions.get(session_id)
        if session is None or not session.is_connected:
            tell(None)  # what has become of it was said before
        else:
            self._liveness.ask(session, tell)

    def socket_checked(self, session_id: str, outcome: bool | None) -> None:
        self._liveness.worker_said(session_id, outcome)

    # --- HandoverHost: sessions that leave and arrive ---------------------------------------------

    def pack(self, session_id: str) -> bytes | None:
        session = self.sessions.get(session_id)
        if session is None:
            return None
        self._sessions.release(session)
        owned = self._allocation.holdings(session_id)
        subscribed = self._subscriptions.holdings(session_id)
        return msgspec.msgpack.encode(SessionTransfer(state_of(session), owned, subscribed))

    def next_frame(self, session_id: str) -> bytes | None:
        session = self.sessions.get(session_id)
        return session.outbox.take() if session is not None else None

    def keep(self, session_id: str) -> None:
        session = self.sessions.get(session_id)
        if session is not None:
            session.outbox.has_gap = True
            self._sessions.adopt(session)

    def send_off(self, session_id: str, remote: RemoteSession) -> None:
        session = self.sessions.get(session_id)
        if session is None:
            return
        remote.runtime_url = session.runtime_url
        remote.token_hash = session.token_hash
        remote.speaker = session.speaker
        remote.bound_at = session.bound_at
        remote.owned = set(self._allocation.holdings(session_id))
        remote.subscribed = set(self._subscriptions.holdings(session_id))
        self._sessions.release(session)
        self._table.replace(session, remote, remote.owned, remote.subscribed)
        held = {session.runtime_url, *remote.owned}
        self.interest.handed_off(held, remote.subscribed, remote.peer.epoch)
        self._sessions.hand_off(session_id)
        self._allocation.hand_off(session_id)
        self._subscriptions.hand_off(session_id)
        self._identities.remote_entered(remote)

    def unpack(self, state: bytes, remote: RemoteSession | None) -> LiveSession:
        transfer = msgspec.msgpack.decode(state, type=SessionTransfer)
        session = session_of(
            transfer.session, self._limits.outbox_bytes, self._limits.stores, self._limits.requests
        )
        self._put_in_place(session, remote, transfer.owned, transfer.subscribed)
        return session

    def welcome(self, session: Any) -> None:
        self._sessions.adopt(session)
        self._store.moved(session)
        self.replicator.announcements.announce(session)

    async def take_over(self, session_id: str) -> None:
        await self._take_over([], [session_id])

    def has_died(self, peer: Peer) -> bool:
        if has_ended(self.me, peer.host, peer.pid):
            self._handle_dead(peer.epoch)
            return True
        return False

    def left(self, peer: Peer) -> None:
        self._handle_dead(peer.epoch)

    # --- the dead ---------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look for those who have ended."""
        looked = 0.0
        while True:
            await asyncio.sleep(min(0.5, self._limits.timeout / 5))
            try:
                for peer in tuple(self.transport.peers.values()):
                    with FAULTS.kept_to("worker link"):
                        self.has_died(peer)
                if monotonic() - looked >= min(_LOOK_INTERVAL, self._limits.timeout / 3):
                    looked = monotonic()
                    heard_of = set(self.transport.peers)
                    rows = await asyncio.to_thread(_closing, membership_store.list_others, self.me)
                    if self.lease.is_held:
                        await self._look(rows, heard_of)
            except Exception as error:
                log.warning("The other workers could not be looked after: %s", error)

    async def _look(self, rows: Sequence[models.Worker], heard_of: set[str]) -> None:
        """Find out who has ended, by the rows of those that have not; `heard_of` are the peers that
        were known before the rows were read."""
        moment = now()
        if self.lease.failed != self._failed:  # who could not renew itself looks anew
            self._failed = self.lease.failed
            self._unseen.clear()
        registered = {row.epoch: row for row in rows}
        self._registered = set(registered)
        self._ready = {row.epoch for row in rows if row.state == membership_store.READY}
        self._expected.intersection_update(registered)
        for epoch in heard_of - registered.keys():
            self._handle_dead(epoch)
        margin = margin_of(self.lease.seconds)
        for epoch, row in registered.items():
            seen, since = self._unseen.get(epoch, (None, moment))
            if has_ended(self.me, row.host, row.pid):
                self._handle_dead(epoch)
            elif row.lease_until != seen:
                self._unseen[epoch] = (row.lease_until, moment)
            elif moment - since > self.lease.seconds and await asyncio.to_thread(
                _closing, membership_store.retire_expired, epoch, margin
            ):
                self._handle_dead(epoch)
        for epoch in tuple(self._unseen):
            if epoch not in registered:
                del self._unseen[epoch]

    def _handle_dead(self, epoch: str) -> None:
        """A worker has ended: take what it had, then forget it."""
        if epoch in self._dead:
            return
        self._dead.add(epoch)
        peer = self.transport.peers.get(epoch)
        if peer is not None:
            self.transport.forget(peer)
            self.replicator.peer_down(peer)
        task = asyncio.create_task(self._take_over_dead(epoch, peer))
        self._takeovers.add(task)
        task.add_done_callback(self._takeovers.discard)

    async def _take_over_dead(self, epoch: str, peer: Peer | None) -> None:
        name = peer.name if peer else epoch
        log.info("A worker has ended.", extra={"worker": name})
        while True:
            try:
                if await asyncio.to_thread(_closing, membership_store.retire, epoch):
                    text = f"The worker {name} has ended without taking leave."
                    self._raise_alarm("unclean-stop", epoch, text)
                await self._take_over([epoch], [])
                break
            except Exception as error:
                log.warning("The sessions of a worker could not be taken over yet: %s", error)
                await asyncio.sleep(1.0)
        await asyncio.sleep(self._limits.timeout)  # the others say what they took meanwhile
        if peer is not None:
            self.replicator.forget(peer)
        self._dead.discard(epoch)

    async def _take_over(self, epochs: list[str] | None, ids: list[str]) -> None:
        """Take sessions from the database, some at a time; None: all whose worker has ended."""
        with_gap = 0
        taking = self._store.take_over(epochs, ids)
        while (rows := await asyncio.to_thread(_closing, next, taking, None)) is not None:
            keys = [row.id for row in rows]
            owned, subscribed = await asyncio.to_thread(_closing, _holdings, keys)
            for row in rows:
                id_ = row.id.hex
                if id_ not in self.sessions:
                    with_gap += bool(row.epoch)
                    with FAULTS.kept_to("session"):
                        self._restore_one(row, owned.get(id_, {}), subscribed.get(id_, []))
        if with_gap:
            text = f"A worker has ended: {with_gap} of its sessions may have missed messages."
            self._raise_alarm("unclean-stop", epochs[0] if epochs else "", text)

    def _restore_one(
        self, row: models.Session, owned: dict[str, str], subscribed: list[str]
    ) -> None:
        session = self._sessions.restored(row)
        remote = self.replicator.remotes.pop(session.id, None)
        self._put_in_place(session, remote, owned, subscribed)
        if row.epoch:
            held = (session.runtime_url, *owned)
            self.names.taken(held, subscribed, str(row.epoch))
        self._sessions.adopt(session)
        self.replicator.announcements.announce(session)

    def _put_in_place(
        self,
        session: LiveSession,
        remote: RemoteSession | None,
        owned: dict[str, str],
        subscribed: list[str],
    ) -> None:
        """Let the routing table name a session of ours where it named a remote one."""
        table = self._table
        had_owned = remote.owned if remote is not None else set()
        had_subscribed = remote.subscribed if remote is not None else set()
        if remote is not None:
            self.replicator.forget_learned(remote)
            table.replace(remote, session, had_owned, had_subscribed)
            remote.resume()
        else:
            table.add_runtime(session)
        for address in had_owned.difference(owned):
            table.release(address, session)
        for address in had_subscribed.difference(subscribed):
            table.unsubscribe(address, session)
        for address in set(owned) - had_owned:
            table.allocate(address, session)
        for address in set(subscribed) - had_subscribed:
            table.subscribe(address, session)
        self.names.arrived(HOLDS, (session.runtime_url, *owned))
        self.names.arrived(LISTENS, subscribed)
        self._allocation.adopt(session, dict(owned))
        self._subscriptions.adopt(session, subscribed)


def _holdings(keys: Sequence[UUID]) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """By session: the addresses it owns with their keys, and those it has subscribed. Blocks."""
    owned: dict[str, dict[str, str]] = {}
    for row in AllocationStore.load(keys):
        owned.setdefault(row.session, {})[row.address] = row.key
    subscribed: dict[str, list[str]] = {}
    for address, session in SubscriptionStore.load(keys):
        subscribed.setdefault(session, []).append(address)
    return owned, subscribed


def _closing(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call in a thread that is not ours to keep a connection in."""
    try:
        return call(*arguments)
    finally:
        connection.close()
