"""Who is logged in: shapes (shared with JavaScript), and when it is renewed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from peers import soon

from msgnode.runtime.python import AnswerError, IdentityEvent, OpenIdError, openid
from msgnode.runtime.python import log_in as module
from msgnode.runtime.python.log_in import LogIn
from msgnode.runtime.python.message_bus import MessageBus
from msgnode.runtime.python.messages import Message, answer_to
from msgnode.runtime.python.open_id import Token

STUB = "runtime://d/protostub/1"
FILE = Path(__file__).parents[2] / "js" / "tests" / "identities.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
GOOD = {"code": 200, "value": {"userURL": "user://d/bob"}}


class World:
    def __init__(self, answer: Mapping[str, Any] = GOOD) -> None:
        self.bus = MessageBus("runtime://d/1", self)
        self.bus.home_stub = STUB
        self.answer = answer
        self.asked: list[str] = []
        self.shown: list[str] = []
        self.events: list[IdentityEvent] = []
        self.log_in = LogIn(self.bus, "d", self._show)
        self.log_in.listen(self.events.append)

    def send(self, message: Message, size: int, stub: str) -> str:
        self.asked.append(message["body"]["method"])
        self.bus.receive({**answer_to(message, 200, ""), "body": dict(self.answer)}, STUB)
        return STUB

    async def _show(self, identity: Any) -> None:
        self.shown.append(identity["assertion"])


class Source:
    """Tokens that end soon."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._number = 0
        self.error: OpenIdError | None = None

    async def token(self) -> Token:
        self._number += 1
        return Token(f"t{self._number}", time.time() + self._seconds)

    async def renew(self) -> Token:
        if self.error is not None:
            raise self.error
        return await self.token()

    async def log_out(self) -> None:
        self._number = -1


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
async def test_shared(case: dict[str, Any]) -> None:
    log_in = World().log_in
    if "error" in case:
        with pytest.raises(TypeError) as raised:
            await log_in.take(case["identity"])
        assert all(each in str(raised.value) for each in case["error"]), raised.value
    else:
        assert await log_in.take(case["identity"]) == case["shown"]


async def test_it_is_renewed_before_it_ends_again_and_again() -> None:
    world = World()
    await world.log_in.take(Source(0.1))
    await world.log_in.accepted()
    await soon(lambda: len(world.events) >= 4)
    assert world.shown[:3] == ["t2", "t3", "t4"]
    assert [each.state for each in world.events[:4]] == ["logged-in", *["renewed"] * 3]
    await world.log_in.end()
    assert (world.log_in.identity, world.log_in.user) == (None, "")
    last = world.events[-1]
    assert (last.state, last.user) == ("logged-out", "user://d/bob")
    assert world.asked[-1] == "logout"


async def test_a_provider_that_does_not_answer_is_asked_again_and_one_that_refuses_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    world, source = World(), Source(1.0)
    source.error = OpenIdError(504, "No.")
    await world.log_in.take(source)
    await world.log_in.accepted()
    await soon(lambda: world.events[-1].state == "failed")
    source.error = OpenIdError(401, "No.")
    await soon(lambda: world.events[-1].state == "expired")
    assert isinstance(world.events[-1].error, OpenIdError)
    world.log_in.stop()


async def test_one_that_has_ended_while_the_provider_was_away_is_renewed_when_the_stub_connects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.01)
    world, source = World(), Source(0.02)
    source.error = OpenIdError(504, "No.")
    await world.log_in.take(source)
    await world.log_in.accepted()
    await soon(lambda: len(world.events) >= 3)
    assert {each.state for each in world.events[1:]} == {"failed"}
    monkeypatch.setattr(module, "RETRY", 3_600.0)
    seen = len(world.events)
    await soon(lambda: len(world.events) > seen)  # it waits for an hour now
    source.error = None
    world.log_in.renew_if_ended()
    await soon(lambda: world.events[-1].state == "renewed")
    world.log_in.stop()


async def test_a_node_that_does_not_accept_it_says_so_and_one_without_a_manager_need_not() -> None:
    refusing = World({"code": 401, "desc": "The token has ended."})
    await refusing.log_in.take({"accessToken": "x"})
    with pytest.raises(AnswerError, match="The token has ended."):
        await refusing.log_in.accepted()
    fields = World({"code": 404})
    await fields.log_in.take({"accessToken": "x"})
    await fields.log_in.accepted()
    assert [each.state for each in fields.events] == ["logged-in"]
    fields.log_in.stop()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"issuer": "http://d/o"}, "issuer"), ({"issuer": 7}, "issuer"),
        ({"client_id": ""}, "client_id"), ({"scope": "email"}, "scope"),
        ({"token": "refresh"}, "token"), ({"open": "url"}, "open"),
    ],
)  # fmt: skip
def test_options_of_openid_that_are_wrong_are_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(TypeError, match=word):
        openid(**{"issuer": "https://d/o", "client_id": "app", **changes})
