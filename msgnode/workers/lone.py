"""The only worker of a node without REDIS_URL: its registration, and its life without others.

A second worker on the same database is refused, with the name of the first, while the first holds
its lease. What a first one has left that has ended, or whose lease has, is taken over; if it was
only frozen, its writes are refused and it ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from msgnode import models
from msgnode.sessions.store import SessionStore
from msgnode.storage.database_threads import in_any_thread

from . import membership_store
from .lease import Lease, margin_of, now
from .ports import ArrivalTracer
from .rpc import Answer, Answers
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


class NobodyToAsk:
    """The queries of a worker without others: nobody answers."""

    def answer_questions(self, answers: Mapping[str, Answer]) -> None:
        """Do nothing: nobody asks."""

    def answer_calls(self, kind: str, answer: Answer) -> None:
        """Do nothing: nobody calls."""

    async def ask(self, kind: str, text: bytes = b"", seconds: float = 1.0) -> Answers:
        """The answers of no workers."""
        return {}

    def ask_from_thread(self, kind: str, text: bytes = b"", seconds: float = 1.0) -> Answers:
        """The answers of no workers."""
        return {}


class LoneWorker:
    """The only worker of a node, in the place of `Cluster`, whose methods it has."""

    is_alone = True
    meets_others = True
    number_ready = 0
    fetch = None
    orders = None

    def __init__(self, me: WorkerId, lease: Lease) -> None:
        self.state = membership_store.STARTING
        self.rpc = NobodyToAsk()
        self._me = me
        self._lease = lease

    def register(self) -> None:
        """Register this worker; see `register_alone`."""
        register_alone(self._me, self._lease)

    def take_left(self) -> list[models.Session]:
        """The sessions of the worker before this one. Blocks: for use at the start."""
        return list(SessionStore.load())

    def watch(self, tracer: ArrivalTracer) -> None:
        """Do nothing: no frames arrive from others."""

    async def join(self) -> None:
        """Serve from now on."""
        self.state = membership_store.READY

    def close(self) -> None:
        """Accept no more sessions."""
        self.state = membership_store.DRAINING

    async def leave(self, seconds: float) -> None:
        """Do nothing: nobody can take the sessions, which stay in the database."""

    async def stop(self) -> None:
        """Deregister this worker."""
        await in_any_thread(membership_store.retire, self._me.epoch)

    async def fence(self) -> set[str]:
        """The sessions of other workers that miss something: there are none."""
        return set()

    def figures(self) -> dict[str, Any]:
        """What is stored with each renewal of the lease."""
        return {"state": self.state}

    # --- DeviceApi asks about sessions of other workers -------------------------------------------

    def hears(self, session_id: str) -> bool:
        """False: no other worker has sessions."""
        return False

    async def call(self, session_id: str, kind: str, text: bytes, seconds: float) -> bytes | None:
        """None: nobody answers."""
        return None
