"""Seconds of the field's allocation and subscription runs, against a bare echo of as many requests.

The field's suites hold 30,000 addresses in a session, give them back in 10,000 requests, and bring
1,000 and 5,000 subscribers. Every answer follows a commit, which the bare relay does not make. At
the only worker, and at one of two that are joined by Redis.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, ratio
from bench.plan import Plan
from bench.processes import Server
from bench.servers import BARE, NODE

from .workers import redis_of

REQUESTS = 10_000
SUBSCRIBERS = (1_000, 5_000)
KINDS = {
    "echo_s": "echoes",
    "allocate_s": "allocations of 3 addresses",
    "deallocate_s": "de-allocations of 3 addresses",
}
TARGETS = {"deallocate_s": 4.0, 1_000: 1.5, 5_000: 10.0}


def measure(plan: Plan) -> PartResult:
    """At the only worker."""
    with ExitStack() as stack:
        bare, node = (stack.enter_context(plan.servers.make(name)) for name in (BARE, NODE))
        return _measure(plan, "single_requests", "one worker", bare, node)


def measure_workers(plan: Plan) -> PartResult:
    """At one of two workers: what is acknowledged is known to the other."""
    with ExitStack() as stack:
        url = stack.enter_context(redis_of(plan))
        bare = stack.enter_context(plan.servers.make(BARE))
        node, _ = (stack.enter_context(each) for each in plan.servers.make_pair(url))
        return _measure(plan, "single_requests_workers", "two workers", bare, node)


def _measure(plan: Plan, part: str, where: str, relay: Server, node: Server) -> PartResult:
    result = PartResult(
        part,
        f"Single requests of the field's suites, {where}, seconds",
        unit="s",
        headline="seconds",
    )
    number = REQUESTS // 10 if plan.quick else REQUESTS
    counts = SUBSCRIBERS[:1] if plan.quick else SUBSCRIBERS
    with ExitStack() as stack:
        load = {
            BARE: stack.enter_context(Generator(relay)),
            NODE: stack.enter_context(Generator(node)),
        }
        for _ in range(plan.rounds):
            bare = load[BARE].call("echo", number=number)
            ours = load[NODE].call("single_requests", number=number)
            for key, what in KINDS.items():
                case = result.case(f"{number:,} {what}", NODE)
                case.samples.append({"seconds": ours[key], "lost": ours["lost"]})
            result.case(f"{number:,} echoes", BARE).samples.append({"seconds": bare["seconds"]})
            few = f"{number // 10:,}, each after the answer before"
            result.case(few, BARE).samples.append({"seconds": bare["one_by_one_s"]})
            result.case(few, NODE).samples.append({"seconds": ours["one_by_one_s"]})
            for count in counts:
                for name in (BARE, NODE):
                    sample = load[name].call("subscribers", number=count)
                    result.case(f"{count:,} subscribers", name).samples.append(sample)
            plan.say("a round of single requests")
    echo = result.case(f"{number:,} echoes", BARE)
    for key, what in KINDS.items():
        case = result.case(f"{number:,} {what}", NODE)
        result.ratios.append(ratio(case, echo, "seconds"))
        _judge(result, case.name, TARGETS.get(key), plan)
    result.ratios.append(ratio(result.case(few, NODE), result.case(few, BARE), "seconds"))
    for count in counts:
        name = f"{count:,} subscribers"
        result.ratios.append(ratio(result.case(name, NODE), result.case(name, BARE), "seconds"))
        _judge(result, name, TARGETS[count], plan)
    return result


def _judge(result: PartResult, name: str, target: float | None, plan: Plan) -> None:
    if target is None or plan.quick:
        return
    seconds = sorted(result.case(name, NODE).values("seconds"))
    middle = seconds[len(seconds) // 2]
    verdict = "met" if middle <= target else "missed"
    result.notes.append(f"{name}: {middle:.2f} s, aimed at {target} s: {verdict}")
