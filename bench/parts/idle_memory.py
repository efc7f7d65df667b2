"""Memory of a session that is only there, with one address and one subscription, over what the
connection costs the bare server."""

from __future__ import annotations

import time

from bench.driver import Generator
from bench.figures import PartResult, Ratio, Spread
from bench.plan import Plan
from bench.processes import resident_bytes
from bench.servers import BARE, NODE

SESSIONS = (1_000, 5_000, 10_000)
QUICK = (500, 1_500)
TARGET = 35.0
SETTLE = 1.0


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "idle_memory", "Memory of an idle session, KiB", unit="KiB", headline="kib_per_session"
    )
    sizes = QUICK if plan.quick else SESSIONS
    for name in (NODE, BARE):
        _measure(result, plan, name, sizes)
        plan.say(name)
    for size in sizes:
        mine, bare = (result.case(_title(size), name) for name in (NODE, BARE))
        more = mine.values("kib_per_session")[0] - bare.values("kib_per_session")[0]
        spread = Spread(more, more, more)
        result.ratios.append(Ratio(_title(size), "KiB more", NODE, BARE, spread, TARGET, "at most"))
    result.notes.append("One round: a server that has been used has other memory than a new one.")
    return result


def _measure(result: PartResult, plan: Plan, name: str, sizes: tuple[int, ...]) -> None:
    with plan.servers.make(name) as server, Generator(server) as generator:
        generator.call("hold", sessions=20)  # what the first session loads is no session's
        time.sleep(SETTLE)
        empty = resident_bytes(server.pid)
        for size in sizes:
            began = time.perf_counter()
            held = generator.call("hold", sessions=size)
            opened = time.perf_counter() - began
            time.sleep(SETTLE)
            each = (resident_bytes(server.pid) - empty) / 1024 / (size - 20)
            result.case(_title(size), name).samples.append(
                {"kib_per_session": each, "opened_in_s": opened, "lost": held["lost"]}
            )


def _title(sessions: int) -> str:
    return f"{sessions:,} sessions"
