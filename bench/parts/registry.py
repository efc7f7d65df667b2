"""The registry: searches in a small and a large domain, expiry of many entries, registrations.

Searches and expiry are measured in the database (bench.registry_store), registrations through the
connector, by sessions over WebSocket, each answered after its commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.driver import Generator
from bench.figures import PartResult, Sample, ratio
from bench.plan import Plan
from bench.postgres import PostgreSQL
from bench.processes import ROOT
from bench.servers import NODE

FEW, MANY, QUICK = 10_000, 1_000_000, 100_000
KEYS = ("url", "user", "email", "guid")
REGISTERING = "50 sessions × window 10"
P99_MS, GROWTH, REGISTRATIONS, EXPIRY_S = 5.0, 2.0, 1_000, 30.0


def measure(plan: Plan) -> PartResult:
    result = PartResult("registry", "Registry: searches, expiry and registrations per second")
    sizes = (FEW, QUICK if plan.quick else MANY)
    with ExitStack() as stack:
        servers = {"SQLite": ""}
        postgres = PostgreSQL.found(plan.servers.directory)
        if postgres is None:
            result.notes.append("PostgreSQL was not measured: no server was found.")
        else:
            servers["PostgreSQL"] = stack.enter_context(postgres).url
        for database, url in servers.items():
            _database(plan, result, database, url, sizes)
            _registrations(plan, result, database, url)
    return result


def _database(
    plan: Plan, result: PartResult, database: str, url: str, sizes: tuple[int, int]
) -> None:
    stores = []
    for size in sizes:
        store = _Store(plan.servers.directory / f"registry-{database}-{size}", url, size)
        seconds = store.do("fill")["seconds"]
        plan.say(f"{size:,} hyperties entered into {database} in {seconds:.0f} s")
        stores.append(store)
    for turn in plan.rotations(stores):
        for store in turn:
            times = store.do("search")
            for key in KEYS:
                p50, p99 = times[f"{key}_p50_us"], times[f"{key}_p99_us"]
                cpu = times[f"{key}_cpu_p99_us"]
                sample = {"rate": 1e6 / p50, "p50_us": p50, "p99_us": p99, "cpu_p99_us": cpu}
                result.case(f"search by {key}", store.name(database)).samples.append(sample)
    few, many = (store.name(database) for store in stores)
    for key in KEYS:
        large, small = (result.case(f"search by {key}", name) for name in (many, few))
        result.ratios.append(ratio(large, small, "p50_us", GROWTH, "at most"))
        p99 = median(large.values("p99_us")) / 1000
        cpu = median(large.values("cpu_p99_us")) / 1000
        text = f"search by {key}, {many}: p99 {p99:.1f} ms, of processor {cpu:.1f} ms"
        _judge(result, text, P99_MS, "ms", p99 <= P99_MS)
    ended = stores[-1].do("expire")
    result.case("expiry", many).samples.append(ended)
    text = f"expiry of {ended['entries']:,.0f}, {database}: {ended['seconds']:.1f} s"
    _judge(result, text, EXPIRY_S, "s", ended["seconds"] <= EXPIRY_S)


def _registrations(plan: Plan, result: PartResult, database: str, url: str) -> None:
    node = plan.servers.make(NODE, url and f"{url}?options=-csearch_path%3Dpublic")
    with node, Generator(node) as generator:
        for _ in range(plan.rounds):
            sample = generator.call("register", sessions=50, window=10, seconds=plan.seconds)
            result.case("registrations", f"node on {database}").samples.append(sample)
    rate = median(result.case("registrations", f"node on {database}").values("rate"))
    text = f"registrations, {REGISTERING}, {database}: {rate:,.0f}/s"
    _judge(result, text, REGISTRATIONS, "/s", rate >= REGISTRATIONS)


def _judge(result: PartResult, text: str, target: float, unit: str, is_met: bool) -> None:
    result.notes.append(f"{text}, aimed at {target:g} {unit}: {'met' if is_met else 'missed'}")


class _Store:
    """A database with so many hyperties. PostgreSQL keeps each size in a schema of its own."""

    def __init__(self, directory: Path, url: str, size: int) -> None:
        directory.mkdir()
        self._size = size
        schema = f"hyperties_{size}"
        self._environment = {
            **os.environ,
            "DATA_DIR": str(directory),
            "LOG_LEVEL": "WARNING",
            "REDIS_URL": "",
            "DATABASE_URL": f"{url}?options=-csearch_path%3D{schema}" if url else "",
        }
        if not url:
            self._environment["DATABASE_URL"] = f"sqlite:///{directory / 'node.sqlite3'}"
        else:
            self._run("-c", f"import psycopg; psycopg.connect({url!r}, autocommit=True)"
                      f".execute('CREATE SCHEMA {schema}')")  # fmt: skip
        self._run("manage.py", "migrate", "--verbosity", "0")

    def name(self, database: str) -> str:
        return f"{database}, {self._size:,}"

    def do(self, what: str) -> Sample:
        """Have bench.registry_store do it; what it tells."""
        told = self._run("-m", "bench.registry_store", what, str(self._size))
        sample: Sample = json.loads(told)
        return sample

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{arguments} failed:\n{done.stderr[-2000:]}")
        return done.stdout
