"""Remembers which verified subject held an address last: only they may claim it while it is free.

Without this, anyone who knows the address of an absent user could claim it first. Bounded: the
subject with the most addresses loses its oldest, so nobody can push out the others'.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgnode.core import addresses
from msgnode.core.identity import Speaker

Subject = tuple[str, str]
"""Issuer and subject."""


LAST_OWNERS = 100_000
"""Most free addresses whose last owner is remembered."""


class LastOwnerCache:
    """One instance per worker. When full, the subject with most addresses loses its oldest."""

    def __init__(self, capacity: int = LAST_OWNERS) -> None:
        self._owners: dict[str, Subject] = {}
        self._of: dict[Subject, dict[str, None]] = {}  # a subject's addresses, oldest first
        self._by_number: dict[int, dict[Subject, None]] = {}  # number of addresses -> subjects
        self._most = 0
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._owners)

    def note(self, held: Iterable[str], subject: Subject) -> None:
        """Note the subject that held these addresses when they became free."""
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
        """Forget everything, before it is read again."""
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
        """Move a subject from one count of addresses to another."""
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
        """Whether the speaker's subject last held the address or one above it."""
        identity = speaker.identity
        if identity is None or not self._owners:
            return False
        mine = (identity.issuer, identity.subject)
        return any(
            self._owners.get(each) == mine for each in (address, *addresses.ancestors(address))
        )

    def allow(self, address: str, speaker: Speaker) -> bool:
        """Whether a speaker may take an address that nobody holds."""
        if not self._owners:
            return True
        identity = speaker.identity
        mine = (identity.issuer, identity.subject) if identity is not None else None
        return all(
            self._owners.get(each, mine) == mine
            for each in (address, *addresses.ancestors(address))
        )
