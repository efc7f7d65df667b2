"""The tables of states: whole, obeyed by the manager and the connection, and drawn in the docs."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.digest import digest
from msgnode.core.errors import NodeError, Unavailable
from msgnode.core.identity import Speaker
from msgnode.core.pending import Pending
from msgnode.sessions import rules
from msgnode.sessions.connection import Connection, ConnectionSettings
from msgnode.sessions.flow_control import FlowLimits
from msgnode.sessions.manager import SessionManager
from msgnode.sessions.rules import (
    SESSION,
    SOCKET,
    Event,
    LocalProtocolError,
    SocketEvent,
    SocketState,
    State,
)
from msgnode.sessions.session import LiveSession, SessionLimits
from msgnode.sessions.session_factory import SessionSettings
from tests.fakes import FakeLink, FakeWriter
from tests.sessions.doors import handshake

Table = Mapping[Any, Any]
STEPS = [
    *((SESSION, *step) for step in itertools.product(State, Event)),
    *((SOCKET, *step) for step in itertools.product(SocketState, SocketEvent)),
]
ENDS = {State.CLOSED, State.TERMINATED, State.MOVED}


@pytest.mark.parametrize(("table", "state", "event"), STEPS)
def test_a_step_is_in_the_table_or_a_local_protocol_error(
    table: Table, state: Any, event: Any
) -> None:
    if (state, event) in table:
        assert rules.after(table, state, event) is table[state, event]
    else:
        with pytest.raises(LocalProtocolError, match=state.value):
            rules.after(table, state, event)


@pytest.mark.parametrize(
    ("table", "states", "begins", "ends"),
    [
        (SESSION, State, {State.PROVISIONAL, State.ARRIVING}, ENDS),
        (SOCKET, SocketState, {SocketState.READING}, {SocketState.CLOSED}),
    ],
)
def test_every_state_is_reached_and_leads_to_an_end_and_nothing_leads_out_of_one(
    table: Table, states: type[Enum], begins: set[Any], ends: set[Any]
) -> None:
    assert not [state for state, _ in table if state in ends]
    reached, ending = set(begins), set(ends)
    for _ in states:
        reached |= {to for (state, _), to in table.items() if state in reached}
        ending |= {state for (state, _), to in table.items() if to in ending}
    assert reached == set(states)
    assert ending == set(states)


def test_a_step_that_is_not_in_the_table_changes_nothing() -> None:
    session = arriving("runtime://d/1")
    with pytest.raises(LocalProtocolError):
        session.step(Event.EXPIRE)
    assert session.state is State.ARRIVING


def test_a_session_is_terminated_by_the_node_and_by_nothing_else() -> None:
    ended = {state for (state, event) in SESSION if event is Event.END}
    assert ended == {State.OPENING, *WITH_SOCKET, State.DETACHED, State.LEAVING}
    for (_, event), following in SESSION.items():
        assert (following is State.TERMINATED) is (event is Event.END)


@pytest.mark.parametrize("state", State)
def test_a_session_has_ended_here_in_every_state_that_nothing_leads_out_of(state: State) -> None:
    session = arriving("runtime://d/1")
    session.state = state
    assert session.has_ended is (state in ENDS)
    assert session.is_closed is (state in ENDS - {State.MOVED})


def test_the_diagrams_of_the_docs_are_drawn_from_the_tables() -> None:
    text = Path(__file__, "../../../docs/sessions.md").resolve().read_text()
    drawn = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", text, re.DOTALL)
    assert drawn == [diagram(SESSION), diagram(SOCKET)]


def diagram(table: Table) -> str:
    return "".join(f"    {state} --> {to}: {event}\n" for (state, event), to in table.items())


def arriving(runtime_url: str) -> LiveSession:
    id_ = uuid.uuid4().hex
    speaker, limits = Speaker(id_, runtime_url), SessionLimits(100_000, stores=True)
    return LiveSession(speaker, "ws", digest(id_), limits, State.ARRIVING)


class Store:
    """The session store, over a writer that commits when told to."""

    def __init__(self) -> None:
        self.writer = FakeWriter()
        self.freed: list[str] = []

    def opened(self, session: LiveSession) -> asyncio.Future[Any]:
        return self.writer.submit()

    resumed = opened

    def detached(self, session: LiveSession) -> None:
        """Nobody waits for it."""

    def closed(self, session: LiveSession, reason: str) -> None:
        self.freed.append(session.id)


HERE = {State.OPENING, State.OPEN, State.RESUMING, State.DETACHED, State.LEAVING}
WITH_SOCKET = {State.OPENING, State.OPEN, State.RESUMING}
NUMBERS = st.integers(0, 5)


class Sessions(RuleBasedStateMachine):
    """Sockets that open, resume, lie, vanish; commits that fail; sessions that move: whatever
    comes in whatever order, no step is missing in the table and all who keep something agree."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = Store()
        self.table = RoutingTable()
        limits = SessionSettings("always", True, True, 0, 100_000, 50, 3, "domain://d")
        store: Any = self.store
        self.manager = SessionManager(limits, self.table, store, lambda *_: None)
        self.door = handshake(limits, self.manager, self.table, store)
        self.seen: dict[str, LiveSession] = {}
        self.manager.on_identified.append(lambda session: self.seen.update({session.id: session}))
        self.freed: list[str] = []
        self.manager.on_closed.append(lambda session, _: self.freed.append(session.id))
        self.connections: list[Connection] = []
        self.tokens: list[str] = ["unknown"]
        self.faults: list[LocalProtocolError] = []

    def teardown(self) -> None:
        for connection in self.connections:
            connection.flow.stop()
            connection._deadline.cancel()
        self.loop.close()

    def do(self, call: Callable[..., Any], *arguments: Any) -> None:
        async def run() -> None:
            done = call(*arguments)
            if asyncio.iscoroutine(done):
                await done
            for _ in range(5):
                await asyncio.sleep(0)

        self.loop.run_until_complete(run())

    def carry(self, frame: bytes, caller: Any, message: Any = None) -> None:
        """The pipeline's part: a session frame, answered with its error if it is refused."""
        message = messages.parse(frame)
        try:
            self.door.handle(message, caller)
        except LocalProtocolError as fault:
            self.faults.append(fault)
        except Pending as fact:
            caller.hold(frame, fact)
        except NodeError as error:
            caller.put(messages.reply(message, messages.error_body(error)))

    def session(self, number: int) -> LiveSession | None:
        live = list(self.manager.sessions.values())
        return live[number % len(live)] if live else None

    def connection(self, number: int) -> Connection:
        if number >= len(self.connections):
            self.do(self._connect)
        return self.connections[number % len(self.connections)]

    def _connect(self) -> None:
        link: Any = FakeLink()
        flow = FlowLimits(1e6, 1e9, max_pending=2)
        limits = ConnectionSettings(flow, handshake_timeout=60)
        self.connections.append(Connection(link, "192.0.2.1", self.manager, self.carry, limits))

    def frame(self, number: int, **fields: Any) -> None:
        connection = self.connection(number)
        if connection.state in (SocketState.LOST, SocketState.CLOSED):
            return
        text = json.dumps({"id": 1, "to": "mn:/session", **fields}).encode()
        self.do(connection.frame_received, text)

    @rule(number=NUMBERS, runtime=st.integers(0, 2))
    def open(self, number: int, runtime: int) -> None:
        self.frame(number, type="open", **{"from": f"runtime://d/{runtime}"})

    @rule(number=NUMBERS)
    def open_without_a_name(self, number: int) -> None:
        self.frame(number, type="open")

    @rule(number=NUMBERS, runtime=st.integers(0, 2), token=st.integers(0, 20))
    def reopen(self, number: int, runtime: int, token: int) -> None:
        for connection in self.connections:
            for written in connection.link.frames:  # type: ignore[attr-defined]
                self.tokens += [t for t in _tokens(written) if t not in self.tokens]
        url = f"runtime://d/{runtime}/{self.tokens[-(token % len(self.tokens)) - 1]}"
        self.frame(number, type="re-open", **{"from": url})

    @rule(number=NUMBERS)
    def name(self, number: int) -> None:
        """The first message of a session whose runtime is not known yet."""
        connection = self.connection(number)
        session = connection.session
        if session is not None and session.state is State.PROVISIONAL:
            via = f"runtime://d/1/{session.token.decode()}"
            message = messages.parse(
                json.dumps(
                    {"id": 1, "type": "read", "from": "a://b/c", "to": "a://b/c", "via": via}
                ).encode()
            )
            try:
                self.do(self.door.bind, session, message, connection)
            except (NodeError, Pending):
                assert session.state is State.PROVISIONAL

    @rule(number=NUMBERS)
    def close(self, number: int) -> None:
        self.frame(number, type="close")

    @rule(number=NUMBERS)
    def lose(self, number: int) -> None:
        connection = self.connection(number)
        if connection.state not in (SocketState.LOST, SocketState.CLOSED):
            self.do(connection.lost)
            assert connection.state is SocketState.CLOSED

    @rule(fails=st.booleans())
    def commit(self, fails: bool) -> None:
        if self.store.writer.waiting:
            error = Unavailable("The database is away.") if fails else None
            self.do(self.store.writer.commit, 1, error)

    @rule(number=NUMBERS)
    def end(self, number: int) -> None:
        if session := self.session(number):
            self.do(self.manager.end, session, 4403, "ended")

    @rule(number=NUMBERS)
    def silent(self, number: int) -> None:
        """Nothing came from a socket that was asked for a sign of life."""
        if session := self.session(number):
            self.do(self.manager.drop, session)
            assert not session.is_connected

    @rule()
    def expire(self) -> None:
        self.do(self.manager.expire, 2)

    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        if session := self.session(number):
            self.do(self.manager.release, session)

    @rule(number=NUMBERS, stays=st.booleans())
    def move(self, number: int, stays: bool) -> None:
        session = self.session(number)
        if session is None or session.state is not State.LEAVING:
            return
        if stays:
            self.do(self.manager.adopt, session)
        else:
            self.table.remove_runtime(session)  # where the cluster puts a remote session
            self.do(self.manager.hand_off, session.id)

    @rule(runtime=st.integers(0, 2))
    def arrive(self, runtime: int) -> None:
        session = arriving(f"runtime://d/{runtime}")
        self.table.add_runtime(session)
        self.do(self.manager.adopt, session)

    @rule(number=NUMBERS)
    def deliver(self, number: int) -> None:
        """While the row of a new socket is not stored nothing reaches it before the answer."""
        if session := self.session(number):
            link: Any = session.socket.link if session.socket is not None else FakeLink()
            before = len(link.frames)
            self.do(session.deliver, b"{}")
            if session.state is State.OPEN:
                assert len(link.frames) == before + 1

    @invariant()
    def no_client_makes_the_node_try_what_the_table_does_not_foresee(self) -> None:
        assert not self.faults

    @invariant()
    def a_session_is_known_while_its_state_says_so(self) -> None:
        for session in self.seen.values():
            is_here = session.state in HERE
            assert (self.manager.sessions.get(session.id) is session) == is_here
            at_url = self.table.runtimes.get(session.runtime_url, ())
            assert any(each is session for each in at_url) == is_here

    @invariant()
    def it_has_a_socket_while_its_state_says_so_and_they_know_one_another(self) -> None:
        for session in self.seen.values():
            assert session.is_connected == (session.state in WITH_SOCKET)
            assert (session.socket is not None) == session.is_connected
            assert session.socket is None or session.socket.session is session
        for connection in self.connections:
            session = connection.session  # type: ignore[assignment]
            if session is not None and session.state is not State.PROVISIONAL:
                assert session.socket is connection

    @invariant()
    def a_grace_period_runs_for_those_that_are_detached_and_no_others(self) -> None:
        detached = {each.id for each in self.seen.values() if each.state is State.DETACHED}
        assert set(self.manager._detached) == detached

    @invariant()
    def what_a_session_holds_is_freed_once_at_its_end(self) -> None:
        closed = {each.id for each in self.seen.values() if each.is_closed}
        assert sorted(self.freed) == sorted(self.store.freed) == sorted(closed)

    @invariant()
    def a_sender_is_read_while_nothing_holds_it_back(self) -> None:
        for connection in self.connections:
            link: Any = connection.link
            assert link.is_reading or connection.state is not SocketState.READING
            assert (link.closed is not None) or connection.state is not SocketState.CLOSING


def _tokens(frame: bytes) -> list[str]:
    body = json.loads(frame).get("body") or {}
    return [body["runtimeToken"]] if "runtimeToken" in body else []


TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=40, deadline=None
)


class Sockets(RuleBasedStateMachine):
    """One socket whose frames need facts, readers and turns: each frame is carried once, in order,
    and those of a socket that is lost as well."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.sent = 0
        self.carried: list[int] = []
        self.facts: deque[Callable[[], None]] = deque()
        self.readers: deque[Callable[[], None]] = deque()
        self.told: list[Any] = []
        self.do(self._connect)

    def _connect(self) -> None:
        self.link: Any = FakeLink()
        limits = ConnectionSettings(FlowLimits(1e6, 1e9, max_pending=2), handshake_timeout=60)
        manager: Any = self
        self.connection = Connection(self.link, "192.0.2.1", manager, self.carry, limits)

    def lost(self, connection: Connection) -> None:
        """What a connection asks of the session manager."""
        self.told.append(connection)

    def teardown(self) -> None:
        self.connection._deadline.cancel()
        self.loop.close()

    do = Sessions.do

    def carry(self, frame: bytes, caller: Connection, message: Any = None) -> None:
        number, _, need = frame.decode().partition(" ")
        if need == "fact":
            caller.hold(number.encode(), Pending("a fact", self.facts.append))
            return
        self.carried.append(int(number))
        if need == "reader":
            caller.wait_for(self)  # type: ignore[arg-type]
        elif need == "answer":
            caller.answer_pending(+1)
        elif need == "fault":
            raise RuntimeError("broken")

    def when_writable(self, callback: Callable[[], None]) -> None:
        self.readers.append(callback)

    @property
    def is_there(self) -> bool:
        return self.connection.state in (SocketState.READING, SocketState.HELD)

    @rule(need=st.sampled_from(["", "", "fact", "reader", "answer"]))
    def send(self, need: str) -> None:
        if self.is_there:
            self.do(self.connection.frame_received, f"{self.sent} {need}".encode())
            self.sent += 1

    @rule()
    def fact_known(self) -> None:
        if self.facts:
            self.do(self.facts.popleft())

    @rule()
    def reader_catches_up(self) -> None:
        if self.readers:
            self.do(self.readers.popleft())

    @rule()
    def answer_given(self) -> None:
        if self.connection.flow.pending_answers:
            self.do(self.connection.answer_pending, -1)

    @rule(how=st.sampled_from(["lost", "lost", "end", "fault"]))
    def go(self, how: str) -> None:
        if how == "lost" and self.connection.state is not SocketState.LOST and not self.told:
            self.do(self.connection.lost)
        elif how == "end":
            self.do(self.connection.end, 1000, "closed")
        elif how == "fault" and self.connection.state is SocketState.READING:
            self.do(self.connection.frame_received, f"{self.sent} fault".encode())
            self.sent += 1

    @invariant()
    def frames_are_carried_once_and_in_order(self) -> None:
        assert self.carried == list(range(len(self.carried)))

    @invariant()
    def it_is_read_while_it_waits_for_nothing(self) -> None:
        if self.connection.state is SocketState.READING:
            assert self.link.is_reading
            assert len(self.carried) == self.sent
        if self.connection.state is SocketState.HELD:
            assert not self.link.is_reading
            assert self.facts or self.readers or self.connection.flow.pending_answers

    @invariant()
    def a_lost_one_waits_for_facts_alone_and_its_session_is_told_once(self) -> None:
        if self.connection.state is SocketState.LOST:
            assert self.facts
        assert len(self.told) == (self.connection.state is SocketState.CLOSED)


TestSockets = Sockets.TestCase
TestSockets.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=40, deadline=None
)
