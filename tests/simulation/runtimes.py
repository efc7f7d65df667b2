"""The runtimes of the simulation: they open sessions, allocate, subscribe, ask, answer, publish, go
and come back, and keep what they sent and got, which oracle.py judges. Some do not read for a time,
and operators ban them or end their sessions."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgnode import models
from msgnode.console.operator_actions import end_sessions
from msgnode.sessions.connection import Connection
from msgnode.sessions.rules import CloseCode
from msgnode.sessions.session import READER_PATIENCE
from msgnode.storage import control

from .workers import Site, WorkerProcess
from .world import Wire

ALLOCATION, SUBSCRIPTIONS = "domain://msg-node.{}/address-allocation", "domain://msg-node.{}/sm"
SESSION = "mn:/session"
PATIENCE = 12.0
"""Seconds that a runtime waits for the answer to `open` before it tries elsewhere."""
DELAY = (0.0005, 0.02)
HALF_OPEN = 30.0
"""Seconds until a node takes a silent socket for lost."""
AT_ONCE = 8
"""Frames that a worker reads from a socket in a turn, when much has waited there."""
BUFFER = 16 * 1024
"""Bytes that a socket takes for a runtime that does not read."""
LINGER = 5.0
"""Seconds that a node waits for such a runtime to read that its socket is closed."""
ASKED = 4.0
"""Seconds after which a worker that was cut off Redis has asked again who is where."""
DECIDED = 6.0
"""Seconds after which a decision is in force at each worker that serves: it reads twice a second,
and one that cannot read loses its lease after three."""
FOREVER = 10**10
"""The window of the counter that all workers share: as wide, whatever a clock shows."""
COUNTED = ("frames",)


@dataclass
class Sent:
    """A request or an event that a runtime has sent.

    Attributes:
        listeners: of an event, the runtimes that were to get it, each with its session then.
        holder: of a request, who held the address, and its session then.
        is_stored: whether it is stored for another domain; `stored_at` is when its sender was told.
    """

    by: Runtime
    id: int
    to: str
    at: float
    socket: Socket
    session: int
    number: int
    is_request: bool
    holder: tuple[Runtime, int] | None = None
    listeners: list[tuple[Runtime, int]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    answered_at: float = 0.0
    got: list[tuple[Runtime, float]] = field(default_factory=list)
    response_lost: bool = False
    is_stored: bool = False
    stored_at: float = 0.0

    @property
    def is_abroad(self) -> bool:
        """Whether it is for an address of another domain."""
        return not self.to.startswith(f"hyperty://{self.by.site.domain}/")


class Socket:
    """A WebSocket between a runtime and a worker, both of its ends. The Link of the worker."""

    def __init__(self, runtime: Runtime, worker: WorkerProcess) -> None:
        world = worker.site.world
        self.runtime, self.worker, self.world = runtime, worker, world
        self.process = worker.machine
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None
        self.is_paused = False
        self.unsent_bytes = 0
        self.is_open = True  # at the runtime's end
        self.is_silent = False  # nobody is there, and the node does not know
        self.closed_at = 0.0
        self.proven = 0.0  # all that was sent before then was carried
        self.was_killed = False  # its worker was
        self.code, self.reason = 0, ""
        self._to, self._back = Wire(world, DELAY), Wire(world, DELAY)
        self._unread: deque[bytes] = deque()
        self._arrived: deque[tuple[float, Callable[[], object]]] = deque()  # not read yet
        self.arrived_at = 0.0  # what is read now
        self._is_closing = False
        self._is_reading = True
        self._connection: Connection | None = None
        self._is_lost = False
        self._to.send(lambda: self._in_process(self._accept))

    @property
    def is_all_received(self) -> bool:
        return self.unsent_bytes == 0

    # --- the runtime's end ------------------------------------------------------------------------

    def send(self, frame: dict[str, Any]) -> None:
        text = json.dumps(frame, separators=(",", ":")).encode()
        self._to.send(lambda: self._in_process(lambda: self._read(text)))

    def read_on(self) -> None:
        """Read what has arrived, or lose it if the socket has ended."""
        arrived, self._arrived = self._arrived, deque()
        for self.arrived_at, each in arrived:
            each()

    def _arrives(self, what: Callable[[], object]) -> None:
        if self.is_open and not self.runtime.is_reading:
            self._arrived.append((self.world.now, what))
        else:
            self.arrived_at = self.world.now
            what()

    def _take(self, frame: bytes) -> None:
        if not self.is_open:
            return  # nobody confirms it
        self.unsent_bytes -= len(frame)
        if self.is_paused and self.unsent_bytes <= BUFFER // 2:
            self._in_process(self._writable)
        self.runtime.received(self, json.loads(frame))

    def hang_up(self) -> None:
        if self.is_open:
            self._ends(1000, "hung up")
            self._to.send(lambda: self._in_process(self._lost))

    def fall_silent(self) -> None:
        """As when a cable is pulled: the node notices it late."""
        if self.is_open:
            self._ends(1006, "silent")
            self.is_silent = True
            self.runtime.unnoticed = self.world.now + HALF_OPEN
            self.world.after(HALF_OPEN, lambda: self._in_process(self._lost))

    def process_ended(self) -> None:
        """The worker's process is no more."""
        self._is_lost = True
        self.was_killed = True
        self.world.after(0.002, lambda: self._ends(1006, "the process ended"))

    def _ends(self, code: int, reason: str) -> None:
        if self.is_open:
            self.is_open = False
            self.closed_at = self.world.now
            self.code, self.reason = code, reason
            self.read_on()
            self.runtime.closed(self)

    # --- the worker's end -------------------------------------------------------------------------

    def _in_process(self, call: Callable[[], object]) -> None:
        process = self.process
        if process is not None and not process.is_dead and not self._is_lost:
            process.call_soon(call)

    def _accept(self) -> None:
        worker, node = self.worker, self.worker.node
        if worker.machine is not self.process or node is None or not node.is_ready:
            self._is_lost = True
            self._back.send(lambda: self._ends(1006, "refused"))
            return
        parts = node.parts
        self._connection = parts.connections.connection(Connection, self, self.runtime.source)
        parts.sockets.add(self._connection, self.runtime.source)
        self._counter: Any = worker.counter
        worker.links.append(self)

    def _read(self, frame: bytes) -> None:
        if self._connection is None:  # it was refused, when this was on its way already
            return
        self._counter.note(COUNTED, FOREVER)
        self.worker.site.counted += 1
        if not self._is_reading or self._unread:
            self._unread.append(frame)
        else:
            self._connection.frame_received(frame)

    def _lost(self) -> None:
        if self._is_lost or self._connection is None:
            return
        self._is_lost = True
        node = self.worker.node
        if self in self.worker.links:
            self.worker.links.remove(self)
        if node is not None:
            node.parts.sockets.remove(self._connection, self.runtime.source)
        self._connection.lost()

    def write(self, frame: bytes) -> None:
        self.unsent_bytes += len(frame)
        self._back.send(lambda: self._arrives(lambda: self._take(frame)))
        if self.unsent_bytes > BUFFER and not self.is_paused:
            self.is_paused = True
            self.on_pause()

    def _writable(self) -> None:
        if self.is_paused and not self._is_closing:
            self.is_paused = False
            self.on_resume()

    def close(self, code: int, reason: str) -> None:
        self._is_closing = self.is_paused = True
        if code == CloseCode.TOO_SLOW:
            self.runtime.is_called_slow()

        def closed() -> None:
            if self.is_silent:
                return
            self._ends(code, reason)
            self._to.send(lambda: self._in_process(self._lost))

        self._back.send(lambda: self._arrives(closed))
        if not self.runtime.is_reading:
            self.world.after(LINGER, lambda: self._ends(1006, "given up"))
            self.world.after(LINGER, lambda: self._in_process(self._lost))

    def drop(self) -> None:
        self._back.send(lambda: self._ends(1006, "dropped"))
        self._in_process(self._lost)

    def ping(self, answered: Callable[[], None]) -> bool:
        if not self.is_silent:
            pong = lambda: self._to.send(lambda: self._in_process(answered))  # noqa: E731
            self._back.send(lambda: self._arrives(pong))
        return True

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._in_process(self._read_on)

    def _read_on(self) -> None:
        for _ in range(AT_ONCE):
            if self._is_reading and self._unread and self._connection is not None:
                self._connection.frame_received(self._unread.popleft())
        if self._is_reading and self._unread:
            self.world.after(0.01, lambda: self._in_process(self._read_on))


class Crowd:
    """All runtimes, and what they have sent."""

    def __init__(self, sites: Sequence[Site], number: int, seed: int) -> None:
        self.sites, self.world = sites, sites[0].world
        self.sent: list[Sent] = []
        self.holders: dict[str, tuple[Runtime, int]] = {}  # address -> who has it, in which session
        self.problems: list[str] = []
        self.hasty: list[str] = []  # ends of sockets of runtimes that had not been slow for long
        self.ended: dict[str, float] = {}  # sessions that an operator has ended, and when
        self.is_quiet = False
        self.devices: list[Any] = [each.device for each in sites if each.device is not None]
        for device in self.devices:
            device.crowd = self
        self.runtimes = [
            Runtime(self, sites[n % len(sites)], n, random.Random(f"{seed} {n}"))
            for n in range(number)
        ]

    @property
    def workers(self) -> list[WorkerProcess]:
        return [worker for site in self.sites for worker in site.workers]

    def press(self, there: Runtime) -> None:
        """Have all others send much to a runtime while it does not read, or moves about."""
        if (there.is_reading and not there.is_moving) or self.is_quiet:
            return
        for each in self.runtimes:
            if each is not there and each.is_in and each.address and there.address:
                each.request(there.address, "" if there.is_reading else "x" * 1000)
        self.world.after(0.05, lambda: self.press(there))

    def problem(self, text: str) -> None:
        self.problems.append(f"{self.world.now - 1000.0:8.3f} {text}")


class Runtime:
    """A runtime.

    Attributes:
        session: the number of its session, which counts those it has opened.
        address: what it holds in it, "" for nothing yet.
        hears: the topics it has subscribed to, each since when.
        gaps: when it was told that it misses something.
        is_reading: whether it reads from its sockets.
        is_moving: whether it comes to other workers all the time.
        banned_at: since when it is banned, 0.0 if it is not.
        unnoticed: until when a node takes a socket for one that is there, which is not.
    """

    def __init__(self, crowd: Crowd, site: Site, number: int, chance: random.Random) -> None:
        self.crowd, self.world, self.number = crowd, crowd.world, number
        self.site = site
        self.url = f"runtime://{site.domain}/r{number}"
        self.source = f"10.0.0.{number}"
        self.session = 0
        self.token = self.address = ""
        self.hears: dict[str, float] = {}
        self.gaps: list[float] = []
        self.socket: Socket | None = None
        self.is_in = False
        self.is_reading, self.is_moving = True, False
        self.banned_at = self.unnoticed = 0.0
        self._sockets: list[Socket] = []
        self._stopped_at = 0.0
        self._chance = chance
        self._ids = 0
        self._numbers: dict[str, int] = {}
        self._asked: dict[int, tuple[Callable[[dict[str, Any]], None], Socket]] = {}
        self._waiting: dict[int, Sent] = {}
        self._delivered: dict[tuple[str, int, str], tuple[int, Socket]] = {}
        self._pause = chance.uniform(0.3, 1.5)
        self.world.after(chance.uniform(0, 1.0), self.come)
        self.world.after(2.0 + self._pause, self._act)

    def __repr__(self) -> str:
        return f"r{self.number}"

    # --- sockets ----------------------------------------------------------------------------------

    def come(self) -> None:
        """Connect to some worker, unless there is a socket."""
        if self.socket is not None and self.socket.is_open:
            return
        serving = self._serving()
        if not serving:
            self.world.after(0.5, self.come)
            return
        self.connect(self._chance.choice(serving))

    def _serving(self) -> list[WorkerProcess]:
        return [each for each in self.site.workers if each.is_serving]

    def connect(self, worker: WorkerProcess) -> None:
        """Connect to a worker, and open or re-open the session there."""
        self.is_in = False
        socket = self.socket = Socket(self, worker)
        self._sockets = [*(each for each in self._sockets if each.is_open), socket]
        if self.token:
            self._ask("re-open", SESSION, {}, self._opened, f"{self.url}/{self.token}")
        else:
            self._ask("open", SESSION, {}, self._opened)
        self.world.after(PATIENCE, lambda: None if self._is_settled(socket) else socket.hang_up())

    def _is_settled(self, socket: Socket) -> bool:
        return socket is not self.socket or self.is_in

    def closed(self, socket: Socket) -> None:
        if socket is self.socket:
            self.is_in = False
            self.world.note(f"{self} was closed: {socket.code} {socket.reason}")
            if socket.code == CloseCode.REFUSED:
                self._forget_session()
            self.world.after(self._chance.uniform(0.05, 1.5), self.come)

    def leave(self, is_silent: bool) -> None:
        """Lose the socket; come back soon."""
        if self.socket is not None and self.socket.is_open:
            (self.socket.fall_silent if is_silent else self.socket.hang_up)()

    def move_about(self) -> None:
        """Come to two workers at once, again and again, while others send much."""
        if not self.is_moving:
            self.is_moving = True
            self.crowd.press(self)
            self._move_on()

    def stay(self) -> None:
        self.is_moving = False

    def _move_on(self) -> None:
        if self.is_moving:
            self._come_twice()
            self.world.after(1.0, self._move_on)

    def _come_twice(self) -> None:
        """Re-open at two workers at once, as a page does that was reloaded."""
        serving = self._serving()
        if self.token and len(serving) > 1:
            first, second = self._chance.sample(serving, 2)
            self.connect(first)
            self.connect(second)

    def stop_reading(self) -> None:
        """Read nothing for a time, while others send much."""
        if self.is_reading:
            self.is_reading, self._stopped_at = False, self.world.now
            self.crowd.press(self)

    def read_on(self) -> None:
        if not self.is_reading:
            self.is_reading = True
            for each in self._sockets:
                each.read_on()

    def is_called_slow(self) -> None:
        """A worker ends a socket because nobody reads from it."""
        waited = 0.0 if self.is_reading else self.world.now - self._stopped_at
        if waited < READER_PATIENCE - 0.5:
            at = self.world.now - 1000.0
            self.crowd.hasty.append(f"{at:8.3f} {self} was ended as too slow after {waited:.1f} s")

    # --- what an operator does to it --------------------------------------------------------------

    def ban(self) -> None:
        self.site.database.use()
        models.Ban.objects.get_or_create(kind=models.Ban.Kind.RUNTIME, value=self.url)
        control.post("bans.changed")
        self.banned_at = self.world.now
        self._forget_session()

    def lift_ban(self) -> None:
        if self.banned_at:
            self.site.database.use()
            models.Ban.objects.filter(value=self.url).delete()
            control.post("bans.changed")
            self.banned_at = 0.0
            self._forget_session()  # one that a worker gave it that did not know yet

    def end_session(self) -> None:
        self.site.database.use()
        there = models.Session.objects.filter(runtime_url=self.url)
        live = list(there.exclude(state=models.Session.State.CLOSED))
        end_sessions(live, "operator", "simulated", may_return=False)
        for row in live:
            self.crowd.ended[row.id.hex] = self.world.now
        self._forget_session()

    def _forget_session(self) -> None:
        """What it has goes with its session."""
        self.session += 1
        self.token = self.address = ""
        self.hears = {}

    def _opened(self, body: dict[str, Any]) -> None:
        if body["code"] != 200:
            if self.socket is not None:
                self.socket.hang_up()
            return
        if body.get("runtimeToken"):
            assert self.socket is not None
            if self.token and self.world.now - self.socket.worker.cut_off_at > ASKED:
                self.crowd.problem(f"{self} lost its session {self.session}")
            self.token = body["runtimeToken"]
            self.session += 1
            self.address, self.hears = "", {}
        self.is_in = True
        assert self.socket is not None
        self.world.note(f"{self} is at {self.socket.worker.name}")
        if not self.address and not self.banned_at:
            self.allocate()

    # --- what it does -----------------------------------------------------------------------------

    def allocate(self) -> None:
        session = self.session

        def allocated(body: dict[str, Any]) -> None:
            if body["code"] == 200 and session == self.session:
                self.address = body["value"]["allocated"][0]
                self.crowd.holders[self.address] = self, session

        asked = {"scheme": "hyperty", "value": {"number": 1}}
        self._ask("create", ALLOCATION.format(self.site.domain), asked, allocated)

    def _act(self) -> None:
        self.world.after(self._pause, self._act)
        if not self.is_in or self.crowd.is_quiet or self.banned_at:
            return
        if not self.address:
            self.allocate()
            return
        what = self._chance.random()
        if what < 0.5:
            to = self._chance.choice(sorted(self.crowd.holders))
            stored = 2 if self.site.network is not None and self.site.network.is_cut else 1
            self.request(to, is_stored=self._ids % 3 < stored)
        elif what < 0.8:
            for _ in range(self._chance.choice((1, 1, 5, 20))):
                self.publish()
        else:
            self.subscribe(self._chance.choice(sorted(self.crowd.holders)))

    def subscribe(self, address: str) -> None:
        topic, session = f"{address}/changes", self.session
        if topic in self.hears or address == self.address:
            return

        def subscribed(body: dict[str, Any]) -> None:
            if body["code"] == 200 and session == self.session:
                self.hears[topic] = self.world.now

        to = SUBSCRIPTIONS.format(self.site.domain)
        self._ask("subscribe", to, {"resources": [topic]}, subscribed)

    def request(self, address: str, more: str = "", is_stored: bool = False) -> Sent:
        sent = self._send("create", address, self.address, True, more, is_stored)
        sent.holder = self.crowd.holders.get(address)
        self._waiting[sent.id] = sent
        return sent

    def publish(self) -> Sent:
        topic = f"{self.address}/changes"
        sent = self._send("update", topic, self.address, False)
        sent.listeners = [
            (each, each.session)
            for each in (*self.crowd.runtimes, *self.crowd.devices)
            if topic in each.hears
        ]
        return sent

    def _send(
        self, type_: str, to: str, sender: str, is_request: bool, more: str = "",
        is_stored: bool = False,
    ) -> Sent:  # fmt: skip
        assert self.socket is not None
        self._ids += 1
        number = self._numbers[to] = self._numbers.get(to, 0) + 1
        sent = Sent(self, self._ids, to, self.world.now, self.socket, self.session, number,
                    is_request)  # fmt: skip
        mark = len(self.crowd.sent)
        self.crowd.sent.append(sent)
        body = {"value": mark, "more": more} if more else {"value": mark}
        if is_stored and sent.is_abroad:
            sent.is_stored = body["store"] = True
        self.socket.send({"id": sent.id, "type": type_, "from": sender, "to": to, "body": body})
        return sent

    def _ask(
        self,
        type_: str,
        to: str,
        body: dict[str, Any],
        then: Callable[[dict[str, Any]], None],
        sender: str = "",
    ) -> None:
        assert self.socket is not None
        self._ids += 1
        self._asked[self._ids] = then, self.socket
        frame = {"id": self._ids, "type": type_, "from": sender or self.url, "to": to, "body": body}
        self.socket.send(frame)

    # --- what it gets -----------------------------------------------------------------------------

    def received(self, socket: Socket, frame: dict[str, Any]) -> None:
        body = frame["body"]
        if frame["type"] == "response":
            self._answered(socket, frame["id"], body)
            return
        value = body.get("value")
        if not isinstance(value, int):
            if value == "gap":
                self.gaps.append(self.world.now)
                self.world.note(f"{self} is told of a gap")
            return
        sent = self.crowd.sent[value]
        self._got(sent, socket)
        if sent.is_request:
            answer = {"code": 200, "value": value}
            to, sender = frame["from"], frame["to"]
            socket.send({"id": frame["id"], "type": "response", "from": sender, "to": to,
                         "body": answer})  # fmt: skip
            self.crowd.world.after(3.0, lambda: self._check_response(socket, sent))

    def _check_response(self, socket: Socket, sent: Sent) -> None:
        if not socket.is_open:
            sent.response_lost = True

    def _got(self, sent: Sent, socket: Socket) -> None:
        if sent.is_stored:  # it may come twice, and behind what was sent later
            sent.got.append((self, self.world.now))
            return
        if any(who is self for who, _ in sent.got):
            self.crowd.problem(
                f"{self} got the message {sent.number} of {sent.by} to {sent.to} twice"
            )
        sent.got.append((self, self.world.now))
        for site in (sent.by.site, self.site):
            if sent.by.site is not self.site and 0.0 < site.closed_at < sent.at - DECIDED:
                self.crowd.problem(f"{self} got the message {sent.number} of {sent.by} to {sent.to}"
                                   f", and {site.domain} lets nothing pass")  # fmt: skip
        key = repr(sent.by), sent.session, sent.to
        last, over = self._delivered.get(key, (0, socket))
        # Nobody orders what has come over two sockets and was read later.
        is_unordered = over is not socket and (over.is_open or over.closed_at >= socket.arrived_at)
        if sent.is_abroad and self.site.network.by_stubs:
            is_unordered = True  # the stub of each node is a way of its own
        if sent.number < last and not is_unordered:
            self.crowd.problem(
                f"{self} got the message {sent.number} of {sent.by} to {sent.to} behind {last}"
            )
        if sent.number > last:
            self._delivered[key] = sent.number, socket

    def _answered(self, socket: Socket, id_: int, body: dict[str, Any]) -> None:
        then = self._asked.pop(id_, None)
        if then is not None:
            if then[1] is socket:
                socket.proven = self.world.now - 1.0
            if then[1] is self.socket or self._is_same_session():
                then[0](body)
            return
        sent = self._waiting.get(id_)
        if sent is None:
            return
        if not socket.is_open:
            sent.response_lost = True
            return
        if body["code"] == 100:
            sent.stored_at = self.world.now
            return
        sent.answers.append(body["code"])
        sent.answered_at = self.world.now
        if len(sent.answers) > 1 and not sent.is_stored:
            self.crowd.problem(f"{self} got {sent.answers} for the request {id_} to {sent.to}")
        if body["code"] == 404 and sent.holder is not None:
            holder, session = sent.holder
            if holder.session == session:
                self.crowd.problem(f"{self} was answered 404 for {sent.to}, which {holder} holds")

    def _is_same_session(self) -> bool:
        return self.is_in
