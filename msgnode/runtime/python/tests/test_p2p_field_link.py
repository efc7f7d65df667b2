"""Parts of channels to the field's P2P stubs: contents, links without numbers, and descriptions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p.field_link import FieldLink
from msgnode.runtime.python.p2p.frames import BadFrame, Begun, Bytes, Text, Transfers, read, write
from msgnode.runtime.python.p2p.link import Link, Way
from msgnode.runtime.python.p2p.settings import P2PTimers
from msgnode.runtime.python.p2p.signalling import Described

UUID = "abcdefghijkl"


def begun(size: int, uuid: str = UUID) -> Begun:
    return Begun(0, 0, {"id": 1, "type": "response", "from": "b", "to": "a"}, uuid, size)


def test_case_p45_progress_grows_and_who_sends_more_than_he_said_is_refused() -> None:
    transfers = Transfers()
    transfers.begin(begun(250))
    told = [transfers.add(Bytes(UUID, bytes(size))) for size in (1, 2, 100)]
    codes = [each and (each["to"], each["body"]["code"], each["body"]["value"]) for each in told]
    assert codes == [None, ("a", 183, 1), ("a", 183, 41)]
    with pytest.raises(BadFrame):
        transfers.add(Bytes(UUID, bytes(148)))
    with pytest.raises(BadFrame, match="under way"):
        transfers.add(Bytes(UUID, b"x"))
    for number in range(8):
        transfers.begin(begun(2, f"u{number}"))
    with pytest.raises(BadFrame, match="too many"):
        transfers.begin(begun(2, "ninth"))
    with pytest.raises(BadFrame):
        transfers.add(Bytes("u0", b""))
    transfers.add(Text("u1", "é"))
    with pytest.raises(BadFrame, match="not both"):
        transfers.add(Bytes("u1", b"x"))
    transfers.add(Text("u2", "é"))
    whole = transfers.add(Text("u2", "x"))
    assert whole is not None and whole["body"]["value"]["content"] == "éx"


@pytest.mark.parametrize("size", [1024 * 1024 + 1, 10**300, -1, "7", 1.5])
def test_case_p45_no_frame_announces_more_than_a_message_may_have(size: Any) -> None:
    frame = {"uuid": UUID, "seq": 1, "data": {"dataSize": 1024 * 1024, "textMessage": {}}}
    assert isinstance(read(json.dumps(frame)), Begun)
    with pytest.raises(BadFrame):
        read(json.dumps({**frame, "data": {"dataSize": size, "textMessage": {}}}))


class Outlet:
    """What a link does, written down."""

    def __init__(self) -> None:
        self.sent: list[str | bytes] = []
        self.refused: list[tuple[Any, int]] = []
        self.node: list[Any] = []
        self.taken: list[Any] = []
        self.closed: list[str] = []
        self.is_full = self.is_slow = False

    def to_channel(self, frame: str | bytes) -> None:
        self.sent.append(frame)

    def has_room(self) -> bool:
        return not self.is_full

    def to_node(self, message: Message) -> None:
        self.node.append(message["id"])

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self.node.append(method)

    def take(self, message: Message) -> bool:
        if not self.is_slow:
            self.taken.append(message["id"])
        return not self.is_slow

    def refuse(self, message: Message, code: int, text: str) -> None:
        self.refused.append((message["id"], code))

    def is_awaited(self, message: Message) -> bool:
        return bool(message.get("awaited"))

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def test_case_p45_a_content_that_another_message_cuts_short_ends_the_channel() -> None:
    outlet = Outlet()
    link = Link(outlet)
    link.opened("1", 0.0)
    content = {"type": "create", "body": {"value": {"content": bytes(40_000)}}}
    link.frame(write(1, content)[0], 0.0)
    link.frame(write(2, {"id": 2})[0], 0.0)
    assert outlet.closed == ["closing"] and not outlet.taken


def field_link(**timers: Any) -> tuple[FieldLink, Outlet]:
    outlet = Outlet()
    link = FieldLink(outlet, replace(P2PTimers(), **timers))
    link.opened("1", 0.0)
    return link, outlet


def data(message: Message) -> str:
    return json.dumps({"uuid": "u", "data": {"textMessage": message}})


def test_a_link_to_the_field_keeps_so_many_so_large_and_for_so_long_what_may_be_lost() -> None:
    link, did = field_link(window=5, window_size=1_000, held_size=100)
    for number in range(8):
        link.send({"id": number, "from": "a"}, 10, 0.0)
    assert len(link._unsure) == 5
    link.send({"id": 8, "from": "a"}, 990, 0.0)
    assert (len(link._unsure), did.refused) == (5, [(8, 503)])
    link.frame(data({"type": "response", "id": 5, "to": "a"}), 0.0)
    assert len(link._unsure) == 2  # an answer says what has arrived
    link.send({"id": 9, "from": "a"}, 10, 31.0)
    assert len(link._unsure) == 1
    did.is_full = True
    for number in range(10, 30):
        link.send({"id": number, "from": "a"}, 10, 31.0)
    assert did.refused[1:] == [(number, 503) for number in range(21, 30)]
    link.lost("closed", 31.0)
    assert did.refused[10:] == [(9, 503), (10, 503)]
    assert did.node == list(range(11, 21))
    assert (link.way, link.due(), link.is_quiet()) == (Way.NODE, None, True)


def test_a_link_to_the_field_sends_requests_and_what_is_too_long_through_the_node() -> None:
    link, did = field_link()
    link.send({"id": 1, "from": "a", "awaited": True}, 10, 0.0)
    link.send({"id": 2, "from": "a"}, 65_537, 0.0)
    link.send({"id": 3, "from": "a"}, 65_536, 0.0)
    assert did.node == [1, 2] and len(did.sent) == 1


def test_a_link_to_the_field_leaves_unused_or_when_too_much_waits_to_be_checked() -> None:
    link, did = field_link(idle=1.0, inbox=3)
    link.tick(0.9)
    assert not did.closed
    link.tick(1.0)
    assert did.closed == ["idle"]
    link, did = field_link(inbox=3)
    did.is_slow = True
    for number in range(4):
        link.frame(data({"id": number}), 0.0)
    assert did.closed == ["closing"] and not link.is_open


def test_a_link_that_is_ours_gives_way_to_one_of_the_field_and_says_what_is_lost() -> None:
    outlet = Outlet()
    link = Link(outlet)
    link.opened("1", 0.0)
    link.frame('{"fenceAck":1}', 0.0)
    link.send({"id": 1, "from": "a"}, 10, 0.0)
    link.abandon()
    assert (outlet.refused, str(link.way), link.is_open) == ([(1, 503)], "node", False)


def test_cases_p18_and_p19_a_description_is_whole_when_text_and_type_are_there() -> None:
    described = Described("offer")
    for odd in (None, 7, {"connectionDescription": 7, "iceCandidates": 7}):
        described.read(odd)
    assert described.change({"attribute": 7}) == []
    said = [("sdp", "x" * (16 * 1024 + 1)), ("type", "answer"), ("sdp", "v=0")]
    for part, value in said:
        described.change({"attribute": f"connectionDescription.{part}", "value": value})
    assert not described.description  # it is an answer
    described.change({"attribute": "connectionDescription.type", "value": "offer"})
    assert described.description == {"sdp": "v=0", "type": "offer"}
    for number in range(100):
        candidate = [{"candidate": f"candidate:{number}"}]
        described.change({"attribute": f"iceCandidates.{number}", "value": candidate})
    assert len(described.candidates) == 64
    again = {"attribute": "iceCandidates.1", "value": {"candidate": "candidate:1"}}
    assert described.change(again) == []


def test_a_link_to_the_field_ends_when_more_than_may_wait_for_a_check() -> None:
    link, did = field_link(inbox_size=100_000)
    message = {"id": 1, "body": {"value": 30_000 * "x"}}
    for _ in range(5):
        link.frame(data(message), 0.0)
    did.is_slow = True
    for _ in range(3):
        link.frame(data(message), 0.0)
    assert not did.closed
    link.frame(data(message), 0.0)
    assert did.closed == ["closing"]
