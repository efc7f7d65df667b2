"""Parts of channels to the field's P2P stubs: contents, links without numbers, and descriptions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from test_p2p import cases

from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.p2p.field_link import FieldLink
from msgnode.runtime.python.p2p.frames import BadFrame, Begun, Bytes, Text, Transfers
from msgnode.runtime.python.p2p.link import Link, Way
from msgnode.runtime.python.p2p.settings import P2PTimers
from msgnode.runtime.python.p2p.signalling import Described

NAMES = {"windowSize": "window_size", "heldSize": "held_size", "inboxSize": "inbox_size"}


class Outlet:
    """What a link to the field does, written down; and the acts of the shared cases."""

    def __init__(self, timers: dict[str, int]) -> None:
        named: dict[str, Any] = {NAMES.get(name, name): value for name, value in timers.items()}
        if "idle" in named:
            named["idle"] /= 1000
        self.link = FieldLink(self, replace(P2PTimers(), **named))
        self.sent: list[str | bytes] = []
        self.refused: list[list[Any]] = []
        self.node: list[Any] = []
        self.closed: list[str] = []
        self.is_full = self.is_slow = False
        self.link.opened("1", 0.0)

    def to_channel(self, frame: str | bytes) -> None:
        self.sent.append(frame)

    def has_room(self) -> bool:
        return not self.is_full

    def to_node(self, message: Message) -> None:
        self.node.append(message["id"])

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self.node.append(method)

    def take(self, message: Message) -> bool:
        return not self.is_slow

    def refuse(self, message: Message, code: int, text: str) -> None:
        self.refused.append([message["id"], code])

    def is_awaited(self, message: Message) -> bool:
        return bool(message.get("isAwaited"))

    def close(self, reason: str) -> None:
        self.closed.append(reason)

    def do_send(self, id_: int, size: int, now: int, is_awaited: bool = False) -> None:
        self.link.send({"id": id_, "from": "a", "isAwaited": is_awaited}, size, now / 1000)

    def do_answer(self, id_: int, to: str, now: int) -> None:
        self._frame({"type": "response", "id": id_, "to": to}, now / 1000)

    def do_frame(self, size: int) -> None:
        self._frame({"id": 1, "body": {"value": "x" * size}}, 0.0)

    def _frame(self, message: Message, now: float) -> None:
        self.link.frame(json.dumps({"data": {"textMessage": message}}), now)

    def do_full(self) -> None:
        self.is_full = True

    def do_slow(self) -> None:
        self.is_slow = True

    def do_lost(self, now: int) -> None:
        self.link.lost("closed", now / 1000)

    def do_tick(self, now: int) -> None:
        self.link.tick(now / 1000)

    def do_unsure(self, count: int) -> None:
        assert self.link.unacknowledged == count

    def do_sent(self, count: int) -> None:
        assert len(self.sent) == count

    def do_refused(self, expected: list[list[Any]]) -> None:
        assert self.refused == expected

    def do_node(self, expected: list[Any]) -> None:
        assert self.node == expected

    def do_closed(self, expected: list[str]) -> None:
        assert self.closed == expected

    def do_rest(self) -> None:
        assert (self.link.way, self.link.due(), self.link.is_quiet()) == (Way.NODE, None, True)


@pytest.mark.parametrize("case", cases("fieldLink"))
def test_links_to_the_field(case: dict[str, Any]) -> None:
    outlet = Outlet(case["timers"])
    for act, *words in case["steps"]:
        getattr(outlet, f"do_{act}")(*words)


@pytest.mark.parametrize("case", cases("described"))
def test_descriptions(case: dict[str, Any]) -> None:
    described = Described("offer")

    def change(attribute: Any, value: Any) -> int:
        return len(described.change({"attribute": attribute, "value": value}))

    acts: dict[str, Callable[..., Any]] = {
        "read": lambda data: described.read(data),
        "change": lambda *words: change(*words[:2]) == words[2],
        "long": lambda attribute, length: change(attribute, "x" * length),
        "is": lambda expected: described.description == expected,
        "candidates": lambda count: len(described.candidates) == count,
    }
    for act, *words in case["steps"]:
        assert acts[act](*words) is not False, (act, words)


@pytest.mark.parametrize("case", cases("transfers"))
def test_transfers(case: dict[str, Any]) -> None:
    """Each step says the percentage, the content or that it is bad."""
    transfers = Transfers()
    message = {"id": 1, "type": "response", "from": "b", "to": "a"}
    acts: dict[str, Callable[..., Any]] = {
        "begin": lambda uuid, size: transfers.begin(Begun(0, 0, message, uuid, size)),
        "bytes": lambda uuid, size: transfers.add(Bytes(uuid, bytes(size))),
        "text": lambda uuid, text: transfers.add(Text(uuid, text)),
    }
    for act, uuid, said, *expected in case["steps"]:
        if expected == ["bad"]:
            with pytest.raises(BadFrame):
                acts[act](uuid, said)
        else:
            value = (acts[act](uuid, said) or {}).get("body", {}).get("value")
            found = value["content"] if isinstance(value, dict) else value
            assert found == (expected[0] if expected else None), (act, uuid, said)


def test_a_link_that_is_ours_gives_way_to_one_of_the_field_and_says_what_is_lost() -> None:
    outlet = Outlet({})
    link = Link(outlet)
    link.opened("1", 0.0)
    link.frame('{"fenceAck":1}', 0.0)
    link.send({"id": 1, "from": "a"}, 10, 0.0)
    link.abandon()
    assert (outlet.refused, str(link.way), link.is_open) == ([[1, 503]], "node", False)
