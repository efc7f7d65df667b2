"""A card over real nodes: Alice of one domain reaches Bob of another by what his domain asserts.

docs/reference/runtime.md, section 8.4, up to the answer; the media are not part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from msgnode.runtime.python import CardError, Runtime, Settings
from msgnode.runtime.python.messages import Message
from tests.node import Node
from tests.runtime.test_graph import in_nodejs, register

pytestmark = pytest.mark.long

BOB = "bob@f.localhost"
MAKE_BOB = (
    "from django.contrib.auth import get_user_model as users;"
    f"users().objects.create_user('bob', '{BOB}', 'wonderland 7')"
)


async def test_a_callee_hosted_conversation_begins_with_the_card(
    start_node: Callable[..., Node],
) -> None:
    nodes = {
        "d.localhost": start_node(DOMAIN="d.localhost"),
        "f.localhost": start_node(DOMAIN="f.localhost", CONTACT_CARDS="*"),
    }
    await asyncio.to_thread(nodes["f.localhost"].manage, "shell", "-c", MAKE_BOB)
    urls = {domain: f"http://localhost:{node.port}" for domain, node in nodes.items()}
    at_d, at_f = (Settings(domain, catalogues=urls) for domain in nodes)
    async with Runtime(at_d) as alice, Runtime(at_f) as bob:
        assert await alice.log_in() == await bob.log_in() == "live"
        with pytest.raises(CardError) as caught:
            await alice.card_of("carol@f.localhost")
        assert caught.value.code == 404
        card = await alice.card_of(BOB)
        assert card.user_url == f"user://f.localhost/{BOB}"
        assert alice.resolver.stubs.get("f.localhost") is None  # no code of f has been loaded
        said = await asyncio.to_thread(in_nodejs, "d.localhost", nodes, urls=urls, card=BOB)
        assert said["userURL"] == card.user_url
        assert said["digests"] == list(card.digests)

        hyperty = await register(bob, card.user_url, "")

        def invited(message: Message) -> None:
            if message["type"] == "create":
                offer = message["body"]["value"]["connectionDescription"]
                answer = {"connectionDescription": {"type": "answer", "sdp": offer["sdp"]}}
                head = {"id": message["id"], "type": "response", "from": hyperty}
                body = {"code": 200, "value": answer}
                bob.bus.post_message({**head, "to": message["from"], "body": body})

        bob.bus.add_listener(hyperty, invited)

        async def ask(type_: str, to: str, **body: Any) -> dict[str, Any]:
            message = {"type": type_, "from": f"{alice.url}/call", "to": to, "body": body}
            answered: dict[str, Any] = (await alice.bus.request(message, 30.0))["body"]
            assert answered["code"] == 200, answered
            return dict(answered["value"])

        same = await ask(
            "execute", "domain://idm.f.localhost", method="getContact", params={"user": BOB}
        )
        assert same["userURL"] == card.user_url
        [found] = await ask("read", "domain://registry.f.localhost", resource=card.user_url)
        assert found == hyperty
        offer = {"connectionDescription": {"type": "offer", "sdp": "v=0"}}
        answer = await ask("create", hyperty, value=offer)
        assert answer["connectionDescription"] == {"type": "answer", "sdp": "v=0"}
        entry = alice.resolver.stubs.get("f.localhost")
        assert entry is not None and entry.status == "live"
