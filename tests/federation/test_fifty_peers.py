"""Fifty peers at once, each with a sandbox of its own: what one of them does touches no other.

One process is the node of all fifty domains; it costs little, their sandboxes are real.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.asyncio.server import ServerConnection

from tests.client import Client, code
from tests.e2e.launched import command_of
from tests.node import Node, free_port, running

from .catalogues import Catalogue, described
from .links import Played
from .nodes import A, come
from .sandboxes import needs_deno, stub

pytestmark = [needs_deno, pytest.mark.asyncio, pytest.mark.long]

SIZE = 50
DOMAINS = [f"p{number}.example" for number in range(SIZE)]
LOOPS, FLOODS = DOMAINS[:2]
SECONDS = 90.0
ROUNDS = 16
SEND = "send(message) {"
DEEDS = {
    LOOPS: "if (message.body?.value === 'now') while (true);",
    FLOODS: """if (message.body?.value === 'now') setInterval(() => {
      for (let i = 0; i < 500; i++) this.bus.postMessage({ id: i, type: "update",
        from: "comm://p1.example/r", to: "comm://p1.example/r/changes", body: { value: i } });
    }, 1);""",
}
ENTER = """
from msgnode.federation import store
from msgnode.models import Peer
Peer.objects.bulk_create(Peer(domain=d, url=u, hosts="127.0.0.1") for d, u in {rows!r})
store.post(store.CHANGED)
"""


async def answers(message: dict[str, Any], link: ServerConnection) -> None:
    """As the node of each domain, and a runtime there."""
    if message["type"] == "read":
        head = {"id": message["id"], "type": "response", "from": message["to"]}
        body = {"code": 200, "value": message["body"]["value"]}
        await link.send(json.dumps({**head, "to": message["from"], "body": body}))


@pytest.fixture
def entered(tmp_path: Path, template: Path) -> Iterator[tuple[Node, int]]:
    """A node that begins to serve fifty peers, and the port where all of them are."""
    port = free_port()
    sources = {
        domain: stub("resumes").replace(SEND, f"{SEND} {DEEDS.get(domain, '')}")
        for domain in DOMAINS
    }
    url = f"ws://127.0.0.1:{port}/ws"
    catalogue = Catalogue(
        {f"/{domain}": described(source, url) for domain, source in sources.items()}
    )
    settings = {"FEDERATION": "open", "FEDERATION_NETWORKS": "127.0.0.0/8", "DOMAIN": A}
    limits = {"FEDERATION_MAX_STUBS": SIZE, "SANDBOX_SILENCE_SECONDS": 6}
    with running(tmp_path / "a", template, **settings, **limits) as node:
        rows = [(domain, f"{catalogue.url}/{domain}") for domain in DOMAINS]
        node.manage("shell", "-c", ENTER.format(rows=rows))
        yield node, port
    catalogue.stop()


def states(node: Node) -> dict[str, str]:
    """The state of each peer, by the database."""
    path = f"file:{node.data_dir}/node.sqlite3?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as rows:
        return dict(rows.execute("SELECT domain, state FROM msgnode_peer").fetchall())


def restarts(node: Node) -> dict[str, float]:
    """How often the sandbox of each peer was started again, by the node's metrics."""
    lines = node.text("/metrics").splitlines()
    told = [line.split() for line in lines if line.startswith("msgnode_peer_restarts_total{")]
    return {name.split('"')[1]: float(number) for name, number in told}


def restarted_since(before: dict[str, float], node: Node) -> set[str]:
    return {name for name, number in restarts(node).items() if number > before.get(name, 0.0)}


def sandboxes(node: Node) -> list[psutil.Process]:
    below = psutil.Process(node.pid).children(recursive=True)
    return [each for each in below if "".join(command_of(each)[:1]).endswith("deno")]


@asynccontextmanager
async def talking(node: Node) -> AsyncIterator[list[float]]:
    """A pair of runtimes of the node's own talks meanwhile; how long each message took."""
    says, hears = await come(node, A, "says"), await come(node, A, "hears")
    took: list[float] = []

    async def talk() -> None:
        while True:
            began = time.perf_counter()
            id_ = await says.send("update", hears.runtime_url, {"value": 1})
            await hears.expect(id=id_)
            took.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(talk())
    try:
        yield took
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def asked(asker: Client, domains: list[str], value: Any = 1) -> dict[str, int]:
    """One request to each of these, at once; what each is answered."""
    ids = {
        domain: await asker.send("read", f"hyperty://{domain}/1", {"value": value})
        for domain in domains
    }
    return {domain: code(await asker.answer(id_)) for domain, id_ in ids.items()}


async def test_of_fifty_peers_one_loops_one_floods_one_is_frozen_and_all_others_go_on(
    entered: tuple[Node, int],
) -> None:
    node, port = entered
    peer = Played(answers, port)
    await peer.start()
    async with talking(node) as took:
        until = time.monotonic() + SECONDS
        while (now := Counter(states(node).values()))["live"] < SIZE:
            assert time.monotonic() < until, f"{now}\n{node.log()}"
            await asyncio.sleep(0.25)
        starting, took[:] = sorted(took), []
        before = restarts(node)  # while fifty start at once, some may be too late
        assert len(sandboxes(node)) >= SIZE
        asker = await come(node, A, "asker")
        assert set((await asked(asker, DOMAINS)).values()) == {200}
        for domain in (LOOPS, FLOODS):
            await asker.send("execute", f"hyperty://{domain}/1", {"value": "now"})
        frozen = random.Random(50).choice(sandboxes(node))
        frozen.send_signal(signal.SIGSTOP)
        others = [domain for domain in DOMAINS if domain not in (LOOPS, FLOODS)]
        told = {domain: Counter[int]() for domain in others}
        for _ in range(ROUNDS):
            for domain, each in (await asked_of(asker, others)).items():
                told[domain][each] += 1
        ill = [domain for domain, codes in told.items() if set(codes) != {200}]
        until = time.monotonic() + SECONDS
        while LOOPS not in (again := restarted_since(before, node)):
            assert time.monotonic() < until, again
            await asyncio.sleep(0.25)
    print(
        f"longest of {len(starting)} while they start {starting[-1]:.3f} s, then {max(took):.3f} s"
    )
    assert len(ill) <= 1, {domain: told[domain] for domain in ill}
    assert all(set(told[domain]) <= {200, 503} for domain in ill), "each is answered"
    assert again - {LOOPS, FLOODS} <= set(ill) and len(again) <= 3
    assert max(took) < 2.0
    assert peer.values.count("now") >= 1
    await peer.stop()


async def asked_of(asker: Client, domains: list[str]) -> dict[str, int]:
    """The same, a second apart from the next."""
    found, _ = await asyncio.gather(asked(asker, domains), asyncio.sleep(0.5))
    return found
