"""Garbage collection in short pauses, also in a worker with thousands of sockets.

Python looks at every object again each time their number has grown by a quarter; with the hundred
objects of each socket that stops a worker for 50 ms for each thousand of them. Here what has
survived one collection is frozen, so that the next looks only at what is new. Frozen objects are
freed as any other when nothing refers to them; what only refers to itself is found by a look
through everything, once more objects came than sessions have that may be worth it: such a look
stops the worker for about a second and a half for each million of them. Even to count them takes
up to 50 ms for each million, so that is done only where as much more memory is in use.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Any

_PORTION = 0
"""The oldest generation is looked at after more than so many collections of the middle one, each
of some 7,000 new objects: a pause of 2 ms, where that after three more was 7 to 15."""
_EVERY = 60.0
"""Seconds between two looks at how many objects are frozen."""
_WORTH_IT = 1_000_000
"""New objects, some 100 MB, that are worth the pause."""
_OF_A_SESSION = 300
"""Objects that are there for a session: 150 with an address and a subscription."""


class Collector:
    """One a process.

    Args:
        sessions: how many there are; none, where it is not said.
    """

    def __init__(self, sessions: Callable[[], int] = int) -> None:
        self._sessions = sessions
        self._kept = 0
        self._sessions_kept = 0
        self._counted = self._blocks = 0  # frozen objects at the last count, blocks of memory then

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Freeze what was loaded, and from now on what survives."""
        gc.collect()
        gc.freeze()
        self._kept = self._count()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _PORTION)
        gc.callbacks.append(_freeze_survivors)
        loop.call_later(_EVERY, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        sessions = self._sessions()
        of_sessions = _OF_A_SESSION * max(0, sessions - self._sessions_kept)
        most = of_sessions + max(2 * self._kept, self._kept + _WORTH_IT)
        more = sys.getallocatedblocks() - self._blocks  # an object is a block at least
        if self._counted + more > most and self._count() > most:
            gc.unfreeze()
            gc.collect()  # which freezes what survives
            self._kept, self._sessions_kept = self._count(), sessions
        loop.call_later(_EVERY, self._look, loop)

    def _count(self) -> int:
        """How many objects are frozen: a walk through a list of all of them."""
        self._counted, self._blocks = gc.get_freeze_count(), sys.getallocatedblocks()
        return self._counted


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2:  # noqa: PLR2004  (the oldest)
        gc.freeze()
