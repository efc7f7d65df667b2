"""Everything at once for an hour, two workers on PostgreSQL and Redis: what is sent is answered or
told of, and nothing that a worker holds grows.

What is sampled is written to `soak.csv` beside the nodes: one line each PERIOD, for a chart.
"""

from __future__ import annotations

import asyncio
import csv
import itertools
import json
import random
import statistics
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

import psutil
import pytest
import redis
from websockets.exceptions import WebSocketException

from tests import memory
from tests.client import Client, address
from tests.console.browser import PASSWORD, Browser
from tests.length import length
from tests.node import Node

from .around import around, shared
from .asking import PROMISED, Runtime, pairs, traffic, until_back, until_quiet
from .test_held_resources import AT_A_TIME, ask_all, cookie_of, held, of_a_role, operator

pytestmark = pytest.mark.long

WARM, SECONDS = length(540, 600), length(360, 3000)
"""Seconds until all that is kept for some minutes has gone once, and of samples after them."""
ADDRESSES, AT_ONCE = 150_000, 500
"""Addresses after which the caches of addresses have forgotten their first ones, and at a time."""
PERIOD = 10.0
PAIRS = 8
CONNECTIONS = 100
GROWTH = 6 * 1024 * 1024
"""Bytes that a worker may hold more after SECONDS: a KiB for each of 6,000 sessions that ended."""
GARBAGE = 128 * 1024 * 1024
"""Bytes that it may have more in RAM: garbage that lies until it is worth a pause, and gaps."""
RULE = {"effect": "deny", "condition": {"msgTo": {"like": "*/nobody-sends-there"}}}


class Sample(NamedTuple):
    """What one worker holds."""

    worker: int
    memory: int
    files: int
    threads: int


@contextmanager
def two_workers(
    place: Path, database: str, redis_url: str, **settings: object
) -> Iterator[list[Node]]:
    more = {"WORKERS": 2, "WORKER_TIMEOUT": 20, "CONTACT_CARDS": "*", "DATABASE_URL": database}
    told = {memory.FOLDER: place}
    nodes = [Node(place, REDIS_URL=redis_url, **told, **more, **settings) for _ in range(2)]
    try:
        for node in nodes:
            node.configure(PUBLIC_URL=f"http://127.0.0.1:{nodes[0].port}")
            node.start()
        yield nodes
    finally:
        for node in nodes:
            node.kill()


async def come_and_go(node: Node, gone: Counter[str]) -> None:
    """Sessions that open, take addresses, listen, say something, and end or are cut off."""
    for number in itertools.count():
        await asyncio.sleep(0.05)
        try:
            client = await node.ws().connect()
        except (OSError, WebSocketException):
            gone["not connected"] += 1
            continue
        try:
            async with asyncio.timeout(PROMISED):
                await visit(client, number)
            gone["sessions"] += 1
        except TimeoutError:
            gone["unanswered"] += 1
        except (OSError, WebSocketException):
            gone["cut off"] += 1
        finally:
            client.cut()


async def visit(client: Client, number: int) -> None:
    await client.open()
    (own,) = await client.allocate()
    await client.subscribe(shared := address("comm"), f"{shared}/children/chat")
    await client.send("update", f"{shared}/changes", {"value": number}, sender=own)
    await client.ask("read", f"hyperty://localhost/nobody-{number}", sender=own)
    if number % 4:
        await client.close_session()


async def fill_caches(node: Node) -> None:
    """Name more addresses than a node remembers: else its caches would grow for hours."""
    async with node.ws() as client:
        await client.open()
        for _ in range(ADDRESSES // AT_ONCE):
            asked = [await client.send("read", address()) for _ in range(AT_ONCE)]
            for each in asked:
                await client.answer(each)


async def cut_off(runtimes: list[Runtime]) -> None:
    """Now and then the connection of one of them is gone."""
    while True:
        await asyncio.sleep(3.0)
        random.choice(runtimes).cut()


async def requests(node: Node, cookie: str, seen: Counter[int]) -> None:
    """HTTP, of strangers and of an operator's browser."""
    while True:
        seen.update(await asyncio.to_thread(ask_all, node, cookie, AT_A_TIME))
        await asyncio.sleep(0.5)


async def consoles(browser: Browser, seen: Counter[Any]) -> None:
    """An operator who goes from page to page; one that finds no free thread is told so."""
    for page in itertools.cycle(("", "msgnode/session/", "traces/", "capacity/", "msgnode/alarm/")):
        try:
            await browser.get(page)
            seen["page"] += 1
        except HTTPError as error:
            assert error.code == 503, page
            seen["page refused"] += 1
        except TimeoutError:
            seen["page late"] += 1
        await asyncio.sleep(0.3)


async def publications(node: Node, place: Path) -> None:
    """Every half minute, policies of another name."""
    document = place / "rules.json"
    for number in itertools.count():
        sets = [{"id": f"S{number}", "policies": [{"id": "P", "rules": [RULE]}]}]
        document.write_text(json.dumps(sets))
        words = ("policy_import", str(document), "--replace", "--mode", "enforce", "--publish")
        await asyncio.to_thread(node.manage, *words)
        await asyncio.sleep(30.0)


async def sampled(nodes: list[Node], seconds: float, file: Path) -> list[Sample]:
    """The samples of so many seconds, which are added to the file, too."""
    loop = asyncio.get_running_loop()
    began, samples = loop.time(), []
    while loop.time() - began < seconds:
        await asyncio.sleep(PERIOD)
        for number, node in enumerate(nodes):
            process = psutil.Process(node.pid)
            samples.append(
                Sample(number, process.memory_info().rss, process.num_fds(), process.num_threads())
            )
            with file.open("a") as rows:
                csv.writer(rows).writerow((round(loop.time()), *samples[-1]))
    return samples


def all_held(place: Path, nodes: list[Node]) -> list[int]:
    """The bytes that each worker holds, without garbage."""
    return [memory.held(place, node.pid) for node in nodes]


def grown(samples: list[Sample], figure: str) -> list[float]:
    """By how much each worker has more in the last sixth than in the first."""
    differences = []
    for worker in (0, 1):
        values = [getattr(each, figure) for each in samples if each.worker == worker]
        some = max(1, len(values) // 6)
        differences.append(statistics.median(values[-some:]) - statistics.median(values[:some]))
    return differences


@pytest.mark.timeout(WARM + SECONDS + 1_200)
async def test_with_everything_on_nothing_is_lost_in_silence_and_nothing_grows(
    tmp_path: Path, template: Path, migrated_url: str, redis_url: str
) -> None:
    operator(migrated_url)
    with (
        of_a_role(migrated_url, CONNECTIONS) as database,
        around(tmp_path / "around", template) as others,
        two_workers(tmp_path, database, redis_url, **others.settings) as nodes,
        shared(nodes, WARM + SECONDS) as object_,
    ):
        await asyncio.to_thread(others.introduce, nodes[0], database)
        browsers = [Browser(node) for node in (*nodes, nodes[0])]
        for browser in browsers:
            await asyncio.to_thread(
                browser.fill_in, "login/", username="operator", password=PASSWORD
            )
        everyone = pairs(PAIRS, nodes)
        gone, seen = Counter[str](), Counter[Any]()
        cookie = cookie_of(browsers[0])
        jobs: list[Coroutine[Any, Any, None]] = [
            *(each.live(number) for number, each in enumerate(everyone)),
            *(come_and_go(node, gone) for node in nodes),
            *(consoles(each, seen) for each in browsers),
            *(requests(node, each, seen) for node in nodes for each in (cookie, "")),
            publications(nodes[0], tmp_path),
            others.webhook(nodes[0]),
            others.lamp(nodes[1]),
            others.abroad(nodes[1]),
            others.invited(*nodes),
            others.channels(*nodes),
        ]
        store = redis.Redis.from_url(redis_url)
        await asyncio.gather(*map(fill_caches, nodes))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(job) for job in jobs]
            await until_back(everyone)
            asking = [group.create_task(traffic(everyone)), group.create_task(cut_off(everyone))]
            await sampled(nodes, WARM, tmp_path / "soak.csv")
            stored = store.info("memory")["used_memory"]
            memories = await asyncio.to_thread(all_held, tmp_path, nodes)
            samples = await sampled(nodes, SECONDS, tmp_path / "soak.csv")
            stored = store.info("memory")["used_memory"] - stored
            memories += await asyncio.to_thread(all_held, tmp_path, nodes)
            connections = held(nodes[0]).connections
            for task in asking:
                task.cancel()
            for each in everyone:  # one of them was stopped while it sent
                each.open.pop(next(each._ids) - 1, None)
            others.end()
            await until_back(everyone)
            await until_quiet(everyone)
            await others.until_quiet()
            for task in tasks:
                task.cancel()
        more = {each: grown(samples, each) for each in Sample._fields[1:]}
        numbers = {name: (each.sent, each.refused) for name, each in others.streams.items()}
        more["held"] = [memories[at + 2] - memories[at] for at in (0, 1)]
        print(told(everyone), gone, seen, more, numbers)
        assert {name: each.missing for name, each in others.streams.items()} == dict.fromkeys(
            others.streams, []
        )
        assert await asyncio.to_thread(object_.differences) == {}
        assert [each.silently_lost() for each in everyone] == [[]] * len(everyone)
        assert [each.twice for each in everyone] == [[]] * len(everyone)
        assert not any(each.lost_sessions for each in everyone)
        assert not gone["unanswered"], gone
        assert 500 not in seen, seen
        assert 100 * seen["page late"] <= seen["page"], seen
        assert max(more["held"]) <= GROWTH
        assert max(more["memory"]) <= GARBAGE
        assert max(more["files"]) <= 2 * AT_A_TIME
        assert max(more["threads"]) <= 4
        assert connections <= CONNECTIONS
        assert stored <= GROWTH


def told(runtimes: list[Runtime]) -> dict[str, int]:
    """How the requests ended, and how many ms half of them took, and 99 of 100."""
    took = sorted(itertools.chain.from_iterable(each.round_trips for each in runtimes))
    return {
        name: sum(len(getattr(each, name)) for each in runtimes)
        for name in ("answered", "refused", "unsure", "open")
    } | {f"p{part}": round(1000 * took[len(took) * part // 100]) for part in (50, 99) if took}
