"""The periodic task of the registry: expiry, every few seconds.

If another run is still active, each takes the rows that the other has not locked.
"""

from __future__ import annotations

from celery import shared_task

from . import lifecycle


@shared_task(name="registry.expire", ignore_result=True)
def expire() -> int:
    """Disconnect every expired entry."""
    return lifecycle.repeat(lifecycle.expire_due)
