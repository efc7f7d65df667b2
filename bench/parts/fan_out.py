"""Deliveries a second from one reporter to many observers, and how many were lost.

`fan_out` keeps four updates under way, `single_update` one, which no server can spread over its
turns: against Node.js with `ws`, which sends one buffer to all, and against the most that Node.js
can do, one frame made once and written to each socket.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, Sample, ratio
from bench.others import NODEJS_BUFFER, NODEJS_FRAME, nodejs
from bench.plan import Plan
from bench.servers import BARE, BARE_FAST, NODE

OBSERVERS = (100, 1_000, 5_000, 10_000)
QUICK = (100, 1_000)
BODY = 100
WINDOW = 4
TARGET = 1.3
SINGLE = 1_000  # observers of a single update
SINGLE_TARGET = 2.0  # against Node.js with one buffer


def measure(plan: Plan) -> PartResult:
    result = PartResult("fan_out", "Fan-out: deliveries per second, body 100 B")
    sizes = QUICK if plan.quick else OBSERVERS
    with ExitStack() as stack:
        servers = [stack.enter_context(plan.servers.make(name)) for name in (BARE, NODE)]
        generators = [stack.enter_context(Generator(server)) for server in servers]
        for size in sizes:
            for turn in plan.rotations(generators):
                for generator in turn:
                    sample = _sample(plan, generator, size, WINDOW, sizes)
                    result.case(_title(size), generator.server.name).samples.append(sample)
            plan.say(_title(size))
    for size in sizes:
        node, bare = result.case(_title(size), NODE), result.case(_title(size), BARE)
        result.ratios.append(ratio(node, bare, target=TARGET if size >= 1000 else None))
        result.ratios.append(ratio(node, bare, "per_cpu_second"))
    return result


def measure_single(plan: Plan) -> PartResult:
    result = PartResult("single_update", "One update under way to 1,000 observers: deliveries/s")
    with ExitStack() as stack:
        servers = [plan.servers.make(name) for name in (BARE_FAST, NODE)]
        for name in (NODEJS_BUFFER, NODEJS_FRAME):
            other = nodejs(plan.servers.directory, name)
            if other is None:
                result.notes.append(f"{name} was not measured: it is not installed.")
            else:
                servers.append(other)
        generators = [stack.enter_context(Generator(stack.enter_context(it))) for it in servers]
        for turn in plan.rotations(generators):
            for generator in turn:
                sample = _sample(plan, generator, SINGLE, 1, (SINGLE,))
                result.case(_title(SINGLE), generator.server.name).samples.append(sample)
    node = result.case(_title(SINGLE), NODE)
    for case in [each for each in result.cases if each is not node]:
        target = SINGLE_TARGET if case.server == NODEJS_BUFFER else None
        result.ratios.append(ratio(node, case, target=target))
        result.ratios.append(ratio(node, case, "per_cpu_second"))
    return result


def _sample(
    plan: Plan, generator: Generator, observers: int, window: int, sizes: tuple[int, ...]
) -> Sample:
    return generator.call(
        "fan_out",
        observers=observers,
        window=window,
        size=BODY,
        seconds=plan.seconds,
        sizes=list(sizes),
    )


def _title(observers: int) -> str:
    return f"1 → {observers:,} observers"
