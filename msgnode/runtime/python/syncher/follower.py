"""Follows the numbered changes of an object: each once, in order, and none is missed unnoticed.

| number of a change  | n being the last one that was applied                            |
|---------------------|------------------------------------------------------------------|
| n + 1               | applied, and what was held behind it                             |
| n or less           | dropped; made later than the last one, the reporter began anew:  |
|                     | the object is read                                               |
| more than n + 1     | held; after 2 s, or with 100 held, the object is read            |
| none                | applied as it comes                                              |

A change that names another incarnation of the object than its value did is dropped, and the object
is read: who created it anew under the same address counts from the start, and his clock may be
behind.

What comes before the first value, or while the object is being read, is held, too. A read that
fails is tried again after 1 s, doubling to 60 s; successful ones are a second apart at least,
whatever is sent.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from .changes import MOST_NUMBER

GAP_SECONDS = 2.0
READ_EVERY = 1.0  # seconds
LEAST_RETRY = 1.0
MOST_RETRY = 60.0
MAX_HELD = 100

_NONE = object()  # a change without a number

Change = dict[str, Any]


class Copy(Protocol):
    """What follows the changes."""

    def apply(self, change: Change) -> None:
        """Apply a change; raise if it does not fit."""

    async def read(self) -> dict[str, Any]:
        """The object's value, from its reporter; raise if he cannot be read."""
        ...

    def adopt(self, value: dict[str, Any]) -> None:
        """Take over the object's value; raise if it is none."""

    def unread(self) -> None:
        """A read has failed."""

    def count(self, reason: str) -> None:
        """Something was dropped or read again."""


class Follower:
    """The order of the changes of one object; needs the running event loop."""

    def __init__(self, copy: Copy) -> None:
        self.version: int | None = None  # of the last change that was applied, if known
        self._copy = copy
        self._held: dict[int, Change] = {}
        self._is_reading = True  # until start()
        self._is_read_again = False
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_read_due = False  # the timer that runs is for a read that is needed in any case
        self._read_at = float("-inf")
        self._failures = 0
        self._reads = 0
        self._last_modified = ""
        self._incarnation: Any = None  # of the value
        self._task: asyncio.Task[None] | None = None

    def start(self, value: dict[str, Any]) -> None:
        """The first value is there."""
        self._adopt(value)

    def take(self, change: Change) -> None:
        """A change has come."""
        if self._is_stopped:
            return
        number: Any = change.get("version", change.get("childVersion", _NONE))
        if number is _NONE:
            self._apply(change)
        elif not is_version(number):
            self._copy.count("data.malformed")
        elif self._is_reading:
            self._hold(number, change)
        elif self._is_anothers(change):
            self.check()
        elif self.version is None or number == self.version + 1:
            self.version = number
            self._apply(change)
            self._drain()
        elif number > self.version:
            self._hold(number, change)
            if len(self._held) >= MAX_HELD:
                self.check()
            else:
                self._arm(GAP_SECONDS)
        else:
            self._copy.count("data.old")
            if self._last_modified and str(change.get("lastModified", "")) > self._last_modified:
                self.check()

    def check(self) -> None:
        """Read the object: something may have been missed."""
        if self._is_stopped:
            return
        wait = self._read_at + READ_EVERY - asyncio.get_running_loop().time()
        if self._is_reading and self._reads == 0:
            self._is_read_again = True
        elif wait > 0:
            self._arm(wait, is_read_due=True)
        else:
            self._disarm()
            self._is_reading = True
            self._held.clear()  # an honest reporter's answer contains what he sent before it
            self._read_at = asyncio.get_running_loop().time()
            self._copy.count("data.read")
            self._reads += 1
            if self._task is not None:
                self._task.cancel()  # it may have been lost with a connection
            self._task = asyncio.create_task(self._read())

    def stop(self) -> None:
        """Follow no more."""
        self._is_stopped = True
        self._held.clear()
        self._disarm()
        if self._task is not None:
            self._task.cancel()

    async def _read(self) -> None:
        try:
            value = await self._copy.read()
            if self._is_stopped:
                return
            self._task = None
            self._adopt(value)
            self._failures = 0
        except Exception:
            if self._is_stopped:
                return
            self._task = None
            self._is_reading = False
            delay = min(MOST_RETRY, LEAST_RETRY * 2.0 ** min(self._failures, 30))
            self._failures += 1
            self._arm(delay, is_read_due=True)
            self._copy.unread()

    def _adopt(self, value: dict[str, Any]) -> None:
        self._is_reading = False
        version, last_modified = value.get("version"), value.get("lastModified")
        self.version = version if is_version(version) else None
        self._last_modified = last_modified if isinstance(last_modified, str) else ""
        incarnation = value.get("incarnation")
        self._incarnation = incarnation if isinstance(incarnation, str) else None
        self._copy.adopt(value)
        is_read_again, self._is_read_again = self._is_read_again, False
        self._drain()
        if is_read_again:
            self.check()

    def _apply(self, change: Change) -> None:
        if isinstance(change.get("lastModified"), str):
            self._last_modified = change["lastModified"]
        try:
            self._copy.apply(change)
        except Exception:
            self._copy.count("data.misfit")
            self.check()

    def _is_anothers(self, change: Change) -> bool:
        known = self._incarnation
        is_it = known is not None and change.get("incarnation", known) != known
        if is_it:
            self._copy.count("data.anew")
        return is_it

    def _hold(self, number: int, change: Change) -> None:
        if len(self._held) < MAX_HELD:
            self._held.setdefault(number, change)
        else:
            self._is_read_again = True

    def _drain(self) -> None:
        """Apply what was held and follows; forget what is older."""
        if self._held:
            if self.version is None:
                self.version = min(self._held) - 1
            for number, change in list(self._held.items()):
                is_anothers = self._is_anothers(change)
                if is_anothers or number <= self.version:
                    self._held.pop(number, None)
                if is_anothers:
                    self.check()
            while not self._is_reading and self.version + 1 in self._held:
                self.version += 1
                self._apply(self._held.pop(self.version))
        if self._is_reading:
            return
        if self._held:
            self._arm(GAP_SECONDS)
        elif not self._is_read_due:
            self._disarm()

    def _arm(self, seconds: float, is_read_due: bool = False) -> None:
        if self._timer is not None and (self._is_read_due or not is_read_due):
            return
        self._disarm()
        self._is_read_due = is_read_due
        self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._disarm()
        self.check()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._is_read_due = False


def is_version(number: Any) -> bool:
    """Whether this numbers a change."""
    is_number = isinstance(number, int) and not isinstance(number, bool)
    return is_number and 0 <= number <= MOST_NUMBER
