"""The Python runtime over real nodes: with itself, with JavaScript, and between two domains."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from msgnode.runtime.python import Runtime, Settings
from msgnode.runtime.python.housekeeping import replace
from msgnode.runtime.python.loader import OwnStub, SandboxedStub
from msgnode.runtime.python.messages import Message
from msgnode.runtime.python.stub_list import new_url
from tests.node import Node

SECONDS = 20.0


def settings(home: Node, domain: str = "localhost", **more: Any) -> Settings:
    catalogues = {domain: f"http://127.0.0.1:{home.port}", **more.pop("catalogues", {})}
    return Settings(domain, catalogues=catalogues, **more)


async def claim(runtime: Runtime, answer: Any) -> str:
    """An address at the runtime's domain, where every request is answered with `answer`."""
    domain = runtime.settings.domain
    allocated = await runtime.bus.request(
        {
            "type": "create",
            "from": f"{runtime.url}/sm",
            "to": f"domain://msg-node.{domain}/address-allocation",
            "body": {"scheme": "hyperty", "value": {"number": 1}},
        },
        SECONDS,
    )
    address: str = allocated["body"]["value"]["allocated"][0]

    def serve(message: Message) -> None:
        if message["type"] == "response":
            return
        head = {"id": message["id"], "type": "response", "from": address}
        body = {"code": 200, "value": [answer, message["body"].get("value")]}
        runtime.bus.post_message({**head, "to": message["from"], "body": body})

    runtime.bus.add_listener(address, serve)
    return address


async def ask(runtime: Runtime, sender: str, to: str, value: Any) -> Any:
    message = {"type": "create", "from": sender, "to": to, "body": {"value": value}}
    body = (await runtime.bus.request(message, SECONDS))["body"]
    assert body["code"] == 200, body
    return body["value"]


@pytest.mark.parametrize("in_process", [True, False], ids=["own process", "sandbox"])
async def test_two_runtimes_talk_over_one_node(node: Node, in_process: bool) -> None:
    chosen = settings(node, home_in_process=in_process)
    async with Runtime(chosen) as alice, Runtime(chosen) as bob:
        assert await alice.log_in() == "live"
        assert await bob.log_in() == "live"
        kind = OwnStub if in_process else SandboxedStub
        entry = alice.resolver.stubs.get("localhost")
        assert entry is not None and isinstance(entry.stub, kind)
        a, b = await claim(alice, "alice"), await claim(bob, "bob")
        assert await ask(alice, a, b, 1) == ["bob", 1]
        assert await ask(bob, b, a, 2) == ["alice", 2]


@pytest.mark.parametrize("in_process", [True, False], ids=["own process", "sandbox"])
async def test_an_answer_whose_code_is_beyond_all_numbers_stops_no_runtime(
    node: Node, in_process: bool
) -> None:
    """The node passes the body of a message on as it was written."""
    chosen = settings(node, home_in_process=in_process)
    async with Runtime(chosen) as alice, connect(f"ws://127.0.0.1:{node.port}/ws") as mallory:
        assert await alice.log_in() == "live"
        me = "runtime://localhost/mallory"
        await mallory.send(json.dumps({"id": 1, "type": "open", "from": me, "to": "mn:/session"}))
        await mallory.recv()
        to_mallory = {"type": "read", "from": f"{alice.url}/y", "to": f"{me}/x"}
        asked = asyncio.create_task(alice.bus.request(to_mallory, SECONDS))
        got = json.loads(await mallory.recv())
        head = {"id": got["id"], "type": "response", "from": got["to"], "to": got["from"]}
        await mallory.send(json.dumps({**head, "body": {"code": 0}}).replace("0}}", "1e999}}"))
        assert (await asked)["body"]["code"] == 500
        to_nobody = {**to_mallory, "to": "comm://localhost/nobody"}
        assert (await alice.bus.request(to_nobody, SECONDS))["body"]["code"] == 404


async def test_the_first_message_connects_without_a_log_in(node: Node) -> None:
    async with Runtime(settings(node)) as alice:
        body = {"type": "read", "from": f"{alice.url}/x", "to": "comm://localhost/nobody"}
        assert (await alice.bus.request(body, SECONDS))["body"]["code"] == 404


def sessions_of(node: Node, runtime_url: str) -> int:
    """How many sessions a runtime has at a node."""
    wanted = "SELECT 1 FROM msgnode_session WHERE runtime_url = ? AND state != 'closed'"
    return len(node.rows(wanted, runtime_url))


@pytest.fixture
def domains(start_node: Callable[..., Node], tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """Two nodes of different domains."""
    yield start_node(DOMAIN="d.localhost"), start_node(DOMAIN="f.localhost")


@pytest.mark.long
async def test_runtimes_of_two_domains_talk_by_protocol_on_the_fly(
    domains: tuple[Node, Node],
) -> None:
    d, f = domains
    urls = {
        "d.localhost": f"http://127.0.0.1:{d.port}",
        "f.localhost": f"http://127.0.0.1:{f.port}",
    }
    at_d = Settings("d.localhost", catalogues=urls)
    at_f = Settings("f.localhost", catalogues=urls)
    async with Runtime(at_d) as alice, Runtime(at_f) as bob:
        assert await alice.log_in() == await bob.log_in() == "live"
        b = await claim(bob, "bob")
        # Alice has no stub of f yet: it is looked up, checked, sandboxed and connected by this.
        assert await ask(alice, f"{alice.url}/{uuid.uuid4()}", b, 1) == ["bob", 1]
        entry = alice.resolver.stubs.get("f.localhost")
        assert entry is not None and entry.status == "live"
        assert isinstance(entry.stub, SandboxedStub)
        assert entry.stub.sandbox.report["confined"]
        # Bob's answer went back through his own node; he loaded nothing of d.
        assert bob.resolver.stubs.get("d.localhost") is None
        values = [await ask(alice, f"{alice.url}/x", b, number) for number in range(50)]
        assert values == [["bob", number] for number in range(50)]

        # R66: a visitor who has nothing to do there any more has no session either, until he has.
        async with Runtime(Settings("d.localhost", catalogues=urls, idle_abroad=1.0)) as visitor:
            assert await visitor.log_in() == "live"
            assert await ask(visitor, f"{visitor.url}/x", b, "first") == ["bob", "first"]
            async with asyncio.timeout(120):
                while await asyncio.to_thread(sessions_of, f, visitor.url):
                    pass
            assert await ask(visitor, f"{visitor.url}/x", b, "back") == ["bob", "back"]


@pytest.mark.long
async def test_a_frozen_foreign_node_delays_nobody_at_home(domains: tuple[Node, Node]) -> None:
    d, f = domains
    urls = {
        "d.localhost": f"http://127.0.0.1:{d.port}",
        "f.localhost": f"http://127.0.0.1:{f.port}",
    }
    async with Runtime(Settings("d.localhost", catalogues=urls, load=8.0, fetch=5.0)) as alice:
        await alice.log_in()
        mine = await claim(alice, "alice")
        os.kill(f.pid, signal.SIGSTOP)
        try:
            asked = {"type": "read", "from": mine, "to": "hyperty://f.localhost/x"}
            hanging = asyncio.create_task(alice.bus.request(asked, SECONDS))
            read = {"type": "read", "from": mine, "to": "comm://d.localhost/nobody"}
            for _ in range(20):
                async with asyncio.timeout(5):
                    assert (await alice.bus.request(read))["body"]["code"] == 404
            assert (await hanging)["body"]["code"] == 504
        finally:
            os.kill(f.pid, signal.SIGCONT)


@pytest.mark.parametrize("in_process", [True, False], ids=["own process", "sandbox"])
async def test_a_new_version_of_the_home_stub_keeps_what_the_old_one_had(
    node: Node, in_process: bool
) -> None:
    """It has a session of its own, and is reached where the old one was, without saying a word."""
    chosen = settings(node, home_in_process=in_process)
    async with Runtime(chosen) as alice, Runtime(chosen) as bob:
        assert await alice.log_in() == await bob.log_in() == "live"
        a, b = await claim(alice, "alice"), await claim(bob, "bob")
        got: list[Message] = []
        told: list[Message] = []
        alice.bus.add_listener(f"{b}/changes", got.append)
        alice.bus.add_listener(f"{alice.url}/status", told.append)
        head = {"type": "subscribe", "from": a, "to": "domain://msg-node.localhost/sm"}
        said = await alice.bus.request({**head, "body": {"resources": [f"{b}/changes"]}})
        assert said["body"]["code"] == 200
        entry = alice.resolver.stubs.get("localhost")
        assert entry is not None
        old = entry.url
        await replace(alice.resolver, entry, new_url("localhost", "protocolstub"))
        assert (entry.url != old, entry.status) == (True, "live")
        change = {"type": "update", "from": b, "to": f"{b}/changes", "body": {"value": 1}}
        async with asyncio.timeout(SECONDS):
            while not got:  # the subscription is on its way
                bob.bus.post_message(change)
                await asyncio.sleep(0.05)
        assert await ask(bob, b, a, 2) == ["alice", 2]
        assert "gap" in [each["body"]["value"] for each in told]
        assert await asyncio.to_thread(sessions_of, node, alice.url) == 1
