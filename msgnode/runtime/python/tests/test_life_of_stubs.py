"""Cases R37, R49, R50, R66, R67: a stub that was loaded: its states, its successors, its end."""

from __future__ import annotations

import asyncio

import pytest
from world import ECHO, FAR, A, FakeCatalogue, R, World, descriptor

from msgnode.runtime.python.housekeeping import keep_house, replace
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.stub_list import Held, StubEntry, new_url

LOOK = "GET /d/.well-known/protocolstub/python/version"


async def test_r37_a_new_version_takes_over_and_nothing_is_lost(catalogue: FakeCatalogue) -> None:
    catalogue.serve(descriptor())
    catalogue.serve((200, {}, b"1.0"), "f", "python/version")
    async with World(catalogue, revalidate=0.2) as world:
        house = asyncio.create_task(keep_house(world.resolver))
        await world.ask()
        old = world.url()
        newer = ECHO.replace('"code": 200', '"code": 200, "version": 2')
        catalogue.serve(descriptor(newer, version="2.0"))
        catalogue.serve((200, {}, b"2.0"), "f", "python/version")
        got: list[Message] = []
        sent = 0
        while not any("version" in each["body"] for each in got):
            world.bus.post_message(
                {"type": "create", "from": A, "to": FAR, "body": {"value": sent}}, got.append
            )
            sent += 1
            await asyncio.sleep(0.01)
            assert sent < 2000
        await world.until(lambda: len(got) == sent)
        assert [each["body"]["value"] for each in got] == list(range(sent))
        assert world.url() != old
        await world.until(lambda: len(world.resolver.loader.sandboxes) == 1)
        house.cancel()


async def test_r37_a_catalogue_that_does_not_agree_with_itself_replaces_nothing(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor())
    catalogue.serve((200, {}, b"<html>Welcome</html>"), "f", "python/version")
    async with World(catalogue, revalidate=0.1) as world:
        house = asyncio.create_task(keep_house(world.resolver))
        await world.ask()
        url = world.url()
        fetched = "POST /f/.well-known/protocolstub/default"
        async with asyncio.timeout(20):
            while catalogue.asked.count(fetched) < 4:
                await world.ask()  # it is in use
                await asyncio.sleep(0.02)
        assert world.url() == url
        house.cancel()


async def test_r37_a_new_version_that_takes_its_time_to_connect_has_taken_over(
    catalogue: FakeCatalogue,
) -> None:
    connect = "    async def connect(self, identity=None):\n"
    slow = ECHO.replace(connect, f"{connect}        await __import__('asyncio').sleep(60)\n")
    catalogue.serve(descriptor(), "d")
    catalogue.serve((200, {}, b"1.0"), "d", "python/version")
    async with World(catalogue, revalidate=0.2, load=1.5, replace=0.1) as world:
        house = asyncio.create_task(keep_house(world.resolver))
        assert await world.resolver.log_in() == "live"
        catalogue.serve(descriptor(slow, version="2.0"), "d")
        catalogue.serve((200, {}, b"2.0"), "d", "python/version")
        urls = {world.url("d")}
        looks = 0
        async with asyncio.timeout(20):
            while len(urls) < 2 or catalogue.asked[looks:].count(LOOK) < 2:
                if len(urls) < 2:
                    looks = len(catalogue.asked)
                await world.ask("hyperty://d/x")  # it is in use
                urls.add(world.url("d"))
                await asyncio.sleep(0.02)
        assert len(urls) == 2
        assert "version.refused" not in world.bus.counters
        house.cancel()


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


async def test_r49_each_status_is_copied_and_others_see_the_original(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor())
    async with World(catalogue) as world:
        entry = world.resolver.require("f")
        seen: list[Message] = []
        world.bus.add_listener(f"{entry.url}/status", seen.append)
        await world.ask()
        words = ["created", "in-progress", "live"]
        assert [each["body"]["value"] for each in seen if each["body"]["value"] in words] == words
        assert {each["from"] for each in seen} == {entry.url}
        copies = [each for each in world.statuses if each["body"]["value"] in words]
        assert [each["body"]["resource"] for each in copies] == [entry.url] * 3
        assert {each["from"] for each in copies} == {R}


async def test_r50_the_old_words_mean_the_same(catalogue: FakeCatalogue) -> None:
    source = ECHO.replace('self.say("live")', 'self.say("connected")')
    catalogue.serve(descriptor(source.replace('self.say("created")', 'self.say("create")')))
    async with World(catalogue) as world:
        await world.ask()
        entry = world.resolver.stubs.get("f")
        assert entry is not None and entry.status == "live"
        assert world.words()[-2:] == ["in-progress", "live"] and "created" in world.words()


async def test_r66_a_stub_that_is_not_used_is_unloaded_and_comes_back(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor())
    async with World(catalogue, idle_abroad=0.3) as world:
        house = asyncio.create_task(keep_house(world.resolver))
        await world.ask()
        await world.until(lambda: not world.resolver.loader.sandboxes)
        assert "disconnected" in world.words()
        assert (await world.ask(value=2))["value"] == 2
        house.cancel()


async def test_what_is_held_at_a_domain_keeps_its_stub(catalogue: FakeCatalogue) -> None:
    catalogue.serve(descriptor())
    async with World(catalogue, idle_abroad=0.2) as world:
        house = asyncio.create_task(keep_house(world.resolver))
        held = {"resources": ["comm://f/o/changes"]}
        asked = {"type": "subscribe", "from": f"{R}/sm", "to": "domain://msg-node.f/sm"}
        await world.bus.request({**asked, "body": held})
        await asyncio.sleep(0.8)
        assert world.resolver.loader.sandboxes
        await world.bus.request({**asked, "type": "unsubscribe", "body": held})
        await world.until(lambda: not world.resolver.loader.sandboxes)
        house.cancel()


async def test_r67_the_home_stub_connects_at_log_in_with_the_identity_and_no_other_does(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor(), "d")
    async with World(catalogue) as world:
        assert await world.resolver.log_in({"token": "secret"}) == "live"
        assert world.statuses[-1]["body"]["identity"] == {"token": "secret"}
