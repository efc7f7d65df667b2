"""The link to one peer: its stub in a sandbox, the queue for it, and what it sends.

    starting -> connecting -> live <-> disconnected      (as reported by the stub)
    any -> waiting -> starting                           (the sandbox has ended: back-off)
    any -> idle -> starting                              (not needed; needed again)

Rules
- Queued messages are passed to the stub in order, only while it is live and has a socket, because
  some stubs send what they are given while they connect after what comes later (exchange.py).
- The stub's reports set its state; its other messages are carried if the exchange admits them.
- Neither sandbox nor socket is read faster than the node can carry messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from msgnode.core import messages
from msgnode.core.back_off import BackOff
from msgnode.core.envelope import InvalidFrame
from msgnode.core.errors import NodeError

from . import pipe
from .exchange import PeerExchange, Refused, Store
from .held_subscriptions import HeldSubscriptions, Observed, WriterSubscriptions
from .kinds import KINDS, UNKNOWN, PeerKind
from .peer_session import KeptSession, Opener
from .pipe import (
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
from .queue import PeerQueue
from .sandbox import Sandbox, SandboxLimits, SandboxProcess
from .sockets import SocketLimits, StubSockets, tls_places
from .states import (
    DISCONNECTED,
    GAP,
    IDLE,
    LIVE,
    LIVE_SECONDS,
    STARTING,
    STATE_OF,
    STOPPED,
    WAITING,
    SessionWatch,
    StubProgress,
    StubStatus,
    read_status,
    read_status_without_id,
)

DRAIN_SECONDS = 5.0  # for responses, before another stub replaces one
_TICK, _STOP_SECONDS = 0.25, 2.0
_NOT_NEEDED = "it is not needed any more"
MAX_HELD = 1_000
"""Most frames of a peer that wait while the node is busy; a stub that sends more is ended."""
_LOOKS_EVERY = 1.0  # seconds between two checks of what an idle peer has here


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
        opener: Opener,
        observed: Observed,
        store: Store | None = None,
    ) -> None:
        self.peer = peer
        self.state = STARTING
        self.last_error = ""
        self._session = KeptSession(opener, peer.domain, peer.stub_url, self._outgoing)
        kind = peer.kind
        at_peer = (peer.domain, peer.runtime_url, self._post)
        writers = WriterSubscriptions(*at_peer, kind.list_field)
        self.writers = writers if kind.routes_to_known_only else None
        self.exchange = PeerExchange(
            domain, peer.domain, limits.queue(), self._session.say, store=store,
            answers_all=kind.answers_all, on_send=writers.wrote if self.writers else None,
        )  # fmt: skip
        self.subscriptions = HeldSubscriptions(
            *at_peer, observed, self._pump, list_field=kind.list_field
        )
        self.sandbox: SandboxProcess | None = None
        self._session.on_answer.append(self.exchange.answered_here)
        self._held = 0  # consecutive frames of the peer that had to wait for the node
        self._idleness = Idleness(limits.idle_seconds, self.exchange, self.subscriptions)
        self._limits = limits
        self._restarts, self._reconnects = BackOff(1.0, 300.0), BackOff(0.25, 30.0)
        self._sockets: StubSockets | None = None
        self._watch = SessionWatch(self.exchange.send_again)
        self._progress = StubProgress(limits.live_seconds)
        self._loaded, self._hurries = asyncio.Event(), asyncio.Event()
        self._is_leaving = self._is_stopped = False  # temporarily; for good
        self._task: asyncio.Task[None] | None = None

    @property
    def failures_in_a_row(self) -> int:
        """Ends of the sandbox since it was last live for a minute."""
        return self._restarts.in_a_row

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the peer until cancelled or stopped."""
        self._task = asyncio.current_task()
        try:
            while not self._is_stopped:
                await self._open_session()
                reason = pipe.shown(await self._serve())
                if self._session.has_ended:  # the answers below go through it
                    await self._open_session()
                self.exchange.fail_asked(f"The stub of {self.peer.domain} ended: {reason}.")
                if self._is_leaving and not self._is_stopped:
                    await self._idle()
                    continue
                self.exchange.counters.restarts += 1
                self._progress.ended = reason
                self._enter(WAITING, reason)
                await self._wait(self._restarts.failed())
        finally:
            await self._leave()

    async def stop(self) -> None:
        """Disconnect from the peer, and stop serving it."""
        self._is_stopped = True
        self._release_writers()
        await self._say_good_bye()
        self.abort()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_STOP_SECONDS)

    def hurry(self) -> None:
        """Try to connect at once, ignoring the back-offs."""
        self._restarts.reset()
        self._reconnects.reset()
        self._progress.hurry()
        self._hurries.set()
        if self._sockets is not None:
            self._sockets.hurry()

    def restart(self) -> None:
        """End the sandbox; the next one starts within a second."""
        self.hurry()
        self._kill("an operator had it begin anew")

    async def replace(self, stub: PeerStub) -> None:
        """Replace the stub: queued messages stay, pending requests get some more time."""
        self.peer, self._is_leaving = stub, self.state == LIVE
        until = time.monotonic() + DRAIN_SECONDS
        while self._is_leaving and self.exchange.has_asked and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(_TICK)
        await self._say_good_bye()
        self._is_leaving = False
        self.hurry()
        self._kill("another stub takes its place")

    def abort(self) -> None:
        """Stop serving the peer at once, without disconnecting."""
        self._is_stopped = True
        self._kill(_NOT_NEEDED)
        if self._task is not None:
            self._task.cancel()

    async def _open_session(self) -> None:
        """Ensure that the peer has a session here."""
        while True:
            try:
                return await self._session.open()
            except NodeError as error:
                self._enter(WAITING, f"its session was refused: {error.description}")
                await self._wait(self._restarts.failed())

    async def _serve(self) -> str:
        """Run one sandbox until its end; return why it ended."""
        self._is_leaving = False
        self._enter(STARTING)
        self._loaded.clear()
        self._idleness.begin()
        sandbox = self.sandbox = SandboxProcess(self._limits.sandbox, self._said)
        places = tls_places(self.peer.configuration)
        sockets = self._sockets = StubSockets(
            replace(self._limits.sockets, tls_places=places),
            self._reconnects,
            sandbox.send,
            self._ready,
            self._watch,
        )
        try:
            async with self._limits.starts:
                ended = await load(sandbox, self.peer, self._loaded)
            sandbox.send(pipe.connect())
            self._progress.begin()
            while not ended.done():
                await asyncio.wait({ended}, timeout=_TICK)
                self._tick(sandbox, sockets)
                if self._loaded.is_set() and self._idleness.is_over():
                    self._release_writers()
                    await self._say_good_bye()
                    sandbox.kill(_NOT_NEEDED)
            return await ended
        except OSError as error:
            return str(error) or type(error).__name__
        finally:
            sandbox.kill(_NOT_NEEDED)
            await sockets.end()

    async def _say_good_bye(self) -> None:
        """Have the stub close its session at the peer, within a time limit."""
        self._is_leaving = True
        if self.sandbox is not None and self.sandbox.is_running and self._sockets is not None:
            self.sandbox.send(pipe.disconnect())
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._sockets.closed()

    def _release_writers(self) -> None:
        if self.writers is not None and self.state == LIVE:
            self.writers.release()

    async def _idle(self) -> None:
        """Wait until the peer is needed; its session stays, because messages for it come there."""
        self._enter(IDLE)
        self._hurries.clear()
        while not (self._idleness.is_needed or self._is_stopped):
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOKS_EVERY):
                    await self._hurries.wait()
                    return
            await self._open_session()
            self._enter(IDLE)

    def _kill(self, why: str) -> None:
        if self.sandbox is not None:
            self.sandbox.kill(why)

    async def _leave(self) -> None:
        self._enter(STOPPED)
        self._kill(_NOT_NEEDED)
        self.exchange.fail_all(f"The node of {self.peer.domain} is not served at the moment.")
        await self._session.close()

    async def _wait(self, seconds: float) -> None:
        """Wait, and expire queued messages meanwhile; `hurry` called before has no effect."""
        until = time.monotonic() + seconds
        self._hurries.clear()
        while (left := until - time.monotonic()) > 0 and not self._is_stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_TICK, left)):
                    await self._hurries.wait()
                    return
            self.exchange.expire(self._progress.ended)

    def _tick(self, sandbox: SandboxProcess, sockets: StubSockets) -> None:
        self.exchange.expire(self._progress.ended)
        self._pump()
        if self._progress.is_to_connect(self.state, sockets.count):
            sandbox.send(pipe.connect())
        is_late = self._progress.is_late(self.state, sockets.count, sockets.is_open)
        if is_late and not self._is_leaving:
            sandbox.kill(f"it was not live within {self._progress.seconds:g} s")
        if self._session.has_ended:
            sandbox.kill("its session here has ended")
        self._look_at(sockets)

    def _look_at(self, sockets: StubSockets) -> None:
        """Check the connection to the peer, whatever the stub reports."""
        counters = self.exchange.counters
        counters.lost, sockets.lost = counters.lost + sockets.lost, 0
        if self.state == LIVE and not sockets.count:
            self._enter(DISCONNECTED, sockets.last_error or "it has no socket")
        if self._watch.has_ended:
            self._watch.has_ended = False
            self.exchange.fail_asked(f"The node of {self.peer.domain} has ended.")

    def _enter(self, state: str, error: str = "") -> None:
        if error:
            self.last_error = pipe.shown(error)
        if state == LIVE and self._watch.is_new:
            self._watch.is_new = False
            self.exchange.fail_asked(f"The session at {self.peer.domain} began anew.")
            if self.writers is not None:
                self.writers.renew()
            self.subscriptions.renew()
        if state == self.state:
            return
        self.state = state
        self._progress.entered(state)
        if state == LIVE:
            self.last_error = ""  # it was mended
            self._restarts.succeeded()

    # --- to the peer ------------------------------------------------------------------------------

    def _outgoing(self, frame: bytes) -> None:
        """Process a frame for the peer's session."""
        try:
            message = messages.parse(frame)
        except InvalidFrame:
            return
        if message.recipients[0].startswith(self.peer.stub_url):
            return  # the node's own messages to the session
        kept = self.subscriptions.kept(message)
        if kept is None:
            self._session.say(messages.reply(message, {"code": 200}))
            return
        self.exchange.put(kept)
        self._pump()

    def _pump(self) -> None:
        """Pass queued messages to the stub, as far as it and the peer accept them."""
        sandbox, sockets = self.sandbox, self._sockets
        if self.state == IDLE and self._idleness.is_needed:
            self._hurries.set()
        if self.state != LIVE or self._is_leaving or sandbox is None or not sandbox.is_running:
            return
        if sockets is None or not sockets.is_open:
            return
        if not sandbox.is_full:
            self.subscriptions.pump()
            if self.writers is not None:
                self.writers.sweep()
        while not sandbox.is_full and not sockets.is_full:
            frame = self.exchange.take()
            if frame is None:
                return
            sandbox.send(pipe.post(frame))

    def _post(self, frame: bytes) -> None:
        if self.sandbox is not None:
            self.sandbox.send(pipe.post(frame))

    # --- from the stub ----------------------------------------------------------------------------

    async def _ready(self) -> None:
        """Wait until both the node and the stub accept more of the peer."""
        while (box := self.sandbox) is not None and box.is_running and box.is_full:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # a pipe does not notify that it was read
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
            return
        of_peer = read_status(message, f"{self.peer.runtime_url}/status")
        if of_peer is not None:
            if of_peer.value == GAP:
                self.subscriptions.suspect()
            return
        try:
            frame = self.exchange.taken_in(message)
        except Refused as refusal:
            self._refused(str(refusal))
            return
        self._held = self._held + 1 if self._session.is_held_back else 0
        if self._held > MAX_HELD:
            self._kill("it says more than the node can carry")
            return
        self._session.say(frame)

    def _refused(self, why: str) -> None:
        self.exchange.refused_here(why)
        self.last_error = pipe.shown(f"refused: {why}")

    def _status(self, status: StubStatus) -> None:
        """Process a status report of the stub."""
        value, text = status
        if value == GAP:
            self.subscriptions.suspect()
        elif value == "failed":
            self._kill(f"it gave up: {text or 'it did not say why'}")
        elif value in STATE_OF and not self._is_leaving:
            sockets = self._sockets
            lost = "" if sockets is None or sockets.is_open else sockets.last_error
            self._enter(STATE_OF[value], text or lost if value == "disconnected" else "")
            self._pump()
            if value == "disconnected" and not self.peer.kind.stub_comes_back:
                self._kill(f"it was disconnected: {text or lost or 'it did not say why'}")


class Idleness:
    """Tells when the stub of a peer has been idle for long enough to stop.

    A stub is needed while a message waits for the peer, a response may still come, or something is
    subscribed there.

    Args:
        seconds: time without a message in either direction after which the stub may stop.
        exchange: the exchange with the peer.
        subscriptions: the subscriptions there.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        seconds: float,
        exchange: PeerExchange,
        subscriptions: HeldSubscriptions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._exchange = exchange
        self._subscriptions = subscriptions
        self._clock = clock
        self._passed = 0
        self._since = clock()

    @property
    def is_needed(self) -> bool:
        """Whether the stub has something to do, or soon may."""
        return self._exchange.is_busy or self._subscriptions.is_busy

    def begin(self) -> None:
        """Restart the time, because the stub starts."""
        self._since = self._clock()

    def is_over(self) -> bool:
        """Whether it was not needed for so long. Call this regularly."""
        counters = self._exchange.counters
        passed = counters.sent + counters.received
        if passed != self._passed or self.is_needed:
            self._passed = passed
            self.begin()
        return self._clock() - self._since >= self._seconds


# --- its stub -------------------------------------------------------------------------------------
LOAD_SECONDS = 5.0
STARTS_AT_ONCE = 4
"""Most sandboxes of a worker that start at the same time; fifty together would all be slow."""
QUEUE_MESSAGES, QUEUE_BYTES = 10_000, 16 * 1024 * 1024
"""What may wait for one peer: some seconds of its rate. For 32 peers of a worker it is 512 MiB."""
IDLE_SECONDS = 600.0
"""Without a message or a subscription: a sandbox takes memory, and its next start is quick."""


@dataclass(frozen=True, slots=True)
class PeerStub:
    """A peer that is served, and its stub.

    Attributes:
        domain: the peer's domain.
        stub_url: the runtime URL of its session here.
        runtime_url: this node's runtime URL there.
        digest, source, configuration: of its stub.
        hosts: the hosts that the stub may connect to.
        kind: the kind of node that it leads to.
    """

    domain: str
    stub_url: str
    runtime_url: str
    digest: str
    source: str
    configuration: dict[str, Any]
    hosts: frozenset[str]
    kind: PeerKind = KINDS[UNKNOWN]


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


async def load(sandbox: Sandbox, stub: PeerStub, loaded: asyncio.Event) -> asyncio.Future[str]:
    """Start a sandbox with a stub; if it is not loaded in time, the sandbox is killed.

    Args:
        sandbox: the sandbox, not started yet.
        stub: the stub to load.
        loaded: set by whoever receives the sandbox's operations, when it is loaded.

    Returns:
        A future of the sandbox's end, with the reason.

    Raises:
        OSError: it does not start.
    """
    await sandbox.start()
    configuration = {**stub.configuration, "runtimeURL": stub.runtime_url}
    sandbox.send(pipe.load(stub.source, stub.stub_url, configuration))
    ended = asyncio.ensure_future(sandbox.ended())
    loading = asyncio.ensure_future(loaded.wait())
    first = asyncio.FIRST_COMPLETED
    await asyncio.wait({ended, loading}, timeout=LOAD_SECONDS, return_when=first)
    loading.cancel()
    if not loaded.is_set():
        sandbox.kill(f"it was not loaded within {LOAD_SECONDS:g} s")
    return ended


async def fault_of(stub: PeerStub, limits: LinkLimits) -> str:
    """Why a stub cannot be loaded, "" if it can. A sandbox that does not start is not its fault."""
    loaded = asyncio.Event()

    def said(what: Said) -> None:
        if isinstance(what, Loaded):
            loaded.set()
        elif isinstance(what, LoadFailed):
            sandbox.kill(f"it cannot be loaded: {what.error}")

    sandbox = SandboxProcess(limits.sandbox, said)
    ended: asyncio.Future[str] | None = None
    try:
        with suppress(OSError):
            async with limits.starts:
                ended = await load(sandbox, stub, loaded)
    finally:
        sandbox.kill("it was only tried")
    if ended is None:
        return ""
    why = await ended
    return "" if loaded.is_set() else pipe.shown(why)
