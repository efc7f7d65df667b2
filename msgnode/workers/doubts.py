"""What a worker asks others about addresses, and what it could not find out lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class Question:
    """Somebody, known by `key`, waits to hear who is at some names.

    `runtime` is a runtime URL whose sessions are to be known, and those of runtimes above and below
    it, "" for none.
    """

    key: Hashable
    names: list[str]
    runtime: str
    tell: Callable[[], None]


class Doubt(NamedTuple):
    """That it could not be found out who holds or hears an address.

    Attributes:
        until: when that counts no more, on the monotonic clock.
        is_named: whether the directory names somebody.
    """

    until: float
    is_named: bool


class Doubts:
    """The addresses of which something could not be found out, the latest of them."""

    def __init__(self) -> None:
        self._doubts: OrderedDict[str, Doubt] = OrderedDict()

    def of(self, address: str) -> Doubt | None:
        """The doubt about an address, if there is one that counts."""
        doubt = self._doubts.get(address)
        return doubt if doubt is not None and monotonic() < doubt.until else None

    def note(self, addresses: Collection[str], is_named: bool, seconds: float) -> None:
        """Nothing could be found out of these; that counts for so many seconds."""
        doubt = Doubt(monotonic() + seconds, is_named)
        for address in addresses:
            self._doubts[address] = doubt
            self._doubts.move_to_end(address)
        while len(self._doubts) > MOST_REMEMBERED:
            self._doubts.popitem(last=False)

    def clear(self) -> None:
        """Everything can be asked again."""
        self._doubts.clear()
