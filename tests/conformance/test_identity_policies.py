"""Rules on users judge verified identities only, and again when a session's identity changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests import waiting
from tests.client import SM, Client, code
from tests.issuer import Issuer, enter
from tests.node import Node

IDM = "domain://idm.localhost"
FEED = "comm://localhost/feed/changes"


def rules(mail: str) -> list[Any]:
    """Only this user says `create`, and listens to the feed."""
    other = {"not": {"srcUsername": {"equals": mail}}}
    return [
        {"id": "S", "policies": [{"id": "P", "rules": [
            {"effect": "deny", "condition": {"actionType": {"equals": "create"}, **other}},
            {"effect": "deny", "condition": {"subscribeTo": {"contains": FEED}, **other}},
            {"effect": "permit", "condition": {"actionType": {"equals": "create"}}},
        ]}]}
    ]  # fmt: skip


@pytest.fixture
async def pair(
    start_node: Callable[..., Node], issuer: Issuer, tmp_path: Any
) -> AsyncIterator[tuple[Client, Client]]:
    node = start_node()
    document = tmp_path / "policy.json"
    document.write_text(json.dumps(rules(f"alice@{issuer.domain}")))
    node.publish(document, "--replace", "--mode", "enforce")
    enter(node.data_dir / "node.sqlite3", issuer.row(), changed=True)
    one, other = node.ws(), node.ws()
    async with one, other:
        await one.open()
        await other.open()
        yield one, other


async def login(client: Client, token: str) -> int:
    body = {"method": "login", "params": {"token": token}}
    return code(await client.ask("execute", IDM, body))


@pytest.mark.long
async def test_a_rule_on_the_user_judges_the_verified_identity(
    pair: tuple[Client, Client], issuer: Issuer
) -> None:
    one, other = pair
    to = f"{other.runtime_url}/sm"
    await waiting.seen(  # once the issuer is known
        lambda: login(one, issuer.token("bob")), lambda said: said == 200
    )
    assert code(await one.ask("create", to, {})) == 403
    claimed = {"identity": {"userProfile": {"username": f"alice@{issuer.domain}"}}}
    assert code(await one.ask("create", to, claimed)) == 403
    assert code(await one.ask("execute", IDM, {"method": "logout"})) == 200
    await one.send("create", to, {"identity": issuer.identity()}, id="as alice")
    delivered = await other.expect(id="as alice")
    assert (delivered["body"]["auth"], delivered["body"]["assertedIdentity"]) == (True, True)
    assert code(await one.ask("create", to, {"identity": issuer.identity("bob")})) == 403

    assert code(await one.subscribe(FEED)) == 403
    assert await login(one, issuer.token()) == 200
    assert code(await one.subscribe(FEED)) == 200
    feed = FEED.removesuffix("/changes")
    await other.subscribe(feed)
    await other.send("update", FEED, {"value": 1}, sender=feed, id="heard")
    assert (await one.expect(id="heard"))["body"]["value"] == 1
    assert code(await one.ask("execute", IDM, {"method": "logout"})) == 200
    await other.send("update", FEED, {"value": 2}, sender=feed, id="not heard")
    assert [frame["id"] for frame in await other.settled()] == []
    assert code(await one.ask("subscribe", SM, {"resources": [FEED]})) == 403
    assert "not heard" not in [frame["id"] for frame in one.inbox]
