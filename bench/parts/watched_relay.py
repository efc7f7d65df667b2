"""What open consoles cost a relayed message: the same node with five pages of the overview and with
none, in turn."""

from __future__ import annotations

from contextlib import ExitStack

from bench.consoles import Operator
from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.servers import NODE

LOADS = ((10, 10, 100), (10, 10, 1_000))
WATCHED = "five consoles"
TARGET = 0.95
PAGES = 5


def measure(plan: Plan) -> PartResult:
    result = PartResult("watched_relay", "Relay with open consoles: messages per second")
    with ExitStack() as stack:
        server = stack.enter_context(plan.servers.make(NODE))
        operator = Operator(server)
        generator = stack.enter_context(Generator(server))
        for pairs, window, size in LOADS:
            title = f"{pairs} pairs × window {window}, {size} B"
            for turn in plan.rotations([0, PAGES], times=2):
                for pages in turn:
                    with operator.watching(pages) as told:
                        sample = generator.call(
                            "relay", pairs=pairs, window=window, size=size, seconds=plan.seconds
                        )
                        if pages and min(told) < plan.seconds / 2:
                            raise RuntimeError(f"The consoles stood still: {told}")
                    name = WATCHED if pages else NODE
                    result.case(title, name).samples.append(sample)
            plan.say(title)
            watched, alone = result.case(title, WATCHED), result.case(title, NODE)
            result.ratios.append(ratio(watched, alone, target=TARGET))
            result.ratios.append(ratio(watched, alone, "p99_us", 1.2, "at most"))
    return result
