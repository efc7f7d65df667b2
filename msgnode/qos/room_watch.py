"""The alarm `turn-full`: raised while no server has room for another flow of a class."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from . import figures
from .turn_servers import Alarm, Clear

FULL = "turn-full"
_EVERY = 5.0

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class RoomWatch:
    """One for the supervisor.

    Args:
        raise_alarm: takes kind, subject and text.
        clear_alarm: takes kind and subject.
    """

    def __init__(self, raise_alarm: Alarm, clear_alarm: Clear) -> None:
        self._raise_alarm = raise_alarm
        self._clear_alarm = clear_alarm
        self._full: set[str] = set()
        self._is_first = True
        self._looked = 0.0

    async def look(self, in_thread: InThread) -> None:
        """See whether there is room, every few seconds."""
        now = time.monotonic()
        if now - self._looked < _EVERY and not self._is_first:
            return
        self._looked = now
        full: dict[str, str] = await in_thread(figures.full_classes)
        before = self._full
        if self._is_first:  # what an earlier supervisor has raised may be over
            before = before | set(await in_thread(figures.classes))
        for name in sorted(before - full.keys()):
            self._clear_alarm(FULL, name)
        for name in sorted(full.keys() - self._full):
            self._raise_alarm(FULL, name, full[name])
        self._full = set(full)
        self._is_first = False

    def forget(self) -> None:
        """Another worker supervises from now on."""
        self._full = set()
        self._is_first = True
