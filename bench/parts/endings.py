"""What the ends of sessions cost, and what a pair that talks meanwhile notices of them."""

from __future__ import annotations

from statistics import median

from bench.driver import Generator
from bench.figures import PartResult
from bench.plan import Plan
from bench.servers import NODE

BESIDE, EXPIRED = 1_000, 5_000
QUICK = (300, 500)
GRACE = 10.0
AIMS = {"cpu": 0.3, "p99": 50.0, "answers": 1.0}


def measure(plan: Plan) -> PartResult:
    result = PartResult(
        "endings",
        "Sessions that end: milliseconds of processor time each, and a pair beside them",
        unit="ms",
        headline="bystander_p99_ms",
    )
    beside, expired = QUICK if plan.quick else (BESIDE, EXPIRED)
    opening, expiry = f"{beside:,} open beside {beside:,} that close", f"{expired:,} expire"
    with (
        plan.servers.make(NODE, GRACE_PERIOD=str(GRACE)) as server,
        Generator(server) as generator,
    ):
        for _ in range(plan.rounds):
            result.case(opening, NODE).samples.append(generator.call("end", sessions=beside))
        for _ in range(1 if plan.quick else min(plan.rounds, 3)):
            sample = generator.call("end", sessions=expired, grace=GRACE)
            result.case(expiry, NODE).samples.append(sample)
    plan.say("ends of sessions")
    each = median(result.case(expiry, NODE).values("ended_cpu_ms_each"))
    p99 = median(result.case(expiry, NODE).values("bystander_p99_ms"))
    last = median(result.case(opening, NODE).values("last_answer_s"))
    result.notes += [
        f"{each:.2f} ms for each that expires, aimed at {AIMS['cpu']}",
        f"a pair beside the expiry, p99 {p99:.0f} ms, aimed at {AIMS['p99']:.0f}",
        f"last of {beside:,} opens answered after {last:.2f} s, aimed at 1",
    ]
    return result
