"""Rows of the traffic record about reservations: made, refused, relayed, ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import UUID

from msgnode.bus.ports import Listener
from msgnode.core.record import ReservationEvent, SessionRecord

from .sweep import Ended

_MOST = 2**31 - 1
"""Most bytes of one row."""

Note = Callable[[SessionRecord], None]


def _unnoted(row: SessionRecord) -> None:
    """Do nothing."""


class ReservationRows:
    """Notes what happens to reservations; on the event loop.

    Args:
        note: takes a row for the record; None where there is none.
    """

    def __init__(self, note: Note | None) -> None:
        self._note = note or _unnoted

    def asked(self, caller: Listener, traffic_class: str, code: int) -> None:
        """A reservation was made, or refused."""
        event = ReservationEvent.RESERVED if code < 300 else ReservationEvent.REFUSED
        self._note(
            SessionRecord(time.time(), caller.id, caller.runtime_url, event, traffic_class, code)
        )

    def relayed(self, traffic_class: str, size: int) -> None:
        """Record bytes relayed for reservations of a class; negative to correct a sum."""
        event = ReservationEvent.RELAYED
        while size:
            part = max(-_MOST, min(_MOST, size))
            self._note(SessionRecord(time.time(), "", "", event, traffic_class, size=part))
            size -= part

    def ended(self, ended: Ended) -> None:
        """A reservation has ended."""
        event = ReservationEvent.ENDED
        self._note(
            SessionRecord(
                time.time(), str(UUID(ended.session_id)), ended.runtime_url, event, ended.reason,
                lasted=ended.lasted,
            )
        )  # fmt: skip
