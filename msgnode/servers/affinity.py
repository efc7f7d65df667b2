"""Keeps the web process to one processor, and so out of the way of the workers on the others."""

from __future__ import annotations

import logging
import os

log = logging.getLogger("msgnode.servers.affinity")


def keep_to_one_processor(number: int) -> None:
    """Leave all processors but one to the workers; nothing happens where there is none to choose.

    One interpreter fills one processor at most. On several, its threads wait for each other all the
    longer, and each processor they come to has less for the worker that is there.

    Args:
        number: spreads several web processes of one machine over what they may use; their ports do.
    """
    if not hasattr(os, "sched_setaffinity"):  # macOS has no such call
        return
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, {allowed[-1 - number % len(allowed)]})
    except OSError as error:
        log.warning("The web process cannot keep to one processor: %s", error)
