"""The state of a session that is sent to another worker with it, except for what it holds."""

from __future__ import annotations

from functools import partial
from time import perf_counter

import msgspec

from msgnode.bus.open_requests import OpenRequests
from msgnode.core.identity import Speaker

from .rules import State
from .session import LiveSession, SessionLimits


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
