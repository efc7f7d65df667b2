"""Case 32: a call that the caller hosts, from the push service to what the guest may reach.

Two domains, each a real node. Bob's phone sleeps at b until his push service wakes it; what it then
reads leads him to a, which asks everybody else for an identity.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.client import LIMIT, Client, code
from tests.devices.client import Device
from tests.devices.test_push import put, service
from tests.node import Node, eventually
from tests.runtime.test_invitations import token_of

pytestmark = pytest.mark.long

LOOPBACK = "127.0.0.0/8,::1/128"
A = {"DOMAIN": "a.localhost", "INVITATIONS": True, "WEBHOOK_NETWORKS": LOOPBACK}
B = {"DOMAIN": "b.localhost", "INVITATIONS": True, "WEBHOOK_NETWORKS": LOOPBACK}
PHONE = {"DEVICE_HTTP": True, "PUSH_CONTACT": "mailto:o@example.org", "PUSH_HOSTS": "127.0.0.1"}
IDM, SM = "domain://idm.a.localhost", "domain://msg-node.a.localhost/sm"
ALLOCATION = "domain://msg-node.a.localhost/address-allocation"
OBJECT, OTHER = "comm://a.localhost/call", "comm://a.localhost/diary"
PAST = """
from datetime import timedelta
from django.utils import timezone
from msgnode.models import SentInvitation
past = timezone.now() - timedelta(seconds=1)
SentInvitation.objects.update(expires_at=past, ends_at=past)
"""


async def test_case_32_the_guest_reaches_exactly_what_he_was_invited_to_until_it_ends(
    start_node: Callable[..., Node],
) -> None:
    a, b = start_node(ADMISSION="identified", **A), start_node(**B, **PHONE)
    tokens = await asyncio.gather(
        asyncio.to_thread(token_of, a, "alice", "a.localhost"),
        asyncio.to_thread(token_of, b, "bob", "b.localhost"),
    )
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(a.ws())
        hyperty = await log_in_and_hold(alice, tokens[0])
        phone = Device(b, "runtime://b.localhost/phone")
        assert (await phone.open(Authorization=f"Bearer {tokens[1]}")).status_code == 201
        stack.push_async_callback(phone.http.aclose)
        pushes = await stack.enter_async_context(service())
        endpoint = await asleep(phone, pushes.endpoint)

        async def invite(resource: str = OBJECT, **more: Any) -> dict[str, Any]:
            params = {"endpoint": endpoint["endpoint"], "user": endpoint["userURL"], **more}
            params |= {"hyperty": hyperty, "resource": resource}
            body = {"method": "sendInvitation", "params": params}
            return dict((await alice.ask("execute", IDM, body))["body"])

        assert (await invite("comm://a.localhost/nobodys"))["code"] == 403
        assert (await invite(stay=-1))["code"] == 400
        invited = await invite()
        assert invited["code"] == 200, invited
        await pushes.next()  # the phone wakes
        waiting = (await phone.poll()).json()["messages"]
        heard = next(each for each in waiting if each["from"].startswith("domain://idm."))["body"]
        assert heard["value"]["resource"] == OBJECT
        name = heard["value"]["invitation"]
        assert name == invited["value"]["invitation"]
        identity = {"assertion": tokens[1], "idp": {"domain": "b.localhost"}}  # unknown at a
        accept = {"value": {"invitation": name}, "identity": identity}

        bob = await stack.enter_async_context(a.ws())
        await bob.open("runtime://b.localhost/phone")
        assert code(await bob.ask("create", hyperty)) == 401
        guessed = {"value": {"invitation": "guessed"}}
        assert code(await bob.ask("create", hyperty, guessed)) == 403
        await reaches(bob, alice, "create", hyperty, accept)
        mallory = await stack.enter_async_context(a.ws())
        await mallory.open("runtime://b.localhost/mallory")
        assert code(await mallory.ask("create", hyperty, accept)) == 403
        assert code(await mallory.ask("read", OBJECT)) == 403

        parts = [f"{OBJECT}/changes", f"{OBJECT}/children/"]
        assert code(await bob.ask("subscribe", SM, {"resources": parts})) == 200
        await reaches(bob, alice, "subscribe", f"{OBJECT}/subscription")
        await alice.send("update", f"{OBJECT}/changes", {"value": 1}, sender=OBJECT)
        await bob.expect(type="update", to=f"{OBJECT}/changes")
        await refused_elsewhere(bob, alice.runtime_url)

        bob.cut()  # his session is the same, and he is the same guest
        back = await stack.enter_async_context(a.ws())
        assert code(await back.reopen(bob.runtime_url, bob.token)) == 200
        await reaches(back, alice, "read", OBJECT)
        await refused_elsewhere(back, alice.runtime_url)

        # Their time passes: what was accepted ends, and what was not is accepted no more.
        late = {"value": {"invitation": (await invite())["value"]["invitation"]}}
        await asyncio.to_thread(a.manage, "shell", "-c", PAST)
        other = await stack.enter_async_context(a.ws())
        await other.open("runtime://b.localhost/tablet")
        assert code(await other.ask("create", hyperty, late)) == 403
        async with asyncio.timeout(LIMIT):
            while await may_read(back, alice):
                await eventually()
        for to in (OBJECT, hyperty, OTHER):
            assert code(await back.ask("read", to)) == 403
        await alice.send("update", f"{OBJECT}/changes", {"value": 2}, sender=OBJECT)
        assert not [
            each for each in await back.received_from(alice) if each["to"] == f"{OBJECT}/changes"
        ]


async def log_in_and_hold(alice: Client, token: str) -> str:
    """Alice is known at a and holds two objects; her hyperty's address."""
    await alice.open("runtime://a.localhost/alice")
    login = {"method": "login", "params": {"token": token}}
    assert code(await alice.ask("execute", IDM, login)) == 200
    held = [OBJECT, f"{OBJECT}/subscription", f"{OBJECT}/children/", OTHER]
    assert code(await alice.ask("subscribe", SM, {"resources": held})) == 200
    body = {"scheme": "hyperty", "value": {"number": 1}}
    answer = await alice.ask("create", ALLOCATION, body)
    return str(answer["body"]["value"]["allocated"][0])


async def asleep(phone: Device, pushes: str) -> dict[str, Any]:
    """Bob's phone may be invited and woken, and reads nothing; where it is invited."""
    body = {"method": "subscribePush", "params": {}}
    answer = await phone.send("execute", "domain://idm.b.localhost", body, wait=10)
    assert answer.json()["body"]["code"] == 200, answer.text
    assert (await put(phone, pushes)).status_code == 201
    return dict(answer.json()["body"]["value"])


async def reaches(guest: Client, host: Client, type_: str, to: str, body: Any = None) -> None:
    """What the guest asks comes to the host, and the answer back."""
    id_ = await guest.send(type_, to, body)
    asked = await host.expect(type=type_, to=to, sender=guest.runtime_url)
    answer = {"id": asked["id"], "type": "response", "from": to, "to": guest.runtime_url}
    await host.send_raw(json.dumps({**answer, "body": {"code": 200}}))
    assert code(await guest.answer(id_)) == 200


async def refused_elsewhere(guest: Client, runtime_url: str) -> None:
    """Whatever else there is at the node."""
    for type_, to, body in (
        ("read", OTHER, None),
        ("create", runtime_url, None),
        ("read", [OBJECT, OTHER], None),
        ("read", "domain://registry.a.localhost", {"resource": "user://a.localhost/alice"}),
        ("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}}),
        ("subscribe", SM, {"resources": [f"{OTHER}/changes"]}),
        ("subscribe", SM, {"resources": [f"{OBJECT}/changes", f"{OTHER}/changes"]}),
    ):
        assert code(await guest.ask(type_, to, body)) == 403, (type_, to)


async def may_read(guest: Client, host: Client) -> bool:
    """Whether the object is still the guest's to read; the host answers if it is."""
    id_ = await guest.send("read", OBJECT)
    answer = asyncio.ensure_future(guest.answer(id_))
    asked = asyncio.ensure_future(host.expect(type="read", to=OBJECT))
    done, _ = await asyncio.wait((answer, asked), return_when=asyncio.FIRST_COMPLETED)
    if answer in done:
        asked.cancel()
        return code(answer.result()) == 200
    request = asked.result()
    head = {"id": request["id"], "type": "response", "from": OBJECT, "to": guest.runtime_url}
    await host.send_raw(json.dumps({**head, "body": {"code": 200}}))
    return code(await answer) == 200
