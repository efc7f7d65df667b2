"""Rows of the record in memory, as columns; without Arrow, which is loaded with the first flush.

Every row costs the event loop time, so a row is converted to columns when it is noted, while it is
in the processor's caches, and nothing of it is kept. What repeats from row to row (session,
decision) becomes one number, each of the two addresses another, found by one look-up; the numbers
of a row are packed at once. Texts are stored by these numbers too: they are not repeated for each
row, neither in memory nor for Parquet's own search for repetitions. Until a flush a RowBuffer holds
the rows, within bounds.
"""

from __future__ import annotations

import logging
import time
from io import StringIO
from struct import Struct
from struct import error as StructError
from typing import Any

from msgspec.structs import astuple

from msgnode.core.record import SessionRecord, TrafficRecord
from msgnode.core.redaction import cut

logger = logging.getLogger(__name__)

_NOTE_SECONDS = 0.000_2
_TEXTS = ("session", "runtime", "type", "outcome", "component", "effect", "rule")
REPEATED = (*_TEXTS, "code", "asserted", "listeners")
_WHOLE = Struct("=iii")
_ROW = Struct("=dfiiiii")
"""at, latency; numbers of the repeating values, of the sender and of `to`; size, length of
the id."""
DOES_NOT_FIT = (StructError, ValueError, TypeError, OverflowError)


class _Repeated(dict[tuple[Any, ...], int]):
    """Numbers of combinations of repeating values, assigned when first seen."""

    def __missing__(self, values: tuple[Any, ...]) -> int:
        "".join(values[: len(_TEXTS)]).encode()  # these raise if a value does not fit
        _WHOLE.pack(*values[len(_TEXTS) :])
        number = self[values] = len(self)
        return number


class _Addresses(dict[str, int]):
    """Numbers of addresses, assigned when first seen.

    `shown` are the addresses without tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def __missing__(self, address: str) -> int:
        str.encode(address)  # as above
        number = self[address] = len(self)
        self.shown.append(cut(address))
        return number


class Columns:
    """Rows as columns, added by one thread; 50 bytes each plus what does not repeat."""

    __slots__ = ("ids", "numbers", "repeated", "senders", "to")

    def __init__(self) -> None:
        self.numbers = bytearray()
        self.ids = StringIO()
        self.repeated = _Repeated()
        self.senders = _Addresses()
        self.to = _Addresses()

    def __len__(self) -> int:
        return len(self.numbers) // _ROW.size

    def add(self, record: TrafficRecord) -> None:
        """Add a row. Raises one of DOES_NOT_FIT, and adds nothing, if a value does not fit."""
        (
            at, session, id_, type_, sender, to, size, listeners, outcome, component, code,
            effect, rule, asserted, latency, runtime,
        ) = astuple(record)  # fmt: skip
        repeated = self.repeated[
            session, runtime, type_, outcome, component, effect, rule, code, asserted, listeners
        ]  # fmt: skip
        numbers = _ROW.pack(
            at, latency, repeated, self.senders[sender], self.to[to], size, len(id_)
        )
        self.ids.write(id_)
        self.numbers += numbers


class RowBuffer:
    """Rows in memory, which one thread adds and another takes all at once.

    Adding a row never blocks or fails, and touches no disk.

    Args:
        most: most rows in memory, including those taken and not `released`; further ones are lost.
    """

    def __init__(self, most: int) -> None:
        # Each of these is changed by one thread only: two by the adding one.
        self.noted = 0
        self.turned_away = 0
        self._may_note = most  # so many rows altogether, for now
        self._columns = Columns()
        self._sessions: list[SessionRecord] = []
        self._is_noting = False

    def __len__(self) -> int:
        return len(self._columns) + len(self._sessions)

    def note(self, record: TrafficRecord) -> None:
        """Add a row of a message."""
        noted = self.noted
        if noted >= self._may_note:
            self.turned_away += 1
            return
        self._is_noting = True
        try:
            self._columns.add(record)
            self.noted = noted + 1
        except DOES_NOT_FIT:
            self.turned_away += 1
            logger.exception("a traffic row does not fit the record")
        finally:
            self._is_noting = False

    def note_session(self, record: SessionRecord) -> None:
        """Add a row of a session."""
        if self.noted >= self._may_note:
            self.turned_away += 1
            return
        self._is_noting = True
        self._sessions.append(record)
        self.noted += 1
        self._is_noting = False

    def take(self) -> tuple[Columns, list[SessionRecord]]:
        """Remove and return all complete rows; later ones go to a new buffer."""
        columns, self._columns = self._columns, Columns()
        sessions, self._sessions = self._sessions, []
        while self._is_noting:  # a row that is being added may go to either
            time.sleep(_NOTE_SECONDS)
        return columns, sessions

    def released(self, rows: int) -> None:
        """Note that so many taken rows were written or lost."""
        self._may_note += rows
