"""Garbage collection in short pauses, also in a worker with thousands of sockets.

Python looks at every object again each time their number has grown by a quarter; with the hundred
objects of each socket that stops a worker for 50 ms for each thousand of them. Here what has
survived one collection is frozen, so that the next looks only at what is new. Frozen objects are
freed as any other when nothing refers to them; what only refers to itself is found by a look
through everything, once so many objects came that it may be worth it.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

_PORTION = 0
"""The oldest generation is looked at after more than so many collections of the middle one, each
of some 7,000 new objects: a pause of 2 ms, where that after three more was 7 to 15."""
_EVERY = 60.0
"""Seconds between two looks at how many objects are frozen."""
_WORTH_IT = 1_000_000
"""New objects, some 100 MB, that are worth a pause of half a second."""


class Collector:
    """One a process."""

    def __init__(self) -> None:
        self._kept = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Freeze what was loaded, and from now on what survives."""
        gc.collect()
        gc.freeze()
        self._kept = gc.get_freeze_count()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _PORTION)
        gc.callbacks.append(_freeze_survivors)
        loop.call_later(_EVERY, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if gc.get_freeze_count() > max(2 * self._kept, self._kept + _WORTH_IT):
            gc.unfreeze()
            gc.collect()  # which freezes what survives
            self._kept = gc.get_freeze_count()
        loop.call_later(_EVERY, self._look, loop)


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2:  # noqa: PLR2004  (the oldest)
        gc.freeze()
