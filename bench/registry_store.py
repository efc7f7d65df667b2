"""The registry's database from inside: `python -m bench.registry_store DO HYPERTIES`.

A process of its own, on the database that DATABASE_URL names. DO is one of
    fill     enter the hyperties, one user for five of them, into empty tables
    search   search by each key for random entries, and tell how long it took
    expire   end up to 100,000 entries by a process of its own, and search meanwhile
Writes one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "msgnode.settings")
django.setup()

from django.db import connection, transaction  # noqa: E402

from registry import api  # noqa: E402
from registry.api import Kind, Search  # noqa: E402
from registry.models import Hyperty, Runtime, User  # noqa: E402

PER_USER = 5
EXPIRING = 100_000
SEARCHES = 1_000
_CHUNK = 10_000


def url(number: int) -> str:
    """The URL of a hyperty: as random as an allocated one, so that indexes grow everywhere."""
    return f"hyperty://localhost/{hashlib.sha256(str(number).encode()).hexdigest()[:32]}"


def user(number: int) -> str:
    return f"user://idp.example/u{number}@example.org"


def fill(hyperties: int) -> float:
    """Enter the hyperties; the seconds it took."""
    began = time.perf_counter()
    now = datetime.now(UTC)
    users = range(-(-hyperties // PER_USER))
    _insert(User, (
        {"user_id": user(n), "idp_identifier": f"u{n}@example.org", "first_seen": now}
        for n in users
    ))  # fmt: skip
    _insert(Runtime, ({"url": f"runtime://localhost/{n}", "first_seen": now} for n in users))
    _insert(Hyperty, (_hyperty(n, now) for n in range(hyperties)))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return time.perf_counter() - began


def _hyperty(number: int, now: datetime) -> dict[str, Any]:
    return {
        "url": url(number),
        "status": "live",
        "expires": 3600,
        "resources": '["chat","voice"]',
        "data_schemes": '["comm"]',
        "owner": "",
        "started_at": now,
        "modified_at": now,
        "expires_at": now + timedelta(seconds=3601),
        "user_id": user(number // PER_USER),
        "runtime_id": f"runtime://localhost/{number // PER_USER}",
        "descriptor": "hyperty-catalogue://localhost/.well-known/hyperty/Chat",
        "guid": f"user-guid://guid-of-{number // PER_USER}",
    }


def _insert(model: Any, rows: Iterator[dict[str, Any]]) -> None:
    """Rows in chunks, each a transaction, as fast as the database takes them."""
    while chunk := list(islice(rows, _CHUNK)):
        columns = list(chunk[0])
        named = ", ".join(columns)
        marks = ", ".join(["%s"] * len(columns))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {model._meta.db_table} ({named}) VALUES ({marks})",  # noqa: S608
                [list(row.values()) for row in chunk],
            )


def search_times(
    hyperties: int, searches: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each search by the clock, by key; every one finds what it looks for."""
    chosen = random.Random(1)  # the same entries in every run  # noqa: S311
    times: dict[str, list[float]] = {key: [] for key in ("url", "user", "email", "guid")}
    for _ in range(searches):
        number = chosen.randrange(hyperties)
        owner = number // PER_USER
        for key, value in (
            ("url", url(number)),
            ("user", user(owner)),
            ("email", f"u{owner}@example.org"),
            ("guid", f"user-guid://guid-of-{owner}"),
        ):
            began = clock()
            found = api.find(Search.by(Kind.HYPERTY, key, value))
            times[key].append(clock() - began)
            assert len(found) == (1 if key == "url" else min(PER_USER, hyperties))
    return times


def expiry(hyperties: int) -> dict[str, float]:
    """End many entries at once, as a process of its own does, and search meanwhile."""
    due = min(EXPIRING, hyperties)
    now = datetime.now(UTC)
    first = Hyperty.objects.order_by("pk").values_list("pk", flat=True)[0]
    for start in range(first, first + due, _CHUNK):
        Hyperty.objects.filter(pk__gte=start, pk__lt=min(start + _CHUNK, first + due)).update(
            expires_at=now
        )
    meanwhile: list[float] = []
    began = time.perf_counter()
    command = [sys.executable, "manage.py", "registry_expire", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        while other.poll() is None:
            meanwhile += search_times(hyperties, 1)["user"]
        seconds = time.perf_counter() - began
        assert other.stdout is not None
        assert json.load(other.stdout) == {"done": due}
    return {
        "entries": due,
        "seconds": seconds,
        "searches_meanwhile": len(meanwhile),
        "rate": due / seconds,
        "p50_us": percentile(meanwhile, 0.5) * 1e6,
        "p99_us": percentile(meanwhile, 0.99) * 1e6,
    }


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def searches(hyperties: int) -> dict[str, float]:
    """Times of SEARCHES searches by each key, and processor times, which other work on the machine
    does not lengthen (of this process: all of SQLite's work, none of a PostgreSQL server's)."""
    search_times(hyperties, SEARCHES // 10)  # warm
    result = {}
    for key, times in search_times(hyperties, SEARCHES).items():
        result[f"{key}_p50_us"] = percentile(times, 0.5) * 1e6
        result[f"{key}_p99_us"] = percentile(times, 0.99) * 1e6
    for key, times in search_times(hyperties, SEARCHES, time.thread_time).items():
        result[f"{key}_cpu_p99_us"] = percentile(times, 0.99) * 1e6
    return result


def main() -> None:
    do, hyperties = sys.argv[1], int(sys.argv[2])
    match do:
        case "fill":
            result = {"seconds": fill(hyperties)}
        case "search":
            result = searches(hyperties)
        case "expire":
            result = expiry(hyperties)
        case _:
            sys.exit(f"no such thing to do: {do}")
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
