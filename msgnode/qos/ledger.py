"""The traffic of each allocation, as far as this worker has received reports. Pure.

An entry has the bytes of the reports since it was made, and at the end the totals, which replace
them. If an allocation's beginning was missed, or the node did not listen during its life, only the
totals are certain: until then it is incomplete.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from .statistics import MOST, Event, Kind

MAX_ENTRIES = 20_000
KEPT = 30.0
"""Seconds for which an ended allocation is kept for its totals."""


@dataclass(slots=True)
class Entry:
    """One allocation.

    Attributes:
        received, sent: bytes of the reports.
        total: bytes of its whole life, once it has ended.
        is_new: whether its beginning was seen.
        base: the values of its row when this worker first saw it.
        version: counts changes; `written` is the one in the database.
    """

    user: str
    number: str
    is_new: bool
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    received: int = 0
    sent: int = 0
    total: tuple[int, int] | None = None
    is_incomplete: bool = False
    ended_at: float = 0.0
    base: tuple[int, int] | None = None
    version: int = 1
    written: int = 0

    @property
    def carried(self) -> tuple[int, int]:
        """Bytes from and to the peers, as far as known, and as far as they can be true."""
        if self.total is not None:
            return self.total
        received, sent = self.base or (0, 0)
        return min(received + self.received, MOST), min(sent + self.sent, MOST)


class Ledger:
    """The entries of one supervisor."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Entry] = {}
        self.past: list[Entry] = []
        self.lost = 0

    def note(self, event: Event, now: float) -> None:
        """Take in an event. `now` is in seconds on a monotonic clock."""
        name = (event.user, event.number)
        entry = self.entries.get(name)
        if event.kind is Kind.NEW and entry is not None:  # the server has begun to count anew
            if entry.version != entry.written:
                self.past.append(entry)
            del self.entries[name]
            entry = None
        if entry is None:
            if len(self.entries) + len(self.past) >= MAX_ENTRIES:
                self.lost += 1
                return
            is_new = event.kind is Kind.NEW
            entry = self.entries[name] = Entry(*name, is_new, is_incomplete=not is_new)
        if event.kind is Kind.REPORT and entry.total is None:
            entry.received += event.received
            entry.sent += event.sent
        elif event.kind is Kind.TOTAL:
            entry.total = (event.received, event.sent)
            entry.is_incomplete = False
            entry.ended_at = entry.ended_at or now
        elif event.kind is Kind.ENDED:
            entry.ended_at = now
        entry.version += 1

    def gap(self) -> None:
        """Note a gap in the reports."""
        for entry in self.entries.values():
            if entry.total is None:
                entry.is_incomplete = True
                entry.version += 1

    def unwritten(self, most: int) -> list[Entry]:
        """Entries that the database does not have as they are."""
        changed = [each for each in self.entries.values() if each.version != each.written]
        return [*self.past, *changed][:most]

    def strangers(self, most: int) -> list[Entry]:
        """Entries to write whose beginning was missed, and whose row is unknown."""
        return [each for each in self.unwritten(most) if not each.is_new and each.base is None]

    def adopt(self, rows: Mapping[str, tuple[str, int, int]]) -> None:
        """What the database has of strangers: the key of the row and its bytes, by entry."""
        for entry in [*self.past, *self.entries.values()]:
            if entry.base is None and entry.key in rows:
                entry.key, *base = rows[entry.key]
                entry.base = (base[0], base[1])

    def written(self, versions: Mapping[str, int]) -> None:
        """The database has these versions, by key."""
        for entry in [*self.past, *self.entries.values()]:
            if entry.key in versions:
                entry.written = versions[entry.key]
        self.past = [each for each in self.past if each.version != each.written]

    def forget(self, now: float) -> None:
        """Drop ended and written entries, whose totals have come or will not come."""
        for name, entry in list(self.entries.items()):
            is_over = entry.ended_at and (entry.total or now - entry.ended_at > KEPT)
            if is_over and entry.version == entry.written:
                del self.entries[name]
