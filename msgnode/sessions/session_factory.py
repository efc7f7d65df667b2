"""Creates sessions: new ones, from rows, and from the state that another worker has sent.

What a session holds (addresses, subscriptions) is not part of its state: workers/moving_sessions.py
sends that beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from time import perf_counter

import msgspec

from msgnode import models
from msgnode.bus.open_requests import DEFAULT_LIMITS, OpenRequests, RequestLimits
from msgnode.core import addresses
from msgnode.core.digest import digest
from msgnode.core.identity import Origin, Speaker

from .rules import PEER, State
from .session import LiveSession, SessionLimits
from .store import SessionStore


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """resume: always, when-idle (embedded default) or with-proof. Times are in seconds."""

    resume: str
    shares: bool
    stores: bool
    grace: float
    outbox_bytes: int
    max_sessions: int
    max_per_runtime: int
    node_address: str
    request_limits: RequestLimits = DEFAULT_LIMITS
    queue_bytes_per_source: int = 64 * 1024 * 1024
    queue_bytes: int = 512 * 1024 * 1024

    @property
    def limits(self) -> SessionLimits:
        """The limits of each session."""
        return SessionLimits(self.outbox_bytes, self.stores, self.request_limits)


def new_session(
    settings: SessionSettings, token: str, handshake: str, speaker: Speaker, proof: str
) -> LiveSession:
    """Make a session, not yet in the routing table; id and runtime URL are the speaker's."""
    return LiveSession(speaker, handshake, digest(token), settings.limits, token=token, proof=proof)


def restored_session(settings: SessionSettings, row: models.Session) -> LiveSession:
    """Make a session from a row, in the state arriving and not yet in the routing table."""
    identity = SessionStore.identity_of(row)
    home = addresses.parse(settings.node_address).home
    is_foreign = row.handshake != PEER and bool(addresses.foreign_domain(row.runtime_url, home))
    origin = Origin.FOREIGN if is_foreign else Origin.RUNTIME
    peer = str(row.identity.get("peer", ""))  # until it returns, and proves it again
    session = LiveSession(
        Speaker(row.id.hex, row.runtime_url, origin, row.remote_address, identity, peer),
        row.handshake,
        row.token_hash,
        settings.limits,
        State.ARRIVING,
        proof=row.identity.get("proof", ""),
        was_restored=True,
    )
    session.bound_at = session.opened_at = row.opened_at.timestamp()
    session.resumptions = row.resumptions
    session.has_said_who = row.identity.get("said", False)
    session.outbox.has_gap = bool(row.epoch)
    return session


# --- sessions that change their worker ------------------------------------------------------------
class RequestState(msgspec.Struct):
    """Open requests: see bus/open_requests.py."""

    turns_in: float
    newer: dict[str, list[str | list[str]]]
    older: dict[str, list[str | list[str]]]


class SessionState(msgspec.Struct):
    """A session's state. It has only the hash of the token, which never leaves its worker."""

    id: str
    runtime_url: str
    token_hash: str
    handshake: str
    speaker: Speaker
    bound_at: float
    has_gap: bool
    withdrawn: list[str]
    proof: str = ""
    has_said_who: bool = False
    requests: RequestState | None = None
    history: bytes = b""
    invited: dict[str, bool] = {}
    opened_at: float = 0.0  # 0: sent by a version without this field
    orders: tuple[int, ...] = ()


def state_of(session: LiveSession) -> SessionState:
    """The state that another worker needs to take the session over."""
    return SessionState(
        session.id,
        session.runtime_url,
        session.token_hash,
        session.handshake,
        session.speaker,
        session.bound_at,
        session.outbox.has_gap,
        list(session.withdrawn),
        session.proof,
        session.has_said_who,
        _requests_of(session),
        session.history(),
        session.invited,
        session.opened_at,
        session.orders,
    )


def session_of(state: SessionState, limits: SessionLimits) -> LiveSession:
    """Make a session in the state arriving, not yet in the routing table."""
    session = LiveSession(
        state.speaker,
        state.handshake,
        state.token_hash,
        limits,
        State.ARRIVING,
        proof=state.proof,
    )
    if state.requests is not None:
        dumped = state.requests
        requests = OpenRequests.loaded(
            limits.requests, dumped.turns_in, dumped.newer, dumped.older, perf_counter()
        )
        session.remember(requests)
    session.bound_at = state.bound_at
    session.has_said_who = state.has_said_who
    session.outbox.has_gap = state.has_gap
    session.withdrawn = frozenset(state.withdrawn)
    session.history = partial(bytes, state.history)
    session.invited = state.invited
    session.opened_at = state.opened_at or session.opened_at
    session.orders = state.orders
    return session


def _requests_of(session: LiveSession) -> RequestState | None:
    if session.requests is None:
        return None
    turns_in, newer, older = session.requests.dump(perf_counter())
    return RequestState(turns_in, dict(newer), dict(older))
