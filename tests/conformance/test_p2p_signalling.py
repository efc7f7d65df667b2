"""Cases P6, P9, P11 and P12: signalling of peer-to-peer connections is said like any other message,
and no text in an address stands in for an identity."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from tests.client import LIMIT, SM, Client, Frame, code, runtime
from tests.issuer import Issuer
from tests.node import Node

IDM = "domain://idm.localhost"
MODES = {"anonymous": "localhost", "identified": "identified.test", "strict": "strict.test"}
DEMANDING = pytest.mark.parametrize("mode", ["identified", "strict"])


async def come(node: Node, mode: str) -> Client:
    """A runtime of a domain that has this mode."""
    client = await node.ws().connect()
    return await client.open(runtime().replace("localhost", MODES[mode]))


def signalling(to: Client) -> list[str]:
    """Addresses with the words of signalling in them, of runtimes and of anything else."""
    domain = to.runtime_url.split("/")[2]
    return [
        f"{to.runtime_url}/p2phandler/chat",
        f"hyperty-{to.runtime_url}/p2phandler/chat",
        f"{to.runtime_url}/sm/p2phandler/chat",
        f"{to.runtime_url}/x/p2prequester/chat/",
        f"runtime://{domain}/p2prequester/{uuid.uuid4()}",
        f"runtime://{domain}/p2phandler/{uuid.uuid4()}",
        "comm://localhost/p2phandler/t",
        "hyperty://localhost/p2prequester/t",
        f"{to.runtime_url}/status",
        f"{to.runtime_url}/sm/status",
        "hyperty://localhost/status",
    ]


@DEMANDING
@pytest.mark.parametrize("type_", ["create", "update", "execute"])
async def test_case_p11_without_an_identity_nothing_passes_as_signalling(
    idnode: Node, mode: str, type_: str
) -> None:
    sender, receiver = await come(idnode, mode), await come(idnode, "anonymous")
    for to in signalling(receiver):
        assert code(await sender.ask(type_, to, {"value": "chat"})) == 401, to
    everywhere = [f"{sender.runtime_url}/status", *signalling(receiver)]
    assert code(await sender.ask(type_, everywhere, {"value": "chat"})) == 401
    assert await receiver.settled() == []
    await sender.hang_up()
    await receiver.hang_up()


@DEMANDING
async def test_case_p11_nor_does_it_take_an_address(idnode: Node, mode: str) -> None:
    sender = await come(idnode, mode)
    handler = f"{sender.runtime_url}/p2phandler/1"
    assert code(await sender.ask("subscribe", SM, {"subscribe": [handler]})) == 401
    await sender.hang_up()


async def test_case_p6_where_no_identity_is_asked_for_signalling_reaches_its_runtime_alone(
    idnode: Node,
) -> None:
    sender, receiver = await come(idnode, "anonymous"), await come(idnode, "anonymous")
    handler = f"{receiver.runtime_url}/p2phandler/{uuid.uuid4()}"
    answer = await receiver.ask("subscribe", SM, {"subscribe": [handler]})
    assert code(answer) == 200
    body = {"p2p": False, "value": {"name": "connection", "resources": ["data"]}}
    await sender.send("create", handler, body, id="invitation")
    assert (await receiver.expect(id="invitation"))["body"] == {**body, "auth": False}
    assert code(await sender.ask("create", "comm://localhost/p2phandler/t", body)) == 404
    assert await sender.settled() == []
    await sender.hang_up()
    await receiver.hang_up()


async def test_case_p9_an_invitation_to_a_runtime_that_is_away_is_refused_and_does_not_wait(
    node: Node,
) -> None:
    sender, receiver = await node.ws().connect(), await node.ws().connect()
    await sender.open()
    await receiver.open()
    handler = f"{receiver.runtime_url}/p2phandler/{uuid.uuid4()}"
    await receiver.hang_up()
    refused: list[Frame] = []
    sent = 0
    async with asyncio.timeout(LIMIT):
        while not refused:  # until the node knows that the runtime is away
            sent += 1
            await sender.send("create", handler, {"p2p": False})
            refused = await sender.settled()
    assert code(refused[0]) == 503 and "invitation" in refused[0]["body"]["desc"]
    await sender.send("execute", handler, {"method": "resume"}, id="resume")
    again = await node.ws().connect()
    assert code(await again.reopen(receiver.runtime_url, receiver.token)) == 200
    assert (await again.expect(id="resume"))["body"]["method"] == "resume"
    waited = [frame["type"] for frame in await again.settled()]
    assert waited == ["create"] * len(waited) and len(waited) < sent  # none that was refused
    assert 'msgnode_p2p_invitations_total{outcome="dropped"' in node.text("/metrics")
    await sender.hang_up()
    await again.hang_up()


@pytest.mark.parametrize("mode", MODES)
async def test_case_p12_who_has_logged_in_signals_as_asserted(
    idnode: Node, issuer: Issuer, mode: str
) -> None:
    sender, receiver = await come(idnode, mode), await come(idnode, mode)
    for client in (sender, receiver):
        token = issuer.token(f"u{uuid.uuid4().hex[:8]}")
        body = {"method": "login", "params": {"token": token}}
        assert code(await client.ask("execute", IDM, body)) == 200
    handler = f"{receiver.runtime_url}/p2phandler/{uuid.uuid4()}"
    assert code(await receiver.ask("subscribe", SM, {"subscribe": [handler]})) == 200
    await sender.send("create", handler, {"p2p": False}, id="invitation")
    arrived = await receiver.expect(id="invitation")
    assert arrived["from"] == sender.runtime_url
    assert arrived["body"]["assertedIdentity"] is True
    await receiver.send("response", sender.runtime_url, {"code": 200}, sender=handler,
                        id="invitation")  # fmt: skip
    assert code(await sender.answer("invitation")) == 200
    await sender.hang_up()
    await receiver.hang_up()


@pytest.mark.parametrize("part", ["status", "changes", "registration", "subscription", "children"])
async def test_no_runtime_has_the_address_of_a_part_of_another(idnode: Node, part: str) -> None:
    """Where it came first, what is said without an identity to a runtime's own status would be its
    to hear."""
    async with idnode.ws() as client:
        answer = await client.ask("open", "mn:/session", sender=f"{runtime()}/{part}")
        assert code(answer) == 400


async def test_cases_p7_and_p8_nobody_else_has_a_part_in_a_set_up(idnode: Node) -> None:
    alice, bob, eve = [await come(idnode, "anonymous") for _ in range(3)]
    handler = f"{bob.runtime_url}/p2phandler/{uuid.uuid4()}"
    requester = f"runtime://localhost/p2prequester/{uuid.uuid4()}"
    object_ = f"connection://localhost/{uuid.uuid4()}"
    named = [requester, object_, f"{object_}/subscription"]
    assert code(await bob.ask("subscribe", SM, {"subscribe": [handler]})) == 200
    assert code(await alice.ask("subscribe", SM, {"resources": named})) == 200
    for each in (handler, *named):
        assert code(await eve.ask("subscribe", SM, {"subscribe": [each]})) == 403, each
        assert code(await eve.ask("subscribe", SM, {"resources": [each]})) == 403, each
        for to in (handler, requester):
            assert code(await eve.ask("create", to, {}, sender=each)) == 403, (each, to)
    for sender in (eve.runtime_url, object_):
        changed = await eve.ask("update", f"{object_}/changes", {"value": 1}, sender=sender)
        assert code(changed) == 403, sender
    for each in (alice, bob):
        assert await each.settled() == []
    await alice.close_session()
    assert code(await eve.ask("subscribe", SM, {"resources": [requester]})) == 200
    await eve.hang_up()
    await bob.hang_up()
