"""The periodic tasks of the registry: expiry every few seconds, ageing and purge.

A run stops after MAX_SECONDS and leaves the rest to the next one, so that runs do not pile up. If
another run is still active, each takes the rows that the other has not locked.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from celery import shared_task

from . import lifecycle

MAX_SECONDS = 60.0


@shared_task(name="registry.expire", ignore_result=True)
def expire() -> int:
    """Disconnect every expired entry."""
    return repeat(lifecycle.expire_due)


@shared_task(name="registry.purge", ignore_result=True)
def purge() -> int:
    """Mark old disconnected entries as dead, and delete old dead ones."""
    return repeat(lifecycle.age) + repeat(lifecycle.purge)


def repeat(step: Callable[[], int], seconds: float = MAX_SECONDS) -> int:
    """Repeat a step until nothing is left or the time is over; return the number of entries."""
    until = time.monotonic() + seconds
    total = 0
    while time.monotonic() < until:
        done = step()
        if not done:
            break
        total += done
    return total
