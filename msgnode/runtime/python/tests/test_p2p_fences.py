"""Fences: nothing on a channel overtakes what is still at the node, and none is waited for long."""

from __future__ import annotations

from collections import deque

import pytest
from p2p_world import World
from test_p2p_link import Talk

from msgnode.runtime.python.p2p import link as links
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PTimers


def test_case_p34_without_an_answer_to_the_fence_nothing_is_held_longer_than_three_seconds() -> (
    None
):
    world = World()
    world.open()
    world.cut()
    talk = Talk(world)
    talk.say("a", 5)
    assert world.b.arrived == []
    while world.a.link.way is not Way.NODE:
        assert world.step_node() or world.tick()
    assert world.now <= P2PTimers().fence
    while world.step_node():
        pass
    assert world.b.arrived == list(range(5))


def test_case_p34_the_second_fence_opens_the_way_where_the_first_was_lost() -> None:
    world = World()
    talk = Talk(world)
    world.open()
    talk.say("a", 5)
    while world.step_node():
        pass
    for side in world.sides:
        side.channel.clear()  # its answer is gone
    world.tick()
    assert str(world.a.link.way) == "node"
    talk.assert_all_arrived()
    while str(world.a.link.way) != "channel":
        assert world.step() or world.tick()
    talk.say("a", 5)
    talk.assert_all_arrived()
    assert world.b.by["channel"] == 5


@pytest.mark.parametrize("seed", range(30))
def test_what_went_to_an_address_through_the_node_is_not_overtaken(seed: int) -> None:
    world = World(seed)
    world.open()
    world.settle()
    a, b = world.a, world.b
    a.say(0)
    a.say_by_node(100, "x")
    for _ in range(seed % 3):
        world.step()
    a.link.fence_again("x", world.now)
    for number in range(101, 104):
        a.say(number, to="x")
    a.say(1)
    while world.step_channel():  # which is faster than the node
        pass
    assert not [each for each in b.arrived if each > 100]
    world.settle()
    assert [each for each in b.arrived if each >= 100] == [100, 101, 102, 103]
    assert [each for each in b.arrived if each < 100] == [0, 1]
    assert b.by["node"] == 1
    assert str(a.link.way) == "channel"


def test_an_address_whose_fence_is_not_answered_stays_with_the_node_and_the_channel_goes_on() -> (
    None
):
    world = World()
    world.open()
    world.settle()
    a, b = world.a, world.b
    a.say_by_node(100, "x")
    a.link.fence_again("x", world.now)
    a.say(101, to="x")
    a.say(0)
    held, a.to_node_queue = a.to_node_queue, deque()  # the other side is away from its node
    while str(a.link.way) != "channel":
        assert world.step_channel() or world.tick()
    assert world.now <= 2 * P2PTimers().fence
    a.say(102, to="x")
    a.link.fence_again("x", world.now)
    a.say(1)
    while world.step_channel():
        pass
    assert b.arrived == [0, 1]
    a.to_node_queue = held + a.to_node_queue
    world.settle()
    assert b.arrived == [0, 1, 100, 101, 102]
    assert b.by == {"node": 3, "channel": 2}
    a.link.bye("closing", world.now)
    world.settle()
    assert world.open()
    world.settle()
    a.say(103, to="x")
    world.settle()
    assert b.by == {"node": 3, "channel": 3}


def test_a_fence_for_an_address_takes_the_place_of_the_first_one() -> None:
    world = World()
    world.open()
    a, b = world.a, world.b
    a.say(0, to="y")
    a.say_by_node(100, "x")
    a.link.fence_again("x", world.now)
    a.say(101, to="x")
    world.settle()
    assert sorted(b.arrived) == [0, 100, 101]
    assert b.arrived.index(100) < b.arrived.index(101)
    assert b.by == {"node": 1, "channel": 2}


def test_case_p39_without_a_fence_the_order_would_break(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(link: links.Link, now: float) -> None:
        link.way = Way.CHANNEL

    monkeypatch.setattr(links.Link, "_begin_fence", at_once)
    world = World(3)
    talk = Talk(world)
    talk.say("a", 100)
    world.open()
    talk.say("a", 100)
    with pytest.raises(AssertionError):
        talk.assert_all_arrived()
