"""PostgreSQL does not answer a COMMIT, or a row is locked: the answers are true, and others are
served. Real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests import waiting
from tests.client import ALLOCATION, Client, code
from tests.commit_proxy import CommitProxy, commit_proxy
from tests.databases import database
from tests.node import Node, eventually, running
from tests.services import NotAvailable, miss, postgres_server

pytestmark = pytest.mark.long

TABLE = "msgnode_allocation"


@pytest.fixture
def both(tmp_path: Path, migrated_url: str) -> Iterator[tuple[Node, CommitProxy]]:
    with (
        commit_proxy(migrated_url) as (proxy, url),
        running(tmp_path / "n", tmp_path, DATABASE_URL=url) as node,
    ):
        yield node, proxy


@pytest.fixture
def durable_url(tmp_path: Path) -> Iterator[str]:
    """The URL of a migrated database on a server that waits for its disk."""
    try:
        with postgres_server(is_durable=True) as server, database(server) as url:
            Node(tmp_path, DATABASE_URL=url).migrate()
            yield url
    except NotAvailable as lack:
        miss(lack)


def allocations(url: str) -> int:
    with psycopg.connect(url) as rows:
        found = rows.execute(f"SELECT count(*) FROM {TABLE}").fetchone()  # noqa: S608
    return found[0] if found else 0


async def ask_for(client: Client, number: int) -> int:
    """Ask for addresses; the id of the request."""
    body = {"scheme": "comm", "value": {"number": number}}
    return int(await client.send("create", ALLOCATION, body))


async def test_a_commit_whose_answer_is_lost_is_answered_as_what_it_became(
    both: tuple[Node, CommitProxy], migrated_url: str
) -> None:
    node, proxy = both
    async with node.ws() as one, node.ws() as other:
        await one.open()
        await other.open()
        proxy.lose(TABLE)
        who = (one, other, one)
        asked = [await ask_for(each, 3) for each in who]
        answers = [await each.answer(id_) for each, id_ in zip(who, asked, strict=True)]
        assert proxy.has_caught.is_set()
        assert [code(each) for each in answers] == [200] * 3, answers
        addresses = [a for each in answers for a in each["body"]["value"]["allocated"]]
        assert len(set(addresses)) == allocations(migrated_url) == 9
        gone = await one.ask("delete", ALLOCATION, {"resource": addresses[0]})
        assert code(gone) == 200
        assert allocations(migrated_url) == 8


async def test_a_session_is_ended_whose_change_is_committed_after_it_was_refused(
    tmp_path: Path, durable_url: str
) -> None:
    with (
        commit_proxy(durable_url) as (proxy, url),
        running(tmp_path / "n", tmp_path, DATABASE_URL=url) as node,
    ):
        await refused_and_committed(node, proxy, durable_url)


async def refused_and_committed(node: Node, proxy: CommitProxy, database_url: str) -> None:
    async with node.ws() as one, node.ws() as other:
        await one.open()
        await other.open()
        written = 0
        async with asyncio.timeout(60):
            while True:
                proxy.freeze(TABLE)
                refused = await one.answer(await ask_for(one, 3))
                if code(refused) != 200:
                    break
                proxy.thaw()  # it was frozen too late: its answer had been sent
                written += 3
        assert code(refused) == 503, refused
        assert proxy.has_caught.is_set()
        assert allocations(database_url) == written
        proxy.thaw()
        async with asyncio.timeout(30):
            while allocations(database_url) != written + 3:  # what was refused is written after all
                await eventually()
        assert await other.allocate(number=2)
        assert await one.close_code() == 3001
        async with asyncio.timeout(30):
            while allocations(database_url) != 2:
                await eventually()
    async with node.ws() as again:
        await again.open(one.runtime_url)
        assert await again.allocate()


async def test_who_waits_together_with_a_locked_row_is_served(
    both: tuple[Node, CommitProxy], migrated_url: str
) -> None:
    node, _ = both
    async with node.ws() as one, node.ws() as other, node.ws() as third:
        for each in (one, other, third):
            await each.open()
        with psycopg.connect(migrated_url) as holder:
            holder.execute(
                "SELECT id FROM msgnode_session WHERE runtime_url = %s FOR UPDATE",
                [one.runtime_url],
            )
            first = await ask_for(one, 1)  # the writer waits for the lock, the rest for the writer
            await asyncio.to_thread(_wait_for_lock, migrated_url)
            second = await ask_for(one, 1)
            beside = [await ask_for(other, 1), await ask_for(third, 1)]
            answers = [await other.answer(beside[0]), await third.answer(beside[1])]
            assert [code(each) for each in answers] == [200, 200], answers
            refused = [await one.answer(first), await one.answer(second)]
            assert [code(each) for each in refused] == [503, 503]
            assert all("rows" in each["body"]["description"] for each in refused), refused
            holder.rollback()
        assert await one.allocate()
        assert await other.allocate()


def _wait_for_lock(url: str) -> None:
    """Return once somebody waits for a lock."""
    with psycopg.connect(url, autocommit=True) as rows:
        asked = (
            "SELECT 1 FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        waiting.until(lambda: rows.execute(asked).fetchone(), 30.0)
