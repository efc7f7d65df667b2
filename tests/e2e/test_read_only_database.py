"""PostgreSQL can only be read for a while, as a standby or a managed server whose disk is nearly
full: messages go on, what would be written is refused with the reason, and all comes back."""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from tests.client import ALLOCATION, Client, code
from tests.e2e.test_full_disk import put
from tests.e2e.test_slow_database import (  # noqa: F401  (a fixture)
    ask,
    exchange,
    logged_in,
    on_postgresql,
    until,
)
from tests.node import Node

pytestmark = pytest.mark.long

ENDED = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
WORDS = "The database can only be read"


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """A database that takes no change of anybody."""
    with psycopg.connect(url, autocommit=True) as server:
        name = sql.Identifier(server.info.dbname)
        change = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        for word in ("on", "off"):
            server.execute(change.format(name, sql.SQL(word)))
            server.execute(ENDED)
            if word == "on":
                yield


async def allocated(client: Client) -> tuple[int, str]:
    answer = await client.ask("create", ALLOCATION, {"scheme": "comm", "value": {"number": 1}})
    return code(answer), str(answer["body"].get("description", ""))


async def test_while_the_database_can_only_be_read_changes_are_refused_with_the_reason(
    on_postgresql: Node,  # noqa: F811
    migrated_url: str,
) -> None:
    node = on_postgresql
    browser = logged_in(node)
    ban = {"kind": "subject", "value": "eve", "reason": "x", "expires_at_0": "", "expires_at_1": ""}
    async with node.ws() as one, node.ws() as other:
        await one.open()
        await other.open()
        with read_only(migrated_url):
            number, said = await allocated(one)
            assert (number, WORDS in said) == (503, True), said
            await exchange(one, other)
            with pytest.raises(urllib.error.HTTPError) as refused:
                await browser.post("msgnode/ban/add/", **ban)
            assert refused.value.code == 503
            refusal = await asyncio.to_thread(put, node, 1)
            assert (refusal.code, WORDS in refusal.read().decode()) == (503, True)
            pages = [
                await asyncio.to_thread(ask, node, path, opener=browser._opener)
                for path in ("/admin/msgnode/ban/", "/api/v1/hyperties")
            ]
            assert [page.status for page in pages] == [200, 200]
            assert node.is_running()
        until(lambda: node.get("/health/ready") == 200, node)
        assert (await allocated(one))[0] == 200
        await exchange(one, other)
        await browser.post("msgnode/ban/add/", **ban)
