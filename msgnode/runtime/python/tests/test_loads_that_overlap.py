"""What happens at once: many domains, a stub that goes while it is asked, a successor that dies."""

from __future__ import annotations

import asyncio
import threading

import pytest
from world import ECHO, FAR, A, FakeCatalogue, World, descriptor

from msgnode.runtime.python import resolver as resolver_module
from msgnode.runtime.python.housekeeping import keep_house, unload
from msgnode.runtime.python.messages import Message


async def test_only_so_many_domains_are_looked_up_at_a_time(
    catalogue: FakeCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver_module, "MAX_LOADS", 10)
    catalogue.hangs = True
    catalogues = {f"h{n}": f"{catalogue.url}/h{n}" for n in range(50)}
    async with World(catalogue, catalogues=catalogues, load=1.0, fetch=1.0) as world:
        codes: list[int] = []
        for number in range(50):
            world.bus.post_message(
                {"type": "create", "from": A, "to": f"hyperty://h{number}/x"},
                lambda each: codes.append(each["body"]["code"]),
            )
        await world.until(lambda: len(codes) == 40)
        assert codes == [503] * 40
        assert sum(each.name == "catalogue" for each in threading.enumerate()) <= 10
        await world.until(lambda: len(codes) == 50)
        assert codes[40:] == [504] * 10


async def test_what_comes_while_a_stub_goes_waits_for_the_next_one(
    catalogue: FakeCatalogue,
) -> None:
    slow = ECHO.replace(
        'self.say("disconnected")',
        'import asyncio\n        await asyncio.sleep(0.5)\n        self.say("disconnected")',
    )
    catalogue.serve(descriptor(slow))
    async with World(catalogue) as world:
        await world.ask()
        entry = world.resolver.stubs.get("f")
        assert entry is not None
        going = asyncio.create_task(unload(world.resolver, entry))
        await asyncio.sleep(0)
        values = await asyncio.gather(*(world.ask(value=number) for number in range(5)))
        assert [each["value"] for each in values] == list(range(5))
        await going
        await world.until(lambda: len(world.resolver.loader.sandboxes) == 1)
        assert entry.stub is not None and not entry.stub.is_ended


async def test_a_new_version_that_dies_before_it_takes_over_changes_nothing(
    catalogue: FakeCatalogue,
) -> None:
    silent = ECHO.replace('if message["type"] != "response":', 'if "silent" not in message["to"]:')
    catalogue.serve(descriptor(silent))
    catalogue.serve((200, {}, b"1.0"), "f", "python/version")
    async with World(catalogue, revalidate=0.2) as world:
        await world.ask()
        old = world.url()
        held: list[Message] = []
        silence = {"type": "create", "from": A, "to": "hyperty://f/silent"}
        world.bus.post_message(silence, held.append)
        dying = (
            ECHO + "\nimport asyncio, os\nasyncio.get_running_loop().call_later(0.1, os._exit, 3)\n"
        )
        catalogue.serve(descriptor(dying, version="2.0"))
        catalogue.serve((200, {}, b"2.0"), "f", "python/version")
        house = asyncio.create_task(keep_house(world.resolver))
        await world.until(lambda: len(world.resolver.loader.sandboxes) == 2)
        await world.until(lambda: len(world.resolver.loader.sandboxes) == 1)
        entry = world.resolver.stubs.get("f")
        assert entry is not None
        entry.open.clear()  # the silent one has given up
        await world.until(lambda: world.bus.counters["version.refused"])
        assert (await world.ask(FAR, 5))["value"] == 5
        assert world.url() == old
        house.cancel()
