"""What policies cost a relayed message: the node with 100 indexed rules against one without.

The difference is smaller than what a busy machine adds and takes away between two samples, so there
are many short ones.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.servers import NODE, NODE_WITHOUT_RULES

LOADS = ((10, 10, 100), (10, 10, 1_000))  # pairs, window, size
TARGET = 0.9
SHORT = 5  # so many times more rounds, each so much shorter


def measure(plan: Plan) -> PartResult:
    result = PartResult("policed_relay", "Relay with and without 100 rules: messages per second")
    with ExitStack() as stack:
        servers = [stack.enter_context(plan.servers.make(n)) for n in (NODE_WITHOUT_RULES, NODE)]
        generators = [stack.enter_context(Generator(server)) for server in servers]
        for pairs, window, size in LOADS:
            title = f"{pairs} pairs × window {window}, {size} B"
            for turn in plan.rotations(generators, SHORT):
                for generator in turn:
                    sample = generator.call(
                        "relay", pairs=pairs, window=window, size=size, seconds=plan.seconds / SHORT
                    )
                    result.case(title, generator.server.name).samples.append(sample)
            plan.say(title)
            mine, plain = result.case(title, NODE), result.case(title, NODE_WITHOUT_RULES)
            result.ratios.append(ratio(mine, plain, target=TARGET))
            result.ratios.append(ratio(mine, plain, "per_cpu_second", TARGET))
    return result
