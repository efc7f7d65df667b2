"""Which verified subject held an address last: it stays theirs while nobody holds it.

Without this, somebody who knows the address of an absent user could claim it first, and the owner
would find it taken. Bounded: the longest untouched is forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from msgnode.core import addresses
from msgnode.core.identity import Speaker

Subject = tuple[str, str]
"""Issuer and subject."""


class LastOwnerCache:
    """One instance per worker."""

    def __init__(self, capacity: int = 100_000) -> None:
        self._owners: OrderedDict[str, Subject] = OrderedDict()
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._owners)

    def note(self, held: Iterable[str], subject: Subject) -> None:
        """These addresses were this subject's when they became free."""
        for address in held:
            self._owners[address] = subject
            self._owners.move_to_end(address)
        while len(self._owners) > self._capacity:
            self._owners.popitem(last=False)

    def forget(self) -> None:
        """They are read anew."""
        self._owners.clear()

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
