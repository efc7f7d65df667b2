"""Creates sessions according to the settings: new ones, and those restored from rows."""

from __future__ import annotations

from dataclasses import dataclass

from msgnode import models
from msgnode.bus.open_requests import DEFAULT_LIMITS, RequestLimits
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
