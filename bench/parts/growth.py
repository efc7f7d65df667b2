"""How the relay's cost grows with what the node holds: 100,000 allocations and as many
subscriptions, against 10."""

from __future__ import annotations

from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.servers import NODE

ENTRIES = 100_000
QUICK = 20_000
FEW = 10
SHAPE = {"pairs": 10, "window": 10, "size": 100}
LOAD = "10 pairs × window 10, 100 B"
TARGET = 0.9


def measure(plan: Plan) -> PartResult:
    result = PartResult("growth", "Relay rate as the node grows: messages per second")
    many = QUICK if plan.quick else ENTRIES
    with ExitStack() as stack:
        generators = []
        for entries in (FEW, many):
            server = stack.enter_context(plan.servers.make(NODE))
            server.name = f"node holding {entries:,}"
            generator = stack.enter_context(Generator(server))
            generator.call("hold", entries=entries)
            generators.append(generator)
            plan.say(server.name)
        for turn in plan.rotations(generators):
            for generator in turn:
                sample = generator.call("relay", **SHAPE, seconds=plan.seconds)
                result.case(LOAD, generator.server.name).samples.append(sample)
    few, large = (result.case(LOAD, generator.server.name) for generator in generators)
    result.ratios.append(ratio(large, few, target=TARGET))
    result.ratios.append(ratio(large, few, "per_cpu_second"))
    return result
