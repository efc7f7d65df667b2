"""A stub that loads and never says that it is live: who is told, and when it is tried again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from world import ECHO, FAR, A, FakeCatalogue, World, descriptor

from msgnode.runtime.python import loader, protostub
from msgnode.runtime.python.housekeeping import keep_house
from msgnode.runtime.python.stub_list import StubEntry

LIMIT = 30.0
OWN = Path(protostub.__file__).read_text(encoding="utf-8")
MUTE = ECHO.replace('self.say("in-progress")', "return")
"""Says `created`, and then takes what it is handed without a word."""


def entry(kind: str = "protocolstub", status: str = "created") -> StubEntry:
    return StubEntry("f", "f", kind, "runtime://f/protostub/1", status)


def test_a_stub_that_has_something_to_do_is_late_exactly_at_its_limit() -> None:
    one = entry()
    assert not one.is_late(1000.0, LIMIT), "it had nothing to do"
    one.expect_live(10.0)
    one.expect_live(20.0)  # another message gives it no more time
    one.enter("in-progress", "")
    assert not one.is_late(10.0 + LIMIT - 0.01, LIMIT)
    assert one.is_late(10.0 + LIMIT, LIMIT)


@pytest.mark.parametrize("status", ["live", "disconnected", "failed"])
def test_one_that_is_live_or_says_that_it_is_not_need_not_be(status: str) -> None:
    one = entry()
    one.expect_live(10.0)
    one.enter(status, "")
    one.expect_live(20.0)
    assert not one.is_late(1000.0, LIMIT)
    one.enter("in-progress", "")
    one.expect_live(2000.0)
    assert one.is_late(2000.0 + LIMIT, LIMIT)


def test_what_brings_something_in_is_as_good_as_live() -> None:
    one = entry()
    one.expect_live(10.0)
    one.received({"type": "update", "from": FAR, "to": A, "body": {}})
    assert not one.is_late(1000.0, LIMIT)


def test_an_identity_proxy_connects_to_nothing() -> None:
    one = entry("idp-proxy")
    one.expect_live(10.0)
    assert not one.is_late(1000.0, LIMIT)


async def test_a_stub_that_is_never_live_is_as_one_that_cannot_be_loaded(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor(MUTE))
    async with World(catalogue, live=0.3, retry_load=(60.0, 60.0)) as world:
        house = asyncio.create_task(keep_house(world.resolver))
        body = await world.ask()  # it was handed to the stub
        assert body["code"] == 503
        assert "not live within 0.3 s" in body["desc"]
        again = await world.ask(value=2)  # and this one was not
        assert (again["code"], again["desc"]) == (504, body["desc"])
        assert world.bus.counters["stub.not-live"] == 1
        await world.until(lambda: not world.resolver.loader.sandboxes)
        assert world.words()[-1] == "deployment-failed"
        house.cancel()


async def test_it_is_tried_again_after_longer_and_longer_until_it_is_live(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor(MUTE))
    async with World(catalogue, live=0.3, retry_load=(0.2, 60.0)) as world:
        house = asyncio.create_task(keep_house(world.resolver))
        found = world.resolver.require("f")
        for failures in (1, 2):
            await world.until(lambda: found.retry_at < asyncio.get_running_loop().time())
            assert (await world.ask())["code"] == 503
            assert found.failures == failures
        catalogue.serve(descriptor())
        await world.until(lambda: found.retry_at < asyncio.get_running_loop().time())
        assert (await world.ask(value=3))["value"] == 3
        assert (found.status, found.failures) == ("live", 0)
        house.cancel()


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
