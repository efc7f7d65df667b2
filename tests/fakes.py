"""Stand-ins for what a test does not want to start: sessions, callers, links, writers, policies."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgnode.bus.open_requests import OpenRequests, RequestLimits
from msgnode.bus.pipeline import Pipeline, Routing
from msgnode.bus.ports import (
    ALWAYS,
    Body,
    Component,
    DeliveryResult,
    NoPolicies,
    Response,
    ServingLease,
)
from msgnode.bus.replies import Replies
from msgnode.bus.response_guard import ResponseGuard
from msgnode.bus.return_paths import ReturnPath
from msgnode.bus.routes import ComponentBook
from msgnode.bus.table import RoutingTable
from msgnode.bus.writing import Change
from msgnode.core.decision import NOT_APPLICABLE, Decision, Direction
from msgnode.core.errors import NotIdentified
from msgnode.core.identity import Speaker
from msgnode.core.messages import Message
from msgnode.core.pending import Pending
from msgnode.core.record import TrafficRecord

DOMAIN = "localhost"
_SESSIONS = itertools.count(1)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class FakeSession:
    """A session that keeps what it is given."""

    def __init__(self, runtime_url: str, token: str = "", is_connected: bool = True) -> None:
        self.id = f"{next(_SESSIONS):032x}"  # never used again, as `id(self)` is
        self.runtime_url = runtime_url
        self.token = token.encode()
        self.is_connected = is_connected
        self.is_here = True
        self.successor: Any = None
        self.bound_at = 0.0
        self.token_hash = ""
        self.is_behind = False
        self.speaker = Speaker(self.id, runtime_url)
        self.taken = DeliveryResult.WRITTEN
        self.frames: list[bytes] = []
        self.requests = OpenRequests(RequestLimits(), 0.0)
        self.has_missed = False

    def deliver(self, frame: bytes) -> DeliveryResult:
        if self.taken is not DeliveryResult.DROPPED:
            self.frames.append(frame)
        return self.taken

    def deliver_request(self, frame: bytes, path: ReturnPath) -> DeliveryResult:
        return self.deliver(frame)

    def deliver_response(self, frame: bytes, response: Response) -> DeliveryResult:
        return self.deliver(frame)

    def deliver_traced(self, frame: bytes, beside: Any, traceparent: str) -> DeliveryResult:
        return self.deliver(frame)

    def ask(self, sender: str, id_: bytes, asked: str, now: float) -> None:
        self.requests.add(sender, id_, asked, now)

    def has_invited(self, stub: str) -> None: ...

    def ask_group(self, sender: str, id_: bytes, asked: frozenset[str], now: float) -> None:
        self.requests.add_group(sender, id_, asked, now)

    def has_asked(self, sender: str, id_: str, responder: str, now: float) -> bool:
        return self.requests.was_asked(sender, id_, responder, now)

    def has_forgotten(self) -> bool:
        return False

    def missed(self) -> None:
        self.has_missed = True

    def when_writable(self, call: Callable[[], None]) -> None:
        call()

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.frames]


class FakeCaller:
    """A connection of a fake session, or of none yet."""

    def __init__(self, session: FakeSession | None = None) -> None:
        self.session = session
        self.speaker = session.speaker if session else Speaker("", "")
        self.traceparent = ""
        self.frames: list[bytes] = []
        self.pending = 0
        self.turns = 0
        self.charged: list[tuple[int, int]] = []
        self.is_carrying = True
        self.answered = asyncio.Event()
        self.held: list[bytes] = []

    def hold(self, frame: bytes, fact: Pending) -> None:
        self.held.append(frame)

    def put(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.answered.set()

    def answer_pending(self, change: int) -> None:
        self.pending += change

    def wait_for(self, reader: Any) -> None:
        """Nobody is behind here."""

    def charge(self, messages: int, size: int) -> None:
        self.charged.append((messages, size))

    def carry_on(self, rest: Iterator[None]) -> None:
        for _ in rest:
            self.turns += 1

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.frames]


class FakeAdmission:
    """Admits everybody who has a session."""

    def authenticate(self, message: Message, caller: Any) -> None:
        """Nobody brings an identity here."""

    def authorize(self, message: Message, caller: Any) -> tuple[FakeSession, Speaker]:
        session = caller.session
        if session is None:
            raise NotIdentified
        assert isinstance(session, FakeSession)
        return session, session.speaker


class FakeEnforcer:
    """Decides as told, by direction."""

    is_idle = False

    def __init__(self, **decisions: Decision) -> None:
        self.decisions = decisions
        self.asked: list[tuple[str, str]] = []

    def enforce(self, message: Message, speaker: Speaker, direction: Direction) -> Decision:
        self.asked.append((direction.value, message.type))
        return self.decisions.get(direction.value, NOT_APPLICABLE)


class FakeRecorder:
    """Keeps the rows."""

    def __init__(self) -> None:
        self.rows: list[TrafficRecord] = []

    def note(self, record: TrafficRecord) -> None:
        self.rows.append(record)


class FakeComponent(Component):
    """Answers with what it is told: a body, an error to raise, or something to wait for."""

    name = "fake"
    tells_workers = True

    def __init__(self, answer: Any, address: str = f"domain://fake.{DOMAIN}") -> None:
        super().__init__((address,))
        self._answer = answer
        self.revoked: list[Body] = []
        self.revoked_of: list[Any] = []

    def answer(self, message: Message, caller: Any) -> Body:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer() if callable(self._answer) else self._answer

    def revoke(self, message: Message, body: Body, caller: Any) -> None:
        self.revoked.append(body)
        self.revoked_of.append(caller)


class FakeLink:
    """A socket that takes a number of frames before it is full."""

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.is_paused = room == 0
        self.unsent_bytes = 0
        self.is_all_received = True
        self.on_pause: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None
        self.frames: list[bytes] = []
        self.closed: tuple[int, str] | None = None
        self.is_reading = True

    def write(self, frame: bytes) -> None:
        assert not self.is_paused, "written to a full socket"
        self.frames.append(frame)
        self.room -= 1
        if self.room <= 0:
            self.is_paused = True
            self.on_pause()

    def drain(self, room: int) -> None:
        """The peer has read: there is room again."""
        self.room = room
        if room and self.is_paused:
            self.is_paused = False
            self.on_resume()

    def close(self, code: int, reason: str) -> None:
        self.closed = self.closed or (code, reason)

    def ping(self, answered: Callable[[], None]) -> bool:
        """Never known."""
        return False

    def drop(self) -> None:
        self.closed = self.closed or (1006, "")

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class FakeWriter:
    """Commits when told to, in order, or fails with an error."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Sequence[Change], Any, asyncio.Future[Any]]] = deque()

    def submit(self, *changes: Change, result: Any = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append((changes, result, future))
        return future

    async def commit(self, number: int = 1, error: Exception | None = None) -> None:
        """Settle the oldest submissions, and let their callbacks run."""
        for _ in range(number):
            _, result, future = self.waiting.popleft()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)
        for _ in range(5):
            await asyncio.sleep(0)


class AlarmCalls(NamedTuple):
    """Alarms that are told to these callables."""

    raise_alarm: Callable[[str, str, str], Any] = lambda kind, subject, text: None
    clear_alarm: Callable[[str, str], Any] = lambda kind, subject: None


class FakeSessionHandler:
    """mn:/session, which here only says that it was asked."""

    def __init__(self) -> None:
        self.handled: list[str] = []

    def handle(self, message: Message, caller: Any) -> None:
        self.handled.append(message.type)


def pipeline(
    table: RoutingTable,
    *components: Component,
    enforcer: Any = None,
    recorder: Any = None,
    session_handler: Any = None,
    authorizer: Any = None,
    timeout: float = 5.0,
    is_strict: bool = True,
    lease: ServingLease = ALWAYS,
    **more: Any,
) -> Pipeline:
    """A pipeline of fakes over this table."""
    policies = enforcer or NoPolicies()
    return Pipeline(
        Routing(DOMAIN, table, ComponentBook(components), **more),
        authorizer or FakeAdmission(),
        session_handler or FakeSessionHandler(),
        policies,
        recorder or FakeRecorder(),
        Replies(policies, timeout),
        ResponseGuard(table, is_strict, lambda _: None),
        lease,
    )
