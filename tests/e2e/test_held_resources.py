"""What a worker holds open stays the same, however many HTTP requests it serves: connections to the
database, files, threads. And what is seen while PostgreSQL has no connection left."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.client import code
from tests.console.browser import OPERATOR, PASSWORD, Browser, _hash, log_in
from tests.length import length
from tests.node import Node, running
from tests.waiting import until

pytestmark = pytest.mark.long

REQUEST_THREADS = 3
AT_A_TIME = 12
"""Clients, each with a connection that it keeps."""
OF_EACH_KIND = length(30, 1000)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
KINDS: tuple[tuple[str, str, str | None], ...] = (
    ("GET", "/o/.well-known/jwks.json", None),
    ("GET", "/o/authorize/?client_id=x&response_type=code", None),
    ("POST", "/o/token/", "grant_type=authorization_code&code=x&client_id=x"),
    ("GET", "/domain-registry/hyperty/user/user%3A%2F%2Fl%2Fa", None),
    ("GET", "/.well-known/contact-card?identifier=user://l/a", None),
    ("GET", "/api/v1/hyperties", None),
    ("GET", "/admin/msgnode/session/?p=1", None),
    ("GET", "/health/ready", None),
    ("GET", "/ws", None),
    ("GET", "/nowhere", None),
)
WORDS = "no connection left"


class Held(NamedTuple):
    """What a worker holds open, besides the sockets of its clients."""

    connections: int
    """To PostgreSQL, or handles of the files of SQLite."""
    files: int
    threads: int


def held(node: Node) -> Held:
    place = Path(f"/proc/{node.pid}")
    files: Counter[str] = Counter()
    for each in (place / "fd").iterdir():
        with suppress(OSError):
            files[str(each.readlink())] += 1
    handles = sum(number for name, number in files.items() if "node.sqlite3" in name)
    url = node.environment.get("DATABASE_URL")
    if url:
        with psycopg.connect(url) as client:
            row = client.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchone()
            handles = row[0] if row else 0
    return Held(handles, sum(files.values()), len(list((place / "task").iterdir())))


def ask_all(node: Node, cookie: str, times: int) -> Counter[int]:
    """Ask so many times for everything, several clients at once; how often which status came."""

    def client(first: int) -> Counter[int]:
        seen: Counter[int] = Counter()
        door = http.client.HTTPConnection("127.0.0.1", node.port, timeout=60)
        for at in range(first, times * len(KINDS), AT_A_TIME):
            method, path, body = KINDS[at % len(KINDS)]
            door.request(method, path, body, {"Host": "localhost", "Cookie": cookie, **FORM})
            answer = door.getresponse()
            answer.read()
            seen[answer.status] += 1
        door.close()
        return seen

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return sum(pool.map(client, range(AT_A_TIME)), Counter())


def cookie_of(browser: Browser) -> str:
    return "; ".join(f"{each.name}={each.value}" for each in browser._jar)


def operator(database: str) -> None:
    statement = re.sub(r":(\w+)", r"%(\1)s", OPERATOR)
    with psycopg.connect(database) as rows:
        rows.execute(statement, {"password": _hash(), "now": datetime.now(UTC)})


@pytest.fixture(params=["postgresql", "sqlite"])
def node(request: pytest.FixtureRequest, tmp_path: Path, template: Path) -> Iterator[Node]:
    more = {"REQUEST_THREADS": REQUEST_THREADS, "CONTACT_CARDS": "*"}
    if request.param == "postgresql":
        more["DATABASE_URL"] = request.getfixturevalue("migrated_url")
        operator(str(more["DATABASE_URL"]))
    with running(tmp_path / "n", template, **more) as node:
        yield node


def test_requests_leave_nothing_open(node: Node) -> None:
    if "DATABASE_URL" in node.environment:
        browser = Browser(node)
        browser.fill_in("login/", username="operator", password=PASSWORD)
    else:
        browser = log_in(node)
    cookie = cookie_of(browser)
    ask_all(node, cookie, AT_A_TIME)  # each thread has been used
    before = held(node)
    seen = ask_all(node, cookie, OF_EACH_KIND)
    assert not {500, 503} & set(seen), seen
    after = held(node)
    assert after.connections <= before.connections + 2, (before, after)
    assert after.threads <= before.threads + 4, (before, after)
    assert after.files <= before.files + 2 * AT_A_TIME, (before, after)  # sockets that just closed
    own = 23 if "DATABASE_URL" in node.environment else 3 * 23  # SQLite: file, log, shared memory
    assert after.connections <= REQUEST_THREADS + own


@contextmanager
def of_a_role(database: str, most: int) -> Iterator[str]:
    """The URL of the database for a role that may have so many connections."""
    role = sql.Identifier(name := f"r{uuid4().hex[:8]}")
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN CONNECTION LIMIT {}").format(role, most))
        for kind in ("TABLES", "SEQUENCES"):
            grant = sql.SQL("GRANT ALL ON ALL {} IN SCHEMA public TO {}")
            owner.execute(grant.format(sql.SQL(kind), role))
    parts = urlsplit(database)
    try:
        yield parts._replace(netloc=f"{name}@{parts.hostname}:{parts.port}").geturl()
    finally:
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
            owner.execute(sql.SQL("DROP ROLE {}").format(role))


@contextmanager
def none_left(url: str) -> Iterator[None]:
    """Take all connections that the role may still have."""
    with ExitStack() as stack:
        with suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(psycopg.connect(url, autocommit=True))
        yield


class Told(NamedTuple):
    status: int
    text: str
    seconds: float


def get(node: Node, path: str) -> Told:
    with closing(http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)) as door:
        began = time.monotonic()
        door.request("GET", path, headers={"Host": "localhost"})
        answer = door.getresponse()
        return Told(answer.status, answer.read().decode(), time.monotonic() - began)


def told(node: Node) -> tuple[int, dict[str, str]]:
    """The status of `/health/ready`, and the problems in it."""
    answer = get(node, "/health/ready")
    return answer.status, json.loads(answer.text).get("problems", {})


async def test_while_the_database_has_no_connection_left_messages_pass_and_requests_are_told(
    tmp_path: Path, migrated_url: str
) -> None:
    with (
        of_a_role(migrated_url, 30) as url,
        running(tmp_path / "n", tmp_path, DATABASE_URL=url) as node,
    ):
        async with node.ws() as one, node.ws() as other:
            await one.open()
            await other.open()
            with none_left(url):
                refused = get(node, "/api/v1/hyperties")
                assert refused.status == 503
                assert WORDS in refused.text
                assert refused.seconds < 10
                status, problems = told(node)
                assert (status, WORDS in problems["database"]) == (200, True), node.log()[-3000:]
                id_ = await one.send("update", other.runtime_url, {"value": "still here"})
                await other.expect(id=id_)
                answer = await one.ask(
                    "create", "domain://msg-node.localhost/address-allocation",
                    {"scheme": "comm", "value": {"number": 1}},
                )  # fmt: skip
                assert code(answer) == 200
            until(lambda: get(node, "/api/v1/hyperties").status == 200, 20)
            assert told(node) == (200, {})
