"""A connection holds its sender back: for facts that are on their way, in order, lost or not."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from msgnode.core.pending import Pending
from msgnode.sessions.connection import AT_ONCE, Connection, ConnectionSettings
from msgnode.sessions.flow_control import FlowLimits
from tests.fakes import FakeLink


class Sessions:
    def __init__(self):
        self.told = []

    def lost(self, connection):
        self.told.append(connection)


class Bus:
    """Carries frames; those in `unknown` wait for a fact once each."""

    def __init__(self, *unknown):
        self.carried = []
        self.unknown = set(unknown)
        self.waiting = []

    def carry(self, frame, caller, message=None):
        if frame in self.unknown:
            self.unknown.discard(frame)
            caller.hold(frame, Pending("a fact", self.waiting.append))
        else:
            self.carried.append(frame)

    def tell(self):
        self.waiting.pop(0)()


@pytest.fixture
def sessions():
    return Sessions()


def connected(bus, sessions):
    limits = ConnectionSettings(FlowLimits(1000, 1_000_000, 10), 60)
    return Connection(FakeLink(), "192.0.2.1", sessions, bus.carry, limits)


async def turn():
    """Let the loop make one turn."""
    await asyncio.sleep(0)


async def test_a_frame_that_needs_a_fact_and_those_after_it_wait_in_order(sessions):
    bus = Bus(b"1")
    connection = connected(bus, sessions)
    for frame in (b"1", b"2", b"3"):
        connection.frame_received(frame)
    assert (bus.carried, connection.link.is_reading) == ([], False)
    bus.tell()
    await turn()
    assert (bus.carried, connection.link.is_reading) == ([b"1", b"2", b"3"], True)


async def test_each_frame_may_need_a_fact_of_its_own(sessions):
    bus = Bus(b"1", b"2")
    connection = connected(bus, sessions)
    for frame in (b"1", b"2", b"3"):
        connection.frame_received(frame)
    bus.tell()
    await turn()
    assert (bus.carried, connection.link.is_reading) == ([b"1"], False)
    bus.tell()
    await turn()
    assert (bus.carried, connection.link.is_reading) == ([b"1", b"2", b"3"], True)


async def test_what_was_sent_before_the_socket_was_lost_is_carried_when_the_fact_is_there(sessions):
    bus = Bus(b"1")
    connection = connected(bus, sessions)
    connection.frame_received(b"1")
    connection.frame_received(b"2")
    connection.lost()
    assert (bus.carried, sessions.told) == ([], [])
    bus.tell()
    await turn()
    assert (bus.carried, sessions.told) == ([b"1", b"2"], [connection])


@pytest.mark.parametrize("is_lost", [False, True])
async def test_of_many_frames_in_one_read_a_few_are_carried_before_others_have_their_turn(
    sessions, is_lost
):
    bus = Bus()
    connection = connected(bus, sessions)
    frames = [b"%d" % number for number in range(3 * AT_ONCE)]
    for frame in frames:
        connection.frame_received(frame)
    if is_lost:
        connection.lost()
    for turns in range(1, 4):
        assert bus.carried == frames[: turns * AT_ONCE]
        assert not (connection.link.is_reading or sessions.told)
        await turn()
    assert connection.link.is_reading is not is_lost
    assert sessions.told == [connection] * is_lost


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_frame_that_waits_for_its_turn_is_not_read_once_more(sessions, is_lost):
    carried = []
    limits = ConnectionSettings(FlowLimits(1000, 1_000_000, 10), 60)
    connection = Connection(
        FakeLink(),
        "192.0.2.1",
        sessions,
        lambda frame, _, read: carried.append((frame, read)),
        limits,
    )
    frames = [(b"%d" % number, f"read {number}") for number in range(AT_ONCE + 2)]
    for each in frames:
        connection.frame_received(*each)
    if is_lost:
        connection.lost()
    await turn()
    assert carried == frames


async def test_a_fact_that_comes_after_the_end_changes_nothing(sessions):
    bus = Bus(b"1")
    connection = connected(bus, sessions)
    connection.frame_received(b"1")
    connection.end(1000, "closed")
    connection.lost()
    bus.tell()
    await turn()
    assert (bus.carried, sessions.told) == ([], [connection])


async def test_a_frame_that_fails_ends_its_connection_and_the_session_is_told(sessions):
    def broken(frame, caller):
        raise RuntimeError("broken")

    limits = ConnectionSettings(FlowLimits(1000, 1_000_000, 10), 60)
    link = FakeLink()
    connection = Connection(link, "192.0.2.1", sessions, broken, limits)
    connection.frame_received(b"{}")
    assert link.closed is not None
    assert link.closed[0] == 3001
    connection.lost()
    assert sessions.told == [connection]


@pytest.mark.parametrize("frames", [(), (b"known",), (b"unknown", b"known")])
async def test_a_connection_that_is_over_goes_without_a_look_for_rings(sessions, frames):
    bus = Bus(b"unknown")
    connection = connected(bus, sessions)
    for frame in frames:
        connection.frame_received(frame)
    connection.lost()
    for _ in bus.waiting.copy():
        bus.tell()
    await asyncio.sleep(0)
    assert sessions.told == [connection]
    assert bus.carried == list(frames)
    over = weakref.ref(connection)
    gc.disable()
    try:
        sessions.told.clear()
        del connection, bus
        await asyncio.sleep(0)
        assert over() is None
    finally:
        gc.enable()
