"""Hands sessions over to another worker, with all they hold and their queue.

A runtime may reconnect to any worker; its session then moves there:

    receiver                              giver                             others that send there
    asks who has it (homes.py)     ->     answers, and announces every change from now on
    RequestSession                 ->     closes the socket (4409), waits for its writes
                                   <-     TransferBegin, then its queue as frames
    (acknowledges these)           ->     makes it a remote session; SessionMoved   ->   send to the
                                          BarrierRequest                            ->   receiver
                                          passes on what was under way             <-   BarrierAck
                                   <-     TransferEnd
    appends what has waited, answers the runtime 200, then the queue, then a gap if there is one

From the runtime's frame to its answer, while others send to it:

    1  sessions/handshake.py       SessionHandshake._reopen
         finds the session by its token, after asking the other workers if it is not known here. The
         frame waits (Pending) for that, and again while `SessionLocator.here` has it brought
    2  workers/homes.py            Homes.find_runtime
         asks the workers at which the directory has sessions of the runtime
    3  workers/handover.py         Handover.fetch, _give, _arrives, _ends
         as drawn above: `fetch`, `_arrives` and `_ends` at the receiver, `_give` at the giver
    4  workers/moving_sessions.py  MovingSessions.quiet, pack, make_remote, unpack, welcome
         what the other packages have of it: addresses, subscriptions, requests, row. From `quiet`
         on, frames for it are queued at the giver; from `make_remote` on, they are passed on
    5  workers/remote_sessions.py  RemoteSession.deliver, forward
         the session in the table of a worker that sends to it; `Handover._moved` changes its worker
    6  sessions/manager.py         SessionManager.release, adopt, resume, stored
         its states: leaving at the giver; arriving, detached, resuming and open at the receiver

Rules
- `TransferBegin` carries the state; the queue follows as frames. Then the giver replaces its
  session by a remote one, tells the workers that know of the session (`SessionMoved`), waits until
  they have processed that, and sends `TransferEnd`.
- That they have processed it is told by `BarrierAck`, which arrives behind all that they had put on
  the link to the giver (protocol.py). So the giver then has every frame that was sent to it, and
  passed it on; an acknowledgement beside the link could arrive before some of them.
- Frames that reach the giver before that are sent behind the queue. Frames that others send to the
  receiver itself wait there until `TransferEnd`. So no frame of a sender overtakes another.
- A giver that is gone for good loses the session: it is restored from the database, with a gap. One
  that is only slow keeps it, and the runtime is answered 503.
- The giver keeps the session until the receiver has acknowledged its state and queue. If the link
  breaks before that, the giver keeps it, with a gap; if it breaks later, the receiver has what has
  arrived, with a gap. If both have it then, replication.py decides as soon as they meet again.
- The giver writes into the session's row whose it is, before the receiver may use it. Else it would
  be nobody's if the receiver ended before it had written so itself.
- A frame for a session that is no longer here is answered, and its sender's worker is told that the
  session is gone. A session that lags pauses the senders of all workers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Protocol

from msgnode.bus.ports import DeliveryResult, Listener, Response
from msgnode.bus.return_paths import ReturnPaths
from msgnode.bus.table import RoutingTable
from msgnode.core.faults import FAULTS

from .announcements import Announcements
from .failover import Failover
from .linked_worker import LinkedWorker
from .moving_sessions import MovingSessions
from .ports import ArrivalTracer, LocalSessions
from .protocol import (
    AnyFrame,
    Backpressure,
    Goodbye,
    LinkMessage,
    LostFrames,
    PlainFrame,
    RequestFrame,
    RequestRefused,
    RequestSession,
    ResponseFrame,
    SessionDown,
    SessionMoved,
    TransferBegin,
    TransferEnd,
)
from .remote_sessions import RemoteSessions, path_of
from .transport import LinkTransport

log = logging.getLogger(__name__)

_TRY_AGAIN = 0.1  # seconds until it is asked again whether a worker's sessions may be taken
_LOOK_INTERVAL = 0.05  # seconds between two looks whether one takes sessions, or all have arrived
MAX_CONCURRENT = 64
"""Sessions that are given to one worker at a time, so that a frozen one keeps no more of them."""


class MovableSession(Protocol):
    """A session that is arriving at this worker; its `deliver` can be replaced."""

    id: str
    deliver: Callable[[bytes], DeliveryResult]


class _IncomingSession:
    """A session that is moving here. `early` are frames from others than the giver, in order."""

    def __init__(self, session: MovableSession, giver: LinkedWorker, limit: int) -> None:
        self.session = session
        self.giver = giver
        self.put = session.deliver
        self.early: list[bytes] = []
        self.has_gap = False
        self._room = limit

    def hold(self, frame: bytes) -> DeliveryResult:
        self._room -= len(frame)
        if self._room < 0:
            self.has_gap = True
            return DeliveryResult.DROPPED
        self.early.append(frame)
        return DeliveryResult.QUEUED


class Handover:
    """One instance per worker."""

    def __init__(
        self,
        transport: LinkTransport,
        remotes: RemoteSessions,
        announcements: Announcements,
        leaving: set[str],
        moving: MovingSessions,
        failover: Failover,
        limit: int,
        return_paths: ReturnPaths,
    ) -> None:
        self._transport = transport
        self._remotes = remotes
        self._announcements = announcements
        self._moving = moving
        self._failover = failover
        self._seconds = transport.timeout
        self._limit = limit
        self._return_paths = return_paths
        self._arrivals: dict[str, _IncomingSession] = {}
        self._leaving = leaving
        self._wanted: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        transport.on_down.append(self.link_broke)
        transport.handlers.update(self._hear())

    # --- receiving --------------------------------------------------------------------------------

    async def fetch(self, session_id: str) -> None:
        """Fetch a session from another worker; return without it after twice the time limit.

        One that is leaving for another worker is fetched from there.
        """
        limit = monotonic() + 2 * self._seconds
        while (
            session_id in self._remotes.by_id
            or session_id in self._arrivals
            or session_id in self._leaving
        ):
            if monotonic() > limit:
                log.warning("A session could not be brought here.")
                return
            remote = self._remotes.by_id.get(session_id)
            wanted = self._wanted.setdefault(session_id, asyncio.get_running_loop().create_future())
            is_settled = session_id not in self._arrivals and session_id not in self._leaving
            if remote is not None and is_settled:
                if not remote.worker.is_up or self._failover.has_died(remote.worker):
                    self._wanted.pop(session_id, None)
                    await self._failover.take_over([], [session_id])
                    await asyncio.sleep(_TRY_AGAIN)
                    continue
                remote.worker.out.put(RequestSession(session_id))
            done, _ = await asyncio.wait([wanted], timeout=self._seconds)
            if not done:
                self._wanted.pop(session_id, None)
                await self._failover.take_over([], [session_id])

    def is_moving(self, session_id: str) -> bool:
        """Whether a session is on its way to this worker, or to another one that may have it.

        Not if it has left and the giver waits for that to be acknowledged: what its new worker says
        of it is not said again.
        """
        is_leaving = session_id in self._leaving and self._moving.is_here(session_id)
        return is_leaving or session_id in self._arrivals

    def take(self, other: LinkedWorker, session_id: str, message: AnyFrame) -> bool:
        """Handle a frame for a session that is not here; return whether it was accepted."""
        arrival = self._arrivals.get(session_id)
        if arrival is not None:
            (arrival.put if other is arrival.giver else arrival.hold)(message.frame)
            return True
        remote = self._remotes.by_id.get(session_id)
        if remote is None:
            return False
        remote.forward(message)  # maybe to the very worker that sent it
        return True

    def missed(self, session_id: str) -> bool:
        """Note that a session misses frames, which another worker says has lost them.

        Returns:
            Whether the session is on its way to this worker, or has moved on, whose worker is told:
            maybe the very one that lost them.
        """
        arrival = self._arrivals.get(session_id)
        remote = self._remotes.by_id.get(session_id)
        if arrival is not None:
            arrival.has_gap = True
        elif remote is not None:
            remote.missed()
        return arrival is not None or remote is not None

    def take_response(
        self, other: LinkedWorker, session_id: str, frame: bytes, response: Response
    ) -> None:
        """Handle a response for a session that is not here."""
        arrival = self._arrivals.get(session_id)
        remote = self._remotes.by_id.get(session_id)
        if arrival is not None and self._moving.has_asked(arrival.session, response):
            (arrival.put if other is arrival.giver else arrival.hold)(frame)
        elif arrival is None and remote is not None:
            remote.deliver_response(frame, response)

    def _hear(self) -> dict[type[LinkMessage], Callable[[LinkedWorker, Any], None]]:
        """The handlers of messages from other workers, by type."""
        return {
            RequestSession: lambda other, asked: self._start(self._give(asked.session, other)),
            RequestRefused: lambda other, refused: self._settle(refused.session),
            TransferBegin: self._arrives,
            TransferEnd: self._ends,
            SessionMoved: self._moved,
            Goodbye: lambda other, _: self._failover.left(other),
        }

    def _arrives(self, other: LinkedWorker, message: TransferBegin) -> None:
        session_id = message.session
        self._announcements.taken_in(session_id, {*message.told, other.epoch})
        remote = self._remotes.by_id.pop(session_id, None)
        session = self._moving.unpack(message.state, remote)
        arrival = self._arrivals[session_id] = _IncomingSession(session, other, self._limit)
        session.deliver = arrival.hold

    def _ends(self, other: LinkedWorker, message: TransferEnd) -> None:
        for path in message.return_paths:
            self._return_paths.remember(path, message.session)
        self._has_arrived(message.session)
        if message.has_ended:
            self._moving.end_arrived(message.session)

    def _has_arrived(self, session_id: str) -> None:
        arrival = self._arrivals.pop(session_id, None)
        if arrival is None:
            return
        session = arrival.session
        session.deliver = arrival.put
        for frame in arrival.early:
            session.deliver(frame)
        self._moving.welcome(session)
        if arrival.has_gap or not arrival.giver.is_up:
            self._moving.missed(session_id)
        self._settle(session_id)

    def _moved(self, other: LinkedWorker, message: SessionMoved) -> None:
        to = self._transport.others.get(message.epoch)
        for id_ in message.sessions:
            remote = self._remotes.by_id.get(id_)
            if remote is not None and remote.worker is other and to is not None:
                remote.worker = to

    def _settle(self, session_id: str) -> None:
        wanted = self._wanted.pop(session_id, None)
        if wanted is not None and not wanted.done():
            wanted.set_result(None)

    def link_broke(self, other: LinkedWorker) -> None:
        """Take what has come of a worker's sessions as all there is; what we were giving stays."""
        for id_, arrival in tuple(self._arrivals.items()):
            if arrival.giver is other:
                with FAULTS.kept_to("session"):
                    self._has_arrived(id_)

    # --- giving -----------------------------------------------------------------------------------

    async def give_all(self, session_ids: Callable[[], list[str]], seconds: float) -> None:
        """Hand sessions, and those that arrive meanwhile, to who takes some, in `seconds`."""

        async def give_to(other: LinkedWorker, waiting: deque[str]) -> None:
            while waiting and other.is_up and other.takes:
                with FAULTS.kept_to("session"):
                    await self._give(waiting.popleft(), other)

        try:
            async with asyncio.timeout(seconds):
                while True:
                    waiting = deque(id_ for id_ in session_ids() if id_ not in self._leaving)
                    while waiting and (takers := await self._takers()):
                        jobs = (give_to(other, waiting) for other in takers * MAX_CONCURRENT)
                        await asyncio.gather(*jobs)
                    if not self._arrivals:
                        break
                    await asyncio.sleep(_LOOK_INTERVAL)
                while self._leaving:  # for runtimes that have already connected to another worker
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            log.warning("Not all sessions could be given to other workers in time.")

    async def _takers(self) -> list[LinkedWorker]:
        """The other workers that accept sessions; if there are none but one starts, wait for it."""
        while True:
            up = [other for other in self._transport.others.values() if other.is_up]
            takers = [other for other in up if other.takes]
            if takers or not any(other.is_starting for other in up):
                return takers
            await asyncio.sleep(_LOOK_INTERVAL)

    async def _give(self, session_id: str, other: LinkedWorker) -> None:
        if session_id in self._leaving or not self._moving.is_here(session_id):
            other.out.put(RequestRefused(session_id))
            return
        self._leaving.add(session_id)
        try:
            await self._moving.quiet(session_id, self._seconds / 2)
            await self._send(session_id, other)
        finally:
            self._leaving.discard(session_id)
            self._settle(session_id)

    async def _send(self, session_id: str, other: LinkedWorker) -> None:
        """Send a session that is quiet, with what waits for it."""
        had_gap = self._moving.has_gap(session_id)
        state = self._moving.pack(session_id)
        if state is None:
            other.out.put(RequestRefused(session_id))
            return
        if not other.is_up or not await self._send_all(session_id, other, state):
            self._leaving.discard(session_id)
            if other.is_up:  # what it has of the session is all that will come
                other.out.put(TransferEnd(session_id, []))
                other.out.put(LostFrames([session_id]))
            self._moving.keep(session_id, other)
            return
        if not self._moving.is_here(session_id):
            other.out.put(TransferEnd(session_id, [], has_ended=True))
            return
        has_missed = self._moving.has_gap(session_id) and not had_gap  # since its state was sent
        told = self._moving.make_remote(session_id, other)
        moved = SessionMoved([session_id], other.epoch)
        self._transport.tell_some(told, moved)
        settled = self._transport.heard()
        if settled is not None:
            await settled  # and what those sent here before they knew has come
        if other.is_up:
            paths = self._return_paths.of(session_id)
            other.out.put(TransferEnd(session_id, paths), 256 * len(paths))
            if has_missed:
                other.out.put(LostFrames([session_id]))
        if (arrived := self._transport.done_by(other.epoch)) is not None:
            await arrived  # until then who looks for the session may ask here

    async def _send_all(self, session_id: str, other: LinkedWorker, state: bytes) -> bool:
        """Send a session and what waits for it; what comes later goes behind that.

        Returns:
            Whether the receiver has the session; not if the link broke.
        """
        stream = other.out.stream
        told = [*self._announcements.told_of(session_id)]
        other.out.put(TransferBegin(session_id, state, told), len(state) + 40 * len(told))
        if not await self._send_queue(session_id, other, stream):
            return False
        if (has_come := self._transport.done_by(other.epoch)) is not None:
            await has_come
        if other.out.stream != stream:
            return False
        await self._moving.store_left(session_id, other, self._seconds / 2)
        return await self._send_queue(session_id, other, stream)

    async def _send_queue(self, session_id: str, other: LinkedWorker, stream: int) -> bool:
        """Send what waits for a session now; False if the link broke, or has no room."""
        while (frame := self._moving.next_frame(session_id)) is not None:
            await other.room()
            if other.out.stream != stream or not other.out.put_frame(session_id, frame):
                return False
        return other.out.stream == stream

    def _start(self, job: Any) -> None:
        task = asyncio.ensure_future(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


# --- frames from other workers --------------------------------------------------------------------
class ArrivingFrames:
    """One instance per worker."""

    def __init__(
        self,
        table: RoutingTable,
        transport: LinkTransport,
        local: LocalSessions,
        moves: Handover,
    ) -> None:
        self._tracer: ArrivalTracer | None = None
        self._table = table
        self._transport = transport
        self._local = local
        self._moves = moves
        self._behind: set[str] = set()
        transport.on_down.append(lambda other: self._behind.clear())  # it is told again
        transport.handlers.update(self._hear())

    def _hear(self) -> dict[type[LinkMessage], Callable[[LinkedWorker, Any], None]]:
        """The handlers of messages from other workers, by type."""
        return {
            PlainFrame: self._take,
            ResponseFrame: self._take,
            RequestFrame: self._take,
            LostFrames: self._lost,
        }

    def watch(self, tracer: ArrivalTracer) -> None:
        """Set the observer of frames that another worker traces."""
        self._tracer = tracer

    def _take(self, other: LinkedWorker, message: AnyFrame) -> None:
        """Deliver a frame for sessions of this worker."""
        if isinstance(message, RequestFrame):
            answerer = message.sessions[0] if len(message.sessions) == 1 else ""
            self._table.return_paths.remember(path_of(message), answerer)
        for id_ in message.sessions:
            session = self._local.sessions.get(id_) or self._own_probe(id_)
            try:
                self._hand(id_, session, other, message)
            except Exception as error:
                FAULTS.note("listener", error)
                if session is not None:
                    session.missed()

    def _lost(self, other: LinkedWorker, message: LostFrames) -> None:
        for id_ in message.sessions:
            with FAULTS.kept_to("session"):
                if id_ in self._local.sessions or not self._moves.missed(id_):
                    self._local.missed(id_)

    def _own_probe(self, id_: str) -> Listener | None:
        for probe in self._table.probes.values():
            if probe.is_here and probe.id == id_:
                return probe
        return None

    def _hand(
        self, id_: str, session: Listener | None, other: LinkedWorker, message: AnyFrame
    ) -> None:
        if isinstance(message, ResponseFrame):
            response = Response(message.to, message.id, message.responder)
            if session is None:
                self._moves.take_response(other, id_, message.frame, response)
                return
            taken = self._local.respond(session, message.frame, response)
        elif session is None:
            if not self._moves.take(other, id_, message):
                other.out.put(SessionDown(id_))
                if len(message.sessions) == 1:
                    self._local.undeliverable(message.frame)
            return
        else:
            taken = session.deliver(message.frame)
        if message.trace and self._tracer is not None:
            self._tracer.arrived(message.trace, message.frame, session, taken, other.name)
        if taken is DeliveryResult.BEHIND and id_ not in self._behind:
            self._behind.add(id_)
            self._transport.tell(Backpressure(id_, True))
            session.when_writable(partial(self._caught_up, id_))

    def _caught_up(self, id_: str) -> None:
        self._behind.discard(id_)
        self._transport.tell(Backpressure(id_, False))
