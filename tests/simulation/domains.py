"""The network between the nodes of several domains, in the simulation.

The product's links between nodes (msgnode/federation/) run over sockets of this file: the end that
has dialled is like a client of the library websockets, the other one like a socket of our server.
Each direction is a wire. What is cut arrives later; a socket that is lost takes with it what is
under way, and one of its ends may not hear of that.
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
from websockets.exceptions import ConnectionClosedError
from websockets.protocol import State

from msgnode.federation import kinds, link_keys, link_wire, store
from msgnode.federation.link_protocol import SUBPROTOCOL
from msgnode.federation.peer_session import PeerOutlet
from msgnode.models import Peer
from msgnode.net.http import Answer, HttpClient, NoAnswer

from .workers import Site, WorkerProcess
from .world import Machine, Wire, World

DELAY = (0.002, 0.04)
NOTICED = 0.05
"""Seconds until an end hears that its socket is lost."""
NO_ANSWER = 10.0


class Network:
    """What connects the nodes of some domains, each of which is a peer of the others."""

    def __init__(self, world: World, sites: Sequence[Site]) -> None:
        self.world = world
        self._sites = {each.domain: each for each in sites}
        self._wires: list[tuple[str, Wire]] = []
        self._ends: list[End] = []
        self._silent: set[str] = set()  # domains of which nothing arrives elsewhere
        for site in sites:
            site.network = self
            _introduce(site, [each.domain for each in sites if each is not site])

    # --- what is broken ---------------------------------------------------------------------------

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

    # --- what the product asks for ----------------------------------------------------------------

    async def dial(self, url: str) -> Dialled:
        """Connect the process that runs to some worker of a domain."""
        machine = Machine.current
        assert machine is not None
        mine, theirs = machine.site, self._sites[urlsplit(url).hostname or ""]
        worker = next(each for each in mine.workers if each.machine is machine)
        here, back = Dialled(worker, self._wire(mine)), self._wire(theirs)
        here.wire.send(lambda: self._arrives(here, theirs, back))
        try:
            is_there = await here.answered
        except BaseException:
            here.drop()
            raise
        if not is_there:
            raise ConnectionRefusedError(111, "Connection refused")
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
        there = Accepted(self.world.random.choice(serving), back, here)
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
        if parts.path != f"/{link_keys.PATH}":
            return Answer(404, b"")
        found = link_keys.document(_keys(domain), domain, time.time())
        return Answer(200, json.dumps(found).encode())


class End:
    """One end of a socket between two nodes."""

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

    async def recv(self, decode: bool) -> bytes:
        frame = await self.next()
        if frame is None:
            raise ConnectionClosedError(None, None)
        return frame

    async def close(self, code: int, reason: str) -> None:
        self.end(code, reason)

    abort = End.drop


class Accepted(End):
    """The other end, at the endpoint for links: what the product uses of a socket of our server."""

    def __init__(self, worker: WorkerProcess, wire: Wire, other: Dialled) -> None:
        super().__init__(worker, wire)
        self.other = self._dialled = other

    def begin(self) -> None:
        node = self.worker.node
        if node is not None and node.is_ready and node.parts.node_links is not None:
            self.machine.create_task(self._serve(node.parts.node_links))
        else:
            self.drop()

    async def _serve(self, endpoint: Any) -> None:
        scope = {"subprotocols": [SUBPROTOCOL], "extensions": {"msgnode.link": self}}
        await endpoint(scope, self._asked, self._answer)

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


# --- what operators do ----------------------------------------------------------------------------


def _introduce(site: Site, domains: Sequence[str]) -> None:
    """Make other domains peers of a node, which trusts their keys."""
    site.database.use()
    for domain in domains:
        known = json.dumps({each.kid: {"x": each.x, "since": 1} for each in _keys(domain)})
        Peer.objects.create(
            domain=domain, kind=kinds.OURS, node_found=known, node_keys=known,
            decision=Peer.Decision.APPROVED, looked_at=timezone.now(),
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

    async def request(client: HttpClient, method: str, url: str, *_: Any, **__: Any) -> Answer:
        assert Machine.current is not None
        network = Machine.current.site.network
        if network is None:
            raise NoAnswer("There is no network.")
        return await network.get(url)

    link_wire.open_socket = open_socket  # type: ignore[attr-defined]
    HttpClient.request = request  # type: ignore[assignment, method-assign]
    write = PeerOutlet.write

    def written(outlet: PeerOutlet, frame: bytes) -> None:
        if b'"gap"' in frame and Machine.current is not None:
            Machine.current.site.forgot_at = Machine.current.world.now
        write(outlet, frame)

    PeerOutlet.write = written  # type: ignore[assignment, method-assign]
