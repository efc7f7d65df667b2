"""Which verified subject held an address last: it stays theirs while nobody holds it.

Without this, somebody who knows the address of an absent user could claim it first, and the owner
would find it taken. Bounded: nobody's many push out another's few.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgnode.core import addresses
from msgnode.core.identity import Speaker

Subject = tuple[str, str]
"""Issuer and subject."""


LAST_OWNERS = 100_000
"""Addresses without a holder whose last owner is remembered."""


class LastOwnerCache:
    """One instance per worker. Where it is full, who has most addresses in it loses the oldest."""

    def __init__(self, capacity: int = LAST_OWNERS) -> None:
        self._owners: dict[str, Subject] = {}
        self._of: dict[Subject, dict[str, None]] = {}  # a subject's addresses, oldest first
        self._by_number: dict[int, dict[Subject, None]] = {}  # who has so many, longest first
        self._most = 0
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._owners)

    def note(self, held: Iterable[str], subject: Subject) -> None:
        """These addresses were this subject's when they became free."""
        for address in held:
            before = self._owners.get(address)
            if before is not None:
                self._drop(address, before)
            self._owners[address] = subject
            mine = self._of.setdefault(subject, {})
            mine[address] = None
            self._count(subject, len(mine) - 1, len(mine))
            if len(self._owners) > self._capacity:
                largest = next(iter(self._by_number[self._most]))
                self._drop(next(iter(self._of[largest])), largest)

    def forget(self) -> None:
        """They are read anew."""
        self._owners.clear()
        self._of.clear()
        self._by_number.clear()
        self._most = 0

    def _drop(self, address: str, subject: Subject) -> None:
        theirs = self._of[subject]
        del self._owners[address], theirs[address]
        self._count(subject, len(theirs) + 1, len(theirs))
        if not theirs:
            del self._of[subject]

    def _count(self, subject: Subject, before: int, now: int) -> None:
        """A subject has one more or one less."""
        if before:
            alike = self._by_number[before]
            del alike[subject]
            if not alike:
                del self._by_number[before]
        if now:
            self._by_number.setdefault(now, {})[subject] = None
        if now > self._most or self._most not in self._by_number:
            self._most = now

    def owned_by(self, address: str, speaker: Speaker) -> bool:
        """Whether a speaker's subject held the address last, or one above it."""
        identity = speaker.identity
        if identity is None or not self._owners:
            return False
        mine = (identity.issuer, identity.subject)
        return any(
            self._owners.get(each) == mine for each in (address, *addresses.ancestors(address))
        )

    def allow(self, address: str, speaker: Speaker) -> bool:
        """Whether a speaker may take an address that nobody holds, or one below such a one."""
        if not self._owners:
            return True
        identity = speaker.identity
        mine = (identity.issuer, identity.subject) if identity is not None else None
        return all(
            self._owners.get(each, mine) == mine
            for each in (address, *addresses.ancestors(address))
        )
