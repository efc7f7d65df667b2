"""The console's socket on real nodes: who gets it, what it tells, workers that come and go."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.client import address
from tests.console.browser import Browser, log_in
from tests.node import Node
from tests.services import redis_server

LIMIT = 30.0


def headers(node: Node, browser: Browser) -> dict[str, str]:
    cookies = "; ".join(f"{each.name}={each.value}" for each in browser._jar)
    return {"Cookie": cookies, "Origin": f"http://127.0.0.1:{node.port}"}


@asynccontextmanager
async def watching(node: Node, browser: Browser, page: str = "") -> AsyncIterator[ClientConnection]:
    place = f"ws://127.0.0.1:{node.port}/admin/live/{page}"
    said = headers(node, browser)
    origin = said.pop("Origin")
    async with connect(place, additional_headers=said, origin=origin) as socket:  # type: ignore[arg-type]
        yield socket


async def text(socket: ClientConnection) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), LIMIT))
    await socket.send('{"ack":true}')
    return told


async def until(socket: ClientConnection, is_so: Any) -> dict[str, Any]:
    async with asyncio.timeout(LIMIT):
        while not is_so(told := await text(socket)):
            continue
    return told


async def test_the_figures_of_the_traffic_arrive(console: tuple[Node, Browser]) -> None:
    node, browser = console
    async with node.ws() as sender, node.ws() as reader, watching(node, browser) as socket:
        await sender.open()
        await reader.open()
        heard = address("comm") + "/changes"
        await reader.subscribe(heard)
        first = await text(socket)
        assert first["database"] is True
        assert {light["name"]: light["state"] for light in first["lights"]}["Database"] == "well"

        async def send() -> None:
            while True:
                await sender.send("update", heard, sender=heard.removesuffix("/changes"))
                await asyncio.sleep(0.02)

        sending = asyncio.create_task(send())
        try:
            told = await until(
                socket,
                lambda told: (
                    told["talkers"]
                    and told["talkers"][0]["name"] == sender.runtime_url
                    and told["node"]["copies"] > 1
                ),
            )
            assert heard in [each["name"] for each in told["addresses"]]
            assert told["node"]["sockets"] >= 2
            assert told["workers"][0]["memory"] > 10_000_000
            await socket.send('{"length":"minutes"}')
            history = await until(socket, lambda told: told["type"] == "history")
            assert sum(point["messages"] for point in history["points"]) > 0
            await socket.send('{"length":"week"}')
            history = await until(socket, lambda told: told["type"] == "history")
            assert history["points"] is not None
        finally:
            sending.cancel()


async def test_the_page_of_a_session_is_told_what_it_does_and_what_fails(
    console: tuple[Node, Browser],
) -> None:
    node, browser = console
    async with node.ws() as sender:
        await sender.open()
        id_ = await browser.key("session", sender.runtime_url)
        async with watching(node, browser, f"session/{id_}/") as socket:
            await until(socket, lambda told: told["session"] is not None)
            nobody = address("comm")
            for _ in range(3):
                assert (await sender.ask("read", nobody))["body"]["code"] == 404
            told = await until(
                socket, lambda told: sum(each["count"] for each in told["session"]["failures"]) == 3
            )
            (failure,) = told["session"]["failures"]
            assert (failure["to"], failure["code"]) == (nobody, 404)
            assert told["session"]["totals"]["messages_in"] == 4
            assert "alarms" not in told
            await socket.send('{"length":"session"}')
            history = await until(socket, lambda told: told["type"] == "history")
            assert sum(point["failed"] for point in history["points"]) > 0
            await socket.send('{"length":"minutes"}')  # which the page of a session has not
            with pytest.raises(ConnectionClosed):
                await until(socket, lambda told: False)
            assert socket.close_code == 4400


@pytest.mark.parametrize("page", ["session/1/", "session/", f"session/{'0' * 32}/x", "nothing/"])
async def test_there_is_no_socket_of_another_kind(console: tuple[Node, Browser], page: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with watching(*console, page):
            pass
    assert refused.value.response.status_code == 403


@pytest.mark.long
async def test_a_session_of_another_worker_is_shown_and_a_frozen_worker_is_named(
    start_node: Any,
) -> None:
    with redis_server() as url:
        first = start_node(REDIS_URL=url, WORKER_TIMEOUT=8)
        database = f"sqlite:///{first.data_dir}/node.sqlite3"
        second = start_node(DATABASE_URL=database, REDIS_URL=url, WORKER_TIMEOUT=8)
        browser = await asyncio.to_thread(log_in, first)
        async with first.ws() as here, second.ws() as there:
            await here.open()
            await there.open()
            id_ = await browser.key("session", there.runtime_url)
            async with watching(first, browser, f"session/{id_}/") as socket:
                told = await until(socket, lambda told: told["session"] is not None)
                assert told["session"]["worker"].endswith(f":{second.pid}")
                os.kill(second.pid, signal.SIGSTOP)
                try:
                    told = await until(socket, lambda told: told["session"] is None)
                    assert any(name.endswith(f":{second.pid}") for name in told["missing"])
                    answer = await here.ask("read", address("comm"))
                    assert answer["body"]["code"] in (404, 503)
                finally:
                    os.kill(second.pid, signal.SIGCONT)
                await until(socket, lambda told: told["session"] is not None)
