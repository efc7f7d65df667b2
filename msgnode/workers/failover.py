"""Failover: detects dead workers, and takes over their sessions.

Rules
- A worker is dead if its process on this machine has ended, or if its lease ended some time ago and
  was not renewed for as long as this worker has watched it, while this worker's own was. Its epoch
  is retired; then all remaining workers take over its sessions, each row by one of them. The
  sessions return with a gap, because their queues are lost. Those that a clean stop has left have
  a gap if something was under way to them: whoever sent it says so.
- A worker that no other can find takes them later: what it has is lost to runtimes that come
  elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from msgnode import models
from msgnode.allocation.store import AllocationStore
from msgnode.bus.slices import AT_ONCE
from msgnode.core.faults import FAULTS
from msgnode.sessions.store import FREE
from msgnode.storage.database_threads import in_any_thread
from msgnode.subscriptions.store import SubscriptionStore
from msgnode.workers import membership_store
from msgnode.workers.lease import Lease, margin_of, now
from msgnode.workers.linked_worker import LinkedWorker
from msgnode.workers.moving_sessions import MovingSessions, OwnSessions
from msgnode.workers.network import WorkerNetwork
from msgnode.workers.orders import post_missed
from msgnode.workers.replication import SessionCopies
from msgnode.workers.worker_process import has_ended

log = logging.getLogger(__name__)

_LOOK_INTERVAL = 2.0  # seconds between two looks at the leases of the others


class Failover:
    """One instance per worker.

    Attributes:
        expected: the workers (epochs) that were registered at the start, and have not ended since.
    """

    def __init__(
        self,
        network: WorkerNetwork,
        lease: Lease,
        copies: SessionCopies,
        moving: MovingSessions,
        own: OwnSessions,
        raise_alarm: Callable[[str, str, str], None],
    ) -> None:
        self.expected: set[str] = set()
        self._network = network
        self._transport = transport = network.transport
        self._me = transport.me
        self._lease = lease
        self._others = network.others
        self._timeout = transport.timeout
        self._names = network.names
        self._announcements = network.announcements
        self._remotes = network.remotes
        self._copies = copies
        self._moving = moving
        self._sessions = own.manager
        self._store = own.store
        self._raise_alarm = raise_alarm
        self._watch = LeaseWatch(lease.seconds)
        self._takeovers: set[asyncio.Task[None]] = set()

    def register(self) -> None:
        """Register this worker. Blocks. From then on the lease has to be renewed."""
        sent = now()
        others = membership_store.register(self._me, self._lease.seconds)
        self._lease.begin(sent)
        for worker in others:
            if has_ended(self._me, worker.host, worker.pid):
                membership_store.retire(worker.epoch)
            elif not membership_store.retire_expired(worker.epoch, margin_of(self._lease.seconds)):
                self.expected.add(worker.epoch)
        self._others.registered = set(self.expected)

    def take_left(self) -> list[models.Session]:
        """Take the sessions of those that have ended. Blocks, perhaps for longer than a lease."""
        return [row for rows in self._store.take_over(None) for row in rows]

    async def deregister(self) -> None:
        """Deregister this worker."""
        await in_any_thread(membership_store.retire, self._me.epoch)

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop taking sessions over; return the tasks to wait for."""
        for task in self._takeovers:
            task.cancel()
        return [*self._takeovers]

    def has_died(self, other: LinkedWorker) -> bool:
        """Whether the process of another worker has certainly ended."""
        if has_ended(self._me, other.host, other.pid):
            self._handle_dead(other.epoch)
            return True
        return False

    def left(self, other: LinkedWorker) -> None:
        """Handle another worker that takes leave; its row may still be there."""
        self._handle_dead(other.epoch, has_left=True)

    # --- who has ended ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Detect dead workers, until cancelled."""
        looked = 0.0
        while True:
            await asyncio.sleep(min(0.5, self._timeout / 5))
            try:
                for other in tuple(self._transport.others.values()):
                    with FAULTS.kept_to("worker link"):
                        self.has_died(other)
                if monotonic() - looked >= min(_LOOK_INTERVAL, self._timeout / 3):
                    looked = monotonic()
                    heard_of = set(self._transport.others)
                    rows = await in_any_thread(membership_store.list_others, self._me)
                    if self._lease.is_held:
                        await self._look(rows, heard_of)
            except Exception as error:
                log.warning("The other workers could not be looked after: %s", error)

    async def _look(self, rows: Sequence[models.Worker], heard_of: set[str]) -> None:
        """Detect dead workers.

        Args:
            rows: the rows of workers that have not ended, or not for certain.
            heard_of: the other workers that were known before the rows were read.
        """
        registered = {row.epoch: row.lease_until for row in rows}
        gone = heard_of.union(self._others.registered) - registered.keys()  # some never joined
        self._others.registered = set(registered)
        self._others.ready = {row.epoch for row in rows if row.state == membership_store.READY}
        self.expected.intersection_update(registered)
        for epoch in gone:
            self._handle_dead(epoch)
        for row in rows:
            if has_ended(self._me, row.host, row.pid):
                self._handle_dead(row.epoch)
        for epoch in self._watch.overdue(registered, now(), self._lease.failed):
            if epoch not in self._others.dead and await in_any_thread(
                membership_store.retire_expired, epoch, margin_of(self._lease.seconds)
            ):
                self._handle_dead(epoch)

    # --- what they had ----------------------------------------------------------------------------

    def _handle_dead(self, epoch: str, has_left: bool = False) -> None:
        """Take over from a dead worker, then forget it."""
        if epoch in self._others.dead:
            return
        self._others.dead.add(epoch)
        other = self._transport.others.get(epoch)
        if other is not None:
            self._transport.forget(other)
        task = asyncio.create_task(self._take_over_dead(epoch, other, has_left))
        self._takeovers.add(task)
        task.add_done_callback(self._takeovers.discard)

    async def _take_over_dead(self, epoch: str, other: LinkedWorker | None, has_left: bool) -> None:
        name = other.name if other else epoch
        log.info("A worker has ended.", extra={"worker": name})
        while True:
            try:
                if await in_any_thread(membership_store.retire, epoch) and not has_left:
                    text = f"The worker {name} has ended without taking leave."
                    self._raise_alarm("unclean-stop", epoch, text)
                await self._tell_missed()
                await self._be_found()
                await self.take_over([epoch, FREE], [])  # those too that it could not give away
                break
            except Exception as error:
                log.warning("The sessions of a worker could not be taken over yet: %s", error)
                await asyncio.sleep(1.0)
        await asyncio.sleep(self._timeout)  # meanwhile the others announce what they took
        if other is not None:
            self._copies.forget(other)
        self._others.dead.discard(epoch)

    async def _be_found(self) -> None:
        """Wait until others can find what this worker has, but not longer than a lease."""
        for _ in range(30):
            if self._network.meets_others:
                return
            await asyncio.sleep(self._timeout / 30)

    async def _tell_missed(self) -> None:
        """Have the sessions told for which frames were under way to the worker that has ended."""
        missed = set(self._transport.missed)
        if missed:
            await in_any_thread(post_missed, missed)
            self._transport.missed -= missed

    async def take_over(self, epochs: list[str] | None, ids: list[str]) -> None:
        """Take over sessions from the database, in batches.

        Args:
            epochs: the epochs of the workers that had them; None: all whose worker has ended.
            ids: single sessions, whose worker's lease has ended.
        """
        with_gap = 0
        taking = self._store.take_over(epochs, ids)
        while True:
            read_at = monotonic()
            if (rows := await in_any_thread(next, taking, None)) is None:
                break
            keys = [row.id for row in rows]
            owned, subscribed = await in_any_thread(_holdings, keys)
            put_in_place = 0
            for row in rows:
                id_ = row.id.hex
                put_in_place += 1 + len(owned.get(id_, ())) + len(subscribed.get(id_, ()))
                if put_in_place > AT_ONCE:
                    await asyncio.sleep(0)  # one session may hold 100,000 addresses
                    put_in_place = 0
                if id_ not in self._sessions.sessions:
                    with_gap += bool(row.epoch)
                    with FAULTS.kept_to("session"):
                        held = owned.get(id_, {}), subscribed.get(id_, [])
                        self._restore_one(row, *held, read_at)
        if with_gap:
            text = f"A worker has ended: {with_gap} of its sessions may have missed messages."
            self._raise_alarm("unclean-stop", epochs[0] if epochs else "", text)

    def _restore_one(
        self,
        row: models.Session,
        owned: dict[str, str],
        subscribed: list[str],
        read_at: float,
    ) -> None:
        session = self._sessions.restored(row)
        remote = self._remotes.by_id.pop(session.id, None)
        self._moving.put_in_place(session, remote, owned, subscribed)
        if row.epoch:
            held = (session.runtime_url, *owned)
            self._names.taken(held, subscribed, str(row.epoch))
        self._sessions.adopt(session)
        self._moving.has_come(session, read_at)


def _holdings(keys: Sequence[UUID]) -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """The addresses that sessions own, with their keys, and those they subscribe. Blocks."""
    owned: dict[str, dict[str, str]] = {}
    for row in AllocationStore.load(keys):
        owned.setdefault(row.session, {})[row.address] = row.key
    subscribed: dict[str, list[str]] = {}
    for address, session in SubscriptionStore.load(keys):
        subscribed.setdefault(session, []).append(address)
    return owned, subscribed


class LeaseWatch:
    """Finds leases not renewed for `seconds` while this worker could renew its own."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen: dict[str, tuple[Any, float]] = {}  # epoch -> the end of its lease, since when
        self._failed = 0

    def overdue(self, leases: Mapping[str, Any], moment: float, failed: int) -> list[str]:
        """The epochs of those leases.

        Args: leases: the end of each lease by epoch, as the database has it now. moment: now.
            failed: how often this worker could not renew its own lease; after another failure the
            watch starts anew, because the others may have had the same problem.
        """
        if failed != self._failed:
            self._failed = failed
            self._seen.clear()
        seen = self._seen
        self._seen = {
            epoch: seen[epoch] if epoch in seen and seen[epoch][0] == until else (until, moment)
            for epoch, until in leases.items()
        }
        return [epoch for epoch, (_, at) in self._seen.items() if moment - at > self._seconds]
