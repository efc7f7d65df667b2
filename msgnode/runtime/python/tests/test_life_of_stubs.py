"""A stub that was loaded: its successor, what is held through it, and one that is never live."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from world import ECHO, A, FakeCatalogue, R, World, descriptor

from msgnode.runtime.python import loader, protostub
from msgnode.runtime.python.housekeeping import replace
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.stub_list import Held, StubEntry, new_url

OWN = Path(protostub.__file__).read_text(encoding="utf-8")


async def test_r37_a_new_home_stub_connects_as_the_user_before_the_old_one_has_gone(
    catalogue: FakeCatalogue,
) -> None:
    last = """    async def disconnect(self):
        await __import__('asyncio').sleep(0.5)
        head = {"type": "update", "from": "hyperty://d/far", "to": "hyperty://d/a"}
        self.bus.post_message({**head, "body": {}})
"""
    catalogue.serve(descriptor(ECHO.replace("    async def disconnect(self):\n", last)), "d")
    async with World(catalogue) as world:
        assert await world.resolver.log_in({"token": "mine"}) == "live"
        catalogue.serve(descriptor(version="2.0"), "d")
        entry = world.resolver.stubs.get("d")
        assert entry is not None
        entry.descriptor, entry.source = await world.resolver.loader.fetch("d", "protocolstub")
        heard: list[object] = []
        world.bus.add_listener(A, lambda _: heard.append("the old one has gone"))
        world.bus.add_listener(
            f"{R}/status", lambda each: heard.append(each["body"].get("identity"))
        )
        await replace(world.resolver, entry, new_url("d", "protocolstub"))
        told = [each for each in heard if each]
        assert told == [{"token": "mine"}, "the old one has gone"]


@pytest.mark.parametrize("kind", ["", "hyperty-", "object-"])
def test_what_is_allocated_by_any_name_of_the_component_is_held_until_it_is_given_back(
    kind: str,
) -> None:
    entry = StubEntry("d", "d", "protostub", "runtime://d/protostub/1", "live")
    node = f"domain://msg-node.d/{kind}address-allocation"
    request: Message = {"id": 1, "type": "create", "from": A, "to": node, "body": {}}
    entry.sent(request, 0.0)
    body = {"code": 200, "value": {"allocated": ["hyperty://d/1", "hyperty://d/2"]}}
    entry.received({"id": 1, "type": "response", "from": node, "to": A, "body": body})
    held = Held(A, "domain://msg-node.d/sm")
    assert entry.held == {"hyperty://d/1": held, "hyperty://d/2": held}
    entry.sent({**request, "type": "delete", "body": {"resource": "hyperty://d/1"}}, 0.0)
    assert entry.held == {"hyperty://d/2": held}


def test_an_identity_proxy_connects_to_nothing() -> None:
    one = StubEntry("f", "f", "idp-proxy", "domain-idp://f/stub/1", "created")
    one.expect_live(10.0)
    assert not one.is_late(1000.0, 30.0)


async def test_a_log_in_ends_though_the_node_is_not_there(
    catalogue: FakeCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "CONNECT_SECONDS", 0.2)
    entry = descriptor(OWN, configuration={"url": "ws://127.0.0.1:1/ws"})
    catalogue.serve(entry, "d")
    async with World(catalogue) as world, asyncio.timeout(10):
        assert await world.resolver.log_in() == "disconnected"
        home = world.resolver.stubs.get("d")
        assert home is not None and isinstance(home.stub, loader.OwnStub)
