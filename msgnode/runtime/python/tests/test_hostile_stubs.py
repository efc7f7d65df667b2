"""Cases R40 to R48 through a whole runtime: a hostile stub harms nobody but itself."""

from __future__ import annotations

import asyncio
import sys

import pytest
from world import ECHO, A, FakeCatalogue, R, World, descriptor

from msgnode.runtime.python import sandbox as sandbox_module
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.settings import Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are confined by Linux")


async def other_conversation(world: World) -> float:
    """The 99th percentile of 200 answers of another domain's stub, in seconds."""
    clock = asyncio.get_running_loop().time
    took = []
    for number in range(200):
        began = clock()
        assert (await world.ask("hyperty://g/x", number))["value"] == number
        took.append(clock() - began)
        await asyncio.sleep(0.002)
    return sorted(took)[197]


LOOPS = "while True:\n    pass\n"
EATS = ECHO.replace(
    'if message["to"].endswith',
    'kept = [bytearray(1 << 20) for _ in range(4096)]\n        if message["to"].endswith',
)
FLOODS = (
    ECHO
    + """
import asyncio

def activate(url, bus, config):
    echo = Echo(url, bus, config)
    async def flood():
        while True:
            for _ in range(50):
                bus.post_message({"type": "update", "from": "hyperty://f/x", "to": "hyperty://d/a",
                                  "body": {"value": 1}})
            await asyncio.sleep(0)
    def begin():
        echo.task = asyncio.ensure_future(flood())
    asyncio.get_running_loop().call_later(0.2, begin)
    return {"instance": echo}
"""
)


FORGES = FLOODS.replace('"from": "hyperty://f/x"', '"from": "hyperty://d/victim"')
REACHES = (
    ECHO
    + """
import asyncio, socket

def activate(url, bus, config):
    echo = Echo(url, bus, config)
    async def reach():
        while True:
            for attempt in (
                lambda: socket.create_connection(("127.0.0.1", 1)),
                lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            ):
                try:
                    attempt()
                    bus.post_message({"type": "update", "from": "hyperty://f/spy",
                                      "to": "hyperty://d/a", "body": {"value": "reached"}})
                except OSError:
                    pass
            try:
                await asyncio.open_connection("elsewhere.example", 443)
            except OSError as error:
                bus.post_message({"type": "update", "from": "hyperty://f/spy",
                                  "to": "hyperty://d/a", "body": {"value": str(error)}})
            await asyncio.sleep(0.01)
    echo.task = asyncio.ensure_future(reach())
    return {"instance": echo}
"""
)


@pytest.mark.parametrize(
    ("source", "code"),
    [(LOOPS, 504), (EATS, 503), (FLOODS, 200), (FORGES, 200), (REACHES, 200)],
    ids=["loops", "eats", "floods", "forges", "reaches"],
)
async def test_r40_r41_another_conversation_goes_on_beside_a_hostile_stub(
    catalogue: FakeCatalogue, source: str, code: int
) -> None:
    catalogue.serve(descriptor(source))
    catalogue.serve(descriptor(), "g")
    limits = Limits(start=2.0)
    async with World(catalogue, limits=limits, retry_sandbox=(0.2, 1.0)) as world:
        got: list[Message] = []
        world.bus.add_listener(A, got.append)
        await world.ask("hyperty://g/x")
        hostile = asyncio.create_task(world.ask())
        p99 = await other_conversation(world)
        assert (await hostile)["code"] == code
        entry = world.resolver.stubs.get("f")
        assert entry is not None
        if source is LOOPS:
            assert entry.status == "deployment-failed"
            assert len(world.resolver.loader.sandboxes) == 1
        elif source is EATS:
            assert "disconnected" in world.words()
            url = entry.url
            await world.until(lambda: world.words().count("created") == 3)  # it was started again
            assert entry.url == url
        elif source is FORGES:
            await world.until(lambda: world.bus.counters["stub.forged"] > 50)
            assert [each for each in got if each["type"] != "response"] == []
        elif source is REACHES:
            await world.until(lambda: got)
            assert all("elsewhere.example" in each["body"]["value"] for each in got)
        else:
            boxes = list(world.resolver.loader.sandboxes)
            await world.until(lambda: any(box.counters["sandbox.throttled"] for box in boxes))
        assert p99 < 2.0  # the benchmark holds the tight bound


LIAR = ECHO.replace(
    "bus.add_listener",
    """for sender, to in LIES:
            body = {"value": "a lie"}
            bus.post_message({"id": 9, "type": "create", "from": sender, "to": to, "body": body})
        bus.add_listener""",
)


@pytest.mark.parametrize(
    ("sender", "to", "counter"),
    [
        (A, A, "stub.forged"),
        ("hyperty://d/somebody", A, "stub.forged"),
        (f"{R}/sm", A, "stub.forged"),
        ("domain://msg-node.d/sm", A, "stub.forged"),
        ("OWN", "runtime://g/protostub/1/status", "stub.ignored"),
        ("OWN", A, "stub.ignored"),
        ("hyperty://f/x", f"{R}/status", "stub.ignored"),
        ("hyperty://f/x", "runtime://g/protostub/1/status", "stub.ignored"),
    ],
)
async def test_r43_r44_r74_what_a_stub_says_as_another_is_not_delivered(
    catalogue: FakeCatalogue, sender: str, to: str, counter: str
) -> None:
    lies = f"[({'url' if sender == 'OWN' else repr(sender)}, {to!r})]"
    catalogue.serve(descriptor(LIAR.replace("LIES", lies)))
    async with World(catalogue) as world:
        got: list[Message] = []
        for address in (A, "runtime://g/protostub/1/status"):
            world.bus.add_listener(address, got.append)
        await world.ask()
        assert not [each for each in got if each["body"].get("value") == "a lie"]
        assert "a lie" not in world.words()
        assert world.bus.counters[counter] == 1


async def test_what_a_stub_brings_from_outside_is_delivered_with_its_via(
    catalogue: FakeCatalogue,
) -> None:
    lies = "[('hyperty://f/x', 'hyperty://d/a')]"
    catalogue.serve(descriptor(LIAR.replace("LIES", lies)))
    async with World(catalogue) as world:
        got: list[Message] = []
        world.bus.add_listener(A, got.append)
        world.resolver.require("f")
        await world.until(lambda: got)
        entry = world.resolver.stubs.get("f")
        assert entry is not None and got[0]["body"]["via"] == entry.url


async def test_a_large_text_from_elsewhere_does_not_end_the_sandbox_that_brings_it(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor())
    async with World(catalogue) as world:
        text = "漢" * 300_000 + "half a pair: \ud83d"  # less than a MiB, were it not escaped
        assert (await world.ask(value=text))["value"] == text
        assert "disconnected" not in world.words()


@pytest.mark.parametrize(("word", "code"), [("required", 501), ("best-effort", 200)])
async def test_r48_without_landlock_a_foreign_stub_runs_only_if_allowed(
    catalogue: FakeCatalogue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    word: str,
    code: int,
) -> None:
    lacking = sandbox_module._BOOT.replace(
        "importlib.import_module(a['module'])",
        "importlib.import_module(a['module'].replace('sandbox_child', 'landlock')).version = int; "
        "importlib.import_module(a['module'])",
    )
    monkeypatch.setattr(sandbox_module, "_BOOT", lacking)
    catalogue.serve(descriptor())
    async with World(catalogue, sandbox=word) as world:
        answer = await world.ask()
        assert answer["code"] == code
        if word == "required":
            assert "Landlock" in answer["desc"]
        else:
            assert "Landlock" in caplog.text
