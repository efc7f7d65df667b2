"""What hyperties observe, for resume_observers(): with a storage over a restart or a crash, too.

It is one entry of the storage, written a quarter of a second after a change; a storage that refuses
is told to the error hook.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

from msgnode.runtime.python.message_bus import MessageBus

from .stored_objects import WRITE_AFTER, Storage

MAX_KEPT = 10_000  # of more than that those that were made last


class Subscription(NamedTuple):
    """One object that a hyperty observes."""

    hyperty: str
    url: str
    schema: str
    name: str


class StoredSubscriptions:
    """Those of one runtime."""

    def __init__(self, bus: MessageBus, domain: str, storage: Storage | None) -> None:
        self._bus = bus
        self._storage = storage
        self._key = f"msgnode.observed.{domain}"
        self._all: dict[tuple[str, str], Subscription] = {}
        self._timer: asyncio.TimerHandle | None = None
        for each in self._read():
            if isinstance(each, list) and len(each) == 4 and all(isinstance(x, str) for x in each):
                self._all[each[0], each[1]] = Subscription(*each)

    def of(self, hyperty: str) -> list[Subscription]:
        """What a hyperty observes."""
        return [each for each in self._all.values() if each.hyperty == hyperty]

    def keep(self, subscription: Subscription) -> None:
        """Keep one from now on."""
        key = subscription[:2]
        self._all.pop(key, None)
        self._all[key] = subscription
        if len(self._all) > MAX_KEPT:
            del self._all[next(iter(self._all))]
        self._touch()

    def forget(self, hyperty: str, url: str) -> None:
        """Keep one no more."""
        if self._all.pop((hyperty, url), None) is not None:
            self._touch()

    def close(self) -> None:
        """Write down what is not written."""
        if self._timer is not None:
            self._timer.cancel()
            self._write()

    def _touch(self) -> None:
        if self._storage is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_AFTER, self._write)

    def _write(self) -> None:
        self._timer = None
        if self._storage is None:
            return
        try:
            self._storage[self._key] = json.dumps(list(self._all.values()))
        except Exception as error:
            self._bus.report("storage.failed", f"{self._key}: {error}", None, error)

    def _read(self) -> list[Any]:
        try:
            text = self._storage.get(self._key) if self._storage is not None else None
            kept = json.loads(text) if text else []
        except Exception as error:
            self._bus.report("storage.failed", f"{self._key}: {error}", None, error)
            return []
        return kept if isinstance(kept, list) else []
