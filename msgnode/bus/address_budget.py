"""Limits how many addresses the sessions of one source or one subject hold together.

Allocated, claimed and subscribed addresses count. An IPv6 source is its /64. Each worker counts
what its own sessions hold.

An address counts once per 100 characters or part of that, because its row grows with its length.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgnode.core.errors import TooMany
from msgnode.core.identity import Speaker
from msgnode.core.rates import source_of

from .ports import Listener

_CHARACTERS = 100


class _Share:
    """What one session holds, and the source and subject it counts for."""

    __slots__ = ("holders", "number", "speaker")

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker
        self.holders = _holders(speaker)
        self.number = 0


class AddressBudget:
    """One instance per worker; the limit is MAX_ADDRESSES_PER_SOURCE."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._shares: dict[str, _Share] = {}  # session id -> its share
        self._held: dict[str, int] = {}  # source or subject -> what it holds

    def check(self, session: Listener, addresses: Iterable[str]) -> None:
        """Check that a session may hold these addresses in addition.

        Raises:
            TooMany: its source or its subject would be above the limit.
        """
        more = _weight(addresses)
        share = self._shares.get(session.id)
        known = share is not None and share.speaker is session.speaker
        holders = share.holders if share is not None and known else _holders(session.speaker)
        for holder in holders:
            own = share.number if share is not None and holder in share.holders else 0
            others = self._held.get(holder, 0) - own
            if others + (share.number if share is not None else 0) + more > self._limit:
                raise TooMany(
                    f"All sessions of the {holder.partition(' ')[0]} together may hold "
                    f"{self._limit:.0f} addresses (MAX_ADDRESSES_PER_SOURCE), one of more than "
                    f"{_CHARACTERS} characters counts for several."
                )

    def take(self, session: Listener, addresses: Iterable[str]) -> None:
        """Count addresses that a session now holds."""
        if not session.is_here:
            return
        share = self._shares.get(session.id)
        if share is None:
            share = self._shares[session.id] = _Share(session.speaker)
        elif share.speaker is not session.speaker:  # it has a new source, or has logged in
            self._count(share, -share.number)
            share.speaker, share.holders = session.speaker, _holders(session.speaker)
            self._count(share, share.number)
        more = _weight(addresses)
        share.number += more
        self._count(share, more)

    def give(self, session: Listener, addresses: Iterable[str]) -> None:
        """Stop counting addresses that a session no longer holds."""
        share = self._shares.get(session.id)
        if share is None:
            return
        less = min(share.number, _weight(addresses))
        share.number -= less
        self._count(share, -less)
        if not share.number:
            del self._shares[session.id]

    def forget(self, session_id: str) -> None:
        """Stop counting a session that has ended or moved to another worker."""
        share = self._shares.pop(session_id, None)
        if share is not None:
            self._count(share, -share.number)

    def held_by(self, address: str) -> int:
        """The total that the sessions of a source address hold."""
        return self._held.get(f"source {source_of(address)}", 0)

    def _count(self, share: _Share, change: int) -> None:
        for holder in share.holders:
            left = self._held.get(holder, 0) + change
            if left:
                self._held[holder] = left
            else:
                self._held.pop(holder, None)


def _weight(addresses: Iterable[str]) -> int:
    return sum(1 + (len(address) - 1) // _CHARACTERS for address in addresses)


def _holders(speaker: Speaker) -> tuple[str, ...]:
    source = f"source {source_of(speaker.remote_address)}"
    identity = speaker.identity
    if identity is None:
        return (source,)
    return source, f"subject {identity.issuer} {identity.subject}"
