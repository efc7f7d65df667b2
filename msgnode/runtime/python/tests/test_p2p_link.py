"""Cases P30 to P39, P44, P46 and P47 without a network: order and number of messages over node and
channel, whatever the channel does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from p2p_world import FULL, World

from msgnode.runtime.python.p2p import link as links
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PTimers

SAY = st.tuples(st.sampled_from(["say a", "say b"]), st.integers(1, 50))
STEPS = st.tuples(st.just("steps"), st.integers(0, 150))
END = st.tuples(
    st.sampled_from(["cut", "close", "bye a", "bye b", "repeat", "swap", "tick", "say a"]),
    st.just(1),
)
OPEN = st.just(("open", 1))
ROUNDS = st.lists(
    st.tuples(SAY, OPEN, STEPS, SAY, SAY, STEPS, END, SAY, STEPS, END, STEPS), max_size=5
)
"""A round: a channel is opened in the midst of talk, used, and ended in some way, or not at all."""


class Talk:
    """Numbers said by both sides, and what became of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.said = {"a": 0, "b": 0}

    def say(self, name: str, count: int) -> None:
        side = self.world.a if name == "a" else self.world.b
        for _ in range(count):
            side.say(self.said[name])
            self.said[name] += 1

    def act(self, name: str, count: int) -> None:
        world = self.world
        match name.split():
            case ["say", who]:
                self.say(who, count)
            case ["steps"]:
                for _ in range(count):
                    world.step()
            case ["bye", who]:
                (world.a if who == "a" else world.b).link.bye("closing", world.now)
            case ["tick"]:
                while world.step_node():  # a node that takes longer than a resume may loses it
                    pass
                world.tick()
            case ["repeat"]:
                for side in world.sides:
                    if side.channel:
                        side.channel.appendleft(side.channel[0])
            case ["swap"]:
                for side in world.sides:
                    side.channel.reverse()
            case [other]:
                getattr(world, other)()

    def assert_all_arrived(self) -> None:
        self.world.settle()
        assert self.world.b.arrived == list(range(self.said["a"]))
        assert self.world.a.arrived == list(range(self.said["b"]))
        assert not self.world.a.refused and not self.world.b.refused


@settings(deadline=None)
@given(st.integers(0, 2**32), ROUNDS, st.booleans())
def test_cases_p31_to_p33_each_message_arrives_once_and_in_order(
    seed: int, rounds: list[tuple[tuple[str, int], ...]], is_slow: bool
) -> None:
    world = World(seed)
    world.b.is_slow = is_slow
    talk = Talk(world)
    for actions in rounds:
        for name, count in actions:
            talk.act(name, count)
    talk.assert_all_arrived()


def live(seed: int = 1, timers: P2PTimers | None = None) -> Talk:
    """Two sides whose channel is in use in both directions."""
    world = World(seed, timers)
    assert world.open()
    world.settle()
    assert world.a.link.way is world.b.link.way is Way.CHANNEL
    return Talk(world)


def test_case_p30_ten_thousand_while_the_channel_opens_go_both_ways_in_order() -> None:
    world = World(3)
    talk = Talk(world)
    for number in range(10_000):
        talk.say("a", 1)
        if number == 2_000:
            world.open()
        if number % 3:
            world.step()
    talk.assert_all_arrived()
    assert world.b.by["node"] > 100 and world.b.by["channel"] > 100


def test_case_p31_what_vanished_is_sent_again_through_the_node() -> None:
    talk = live()
    world = talk.world
    talk.say("a", 50)
    talk.say("b", 50)
    for _ in range(30):
        world.step()
    world.cut()
    talk.say("a", 50)
    began = world.now
    talk.assert_all_arrived()
    assert world.now - began <= P2PTimers().dead
    assert world.a.link.resent + world.b.link.resent > 0
    assert world.a.link.way is world.b.link.way is Way.NODE


def test_case_p32_an_orderly_end_loses_nothing_and_takes_no_time() -> None:
    talk = live()
    talk.say("a", 200)
    talk.say("b", 200)
    for _ in range(100):
        talk.world.step()
    began = talk.world.now
    talk.world.a.link.bye("closing", began)
    talk.say("a", 10)
    talk.assert_all_arrived()
    assert talk.world.now - began <= 1.0


def test_case_p33_twenty_channels_one_after_the_other() -> None:
    talk = Talk(World(9))
    for _ in range(20):
        talk.say("a", 20)
        talk.say("b", 20)
        talk.world.settle()
        assert talk.world.open()
        talk.say("a", 20)
        for _ in range(60):
            talk.world.step()
        talk.world.close()
    talk.assert_all_arrived()
    assert talk.world.epochs == 20
    assert len(talk.world.a.link._ended) <= P2PTimers().keep_epochs


def test_case_p35_what_finds_no_room_is_refused_and_the_rest_keeps_its_order() -> None:
    world = World(timers=P2PTimers(held_size=1_000))
    world.open()
    talk = Talk(world)
    talk.say("a", 12)
    assert world.a.refused == [(10, 503), (11, 503)]
    world.settle()
    assert world.b.arrived == list(range(10))


def test_case_p37_an_answer_that_the_node_awaits_waits_for_its_turn_and_goes_there() -> None:
    world = World()
    world.open()
    world.a.say(0)
    world.a.link.send({"id": 1, "type": "response"}, 10, world.now, is_for_node=True)
    world.a.say(2)
    world.settle()
    assert sorted(world.b.arrived) == [0, 1, 2]
    assert world.b.by == {"node": 1, "channel": 2}


def test_case_p38_who_no_longer_knows_the_epoch_gets_nothing_twice() -> None:
    talk = live()
    world = talk.world
    talk.say("a", 20)
    for _ in range(10):
        world.step()
    got = list(world.b.arrived)
    fresh = links.Link(world.b)  # the other runtime has started again
    world.cut()
    world.b.link = fresh
    talk.say("a", 5)
    world.settle()
    lost = [number for number, code in world.a.refused if code == 503]
    assert world.b.arrived == [*got, *range(20, 25)] or world.b.arrived == got
    assert set(lost) | set(world.b.arrived) == set(range(25))
    assert len(world.b.arrived) == len(set(world.b.arrived))


@pytest.mark.parametrize("length", [100, 16_384, 16_385, 262_145, 1024 * 1024 - 100])
def test_case_p44_a_message_of_any_length_arrives_whole(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = live()
    taken: list[dict[str, object]] = []
    keep = talk.world.b.take

    def take(message: dict[str, object]) -> bool:
        taken.append(message)
        return keep(message)

    monkeypatch.setattr(talk.world.b, "take", take)
    text = ("ü🙂" * length)[:length]
    talk.world.a.link.send({"id": 0, "type": "create", "text": text}, length, 0.0)
    talk.world.a.link.send({"id": 1, "type": "create"}, 10, 0.0)
    talk.world.settle()
    assert [each["id"] for each in taken] == [0, 1]
    assert taken[0]["text"] == text


def test_case_p47_a_slow_reader_never_has_more_than_its_room_and_a_frame() -> None:
    talk = live()
    for number in range(40):
        talk.world.a.link.send({"id": number, "text": "x" * 20_000}, 20_000, 0.0)
    talk.said["a"] = 40
    talk.assert_all_arrived()
    assert talk.world.a.most_in_channel <= FULL + 17_000


def test_the_window_bounds_what_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = live()
    world = talk.world
    monkeypatch.setattr(world.a, "has_room", lambda: True)
    talk.say("a", 5_000)
    assert len(world.a.link._window) == P2PTimers().window
    talk.assert_all_arrived()


HOSTILE = [
    "", "[]", "nonsense", "{}", '{"seq":1}', '{"data":1}', '{"data":{"textMessage":"x"},"seq":1}',
    '{"part":[0],"seq":1,"text":""}', '{"part":[2,1],"seq":1,"text":""}', '{"ack":-1}',
    '{"ack":1e9}', '{"fenceAck":true}', "[" * 5_000, '{"part":[0,999999],"seq":1,"text":""}',
]  # fmt: skip


@pytest.mark.parametrize("text", [*HOSTILE, b"bytes", None])
def test_case_p46_what_cannot_be_read_is_counted_and_the_tenth_ends_the_channel(
    text: object,
) -> None:
    talk = live()
    link = talk.world.b.link
    for _ in range(9):
        link.frame(text, talk.world.now)
    assert (link.is_open, link.faults) == (True, 9)
    link.frame(text, talk.world.now)
    assert not link.is_open
    talk.say("a", 10)
    talk.assert_all_arrived()


@pytest.mark.parametrize("skipped", [2, 3, 10_000])
def test_case_p46_a_skipped_number_ends_the_channel_and_nothing_is_lost(skipped: int) -> None:
    talk = live()
    frame = {"uuid": "x", "seq": skipped, "data": {"textMessage": {"id": 99, "type": "create"}}}
    talk.world.b.link.frame(json.dumps(frame), talk.world.now)
    assert not talk.world.b.link.is_open
    talk.say("a", 10)
    talk.assert_all_arrived()


@settings(deadline=None)
@given(st.text(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["seq", "ack", "data", "part", "text", "textMessage", "bye", "ping"]),
        inner, max_size=6),
    max_leaves=12,
).map(json.dumps))  # fmt: skip
def test_case_p46_no_frame_breaks_a_link(text: str) -> None:
    talk = live()
    talk.world.b.link.frame(text, talk.world.now)
    talk.world.settle()


def test_case_p55_silence_is_noticed_in_twelve_seconds_and_pings_keep_a_channel_alive() -> None:
    talk = live()
    world = talk.world
    for _ in range(200):
        assert world.step() or world.tick()
    assert (world.a.link.is_open, world.now > 60) == (True, True)
    world.cut()
    began = world.now
    while world.a.link.is_open:
        assert world.step() or world.tick()
    assert world.now - began <= P2PTimers().dead


def test_case_p54_an_unused_channel_says_bye_after_its_time() -> None:
    talk = live(timers=P2PTimers(idle=30.0))
    world = talk.world
    while world.a.link.is_open or world.b.link.is_open:
        assert world.step() or world.tick()
    assert 30.0 <= world.now < 40.0
    talk.say("a", 3)
    talk.assert_all_arrived()
    assert world.b.by["channel"] == 0
