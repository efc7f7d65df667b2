"""How thoroughly to measure, and the order in which servers take turns."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .servers import Servers

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Plan:
    """`seconds` is the length of one sample; `quick` measures fewer sizes in shorter time."""

    servers: Servers
    rounds: int
    seconds: float
    quick: bool

    def rotations(self, items: Sequence[Item], times: int = 1) -> Iterator[list[Item]]:
        """The items of each round; every round begins with another one, so that what a machine does
        meanwhile hits all alike. `times` as many rounds where a small difference is looked for."""
        for turn in range(self.rounds * times):
            first = turn % len(items)
            yield [*items[first:], *items[:first]]

    def say(self, text: str) -> None:
        """Tell whoever waits how far it is."""
        sys.stderr.write(f"  {text}\n")
