"""One worker with very many sessions that are only there: what opening one takes, its memory, what
their heartbeats take of a core, how a pair fares beside them, and their return after a kill."""

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
PAIR: dict[str, Any] = {"rate": 500, "size": 300}
FILES_BESIDE = 5_000


def measure(plan: Plan) -> PartResult:
    wanted = QUICK if plan.quick else SESSIONS
    sessions = min(wanted, raise_file_limit(wanted + FILES_BESIDE) - FILES_BESIDE)
    result = PartResult(
        "many_sessions",
        f"One worker with {sessions:,} sessions of one address",
        unit="seconds",
        headline="seconds",
    )
    most = str(sessions + FILES_BESIDE)
    with (
        plan.servers.make(NODE, MAX_CONNECTIONS=most) as server,
        Generator(server) as crowd,
        Generator(server) as pair,
    ):
        alone = pair.call("steady", seconds=5 * plan.seconds, **PAIR)
        empty, began, used = resident_bytes(server.pid), time.perf_counter(), _used(server)
        lost = crowd.call("resume", sessions=sessions)["lost"]
        opened = {
            "seconds": time.perf_counter() - began,
            "cpu_ms_each": (_used(server) - used) / sessions * 1e3,
            "kib_each": (resident_bytes(server.pid) - empty) / sessions / 1024,
            "lost": lost,
        }
        result.case("opened", NODE).samples.append(opened)
        plan.say("opened")
        seconds = IDLE * plan.seconds
        used = _used(server)
        time.sleep(seconds)
        share = (_used(server) - used) / seconds
        result.case("only there", NODE).samples.append({"seconds": seconds, "server_cpu": share})
        beside = pair.call("steady", seconds=5 * plan.seconds, **PAIR)
        for title, sample in (("a pair before them", alone), ("a pair beside them", beside)):
            told = {key: sample[key] for key in ("p50_us", "p99_us", "lost")}
            result.case(title, NODE).samples.append({"seconds": 5 * plan.seconds, **told})
        plan.say("only there")
        began = time.perf_counter()
        server.kill()
        server.start()
        ready = time.perf_counter()
        lost = crowd.call("resume")["lost"]
        again = {
            "seconds": time.perf_counter() - began,
            "after_start_s": time.perf_counter() - ready,
            "lost": lost,
        }
        result.case("resumed after a kill", NODE).samples.append(again)
    result.notes.append("One round.")
    if sessions < wanted:
        text = f"{wanted:,} need {wanted + FILES_BESIDE:,} open files, more than are allowed here."
        result.notes.append(text)
    return result


def _used(server: Server) -> float:
    return cpu_seconds(server.pid)
