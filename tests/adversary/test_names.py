"""Claiming to be somebody: forged `from`, `source`, `via`, marks, tokens, subscriptions."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.client import SESSION, SM, Client, address, code

from .conftest import Bystanders

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("adversary")]


async def test_another_sessions_from_is_refused_and_its_owner_hears_nothing(
    served: Bystanders, come_in: Any
) -> None:
    victim, thief, hearer = [await come_in() for _ in range(3)]
    (held,) = await victim.allocate()
    for name in (victim.runtime_url, held, f"{victim.runtime_url}/sm"):
        answer = await thief.ask("execute", hearer.runtime_url, {"value": 1}, sender=name)
        assert code(answer) == 403
    assert await victim.received_from(hearer) == []
    assert await hearer.received_from(victim) == []


@pytest.mark.parametrize("name", ["mn:/session", SM, "domain://idm.localhost", "global://registry"])
async def test_nobody_speaks_as_the_node(served: Bystanders, come_in: Any, name: str) -> None:
    thief, hearer = await come_in(), await come_in()
    await thief.send("execute", hearer.runtime_url, {"value": 1}, sender=name)
    assert await hearer.received_from(thief) == []


async def test_forged_marks_do_not_arrive(served: Bystanders, come_in: Any) -> None:
    thief, victim, hearer = [await come_in() for _ in range(3)]
    body = {
        "value": 1, "auth": True, "assertedIdentity": True,
        "source": victim.runtime_url, "via": f"{victim.runtime_url}/{uuid.uuid4()}",
    }  # fmt: skip
    await thief.send("execute", hearer.runtime_url, body, id="forged")
    arrived = [each for each in await hearer.received_from(thief) if each["id"] == "forged"]
    assert all(each["body"].get("auth") is not True for each in arrived)
    assert all(each["body"].get("assertedIdentity") is not True for each in arrived)
    assert all(each["from"] == thief.runtime_url for each in arrived)
    assert thief.token not in json.dumps(arrived)
    assert await victim.received_from(hearer) == []


async def test_a_mark_that_is_written_twice_or_escaped_does_not_arrive(
    served: Bystanders, come_in: Any
) -> None:
    thief, hearer = await come_in(), await come_in()
    head = f'{{"id":"m","type":"execute","from":"{thief.runtime_url}","to":"{hearer.runtime_url}",'
    for body in (
        '"body":{"auth":false,"auth":true}}',
        '"body":{"\\u0061uth":true}}',
        '"body":{"asserted\\u0049dentity":true}}',
        '"body":{"auth":false},"body":{"auth":true}}',
    ):
        await thief.send_raw(head + body)
    for each in await hearer.received_from(thief):
        assert each["body"].get("auth") is not True
        assert each["body"].get("assertedIdentity") is not True


async def test_a_token_is_not_guessed(served: Bystanders, come_in: Any, target: Any) -> None:
    victim = await come_in()
    victim.cut()
    async with target.ws() as thief:
        for guess in (*(str(uuid.uuid4()) for _ in range(50)), "", "0", "null", "%00", "../"):
            answer = await thief.ask("re-open", SESSION, sender=f"{victim.runtime_url}/{guess}")
            granted = answer["body"].get("runtimeToken", "")
            assert granted != victim.token
            assert code(answer) in (200, 400, 401, 403, 409, 429), answer


async def test_a_token_that_was_used_up_or_closed_is_not_replayed(
    served: Bystanders, come_in: Any, target: Any
) -> None:
    victim = await come_in()
    name, token = victim.runtime_url, victim.token
    (held,) = await victim.allocate()
    await victim.close_session()
    async with target.ws() as thief:
        answer = await thief.reopen(name, token)
        assert answer["body"].get("runtimeToken") != token
        hearer = await come_in()
        refused = await hearer.ask("read", held)
        assert code(refused) == 404  # nothing of the old session came back


async def test_anothers_token_names_no_session_of_mine(
    served: Bystanders, come_in: Any, target: Any
) -> None:
    victim = await come_in()
    (held,) = await victim.allocate()
    async with target.ws() as thief:
        await thief.reopen(f"runtime://localhost/{uuid.uuid4()}", victim.token)
        assert code(await thief.ask("execute", held, sender=held)) in (401, 403)
    assert code(await victim.ask("read", address())) == 404  # the victim's session goes on


@pytest.mark.parametrize("tail", ["", "/changes/x", "/subscription", "/registration/x", "/status"])
async def test_nobody_subscribes_to_private_addresses_of_others(
    served: Bystanders, come_in: Any, tail: str
) -> None:
    victim, thief = await come_in(), await come_in()
    (held,) = await victim.allocate("hyperty")
    for wanted in (f"{victim.runtime_url}{tail}", f"{held}{tail}", f"{victim.session_url}{tail}"):
        await thief.subscribe(wanted)
    talker = await come_in()
    await talker.send("execute", held, {"value": "private"}, id="private")
    await talker.send("execute", victim.runtime_url, {"value": "private"}, id="private")
    heard = await thief.received_from(talker)
    assert [each for each in heard if each["id"] == "private"] == []
    assert len([e for e in await victim.received_from(talker) if e["id"] == "private"]) == 2


async def test_control_characters_in_names_reach_nobody(served: Bystanders, come_in: Any) -> None:
    thief, hearer = await come_in(), await come_in()
    for name in ("a\r\nX: 1", "a\x00b", "\u202e", "a b", "\ud800"):
        frame = {"id": 1, "type": "execute", "from": f"{thief.runtime_url}/{name}",
                 "to": hearer.runtime_url, "body": {}}  # fmt: skip
        await thief.send_raw(json.dumps(frame))
    for each in await hearer.received_from(thief):
        assert "\r" not in each["from"]
        assert "\x00" not in each["from"]
    assert isinstance(thief, Client)
