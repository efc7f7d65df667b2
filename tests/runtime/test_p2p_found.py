from __future__ import annotations

import uuid

import pytest

from msgnode.runtime.python.messages import Message, body_of
from msgnode.runtime.python.p2p.link import Way
from msgnode.runtime.python.p2p.settings import P2PSettings, P2PTimers
from tests.node import Node

from .p2p_talkers import SECONDS, Talker, on_loopback, talkers  # noqa: F401 (a fixture for all)

pytestmark = pytest.mark.xdist_group("p2p")

P2P = P2PSettings(
    timers=P2PTimers(answer=30.0, set_up=60.0, fence=30.0, resume=30.0, ping=20.0, dead=60.0)
)


async def hyperty(talker: Talker, is_told: bool = True) -> str:
    """A registered hyperty of a runtime, which answers with how it was asked.

    Args:
        is_told: whether the registry tells of its handler.
    """
    bus, domain = talker.runtime.bus, talker.runtime.settings.domain
    url = f"hyperty://{domain}/{uuid.uuid4()}"
    claim = {"type": "subscribe", "from": f"{talker.runtime.url}/sm",
             "to": f"domain://msg-node.{domain}/sm"}  # fmt: skip
    answer = await bus.request({**claim, "body": {"resources": [url], "source": url}}, SECONDS)
    assert answer["body"]["code"] == 200, answer
    value = {
        "url": url, "user": f"user://{domain}/{uuid.uuid4()}", "expires": 3600, "status": "live",
        "descriptor": f"hyperty-catalogue://{domain}/.well-known/hyperty/Echo",
        "resources": ["chat"], "dataSchemes": ["comm"], "runtime": talker.runtime.url,
        **(talker.p2p.registration if is_told else {}),
    }  # fmt: skip
    entry = {"type": "create", "from": f"{talker.runtime.url}/registry/"}
    to = f"domain://registry.{domain}"
    answer = await bus.request({**entry, "to": to, "body": {"value": value}}, SECONDS)
    assert answer["body"]["code"] == 200, answer

    def serve(message: Message) -> None:
        if message["type"] == "create":
            body = {"code": 200, "cameBy": body_of(message).get("via")}
            head = {"id": message["id"], "type": "response", "from": url, "to": message["from"]}
            bus.post_message({**head, "body": body})

    bus.add_listener(url, serve)
    return url


async def test_case_p3_a_registered_hyperty_is_found_dialled_and_let_speak(node: Node) -> None:
    async with talkers(node, P2P, P2P) as (alice, bob):
        a, b = await hyperty(alice), await hyperty(bob)
        message = {"type": "create", "from": a, "to": b, "body": {"p2p": True}}
        answer = await alice.runtime.bus.request(message, SECONDS)
        assert "/protostub/" in answer["body"]["cameBy"]
        await alice.until(lambda: (bob.runtime.url, "live") in alice.states)
        await alice.until(lambda: alice.way_to(bob) is Way.CHANNEL)
        await bob.until(lambda: bob.way_to(alice) is Way.CHANNEL)
        for _ in range(30):
            answer = await alice.runtime.bus.request({**message, "body": {}}, SECONDS)
            assert "/p2prequester/" in answer["body"]["cameBy"]
        assert (
            alice.runtime.bus.counters["p2p.forged"] == bob.runtime.bus.counters["p2p.forged"] == 0
        )
