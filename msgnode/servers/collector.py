"""Garbage collection with short pauses, even in a worker with thousands of sockets.

Python scans all objects again whenever their number has grown by a quarter; with a hundred objects
per socket that pauses a worker for 50 ms per thousand sockets. Here the survivors of a collection
are frozen, so that the next one scans only new objects. Frozen objects are freed as usual when
nothing refers to them; frozen reference cycles are found by a full collection, once more objects
were added than the sessions account for and the pause is worth it: about 1.5 s per million objects.
Even counting them takes up to 50 ms per million, so that is done only after memory has grown
accordingly.

What is frozen while a page is rendered is mostly that page's, in cycles, and would stay until then:
100 KB for each page of the console. So nothing is frozen while HTTP requests are served. If what
has survived meanwhile is too much to be looked through at each collection, the next moment without
a request is looked for, for at most FREEZES_ANYWAY seconds. How much that is, is told by blocks of
memory: a list of all objects would hold those that another thread is just making, which Python does
not allow for ("SystemError: bad argument to internal function").
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

_PORTION = 0
"""The oldest generation is collected after more than this many collections of the middle one, each
of some 7,000 new objects: a pause of 2 ms; after three more it was 7 to 15 ms.
"""
_EVERY = 60.0
"""Seconds between two checks of the number of frozen objects."""
_WORTH_IT = 1_000_000
"""New objects, some 100 MB, for which a full collection is worth its pause."""
_OF_A_SESSION = 300
"""Objects per session: 150 with an address and a subscription."""
FREEZES_ANYWAY = 30.0
"""Seconds after which many survivors are frozen although requests are being served."""
_LOOKS_AGAIN = 0.02
"""Seconds between two looks for a moment without requests."""
MANY = 50_000
"""Blocks of memory, of some 25,000 objects: a collection looks through those in about 3 ms; pages
being made have a few thousand.
"""


class Collector:
    """One per process.

    Args:
        sessions: returns the number of sessions; by default there are none.
        is_serving: tells whether HTTP requests are being served.
    """

    def __init__(
        self, sessions: Callable[[], int] = int, is_serving: Callable[[], bool] = bool
    ) -> None:
        self._sessions = sessions
        self._is_serving = is_serving
        self._is_waiting = False  # for a moment without requests
        self._blocks_frozen = 0  # blocks of memory when something was frozen last
        self._kept = 0
        self._sessions_kept = 0
        self._counted = self._blocks = 0  # frozen objects at the last count, blocks of memory then

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Freeze all present objects, and later the survivors of each collection.

        A start leaves little garbage, a few thousand objects: to look for it takes longer than it
        is worth, and the first full collection finds it.
        """
        self._loop = loop
        self._freeze()
        self._kept = self._count()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _PORTION)
        gc.callbacks.append(self._collected)
        loop.call_later(_EVERY, self._look)

    def _look(self) -> None:
        sessions = self._sessions()
        of_sessions = _OF_A_SESSION * max(0, sessions - self._sessions_kept)
        most = of_sessions + max(2 * self._kept, self._kept + _WORTH_IT)
        more = sys.getallocatedblocks() - self._blocks  # an object is a block at least
        if self._counted + more > most and self._count() > most:
            gc.unfreeze()
            gc.collect()
            self._freeze()
            self._kept, self._sessions_kept = self._count(), sessions
        self._loop.call_later(_EVERY, self._look)

    def _count(self) -> int:
        """The number of frozen objects, counted by walking through all of them."""
        self._counted, self._blocks = gc.get_freeze_count(), sys.getallocatedblocks()
        return self._counted

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        """Freeze what has survived a collection of the oldest generation."""
        if phase != "stop" or info["generation"] != 2:  # noqa: PLR2004  (the oldest)
            return
        if not self._is_serving():
            self._freeze()
        elif not self._is_waiting and sys.getallocatedblocks() - self._blocks_frozen >= MANY:
            self._is_waiting = True  # a thread that makes a page may have collected
            until = time.monotonic() + FREEZES_ANYWAY
            self._loop.call_soon_threadsafe(self._freeze_at_rest, until)

    def _freeze_at_rest(self, until: float) -> None:
        """Freeze what survives a collection at the next moment without requests, or by then."""
        if self._is_serving() and time.monotonic() < until:
            self._loop.call_later(_LOOKS_AGAIN, self._freeze_at_rest, until)
            return
        gc.collect()
        self._freeze()
        self._is_waiting = False

    def _freeze(self) -> None:
        gc.freeze()
        self._blocks_frozen = sys.getallocatedblocks()
