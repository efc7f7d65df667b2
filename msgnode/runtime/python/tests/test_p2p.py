"""P2P connections without a network: the cases of both languages, and what is Python's alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from p2p_runtimes import play
from p2p_world import Play, talk

from msgnode.runtime.python.p2p import frames, states
from msgnode.runtime.python.p2p.link import Link, Way
from msgnode.runtime.python.p2p.rtc import MOST_BUFFERED, RtcConnection
from msgnode.runtime.python.p2p.senders import is_for_node

CASES = Path(__file__).parents[2] / "js" / "tests" / "p2p-cases.jsonl"


def cases(*kinds: str) -> list[Any]:
    """The shared cases of some kinds."""
    lines = map(json.loads, CASES.read_text(encoding="utf-8").splitlines())
    return [
        pytest.param(each, id=f"{each['name']} {number}")
        for number, each in enumerate(lines)
        if each["of"] in kinds
    ]


def _frame(text: str) -> Any:
    try:
        frame = frames.read(text)
    except frames.BadFrame:
        return None
    match frame:
        case frames.Data():
            return {"kind": "data", "seq": frame.seq, "ack": frame.ack, "message": frame.message}
        case frames.Piece():
            head = {"kind": "piece", "seq": frame.seq, "ack": frame.ack}
            return {**head, "index": frame.index, "count": frame.count, "text": frame.text}
        case frames.Sign():
            return {"kind": frame.kind, "value": frame.value}


def _written(length: int) -> list[Any]:
    written = frames.write(7, {"id": 1, "text": "ä" * length}, 3)
    found = map(json.loads, written)
    words = ("uuid", "seq", "ack", "part")
    return [[*map(each.get, words), len(each.get("text", ""))] for each in found]


def _rows() -> dict[str, Callable[..., Any]]:
    """What is asked of each part by its rows, whose last word is the answer."""
    quarantine, redials = states.Quarantine(30_000.0, 1_800_000.0), states.Redials()
    invitations = states.Invitations()

    def after(table: states.Table) -> Callable[[str, str], str]:
        return lambda state, event: str(
            states.after(table, states.State(state), states.Event(event))
        )

    def again(now: int, jitter: float) -> float | None:
        delay = redials.next(now / 1000, jitter)
        return None if delay is None else delay * 1000

    return {
        "requester": after(states.REQUESTER),
        "handler": after(states.HANDLER),
        "noReturn": lambda event: event in states.NO_RETURN,
        "statusOf": states.status_of,
        "staysRequester": states.stays_requester,
        "runtimeOfHandler": states.runtime_of_handler,
        "isForNode": is_for_node,
        "quarantine": lambda: quarantine.failed("b", 0.0),
        "redials": again,
        "invitations": lambda peer, count, now: invitations.is_too_many(peer, count, now / 1000),
        "frames": _frame,
        "written": _written,
    }


@pytest.mark.parametrize("case", cases(*_rows()))
def test_the_parts_answer_as_the_rows_say(case: dict[str, Any]) -> None:
    ask = _rows()[case["of"]]
    for *words, answer in case["rows"]:
        assert ask(*words) == answer, words


@pytest.mark.parametrize("case", cases("link"))
def test_links(case: dict[str, Any]) -> None:
    Play(case.get("seed", 1), case.get("timers")).steps(case["steps"])


@pytest.mark.parametrize("case", cases("runtimes"))
def test_runtimes(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, case["steps"])


@pytest.mark.parametrize("case", cases("talks"))
def test_talks(case: dict[str, Any]) -> None:
    sides = [side for seed in range(case["seeds"]) for side in talk(seed).sides]
    resent = sum(side.link.resent for side in sides)
    assert [resent, sum(side.by["channel"] for side in sides)] == [
        case["resent"],
        case["byChannel"],
    ]


def test_case_p39_without_a_fence_the_order_would_break(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(link: Link, now: float) -> None:
        link.way = Way.CHANNEL

    monkeypatch.setattr(Link, "_begin_fence", at_once)
    play = Play(3)
    with pytest.raises(AssertionError):
        play.steps([["say", "a", 100], ["open"], ["say", "a", 100], ["all"]])


def live(**timers: int) -> Play:
    """Two sides whose channel is in use in both directions."""
    play = Play(1, timers)
    play.do_live()
    return play


@settings(deadline=None)
@given(st.text(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["seq", "ack", "data", "part", "text", "textMessage", "bye", "ping"]),
        inner, max_size=6),
    max_leaves=12,
).map(json.dumps))  # fmt: skip
def test_case_p46_no_frame_breaks_a_link(text: str) -> None:
    world = live().world
    world.b.link.frame(text, world.now)
    world.settle()


def test_a_channel_that_refuses_a_frame_leaves_none_for_the_next_channel() -> None:
    world = live().world
    sent: list[str | bytes] = []

    def refusing(frame: str | bytes) -> None:
        sent.append(frame)
        if len(sent) == 2:
            world.a.link.lost("closed", world.now)

    to_channel, world.a.to_channel = world.a.to_channel, refusing  # type: ignore[method-assign]
    has_room, world.a.has_room = world.a.has_room, lambda: len(sent) > 5  # type: ignore[method-assign]
    for _ in range(4):
        world.a.say()
    world.a.has_room = lambda: True  # type: ignore[method-assign]
    world.a.link.pump(world.now)
    world.a.to_channel, world.a.has_room = to_channel, has_room  # type: ignore[method-assign]
    world.settle()
    assert world.open()
    world.a.say(4)
    world.settle()
    assert world.b.arrived == list(range(8))
    assert world.a.link.is_open and world.b.link.faults == 0


@pytest.mark.parametrize(
    ("value", "most"),
    [(10_000 * "x", 9), (40_000 * "x", 2), ({"content": 30_000 * b"x"}, 3)],
    ids=["whole", "in pieces", "bytes"],
)
def test_who_sends_more_than_may_wait_for_a_check_ends_his_channel(value: Any, most: int) -> None:
    world = live(inboxSize=100_000).world
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


def test_fences_without_end_leave_one_that_is_remembered() -> None:
    world = live().world
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
    quarantine, invitations = states.Quarantine(), states.Invitations()
    for number in range(10_001):
        quarantine.failed(f"runtime://d/{number}", 0.0)
        invitations.is_too_many(f"runtime://d/{number}", 0, 0.0)
    assert quarantine.until("runtime://d/0") == 0 and quarantine.until("runtime://d/1") == 30
    assert len(quarantine._failures) == len(invitations._came) == 10_000
