"""Microseconds of a policy decision: bench.policy's figures as a part of the whole."""

from __future__ import annotations

from bench.figures import PartResult
from bench.plan import Plan


def measure(plan: Plan) -> PartResult:
    from bench import policy  # brings what it compares with, which the other parts do without

    result = PartResult("policy", "Policy decision, p50 in µs", unit="µs", headline="p50_us")
    runs = dict(policy.loads(plan.quick))
    for _ in range(plan.rounds):
        for name, run in runs.items():
            p50, p99 = policy.sample(run, 0.02 if plan.quick else policy.SECONDS)
            load, _, size = name.rpartition(" ")
            case = result.case(f"{int(size):,} rules", load)
            case.samples.append({"p50_us": p50, "p99_us": p99})
        plan.say("a round of decisions")
    figures = {
        f"{case.server} {case.name.removesuffix(' rules').replace(',', '')}": {
            "p50": sorted(case.values("p50_us"))[len(case.samples) // 2],
            "p99": sorted(case.values("p99_us"))[len(case.samples) // 2],
        }
        for case in result.cases
    }
    result.notes += policy.judged(figures)
    return result
