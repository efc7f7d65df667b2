"""What a message between two sessions of one worker costs where the node has another worker.

Two workers of one node, joined by Redis, against two nodes of one worker each without Redis. Both
workers, or both nodes, relay at once, each between pairs of its own, so that what processes take
from one another is on both sides. Processor time is that of both together, whatever it is used
for: the message, or the other worker. That of Redis is not in it: no message goes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from bench.driver import Generator
from bench.figures import PartResult, Sample, ratio
from bench.plan import Plan
from bench.servers import NODE

from .workers import redis_of

ALONE, JOINED = "two nodes of one worker", "one node of two workers"
LOADS = ((10, 10, 100), (10, 10, 1_000), (10, 10, 10_000))  # pairs of each worker, window, size
GROUPS = ("-one", "-other")
TARGET = 1.1
_CPU = "cpu_us_each"


def measure(plan: Plan) -> PartResult:
    result = PartResult("local_pairs", "Pairs within each of two workers: messages per second")
    with redis_of(plan) as url, ExitStack() as stack:
        both = {
            ALONE: [plan.servers.make(NODE), plan.servers.make(NODE)],
            JOINED: [*plan.servers.make_pair(url)],
        }
        generators = {
            name: [Generator(stack.enter_context(server)) for server in servers]
            for name, servers in both.items()
        }
        for two in generators.values():
            for each in two:
                stack.enter_context(each)
        for pairs, window, size in LOADS:
            title = f"{pairs} × window {window}, {size} B"
            for turn in plan.rotations((ALONE, JOINED)):
                for name in turn:
                    sample = _sample(plan, generators[name], pairs, window, size)
                    result.case(title, name).samples.append(sample)
            joined, alone = result.case(title, JOINED), result.case(title, ALONE)
            result.ratios.append(ratio(joined, alone))
            result.ratios.append(ratio(joined, alone, _CPU, TARGET, "at most"))
            plan.say(title)
    return result


def _sample(
    plan: Plan, generators: Sequence[Generator], pairs: int, window: int, size: int
) -> Sample:
    """What both did in the same time, as one."""
    with ThreadPoolExecutor(len(generators)) as threads:
        calls = [
            threads.submit(
                each.call,
                "relay",
                pairs=pairs,
                window=window,
                size=size,
                seconds=plan.seconds,
                group=group,
            )
            for each, group in zip(generators, GROUPS, strict=True)
        ]
        samples = [call.result() for call in calls]
    rate, used = (sum(sample[key] for sample in samples) for key in ("rate", "server_cpu"))
    return {
        "rate": rate,
        "server_cpu": used,
        "generator_cpu": sum(sample["generator_cpu"] for sample in samples),
        _CPU: used / rate * 1e6 if rate else 0.0,
        "lost": sum(sample["lost"] for sample in samples),
    }
