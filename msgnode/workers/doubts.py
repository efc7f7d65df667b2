"""Questions to other workers about addresses, and which of them failed recently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class Question:
    """A caller, identified by `key`, that waits to learn who is at some names.

    `runtime` is a runtime URL whose sessions must be known, and those of runtimes above and below
    it; "" for none.
    """

    key: Hashable
    names: list[str]
    runtime: str
    tell: Callable[[], None]


class Doubt(NamedTuple):
    """A failed query of who holds or hears an address.

    Attributes:
        until: when it expires, on the monotonic clock.
        is_named: whether the directory names a worker there.
    """

    until: float
    is_named: bool


class Doubts:
    """The addresses whose queries failed, the most recent ones."""

    def __init__(self) -> None:
        self._doubts: OrderedDict[str, Doubt] = OrderedDict()

    def of(self, address: str) -> Doubt | None:
        """The doubt about an address, if there is a current one."""
        doubt = self._doubts.get(address)
        return doubt if doubt is not None and monotonic() < doubt.until else None

    def note(self, addresses: Collection[str], is_named: bool, seconds: float) -> None:
        """Note failed queries, which count for so many seconds."""
        doubt = Doubt(monotonic() + seconds, is_named)
        for address in addresses:
            self._doubts[address] = doubt
            self._doubts.move_to_end(address)
        while len(self._doubts) > MOST_REMEMBERED:
            self._doubts.popitem(last=False)

    def clear(self) -> None:
        """Forget all, so that everything is queried again."""
        self._doubts.clear()
