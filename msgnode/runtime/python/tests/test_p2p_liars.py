"""The other end of a channel lies: about what it got, who it is, and whether it listens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from p2p_world import World

from msgnode.runtime.python.p2p import frames
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.rtc import MOST_BUFFERED, RtcConnection
from msgnode.runtime.python.p2p.settings import P2PTimers
from msgnode.runtime.python.p2p.states import Invitations, Quarantine


def live(**timers: Any) -> World:
    """Two sides whose channel is in use in both directions."""
    world = World(1, P2PTimers(**timers))
    assert world.open()
    world.settle()
    return world


@pytest.mark.parametrize("ack", [1, 7, 10**9, 2**53 - 1])
def test_an_ack_of_what_was_never_sent_counts_as_one_of_all_that_was(ack: int) -> None:
    world = live()
    for number in range(3):
        world.a.say(number)
    world.a.link.frame(json.dumps({"ack": ack}), world.now)
    assert len(world.a.link._window) == max(0, 3 - ack)
    for number in range(3, 6):
        world.a.say(number)
    world.settle()
    assert world.b.arrived == list(range(6))


@pytest.mark.parametrize("received", [0, 2, 10**12])
def test_a_resume_with_any_count_ends_the_wait_and_no_message_goes_twice_to_the_node(
    received: int,
) -> None:
    world = live()
    for number in range(5):
        world.a.say(number)
    world.cut()
    assert world.a.link.resume_asked(world.a.link.epoch, received) is not None
    assert world.a.link.way is Way.NODE and not len(world.a.link._window)
    sent = [what["id"] for kind, what in world.a.to_node_queue if kind == "message"]
    assert sent == list(range(min(received, 5), 5))
    world.a.link.resume_asked(world.a.link.epoch, 0)  # again
    assert [kind for kind, _ in world.a.to_node_queue].count("message") == len(sent)


def test_pings_without_end_do_not_keep_an_unused_channel() -> None:
    world = live(idle=30.0)
    for second in range(40):
        world.now += 1.0
        world.a.link.frame('{"ping":1}', world.now)
        world.a.link.tick(world.now)
        assert world.a.link.is_open is (second < 29), second


@pytest.mark.parametrize("depth", [1, 980, 991, 1_200])
def test_a_ping_that_is_nested_is_one_bad_frame(depth: int) -> None:
    world = live()
    world.a.channel.clear()
    world.a.link.frame('{"ping":' + depth * "[" + depth * "]" + "}", world.now)
    assert world.a.link.faults == 1 and not world.a.channel and world.a.link.is_open


@pytest.mark.parametrize("head", [{}, {"from": 5}, {"to": [1]}, {"from": "a", "to": None}])
def test_the_progress_of_an_answer_without_a_sender_is_nobodys(head: dict[str, Any]) -> None:
    world, uuid = live(), "abcdefghijkl"
    message = {"type": "response", "id": 1, **head}
    data = {"dataSize": 100, "textMessage": message}
    world.a.link.frame(json.dumps({"uuid": uuid, "seq": 1, "data": data}), world.now)
    for _ in range(2):
        world.a.link.frame(uuid.encode("utf-16-le") + 50 * b"x", world.now)
    assert world.a.link._incoming.received == 1 and world.a.link.is_open


def test_a_channel_that_refuses_a_frame_leaves_none_for_the_next_channel() -> None:
    world = live()
    sent: list[str | bytes] = []

    def refusing(frame: str | bytes) -> None:
        sent.append(frame)
        if len(sent) == 2:
            world.a.link.lost("closed", world.now)

    to_channel, world.a.to_channel = world.a.to_channel, refusing  # type: ignore[method-assign]
    has_room, world.a.has_room = world.a.has_room, lambda: len(sent) > 5  # type: ignore[method-assign]
    for number in range(4):
        world.a.say(number)
    world.a.has_room = lambda: True  # type: ignore[method-assign]
    world.a.link.pump(world.now)
    world.a.to_channel, world.a.has_room = to_channel, has_room  # type: ignore[method-assign]
    world.settle()
    assert world.open()
    for number in range(4, 8):
        world.a.say(number)
    world.settle()
    assert world.b.arrived == list(range(8))
    assert world.a.link.is_open and world.b.link.faults == 0


@pytest.mark.parametrize(
    ("value", "most"),
    [(10_000 * "x", 9), (40_000 * "x", 2), ({"content": 30_000 * b"x"}, 3)],
    ids=["whole", "in pieces", "bytes"],
)
def test_who_sends_more_than_may_wait_for_a_check_ends_his_channel(value: Any, most: int) -> None:
    world = live(inbox_size=100_000)
    link, sent, is_slow = world.a.link, 0, False
    world.a.take = lambda message: not is_slow  # type: ignore[method-assign]

    def send() -> None:
        nonlocal sent
        sent += 1
        for frame in frames.write(sent, {"id": 1, "body": {"value": value}}):
            link.frame(frame, world.now)

    for _ in range(20):  # what is taken does not count
        send()
    is_slow = True
    for _ in range(most):
        send()
    assert link.is_open and link._incoming.received == 20
    send()
    assert (link.is_open, link.way, link.faults) == (False, Way.RESUMING, 0)


def test_an_epoch_that_comes_again_is_a_new_channel() -> None:
    world = live()
    epoch = world.a.link.epoch
    world.a.say(0)
    world.settle()
    world.close()
    world.settle()
    world.epochs -= 1  # the other side names the old one
    assert world.open() and world.a.link.epoch == epoch
    for number in range(1, 40):
        world.a.say(number)
    world.settle()
    world.cut()
    world.a.say(40)
    world.settle()
    assert world.b.arrived == list(range(41))


def test_fences_without_end_leave_one_that_is_remembered() -> None:
    world = World(1)
    for number in range(1_000):
        assert world.a.link.fence_asked(f"epoch of mine {number}", number)
    assert world.a.link._fences.early("epoch of mine 999") == 999
    assert world.a.link._fences.early("epoch of mine 998") is None


def test_who_sends_and_does_not_read_ends_his_channel() -> None:
    class Channel:
        readyState = "open"  # noqa: N815 (as of aiortc)
        bufferedAmount = MOST_BUFFERED  # noqa: N815
        sent = 0

        def send(self, frame: str) -> None:
            self.sent += 1

    rtc: Any = object.__new__(RtcConnection)
    rtc._channel, ended = Channel(), []
    rtc.on_close = lambda: ended.append(True)
    rtc.send("x")
    assert (rtc._channel.sent, ended) == (1, [])
    rtc._channel.bufferedAmount += 1
    rtc.send("x")
    assert (rtc._channel.sent, ended) == (1, [True])


def test_a_frame_that_the_channel_does_not_take_ends_it() -> None:
    class Channel:
        readyState = "open"  # noqa: N815 (as of aiortc)
        bufferedAmount = 0  # noqa: N815

        def send(self, frame: str) -> None:
            frame.encode()

    rtc: Any = object.__new__(RtcConnection)
    rtc._channel, ended = Channel(), []
    rtc.on_close = lambda: ended.append(True)
    rtc.send("half \ud83d")
    assert ended == [True]


@pytest.mark.parametrize(
    "text", ["half \ud83d", "half \ude00" + 20_000 * "ü", 20_000 * "🙂" + "\ud83d"]
)
def test_a_text_that_was_cut_within_a_character_travels_as_it_is(text: str) -> None:
    written = frames.write(1, {"id": 1, "body": {"value": text}})
    read = [frames.read(each.encode().decode()) for each in written if isinstance(each, str)]
    whole = frames.join([each.text for each in read if isinstance(each, frames.Piece)] or ["{}"])
    first = read[0].message if isinstance(read[0], frames.Data) else whole
    assert first["body"]["value"] == text and len(read) == len(written)


def test_failures_and_invitations_of_ten_thousand_runtimes_are_remembered_and_no_more() -> None:
    quarantine, invitations = Quarantine(), Invitations()
    for number in range(10_001):
        quarantine.failed(f"runtime://d/{number}", 0.0)
        invitations.is_too_many(f"runtime://d/{number}", 0, 0.0)
    assert quarantine.until("runtime://d/0") == 0 and quarantine.until("runtime://d/1") == 30
    assert len(quarantine._failures) == len(invitations._came) == 10_000
