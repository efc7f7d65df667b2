"""Seconds until all sessions of a killed worker are resumed, each with one address: from the kill
to the last answer, the start of the new process included."""

from __future__ import annotations

import time

from bench.driver import Generator
from bench.figures import PartResult
from bench.plan import Plan
from bench.servers import NODE

SESSIONS = (1_000, 5_000)
QUICK = (500,)


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "resumption",
        "Sessions resumed after the worker was killed, seconds",
        unit="s",
        headline="seconds",
    )
    for sessions in QUICK if plan.quick else SESSIONS:
        for _ in range(1 if plan.quick else min(plan.rounds, 3)):
            with plan.servers.make(NODE) as server, Generator(server) as generator:
                generator.call("resume", sessions=sessions)
                killed = time.perf_counter()
                server.kill()
                server.start()
                ready = time.perf_counter()
                lost = generator.call("resume")["lost"]
                resumed = time.perf_counter()
            result.case(f"{sessions:,} sessions", NODE).samples.append(
                {"seconds": resumed - killed, "after_start_s": resumed - ready, "lost": lost}
            )
        plan.say(f"{sessions:,} sessions")
    return result
