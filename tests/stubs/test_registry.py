"""Runtimes of all kinds, a browser's page among them, find each other and learn who has gone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.node import Node
from tests.stubs.runtimes import KINDS, Cast, Runtime

pytestmark = pytest.mark.long

REGISTRY = "domain://registry.localhost"
SM = "domain://msg-node.localhost/sm"


def registration(runtime: Runtime, url: str, mail: str) -> dict[str, Any]:
    return {
        "value": {
            "user": mail,
            "url": url,
            "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Chat",
            "expires": 3600,
            "resources": ["chat"],
            "dataSchemes": ["comm"],
            "runtime": runtime.url,
            "status": "live",
        },
        "policy": "policy",
    }


DEVICES = {"DEVICE_HTTP": True, "PING_INTERVAL": 1, "PING_TIMEOUT": 3}
"""A runtime over HTTP that went without a word is missed at PING_TIMEOUT."""


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "node-start"])
def test_a_runtime_is_found_and_its_end_is_heard(
    kind: str, start_node: Callable[..., Node], request: pytest.FixtureRequest
) -> None:
    node = start_node(GRACE_PERIOD=0.5, REGISTRY_CLOSE_GRACE=0, **DEVICES)
    mail, url = f"{uuid.uuid4().hex}@d.example", f"hyperty://localhost/{uuid.uuid4()}"
    with Cast("python", node.port, request) as others:
        bob = others.enter("bob")
        with Cast(kind, node.port, request) as first:
            alice = first.enter("alice")
            assert alice.ask("create", REGISTRY, registration(alice, url, mail))["code"] == 200
            found = bob.ask("read", REGISTRY, {"resource": f"/hyperty/idp-identifier/{mail}"})
            assert (found["code"], found["value"][url]["runtime"]) == (200, alice.url)
            bob.ask("subscribe", SM, {"resources": [f"{url}/registration"]})
        news = bob.wait_for(lambda each: each["to"] == f"{url}/registration")
        assert (news["from"], news["body"]["value"]) == (REGISTRY, "disconnected")
        assert bob.ask("read", REGISTRY, {"resource": url})["code"] == 408
