"""Deliveries a second from one reporter to many observers, and how many were lost."""

from __future__ import annotations

from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.servers import BARE, BARE_UVICORN, NODE, NODE_UVICORN

OBSERVERS = (100, 1_000, 5_000)
QUICK = (100, 1_000)
BODY = 100
WINDOW = 4
TARGET = 1.3


def measure(plan: Plan) -> PartResult:
    result = PartResult("fan_out", "Fan-out: deliveries per second, body 100 B")
    sizes = QUICK if plan.quick else OBSERVERS
    names = (BARE, NODE) if plan.quick else (BARE, NODE, BARE_UVICORN, NODE_UVICORN)
    with ExitStack() as stack:
        servers = [stack.enter_context(plan.servers.make(name)) for name in names]
        generators = [stack.enter_context(Generator(server)) for server in servers]
        for size in sizes:
            for turn in plan.rotations(generators):
                for generator in turn:
                    sample = generator.call(
                        "fan_out",
                        observers=size,
                        window=WINDOW,
                        size=BODY,
                        seconds=plan.seconds,
                        sizes=list(sizes),
                    )
                    result.case(_title(size), generator.server.name).samples.append(sample)
            plan.say(_title(size))
    for size in sizes:
        node, bare = result.case(_title(size), NODE), result.case(_title(size), BARE)
        result.ratios.append(ratio(node, bare, target=TARGET if size >= 1000 else None))
        result.ratios.append(ratio(node, bare, "per_cpu_second"))
        if not plan.quick:
            node = result.case(_title(size), NODE_UVICORN)
            bare = result.case(_title(size), BARE_UVICORN)
            result.ratios.append(ratio(node, bare))
    return result


def _title(observers: int) -> str:
    return f"1 → {observers:,} observers"
