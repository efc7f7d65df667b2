"""What a reader that stalls costs its neighbours and the node's memory, against one that reads."""

from __future__ import annotations

from statistics import median

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.servers import NODE

SHAPE = {"pairs": 10, "window": 10, "size": 100}
LOAD = "10 pairs × window 10, 100 B, beside 10 MB/s to one reader"
READS, STALLS = "it reads", "it stalls"
STALLED_SECONDS = 60.0  # in all
QUICK = 8.0
TARGET = 0.8


def measure(plan: Plan) -> PartResult:
    result = PartResult("stalled_reader", "Relay beside a reader that stalls: messages per second")
    seconds = (QUICK if plan.quick else STALLED_SECONDS) / plan.rounds
    with plan.servers.make(NODE) as server, Generator(server) as generator:
        for turn in plan.rotations((READS, STALLS)):
            for name in turn:
                sample = generator.call("stall", stalls=name == STALLS, **SHAPE, seconds=seconds)
                result.case(LOAD, name).samples.append(sample)
            plan.say("a round beside the reader")
    reads, stalls = result.case(LOAD, READS), result.case(LOAD, STALLS)
    result.ratios.append(ratio(stalls, reads, target=TARGET))
    memory = {case.server: max(case.values("memory_mb")) for case in (reads, stalls)}
    sent = {case.server: median(case.values("sent_mb_s")) for case in (reads, stalls)}
    result.notes += [
        f"memory: {memory[READS]:.0f} MB where {READS}, {memory[STALLS]:.0f} where {STALLS}",
        f"it was sent {sent[READS]:.1f} MB/s where {READS}, {sent[STALLS]:.1f} where {STALLS}",
        f"it was ended {sum(stalls.values('ended')):.0f} times in {seconds * plan.rounds:.0f} s",
    ]
    return result
