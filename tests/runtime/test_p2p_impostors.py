"""Invitations that are not what they say, from a client that writes what it likes."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from typing import Any

import pytest

from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from tests.client import SM, Client, Frame, code
from tests.node import Node

from .p2p_talkers import Talker, on_loopback, talkers  # noqa: F401 (a fixture for all)

pytestmark = pytest.mark.xdist_group("p2p")


class Inviter:
    """A raw client with a connection object of its own."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.url = f"connection://localhost/{uuid.uuid4()}"
        self.stub = f"runtime://localhost/p2prequester/{uuid.uuid4()}"

    async def invite(self, bob: Talker, **more: Any) -> Frame:
        named = [self.stub, self.url, f"{self.url}/subscription"]
        assert code(await self.client.ask("subscribe", SM, {"resources": named})) == 200
        value = {
            "reporter": self.stub, "runtime": self.client.runtime_url, "protocol": "msgnode.1",
            "epoch": uuid.uuid4().hex, "expires": int(time.time()) + 15,
            "p2pHandler": f"{self.client.runtime_url}/p2phandler/1", **more,
        }  # fmt: skip
        body = {"p2p": False, "source": self.stub, "schema": "Connection", "value": value}
        sender = f"{self.url}/subscription"
        return await self.client.ask("create", bob.p2p.handler, body, sender=sender)


async def test_nobody_sets_a_connection_up_in_the_name_of_another(node: Node) -> None:
    async with talkers(node, P2PSettings(), P2PSettings()) as (alice, bob), node.ws() as client:
        mallory = Inviter(await client.open())
        claimed = {"runtime": alice.runtime.url, "p2pHandler": alice.p2p.handler}
        await mallory.invite(bob, **claimed)
        async with asyncio.timeout(30):
            while not bob.runtime.bus.counters["p2p.not-handled"]:
                await client.settled()
        assert alice.runtime.url not in bob.p2p.known
        # Nor with the handler of one runtime and the name of another.
        answer = await mallory.invite(bob, runtime=alice.runtime.url)
        assert code(answer) == 403
        assert not bob.p2p.known


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"expires": 1}, 410),
        ({"runtime": ""}, 501),
        ({"epoch": 7}, 501),
        ({"p2pHandler": "comm://localhost/p2phandler/1"}, 403),
    ],
)
async def test_case_p23_an_invitation_that_has_expired_or_says_too_little_is_refused(
    node: Node, wrong: dict[str, Any], expected: int
) -> None:
    async with talkers(node, P2PSettings()) as (bob,), node.ws() as client:
        answer = await Inviter(await client.open()).invite(bob, **wrong)
        assert code(answer) == expected and answer["body"]["desc"]
        assert not bob.p2p.known


async def test_case_p58_the_eleventh_invitation_in_a_minute_is_one_too_many(node: Node) -> None:
    async with talkers(node, P2PSettings()) as (bob,), node.ws() as client:
        inviter = Inviter(await client.open())
        codes = [code(await inviter.invite(bob)) for _ in range(11)]
        assert codes == [200] * 10 + [429]


async def test_case_p10_an_unknown_handler_of_a_live_runtime_is_404(node: Node) -> None:
    async with talkers(node, P2PSettings()) as (bob,), node.ws() as client:
        await client.open()
        to = f"{bob.runtime.url}/p2phandler/{uuid.uuid4()}"
        assert code(await client.ask("create", to, {"p2p": False})) == 404


@pytest.mark.long
async def test_case_p51_an_answer_whose_fingerprint_was_changed_on_the_way_opens_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = P2PSettings(timers=P2PTimers(answer=30.0, set_up=8.0))
    async with talkers(node, brief, brief) as (alice, bob):
        signalling = alice.p2p._signalling
        described = signalling.described

        async def changed(url: str, own: str) -> Any:
            found = await described(url, own)
            sdp = re.sub(r"(a=fingerprint:\S+ )\S\S:\S\S", r"\g<1>00:FF", found["sdp"])
            assert sdp != found["sdp"]
            return {**found, "sdp": sdp}

        monkeypatch.setattr(signalling, "described", changed)
        assert (await alice.ask(bob, 1, p2p=True))["value"] == 1
        for one, other in ((alice, bob), (bob, alice)):
            await one.until(lambda: (other.runtime.url, "failed") in one.states)  # noqa: B023
            assert (other.runtime.url, "live") not in one.states
        assert (await alice.ask(bob, 2))["value"] == 2 and bob.by_channel == 0
