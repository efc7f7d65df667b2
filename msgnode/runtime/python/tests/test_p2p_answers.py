"""Answers whose request came on a channel, and that cannot go back by it."""

from __future__ import annotations

from typing import Any

import pytest
from bus_harness import until
from test_p2p_set_up import Side, two

from msgnode.runtime.python.messages import Message

ECHO = "hyperty://d/echo"


async def asked(alice: Side, bob: Side) -> tuple[Message, list[Message]]:
    """A request to an address of Bob's that has come on the channel, which has ended since."""
    record = {"runtime": bob.url, "p2pHandler": bob.p2p.handler}
    alice.p2p._whereabouts.note(ECHO, record)
    alice.want(bob)
    await until(lambda: alice.is_on_channel_with(bob) and bob.is_on_channel_with(alice))
    got: list[Message] = []
    answers: list[Message] = []
    bob.bus.add_listener(ECHO, got.append)
    head = {"type": "read", "from": f"{alice.url}/app", "to": ECHO}
    alice.bus.post_message({**head, "body": {}}, answers.append)
    await until(lambda: got)
    assert "/p2prequester/" in got[0]["body"]["via"]
    bob.peer(alice)._rtc.on_close()  # type: ignore[union-attr]
    await until(lambda: bob.peer(alice).link.way == alice.peer(bob).link.way == "node")
    return got[0], answers


def answer(request: Message, value: Any) -> Message:
    head = {"id": request["id"], "type": "response", "from": ECHO, "to": request["from"]}
    return {**head, "body": {"code": 200, "value": value}}


async def test_case_p36_an_answer_waits_until_it_is_known_whose_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        request, answers = await asked(alice, bob)
        whereabouts = alice.p2p._whereabouts

        async def look(url: str) -> None:
            whereabouts.note(url, {"runtime": bob.url})

        monkeypatch.setattr(whereabouts, "_look", look)
        whereabouts.forget(ECHO)  # it was asked more than ten minutes ago
        bob.bus.post_message(answer(request, 1))
        await until(lambda: answers)
        assert answers[0]["body"]["value"] == 1
        assert alice.faults == bob.faults == [] and not alice.p2p._delivering


async def test_case_p36_an_answer_of_somebody_else_is_not_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        request, answers = await asked(alice, bob)
        alice.p2p._whereabouts.forget(ECHO)  # the registry does not know it
        bob.bus.post_message(answer(request, 1))
        await until(lambda: alice.faults)
        assert [each.reason for each in alice.faults] == ["p2p.forged"] and not answers


async def test_case_p45_who_waits_for_bytes_that_find_no_channel_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        request, answers = await asked(alice, bob)
        bob.bus.post_message(answer(request, {"content": b"bytes"}))
        await until(lambda: answers)
        assert answers[0]["body"]["code"] == 503 and "bytes" in answers[0]["body"]["desc"]


async def test_case_p45_neither_do_bytes_answer_what_came_through_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        answers: list[Message] = []
        bob.bus.add_listener(
            f"{bob.url}/app",
            lambda request: bob.bus.post_message(
                {**answer(request, {"content": b"bytes"}), "from": f"{bob.url}/app"}
            ),
        )
        head = {"type": "read", "from": f"{alice.url}/app", "to": f"{bob.url}/app"}
        alice.bus.post_message({**head, "body": {}}, answers.append)
        await until(lambda: answers)
        assert answers[0]["body"]["code"] == 503


async def test_a_hundred_answers_wait_for_a_look_up_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (alice, bob):
        request, _ = await asked(alice, bob)
        looked: list[Any] = []
        monkeypatch.setattr(alice.p2p._whereabouts, "ask", lambda url, then: looked.append(then))
        peer, codes = bob.peer(alice), []
        for number in range(101):
            said = {**answer(request, number), "from": f"hyperty://d/x{number}"}
            body = {"method": "deliver", "params": [said]}
            head = {"type": "execute", "from": peer.own, "to": peer.theirs}
            bob.bus.post_message({**head, "body": body}, lambda each: codes.append(each["body"]))
        await until(lambda: codes)
        assert len(looked) == 100 and [each["code"] for each in codes] == [503]
        alice.p2p._whereabouts.note("hyperty://d/x0", {"runtime": bob.url})
        looked[0]()
        await until(lambda: len(codes) == 2)
        assert codes[1]["code"] == 200 and alice.p2p._delivering == 99
