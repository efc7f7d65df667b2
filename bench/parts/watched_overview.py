"""What the console's moving overview costs a worker that has much to show: the share of a core it
takes at a steady rate with the page open, over what it takes without."""

from __future__ import annotations

from contextlib import ExitStack

from bench.consoles import Operator
from bench.driver import Generator
from bench.figures import PartResult, Ratio, Spread
from bench.plan import Plan
from bench.servers import NODE

SESSIONS, RATE, SIZE = 10_000, 2_000, 300
QUICK_SESSIONS = 1_000
WATCHED = "one console"
TARGET = 0.03
LENGTH = 5  # seconds of a sample for each of the plan's


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "watched_overview", "Processor of a worker, share of a core", unit="of a core",
        headline="server_cpu",
    )  # fmt: skip
    sessions = QUICK_SESSIONS if plan.quick else SESSIONS
    title = f"{sessions:,} sessions, {RATE:,} messages/s of {SIZE} B"
    seconds = LENGTH * plan.seconds
    with ExitStack() as stack:
        server = stack.enter_context(plan.servers.make(NODE))
        operator = Operator(server)
        generator = stack.enter_context(Generator(server))
        generator.call("hold", sessions=sessions)
        for turn in plan.rotations([0, 1]):
            for pages in turn:
                with operator.watching(pages) as told:
                    sample = generator.call("steady", rate=RATE, size=SIZE, seconds=seconds)
                if pages and min(told) < seconds / 2:
                    raise RuntimeError(f"The console stood still: {told}")
                result.case(title, WATCHED if pages else NODE).samples.append(sample)
        plan.say(title)
    watched, alone = (result.case(title, name).values("server_cpu") for name in (WATCHED, NODE))
    more = [one - other for one, other in zip(watched, alone, strict=True)]
    result.ratios.append(
        Ratio(title, "of a core more", WATCHED, NODE, Spread.of(more), TARGET, "at most")
    )
    return result
