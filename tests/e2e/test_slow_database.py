"""The database is frozen, locked, restarted or busy: what an operator, a client of the REST API, a
supervisor, a scraper and the runtimes see, and that all comes back by itself. Real nodes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from tests import waiting
from tests.client import ALLOCATION, Client, code
from tests.console.browser import OPERATOR, PASSWORD, Browser, _hash, log_in
from tests.node import Node, running

pytestmark = pytest.mark.long

LIMIT = 2
"""Seconds that these nodes wait for a statement."""
SETTINGS = {"DATABASE_TIMEOUT": LIMIT, "PROBE_TIMEOUT": 2, "PROBE_INTERVAL": 1}
SOON = LIMIT + 6.0
"""Seconds within which each answer is there: a connection is tried for some seconds, then a wait
has its limit and one second; machines are busy."""


class Told(NamedTuple):
    """An answer, and how long it took."""

    status: int
    kind: str
    retry_after: str
    text: str
    seconds: float


def ask(node: Node, path: str, *, accept: str = "*/*", opener: object = None) -> Told:
    """What is answered to a GET request, at the latest after half a minute."""
    url = f"http://127.0.0.1:{node.port}{path}"
    request = urllib.request.Request(url, headers={"Accept": accept})
    began = time.monotonic()
    try:
        answer = getattr(opener, "open", urllib.request.urlopen)(request, timeout=30)
    except urllib.error.HTTPError as refused:
        answer = refused
    with answer:
        text, head = answer.read().decode(), answer.headers
    kind = head.get("Content-Type", "").partition(";")[0]
    taken = time.monotonic() - began
    return Told(answer.status, kind, head.get("Retry-After", ""), text, taken)


def until(is_so: Callable[[], bool], node: Node) -> None:
    waiting.until(is_so, 40, node.log)


def value(metrics: str, line: str) -> float:
    found = re.search(rf"^{re.escape(line)} (\S+)$", metrics, re.M)
    return float(found[1]) if found else 0.0


def is_said_to_be_away(node: Node) -> bool:
    """Whether `/health/ready` says so."""
    ready = ask(node, "/health/ready")
    return ready.status == 503 and not json.loads(ready.text)["checks"]["database"]


@contextmanager
def frozen(url: str) -> Iterator[None]:
    """The whole server of a database, stopped."""
    with psycopg.connect(url) as own:
        (backend,) = own.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    own.close()
    with psycopg.connect(url) as own:
        (backend,) = own.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        server = int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])
    stopped = [server]
    os.kill(server, signal.SIGSTOP)
    try:
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        for child in map(int, children):
            try:
                os.kill(child, signal.SIGSTOP)
            except ProcessLookupError:
                continue
            stopped.append(child)
        yield
    finally:
        for each in stopped:
            try:
                os.kill(each, signal.SIGCONT)
            except ProcessLookupError:
                continue


@pytest.fixture
def on_postgresql(tmp_path: Path, migrated_url: str) -> Iterator[Node]:
    with psycopg.connect(migrated_url) as rows:
        statement = re.sub(r":(\w+)", r"%(\1)s", OPERATOR)
        rows.execute(statement, {"password": _hash(), "now": datetime.now(UTC)})
    with running(tmp_path / "n", tmp_path, DATABASE_URL=migrated_url, **SETTINGS) as node:
        yield node


def logged_in(node: Node) -> Browser:
    browser = Browser(node)
    browser.fill_in("login/", username="operator", password=PASSWORD)
    return browser


async def exchange(one: Client, other: Client) -> None:
    """A message that needs no database."""
    id_ = await one.send("update", other.runtime_url, {"value": "still here"})
    async with asyncio.timeout(5):
        await other.expect(id=id_)


async def refused_for_now(client: Client) -> str:
    """What is said of a change that cannot be written."""
    answer = await client.ask("create", ALLOCATION, {"scheme": "comm", "value": {"number": 1}})
    assert code(answer) in (503, 504), answer
    return str(answer["body"]["description"])


async def test_while_postgresql_is_frozen_everybody_is_told_and_messages_go_on(
    on_postgresql: Node, migrated_url: str
) -> None:
    node = on_postgresql
    opener = logged_in(node)._opener
    async with node.ws() as one, node.ws() as other:
        await one.open()
        await other.open()
        with frozen(migrated_url):
            await exchange(one, other)
            change = asyncio.create_task(refused_for_now(one))
            pages = [
                asyncio.to_thread(ask, node, path, accept=accept, opener=opener)
                for path, accept in (
                    ("/admin/", "text/html"), ("/admin/msgnode/ban/", "text/html"),
                    ("/api/v1/hyperties", "*/*"), ("/api/v1/peers/", "*/*"),
                    ("/domain-registry/hyperty/user/x", "*/*"),
                    ("/global-registry/guid/x", "*/*"), ("/api/docs", "text/html"),
                    ("/metrics", "*/*"), ("/health/live", "*/*"),
                )
            ]  # fmt: skip
            told = await asyncio.gather(*pages)
            await exchange(one, other)
            await change
            until(lambda: "Alarm: A commit did not come back" in node.log(), node)
            until(lambda: is_said_to_be_away(node), node)
        overview, bans, hyperties, peers, field, field_global, docs, metrics, live = told
        for page in (overview, bans):
            assert (page.status, page.kind) == (503, "text/html")
            assert "The database is out of reach or does not answer" in page.text
        for answer in (hyperties, peers):
            assert (answer.status, answer.kind) == (503, "application/problem+json")
            assert json.loads(answer.text)["type"] == "/problems/errors/unavailable"
        assert json.loads(field.text)["message"].startswith("The database")
        assert json.loads(field_global.text)["Code"] == 503
        for answer in (overview, bans, hyperties, peers, field, field_global):
            assert (answer.status, answer.retry_after) == (503, "5"), answer
        assert (docs.status, live.status) == (200, 200)
        assert metrics.status == 200
        assert value(metrics.text, "msgnode_database_up") == 0
        assert "msgnode_sessions" in metrics.text
        for answer in told:
            assert answer.seconds < SOON, answer
        until(lambda: node.get("/health/ready") == 200, node)
        assert await one.allocate()
        await exchange(one, other)
        metrics = ask(node, "/metrics")
        assert value(metrics.text, "msgnode_database_up") == 1
        assert value(metrics.text, 'msgnode_faults_total{part="database request"}') >= 5
        assert ask(node, "/admin/", accept="text/html", opener=opener).status == 200
        with psycopg.connect(migrated_url, autocommit=True) as rows:
            alarm = "SELECT count(*) FROM msgnode_alarm WHERE kind = 'path-broken'"
            until(lambda: rows.execute(alarm).fetchone() == (1,), node)
            sessions = rows.execute("SELECT count(*) FROM msgnode_session").fetchone()
        assert sessions == (2,)


async def test_who_waits_for_a_locked_row_is_told_and_nobody_else_waits(
    on_postgresql: Node, migrated_url: str
) -> None:
    node = on_postgresql
    opener = logged_in(node)._opener
    async with node.ws() as one, node.ws() as other:
        await one.open()
        await other.open()
        with psycopg.connect(migrated_url) as holder:
            holder.execute("LOCK TABLE msgnode_ban IN ACCESS EXCLUSIVE MODE")
            bans = await asyncio.to_thread(
                ask, node, "/admin/msgnode/ban/", accept="text/html", opener=opener
            )
            assert bans.status == 503
            assert LIMIT * 0.9 < bans.seconds < SOON
            assert "somebody else keeps rows locked" in bans.text
            assert ask(node, "/api/v1/hyperties").status == 200
            assert await one.allocate()
            await exchange(one, other)
            assert node.get("/health/ready") == 200
            holder.rollback()
        assert ask(node, "/admin/msgnode/ban/", accept="text/html", opener=opener).status == 200


async def test_after_postgresql_was_restarted_the_next_request_is_served(
    on_postgresql: Node, migrated_url: str
) -> None:
    node = on_postgresql
    opener = logged_in(node)._opener
    async with node.ws() as one, node.ws() as other:
        await one.open()
        await other.open()
        assert ask(node, "/api/v1/hyperties").status == 200
        with psycopg.connect(migrated_url, autocommit=True) as rows:
            rows.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert ask(node, "/api/v1/hyperties").status == 200
        assert ask(node, "/admin/", accept="text/html", opener=opener).status == 200
        assert await one.allocate()
        await exchange(one, other)


async def test_while_another_process_keeps_sqlite_locked_reading_goes_on_and_writing_is_told(
    tmp_path: Path, template: Path
) -> None:
    with running(tmp_path / "n", template, **SETTINGS) as node:
        browser = log_in(node)
        ban = {"kind": "subject", "value": "eve", "reason": "x"}
        form = ban | {"expires_at_0": "", "expires_at_1": ""}
        async with node.ws() as one, node.ws() as other:
            await one.open()
            await other.open()
            with closing(sqlite3.connect(node.data_dir / "node.sqlite3", timeout=30)) as holder:
                holder.execute("BEGIN IMMEDIATE")
                change = asyncio.create_task(refused_for_now(one))
                began = time.monotonic()
                with pytest.raises(urllib.error.HTTPError) as refused:
                    await browser.post("msgnode/ban/add/", **form)
                assert refused.value.code == 503
                assert time.monotonic() - began < SOON
                listed = await asyncio.to_thread(
                    ask, node, "/admin/msgnode/ban/", accept="text/html", opener=browser._opener
                )
                assert listed.status == 200
                assert ask(node, "/api/v1/hyperties").status == 200
                await exchange(one, other)
                assert "locked" in await change
                holder.rollback()
            until(lambda: node.get("/health/ready") == 200, node)
            assert node.rows("SELECT count(*) FROM msgnode_ban") == [(0,)]
            await browser.post("msgnode/ban/add/", **form)
            assert node.rows("SELECT value FROM msgnode_ban") == [("eve",)]
            assert await one.allocate()
