"""Shares the pipeline's one message observer between several.

Without observers the pipeline has none and pays nothing. An error in one observer affects no other.
"""

from __future__ import annotations

from collections.abc import Callable

from msgnode.bus.ports import MessageObserver
from msgnode.core.faults import FAULTS
from msgnode.core.record import TrafficRecord


class Taps:
    """The observers by name; `attach` gives the pipeline one for all of them."""

    def __init__(self, attach: Callable[[MessageObserver | None], None]) -> None:
        self._attach = attach
        self._observers: dict[str, MessageObserver] = {}

    def put(self, name: str, observer: MessageObserver | None) -> None:
        """Have an observer see messages from now on, or no longer (None)."""
        if observer is None:
            self._observers.pop(name, None)
        else:
            self._observers[name] = observer
        there = tuple(self._observers.values())
        self._attach(there[0] if len(there) == 1 else _shared(there) if there else None)


def _shared(observers: tuple[MessageObserver, ...]) -> MessageObserver:
    def see(record: TrafficRecord, body: bytes) -> None:
        for observer in observers:
            with FAULTS.kept_to("follower"):
                observer(record, body)

    return see
