"""One worker with very many idle sessions: processor time and memory of each, the cost of their
heartbeats, a pair that talks beside them, and their resumption after the loss of all connections
and after the worker was killed.

Where fewer files may be open than there are sessions, the rest are detached: each is opened, and
then loses its connection.
"""

from __future__ import annotations

import time
from typing import Any

from bench.driver import Generator
from bench.figures import PartResult
from bench.plan import Plan
from bench.processes import Server, cpu_seconds, raise_file_limit, resident_bytes
from bench.servers import NODE

SESSIONS, QUICK = 100_000, 2_000
IDLE = 60  # seconds: three heartbeats of each
PAIR: dict[str, Any] = {"pairs": 20, "rate": 500, "size": 300}
FILES_BESIDE = 5_000
GRACE = 3_600  # seconds until a detached session ends: longer than all of this takes


def measure(plan: Plan) -> PartResult:
    sessions = QUICK if plan.quick else SESSIONS
    sockets = min(sessions, raise_file_limit(sessions + FILES_BESIDE) - FILES_BESIDE)
    result = PartResult(
        "many_sessions",
        f"One worker with {sessions:,} sessions of one address, {sockets:,} of them connected",
        unit="seconds",
        headline="seconds",
    )
    with (
        plan.servers.make(
            NODE,
            MAX_CONNECTIONS=str(max(sockets, sessions // 2) + FILES_BESIDE),
            GRACE_PERIOD=str(GRACE),
        ) as server,
        Generator(server) as crowd,
        Generator(server) as pair,
    ):
        alone = pair.call("relay", seconds=5 * plan.seconds, **PAIR)
        for title, number in _stages(sessions, sockets):
            result.case(title, NODE).samples.append(_opened(server, crowd, number, sockets))
            plan.say(title)
        seconds = IDLE * plan.seconds
        used = _used(server)
        time.sleep(seconds)
        share = (_used(server) - used) / seconds
        result.case("idle", NODE).samples.append({"seconds": seconds, "server_cpu": share})
        beside = pair.call("relay", seconds=5 * plan.seconds, **PAIR)
        for title, sample in (("a pair before them", alone), ("a pair beside them", beside)):
            told = {key: sample[key] for key in ("p50_us", "p99_us", "lost")}
            result.case(title, NODE).samples.append({"seconds": 5 * plan.seconds, **told})
        plan.say("idle")
        again = _resumed(server, crowd, sessions, sockets)
        result.case("resumed after the loss of all connections", NODE).samples.append(again)
        began = time.perf_counter()
        server.kill()
        server.start()
        again = _resumed(server, crowd, sessions, sockets)
        again |= {"seconds": time.perf_counter() - began, "after_start_s": again["seconds"]}
        result.case("resumed after a kill", NODE).samples.append(again)
    result.notes.append("One round.")
    if sockets < sessions:
        text = f"{sessions:,} connected ones need {sessions + FILES_BESIDE:,} open files, more than"
        result.notes.append(f"{text} are allowed here; each was connected when it was opened.")
    return result


def _stages(sessions: int, sockets: int) -> list[tuple[str, int]]:
    """Title and number of the sessions that are opened one after another; with each of the second,
    one of the first loses its connection."""
    stages = [("opened, connected", sockets), ("opened, as many detached", sessions - sockets)]
    return [stage for stage in stages if stage[1]]


def _opened(server: Server, crowd: Generator, number: int, sockets: int) -> dict[str, float]:
    memory, began, used = resident_bytes(server.pid), time.perf_counter(), _used(server)
    lost = crowd.call("resume", sessions=number, sockets=sockets)["lost"]
    return {
        "seconds": time.perf_counter() - began,
        "cpu_ms_each": (_used(server) - used) / number * 1e3,
        "kib_each": (resident_bytes(server.pid) - memory) / number / 1024,
        "lost": lost,
    }


def _resumed(server: Server, crowd: Generator, sessions: int, sockets: int) -> dict[str, float]:
    began, used = time.perf_counter(), _used(server)
    lost = crowd.call("resume", sockets=sockets)["lost"]
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "cpu_ms_each": (_used(server) - used) / sessions * 1e3,
        "lost": lost,
    }


def _used(server: Server) -> float:
    return cpu_seconds(server.pid)
