"""What Celery beat has done for the registry: expiry every few seconds, ageing and purge.

A run stops after MAX_SECONDS and leaves the rest to the next, so that runs do not pile up; a run
that finds another still at work does the part that one does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from celery import shared_task

from . import lifecycle

MAX_SECONDS = 60.0


@shared_task(name="registry.expire", ignore_result=True)
def expire() -> int:
    """Disconnect every entry whose time has run out."""
    return repeat(lifecycle.expire_due)


@shared_task(name="registry.purge", ignore_result=True)
def purge() -> int:
    """Call dead what has long been disconnected, and delete what has long been dead."""
    return repeat(lifecycle.age) + repeat(lifecycle.purge)


def repeat(step: Callable[[], int], seconds: float = MAX_SECONDS) -> int:
    """Do the step until it finds nothing or the time is over; the number of entries changed."""
    until = time.monotonic() + seconds
    total = 0
    while time.monotonic() < until:
        done = step()
        if not done:
            break
        total += done
    return total
