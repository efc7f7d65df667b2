"""Packs a session that leaves this worker, and sets up one that arrives, in all packages."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import msgspec

from msgnode.allocation.component import AllocationComponent
from msgnode.bus.ports import Response
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.table import RoutingTable
from msgnode.identity.service import IdentityService
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.session import LiveSession
from msgnode.sessions.session_factory import SessionSettings, SessionState, session_of, state_of
from msgnode.sessions.store import SessionStore
from msgnode.subscriptions.component import SubscriptionComponent
from msgnode.workers.announcements import as_up
from msgnode.workers.linked_worker import LinkedWorker
from msgnode.workers.network import WorkerNetwork
from msgnode.workers.orders import ArrivalChecks
from msgnode.workers.own_names import HOLDS, LISTENS
from msgnode.workers.remote_sessions import RemoteSession


class SessionTransfer(msgspec.Struct):
    """A session and what it holds: addresses with their allocation keys, subscribed addresses."""

    session: SessionState
    owned: dict[str, str]
    subscribed: list[str]


@dataclass(frozen=True, slots=True)
class OwnSessions:
    """The sessions of this worker, with what they hold and what is known of them."""

    settings: SessionSettings
    table: RoutingTable
    manager: SessionManager
    store: SessionStore
    allocation: AllocationComponent
    subscriptions: SubscriptionComponent
    identities: IdentityService
    guard: ResponseGuard


class MovingSessions:
    """One instance per worker."""

    def __init__(self, own: OwnSessions, network: WorkerNetwork, arrivals: ArrivalChecks) -> None:
        self._settings = own.settings
        self._table = own.table
        self._sessions = own.manager
        self._allocation = own.allocation
        self._subscriptions = own.subscriptions
        self._store = own.store
        self._identities = own.identities
        self._guard = own.guard
        self._names = network.names
        self._renewal = network.renewal
        self._remotes = network.remotes
        self._announcements = network.announcements
        self._arrivals = arrivals

    # --- leaving ----------------------------------------------------------------------------------

    def is_here(self, session_id: str) -> bool:
        """Whether this worker has the session."""
        return session_id in self._sessions.sessions

    async def quiet(self, session_id: str, seconds: float) -> None:
        """Close the socket of a session, and wait for its writes to the database.

        An address that it claims is its own from the commit, which must come before it leaves.
        After so many seconds it leaves all the same, with a gap.
        """
        session = self._sessions.sessions.get(session_id)
        if session is None:
            return
        self._sessions.release(session)
        _, under_way = await asyncio.wait([self._store.written()], timeout=seconds)
        if under_way:
            session.outbox.has_gap = True

    def pack(self, session_id: str) -> bytes | None:
        """Return the state of a session that is quiet; None if it has ended."""
        session = self._sessions.sessions.get(session_id)
        if session is None:
            return None
        owned = self._allocation.holdings(session_id)
        subscribed = self._subscriptions.holdings(session_id)
        return msgspec.msgpack.encode(SessionTransfer(state_of(session), owned, subscribed))

    def has_gap(self, session_id: str) -> bool:
        """Whether a session is still to be told that it misses frames."""
        session = self._sessions.sessions.get(session_id)
        return session is not None and session.outbox.has_gap

    def next_frame(self, session_id: str) -> bytes | None:
        """Remove and return the next frame of the session's queue."""
        session = self._sessions.sessions.get(session_id)
        return session.outbox.take() if session is not None else None

    def keep(self, session_id: str, other: LinkedWorker) -> None:
        """Keep a session that was to leave and has missed frames; the other may have it as well."""
        session = self._sessions.sessions.get(session_id)
        if session is not None:
            session.outbox.has_gap = True
            self._sessions.adopt(session)
            self._store.moved(session)  # it may be stored as the other's already
            if other.is_up:
                other.out.put(as_up(session))
            self._arrivals.check(session)

    async def store_left(self, session_id: str, other: LinkedWorker, seconds: float) -> None:
        """Store that another worker has the session; wait for that so many seconds at most."""
        session = self._sessions.sessions.get(session_id)
        if session is not None:
            left = self._store.left(session, other.name, other.epoch)
            await asyncio.wait([left], timeout=seconds)

    def make_remote(self, session_id: str, other: LinkedWorker) -> list[str]:
        """Replace a session by one of another worker, which it was handed to or which took it.

        From now on what comes for it is passed on to that worker.

        Returns:
            The workers that know of it.
        """
        remote = self._remotes.begin(session_id, other)
        told = self._announcements.handed_over(session_id)
        session = self._sessions.sessions.get(session_id)
        if session is None:
            return told
        remote.runtime_url = session.runtime_url
        remote.token_hash = session.token_hash
        remote.speaker = session.speaker
        remote.bound_at = session.bound_at
        remote.owned = set(self._allocation.holdings(session_id))
        remote.subscribed = set(self._subscriptions.holdings(session_id))
        self._sessions.release(session)
        self._table.replace(session, remote, remote.owned, remote.subscribed)
        held = {session.runtime_url, *remote.owned}
        self._renewal.handed_off(held, remote.subscribed, remote.worker.epoch)
        self._sessions.hand_off(session_id)
        self._allocation.hand_off(session_id)
        self._subscriptions.hand_off(session_id)
        self._identities.session_went(remote)
        return told

    # --- coming -----------------------------------------------------------------------------------

    def unpack(self, state: bytes, remote: RemoteSession | None) -> LiveSession:
        """Set up a session in place of a remote one; it is not usable yet."""
        transfer = msgspec.msgpack.decode(state, type=SessionTransfer)
        session = session_of(transfer.session, self._settings.limits)
        self.put_in_place(session, remote, transfer.owned, transfer.subscribed)
        return session

    def welcome(self, session: Any) -> None:
        """Make the session one of this worker's."""
        self._sessions.adopt(session)
        self._store.moved(session)
        self.has_come(session)

    def has_come(self, session: LiveSession, rows_read_at: float | None = None) -> None:
        """A session is one of this worker's now: tell who knows of it, look whether it stays.

        `rows_read_at` says when its rows were read, if it comes from them.
        """
        self._announcements.announce(session)
        self._arrivals.check(session, rows_read_at)

    def end_arrived(self, session_id: str) -> None:
        """A session that has come had ended on its way."""
        session = self._sessions.sessions.get(session_id)
        if session is not None:
            self._sessions.end(session, CloseCode.GOING_AWAY, "ended while it changed its worker")

    def has_asked(self, session: Any, response: Response) -> bool:
        """Whether an arriving session has asked for a response; counted if not."""
        return self._guard.has_asked(session, response, perf_counter())

    def missed(self, session_id: str) -> None:
        """Signal a gap to the session, whose frames were lost."""
        self._sessions.missed(session_id)

    def put_in_place(
        self,
        session: LiveSession,
        remote: RemoteSession | None,
        owned: dict[str, str],
        subscribed: list[str],
    ) -> None:
        """Put a session of this worker into the routing table in place of a remote one.

        Args:
            session: the session, which is here from now on.
            remote: the remote session in the table until now, if any.
            owned: its addresses with their allocation keys.
            subscribed: the addresses it subscribes.
        """
        table = self._table
        had_owned = remote.owned if remote is not None else set()
        had_subscribed = remote.subscribed if remote is not None else set()
        if remote is not None:
            self._remotes.forget_learned(remote)
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
        self._names.arrived(HOLDS, (session.runtime_url, *owned))
        self._names.arrived(LISTENS, subscribed)
        self._allocation.adopt(session, dict(owned))
        self._subscriptions.adopt(session, subscribed)
