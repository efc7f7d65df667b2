"""The life cycle of a worker: start, drain, stop, and its end when its lease is lost."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Literal

from django.conf import settings

from msgnode.allocation.store import AllocationStore
from msgnode.core.faults import FAULTS
from msgnode.identity import sealed_secrets
from msgnode.identity.provider.clients import ensure_own_clients
from msgnode.monitoring import fault_alarms, path_probe
from msgnode.sessions.bans import BanList
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.store import SessionStore
from msgnode.storage.database_threads import in_any_thread
from msgnode.subscriptions.store import SubscriptionStore
from msgnode.workers.control_handlers import note_fencing
from msgnode.workers.inbox import LAYER_AWAY, LAYER_FULL

from .alarms import clear_of_ended
from .parts import parts

log = logging.getLogger(__name__)

SECRETS_UNREADABLE = "secrets-unreadable"


class Node:
    """A worker; `parts` are its parts."""

    def __init__(self) -> None:
        self.is_ready = False
        self.secrets_fault = ""
        """Why encrypted secrets cannot be read here; set at the start."""
        self.on_drain: list[Callable[[], None]] = []
        self.parts = parts()
        self.parts.writer.on_late.append(self.parts.sessions.end_differing)
        self._tasks: list[asyncio.Task[None]] = []
        self._renewing: asyncio.Task[None] | None = None
        self._loading: asyncio.Future[tuple[int, BanList]] | None = None

    @property
    def runs_all_tasks(self) -> bool:
        """Whether everything that runs as long as the worker still does."""
        return not any(task.done() for task in self._tasks)

    # --- start ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the routing table from the database and begin.

        Raises:
            DatabaseError: the database cannot be read.
            AnotherRuns: another worker serves this database, and has no Redis either.
        """
        parts = self.parts
        await in_any_thread(parts.cluster.register)
        self._renewing = asyncio.create_task(parts.lease.run(self._figures, self._catch_up))
        self._loading = asyncio.ensure_future(in_any_thread(self._load))
        with_gap, bans = await asyncio.shield(self._loading)
        parts.alarms.begin()
        for room in parts.subsystems:
            await room.start()
        parts.sessions.apply_bans(bans)
        if with_gap:
            text = f"The last stop was not clean: {with_gap} sessions may have missed messages."
            parts.alarms.raise_alarm("unclean-stop", parts.domain, text)
        self._tell_of_secrets()
        self._run(parts.control.run())
        self._run(*(job for room in parts.subsystems for job in room.jobs()))
        await parts.cluster.join()
        self.is_ready = True
        self._run(*(job for room in parts.subsystems for job in room.serve()))
        log.info("The worker is ready.", extra={"worker": parts.worker, **parts.table.sizes})

    def _run(self, *jobs: Coroutine[Any, Any, None]) -> None:
        self._tasks.extend(asyncio.create_task(job) for job in jobs)

    def _tell_of_secrets(self) -> None:
        """Say that encrypted secrets cannot be read here, or no longer that they could not."""
        host = socket.gethostname()
        if self.secrets_fault:
            log.error(self.secrets_fault)
            self.parts.alarms.raise_alarm(SECRETS_UNREADABLE, host, self.secrets_fault[:500])
        else:
            self.parts.alarms.clear_alarm(SECRETS_UNREADABLE, host)

    def _figures(self) -> dict[str, Any]:
        """The figures stored with each renewal of the worker's lease."""
        return {**self.parts.cluster.figures(), "sessions": len(self.parts.sessions.sessions)}

    async def _catch_up(self) -> None:
        """Read what was ordered and revoked while this worker was frozen."""
        if self._tasks:  # else all is still to be read
            await self.parts.control.read()

    def _load(self) -> tuple[int, BanList]:
        """Load what this worker has, which may take longer than a lease."""
        parts = self.parts
        rows = parts.cluster.take_left()
        clear_of_ended(
            (path_probe.KIND, fault_alarms.KIND, LAYER_AWAY, LAYER_FULL), socket.gethostname()
        )
        ensure_own_clients()
        parts.identities.load()
        self.secrets_fault = sealed_secrets.fault()
        with_gap = parts.sessions.restore(rows)
        parts.identities.restore()
        AllocationStore.load_owners(parts.owners)
        parts.allocation.use_pools(AllocationStore.pool_schemes())
        parts.allocation.restore(AllocationStore.load(), parts.sessions.sessions)
        parts.subscriptions.restore(SubscriptionStore.load(), parts.sessions.sessions)
        for room in parts.subsystems:
            room.load()
        return with_gap, SessionStore.load_bans()

    # --- end --------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Close every socket with a request to return, spread over time."""
        parts = self.parts
        self._refuse_newcomers()
        await self._each("drain")
        parts.cluster.close()
        seconds = settings.NODE["DRAIN_STAGGER"]
        self._end_pages()
        await parts.sockets.end_all(CloseCode.GOING_AWAY, "the node restarts: come back", seconds)

    async def stop(self) -> None:
        """Drain, hand the remaining sessions to other workers, commit, and end."""
        for step in (
            self.drain,
            partial(self._each, "stop"),
            self._end_jobs,
            partial(self.parts.cluster.leave, settings.NODE["DRAIN_SECONDS"]),
            self._store_sessions,
            partial(self._each, "close"),
            self.parts.alarms.settled,
            self.parts.writer.stop,
            self._leave_workers,
        ):
            with FAULTS.kept_to("step of the stop"):
                await step()

    async def _each(self, name: Literal["drain", "stop", "close"]) -> None:
        """Take a step of the stop in every room; a fault in one keeps no other from it."""
        for room in self.parts.subsystems:
            with FAULTS.kept_to("step of the stop"):
                await getattr(room, name)()

    async def give_up(self) -> None:
        """End after a start that was cancelled or has failed; nobody need wait for this worker."""
        if self._tasks:  # others may have given it sessions
            await self.stop()
            return
        if self._loading is not None:  # a thread ends by itself; sessions that it took miss nothing
            await asyncio.wait({self._loading})
            await self._store_sessions()
        for step in (self.parts.writer.stop, self._leave_workers):
            with FAULTS.kept_to("step of the stop"):
                await step()

    async def fence(self, why: str) -> None:
        """Stop serving because the lease is lost, and tell every client to reconnect.

        The rows belong to whichever worker has taken them over. Waits for the database without a
        limit.
        """
        parts = self.parts
        self._refuse_newcomers()
        for room in parts.subsystems:
            room.abort()
        self._end_pages()
        await parts.sockets.end_all(
            CloseCode.GOING_AWAY, "this worker begins again: come back", 0.0
        )
        missed = await parts.cluster.fence()
        for task in self._tasks:
            task.cancel()
        steps = (asyncio.wait_for(room.fence(), 1.0) for room in parts.subsystems)
        await asyncio.gather(*steps, return_exceptions=True)
        await asyncio.to_thread(note_fencing, parts.me, why, missed)

    def _refuse_newcomers(self) -> None:
        """Accept no new connections."""
        self.is_ready = False
        for room in self.parts.subsystems:
            room.refuse()

    def _end_pages(self) -> None:
        """End what is served without a session: calls the `on_drain` callbacks."""
        for callback in self.on_drain:
            with FAULTS.kept_to("console"):
                callback()

    async def _end_jobs(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _store_sessions(self) -> None:
        self.parts.sessions.stop()

    async def _leave_workers(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()  # else it would take the retired epoch for a loss
        await self.parts.cluster.stop()
        self.parts.lease.close()
