"""Addresses a second, each acknowledged after its commit, against the commits the disk allows.

The bare database takes one row a transaction from one thread, with the node's settings of SQLite.
"""

from __future__ import annotations

import itertools
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path

from bench.databases import nodes
from bench.driver import Generator
from bench.figures import PartResult, Sample, ratio
from bench.plan import Plan

DATABASE = "one row a commit"
SEQUENTIAL = "1 session, one after another"
PIPELINED = "10 sessions × window 50"
LOADS = {SEQUENTIAL: (1, 1), PIPELINED: (10, 50)}
TARGETS = {"SQLite": 3_000, "PostgreSQL": 5_000}


def measure(plan: Plan) -> PartResult:
    result = PartResult("allocation", "Allocations per second, with commit")
    with ExitStack() as stack:
        generators = {
            database: stack.enter_context(Generator(node))
            for database, node in nodes(plan, stack, result).items()
        }
        scratch = (plan.servers.directory / f"commits-{number}" for number in itertools.count())
        for _ in range(plan.rounds):
            sample = _commits(next(scratch), plan.seconds)
            result.case(DATABASE, "SQLite alone").samples.append(sample)
            for title, (sessions, window) in LOADS.items():
                for database, generator in generators.items():
                    sample = generator.call(
                        "allocate", sessions=sessions, window=window, seconds=plan.seconds
                    )
                    result.case(title, f"node on {database}").samples.append(sample)
            plan.say("a round of allocations")
    alone = result.case(DATABASE, "SQLite alone")
    for title in LOADS:
        result.ratios.append(ratio(result.case(title, "node on SQLite"), alone))
    for database in generators:
        rates = sorted(result.case(PIPELINED, f"node on {database}").values("rate"))
        middle, target = rates[len(rates) // 2], TARGETS[database]
        verdict = "met" if middle >= target else "missed"
        result.notes.append(
            f"{PIPELINED}, {database}: {middle:,.0f}/s, aimed at {target:,}/s: {verdict}"
        )
    return result


def _commits(path: Path, seconds: float) -> Sample:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE held (id INTEGER PRIMARY KEY, address TEXT UNIQUE)")
        number, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            number += 1
            database.execute("INSERT INTO held (address) VALUES (?)", (f"comm://d/{number}",))
        return {"rate": number / (time.perf_counter() - began)}
