"""The life cycle of a worker: start, drain, stop, and its end when its lease is lost."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings

from msgnode.allocation.store import AllocationStore
from msgnode.core.faults import FAULTS
from msgnode.identity import sealed_secrets
from msgnode.identity.provider.clients import ensure_own_clients
from msgnode.monitoring import fault_alarms, path_probe
from msgnode.sessions.bans import BanList
from msgnode.sessions.expiry import run_expiry
from msgnode.sessions.late_commits import end_differing
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.store import SessionStore
from msgnode.storage import alarms
from msgnode.storage.database_threads import in_any_thread
from msgnode.subscriptions.store import SubscriptionStore
from msgnode.workers.fencing import note_fencing
from msgnode.workers.inbox import LAYER_AWAY, LAYER_FULL
from msgnode.workers.lone import register_alone
from msgnode.workers.membership_store import READY, STARTING, retire
from spark.freshness import watch_reports

from .parts import Parts

if TYPE_CHECKING:
    from msgnode.devices.mqtt.connector import MqttConnector
    from msgnode.federation.service import Federation

log = logging.getLogger(__name__)

SECRETS_UNREADABLE = "secrets-unreadable"


class Node:
    """A worker; `parts` are its parts."""

    def __init__(self) -> None:
        self.is_ready = False
        self.secrets_fault = ""
        """Why encrypted secrets cannot be read here; set at the start."""
        self.on_drain: list[Callable[[], None]] = []
        self.parts = Parts()
        self.parts.writer.on_late.append(partial(end_differing, self.parts.sessions))
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
        await in_any_thread(self._register)
        self._renewing = asyncio.create_task(parts.lease.run(self._figures, self._catch_up))
        self._loading = asyncio.ensure_future(in_any_thread(self._load))
        with_gap, bans = await asyncio.shield(self._loading)
        parts.alarms.begin()
        if parts.record is not None:
            parts.record.start()
        parts.sessions.apply_bans(bans)
        if with_gap:
            text = f"The last stop was not clean: {with_gap} sessions may have missed messages."
            parts.alarms.raise_alarm("unclean-stop", parts.domain, text)
        self._tell_of_secrets()
        jobs = (
            run_expiry(parts.sessions),
            parts.control.run(),
            *parts.monitoring.jobs(),
            parts.policy.watch(),
            parts.policy.write(),
            parts.identify_timeout.watch(),
            parts.hangups.watch(),
            parts.visitors.watch(),
            *parts.registries.jobs(),
            *parts.qos.jobs(),
            watch_reports(),
        )
        self._tasks = [asyncio.create_task(job) for job in jobs]
        await parts.monitoring.start()
        if parts.cluster is not None:
            await parts.cluster.join()
        self.is_ready = True
        if parts.wakeups is not None:
            self._tasks.append(asyncio.create_task(parts.wakeups.run()))
        if parts.outlet_recovery is not None:
            self._tasks.append(asyncio.create_task(parts.outlet_recovery.run()))
        if parts.invitations is not None:
            self._tasks.append(asyncio.create_task(parts.invitations.guests.watch()))
        if parts.mqtt is not None:
            self._tasks.append(asyncio.create_task(_serve_mqtt(parts.mqtt)))
        if parts.federation is not None:
            self._tasks.append(asyncio.create_task(_serve_peers(parts.federation)))
        log.info("The worker is ready.", extra={"worker": parts.worker, **parts.table.sizes})

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
        cluster, sessions = self.parts.cluster, len(self.parts.sessions.sessions)
        if cluster is None:
            return {"state": READY if self.is_ready else STARTING, "sessions": sessions}
        links = cluster.transport.figures()
        return {"state": cluster.state, "sessions": sessions, "links": links}

    async def _catch_up(self) -> None:
        """Read what was ordered and revoked while this worker was frozen."""
        if self._tasks:  # else all is still to be read
            await self.parts.control.read()

    def _register(self) -> None:
        """Register this worker; its lease runs from now on."""
        if self.parts.cluster is not None:
            self.parts.cluster.register()
        else:
            register_alone(self.parts.me, self.parts.lease)

    def _load(self) -> tuple[int, BanList]:
        """Load what this worker has, which may take longer than a lease."""
        parts = self.parts
        cluster = parts.cluster
        rows = SessionStore.load() if cluster is None else cluster.take_left()
        alarms.clear_of_ended(
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
        parts.policy.load()
        if parts.invitations is not None:
            parts.invitations.delivery.load()
        return with_gap, SessionStore.load_bans()

    # --- end --------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Close every socket with a request to return, spread over time."""
        parts = self.parts
        self._refuse_newcomers()
        await parts.path.stop()
        if parts.mqtt is not None:
            with FAULTS.kept_to("step of the stop"):
                await parts.mqtt.stop()
        if parts.federation is not None:
            with FAULTS.kept_to("step of the stop"):
                await parts.federation.stop()
        if parts.cluster is not None:
            parts.cluster.close()
        seconds = settings.NODE["DRAIN_STAGGER"]
        self._end_pages()
        await parts.sockets.end_all(CloseCode.GOING_AWAY, "the node restarts: come back", seconds)

    async def stop(self) -> None:
        """Drain, hand the remaining sessions to other workers, commit, and end."""
        parts = self.parts
        for step in (
            self.drain,
            self._end_webhooks,
            parts.monitoring.stop,
            self._end_jobs,
            self._give_sessions_away,
            self._store_sessions,
            parts.registries.stop,
            parts.qos.stop,
            parts.identities.stop,
            self._close_record,
            parts.writer.stop,
            self._leave_workers,
        ):
            with FAULTS.kept_to("step of the stop"):
                await step()

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
        if parts.mqtt is not None:
            parts.mqtt.abort()
        if parts.federation is not None:
            parts.federation.abort()
        self._end_pages()
        await parts.sockets.end_all(
            CloseCode.GOING_AWAY, "this worker begins again: come back", 0.0
        )
        missed = await parts.cluster.fence() if parts.cluster is not None else set()
        for task in self._tasks:
            task.cancel()
        steps = (parts.path.stop, parts.monitoring.stop, self._close_record)
        await asyncio.gather(
            *(asyncio.wait_for(step(), 1.0) for step in steps), return_exceptions=True
        )
        await asyncio.to_thread(note_fencing, parts.me, why, missed)

    def _refuse_newcomers(self) -> None:
        """Accept no new connections."""
        self.is_ready = False
        if self.parts.devices is not None:
            self.parts.devices.close()

    def _end_pages(self) -> None:
        """End what is served without a session: calls the `on_drain` callbacks."""
        for callback in self.on_drain:
            with FAULTS.kept_to("console"):
                callback()

    async def _end_webhooks(self) -> None:
        if self.parts.webhooks is not None:
            await self.parts.webhooks.stop()
        if self.parts.wakeups is not None:
            await self.parts.wakeups.close()
        if self.parts.invitations is not None:
            self.parts.invitations.delivery.stop()
            await self.parts.invitations.service.stop()

    async def _end_jobs(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _give_sessions_away(self) -> None:
        if self.parts.cluster is not None:
            await self.parts.cluster.leave(settings.NODE["DRAIN_SECONDS"])

    async def _store_sessions(self) -> None:
        self.parts.sessions.stop()

    async def _close_record(self) -> None:
        if self.parts.record is not None:
            await asyncio.to_thread(self.parts.record.close)

    async def _leave_workers(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()  # else it would take the retired epoch for a loss
        if self.parts.cluster is not None:
            await self.parts.cluster.stop()
        else:
            await in_any_thread(retire, self.parts.epoch)
        self.parts.lease.close()


async def _serve_peers(federation: Federation) -> None:
    await federation.run()
    await asyncio.Event().wait()  # a stopped job must not count as a failed one


async def _serve_mqtt(mqtt: MqttConnector) -> None:
    await mqtt.run()
    await asyncio.Event().wait()  # a stopped job must not count as a failed one
