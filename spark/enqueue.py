"""Tells the Celery worker that a run is queued.

It is only a hint: a worker that misses it finds the row by its sweep, so an unreachable broker is
not an error here.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


def enqueue(pk: int) -> None:
    """Blocks for the broker: not for the event loop."""
    # Only who asks for runs needs Celery: the node does without.
    from kombu.exceptions import OperationalError

    from msgnode.celery import app

    try:
        app.send_task("spark.run", args=[pk], retry=False, ignore_result=True)
    except (OperationalError, OSError) as error:
        log.warning("the broker was not told of a run: %s", error)
