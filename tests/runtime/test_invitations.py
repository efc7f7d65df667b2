"""Cases R70, R71 and 32 over real nodes: invited at his endpoint, Bob comes to Alice's domain.

docs/reference/runtime.md, section 8.5; the media are not part of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from msgnode.invitations.wire import LEAST_SECONDS
from msgnode.runtime.python import (
    Invitation,
    InvitationError,
    Runtime,
    Settings,
    SyncError,
    Syncher,
)
from msgnode.runtime.python.messages import Message
from tests import waiting
from tests.client import LIMIT, Client
from tests.node import Node, eventually

pytestmark = pytest.mark.long

MAKE = """
import json
from django.contrib.auth.models import User
from django.conf import settings
from msgnode.identity.provider import grants
from msgnode.identity.ports import AssertionRequest
user = User.objects.create_user("{name}", "{name}@{domain}", "wonderland 7")
request = AssertionRequest(subject=(settings.PROVIDER["ISSUER"], str(user.pk)))
print(json.dumps(grants.access_token(request)))
"""
ON = {"INVITATIONS": True, "CONTACT_CARDS": "*", "WEBHOOK_NETWORKS": "127.0.0.0/8"}


def token_of(node: Node, name: str, domain: str) -> str:
    """An access token of a user who is made for it."""
    said = node.manage("shell", "-c", MAKE.format(name=name, domain=domain))
    return str(json.loads(said.splitlines()[-1])["accessToken"])


async def log_in(runtime: Runtime, token: str) -> None:
    assert await runtime.log_in() == "live"
    body = {"method": "login", "params": {"token": token}}
    to = f"domain://idm.{runtime.settings.domain}"
    message = {"type": "execute", "from": f"{runtime.url}/registry", "to": to, "body": body}
    answer = await runtime.bus.request(message)
    assert answer["body"]["code"] == 200, answer


async def test_r70_a_caller_hosted_conversation_begins_with_an_invitation(
    start_node: Callable[..., Node],
) -> None:
    a = start_node(DOMAIN="a.localhost", ADMISSION="identified", **ON)
    b = start_node(DOMAIN="b.localhost", **ON)
    urls = {
        "a.localhost": f"http://localhost:{a.port}",
        "b.localhost": f"http://localhost:{b.port}",
    }
    tokens = await asyncio.gather(
        asyncio.to_thread(token_of, a, "alice", "a.localhost"),
        asyncio.to_thread(token_of, b, "bob", "b.localhost"),
    )
    at_a, at_b = (Settings(domain, catalogues=urls) for domain in urls)
    async with Runtime(at_a) as alice, Runtime(at_b) as bob:
        await log_in(alice, tokens[0])
        await log_in(bob, tokens[1])
        invited: asyncio.Queue[Invitation] = asyncio.Queue()
        endpoint = await bob.invitations.receive(invited.put_nowait, f"{bob.url}/call")
        card = await alice.card_of("bob@b.localhost")
        assert (card.endpoint, card.hyperty) == (endpoint.url, f"{bob.url}/call")
        assert card.user_url == endpoint.user_url == "user://b.localhost/bob@b.localhost"

        hyperty = f"{alice.url}/call"
        accepted: asyncio.Queue[Message] = asyncio.Queue()
        alice.bus.add_listener(hyperty, accepted.put_nowait)
        reporting = Syncher(alice)
        shared, diary = [await reporting.create({"n": 1}) for _ in range(2)]
        sent = await alice.invitations.send(card, hyperty, resource=shared.url, stay=600)
        async with asyncio.timeout(LIMIT):
            invitation = await invited.get()
        assert (invitation.hyperty, invitation.invitation) == (hyperty, sent.invitation)
        assert invitation.user == "user://a.localhost/alice@a.localhost"
        assert invitation.resource == shared.url
        assert bob.resolver.stubs.get("a.localhost") is None  # nothing of a has run

        # Bob comes to a's domain with the offer; Alice's answer to it is the answer.
        offer = {"type": "offer", "sdp": "v=0"}
        value = {"invitation": invitation.invitation, "connectionDescription": offer}
        message = {"type": "create", "from": f"{bob.url}/call", "to": invitation.hyperty}
        asking = asyncio.ensure_future(
            bob.bus.request({**message, "body": {"value": value}}, seconds=30)
        )
        async with asyncio.timeout(LIMIT):
            came = await accepted.get()
        assert sent.is_accepted_by(came)
        assert not sent.is_accepted_by(came)  # the same again is nobody's
        answer = {"connectionDescription": {"type": "answer", "sdp": "v=0"}}
        head = {"id": came["id"], "type": "response", "from": hyperty, "to": came["from"]}
        alice.bus.post_message({**head, "body": {"code": 200, "value": answer}})
        assert (await asking)["body"]["value"] == answer
        entry = bob.resolver.stubs.get("a.localhost")
        assert entry is not None and entry.status == "live"

        # a knows nothing of Bob, who shares what he was invited to, and nothing else.
        observing = Syncher(bob)
        copy = await observing.subscribe(shared.url)
        changed: asyncio.Queue[Any] = asyncio.Queue()
        copy.on_change(changed.put_nowait)
        shared.data["n"] = 2
        async with asyncio.timeout(LIMIT):
            while copy.data["n"] != 2:
                await changed.get()
        with pytest.raises(SyncError) as refused:
            await observing.subscribe(diary.url)
        assert refused.value.code == 403

        # The endpoint of a node that is frozen has a time limit, and no other waits for it. What
        # is withdrawn meanwhile nobody can accept, though its receiver is not told.
        other = await alice.invitations.send(card, hyperty)
        async with asyncio.timeout(LIMIT):
            assert (await invited.get()).invitation == other.invitation
        os.kill(b.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            waiting = asyncio.ensure_future(alice.invitations.send(card, hyperty))
            withdrawing = asyncio.ensure_future(alice.invitations.withdraw(other))
            ping = {"type": "read", "from": hyperty, "to": "domain://registry.a.localhost"}
            assert (await alice.bus.request({**ping, "body": {"resource": "x"}}))["body"]["code"]
            with pytest.raises(InvitationError) as caught:
                await waiting
            assert caught.value.code == 504
            assert await withdrawing is False
            assert time.monotonic() - began < 30
        finally:
            os.kill(b.pid, signal.SIGCONT)
        value = {"invitation": other.invitation, "connectionDescription": offer}
        asking = asyncio.ensure_future(
            bob.bus.request({**message, "body": {"value": value}}, seconds=30)
        )
        async with asyncio.timeout(LIMIT):
            came = await accepted.get()
        assert not other.is_accepted_by(came)
        head = {"id": came["id"], "type": "response", "from": hyperty, "to": came["from"]}
        alice.bus.post_message({**head, "body": {"code": 410}})
        assert (await asking)["body"]["code"] == 410

        # Alice sends him away, who could have stayed for ten minutes.
        await alice.invitations.end(sent)
        reading = {"type": "read", "from": f"{bob.url}/call", "to": shared.url, "body": {}}
        async with asyncio.timeout(LIMIT):
            while (await bob.bus.request(reading))["body"]["code"] != 403:
                await eventually()

        # What it took in all the same comes late, or not at all once it has expired.
        await bob.invitations.stop()
        with pytest.raises(InvitationError) as caught:
            await alice.invitations.send(card, hyperty)
        assert caught.value.code == 410


async def identified(node: Node, client: Client, token: str, runtime_url: str = "") -> Client:
    await client.open(runtime_url)
    body = {"method": "login", "params": {"token": token}}
    assert (await client.ask("execute", "domain://idm.localhost", body))["body"]["code"] == 200
    return client


async def execute(client: Client, method: str, **params: Any) -> dict[str, Any]:
    body = {"method": method, "params": params}
    answer = await client.ask("execute", "domain://idm.localhost", body)
    return dict(answer["body"])


async def test_r71_a_detached_runtime_gets_it_when_it_is_back_and_not_after_its_time(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(INVITATIONS=True, INVITATIONS_PER_MINUTE=20)
    token = await asyncio.to_thread(token_of, node, "bob", "example.org")
    address = f"http://127.0.0.1:{node.port}"

    async def leave(url: str, name: str, seconds: int) -> int:
        path = url[url.index("/push/") :]
        message = {
            "type": "create",
            "from": "hyperty://a.example/alice",
            "to": "user://localhost/bob@example.org",
            "body": {
                "value": {"invitation": name, "expires": int(time.time()) + 60},
                "identity": {"assertion": "x.y.z"},
                "protostub": "https://a.example/x",
            },
        }
        async with httpx.AsyncClient() as http:
            answer = await http.post(address + path, json=message, headers={"TTL": str(seconds)})
        return answer.status_code

    async with node.ws() as bob, node.ws() as nobody:
        await nobody.open()
        assert (await execute(nobody, "subscribePush"))["code"] == 401
        assert (await execute(nobody, "sendInvitation", endpoint="https://x"))["code"] == 401
        await identified(node, bob, token)
        foreign = await execute(bob, "subscribePush", hyperty=nobody.runtime_url)
        assert foreign["code"] == 403  # what it does not hold
        given = await execute(bob, "subscribePush", hyperty=(await bob.allocate())[0])
        url = given["value"]["endpoint"]
        runtime_url, session = bob.runtime_url, bob.token
        private = {"user": "user://b.example/b", "hyperty": f"{runtime_url}/x"}
        for where in (f"{address}/push/x", "https://127.0.0.1/x", "https://169.254.169.254/x"):
            refused = await execute(bob, "sendInvitation", endpoint=where, **private)
            assert refused["code"] == 400, refused
        mine = {**private, "hyperty": nobody.runtime_url}
        assert (await execute(bob, "sendInvitation", endpoint="https://x.example", **mine))[
            "code"
        ] == 403
        assert await leave(url, "here", 60) == 201
        heard = await bob.expect(sender="domain://idm.localhost", type="update")
        assert heard["to"] == runtime_url
        assert heard["body"]["value"]["invitation"] == "here"
    assert await leave(url, "short", 0) == 201
    is_over = time.monotonic() + LEAST_SECONDS
    assert await leave(url, "away", 60) == 201
    await asyncio.to_thread(node.kill)  # what was left is on disk
    await asyncio.to_thread(node.start)
    await asyncio.to_thread(waiting.until, lambda: time.monotonic() > is_over, LIMIT)
    async with node.ws() as bob:
        assert (await bob.reopen(runtime_url, session))["body"]["code"] == 200
        heard = await bob.expect(sender="domain://idm.localhost", type="update")
        assert heard["body"]["value"]["invitation"] == "away"
        assert await leave(url, "away", 60) == 201  # replayed: it comes once
        assert await leave(url, "last", 60) == 201
        heard = await bob.expect(sender="domain://idm.localhost", type="update")
        assert heard["body"]["value"]["invitation"] == "last"
        codes = [await leave(url, f"flood{number}", 60) for number in range(30)]
        assert 429 in codes
        assert (await execute(bob, "unsubscribePush"))["code"] == 200
        assert await leave(url, "never", 60) in (404, 429)
