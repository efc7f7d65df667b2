"""The network between the nodes of several domains, in the simulation.

The product's links between nodes, and the sockets of their stubs (msgnode/federation/), run over
sockets of this file: the end that has dialled is like a client of the library websockets, the other
one like a socket of our server. Each direction is a wire. What is cut arrives later; a socket that
is lost takes with it what is under way, and one of its ends may not hear of that.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils import timezone
from websockets.exceptions import ConnectionClosedError, InvalidHandshake
from websockets.protocol import State

from msgnode.federation import kinds, link_keys, link_wire, node_proofs, sockets, store
from msgnode.federation.link_protocol import SUBPROTOCOL
from msgnode.federation.peer_session import PeerOutlet
from msgnode.models import Peer, PeerStub
from msgnode.net.http import Answer, HttpClient, NoAnswer
from msgnode.sessions.consumer import SocketConsumer

from .workers import Site, WorkerProcess
from .world import Machine, Wire, World

DELAY = (0.002, 0.04)
NOTICED = 0.05
"""Seconds until an end hears that its socket is lost."""
NO_ANSWER = 10.0


class Network:
    """What connects the nodes of some domains, each of which is a peer of the others: by links, or
    each by the stubs of the others."""

    def __init__(self, world: World, sites: Sequence[Site], by_stubs: bool = False) -> None:
        self.world, self.by_stubs = world, by_stubs
        self._sites = {each.domain: each for each in sites}
        self._wires: list[tuple[str, Wire]] = []
        self._ends: list[End] = []
        self._silent: set[str] = set()  # domains of which nothing arrives elsewhere
        self._unaware: list[OfStub] = []  # whose socket is lost, and they have not heard of it
        for site in sites:
            site.network = self
            _introduce(site, [each.domain for each in sites if each is not site], by_stubs)

    # --- what is broken ---------------------------------------------------------------------------

    @property
    def is_cut(self) -> bool:
        """Whether something is cut: then runtimes have more stored."""
        return bool(self._silent)

    def cut(self, *domains: str) -> None:
        """Let nothing that these say arrive, all of them if none is named, until it is mended."""
        self._silent |= set(domains or self._sites)
        for domain, wire in self._wires:
            if domain in self._silent:
                wire.cut()

    def mend(self) -> None:
        self._silent.clear()
        for _, wire in self._wires:
            wire.mend()

    def lose(self, *told: str) -> None:
        """Lose all sockets, and what is under way; these domains hear of it, or all."""
        ends, self._ends = self._ends, []
        for each in ends:
            each.is_lost = True
            if each.worker.site.domain in (told or self._sites):
                self.world.after(NOTICED, each.hears_that_it_is_lost)
            elif isinstance(each, OfStub):
                self._unaware.append(each)

    @property
    def has_unaware(self) -> bool:
        """Whether a stub has a socket that is lost: its node notices that late."""
        there = (each for each in self._unaware if not each.machine.is_dead)
        self._unaware = [each for each in there if each.is_open]
        return bool(self._unaware)

    # --- what the product asks for ----------------------------------------------------------------

    async def dial(self, url: str, headers: Sequence[tuple[str, str]] | None = None) -> Dialled:
        """Connect the process that runs to some worker of a domain, for a stub with headers."""
        machine = Machine.current
        assert machine is not None
        mine, theirs = machine.site, self._sites[urlsplit(url).hostname or ""]
        worker = next(each for each in mine.workers if each.machine is machine)
        here = Dialled(worker, self._wire(mine))
        if headers is not None:
            here = OfStub(worker, here.wire, headers)
        back = self._wire(theirs)
        here.wire.send(lambda: self._arrives(here, theirs, back))
        try:
            is_there = await here.answered
        except BaseException:
            here.drop()
            raise
        if not is_there:
            raise here.refusal
        return here

    def _wire(self, site: Site) -> Wire:
        wire = Wire(self.world, DELAY)
        self._wires.append((site.domain, wire))
        if site.domain in self._silent:
            wire.cut()
        return wire

    def _arrives(self, here: Dialled, site: Site, back: Wire) -> None:
        serving = [each for each in site.workers if each.is_serving]
        if not serving:
            back.send(lambda: here.on(here.drop))
            return
        there = here.accepted(self.world.random.choice(serving), back)
        here.other = there
        self._ends = [*(each for each in self._ends if each.is_open), here, there]
        there.on(there.begin)

    async def get(self, url: str) -> Answer:
        """What a node answers to HTTP: its keys. It has no catalogue."""
        parts = urlsplit(url)
        domain = parts.hostname or ""
        if domain not in self._sites or self._silent:
            await asyncio.sleep(NO_ANSWER)
            raise NoAnswer("It did not answer.")
        await asyncio.sleep(2 * DELAY[1])
        if parts.path.startswith(f"/{node_proofs.PATH}/"):
            asking, asked = parts.path.split("/")[-2:]
            is_own = node_proofs.is_own([settings.SECRET_KEY], domain, asking, asked)
            return Answer(204 if is_own else 404, b"")
        if parts.path != f"/{link_keys.PATH}":
            return Answer(404, b"")
        found = link_keys.document(_keys(domain), domain, time.time())
        return Answer(200, json.dumps(found).encode())


class End:
    """One end of a socket between two nodes; what is written is under way at once."""

    unsent_bytes = 0

    def __init__(self, worker: WorkerProcess, wire: Wire) -> None:
        assert worker.machine is not None
        self.worker, self.machine, self.wire = worker, worker.machine, wire
        self.other: End | None = None
        self.is_open, self.is_lost = True, False
        self.close_code, self.close_reason = 0, ""
        self._frames: deque[bytes] = deque()
        self._waits: asyncio.Future[Any] | None = None
        worker.links.append(self)

    def on(self, call: Callable[[], object]) -> None:
        """Have its process do something in its next turn, if it still runs."""
        if not self.machine.is_dead:
            self.machine.call_soon(call)

    def write(self, frame: bytes) -> None:
        self._tell(lambda other: other.take(frame))

    def take(self, frame: bytes) -> None:
        if self.is_open:
            self._frames.append(frame)
            self._wake()

    async def next(self) -> bytes | None:
        """The next frame, None behind the last one."""
        while not self._frames:
            if not self.is_open:
                return None
            self._waits = self.machine.create_future()
            await self._waits
        return self._frames.popleft()

    def end(self, code: int, reason: str) -> None:
        self._tell(lambda other: other.ended(code, reason))
        self.ended(code, reason)

    def ended(self, code: int, reason: str) -> None:
        if self.is_open:
            self.is_open = False
            self.close_code, self.close_reason = code, reason
            if self in self.worker.links:
                self.worker.links.remove(self)
            self._wake()

    def drop(self) -> None:
        self.end(1006, "")

    process_ended = drop

    def hears_that_it_is_lost(self) -> None:
        self.on(lambda: self.ended(1006, ""))

    def _tell(self, what: Callable[[End], object]) -> None:
        def arrives() -> None:
            other = self.other
            if other is not None and not other.is_lost:
                other.on(lambda: what(other))

        if self.is_open:
            self.wire.send(arrives)

    def _wake(self) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)


class Dialled(End):
    """The end that has dialled: what the product uses of a ClientConnection of websockets."""

    def __init__(self, worker: WorkerProcess, wire: Wire) -> None:
        super().__init__(worker, wire)
        self.protocol = self.transport = self
        self.answered = self.machine.create_future()
        self.refusal: Exception = ConnectionRefusedError(111, "Connection refused")

    def accepted(self, worker: WorkerProcess, wire: Wire) -> Accepted:
        """The other end."""
        return Accepted(worker, wire, self)

    @property
    def state(self) -> State:
        return State.OPEN if self.is_open else State.CLOSED

    def is_answered(self, is_there: bool) -> None:
        if not self.answered.done():
            self.answered.set_result(is_there)

    def ended(self, code: int, reason: str) -> None:
        super().ended(code, reason)
        self.is_answered(False)

    def send_text(self, frame: bytes) -> None:
        self.write(frame)

    def send_data(self) -> None:
        """It was sent."""

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    async def recv(self, decode: bool = True) -> Any:
        frame = await self.next()
        if frame is None:
            raise ConnectionClosedError(None, None)
        return frame

    async def close(self, code: int, reason: str) -> None:
        self.end(code, reason)

    abort = End.drop


class OfStub(Dialled):
    """Such an end of a stub, which connects as a runtime does."""

    subprotocol = None

    def __init__(
        self, worker: WorkerProcess, wire: Wire, headers: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__(worker, wire)
        self.headers = [(name.lower().encode(), value.encode()) for name, value in headers]
        self._is_left = False

    def accepted(self, worker: WorkerProcess, wire: Wire) -> Accepted:
        self.refusal = InvalidHandshake("The upgrade was refused.")
        return AcceptedRuntime(worker, wire, self)

    def ended(self, code: int, reason: str) -> None:
        if self.is_open and (self.is_lost or not self._is_left):
            self.worker.site.forgot_at = self.worker.site.world.now  # what was under way is lost
        super().ended(code, reason)

    async def recv(self, decode: bool = True) -> str:
        return bytes(await super().recv()).decode()

    async def send(self, text: str) -> None:
        if not self.is_open:
            raise ConnectionClosedError(None, None)
        self.write(text.encode())

    async def ping(self) -> asyncio.Future[float]:
        pong = self.machine.create_future()
        answer = lambda _: pong.done() or pong.set_result(0.0)  # noqa: E731
        self._tell(lambda other: other._tell(answer))
        return pong

    async def close(self, code: int, reason: str) -> None:
        self._is_left = True
        self.end(code, reason)

    def abort(self) -> None:
        self._is_left = True
        self.drop()


class Accepted(End):
    """The other end, at the endpoint for links: what the product uses of a socket of our server."""

    def __init__(self, worker: WorkerProcess, wire: Wire, other: Dialled) -> None:
        super().__init__(worker, wire)
        self.other = self._dialled = other

    def begin(self) -> None:
        node = self.worker.node
        if node is not None and node.is_ready:
            self.machine.create_task(self._serve(node.parts))
        else:
            self.drop()

    async def _serve(self, parts: Any) -> None:
        scope = {"subprotocols": [SUBPROTOCOL], "extensions": {"msgnode.link": self}}
        await parts.node_links(scope, self._asked, self._answer)

    async def _asked(self) -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def _answer(self, event: dict[str, Any]) -> None:
        if event["type"] == "websocket.accept":
            self._tell(lambda _: self._dialled.is_answered(True))
        else:
            self.drop()

    async def run(self, receiver: Callable[[bytes], None]) -> None:
        while (frame := await self.next()) is not None:
            receiver(frame)

    close = End.end


class AcceptedRuntime(Accepted):
    """The same at the endpoint for runtimes: the Link of a connection there."""

    is_paused = False
    unsent_bytes = 0
    _is_held = False

    def __init__(self, worker: WorkerProcess, wire: Wire, other: OfStub) -> None:
        super().__init__(worker, wire, other)
        self._headers = other.headers
        self._source = f"10.1.0.{other.machine.pid % 250}"
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None

    async def _serve(self, parts: Any) -> None:
        scope = {
            "extensions": {"msgnode.link": self},
            "headers": self._headers,
            "client": [self._source, 1],
        }
        prove = parts.identities.async_verifier.prove
        endpoint = SocketConsumer(parts.connections, prove, ["*"], parts.probe, parts.nodes)
        await endpoint(scope, self._asked, self._answer)

    @property
    def is_all_received(self) -> bool:
        return self.unsent_bytes == 0

    def write(self, frame: bytes) -> None:
        def arrives(other: End) -> None:
            self.unsent_bytes -= len(frame)
            other.take(frame)

        self.unsent_bytes += len(frame)
        self._tell(arrives)

    def ping(self, answered: Callable[[], None]) -> bool:
        self._tell(lambda other: other._tell(lambda _: answered()))
        return True

    def pause_reading(self) -> None:
        self._is_held = True

    def resume_reading(self) -> None:
        self._is_held = False
        self._wake()

    async def next(self) -> bytes | None:
        frame = await super().next()
        while self._is_held and self.is_open:
            self._waits = self.machine.create_future()
            await self._waits
        return frame


# --- what operators do ----------------------------------------------------------------------------


def _introduce(site: Site, domains: Sequence[str], by_stubs: bool) -> None:
    """Make other domains peers of a node, which trusts their keys, or has approved their stubs."""
    site.database.use()
    for domain in domains:
        if by_stubs:
            _approve_stub(domain)
            continue
        known = json.dumps({each.kid: {"x": each.x, "since": 1} for each in _keys(domain)})
        Peer.objects.create(
            domain=domain, kind=kinds.OURS, node_found=known, node_keys=known,
            decision=Peer.Decision.APPROVED, looked_at=timezone.now(),
        )  # fmt: skip


def _approve_stub(domain: str) -> None:
    peer = Peer.objects.create(
        domain=domain, kind=kinds.UNKNOWN, decision=Peer.Decision.APPROVED, is_by_hand=True,
        found_digest="simulated", approved_digest="simulated", looked_at=timezone.now(),
    )  # fmt: skip
    PeerStub.objects.create(
        peer=peer, digest="simulated", source="simulated",
        configuration={"url": f"wss://{domain}/ws"},
    )  # fmt: skip


def decide(site: Site, decision: str) -> None:
    """Pause, block or resume all peers of a node."""
    site.database.use()
    for peer in Peer.objects.exclude(decision=decision):
        store.decide(peer, decision)
    if decision == Peer.Decision.APPROVED:
        site.closed_at = 0.0
    elif not site.closed_at:
        site.closed_at = site.world.now


def _keys(domain: str) -> list[link_keys.OwnKey]:
    return link_keys.own_keys([settings.SECRET_KEY], domain)


def install() -> None:
    """Have the product's nodes reach one another over the network of the site that runs."""

    async def open_socket(url: str, *_: Any, **__: Any) -> Any:
        assert Machine.current is not None
        return await Machine.current.site.network.dial(url)

    async def request(
        client: HttpClient, method: str, url: str, body: Any = None, headers: Any = None, *_: Any
    ) -> Answer:
        assert Machine.current is not None
        network, device = Machine.current.site.network, Machine.current.site.device
        if device is not None:
            answer: Answer = await device.posted(body, headers)
            return answer
        if network is None:
            raise NoAnswer("There is no network.")
        return await network.get(url)

    async def open_for_stub(url: str, *_: Any, additional_headers: Any, **__: Any) -> Any:
        assert Machine.current is not None
        return await Machine.current.site.network.dial(url, additional_headers)

    link_wire.open_socket = open_socket  # type: ignore[attr-defined]
    sockets.open_socket = open_for_stub  # type: ignore[attr-defined]
    HttpClient.request = request  # type: ignore[assignment, method-assign]
    write = PeerOutlet.write

    def written(outlet: PeerOutlet, frame: bytes) -> None:
        if b'"gap"' in frame and Machine.current is not None:
            Machine.current.site.forgot_at = Machine.current.world.now
        write(outlet, frame)

    PeerOutlet.write = written  # type: ignore[assignment, method-assign]
