"""Registers the only worker of a node without REDIS_URL.

A second worker on the same database is refused, with the name of the first, while the first holds
its lease. What a first one has left that has ended, or whose lease has, is taken over; if it was
only frozen, its writes are refused and it ends.
"""

from __future__ import annotations

import logging
import time

from . import membership_store
from .lease import Lease, margin_of, now
from .worker_process import WorkerId, has_ended

log = logging.getLogger(__name__)

_PAUSE = 0.25


class AnotherRuns(Exception):
    """Another worker holds the node's database."""


def register_alone(me: WorkerId, lease: Lease) -> None:
    """Register the only worker of a node; wait for an unrenewed lease to end. Blocks.

    Raises:
        AnotherRuns: another worker runs, and renews its lease.
    """
    margin = margin_of(lease.seconds)
    limit = now() + lease.seconds + margin + 1
    sent = now()
    at_first = {row.epoch: row.lease_until for row in membership_store.register(me, lease.seconds)}
    lease.begin(sent)
    while True:
        there = [
            row
            for row in membership_store.list_others(me)
            if not has_ended(me, row.host, row.pid)
            and not membership_store.retire_expired(row.epoch, margin)
        ]
        if not there:
            break
        first = there[0]
        if first.lease_until != at_first.get(first.epoch) or now() > limit:
            membership_store.retire(me.epoch)
            raise AnotherRuns(
                f"the worker {first.name} on {first.host.partition('/')[0]} already serves this "
                "node's database. Stop it, or give both a REDIS_URL to run several workers."
            )
        log.info("The lease of an earlier worker has not ended yet.", extra={"worker": first.name})
        time.sleep(_PAUSE)
    for row in membership_store.list_others(me):
        membership_store.retire(row.epoch)
    sent = now()
    membership_store.renew(me.epoch, lease.seconds)
    lease.begin(sent)
