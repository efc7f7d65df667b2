"""Addresses of a network that are lent to runtimes whose users are not logged in. Pure.

Rules
- An address is lent to one runtime, for as long as that has a session here; then it rests for ten
  minutes, so that a late answer to it reaches nobody else.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from msgnode.core.errors import Unavailable

from .network import LENT, Here

MAX_ADDRESSES = 1_000
REST_SECONDS, LOOK_SECONDS = 600.0, 5.0
POOL_ALARM = "legacy-pool-empty"


_LENT = re.compile(r"guest\d{3,4}")


def is_lent(name: str) -> bool:
    """Whether an address is, or was, of a pool: no user has such a one."""
    return _LENT.fullmatch(name) is not None


class AddressPool:
    """The addresses `guest001…` of one network.

    Args:
        size: how many there are.
        here: this node, which keeps what is lent.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, size: int, here: Here, clock: Callable[[], float]) -> None:
        self._size = min(size, MAX_ADDRESSES)
        self._here = here
        self._clock = clock
        self._free = OrderedDict.fromkeys(self.names)
        self._lent: dict[str, str] = {}  # runtime -> name
        self._borrowers: dict[str, str] = {}  # name -> runtime
        self._resting: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._is_told = False
        self._looks_at = clock() + LOOK_SECONDS  # runtimes may be connecting again

    @property
    def names(self) -> list[str]:
        """All addresses, lent or not."""
        return [f"guest{n:03}" for n in range(1, self._size + 1)]

    def runtime_of(self, name: str) -> str:
        """The runtime that an address is lent to, "" if it is not lent."""
        return self._borrowers.get(name, "")

    def lend(self, runtime: str) -> str:
        """The address of a runtime, from now on if it has none. Raises Unavailable."""
        known = self._lent.get(runtime)
        if known is not None:
            return known
        taken = self._size - len(self._free)
        if taken + 1 >= 0.9 * self._size and not self._is_told:
            self._is_told = True
            self._here.raise_alarm(
                POOL_ALARM, f"{taken + 1} of {self._size} addresses are lent, or rest."
            )
        if not self._free:
            raise Unavailable("No address is left for those who are not logged in.")
        name, _ = self._free.popitem(last=False)
        self._lent[runtime], self._borrowers[name] = name, runtime
        self._here.keep(LENT, runtime, name)
        return name

    def restore(self, runtime: str, name: str) -> None:
        """Take an address as lent that another worker has lent."""
        if self._free.pop(name, self) is None:
            self._lent[runtime], self._borrowers[name] = name, runtime

    def _take_back(self, runtime: str) -> None:
        name = self._lent.pop(runtime, "")
        if name:
            del self._borrowers[name]
            self._resting[name] = (runtime, self._clock() + REST_SECONDS)

    @property
    def due(self) -> float:
        """When `sweep` has something to do next."""
        rests = next(iter(self._resting.values()), ("", math.inf))[1]
        return min(rests, self._looks_at if self._lent else math.inf)

    def sweep(self) -> None:
        """Take back the addresses of runtimes that have gone; call it regularly."""
        now = self._clock()
        if now >= self._looks_at:
            self._looks_at = now + LOOK_SECONDS
            for runtime in [each for each in self._lent if not self._here.runtime_of(each)]:
                self._here.if_gone(runtime, partial(self._take_back, runtime))
        while self._resting and next(iter(self._resting.values()))[1] <= now:
            name, (runtime, _) = self._resting.popitem(last=False)
            self._free[name] = None
            self._here.keep(LENT, runtime, name, is_kept=False)
        if len(self._free) > 0.2 * self._size:
            self._is_told = False
