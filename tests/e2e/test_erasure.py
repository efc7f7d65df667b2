"""After a person was erased, a search of all that the node has written finds nothing of the person.

Searched are every file in DATA_DIR, with SQLite's and its write-ahead log, the traffic record, logs
and spools, every table of PostgreSQL, and the keys and values of Redis, beside two workers that go
on.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import redis
from psycopg import sql

from tests.e2e.pair import Pair, running
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

MARK = "zqxjkvbw"
MAIL = f"{MARK}@localhost"
RUNTIME = f"runtime://localhost/{MAIL}/phone"
ROWS = f"""
from tests.console.test_persons import live_of
live_of({MARK!r})
"""


def found_in_files(place: Path) -> list[str]:
    """The files that have the mark in their content or their name."""
    files = [path for path in place.rglob("*") if path.is_file()]
    return sorted(
        str(path.relative_to(place))
        for path in files
        if MARK in str(path.relative_to(place)) or MARK.encode() in path.read_bytes()
    )


def found_in_tables(url: str) -> list[str]:
    """The tables of PostgreSQL of which a row has it, as text or as bytes."""
    likes = [f"%{MARK}%", f"%{MARK.encode().hex()}%"]
    with psycopg.connect(url) as rows:
        named = rows.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return [
            name
            for (name,) in named.fetchall()
            if rows.execute(
                sql.SQL("SELECT 1 FROM {} AS t WHERE t::text LIKE ANY (%s) LIMIT 1").format(
                    sql.Identifier(name)
                ),
                [likes],
            ).fetchone()
        ]


def found_in_redis(url: str) -> list[str]:
    """The keys that have it in their name or their value.

    But for names that workers only watch, because something was sent there not long ago: these last
    a few minutes (`test_w9_what_nothing_is_sent_to_is_soon_not_even_in_the_directory`).
    """
    mark = MARK.encode()
    found = []
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(count=1000):
            if mark in key or mark in (client.dump(key) or b""):
                is_name = b":n:" in key
                if not is_name or any(each[:1] != b"?" for each in client.smembers(key)):
                    found.append(key.decode(errors="replace"))
    return found


async def speak(pair: Pair) -> None:
    """What a runtime leaves where it speaks: sessions, addresses, record, links, refusals."""
    alice, bob = await pair.come(pair.one, RUNTIME), await pair.come(pair.other)
    (hers,), (his,) = await alice.allocate(), await bob.allocate()
    await alice.subscribe(f"{his}/changes")
    await bob.subscribe(f"{hers}/changes")
    for to in (his, f"{hers}/nobody", f"runtime://localhost/{MAIL}/tablet"):
        await alice.send("create", to, {"value": f"{MARK} says"}, sender=hers)
    await bob.expect(type="create")
    await bob.send("update", f"{his}/changes", {"value": MARK}, sender=his)
    await alice.expect(type="update", to=f"{his}/changes")
    await bob.send("create", RUNTIME, {"value": f"to {MARK}"}, sender=his)
    await alice.expect(type="create", to=RUNTIME)


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_a_search_finds_nothing_of_the_erased(
    tmp_path: Path, template: Path, database: str, request: pytest.FixtureRequest
) -> None:
    settings: dict[str, object]
    settings = {"RECORD_PSEUDONYM_KEY": "a key", "RECORD_FLUSH_SECONDS": 1, "GRACE_PERIOD": 600}
    tables = ""
    if database == "postgresql":
        settings["DATABASE_URL"] = tables = request.getfixturevalue("migrated_url")
    with running(tmp_path, template, **settings) as pair:
        node = pair.one
        url = node.environment["REDIS_URL"]
        node.manage("shell", "--verbosity", "0", "-c", ROWS)
        await speak(pair)
        until(lambda: any((tmp_path / "record").rglob("*.parquet")), 60)
        if tables:
            assert len(found_in_tables(tables)) > 10
        else:
            assert any("node.sqlite3" in name for name in found_in_files(tmp_path))
        kinds = {key.rsplit(":n:")[0] for key in found_in_redis(url)}
        assert len(kinds) > 1, "the directory, and what workers say to each other"

        node.manage("person_erase", MAIL, "--yes")
        until(lambda: found_in_redis(url) == [], 20, lambda: str(found_in_redis(url)))
        assert found_in_files(tmp_path) == []
        assert not tables or found_in_tables(tables) == []
        pair.one.terminate()
        pair.other.terminate()
        assert (pair.one.status(), pair.other.status()) == (0, 0)
        assert found_in_files(tmp_path) == [], "nor is it written at the end"
        assert not tables or found_in_tables(tables) == []
        assert found_in_redis(url) == []
