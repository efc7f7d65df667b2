"""A message to many: charged for each, encoded once, given way to others between its recipients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from time import thread_time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from msgnode.bus.delivery import FanOut
from msgnode.bus.holders import NoOthers
from msgnode.bus.pipeline import COPIES_AS_ONE
from msgnode.bus.table import RoutingTable
from msgnode.core import messages
from msgnode.core.pending import Pending
from msgnode.core.record import Outcome
from msgnode.sessions.connection import Connection, ConnectionSettings
from msgnode.sessions.flow_control import MAX_DEBT, FlowLimits
from msgnode.sessions.turn_queue import TURN, Turns
from tests.fakes import FakeCaller, FakeLink, FakeRecorder, FakeSession, pipeline

SENDER = "runtime://d/1"


def _work_longer_than_a_turn() -> None:
    end = thread_time() + 1.5 * TURN
    while thread_time() < end:
        pass


def frame(to: Any, body: Any = None, **more: Any) -> bytes:
    fields = {"id": 1, "type": "create", "from": SENDER, "to": to, "body": body or {}, **more}
    return json.dumps(fields).encode()


@given(
    st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=4),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_the_copy_for_one_of_many_is_the_copy_it_would_have_been_alone(
    body: dict[str, Any], auth: bool, asserted: bool, carries_token: bool
) -> None:
    if carries_token:
        body = {**body, "accessToken": "secret"}
    to = ["runtime://d/2", "comm://elsewhere.example/3", "runtime://d/4"]
    whole = messages.parse(frame(to, body, extra=[1]))
    for each in to:
        shared = whole.to_one(each).forwarded(each, auth, asserted)
        alone = messages.parse(frame([each], body, extra=[1])).forwarded(each, auth, asserted)
        assert json.loads(shared) == json.loads(alone)
        assert messages.parse(shared).recipients == (each,)


def test_a_message_is_charged_for_each_of_its_recipients() -> None:
    caller = FakeCaller(FakeSession(SENDER))
    text = frame(["runtime://d/2", "runtime://d/3", "runtime://d/4"])
    pipeline(RoutingTable(), recorder=FakeRecorder()).carry(text, caller)
    assert caller.charged == [(2, 2 * len(text))]
    assert caller.turns >= 3


def test_a_fan_out_is_charged_and_a_large_one_is_done_in_parts() -> None:
    table, caller, recorder = RoutingTable(), FakeCaller(FakeSession(SENDER)), FakeRecorder()
    crowd = [FakeSession(f"runtime://d/{number}") for number in range(1000)]
    for each in crowd:
        table.subscribe("comm://d/1/changes", each)
    pipeline(table, recorder=recorder).carry(frame("comm://d/1/changes"), caller)
    assert [len(each.frames) for each in crowd] == [1] * 1000
    assert caller.turns > 1
    assert caller.charged == [(0, 999 * len(crowd[0].frames[0]) // COPIES_AS_ONE)]
    assert [(row.listeners, row.outcome) for row in recorder.rows] == [(1000, Outcome.DELIVERED)]


def test_a_fan_out_gives_way_by_bytes_as_well() -> None:
    crowd = tuple(FakeSession(f"runtime://d/{number}") for number in range(20))
    fan_out = FanOut(b"x" * 300_000, crowd, FakeSession(SENDER))
    assert fan_out.is_large
    assert sum(1 for _ in fan_out.parts()) == 20
    assert fan_out.outcome == (Outcome.DELIVERED, 20)


class Sessions:
    def __init__(self) -> None:
        self.lost_ones: list[Any] = []

    def lost(self, connection: Any) -> None:
        self.lost_ones.append(connection)


def connected(carry: Any, **limits: float) -> tuple[Connection, FakeLink, Sessions]:
    link, sessions = FakeLink(), Sessions()
    given: Any = sessions
    wire: Any = link
    flow = FlowLimits(limits.get("messages", 1e6), limits.get("size", 1e9), max_pending=10)
    settings = ConnectionSettings(flow, handshake_timeout=60)
    return Connection(wire, "192.0.2.1", given, carry, settings), link, sessions


async def test_others_have_their_turn_and_the_senders_next_frame_waits() -> None:
    done: list[str] = []

    def rest() -> Iterator[None]:
        for number in range(5):
            done.append(str(number))
            _work_longer_than_a_turn()
            yield

    def carry(text: bytes, caller: Any, message: Any = None) -> None:
        if text == b"many":
            caller.carry_on(rest())
        else:
            done.append(text.decode())

    connection, link, _ = connected(carry)
    connection.frame_received(b"many")
    connection.frame_received(b"next")
    assert not link.is_reading
    turns = 0
    while "next" not in done:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 100
    assert done == ["0", "1", "2", "3", "4", "next"]
    assert turns >= 4
    assert link.is_reading


async def test_what_is_under_way_is_carried_though_its_sender_is_lost() -> None:
    done: list[int] = []

    def rest() -> Iterator[None]:
        for number in range(3):
            done.append(number)
            connection.flow.readers_behind = 1  # which holds up no sender that is gone
            yield

    connection, _, sessions = connected(lambda text, caller, message: caller.carry_on(rest()))
    connection.frame_received(b"many")
    assert done == [0]
    connection.lost()
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == [0, 1, 2]
    assert sessions.lost_ones == [connection]


async def test_a_sender_pays_for_what_its_message_costs_within_bounds() -> None:
    connection, link, _ = connected(lambda text, caller, message: caller.charge(0, 500), size=1000)
    connection.frame_received(b"x" * 10)
    assert link.is_reading
    connection.frame_received(b"x" * 600)
    assert not link.is_reading
    connection.charge(0, 10**12)
    assert connection.flow.seconds_until_credit() <= MAX_DEBT + 0.2
    connection.end(1000, "")


def test_what_must_be_found_out_first_is_charged_before_it_is_looked_for() -> None:
    class Asks(NoOthers):
        def hears(self, address: str) -> bool:
            return False

        def find(self, key: Any, addresses: Any) -> None:
            raise Pending("Who is there", lambda then: None, 4 * len(addresses))

    for to in (["runtime://d/2", "runtime://d/3"], "runtime://d/2"):
        caller = FakeCaller(FakeSession(SENDER))
        pipeline(RoutingTable(), recorder=FakeRecorder(), holders=Asks()).carry(frame(to), caller)
        assert caller.held == [frame(to)]
        assert caller.charged == [(8 if isinstance(to, list) else 4, 0)]
        assert caller.frames == []


async def test_the_look_ups_of_many_lists_share_turns_with_other_work() -> None:
    """Each list is a step of its own, so that lists that arrive together take several turns."""
    looked_for: list[float] = []

    class Slow(NoOthers):
        def hears(self, address: str) -> bool:
            return False

        def find(self, key: Any, addresses: Any) -> None:
            looked_for.append(turns)
            _work_longer_than_a_turn()

    path = pipeline(RoutingTable(), recorder=FakeRecorder(), holders=Slow())
    turns = 0
    for _ in range(3):
        caller = FakeCaller(FakeSession(SENDER))
        steps = Turns(lambda: True, lambda: None)
        caller.carry_on = steps.add  # type: ignore[method-assign]
        path.carry(frame(["runtime://d/2", "runtime://d/3"]), caller)
    async with asyncio.timeout(10):
        while len(looked_for) < 3:
            turns += 1
            await asyncio.sleep(0)
    assert len(set(looked_for)) == 3
