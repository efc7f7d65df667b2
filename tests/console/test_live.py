"""An operator in the console and runtimes on real sockets: changes take effect within a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from websockets.exceptions import InvalidStatus

from tests.client import SESSION, Client, address, code, runtime
from tests.node import eventually
from tests.services import redis_server

from .browser import log_in

SECOND = 1.0
MACHINE = 29.0  # what a busy machine may add


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so, no longer than the console promises."""
    began = time.monotonic()
    while not await is_so():
        assert time.monotonic() - began < SECOND + MACHINE
        await eventually()


@pytest.mark.parametrize(("then", "close_code"), [("stay-away", 4403), ("return", 3001)])
async def test_ending_a_session_closes_its_socket(console, then, close_code):
    node, browser = console
    async with node.ws() as client:
        await client.open()
        token = client.token
        key = await browser.key("session", client.runtime_url)
        await browser.post(f"msgnode/session/{key}/end/", confirmed="yes", then=then, reason="test")
        began = time.monotonic()
        assert await client.close_code() == close_code
        assert time.monotonic() - began < SECOND + MACHINE
        assert "test" in await browser.get(f"msgnode/session/{key}/change/")
        again = await Client(client.url).connect()
        answer = await again.reopen(client.runtime_url, token)
        assert answer["body"]["runtimeToken"] != token  # a new and empty session
        await again.hang_up()


async def test_deleting_and_adding_change_deliveries(console):
    node, browser = console
    async with node.ws() as reader, node.ws() as sender:
        await reader.open()
        await sender.open()
        held, heard = (await reader.allocate())[0], address("comm") + "/changes"
        await reader.subscribe(heard)

        async def arrives(to: str) -> bool:
            id_ = await sender.send("update", to, sender=to.removesuffix("/changes"))
            return any(frame["id"] == id_ for frame in await reader.received_from(sender))

        assert await arrives(heard)
        key = await browser.key("subscription", heard)
        await browser.post(f"msgnode/subscription/{key}/delete/", post="yes")

        async def is_silent() -> bool:
            return not await arrives(heard)

        await until(is_silent)

        session = await browser.key("session", reader.runtime_url)
        await browser.post("msgnode/subscription/add/", session=session, address=heard)
        await until(lambda: arrives(heard))

        assert code(await asked(sender, held, reader)) == 200
        key = await browser.key("allocation", held)
        await browser.post(f"msgnode/allocation/{key}/delete/", post="yes")

        async def is_gone() -> bool:
            return code(await asked(sender, held, reader)) == 404

        await until(is_gone)
        assert code(await reader.ask("execute", sender.runtime_url, sender=held)) == 403


async def asked(sender: Client, to: str, reader: Client) -> dict:
    """A request to an address: answered by its holder, or refused by the node."""
    id_ = await sender.send("execute", to)
    waiting = asyncio.ensure_future(sender.answer(id_))
    for frame in await reader.received_from(sender):
        if frame["id"] == id_:
            await reader.send("response", sender.runtime_url, {"code": 200}, id=id_, sender=to)
    return await waiting


@pytest.fixture
def own_redis():
    with redis_server() as url:
        yield url


@pytest.mark.long
async def test_a_ban_ends_and_keeps_out_a_runtime_at_all_workers(own_redis, start_node):
    first = start_node(REDIS_URL=own_redis)
    database = f"sqlite:///{first.data_dir}/node.sqlite3"
    second = start_node(DATABASE_URL=database, REDIS_URL=own_redis)
    browser = await asyncio.to_thread(log_in, first)
    banned = runtime()
    async with first.ws() as here, second.ws() as there, second.ws() as another:
        await here.open(banned)
        await there.open(banned)
        await another.open()
        form = {"kind": "runtime", "value": banned, "reason": "spam"}
        await browser.post("msgnode/ban/add/", **form)
        began = time.monotonic()
        assert await here.close_code() == 4403
        assert await there.close_code() == 4403
        assert time.monotonic() - began < SECOND + MACHINE
        assert code(await another.subscribe(address())) == 200

    for node in (first, second):
        async with node.ws() as client:
            client.runtime_url = banned
            assert code(await client.ask("open", SESSION, sender=banned)) == 403
            assert await client.close_code() == 4403
        async with node.ws() as client:
            assert code(await client.reopen(banned, here.token)) == 403
            assert await client.close_code() == 4403
        async with node.stub(banned) as client:
            assert await client.close_code() == 4403

    key = await browser.key("ban", banned)
    await browser.post(f"msgnode/ban/{key}/delete/", post="yes")

    async def is_welcome() -> bool:
        async with second.ws() as client:
            return code(await client.ask("open", SESSION, sender=banned)) == 200

    await until(is_welcome)


@pytest.mark.long
async def test_a_banned_source_address_gets_no_socket_and_a_ban_outlives_a_restart(start_node):
    node = start_node()
    browser = await asyncio.to_thread(log_in, node)
    async with node.ws() as client, node.ws() as silent:
        await client.open()
        form = {"kind": "source", "value": "127.0.0.0/8", "reason": "flood"}
        await browser.post("msgnode/ban/add/", **form)
        assert await client.close_code() == 4403
        assert await silent.close_code() == 4403
    with pytest.raises(InvalidStatus) as refused:
        await node.ws().connect()
    assert refused.value.response.status_code == 403
    node.terminate()
    node.status()
    node.start()
    with pytest.raises(InvalidStatus):
        await node.ws().connect()
