"""Case R54, and the whole runtime: its home stub, its policies, and that it leaves nothing."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path

from world import ECHO, FakeCatalogue, descriptor

import msgnode.runtime.python as package
from msgnode.runtime.python import PolicyEngine, Runtime, Settings, protostub
from msgnode.runtime.python.loader import OwnStub, own_digest
from msgnode.runtime.python.messages import Message

A = "hyperty://d/a"


def settings(catalogue: FakeCatalogue) -> Settings:
    return Settings("d", catalogues={name: f"{catalogue.url}/{name}" for name in ("d", "f")})


def test_what_is_exported_and_what_is_documented_is_there() -> None:
    assert all(getattr(package, name) for name in package.__all__)
    page = Path(__file__).parents[4] / "docs" / "runtime.md"
    if page.exists():  # not where the package is alone
        table = (
            page.read_text(encoding="utf-8").partition("## The interface")[2].partition("## ")[0]
        )
        rows = [row.split(" | ")[:2] for row in table.splitlines() if row.startswith("| `")]
        named = re.findall(
            r"`([A-Z]\w+|[a-z]+_[a-z]+)`", " ".join(each for row in rows for each in row)
        )
        named = [
            each
            for each in named
            if each[0].isupper() or each in ("check_descriptor", "policy_handler")
        ]
        assert len(named) > 8
        assert {each for each in named if each not in package.__all__} == set()


async def test_r54_a_runtime_that_closes_tells_its_hyperties_and_leaves_nothing(
    catalogue: FakeCatalogue,
) -> None:
    catalogue.serve(descriptor())
    before = asyncio.all_tasks()
    runtime = Runtime(settings(catalogue))
    told: list[Message] = []

    def close(message: Message) -> None:
        told.append(message)
        head = {"id": message["id"], "type": "response", "from": A, "to": message["from"]}
        runtime.bus.post_message({**head, "body": {"code": 200}})

    runtime.bus.add_listener(A, close)
    asked = {"type": "create", "from": f"{runtime.url}/x", "to": "hyperty://f/x"}
    assert (await runtime.bus.request(asked))["body"]["code"] == 200
    (sandbox,) = runtime.resolver.loader.sandboxes
    assert alive(sandbox.pid)
    await runtime.close()
    assert [(each["type"], each["body"]["method"]) for each in told] == [("execute", "close")]
    assert told[0]["from"] == f"{runtime.url}/registry/"
    assert not alive(sandbox.pid)
    assert asyncio.all_tasks() == before


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_hyperty_that_does_not_answer_holds_the_close_up_no_longer_than_its_limit(
    catalogue: FakeCatalogue,
) -> None:
    async with asyncio.timeout(15):
        async with Runtime(settings(catalogue)) as runtime:
            runtime.bus.add_listener(A, lambda _: None)


async def test_messages_after_the_close_are_answered(catalogue: FakeCatalogue) -> None:
    runtime = Runtime(settings(catalogue))
    await runtime.close()
    asked = {"type": "create", "from": A, "to": "hyperty://f/x"}
    assert (await runtime.bus.request(asked, 5))["body"]["code"] == 503


async def test_the_stub_of_this_package_runs_in_process_at_home_and_no_other(
    catalogue: FakeCatalogue,
) -> None:
    source = inspect.getsource(protostub)
    config = {"url": "ws://127.0.0.1:1/ws"}
    catalogue.serve(descriptor(source, configuration=config), "d")
    catalogue.serve(descriptor(source, configuration=config), "f")
    async with Runtime(settings(catalogue)) as runtime:
        for domain, is_own in (("d", True), ("f", False)):
            entry = runtime.resolver.require(domain)
            assert entry.task is not None
            await asyncio.wait([entry.task])
            assert isinstance(entry.stub, OwnStub) is is_own
    assert own_digest()


async def test_the_users_policies_hold_for_what_comes_in(catalogue: FakeCatalogue) -> None:
    pushing = ECHO.replace(
        'self.say("created")',
        """self.say("created")
        for name in ("bad", "good"):
            sender = "hyperty://f/" + name
            bus.post_message({"id": name, "type": "create", "from": sender, "to": "hyperty://d/a"})""",
        1,
    )
    catalogue.serve(descriptor(pushing))
    rule = {"condition": {"srcHyperty": {"equals": "hyperty://f/bad"}}, "effect": "deny"}
    policies = PolicyEngine([{"policies": [{"rules": [rule]}]}])
    async with Runtime(settings(catalogue), policies=policies) as runtime:
        got: list[Message] = []
        arrived = asyncio.Event()

        def take(message: Message) -> None:
            got.append(message)
            arrived.set()

        listening = runtime.bus.add_listener(A, take)
        runtime.resolver.require("f")
        async with asyncio.timeout(20):
            await arrived.wait()
        assert [each["from"] for each in got] == ["hyperty://f/good"]
        assert runtime.bus.counters["blocked"] == 1
        listening.remove()
