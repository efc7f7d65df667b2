"""A worker of a node with several: connects its parts to the others, and hands its sessions over.

A worker is registered in the database before it has a session; it takes over the sessions of epochs
that are not registered, and only then joins the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic, perf_counter
from typing import Any

from msgnode import models
from msgnode.bus.ports import DeliveryResult, Listener, Response
from msgnode.core.faults import FAULTS
from msgnode.core.rates import Rates
from msgnode.redis.faults import Unsuitable
from msgnode.sessions.liveness import LivenessChecks
from msgnode.sessions.session import LiveSession
from msgnode.storage.database_threads import in_any_thread
from msgnode.workers import membership_store
from msgnode.workers.counter_sync import CounterSync
from msgnode.workers.directory_entries import DirectoryEntries
from msgnode.workers.failover import Failover
from msgnode.workers.handover import ArrivingFrames, Handover
from msgnode.workers.lease import Lease
from msgnode.workers.linked_worker import LinkedWorker
from msgnode.workers.moving_sessions import MovingSessions, OwnSessions
from msgnode.workers.network import WorkerNetwork
from msgnode.workers.orders import ArrivalChecks, Orders, post_missed
from msgnode.workers.ports import ArrivalTracer
from msgnode.workers.protocol import CheckSocket, Goodbye, SocketChecked
from msgnode.workers.replication import SessionCopies
from msgnode.workers.rpc import answer_lookups

log = logging.getLogger(__name__)

_LAYER_PATIENCE = 3.0  # seconds until a layer that is out of reach is named


class Cluster:
    """One instance per worker of a node that has several. Implements LocalSessions."""

    is_alone = False

    def __init__(
        self,
        network: WorkerNetwork,
        own: OwnSessions,
        counters: Mapping[str, Rates],
        bounce: Callable[[bytes], None],
        raise_alarm: Callable[[str, str, str], None],
        liveness: LivenessChecks,
        lease: Lease,
    ) -> None:
        self.orders = Orders()
        self.state = membership_store.STARTING
        self.network = network
        self.rpc = network.rpc
        self.transport = transport = network.transport
        self.withdraw = own.allocation.drop
        self.missed = own.manager.missed
        self.undeliverable = bounce
        names, remotes = network.names, network.remotes
        announcements, renewal = network.announcements, network.renewal
        identities = own.identities
        arrivals = ArrivalChecks(own.manager, identities, self.orders)
        moving = MovingSessions(own, network, arrivals)
        copies = SessionCopies(
            transport, self, names, network.interest, renewal, remotes, moving.make_remote
        )
        self.failover = Failover(network, lease, copies, moving, own, raise_alarm)
        self.moves = Handover(
            transport,
            remotes,
            announcements,
            network.watchers.leaving,
            moving,
            self.failover,
            own.settings.outbox_bytes,
            own.table.return_paths,
        )
        self.fetch = self.moves.fetch
        copies.on_new_stream.append(self.moves.link_broke)
        self.frames = ArrivingFrames(own.table, transport, self, self.moves)
        self.counts = CounterSync(transport, counters)
        self.entries = DirectoryEntries(
            network.directory,
            transport,
            self,
            names,
            renewal,
            network.presence,
            network.homes.forget_unknown,
        )
        answer_lookups(network.rpc, identities.logged_in.find)
        remotes.on_entered.append(identities.remote_entered)
        remotes.on_left.append(identities.remote_left)
        transport.handlers.update(
            {CheckSocket: self._check_socket, SocketChecked: self._socket_checked}
        )
        self._remotes = remotes
        self._own = own
        self._liveness = liveness
        self._jobs: list[asyncio.Task[None]] = []

    # --- start and stop ---------------------------------------------------------------------------

    def register(self) -> None:
        """Register this worker. Blocks. From then on the lease has to be renewed."""
        self.failover.register()

    def take_left(self) -> list[models.Session]:
        """Take the sessions of workers that have ended. Blocks: for use at the start."""
        return self.failover.take_left()

    async def join(self) -> None:
        """Join the other workers.

        Raises:
            RedisFault: the channel layer stays out of reach, or is unsuitable.
        """
        self.network.rpc.begin()
        limit = monotonic() + min(self.transport.timeout, _LAYER_PATIENCE)
        while True:
            try:
                await self.entries.start()
                await self.transport.start()
                break
            except Exception as error:
                if isinstance(error, Unsuitable) or monotonic() > limit:
                    raise
                log.info("The channel layer is not there yet: %s", error)
                await asyncio.sleep(0.2)
        self._jobs = [
            asyncio.create_task(job)
            for job in (self.failover.run(), self.counts.run(), self.entries.run())
        ]
        await self.transport.join(self.failover.expected)
        if self.transport.refused:  # what they left nobody has taken
            await self.failover.take_over(None, [])
        self.state = membership_store.READY

    def close(self) -> None:
        """Accept no more sessions."""
        self.state = membership_store.DRAINING
        self.transport.close()

    async def leave(self, seconds: float) -> None:
        """Hand the remaining sessions to other workers, for at most so many seconds."""
        await self.moves.give_all(partial(list, self._own.manager.sessions), seconds)

    async def stop(self) -> None:
        """Stop; nothing more is sent by this worker."""
        jobs = [*self._jobs, *self.failover.stop()]
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        self.counts.tell()
        self.transport.tell(Goodbye())
        missed = await self.transport.stop()
        missed |= {id_ for id_, each in self.sessions.items() if each.outbox.waiting_bytes}
        missed |= self.network.watchers.unknown_sessions()
        if missed:
            with FAULTS.kept_to("step of the stop"):
                await in_any_thread(post_missed, missed)
        await self.network.homes.stop()
        await self.entries.stop()
        await self.failover.deregister()

    async def fence(self) -> set[str]:
        """Stop receiving and sending, because the lease is lost.

        Returns:
            The sessions of other workers that miss something that was sent to them.
        """
        for job in (*self._jobs, *self.failover.stop()):
            job.cancel()
        await self.network.homes.stop()
        await self.entries.stop()
        return await self.transport.silence()

    # --- what it is asked -------------------------------------------------------------------------

    @property
    def meets_others(self) -> bool:
        """Whether the other workers can be reached."""
        return self.network.meets_others

    @property
    def number_ready(self) -> int:
        """How many other workers accept sessions."""
        return self.transport.number_ready

    def figures(self) -> dict[str, Any]:
        """What is stored with each renewal of the lease."""
        return {"state": self.state, "links": self.transport.figures()}

    def watch(self, tracer: ArrivalTracer) -> None:
        """Set the observer of frames that another worker traces."""
        self.frames.watch(tracer)

    # --- what a request about a session of another worker is answered there -----------------------

    def hears(self, session_id: str) -> bool:
        """Whether the worker of a session is heard of."""
        remote = self._remotes.by_id.get(session_id)
        return remote is not None and remote.worker.is_up

    async def call(self, session_id: str, kind: str, text: bytes, seconds: float) -> bytes | None:
        """Call the worker of a session; None if it does not answer within so many seconds."""
        remote = self._remotes.by_id.get(session_id)
        if remote is None:
            return None
        return await self.network.rpc.call(remote.worker, kind, text, seconds)

    # --- LocalSessions: what replication asks of this worker's sessions ---------------------------

    @property
    def sessions(self) -> dict[str, LiveSession]:
        """The sessions of this worker, by id."""
        return self._own.manager.sessions

    def holdings(self, session_id: str) -> tuple[list[str], list[str], list[str]]:
        """The addresses a session owns, has subscribed, has learned."""
        session = self.sessions[session_id]
        return (
            list(self._own.allocation.holdings(session_id)),
            self._own.subscriptions.holdings(session_id),
            list(session.learned),
        )

    def is_moving(self, session_id: str) -> bool:
        """Whether a session is on its way to this worker, or to another one."""
        return self.moves.is_moving(session_id)

    def reassert(self, session: Listener) -> None:
        """The session is this worker's, whatever another one has written."""
        self._own.store.moved(self.sessions[session.id])

    def give_up(self, session: Listener, worker: str, epoch: str) -> None:
        """The session is another worker's, whatever this one has written."""
        self._own.store.left(self.sessions[session.id], worker, epoch)

    def respond(self, session: Listener, frame: bytes, response: Response) -> DeliveryResult | None:
        """Deliver a response from another worker to a session.

        Returns:
            The result; None if the session has not asked for it.
        """
        return self._own.guard.respond(session, frame, response, perf_counter())

    def _check_socket(self, other: LinkedWorker, asked: CheckSocket) -> None:
        """Check a session's socket for another worker."""
        session_id = asked.session

        def tell(outcome: bool | None) -> None:
            if other.is_up:
                other.out.put(SocketChecked(session_id, outcome))

        session = self.sessions.get(session_id)
        if session is None or not session.is_connected:
            tell(None)  # what has become of it was said before
        else:
            self._liveness.ask(session, tell)

    def _socket_checked(self, other: LinkedWorker, checked: SocketChecked) -> None:
        """Take the result of another worker's check of a session's socket."""
        self._liveness.worker_said(checked.session, checked.outcome)
