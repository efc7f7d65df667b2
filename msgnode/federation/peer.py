"""One peer that this worker serves: its stub in a sandbox, the queue for it, and what it sends.

What happens to a peer, and what follows, is a table (states.py). Rules
- Queued messages are passed to the stub in order, only while it is live and has a socket, because
  some stubs send what they are given while they connect after what comes later (exchange.py).
- The stub's reports set its state; its other messages are carried if the exchange admits them.
- Neither sandbox nor socket is read faster than the node can carry messages.
- One timer does whatever time itself brings: it is set for the first thing that is due.
- There are two sessions: the peer's at this node, which outlives stubs (peer_session.py), and this
  node's at the peer, which the stub opens (`SessionWatch` in states.py).
- `Link` is whatever leads to a peer: a stub (PeerLink), a socket between two nodes of this software
  (linked_peer.py), a gateway (legacy/link.py).

A sandbox ends while requests are under way:

    1  sandbox/process.py          SandboxProcess._wait
         what the stub has written is read first, unless this node has killed it
    2  federation/peer.py          PeerLink._serve_once
         its sockets are closed; the peer's session here stays, and the answers below go through it
    3  federation/exchange.py      PeerExchange.fail_asked
         requests that the stub was given are answered 503; stored ones are kept (`send_again`), or
         set aside after three attempts; updates and responses that it was given may be lost
    4  federation/queue.py         PeerQueue.put_first
         stored ones wait at the head of the queue again; another request that has waited in the
         queue for 10 s is answered 504, with the reason why the sandbox has ended
    5  federation/peer_session.py  KeptSession.say
         each answer is carried as one of the peer, and so finds who has asked, at any worker
    6  federation/states.py        TABLE
         the peer is `waiting`, and the next sandbox starts after 1 s to 5 minutes; or it is `idle`
         if its stub was not needed. The next stub opens a new session there, and subscribes again
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from msgnode.core import messages
from msgnode.core.back_off import BackOff
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import NodeError
from msgnode.core.faults import FAULTS
from msgnode.core.messages import Message
from msgnode.sandbox import pipe
from msgnode.sandbox.pipe import (
    Loaded,
    LoadFailed,
    Posted,
    RequestAborted,
    RequestWanted,
    Said,
    SocketClose,
    SocketSend,
    SocketWanted,
)
from msgnode.sandbox.process import STARTS_AT_ONCE, SandboxLimits, SandboxProcess

from .exchange import Idleness, NotCarried, PeerExchange, Store
from .held_subscriptions import HeldSubscriptions, Observed, WriterSubscriptions
from .peer_session import KeptSession, PeerSessions
from .queue import PeerQueue
from .sockets import SocketLimits, StubSockets, tls_places
from .states import (
    DISCONNECTED,
    EVENT_OF,
    GAP,
    IDLE,
    LEAVING,
    LIVE,
    LIVE_SECONDS,
    REPLACED,
    STARTING,
    STOPPED,
    TABLE,
    WAITING,
    Action,
    Event,
    SessionWatch,
    StubClock,
    StubStatus,
    read_status,
    read_status_without_id,
)
from .stub import PeerStub, load

QUEUE_MESSAGES, QUEUE_BYTES = 10_000, 16 * 1024 * 1024
"""What may wait for one peer: some seconds of its rate. For 32 peers of a worker it is 512 MiB."""
IDLE_SECONDS = 600.0
"""Without a message or a subscription: a sandbox takes memory, and its next start is quick."""
DRAIN_SECONDS = 5.0  # for responses, before another stub replaces one
_STOP_SECONDS = 2.0
_LEAST_PAUSE = 0.01
"""Seconds between two runs of the timer: what is due and cannot be done yet keeps nobody busy."""
_AFTER_FAULT = 1.0
_NOT_NEEDED = "it is not needed any more"
MAX_HELD = 1_000
"""Most frames of a peer that wait while the node is busy; a stub that sends more is ended."""


class Link(Protocol):
    """The link to one peer, be it a node or a legacy network."""

    state: str
    last_error: str
    exchange: PeerExchange
    subscriptions: HeldSubscriptions

    @property
    def peer(self) -> Named:
        """The peer."""
        ...

    @property
    def sandbox(self) -> SandboxProcess | None:
        """The sandbox of its stub, if it has one."""
        ...

    @property
    def failures_in_a_row(self) -> int:
        """Ends of the connection since it was last live for a minute."""
        ...

    def carrier(self) -> dict[str, Any]:
        """What carries the messages (`way`), and how it is, for display."""
        ...

    async def run(self) -> None:
        """Serve the peer until cancelled or stopped."""
        ...

    async def stop(self) -> None:
        """Leave the peer."""
        ...

    def hurry(self) -> None:
        """Try to connect at once."""
        ...

    def restart(self) -> None:
        """Connect anew, for an operator."""
        ...

    def abort(self) -> None:
        """Stop serving the peer at once."""
        ...


class Named(Protocol):
    """What has the domain of a peer."""

    @property
    def domain(self) -> str:
        """Of the peer."""
        ...


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """The limits of one peer; `starts` limits how many sandboxes of this worker start at a time.

    `idle_seconds`: after which a stub that is not needed stops. `live_seconds`: in which it has to
    be live (states.py).
    """

    sandbox: SandboxLimits
    sockets: SocketLimits
    queue_messages: int
    queue_bytes: int
    stored_seconds: float
    idle_seconds: float = IDLE_SECONDS
    live_seconds: float = LIVE_SECONDS
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS_AT_ONCE))

    def queue(self) -> PeerQueue:
        """Make the queue of a peer."""
        return PeerQueue(self.queue_messages, self.queue_bytes, stored_seconds=self.stored_seconds)


class PeerLink:
    """One instance per peer that this worker serves.

    Args:
        peer: the peer and its stub.
        domain: this node's domain.
        limits: the limits of the link.
        opener: opens the peer's session.
        observed: is told the results of subscriptions there.
        store: the messages stored for the peer.
    """

    def __init__(
        self,
        peer: PeerStub,
        domain: str,
        limits: LinkLimits,
        opener: PeerSessions,
        observed: Observed,
        store: Store | None = None,
    ) -> None:
        self.peer = peer
        self.state = STARTING
        self.last_error = ""
        self._session = KeptSession(opener, peer, self._outgoing, self._session_closed)
        kind = peer.kind
        at_peer = (peer.domain, peer.url_there, self._post)
        writers = WriterSubscriptions(*at_peer, kind.list_field, kind.learns)
        self.writers = writers if kind.routes_to_known_only else None
        self.exchange = PeerExchange(
            domain, peer.domain, limits.queue(), self._session.say, store=store,
            answers_all=kind.answers_all, on_send=writers.wrote if self.writers else None,
        )  # fmt: skip
        self.subscriptions = HeldSubscriptions(
            *at_peer, observed, self._look, list_field=kind.list_field
        )
        self.sandbox: SandboxProcess | None = None
        self._session.on_answer = self.exchange.answered_here
        self._held = 0  # consecutive frames of the peer that had to wait for the node
        self._idleness = Idleness(limits.idle_seconds, self.exchange, self.subscriptions)
        self._limits = limits
        self._restarts, self._reconnects = BackOff(1.0, 300.0), BackOff(0.25, 30.0)
        self._sockets: StubSockets | None = None
        self._watch = SessionWatch(self.exchange.send_again)
        self._clock = StubClock(limits.live_seconds)
        self._ended = ""  # why the last stub has, if none is live since
        self._loaded, self._may_begin = asyncio.Event(), asyncio.Event()
        self._begins_at = math.inf  # while it waits
        self._is_stopped = False
        self._task: asyncio.Task[None] | None = None
        self._parting: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = math.inf

    @property
    def failures_in_a_row(self) -> int:
        """Ends of the sandbox since it was last live for a minute."""
        return self._restarts.in_a_row

    def carrier(self) -> dict[str, Any]:
        """What carries the messages, for display."""
        return {"way": "stub"}

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the peer until cancelled or stopped."""
        self._task = asyncio.current_task()
        try:
            while not self._is_stopped:
                await self._open_session()
                await self._serve_once()
        finally:
            await self._leave()

    async def _serve_once(self) -> None:
        """Run one sandbox until its end, and rest."""
        reason = pipe.shown(await self._serve())
        if self._session.has_ended:  # the answers below go through it
            await self._open_session()
        self.exchange.fail_asked(f"The stub of {self.peer.domain} ended: {reason}.")
        self._happens(Event.ENDED, reason)
        self._look()
        await self._rest()

    async def stop(self) -> None:
        """Disconnect from the peer, and stop serving it."""
        self._is_stopped = True
        self._release_writers()
        self._happens(Event.IS_LEFT)
        await self._say_good_bye()
        self.abort()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_STOP_SECONDS)

    def hurry(self) -> None:
        """Try to connect at once, ignoring the back-offs."""
        self._restarts.reset()
        self._reconnects.reset()
        self._clock.hurry()
        if self._sockets is not None:
            self._sockets.hurry()
        self._happens(Event.MAY_BEGIN)
        self._look()

    def restart(self) -> None:
        """End the sandbox; the next one starts within a second."""
        self.hurry()
        self._kill("an operator had it begin anew")

    async def replace(self, stub: PeerStub) -> None:
        """Replace the stub: queued messages stay, what the old one was given gets more time."""
        self.peer, is_live = stub, self.state == LIVE
        self._happens(Event.IS_REPLACED)
        await self._take_leave(is_live)
        self.hurry()
        self._kill("another stub takes its place")

    async def _take_leave(self, is_live: bool) -> None:
        """Wait for what the stub still owes, and have it close its session."""
        if is_live:
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await self.exchange.answered()
        await self._say_good_bye()

    def abort(self) -> None:
        """Stop serving the peer at once, without disconnecting."""
        self._is_stopped = True
        self._kill(_NOT_NEEDED)
        if self._task is not None:
            self._task.cancel()

    async def _open_session(self) -> None:
        """Ensure that the peer has a session here."""
        while not self._is_stopped:
            try:
                await self._session.open()
            except NodeError as error:
                refused = f"its session was refused: {error.description}"
                self._happens(Event.SESSION_REFUSED, refused)
                self._look()
                await self._rest()
            else:
                return

    async def _serve(self) -> str:
        """Run one sandbox until its end; return why it ended."""
        self._happens(Event.BEGINS)
        self._loaded.clear()
        sandbox = self.sandbox = SandboxProcess(self._limits.sandbox, self._said)
        places = tls_places(self.peer.configuration)
        sockets = self._sockets = StubSockets(
            replace(self._limits.sockets, tls_places=places),
            self._reconnects,
            sandbox.send,
            self._ready,
            self._watch,
            on_change=self._look,
        )
        try:
            async with self._limits.starts:
                ended = await load(sandbox, self.peer, self._loaded)
            if self.state == REPLACED:  # while it started, and nothing could be killed
                sandbox.kill("it was replaced while it started")
            sandbox.send(pipe.connect())
            self._clock.begin()
            self.exchange.moved()
            self._session_closed()
            self._look()
            return await ended
        except OSError as error:
            return str(error) or type(error).__name__
        finally:
            sandbox.kill(_NOT_NEEDED)
            await sockets.end()

    async def _rest(self) -> None:
        """Wait until a sandbox is to start; the session stays, because messages for it come."""
        while self.state in (WAITING, IDLE) and not self._is_stopped:
            await self._may_begin.wait()
            self._may_begin.clear()
            if self.state == IDLE and self._session.has_ended:
                await self._open_session()

    async def _part(self) -> None:
        """End the stub, which nobody needs any more."""
        await self._say_good_bye()
        self._kill(_NOT_NEEDED)

    async def _say_good_bye(self) -> None:
        """Have the stub close its session at the peer, within a time limit."""
        if self.sandbox is not None and self.sandbox.is_running and self._sockets is not None:
            self.sandbox.send(pipe.disconnect())
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._sockets.closed()

    def _release_writers(self) -> None:
        if self.writers is not None and self.state == LIVE:
            self.writers.release()

    def _kill(self, why: str) -> None:
        if self.sandbox is not None and self.sandbox.pid:
            self.sandbox.kill(why)

    async def _leave(self) -> None:
        self.state = STOPPED
        self._kill(_NOT_NEEDED)
        for task in (self._parting, self._reading):
            if task is not None:
                task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self.exchange.fail_all(f"The node of {self.peer.domain} is not served at the moment.")
        await self._session.close()

    # --- what happens to it -----------------------------------------------------------------------

    def _happens(self, event: Event, why: str = "") -> None:
        """Change its state, and do what follows, as the table says."""
        transition = TABLE[self.state].get(event)
        if transition is None:
            return
        before, (self.state, action) = self.state, transition
        if why:
            self.last_error = pipe.shown(why)
        if self.state != before:
            if self.state == DISCONNECTED:
                self._clock.tried()
            elif self.state == LIVE:
                self.last_error = self._ended = ""  # it was mended
                self._restarts.succeeded()
        match action:
            case Action.CONNECT:
                self._clock.tried()
                if self.sandbox is not None:
                    self.sandbox.send(pipe.connect())
            case Action.SERVE:
                self._begin_at_peer()
            case Action.END:
                self._kill(why)
            case Action.PART:
                if before == LIVE and self.writers is not None:
                    self.writers.release()
                self._parting = asyncio.create_task(self._part())
            case Action.PAUSE:
                if event is Event.ENDED:
                    self.exchange.counters.restarts += 1
                    self._ended = self.last_error
                self._begins_at = time.monotonic() + self._restarts.failed()
            case Action.BEGIN:
                self._may_begin.set()

    def _begin_at_peer(self) -> None:
        """Subscribe there again if the session there is new."""
        if self._watch.is_new:
            self._watch.is_new = False
            self.exchange.fail_asked(f"The session at {self.peer.domain} began anew.")
            if self.writers is not None:
                self.writers.renew()
            self.subscriptions.renew()

    def _session_closed(self) -> None:
        if self._session.has_ended:
            self._happens(Event.SESSION_ENDED, "its session here has ended")

    def _look(self) -> None:
        """Do what is due, and set the timer for what is due next.

        Call this whenever something has changed but for what waits.
        """
        now = time.monotonic()
        self.exchange.expire(self._ended)
        if self._watch.has_ended:
            self._watch.has_ended = False
            self.exchange.fail_asked(f"The node of {self.peer.domain} has ended.")
        if (sockets := self._sockets) is not None:
            counters = self.exchange.counters
            counters.lost, sockets.lost = counters.lost + sockets.lost, 0
        for event, at in self._moments().items():
            if at <= now:
                self._happens_in_time(event)
        if self._is_passable:
            self.subscriptions.pump()
            if self.writers is not None:
                self.writers.sweep()
        self._pump()
        self._set_timer()

    def _happens_in_time(self, event: Event) -> None:
        """Let happen what time has brought."""
        if event is Event.IS_UNUSED and not self._idleness.is_over():
            return  # somebody needs it still
        why = ""
        if event is Event.IS_LATE:
            why = f"it was not live within {self._clock.seconds:g} s"
        elif event is Event.HAS_NO_SOCKET and self._sockets is not None:
            why = self._sockets.last_error or "it has no socket"
        self._happens(event, why)

    def _moments(self) -> dict[Event, float]:
        """When time itself makes something happen to the peer."""
        if self.state == WAITING:
            return {Event.MAY_BEGIN: self._begins_at}
        sandbox, sockets = self.sandbox, self._sockets
        is_there = sandbox is not None and sandbox.is_running and self._loaded.is_set()
        if not is_there or sockets is None or self.state in (LEAVING, REPLACED, IDLE):
            return {}
        moments = self._clock.moments(self.state, sockets.count, sockets.is_open)
        return {**moments, Event.IS_UNUSED: self._idleness.until}

    def _set_timer(self) -> None:
        due = [self.exchange.due, *self._moments().values()]
        if self._sockets is not None:
            due.append(self._sockets.due)
        if self._is_passable:
            due.append(self.subscriptions.due)
            if self.writers is not None:
                due.append(self.writers.due)
        self._looks_at = min(due)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._looks_at < math.inf and self.state != STOPPED:
            loop = asyncio.get_running_loop()
            after = max(_LEAST_PAUSE, self._looks_at - time.monotonic())
            self._timer = loop.call_later(after, self._look_in_time)

    def _look_in_time(self) -> None:
        """What the timer calls: a fault in it ends the stub, and is no reason to look no more."""
        try:
            self._look()
        except Exception as error:
            FAULTS.note("peer", error)
            self._kill("the node failed at it")
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_AFTER_FAULT, self._look_in_time)

    # --- to the peer ------------------------------------------------------------------------------

    def _outgoing(self, frame: bytes) -> None:
        """Process a frame for the peer's session."""
        try:
            message = messages.parse_unmarked(frame)
        except InvalidFrame:
            return
        if message.recipients[0].startswith(self.peer.stub_url):
            self._told(message)
            return
        if message.type == "unsubscribe":
            if (kept := self.subscriptions.kept(message)) is None:
                self._session.say(messages.reply(message, {"code": 200}))
                return
            message = kept
        self._pass_on(message)
        if self.exchange.due < self._looks_at:
            self._set_timer()

    def _told(self, message: Message) -> None:
        """Process what the node says to the session."""

    def _pass_on(self, message: Message) -> None:
        self.exchange.put(message)
        self._pump()

    @property
    def _is_passable(self) -> bool:
        """Whether the stub, and the peer behind it, accept messages now."""
        sandbox, sockets = self.sandbox, self._sockets
        if self.state != LIVE or sandbox is None or sockets is None or not sandbox.is_running:
            return False
        return sockets.is_open and not sandbox.is_full

    def _pump(self) -> None:
        """Pass queued messages to the stub, as far as it and the peer accept them."""
        if self.state == IDLE and self._idleness.is_needed:
            self._happens(Event.IS_NEEDED)
        sandbox, sockets = self.sandbox, self._sockets
        if sandbox is None or sockets is None:
            return
        if self._is_passable:
            while not sandbox.is_full and not sockets.is_full:
                frame = self.exchange.take()
                if frame is None:
                    return
                sandbox.send(pipe.post(frame))
        if sandbox.is_full and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._look_once_read(sandbox))

    async def _look_once_read(self, sandbox: SandboxProcess) -> None:
        await sandbox.has_read()
        self._look()

    def _post(self, frame: bytes) -> None:
        if self.sandbox is not None:
            self.sandbox.send(pipe.post(frame))

    # --- from the stub ----------------------------------------------------------------------------

    async def _ready(self) -> None:
        """Wait until both the node and the stub accept more of the peer."""
        if self.sandbox is not None and self.sandbox.is_full:
            await self.sandbox.has_read()
        await self._session.ready()

    def _said(self, said: Said) -> None:
        sockets = self._sockets
        match said:
            case Loaded():
                self._loaded.set()
            case LoadFailed(error=error):
                self._kill(f"it cannot be loaded: {error}")
            case SocketWanted() if sockets is not None:
                sockets.want(said)
            case SocketSend() if sockets is not None:
                sockets.send(said)
            case SocketClose() if sockets is not None:
                sockets.close(said)
            case RequestWanted() if sockets is not None:
                sockets.request(said)
            case RequestAborted(http=number) if sockets is not None:
                sockets.requests.abort(number)
            case Posted(message=text):
                self._posted(bytes(text))

    def _posted(self, text: bytes) -> None:
        """Process what the stub posts: a status, a response to a subscription, or a message."""
        try:
            message = messages.parse(text)
        except InvalidFrame as error:
            status = read_status_without_id(text, f"{self.peer.stub_url}/status")
            if status is None:
                self._refused(f"what it posted is no message: {error.description}")
            else:
                self._status(status)
            return
        if (status := read_status(message, f"{self.peer.stub_url}/status")) is not None:
            self._status(status)
            return
        if self.subscriptions.take(message) or (self.writers and self.writers.take(message)):
            self.exchange.moved()
            self._set_timer()
            return
        of_peer = read_status(message, f"{self.peer.url_there}/status")
        if of_peer is not None:
            if of_peer.value == GAP:
                self.subscriptions.suspect()
                self._look()
            return
        self._held = self._held + 1 if self._session.is_held_back else 0
        if self._held > MAX_HELD:
            self._kill("it says more than the node can carry")
            return
        self._taken_in(message)

    def _taken_in(self, message: Message, is_trusted: bool = False) -> str:
        """Carry a message of the peer, trusted to say whose it is or not; return why not, or ""."""
        try:
            passed = self.exchange.taken_in(message, is_trusted)
        except NotCarried as refusal:
            self._refused(str(refusal))
            return str(refusal)
        self._session.say(passed.frame, passed)
        if message.is_response and self.exchange.queue:  # what has waited for it may pass
            self._pump()
        return ""

    def _refused(self, why: str) -> None:
        self.exchange.refused_here(why)
        self.last_error = pipe.shown(f"refused: {why}")

    def _status(self, status: StubStatus) -> None:
        """Process a status report of the stub."""
        value, text = status
        event = EVENT_OF.get(value)
        if value == GAP:
            self.subscriptions.suspect()
        elif event is Event.GAVE_UP:
            self._happens(event, f"it gave up: {text or 'it did not say why'}")
        elif event is Event.IS_DISCONNECTED:
            sockets = self._sockets
            lost = "" if sockets is None or sockets.is_open else sockets.last_error
            self._happens(event, text or lost)
            if not self.peer.kind.stub_comes_back:
                why = f"it was disconnected: {text or lost or 'it did not say why'}"
                self._happens(Event.GAVE_UP, why)
        elif event is not None:
            self._happens(event)
        self._look()
