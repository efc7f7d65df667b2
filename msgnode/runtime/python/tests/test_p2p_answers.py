"""Answers whose request came on a channel, and that cannot go back by it."""

from __future__ import annotations

from typing import Any

import pytest
from p2p_runtimes import Scene, Talker, play

from msgnode.runtime.python.messages import Message

ECHO = "hyperty://d/echo"


class Answers(Scene):
    """Answers to what came on a channel that has ended since, or through the node."""

    async def do_bytes(self, one: Talker, index: int) -> None:
        one.reply(one.came[index], {"code": 200, "value": {"content": b"bytes"}})
        await self.do_turn()

    async def do_many(self, one: Talker, other: Talker) -> None:
        """A hundred answers wait for a look-up, and no more."""
        looked: list[Any] = []
        other.p2p._whereabouts.ask = lambda url, then: looked.append(then)
        remote, codes, request = one.remote(other), [], one.came[0]
        for number in range(101):
            head = {"id": request["id"], "type": "response", "from": f"hyperty://d/x{number}"}
            said: Message = {**head, "to": request["from"], "body": {"code": 200}}
            asked = {"type": "execute", "from": remote.own, "to": remote.theirs}
            body = {"method": "deliver", "params": [said]}
            one.bus.post_message({**asked, "body": body}, lambda each: codes.append(each["body"]))
        await self.do_turn()
        assert len(looked) == 100 and [each["code"] for each in codes] == [503]
        other.p2p._whereabouts.note("hyperty://d/x0", {"runtime": one.url})
        looked[0]()
        await self.do_turn()
        assert codes[1]["code"] == 200 and other.p2p._delivering == 99


ASKED: list[list[Any]] = [
    ["connected"], ["register", ECHO, "bob", {"isSilent": True}],
    ["asking", "alice", ECHO, 1, {"p2p": True}], ["turn"], ["unasked", "bob"],
    ["asking", "alice", ECHO, 2], ["turn"], ["break"], ["turn"],
]  # fmt: skip


@pytest.mark.parametrize(
    "steps",
    [
        [*ASKED, ["bytes", "bob", 0], ["answers", [[503, None]]]],
        [
            ["runtimes", "alice", "bob"], ["collects", "bob", "{bob}/app2"],
            ["asking", "alice", "{bob}/app2", 1], ["turn"], ["bytes", "bob", 0],
            ["answers", [[503, None]]],
        ],
    ],
    ids=["channel", "node"],
)  # fmt: skip
def test_case_p45_who_waits_for_bytes_that_find_no_channel_is_told(
    steps: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, steps, Answers())


def test_a_hundred_answers_wait_for_a_look_up_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(monkeypatch, [*ASKED, ["many", "bob", "alice"]], Answers())
