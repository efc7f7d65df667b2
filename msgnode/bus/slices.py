"""Work on many items in slices, each in a turn of the event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from msgnode.core.faults import FAULTS

T = TypeVar("T")

AT_ONCE = 500


def in_slices(items: Iterable[T], work: Callable[[T], None]) -> None:
    """Do some work for each item: for the first AT_ONCE now, for the others in later turns.

    Args:
        items: the items; must not change meanwhile.
        work: called once per item, on the event loop. An error ends the work for its item only.
    """
    left = iter(items)

    def go_on() -> None:
        done = 0
        for item in islice(left, AT_ONCE):
            done += 1
            with FAULTS.kept_to("session"):
                work(item)
        if done == AT_ONCE:
            asyncio.get_running_loop().call_soon(go_on)

    go_on()
