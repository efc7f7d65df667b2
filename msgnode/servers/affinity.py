"""Pins the web process to one processor, so that it does not disturb the workers on the others."""

from __future__ import annotations

import logging
import os

log = logging.getLogger("msgnode.servers.affinity")


def keep_to_one_processor(number: int) -> None:
    """Pin this process to one processor; do nothing if it may use only one.

    A Python process can use only one processor at a time. On several, its threads wait longer for
    each other, and each processor they use has less time for the worker on it.

    Args:
        number: distributes the web processes of a machine over its processors; the port serves.
    """
    if not hasattr(os, "sched_setaffinity"):  # macOS has no such call
        return
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, {allowed[-1 - number % len(allowed)]})
    except OSError as error:
        log.warning("The web process cannot keep to one processor: %s", error)
