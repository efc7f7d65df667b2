"""Visitors of a real node, who lie, flood, come without end, freeze and change the worker.

One pair of workers on one Redis for most tests. What a worker decides by itself is in
test_visits.py.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.client import ALLOCATION, SESSION, Client, Frame, address, code, runtime
from tests.e2e.pair import OwnRedis, Pair
from tests.issuer import Issuer, enter
from tests.length import length
from tests.node import Node, eventually

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("visitors")]

PER_DOMAIN, TOTAL, HELD, POOL = 5, 12, 4, 3
SETTINGS = {
    "VISITORS": TOTAL,
    "VISITORS_PER_DOMAIN": PER_DOMAIN,
    "VISITOR_ADDRESSES": HELD,
    "ADMISSION_DOMAINS": "refused.example=refused,known.example=identified",
    "IDENTIFY_TIMEOUT": 3,
    "GRACE_PERIOD": 2,
    "OUTBOX_BYTES": 1_100_000,
    "MAX_FRAME_BYTES": 1_000_000,
}


class Hosts:
    """Two workers of localhost, and who comes to them."""

    def __init__(self, pair: Pair, place: Path, issuer: Issuer) -> None:
        self.one, self.other = pair.one, pair.other
        self.database = place / "node.sqlite3"
        self.issuer = issuer
        self.stack = AsyncExitStack()

    async def connected(self, to: Node | None = None) -> Client:
        return await self.stack.enter_async_context((to or self.one).ws())

    async def come(self, domain: str = "", to: Node | None = None) -> Client:
        client = await self.connected(to)
        url = f"runtime://{domain}/{uuid.uuid4().hex}" if domain else runtime()
        return await client.open(url)

    async def asks(self, domain: str, to: Node | None = None, **body: Any) -> tuple[Client, Frame]:
        """What who comes to open a session is answered."""
        client = await self.connected(to)
        url = f"runtime://{domain}/{uuid.uuid4().hex}"
        return client, await client.ask("open", SESSION, body, sender=url)

    def rows(self, sql: str, *values: str) -> list[Any]:
        with closing(sqlite3.connect(self.database, timeout=20)) as database:
            return database.execute(sql, values).fetchall()

    def write(self, sql: str, rows: list[Any]) -> None:
        with closing(sqlite3.connect(self.database, timeout=20)) as database, database:
            database.executemany(sql, rows)

    def metric(self, name: str, node: Node | None = None) -> float:
        lines = (node or self.one).text("/metrics?worker=this").splitlines()
        return sum(float(each.rpartition(" ")[2]) for each in lines if each.startswith(name))

    async def emptied(self) -> None:
        """All visitors have left: what they had is free."""
        await self.stack.aclose()
        live = "SELECT id FROM msgnode_session WHERE visits_from != '' AND state != 'closed'"
        async with asyncio.timeout(30):
            while self.rows(live) or any(
                self.metric("msgnode_visitors{", each) for each in (self.one, self.other)
            ):
                await eventually()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, template: Path
) -> Iterator[tuple[Pair, Path, Issuer]]:
    place = tmp_path_factory.mktemp("visitors")
    shutil.copy(template, place / "node.sqlite3")
    issuer = Issuer("known.example")
    enter(place / "node.sqlite3", issuer.row())
    redis = OwnRedis(place)
    both = Pair(place, REDIS_URL=redis.url, **SETTINGS)
    try:
        redis.start()
        both.start()
        yield both, place, issuer
        assert both.one.is_running(), both.one.log()
        assert both.other.is_running(), both.other.log()
    finally:
        both.kill()
        redis.stop()
        issuer.stop()


@pytest.fixture
async def hosts(running: tuple[Pair, Path, Issuer]) -> AsyncIterator[Hosts]:
    made = Hosts(*running)
    yield made
    await made.emptied()


async def test_case_81_a_visitor_has_what_it_was_given_and_no_other_address_of_this_domain(
    hosts: Hosts,
) -> None:
    home = await hosts.come()
    visitor = await hosts.come("b.example", hosts.other)
    (taken,) = await home.allocate()
    for claimed in (address(), address("comm"), taken, home.runtime_url):
        assert code(await visitor.ask("create", home.runtime_url, sender=claimed)) == 403, claimed
        if claimed != home.runtime_url:
            assert code(await visitor.subscribe(claimed)) == 403, claimed
    (given,) = await visitor.allocate("comm")
    await visitor.send("create", home.runtime_url, {"value": 1}, sender=given)
    assert (await home.expect(type="create"))["from"] == given
    assert code(await visitor.subscribe(f"{given}/subscription")) == 200
    own = f"hyperty://b.example/{uuid.uuid4()}"
    await visitor.send("create", home.runtime_url, {"value": 2}, sender=own)
    assert (await home.expect(type="create"))["from"] == own


async def test_case_82_a_visitor_that_asks_for_addresses_without_end_gets_so_many(
    hosts: Hosts,
) -> None:
    home, visitor = await hosts.come(), await hosts.come("b.example")
    body = {"scheme": "hyperty", "value": {"number": 1}}
    asked = [await visitor.send("create", ALLOCATION, body) for _ in range(500)]
    answers = [await visitor.answer(id_) for id_ in asked]
    assert Counter(map(code, answers)) == {200: HELD, 429: 500 - HELD}
    assert "VISITOR_ADDRESSES" in answers[-1]["body"]["description"]
    assert len(await home.allocate(number=HELD * 3)) == HELD * 3


async def test_case_83_the_pool_for_visitors_ends_and_users_of_this_domain_are_lent_as_before(
    hosts: Hosts,
) -> None:
    hosts.write("INSERT INTO msgnode_addresspool (scheme, note) VALUES (?, '')", [("sip",)])
    ((pool,),) = hosts.rows("SELECT id FROM msgnode_addresspool WHERE scheme = 'sip'")
    insert = "INSERT INTO msgnode_pooladdress (pool_id, address, for_visitors) VALUES (?, ?, ?)"
    hosts.write(insert, [(pool, f"sip:guest{n}@localhost", True) for n in range(POOL)])
    hosts.write(insert, [(pool, f"sip:user{n}@localhost", False) for n in range(POOL)])
    publish = "from msgnode.console.operator_actions import publish_pools; publish_pools()"
    hosts.one.manage("shell", "-c", publish)
    home = await hosts.come()
    async with asyncio.timeout(20):
        while code(await ask_sip(home, 0)) != 200:  # until the worker knows the scheme
            await eventually()
    visitors = [await hosts.come("b.example", to) for to in (hosts.one, hosts.other)]
    async with asyncio.timeout(20):
        while code(await ask_sip(visitors[1], 0)) != 200:
            await eventually()
    body = {"scheme": "sip", "value": {"number": 1}}
    asked = [(each, await each.send("create", ALLOCATION, body)) for each in visitors * 100]
    answers = [await each.answer(id_) for each, id_ in asked]
    lent = [a for each in answers if code(each) == 200 for a in each["body"]["value"]["allocated"]]
    assert sorted(lent) == [f"sip:guest{n}@localhost" for n in range(POOL)]
    refused = [each["body"]["description"] for each in answers if code(each) == 503]
    assert refused, answers
    assert set(refused) == {"The pool of sip addresses has none for visitors now."}
    assert {code(each) for each in answers} <= {200, 503, 409, 429}
    mine = (await ask_sip(home, POOL))["body"]["value"]["allocated"]
    assert sorted(mine) == [f"sip:user{n}@localhost" for n in range(POOL)]
    assert not hosts.rows(
        "SELECT id FROM msgnode_alarm WHERE kind = 'pool-exhausted' AND cleared_at IS NULL"
    )


async def ask_sip(client: Client, number: int) -> Frame:
    return await client.ask("create", ALLOCATION, {"scheme": "sip", "value": {"number": number}})


async def test_case_85_a_visitor_that_comes_many_times_leaves_nothing(hosts: Hosts) -> None:
    home = await hosts.come()

    async def come_and_go(number: int) -> None:
        for turn in range(length(10, full=100)):  # much more than are let in at once
            async with (hosts.one, hosts.other)[number % 2].ws() as client:
                await client.open(f"runtime://b.example/{number}-{turn}")
                (given,) = await client.allocate()
                assert code(await client.subscribe(f"{given}/subscription")) == 200
                assert code(await client.ask("close", SESSION, sender=client.session_url)) == 200

    await asyncio.gather(*(come_and_go(number) for number in range(PER_DOMAIN * 2)))
    assert await home.allocate()
    async with asyncio.timeout(20):
        while hosts.rows(
            "SELECT a.id FROM msgnode_allocation a JOIN msgnode_session s ON s.id = a.session_id "
            "WHERE s.visits_from != ''"
        ):
            await eventually()


async def test_case_90_a_ban_of_a_domain_ends_its_visitors_at_both_workers(hosts: Hosts) -> None:
    home = await hosts.come()
    visitors = [await hosts.come("banned.example", to) for to in (hosts.one, hosts.other)]
    other = await hosts.come("b.example")
    ban = (
        "from msgnode.models import Ban\n"
        "from msgnode.console.operator_actions import publish_bans\n"
        "Ban.objects.create(kind='domain', value='banned.example', reason='test')\n"
        "publish_bans()"
    )
    await asyncio.to_thread(hosts.one.manage, "shell", "-c", ban)
    assert [await each.close_code() for each in visitors] == [4403, 4403]
    client, answer = await hosts.asks("banned.example", hosts.other)
    assert code(answer) == 403
    assert await client.close_code() == 4403
    assert await home.allocate()
    assert await other.allocate()


async def test_case_91_a_token_of_this_domain_does_not_reach_a_visitor(hosts: Hosts) -> None:
    home = await hosts.come()
    for to in (hosts.one, hosts.other):
        visitor, user = await hosts.come("b.example", to), await hosts.come("", to)
        for receiver, is_shown in ((visitor, False), (user, True)):
            (held,) = await receiver.allocate()
            await home.send("create", held, {"accessToken": "secret", "value": 1})
            body = (await receiver.expect(type="create"))["body"]
            assert ("accessToken" in body) is is_shown
            assert body["value"] == 1


async def test_case_92_a_visitor_that_comes_back_at_another_worker_is_counted_once(
    hosts: Hosts,
) -> None:
    visitor = await hosts.come("b.example")
    (given,) = await visitor.allocate()
    rest = [await hosts.come("b.example") for _ in range(PER_DOMAIN - 1)]
    assert len(rest) == PER_DOMAIN - 1
    for turn in range(6):
        to = (hosts.other, hosts.one)[turn % 2]
        visitor.cut()
        visitor = await (await hosts.connected(to)).resume(visitor)
    home = await hosts.come("", hosts.other)
    await home.send("create", given, {"value": 1})
    assert (await visitor.expect(type="create"))["to"] == given
    _, answer = await hosts.asks("b.example")
    assert code(answer) == 429
    counted = [hosts.metric("msgnode_visitors{", each) for each in (hosts.one, hosts.other)]
    assert counted == [PER_DOMAIN, 0]


async def test_case_93_others_hear_while_a_visitor_reads_nothing(hosts: Hosts) -> None:
    reporter, reader = await hosts.come(), await hosts.come("", hosts.other)
    frozen = await hosts.come("b.example")
    (room,) = await reporter.allocate("comm")
    for each in (reader, frozen):
        assert code(await each.subscribe(f"{room}/changes")) == 200
    frozen.socket.transport.pause_reading()
    for number in range(60):
        body = {"value": number, "fill": "x" * 200_000}
        await reporter.send("update", f"{room}/changes", body, sender=room)
        assert (await reader.expect(type="update"))["body"]["value"] == number
    held = "SELECT state FROM msgnode_session WHERE runtime_url = ?"
    async with asyncio.timeout(30):
        while hosts.rows(held, frozen.runtime_url) == [("open",)]:
            await eventually()
    assert await reporter.allocate()
    frozen.cut()


async def test_case_94_what_a_visitors_issuer_has_said_holds_while_it_is_away(hosts: Hosts) -> None:
    """Who is known goes on; who shows nothing is sent away; users of this domain notice nothing."""
    issuer, home = hosts.issuer, await hosts.come()
    login = {"accessToken": issuer.token("carol")}
    carol, answer = await hosts.asks("known.example", **login)
    assert code(answer) == 200
    carol.runtime_url = answer["to"]
    stranger = await hosts.come("known.example")
    issuer.is_up = False
    try:
        assert code(await stranger.ask("create", home.runtime_url)) == 401
        await carol.send("create", home.runtime_url, {"value": 1})
        heard = await home.expect(type="create")
        assert heard["body"]["assertedIdentity"] is True
        dave, answer = await hosts.asks("known.example", accessToken=issuer.token("dave"))
        assert code(answer) == 200  # by the keys that are known
        issuer.rotate("k2")
        unknown = issuer.token("erin", kid="k2")
        erin, answer = await hosts.asks("known.example", accessToken=unknown)
        assert code(answer) in (401, 503)  # its key is not known, and was asked for just before
        assert await stranger.close_code() == 4401
        assert await home.allocate()
    finally:
        issuer.is_up = True


async def test_case_80_policies_know_a_visitor_as_foreign_and_of_no_peer(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    words = ("--mode", "enforce", "--publish")
    registry, body = "domain://registry.localhost", {"resource": "user://localhost/bob@localhost"}
    async with node.ws() as visitor, node.ws() as home:
        await visitor.open("runtime://b.example/v")
        await home.open()
        assert code(await visitor.ask("read", registry, body)) == 404
        node.manage("policy_import", "--readymade", "foreign-no-directory", *words)
        async with asyncio.timeout(20):
            while code(await visitor.ask("read", registry, body)) != 403:
                await eventually()
        assert code(await home.ask("read", registry, body)) == 404
        assert await visitor.allocate()
        node.manage("policy_import", "--readymade", "foreign-closed", *words)
        async with asyncio.timeout(20):
            while code(await visitor.ask("create", ALLOCATION)) != 403:
                await eventually()
        await home.send("create", visitor.runtime_url, {"value": 1}, id="q")
        asked = await visitor.expect(type="create")
        await visitor.send("response", asked["from"], {"code": 200}, id=asked["id"])
        assert code(await home.answer("q")) == 200
        assert await home.allocate()


async def test_cases_87_and_89_a_visitor_of_a_peers_domain_has_its_own_addresses_for_its_time(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(VISITOR_IDLE_SECONDS=0, VISITOR_SECONDS=12, FEDERATION="listed")
    node.manage("shell", "-c", PEER)
    async with node.ws() as visitor, node.ws() as home:
        await home.open()
        await visitor.open("runtime://peer.example/v")
        named = "hyperty://peer.example/1"
        async with asyncio.timeout(20):  # until the worker has read that it is a peer
            while code(await visitor.ask("read", "domain://idm.localhost", sender=named)) != 403:
                await eventually()
        own = f"{visitor.runtime_url}/registry"
        await visitor.send("create", home.runtime_url, {"value": 2}, sender=own)
        assert (await home.expect(type="create", sender=own))["body"]["value"] == 2
        assert await visitor.close_code() == 1000
        assert await home.allocate()


PEER = """
from msgnode.federation import store
from msgnode.models import Peer
from msgnode.storage.control import post
Peer.objects.create(domain="peer.example", decision="approved", approved_digest="1" * 64)
post(store.CHANGED)
"""
